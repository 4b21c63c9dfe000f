"""One ordered index of a relation: rows of a side that meet its filters, ordered by the values of columns.

A value is an int64 that preserves order (`structures.core.encoding`); a text is its code in one dictionary for all indexes. A row with a
null in one of the columns takes no part. Floats: -0.0 equals 0.0, and all NaNs are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.tables.arrow import is_text, null_mask, numbers_in_order
from service.tables.changes import DELETE, ENTER, INSERT, LEAVE, DividedRun
from service.tables.domains import Domain
from service.tables.inputs import Input
from service.tables.interest import Selection
from service.tables.resolution import Indices, Slots
from structures.index.indexes import NO_ENTRIES, Entries


class Order(NamedTuple):
    """The order of an index: its columns; same: further columns that must equal the column with that number."""

    columns: tuple[str, ...]
    same: tuple[tuple[int, str], ...]


class SharedIndex:
    """One index: rows of a side's relation that meet its filters. `users`: the joins that use it, each for a side of its own. `number`: in
    the store, once it is there."""

    def __init__(self, input: Input, order: Order, texts: Domain) -> None:
        self.number, self.order, self.texts = -1, order, texts
        self._input, self.relation = input, input.relation
        self.users: list[tuple[object, Input]] = []
        self.taken = Selection(input.relation.name, input.filters)
        self._names = list(dict.fromkeys((*order.columns, *(name for _, name in order.same))))
        self.text_columns = [j for j, name in enumerate(order.columns) if is_text(self.relation.schema.field(name).type)]

    def entries(self, slots: Slots, inserted: bool) -> tuple[Entries, Indices]:
        """Return the entries of the rows at these slots that take part, and their indices. `inserted`: their texts gain a reference."""
        indices = self._input.selected(slots)
        indices = np.arange(len(slots)) if indices is None else indices
        parts, kept, start = [], [], 0
        for some, rows in self.relation.table.take_pieces(self._names, slots[indices]):
            coordinates, mine = self._coordinates(rows, inserted)
            parts.append(Entries(coordinates, some[mine]))
            kept.append(indices[start + mine])
            start += len(some)
        if len(parts) == 1:
            return parts[0], kept[0]
        return joined(parts), np.concatenate(kept)

    def require_texts(self, slots: Slots) -> None:
        """Raise MemoryError, before any text gains a reference, unless there is surely room for the texts of these inserted rows."""
        names = [self.order.columns[j] for j in self.text_columns]
        if names and len(slots):
            self.texts.require(len(names) * len(slots), int(self.relation.table.text_bytes(names, slots).sum()))

    def _coordinates(self, rows: pa.RecordBatch, inserted: bool) -> tuple[npt.NDArray[np.int64], Indices]:
        """int64[n, k] of the rows that take part, and their indices."""
        takes_part = np.ones(len(rows), np.bool_)
        for column in rows.columns:
            if (nulls := null_mask(column)) is not None:
                takes_part &= ~nulls
        numbers = {name: numbers_in_order(rows.column(name)) for name in self._names if not is_text(rows.column(name).type)}
        for j, name in self.order.same:
            first = self.order.columns[j]
            if first in numbers:
                takes_part &= numbers[first] == numbers[name]
            else:
                takes_part &= np.asarray(pc.fill_null(pc.equal(rows.column(first), rows.column(name)), False))
        indices = np.flatnonzero(takes_part)
        coordinates = np.empty((len(indices), len(self.order.columns)), np.int64)
        for j, name in enumerate(self.order.columns):
            coordinates[:, j] = numbers[name][indices] if name in numbers else self._codes(rows.column(name), indices, inserted)
        if inserted or not self.text_columns:
            return coordinates, indices
        known = (coordinates[:, self.text_columns] >= 0).all(axis=1)
        return coordinates[known], indices[known]

    def _codes(self, column: pa.Array, indices: Indices, inserted: bool) -> Slots:
        texts = pa.RecordBatch.from_arrays([column if len(indices) == len(column) else column.take(pa.array(indices))], ["text"])
        return self.texts.acquire(texts) if inserted else self.texts.look_up(texts)

    def key(self, row: pa.RecordBatch) -> list[int] | None:
        """Return the coordinates of one row of the index's columns; None: no row of the index has them."""
        coordinates, indices = self._coordinates(row.select(self._names), False)
        return coordinates[0].tolist() if len(indices) else None

    def changes(self, part: DividedRun) -> list[tuple[int, Indices, Entries]]:
        """Return the changed entries of a run: kinds of change, each with the offsets and the entries."""
        deleted, inserted, moved = part
        after, indices = self.entries(moved.new, False)
        moved_at, before = moved.offsets[indices], after._replace(slot=moved.old[indices])
        (left, left_at), (new, new_at) = self.entries(deleted.old, False), self.entries(inserted.new, True)
        moves = [(LEAVE, moved_at, before), (ENTER, moved_at, after)]
        return [*moves, (DELETE, deleted.offsets[left_at], left), (INSERT, inserted.offsets[new_at], new)]

    def text_codes(self, entries: Entries) -> Slots:
        """int32[n texts]: the codes of all texts of these entries."""
        codes: Slots = entries.coordinates[:, self.text_columns].astype(np.int32).reshape(-1)
        return codes


def joined(parts: Sequence[Entries]) -> Entries:
    """Concatenate the parts, padded to the widest."""
    parts = [part for part in parts if len(part.slot)]
    if not parts:
        return NO_ENTRIES
    width = max(part.coordinates.shape[1] for part in parts)
    coordinates = np.zeros((sum(len(part.slot) for part in parts), width), np.int64)
    start = 0
    for part in parts:
        coordinates[start : start + len(part.slot), : part.coordinates.shape[1]] = part.coordinates
        start += len(part.slot)
    return Entries(coordinates, np.concatenate([part.slot for part in parts]))
