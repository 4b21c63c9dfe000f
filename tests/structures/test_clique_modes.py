"""The clique tree's tests again in other modes, and with planted bugs (canaries), as `test_modes.py` does for the interval tree."""

from __future__ import annotations

import pytest

from tests.structures.test_modes import MODES, is_noticed, names, passes

# (module, function, what it is replaced by): each is a mistake that one could make.
CANARIES = [
    ("structures.multiway.tree", "own", "lambda M, W, C, Q, T, o: o"),
    ("structures.multiway.summary", "summarise_clique", "lambda M, W, T, X, o: False"),
    ("structures.clique.walk", "forget", "lambda Z, right: None"),
    ("structures.clique.walk", "pass_over", "lambda M, W, T, Z, o: None"),
    ("structures.clique.walk", "has_centre", "lambda M, W, T, Z, o: True"),
    ("structures.clique.walk", "push", "lambda Z, H, I, right, slot: None"),
    ("structures.clique.covers", "reaches", "lambda M, W, T, o, key, value: False"),
    ("structures.clique.covers", "pick_on", "lambda Z, before, picks: False"),
    ("structures.core.arena", "pinned", "lambda pins, born, retired: False"),
]


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    passes(mode, "not tens_of_thousands", "tests/structures/test_clique_tree.py")


@pytest.mark.parametrize("canary", CANARIES, ids=names(CANARIES))
def test_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "clique_machine.CliqueMachine")
