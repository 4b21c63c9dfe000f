"""Stored views: queries in FROM that are not written out, whose rows are kept in tables that views read like a relation's.

A stored view is a function of the relations, like the structures of a view: it is neither logged nor in snapshots, and is built again at
each start. Its key is the identity of the query's rows. A part of it that SELECT shows, and that is never null, is that column; any other
is a further column, named as in the keys of changes (`b.id`), with a flag before it if it may be null (`b.id.null`). No column of a
relation has a dot in its name, so nothing else can name these.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.batch import RowBlock
from livejoin.wire.kinds import MOST_DIGITS, kept
from livejoin.wire.schema import RelationDefinition
from service.errors import Problem
from service.tables.changes import Run, batch_run
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS
from service.views.deltas import Combination, Delta
from service.views.live_view import LiveView
from service.views.parse import View
from service.views.shown import IS_NULL
from service.views.stored_definition import part_name

_IDS = count(1 << 30)  # never those of relations
_MOST = 10_000_000  # rows
_CHUNK = 1 << 14  # rows to store at once
_NOTHING = {pa.utf8(): "", pa.binary(): b"", pa.bool_(): False}


class StoredView(LiveView):
    """A live view that nobody registers or follows, and the relation that has its rows. One thread at a time writes it: its builder until
    it is live, then the writer."""

    def __init__(self, view: View, relations: Mapping[str, Relation], shown: RelationDefinition) -> None:
        """`shown`: as `stored_definition`."""
        super().__init__(view.name, view, relations, None)
        self.is_composed = True
        columns = [one if one.name in shown.key else one.model_copy(update={"nullable": True}) for one in shown.columns]
        definition = RelationDefinition.model_construct(columns=columns, key=shown.key, intervals=shown.intervals, retain=None)
        self._shows_key = all("." not in name for name in shown.key)
        self.relation = Relation(next(_IDS), view.name, definition)  # with room for the nulls that a PATCH may allow in what it reads

    @property
    def title(self) -> str:
        return f"the stored query {self.view.definition['sql'][:200]}"

    @property
    def held(self) -> int:
        """Bytes of its table and its structures."""
        return self.relation.table.bytes + self.bytes

    def fill(self, version: int) -> None:
        """Store all rows that the structures have; `version`: theirs. MemoryError, Problem `view-failed`."""
        cursor = self.join.rows(self.join.root, None)
        while not cursor.done:
            found = cursor.fill(_CHUNK)
            if len(found[0]):
                rows = RowBlock(self._rows(found))
                self._require(rows)
                self.relation.table.insert(version, rows)

    def store(self, delta: Delta) -> list[tuple[int, Run]]:
        """Store a delta; return what changes in each of its versions. A row whose key stays is replaced. Raises as `fill`."""
        assert delta.cut < 0 and delta.later is None
        parts = [delta.part(index, index + 1) for index in range(len(delta.versions))]
        runs = [(part.versions[0], self._store(part)) for part in parts]
        return [(version, run) for version, run in runs if len(run.old)]

    def _store(self, delta: Delta) -> Run:
        table, (deletes,), (version,) = self.relation.table, delta.deletes, delta.versions
        previous = lost = slots = NO_SLOTS
        given, rows = None, self._rows(delta.slots)
        if deletes:
            lost = table.find(RowBlock(rows.slice(0, deletes).select(self.relation.key)))
            assert lost.min() >= 0, "a row that is not there was deleted"
        if deletes < rows.num_rows:
            inserts = RowBlock(rows.slice(deletes))
            self._require(inserts)
            given = table.given(inserts)
            previous = table.find_given(given)
        replaced = previous[previous >= 0]
        if len(replaced):
            others = lost[lost != replaced[0]] if len(replaced) == 1 else lost[np.isin(lost, replaced, invert=True)]
            lost = np.concatenate((replaced, others))
        table.delete(version, lost)
        if given is not None:
            slots = table.enter(version, given)
        return batch_run(previous, lost, slots)

    def _require(self, rows: RowBlock) -> None:
        self.relation.table.require(rows)
        if self.relation.table.rows + rows.num_rows > _MOST:
            said = f"it has more than {_MOST:,} rows, which are too many to be stored: filter it, or join its relations in the view itself"
            raise Problem("view-failed", f"{self.title}: {said}")

    def _rows(self, slots: Combination) -> pa.RecordBatch:
        """Return rows as the table has them."""
        schema = self.relation.schema
        if self._shows_key:
            rows = self.shown.rows(slots)
            return pa.RecordBatch.from_arrays(list(map(_kept, rows.columns)), schema=schema)
        keys, rows = self.shown.with_keys(slots)
        known = dict(zip(rows.schema.names, rows.columns, strict=True))
        known |= zip(map(part_name, keys.schema.names), keys.columns, strict=True)
        return pa.RecordBatch.from_arrays([_column(name, known) for name in schema.names], schema=schema)


def _kept(column: pa.Array) -> pa.Array:
    """Return a column that is shown as the table has it."""
    if pa.types.is_decimal(column.type) and column.type.precision > MOST_DIGITS:
        try:
            column = column.cast(pa.decimal128(MOST_DIGITS, column.type.scale))
        except pa.ArrowInvalid:
            said = f"a number that other queries read has more than {MOST_DIGITS} digits: cast it to a decimal with fewer, or to float8"
            raise Problem("view-failed", said) from None
    return kept(column)


def _column(name: str, known: Mapping[str, pa.Array]) -> pa.Array:
    """Return a column of the table: in a part of the key, something takes the place of null, and false identifies the only group."""
    if name not in known:
        return known[name.removesuffix(IS_NULL)].is_null()
    column = known[name]
    if column.type == pa.null():
        return pa.array(np.zeros(len(column), np.bool_))
    column = _kept(column)
    return pc.fill_null(column, _nothing(column.type)) if "." in name and column.null_count else column


def _nothing(type_: pa.DataType) -> pa.Scalar:
    if type_ in _NOTHING:
        return pa.scalar(_NOTHING[type_], type_)
    return pa.array([0], pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)[0]
