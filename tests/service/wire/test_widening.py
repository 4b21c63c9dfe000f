"""Columns of Arrow, and of Parquet files as others write them, in narrower, wider and older types than a relation has: read if nothing is
lost; what would change makes its row bad, or the body malformed."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from livejoin.wire.batch import Batch
from livejoin.wire.decode import decode_relation_changes
from livejoin.wire.errors import MalformedBody
from livejoin.wire.schema import RelationDefinition, parse_relation
from tests.relations import declared

ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
NOON = dt.datetime(2026, 2, 17, 14, tzinfo=dt.UTC)
NAIVE = NOON.replace(tzinfo=None)
DAY = dt.date(2026, 2, 17)
MONEY = {"precision": 18, "scale": 2}


def relation(kind: str, **more: Any) -> RelationDefinition:
    more = MONEY if kind == "decimal" else more
    return parse_relation(
        {"columns": [{"name": "id", "type": "int64"}, {"name": "v", "type": kind, "nullable": True, **more}], "key": ["id"]}
    )


def encoded(media_type: str, values: pa.Array, **options: Any) -> bytes:
    table = pa.table({"id": pa.array(range(len(values)), pa.uint16()), "v": values})
    sink = io.BytesIO()
    if media_type == PARQUET:
        pq.write_table(table, sink, **options)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def read(media_type: str, body: bytes, definition: RelationDefinition) -> Batch:
    return decode_relation_changes(media_type, body, "r", lambda _: definition)


def values_of(batch: Batch, definition: RelationDefinition) -> list[Any]:
    assert not batch.errors, batch.errors
    (changes,) = batch.changes
    assert changes.rows.arrow.schema == definition.arrow_schema()
    return list(changes.rows.arrow["v"].to_pylist())


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        *(("int64", pa.array([1, None, 100], type_), [1, None, 100]) for type_ in (
            pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        )),
        ("int64", pa.array([2**32 - 1, 0], pa.uint32()), [2**32 - 1, 0]), ("int64", pa.array([2**63 - 1], pa.uint64()), [2**63 - 1]),
        ("int64", pa.array([1, None, 1], pa.int16()).dictionary_encode(), [1, None, 1]),
        *(("float64", pa.array([1, None, 2], type_), [1.0, None, 2.0]) for type_ in (pa.float32(), pa.float16(), pa.int8(), pa.uint64())),
        ("float64", pa.array([0.1], pa.float32()), [0.10000000149011612]),
        *(("string", pa.array(["a", None, "é"], type_), ["a", None, "é"]) for type_ in (pa.large_utf8(), pa.string_view())),
        ("string", pa.array(["a", None, "a"], pa.large_utf8()).dictionary_encode(), ["a", None, "a"]),
        *(("bytes", pa.array([b"a", None], type_), [b"a", None]) for type_ in (pa.large_binary(), pa.binary_view(), pa.binary(1))),
        *(("decimal", pa.array([Decimal("1.50"), None], type_), [150, None]) for type_ in (
            pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(18, 2), pa.decimal128(38, 10), pa.decimal256(76, 20), pa.decimal32(5, 1),
        )),
        ("decimal", pa.array([3, None], pa.uint8()), [300, None]),
        ("date", pa.array([DAY, None], pa.date64()), [DAY, None]), ("date", pa.array([DAY, None], pa.date32()).dictionary_encode(),
        [DAY, None]),
        *(("timestamp", pa.array([NOON, None], pa.timestamp(unit, "UTC")), [NOON, None]) for unit in ("s", "ms", "us", "ns")),
        ("timestamp", pa.array([NOON, None], pa.timestamp("ns", "America/Lima")), [NOON, None]),
        ("timestamp", pa.array([NOON, None], pa.timestamp("ms", "+05:30")), [NOON, None]),
        *(("time", pa.array([dt.time(14, 0, 1), None], type_), [dt.time(14, 0, 1), None]) for type_ in (
            pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
        )),
        ("bool", pa.array([True, None]), [True, None]), ("bool", pa.nulls(2), [None, None]), ("date", pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)  # fmt: skip
def test_nothing_is_lost(kind: str, values: pa.Array, expected: list[Any]) -> None:
    definition = relation(kind)
    assert values_of(read(ARROW, encoded(ARROW, values), definition), definition) == expected
    if pa.types.is_binary_view(values.type) or pa.types.is_string_view(values.type):
        return
    for options in ({}, {"store_schema": False}, {"use_dictionary": False, "data_page_version": "2.0", "compression": "gzip"}):
        if not pa.types.is_time32(values.type) or values.type.unit == "ms" or options.get("store_schema", True):
            assert values_of(read(PARQUET, encoded(PARQUET, values, **options), definition), definition) == expected


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_int96(zone: str | None) -> None:
    """The times of older Spark, Hive and Impala: nanoseconds without a zone. They are local times, as all without an offset."""
    values = pa.array([NAIVE, None, NAIVE + dt.timedelta(microseconds=1)], pa.timestamp("us"))
    body = encoded(PARQUET, values, use_deprecated_int96_timestamps=True, store_schema=False)
    assert pq.ParquetFile(pa.BufferReader(body)).schema.column(1).physical_type == "INT96"
    if zone is None:
        with pytest.raises(MalformedBody, match='without a time zone; .* must have a "zone"'):
            read(PARQUET, body, relation("timestamp"))
        return
    definition, hour = relation("timestamp", zone=zone), dt.timedelta(hours=1)
    assert values_of(read(PARQUET, body, definition), definition) == [NOON - hour, None, NOON - hour + dt.timedelta(microseconds=1)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_without_a_zone_are_not_taken_as_utc(unit: str) -> None:
    values = pa.array([NAIVE, None], pa.timestamp(unit))
    for media_type in (ARROW, PARQUET):
        body = encoded(media_type, values)
        with pytest.raises(MalformedBody, match="without a time zone"):
            read(media_type, body, relation("timestamp"))
        definition = relation("timestamp", zone="America/New_York")
        assert values_of(read(media_type, body, definition), definition) == [NOON + dt.timedelta(hours=5), None]


@pytest.mark.parametrize(
    ("kind", "values", "bad"),
    [
        ("int64", pa.array([1, 2**63, None], pa.uint64()), [1]),
        ("decimal", pa.array([Decimal("1.5"), Decimal("0.001")], pa.decimal64(18, 3)), [1]),
        ("decimal", pa.array([Decimal(10) ** 20, Decimal("1.00")], pa.decimal256(50, 2)), [0]),
        ("timestamp", pa.array([1_001, 1_000, None], pa.timestamp("ns", "UTC")), [0]),
        ("timestamp", pa.array([2**62, 0], pa.timestamp("s", "UTC")), [0]),
        ("time", pa.array([1_001, 1_000, None], pa.time64("ns")), [0]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_what_would_change_makes_its_row_bad(kind: str, values: pa.Array, bad: list[int]) -> None:
    for media_type in (ARROW, PARQUET):
        if media_type == PARQUET and values.type == pa.timestamp("s", "UTC"):
            continue  # Parquet has no seconds, and its writer refuses these
        batch = read(media_type, encoded(media_type, values), relation(kind))
        assert [(error.index, error.column) for error in batch.errors] == [(index, "v") for index in bad]
        assert "does not fit" in batch.errors[0].reason


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int64", pa.array([1.0])), ("int64", pa.array([Decimal(1)])), ("int64", pa.array(["1"])), ("int64", pa.array([True])),
        ("float64", pa.array([Decimal("0.1")])), ("decimal", pa.array([0.1])), ("decimal", pa.array(["0.1"])),
        ("timestamp", pa.array([DAY])), ("date", pa.array([NOON])), ("string", pa.array([1])), ("string", pa.array([b"x"])),
        ("bytes", pa.array(["x"])), ("bool", pa.array([1])), ("time", pa.array([NOON])), ("int64", pa.array([dt.timedelta(1)])),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)  # fmt: skip
def test_other_types_are_a_malformed_body(kind: str, values: pa.Array) -> None:
    for media_type in (ARROW, PARQUET):
        with pytest.raises(MalformedBody, match="'v'"):
            read(media_type, encoded(media_type, values), relation(kind))


@pytest.mark.parametrize("nullable", [True, False])
def test_fields_that_may_be_null(nullable: bool) -> None:
    """What the file declares does not matter, only whether there is a null."""
    for field in (True, False):
        table = pa.table(
            [pa.array([1]), pa.array(["x"])], schema=pa.schema([pa.field("id", pa.int64(), field), pa.field("v", pa.utf8(), field)])
        )
        sink = io.BytesIO()
        pq.write_table(table, sink)
        definition = parse_relation(
            {"columns": [{"name": "id", "type": "int64"}, {"name": "v", "type": "string", "nullable": nullable}], "key": ["id"]}
        )
        assert values_of(read(PARQUET, sink.getvalue(), definition), definition) == ["x"]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-02-17 14:00:00+00", 0), ("2026-02-17 14:00:00.5+00", 500_000), ("2026-02-17 19:30:00+05:30", 0),
        ("2026-02-17 09:00:00-05", 0),
        ("2026-02-17T14:00:00Z", 0), ("infinity", None), ("", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("copies", [1, 40])
def test_postgresql_s_own_output_in_csv(text: str, micros: int | None, copies: int) -> None:
    definition = parse_relation(declared("id:int64, s:timestamp, v:timestamp?", valid="s v []"))
    rows = "".join(f"{number},2026-02-17 14:00:00+00,{text}\n" for number in range(copies))
    batch = read("text/csv", f"id,s,v\n{rows}".encode(), definition)
    expected = None if micros is None else NOON + dt.timedelta(microseconds=micros)
    assert values_of(batch, definition) == [expected] * copies
    assert batch.changes[0].rows.arrow["s"].to_pylist() == [NOON] * copies
