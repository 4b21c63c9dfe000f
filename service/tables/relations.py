"""A registered relation: its definition, and the rows in its table."""

from __future__ import annotations

import copy
import threading

import pyarrow as pa

from service.tables.store import Table
from service.wire.batch import RowBlock
from service.wire.schema import RelationDefinition


class Relation:
    """A relation under a name. `id` is its own for good: a relation that is dropped and made again is another one."""

    def __init__(self, id_: int, name: str, definition: RelationDefinition) -> None:
        self.id = id_
        self.rewriting = threading.Lock()  # held by who replaces its rows, deletes by condition, or changes its definition
        self.name = name
        self.definition = definition
        self.schema = definition.arrow_schema()
        self.key = list(definition.key)
        nullable = {column.name: column.nullable for column in definition.columns}
        self.table = Table(pa.schema([field.with_nullable(nullable[field.name]) for field in self.schema]), self.key)
        self._key_ordinals = definition.rules.key_ordinals
        self._key_struct = pa.struct([self.schema.field(name) for name in self.key])
        self.no_rows = RowBlock.few([], pa.struct(self.schema))
        self.no_keys = RowBlock.few([], self._key_struct)

    def renamed(self, name: str) -> Relation:
        """The same, for a join that is given only some of its rows."""
        other = copy.copy(self)
        other.name = name
        return other

    def keys_of(self, rows: RowBlock) -> RowBlock:
        """The key columns, in the order of the key."""
        if rows.values is None:
            return RowBlock(rows.arrow.select(self.key))
        return RowBlock.few([tuple([row[ordinal] for ordinal in self._key_ordinals]) for row in rows.values], self._key_struct)
