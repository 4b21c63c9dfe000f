"""Changes of whole relations: replacement in one request and in parts, deletion by condition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest

from tests.end_to_end.talk import ARROW, CSV, JSONL, PARQUET, define, encode_table, ok, problem, send, view
from tests.relations import bookings
from tests.server_process import ServerProcess

STAYS = bookings()
PAIRS = {
    "from": {"a": "stays", "b": "stays"},
    "join": [{"equal": ["a.room", "b.room"]}, {"overlaps": ["a.stay", "b.stay"]}],
    "select": ["a.id as i", "b.id as j"],
}


def stay(id_: int, room: str = "A", day: int = 1, days: int | None = 1) -> dict[str, Any]:
    ends = None if days is None else f"2026-01-{day + days:02}T00:00:00Z"
    return {"id": id_, "room": room, "starts": f"2026-01-{day:02}T00:00:00Z", "ends": ends}


def lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def replace(client: httpx.Client, rows: list[Any] | bytes, media: str = JSONL, **parameters: Any) -> httpx.Response:
    content = rows if isinstance(rows, bytes) else lines(rows)
    return client.post("/v1/relations/stays/replace", content=content, headers={"Content-Type": media}, params=parameters)


def delete(client: httpx.Client, *where: dict[str, Any], **parameters: Any) -> httpx.Response:
    return client.post("/v1/relations/stays/delete", json={"where": list(where)}, params=parameters)


def rows_of(client: httpx.Client, path: str = "/v1/relations/stays/rows") -> list[dict[str, Any]]:
    found = client.get(path, headers={"Accept": JSONL})
    assert found.status_code == 200, found.text
    return sorted((json.loads(line) for line in found.text.splitlines()), key=lambda row: tuple(map(str, row.values())))


def ids(client: httpx.Client) -> set[int]:
    return {row["id"] for row in rows_of(client)}


def changes_since(client: httpx.Client, token: str, name: str = "pairs") -> list[dict[str, Any]]:
    answer = client.get(f"/v1/views/{name}/changes", params={"since": token, "wait": 0})
    return [json.loads(line) for line in answer.text.splitlines()]


def token_of(client: httpx.Client, name: str = "pairs") -> str:
    return str(changes_since_now(client, name)[-1]["token"])


def changes_since_now(client: httpx.Client, name: str = "pairs") -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.get(f"/v1/views/{name}/changes", params={"wait": 0}).text.splitlines()]


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    client = server.client()
    define(client, "stays", STAYS)
    view(client, "pairs", PAIRS)
    yield client
    ok(client.delete("/v1/views/pairs"), 204)
    ok(client.delete("/v1/relations/stays"), 204)


def test_followers_see_the_difference_only(client: httpx.Client) -> None:
    ok(replace(client, [stay(1), stay(2, day=9), stay(3)]))
    token = token_of(client)
    receipt = ok(replace(client, [stay(1), stay(3, room="B"), stay(4)]))
    assert {key: receipt[key] for key in ("applied", "ignored", "skipped_count", "duplicate")} == {
        "applied": 3, "ignored": 0, "skipped_count": 0, "duplicate": False,
    }  # fmt: skip
    assert ids(client) == {1, 3, 4}
    emitted = changes_since(client, token)
    records = [(one["op"], one["row"]["i"], one["row"]["j"]) for one in emitted if one["op"] != "progress"]
    assert {one["version"] for one in emitted if one["op"] != "progress"} == {receipt["version"]}
    assert sorted(records) == sorted(
        [("delete", 1, 3), ("delete", 3, 1), ("delete", 2, 2), ("insert", 1, 4), ("insert", 4, 1), ("insert", 4, 4)]
        + [("delete", 3, 3), ("insert", 3, 3)] * any(record[1:] == (3, 3) for record in records)
    )
    again = ok(replace(client, [stay(4), stay(1), stay(3, room="B")]))
    assert again["version"] == receipt["version"] + 1
    assert not [one for one in changes_since(client, token) if one["op"] != "progress" and one["version"] == again["version"]]


@pytest.mark.parametrize("media", [JSONL, CSV, ARROW, PARQUET])
def test_every_media_type(client: httpx.Client, media: str) -> None:
    ok(replace(client, [stay(7), stay(8)]))
    times = pa.timestamp("us", "UTC")
    ends = pa.array([5, None, 9], times)
    table = pa.table({"id": [1, 2, 8], "room": ["A", "B", "A"], "starts": pa.array([0, 1, 2], times), "ends": ends})
    plain = [{"id": 1, "room": "A", "starts": 0, "ends": 5}, {"id": 2, "room": "B", "starts": 1}]
    plain.append({"id": 8, "room": "A", "starts": 2, "ends": 9})
    content = lines(plain) if media == JSONL else encode_table(table, media)
    assert ok(replace(client, content, media))["applied"] == 3
    assert ids(client) == {1, 2, 8}


def test_the_last_row_of_a_key_counts_and_none_empties(client: httpx.Client) -> None:
    assert ok(replace(client, [stay(1), stay(2), stay(1, room="Z")]))["applied"] == 3
    assert {row["id"]: row["room"] for row in rows_of(client)} == {1: "Z", 2: "A"}
    assert ok(replace(client, b"id,room,starts,ends\n", CSV))["applied"] == 0
    assert rows_of(client) == []


def test_bad_rows(client: httpx.Client) -> None:
    ok(replace(client, [stay(1), stay(2), stay(3)]))
    bad = [stay(4), stay(2) | {"room": None}, {"id": 3, "room": "A"}, stay(1) | {"id": "x"}]
    refused = problem(replace(client, bad), 422, "bad-rows")
    assert refused["error_count"] == 3 and ids(client) == {1, 2, 3}
    receipt = ok(replace(client, bad, on_error="skip"))
    assert (receipt["applied"], receipt["skipped_count"]) == (1, 3)
    assert [error["index"] for error in receipt["skipped"]] == [1, 2, 3]
    assert ids(client) == {2, 3, 4}, "rows whose keys were read stay; the row of the unreadable key is gone, and told"
    refused = problem(replace(client, [stay(1) | {"_op": "upsert"}]), 400, "malformed-body")
    assert "_op" in refused["detail"]
    problem(replace(client, b"_op,id,room,starts,ends\nupsert,1,A,0,\n", CSV), 400, "malformed-body")
    problem(replace(client, b"null\n", "application/vnd.debezium+jsonl"), 415, "unsupported-media-type")
    problem(client.post("/v1/relations/nothing/replace", content=b"", headers={"Content-Type": JSONL}), 404, "not-found")


def test_sources(client: httpx.Client) -> None:
    first = ok(replace(client, [stay(1), stay(2)], source="nightly", epoch=1))
    again = ok(replace(client, [stay(9)], source="nightly", epoch=1))
    assert again["duplicate"] and again["applied"] == 0 and ids(client) == {1, 2}
    assert again["version"] == first["version"] and again["first"] == first
    problem(replace(client, [stay(1)], source="nightly", epoch=2, run="r"), 409, "source-reset")
    refused = problem(replace(client, [stay(1)], source="livejoin.retain", epoch=2), 400, "bad-parameter")
    assert refused["parameter"] == "source"
    done = ok(delete(client, {"column": "id", "op": "=", "value": 1}, source="nightly", epoch=5))
    assert done["applied"] == 1 and ids(client) == {2}
    body = {"where": [{"column": "id", "op": "=", "value": 2}], "source": "nightly", "epoch": 5}
    assert ok(client.post("/v1/relations/stays/delete", json=body))["duplicate"] and ids(client) == {2}
    problem(send(client, [], source="livejoin.x", epoch=1), 400, "bad-parameter")


def test_delete_by_condition(client: httpx.Client) -> None:
    everything = [stay(i, room="AB"[i % 2], day=1 + i, days=None if i == 9 else 1) for i in range(10)]
    ok(replace(client, everything))
    token = token_of(client)
    receipt = ok(delete(client, {"column": "ends", "op": "<", "value": "2026-01-05"}))
    assert receipt["applied"] == 3 and receipt["ignored"] == receipt["skipped_count"] == 0
    assert ids(client) == set(range(3, 10))
    assert {one["version"] for one in changes_since(client, token) if one["op"] == "delete"} == {receipt["version"]}
    assert ok(delete(client, {"column": "room", "op": "in", "value": ["B"]}, {"column": "ends", "op": "is_null"}))["applied"] == 1
    assert ok(delete(client, {"column": "id", "op": "=", "value": None}))["applied"] == 0
    nothing = ok(delete(client, {"column": "id", "op": ">", "value": 1000}))
    assert nothing["applied"] == 0 and ids(client) == set(range(3, 9))
    assert "truncate" in problem(delete(client), 422, "bad-definition")["detail"]
    problem(delete(client, {"column": "nothing", "op": "=", "value": 1}), 422, "unknown-column")
    problem(delete(client, {"column": "id", "op": "~", "value": 1}), 422, "bad-definition")
    problem(delete(client, {"column": "id", "op": "=", "value": "x"}), 422, "bad-definition")
    problem(client.post("/v1/relations/nothing/delete", json={"where": []}), 404, "not-found")


def test_stages(client: httpx.Client) -> None:
    ok(replace(client, [stay(1), stay(2)]))
    emitted = ok(replace(client, [stay(3), stay(4)], stage="night", part=1))
    assert (emitted["stage"], emitted["part"], emitted["parts"], emitted["rows"]) == ("night", 1, 1, 2)
    ok(replace(client, [stay(5)], stage="night", part=0))
    assert ok(replace(client, [stay(5), stay(3, room="early")], stage="night", part=0))["rows"] == 4
    assert ok(replace(client, [stay(6), stay(2) | {"ends": "x"}, stay(7)], stage="night", on_error="skip"))["part"] == 2
    problem(replace(client, [{"id": 1}], stage="night"), 422, "bad-rows")
    assert ids(client) == {1, 2}
    receipt = ok(client.post("/v1/relations/stays/replace", params={"stage": "night", "commit": "true", "source": "n", "epoch": 1}))
    assert (receipt["applied"], receipt["skipped_count"], receipt["skipped"][0]["index"]) == (6, 1, 5)
    assert {row["id"]: row["room"] for row in rows_of(client)} == dict.fromkeys((2, 3, 4, 5, 6, 7), "A")
    commit = client.post("/v1/relations/stays/replace", params={"stage": "night", "commit": "true", "source": "n", "epoch": 1})
    assert ok(commit)["duplicate"]
    problem(client.post("/v1/relations/stays/replace", params={"stage": "night", "commit": "true"}), 404, "not-found")
    wrong: list[dict[str, Any]] = [{"part": 1}, {"commit": "true"}, {"stage": ""}, {"stage": "x", "epoch": 1, "source": "n"}]
    for parameters in (*wrong, {"stage": "x", "part": 1, "commit": "true"}, {"stage": "x", "keep": "true"}):
        problem(replace(client, [stay(1)], **parameters), 400, "bad-parameter")
    problem(replace(client, [stay(1)], stage="x", commit="true"), 400, "bad-parameter")


def test_staged_upserts(client: httpx.Client) -> None:
    """Parts that are named make one version; rows with other keys stay, and so do the other parts."""
    before = ok(replace(client, [stay(1), stay(2), stay(3)]))["version"]
    for part, row in enumerate((stay(2, room="B"), stay(4), stay(5), stay(1))):
        ok(replace(client, [row], stage="day", part=part))
    params = {"stage": "day", "commit": "true", "keep": "true"}

    def commit(body: Any) -> httpx.Response:
        return client.post("/v1/relations/stays/replace", params=params, json=body)

    receipt = ok(commit({"parts": [0, 1, 3]}))
    assert (receipt["version"], receipt["applied"]) == (before + 1, 3)
    assert {row["id"]: row["room"] for row in rows_of(client)} == {1: "A", 2: "B", 3: "A", 4: "A"}
    for body, said in (({"parts": ["x"]}, "bad-parameter"), ({"part": [1]}, "bad-parameter"), ([2], "malformed-body")):
        problem(commit(body), 400, said)
    problem(commit({"parts": [1, 2]}), 404, "not-found")
    assert ok(client.post("/v1/relations/stays/replace", params={"stage": "day", "commit": "true"}))["applied"] == 1
    assert ids(client) == {5}


def test_a_commit_that_is_repeated_keeps_other_parts(client: httpx.Client) -> None:
    """Seen: it dropped the whole stage, and what was committed later lacked their rows."""
    for part in range(3):
        ok(replace(client, [stay(part)], stage="noon", part=part))
    params = {"stage": "noon", "commit": "true", "source": "noon", "epoch": 1}

    def commit(parts: Any = None) -> Any:
        return ok(client.post("/v1/relations/stays/replace", params=params, json=None if parts is None else {"parts": parts}))

    assert not commit([0])["duplicate"] and commit([0])["duplicate"]
    ok(replace(client, [stay(0)], stage="noon", part=0))  # sent again, too: it is dropped
    assert commit([0])["duplicate"]
    params["epoch"] = 2
    assert commit()["applied"] == 2 and ids(client) == {1, 2}


def test_parts_of_a_former_definition(client: httpx.Client) -> None:
    """Rows that an extension has made invalid cause the commit to be refused, unless their part was sent with `on_error=skip`."""
    where = "/v1/relations/spans/replace"
    define(client, "spans", {"columns": [{"name": name, "type": "int64"} for name in ("id", "s", "e")], "key": ["id"]})
    former = [{"id": 1, "s": 1, "e": 2}, {"id": 2, "s": 1, "e": 2}]
    ok(client.post(where, content=lines(former), headers={"Content-Type": JSONL}))

    def stage(part: int, *rows: tuple[int, int, int], **parameters: str) -> None:
        content = lines([dict(zip(("id", "s", "e"), row, strict=True)) for row in rows])
        ok(client.post(where, content=content, headers={"Content-Type": JSONL}, params={"stage": "x", "part": part, **parameters}))

    def commit() -> httpx.Response:
        return client.post(where, params={"stage": "x", "commit": "true", "source": "st", "epoch": 1})

    stage(0, (2, 9, 2), (4, 1, 2), on_error="skip")
    stage(1, (3, 1, 2), (1, 9, 2))
    ok(client.patch("/v1/relations/spans", json={"add_intervals": {"iv": {"start": "s", "end": "e"}}}))
    for _ in range(2):  # the stage stays
        refused = problem(commit(), 422, "bad-rows")
        assert refused["error_count"] == 1 and [error["index"] for error in refused["errors"]] == [3]
        assert rows_of(client, "/v1/relations/spans/rows") == former
    stage(1, (3, 1, 2), (1, 2, 9))
    receipt = ok(commit())
    assert not receipt["duplicate"] and (receipt["applied"], receipt["skipped_count"], receipt["skipped"][0]["index"]) == (3, 1, 0)
    assert [(row["id"], row["e"]) for row in rows_of(client, "/v1/relations/spans/rows")] == [(1, 9), (2, 2), (3, 2), (4, 2)]
    ok(client.delete("/v1/relations/spans"), 204)


def test_a_start_forgets_stages_and_keeps_versions(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        define(client, "stays", STAYS)
        view(client, "pairs", PAIRS)
        ok(replace(client, [stay(i) for i in range(20)], source="n", epoch=1))
        ok(replace(client, [stay(i, room="B") for i in range(10)], source="n", epoch=2))
        deleted = ok(delete(client, {"column": "id", "op": "<", "value": 5}, source="n", epoch=3))
        ok(replace(client, [stay(1)], stage="night"))
        before, pairs = rows_of(client), rows_of(client, "/v1/views/pairs/rows")
        assert (tmp_path / "data" / "stages").is_dir()
        server.kill()
        server.start()
        client = server.client()
        assert rows_of(client) == before and rows_of(client, "/v1/views/pairs/rows") == pairs and len(before) == 5
        again = ok(delete(client, {"column": "id", "op": ">", "value": 0}, source="n", epoch=3))
        assert again["duplicate"] and again["first"] == deleted and again["version"] == deleted["version"]
        assert "first" not in ok(replace(client, [], source="n", epoch=2))
        problem(client.post("/v1/relations/stays/replace", params={"stage": "night", "commit": "true"}), 404, "not-found")
        assert not (tmp_path / "data" / "stages").exists()


def test_sources_are_listed_and_forgotten(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        define(client, "stays", STAYS)
        assert ok(client.get("/v1/sources")) == {"sources": []}
        bad = [{"relation": "stays", "op": "upsert", "row": row} for row in (stay(1), {"id": 2})]
        first = ok(send(client, bad, source="pms/prod", run="r", epoch=3, on_error="skip"))
        assert first["skipped_count"] == 1
        ok(replace(client, [stay(1)], source="crm", epoch=-7))
        for _ in range(2):
            crm, pms = ok(client.get("/v1/sources"))["sources"]
            assert (pms["name"], pms["run"], pms["epoch"], pms["version"]) == ("pms/prod", "r", 3, first["version"])
            assert (crm["name"], crm["run"], crm["epoch"], crm["version"]) == ("crm", None, -7, first["version"] + 1)
            assert pms["time"].endswith("Z") and pms["time"] <= crm["time"]
            again = ok(send(client, bad, source="pms/prod", run="r", epoch=3, on_error="skip"))
            assert again == {**first, "applied": 0, "skipped_count": 0, "skipped": [], "duplicate": True, "version": 2, "first": first}
            assert "first" not in ok(send(client, bad, source="pms/prod", run="r", epoch=2))
            server.kill()
            server.start()
            client = server.client()
        ok(client.delete("/v1/sources/pms%2Fprod"), 204)
        problem(client.delete("/v1/sources/pms%2Fprod"), 404, "not-found")
        assert [one["name"] for one in ok(client.get("/v1/sources"))["sources"]] == ["crm"]
        assert not ok(send(client, bad, source="pms/prod", epoch=1, on_error="skip"))["duplicate"]
        for odd in ("a\nb", "\n", "c\r\n", " "):
            ok(replace(client, [stay(1)], source=odd, epoch=1))
            ok(client.delete(f"/v1/sources/{quote(odd, safe='')}"), 204)
