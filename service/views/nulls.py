"""Which columns of a view's relations may become nullable while the view lives.

A definition can only be extended, and nulls are refused in columns that a view compares. So a view's storage is laid out for nulls in all
other columns from the start, and a column that becomes nullable changes nothing but the names and types of what is sent.
"""

from __future__ import annotations

from livejoin.wire.schema import RelationDefinition
from service.query.computed import real
from service.query.conditions import ColumnRef
from service.query.model import Query
from service.views.shown import Definitions


def compared_columns(query: Query, relation: str, definition: RelationDefinition) -> set[str]:
    """The columns of a relation by which a view joins, finds the row as of a point, or compares in UNION or EXCEPT."""
    whole = query.whole
    aliases = {alias for alias, name in whole.aliases if name == relation}
    pairs: list[tuple[ColumnRef, ColumnRef]] = [*whole.equal, *((one.left, one.right) for one in whole.comparisons)]
    refs = [ref for pair in pairs for ref in pair] + [*query.values, *(query.as_of.columns if query.as_of is not None else ())]
    found = {ref.column for ref in real(refs, query.computed) if ref.alias in aliases}
    for pair in whole.overlaps:
        for ref in pair:
            if ref.alias in aliases:
                interval = definition.intervals[ref.interval]
                found |= {interval.start_column, interval.end_column}
    return found


def loosened(query: Query, definitions: Definitions) -> Definitions:
    """Return the definitions with nulls in all columns that may ever become nullable."""
    return {name: _loosened(definition, compared_columns(query, name, definition)) for name, definition in definitions.items()}


def _loosened(definition: RelationDefinition, compared: set[str]) -> RelationDefinition:
    never = {*definition.key, *compared}
    columns = [column if column.name in never else column.model_copy(update={"nullable": True}) for column in definition.columns]
    return RelationDefinition.model_construct(columns=columns, key=definition.key, intervals=definition.intervals, retain=definition.retain)
