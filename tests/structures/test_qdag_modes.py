"""The qdags' tests again in other modes, and with planted bugs (canaries), as `test_modes.py` does for the interval tree."""

from __future__ import annotations

import pytest

from tests.structures.test_modes import MODES, is_noticed, names, passes

# (module, function, what it is replaced by): each is a mistake that one could make.
CANARIES = [
    ("structures.quad_changes", "own_block", "lambda M, W, C, Q, K, B, h, o, b: o"),
    ("structures.quad_nodes", "pinned", "lambda pins, born, retired: False"),
    ("structures.quad_changes", "grow", "lambda M, W, C, h, E, e: True"),
    ("structures.quad_changes", "gather", "lambda M, W, C, Q, K, B, h, o, b, c, child: o"),
    ("structures.quad_changes", "is_small", "lambda W, C, K, h, o, c, child: False"),
    ("structures.compact_quad", "pinned", "lambda pins, born, retired: False"),
    ("structures.compact_quad", "count_bits", "lambda mask: 0"),
    ("structures.compact_quad", "low_bits", "lambda b, j, f, code: 0"),
    ("structures.quad_changes", "level_below", "lambda b, bits: b - 1"),
    ("structures.qdag_run", "keep_roots", "lambda C, V, v: None"),
    ("structures.qdag_walk", "agreeing", "lambda P, S, t, some, coordinates, values, v: some"),
    ("structures.qdag_walk", "with_bit16", "lambda array, p, b: 0"),
    ("structures.qdag_walk", "all_leaves", "lambda P, Z, g: True"),
    ("structures.quad_changes", "set_child", "lambda W, o, c, child: W.__setitem__(slice(2 * o + 3, 2 * o + 5), [1 << c, child])"),
    ("structures.qdag_walk", "highest", "lambda mask: 0"),
    ("structures.qdag_walk", "leads_to_leaf", "lambda W, o, c, child: False"),
    ("structures.qdag_scan", "children_of", "lambda W, K, base, o, k: 1"),
    ("structures.qdag_walk", "loaded", "lambda W, K, B, P, R, S, t, ref, b: 1 if ref & 2**31 else ref"),
]


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    passes(mode, "not tens_of_thousands", "tests/structures/test_qdag.py")


@pytest.mark.parametrize("canary", CANARIES, ids=names(CANARIES))
def test_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "qdag_machine.QdagMachine")
