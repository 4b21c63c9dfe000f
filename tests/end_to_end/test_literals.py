"""A date without hyphens, and microseconds as text, at each door of a service. All types and spellings: `test_doors`."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.end_to_end import talk
from tests.relations import declared

EVENTS = declared("id:int64, t:timestamp", "t", at="t")
TIMES = ["2023-06-01T00:00:00Z", "2024-01-01T00:00:00Z", "2024-01-02T12:00:00Z"]
MICROS = "1704067200000000"  # the second of them
SELECT = "SELECT e.id AS id FROM events e WHERE"


@pytest.fixture
def events(client: httpx.Client) -> Any:
    talk.define(client, "events", EVENTS)
    rows = [{"relation": "events", "op": "upsert", "row": {"id": number, "t": time}} for number, time in enumerate(TIMES)]
    talk.ok(talk.send(client, rows))
    yield client
    talk.drop(client, relations=["events"])


def _rows(client: httpx.Client, **parameters: str) -> httpx.Response:
    return client.get("/v1/relations/events/rows", params=parameters, headers={"Accept": talk.JSON})


def _ids(answer: httpx.Response) -> list[int]:
    return sorted(row["id"] for row in talk.ok(answer)["rows"])


def _definitions(text: str) -> list[dict[str, Any]]:
    where = [{"column": "e.t", "op": ">=", "value": text}]
    return [
        {"sql": f"{SELECT} e.t >= '{text}'"},
        {"sql": f"{SELECT} e.t >= TIMESTAMP '{text}'"},
        {"sql": f"{SELECT} e.t >= '{text}'::timestamptz"},
        {"sql": f"SELECT e.id AS id, e.t >= '{text}' AS late FROM events e"},
        {"from": {"e": "events"}, "where": where, "select": ["e.id as id"]},
    ]


def _delete(client: httpx.Client, value: Any) -> httpx.Response:
    return client.post("/v1/relations/events/delete", json={"where": [{"column": "t", "op": ">=", "value": value}]})


def _load(client: httpx.Client, text: str) -> httpx.Response:
    return client.post("/v1/relations/events/changes", content=f"id,t\n9,{text}\n", headers={"Content-Type": "text/csv"})


def test_a_date_without_hyphens(events: httpx.Client) -> None:
    for definition in _definitions("20240101"):
        talk.view(events, "late", definition)
        rows = talk.ok(events.get("/v1/views/late/rows", headers={"Accept": talk.JSON}))["rows"]
        talk.drop(events, ["late"])
        assert sorted(row["id"] for row in rows if row.get("late", True)) == [1, 2], definition
    assert _ids(_rows(events, overlaps="20240101,")) == [1, 2]
    assert _ids(_rows(events, **{"where.t": "20240101"})) == [1]
    talk.ok(_load(events, "20240103T120000Z"))
    assert talk.ok(_delete(events, "20240101"))["applied"] == 3
    assert _ids(_rows(events)) == [0]


def test_microseconds_are_no_text(events: httpx.Client) -> None:
    for definition in _definitions(MICROS):
        emitted = talk.problem(events.post("/v1/explain", json=definition), 422, "bad-query" if "sql" in definition else "bad-definition")
        assert f'got the text "{MICROS}"' in emitted["detail"]
    for parameters in ({"overlaps": f"{MICROS},"}, {"overlaps.at": f",{MICROS}"}, {"where.t": MICROS}):
        talk.problem(_rows(events, **parameters), 400, "bad-parameter")
    talk.problem(_delete(events, MICROS), 422, "bad-definition")
    talk.problem(_load(events, MICROS), 422, "bad-rows")
    talk.problem(talk.send(events, [{"relation": "events", "op": "upsert", "row": {"id": 9, "t": MICROS}}]), 422, "bad-rows")
    assert _ids(_rows(events)) == [0, 1, 2]
    talk.ok(talk.send(events, [{"relation": "events", "op": "upsert", "row": {"id": 9, "t": int(MICROS)}}]))
    assert talk.ok(_delete(events, int(MICROS)))["applied"] == 2
    assert _ids(_rows(events)) == [0]
