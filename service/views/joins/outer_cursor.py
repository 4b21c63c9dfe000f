"""Cursors of a join with parts: those of its joins, one after another, as rows of the view."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np

from service.query.model import Span
from service.tables.inputs import Input, ends_of
from service.tables.resolution import NO_SLOTS, Slots
from service.views.deltas import Combination
from service.views.joins.protocol import Enumeration
from service.views.joins.slots_cursor import Scan, Wrapper
from service.views.read_counts import Counts

_SCANNED = 1 << 12  # rows of a relation to scan in a call

Looked = tuple[Input, Span, tuple[int, int]]
"""A window that is looked at row by row: a side of the view, its span, and the closed, encoded bounds."""


class ShownCursor(Wrapper):
    """The rows of one join, with -1 for missing aliases, restricted to the windows."""

    def __init__(self, cursor: Enumeration, positions: Sequence[int], aliases: int, windows: Sequence[Looked]) -> None:
        super().__init__(cursor)
        self._positions, self._aliases, self._windows = positions, aliases, windows
        self._dropped = 0

    @property
    def counts(self) -> Counts:
        return super().counts.dropping(self._dropped) if self._windows else super().counts

    def fill(self, limit: int) -> Combination:
        rows: Combination = self._cursor.fill(limit)
        if len(self._positions) < self._aliases:
            missing = np.full(len(rows[0]), -1, np.int32)
            rows = tuple(
                rows[self._positions.index(position)] if position in self._positions else missing for position in range(self._aliases)
            )
        for input, span, (low, high) in self._windows:
            left, right = ends_of(input.relation.table, span, rows[input.position])
            kept = (left <= high) & (low <= right)
            self._dropped += len(kept) - int(np.count_nonzero(kept))
            rows = tuple(part[kept] for part in rows)
        return rows


class _CursorSequence:
    """Successive cursors: the current one, and the counts of those that have ended."""

    def __init__(self, first: Enumeration | None) -> None:
        self._current, self._ended = first, Counts()

    @property
    def counts(self) -> Counts:
        return self._ended if self._current is None else self._ended.then(self._current.counts)

    def clone(self) -> Self:
        other = copy.copy(self)
        other._current = self._current.clone() if self._current is not None else None
        return other


class CursorChain(_CursorSequence):
    """One cursor after another; each starts when the previous one has ended."""

    def __init__(self, begins: Sequence[Callable[[], Enumeration]], aliases: int) -> None:
        super().__init__(begins[0]() if begins else None)
        self._begins, self._aliases, self._at = begins, aliases, 0

    @property
    def done(self) -> bool:
        return self._current is None or (self._current.done and self._at + 1 == len(self._begins))

    def fill(self, limit: int) -> Combination:
        while self._current is not None and not self.done:
            if not self._current.done:
                return self._current.fill(limit)
            self._ended, self._at = self.counts, self._at + 1
            self._current = self._begins[self._at]()
        return (NO_SLOTS,) * self._aliases


class ScanChain(_CursorSequence):
    """The rows that contain a row that a scan finds, each call of which is a step."""

    def __init__(self, scan: Scan, begin: Callable[[Slots], Enumeration], aliases: int) -> None:
        super().__init__(None)
        self._scan, self._begin, self._aliases = scan, begin, aliases

    @property
    def done(self) -> bool:
        return self._scan.done and (self._current is None or self._current.done)

    def fill(self, limit: int) -> Combination:
        if self._current is not None and not self._current.done:
            return self._current.fill(limit)
        if not self._scan.done:
            self._ended = self.counts.then(Counts(steps=1))
            (slots,) = self._scan.fill(_SCANNED)
            self._current = self._begin(slots) if len(slots) else None
        return (NO_SLOTS,) * self._aliases

    def clone(self) -> Self:
        other = super().clone()
        other._scan = self._scan.clone()
        return other
