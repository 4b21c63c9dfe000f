"""The naive twin of `structures.clique.tree`: intervals, each combined with all that meet the earlier ones."""

from __future__ import annotations

from collections.abc import Iterable

from tests.naive.interval_join import Interval, meet

Row = tuple[int, ...]


def cliques(t: int, intervals: Iterable[Interval]) -> set[Row]:
    """Return the view: all sets of t intervals that meet pairwise, as ascending slots."""
    every = sorted(intervals, key=lambda one: one.slot)
    found: list[tuple[Interval, ...]] = [()]
    for _ in range(t):
        found = [(*row, x) for row in found for x in every if (not row or x.slot > row[-1].slot) and all(meet(x, y) for y in row)]
    return {tuple(x.slot for x in row) for row in found}
