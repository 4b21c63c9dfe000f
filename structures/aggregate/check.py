"""The invariants of the aggregates of groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.aggregate import limbs as exact
from structures.aggregate import values
from structures.aggregate.layout import COUNT, FLOAT_SUM, GROUPS, HEAD, INT_SUM, OUT, ROWS, VALUES, WRONG, Plan, Store


def check_groups(plan: Plan, store: Store, codes: int) -> None:
    """AssertionError names the invariant. O(n log n).

    A1  no group has a negative number of rows, `GROUPS` have rows, and nothing was removed that was not there
    A2  a group without rows has nothing: no counts, a sum of zero, no extent, no values
    A3  extents do not overlap, and with the free ones make up the store of limbs
    A4  the tree is in order, its blocks are full enough and all found, and its entries are counted
    A5  a group's number of different values is the number that the tree has for it
    """
    cells = store.cells[:codes]
    assert store.control[WRONG] == 0, "A1: rows went that were not there"
    assert (cells[:, ROWS] >= 0).all() and store.control[GROUPS] == np.count_nonzero(cells[:, ROWS]), "A1: rows of groups"
    empty = cells[cells[:, ROWS] == 0]
    assert (empty[:, HEAD:] == 0).all() and (empty[:, OUT] >= 0).all(), "A2: a group without rows has something"
    _check_limbs(plan, store, codes)
    entries = _check_tree(store)
    number = 0
    for kind, _, w in plan.steps.tolist():
        assert kind in (COUNT, INT_SUM, FLOAT_SUM, VALUES)
        if kind == VALUES:
            mine = entries[entries[:, 0] % plan.trees == number, 0] // plan.trees if len(entries) else np.empty(0, np.int64)
            assert np.array_equal(np.bincount(mine, minlength=codes)[:codes], cells[:, w]), "A5: different values"
            number += 1


def _check_limbs(plan: Plan, store: Store, codes: int) -> None:
    extents: list[tuple[int, int]] = []
    for kind, _, w in plan.steps.tolist():
        if kind == FLOAT_SUM:
            mine = store.cells[:codes][store.cells[:codes, w + exact.SIZE] > 0]
            extents += zip(mine[:, w + exact.START].tolist(), mine[:, w + exact.SIZE].tolist(), strict=True)
    for index, size in enumerate(exact.SIZES):
        start = int(store.limbs.control[exact.FREE + index])
        while start:
            extents.append((start, size))
            start = int(store.limbs.store[start])
    at = 1
    for start, size in sorted(extents):
        assert start == at, "A3: extents overlap, or one is lost"
        at += size
    assert at == max(1, int(store.limbs.control[exact.USED])), "A3: limbs used"


def _check_tree(store: Store) -> np.ndarray:
    """int64[n, 2]: the groups and values of the tree, in order."""
    tree, found, blocks = store.tree, list[tuple[int, int]](), 0
    root, height = int(tree.control[values.ROOT]), int(tree.control[values.HEIGHT])
    if height == 0:
        return np.empty((0, 2), np.int64)
    pending: list[tuple[int, int, tuple[int, int], Any]] = [(root, 1, (-(2**63), -(2**63)), None)]
    while pending:
        block, level, low, high = pending.pop()
        blocks += 1
        size, first = int(tree.size[block]), block * values.B
        assert block == root or size >= values.LEAST, "A4: a block is too thin"
        keys = list(zip(tree.group[first : first + size].tolist(), tree.value[first : first + size].tolist(), strict=True))
        compared = keys if level == height else keys[1:]
        assert compared == sorted(set(compared)), "A4: order within a block"
        if level == height:
            assert all(low <= key and (high is None or key < high) for key in keys), "A4: an entry is in another leaf's place"
            assert (tree.times[first : first + size] > 0).all(), "A4: counts"
            found += keys
            continue
        ends = [*keys[1:], high]
        children = tree.times[first : first + size].tolist()
        assert all(low <= key for key in keys[1:]) and (high is None or keys[-1] < high or size == 1), "A4: where children begin"
        starts = [low, *keys[1:]]
        pending += [(child, level + 1, *bounds) for child, *bounds in reversed(list(zip(children, starts, ends, strict=True)))]
    free, block = 0, int(tree.control[values.FREE])
    while block:
        free, block = free + 1, int(tree.times[block * values.B])
    assert blocks + free == tree.control[values.USED], "A4: a block is lost"
    assert len(found) == tree.control[values.ENTRIES], "A4: entries"
    assert found == sorted(found), "A4: order"
    return np.array(found, np.int64).reshape(-1, 2)
