"""A calendar, and a small look-up table, in the definitions of views, over HTTP: explanations, look-ups, keys of changes, ad hoc queries,
definitions in files, a backup, a kill."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.end_to_end.talk import Follower, define, ok, problem, send, tuples, view
from tests.end_to_end.test_backups import backup, livejoin
from tests.relations import declared
from tests.server_process import ServerProcess

BOOKINGS = declared("id:int64, room:int64, starts:date, ends:date")
DAYS = "generate_series(date '2026-03-01', date '2026-03-04', interval '1 day') AS d(day)"
STAY = "b.starts <= d.day AND d.day < b.ends"
VIEWS = {
    "occupancy": f"SELECT d.day, count(b.id) AS taken FROM {DAYS} LEFT JOIN bookings b ON {STAY} GROUP BY d.day",
    "by_room": f"SELECT d.day, r.room, b.id FROM {DAYS} CROSS JOIN (VALUES (101), (102)) AS r(room) "
    f"LEFT JOIN bookings b ON b.room = r.room AND {STAY}",
    "listed": f"SELECT d.day, b.id FROM {DAYS} LEFT JOIN bookings b ON {STAY}",
    "titled": "SELECT b.id, t.title FROM bookings b JOIN (VALUES (101, 'Sea'), (101, 'Sea')) AS t(room, title) ON t.room = b.room",
    "busy": "SELECT o.day, w.word FROM occupancy o JOIN (VALUES (0, 'none'), (1, 'one'), (2, 'two')) AS w(n, word) ON w.n = o.taken",
}


def upsert(client: httpx.Client, id_: int, room: int, starts: str, ends: str) -> None:
    ok(send(client, [{"relation": "bookings", "op": "upsert", "row": {"id": id_, "room": room, "starts": starts, "ends": ends}}]))


def words(client: httpx.Client) -> list[tuple[str, str]]:
    return sorted(tuples(client, "busy"))


def test_tables_of_constants(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        define(client, "bookings", BOOKINGS)
        for name, sql in VIEWS.items():
            view(client, name, sql)
        follower = Follower(client, "titled", snapshot=True)
        upsert(client, 1, 101, "2026-03-01", "2026-03-03")
        upsert(client, 2, 102, "2026-03-02", "2026-03-03")
        assert sorted(tuples(client, "occupancy")) == [(f"2026-03-0{day}", taken) for day, taken in ((1, 1), (2, 2), (3, 0), (4, 0))]
        assert len(tuples(client, "by_room")) == 8 and words(client)[2] == ("2026-03-03", "none")
        assert tuples(client, "occupancy", **{"where.group.day": "2026-03-02"}) == [("2026-03-02", 2)]
        assert sorted(tuples(client, "listed", **{"where.d.day": "2026-03-02"})) == [("2026-03-02", 1), ("2026-03-02", 2)]
        assert tuples(client, "listed", **{"where.d.day": "2026-03-04"}) == [("2026-03-04", None)]
        follower.poll()
        assert sorted(follower.rows) == [b'{"b":{"id":1},"t":{"row.number":0}}', b'{"b":{"id":1},"t":{"row.number":1}}']

        asked = ok(client.post("/v1/explain", json={"sql": VIEWS["by_room"]}))
        assert "VALUES and generate_series: 6 rows, which are part of the definition" in asked["plan"]["notes"]
        assert [one["inputs"] for one in asked["stored"]] == [{}]
        shown = ok(client.get("/v1/views/titled"))
        assert shown["inputs"].keys() == {"bookings"} and [one["relation"] for one in shown["shape"]["aliases"]] == ["bookings", "t"]
        assert [one["name"] for one in ok(client.get("/v1/relations"))["relations"]] == ["bookings"]
        problem(client.delete("/v1/relations/bookings"), 409, "relation-in-use")
        series = f"SELECT d.day::date AS day, taken FROM {DAYS} JOIN occupancy o ON o.day = d.day::date WHERE taken = 2"
        assert ok(client.post("/v1/query", json={"sql": series}, headers={"Accept": "application/json"}))["rows"] == [
            {"day": "2026-03-02", "taken": 2}
        ]

        livejoin(0, "dump", tmp_path / "definitions", "--url", server.url)
        livejoin(0, "apply", tmp_path / "definitions", "--url", server.url)
        backup(server, tmp_path / "backup")
        server.kill()
        server.start()
        follower.resume(server.client())
        upsert(server.client(), 3, 101, "2026-03-03", "2026-03-04")
        follower.poll()
        assert len(follower.rows) == 4 and words(server.client())[2] == ("2026-03-03", "one")
    livejoin(0, "restore", tmp_path / "backup", tmp_path / "restored")
    assert "damage" not in livejoin(0, "check", tmp_path / "restored")
    with ServerProcess(tmp_path / "new") as server:
        livejoin(0, "apply", tmp_path / "definitions", "--url", server.url)
        upsert(server.client(), 3, 101, "2026-03-03", "2026-03-04")
        assert words(server.client())[2] == ("2026-03-03", "one")
