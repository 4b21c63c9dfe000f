"""The box tree's tests again in other modes, and with planted bugs (canaries), as `test_modes.py` does for the interval tree."""

from __future__ import annotations

import pytest

from tests.structures.test_modes import MODES, is_noticed, names, passes

# (module, function, what it is replaced by): each is a mistake that one could make.
CANARIES = [
    ("structures.box.changes", "own_node", "lambda M, W, C, R, o: o"),
    ("structures.box.changes", "own_records", "lambda M, W, C, R, level, o: o"),
    ("structures.box.changes", "refresh", "lambda W, o: None"),
    ("structures.box.changes", "repair", "lambda M, W, C, Q, R, level, h, key, value, tie: None"),
    ("structures.box.changes", "activate", "lambda M, W, C, Q, level, node, i, s, tag, lo, hi: None"),
    ("structures.box.changes", "as_point", "lambda M, W, C, Q, R, S, n, level, o, s: n"),
    ("structures.box.changes", "count_rows", "lambda M, W, C, o, level, single, tag, lo, hi: 0"),
    ("structures.box.balance", "drop_flat", "lambda M, W, C, Q, root, height: None"),
    ("structures.box.build", "before", "lambda k, v, t, k1, v1, t1: (k, v) < (k1, v1)"),
    ("structures.box.search", "push_points", "lambda M, W, Z, single, level, d, o, t: None"),
    ("structures.box.walk", "goes_right", "lambda M, o, key, value, tie: key > M[o + 10]"),
    ("structures.box.layout", "pinned", "lambda pins, born, retired: False"),
]


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    small = "not tens_of_thousands and not delay and not pin and not width and not left_ends and not world"
    passes(mode, small, "tests/structures/test_box_tree.py")


@pytest.mark.parametrize("canary", CANARIES, ids=names(CANARIES))
def test_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "box_machine.BoxMachine")
