"""A structure's cursor as a cursor of the view: its slots are the rows."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol, Self

from service.views.deltas import Combination

_CHUNK = 1 << 17  # rows at once: a structure's cursor reserves memory for as many as it is asked for


class SlotSource(Protocol):
    """A structure's cursor: slots, an array per alias."""

    @property
    def done(self) -> bool: ...

    @property
    def steps(self) -> int: ...

    @property
    def largest_gap(self) -> int: ...

    @property
    def dead_ends(self) -> int | None: ...

    def fill(self, limit: int) -> Any: ...

    def clone(self) -> SlotSource: ...


class Wrapper:
    """A cursor over another one, or over a structure's cursor, with the same counts. Subclasses define `fill`."""

    def __init__(self, cursor: SlotSource) -> None:
        self._cursor = cursor

    @property
    def done(self) -> bool:
        return self._cursor.done

    @property
    def steps(self) -> int:
        return self._cursor.steps

    @property
    def largest_gap(self) -> int:
        return self._cursor.largest_gap

    @property
    def dead_ends(self) -> int | None:
        """None: the structure's cursor counts none."""
        return self._cursor.dead_ends

    @property
    def counters(self) -> Mapping[str, int]:
        return getattr(self._cursor, "counters", {})

    def clone(self) -> Self:
        other = copy.copy(self)
        other._cursor = self._cursor.clone()
        return other


class SlotsCursor(Wrapper):
    """See the module docstring."""

    def fill(self, limit: int) -> Combination:
        return tuple(self._cursor.fill(min(limit, _CHUNK)))
