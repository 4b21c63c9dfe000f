"""The first rows of each key in an order, by sorting."""

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
