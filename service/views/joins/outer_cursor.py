"""The rows of a join's parts as rows of the view: cursors one after another, rows that are looked up, and the parts' deltas."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import pyarrow as pa

from service.query.model import Span
from service.tables.inputs import Input, ends_of
from service.tables.masks import Mask
from service.tables.resolution import NO_SLOTS, Indices, Slots
from service.tables.store import PIECE_ROWS, Table
from service.views.deltas import Combination, Sink
from service.views.joins.protocol import Enumeration
from service.views.joins.slots_cursor import Wrapper, agreeing
from service.views.read_counts import Counts

_CALL = 0.002  # seconds that a call may take, about
_LOOKED_UP = 256  # rows at once: some structures need 20 µs for each before they return the first partner

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
        rows = widened(self._cursor.fill(limit), self._positions, self._aliases)
        for input, span, (low, high) in self._windows:
            left, right = ends_of(input.relation.table, span, rows[input.position])
            kept = (left <= high) & (low <= right)
            self._dropped += len(kept) - int(np.count_nonzero(kept))
            rows = tuple(part[kept] for part in rows)
        return rows


class CursorChain:
    """One cursor after another; each starts when the previous one has ended."""

    def __init__(self, begins: Sequence[Callable[[], Enumeration]], aliases: int) -> None:
        self._current = begins[0]() if begins else None
        self._begins, self._aliases, self._at = begins, aliases, 0
        self._ended = Counts()  # of cursors that have ended

    @property
    def done(self) -> bool:
        return self._current is None or (self._current.done and self._at + 1 == len(self._begins))

    @property
    def counts(self) -> Counts:
        return self._ended if self._current is None else self._ended.then(self._current.counts)

    def fill(self, limit: int) -> Combination:
        while self._current is not None and not self.done:
            if not self._current.done:
                return self._current.fill(limit)
            self._ended, self._at = self.counts, self._at + 1
            self._current = self._begins[self._at]()
        return (NO_SLOTS,) * self._aliases

    def clone(self) -> Self:
        other = copy.copy(self)
        other._current = self._current.clone() if self._current is not None else None
        return other


class ChosenRows:
    """The view's rows that contain some rows of a table: the table is read in pieces, and the chosen rows are looked up. `choose`: returns
    the wanted slots; `partners`: returns the view's rows that contain them; `within`: the slots from one to another (excluded), None:
    all."""

    def __init__(
        self, table: Table, version: int, aliases: int, choose: Callable[[Slots], Slots], partners: Callable[[Slots], Enumeration],
        within: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        self._table, self._version, self._aliases = table, version, aliases
        self._choose, self._partners = choose, partners
        self._start, self._end = within or (0, table.used)  # slots used later are of later versions
        self._found = NO_SLOTS
        self._cursor: Enumeration | None = None
        self._steps = self._since = self._gap = 0  # total without the cursor's; since the last row; the most between two rows

    @property
    def done(self) -> bool:
        return self._cursor is None and not len(self._found) and self._start < 0

    @property
    def counts(self) -> Counts:
        return Counts(self._steps + (0 if self._cursor is None else self._cursor.counts.steps), self._gap)

    def fill(self, limit: int) -> Combination:
        parts, count, until = list[Combination](), 0, time.perf_counter() + _CALL
        while not self.done and count < limit and time.perf_counter() < until:
            if self._cursor is not None:
                some = self._cursor.fill(limit - count)
                if len(some[0]):
                    parts.append(tuple([np.array(slots) for slots in some]))
                    count += len(some[0])
                    self._gap, self._since = max(self._gap, self._since, self._cursor.counts.largest_gap), 0
                if self._cursor.done:
                    self._steps += self._cursor.counts.steps
                    self._cursor = None
            elif len(self._found):
                self._cursor, self._found = self._partners(self._found[:_LOOKED_UP]), self._found[_LOOKED_UP:]
            else:
                slots, following = self._table.scan(self._version, self._start, min(PIECE_ROWS, self._end - self._start))
                slots = slots[: np.searchsorted(slots, self._end)]
                self._start = following if following < self._end else -1
                self._found = self._choose(slots)
                self._steps += len(slots)
                self._since += len(slots)
        if not parts:
            return (NO_SLOTS,) * self._aliases
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(slots) for slots in zip(*parts, strict=True))

    def clone(self) -> Self:
        other = copy.copy(self)
        other._cursor = None if self._cursor is None else self._cursor.clone()
        return other


def scanned_for(
    input: Input, version: int, key: pa.RecordBatch, partners: Callable[[Slots], Enumeration], aliases: int
) -> ChosenRows:  # fmt: skip
    """Read the view's rows that contain a row of the side with these values (one row), for which its relation is scanned."""
    return ChosenRows(input.relation.table, version, aliases, lambda slots: agreeing(input, key, input.chosen(slots)), partners)


class PartSink:
    """Reports rows of some of the view's aliases as rows of the view; `first`: the offset of the run's first version."""

    def __init__(self, sink: Sink, positions: Sequence[int], aliases: int, first: int = 0) -> None:
        self._sink, self._positions, self._aliases, self._first = sink, positions, aliases, first
        self.limit = sink.limit

    def __call__(self, offsets: Indices, inserted: Mask, rows: Combination) -> bool:
        return self._sink(self._first + offsets, inserted, widened(rows, self._positions, self._aliases))

    def exceeded(self, offset: int) -> None:
        self._sink.exceeded(self._first + offset)


def widened(rows: Combination, positions: Sequence[int], aliases: int) -> Combination:
    """Add -1 for the missing aliases."""
    if len(positions) == aliases:
        return rows
    missing = np.full(len(rows[0]), -1, np.int32)
    return tuple(rows[positions.index(position)] if position in positions else missing for position in range(aliases))
