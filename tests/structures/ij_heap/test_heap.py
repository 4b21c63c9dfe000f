"""`IJHeap` against its naive twin, and what it promises about steps and memory, by counting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log2

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.ij_heap import goals
from structures.ij_heap.heap import Entries, IJHeap, Topology
from structures.multiway.extreme import ASKED
from structures.multiway.topology import components
from tests.naive.interval_join import Interval, entries
from tests.structures.batches import apply_batch
from tests.structures.ij_heap.machine import IJMachine
from tests.structures.machines import drive, read_all

NONE = entries([])
PATH = Topology(3, ((0, 1), (1, 2)))
TOPOLOGIES = {  # of six sets
    "path": [(i, i + 1) for i in range(5)],
    "star": [(0, i) for i in range(1, 6)],
    "cycle": [(i, (i + 1) % 6) for i in range(6)],
    "clique": [(i, j) for j in range(6) for i in range(j)],
    "barbell": [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5)],
}


def test_against_the_twin() -> None:
    drive(IJMachine, 60 if JIT else 13, 25)


def test_deleting_what_is_not_there_is_an_error() -> None:
    heap = IJHeap(PATH, 1 << 20)
    heap.bulk_load(1, entries([Interval(0, 0, 1, 2, 3)]))
    with pytest.raises(KeyError):
        apply_batch(heap, 2, entries([Interval(0, 0, 1, 2, 4)]), NONE, None)


def test_a_full_arena_refuses_before_it_begins() -> None:
    heap = IJHeap(PATH, 1 << 14)
    root = heap.bulk_load(1, entries([Interval(0, 0, 1, 2, 3)]))
    with pytest.raises(MemoryError):
        apply_batch(heap, 2, NONE, entries([Interval(0, 0, i, i, i + 10) for i in range(5000)]), None)
    assert heap.root == root
    heap.check(root)


def splits(mask: int, near: Sequence[int]) -> list[list[int]]:
    """The components of both sides, of each way to divide some sets."""
    return [components(low, near) + components(mask & ~low, near) for low in range(1, mask) if low & ~mask == 0]


@pytest.mark.parametrize("edges", ["path", "star", "cycle", "clique", "barbell"])
def test_a_walk_has_room_for_the_most_goals_and_frames(edges: str) -> None:
    """What is derived beside the capacities, by trying all ways to divide goals: a goal that is divided stays, and its parts, below the
    node where it is, are worked on one after another, each where the one before it was left."""
    t = 6
    near = Topology(t, TOPOLOGIES[edges]).near

    @cache
    def most_goals(mask: int) -> int:
        return 1 + max((sum(map(most_goals, parts)) for parts in splits(mask, near)), default=0)

    @cache
    def most_frames(mask: int, height: int) -> int:
        """Of a goal at a node: one a level down to a leaf, or to a node where it is divided."""
        divided = (1 + h + sum(most_frames(part, height - h - 1) for part in parts) for h in range(height) for parts in splits(mask, near))
        return max((*divided, height + 1))

    every = (1 << t) - 1
    rests = [1 + sum(map(most_goals, components(every & ~(1 << i), near))) for i in range(t)]
    assert 2 * t - 1 == most_goals(every) <= max(most_goals(every), *rests) <= goals._MOST_GOALS
    for height in (0, 1, 4):
        state = goals.new_walk(Topology(t, TOPOLOGIES[edges]).table, height)
        assert most_frames(every, height) + 1 <= (state[goals.STRIP] - goals.FRAME0) // goals.FRAME_WORDS


def test_a_tree_that_a_walk_may_have_no_frames_for() -> None:
    with pytest.raises(ValueError, match="may have more than 48 levels"):
        IJHeap(PATH, 1 << 42)


def scattered(t: int, n: int) -> Entries:
    """n intervals of t sets and two keys, each meeting some."""
    rng = np.random.default_rng(13)
    left = rng.integers(0, 10 * n, n)
    numbers = np.arange(n, dtype=np.int32)
    return Entries((numbers % t).astype(np.uint8), numbers // t % 2, left, left + rng.integers(0, 100, n), numbers)


@pytest.mark.parametrize("edges", ["path", "clique"])
def test_a_reading_needs_no_clear_scratch(edges: str) -> None:
    """It writes what it reads there, but for the nodes asked so far, which it counts."""
    t, n = 4, 600 if JIT else 120
    heap = IJHeap(Topology(t, [(i, j) for i, j in TOPOLOGIES[edges] if max(i, j) < t]), 1 << 20)
    every = scattered(t, n)
    root = heap.bulk_load(1, every)
    given = every.take(every.set == 1)
    found = 0
    for junk in (-1, 2**62, 77):
        for window in (None, (0, 5 * n)):
            for make in (lambda w=window: heap.rows(root, window=w), lambda w=window: heap.partners(root, given, w)):
                clear, full = make(), make()
                for cursor, value in ((clear, 0), (full, junk)):
                    asked = cursor._walking.scratch.item(ASKED)
                    cursor._walking.scratch.fill(value)
                    cursor._walking.scratch[ASKED] = asked
                rows = read_all(clear, 10)
                assert read_all(full, 10) == rows
                assert (full.steps, full.largest_gap, full.dead_ends) == (clear.steps, clear.largest_gap, clear.dead_ends)
                found += len(rows)
    assert found > n


@pytest.mark.skipif(not JIT, reason="counts at sizes that need compiled kernels")
def test_one_row_among_tens_of_thousands_of_intervals() -> None:
    """It is found, told when it comes and goes, in polylog n steps, and the memory is linear."""
    per_entry = []
    for n in (3_000, 30_000, 300_000):
        left = np.arange(n, dtype=np.int64) * 10
        right, middle = left + 3, n // 6 * 3 + 1
        right[middle] = left[middle + 2] + 1
        every = Entries((np.arange(n) % 3).astype(np.uint8), np.zeros(n, np.int32), left, right, np.arange(n, dtype=np.int32))
        heap = IJHeap(PATH)
        cursor = heap.rows(heap.bulk_load(1, every))
        assert read_all(cursor) == [(middle + 2, middle, middle + 1)]
        assert cursor.steps <= 4 * log2(n), (n, cursor.steps)
        emitted: list[tuple[int, int]] = []

        def sink(sign: int, slots: np.ndarray, emitted: list[tuple[int, int]] = emitted) -> bool:
            emitted.append((sign, slots.shape[1]))
            return True

        before, one = heap.update_steps, every.take(slice(middle, middle + 1))
        apply_batch(heap, 2, one, NONE, sink)
        apply_batch(heap, 3, NONE, one, sink)
        assert emitted == [(-1, 1), (1, 1)]
        assert heap.update_steps - before <= 5 * log2(n), (n, heap.update_steps - before)
        per_entry.append(heap.live_bytes / n)
    assert max(per_entry) < 1.2 * min(per_entry), per_entry
