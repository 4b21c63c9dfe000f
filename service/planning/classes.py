"""Equivalence classes of what pairs connect, directly or indirectly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def joined(pairs: Iterable[tuple[T, T]]) -> list[list[T]]:
    """The classes of two or more members that the pairs connect, each in the order in which its members first occur."""
    found: list[list[T]] = []
    for x, y in pairs:
        mine = [one for one in found if x in one or y in one]
        found = [one for one in found if one not in mine]
        found.append(list(dict.fromkeys([*(member for one in mine for member in one), x, y])))
    return found
