"""Ordered indexes against their naive twin, and what they promise about memory and errors."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.control import NEXT_CHUNK, SHIFT
from structures.core.kernel import JIT
from structures.index.changes import INNER_FILL, LEAF_FILL
from structures.index.indexes import NO_ENTRIES, Entries, OrderedIndexes, index_order
from structures.index.layout import BLOCK, LEAF_ROOM, MOST_LEVELS
from tests.structures.batches import Changes, apply_steps, apply_to_indexes
from tests.structures.index.machine import IndexMachine, packed, read_entries
from tests.structures.machines import drive

NO_PINS = np.empty(0, np.int64)


def test_against_the_twin() -> None:
    drive(IndexMachine, 60 if JIT else 8, 15)


def begun(arity: int, words: int = 1 << 20) -> tuple[OrderedIndexes, int]:
    indexes = OrderedIndexes(words)
    indexes.begin(1)
    return indexes, indexes.add(arity)


def test_a_pin_keeps_a_removed_index() -> None:
    indexes, index = begun(2)
    given = [(a, b, 10 * a + b) for a in range(9) for b in range(9)]
    indexes.load(index, packed(given, 2))
    root = indexes.root(index)
    indexes.begin(2)
    indexes.remove(index)
    other = indexes.add(2)
    indexes.reclaim(2, np.array([1], np.int64))
    indexes.load(other, packed([(7, 7, 7)], 2))
    assert read_entries(indexes.entries(other, root)) == sorted(given)
    indexes.reclaim(2, NO_PINS)
    assert indexes.retired_bytes == 0
    indexes.check()


def test_blocks_beyond_the_reach_of_32_bits() -> None:
    """As if 128 GiB were full: the store ended at 16."""
    indexes = OrderedIndexes()
    C = indexes.arena.C
    C[NEXT_CHUNK] = 1 << 34 >> C.item(SHIFT)
    indexes.begin(1)
    index = indexes.add(2)
    given = [(a, b, 100 * a + b) for a in range(90) for b in range(90)]
    indexes.load(index, packed(given[::2], 2))
    indexes.begin(2)
    apply_to_indexes(indexes, {index: Changes(packed(given[:40:2], 2), packed(given[1::2], 2))})
    root = indexes.root(index)
    assert root > 1 << 34 and read_entries(indexes.entries(index, root)) == sorted([*given[1:40:2], *given[40:]])
    assert indexes.seek(index, root, (45, 7)) == (45, 7, 4507) and indexes.count(index, root, (45,)) == 90


def test_a_removed_index_is_read_by_its_arity_for_good() -> None:
    """The number of an index went to the next one, whatever its arity: then a pinned version was read by the wrong columns."""
    indexes, index = begun(3)
    given = [(a, b, a + b, 10 * a + b) for a in range(9) for b in range(9)]
    indexes.load(index, packed(given, 3))
    root = indexes.root(index)
    indexes.begin(2)
    indexes.remove(index)
    other = indexes.add(1)
    assert (other, indexes.arity(index), indexes.add(3)) == (index + 1, 3, index)
    assert read_entries(indexes.entries(index, root)) == sorted(given)
    assert indexes.count(index, root, (4,)) == 9
    indexes.reclaim(2, np.array([1], np.int64))
    indexes.check([(3, root)])


def test_what_is_missing_or_there_twice_is_an_error_and_the_rest_is_done() -> None:
    indexes, index = begun(1)
    indexes.load(index, packed([(1, 1), (2, 2)], 1))
    indexes.begin(2)
    with pytest.raises(KeyError, match="2 deleted entries were not there, or inserted ones were"):
        apply_to_indexes(indexes, {index: Changes(packed([(1, 7), (2, 2)], 1), packed([(1, 1), (3, 3)], 1))})
    assert read_entries(indexes.entries(index, indexes.root(index))) == [(1, 1), (3, 3)]
    indexes.check()


def test_refusals() -> None:
    indexes, index = begun(1, 1 << 14)
    with pytest.raises(ValueError, match="no index of 9 coordinates"):
        indexes.add(9)
    many = np.arange(100_000).reshape(-1, 1)
    with pytest.raises(MemoryError, match="the size of their arena"):
        indexes.load(index, Entries(many, many[:, 0].astype(np.int32)))
    assert indexes.root(index) == 0
    indexes.load(index, packed([(1, 1)], 1))
    with pytest.raises(ValueError, match="only an empty index is loaded"):
        indexes.load(index, NO_ENTRIES)


def test_an_index_is_removed_once() -> None:
    """Its number was given to two others, which then wrote into one tree."""
    indexes, index = begun(2)
    indexes.load(index, packed([(1, 1, 1)], 2))
    assert indexes.remove(index)
    for wrong in (index, 7):
        with pytest.raises(KeyError):
            indexes.remove(wrong)
        with pytest.raises(KeyError, match=f"no index {wrong}"):
            apply_steps(indexes, np.array([wrong]), np.ones(1, np.int8), packed([(1, 1, 2)], 2))
    assert len({indexes.add(2), indexes.add(2)}) == 2
    indexes.check()


def test_what_is_none_of_an_index_is_refused_first() -> None:
    """Coordinates that an index has and entries had not were read from what lay behind them."""
    indexes, index = begun(2)
    good, narrow = packed([(1, 1, 1)], 2), packed([(1, 1), (2, 2)], 1)
    indexes.load(index, good)
    root, empty = indexes.root(index), indexes.add(2)
    indexes.begin(2)
    short = Entries(np.zeros((2, 2), np.int64), np.zeros(1, np.int32))
    for wrong in (narrow, short):
        with pytest.raises(ValueError, match="an index takes 2 coordinates and a slot"):
            indexes.load(empty, wrong)
        with pytest.raises(ValueError, match="an index takes 2 coordinates and a slot"):
            apply_steps(indexes, np.full(len(wrong.slot), index), np.ones(len(wrong.slot), np.int8), wrong)
    with pytest.raises(ValueError, match="not 2, 1 and 2 for 1"):
        apply_steps(indexes, np.array([index, index]), np.ones(1, np.int8), good)
    with pytest.raises(TypeError, match="a contiguous array of int8"):
        apply_steps(indexes, np.array([index]), np.ones(1, np.int64), good)
    for unknown in (empty + 1, -1):
        with pytest.raises(KeyError, match=f"no index {unknown}"):
            apply_to_indexes(indexes, {unknown: Changes(good, NO_ENTRIES)})
        with pytest.raises(KeyError, match=f"no index {unknown}"):
            apply_steps(indexes, np.array([index, unknown]), np.ones(2, np.int8), packed([(2, 2, 2), (3, 3, 3)], 2))
        with pytest.raises(KeyError, match=f"no index {unknown}"):
            indexes.load(unknown, good)
    assert indexes.root(index) == root
    indexes.check()


def test_more_coordinates_than_an_index_has() -> None:
    indexes, index = begun(2)
    indexes.load(index, packed([(1, 1, 1)], 2))
    root = indexes.root(index)
    for ask in (indexes.count, indexes.seek, indexes.entries):
        with pytest.raises(ValueError, match="3 coordinates are asked of an index of 2"):
            ask(index, root, (1, 1, 1))
    with pytest.raises(ValueError, match="3 coordinates are asked of an index of 2"):
        indexes.find_gap(index, root, (1, 1), 1)
    assert indexes.find_gap(index, root, (1,), 1) == (1, 1)


def test_versions_ascend() -> None:
    indexes, _ = begun(1)
    indexes.begin(3)
    indexes.begin(3)
    with pytest.raises(ValueError, match="version 2 is below 3"):
        indexes.begin(2)


@pytest.mark.parametrize("wide", [False, True])
def test_order(wide: bool) -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(-(2**62), 2**62, (500, 3)) if wide else rng.integers(-3, 3, (500, 3))
    entries = Entries(values, rng.permutation(500).astype(np.int32))
    rows = [tuple(row) for row in np.column_stack((values, entries.slot)).tolist()]
    assert [rows[i] for i in index_order(entries, 3)] == sorted(rows)


@pytest.mark.parametrize("ended", [None, 3, 40])
def test_a_growth_makes_as_few_blocks_at_a_time_above_the_leaves_as_below(ended: int | None) -> None:
    """The last piece once made all inner nodes: of five million entries 17,000, in 70 ms of a writer's turn. `ended`: after so many pieces
    the index gets no more."""
    indexes, index = begun(2, 1 << 22)
    n, most = 20_000 if JIT else 600, 64
    given = [(i // 3, i, i) for i in range(n)]
    growth, version, made = indexes.growth(index, packed(given, 2)), 2, 0
    while made != ended:
        indexes.begin(version)
        before = indexes.bytes(index)
        done = indexes.grow(growth, most)
        assert indexes.bytes(index) - before <= 8 * BLOCK * (most // min(LEAF_FILL[2], INNER_FILL[2]) + MOST_LEVELS // 8)
        made, version = made + 1, version + 1
        if done:
            break
        assert indexes.root(index) == 0, "what is made is in no tree"
    else:
        given = given[: indexes.end_growth(growth)]
    assert made >= 3 and read_entries(indexes.entries(index, indexes.root(index)), 1000) == given
    indexes.check()


@pytest.mark.skipif(not JIT, reason="blocks are tiny there")
def test_entries_that_ascend_leave_full_leaves() -> None:
    """Codes are given in ascending order: leaves are left behind three quarters full."""
    indexes, index = begun(1)
    n = 3_000
    for first in range(0, n, 100):
        indexes.begin(2 + first)
        apply_to_indexes(indexes, {index: Changes(NO_ENTRIES, packed([(i, i) for i in range(first, first + 100)], 1))})
        indexes.reclaim(2 + first, NO_PINS)
    indexes.check()
    assert LEAF_ROOM[1] < 41 or indexes.bytes(index) < 20 * n
