"""Gaps and coverage over HTTP: shifts and bookings, compared with sorted runs; with followers across restarts, look-ups, pages and
files."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from service.cli import main
from tests.end_to_end.talk import ARROW, CSV, JSON, Follower, define, ok, problem, tuples, view
from tests.naive.cover import runs
from tests.relations import declared
from tests.server_process import ServerProcess

SHIFTS: dict[str, Any] = declared("id:int64, room:string?, starts:timestamp?, ends:timestamp?", hours="starts ends")
BOOKINGS = SHIFTS | {
    "columns": [*SHIFTS["columns"], {"name": "status", "type": "string"}],
    "intervals": {"stay": {"start": "starts", "end": "ends"}},
}
ON = "s.room = b.room AND overlaps(s.hours, b.stay)"
VIEWS = {
    "free": f"SELECT s.id, s.room, gaps(s.hours, b.stay) AS free FROM shifts s LEFT JOIN bookings b ON {ON} AND b.status = 'sure'",
    "busy": f"SELECT s.id, s.room, coverage(s.hours, b.stay) AS busy FROM shifts s JOIN bookings b ON {ON} WHERE b.status = 'sure'",
    "anti": f"SELECT s.id FROM shifts s WHERE NOT EXISTS (SELECT 1 FROM bookings b WHERE {ON} AND b.status = 'sure')",
    "by_room": "SELECT b.room AS room, coverage(b.stay) AS busy FROM bookings b WHERE b.status = 'sure' GROUP BY b.room",
}
KEYS = {"free": ("s", ["id"]), "busy": ("s", ["id"]), "by_room": ("group", ["room"])}  # what a row is identified by, besides its start
Rows = dict[str, dict[int, dict[str, Any]]]
LOW, HIGH = -(10**9), 10**9


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        define(client, "shifts", SHIFTS)
        define(client, "bookings", BOOKINGS)
        for name, sql in VIEWS.items():
            view(client, name, sql)
        yield server


def at(hour: int | None) -> str | None:
    return None if hour is None else (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:%M:%SZ")


def drawn(rng: random.Random, tables: Rows) -> list[dict[str, Any]]:
    """Return random changes, which are applied to `tables`, too: hours in place of times."""
    changes = []
    for _ in range(rng.choice((1, 1, 8, 30))):
        name = rng.choice(("shifts", "bookings", "bookings"))
        number, known = rng.randrange(30 if name == "bookings" else 12), tables[name]
        if rng.random() < 0.3:
            known.pop(number, None)
            changes.append({"relation": name, "op": "delete", "key": {"id": number}})
            continue
        start = rng.randrange(60)
        row = {"id": number, "room": rng.choice(("A", "B", None)), "starts": rng.choice((start, start, start, None)),
               "ends": rng.choice((None, start + 1 + rng.randrange(20), start + 2))}  # fmt: skip
        if name == "bookings":
            row["status"] = rng.choice(("sure", "sure", "off"))
        known[number] = row
        changes.append({"relation": name, "op": "upsert", "row": {**row, "starts": at(row["starts"]), "ends": at(row["ends"])}})
    return changes


def hours_of(row: dict[str, Any]) -> tuple[int, int]:
    return LOW if row["starts"] is None else row["starts"], HIGH if row["ends"] is None else row["ends"]


def expected(tables: Rows) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of `free` and `busy`, of `anti`, and of `by_room`."""
    found: dict[str, list[tuple[Any, ...]]] = {"free": [], "busy": [], "anti": [], "by_room": []}
    for room in ("A", "B", None):
        mine = [hours_of(one) for one in tables["bookings"].values() if one["room"] == room and one["status"] == "sure"]
        for left, right in runs((left, right - 1) for left, right in mine):
            found["by_room"].append((room, None if left == LOW else at(left), None if right + 1 == HIGH else at(right + 1)))
    for shift in tables["shifts"].values():
        low, high = hours_of(shift)
        partners = [one for one in tables["bookings"].values() if one["room"] == shift["room"] is not None and one["status"] == "sure"]
        ends = [(max(low, left), min(high, right) - 1) for left, right in map(hours_of, partners)]
        covered = [(left, right + 1) for left, right in runs(one for one in ends if one[0] <= one[1])]
        gaps = zip([low, *(right for _, right in covered)], [*(left for left, _ in covered), high], strict=True)
        for name, stretches in (("busy", covered), ("free", [one for one in gaps if one[0] < one[1]])):
            for left, right in stretches:
                start, end = None if left == LOW else at(left), None if right == HIGH else at(right)
                found[name].append((shift["id"], shift["room"], start, end))
        if not covered:
            found["anti"].append((shift["id"],))
    return {name: sorted(some, key=repr) for name, some in found.items()}


def test_beside_sorted_runs(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    seed = 5
    print("seed", seed)
    client, rng = server.client(), random.Random(seed)
    tables: Rows = {"shifts": {}, "bookings": {}}
    followed = [Follower(client, name, snapshot=True) for name in KEYS]
    for step in range(25):
        ok(client.post("/v1/changes", json={"changes": drawn(rng, tables)}))
        wanted = expected(tables)
        for name, some in wanted.items():
            assert tuples(client, name) == some, (step, name)
            assert client.get(f"/v1/views/{name}/count").json()["count"] == len(some)
        hold(tables, wanted)
        if step % 4:
            for one in followed:
                one.resume(client)
                assert sorted(one.rows.values(), key=repr) == wanted[one.name]
                identify(one)
        if step in (9, 18):
            (server.stop if step == 9 else server.kill)()
            server.start()
            client = server.client()
    read_in_parts(client, tables, wanted)
    assert server.stop() == 0
    assert main(["check", str(server.data)]) == 0
    assert "free" in capsys.readouterr().out


def identify(follower: Follower) -> None:
    """Check that rows are identified by the key of an alias, or of a group, and by their start."""
    alias, columns = KEYS[follower.name]
    stretch = "free" if follower.name == "free" else "busy"
    for key, row in follower.rows.items():
        of = dict(zip(columns, row, strict=False))
        assert json.loads(key) == {alias: of, stretch: {"start": row[-2]}}


def hold(tables: Rows, found: dict[str, list[tuple[Any, ...]]]) -> None:
    """Check that the gaps and the coverage of a row add up to its interval, and that a gap as long as the interval belongs to a row without
    a partner."""
    alone = {number for (number,) in found["anti"]}
    for number, shift in tables["shifts"].items():
        free, busy = ([one[2:] for one in found[name] if one[0] == number] for name in ("free", "busy"))
        whole = (at(shift["starts"]), at(shift["ends"]))
        assert (free == [whole] and not busy) == (number in alone)
        ends = sorted([*free, *busy], key=lambda one: one[0] or "")
        assert ends[0][0] == whole[0] and ends[-1][1] == whole[1]
        assert all(one[1] == after[0] for one, after in zip(ends, ends[1:], strict=False))


def read_in_parts(client: httpx.Client, tables: Rows, wanted: dict[str, list[tuple[Any, ...]]]) -> None:
    """Compare pages, look-ups, windows and files."""
    for name, low, high in (("free", 10, 30), ("busy", 0, 5), ("free", 40, 41)):
        met = [one for one in wanted[name] if (one[2] or "") <= str(at(high)) and (one[3] is None or one[3] > str(at(low)))]
        window = f"{at(low)},{at(high)}"
        for parameter in ("overlaps", f"overlaps.{name}"):
            assert tuples(client, name, **{parameter: window}) == met, (name, parameter)
        ids = {number for number, one in tables["shifts"].items() if hours_of(one)[0] <= high and hours_of(one)[1] > low}
        assert tuples(client, name, **{"overlaps.hours": window}) == [one for one in wanted[name] if one[0] in ids]
        of_room = {"where.s.room": "A"}
        assert tuples(client, name, **of_room) == [one for one in wanted[name] if one[1] == "A"]
        assert tuples(client, name, overlaps=window, **of_room) == [one for one in met if one[1] == "A"]
        for number in range(12):
            assert tuples(client, name, **{"where.s.id": number}) == [one for one in wanted[name] if one[0] == number]
        problem(client.get(f"/v1/views/{name}/rows", params={"overlaps": window, f"overlaps.{name}": window}), 400, "bad-parameter")
        problem(client.get(f"/v1/views/{name}/rows", params={"overlaps.stay": window}), 400, "bad-parameter")
        problem(client.get(f"/v1/views/{name}/rows", params={"where.b.id": 1}), 400, "bad-parameter")
    for room, text in (("A", "A"), ("B", "B"), (None, "")):
        assert tuples(client, "by_room", **{"where.group.room": text}) == [one for one in wanted["by_room"] if one[0] == room]
        met = [one for one in wanted["by_room"] if (one[1] or "") <= str(at(20)) and (one[2] is None or one[2] > str(at(12)))]
        window = f"{at(12)},{at(20)}"
        assert tuples(client, "by_room", overlaps=window) == tuples(client, "by_room", **{"overlaps.busy": window}) == met
        assert tuples(client, "by_room", overlaps=window, **{"where.group.room": text}) == [one for one in met if one[0] == room]
    problem(client.get("/v1/views/by_room/rows", params={"overlaps.hours": window}), 400, "bad-parameter")
    problem(client.get("/v1/views/by_room/rows", params={"where.b.id": 1}), 400, "bad-parameter")
    parts, cursor = list[Any](), None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = ok(client.get("/v1/views/free/rows", params={"limit": 3, **more}, headers={"Accept": JSON}))
        parts += [tuple(row.values()) for row in page["rows"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert sorted(parts, key=repr) == wanted["free"]
    table = pyarrow.parquet.read_table(io.BytesIO(client.get("/v1/views/free/rows.parquet").content))
    stream = pa.ipc.open_stream(client.get("/v1/views/free/rows", headers={"Accept": ARROW}).content).read_all()
    assert table.column_names == stream.column_names == ["id", "room", "free_start", "free_end"]
    for one in (table, stream):
        assert one.num_rows == len(wanted["free"]) and one.schema.field("free_end").type == pa.timestamp("us", "UTC")
    assert len(client.get("/v1/views/busy/rows", headers={"Accept": CSV}).text.splitlines()) == 1 + len(wanted["busy"])
    query = "SELECT count(*) AS n FROM free WHERE free_end > '2026-01-01T10:00:00Z'"
    assert ok(client.post("/v1/query", json={"sql": query}, headers={"Accept": JSON}))["rows"][0]["n"] == sum(
        one[3] is not None and one[3] > str(at(10)) for one in wanted["free"]
    )


def test_what_the_service_tells(server: ServerProcess) -> None:
    client = server.client()
    emitted = ok(client.get("/v1/views/free"))
    assert emitted["plan"]["class"] == "gaps, 1-D, 2 relations, keyed" and emitted["plan"]["algorithm"] == "event-tree"
    assert emitted["shape"]["columns"][2] == {"name": "free_start", "kind": "gaps_start", "alias": None}
    assert emitted["empty"] is True and emitted["statistics"]["groups"] is None
    row = {"id": 1, "room": "A", "starts": at(9), "ends": at(17)}
    ok(client.post("/v1/changes", json={"changes": [{"relation": "shifts", "op": "upsert", "row": row}]}))
    window = ok(client.get("/v1/views/free/window", params={"keys": 3}))
    ((found,),) = [lane["rows"] for lane in window["lanes"]]
    assert found["key"] == {"s": {"id": 1}, "free": {"start": at(9)}} and found["ends"]["s"]["hours"] == {"start": at(9), "end": at(17)}
    booking = {**row, "starts": at(10), "ends": at(12), "status": "sure"}
    ok(client.post("/v1/changes", json={"changes": [{"relation": "bookings", "op": "upsert", "row": booking}]}))
    ends = [one["ends"]["s"]["hours"] for lane in ok(client.get("/v1/views/free/window"))["lanes"] for one in lane["rows"]]
    assert ends == [{"start": at(9), "end": at(10)}, {"start": at(12), "end": at(17)}]
    assert ok(client.get("/v1/views/free"))["statistics"]["intervals"] == 2
    assert ok(client.get("/v1/views/by_room"))["plan"]["guarantee"] == "strict"
    problem(client.get("/v1/views/by_room/window"), 400, "bad-parameter")
    asked = {"sql": "SELECT room FROM by_room WHERE room = 'A'"}
    assert ok(client.post("/v1/query", json=asked, headers={"Accept": JSON}))["rows"] == [{"room": "A"}]
    few = {"sql": "SELECT b.id, coverage(b.stay) AS busy FROM bookings b GROUP BY b.id", "groups": 1}
    assert view(client, "few", few)["state"] == "live"
    ok(client.post("/v1/changes", json={"changes": [{"relation": "bookings", "op": "upsert", "row": {**booking, "id": 2}}]}))
    problem(client.get("/v1/views/few/rows"), 503, "too-many-groups")
    assert ok(client.get("/v1/views/by_room/count"))["count"] == 1
    refused = client.put("/v1/views/other", json={"sql": f"{VIEWS['free']} GROUP BY s.id, s.room"})
    problem(refused, 422, "unsupported-query")
