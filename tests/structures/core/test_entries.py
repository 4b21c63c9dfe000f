"""What is no entry is refused before anything is touched, by every structure that keeps intervals or boxes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
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
from tests.structures.batches import apply_batch, apply_singly

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
    inputs = np.array(lefts, np.int64), np.array(rights, np.int64)
    if isinstance(tree, BoxTree):
        inputs = tuple(np.repeat(input[:, None], tree.dimensions, axis=1) for input in inputs)
    return Entries(np.array(sets, np.uint8), np.array(keys, np.int32), *inputs, np.array(slots, np.int32))


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
    with pytest.raises(ValueError, match=rf"entry {1 if alone else 2} \(set .* cannot be kept: sets are below {SETS[name]}, keys from 0"):
        apply_batch(tree, 2, there.take(np.array([0])), inserts, None)
    assert tree.root == before
    tree.check(tree.root)
    apply_batch(tree, 2, there.take(np.array([0])), there.take(np.array([], np.int64)), None)
    tree.check(tree.root)
    with pytest.raises(ValueError, match="cannot be kept"):
        MAKERS[name]().bulk_load(1, inserts)


def test_a_run_is_refused_as_a_whole(name: str) -> None:
    tree = MAKERS[name]()
    some = made(tree, [0, 0], [0, KEY_MAX], [0, 5], [9, 9], [1, 2])
    with pytest.raises(ValueError, match="entry 1"):
        apply_singly(tree, 1, np.ones(2, np.int8), some, 10)
    assert not any(tree.root.counts)
    tree.check(tree.root)


@pytest.mark.parametrize("column, count", [*product(("set", "left", "right", "slot"), (1, 2)), ("key", 2)])
def test_a_column_that_is_too_short(name: str, column: str, count: int) -> None:
    """What lay behind it in memory was taken for its values."""
    tree = MAKERS[name]()
    there = made(tree, [0], [0], [0], [9], [1])
    before = tree.bulk_load(1, there)
    some = made(tree, [0] * count, [1] * count, [4] * count, [5] * count, list(range(2, 2 + count)))
    ragged = some._replace(**{column: getattr(some, column)[:-1]})
    with pytest.raises(ValueError):
        apply_singly(tree, 2, np.ones(len(ragged.key), np.int8), ragged, None)
    with pytest.raises(ValueError):
        apply_batch(tree, 2, there.take(np.array([], np.int64)), ragged, None)
    with pytest.raises(ValueError):
        MAKERS[name]().bulk_load(1, ragged)
    assert tree.root == before
    tree.check(tree.root)


def test_columns_of_another_kind(name: str) -> None:
    tree = MAKERS[name]()
    some = made(tree, [0, 0], [0, 1], [0, 5], [9, 9], [1, 2])
    wrong = some._replace(left=some.left.astype(np.float64))
    with pytest.raises(TypeError, match="a contiguous array of int64"):
        apply_batch(tree, 1, some.take(np.array([], np.int64)), wrong, None)
    with pytest.raises(TypeError, match="a contiguous array of int64"):
        tree.bulk_load(1, wrong)
    assert not any(tree.root.counts)


@pytest.mark.parametrize("signs", [1, 3])
def test_a_sign_for_each_entry(name: str, signs: int) -> None:
    tree = MAKERS[name]()
    some = made(tree, [0, 0], [0, 1], [0, 5], [9, 9], [1, 2])
    with pytest.raises(ValueError, match=f"a sign for each entry, not {signs} for 2"):
        apply_singly(tree, 1, np.ones(signs, np.int8), some, None)
    with pytest.raises(TypeError, match="a contiguous array of int8"):
        apply_singly(tree, 1, np.ones(2, np.int64), some, None)
    assert not any(tree.root.counts)
    tree.check(tree.root)


@pytest.mark.parametrize("key", [-1, -2, KEY_MAX])
@pytest.mark.parametrize("window", [False, True])
def test_no_entry_has_such_a_key(name: str, key: int, window: bool) -> None:
    """Asked for key -1, box trees, heaps and cliques told the rows of all."""
    tree = MAKERS[name]()
    root = tree.bulk_load(1, made(tree, [0, 0], [0, 0], [0, 5], [9, 9], [1, 2]))
    ends = (0, 9) if not isinstance(tree, BoxTree) else tuple(np.full(tree.dimensions, end) for end in (0, 9))
    with pytest.raises(ValueError, match=f"{key} is not a key: keys are 0 to {KEY_MAX - 1}"):
        tree.rows(root, key, ends if window else None)


@pytest.mark.parametrize("pairs", ["pair", "boxes"])
def test_partners_of_entries_of_both_sets(pairs: str) -> None:
    """The others were looked up in the set of the first."""
    tree = MAKERS[pairs]()
    some = made(tree, [0, 1], [0, 0], [0, 5], [9, 9], [1, 2])
    root = tree.bulk_load(1, some)
    with pytest.raises(ValueError, match="entries of several sets"):
        tree.partners(root, some)


def test_boxes_of_other_dimensions() -> None:
    tree = BoxTree(2, "pair")
    inputs = np.zeros((1, 3), np.int64), np.ones((1, 3), np.int64)
    three = Entries(np.zeros(1, np.uint8), np.zeros(1, np.int32), *inputs, np.ones(1, np.int32))
    with pytest.raises(ValueError, match="2 left and right ends"):
        apply_batch(tree, 1, three.take(np.array([], np.int64)), three, None)
    with pytest.raises(ValueError, match="2 left and right ends"):
        tree.partners(tree.root, three)
    for window in ((np.zeros(1), np.ones(1)), (np.zeros(3), np.ones(3)), (np.zeros(2), np.ones(3))):
        with pytest.raises(ValueError, match="a window has 2 lower and upper ends"):
            tree.rows(tree.root, None, window)
        with pytest.raises(ValueError, match="a window has 2 lower and upper ends"):
            tree.partners(tree.root, made(tree, [0], [0], [0], [1], [1]), window)


@pytest.mark.parametrize("limit", [10, None])
def test_a_run_of_nothing(name: str, limit: int | None) -> None:
    tree = MAKERS[name]()
    assert not apply_singly(tree, 1, np.empty(0, np.int8), made(tree, [], [], [], [], []), limit)
    tree.check(tree.root)
