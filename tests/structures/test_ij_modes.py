"""The IJ-heap's tests again in other modes, and with planted bugs (canaries), as `test_modes.py` does for the interval tree."""

from __future__ import annotations

import pytest

from tests.structures.test_modes import MODES, is_noticed, names, passes

# (module, function, what it is replaced by): each is a mistake that one could make.
CANARIES = [
    ("structures.multiway.tree", "own", "lambda M, W, C, Q, T, o: o"),
    ("structures.multiway.tree", "refresh", "lambda M, W, T, X, which, o, pending, s, key, end, slot, sign: 0"),
    ("structures.multiway.tree", "balance", "lambda M, W, C, Q, T, X, o: None"),
    ("structures.multiway.summary", "touches", "lambda M, W, T, which, o, v, s, key, end, slot, sign: (sign > 0, sign > 0)"),
    ("structures.ij_heap.walk", "has_tuple", "lambda M, W, T, Z, X, g, o, v: False"),
    ("structures.ij_heap.walk", "crosses", "lambda M, W, T, Z, o, g, r: -1"),
    ("structures.ij_heap.walk", "at_least", "lambda M, W, T, o, i, key, bound: False"),
    ("structures.ij_heap.bind", "narrow", "lambda M, W, T, Z, o, v, level, p, crossing: True"),
    ("structures.ij_heap.strip", "widen", "lambda M, W, T, X, lower, upper, v, key: None"),
    ("structures.multiway.extreme", "cross", "lambda M, W, T, X, which, f, r: False"),
    ("structures.core.arena", "pinned", "lambda pins, born, retired: False"),
]


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    passes(mode, "not tens_of_thousands", "tests/structures/test_ij_heap.py", "tests/structures/test_ij_erratum.py")


@pytest.mark.parametrize("canary", CANARIES, ids=names(CANARIES))
def test_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "ij_machine.IJMachine")
