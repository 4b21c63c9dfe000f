"""Cursors of a join with parts: those of its joins, one after another, as rows of the view."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from service.query.model import Span
from service.tables.inputs import Input, ends_of
from service.tables.resolution import NO_SLOTS, Slots
from service.views.deltas import Combination
from service.views.joins.indexed_cursor import Scan
from service.views.joins.protocol import Enumeration
from service.views.joins.slots_cursor import Wrapper

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
    def dead_ends(self) -> int | None:
        own = self._cursor.dead_ends
        return own if not self._windows else self._dropped + (own or 0)

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
        self._current = first
        self._steps = self._gap = 0  # of cursors that have ended

    @property
    def steps(self) -> int:
        return self._steps + (self._current.steps if self._current is not None else 0)

    @property
    def largest_gap(self) -> int:
        return max(self._gap, self._current.largest_gap if self._current is not None else 0)


class CursorChain(_CursorSequence):
    """One cursor after another; each starts when the previous one has ended."""

    def __init__(self, begins: Sequence[Callable[[], Enumeration]], aliases: int) -> None:
        super().__init__(begins[0]() if begins else None)
        self._begins, self._aliases, self._at = begins, aliases, 0
        self._dead_ends: int | None = None
        self._counters: Counter[str] = Counter()

    @property
    def done(self) -> bool:
        return self._current is None or (self._current.done and self._at + 1 == len(self._begins))

    @property
    def dead_ends(self) -> int | None:
        found = [one for one in (self._dead_ends, self._current.dead_ends if self._current is not None else None) if one is not None]
        return sum(found) if found else None

    @property
    def counters(self) -> Mapping[str, int]:
        return self._counters + Counter(self._current.counters if self._current is not None else {})

    def fill(self, limit: int) -> Combination:
        while self._current is not None and not self.done:
            if not self._current.done:
                return self._current.fill(limit)
            self._steps, self._gap = self.steps, self.largest_gap
            self._dead_ends, self._counters = self.dead_ends, Counter(self.counters)
            self._at += 1
            self._current = self._begins[self._at]()
        return (NO_SLOTS,) * self._aliases

    def clone(self) -> CursorChain:
        other = copy.copy(self)
        other._current = self._current.clone() if self._current is not None else None
        other._counters = Counter(self._counters)
        return other


class ScanChain(_CursorSequence):
    """The rows that contain a row that a scan finds."""

    counters: Mapping[str, int] = {}

    def __init__(self, scan: Scan, begin: Callable[[Slots], Enumeration], aliases: int) -> None:
        super().__init__(None)
        self._scan, self._begin, self._aliases = scan, begin, aliases
        self._dead = 0

    @property
    def done(self) -> bool:
        return self._scan.done and (self._current is None or self._current.done)

    @property
    def dead_ends(self) -> int | None:
        return self._dead + ((self._current.dead_ends or 0) if self._current is not None else 0)

    def fill(self, limit: int) -> Combination:
        if self._current is not None and not self._current.done:
            return self._current.fill(limit)
        if not self._scan.done:
            self._steps, self._gap, self._dead = self.steps + 1, self.largest_gap, self.dead_ends or 0
            slots = self._scan.fill(_SCANNED)
            self._current = self._begin(slots) if len(slots) else None
        return (NO_SLOTS,) * self._aliases

    def clone(self) -> ScanChain:
        other = copy.copy(self)
        other._scan = self._scan.clone()
        other._current = self._current.clone() if self._current is not None else None
        return other
