"""A structure's cursor as a cursor of the view: its slots are the rows."""

from __future__ import annotations

import copy
from typing import Any, Self

from service.views.deltas import Combination
from service.views.joins.protocol import Enumeration
from service.views.read_counts import Counts
from structures.core.cursor import Cursor

_CHUNK = 1 << 17  # rows at once: a structure's cursor reserves memory for as many as it is asked for


class Wrapper:
    """A cursor over another one, or over a structure's cursor, with the same counts. Subclasses define `fill`."""

    def __init__(self, cursor: Enumeration | Cursor) -> None:
        self._cursor: Any = cursor

    @property
    def done(self) -> bool:
        done: bool = self._cursor.done
        return done

    @property
    def counts(self) -> Counts:
        counts: Counts = self._cursor.counts
        return counts

    def clone(self) -> Self:
        other = copy.copy(self)
        other._cursor = self._cursor.clone()
        return other


class SlotsCursor(Wrapper):
    """See the module docstring."""

    @property
    def counts(self) -> Counts:
        return Counts.of(self._cursor)

    def fill(self, limit: int) -> Combination:
        return tuple(self._cursor.fill(min(limit, _CHUNK)))
