"""What pairs put together, directly or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def joined(pairs: Iterable[tuple[T, T]]) -> list[list[T]]:
    """The classes of two or more that pairs join, each in the order in which its members come first."""
    found: list[list[T]] = []
    for x, y in pairs:
        mine = [one for one in found if x in one or y in one]
        found = [one for one in found if one not in mine]
        found.append(list(dict.fromkeys([*(member for one in mine for member in one), x, y])))
    return found
