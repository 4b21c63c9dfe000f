"""Windows and look-ups on the rows of relations, compared with a naive filter over all rows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.end_to_end.talk import ARROW, CSV, JSON, define, drop, ok, problem
from tests.relations import declared
from tests.server_process import ServerProcess

STAYS: dict[str, Any] = declared(
    "id:int64, room:string, starts:int64?, ends:int64?, seen:float64?, day:date", "id, room", stay="starts ends", at="seen", on="day"
)
Key = tuple[int, str]


def _row(rng: random.Random, key: Key) -> dict[str, Any]:
    start = rng.choice((None, rng.randrange(40)))
    end = rng.choice((None, (start or 0) + rng.randrange(1, 9)))
    day = f"2026-01-{rng.randrange(1, 20):02}"
    return {"id": key[0], "room": key[1], "starts": start, "ends": end, "seen": rng.choice((None, rng.randrange(9) / 2)), "day": day}


def _send(client: httpx.Client, rows: list[dict[str, Any]]) -> None:
    ok(client.post("/v1/changes", json={"changes": [{"relation": "stays", "op": "upsert", "row": row} for row in rows]}))


def _get(client: httpx.Client, **parameters: Any) -> list[Key]:
    answer = client.get("/v1/relations/stays/rows", params=parameters)
    assert answer.status_code == 200, answer.text
    return [(row["id"], row["room"]) for row in map(json.loads, answer.text.splitlines())]


def _stays(row: dict[str, Any], low: int | None, high: int | None) -> bool:
    """Evaluate [start, end), where a null end is unbounded, in a closed window."""
    return (low is None or row["ends"] is None or row["ends"] > low) and (high is None or row["starts"] is None or row["starts"] <= high)


@pytest.fixture
def rows(server: ServerProcess) -> Iterator[dict[Key, dict[str, Any]]]:
    seed = 3
    print(f"seed {seed}")
    rng, client = random.Random(seed), server.client()
    define(client, "stays", STAYS)
    rows = {(number, room): _row(rng, (number, room)) for number in range(150) for room in ("A", "ä b")}
    _send(client, list(rows.values()))
    yield rows
    drop(client, relations=["stays"])


def _text(value: float | None) -> str:
    return "" if value is None else str(value)


def test_windows(server: ServerProcess, rows: dict[Key, dict[str, Any]]) -> None:
    rng, client = random.Random(8), server.client()
    for step in range(40):
        if step % 4 == 0:
            changed = {key: _row(rng, key) for key in rng.sample(sorted(rows), 10)}
            rows |= changed
            _send(client, list(changed.values()))
        low, high = sorted((rng.randrange(45), rng.randrange(45)))
        some, more = (None if rng.random() < 0.2 else low), (None if rng.random() < 0.2 else high)
        found = _get(client, **{"overlaps.stay": f"{_text(some)},{_text(more)}"})
        assert len(found) == len(set(found)) and set(found) == {key for key, row in rows.items() if _stays(row, some, more)}
        first, last = sorted((rng.randrange(9) / 2, rng.randrange(9) / 2))
        both = _get(client, **{"overlaps.stay": f"{_text(some)},{_text(more)}", "overlaps.at": f"{first},{last}"})
        wanted = {key for key, row in rows.items() if row["seen"] is not None and first <= row["seen"] <= last and _stays(row, some, more)}
        assert set(both) == wanted
    nulls = {key for key, row in rows.items() if row["seen"] is None}
    assert nulls and set(_get(client, **{"overlaps.at": ","})) == rows.keys() - nulls
    days = {key for key, row in rows.items() if row["day"] >= "2026-01-15"}
    assert set(_get(client, **{"overlaps.on": "2026-01-15,"})) == days


def test_look_ups_by_key(server: ServerProcess, rows: dict[Key, dict[str, Any]]) -> None:
    client = server.client()
    for number, room in [(0, "A"), (7, "ä b"), (149, "A")]:
        answer = client.get("/v1/relations/stays/rows", params={"where.id": number, "where.room": room}, headers={"Accept": JSON})
        assert ok(answer)["rows"] == [rows[number, room]]
        _send(client, [rows[number, room] | {"seen": 77.0}])
        assert ok(client.get(answer.url, headers={"Accept": JSON}))["rows"] == [rows[number, room] | {"seen": 77.0}]
    assert _get(client, **{"where.id": 150, "where.room": "A"}) == []
    row = rows[5, "A"] | {"starts": 10, "ends": 20}
    _send(client, [row])
    assert _get(client, **{"where.id": 5, "where.room": "A", "overlaps.stay": "19,30"}) == [(5, "A")]
    assert _get(client, **{"where.id": 5, "where.room": "A", "overlaps.stay": "20,30"}) == []


def test_pages_stay_at_their_version(server: ServerProcess, rows: dict[Key, dict[str, Any]]) -> None:
    client = server.client()
    window = {"overlaps.stay": "10,20"}
    expected = {key for key, row in rows.items() if _stays(row, 10, 20)}
    page = ok(client.get("/v1/relations/stays/rows", params={**window, "limit": 7}, headers={"Accept": JSON}))
    found, version = list(page["rows"]), page["version"]
    deleted = next(key for key in sorted(expected) if key not in {(row["id"], row["room"]) for row in found})
    _send(client, [rows[deleted] | {"starts": 30, "ends": 31}])
    while page["next"]:
        answer = client.get("/v1/relations/stays/rows", params={**window, "limit": 7, "cursor": page["next"]}, headers={"Accept": JSON})
        page = ok(answer)
        assert page["version"] == version and ('rel="next"' in answer.headers.get("Link", "")) == (page["next"] is not None)
        if page["next"]:
            again = {"version": version, "where.id": deleted[0], "where.room": deleted[1]}
            assert _get(client, **again) == [deleted]
        found += page["rows"]
    assert len(found) == len(expected) and {(row["id"], row["room"]) for row in found} == expected
    rows[deleted] |= {"starts": 30, "ends": 31}
    assert set(_get(client, **window)) == expected - {deleted}
    head = client.head("/v1/relations/stays/rows", params=window)
    assert head.status_code == 200 and int(head.headers["Livejoin-Version"]) > version and head.headers["Livejoin-Empty"] == "false"
    for media in (CSV, ARROW):
        assert client.get("/v1/relations/stays/rows", params=window, headers={"Accept": media}).status_code == 200
    nothing = client.get("/v1/relations/stays/rows", params={"overlaps.on": "2027-01-01,", "limit": 0})
    assert nothing.headers["Livejoin-Empty"] == "true"


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"overlaps": "1,2"}, "name the interval, overlaps.<interval>=lo,hi; stays declares stay, at, on"),
        ({"overlaps.nothing": "1,2"}, "stays has no interval nothing; it declares stay, at, on"),
        ({"overlaps.stay": "1"}, "must be lo,hi"),
        ({"overlaps.stay": "5,4"}, "the window is empty"),
        ({"overlaps.stay": "x,4"}, "overlaps.stay:"),
        ({"where.id": "1"}, "by its whole key, where.id, where.room, not by id"),
        ({"where.starts": "1"}, "not by starts"),
        ({"where.id": "x", "where.room": "A"}, "where.id:"),
        ({"where.b.id": "1"}, "not by b.id"),
        ({"version": "99999"}, None),
    ],
)
def test_refusals(server: ServerProcess, rows: dict[Key, dict[str, Any]], parameters: dict[str, str], says: str | None) -> None:
    answer = server.client().get("/v1/relations/stays/rows", params=parameters)
    if says is None:
        problem(answer, 410, "snapshot-expired")
    else:
        assert says in problem(answer, 400, "bad-parameter")["detail"]
