"""What partners with the same key cover of the intervals of rows, or leave uncovered, by sorted runs: the twin of `structures.cover`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from tests.naive.interval_join import Interval

Stretch = tuple[int, int, int]  # slot, start, last
Position = TypeVar("Place", int, float)


def runs(intervals: Iterable[tuple[Position, Position]]) -> list[tuple[Position, Position]]:
    """Return closed intervals of integers, possibly without ends, in order; intervals that overlap or touch are merged."""
    found: list[tuple[Position, Position]] = []
    for left, right in sorted(intervals):
        if found and left <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], right)
        else:
            found.append((left, right))
    return found


def stretches(rows: Mapping[int, Interval], partners: Mapping[int, Interval], covered: bool) -> set[Stretch]:
    """Return, for each row, what partners with its key cover of it, or what they leave uncovered."""
    found: set[Stretch] = set()
    for row in rows.values():
        meeting = [(max(one.left, row.left), min(one.right, row.right)) for one in partners.values() if one.key == row.key]
        own = runs((left, right) for left, right in meeting if left <= right)
        if covered:
            found |= {(row.slot, left, right) for left, right in own}
            continue
        at = row.left
        for left, right in own:
            if left > at:
                found.add((row.slot, at, left - 1))
            at = right + 1
        if at <= row.right:
            found.add((row.slot, at, row.right))
    return found
