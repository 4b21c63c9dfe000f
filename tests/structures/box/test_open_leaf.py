"""Runs of changes without a delta, which share the path to a leaf, against the same changes one by one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from structures.box import layout
from structures.box.layout import BoxArena
from structures.box.rotation import is_even, slack
from structures.box.tree import BoxTree
from structures.core import entry_tree
from structures.core.arena import B
from structures.core.blocks import block_at
from structures.core.entries import DELETE, ENTER, INSERT, LEAVE
from structures.core.kernel import JIT
from tests.naive.box_join import Box, entries, pairs
from tests.structures.box.boxes import NO_PINS, rows_of
from tests.structures.box.machine import in_order

KINDS = pytest.mark.parametrize("kind", ["pair", "self"])


def shape(arena: BoxArena) -> list[tuple[int, list[int]]]:
    """The depth of each leaf of level 0, and the tags of its records, in the order of the slabs."""
    W, M, found = arena.W, arena.M, list[tuple[int, list[int]]]()
    waiting = [(0, int(block_at(W, layout.TOP + layout.ROOT_)))]
    while waiting:
        depth, o = waiting.pop()
        if W.item(2 * o + layout.FLAGS) & layout.LEAF_NODE:
            r = int(block_at(W, 2 * o + layout.RECORDS))
            found.append((depth, M[r + layout.TAG : r + layout.TAG + W.item(2 * r + layout.COUNT)].tolist()))
        else:
            waiting += [(depth + 1, int(block_at(W, 2 * o + child))) for child in (layout.CHILD1, layout.CHILD0)]
    return found


def some(rng: np.random.Generator, count: int, first_slot: int, kind: str, most: int, longest: int) -> list[Box]:
    """Boxes that begin from 0 to `most` in the first dimension."""
    made = []
    for slot in range(first_slot, first_slot + count):
        left = (int(rng.integers(0, most)), int(rng.integers(0, 1000)))
        right = (left[0] + int(rng.integers(0, longest)), left[1] + int(rng.integers(0, 30)))
        made.append(Box(int(rng.integers(0, 2)) if kind == "pair" else 0, int(rng.random() < 0.1), left, right, slot))
    return made


def place(one: Box) -> tuple[int, int, int]:
    """The place of a box in the order in which a run changes them."""
    return one.key, one.left[0], 2 * one.slot + one.set


def one_by_one(tree: BoxTree, version: int, gone: Iterable[Box], come: Iterable[Box]) -> None:
    """With deltas, so that no leaf is opened."""
    for one in gone:
        tree.apply(version, entries([one], 2), entries([], 2), lambda sign, slots: True)
    for one in come:
        tree.apply(version, entries([], 2), entries([one], 2), lambda sign, slots: True)


@KINDS
@pytest.mark.parametrize("longest", [1, 20])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_makes_the_same_tree_as_its_changes_one_by_one(kind: str, longest: int, seed: int) -> None:
    """Leaves are closed when the tree must be repaired, so that all leaves are where they would be otherwise. With longer boxes, some cross
    leaves, and some cover others."""
    rng = np.random.default_rng(seed)
    size = layout.CAP
    most = 40 * size
    here = some(rng, 6 * size, 0, kind, most, longest)
    slot = len(here)
    at_once, singly = BoxTree(2, kind), BoxTree(2, kind)
    for tree in (at_once, singly):
        tree.bulk_load(1, entries(here, 2))
    for version in range(2, 8):
        narrow = most if version % 2 else most // 8  # every other time, the changes meet in few leaves
        near = [one for one in here if one.left[0] < narrow]
        gone = [near[i] for i in rng.permutation(len(near))[: int(rng.integers(0, len(near) + 1))]]
        come = some(rng, int(rng.integers(1, 3 * size)), slot, kind, narrow, longest)
        slot += len(come)
        at_once.apply(version, entries(gone, 2), entries(come, 2), None)
        one_by_one(singly, version, sorted(gone, key=place), sorted(come, key=place))
        dropped = {one.slot for one in gone}
        here = [one for one in here if one.slot not in dropped] + come
        assert shape(at_once.arena) == shape(singly.arena)
        at_once.reclaim(version, NO_PINS)
        at_once.check(at_once.root)
        if not JIT:  # there are few boxes: the twin compares each with each
            assert rows_of(at_once.rows(at_once.root), kind) == sorted(pairs(kind, here))


@KINDS
def test_changes_with_and_without_a_delta_alternate_in_a_leaf(kind: str) -> None:
    """A leaf is closed before a change with a delta, which may split it or move it: here each third one does."""
    size = layout.CAP
    rng = np.random.default_rng(5)
    here = some(rng, 2 * size, 0, kind, 40 * size, 4)
    tree = BoxTree(2, kind)
    tree.bulk_load(1, entries(here, 2))
    now = {one.slot: one for one in here}
    slot = len(here)
    for version in range(2, 8):
        come = some(rng, 2 * size, slot, kind, size, 4)
        slot += len(come)
        signs = np.array([INSERT if i % 3 == 0 else ENTER for i in range(len(come))], np.int8)
        before = pairs(kind, now.values()) if not JIT else set()
        deltas = tree.apply_in_order(version, signs, entries(come, 2), 10**6)
        tree.check(tree.root)
        if not JIT:
            for i, one in enumerate(come):
                now[one.slot] = one
                after = pairs(kind, now.values())
                found = deltas.rows[:, deltas.starts[i] : deltas.ends[i]]
                assert sorted(in_order(kind, found)) == ([] if i % 3 else sorted(after - before))
                before = after
        gone = [come[i] for i in rng.permutation(len(come))]
        signs = np.array([DELETE if i % 3 == 0 else LEAVE for i in range(len(gone))], np.int8)
        tree.apply_in_order(version, signs, entries(gone, 2), 10**6)
        for one in gone:
            now.pop(one.slot, None)
        tree.check(tree.root)
        tree.reclaim(version, NO_PINS)


def test_the_slack_of_a_weight_is_what_keeps_nodes_even() -> None:
    for a in range(0, 3 * layout.CAP, max(1, layout.CAP // 16)):
        for b in range(0, 3 * layout.CAP, max(1, layout.CAP // 16)):
            gain, loss = slack(a, b)
            if is_even(a, b):
                assert is_even(a + gain, b) and not is_even(a + gain + 1, b)
                assert is_even(a - loss, b) and not is_even(a - loss - 1, b)
            else:
                assert min(gain, loss) < 0


@pytest.mark.parametrize("sign", [DELETE, INSERT])
def test_a_change_whose_delta_is_given_up_is_made_once(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has begun with a delta that fills the room for rows, and ends without one."""
    monkeypatch.setattr(entry_tree, "CHUNK", 2 * (B + layout.ROOM))
    n = 4 * entry_tree.CHUNK
    one, others = Box(0, 0, (0, 0), (0, 0), n), [Box(1, 0, (0, 0), (0, i), i) for i in range(n)]
    tree = BoxTree(2, "pair")
    tree.bulk_load(1, entries(others if sign == INSERT else [*others, one], 2))
    more = [Box(0, 0, (0, 1), (0, 1), n + 1), Box(0, 0, (0, n), (0, n), n + 2)]
    deltas = tree.apply_in_order(2, np.array([sign, ENTER, INSERT], np.int8), entries([one, *more], 2), 10)
    assert deltas.too_large.tolist() == [True, False, False]
    assert tree.root.counts == (3 if sign == INSERT else 2, n)
    tree.check(tree.root)
    sunk: list[int] = []
    tree.apply(3, entries([more[0]], 2), entries([], 2), lambda _, slots: bool(sunk.append(slots.shape[1])))
    assert len(sunk) == 1 and 0 < sunk[0] < n - 1  # it wants no more
    assert tree.root.counts == (2 if sign == INSERT else 1, n)
    tree.check(tree.root)


def test_deleted_boxes_are_not_stored_again() -> None:
    """Even where a set becomes empty, and deletes have no change of their own: readers of earlier versions use the same table."""
    boxes = [Box(0, 0, (i, 0), (i + 1, 5), i) for i in range(80)]
    others = [Box(1, 0, (i, 0), (i, 5), 100 + i) for i in range(10)]
    tree = BoxTree(2, "pair")
    former = tree.bulk_load(1, entries(boxes + others, 2))
    wrong = boxes[0]._replace(right=(77, 5))  # found by its slot alone
    tree.apply(2, entries([wrong, *boxes[1:]], 2), entries([Box(1, 0, (3, 3), (4, 4), 500)], 2), None)
    tree.reclaim(2, np.array([1]))
    tree.check(tree.root, (former,))
    assert rows_of(tree.rows(former)) == sorted(pairs("pair", boxes + others))


def test_a_box_that_is_not_in_its_open_leaf_is_missed() -> None:
    """Without an effect on the others."""
    boxes = [Box(0, 0, (i, 1), (i, 2), i) for i in range(20)]
    tree = BoxTree(2, "pair")
    tree.bulk_load(1, entries(boxes[::2], 2))
    with pytest.raises(KeyError, match="3 deleted entries"):
        tree.apply(2, entries([*boxes[::4], boxes[5], boxes[7], boxes[6]._replace(left=(6, 2))], 2), entries([], 2), None)
    tree.check(tree.root)
    assert tree.root.counts == (5, 0)
