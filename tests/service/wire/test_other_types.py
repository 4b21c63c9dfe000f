"""UUIDs, times of day, JSON and bytes: read from every format, refused with a reason, and sent as they are kept."""

from __future__ import annotations

import base64
import datetime as dt
import io
import uuid
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livejoin.wire.batch import Batch, batch_to_arrow
from livejoin.wire.decode import decode_changes, decode_relation_changes
from livejoin.wire.errors import MalformedBody
from livejoin.wire.grammar import JSON_READERS, TEXT_READERS, time_texts
from livejoin.wire.rows import encode_rows
from livejoin.wire.schema import parse_relation
from tests.relations import declared

KINDS = ("uuid", "time", "json", "bytes")
THINGS = parse_relation({
    "columns": [{"name": "id", "type": "int64"}, *({"name": kind, "type": kind, "nullable": True} for kind in KINDS)], "key": ["id"],
})  # fmt: skip
JSONL, CSV = "application/jsonl", "text/csv"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
DEBEZIUM = "application/vnd.debezium+jsonl"
ID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
MANY = 40  # rows: enough for columns to be read at once


def read(media_type: str, body: bytes) -> Batch:
    return decode_relation_changes(media_type, body, "things", lambda name: THINGS)


def column(batch: Batch, name: str) -> list[Any]:
    assert not batch.errors, batch.errors
    assert all(one.rows.arrow.schema == THINGS.arrow_schema() for one in batch.changes)
    return [value for one in batch.changes for value in one.rows.arrow.column(name).to_pylist()]


def faults(batch: Batch) -> list[tuple[int, str | None]]:
    return [(error.index, error.column) for error in batch.errors]


def binary(media_type: str, name: str, values: pa.Array, store_schema: bool = True) -> bytes:
    table = pa.table({"id": range(len(values)), name: values})
    sink = io.BytesIO()
    if media_type == PARQUET:
        pq.write_table(table, sink, store_schema=store_schema)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


GOOD: list[tuple[str, Any, Any]] = [
    ("uuid", ID, ID), ("uuid", ID.upper(), ID), ("uuid", ID.replace("-", ""), ID), ("uuid", f"{{{ID}}}", ID), ("uuid", f" {ID} ", ID),
    ("time", "12:30:00", dt.time(12, 30)), ("time", "12:30", dt.time(12, 30)), ("time", "00:00:00", dt.time(0)),
    ("time", "23:59:59.999999", dt.time(23, 59, 59, 999_999)), ("time", "12:30:00.5", dt.time(12, 30, 0, 500_000)),
    ("time", "12:30:00.500000000", dt.time(12, 30, 0, 500_000)), ("time", 1, dt.time(0, 0, 0, 1)),
    ("json", '{"a": [1, 2.50, null]}', '{"a": [1, 2.50, null]}'), ("json", '[1e400, "\\ud800"]', '[1e400, "\\ud800"]'),
    ("json", " 1 ", " 1 "), ("json", '"x"', '"x"'), ("json", "null", "null"),
    ("bytes", "AP8=", b"\x00\xff"), ("bytes", "", b""), ("bytes", "\\x00ff", b"\x00\xff"), ("bytes", "\\x", b""),
    ("bytes", "\\x00FF", b"\x00\xff"),
]  # fmt: skip
BAD: list[tuple[str, Any, str]] = [
    ("uuid", ID[:-1], "expected a UUID such as"), ("uuid", f"{{{ID}", "expected a UUID"), ("uuid", ID.replace("-", "", 1),
    "expected a UUID"),
    ("uuid", "g" + ID[1:], "expected a UUID"), ("uuid", 7, "got 7, expected a UUID"), ("uuid", f"\u00a0{ID}", "expected a UUID"),
    ("time", "24:00:00", "no such time"), ("time", "12:60", "no such time"), ("time", "12:30:00.1234567", "finer than a microsecond"),
    ("time", "noon", "expected a time of day such as 12:00:00"), ("time", "12:30:00Z", "expected a time of day"),
    ("time", "12", "expected a time"),
    ("time", 86_400_000_000, "before 24:00"), ("time", -1, "expected a time of day"), ("time", 1.0, "expected a time of day"),
    ("json", "{", "not JSON: "), ("json", "NaN", "not JSON: "), ("json", "'x'", "not JSON: "), ("json", "1 2", "at character 2"),
    ("json", {"a": 1}, "got an object, expected JSON as text"), ("json", [1], "got a list"), ("json", 1, "got 1"),
    ("json", "[" * 5000, "not JSON"),
    ("bytes", "AP8", "expected bytes in base64"), ("bytes", "\\x0", "hexadecimal digits after"), ("bytes", "\\xzz", "expected bytes"),
    ("bytes", "A_8=", "expected bytes"), ("bytes", "é", "expected bytes"), ("bytes", 1, "got 1"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "expected"), GOOD)
@pytest.mark.parametrize("rows", [1, MANY])
def test_json(kind: str, value: Any, expected: Any, rows: int) -> None:
    body = b"\n".join(orjson.dumps({"id": number, kind: value if number % 2 == 0 else None}) for number in range(rows))
    assert column(read(JSONL, body), kind) == [expected if number % 2 == 0 else None for number in range(rows)]
    single = orjson.dumps({"changes": [{"relation": "things", "op": "upsert", "row": {"id": 1, kind: value}}]})
    assert column(decode_changes("application/json", single, lambda name: THINGS), kind) == [expected]


@pytest.mark.parametrize(("kind", "value", "why"), BAD)
@pytest.mark.parametrize("rows", [1, MANY])
def test_what_is_refused(kind: str, value: Any, why: str, rows: int) -> None:
    good = next(value for other, value, _ in GOOD if other == kind)
    batch = read(JSONL, b"\n".join(orjson.dumps({"id": number, kind: value if number == rows - 1 else good}) for number in range(rows)))
    assert faults(batch) == [(rows - 1, kind)] and why in batch.errors[0].reason, batch.errors
    if isinstance(value, str):
        field = '"' + value.replace('"', '""') + '"'
        batch = read(CSV, f"id,{kind}\n".encode() + "".join(f"{number},{field}\n" for number in range(rows)).encode())
        assert batch.error_count == rows and why in batch.errors[0].reason, batch.errors


def test_csv() -> None:
    """An empty field is null; of bytes, a quoted one is no bytes. What leaves comes back."""
    body = f'id,uuid,time,json,bytes\n1,{ID.upper()},12:30,"{{""a"": 1}}",\\x00ff\n2,,,,\n3,{ID},01:00,1,""\n4,{ID},01:00:00.5,1,AP8=\n'
    batch = read(CSV, body.encode())
    assert column(batch, "uuid") == [ID, None, ID, ID]
    assert column(batch, "time") == [dt.time(12, 30), None, dt.time(1), dt.time(1, 0, 0, 500_000)]
    assert column(batch, "json") == ['{"a": 1}', None, "1", "1"]
    assert column(batch, "bytes") == [b"\x00\xff", None, b"", b"\x00\xff"]
    sent = encode_rows(CSV, batch.changes[0].rows.arrow)
    assert sent.splitlines()[:3] == [f'1,{ID},12:30:00,"{{""a"": 1}}",AP8='.encode(), b"2,,,,", f'3,{ID},01:00:00,1,""'.encode()]
    again = read(CSV, b"id,uuid,time,json,bytes\n" + sent)
    assert again.changes[0].rows.arrow.equals(batch.changes[0].rows.arrow)
    firm = parse_relation({"columns": [{"name": "id", "type": "int64"}, {"name": "b", "type": "bytes"}], "key": ["id"]})
    kept = decode_relation_changes(CSV, b"id,b\n1,\n", "firm", lambda name: firm)
    assert kept.changes[0].rows.arrow["b"].to_pylist() == [b""]


@given(
    st.lists(
        st.tuples(
            st.none() | st.uuids(), st.none() | st.times(), st.none() | st.dictionaries(st.text(), st.none() | st.integers(-5, 5)),
            st.none() | st.binary(max_size=40),
        ), min_size=1, max_size=20,
    )
)  # fmt: skip
def test_back_and_forth(rows: list[tuple[Any, ...]]) -> None:
    """What was read, as JSON, CSV and Arrow, and read again."""
    lines = [
        {
            "id": number, "uuid": None if u is None else str(u), "time": None if t is None else t.isoformat(),
            "json": None if j is None else orjson.dumps(j).decode(), "bytes": None if b is None else base64.b64encode(b).decode(),
        } for number, (u, t, j, b) in enumerate(rows)
    ]  # fmt: skip
    batch = read(JSONL, b"\n".join(map(orjson.dumps, lines)))
    assert column(batch, "uuid") == [line["uuid"] for line in lines]
    assert column(batch, "time") == [t for _, t, _, _ in rows] and column(batch, "bytes") == [b for _, _, _, b in rows]
    kept = batch.changes[0].rows.arrow
    for media_type, head in ((JSONL, b""), (CSV, ",".join(kept.schema.names).encode() + b"\n")):
        assert read(media_type, head + encode_rows(media_type, kept)).changes[0].rows.arrow.equals(kept)
    assert decode_changes(ARROW, batch_to_arrow(batch), lambda name: THINGS).changes[0].rows.arrow.equals(kept)
    for kind in KINDS:
        for line in lines:
            assert line[kind] is None or JSON_READERS[kind](line[kind]) == TEXT_READERS[kind](line[kind])


U = uuid.UUID(ID)
NOON = dt.time(12, 30)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("uuid", pa.array([U.bytes, None], pa.uuid()), [ID, None]),
        ("uuid", pa.array([U.bytes, None], pa.binary(16)), [ID, None]),
        ("uuid", pa.array([ID.upper(), None]), [ID, None]),
        ("uuid", pa.array([ID, None], pa.large_utf8()), [ID, None]),
        ("uuid", pa.array([ID, None], pa.string_view()), [ID, None]),
        ("uuid", pa.array([ID, None, ID.upper()]).dictionary_encode(), [ID, None, ID]),
        ("uuid", pa.nulls(2), [None, None]),
        ("time", pa.array([NOON, None], pa.time64("us")), [NOON, None]),
        ("time", pa.array([45_000_000_000_000, None], pa.time64("ns")), [NOON, None]),
        ("time", pa.array([NOON, None], pa.time32("s")), [NOON, None]),
        ("time", pa.array([NOON, None], pa.time32("ms")), [NOON, None]),
        ("time", pa.array([NOON, None], pa.time32("ms")).dictionary_encode(), [NOON, None]),
        ("time", pa.array(["12:30", None, "12:30:00.000000"], pa.large_utf8()), [NOON, None, NOON]),
        ("json", pa.array(['{"a":1}', None], pa.json_()), ['{"a":1}', None]),
        ("json", pa.array(['{"a":1}', None]), ['{"a":1}', None]),
        ("json", pa.array(["[]", None], pa.string_view()), ["[]", None]),
        ("json", pa.array(["[]", None], pa.large_utf8()), ["[]", None]),
        ("bytes", pa.array([b"\x00\xff", None], pa.binary()), [b"\x00\xff", None]),
        ("bytes", pa.array([b"\x00\xff", None], pa.large_binary()), [b"\x00\xff", None]),
        ("bytes", pa.array([b"\x00\xff", None], pa.binary_view()), [b"\x00\xff", None]),
        ("bytes", pa.array([b"\x00\xff", None], pa.binary(2)), [b"\x00\xff", None]),
        ("bytes", pa.array([b"\x00\xff", None, b"\x00\xff"], pa.binary()).dictionary_encode(), [b"\x00\xff", None, b"\x00\xff"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)  # fmt: skip
@pytest.mark.parametrize("ops", [False, True])
def test_arrow_and_parquet(kind: str, values: pa.Array, expected: list[Any], ops: bool) -> None:
    assert column(read(ARROW, binary(ARROW, kind, values)), kind) == expected
    if ops:  # of a delete only the key is read
        table = pa.table({"id": range(len(values)), kind: values, "_op": ["upsert", "delete", "upsert"][: len(values)]})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        assert column(read(ARROW, sink.getvalue()), kind)[0] == expected[0]
    if "view" not in str(values.type):
        assert column(read(PARQUET, binary(PARQUET, kind, values)), kind) == expected
        plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
        assert column(read(PARQUET, binary(PARQUET, kind, plain, store_schema=False)), kind) == expected


@pytest.mark.parametrize(
    ("kind", "values", "bad", "why"),
    [
        ("uuid", pa.array([ID, "x", None, ""]), [1, 3], "expected a UUID"),
        ("time", pa.array([1_000, 1_001, None], pa.time64("ns")), [1], "the value 1001 of type time64[ns] does not fit"),
        ("time", pa.array(["12:30", "25:00", None]), [1], "(no such time)"),
        ("json", pa.array(["{}", "{", None, ""]), [1, 3], "not JSON"),
        ("json", pa.array(["{}", "{"], pa.json_()), [1], "not JSON"),
    ],
)
def test_bad_values_of_arrow_and_parquet(kind: str, values: pa.Array, bad: list[int], why: str) -> None:
    for media_type in (ARROW, PARQUET):
        batch = read(media_type, binary(media_type, kind, values))
        assert faults(batch) == [(row, kind) for row in bad] and why in batch.errors[0].reason, batch.errors


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("uuid", pa.array([b"x"])), ("uuid", pa.array([b"x"], pa.binary(1))), ("uuid", pa.array([1])), ("time", pa.array([1])),
        ("time", pa.array([1], pa.timestamp("us"))), ("json", pa.array([b"{}"])), ("json", pa.array([1])),
        ("json", pa.array([{"a": 1}])), ("bytes", pa.array(["AP8="])), ("bytes", pa.array([[1, 2]])),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)  # fmt: skip
def test_types_that_cannot_be_read(kind: str, values: pa.Array) -> None:
    for media_type in (ARROW, PARQUET):
        with pytest.raises(MalformedBody, match=kind):
            read(media_type, binary(media_type, kind, values))


def test_a_time_beyond_the_day_is_refused_in_arrow() -> None:
    late = pa.array([86_400_000_000], pa.int64()).view(pa.time64("us"))
    with pytest.raises(MalformedBody, match="range"):
        read(ARROW, binary(ARROW, "time", late))


def test_views_of_null_bytes_that_point_anywhere() -> None:
    """As of texts (`test_arrow`): Arrow's casts would follow them."""
    values = [b"short", None, b"longer than twelve bytes"]
    validity, views, *data = pa.array(values, pa.binary_view()).buffers()
    forged = bytearray(views.to_pybytes())
    forged[16:32] = (2**31 - 1).to_bytes(4, "little") + bytes(8) + (2**31 - 1).to_bytes(4, "little")
    array = pa.Array.from_buffers(pa.binary_view(), 3, [validity, pa.py_buffer(bytes(forged)), *data])
    assert column(read(ARROW, binary(ARROW, "bytes", array)), "bytes") == values


def test_what_a_dictionary_repeats_is_counted() -> None:
    """Before it is made: a row takes a byte in the body, and 4,000 when it is read."""
    from livejoin.wire.budget import Budget
    from livejoin.wire.errors import TooLarge

    class Small(Budget):
        left = 1 << 20

        def take(self, size: int) -> None:
            self.left -= size
            if self.left < 0:
                raise TooLarge("too large", 0)

    for kind, values in (
        ("bytes", pa.array([b"x" * 4_000])),
        ("bytes", pa.array([b"x" * 4_000], pa.binary(4_000))),
        ("json", pa.array(["1" * 4_000])),
    ):
        many = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int8()), values)
        with pytest.raises(TooLarge):
            decode_relation_changes(ARROW, binary(ARROW, kind, many), "things", lambda name: THINGS, Small())


def record(kind: str, value: Any, semantic: str | None) -> bytes:
    field = {"field": kind, "type": "string", **({"name": semantic} if semantic else {})}
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": [field]}]}
    payload = {"op": "c", "before": None, "after": {"id": 1, kind: value}}
    return orjson.dumps({"schema": schema, "payload": payload} if semantic else payload)


D, C = "io.debezium.", "org.apache.kafka.connect.data."


@pytest.mark.parametrize(
    ("kind", "value", "semantic", "expected"),
    [
        ("uuid", ID, D + "data.Uuid", ID), ("uuid", ID, None, ID),
        ("json", '{"a": 1}', D + "data.Json", '{"a": 1}'), ("json", '{"a": 1}', None, '{"a": 1}'),
        ("bytes", "AP8=", None, b"\x00\xff"), ("bytes", "AQ==", D + "data.Bits", b"\x01"),
        ("time", 45_000_000, D + "time.Time", NOON), ("time", 45_000_000, C + "Time", NOON),
        ("time", 45_000_000_000, D + "time.MicroTime", NOON),
        ("time", 45_000_000_000_000, D + "time.NanoTime", NOON), ("time", "12:30:00Z", D + "time.ZonedTime", NOON),
        ("time", "12:30:00Z", D + "time.IsoTime", NOON), ("time", "12:30:00.500000Z", D + "time.ZonedTime", dt.time(12, 30, 0, 500_000)),
        ("time", 45_000_000_000, None, NOON), ("time", "12:30:00", None, NOON),
        *((kind, None, semantic, None) for kind, semantic in (
            ("uuid", D + "data.Uuid"), ("json", D + "data.Json"), ("time", D + "time.NanoTime"), ("time", D + "time.ZonedTime"),
            ("bytes", None),
        )),
    ],
)  # fmt: skip
def test_debezium(kind: str, value: Any, semantic: str | None, expected: Any) -> None:
    assert column(read(DEBEZIUM, record(kind, value, semantic)), kind) == [expected]
    assert column(read(DEBEZIUM, b"\n".join([record(kind, value, semantic)] * MANY)), kind) == [expected] * MANY


UNSENT = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("kind", "value", "semantic", "why"),
    [
        ("time", 1_001, D + "time.NanoTime", "1001 nanoseconds are not a whole number of microseconds"),
        ("time", 86_400_000_000, D + "time.MicroTime", "before 24:00"),
        ("time", "12:30:00+01:00", D + "time.ZonedTime", "expected a time of day"),
        ("time", 1, D + "time.MicroTimestamp", "got a io.debezium.time.MicroTimestamp, expected a time"),
        ("time", 1, C + "Timestamp", "expected a time"), ("time", 1, D + "time.MicroDuration", "expected a time"),
        ("json", UNSENT, D + "data.Json", "the value was not sent"), ("bytes", base64.b64encode(UNSENT.encode()).decode(),
        None, "was not sent"),
        ("uuid", "x", D + "data.Uuid", "expected a UUID"), ("json", "{", D + "data.Json", "not JSON"),
    ],
)  # fmt: skip
def test_debezium_refuses(kind: str, value: Any, semantic: str | None, why: str) -> None:
    batch = read(DEBEZIUM, record(kind, value, semantic))
    assert faults(batch) == [(0, kind)] and why in batch.errors[0].reason, batch.errors


def test_debezium_enums_and_domains_are_text() -> None:
    """An enum, a set and what else has a name of its own is text; a domain comes as what it is made of, with that type's name."""
    definition = parse_relation(declared("id:int64, s:string, n:int64"))
    names = (
        "data.Enum",
        "data.EnumSet",
        "data.Ltree",
        "data.Xml",
        "data.Uuid",
        "data.Json",
        "time.ZonedTime",
        "time.ZonedTimestamp",
        "time.Interval",
    )
    for name in names:
        fields = [
            {"field": "s", "type": "string", "name": D + name, "parameters": {"allowed": "red,green"}},
            {"field": "n", "type": "int16"},
        ]
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
        body = orjson.dumps({"schema": schema, "payload": {"op": "r", "before": None, "after": {"id": 1, "s": "red,green", "n": 3}}})
        batch = decode_relation_changes(DEBEZIUM, body, "colours", lambda _: definition)
        assert not batch.errors and batch.changes[0].rows.arrow.to_pylist() == [{"id": 1, "s": "red,green", "n": 3}], name


def test_deletes_by_such_keys() -> None:
    """By the Kafka key, whose schema says what its numbers are."""
    definition = parse_relation({"columns": [{"name": "at", "type": "time"}, {"name": "of", "type": "uuid"}], "key": ["at", "of"]})
    fields = [{"field": "at", "type": "int32", "name": D + "time.Time"}, {"field": "of", "type": "string", "name": D + "data.Uuid"}]
    key = {"schema": {"type": "struct", "fields": fields}, "payload": {"at": 45_000_000, "of": ID.upper()}}
    body = orjson.dumps({"key": key, "value": {"op": "d", "before": None, "after": None}})
    batch = decode_relation_changes(DEBEZIUM, body, "r", lambda _: definition)
    assert batch.changes[0].rows.arrow.to_pylist() == [{"at": NOON, "of": ID}]


def test_times_as_text() -> None:
    assert time_texts(pa.array([], pa.time64("us"))).to_pylist() == []
    times = [dt.time(1), None, dt.time(23, 59, 59, 1), dt.time(0)]
    for start in range(3):
        assert time_texts(pa.array(times, pa.time64("us"))[start:]).to_pylist() == ["01:00:00", None, "23:59:59.000001", "00:00:00"][start:]
    assert time_texts(pa.array([dt.time(0, 0, 0, 1)])).to_pylist() == ["00:00:00.000001"]
