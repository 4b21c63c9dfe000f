"""A number beyond float64, anywhere in a line or change, makes that one bad, not the body; JSON lines may begin with a byte order mark."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from livejoin.wire.batch import Batch
from livejoin.wire.debezium import DebeziumDecoder
from livejoin.wire.decode import decode_rows
from livejoin.wire.errors import BadParameter, MalformedBody, UnknownRelation
from livejoin.wire.json import JsonDecoder
from tests.service.wire.bookings import BOOKINGS, changes, definitions, faults, relation_changes, rows

JSONL, DEBEZIUM = "application/jsonl", "application/vnd.debezium+jsonl"
ROW = {"id": 1, "room": "A", "starts": "2026-01-01T12:00:00Z", "ends": None, "note": "\U0001f600 1e999"}
HUGE = ["1e999", "-1e999", "1E+400", "1.5e309", "0.1e000310", "9" * 310, "-" + "9" * 310 + ".5", "9" * 305 + "e9"]
SMALL = ["1e308", "-1.7e308", "1e-999", "9" * 308, "123456789012345678901234567890", "0e999"]
# Where a number can be: in a row (columns of all types, an unknown one, nested), or beside it in a change or an envelope.
IN_ROW = [
    *({**ROW, name: "@"} for name in [*ROW, "unused"]),
    {**ROW, "unused": [{"deep": ["@"]}]},
    {**ROW, "note": {"deep": "@"}},
]
BESIDE = [{"ts": "@"}, {"source": {"lsn": ["@"]}}]


def text_of(data: Any, number: str) -> bytes:
    return json.dumps(data, ensure_ascii=False).replace('"@"', number).encode()


def around(wrap: Any, bad: bytes, separator: bytes) -> bytes:
    """Two good lines on either side."""
    good = [json.dumps(wrap({**ROW, "id": number})).encode() for number in (7, 8)]
    return separator.join([good[0], bad, good[1]])


def only_the_middle_is_bad(batch: Batch, number: str) -> None:
    assert [row[0] for _, _, row in rows(batch)] == [7, 8]
    ((at, _),) = faults(batch)
    assert (at, batch.sent, batch.error_count) == (1, 3, 1)
    shown = number if len(number) < 200 else number[:200] + "…"
    assert batch.errors[0].reason == f"got {shown}, which float64 cannot hold"


@pytest.mark.parametrize("number", HUGE)
def test_only_its_line_is_bad(number: str) -> None:
    def change(row: Any) -> dict[str, Any]:
        return {"relation": "bookings", "op": "upsert", "row": row}

    def envelope(row: Any) -> dict[str, Any]:
        return {"op": "c", "before": None, "after": row}

    for row in IN_ROW:
        bad = text_of(change(row), number)
        only_the_middle_is_bad(changes("application/json", b'{"changes":[%b]}' % around(change, bad, b",")), number)
        only_the_middle_is_bad(changes(JSONL, around(change, bad, b"\n")), number)
        only_the_middle_is_bad(relation_changes(JSONL, around(dict, text_of(row, number), b"\n")), number)
        wrapped = {"schema": {}, "payload": envelope(row)}
        for value in (envelope(row), wrapped, {"key": {"id": 1}, "value": envelope(row)}, {"key": row, "value": None}):
            only_the_middle_is_bad(relation_changes(DEBEZIUM, around(envelope, text_of(value, number), b"\n")), number)
    for more in BESIDE:
        bad = text_of({**change(ROW), **more}, number)
        only_the_middle_is_bad(changes("application/json", b'{"changes":[%b]}' % around(change, bad, b",")), number)
        only_the_middle_is_bad(changes(JSONL, around(change, bad, b"\n")), number)
        only_the_middle_is_bad(relation_changes(DEBEZIUM, around(envelope, text_of({**envelope(ROW), **more}, number), b"\n")), number)
    for op in ("delete", "truncate"):
        bad = text_of({"_op": op, "id": 1, "note": "@"}, number)
        only_the_middle_is_bad(relation_changes(JSONL, around(dict, bad, b"\n")), number)


@pytest.mark.parametrize("number", HUGE[:3])
def test_a_record_of_kafka_tells_the_number(number: str) -> None:
    for decoder, value in (
        (JsonDecoder("bookings", BOOKINGS), {**ROW, "unused": "@"}),
        (DebeziumDecoder("bookings", BOOKINGS), {"op": "c", "after": {**ROW, "unused": "@"}}),
        (DebeziumDecoder("bookings", BOOKINGS), {"schema": {}, "payload": {"op": "c", "after": {**ROW, "unused": "@"}}}),
    ):
        values = [text_of(value, "1"), text_of(value, number), number.encode()]
        errors = decoder.decode([None] * 3, values).errors[-2:]
        assert errors[0] == (1, "unused", f"got {number}, which float64 cannot hold")
        assert errors[1].column is None and "the value is not JSON" in errors[1].reason


@pytest.mark.parametrize("number", HUGE[:3])
def test_a_replacement_keeps_the_row_of_a_bad_line(number: str) -> None:
    """Its key is told, whichever column is bad."""
    for name in ("room", "note", "unused"):
        batch = decode_rows(JSONL, around(dict, text_of({**ROW, name: "@"}, number), b"\n"), "bookings", definitions)
        assert faults(batch) == [(1, name)] and batch.bad_keys[0].to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("number", SMALL)
def test_numbers_that_float64_holds_are_no_faults(number: str) -> None:
    body = b"\n".join(
        [text_of({"op": "c", "after": {**ROW, "unused": "@"}}, number), text_of({"op": "c", "after": {**ROW, "id": 2}}, number)]
    )
    assert len(rows(relation_changes(DEBEZIUM, body))) == 2


@pytest.mark.parametrize("number", ["1e999", "9" * 400])
def test_other_faults_beside_it_stay_faults_of_the_body(number: str) -> None:
    broken = [
        b"{,}",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": "\\ud800"}',
        b'{"\\udc00": 1}',
        b'{"a": 01}',
        b"[1e999]",
        b"1e999",
    ]
    broken += [b'{"a": "\x01"}', b'{"a": "\xff"}', b'{"a": 1} 2', b'{"a": %b}' % (b"[" * 2000 + b"]" * 2000), b'{"a": 1e999']
    for line in broken:
        line = line.replace(b'{"', b'{"bad": %b, "' % number.encode(), 1)
        for kind in (JSONL, DEBEZIUM):
            with pytest.raises(MalformedBody) as fault:
                relation_changes(kind, b"\n".join([orjson.dumps({"op": "m"}) if kind == DEBEZIUM else orjson.dumps(ROW), line]))
            assert fault.value.line == 2
        with pytest.raises(MalformedBody):
            changes("application/json", b'{"changes":[%b]}' % line)
    for head in (b'"epoch"', b'"source"', b'"reset"'):
        with pytest.raises(BadParameter, match=number[:60]):
            changes("application/json", b'{%b:%b,"changes":[]}' % (head, number.encode()))
    with pytest.raises(UnknownRelation):
        changes(JSONL, b'{"relation":"none","row":{"a":%b}}' % number.encode())


@pytest.mark.parametrize("kind", [JSONL, "application/x-ndjson", DEBEZIUM])
def test_a_byte_order_mark_before_lines(kind: str) -> None:
    line = orjson.dumps({"op": "c", "after": ROW} if kind == DEBEZIUM else ROW)
    bom = b"\xef\xbb\xbf"
    assert len(rows(relation_changes(kind, bom + line + b"\n" + line))) == 2
    assert relation_changes(kind, bom).sent == relation_changes(kind, bom + b"\r\n").sent == 0
    for body in (line + b"\n" + bom + line, bom + bom + line):
        with pytest.raises(MalformedBody):
            relation_changes(kind, body)
    if kind != DEBEZIUM:
        assert len(rows(changes(kind, bom + orjson.dumps({"relation": "bookings", "row": ROW})))) == 1
