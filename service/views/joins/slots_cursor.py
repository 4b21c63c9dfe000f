"""Simple cursors: over a structure's cursor, whose slots are the rows; of given rows; of the rows of a table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.tables.inputs import Input, read
from service.tables.masks import compare
from service.tables.resolution import Slots
from service.tables.store import Table
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
        return bool(self._cursor.done)

    @property
    def counts(self) -> Counts:
        return cast(Counts, self._cursor.counts)

    def clone(self) -> Self:
        other = copy.copy(self)
        other._cursor = self._cursor.clone()
        return other


class SlotsCursor(Wrapper):
    """A structure's cursor as a cursor of the view: its slots are the rows, or `shown` makes the rows of them."""

    def __init__(self, cursor: Cursor, shown: Callable[[Any], Combination] = tuple) -> None:
        super().__init__(cursor)
        self._shown = shown

    @property
    def counts(self) -> Counts:
        return Counts.of(self._cursor)

    def fill(self, limit: int) -> Combination:
        return self._shown(self._cursor.fill(min(limit, _CHUNK)))


class Filtered(Wrapper):
    """The rows of another cursor that pass a test, which returns bool[n] for n rows; others are dead ends."""

    def __init__(self, cursor: Enumeration, test: Callable[[Combination], npt.NDArray[np.bool_]]) -> None:
        super().__init__(cursor)
        self._test, self._dropped = test, 0

    @property
    def counts(self) -> Counts:
        return super().counts.dropping(self._dropped)

    def fill(self, limit: int) -> Combination:
        rows = self._cursor.fill(limit)
        kept = self._test(rows)
        self._dropped += len(kept) - int(np.count_nonzero(kept))
        return tuple(part[kept] for part in rows)


class GivenRowsCursor:
    """Given rows."""

    counts = Counts()

    def __init__(self, rows: Combination) -> None:
        self._rows = rows

    @property
    def done(self) -> bool:
        return len(self._rows[0]) == 0

    def fill(self, limit: int) -> Combination:
        found, self._rows = tuple(part[:limit] for part in self._rows), tuple(part[limit:] for part in self._rows)
        return found

    def clone(self) -> GivenRowsCursor:
        return copy.copy(self)


class Scan:
    """Reads the rows of a table at a held version. `choose`: returns those wanted; None: all. A step is a slot or a stretch of free
    slots."""

    def __init__(self, table: Table, version: int, choose: Callable[[Slots], Slots] | None = None) -> None:
        self._table, self._version, self._choose = table, version, choose
        self._at, self._last, self._since = 0, -1, 0  # slots visited since the last row
        self.counts = Counts()

    @property
    def done(self) -> bool:
        return self._at < 0

    def fill(self, limit: int) -> Combination:
        start = self._at
        slots, self._at = self._table.scan(self._version, start, limit)
        end = self._at if self._at >= 0 else self._table.used
        passed = self._table.passed(start, end)
        gap = self.counts.largest_gap
        self._since += passed
        if self._choose is not None:
            slots = self._choose(slots)
        if len(slots):
            gap = max(gap, min(self._since, int(np.diff(slots, prepend=self._last).max())))
            self._last = int(slots[-1])
            self._since = min(passed, end - self._last)
        self.counts = Counts(self.counts.steps + passed, gap)
        return (slots,)

    def clone(self) -> Scan:
        return copy.copy(self)


def scan_of(input: Input, version: int, values: pa.RecordBatch | None = None) -> Scan:
    """Read the rows of a version that meet the side's filters and, if given, have these values in these columns (one row)."""
    return Scan(input.relation.table, version, lambda slots: agreeing(input, values, input.chosen(slots)))


def agreeing(input: Input, values: pa.RecordBatch | None, slots: Slots) -> Slots:
    """Return the slots whose rows have the values."""
    if values is None or not len(slots):
        return slots

    def agree(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(rows), np.bool_)
        for column, wanted in zip(rows.columns, values.columns, strict=True):
            mask &= compare("=", column, wanted.take(pa.array(np.zeros(len(rows), np.int64))))
        return mask

    found: Slots = slots[read(input.relation.table, values.schema.names, slots, agree)]
    return found
