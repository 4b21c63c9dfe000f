"""The structure of a view's rows, as far as a picture of them needs it: aliases, columns, dimensions of overlaps."""

from __future__ import annotations

from typing import Any

from service.planning.classes import joined
from service.query.model import Output
from service.tables.inputs import Input
from service.views.live_view import LiveView
from service.views.shown import IS_NULL


def dimensions_of(view: LiveView) -> list[list[tuple[Input, str]]]:
    """Return the intervals of a row that are joined by overlaps, one list for each set that is connected directly or through others. Empty
    for groups, UNION and EXCEPT: their rows have no intervals."""
    query = view.view.query
    if query.groups is not None or query.branches or query.united:
        return []
    inputs = {input.alias: input for input in view.inputs}
    order, classes = list(inputs), joined(query.whole.overlaps)
    found = [sorted((ref for ref in one if ref[0] in inputs), key=lambda ref: (order.index(ref[0]), ref[1])) for one in classes]
    return [[(inputs[alias], interval) for alias, interval in one] for one in found if one]


def key_of(view: LiveView) -> Input | None:
    """Return the alias whose join key assigns each row to one lane, the one of the relation with the fewest rows; None if there is none."""
    inner = [input for input in view.inputs if input.equal and input.alias not in view.view.query.optional]
    return min(inner, key=lambda input: input.relation.table.rows, default=None)


def shape_json(view: LiveView) -> dict[str, Any]:
    """Return the shape as `GET /v1/views/{name}` shows it."""
    if not view.inputs:  # of a rejected definition
        return {"aliases": [], "columns": [], "dimensions": [], "key": None}
    query = view.view.query
    key = key_of(view) if dimensions_of(view) else None
    outputs = {} if query.groups is not None or query.branches or query.united else {output.name: output for output in query.outputs}
    return {
        "aliases": [_alias(view, input) for input in view.inputs],
        "columns": [_column(name, outputs.get(name)) for name in view.shown.schema.names],
        "dimensions": [[_interval(*one) for one in dimension] for dimension in dimensions_of(view)],
        "key": None if key is None else {"alias": key.alias, "columns": key.equal},
    }


def _alias(view: LiveView, input: Input) -> dict[str, Any]:
    alias, name = input.alias, input.relation.name
    key = [one for one in input.relation.key if not one.endswith(IS_NULL)]
    shown = {"name": alias, "relation": name if name in view.view.relations else alias, "key": key, "join_key": input.equal}
    return shown | {"optional": alias in view.view.query.optional}


def _interval(input: Input, name: str) -> dict[str, Any]:
    definition = input.relation.definition
    found = definition.intervals[name]
    kind = definition.column(found.start_column).kind
    return {"alias": input.alias, "interval": name, "type": kind, "bounds": found.bounds}


def _column(name: str, output: Output | None) -> dict[str, Any]:
    ref = None if output is None else output.column
    return {"name": name, "kind": "computed" if output is None else output.kind, "alias": None if ref is None else ref.alias}
