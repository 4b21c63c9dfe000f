"""The rows of a query in FROM as a relation: its columns, its key and its intervals (`stored.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from livejoin.wire.kinds import MOST_DIGITS, decimal_kind, digits_of
from livejoin.wire.schema import Column, Interval, RelationDefinition
from service.errors import unsupported
from service.query.model import AGGREGATE, GROUP, Query
from service.tables.inputs import Input
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS
from service.views.deltas import Combination
from service.views.shown import IS_NULL, Definitions, ShownColumns
from service.views.stages.columns import kind_of_output, kind_of_sent
from service.views.stages.key_stretches import KeyStretches
from service.views.stages.making import shown_of
from service.views.stages.table import GroupTable


def stored_definition(query: Query, definitions: Definitions, intervals: Mapping[str, Interval]) -> RelationDefinition:
    """Return the rows of a query as a relation. intervals: by name, of the columns that it shows. Problem `unsupported-query`."""
    relations = {one: Relation(0, one, definitions[one]) for _, one in query.whole.aliases}
    inputs = [Input(query.whole, position, relations[one]) for position, (_, one) in enumerate(query.aliases)]
    shown = shown_of(query, inputs, definitions)
    keys, rows = shown.with_keys(_no_rows(query, len(inputs)))
    if (lists := [field.name for field in rows.schema if pa.types.is_list(field.type)]):
        raise unsupported(f"the list {lists[0]} in a query that is stored", "leave it out, and read it in a view of its own")
    kinds = kinds_of(query, definitions, rows.schema)
    columns = [_column(field.name, kind, field.nullable) for field, kind in zip(rows.schema, kinds, strict=True)]
    key, parts = list[str](), _parts(query, inputs, shown, kinds, keys.schema)
    for (kind, may_be_null), name in zip(parts, map(part_name, keys.schema.names), strict=True):
        if not may_be_null and (same := _same_output(query, name)) is not None:
            key.append(same)
            continue
        if may_be_null:  # the flag first: it is null only where the whole row is missing
            columns.append(_column(name + IS_NULL, "bool", False))
            key.append(name + IS_NULL)
        columns.append(_column(name, kind, False))
        key.append(name)
    return RelationDefinition.model_construct(columns=columns, key=key, intervals=dict(intervals), retain=None)


def part_name(name: str) -> str:
    """Return the name of a part of an identity, also of the only group's, which has a dot as all others have."""
    return name if "." in name else f"{name}."


def _no_rows(query: Query, aliases: int) -> Combination:
    if query.stretches is not None:
        return NO_SLOTS, np.empty(0, np.int64), np.empty(0, np.int64)
    return (NO_SLOTS,) * (1 if query.groups is not None else aliases)


def _column(name: str, kind: str, nullable: bool) -> Column:
    precision, scale = digits_of(kind) or (0, 0)
    if scale > MOST_DIGITS:
        raise unsupported(f"{name}, with {scale} digits after the decimal point, in a query that is stored", "cast it to fewer")
    return Column.of_kind(name, decimal_kind(MOST_DIGITS, scale) if precision > MOST_DIGITS else kind, nullable)


def kinds_of(query: Query, definitions: Definitions, shown: pa.Schema) -> list[str]:
    """Return the kinds of what is shown; a list has that of an aggregate, or `list`."""
    if query.united:
        return kinds_of(query.united[0], definitions, shown)
    by_alias = {alias: definitions[one] for alias, one in query.aliases}
    if query.groups is None:
        outputs = query.outputs if not query.branches else tuple(
            one._replace(column=ref) for one, ref in zip(query.outputs, query.branches[0].columns, strict=True)
        )
        return [kind_of_output(one, by_alias, field.type) for one, field in zip(outputs, shown, strict=True)]
    kinds = list[str]()
    for output, field in zip(query.groups.outputs, shown, strict=True):
        if output.kind == GROUP:
            kinds.append(kind_of_output(query.outputs[query.groups.columns[output.position].of], by_alias, field.type))
        elif output.term is not None:
            kinds.append(output.term.kind)
        else:
            kinds.append(query.groups.aggregates[output.position].type if output.kind == AGGREGATE else kind_of_sent(field.type))
    return kinds


def _parts(
    query: Query, inputs: Sequence[Input], shown: ShownColumns, kinds: Sequence[str], keys: pa.Schema
) -> list[tuple[str, bool]]:  # fmt: skip
    """Return the kind of each part of the identity, and whether it may be null."""
    start = [] if query.stretches is None else [(kind_of_sent(keys.types[-1]), True)]
    if query.groups is not None:
        assert isinstance(shown, GroupTable | KeyStretches)
        groups = [(kind, null) for _, kind, null in shown.columns.fields]
        return [*groups, *start] or [("bool", False)]
    if query.distinct or query.branches:
        return [(kind, field.nullable) for kind, field in zip(kinds, shown.schema, strict=True)]
    columns = [(input, input.relation.definition.column(name)) for input in inputs for name in input.relation.key]
    is_part = [(input, one) for input, one in columns if not one.name.endswith(IS_NULL) or input.alias in query.optional]
    return [(one.kind, input.alias in query.optional or f"{one.name}{IS_NULL}" in input.relation.key) for input, one in is_part] + start


def _same_output(query: Query, part: str) -> str | None:
    """Return the output that is a part of the identity, if there is one."""
    alias, _, name = part.partition(".")
    if query.groups is not None:
        names = [one.name for one in query.groups.columns]
        shown = {one.position: one.name for one in reversed(query.groups.outputs) if one.kind == GROUP}
        return shown.get(names.index(name)) if alias == GROUP and name in names else None
    if query.distinct or query.branches:
        return name
    return next((one.name for one in query.outputs if one.column == (alias, name)), None)
