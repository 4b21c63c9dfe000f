"""Views with groups over HTTP, compared with DuckDB: a hotel's occupancy and revenue, with followers, look-ups and restarts."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess

BOOKINGS = declared("id:int64, room:string?, price:float64?, fee:decimal(12,2), starts:timestamp, ends:timestamp?", stay="starts ends")
ROOMS = {"columns": [{"name": "room", "type": "string"}, {"name": "floor", "type": "int64"}], "key": ["room"]}
VIEWS = {  # in SQL that DuckDB accepts as well
    "arrivals": "SELECT date_trunc('day', starts) AS d, COUNT(*) AS n, COUNT(DISTINCT room) AS rooms FROM bookings GROUP BY d",
    "revenue": "SELECT room AS room, date_trunc('month', starts) AS m, SUM(price) AS s, AVG(price) AS a, MIN(price) AS lo, MAX(ends) AS hi "
    "FROM bookings GROUP BY room, m",
    "fees": "SELECT room AS room, SUM(fee) AS s, MAX(fee) AS hi FROM bookings GROUP BY room HAVING SUM(fee) > 60.00",
    "total": "SELECT COUNT(*) AS n, COUNT(price) AS p, MIN(id) AS i FROM bookings WHERE room <> 'B'",
    "floors": "SELECT r.floor AS f, COUNT(*) AS n, SUM(b.id) AS s FROM bookings b JOIN rooms r ON b.room = r.room GROUP BY f",
    "occupied": "SELECT r.room AS room, COUNT(b.id) AS n FROM rooms r LEFT JOIN bookings b ON b.room = r.room GROUP BY r.room",
    "averages": "SELECT room AS room, AVG(id) AS a, COUNT(id) AS n, SUM(id) AS s FROM bookings GROUP BY room",
    "all": "SELECT COUNT(*) AS n FROM bookings",
    "used": "SELECT DISTINCT room AS room, fee AS fee FROM bookings",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


def define(client: httpx.Client) -> None:
    assert client.put("/v1/relations/bookings", json=BOOKINGS).status_code == 201
    assert client.put("/v1/relations/rooms", json=ROOMS).status_code == 201
    for name, sql in VIEWS.items():
        talk.view(client, name, sql)


def drawn(rng: random.Random, number: int) -> dict[str, Any]:
    row = {
        "id": number, "room": rng.choice(("A", "B", "C", "D", None)), "price": rng.choice((None, 0.1, 0.2, 19.99, 1e15)),
        "fee": rng.choice(("0.01", "20.00", "99.99")), "starts": f"2026-{rng.randrange(1, 5):02}-{rng.randrange(1, 28):02}T12:00:00Z",
        "ends": rng.choice((None, "2026-06-01T10:00:00Z", "2026-07-01T10:00:00Z")),
    }  # fmt: skip
    return {"relation": "bookings", "op": "upsert", "row": row}


def by_duckdb(tables: dict[str, dict[Any, dict[str, Any]]]) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect() as other:
        other.execute("SET TimeZone = 'UTC'")
        other.execute(
            "CREATE TABLE bookings (id BIGINT, room VARCHAR, price DOUBLE, fee DECIMAL(12, 2), starts TIMESTAMPTZ, ends TIMESTAMPTZ)"
        )
        other.execute("CREATE TABLE rooms (room VARCHAR, floor BIGINT)")
        for name, rows in tables.items():
            for row in rows.values():
                other.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", list(row.values()))
        shown = {name: other.sql(f"SELECT * FROM ({sql})") for name, sql in VIEWS.items()}
        found = {}
        for name, relation in shown.items():
            columns = ", ".join(as_text(column, str(type_)) for column, type_ in zip(relation.columns, relation.types, strict=True))
            found[name] = other.execute(f"SELECT {columns} FROM ({VIEWS[name]})").fetchall()
    return found


def as_text(column: str, type_: str) -> str:
    """Return the values of a column as in JSON."""
    if "TIMESTAMP" in type_:
        return f"strftime(\"{column}\", '%Y-%m-%dT%H:%M:%SZ')"
    return f'"{column}"::VARCHAR' if "DECIMAL" in type_ else f'"{column}"'


def alike(mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Compare approximately: DuckDB rounds a sum of floats at each step."""

    def key(row: tuple[Any, ...]) -> list[str]:
        return [f"{value:.9g}" if isinstance(value, float) else str(value) for value in row]

    left, right = sorted(mine, key=key), sorted(theirs, key=key)
    return len(left) == len(right) and all(
        x == y or (isinstance(x, float) and isinstance(y, float) and math.isclose(x, y, rel_tol=1e-12))
        for one, other in zip(left, right, strict=True)
        for x, y in zip(one, other, strict=True)
    )


def rows(client: httpx.Client, view: str) -> list[tuple[Any, ...]]:
    return [tuple(json.loads(line).values()) for line in client.get(f"/v1/views/{view}/rows").text.splitlines()]


def test_groups_beside_duckdb(server: ServerProcess) -> None:
    client, rng = server.client(), random.Random(7)
    define(client)
    tables: dict[str, dict[Any, dict[str, Any]]] = {"bookings": {}, "rooms": {}}
    for number, room in enumerate("ABCDE"):
        tables["rooms"][room] = {"room": room, "floor": number // 2}
    changes: list[dict[str, Any]] = [{"relation": "rooms", "op": "upsert", "row": row} for row in tables["rooms"].values()]
    assert client.post("/v1/changes", json={"changes": changes}).status_code == 200
    followed = [talk.Follower(client, name, snapshot=True) for name in VIEWS]
    for step in range(12):
        changes = [drawn(rng, rng.randrange(40)) for _ in range(rng.choice((1, 5, 30)))]
        changes += [{"relation": "bookings", "op": "delete", "key": {"id": rng.randrange(40)}} for _ in range(5)]
        assert client.post("/v1/changes", json={"changes": changes}).status_code == 200
        for change in changes:
            if change["op"] == "upsert":
                tables["bookings"][change["row"]["id"]] = change["row"]
            else:
                tables["bookings"].pop(change["key"]["id"], None)
        wanted = by_duckdb(tables)
        for name in VIEWS:
            assert alike(rows(client, name), wanted[name]), (name, rows(client, name), wanted[name])
            assert client.get(f"/v1/views/{name}/count").json()["count"] == len(wanted[name])
        averages, ((every,),) = rows(client, "averages"), rows(client, "all")
        assert all(math.isclose(mean * count, total) for _, mean, count, total in averages), "AVG · COUNT = SUM"
        counted = len(client.get("/v1/relations/bookings/rows").text.splitlines())
        assert sum(count for _, _, count, _ in averages) == every == counted == len(tables["bookings"]), "of groups, of all, of rows"
        for one in followed:
            one.resume(client)
            assert sorted(one.rows.values(), key=repr) == sorted(rows(client, one.name), key=repr)
            assert all(key.startswith(b'{"group":') for key in one.rows)
        if step == 6:
            before = {name: sorted(rows(client, name), key=repr) for name in VIEWS}
            server.stop()
            server.start()
            client = server.client()
            assert {name: sorted(rows(client, name), key=repr) for name in VIEWS} == before, "bit by bit"
    for media in ("text/csv", "application/vnd.apache.arrow.stream", "application/json"):
        assert client.get("/v1/views/fees/rows", headers={"Accept": media}).status_code == 200
    assert ("E", 0) in rows(client, "occupied"), "LEFT JOIN … GROUP BY counts zeros"
    found = client.get("/v1/views/occupied/rows", params={"where.group.room": "E"})
    assert found.json() == {"room": "E", "n": 0}
    refused = client.get("/v1/views/occupied/rows", params={"where.r.room": "E"})
    assert refused.status_code == 400 and "where.group" in refused.json()["detail"]
    assert client.get("/v1/views/total/rows", params={"overlaps": ","}).status_code == 400
    statistics = client.get("/v1/views/occupied").json()["statistics"]
    assert statistics["groups"] == 5 and statistics["sums_out_of_range"] == 0


def test_too_many_groups_fail_one_view_alone(server: ServerProcess) -> None:
    client = server.client()
    define(client)
    assert client.put("/v1/views/few", json={"sql": "SELECT id FROM bookings GROUP BY id, starts", "groups": 3}).status_code in (201, 202)
    changes = [drawn(random.Random(1), number) for number in range(4)]
    assert client.post("/v1/changes", json={"changes": changes[:3]}).status_code == 200
    assert len(rows(client, "few")) == 3
    assert client.post("/v1/changes", json={"changes": changes[3:]}).status_code == 200
    emitted = client.get("/v1/views/few/rows")
    assert emitted.status_code == 503 and emitted.json()["type"] == "/problems/too-many-groups" and "3 groups" in emitted.json()["detail"]
    assert client.get("/v1/views/few").json()["state"] == "failed"
    assert "the view few could not be maintained: the view has more than 3 groups" in server.output()
    assert rows(client, "total")[0][0] >= 0, "the others go on"
