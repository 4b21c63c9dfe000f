"""A view that takes long to build, over HTTP: writers continue, the build can be cancelled, and a stop does not wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.engine.builds import Builds
from tests.end_to_end import talk
from tests.server_process import ServerProcess

LEFT = {"columns": [{"name": "id", "type": "int64"}, {"name": "k", "type": "string"}], "key": ["id"]}
SQL = "SELECT a.id AS a, b.id AS b FROM a JOIN b ON a.k = b.k"
ALGORITHMS = ["join-tree", "view-tree"]  # one with its own structures, one over indexes that views share


def hold(gate: Path) -> None:
    """In the service: views that have loaded wait until this file exists."""
    load = Builds._load

    def held(build: Any, version: int) -> None:
        load(build, version)
        while not gate.exists():
            build.require()  # raises once the build is cancelled
            time.sleep(0.005)

    Builds._load = staticmethod(held)  # type: ignore[method-assign]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "go"


@pytest.fixture
def held(tmp_path: Path, gate: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", before=partial(hold, gate)) as server:
        yield server


def filled(server: ServerProcess) -> httpx.Client:
    client = server.client()
    for name in "ab":
        talk.define(client, name, LEFT)
    upsert(client, *((name, number) for name in "ab" for number in range(10)))
    return client


def upsert(client: httpx.Client, *rows: tuple[str, int]) -> None:
    changes = [{"relation": name, "op": "upsert", "row": {"id": number, "k": f"key {number % 5}"}} for name, number in rows]
    assert talk.ok(talk.send(client, changes))["applied"] == len(rows)


def put(client: httpx.Client, algorithm: str) -> dict[str, Any]:
    answer = client.put("/v1/views/v", json={"sql": SQL, "algorithm": algorithm})
    assert answer.status_code == 202
    return dict(answer.json())


def rows(client: httpx.Client) -> list[tuple[Any, ...]]:
    return sorted(talk.read(client, "v", "application/jsonl", ("a", "b")))


def wanted(numbers: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(numbers) for b in range(10) if a % 5 == b % 5]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_others_write_while_a_view_is_built(held: ServerProcess, gate: Path, algorithm: str) -> None:
    client = filled(held)
    made = put(client, algorithm)
    assert made["state"] == "building" and 0 <= made["progress"] < 1
    emitted = talk.problem(client.put("/v1/relations/v", json=LEFT), 409, "definition-differs")
    assert "v is the name of a view" in emitted["detail"]
    upsert(client, ("a", 10), ("a", 11))
    for path in ("rows", "count", "changes"):
        answer = client.get(f"/v1/views/v/{path}")
        assert int(answer.headers["Retry-After"]) > 0
        assert talk.problem(answer, 503, "view-building")["progress"] < 1
    assert talk.ok(client.get("/v1/views/v"))["state"] == "building"
    assert client.put("/v1/views/v", json={"sql": SQL, "algorithm": algorithm}).status_code in (200, 202), "the same again"
    gate.touch()
    talk.live(client.get("/v1/views/v"), client, "v")
    assert rows(client) == wanted(12)
    upsert(client, ("a", 12))
    assert rows(client) == wanted(13)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_build_is_given_up(held: ServerProcess, gate: Path, algorithm: str) -> None:
    """The name of the view is free at once, its relations shortly afterwards."""
    client = filled(held)
    put(client, algorithm)
    talk.problem(client.delete("/v1/relations/a"), 409, "relation-in-use")
    assert client.delete("/v1/views/v").status_code == 204
    talk.problem(client.get("/v1/views/v/rows"), 404, "not-found")
    put(client, "nested-loop")
    gate.touch()
    talk.live(client.get("/v1/views/v"), client, "v")
    assert rows(client) == wanted(10)
    assert client.delete("/v1/views/v").status_code == 204
    assert client.delete("/v1/relations/a").status_code == 204


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_stop_while_views_are_built(tmp_path: Path, gate: Path, algorithm: str) -> None:
    """During a registration, and during a start: the stop ends with status 0, and the next start builds the view."""
    folder = tmp_path / "data"
    with ServerProcess(folder, before=partial(hold, gate)) as server:
        put(filled(server), algorithm)
        assert server.stop() == 0
    with ServerProcess(folder, before=partial(hold, gate), arguments=["--ready", "relations"]) as server:
        client = server.client()
        assert talk.ok(client.get("/v1/views/v"))["state"] == "building"
        talk.problem(client.put("/v1/relations/v", json=LEFT), 409, "definition-differs")
        upsert(client, ("a", 10))
        assert server.stop() == 0
    with ServerProcess(folder) as server:
        assert rows(server.client()) == wanted(11)
        assert "ERROR" not in server.output()
