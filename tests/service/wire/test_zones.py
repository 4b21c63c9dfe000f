"""Times without an offset: by one rule in every format. Words for open ends."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livejoin.wire.batch import Batch
from livejoin.wire.debezium import DebeziumDecoder
from livejoin.wire.decode import decode_changes, decode_relation_changes
from livejoin.wire.errors import BadDefinition, MalformedBody
from livejoin.wire.schema import RelationDefinition, parse_relation
from livejoin.wire.values.local_times import local_times

EPOCH = datetime(1970, 1, 1)
MICRO = timedelta(microseconds=1)
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
JSONL, CSV = "application/jsonl", "text/csv"


def definition(zone: str | None, kind: str = "timestamp") -> RelationDefinition:
    ends = [{"name": name, "type": kind, "nullable": True} | ({"zone": zone} if zone else {}) for name in ("s", "e")]
    return parse_relation(
        {"columns": [{"name": "id", "type": "int64"}, *ends], "key": ["id"], "intervals": {"stay": {"start": "s", "end": "e"}}}
    )


PLAIN, BERLIN = definition(None), definition("Europe/Berlin")


def read(by: RelationDefinition, media_type: str, body: bytes) -> Batch:
    return decode_relation_changes(media_type, body, "stays", lambda name: by)


def starts(batch: Batch) -> list[str | None]:
    assert not batch.errors, batch.errors
    values = [value for one in batch.changes for value in one.rows.arrow.column("s").to_pylist()]
    return [value and value.isoformat() for value in values]


def bodies(texts: list[str]) -> dict[str, bytes]:
    """The same starts in each format that has texts."""
    return {
        JSONL: b"\n".join(orjson.dumps({"id": n, "s": text}) for n, text in enumerate(texts)),
        CSV: ("id,s\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts))).encode(),
    }


def files(values: list[Any], kind: pa.DataType) -> dict[str, bytes]:
    table = pa.table({"id": range(len(values)), "s": pa.array(values, kind)})
    arrow, parquet = io.BytesIO(), io.BytesIO()
    with pa.ipc.new_stream(arrow, table.schema) as writer:
        writer.write_table(table)
    pq.write_table(table, parquet)
    return {ARROW: arrow.getvalue(), PARQUET: parquet.getvalue()}


@pytest.mark.parametrize("many", [1, 30])
def test_local_times_of_a_column_with_a_zone(many: int) -> None:
    texts = ["2026-02-17 14:00:00", "2026-07-17T14:00", "2026-02-17 14:00:00+00", "2026-07-17 14:00:00+05:30", "2060-07-01T00:00:00"] * many
    wanted = ["13:00", "12:00", "14:00", "08:30", "22:00"] * many
    for media_type, body in bodies(texts).items():
        batch = read(BERLIN, media_type, body)
        assert [str(start)[11:16] for start in starts(batch)] == wanted and batch.unclear == 0
        assert read(PLAIN, media_type, body).error_count == 3 * many
    naive = [text for text in texts if "+" not in text]
    for media_type, body in bodies(naive).items():
        assert [str(start)[11:16] for start in starts(read(BERLIN, media_type, body))] == ["13:00", "12:00", "22:00"] * many


def test_a_single_change() -> None:
    """It has a road of its own."""
    change = {"relation": "stays", "op": "upsert", "row": {"id": 1, "s": "2026-10-25T02:30:00"}}
    body = orjson.dumps({"changes": [change]})
    batch = decode_changes("application/json", body, lambda name: BERLIN)
    assert starts(batch) == ["2026-10-25T00:30:00+00:00"] and batch.unclear == 1
    assert decode_changes("application/json", body, lambda name: PLAIN).error_count == 1


@pytest.mark.parametrize("copies", [1, 20])
def test_times_that_do_not_exist_or_exist_twice(copies: int) -> None:
    texts = ["2026-03-29T02:30:00", "2026-10-25T02:30:00", "2026-10-25T03:00:00"] * copies
    wanted = ["2026-03-29T01:30:00+00:00", "2026-10-25T00:30:00+00:00", "2026-10-25T02:00:00+00:00"] * copies
    micros = [(datetime.fromisoformat(text) - EPOCH) // MICRO for text in texts]
    for media_type, body in [*bodies(texts).items(), *files(micros, pa.timestamp("us")).items()]:
        batch = read(BERLIN, media_type, body)
        assert starts(batch) == wanted and batch.unclear == 2 * copies, media_type


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_naive_times_of_files(unit: str) -> None:
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    for media_type, body in files([1_771_333_200 * scale, None], pa.timestamp(unit)).items():
        assert starts(read(BERLIN, media_type, body)) == ["2026-02-17T12:00:00+00:00", None]
        with pytest.raises(MalformedBody, match=r'without a time zone.*must have a "zone"'):
            read(PLAIN, media_type, body)
    for media_type, body in files([1_771_333_200 * scale], pa.timestamp(unit, "America/New_York")).items():
        assert starts(read(BERLIN, media_type, body)) == starts(read(PLAIN, media_type, body)) == ["2026-02-17T13:00:00+00:00"]


def test_nanoseconds_are_read_if_nothing_is_lost() -> None:
    for media_type, body in files([1_000, 1_001], pa.timestamp("ns")).items():
        batch = read(BERLIN, media_type, body)
        assert [error.index for error in batch.errors] == [1] and "does not fit" in batch.errors[0].reason


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata", "UTC"])
@given(st.lists(st.integers(-(10**17), 10**17) | st.integers(0, 4_000).map(lambda n: 1_761_350_400_000_000 + n * 900_000_000), max_size=20))
def test_columns_and_single_values_agree(zone: str, numbers: list[int]) -> None:
    """And with Python's clock."""
    local = local_times(zone)
    got = local.column(pa.array([*numbers, None], pa.timestamp("us")))
    singles: list[int | None] = []
    for number in numbers:
        try:
            singles.append(local.utc(number))
            clock = EPOCH + number * MICRO
            assert singles[-1] == (clock.replace(tzinfo=ZoneInfo(zone)) - datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))) // MICRO
        except (ValueError, OverflowError):
            singles.append(None)
    assert got.micros.cast(pa.int64()).to_pylist() == [*singles, None]
    assert got.unclear == sum(local.is_unclear(n) for n, single in zip(numbers, singles, strict=True) if single is not None)
    assert got.bad == [row for row, single in enumerate(singles) if single is None]


def test_a_year_that_has_no_local_time() -> None:
    for text in ("+12000-01-01T00:00:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59"):
        for media_type, body in bodies([text]).items():
            batch = read(definition("Pacific/Apia"), media_type, body)
            assert batch.error_count == 0 or "out of range" in batch.errors[0].reason
    assert "out of range" in read(BERLIN, JSONL, bodies(["+12000-01-01T00:00:00"])[JSONL]).errors[0].reason


@pytest.mark.parametrize("zone", ["", "Berlin", "europe/berlin", "../etc/passwd", "Europe", "Europe/Berlin\0", "localtime", 7])
def test_zones_that_there_are_not(zone: Any) -> None:
    with pytest.raises(BadDefinition, match="zone"):
        parse_relation({"columns": [{"name": "at", "type": "timestamp", "zone": zone}], "key": ["at"]})


def test_definitions() -> None:
    with pytest.raises(BadDefinition, match="only a timestamp has a zone, not date"):
        definition("Europe/Berlin", "date")
    assert "zone" not in orjson.dumps(PLAIN.to_json()).decode()
    assert BERLIN.to_json()["columns"][1] == {"name": "s", "type": "timestamp", "nullable": True, "zone": "Europe/Berlin"}
    assert not BERLIN.extends(PLAIN) and parse_relation(BERLIN.to_json()) == BERLIN
    assert PLAIN.in_zone("Europe/Berlin") == BERLIN


@pytest.mark.parametrize("kind", ["timestamp", "date"])
@pytest.mark.parametrize("many", [1, 30])
def test_open_ends(kind: str, many: int) -> None:
    by = definition(None, kind)
    end = "2026-01-01 00:00:00+00" if kind == "timestamp" else "2026-01-01"
    for media, body in (
        (CSV, "id,s,e\n" + f"1,-infinity,{end}\n2,{end},infinity\n3,-infinity,infinity\n" * many),
        (JSONL, f'{{"id": 1, "s": "-infinity", "e": "{end}"}}\n{{"id": 2, "s": "{end}", "e": "infinity"}}\n' * many),
    ):
        batch = read(by, media, body.encode())
        assert not batch.errors
        rows = batch.changes[0].rows.arrow
        assert rows["s"].is_null().to_pylist()[:2] == [True, False] and rows["e"].is_null().to_pylist()[:2] == [False, True]
    for media, body in (
        (CSV, "id,s,e\n" + "1,infinity,-infinity\n" * many),
        (JSONL, '{"id": 1, "s": "infinity", "e": "-infinity"}\n' * many),
    ):
        batch = read(by, media, body.encode())
        assert batch.error_count == many and batch.errors[0].reason == "got infinity: an interval cannot start there"


def test_open_ends_need_a_nullable_column() -> None:
    by = parse_relation(
        {"columns": [{"name": "id", "type": "int64"}, {"name": "d", "type": "date"}, {"name": "x", "type": "string"}], "key": ["id"]}
    )
    (error,) = read(by, CSV, b"id,d,x\n1,infinity,infinity\n").errors
    assert (error.column, error.reason) == ("d", "got infinity, which is null, but the column is not nullable")


@pytest.mark.parametrize("many", [1, 30])
@pytest.mark.parametrize(
    ("semantic", "number"),
    [
        ("MicroTimestamp", 1_771_333_200_000_000),
        ("Timestamp", 1_771_333_200_000),
        ("NanoTimestamp", 1_771_333_200_000_000_000),
        (None, 1_771_333_200_000_000),
    ],
)
def test_debezium_types_without_a_zone(semantic: str | None, number: int, many: int) -> None:
    fields = [{"field": "s", "type": "int64", "name": f"io.debezium.time.{semantic}"}, {"field": "e", "type": "int64"}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}

    def records(value: Any) -> list[bytes]:
        payloads = [{"op": "c", "after": {"id": n, "s": value}} for n in range(many)]
        return [orjson.dumps({"schema": schema, "payload": payload} if semantic else payload) for payload in payloads]

    for by, wanted in ((PLAIN, "2026-02-17T13:00:00+00:00"), (BERLIN, "2026-02-17T12:00:00+00:00")):
        assert starts(DebeziumDecoder("stays", by).decode([None] * many, records(number))) == [wanted] * many
        assert starts(DebeziumDecoder("stays", by).decode([None] * many, records(-9223372036832400000))) == [None] * many
    assert (
        starts(DebeziumDecoder("stays", BERLIN).decode([None] * many, records("2026-02-17T13:00:00Z")))
        == ["2026-02-17T13:00:00+00:00"] * many
    )
