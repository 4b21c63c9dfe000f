"""The join tree's tests again in other modes, and with planted bugs (canaries), as `test_modes.py` does for the interval tree."""

from __future__ import annotations

import pytest

from tests.structures.test_modes import MODES, is_noticed, names, passes

# (module, function, what it is replaced by): each is a mistake that one could make.
CANARIES = [
    ("structures.join_tree.walk", "equals", "lambda array, p, end, value: (p, end - 1)"),
    ("structures.join_tree.spread", "live_but", "lambda LINKS, PORTS, SIDES, X, Y, u, slot, one, other: True"),
    ("structures.join_tree.spread", "any_live", "lambda M, W, T, LINKS, PORTS, X, E, Z, e, slot, some: False"),
    ("structures.join_tree.spread", "group", "lambda PORTS, X, Y, p, code, out, n: n"),
    ("structures.join_tree.spread", "leave_group", "lambda PORTS, X, Y, p, slot: None"),
    ("structures.join_tree.walk", "within", "lambda SIDES, PORTS, E, bounds, u, slot: True"),
    ("structures.join_tree.changes", "begin_walk", "lambda S, place: None"),
    ("structures.ordered.tree", "own_leaf", "lambda M, W, C, Q, o: o"),
]


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    passes(mode, "not steps_and_bytes", "tests/structures/test_join_tree.py")


@pytest.mark.parametrize("canary", CANARIES, ids=names(CANARIES))
def test_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "join_machine.JoinMachine")
