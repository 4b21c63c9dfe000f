"""Enumerations of one version, which determine the next slots. Plain state that can be cloned, so a cursor costs only its pin.

ViewReading      rows of a view, as its join enumerates them
TableReading     rows of a relation, in the order of their slots
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from livejoin.wire.kinds import sent_batch
from service.histogram import Histogram
from service.tables.arrow import is_text
from service.tables.relations import Relation
from service.tables.resolution import Indices, Slots
from service.views.deltas import Combination
from service.views.joins.protocol import Enumeration
from service.views.live_view import LiveView
from service.views.read_counts import Counts


class Delays:
    """Delays measured by readers: steps between two rows, and seconds per row of each chunk."""

    def __init__(self) -> None:
        self.steps = Histogram()
        self.seconds = Histogram()


class ViewReading:
    """The rows that `cursor` enumerates: the `whole` view, or part of it. `empty`: whether the view has none, if known.

    `fill` returns up to about `limit` rows (none does not mean the end); `done` once there are no more."""

    def __init__(self, view: LiveView, empty: bool | None, cursor: Enumeration, whole: bool, delays: Delays) -> None:
        self.view = view
        self._shown = view.shown
        self.schema = view.shown.schema
        self._cursor, self._delays = cursor, delays
        self._empty = empty if empty or whole else None
        self._counted = Counts()  # of the cursor

    def show(self, columns: Sequence[str]) -> None:
        """Return only these columns, in this order."""
        self._shown = self.view.shown.only(columns)
        self.schema = self._shown.schema

    @property
    def done(self) -> bool:
        return self._cursor.done

    def fill(self, limit: int) -> Combination:
        started = time.perf_counter()
        found = self._cursor.fill(limit)
        counts, before = self._cursor.counts, self._counted
        self.view.read_counts.add(len(found[0]), before, counts)
        self._counted = counts
        if len(found[0]):
            self._delays.seconds.observe((time.perf_counter() - started) / len(found[0]))
            self._delays.steps.observe(counts.largest_gap)
        return found

    def rows(self, slots: Combination) -> pa.RecordBatch:
        return self._shown.rows(slots)

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
    choose from; None: all."""

    def __init__(
        self, relation: Relation, version: int, rows: int, chosen: Callable[[Slots], Slots] | None = None, among: Slots | None = None
    ) -> None:
        self.relation = relation
        self.schema = relation.definition.sent_schema()
        self._version, self._start, self._rows = version, 0, rows
        self._chosen, self._among = chosen, among

    def show(self, columns: Sequence[str]) -> None:
        """As for a view."""
        self.schema = pa.schema([self.schema.field(name) for name in columns])

    @property
    def done(self) -> bool:
        return self._start < 0

    def fill(self, limit: int) -> Combination:
        if self._among is not None:
            slots, self._start = self._among, -1
        else:
            slots, self._start = self.relation.table.scan(self._version, self._start, limit)
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
        return True if self._rows == 0 else None if self._chosen is not None or self._among is not None else False


Reading = ViewReading | TableReading


def split(slots: Combination, limit: int) -> tuple[Combination, Combination]:
    """Return the first `limit` rows, and the rest (copied, so that the chunk is freed)."""
    return tuple(part[:limit] for part in slots), tuple(np.array(part[limit:]) for part in slots)
