"""The qdags' tests again in other modes, and with planted bugs (canaries), as `test_modes.py` does for the interval tree."""

from __future__ import annotations

import pytest

from tests.structures.test_modes import MODES, is_noticed, names, passes

# (module, function, what it is replaced by): each is a mistake that one could make.
CANARIES = [
    ("structures.quadtree.changes", "own_block", "lambda M, W, C, Q, K, B, h, o, b: o"),
    ("structures.quadtree.layout", "pinned", "lambda pins, born, retired: False"),
    ("structures.quadtree.changes", "grow", "lambda M, W, C, h, E, e: True"),
    ("structures.quadtree.changes", "gather", "lambda M, W, C, Q, K, B, h, o, b, c, child: o"),
    ("structures.quadtree.changes", "is_small", "lambda W, C, K, h, o, c, child: False"),
    ("structures.quadtree.compact", "pinned", "lambda pins, born, retired: False"),
    ("structures.quadtree.compact", "count_bits", "lambda mask: 0"),
    ("structures.quadtree.compact", "low_bits", "lambda b, j, f, code: 0"),
    ("structures.quadtree.changes", "level_below", "lambda b, bits: b - 1"),
    ("structures.qdag.run", "keep_roots", "lambda C, V, v: None"),
    ("structures.qdag.walk", "agreeing", "lambda P, S, t, some, coordinates, values, v: some"),
    ("structures.qdag.walk", "with_bit16", "lambda array, p, b: 0"),
    ("structures.qdag.walk", "all_leaves", "lambda P, Z, g: True"),
    ("structures.quadtree.changes", "set_child", "lambda W, o, c, child: W.__setitem__(slice(2 * o + 3, 2 * o + 5), [1 << c, child])"),
    ("structures.qdag.walk", "highest", "lambda mask: 0"),
    ("structures.qdag.walk", "leads_to_leaf", "lambda W, o, c, child: False"),
    ("structures.qdag.scan", "children_of", "lambda W, K, base, o, k: 1"),
    ("structures.qdag.walk", "loaded", "lambda W, K, B, P, R, S, t, ref, b: 1 if ref & 2**31 else ref"),
]


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    passes(mode, "not tens_of_thousands", "tests/structures/test_qdag.py")


@pytest.mark.parametrize("canary", CANARIES, ids=names(CANARIES))
def test_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "qdag_machine.QdagMachine")
