"""OR, NOT and LIKE in filters: in views, across changes and restarts, in both forms, and in deletes by condition."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import httpx

from tests.end_to_end.talk import define, ok, problem, view
from tests.relations import declared
from tests.server_process import ServerProcess

ROOMS: dict[str, Any] = declared("id:int64, room:string?, floor:int64?, starts:int64, ends:int64", stay="starts ends")
WHERE = "(a.room LIKE 'A\\_%' OR a.floor IN (1, 2) AND a.room NOT LIKE '%x') AND NOT (a.floor = 2 OR a.room = 'A_y')"
ENTRIES = [
    {
        "or": [
            {"column": "a.room", "op": "like", "value": "A\\_%"},
            {"and": [{"column": "a.floor", "op": "in", "value": [2, 1]}, {"not": {"column": "a.room", "op": "like", "value": "%x"}}]},
        ]
    },
    {"not": {"or": [{"column": "a.room", "op": "=", "value": "A_y"}, {"column": "a.floor", "op": "=", "value": 2}]}},
]
SQL = f"SELECT a.id AS i, b.id AS j FROM rooms a JOIN rooms b ON overlaps(a.stay, b.stay) WHERE {WHERE}"
JSON = {
    "from": {"a": "rooms", "b": "rooms"},
    "join": [{"overlaps": ["a.stay", "b.stay"]}],
    "where": ENTRIES,
    "select": ["a.id as i", "b.id as j"],
}


def _takes(row: dict[str, Any]) -> bool:
    """Evaluate in SQL's three-valued logic: None is unknown."""
    room, floor = row["room"], row["floor"]
    like = None if room is None else room.startswith("A_")
    few = None if floor is None else floor in (1, 2)
    other = None if room is None else not room.endswith("x")
    both = False if few is False or other is False else None if few is None or other is None else True
    first = True if like or both else None if like is None or both is None else False
    second = None if floor is None else floor == 2
    third = None if room is None else room == "A_y"
    negated = False if second or third else None if second is None or third is None else True
    return first is True and negated is True


def _expected(rows: dict[int, dict[str, Any]]) -> set[tuple[int, int]]:
    return {
        (a["id"], b["id"])
        for a in rows.values()
        for b in rows.values()
        if _takes(a) and a["starts"] < b["ends"] and b["starts"] < a["ends"]
    }


def _rows(client: httpx.Client) -> set[tuple[int, int]]:
    found = [json.loads(line) for line in client.get("/v1/views/v/rows").text.splitlines()]
    assert len(found) == len({tuple(row.values()) for row in found})
    return {(row["i"], row["j"]) for row in found}


def test_a_view_follows_its_rows(tmp_path: Path) -> None:
    seed = 5
    print(f"seed {seed}")
    rng, rows = random.Random(seed), dict[int, dict[str, Any]]()
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        define(client, "rooms", ROOMS)
        made = view(client, "v", SQL)
        assert any("a.room LIKE" in note and " OR " in note for note in made["plan"]["notes"]), made["plan"]
        view(client, "w", JSON)
        assert client.put("/v1/views/v", json=JSON).status_code == 200
        differs = json.loads(json.dumps(JSON).replace("%x", "%y"))
        problem(client.put("/v1/views/v", json=differs), 409, "definition-differs")
        followed = json.loads(client.get("/v1/views/v/changes", params={"wait": 0}).text.splitlines()[-1])
        token, emitted = followed["token"], set[tuple[int, int]]()
        for step in range(60):
            changes = []
            for _ in range(rng.choice((1, 1, 5))):
                key, start = rng.randrange(25), rng.randrange(20)
                room = rng.choice((None, "A_x", "A_y", "A_z", "Abx", "b", "x", "A_"))
                row = {"id": key, "room": room, "floor": rng.choice((None, 1, 2, 3)), "starts": start, "ends": start + rng.randrange(1, 9)}
                rows[key] = row
                changes.append({"relation": "rooms", "op": "upsert", "row": row})
            ok(client.post("/v1/changes", json={"changes": changes}))
            assert _rows(client) == _expected(rows)
            if step == 30:
                assert server.stop() == 0
                server.start()
                assert client.put("/v1/views/v", json=JSON).status_code == 200
                assert client.put("/v1/views/w", json={"sql": SQL}).status_code == 200
        for line in client.get("/v1/views/v/changes", params={"since": token, "wait": 0}).text.splitlines():
            record = json.loads(line)
            if record["op"] != "progress":
                pair = record["row"]["i"], record["row"]["j"]
                assert (pair in emitted) == (record["op"] == "delete")
                emitted ^= {pair}
        assert emitted == _expected(rows)
        without = [{"not": {"or": [{"column": "floor", "op": "is_null"}, {"column": "room", "op": "like", "value": "A\\_%"}]}}]
        known = {key: row["room"] for key, row in rows.items() if row["floor"] is not None and row["room"] is not None}
        deleted = [key for key, room in known.items() if not room.startswith("A_")]
        assert ok(client.post("/v1/relations/rooms/delete", json={"where": without}))["applied"] == len(deleted) > 0
        for key in deleted:
            del rows[key]
        assert _rows(client) == _expected(rows)
        many = {"or": [{"and": [{"column": "id", "op": ">", "value": number}]} for number in range(65)]}
        for where, says in ((many, "64 conditions are allowed"), ({"column": "id", "op": "like", "value": "1"}, "takes a string")):
            refused = client.post("/v1/relations/rooms/delete", json={"where": [where]})
            assert says in problem(refused, 422, "bad-definition")["detail"]
