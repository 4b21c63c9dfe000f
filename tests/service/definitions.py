"""Relations that tests of definitions share, and a view that is computed from its query by brute force."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.schema import Interval, RelationDefinition, parse_relation
from service.errors import Problem
from service.query.model import Query
from service.tables.masks import residual_mask, select_mask
from service.tables.projection import Projection, needed_columns
from service.tables.relations import computing
from service.views.parse import View, parse_view
from tests.relations import declared


def relation(described: str, intervals: dict[str, Any], key: str = "id") -> RelationDefinition:
    return parse_relation(declared(described, key) | {"intervals": intervals})


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
    """Return the query of bookings b and maintenance m under these conditions."""
    return sql(f"SELECT b.id, m.id FROM bookings b JOIN maintenance m ON {conditions}", **options).query


def refused(data: dict[str, Any] | str, relations: Mapping[str, RelationDefinition] = RELATIONS) -> Problem:
    with pytest.raises(Problem) as caught:
        parse_view("v", {"sql": data} if isinstance(data, str) else data, relations)
    return caught.value


def evaluate(view: View, definitions: Mapping[str, RelationDefinition], tables: Mapping[str, pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """Return the view's rows, found by nested loops, as tuples in the order of its columns."""
    query = view.query
    definitions = query.defined(definitions)
    tables = {name: computing(rows, definitions[name], query.computed) for name, rows in tables.items() if name in definitions}
    chosen, rows, matched = {}, {}, {ref.column for pair in query.equal for ref in pair}
    for alias, name in query.aliases:
        filters = [condition for condition in query.filters if condition.alias == alias]
        batch = tables[name].filter(pa.array(select_mask(filters, tables[name])))
        chosen[alias] = batch.slice(0, 0) if query.never else batch
        known = [one.name for one in definitions[name].columns if "." not in one.name or one.name in matched]  # Python has no such dates
        rows[alias] = chosen[alias].select(known).to_pylist()
    picks: list[tuple[int, ...]] = [()]
    for alias in chosen:
        bound = list(chosen)[: list(chosen).index(alias)]
        picks = [
            (*pick, i)
            for pick in picks
            for i, row in enumerate(rows[alias])
            if _joined(query, definitions, {**{other: rows[other][j] for other, j in zip(bound, pick, strict=True)}, alias: row}, alias)
        ]
    columns = zip(*picks, strict=True) if picks else [()] * len(chosen)
    parts = {alias: batch.take(pa.array(pick, pa.int64())) for (alias, batch), pick in zip(chosen.items(), columns, strict=True)}
    kept = residual_mask(query.comparisons, parts)
    by_alias = dict(query.aliases)
    parts = {alias: part.filter(pa.array(kept)) for alias, part in parts.items()}
    narrow = {alias: part.select(needed_columns(query, alias, definitions[by_alias[alias]])) for alias, part in parts.items()}
    result = Projection(query, definitions).rows(narrow)
    return [tuple(row.values()) for row in result.to_pylist()]


def _joined(query: Query, definitions: Mapping[str, RelationDefinition], bound: Mapping[str, dict[str, Any]], alias: str) -> bool:
    """Return whether the newest alias meets the others; comparisons are not checked here."""
    by_alias = dict(query.aliases)
    for x, y in query.equal:
        if alias in (x.alias, y.alias) and x.alias in bound and y.alias in bound:
            values = bound[x.alias][x.column], bound[y.alias][y.column]
            if None in values or (values[0] != values[1] and not all(value != value for value in values)):  # NaN equals NaN
                return False
    for x, y in query.overlaps:
        if alias in (x.alias, y.alias) and x.alias in bound and y.alias in bound:
            p, q = definitions[by_alias[x.alias]].intervals[x.interval], definitions[by_alias[y.alias]].intervals[y.interval]
            if not (_before(bound[x.alias], p, bound[y.alias], q) and _before(bound[y.alias], q, bound[x.alias], p)):
                return False
    for left, op, right, plus, right_plus in query.shifted:
        if alias in (left.alias, right.alias) and left.alias in bound and right.alias in bound:
            x, y = bound[left.alias][left.column], bound[right.alias][right.column]
            if x is None or y is None or not compared(op, x, plus, y, right_plus):
                return False
    return True


def compared(op: str, x: Any, plus: Any, y: Any, right_plus: Any) -> bool:
    """Return whether `x + plus op y + right_plus`, for values as rows have them: whole numbers, decimals of one scale and times exactly."""
    if isinstance(x, float):
        x, y = x + plus, y + right_plus
    elif isinstance(x, datetime | date):
        unit = timedelta(microseconds=1) if isinstance(x, datetime) else timedelta(1)
        x, y = plus, (y - x) // unit
    elif isinstance(x, Decimal):
        x, y = plus, (y - x).scaleb(-int(x.as_tuple().exponent))
    else:
        x, y = x + plus, y
    return x < y if op == "<" else x <= y


def _before(one: dict[str, Any], p: Interval, other: dict[str, Any], q: Interval) -> bool:
    """Return whether `one` starts no later than `other` ends, by comparison as in SQL; null is unbounded."""
    start, end = one[p.start_column], other[q.end_column]
    if start is None or end is None:
        return True
    return start < end if p.start_open or q.end_open else start <= end
