"""Enumerations of one version, which determine the next slots. Plain state that can be cloned, so a cursor costs only its pin.

ViewReading      rows of a view, as its join enumerates them
TableReading     rows of a relation, in the order of their slots
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import sent_batch
from livejoin.wire.wording import instead
from service.errors import bad_parameter
from service.histogram import Histogram
from service.tables.arrow import is_text
from service.tables.inputs import read
from service.tables.relations import Relation
from service.tables.resolution import Indices, Slots
from service.tables.store import pieces
from service.views.deltas import Combination
from service.views.joins.protocol import Enumeration
from service.views.joins.slots_cursor import Filtered
from service.views.live_view import LiveView
from service.views.read_counts import Counts

Test = Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]


class Delays:
    """Delays measured by readers: steps between two rows, and seconds per row of each chunk."""

    def __init__(self) -> None:
        self.steps = Histogram()
        self.seconds = Histogram()


class ViewReading:
    """The rows that `cursor` enumerates: the `whole` view, or part of it. `empty`: whether the view has none, if known.

    `fill` returns up to about `limit` rows (none does not mean the end); `done` once there are no more. `schema`: of the columns that are
    shown, `every`: of all."""

    def __init__(self, view: LiveView, empty: bool | None, cursor: Enumeration, whole: bool, delays: Delays) -> None:
        self.view = view
        self._shown = view.shown
        self.schema = self.every = view.shown.schema
        self._cursor, self._delays = cursor, delays
        self._empty = empty if empty or whole else None
        self._counted = Counts()  # of the cursor
        self.is_counted = True  # in the view's statistics

    def show(self, columns: Sequence[str]) -> None:
        """Return only these columns, in this order. Problem `bad-parameter`."""
        require_columns(columns, self.every)
        self._shown = self.view.shown.only(columns)
        self.schema = self._shown.schema

    def choose(self, columns: Sequence[str], test: Test) -> None:
        """Return only rows that pass a test of these columns, as they are sent."""
        read = self.view.shown.only(columns)

        def meets(slots: Combination) -> npt.NDArray[np.bool_]:
            if not read.has_texts:
                return test(read.rows(slots))
            parts = (tuple(part[piece] for part in slots) for piece in pieces(read.text_bytes(slots)))
            return np.concatenate([np.empty(0, np.bool_), *(test(read.rows(some)) for some in parts)])

        self._cursor = Filtered(self._cursor, meets)
        self._empty = self._empty or None

    @property
    def done(self) -> bool:
        return self._cursor.done

    @property
    def counts(self) -> Counts:
        return self._cursor.counts

    def fill(self, limit: int) -> Combination:
        started = time.perf_counter()
        found = self._cursor.fill(limit)
        if not self.is_counted:
            return found
        counts, before = self._cursor.counts, self._counted
        self.view.read_counts.add(len(found[0]), before, counts)
        self._counted = counts
        if len(found[0]):
            self._delays.seconds.observe((time.perf_counter() - started) / len(found[0]))
            self._delays.steps.observe(counts.largest_gap)
        return found

    def rows(self, slots: Combination) -> pa.RecordBatch:
        return self._shown.rows(slots)

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        keys, rows = self.view.shown.with_keys(slots)
        return keys, rows if self._shown is self.view.shown else rows.select(self.schema.names)

    @property
    def has_texts(self) -> bool:
        return self._shown.has_texts

    def text_bytes(self, slots: Combination) -> Indices:
        return self._shown.text_bytes(slots)

    def clone(self) -> ViewReading:
        other = copy.copy(self)
        other._cursor = self._cursor.clone()
        return other

    def is_empty(self) -> bool | None:
        """Whether there was no row at the beginning, in O(1); None: only `fill` can tell."""
        return self._empty


class TableReading:
    """The rows of a relation at one version; `rows`: their number. `chosen`: returns the wanted slots; None: all. `among`: the slots to
    choose from; None: all. Slots used later than `end` was are of later versions."""

    def __init__(
        self, relation: Relation, version: int, rows: int, chosen: Callable[[Slots], Slots] | None = None, among: Slots | None = None
    ) -> None:
        self.relation = relation
        self.schema = self.every = relation.definition.sent_schema()
        self._version, self._start, self._end, self._rows = version, 0, relation.table.used, rows
        self._chosen, self._among, self._is_part = chosen, among, False

    def show(self, columns: Sequence[str]) -> None:
        """As for a view."""
        require_columns(columns, self.every)
        self.schema = pa.schema([self.schema.field(name) for name in columns])

    def choose(self, columns: list[str], test: Test) -> None:
        """As for a view, but the columns are as they are stored."""
        before, table = self._chosen, self.relation.table

        def chosen(slots: Slots) -> Slots:
            slots = slots if before is None else before(slots)
            some: Slots = slots[read(table, columns, slots, test)]
            return some

        self._chosen = chosen

    def parts(self, most: int) -> list[TableReading]:
        """Return one to `most` readings of ranges of slots, which together have each row once."""
        parts, count = list[TableReading](), max(1, min(most, self._end))
        for at in range(count):
            part = self.clone()
            part._start, part._end = self._end * at // count, self._end * (at + 1) // count
            part._is_part = count > 1
            parts.append(part)
        return parts

    @property
    def done(self) -> bool:
        return self._start < 0

    def fill(self, limit: int) -> Combination:
        if self._among is not None:
            slots, self._start = self._among, -1
        else:
            slots, following = self.relation.table.scan(self._version, self._start, min(limit, max(self._end - self._start, 1)))
            slots = slots[: np.searchsorted(slots, self._end)]
            self._start = following if following < self._end else -1
        return (slots if self._chosen is None else self._chosen(slots),)

    def rows(self, slots: Combination) -> pa.RecordBatch:
        return sent_batch(self.relation.table.take(self.schema.names, slots[0]), self.schema)

    @property
    def has_texts(self) -> bool:
        return any(is_text(type_) for type_ in self.schema.types)

    def text_bytes(self, slots: Combination) -> Indices:
        return self.relation.table.text_bytes(self.schema.names, slots[0])

    def clone(self) -> TableReading:
        return copy.copy(self)

    def is_empty(self) -> bool | None:
        return True if self._rows == 0 else None if self._chosen is not None or self._among is not None or self._is_part else False


Reading = ViewReading | TableReading


def require_columns(columns: Sequence[str] | None, schema: pa.Schema) -> None:
    """Problem `bad-parameter` for columns that do not exist, or are named twice; None: all."""
    if columns is not None and not columns:
        raise bad_parameter("columns", "name one at least")
    for index, name in enumerate(columns or ()):
        if name not in schema.names:
            raise bad_parameter("columns", f"there is no column {name!r}{instead(name, schema.names)}")
        if columns is not None and name in columns[:index]:
            raise bad_parameter("columns", f"{name!r} is named twice")


def split(slots: Combination, limit: int) -> tuple[Combination, Combination]:
    """Return the first `limit` rows, and the rest (copied, so that the chunk is freed)."""
    return tuple(part[:limit] for part in slots), tuple(np.array(part[limit:]) for part in slots)
