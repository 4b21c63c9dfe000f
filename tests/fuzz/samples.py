"""Valid encodings of the same few rows in every format, definitions, queries, records and files: the starting points for fuzzing."""

from __future__ import annotations

import io
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from livejoin.wire.batch import OP_DICTIONARY
from livejoin.wire.schema import parse_relation
from tests.relations import BOOKINGS, declared
from tests.streaming.test_config import WHOLE

DEFINITION: dict[str, Any] = declared(
    f"{BOOKINGS}, price:float64?, day:date?, paid:bool?, guest:uuid?, wake:time?, wishes:json?, scan:bytes?", stay="starts ends", on="day"
)
RELATIONS = {
    "bookings": parse_relation(DEFINITION),
    "rooms": parse_relation(
        {
            **DEFINITION,
            "key": ["room", "day"],
            "columns": [{**column, "nullable": False} if column["name"] == "day" else column for column in DEFINITION["columns"]],
        }
    ),
}
MICROS = 1_767_268_800_000_000
GUEST = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
OTHERS = {"guest": GUEST, "wake": "06:30:00.5", "wishes": '{"a": [1, null]}', "scan": "AP8="}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "room": "A", "starts": "2026-01-01T12:00:00Z", "ends": None, "price": 12.5, "day": "2026-01-01", "paid": True, **OTHERS},
    {
        "id": 2,
        "room": 'Zoë "x", ü\n',
        "starts": MICROS,
        "ends": "2026-01-02T00:00:00.000001+02:00",
        "price": "NaN",
        "day": None,
        "paid": None,
    },
    {
        "id": -3,
        "room": "",
        "starts": MICROS,
        "ends": MICROS + 1,
        "price": -0.0,
        "day": "2026-12-31",
        "paid": False,
        "scan": "\\x",
        "wake": 0,
    },
]
_TYPES = RELATIONS["bookings"].arrow_schema()
_TABLE = pa.table(
    {
        "_op": ["upsert", None, "insert", "delete"],
        "id": [1, 2, 3, 9],
        "room": ["A", 'Zoë, "x"', "", None],
        "starts": pa.array([MICROS] * 4, pa.timestamp("us", "UTC")),
        "ends": pa.array([None, MICROS + 1, MICROS + 2, None], pa.timestamp("us", "UTC")),
        "price": [1.5, float("nan"), None, -0.0],
        "day": pa.array([20_000, None, 1, 2], pa.int32()).cast(pa.date32()),
        "paid": [True, False, None, True],
        "guest": [GUEST, None, GUEST.upper(), None],
        "wake": pa.array([1, None, 86_399_999_999, 0], pa.time64("us")),
        "wishes": ["{}", None, "[1.50]", "null"],
        "scan": [b"", None, b"\x00\xff", b"scan"],
    }
)


def ipc(*tables: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    """Return concatenated IPC streams."""
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
            stream.write_table(table, max_chunksize=3)
    return bytes(sink.getvalue())


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _lines(*values: Any) -> bytes:
    return b"".join(orjson.dumps(value) + b"\n" for value in values)


def _odd_types() -> list[pa.Table]:
    """Columns of other types, some of which are accepted and some refused."""
    ids, texts = pa.array([1, 2, 3, 9]), pa.array(["A", "B", "A", None])
    return [
        _TABLE.set_column(2, "room", texts.dictionary_encode()),
        _TABLE.set_column(2, "room", texts.cast(pa.large_utf8())),
        _TABLE.set_column(2, "room", texts.cast(pa.string_view())),
        _TABLE.set_column(0, "_op", pa.DictionaryArray.from_arrays(pa.array([1, 1, 0, 2], pa.uint8()), OP_DICTIONARY)),
        _TABLE.set_column(1, "id", ids.cast(pa.uint64())),
        _TABLE.set_column(3, "starts", pa.array([MICROS * 1000] * 4, pa.timestamp("ns", "Europe/Berlin"))),
        _TABLE.set_column(5, "price", pa.array([1, 2, None, 4], pa.uint64())),
        _TABLE.set_column(5, "price", pa.array([1, 2, None, 4], pa.float32())),
        _TABLE.set_column(6, "day", pa.array([86_400_000, None, 1, 2], pa.date64())),
        _TABLE.set_column(8, "guest", pa.array([bytes(range(16)), None] * 2, pa.uuid())),
        _TABLE.set_column(8, "guest", pa.array([bytes(range(16)), None] * 2, pa.binary(16))),
        _TABLE.set_column(9, "wake", pa.array([1000, None, 1001, 0], pa.time64("ns"))),
        _TABLE.set_column(9, "wake", pa.array([1, None, 86_399, 0], pa.time32("s"))),
        _TABLE.set_column(10, "wishes", pa.array(["{}", None, "[", "1"], pa.json_())),
        _TABLE.set_column(11, "scan", pa.array([b"long enough for a view", None, b"x", b""], pa.binary_view())),
        _TABLE.set_column(11, "scan", pa.array([b"x", None, b"x", b""]).dictionary_encode()),
        _TABLE.set_column(2, "room", pa.array([["a"], None, [], ["b", None]])),
        _TABLE.set_column(2, "room", pa.array([{"a": 1}, None, {"a": None}, {"a": 2}])),
        _TABLE.set_column(2, "room", pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array(["a", "b"]))),
        _TABLE.set_column(2, "room", pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "{}", None, "[]"]))),
        _TABLE.set_column(2, "room", pa.UnionArray.from_sparse(pa.array([0, 1, 0, 1], pa.int8()), [ids, texts])),
        _TABLE.slice(0, 0),
    ]


_NAMED = [_TABLE.replace_schema_metadata({"livejoin.relation": name}) for name in RELATIONS]
_JSON_CHANGES = [
    {"relation": "bookings", "op": "upsert", "row": ROWS[0]},
    {"relation": "rooms", "op": "insert", "row": ROWS[2]},
    {"relation": "bookings", "op": "delete", "key": {"id": 1}, "row": ROWS[0]},
    {"relation": "rooms", "op": "truncate"},
]
_FIELDS = [
    {"type": "int64", "field": "id"},
    {"type": "int64", "field": "starts", "name": "io.debezium.time.MicroTimestamp"},
    {"type": "int64", "field": "ends", "name": "io.debezium.time.NanoTimestamp"},
    {"type": "bytes", "field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    {"type": "int32", "field": "day", "name": "io.debezium.time.Date"},
    {"type": "string", "field": "guest", "name": "io.debezium.data.Uuid"},
    {"type": "int64", "field": "wake", "name": "io.debezium.time.NanoTime"},
    {"type": "string", "field": "wishes", "name": "io.debezium.data.Json"},
    {"type": "bytes", "field": "scan"},
]
_SCHEMA = {"type": "struct", "fields": [{"field": "before", "fields": _FIELDS}, {"field": "after", "fields": _FIELDS}]}
_AFTER = {"id": 1, "room": "A", "starts": MICROS, "ends": MICROS * 1000 + 1000, "price": "MDk=", "day": 20_454, "paid": True}
_AFTER |= OTHERS | {"wake": 23_400_000_000_000}
_ENVELOPES = [
    {"op": "c", "before": None, "after": {**_AFTER, "price": 1.5, "ends": None}, "source": {"lsn": 1}, "ts_ms": 1},
    {"schema": _SCHEMA, "payload": {"op": "u", "before": None, "after": _AFTER}},
    {"schema": _SCHEMA, "payload": {"op": "d", "before": _AFTER, "after": None}},
    {
        "schema": None,
        "payload": {"op": "u", "after": {**_AFTER, "price": {"scale": 3, "value": "AQI="}, "room": "__debezium_unavailable_value"}},
    },
    {"key": {"schema": {"fields": _FIELDS}, "payload": {"id": 1}}, "value": {"op": "d", "before": {"id": 1}}},
    {"op": "t"},
    {"op": "m", "message": {}},
    None,
    {"status": "BEGIN", "id": "1", "event_count": 1, "data_collections": []},
]

JSON = [
    orjson.dumps({"changes": _JSON_CHANGES}),
    orjson.dumps({"source": "pms", "epoch": 17, "run": "r", "reset": True, "on_error": "skip", "changes": _JSON_CHANGES[:1]}),
]
JSONL = [_lines(*_JSON_CHANGES)]
ROWS_JSONL = [_lines(*ROWS), _lines({"_op": "delete", "id": 1}, *ROWS * 4, {"_op": "truncate"})]
CSV = [
    b"_op,id,room,starts,ends,price,day,paid\nupsert,1,A,2026-01-01T12:00:00Z,,12.5,2026-01-01,true\ndelete,9,,,,,,\n"
    b'insert,2,"Zo\xc3\xab ""x""\n, y",20260101T120000Z,2026-01-02 00:00:00+02,nan,20260102,F\n',
    b'id,room,starts,guest,wake,wishes,scan\n1,A,2026-01-01T12:00:00Z,3f2504e0-4f89-41d3-9a0c-0305e82c3301,06:30,"{""a"": 1}",\\x00ff\n'
    b'2,B,2026-01-01T12:00:00Z,{3F2504E04F8941D39A0C0305E82C3301},06:30:00.000001,[],AP8=\n3,C,2026-01-01T12:00:00Z,,,,""\n',
    b'id,room,starts\n1,"",2026-01-01T12:00:00Z\r\n+7,b,2026-01-01T12Z\r\n',
]
ARROW = [
    ipc(_TABLE),
    ipc(_TABLE, _TABLE),
    *(ipc(table) for table in _odd_types()),
    *(ipc(_TABLE, options=pa.ipc.IpcWriteOptions(compression=codec)) for codec in ("lz4", "zstd")),
]
NAMED_ARROW = [ipc(*_NAMED), ipc(_NAMED[0], _NAMED[0])]
PARQUET = [
    _parquet(_TABLE),
    _parquet(_TABLE, store_schema=False, use_dictionary=False, compression="none", data_page_version="2.0"),
    _parquet(_TABLE, use_dictionary=False, column_encoding={"id": "DELTA_BINARY_PACKED", "room": "DELTA_BYTE_ARRAY"}, row_group_size=2),
    _parquet(_TABLE, compression="zstd", write_page_index=True),
    *(_parquet(table) for table in _odd_types()[:1] + _odd_types()[9:14] + _odd_types()[16:18]),
]
DEBEZIUM = [_lines(*_ENVELOPES), *(orjson.dumps(envelope) for envelope in _ENVELOPES)]
RELATION = [orjson.dumps(DEFINITION), orjson.dumps({"columns": [{"name": "Some col", "type": "date"}], "key": ["Some col"]})]
SQL = [
    text.encode()
    for text in (
        "SELECT b.id AS booking, r.room, intersection(b.stay, r.stay) AS clash, duration(b.stay) AS d FROM bookings b JOIN rooms r "
        "ON b.room = r.room AND overlaps(b.stay, r.stay) WHERE b.paid AND b.price >= 1.5e0 AND r.day IN (DATE '2026-01-01', '2026-12-31')",
        "SELECT * FROM bookings AS b CROSS JOIN rooms r "
        "WHERE b.id <> -1 AND NOT (b.room = 'it''s' OR b.paid IS NOT TRUE) AND b.ends IS NULL",
        "SELECT b.id, r.id FROM bookings b JOIN rooms r "
        "ON b.starts < COALESCE(r.ends, 'infinity') AND (b.ends IS NULL OR r.starts < b.ends)",
        "SELECT b.id FROM bookings b, rooms r WHERE abs(b.starts - r.starts) <= INTERVAL '15 minutes' AND b.id BETWEEN 1 AND 9",
        "SELECT b.id FROM bookings b JOIN rooms r USING (room) WHERE NOT EXISTS (SELECT 1 FROM rooms x WHERE x.room = b.room AND x.id = 5)",
        'SELECT "b"."id" FROM bookings b JOIN rooms r '
        "ON (b.starts, b.ends) OVERLAPS (r.starts, r.ends) AND b.starts >= TIMESTAMP '2026-01-01 00:00'",
        "SELECT DISTINCT b.guest AS g, b.scan AS s FROM bookings b JOIN rooms r ON b.guest = r.guest AND b.wake < r.wake "
        f"WHERE b.guest <> uuid '{GUEST}' AND b.wake BETWEEN '06:00' AND time '12:00' AND b.scan > '\\x00ff'::bytea AND b.wishes IS NULL",
        "SELECT b.id, gaps(b.stay, r.stay) AS free FROM bookings b LEFT JOIN rooms r ON b.room = r.room AND overlaps(b.stay, r.stay)",
        "SELECT room, coverage(stay) AS busy FROM bookings GROUP BY room",
        "SELECT b.id, r.id FROM bookings b ASOF LEFT JOIN rooms r ON b.room = r.room AND r.starts <= b.starts WHERE b.paid",
        "SELECT DISTINCT ON (room) room, id FROM bookings WHERE paid ORDER BY room, starts DESC, id DESC",
        "SELECT id FROM bookings QUALIFY ROW_NUMBER() OVER (PARTITION BY room ORDER BY ends DESC NULLS LAST) <= 3",
        "WITH x AS (SELECT 1) SELECT count(*) FROM (SELECT id FROM bookings) q "
        "LEFT JOIN rooms ON true GROUP BY 1 HAVING x ORDER BY 2 LIMIT 3",
    )
]
VIEW = [
    orjson.dumps({"sql": SQL[0].decode(), "algorithm": "auto", "guarantee": "delay", "changes": {"retain_rows": 7}}),
    orjson.dumps(
        {
            "from": {"b": "bookings", "r": "rooms"},
            "join": [
                {"equal": ["b.room", "r.room"]},
                {"overlaps": ["b.stay", "r.stay"]},
                {"less": ["b.id", "r.id"]},
                {"not_equal": ["b.price", "r.price"]},
                {"at_most": ["b.day", "r.day"]},
                {"within": ["b.starts", "r.starts"], "distance": "PT15M"},
            ],
            "where": [
                {"column": "b.paid", "op": "=", "value": True},
                {"column": "b.id", "op": "in", "value": [1, -2]},
                {"column": "b.ends", "op": "is_null"},
            ],
            "not_exists": [
                {"from": {"x": "rooms"}, "join": [{"equal": ["x.room", "b.room"]}], "where": [{"column": "x.id", "op": "<", "value": 5}]}
            ],
            "select": [
                "b.id as booking",
                "r.id",
                {"intersection": ["b.stay", "r.stay"], "as": "clash"},
                {"duration": ["b.stay"], "as": "d"},
            ],
            "guarantee": "best-effort",
            "changes": False,
        }
    ),
    orjson.dumps(
        {
            "from": {"b": "bookings"},
            "left": [{"from": {"r": "rooms"}, "join": [{"equal": ["b.room", "r.room"]}, {"as_of": ["r.starts", "<=", "b.starts"]}]}],
        }
    ),
    orjson.dumps(
        {"from": {"b": "bookings"}, "latest": {"by": ["b.room"], "order": "b.starts", "descending": True, "rows": 3}, "select": ["b.id"]}
    ),
]
QUERY = [
    b"limit=10&cursor=x&version=3&overlaps=2026-01-01T00:00:00Z,&overlaps.stay=,2026-01-01&where.b.id=1&where.b.room=%C3%AB&where.b.scan=AP8%3D",
    b"source=pms&epoch=-17&run=3f0c&reset=true&on_error=skip",
    b"since=x&snapshot=true&limit=1&wait=0.5",
]
STREAM = [WHOLE.encode()]
LITERALS = [
    b"2026-01-01T12:00:00.5+02:00",
    b"2026-01-01",
    b"2026-01-01 00:00  -05:30",
    b"17",
    b"-1.5e3",
    b"true",
    b"infinity",
    b"P1DT12H",
    b"1.5 hours",
    GUEST.encode(),
    b"06:30:00.5",
    b"\\x00ff",
    b"AP8=",
    b'{"a": [1, null]}',
]
HEADERS = [
    b"text/csv;q=0.5, application/*;q=0.1, */*",
    b"application/json; charset=utf-8",
    b"localhost:8080",
    b"[::1]:80",
    b"http://127.0.0.1:8080",
    b"gzip",
]
