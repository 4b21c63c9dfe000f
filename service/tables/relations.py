"""A registered relation: its definition, and the rows in its table; with computed columns, as a view sees it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.batch import RowBlock
from livejoin.wire.kinds import KEPT_TYPES
from livejoin.wire.schema import RelationDefinition
from service.query.computed import ComputedColumn, with_computed
from service.query.conditions import columns_of
from service.query.terms import growth
from service.tables.arrow import is_text, null_mask, reader
from service.tables.store import Table
from service.tables.values.columns import has_values, of_words, to_words
from service.tables.values.terms import computed, stored
from structures.rows.rows import RowStore


class RowVisibility:
    """Shared by all copies of relations that new structures make: while `now`, none of their rows is loaded."""

    now = True


class Relation:
    """A relation under a name. `id` is permanent: a relation that is dropped and created again gets another one. `hidden`: of a
    copy whose rows new structures do not load."""

    hidden: RowVisibility | None = None

    def __init__(self, id_: int, name: str, definition: RelationDefinition, former: Relation | None = None) -> None:
        """`former`: the relation with its former definition, whose table is taken over."""
        self.id = id_
        self.name = name
        self.definition = definition
        # held by a thread that replaces its rows, deletes by condition, or changes its definition
        self.rewriting: threading.Lock = threading.Lock() if former is None else former.rewriting
        self.schema = definition.arrow_schema()
        self.key = list(definition.key)
        self.table: Table = Table(self.schema_of(definition), self.key) if former is None else former.table
        self._key_ordinals = definition.rules.key_ordinals
        self._key_struct = pa.struct([self.schema.field(name) for name in self.key])
        self.no_rows = RowBlock.few([], pa.struct(self.schema))
        self.no_keys = RowBlock.few([], self._key_struct)

    def renamed(self, name: str) -> Relation:
        """Return it under another name, for a join that gets only some of its rows."""
        other = copy.copy(self)
        other.name = name
        return other

    def computing(self, computed: Sequence[ComputedColumn]) -> Relation:
        """Return it with the columns that can be computed of its own, for a view; the same rows in the same table."""
        definition = with_computed(self.definition, computed)
        if definition is self.definition:
            return self
        other = copy.copy(self)
        other.definition, other.schema = definition, definition.arrow_schema()
        other.table = _ComputingTable(self.table, {one.name: one for one in computed if one.name in other.schema.names})
        return other

    def hiding(self, hidden: RowVisibility) -> Relation:
        """Return it for structures that are loaded without its rows."""
        other = copy.copy(self)
        other.hidden = hidden
        return other

    @staticmethod
    def schema_of(definition: RelationDefinition) -> pa.Schema:
        """Return the table's schema, in which columns that are never null are marked."""
        return pa.schema([field.with_nullable(definition.column(field.name).nullable) for field in definition.arrow_schema()])

    def extended(self, definition: RelationDefinition, rows: RowStore) -> Relation:
        """Return the same relation with more columns, intervals or nulls, and its `rows` by `Table.wider`. The writer's thread. Holders of
        the old object can still read its columns."""
        self.table.adopt(self.schema_of(definition), rows)
        return Relation(self.id, self.name, definition, self)

    def keys_of(self, rows: RowBlock) -> RowBlock:
        """Return the key columns, in the order of the key."""
        if rows.values is None:
            return RowBlock(rows.arrow.select(self.key))
        return RowBlock.few([tuple([row[ordinal] for ordinal in self._key_ordinals]) for row in rows.values], self._key_struct)


class _ComputingTable(Table):
    """A table that also has computed columns: everything else is that of the other one. They cost what `evaluated` costs."""

    __slots__ = ("_computed",)

    def __init__(self, table: Table, computed: dict[str, ComputedColumn]) -> None:
        self.__dict__ = table.__dict__
        self._computed = computed

    def take(self, names: Sequence[str], slots: npt.NDArray[Any]) -> pa.RecordBatch:
        if self._computed.keys().isdisjoint(names):
            return super().take(names, slots)
        rows = super().take(self._read(names), slots)
        columns = [stored(self._computed[name].term, rows) if name in self._computed else rows.column(name) for name in names]
        return pa.RecordBatch.from_arrays(columns, list(names))

    def numbers(self, names: Sequence[str], slots: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any] | None]]:
        if self._computed.keys().isdisjoint(names):
            return super().numbers(names, slots)
        terms = {name: self._computed[name].term for name in names if name in self._computed}
        kinds = {ref.column: kind for term in terms.values() for ref, kind in columns_of(term).items()}
        if all(map(has_values, (*kinds.values(), *(term.kind for term in terms.values())))):
            known = self._read(names)
            stored_as = dict(zip(known, zip(*super().numbers(known, slots), strict=True), strict=True))
            given = {name: of_words(*stored_as[name], kind) for name, kind in kinds.items()}
            for name, term in terms.items():
                stored_as[name] = to_words(computed(term, lambda ref: given[ref.column], len(slots)))
            return np.stack([stored_as[name][0] for name in names]), [stored_as[name][1] for name in names]
        columns, read = self.take(names, slots).columns, [reader(self.type_of(name)) for name in names]
        words = np.zeros((len(names), len(slots)), np.int64)
        for at, column in enumerate(columns if len(slots) else ()):
            words[at] = read[at](column)  # type: ignore[misc]
        return words, [null_mask(column) for column in columns]

    def type_of(self, name: str) -> pa.DataType:
        return KEPT_TYPES[self._computed[name].term.kind] if name in self._computed else super().type_of(name)

    def text_bytes(self, names: Sequence[str], slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """As in `Table`; a bound for computed columns, so that they need not be computed."""
        total = super().text_bytes([name for name in names if name not in self._computed], slots)
        for one in (self._computed[name] for name in names if name in self._computed):
            times, more = growth(one.term)
            if is_text(self.type_of(one.name)):
                total = total + times * super().text_bytes(one.reads, slots) + more
        return total

    def _read(self, names: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(read for name in names for read in (self._computed[name].reads if name in self._computed else [name])))


def computing(rows: pa.RecordBatch, definition: RelationDefinition, computed: Sequence[ComputedColumn]) -> pa.RecordBatch:
    """Return stored rows of a relation with the columns that can be computed of its own."""
    for one in computed:
        if one.name not in rows.schema.names and one.is_of(definition):
            rows = rows.append_column(one.name, stored(one.term, rows))
    return rows
