"""Columns that conditions between aliases compare, computed of the columns of one alias: `lower(a.name) = b.name`.

Nothing is stored: a table computes them when they are read. To everything behind the reader of a definition they are columns like others,
whose names no relation has.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from livejoin.wire.schema import Column, RelationDefinition
from service.query import terms
from service.query.conditions import ColumnRef, Term, columns_of, replaced


class ComputedColumn(NamedTuple):
    """`term` reads the columns of an alias without a name. `name` depends on it alone, so that views share indexes."""

    name: str
    term: Term

    @staticmethod
    def of(term: Term) -> ComputedColumn:
        term = replaced(term, lambda ref: ref._replace(alias=""))
        words = str(replaced(term, lambda ref: ref._replace(alias=".")))
        return ComputedColumn(f"{words}#{blake2b(repr(term).encode(), digest_size=8).hexdigest()}", term)

    @property
    def reads(self) -> list[str]:
        """The columns of the relation that it is computed of."""
        return [ref.column for ref in columns_of(self.term)]

    def is_of(self, definition: RelationDefinition) -> bool:
        """Return whether the relation has the columns that it is computed of."""
        kinds = {column.name: column.kind for column in definition.columns}
        return all(kinds.get(ref.column) == kind for ref, kind in columns_of(self.term).items())

    def within(self, definition: RelationDefinition) -> Column:
        """Return it as a column of a relation."""
        nullable = terms.is_nullable(self.term, lambda ref: definition.column(ref.column).nullable)
        return Column.of_kind(self.name, self.term.kind, nullable)


def with_computed(definition: RelationDefinition, computed: Sequence[ComputedColumn]) -> RelationDefinition:
    """Return a relation's definition with those that can be computed of its columns, too."""
    known = {column.name for column in definition.columns}
    more = [one for one in computed if one.name not in known and one.is_of(definition)]
    if not more:
        return definition
    columns = [*definition.columns, *(one.within(definition) for one in more)]
    return RelationDefinition.model_construct(columns=columns, key=definition.key, intervals=definition.intervals, retain=definition.retain)


def real(refs: Sequence[ColumnRef], computed: Sequence[ComputedColumn]) -> list[ColumnRef]:
    """Return the columns of relations that these columns are, or are computed of."""
    reads = {one.name: one.reads for one in computed}
    return [ref._replace(column=name) for ref in refs for name in reads.get(ref.column, [ref.column])]
