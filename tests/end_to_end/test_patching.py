"""Definitions of relations extended while views over them are live and followed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import httpx
import pyarrow as pa
import pytest

from tests.end_to_end.talk import ARROW, CSV, DEBEZIUM, JSONL, PARQUET, define, encode_table, ok, problem, view
from tests.end_to_end.test_rewriting import PAIRS, STAYS, changes_since, lines, replace, rows_of, stay, token_of
from tests.server_process import ServerProcess
from tests.waiting import until

NOTE = {"name": "note", "type": "string", "nullable": True}
SCORE = {"name": "score", "type": "float64", "nullable": True}
ALL = "SELECT * FROM stays a JOIN stays b ON a.room = b.room AND overlaps(a.stay, b.stay) WHERE a.id < b.id"


def patch(client: httpx.Client, **parts: Any) -> httpx.Response:
    return client.patch("/v1/relations/stays", json=parts)


def post(client: httpx.Client, content: bytes, media: str = JSONL, **parameters: Any) -> Any:
    return ok(client.post("/v1/relations/stays/changes", content=content, headers={"Content-Type": media}, params=parameters))


def definition_of(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = ok(client.get("/v1/relations/stays"))
    return {name: value for name, value in found.items() if name not in ("name", "rows")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> httpx.Client:
    client = server.client()
    define(client, "stays", STAYS)
    view(client, "pairs", PAIRS)
    view(client, "everything", ALL)
    ok(replace(client, [stay(i, room="AB"[i % 2], day=1 + i, days=5) for i in range(8)]))
    return client


def again(server: ServerProcess, kill: bool) -> httpx.Client:
    if kill:
        server.kill()
    else:
        assert server.stop() == 0
    server.start()
    return server.client()


@pytest.mark.parametrize("kill", [True, False])
def test_columns(server: ServerProcess, client: httpx.Client, kill: bool) -> None:
    token, everything = token_of(client), rows_of(client, "/v1/views/everything/rows")
    version = ok(client.get("/v1/status"))["version"]
    made = ok(patch(client, add_columns=[NOTE]))
    assert made["columns"] == [*({"nullable": False} | column for column in STAYS["columns"]), NOTE] and made["rows"] == 8
    assert ok(patch(client, add_columns=[NOTE, SCORE]))["columns"][-1] == SCORE
    assert ok(patch(client, add_columns=[NOTE, SCORE])) == ok(client.get("/v1/relations/stays"))
    ok(client.put("/v1/relations/stays", json=definition_of(client)), 200)
    problem(client.put("/v1/relations/stays", json=STAYS), 409, "definition-differs")
    assert ok(client.get("/v1/status"))["version"] == version, "registering makes no version"
    assert all(row["note"] is None and row["score"] is None for row in rows_of(client))
    post(client, lines([stay(20) | {"note": "late", "score": 1.5}, stay(0, room="B", days=5)]))
    emitted = changes_since(client, token)
    assert emitted[-1]["op"] == "progress" and {one["row"].get("i") for one in emitted[:-1]} >= {20}
    for _ in range(2):
        expected: dict[int, Any] = dict.fromkeys(range(8), (None, None)) | {20: ("late", 1.5)}
        assert {row["id"]: (row["note"], row["score"]) for row in rows_of(client)} == expected
        shown = rows_of(client, "/v1/views/everything/rows")
        assert shown != everything and {name for row in shown for name in row} == set(everything[0]), "columns at the registration"
        assert ok(client.put("/v1/views/everything", json={"sql": ALL}), 200)["state"] == "live"
        assert ok(client.put("/v1/views/everything", json={"sql": ALL.lower()}), 200)["state"] == "live"
        ok(client.put("/v1/relations/stays", json=definition_of(client)), 200)
        client = again(server, kill)
        assert changes_since(client, token) == emitted, "the token goes on over restarts"
    problem(client.put("/v1/views/everything", json={"sql": ALL.replace("*", "a.note")}), 409, "definition-differs")
    view(client, "noted", "SELECT a.id, a.note FROM stays a JOIN stays b ON a.note = b.note")
    assert [row["note"] for row in rows_of(client, "/v1/views/noted/rows")] == ["late"]


def test_bodies_without_the_column(client: httpx.Client) -> None:
    ok(patch(client, add_columns=[NOTE]))
    times = pa.timestamp("us", "UTC")
    table = pa.table({"id": [1], "room": ["Z"], "starts": pa.array([0], times), "ends": pa.array([None], times)})
    for number, media in enumerate((CSV, ARROW, PARQUET)):
        post(client, encode_table(table.set_column(0, "id", pa.array([30 + number])), media), media)
        post(client, encode_table(table.set_column(0, "id", pa.array([40 + number])).append_column("note", pa.array(["x"])), media), media)
    after = {"id": 50, "room": "Z", "starts": 0, "ends": None, "note": "cdc", "further": 1}
    post(client, lines([{"op": "c", "before": None, "after": after}]), DEBEZIUM)
    notes = {row["id"]: row["note"] for row in rows_of(client) if row["id"] >= 30}
    assert notes == dict.fromkeys(range(30, 33)) | dict.fromkeys(range(40, 43), "x") | {50: "cdc"}


COLUMNS = {"id": "int64", "g": "int64", "t": "string", "f": "float64", "v": "int64", "n": "int64", "d": "date", "m": "timestamp"}
OF_NULLS = {  # views of {r} that have to take nulls in every column but the key and those that {r} is joined by, j and the interval
    "sums": "SELECT g AS g, SUM(v) AS s, AVG(f) AS a, COUNT(n) AS c, MIN(v) AS l, MAX(d) AS h, COUNT(DISTINCT t) AS k FROM {r} GROUP BY g",
    "texts": "SELECT t AS t, g AS g, SUM(f) AS s, COUNT(*) AS n FROM {r} GROUP BY t, g HAVING SUM(v) > 3",
    "months": "SELECT date_trunc('month', d) AS m, SUM(n) AS s FROM {r} GROUP BY date_trunc('month', d)",
    "having": "SELECT g AS g, MAX(v) AS h FROM {r} GROUP BY g HAVING g > 0",
    "all": "SELECT SUM(v) AS s, AVG(n) AS a, MIN(f) AS l FROM {r}",
    "distinct": "SELECT DISTINCT t AS t, g AS g FROM {r}",
    "counted": "SELECT a.j AS j, SUM(a.v) AS s, SUM(b.n) AS x FROM {r} a JOIN {r} b ON a.j = b.j AND overlaps(a.x, b.x) GROUP BY a.j",
    "multiplied": "SELECT a.j AS j, AVG(a.v) AS s, COUNT(b.n) AS x FROM {r} a JOIN {r} b ON a.j = b.j GROUP BY a.j",
    "visited": "SELECT a.id AS i, a.g AS g, SUM(b.v) AS s FROM {r} a JOIN {r} b ON overlaps(a.x, b.x) GROUP BY a.id, a.g",
    "of_rows": "SELECT a.t AS t, MAX(b.v) AS h FROM {r} a JOIN {r} b ON a.j = b.j GROUP BY a.t",
    "outer": "SELECT a.g AS g, SUM(b.v) AS s, COUNT(*) AS n FROM {r} a LEFT JOIN {r} b ON a.j = b.id GROUP BY a.g",
    "covered": "SELECT g AS g, t AS t, coverage(x) AS c FROM {r} GROUP BY g, t",
}
for _name, _column in (("numbers", "v"), ("floats", "f"), ("dates", "d"), ("times", "m")):
    for _way in ("ASC", "DESC"):
        _order = f"ORDER BY g, {_column} {_way} NULLS LAST"
        OF_NULLS[f"{_name}_{_way.lower()}"] = f"SELECT DISTINCT ON (g) g AS g, id AS i, {_column} AS o FROM {{r}} {_order}"
EXTREME = (-(2**63), 2**63 - 1)  # null must come after these


def _amount(random: Random, id_: int, nulls: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": id_, "j": random.randrange(3), "b": id_ % 7, "e": id_ % 7 + random.randrange(4), "g": random.randrange(-1, 2),
        "t": random.choice(["", "x", "y"]), "f": random.choice([0.5, -1.0, "NaN", 1e300]), "v": random.choice([0, 7, *EXTREME]),
        "n": random.randrange(5), "d": f"2020-0{1 + random.randrange(3)}-01", "m": random.choice([0, *EXTREME]),
    }  # fmt: skip
    return row | ({name: None for name in COLUMNS if name != "id" and random.random() < 0.5} if nulls else {})


def test_nulls_in_what_views_group_and_order_by(server: ServerProcess) -> None:
    """A column becomes nullable under live, followed views; the result is compared with a relation in which it was nullable from the
    start."""
    client, random = server.client(), Random(1)
    kept = [{"name": name, "type": "int64"} for name in ("j", "b", "e")]
    for name, nulls in (("late", False), ("early", True)):
        columns = [{"name": column, "type": kind, "nullable": nulls and column != "id"} for column, kind in COLUMNS.items()]
        definition = {"columns": [*columns, *kept], "key": ["id"], "intervals": {"x": {"start": "b", "end": "e", "bounds": "[]"}}}
        define(client, name, definition)
        for one, sql in OF_NULLS.items():
            view(client, f"{name}_{one}", sql.format(r=name))
    tokens = {f"{name}_{one}": token_of(client, f"{name}_{one}") for name in ("late", "early") for one in OF_NULLS}

    def post_both(rows: list[dict[str, Any]]) -> None:
        for name in ("late", "early"):
            ok(client.post(f"/v1/relations/{name}/changes", content=lines(rows), headers={"Content-Type": JSONL}))

    def compare() -> None:
        for one in OF_NULLS:
            late, early = (sorted(map(repr, rows_of(client, f"/v1/views/{name}_{one}/rows"))) for name in ("late", "early"))
            assert late == early, one
            emitted = [changes_since(client, tokens[f"{name}_{one}"], f"{name}_{one}") for name in ("late", "early")]
            late, early = (sorted(repr({part: line.get(part) for part in ("op", "key", "row")}) for line in some[:-1]) for some in emitted)
            assert [line.replace("late", "early") for line in late] == early, one

    def draw(nulls: bool) -> list[dict[str, Any]]:
        rows = [_amount(random, random.randrange(30), nulls) for _ in range(12)]
        return [{"_op": "delete", "id": row["id"]} if random.random() < 0.2 else row for row in rows]

    for _ in range(4):
        post_both(draw(False))
    compare()
    names = [name for name in COLUMNS if name != "id"]
    made = ok(client.patch("/v1/relations/late", json={"nullable": names}))
    assert {column["name"] for column in made["columns"] if column["nullable"]} == set(names)
    for column in ("j", "b", "e"):
        refused = problem(client.patch("/v1/relations/late", json={"nullable": [column]}), 409, "relation-in-use")
        assert "late_counted" in refused["views"] and f"{column!r} is a column by which" in refused["detail"]
    for _ in range(6):
        post_both(draw(True))
        compare()
    client = again(server, True)
    compare()
    post_both(draw(True))
    compare()
    found = {"where.group.g": "", "where.group.t": ""}
    for one in ("texts", "distinct"):
        late, early = (rows_of(client, f"/v1/views/{name}_{one}/rows?{urlencode(found)}") for name in ("late", "early"))
        assert late == early, one


def test_nulls(server: ServerProcess, client: httpx.Client) -> None:
    ok(client.delete("/v1/views/everything"), 204)
    refused = problem(patch(client, nullable=["room"]), 409, "relation-in-use")
    assert refused["views"] == ["pairs"]
    problem(patch(client, nullable=["starts"]), 409, "relation-in-use")
    problem(patch(client, nullable=["id"]), 422, "bad-definition")
    problem(patch(client, nullable=["nothing"]), 422, "unknown-column")
    columns = [{"name": name, "type": kind} for name, kind in (("id", "int64"), ("room", "string"), ("size", "int64"))]
    define(client, "rooms", {"columns": columns, "key": ["id"]})
    shown: dict[str, Any] = {"from": {"r": "rooms", "s": "stays"}, "join": [{"equal": ["r.room", "s.room"]}]}
    shown["where"] = [{"column": "r.size", "op": "!=", "value": 7}]
    view(client, "sized", shown)
    url = "/v1/relations/rooms/changes"
    ok(client.post(url, content=lines([{"id": 1, "room": "A", "size": 3}]), headers={"Content-Type": JSONL}))
    made = ok(client.patch("/v1/relations/rooms", json={"nullable": ["size"]}))
    assert [column["nullable"] for column in made["columns"]] == [False, False, True]
    assert ok(client.patch("/v1/relations/rooms", json={"nullable": ["size"]})) == made
    rows = [{"id": 2, "room": "B"}, {"id": 3, "room": "A", "size": None}, {"id": 1, "room": "A", "size": 9}]
    ok(client.post(url, content=lines(rows), headers={"Content-Type": JSONL}))
    for _ in range(2):
        assert rows_of(client, "/v1/relations/rooms/rows") == [{"size": None} | row for row in sorted(rows, key=lambda row: row["id"])]
        assert {row["size"] for row in rows_of(client, "/v1/views/sized/rows")} == {9}
        ok(client.put("/v1/views/sized", json=shown), 200)
        client = again(server, True)


def test_intervals(server: ServerProcess, client: httpx.Client) -> None:
    post(client, lines([stay(50, day=20, days=None), stay(51, day=20)]))
    reversed_ = {"start": "ends", "end": "starts"}
    problem(patch(client, add_intervals={"wrong": reversed_}), 409, "definition-differs")
    problem(patch(client, add_intervals={"stay": {"start": "starts", "end": "ends", "bounds": "[]"}}), 409, "definition-differs")
    problem(patch(client, add_intervals={"room": {"at": "starts"}}), 422, "bad-definition")
    problem(patch(client, add_intervals={"x": {"at": "nothing"}}), 422, "bad-definition")
    ends = {"start": "starts", "end": "ends"}
    more = {"arrival": {"at": "starts"}, "closed": {**ends, "bounds": "[]"}, "stay": ends}
    made = ok(patch(client, add_columns=[{"name": "until", "type": "timestamp", "nullable": True}], add_intervals=more))
    assert set(made["intervals"]) == {"stay", "arrival", "closed"}
    assert set(ok(patch(client, add_intervals={"use": {"start": "starts", "end": "until"}}))["intervals"]) == {*made["intervals"], "use"}
    bad = lines([stay(60) | {"until": "2020-01-01T00:00:00Z"}])
    problem(client.post("/v1/relations/stays/changes", content=bad, headers={"Content-Type": JSONL}), 422, "bad-rows")
    join = {"from": {"a": "stays", "b": "stays"}, "join": [{"overlaps": ["a.arrival", "b.use"]}], "select": ["a.id as i", "b.id as j"]}
    view(client, "arrivals", join)
    post(client, lines([stay(70, room="A", day=1, days=9) | {"until": "2026-01-03T00:00:00Z"}]))
    found = rows_of(client, "/v1/views/arrivals/rows")
    # windows on intervals that are younger than the view
    rows, pairs = {row["id"]: row for row in rows_of(client)}, rows_of(client, "/v1/views/pairs/rows")
    early = [pair for pair in pairs if rows[pair["i"]]["starts"] <= "2026-01-03T00:00:00Z"]
    used = [pair for pair in pairs if pair["j"] != 70]
    assert 0 < len(early) < len(pairs) > len(used)
    for end in (None, True, False):
        client = client if end is None else again(server, end)
        assert rows_of(client, "/v1/views/arrivals/rows") == found and found
        assert rows_of(client, "/v1/views/pairs/rows?overlaps.a.arrival=,2026-01-03T00:00:00Z") == early
        assert rows_of(client, "/v1/views/pairs/rows?overlaps.b.use=2026-01-20T00:00:00Z,") == used
    ok(client.put("/v1/views/everything", json={"sql": ALL}), 200)


def test_what_is_refused(client: httpx.Client) -> None:
    before = definition_of(client)
    problem(patch(client, add_columns=[{"name": "n", "type": "int64"}]), 422, "bad-definition")
    problem(patch(client, add_columns=[{"name": "id", "type": "int64", "nullable": True}]), 409, "definition-differs")
    problem(patch(client, add_columns=[{"name": "room", "type": "int64", "nullable": True}]), 409, "definition-differs")
    problem(patch(client, add_columns=[{"name": "stay", "type": "int64", "nullable": True}]), 422, "bad-definition")
    problem(patch(client, remove_columns=["room"]), 422, "bad-definition")
    problem(patch(client, retain={"column": "room", "for": "P1D"}), 422, "bad-definition")
    problem(patch(client, retain={"column": "ends", "for": "P1M"}), 422, "bad-definition")
    problem(patch(client, retain={"column": "ends", "for": "PT0S"}), 422, "bad-definition")
    problem(client.patch("/v1/relations/nothing", json={}), 404, "not-found")
    assert ok(patch(client))["columns"] == before["columns"] and definition_of(client) == before


def test_retention_is_part_of_the_definition(server: ServerProcess, client: httpx.Client) -> None:
    made = ok(patch(client, retain={"column": "ends", "for": "P36500D"}))
    assert made["retain"] == {"column": "ends", "for": "P36500D"}
    ok(client.put("/v1/relations/stays", json=definition_of(client)), 200)
    ok(client.put("/v1/relations/stays", json=STAYS), 200)
    problem(client.put("/v1/relations/stays", json=STAYS | {"retain": {"column": "ends", "for": "P1D"}}), 409, "definition-differs")
    client = again(server, True)
    assert definition_of(client)["retain"] == made["retain"]
    assert "retain" not in ok(patch(client, retain=None))
    ok(client.put("/v1/relations/stays", json=STAYS | {"retain": None}), 200)


def test_writers_and_readers_go_on(server: ServerProcess, client: httpx.Client) -> None:
    ok(replace(client, [stay(i, room=str(i)) for i in range(60_000)]))
    begun, over, failed = threading.Event(), threading.Event(), list[str]()
    sent: dict[int, str | None] = {}

    def write() -> None:
        with httpx.Client(base_url=server.url, timeout=60) as other:
            number = 100_000
            while not over.is_set():
                number += 1
                row = stay(number, room="w")
                answer = other.post("/v1/relations/stays/changes", content=json.dumps(row), headers={"Content-Type": JSONL})
                if answer.status_code == 200:
                    sent[number] = None
                    begun.set()
                else:
                    failed.append(answer.text)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(60)
        for number in range(5):
            ok(patch(client, add_columns=[{"name": f"n{number}", "type": "string", "nullable": True}]))
    finally:
        over.set()
        writer.join()
    assert not failed and sent
    rows = {row["id"]: row for row in rows_of(client)}
    assert set(sent) <= set(rows) and len(rows) == 60_000 + len(sent)
    assert all(row["n4"] is None for row in rows.values()) and rows[59_999]["room"] == "59999"


def test_old_rows_go_soon(server: ServerProcess, client: httpx.Client) -> None:
    rows = [stay(100, days=None), stay(101) | {"ends": "2999-01-01T00:00:00Z"}]
    post(client, lines(rows))
    token = token_of(client)
    ok(patch(client, retain={"column": "ends", "for": "P1D"}))
    until(lambda: len(rows_of(client)) <= 2)
    assert [row["id"] for row in rows_of(client)] == [100, 101]
    assert [one["name"] for one in ok(client.get("/v1/sources"))["sources"]] == ["livejoin.retain"]
    assert {one["op"] for one in changes_since(client, token)} == {"delete", "progress"}
    client = again(server, True)
    assert [row["id"] for row in rows_of(client)] == [100, 101]
