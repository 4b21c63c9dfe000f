"""A registered relation: its definition, and the rows in its table."""

from __future__ import annotations

import copy
import threading

import pyarrow as pa

from livejoin.wire.batch import RowBlock
from livejoin.wire.schema import RelationDefinition
from service.tables.store import Table


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

    def hiding(self, hidden: RowVisibility) -> Relation:
        """Return it for structures that are loaded without its rows."""
        other = copy.copy(self)
        other.hidden = hidden
        return other

    @staticmethod
    def schema_of(definition: RelationDefinition) -> pa.Schema:
        """Return the table's schema, in which columns that are never null are marked."""
        return pa.schema([field.with_nullable(definition.column(field.name).nullable) for field in definition.arrow_schema()])

    def extended(self, definition: RelationDefinition) -> Relation:
        """Return the same relation with more columns, intervals or nulls, for which its table was widened. The writer's thread. Holders of
        the old object can still read its columns."""
        self.table.adopt(self.schema_of(definition))
        return Relation(self.id, self.name, definition, self)

    def keys_of(self, rows: RowBlock) -> RowBlock:
        """Return the key columns, in the order of the key."""
        if rows.values is None:
            return RowBlock(rows.arrow.select(self.key))
        return RowBlock.few([tuple([row[ordinal] for ordinal in self._key_ordinals]) for row in rows.values], self._key_struct)
