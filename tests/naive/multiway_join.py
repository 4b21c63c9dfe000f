"""The naive twin of `structures.ij_heap.heap`: a set of intervals and nested loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from structures.multiway.topology import Topology
from tests.naive.interval_join import Interval, meet

Row = tuple[int, ...]


def tuples(topology: Topology, intervals: Iterable[Interval]) -> list[tuple[Interval, ...]]:
    """Return all combinations of one interval per set in which neighbours meet (and therefore all have the same key)."""
    sets: list[list[Interval]] = [[] for _ in range(topology.t)]
    for one in intervals:
        sets[one.set].append(one)
    found: list[tuple[Interval, ...]] = [()]
    for i in range(topology.t):
        near = [j for j in range(i) if topology.near[i] >> j & 1]
        found = [(*row, x) for row in found for x in sets[i] if all(meet(row[j], x) for j in near)]
    return found


def rows(topology: Topology, intervals: Iterable[Interval]) -> set[Row]:
    """Return the view: one slot per set."""
    return {tuple(x.slot for x in row) for row in tuples(topology, intervals)}


def bounded(intervals: Iterable[Interval], key: int, a: Sequence[int], b: Sequence[int]) -> list[Interval]:
    """Return the intervals of the key with left <= a[set] and right >= b[set]."""
    return [x for x in intervals if x.key == key and x.left <= a[x.set] and x.right >= b[x.set]]
