"""UUIDs, times of day, JSON and bytes over HTTP: as keys and join columns, in filters, groups, look-ups, changes; after a restart."""

from __future__ import annotations

import base64
import datetime as dt
import io
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest

import livejoin
from service.cli import main
from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess

U = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(6)]
B = [base64.b64encode(bytes([n, 255 - n])).decode() for n in range(6)]
SHIFTS = declared("id:uuid, begins:time, badge:bytes?, note:json?")
BADGES = declared("badge:bytes, from:time, owner:uuid?", "badge, from")
WORN = """SELECT s.id AS id, s.begins AS begins, s.note AS note, b.owner AS owner
          FROM shifts s JOIN badges b ON s.badge = b.badge AND b."from" <= s.begins"""


def shift(n: int, begins: Any, badge: Any, note: Any = None) -> dict[str, Any]:
    return {"relation": "shifts", "op": "upsert", "row": {"id": U[n].upper(), "begins": begins, "badge": badge, "note": note}}


def badge(n: int, since: Any, owner: Any) -> dict[str, Any]:
    return {"relation": "badges", "op": "upsert", "row": {"badge": B[n], "from": since, "owner": owner}}


CHANGES = [
    shift(1, "06:00", B[1], '{"k": 1}'), shift(2, "14:00:00.5", B[1]), shift(3, "22:00:00", B[2], "[]"), shift(4, "06:00:00", None, "null"),
    badge(1, "05:00", U[5]), badge(1, "12:00", None), badge(2, "22:00:00.000001", U[1]), badge(3, "00:00", U[3]),
]  # fmt: skip


def set_up(client: httpx.Client) -> None:
    talk.define(client, "shifts", SHIFTS)
    talk.define(client, "badges", BADGES)
    talk.ok(talk.send(client, CHANGES))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("types") / "data") as server:
        set_up(server.client())
        talk.view(server.client(), "worn", WORN)
        yield server


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> httpx.Client:
    return server.client()


def in_order(some: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(some, key=orjson.dumps)


def found(client: httpx.Client, sql: str | dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a view."""
    with talk.passing_view(client, sql):
        return in_order(talk.rows(client, "some"))


def test_a_join(client: httpx.Client) -> None:
    assert in_order(talk.rows(client, "worn")) == in_order(
        [
            {"id": U[1], "begins": "06:00:00", "note": '{"k": 1}', "owner": U[5]},
            {"id": U[2], "begins": "14:00:00.500000", "note": None, "owner": None},
            {"id": U[2], "begins": "14:00:00.500000", "note": None, "owner": U[5]},
        ]
    )
    plan = talk.ok(client.get("/v1/views/worn"))["plan"]
    assert plan["guarantee"] == "strict", plan  # times are ordered, as numbers are


def test_every_media_type(client: httpx.Client) -> None:
    answer = client.get("/v1/relations/shifts/rows", headers={"Accept": talk.ARROW})
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert table.schema.types == [pa.utf8(), pa.time64("us"), pa.binary(), pa.utf8()]
    kept = {row["id"]: row for row in table.to_pylist()}
    assert kept[U[2]] == {"id": U[2], "begins": dt.time(14, 0, 0, 500_000), "badge": b"\x01\xfe", "note": None}
    lines = client.get("/v1/relations/shifts/rows", headers={"Accept": "text/csv"}).text.splitlines()
    assert lines[0] == "id,begins,badge,note"
    assert sorted(lines[1:])[0] == f'{U[1]},06:00:00,{B[1]},"{{""k"": 1}}"' and sorted(lines[1:])[3] == f"{U[4]},06:00:00,,null"
    # Values are read back as they were sent, in each format.
    talk.define(client, "copies", SHIFTS)
    for media in (talk.ARROW, "text/csv", talk.JSONL):
        body = client.get("/v1/relations/shifts/rows", headers={"Accept": media}).content
        emitted = client.post("/v1/relations/copies/replace", content=body, headers={"Content-Type": media})
        assert talk.ok(emitted)["skipped_count"] == 0
        ours, theirs = (
            talk.ok(client.get(f"/v1/relations/{name}/rows", headers={"Accept": talk.JSON}))["rows"] for name in ("shifts", "copies")
        )
        assert in_order(ours) == in_order(theirs)
    talk.drop(client, relations=["copies"])


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        (f"s.id = '{U[1].upper()}'", [1]), (f"s.id = uuid '{U[1]}'", [1]), (f"s.id <> CAST('{U[1]}' AS uuid)", [2, 3, 4]),
        (f"s.id > '{U[2]}'", [3, 4]),
        (f"s.id IN ('{U[1]}', '{U[4]}')", [1, 4]), ("s.begins = '06:00'", [1, 4]), ("s.begins < time '14:00:00.5'", [1, 4]),
        ("s.begins BETWEEN '14:00:00.5' AND '22:00'::time", [2, 3]), ("s.badge = '\\x01fe'", [1, 2]), ("s.badge = '\\x02FD'::bytea", [3]),
        ("s.badge > '\\x01'", [1, 2, 3]), ("s.badge IS NULL", [4]), ("s.note IS NOT NULL", [1, 3, 4]), ("s.badge <> '\\x'", [1, 2, 3]),
    ],
)  # fmt: skip
def test_filters(client: httpx.Client, condition: str, numbers: list[int]) -> None:
    assert found(client, f"SELECT s.id AS id FROM shifts s WHERE {condition}") == [{"id": U[n]} for n in numbers]


def test_filters_as_json(client: httpx.Client) -> None:
    for column, op, value, numbers in (
        ("s.id", "=", U[1].upper(), [1]), ("s.begins", ">=", "14:00", [2, 3]), ("s.begins", "=", 21_600_000_000, [1, 4]),
        ("s.badge", "=", B[2], [3]),
        ("s.badge", "in", [B[1], "\\x02fd"], [1, 2, 3]), ("s.note", "is_null", None, [2]),
    ):  # fmt: skip
        where = {"column": column, "op": op, **({"value": value} if value is not None else {})}
        assert found(client, {"from": {"s": "shifts"}, "where": [where], "select": ["s.id as id"]}) == [{"id": U[n]} for n in numbers]


def test_joins(client: httpx.Client) -> None:
    for join, pairs in (
        ("a.id = b.owner", [(1, 2), (3, 3)]),
        ('a.begins < b."from"', [(1, 1), (1, 2), (2, 2), (3, 2), (4, 1), (4, 2)]),
        ("a.badge = b.badge AND a.id <> b.owner", [(1, 1), (2, 1), (3, 2)]),
    ):
        got = found(client, f"SELECT a.id AS a, b.badge AS b FROM shifts a JOIN badges b ON {join}")
        assert [(U.index(row["a"]), B.index(row["b"])) for row in got] == pairs, join
    sql = """SELECT a.id AS a, c.id AS c FROM shifts a, badges b, shifts c
             WHERE a.badge = b.badge AND b.badge = c.badge AND a.begins = c.begins"""
    emitted = talk.ok(client.post("/v1/explain", json={"sql": sql}))
    algorithms = [plan["algorithm"] for plan in (emitted["plan"], *emitted["alternatives"])]
    assert {"qdag", "minesweeper", "nested-loop"} <= set(algorithms)
    for algorithm in algorithms:
        got = found(client, {"sql": sql, "algorithm": algorithm})
        assert [(U.index(row["a"]), U.index(row["c"])) for row in got] == [(1, 1), (1, 1), (2, 2), (2, 2), (3, 3)], algorithm
    got = found(
        client, 'SELECT a.id AS a FROM shifts a LEFT JOIN badges b ON a.badge = b.badge AND a.begins = b."from" WHERE b.badge IS NULL'
    )
    assert [row["a"] for row in got] == U[1:5]


def test_groups(client: httpx.Client) -> None:
    sql = """SELECT s.badge AS badge, COUNT(*) AS n, COUNT(DISTINCT s.id) AS ids, COUNT(s.note) AS notes, COUNT(DISTINCT s.begins) AS times,
             MIN(s.begins) AS least, MAX(s.begins) AS most FROM shifts s GROUP BY badge"""
    assert found(client, sql) == [
        {"badge": B[1], "n": 2, "ids": 2, "notes": 1, "times": 2, "least": "06:00:00", "most": "14:00:00.500000"},
        {"badge": B[2], "n": 1, "ids": 1, "notes": 1, "times": 1, "least": "22:00:00", "most": "22:00:00"},
        {"badge": None, "n": 1, "ids": 1, "notes": 1, "times": 1, "least": "06:00:00", "most": "06:00:00"},
    ]
    assert found(
        client, "SELECT s.begins AS at, COUNT(DISTINCT s.badge) AS n FROM shifts s GROUP BY at HAVING MIN(s.begins) < '12:00'"
    ) == [{"at": "06:00:00", "n": 1}]
    assert found(client, "SELECT DISTINCT b.badge AS badge FROM badges b") == in_order([{"badge": B[n]} for n in (1, 2, 3)])
    talk.view(client, "owners", "SELECT b.owner AS owner, b.badge AS badge, COUNT(*) AS n FROM badges b GROUP BY owner, badge")
    for given in (B[1], "\\x01fe"):
        assert talk.rows(client, "owners", **{"where.group.owner": U[5].upper(), "where.group.badge": given}) == [
            {"owner": U[5], "badge": B[1], "n": 1}
        ]
    talk.drop(client, ["owners"])


def test_the_group_of_no_bytes_is_looked_up_as_that_of_the_empty_text(client: httpx.Client) -> None:
    columns = [{"name": "id", "type": "int64"}, {"name": "seal", "type": "bytes", "nullable": True}]
    talk.define(client, "seals", {"columns": columns, "key": ["id"]})
    rows_of = [{"id": n, "seal": seal} for n, seal in enumerate(["", "", None, B[1]])]
    talk.ok(talk.send(client, [{"relation": "seals", "op": "upsert", "row": row} for row in rows_of]))
    talk.view(client, "sealed", "SELECT s.seal AS seal, COUNT(*) AS n FROM seals s GROUP BY seal")
    for given, seal, n in (('""', "", 2), ("\\x", "", 2), ("", None, 1), (B[1], B[1], 1), (f'"{B[1]}"', B[1], 1)):
        assert talk.rows(client, "sealed", **{"where.group.seal": given}) == [{"seal": seal, "n": n}], given
    talk.drop(client, ["sealed"])


def test_union_and_except(client: httpx.Client) -> None:
    got = found(client, "SELECT s.badge AS badge FROM shifts s WHERE s.badge IS NOT NULL UNION SELECT b.badge FROM badges b")
    assert got == in_order([{"badge": B[n]} for n in (1, 2, 3)])
    talk.view(client, "some", 'SELECT s.id AS id, s.begins AS at FROM shifts s EXCEPT SELECT b.owner, b."from" FROM badges b')
    assert [U.index(row["id"]) for row in in_order(talk.rows(client, "some"))] == [1, 2, 3, 4]
    assert talk.rows(client, "some", **{"where.row.id": U[1].upper(), "where.row.at": "06:00"}) == [{"id": U[1], "at": "06:00:00"}]
    talk.drop(client, ["some"])


def test_look_ups_and_pages(client: httpx.Client) -> None:
    assert [row["owner"] for row in talk.rows(client, "worn", **{"where.s.id": U[1].upper()})] == [U[5]]
    for given in (B[1], "\\x01fe"):
        assert len(talk.rows(client, "worn", **{"where.b.badge": given, "where.b.from": "05:00"})) == 2
        assert len(talk.rows(client, "worn", **{"where.s.badge": given})) == 3
    for parameters, words in (
        ({"where.s.id": "x"}, "expected a UUID"),
        ({"where.b.badge": "?", "where.b.from": "05:00"}, "expected bytes in base64"),
    ):
        answer = client.get("/v1/views/worn/rows", params=parameters)
        assert words in talk.problem(answer, 400, "bad-parameter")["detail"]
    pages = [row for page in talk.pages(client, "worn", 1) for row in page["rows"]]
    assert in_order(pages) == in_order(talk.rows(client, "worn"))


def test_changes(client: httpx.Client) -> None:
    poll = {"limit": 1, "wait": 0}
    token = orjson.loads(client.get("/v1/views/worn/changes", params=poll).content.splitlines()[-1])["token"]
    talk.ok(talk.send(client, [shift(1, "13:00", B[1], '{"k": 2}')]))
    answer = client.get("/v1/views/worn/changes", params={"since": token, "limit": 1, "wait": 5})
    records = [orjson.loads(line) for line in answer.content.splitlines()][:-1]
    early, late = ({"s": {"id": U[1]}, "b": {"badge": B[1], "from": since}} for since in ("05:00:00", "12:00:00"))
    assert [(one["op"], one["key"]) for one in records[:1]] == [("delete", early)]
    assert sorted((orjson.dumps(one["key"]), one["row"]["note"]) for one in records[1:]) == [
        (orjson.dumps(early), '{"k": 2}'), (orjson.dumps(late), '{"k": 2}'),
    ]  # fmt: skip
    talk.ok(talk.send(client, [shift(1, "06:00", B[1], '{"k": 1}')]))
    answer = talk.send(client, [{**shift(1, "06:00", B[1]), "op": "insert"}])
    assert talk.problem(answer, 422, "bad-rows")["errors"][0]["reason"] == "key-exists"
    answer = talk.send(client, [{"relation": "badges", "op": "delete", "key": {"badge": B[0], "from": "12:00"}}])
    assert talk.ok(answer)["ignored"] == 1


def test_deletes_by_condition(client: httpx.Client) -> None:
    talk.define(client, "copies", SHIFTS)
    for where, left in (
        ({"column": "begins", "op": ">", "value": "20:00"}, [1, 2, 4]), ({"column": "badge", "op": "=", "value": B[1]}, [4]),
        ({"column": "id", "op": "=", "value": U[4].upper()}, []),
    ):  # fmt: skip
        if where["column"] == "begins":
            talk.ok(talk.send(client, [{**one, "relation": "copies"} for one in CHANGES[:4]]))
        talk.ok(client.post("/v1/relations/copies/delete", json={"where": [where]}))
        kept = talk.ok(client.get("/v1/relations/copies/rows", headers={"Accept": talk.JSON}))["rows"]
        assert sorted(U.index(row["id"]) for row in kept) == left
    answer = client.post("/v1/relations/copies/delete", json={"where": [{"column": "note", "op": "=", "value": "{}"}]})
    assert "which is json" in talk.problem(answer, 422, "unsupported-query")["detail"]
    talk.drop(client, relations=["copies"])


def test_the_client(server: ServerProcess) -> None:
    with livejoin.connect(server.url) as connected:
        copies = connected.relation("copies")
        copies.create({"id": "uuid", "at": "time", "data": "bytes", "more": {"type": "json", "nullable": True}}, key="id")
        mine = uuid.UUID(U[1])
        copies.upsert([{"id": mine, "at": dt.time(6, 30), "data": b"\x00\xff", "more": '{"a": 1}'}])
        frame = pa.table({"id": pa.array([uuid.UUID(U[2]).bytes], pa.uuid()), "at": pa.array([dt.time(7)]), "data": pa.array([b"x"])})
        with connected.batch() as batch:
            batch.upsert("copies", frame)
            batch.upsert("copies", [{"id": U[3], "at": "08:00", "data": b"y"}])
        assert connected.relation("copies").get()["rows"] == 3
        view = connected.view("more", sql="SELECT c.id AS id, c.at AS at, c.data AS data, c.more AS more FROM copies c")
        assert list(view.rows(where={"c.id": mine})) == [{"id": U[1], "at": "06:30:00", "data": "AP8=", "more": '{"a": 1}'}]
        copies.delete([{"id": mine}])
        assert sorted(row["at"] for row in view.rows()) == ["07:00:00", "08:00:00"]
        view.drop()
        copies.drop()


def test_more_columns(client: httpx.Client) -> None:
    """Columns of these types are added to existing rows."""
    talk.define(client, "small", {"columns": [{"name": "id", "type": "uuid"}], "key": ["id"]})
    talk.ok(talk.send(client, [{"relation": "small", "op": "upsert", "row": {"id": U[n]}} for n in (1, 2)]))
    more = [{"name": name, "type": name, "nullable": True} for name in ("time", "json", "bytes", "uuid")]
    talk.ok(client.patch("/v1/relations/small", json={"add_columns": more}))
    row = {"id": U[2], "time": "01:00:00", "json": "[1]", "bytes": "AP8=", "uuid": U[3]}
    talk.ok(talk.send(client, [{"relation": "small", "op": "upsert", "row": row}]))
    kept = talk.ok(client.get("/v1/relations/small/rows", headers={"Accept": talk.JSON}))["rows"]
    assert in_order(kept) == [{"id": U[1], "time": None, "json": None, "bytes": None, "uuid": None}, row]
    talk.drop(client, relations=["small"])


@pytest.mark.parametrize("clean", [False, True])
def test_after_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str], clean: bool) -> None:
    """From the log, which has single changes as JSON and others as Arrow, or from a snapshot; with a token, and with a backup."""
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        set_up(client)
        talk.view(client, "worn", WORN)
        talk.view(
            client, "times", "SELECT s.begins AS at, COUNT(DISTINCT s.badge) AS n, COUNT(DISTINCT s.id) AS ids FROM shifts s GROUP BY at"
        )
        talk.view(client, "both", "SELECT s.badge AS badge FROM shifts s EXCEPT SELECT b.badge FROM badges b WHERE b.badge < '\\x02'")
        line = client.get("/v1/views/worn/changes", params={"snapshot": "true", "limit": 1, "wait": 0}).content.splitlines()[-1]
        many = pa.table(
            {"id": pa.array([U[0]]), "begins": pa.array([dt.time(23)]), "badge": pa.array([b"\x03\xfc"]), "note": pa.array(["{}"])}
        )
        talk.load(client, "shifts", many, talk.PARQUET)
        talk.ok(talk.send(client, [shift(5, "05:30", "\\x01fe")]))
        expected = {name: in_order(talk.rows(client, name)) for name in ("worn", "times", "both")}
        assert len(expected["worn"]) == 5 and len(expected["times"]) == 5
        if clean:
            assert server.stop() == 0
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        for name, wanted in expected.items():
            talk.live(client.get(f"/v1/views/{name}"), client, name)
            assert in_order(talk.rows(client, name)) == wanted
        answer = client.get("/v1/views/worn/changes", params={"since": orjson.loads(line)["token"], "limit": 2, "wait": 0})
        records = [orjson.loads(one) for one in answer.content.splitlines()]
        assert sorted(one["key"]["s"]["id"] for one in records if one["op"] == "insert") == [U[0], U[5]]
        assert talk.ok(client.put("/v1/relations/shifts", json=SHIFTS))
        answer = talk.send(client, [{**shift(5, "05:30", B[1]), "op": "insert"}])
        assert talk.problem(answer, 422, "bad-rows")["errors"][0]["reason"] == "key-exists"
    assert main(["check", str(tmp_path / "data")]) == 0
    emitted = " ".join(capsys.readouterr().out.split())
    assert all(f"view {name}" in emitted for name in expected)
