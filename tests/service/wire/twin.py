"""The naive twin of judging: one change at a time, Python values only, straight from the pages on data and changes."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from livejoin.wire.schema import RelationDefinition

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MIN, MAX = -(2**63), 2**63 - 1
NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Bad(Exception):
    """A bad row; the argument is the column."""


def read(kind: str, value: Any) -> Any:
    """A JSON value that is not null → its physical value; ValueError if it is none of the type."""
    if kind == "int64" and type(value) is int and MIN <= value <= MAX:
        return value
    if kind == "float64" and type(value) in (int, float):
        return float(value)
    if kind == "float64" and isinstance(value, str) and value in NAMED:
        return NAMED[value]
    if kind == "timestamp" and type(value) is int and MIN <= value <= MAX:
        return value
    if kind == "timestamp" and isinstance(value, str):
        moment = dt.datetime.fromisoformat(value)
        if moment.tzinfo is None or len(value) < 12:
            raise ValueError("no offset")
        return (moment - EPOCH) // dt.timedelta(microseconds=1)
    if kind == "date" and isinstance(value, str) and len(value) == 10:
        return (dt.date.fromisoformat(value) - EPOCH.date()).days
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "bool" and isinstance(value, bool):
        return value
    raise ValueError(value)


def validate(definition: RelationDefinition, op: str, row: dict[str, Any]) -> list[Any]:
    """The physical values of a change, null where it reads nothing; raises Bad."""
    names = [column.name for column in definition.columns]
    if op == "truncate":
        return [None] * len(names)
    for name in row:
        if name not in names:
            raise Bad(name)
    values: dict[str, Any] = {}
    bad = set()
    ends = {name for interval in definition.intervals.values() for name in (interval.start_column, interval.end_column)}
    for column in definition.columns:
        name, values[column.name] = column.name, None
        if op == "delete" and name not in definition.key:
            continue
        value = row.get(name)
        if value is None:
            if not column.nullable:
                bad.add(name)
            continue
        try:
            value = read(column.type, value)
        except ValueError:
            bad.add(name)
            continue
        if column.type == "float64" and not math.isfinite(value) and (name in ends or name in definition.key):
            bad.add(name)
            continue
        values[name] = value + 0.0 if column.type == "float64" and name in definition.key else value
    if op != "delete":
        bad |= at_the_edge(definition, values)
    for name in values:
        if name in bad:
            raise Bad(name)
    for interval in definition.intervals.values() if op != "delete" else ():
        if is_empty(definition, interval, values):
            raise Bad(interval.end_column)
    return list(values.values())


def at_the_edge(definition: RelationDefinition, values: dict[str, Any]) -> set[str]:
    bad = set()
    for interval in definition.intervals.values():
        if definition.column(interval.start_column).type in ("int64", "timestamp"):
            first, last = values[interval.start_column], values[interval.end_column]
            if first is not None and not MIN < first + interval.start_open < MAX:
                bad.add(interval.start_column)
            if last is not None and not MIN < last - interval.end_open < MAX:
                bad.add(interval.end_column)
    return bad


def is_empty(definition: RelationDefinition, interval: Any, values: dict[str, Any]) -> bool:
    first, last = values[interval.start_column], values[interval.end_column]
    if first is None or last is None:
        return False
    if definition.column(interval.start_column).type == "float64":
        first = math.nextafter(first, math.inf) if interval.start_open else first
        last = math.nextafter(last, -math.inf) if interval.end_open else last
        return bool(first > last)
    return bool(first + interval.start_open > last - interval.end_open)
