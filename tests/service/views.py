"""Relations that the tests of definitions share, and a view computed by brute force from its query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from service.errors import Problem
from service.query import View, needed_columns, parse_view, project, residual_mask, select_mask
from service.terms import Comparison, Query
from service.wire.schema import Interval, RelationDefinition, parse_relation


def relation(columns: str, intervals: dict[str, Any], key: str = "id") -> RelationDefinition:
    """Columns as "name:type" with a `?` behind for nullable, parted by commas."""
    parsed = []
    for column in columns.split(","):
        name, type_ = column.strip().split(":")
        parsed.append({"name": name, "type": type_.rstrip("?"), "nullable": type_.endswith("?")})
    return parse_relation({"columns": parsed, "key": key.split(","), "intervals": intervals})


RELATIONS = {
    "bookings": relation(
        "id:int64, room:string, guest:string?, floor:int64, vip:bool?, price:float64?, checkin:timestamp, checkout:timestamp,"
        "until:timestamp?, day:date, startDate:date, some col:int64, sold as is:bool",
        {
            "stay": {"start": "checkin", "end": "checkout"},
            "open": {"start": "checkin", "end": "until"},
            "moment": {"at": "checkin"},
        },
    ),
    "maintenance": relation(
        "id:int64, room:string, floor:int64, code:int64, s:timestamp, e:timestamp, since:timestamp?, at:timestamp, n:int64, m:int64",
        {
            "slot": {"start": "s", "end": "e"},
            "shut": {"start": "since", "end": "e", "bounds": "[]"},
            "moment": {"at": "at"},
            "digits": {"start": "n", "end": "m"},
        },
    ),
    "shifts": relation("room:string, nr:int64, s:int64, e:int64?, tag:int64?", {"span": {"start": "s", "end": "e"}}, key="room,nr"),
}


def sql(text: str, relations: Mapping[str, RelationDefinition] = RELATIONS, **options: Any) -> View:
    return parse_view("v", {"sql": text, **options}, relations)


def on(conditions: str, **options: Any) -> Query:
    """The query of bookings b and maintenance m under these conditions."""
    return sql(f"SELECT b.id, m.id FROM bookings b JOIN maintenance m ON {conditions}", **options).query


def refused(data: dict[str, Any] | str, relations: Mapping[str, RelationDefinition] = RELATIONS) -> Problem:
    with pytest.raises(Problem) as caught:
        parse_view("v", {"sql": data} if isinstance(data, str) else data, relations)
    return caught.value


def evaluate(view: View, definitions: Mapping[str, RelationDefinition], tables: Mapping[str, pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """The view's rows by nested loops, as tuples in the order of its columns."""
    query = view.query
    chosen, rows = {}, {}
    for alias, name in query.aliases:
        filters = [condition for condition in query.filters if condition.column.alias == alias]
        batch = tables[name].filter(pa.array(select_mask(filters, tables[name])))
        chosen[alias] = batch.slice(0, 0) if query.never else batch
        rows[alias] = chosen[alias].to_pylist()
    first, *rest = chosen
    pairs = (
        [(i, j) for i in range(len(rows[first])) for j in range(len(rows[rest[0]])) if _joined(query, definitions, rows, i, j)]
        if rest
        else []
    )
    picks = dict(zip(chosen, zip(*pairs, strict=True), strict=True)) if pairs else {}
    parts = {alias: batch.take(pa.array(picks.get(alias, ()), pa.int64())) if rest else batch for alias, batch in chosen.items()}
    kept = residual_mask([Comparison(x, "<", y) for x, y in query.less] + [Comparison(x, "<>", y) for x, y in query.not_equal], parts)
    by_alias = dict(query.aliases)
    parts = {alias: part.filter(pa.array(kept)) for alias, part in parts.items()}
    narrow = {alias: part.select(needed_columns(query, alias, definitions[by_alias[alias]])) for alias, part in parts.items()}
    result = project(query, definitions, narrow)
    return [tuple(row.values()) for row in result.to_pylist()]


def _joined(query: Query, definitions: Mapping[str, RelationDefinition], rows: dict[str, Any], i: int, j: int) -> bool:
    by_alias = dict(query.aliases)
    (a, b) = by_alias
    left, right = rows[a][i], rows[b][j]
    for x, y in query.equal:
        values = left[x.column], right[y.column]
        if None in values or (values[0] != values[1] and not all(value != value for value in values)):  # NaN equals NaN
            return False
    for x, y in query.overlaps:
        p, q = definitions[by_alias[a]].intervals[x.interval], definitions[by_alias[b]].intervals[y.interval]
        if not (_before(left, p, right, q) and _before(right, q, left, p)):
            return False
    return True


def _before(one: dict[str, Any], p: Interval, other: dict[str, Any], q: Interval) -> bool:
    """`one` starts no later than `other` ends: by comparison, as SQL would; null is unbounded."""
    start, end = one[p.start_column], other[q.end_column]
    if start is None or end is None:
        return True
    return start < end if p.start_open or q.end_open else start <= end
