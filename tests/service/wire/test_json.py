from __future__ import annotations

import datetime as dt
from typing import Any

import orjson
import pytest

from livejoin.wire.errors import BadParameter, MalformedBody, UnknownRelation, UnsupportedMediaType
from livejoin.wire.json import JsonDecoder, fields_ahead
from tests.service.wire.bookings import BOOKINGS, VALUES, changes, faults, relation_changes, rows

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ROW = {"id": 1, "room": "A", "starts": "2026-01-01T12:00:00Z", "ends": None}


def post(*sent: Any, **fields: Any) -> Any:
    return changes("application/json", orjson.dumps({**fields, "changes": list(sent)}))


def test_the_body_of_the_documentation() -> None:
    batch = post(
        {"relation": "bookings", "op": "upsert", "row": ROW},
        {"relation": "bookings", "op": "delete", "key": {"id": 9}},
        source="pms",
        epoch=17,
    )
    assert rows(batch) == [("bookings", "upsert", (1, "A", NOON, None, None)), ("bookings", "delete", (9, None, None, None, None))]
    assert (batch.source, batch.epoch, batch.run, batch.reset, batch.on_error) == ("pms", 17, None, False, "reject")
    assert (batch.sent, batch.ignored, batch.errors, batch.error_count) == (2, 0, [], 0)


def test_order_and_index_hold_over_relations() -> None:
    day = {"k": 1, "day": "2026-01-01"}
    batch = post(
        {"relation": "values", "row": day},
        {"relation": "bookings", "row": ROW},
        {"relation": "values", "op": "truncate"},
        {"relation": "bookings", "op": "insert", "row": ROW},
    )
    assert [(part.relation, part.index.tolist(), part.ops.tolist()) for part in batch.changes] == [
        ("values", [0, 2], [1, 3]),
        ("bookings", [1, 3], [1, 0]),
    ]


def test_jsonl_counts_lines_that_hold_something() -> None:
    text = b'\n{"relation": "bookings", "op": "truncate"}\r\n\n  \n{"relation": "bookings", "row": {"id": "x"}}'
    batch = changes("application/x-ndjson", text)
    assert batch.sent == 2
    assert faults(batch) == [(1, "id")]


def test_a_change_may_carry_its_key_beside_its_row() -> None:
    changes = [{"relation": "bookings", "op": op, "row": ROW, "key": key} for op in ("upsert", "delete") for key in ({"id": 1}, None)]
    assert [op for _, op, _ in rows(post(*changes))] == ["upsert", "upsert", "delete", "delete"]


def test_a_delete_reads_only_the_key_of_a_whole_row() -> None:
    batch = post({"relation": "bookings", "op": "delete", "row": {**ROW, "starts": "nonsense"}})
    assert rows(batch) == [("bookings", "delete", (1, None, None, None, None))]


def test_a_line_of_a_change_log() -> None:
    """What stands beside relation, op and row (numbers, dates) is passed over where the op is plain."""
    batch = post({"seq": 1, "date": "1789-04-21", "op": "insert", "relation": "bookings", "row": ROW})
    assert [op for _, op, _ in rows(batch)] == ["insert"] and not batch.errors


def test_a_row_is_named_once_by_its_first_fault() -> None:
    assert faults(post({"relation": "bookings", "row": {"id": 1, "room": 2, "starts": 3.5}})) == [(0, "room")]


def test_floats_beyond_numbers() -> None:
    row = {"k": -0.0, "day": "2026-01-01", "x": "NaN"}
    (values,) = [row[2] for row in rows(post({"relation": "values", "row": row}))]
    assert str(values[0]) == "0.0"
    assert str(values[2]) == "nan"
    for name in ("NaN", "Infinity", "-Infinity"):
        (fault,) = post({"relation": "values", "row": {**row, "k": name}}).errors
        assert (fault.column, fault.reason) == ("k", f"{name} is not allowed in a key")
        assert faults(post({"relation": "values", "row": {**row, "x": name}})) == []
    assert faults(post({"relation": "values", "row": {**row, "x": "nan"}})) == [(0, "x")]
    assert faults(post({"relation": "values", "row": {**row, "day": 20454}})) == [(0, "day")]


@pytest.mark.parametrize("bad", [b"[1]", b"{", b"1", b'"x"', b"null", b'{"row": {}}', b'{"row": "\xff"}'])
def test_malformed_lines_are_told_by_number(bad: bytes) -> None:
    with pytest.raises(MalformedBody) as fault:
        changes("application/jsonl", b'{"relation": "bookings", "op": "truncate"}\n\n' + bad)
    assert fault.value.line == 3


def test_unknown_relations() -> None:
    with pytest.raises(UnknownRelation) as fault:
        post({"relation": "bookings", "row": ROW}, {"relation": "rooms", "row": {}})
    assert fault.value.name == "rooms"


@pytest.mark.parametrize(
    "fields",
    [{"epoch": "1"}, {"epoch": 1.0}, {"epoch": 2**63}, {"epoch": True}, {"source": 1}, {"source": "x" * 201}, {"run": "x" * 201}]
    + [{"reset": 1}, {"on_error": "ignore"}, {"on_error": ["skip"]}],
)
def test_bad_fields(fields: dict[str, Any]) -> None:
    with pytest.raises(BadParameter) as fault:
        post(**fields)
    assert next(iter(fields)) in fault.value.detail


def test_fields() -> None:
    batch = post(source="s", epoch=-(2**63), run="r", reset=True, on_error="skip")
    assert (batch.source, batch.epoch, batch.run, batch.reset, batch.on_error) == ("s", -(2**63), "r", True, "skip")
    assert post(source=None, reset=None).on_error == "reject"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b'{"source": "\\"changes\\"", "epoch": 17, "run": null, "changes": [', {"source": '"changes"', "epoch": 17}),
        (b'{"source": "s", "epoch": 17, "run": null, "changes": [', {"source": "s", "epoch": 17}),
        (bytearray(b'{ "epoch":-1\n,\n"source":"s","changes":[]}'), {"source": "s", "epoch": -1}),
        (b'{"changes": [], "source": "s", "epoch": 1}', {}),
        (b'{"source": "s", "epoch": 1.5, "changes": []}', {}),
        (b'{"x": {"changes": 1}, "source": "s", "epoch": 1}', {}),
        (b'[{"changes": 1}]', {}),
        (b'{"source": "s", "epoch": 17}', {}),
        (b"", {}),
    ],
)
def test_fields_ahead_of_the_changes(body: bytes, fields: dict[str, Any]) -> None:
    assert fields_ahead(body) == fields


def test_lines_of_one_relation() -> None:
    text = [ROW, {**ROW, "_op": "insert"}, {"_op": "delete", "id": 5}, {"_op": "truncate"}, {**ROW, "_op": None}, {**ROW, "_op": "x"}]
    batch = relation_changes("application/jsonl", b"\n".join(map(orjson.dumps, text)))
    assert [(op, row[0]) for _, op, row in rows(batch)] == [("upsert", 1), ("insert", 1), ("delete", 5), ("truncate", None), ("upsert", 1)]
    assert faults(batch) == [(5, "_op")]
    with pytest.raises(MalformedBody) as fault:
        relation_changes("application/jsonl", b"{}\n[]")
    assert fault.value.line == 2


def test_kafka_records_never_raise() -> None:
    values = [orjson.dumps(ROW), None, b"null", b"{", b"[1]", b'{"id": 1, "_op": "delete"}', b'{"id": "x"}', b'{"id":1,"_op":"?"}']
    batch = JsonDecoder("bookings", BOOKINGS).decode([None] * len(values), values)
    assert [(op, row[0]) for _, op, row in rows(batch)] == [("upsert", 1), ("delete", 1)]
    assert batch.changes[0].index.tolist() == [0, 5]
    assert faults(batch) == [(3, None), (4, None), (6, "id"), (7, "_op")]
    assert (batch.sent, batch.ignored, batch.error_count) == (8, 2, 4)


def test_tombstones_delete_by_their_key() -> None:
    """Of a struct that has the key columns, bare or wrapped; what a schema says of its fields holds."""
    fields = [{"field": "k", "type": "double"}, {"field": "day", "type": "string", "name": "io.debezium.time.IsoDate"}]
    wrapped = {"schema": {"type": "struct", "fields": fields}, "payload": {"k": 1.5, "day": "2026-01-03Z"}}
    sent = [
        ({"k": 1.5, "day": "2026-01-01", "x": 7, "strange": 1}, None),
        ({"schema": None, "payload": {"k": 1.5, "day": "2026-01-02"}}, None),
        (wrapped, b"null"),
        (None, None), ("key", None), (1.5, None), ({"k": 1.5}, None), ({"k": 1.5, "day": None}, None),
        ({"k": "x", "day": "2026-01-01"}, None),
        (wrapped, b'{"k":2,"day":"2026-01-01"}'),
    ]  # fmt: skip
    keys = [None if key is None else orjson.dumps(key) for key, _ in sent]
    batch = JsonDecoder("values", VALUES).decode([*keys, b"", b"\xff"], [*(value for _, value in sent), None, None])
    assert [(op, row[0], str(row[1])) for _, op, row in rows(batch)] == [
        *(("delete", 1.5, f"2026-01-0{day}") for day in (1, 2, 3)),
        ("upsert", 2.0, "2026-01-01"),
    ]
    assert (faults(batch), batch.ignored) == ([(8, "k")], 7)


def test_media_types() -> None:
    body = orjson.dumps({"changes": []})
    assert changes("Application/JSON; charset=utf-8", body).sent == 0
    for kind in ("", "text/plain", "text/csv"):
        with pytest.raises(UnsupportedMediaType):
            changes(kind, body)
    with pytest.raises(UnsupportedMediaType):
        relation_changes("application/json", body)


def test_a_stranger_in_each_row() -> None:
    """The work and the memory grow with the rows, not with their square, though each row has an unknown column of its own."""
    batch = relation_changes("application/jsonl", b"\n".join(b'{"id":1,"c%d":1}' % number for number in range(50_000)))
    assert batch.error_count == 50_000 and [error.column for error in batch.errors] == [f"c{number}" for number in range(100)]


@pytest.mark.parametrize("depth", [100, 985, 1000, 1015])
def test_nested_keys(depth: int) -> None:
    """Python cannot compare what is nested so deeply."""
    deep = b"[" * depth + b"]" * depth
    body = b'{"changes":[{"relation":"bookings","op":"delete","key":{"id":%b},"row":{"id":%b}}]}' % (deep, deep)
    assert faults(changes("application/json", body)) == [(0, "id")]


def test_what_is_told_of_a_body_is_short() -> None:
    """Names in a body may be as long as the body, and a reason repeats them."""
    name = "\u0080" * 1_000_000
    with pytest.raises(UnknownRelation) as unknown:
        post({"relation": name, "row": ROW})
    assert len(unknown.value.name) < 300 and len(unknown.value.detail) < 3000
    with pytest.raises(MalformedBody) as malformed:
        changes("application/json", orjson.dumps({"changes": [], name: 1}))
    assert len(malformed.value.detail) < 3000
    for row in ({"row": {**ROW, name: 1}}, {"op": "delete", "key": {name: 1}}, {"key": {name: 1}, "row": ROW}):
        (error,) = post({"relation": "bookings", **row}).errors
        assert error.column is not None and name.startswith(error.column[:-1]) and len(error.column) == 201
        assert len(error.reason) < 300
