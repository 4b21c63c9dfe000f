"""The latest rows of each key, and as-of joins, over HTTP, compared with DuckDB: pages, followers across a kill and a restoration,
look-ups, windows, files, `livejoin check`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from tests.end_to_end.talk import Follower, tuples, view
from tests.end_to_end.test_backups import livejoin
from tests.relations import declared
from tests.server_process import ServerProcess

READINGS = declared("sensor:string, t:int64, value:float64?, until:int64?", "sensor, t", valid="t until")
_NEWEST = "SELECT DISTINCT ON (r.sensor) r.sensor AS sensor, r.t AS t, r.value AS value FROM readings r"
VIEWS = {  # in SQL that DuckDB accepts as well
    "newest": f"{_NEWEST} ORDER BY r.sensor, r.t DESC",
    "warm": f"{_NEWEST} WHERE r.value > 20 ORDER BY r.sensor, r.t DESC",
    "hottest": "SELECT r.sensor AS sensor, r.t AS t, r.value AS value FROM readings r "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY r.sensor ORDER BY r.value DESC NULLS LAST, r.t DESC) <= 3",
    "coldest": "SELECT r.sensor AS sensor, r.t AS t, r.value AS value FROM readings r "
    "QUALIFY ROW_NUMBER() OVER (ORDER BY r.value NULLS LAST, r.sensor DESC, r.t DESC) <= 5",
}
TRADES = declared("id:int64, sensor:string?, t:int64?")
_BESIDE = "SELECT x.id AS id, r.sensor AS sensor, r.t AS t, r.value AS value FROM trades x ASOF"
AS_OF = {
    "at": f"{_BESIDE} JOIN readings r ON x.sensor = r.sensor AND r.t <= x.t",
    "at_or_none": f"{_BESIDE} LEFT JOIN readings r ON x.sensor = r.sensor AND r.t <= x.t",
    "after": f"{_BESIDE} LEFT JOIN readings r ON x.sensor = r.sensor AND r.t > x.t",
    "warm_at": f"{_BESIDE} JOIN readings r ON x.sensor = r.sensor AND r.t <= x.t WHERE r.value = 20.5",
}
Table = dict[tuple[str, int], dict[str, Any]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


def drawn(rng: random.Random) -> dict[str, Any]:
    key = {"sensor": rng.choice("ABC"), "t": rng.randrange(20)}
    if rng.random() < 0.35:
        return {"relation": "readings", "op": "delete", "key": key}
    value = rng.choice((None, 0.0, 10.5, 20.5, 20.5, 30.0))
    return {"relation": "readings", "op": "upsert", "row": {**key, "value": value, "until": rng.choice((None, key["t"] + 5))}}


def apply(client: httpx.Client, table: Table, changes: list[dict[str, Any]]) -> None:
    assert client.post("/v1/changes", json={"changes": changes}).status_code == 200
    for change in changes:
        if change["op"] == "upsert":
            table[change["row"]["sensor"], change["row"]["t"]] = change["row"]
        else:
            table.pop((change["key"]["sensor"], change["key"]["t"]), None)


def by_duckdb(table: Table, views: dict[str, str], trades: dict[int, dict[str, Any]]) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect() as other:
        other.execute("CREATE TABLE trades (id BIGINT, sensor VARCHAR, t BIGINT)")
        for row in trades.values():
            other.execute("INSERT INTO trades VALUES (?, ?, ?)", list(row.values()))
        other.execute("CREATE TABLE readings (sensor VARCHAR, t BIGINT, value DOUBLE, until BIGINT)")
        for row in table.values():
            other.execute("INSERT INTO readings VALUES (?, ?, ?, ?)", list(row.values()))
        return {name: sorted(other.execute(sql).fetchall(), key=repr) for name, sql in views.items()}


def pages(client: httpx.Client, view: str, limit: int) -> list[tuple[Any, ...]]:
    """Return all rows of one version, page by page."""
    found = list[tuple[Any, ...]]()
    answer = client.get(f"/v1/views/{view}/rows", params={"limit": limit})
    while True:
        found += [tuple(json.loads(line).values()) for line in answer.text.splitlines()]
        if "next" not in answer.links:
            return sorted(found, key=repr)
        answer = client.get(answer.links["next"]["url"])


def test_beside_duckdb(server: ServerProcess, tmp_path: Path) -> None:
    client, rng, table = server.client(), random.Random(3), Table()
    assert client.put("/v1/relations/readings", json=READINGS).status_code == 201
    apply(client, table, [drawn(rng) for _ in range(30)])
    for name, sql in VIEWS.items():
        view(client, name, {"sql": sql}, 300)
    followed = [Follower(client, name, snapshot=True) for name in VIEWS]

    def change(client: httpx.Client) -> dict[str, list[tuple[Any, ...]]]:
        for _ in range(3):
            apply(client, table, [drawn(rng) for _ in range(rng.choice((1, 1, 6)))])
        return by_duckdb(table, VIEWS, {})

    client, wanted = agreeing(server, followed, 2, change)
    answer_all_readings(client, wanted["hottest"], table)

    def write(client: httpx.Client) -> dict[str, list[tuple[Any, ...]]]:
        apply(client, table, [drawn(rng) for _ in range(8)])
        return by_duckdb(table, VIEWS, {})

    restored(server, tmp_path, followed, write)


def agreeing(
    server: ServerProcess, followed: list[Follower], limit: int, change: Callable[[httpx.Client], dict[str, list[tuple[Any, ...]]]]
) -> tuple[httpx.Client, dict[str, list[tuple[Any, ...]]]]:
    """Check that pages, counts and followers have the rows that `change` returns after the batches that it sends, also across a kill.
    Return the client of the restarted service, and the last rows."""
    client, wanted = server.client(), dict[str, list[tuple[Any, ...]]]()
    for step in range(12):
        wanted = change(client)
        for name in wanted:
            assert pages(client, name, limit) == wanted[name], name
            assert client.get(f"/v1/views/{name}/count").json()["count"] == len(wanted[name])
        if step == 6:
            server.kill()
            server.start()
            client = server.client()
        for one in followed:
            one.resume(client)
            assert sorted(one.rows.values(), key=repr) == wanted[one.name], one.name
    return client, wanted


def restored(
    server: ServerProcess, folder: Path, followed: list[Follower], write: Callable[[httpx.Client], dict[str, list[tuple[Any, ...]]]]
) -> None:
    """Check that a backup is intact, and that the restored service has the same rows, whose followers continue with their earlier tokens.
    `write` sends a batch, and returns the rows of the views after it."""
    livejoin(0, "backup", folder / "backup", "--url", server.url)
    assert server.stop() == 0
    livejoin(0, "restore", folder / "backup", folder / "restored")
    with ServerProcess(folder / "restored") as other:
        client = other.client()
        for one in followed:
            assert pages(client, one.name, 5) == sorted(one.rows.values(), key=repr), one.name
        wanted = write(client)
        for one in followed:
            one.resume(client)
            assert sorted(one.rows.values(), key=repr) == wanted[one.name] == pages(client, one.name, 7), one.name
        assert other.stop() == 0
    for position in (server.data, folder / "backup", folder / "restored"):
        assert "verdict    sound" in livejoin(0, "check", position)


def traded(rng: random.Random, number: int) -> dict[str, Any]:
    row = {"id": number, "sensor": rng.choice(("A", "B", "C", "D", None)), "t": rng.choice((None, *range(20)))}
    return {"relation": "trades", "op": "upsert", "row": row}


def test_as_of_beside_duckdb(server: ServerProcess, tmp_path: Path) -> None:
    client, rng, table, trades = server.client(), random.Random(4), Table(), dict[int, dict[str, Any]]()
    assert client.put("/v1/relations/readings", json=READINGS).status_code == 201
    assert client.put("/v1/relations/trades", json=TRADES).status_code == 201
    for name, sql in AS_OF.items():
        view(client, name, {"sql": sql}, 300)
    followed = [Follower(client, name, snapshot=True) for name in AS_OF]

    def change(client: httpx.Client) -> dict[str, list[tuple[Any, ...]]]:
        for _ in range(3):
            apply(client, table, [drawn(rng) for _ in range(rng.choice((1, 1, 6)))])
            changes = [traded(rng, rng.randrange(30)) for _ in range(rng.choice((1, 1, 6)))]
            assert client.post("/v1/changes", json={"changes": changes}).status_code == 200
            trades.update({change["row"]["id"]: change["row"] for change in changes})
        return by_duckdb(table, AS_OF, trades)

    client, wanted = agreeing(server, followed, 3, change)
    for row in wanted["at_or_none"]:
        assert tuples(client, "at_or_none", **{"where.x.id": str(row[0])}) == [row]
    mine = [row for row in wanted["at_or_none"] if row[1] == "A"]
    first = [row for row in mine if row[2] == mine[0][2]]
    assert tuples(client, "at_or_none", **{"where.r.sensor": "A", "where.r.t": str(mine[0][2])}) == first
    assert tuples(client, "at_or_none", **{"where.r.sensor": "A"}) == mine
    of_a = [row for row in wanted["at_or_none"] if trades[row[0]]["sensor"] == "A"]
    assert tuples(client, "at_or_none", **{"where.x.sensor": "A"}) == of_a
    until = {row[0]: table[row[1], row[2]]["until"] for row in wanted["at"]}
    valid = [row for row in wanted["at"] if row[2] <= 8 and (until[row[0]] is None or until[row[0]] > 6)]
    assert tuples(client, "at", **{"overlaps.r.valid": "6,8"}) == valid
    for media in ("csv", "arrow", "parquet", "jsonl"):
        assert client.get(f"/v1/views/at_or_none/rows.{media}").status_code == 200
    shown = client.get("/v1/views/at_or_none").json()
    assert shown["plan"]["guarantee"] == "strict" and shown["statistics"]["bytes"] > 0 and shown["shape"]["aliases"][1]["optional"]
    explained = client.post("/v1/explain", json={"sql": AS_OF["after"]}).json()
    assert explained["plan"]["class"] == "left outer as-of join, 1-D, 2 relations, keyed"
    extended = client.patch("/v1/relations/readings", json={"nullable": ["value"]})
    assert extended.status_code == 200, extended.text

    def write(client: httpx.Client) -> dict[str, list[tuple[Any, ...]]]:
        apply(client, table, [drawn(rng) for _ in range(8)])
        return by_duckdb(table, AS_OF, trades)

    restored(server, tmp_path, followed, write)


def answer_all_readings(client: httpx.Client, hottest: list[tuple[Any, ...]], table: Table) -> None:
    of_a = [row for row in hottest if row[0] == "A"]
    assert tuples(client, "hottest", **{"where.r.sensor": "A"}) == of_a
    assert tuples(client, "hottest", **{"where.r.sensor": "Z"}) == []
    assert tuples(client, "hottest", **{"where.r.sensor": "A", "where.r.t": str(of_a[0][1])}) == of_a[:1]
    left_out = next(key for key in table if key[0] == "A" and key[1] not in {row[1] for row in of_a})
    assert tuples(client, "hottest", **{"where.r.sensor": "A", "where.r.t": str(left_out[1])}) == []
    met = [row for row in hottest if row[1] <= 8 and ((until := table[row[:2]]["until"]) is None or until > 6)]
    assert tuples(client, "hottest", **{"overlaps.r.valid": "6,8"}) == met
    refused = client.get("/v1/views/hottest/rows", params={"where.r.value": "0"})
    assert refused.status_code == 400 and "all of the key (sensor, t) or columns that join it (sensor)" in refused.json()["detail"]
    for media in ("csv", "arrow", "parquet", "jsonl"):
        assert client.get(f"/v1/views/hottest/rows.{media}").status_code == 200
    shown = client.get("/v1/views/hottest").json()
    assert shown["plan"]["guarantee"] == "strict" and shown["statistics"]["bytes"] > 0
    explained = client.post("/v1/explain", json={"sql": VIEWS["coldest"]}).json()
    assert explained["plan"]["guarantee"] == "delay" and explained["plan"]["class"] == "top 5 rows by r.value, 1 relation"
