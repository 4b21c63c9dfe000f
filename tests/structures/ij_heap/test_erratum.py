"""The paper's erratum (`docs/design/ij-heap.md`, *Erratum*): section 6.2, equations (2) and (3), as printed and as they must be.

With constraints q[i] = (a, b), "left_i <= a and right_i >= b", a node whose slab lies in [b, a] is taken to satisfy all of them
(Category 2 of section 6.3). Printed are a = max of q[i].a and b = min of q[i].b; it must be a = min and b = max.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from structures.ij_heap.heap import Entries, IJHeap, Topology
from tests.naive.multiway_join import Interval, tuples

# Constraints by set: left at most, right at least.
Q = [(2, 0), (9, 0)]


def heap_of(topology: Topology, intervals: list[Interval]) -> IJHeap:
    heap = IJHeap(topology, 1 << 22)
    columns = zip(*((x.set, x.key, x.left, x.right, x.slot) for x in intervals), strict=True)
    kinds = (np.uint8, np.int32, np.int64, np.int64, np.int32)
    heap.bulk_load(1, Entries(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True))))
    return heap


def in_printed_slab(intervals: list[Interval], q: list[tuple[int, int]]) -> bool:
    return all(min(b for _, b in q) <= x.left and x.right <= max(a for a, _ in q) for x in intervals)


def in_right_slab(intervals: list[Interval], q: list[tuple[int, int]]) -> bool:
    return all(max(b for _, b in q) <= x.left and x.right <= min(a for a, _ in q) for x in intervals)


def meets(row: tuple[Interval, ...], q: list[tuple[int, int]]) -> bool:
    return all(x.left <= a and x.right >= b for x, (a, b) in zip(row, q, strict=True))


def test_the_case() -> None:
    """Both intervals lie in the printed slab [0, 9], they overlap, and the pair breaks the first constraint. There is no row."""
    topology = Topology(2, ((0, 1),))
    both = [Interval(0, 0, 5, 6, 0), Interval(1, 0, 1, 7, 1)]
    assert tuples(topology, both) and in_printed_slab(both, Q) and not meets(tuples(topology, both)[0], Q)
    heap = heap_of(topology, both)
    a, b = [a for a, _ in Q], [b for _, b in Q]
    assert heap.min_ij(heap.root, b, a) is None and heap.max_ij(heap.root, a, b) is None
    # One that starts in time, and the row is there.
    heap = heap_of(topology, [*both, Interval(0, 0, 1, 2, 2)])
    least, greatest = heap.min_ij(heap.root, b, a), heap.max_ij(heap.root, a, b)
    assert least is not None and greatest is not None and least.tolist() == greatest.tolist() == [2, 1]


@pytest.mark.parametrize("seed", range(3))
def test_random_constraints(seed: int) -> None:
    """In the right slab every tuple meets all constraints; in the printed one some do not, and the structure never gives them."""
    rng, broken = random.Random(seed), 0
    print("seed", seed)
    topology = Topology(3, ((0, 1), (1, 2)))
    for _ in range(60):
        intervals = []
        for slot in range(12):
            left = rng.randrange(12)
            intervals.append(Interval(slot % 3, 0, left, left + rng.randrange(5), slot))
        q = [(rng.randrange(2, 16), rng.randrange(0, 10)) for _ in range(3)]
        every = tuples(topology, intervals)
        assert all(meets(row, q) for row in every if in_right_slab(list(row), q))
        broken += sum(not meets(row, q) for row in every if in_printed_slab(list(row), q))
        wanted = [row for row in every if meets(row, q)]
        heap = heap_of(topology, intervals)
        found = heap.min_ij(heap.root, [b for _, b in q], [a for a, _ in q])
        assert (found is None) == (not wanted)
        if found is not None:
            lefts = [intervals[slot].left for slot in found.tolist()]
            assert lefts == [min(row[position].left for row in wanted) for position in range(3)]
    assert broken > 10
