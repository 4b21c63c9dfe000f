"""The tests of ordered indexes and view trees again in other modes, and with planted bugs (canaries), as `test_modes.py` does."""

from __future__ import annotations

import pytest

from tests.structures.test_modes import MODES, is_noticed, names, passes

# (module, function, what it is replaced by): each is a mistake that one could make.
INDEX_CANARIES = [
    ("structures.index.changes", "own_block", "lambda M, W, C, Q, h, o: o"),
    ("structures.index.changes", "neighbour_leaf", "lambda W, C, k, right: 0"),
    ("structures.index.changes", "even_out", "lambda M, W, C, Q, h, o, c: None"),
    ("structures.index.changes", "in_common", "lambda M, W, C, k, o, before, after, X, x: 0"),
    ("structures.core.arena", "pinned", "lambda pins, born, retired: False"),
]
VIEW_CANARIES = [
    ("structures.view_tree.changes", "flip", "lambda M, W, C, Q, T, R, N, X, x, sign, atom, common: None"),
    ("structures.view_tree.changes", "has_prefix", "lambda M, W, root, k, X, x, step, p: True"),
    ("structures.view_tree.changes", "forget", "lambda Z: None"),
    ("structures.view_tree.walk", "next_entry", "lambda M, W, root, k, leaf, i: (0, 0)"),
    ("structures.view_tree.walk", "expect_leaf", "lambda M, W, o, k, X, x, p: o"),
    ("structures.view_tree.walk", "group_end", "lambda M, W, leaf, k, i, X, x, step, p: i + 1"),
    ("structures.view_tree.walk", "settle", "lambda M, W, P, first, R, X, x, Z, q: q >= 0"),
]


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    passes(mode, "not tens_of_thousands", "tests/structures/test_ordered_index.py", "tests/structures/test_view_tree.py")


@pytest.mark.parametrize("canary", INDEX_CANARIES, ids=names(INDEX_CANARIES))
def test_index_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "index_machine.IndexMachine")


@pytest.mark.parametrize("canary", VIEW_CANARIES, ids=names(VIEW_CANARIES))
def test_view_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "view_machine.ViewMachine")
