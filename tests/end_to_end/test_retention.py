"""Old rows are deleted while others are written, whole relations are replaced, definitions are extended, and the service is killed: nothing
else is deleted, and the changes that followers receive are consistent."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import httpx
import orjson
import pytest

from service.engine import retention
from tests.end_to_end.talk import JSONL, define, ok, view
from tests.faults import patches
from tests.relations import declared
from tests.server_process import ServerProcess

Rows = dict[int, dict[str, Any]]
OLD, NEW = "2000-01-01T00:00:00Z", "2900-01-01T00:00:00Z"
EVENTS = declared("id:int64, at:timestamp?, n:int64")
RETAIN = {"retain": {"column": "at", "for": "P10D"}}
PATCHES = [RETAIN, RETAIN, {"retain": None}, {"add_columns": [{"name": "more", "type": "string", "nullable": True}]}, {"nullable": ["n"]}]


def often() -> None:
    """Check for old rows continuously, a few rows at a time."""
    patches.small()
    patches.replace(retention, "_EVERY", 0.01)
    patches.replace(retention, "_ROWS", 3)


class Life:
    """One client that writes and follows. `written`: by version, the rows that it wrote, and whether they replaced all rows."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.written: dict[int, tuple[Rows, bool]] = {}
        self.emitted: list[dict[str, Any]] = []
        self.token = ""

    def step(self, client: httpx.Client) -> None:
        kind = self.random.random()
        if kind < 0.2:
            ok(client.patch("/v1/relations/events", json=self.random.choice(PATCHES)))
            return
        rows = {
            key: {"id": key, "at": self.random.choice((OLD, OLD, NEW, None)), "n": self.random.randrange(9)}
            for key in self.random.sample(range(20), self.random.randrange(1, 9))
        }
        path = "/v1/relations/events/" + ("replace" if kind < 0.35 else "changes")
        answer = client.post(path, content=b"".join(orjson.dumps(row) + b"\n" for row in rows.values()), headers={"Content-Type": JSONL})
        self.written[ok(answer)["version"]] = rows, path.endswith("replace")

    def follow(self, client: httpx.Client) -> None:
        answer = client.get("/v1/views/every/changes", params={"wait": 0} | ({"since": self.token} if self.token else {"snapshot": "true"}))
        assert answer.status_code == 200, answer.text
        found = [orjson.loads(line) for line in answer.text.splitlines()]
        self.emitted += [one for one in found if one["op"] != "progress"]
        self.token = found[-1]["token"]

    def settle(self, client: httpx.Client) -> Rows:
        """Return the remaining rows once all old ones are deleted."""
        ok(client.patch("/v1/relations/events", json=RETAIN))
        while any(row["at"] == OLD for row in rows_of(client).values()):
            time.sleep(0.01)  # the test's time limit ends this if they stay
        self.follow(client)
        return rows_of(client)

    def check(self, newest: int) -> Rows:
        """Check the changes that followers received, version by version, and their sum."""
        rows: Rows = {}
        for version in range(1, newest + 1):
            before = dict(rows)
            for one in (one for one in self.emitted if one["version"] == version):
                if one["op"] == "delete":
                    assert rows.pop(one["row"]["id"]) == one["row"], version
                else:
                    assert rows.setdefault(one["row"]["id"], one["row"]) is one["row"], version
            if version in self.written:
                put, all_of_them = self.written[version]
                assert rows == (put if all_of_them else before | put), version
            else:
                assert rows.items() <= before.items(), version
                assert {before[key]["at"] for key in before.keys() - rows.keys()} <= {OLD}, version
        return rows


def rows_of(client: httpx.Client) -> Rows:
    found = [orjson.loads(line) for line in client.get("/v1/views/every/rows").text.splitlines()]
    return {row["id"]: row for row in found}


@pytest.mark.parametrize("seed", range(2))
def test_old_rows_go_and_nothing_else(tmp_path: Path, seed: int) -> None:
    life = Life(seed)
    with ServerProcess(tmp_path / "data", before=often) as server:
        client = server.client()
        define(client, "events", EVENTS)
        view(client, "every", "SELECT e.id AS id, e.at AS at, e.n AS n FROM events e")
        life.follow(client)
        for _ in range(3):
            for _ in range(15):
                life.step(client)
            if life.random.random() < 0.5:
                life.follow(client)
            server.kill()
            server.start()
            client = server.client()
        rows = life.settle(client)
        (source,) = ok(client.get("/v1/sources"))["sources"]
        newest = ok(client.get("/v1/status"))["version"]
    assert (source["name"], source["epoch"]) == ("livejoin.retain", newest - len(life.written)), "every other version is a batch of its own"
    assert life.check(newest) == rows
