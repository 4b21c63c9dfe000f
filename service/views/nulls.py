"""Which columns of a view's relations may come to have nulls while it lives.

A definition is only ever extended, and nulls are refused where a view compares: so what a view stores is laid out for nulls in all of its
other columns from the start, and a column that gets them changes nothing but the names and types of what is sent.
"""

from __future__ import annotations

from service.query.model import ColumnRef, Query
from service.views.shown import Definitions
from service.wire.schema import RelationDefinition, parse_relation


def compared_columns(query: Query, relation: str, definition: RelationDefinition) -> set[str]:
    """The columns of a relation by which a view joins, or finds the row as of a point, or that its UNION or EXCEPT compares."""
    whole = query.whole
    aliases = {alias for alias, name in whole.aliases if name == relation}
    pairs: list[tuple[ColumnRef, ColumnRef]] = [*whole.equal, *whole.less, *whole.at_most, *whole.not_equal]
    pairs += [(one.left, one.right) for one in whole.within]
    refs = [ref for pair in pairs for ref in pair] + [*query.values, *(query.as_of.columns if query.as_of is not None else ())]
    found = {ref.column for ref in refs if ref.alias in aliases}
    for pair in whole.overlaps:
        for ref in pair:
            if ref.alias in aliases:
                interval = definition.intervals[ref.interval]
                found |= {interval.start_column, interval.end_column}
    return found


def loosened(query: Query, definitions: Definitions) -> Definitions:
    """The definitions with nulls in all columns that may ever have them."""
    return {name: _loosened(definition, compared_columns(query, name, definition)) for name, definition in definitions.items()}


def _loosened(definition: RelationDefinition, compared: set[str]) -> RelationDefinition:
    never = {*definition.key, *compared}
    columns = [column if column.name in never else column.model_copy(update={"nullable": True}) for column in definition.columns]
    made = RelationDefinition.model_construct(columns=columns, key=definition.key, intervals=definition.intervals, retain=definition.retain)
    return parse_relation(made.to_json())
