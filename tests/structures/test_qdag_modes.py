"""The qdags' tests again in other modes, and with planted bugs (canaries), as `test_modes.py` does for the interval tree."""

from __future__ import annotations

import pytest

from tests.structures.test_modes import MODES, is_noticed, names, passes

# (module, function, what it is replaced by): each is a mistake that one could make.
CANARIES = [
    ("structures.quad_nodes", "own_block", "lambda M, W, C, Q, o, k: o"),
    ("structures.quad_nodes", "pinned", "lambda pins, born, retired: False"),
    ("structures.quad_nodes", "grow", "lambda M, W, C, h, E, e: None"),
    ("structures.quad_nodes", "gather", "lambda M, W, C, Q, o, k, c, child: o"),
    ("structures.qdag_walk", "agreeing", "lambda W, P, a, ref, coordinates, values, v: ref & 0xFFFFFFFF"),
    ("structures.qdag_walk", "all_leaves", "lambda P, Z, g: True"),
]


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    passes(mode, "not tens_of_thousands", "tests/structures/test_qdag.py")


@pytest.mark.parametrize("canary", CANARIES, ids=names(CANARIES))
def test_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "qdag_machine.QdagMachine")
