"""Expressions in SELECT over HTTP: rows in JSON and Arrow, changes, optional relations, restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from tests.end_to_end.talk import ARROW, define, ok, problem, view
from tests.relations import declared
from tests.server_process import ServerProcess

ITEMS: dict[str, Any] = declared("id:int64, room:string, price:decimal(10,2), nights:int64, note:string?")
ROOMS: dict[str, Any] = declared("room:string, info:string?", "room")
SQL = (
    "SELECT i.id AS id, i.price * i.nights AS total, lower(i.room) || coalesce('-' || i.note, '') AS label, "
    "coalesce(r.info ->> 'floor', 'none') AS floor, CASE WHEN i.nights > 3 THEN 'long' END AS kind "
    "FROM items i LEFT JOIN rooms r ON i.room = r.room"
)
JSON = {
    "from": {"i": "items"},
    "left": [{"from": {"r": "rooms"}, "join": [{"equal": ["i.room", "r.room"]}]}],
    "select": [
        "i.id as id",
        {"expression": "i.price * i.nights", "as": "total"},
        {"expression": "lower(i.room) || coalesce('-' || i.note, '')", "as": "label"},
        {"expression": "coalesce(r.info ->> 'floor', 'none')", "as": "floor"},
        {"expression": "CASE WHEN i.nights > 3 THEN 'long' END", "as": "kind"},
    ],
}


def _send(client: httpx.Client, relation: str, *rows: dict[str, Any]) -> None:
    ok(client.post("/v1/changes", json={"changes": [{"relation": relation, "op": "upsert", "row": row} for row in rows]}))


def _rows(client: httpx.Client) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in map(json.loads, client.get("/v1/views/v/rows").text.splitlines())}


def _now(client: httpx.Client) -> str:
    return str(json.loads(client.get("/v1/views/v/changes", params={"wait": 0}).text.splitlines()[-1])["token"])


def _emitted(client: httpx.Client, token: str) -> tuple[list[dict[str, Any]], str]:
    records = [json.loads(line) for line in client.get("/v1/views/v/changes", params={"since": token, "wait": 0}).text.splitlines()]
    return [one for one in records if one["op"] != "progress"], records[-1]["token"]


def test_expressions(tmp_path: Path) -> None:
    item = {"id": 1, "room": "A", "price": "12.50", "nights": 2, "note": None}
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        define(client, "items", ITEMS)
        define(client, "rooms", ROOMS)
        view(client, "v", SQL, 300)
        assert client.put("/v1/views/v", json=JSON).status_code == 200
        other = json.loads(json.dumps(JSON).replace("> 3", "> 4"))
        problem(client.put("/v1/views/v", json=other), 409, "definition-differs")
        _, token = _emitted(client, _now(client))
        _send(client, "items", item, item | {"id": 2, "room": "B", "nights": 5, "note": "VIP"})
        first = {"id": 1, "total": "25.00", "label": "a", "floor": "none", "kind": None}
        second = {"id": 2, "total": "62.50", "label": "b-VIP", "floor": "none", "kind": "long"}
        assert _rows(client) == {1: first, 2: second}
        emitted, token = _emitted(client, token)
        assert [(one["op"], one["row"]) for one in emitted] == [("insert", first), ("insert", second)]

        _send(client, "rooms", {"room": "A", "info": '{"floor": 3}'})
        emitted, token = _emitted(client, token)
        assert [(one["op"], one["row"]["floor"]) for one in emitted] == [("delete", "none"), ("insert", "3")]
        _send(client, "rooms", {"room": "A", "info": '{"wing": "north", "floor": 3}'})  # the row does not differ
        emitted, token = _emitted(client, token)
        assert emitted == []
        _send(client, "items", item | {"nights": 3})
        emitted, token = _emitted(client, token)
        assert [(one["op"], one["row"]["total"]) for one in emitted] == [("delete", "25.00"), ("insert", "37.50")]

        texts = {
            "cross": "SELECT i.id AS i, r.room AS r, i.note || r.info AS x FROM items i CROSS JOIN rooms r",
            "other": "SELECT i.id AS i, coalesce(r.info, i.note) AS x FROM items i LEFT JOIN rooms r ON i.room = r.room",
            "matched": "SELECT i.id AS i, coalesce(r.info, i.note) AS x FROM items i LEFT JOIN rooms r ON i.room < r.room",
        }
        for name, sql in texts.items():
            view(client, name, sql, 300)
        _send(client, "items", item | {"id": 2, "room": "B", "nights": 5, "note": "new"})  # the computed columns alone read it
        for name in texts:
            shown = [json.loads(line)["x"] for line in client.get(f"/v1/views/{name}/rows").text.splitlines()]
            assert any(text is not None and text.startswith("new") for text in shown), (name, shown)
            changes = client.get(f"/v1/views/{name}/changes", params={"snapshot": True, "wait": 0}).text.splitlines()
            token = json.loads(changes[-1])["token"]
            _send(client, "items", item | {"id": 2, "room": "B", "nights": 5, "note": "new" + name})
            answer = client.get(f"/v1/views/{name}/changes", params={"since": token, "wait": 0})
            records = [json.loads(line) for line in answer.text.splitlines()]
            assert [one["op"] for one in records] == ["delete", "insert", "progress"], (name, records)
            assert records[1]["row"]["x"].startswith("new" + name)
            _send(client, "items", item | {"id": 2, "room": "B", "nights": 5, "note": "new"})
        _, token = _emitted(client, _now(client))

        table = pa.ipc.open_stream(client.get("/v1/views/v/rows", headers={"Accept": ARROW}).content).read_all()
        assert table.schema == pa.schema(
            [
                pa.field("id", pa.int64(), False), pa.field("total", pa.decimal128(30, 2), False), pa.field("label", pa.utf8()),
                pa.field("floor", pa.utf8(), False), pa.field("kind", pa.utf8()),
            ]
        )  # fmt: skip
        before = _rows(client)
        assert server.stop() == 0
        server.start()
        assert _rows(client) == before and client.put("/v1/views/v", json={"sql": SQL}).status_code == 200
        _send(client, "rooms", {"room": "A", "info": None})
        emitted, _ = _emitted(client, token)
        assert [(one["op"], one["row"]["floor"]) for one in emitted] == [("delete", "3"), ("insert", "none")]
        refused = problem(client.post("/v1/explain", json={"sql": "SELECT ln(i.nights) AS x FROM items i"}), 422, "unsupported-query")
        assert "compute the rest when you read the rows" in refused["detail"]
