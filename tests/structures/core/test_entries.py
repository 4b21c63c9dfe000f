"""What is no entry is refused before anything is touched, by every structure that keeps intervals or boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from structures.box.tree import BoxTree
from structures.clique.tree import CliqueTree
from structures.core.arena import KEY_MAX
from structures.core.entries import Entries
from structures.core.reserve import SLOTS
from structures.ij_heap.heap import IJHeap, Topology
from structures.interval.tree import IntervalTree

MAKERS: dict[str, Callable[[], Any]] = {
    "pair": lambda: IntervalTree("pair"),
    "self": lambda: IntervalTree("self"),
    "list": lambda: IntervalTree("list"),
    "ij": lambda: IJHeap(Topology(3, ((0, 1), (1, 2)))),
    "clique": lambda: CliqueTree(3),
    "boxes": lambda: BoxTree(2, "pair"),
    "boxes of one set": lambda: BoxTree(3, "self"),
}
SETS = {"pair": 2, "self": 1, "list": 1, "ij": 3, "clique": 1, "boxes": 2, "boxes of one set": 1}


def made(tree: Any, sets: list[int], keys: list[int], lefts: list[int], rights: list[int], slots: list[int]) -> Entries:
    sides = np.array(lefts, np.int64), np.array(rights, np.int64)
    if isinstance(tree, BoxTree):
        sides = tuple(np.repeat(side[:, None], tree.dimensions, axis=1) for side in sides)
    return Entries(np.array(sets, np.uint8), np.array(keys, np.int32), *sides, np.array(slots, np.int32))


@pytest.fixture(params=MAKERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


WRONG = {
    "a set that is not": lambda sets: (sets, 0, 1, 2, 7),
    "the key behind all": lambda sets: (0, KEY_MAX, 1, 2, 7),
    "a negative key": lambda sets: (0, -1, 1, 2, 7),
    "ends the wrong way round": lambda sets: (0, 0, 3, 2, 7),
    "a negative slot": lambda sets: (0, 0, 1, 2, -1),
    "a slot too large": lambda sets: (0, 0, 1, 2, SLOTS),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "behind another"])
def test_it_is_refused_and_nothing_is_done(name: str, wrong: str, alone: bool) -> None:
    tree = MAKERS[name]()
    there = made(tree, [0, 0], [0, KEY_MAX - 1], [0, 5], [9, 9], [1, 2])
    before = tree.bulk_load(1, there)
    good, bad = (0, 0, 4, 5, 3), WRONG[wrong](SETS[name])
    inserts = made(tree, *map(list, zip(*([bad] if alone else [good, bad]), strict=True)))
    with pytest.raises(ValueError, match=rf"entry {0 if alone else 1} \(set .* cannot be kept: sets are below {SETS[name]}, keys from 0"):
        tree.apply(2, there.take(np.array([0])), inserts, None)
    assert tree.root == before
    tree.check(tree.root)
    tree.apply(2, there.take(np.array([0])), there.take(np.array([], np.int64)), None)
    tree.check(tree.root)
    with pytest.raises(ValueError, match="cannot be kept"):
        MAKERS[name]().bulk_load(1, inserts)


def test_a_run_is_refused_as_a_whole(name: str) -> None:
    tree = MAKERS[name]()
    some = made(tree, [0, 0], [0, KEY_MAX], [0, 5], [9, 9], [1, 2])
    with pytest.raises(ValueError, match="entry 1"):
        tree.apply_in_order(1, np.ones(2, np.int8), some, 10)
    assert not any(tree.root.counts)
    tree.check(tree.root)


def test_boxes_of_other_dimensions() -> None:
    tree = BoxTree(2, "pair")
    sides = np.zeros((1, 3), np.int64), np.ones((1, 3), np.int64)
    three = Entries(np.zeros(1, np.uint8), np.zeros(1, np.int32), *sides, np.ones(1, np.int32))
    with pytest.raises(ValueError, match="2 left and right ends"):
        tree.apply(1, three.take(np.array([], np.int64)), three, None)


@pytest.mark.parametrize("limit", [10, None])
def test_a_run_of_nothing(name: str, limit: int | None) -> None:
    tree = MAKERS[name]()
    deltas = tree.apply_in_order(1, np.empty(0, np.int8), made(tree, [], [], [], [], []), limit)
    assert len(deltas.starts) == len(deltas.ends) == len(deltas.too_large) == deltas.rows.shape[1] == 0
    tree.check(tree.root)
