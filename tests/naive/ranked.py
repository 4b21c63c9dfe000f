"""The first rows of each key in an order, and which one is the latest from where to where, by sorting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Ranked(NamedTuple):
    """A row: of two with one key and order that with the lower rank stands first."""

    key: int
    order: int
    rank: int
    slot: int


def firsts(rows: Iterable[Ranked], most: int) -> set[int]:
    """The slots of the first rows of each key."""
    found = set[int]()
    seen = dict[int, int]()
    for row in sorted(rows):
        seen[row.key] = seen.get(row.key, 0) + 1
        if seen[row.key] <= most:
            found.add(row.slot)
    return found


def turns(rows: Iterable[Ranked], last: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Of each key and place (order) the slot of the first row there, and the last number before the next place."""
    found, before = dict[tuple[int, int], tuple[int, int]](), None
    for row in sorted(rows):
        place = row.key, row.order
        if place in found:
            continue
        if before is not None and before[0] == row.key:
            found[before] = found[before][0], row.order - 1
        found[place], before = (row.slot, last), place
    return found
