"""Infinite times of PostgreSQL in Debezium's records, in every semantic type and kind of column; schemas that lack a column."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.batch import Batch
from livejoin.wire.debezium import DebeziumDecoder
from livejoin.wire.schema import RelationDefinition, parse_relation
from tests.service.wire.bookings import faults

_TIME, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_INT32, _INT64 = (2**31 - 1, -(2**31)), (2**63 - 1, -(2**63))
_JDBC = 9223372036825200000, -9223372036832400000  # `PGStatement.DATE_POSITIVE_INFINITY` and its opposite
_FROM_LOG = tuple((end + 10_957 + 2**31) % 2**32 - 2**31 for end in _INT32)  # PostgreSQL counts days from 2000
# Java's dates have no negative years: a snapshot's negative infinity is in the year 292269055, in days that exceed 32 bits.
_FROM_SNAPSHOTS = [
    tuple((day + zone + 2**31) % 2**32 - 2**31 for day in (9223372036825200000 // 86_400_000, 106_748_361_128)) for zone in (0, 1)
]
_MICROS = [_INT64, _JDBC]
_MILLIS = [*_MICROS, *(tuple(number // 1_000 for number in pair) for pair in _MICROS)]
_DAYS = [_INT32, _FROM_LOG, *_FROM_SNAPSHOTS]
_TEXTS: list[tuple[Any, ...]] = [
    ("infinity", "-infinity"),
    ("-5877611-06-21Z", "-5877611-06-22Z"),
    ("+292278994-08-16Z", "+292269055-12-02Z"),
    ("+294247-01-10T04:00:25.2Z", "-290308-12-21T19:59:27.6Z"),
]
ENCODINGS: list[tuple[str | None, str, list[tuple[Any, ...]]]] = [
    (_TIME + "Timestamp", "ms", _MILLIS),
    (_CONNECT + "Timestamp", "ms", _MILLIS),
    (_TIME + "MicroTimestamp", "us", _MICROS),
    (_TIME + "NanoTimestamp", "ns", _MICROS),
    (_TIME + "Date", "d", _DAYS),
    (_CONNECT + "Date", "d", _DAYS),
    *((_TIME + name, "", _TEXTS) for name in ("IsoDate", "IsoTimestamp", "ZonedTimestamp")),
]
# By role: whether infinity and -infinity are null there.
ROLES = {"free": (True, True), "end": (True, False), "start": (False, True), "point": (False, False), "firm": (False, False)}


def relation_of(kind: str, role: str) -> RelationDefinition:
    columns = [
        {"name": "id", "type": "int64"},
        {"name": "x", "type": kind, "nullable": role != "firm"},
        {"name": "other", "type": kind, "nullable": True},
    ]
    ends = {"end": {"start": "other", "end": "x"}, "start": {"start": "x", "end": "other"}, "point": {"at": "x"}}
    return parse_relation({"columns": columns, "key": ["id"], "intervals": {"i": ends[role]} if role in ends else {}})


def record(value: Any, semantic: str | None) -> bytes:
    payload = {"op": "c", "before": None, "after": {"id": 1, "x": value, "other": None}}
    if semantic is None:
        return json.dumps(payload).encode()
    fields = [{"type": "int64", "field": "id"}, {"type": "int64", "field": "x", "name": semantic}, {"type": "int64", "field": "other"}]
    after = {"type": "struct", "fields": fields, "field": "after"}
    return json.dumps({"schema": {"type": "struct", "fields": [after]}, "payload": payload}).encode()


def read(relation: RelationDefinition, *records: bytes) -> Batch:
    return DebeziumDecoder("r", relation).decode([None] * len(records), records)


def numbers(batch: Batch) -> list[int | None]:
    """The column x as it is stored."""
    return [
        value
        for changes in batch.changes
        for value in changes.rows.arrow["x"].view(pa.int32() if pa.types.is_date(changes.rows.arrow["x"].type) else pa.int64()).to_pylist()
    ]


@pytest.mark.parametrize(("kind", "role"), list(itertools.product(["timestamp", "date"], ROLES)))
def test_infinite_times(kind: str, role: str) -> None:
    """They are null where this means the same, and otherwise a bad row; alone, and among many with other schemas."""
    relation = relation_of(kind, role)
    by_kind: list[tuple[str | None, str, list[tuple[Any, ...]]]] = [(None, "us", _MICROS) if kind == "timestamp" else (None, "d", _DAYS)]
    cases = [
        (value, semantic, is_null)
        for semantic, _, pairs in [*ENCODINGS, *by_kind]
        for pair in pairs
        for value, is_null in zip(pair, ROLES[role], strict=True)
    ]
    records = [record(value, semantic) for value, semantic, _ in cases]
    wrong = [at for at, (_, _, is_null) in enumerate(cases) if not is_null]
    together = read(relation, *records)
    assert faults(together) == [(at, "x") for at in wrong]
    assert numbers(together) == [None] * (len(cases) - len(wrong))
    for one, (value, semantic, is_null) in zip(records, cases, strict=True):
        for around in ([], [record(0, None)] * 20):
            batch = read(relation, *around, one)
            said = (value, semantic)
            assert (faults(batch), said) == ([] if is_null else [(len(around), "x")], said)
            assert is_null or "infinity" in batch.errors[0].reason
            assert numbers(batch)[len(around) :] == [None] * is_null


@pytest.mark.parametrize(("kind", "semantic", "unit"), [(kind, *one[:2]) for kind in ("timestamp", "date") for one in ENCODINGS if one[1]])
def test_times_beside_infinite_ones(kind: str, semantic: str, unit: str) -> None:
    """A number next to one that means infinity is a time like any other, or out of range, but never null."""
    factor = {"ms": 1_000, "us": 1, "d": 86_400_000_000, "ns": 1}[unit]
    (pairs,) = (pairs for name, _, pairs in ENCODINGS if name == semantic)
    known = {value for pair in pairs for value in pair}
    beside = {value + step for value in known for step in (-1, 1)} - known
    for value in sorted(beside):
        batch = read(relation_of(kind, "free"), record(value, semantic))
        micros = value * factor
        if unit == "ns":
            right = value // 1_000 if kind == "timestamp" and value % 1_000 == 0 else None
        elif kind == "timestamp":
            right = micros if -(2**63) <= micros < 2**63 else None
        else:
            right = value if unit == "d" and -(2**31) <= value < 2**31 else None
        assert numbers(batch) == ([] if right is None else [right]), value
        assert faults(batch) == ([(0, "x")] if right is None else []), value


@pytest.mark.parametrize("name", ["Time", "MicroTime", "NanoTime", "Year", "MicroDuration", "NanoDuration", "Interval", "ZonedTime"])
def test_the_longest_duration_is_no_infinite_time(name: str) -> None:
    for kind, value in itertools.product(("timestamp", "date"), (*_INT32, *_INT64, *_JDBC, *_FROM_LOG)):
        assert faults(read(relation_of(kind, "free"), record(value, _TIME + name))) == [(0, "x")]


COLUMNS = [
    {"name": "id", "type": "int64"},
    {"name": "firm", "type": "int64"},
    {"name": "free", "type": "int64", "nullable": True},
    {"name": "start", "type": "int64", "nullable": True},
    {"name": "end", "type": "int64", "nullable": True},
    {"name": "point", "type": "int64", "nullable": True},
    {"name": "since", "type": "int64"},
]
INTERVALS = {"i": {"start": "start", "end": "end"}, "p": {"at": "point"}, "half": {"start": "since", "end": "end"}}
STAYS = parse_relation({"columns": COLUMNS, "key": ["id"], "intervals": INTERVALS})
WHOLE = {"id": 1, "firm": 1, "free": 1, "start": 1, "end": 2, "point": 1, "since": 1}


def emitted(row: dict[str, Any], names: list[str], op: str = "c") -> bytes:
    """A record of a schema with these columns."""
    struct = {"type": "struct", "fields": [{"type": "int64", "field": name} for name in names], "optional": True}
    schema = {"type": "struct", "fields": [{**struct, "field": "before"}, {**struct, "field": "after"}]}
    inputs = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({"schema": schema, "payload": {"op": op, **inputs}}).encode()


@pytest.mark.parametrize("lost", list(WHOLE))
@pytest.mark.parametrize("op", ["c", "r", "u", "d"])
@pytest.mark.parametrize("many", [0, 20])
def test_a_schema_that_lacks_a_column(lost: str, op: str, many: int) -> None:
    """Only a nullable column that no interval starts or ends with may be absent. A record that lacks the value alone has null."""
    names = [name for name in WHOLE if name != lost]
    row = {name: WHOLE[name] for name in names}
    good = [emitted(WHOLE, list(WHOLE))] * many
    (reason,) = [error.reason for error in read(STAYS, *good, emitted(row, names, op)).errors] or [None]
    if op == "d":
        assert reason == ("no-key" if lost == "id" else None)
    elif lost == "free":
        assert reason is None
    elif lost in ("start", "end", "point"):
        assert reason is not None and reason.startswith("the schema of the record lacks this end of an interval")
    else:
        assert reason == "missing"
    renamed = emitted({**row, "new_" + lost: 1}, [*names, "new_" + lost], op)
    assert [error.reason for error in read(STAYS, *good, renamed, *good).errors] == ([] if reason is None else [reason])
    nullable = lost in ("free", "start", "end", "point") or op == "d" and lost != "id"
    assert read(STAYS, *good, emitted(row, list(WHOLE), op)).error_count == (not nullable)
