"""docs/reference/rest.md, *Changes*: line by line, as a client meets it."""
from __future__ import annotations

import json
import socket
from typing import Any

import pyarrow as pa
import pytest

from tests.end_to_end import talk
from tests.end_to_end.bookings import CLASHES, EVERYTHING, Case, day
from tests.end_to_end.talk import ARROW, CSV, DEBEZIUM, JSON, JSONL, PARQUET
from tests.relations import declared
from tests.server_process import ServerProcess

NAN, INFINITY = float("nan"), float("inf")


def relation_rows(case: Case, relation: str) -> list[dict[str, Any]]:
    answer = case.client.get(f"/v1/relations/{relation}/rows", headers={"Accept": JSONL})
    return sorted((json.loads(line) for line in answer.content.splitlines()), key=str)


def post(case: Case, media: str, body: bytes | str, relation: str | None = None, **parameters: Any) -> Any:
    path = "/v1/changes" if relation is None else f"/v1/relations/{relation}/changes"
    return case.client.post(path, content=body, headers={"Content-Type": media}, params=parameters)


# receipts and versions


def test_receipt(case: Case) -> None:
    case.define()
    before = case.version()
    done = talk.ok(talk.send(case.client, [case.booking(1, "A", 1, 5), case.booking(1, "A", 2, 6), case.delete(1), case.delete(99)]))
    assert done == {"version": before + 1, "applied": 3, "ignored": 1, "skipped_count": 0, "skipped": [], "duplicate": False}
    assert relation_rows(case, case.b) == []


def test_who_has_the_answer_sees_the_change(live: Case, server: ServerProcess) -> None:
    """A client that has the answer sees the change: on the same connection, with a read that is already pipelined, and on another one."""
    count = f"GET /v1/views/{live.v}/count HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port)) as one, socket.create_connection(("127.0.0.1", server.port)) as other:
        for number in range(100, 300):
            body = json.dumps({"changes": [live.booking(number, "A", 4, 5)]}).encode()
            head = f"POST /v1/changes HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            one.sendall(head + body + (count if number % 2 else b""))
            done = answer(one)
            assert done["applied"] == 1
            if number % 2 == 0:
                other.sendall(count)
            seen = answer(one if number % 2 else other)
            assert seen["version"] == done["version"] and seen["count"] == len(CLASHES) + number - 99


def answer(link: socket.socket) -> dict[str, Any]:
    """Return the body of the next answer, without reading a byte beyond it."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += link.recv(1)
    assert data.startswith(b"HTTP/1.1 200"), data
    left = int(data.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    body = b""
    while len(body) < left:
        body += link.recv(left - len(body))
    return dict(json.loads(body))


def test_each_batch_is_a_version_and_registering_is_none(case: Case) -> None:
    before = case.version()
    case.define()
    talk.view(case.client, case.v, case.sql)
    assert case.version() == before
    for number, changes in enumerate(([], [case.delete(5)], [case.booking(1, "A", 1, 5)], [case.booking(1, "A", 1, 5)]), 1):
        assert talk.ok(talk.send(case.client, changes))["version"] == before + number


def test_what_is_answered_can_be_read(case: Case) -> None:
    case.define()
    talk.view(case.client, case.v, case.sql)
    talk.ok(talk.send(case.client, [case.job(7, "A", 1, 30)]))
    for number in range(50):
        done = talk.ok(talk.send(case.client, [case.booking(number, "A", 1, 5)]))
        answer = case.client.get(f"/v1/views/{case.v}/count")
        assert answer.json() == {"version": done["version"], "count": number + 1}


def test_in_order_and_the_last_change_of_a_key_wins(case: Case) -> None:
    case.define()
    talk.ok(talk.send(case.client, [
        case.booking(1, "A", 1, 2), case.booking(1, "B", 1, 2, op="insert") | {"op": "upsert"}, case.delete(2), case.booking(2, "C", 1, 2),
        case.booking(3, "D", 1, 2), case.delete(3), case.booking(4, "E", 1, 2), case.delete(4), case.booking(4, "F", 1, 2, op="insert"),
    ]))
    assert {row["id"]: row["room"] for row in relation_rows(case, case.b)} == {1: "B", 2: "C", 4: "F"}


def test_several_relations_at_once_or_not_at_all(case: Case) -> None:
    case.define()
    before = case.version()
    changes = [case.booking(1, "A", 1, 5), case.job(1, "A", 5, 1), case.job(2, "A", 1, 5)]
    emitted = talk.problem(talk.send(case.client, changes), 422, "bad-rows")
    assert emitted["error_count"] == 1 and [
        (error["index"], set(error)) for error in emitted["errors"]
    ] == [(1, {"index", "column", "reason"})]
    assert case.version() == before and relation_rows(case, case.b) == relation_rows(case, case.m) == []
    done = talk.ok(talk.send(case.client, changes, on_error="skip"))
    assert (done["applied"], done["ignored"], done["skipped_count"]) == (2, 0, 1)
    assert [error["index"] for error in done["skipped"]] == [1] and done["skipped"] == emitted["errors"]
    assert len(relation_rows(case, case.b)) == len(relation_rows(case, case.m)) == 1


def test_insert_is_judged_at_its_place(case: Case) -> None:
    case.define()
    talk.ok(talk.send(case.client, [case.booking(1, "A", 1, 5)]))
    emitted = talk.problem(talk.send(case.client, [
        case.booking(1, "A", 1, 5, op="insert"), case.delete(1),
        case.booking(1, "A", 1, 5, op="insert"), case.booking(1, "A", 1, 5, op="insert"),
    ]), 422, "bad-rows")
    assert [(error["index"], error["reason"]) for error in emitted["errors"]] == [(0, "key-exists"), (3, "key-exists")]


def test_the_first_hundred_errors_and_the_count(case: Case) -> None:
    case.define()
    changes = [case.booking(number, "A", 5, 1 if number % 2 else 9) for number in range(400)]
    emitted = talk.problem(talk.send(case.client, changes, JSONL), 422, "bad-rows")
    assert emitted["error_count"] == 200 and [error["index"] for error in emitted["errors"]] == list(range(1, 200, 2))
    done = talk.ok(talk.send(case.client, changes, JSONL, on_error="skip"))
    assert (done["applied"], done["skipped_count"], len(done["skipped"])) == (200, 200, 100)


def test_unknown_relation_is_whole_also_under_skip(case: Case) -> None:
    case.define()
    changes = [case.booking(1, "A", 1, 5), {"relation": "not_there", "op": "upsert", "row": {"id": 1}}]
    for parameters in ({}, {"on_error": "skip"}):
        talk.problem(talk.send(case.client, changes, **parameters), 422, "unknown-relation")
    assert relation_rows(case, case.b) == []
    talk.problem(post(case, JSONL, b"{}", "not_there"), 404, "not-found")


# media types


def test_ndjson_and_parameters_of_media_types(case: Case) -> None:
    case.define()
    line = json.dumps(case.booking(1, "A", 1, 5))
    for media in ("application/x-ndjson", "application/jsonl; charset=utf-8", "APPLICATION/JSONL"):
        talk.ok(post(case, media, f"{line}\n\n{line}\n"))


def test_arrow_streams_one_after_the_other(case: Case) -> None:
    case.define()
    when, then = (pa.array([micros], pa.timestamp("us", "UTC")) for micros in (1767225600_000_000, 1767312000_000_000))
    booking = {"room": ["A"], "starts": when, "status": ["s"]}
    parts = [
        talk.arrow_bytes(pa.table({"id": [1], **booking}), case.b),
        talk.arrow_bytes(pa.table({"id": [2], "room": ["A"], "begins": when, "finishes": then}), case.m),
        talk.arrow_bytes(pa.table({"_op": ["delete"], "id": [1]}), case.b),
        talk.arrow_bytes(pa.table({"_op": ["insert"], "id": [3], **booking}), case.b),
    ]
    done = talk.ok(post(case, ARROW, b"".join(parts)))
    assert done["applied"] == 4
    assert [row["id"] for row in relation_rows(case, case.b)] == [3] and [row["id"] for row in relation_rows(case, case.m)] == [2]


def everything(case: Case) -> str:
    talk.define(case.client, case.b, EVERYTHING)
    return case.b


TEXT = 'a "quoted", ünï\ncoded ☃'
ROW = {"k": 1, "i": -(2**63), "x": 0.5, "at": "2026-01-01T12:00:00Z", "day": "2026-01-01", "text": TEXT, "yes": True}
NULLS = {"k": 2, "i": None, "x": None, "at": None, "day": None, "text": None, "yes": None}
BACK = [ROW, NULLS]


@pytest.mark.parametrize("media", [JSONL, CSV, ARROW, PARQUET])
def test_every_type_in_every_media_type(case: Case, media: str) -> None:
    relation = everything(case)
    if media == CSV:
        first = '1,-9223372036854775808,0.5,2026-01-01T12:00:00Z,2026-01-01,"a ""quoted"", ünï\ncoded ☃",true'
        body = f"k,i,x,at,day,text,yes\n{first}\n2,,,,,,\n".encode()
    elif media == JSONL:
        body = (json.dumps(ROW) + "\n" + json.dumps({"k": 2})).encode()  # absent nullable columns are null
    else:
        schema = pa.schema({
            "k": pa.int64(), "i": pa.int64(), "x": pa.float64(), "at": pa.timestamp("us", "UTC"), "day": pa.date32(),
            "text": pa.dictionary(pa.int32(), pa.utf8()), "yes": pa.bool_(),
        })
        rows = [{**ROW, "at": 1767268800_000_000, "day": 20454}, NULLS]
        body = talk.encode_table(pa.Table.from_pylist(rows, schema), media)
    assert talk.ok(post(case, media, body, relation))["applied"] == 2
    assert relation_rows(case, relation) == sorted(BACK, key=str)


def test_special_numbers_and_instants(case: Case) -> None:
    relation = everything(case)
    values: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"x": "NaN"}, {"x": "NaN"}), ({"x": "Infinity"}, {"x": "Infinity"}), ({"x": "-Infinity"}, {"x": "-Infinity"}),
        ({"x": 3}, {"x": 3.0}),
        ({"at": "2026-01-01T13:00:00+01:00"}, {"at": "2026-01-01T12:00:00Z"}),
        ({"at": "2026-01-01T12:00:00.25Z"}, {"at": "2026-01-01T12:00:00.250000Z"}),
        ({"at": 1}, {"at": "1970-01-01T00:00:00.000001Z"}), ({"at": -1}, {"at": "1969-12-31T23:59:59.999999Z"}),
        ({"day": "1582-10-04"}, {"day": "1582-10-04"}), ({"i": 2**63 - 1}, {"i": 2**63 - 1}), ({"text": ""}, {"text": ""}),
    ]
    for given, back in values:
        talk.ok(talk.send(case.client, [{"relation": relation, "op": "upsert", "row": {"k": 1, **given}}]))
        assert relation_rows(case, relation) == [{**NULLS, "k": 1, **back}]


@pytest.mark.parametrize("media", [JSONL, CSV, ARROW, PARQUET])
def test_ops_of_one_relation(case: Case, media: str) -> None:
    case.define()
    talk.ok(talk.send(case.client, [case.job(1, "A", 1, 5), case.job(2, "A", 1, 5), case.job(3, "A", 1, 5)]))
    start, end = 1767225600_000_000, 1767312000_000_000
    nothing = {"room": None, "begins": None, "finishes": None}
    rows = [
        {"_op": "delete", "id": 1, **nothing},
        {"_op": "insert", "id": 4, "room": "B", "begins": start, "finishes": end},
        {"_op": "upsert", "id": 2, "room": "C", "begins": start, "finishes": end},
        {"_op": None, "id": 3, "room": "D", "begins": start, "finishes": end},
    ]
    schema = pa.schema({
        "_op": pa.utf8(), "id": pa.int64(), "room": pa.utf8(), "begins": pa.timestamp("us", "UTC"), "finishes": pa.timestamp("us", "UTC"),
    })
    if media == JSONL:
        body = "\n".join(json.dumps({name: value for name, value in row.items() if value is not None}) for row in rows).encode()
    elif media == CSV:
        head = "_op,id,room,begins,finishes"
        span = f"{day(1)},{day(2)}"
        body = "\n".join([head, "delete,1,,,", f"insert,4,B,{span}", f"upsert,2,C,{span}", f",3,D,{span}"]).encode()
    else:
        body = talk.encode_table(pa.Table.from_pylist(rows, schema), media)
    assert talk.ok(post(case, media, body, case.m))["applied"] == 4
    assert {row["id"]: row["room"] for row in relation_rows(case, case.m)} == {2: "C", 3: "D", 4: "B"}


def test_truncate(case: Case) -> None:
    case.define()
    talk.ok(talk.send(case.client, [case.booking(1, "A", 1, 5), case.booking(2, "A", 1, 5)]))
    done = talk.ok(talk.send(case.client, [case.booking(3, "A", 1, 5), {"relation": case.b, "op": "truncate"}, case.booking(4, "A", 1, 5)]))
    assert done["applied"] == 3 and [row["id"] for row in relation_rows(case, case.b)] == [4]
    assert talk.ok(post(case, CSV, "_op,id,room,starts,ends,status\ntruncate,,,,,\n", case.b))["applied"] == 1
    assert relation_rows(case, case.b) == []
    talk.ok(post(case, JSONL, b'{"_op": "truncate"}', case.b))


# bad rows and bad bodies

GOOD: dict[str, Any] = {"id": 1, "room": "A", "starts": day(1), "ends": day(2), "status": "s"}
BAD_ROWS: dict[str, tuple[dict[str, Any], str | None]] = {
    "a wrong type": ({**GOOD, "room": 5}, "room"),
    "text for a number": ({**GOOD, "id": "x"}, "id"),
    "a fraction for an integer": ({**GOOD, "id": 1.5}, "id"),
    "beyond 64 bits": ({**GOOD, "id": 2**63}, "id"),
    "no key": ({name: value for name, value in GOOD.items() if name != "id"}, "id"),
    "null key": ({**GOOD, "id": None}, "id"),
    "null where none may be": ({**GOOD, "room": None}, "room"),
    "an absent column": ({name: value for name, value in GOOD.items() if name != "room"}, "room"),
    "an unknown column": ({**GOOD, "colour": "red"}, "colour"),
    "an instant without offset": ({**GOOD, "starts": "2026-01-01T12:00:00"}, "starts"),
    "no instant": ({**GOOD, "starts": "tomorrow"}, "starts"),
    "start after end": ({**GOOD, "ends": "2025-01-01T00:00:00Z"}, None),
    "start at end, half open": ({**GOOD, "ends": day(1)}, None),
}


@pytest.mark.parametrize(("row", "column"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_bad_rows(case: Case, row: dict[str, Any], column: str | None) -> None:
    case.define()
    for answer in (
        talk.send(case.client, [case.booking(9, "A", 1, 5), {"relation": case.b, "op": "upsert", "row": row}]),
        post(case, JSONL, json.dumps({**GOOD, "id": 9}) + "\n" + json.dumps(row), case.b),
    ):
        emitted = talk.problem(answer, 422, "bad-rows")
        assert emitted["error_count"] == 1 and emitted["errors"][0]["index"] == 1 and emitted["errors"][0]["reason"]
        assert column is None or emitted["errors"][0]["column"] == column, emitted
    assert relation_rows(case, case.b) == []


FLOATS = declared("k:float64, a:float64?, b:float64", "k", x="a b []")


@pytest.mark.parametrize(("row", "column"), [
    ({"k": "NaN", "a": 1, "b": 2}, "k"), ({"k": 1, "a": "NaN", "b": 2}, "a"), ({"k": 1, "a": 1, "b": "NaN"}, "b"),
    ({"k": 1, "a": 2, "b": 1}, None),
    ({"k": "Infinity", "a": 1, "b": 2}, "k"), ({"k": 1, "a": 1, "b": "Infinity"}, "b"),
], ids=str)
def test_bad_floats(case: Case, row: dict[str, Any], column: str | None) -> None:
    talk.define(case.client, case.b, FLOATS)
    emitted = talk.problem(talk.send(case.client, [{"relation": case.b, "op": "upsert", "row": row}]), 422, "bad-rows")
    assert column is None or emitted["errors"][0]["column"] == column
    talk.ok(talk.send(case.client, [{"relation": case.b, "op": "upsert", "row": {"k": 0.0, "a": -0.0, "b": 0.0}}]))
    talk.ok(talk.send(case.client, [{"relation": case.b, "op": "upsert", "row": {"k": -0.0, "a": None, "b": 1.7976931348623157e308}}]))
    assert len(relation_rows(case, case.b)) == 1, "-0.0 = 0.0"


@pytest.mark.parametrize("bounds", ["[]", "[)", "(]", "()"])
def test_edges_of_the_encoding(case: Case, bounds: str) -> None:
    definition = {
        "columns": [{"name": name, "type": "int64"} for name in ("k", "a", "b")],
        "key": ["k"],
        "intervals": {"x": {"start": "a", "end": "b", "bounds": bounds}},
    }
    talk.define(case.client, case.b, definition)

    def send(a: int, b: int) -> Any:
        return talk.send(case.client, [{"relation": case.b, "op": "upsert", "row": {"k": 1, "a": a, "b": b}}])

    talk.problem(send(-(2**63), 0), 422, "bad-rows") if bounds[0] == "[" else talk.ok(send(-(2**63), 0))
    talk.problem(send(0, 2**63 - 1), 422, "bad-rows") if bounds[1] == "]" else talk.ok(send(0, 2**63 - 1))
    talk.ok(send(-(2**63) + 1, 2**63 - 2))
    talk.ok(send(3, 3)) if bounds == "[]" else talk.problem(send(3, 3), 422, "bad-rows")
    talk.problem(send(3, 4), 422, "bad-rows") if bounds == "()" else talk.ok(send(3, 4))


MALFORMED: dict[str, tuple[str, bytes, bool]] = {  # media type, body, of one relation
    "json cut off": (JSON, b'{"changes": [', False),
    "json of another form": (JSON, b"[1, 2]", False),
    "json without changes": (JSON, b"{}", False),
    "json, changes no list": (JSON, b'{"changes": {}}', False),
    "jsonl cut off": (JSONL, b'{"id": 1', True),
    "jsonl, second line": (JSONL, b'{"_op": "truncate"}\nnonsense\n', True),
    "not UTF-8": (JSONL, b'{"room": "\xff"}', True),
    "csv, a line too long": (CSV, b"id,room\n1,A,3\n", True),
    "csv, column twice": (CSV, b"id,id\n1,1\n", True),
    "arrow garbage": (ARROW, b"not an arrow stream", True),
    "arrow without relation": (ARROW, talk.arrow_bytes(pa.table({"id": [1]})), False),
    "parquet garbage": (PARQUET, b"PAR1 not a parquet file", True),
    "debezium cut off": (DEBEZIUM, b'{"op": "c", "after": {', True),
}


@pytest.mark.parametrize(("media", "body", "of_relation"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_bodies(case: Case, media: str, body: bytes, of_relation: bool) -> None:
    case.define()
    before = case.version()
    talk.problem(post(case, media, body, case.b if of_relation else None), 400, "malformed-body")
    assert case.version() == before


def test_a_cut_arrow_stream_is_malformed(case: Case) -> None:
    case.define()
    body = talk.arrow_bytes(pa.table({"id": list(range(1000))}))
    for size in (len(body) // 2, len(body) - 300):
        talk.problem(post(case, ARROW, body[:size], case.b), 400, "malformed-body")


def test_malformed_tells_the_line(case: Case) -> None:
    case.define()
    lines = [json.dumps({**GOOD, "id": number}) for number in range(5)]
    emitted = talk.problem(post(case, JSONL, "\n".join([*lines[:3], "{oops", *lines[3:]]), case.b), 400, "malformed-body")
    assert "4" in emitted["detail"] and relation_rows(case, case.b) == []


@pytest.mark.parametrize(("path", "media"), [
    ("/v1/changes", CSV), ("/v1/changes", PARQUET), ("/v1/changes", DEBEZIUM), ("{b}", "text/plain"), ("{b}", ""),
])
def test_unsupported_media_types(case: Case, path: str, media: str) -> None:
    case.define()
    url = f"/v1/relations/{case.b}/changes" if path == "{b}" else path
    talk.problem(case.client.post(url, content=b"x", headers={"Content-Type": media} if media else {}), 415, "unsupported-media-type")


# Debezium


def debezium(case: Case, *lines: Any, relation: str | None = None) -> Any:
    return post(case, DEBEZIUM, "\n".join(json.dumps(line) for line in lines), relation or case.m)


def job(number: int, room: str = "A", **more: Any) -> dict[str, Any]:
    return {"id": number, "room": room, "begins": 1767225600_000_000, "finishes": 1767312000_000_000, **more}


def test_debezium_ops(case: Case) -> None:
    case.define()
    done = talk.ok(debezium(
        case,
        {"op": "r", "before": None, "after": job(1)},
        {"op": "c", "before": None, "after": job(2, colour="added upstream")},
        {"op": "u", "before": None, "after": job(1, "B")},
        {"op": "c", "after": job(3)},
        {"op": "d", "before": {"id": 3, "room": "", "begins": 0, "finishes": 0}, "after": None},
        None,
        {"op": "m", "message": {"prefix": "x", "content": "AA=="}},
        {"key": {"id": 2}, "value": {"op": "d", "before": None, "after": None}},
        {"key": {"id": 2}, "value": None},
        {"schema": {}, "payload": {"op": "c", "before": None, "after": job(4, "D")}},
    ))
    assert (done["applied"], done["ignored"], done["skipped_count"]) == (7, 3, 0)
    assert {row["id"]: row["room"] for row in relation_rows(case, case.m)} == {1: "B", 4: "D"}
    talk.ok(debezium(case, {"op": "t"}, {"op": "c", "after": job(9)}))
    assert [row["id"] for row in relation_rows(case, case.m)] == [9]


def test_debezium_delete_without_key(case: Case) -> None:
    case.define()
    emitted = talk.problem(debezium(case, {"op": "d", "before": None, "after": None}), 422, "bad-rows")
    assert emitted["errors"][0]["reason"] == "no-key"


def test_debezium_the_kafka_key_wins(case: Case) -> None:
    case.define()
    talk.ok(debezium(case, {"op": "c", "after": job(1)}, {"op": "c", "after": job(2)}))
    talk.ok(debezium(case, {"key": {"id": 1}, "value": {"op": "d", "before": {"id": 2}, "after": None}}))
    assert [row["id"] for row in relation_rows(case, case.m)] == [2]


def test_debezium_semantic_types(case: Case) -> None:
    relation = everything(case)
    fields = [
        {"field": "k", "type": "int64"}, {"field": "at", "type": "int64", "name": "io.debezium.time.Timestamp"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}, {"field": "op", "type": "string"}]}
    with_schema = {"schema": schema, "payload": {"op": "c", "before": None, "after": {"k": 1, "at": 1767268800_000, "day": 20454}}}
    without = {"op": "c", "before": None, "after": {"k": 2, "at": 1767268800_000_000, "day": 20454}}
    talk.ok(debezium(case, with_schema, without, relation=relation))
    assert [(row["at"], row["day"]) for row in relation_rows(case, relation)] == [("2026-01-01T12:00:00Z", "2026-01-01")] * 2
