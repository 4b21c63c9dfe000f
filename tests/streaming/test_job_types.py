"""UUIDs, times of day, JSON and bytes through Kafka and Spark: as Debezium and as plain JSON in, and out of a view."""

from __future__ import annotations

import secrets
from typing import Any

import orjson

from streaming.kafka_broker import Broker
from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess
from tests.streaming.out_job import Believer
from tests.streaming.stream_job import Jobs, Topics
from tests.streaming.test_job_both import with_out

ID = "3f2504e0-4f89-41d3-9a0c-0305e82c330"
SHIFTS = declared("id:uuid, begins:time, note:json?, badge:bytes?, state:string")
D = "io.debezium."
FIELDS = [
    {"field": "id", "type": "string", "name": D + "data.Uuid"}, {"field": "begins", "type": "int64", "name": D + "time.NanoTime"},
    {"field": "note", "type": "string", "name": D + "data.Json"}, {"field": "badge", "type": "bytes"},
    {"field": "state", "type": "string", "name": D + "data.Enum", "parameters": {"allowed": "open,done"}},
]  # fmt: skip
SCHEMA = {"type": "struct", "fields": [{"field": "before", "fields": FIELDS}, {"field": "after", "fields": FIELDS}]}


def record(number: int, op: str, nanos: int, badge: str | None) -> tuple[Any, Any]:
    key = {"schema": {"type": "struct", "fields": FIELDS[:1]}, "payload": {"id": f"{ID}{number}".upper()}}
    row = {**key["payload"], "begins": nanos, "note": '{"n": 1.50}', "badge": badge, "state": "open"}  # type: ignore[dict-item]
    return key, {"schema": SCHEMA, "payload": {"op": op, "before": None, "after": None if op == "d" else row}}


def test_in_and_out(shared_server: ServerProcess, broker: Broker, topics: Topics, job_of: Jobs) -> None:
    mark = secrets.token_hex(4)
    one, two, dead, out = (f"{name}-{mark}" for name in ("debezium", "json", "dead", "out"))
    topics.make(one, two, dead, out)
    client = shared_server.client()
    talk.define(client, "shifts", SHIFTS)
    talk.view(
        client, "shown", "SELECT s.id AS id, s.begins AS begins, s.note AS note, s.badge AS badge FROM shifts s WHERE s.begins < '20:00'"
    )
    hour = 3_600_000_000_000
    topics.put(
        one, [record(1, "c", 6 * hour, "AP8="), record(2, "r", 7 * hour + 1_000, None), record(3, "c", 8 * hour, ""), record(3, "d", 0, "")]
    )
    topics.put(one, [record(4, "c", 1, "AP8="), record(5, "c", 21 * hour, "AP8=")])
    row = {"id": f"{ID}6", "begins": "09:00", "note": "[]", "badge": "\\x01", "state": "done"}
    topics.put(two, [(None, row), (None, {**row, "id": f"{ID}7", "note": {"a": 1}}), (None, {**row, "id": f"{ID}8"})])
    topics.put(two, [(None, {"_op": "delete", "id": f"{{{ID}8}}".upper()})])
    with with_out(job_of(shared_server.url, (one, "shifts"), (two, "shifts", "json"), dead_letters=dead), "shown", out) as job:
        reader = Believer(broker.address, out)
        expected = [
            {"id": f"{ID}1", "begins": "06:00:00", "note": '{"n": 1.50}', "badge": "AP8="},
            {"id": f"{ID}2", "begins": "07:00:00.000001", "note": '{"n": 1.50}', "badge": None},
            {"id": f"{ID}6", "begins": "09:00:00", "note": "[]", "badge": "AQ=="},
        ]
        job.wait_for_records(10)
        reader.believe_until(expected)
        reader.close()
        assert job.stop() == 0
    assert {orjson.dumps({"s": {"id": row["id"]}}) for row in expected} <= {key for key, _ in reader.messages}
    errors = sorted(dict(letter.headers() or [])["livejoin.error"].decode() for letter in topics.read(dead, 2))
    assert errors == [
        "begins: 1 nanoseconds are not a whole number of microseconds", "note: got an object, expected JSON as text",
    ]  # fmt: skip
    kept = talk.ok(client.get("/v1/relations/shifts/rows", headers={"Accept": talk.JSON}))["rows"]
    assert {(row["id"][-1], row["state"]) for row in kept} == {("1", "open"), ("2", "open"), ("5", "open"), ("6", "done")}
    talk.drop(client, ["shown"], ["shifts"])
