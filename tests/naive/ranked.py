"""The first rows of each key in an order, and the ranges in which each row is the latest, by sorting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Ranked(NamedTuple):
    """A row; of two rows with the same key and order, the one with the lower rank comes first."""

    key: int
    order: int
    rank: int
    slot: int


def firsts(rows: Iterable[Ranked], most: int) -> set[int]:
    """Return the slots of the first rows of each key."""
    found = set[int]()
    seen = dict[int, int]()
    for row in sorted(rows):
        seen[row.key] = seen.get(row.key, 0) + 1
        if seen[row.key] <= most:
            found.add(row.slot)
    return found


def validities(rows: Iterable[Ranked], last: int) -> dict[tuple[int, int], tuple[int, int]]:
    """For each key and place (order), return the slot of the first row there, and the last number before the next place."""
    found, before = dict[tuple[int, int], tuple[int, int]](), None
    for row in sorted(rows):
        position = row.key, row.order
        if position in found:
            continue
        if before is not None and before[0] == row.key:
            found[before] = found[before][0], row.order - 1
        found[position], before = (row.slot, last), position
    return found
