"""What a real engine does too rarely or too slowly for a test: full queues, views that are being built, quiet feeds."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pytest

from livejoin.wire.schema import parse_relation
from service.api import followers, rows, views
from service.api.context import READERS, Context
from service.engine.versions import Pins, Version
from service.errors import Problem
from service.following.chunks import Chunk
from service.settings import Settings
from tests.service.api.asking import ask, client, is_problem

DEFINITION = parse_relation({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
PLAN = SimpleNamespace(to_json=lambda: {"algorithm": "interval-tree"})


class Subscription:
    """Says what it was told to, then nothing."""

    is_in_snapshot = False

    def __init__(self, *said: Chunk) -> None:
        self.said = list(said)
        self.closed = self.ended = False

    def next(self) -> list[Chunk]:
        said, self.said = self.said, []
        return said

    @property
    def position(self) -> int | None:
        return None if self.said else 9

    def idle_progress(self) -> Chunk:
        return Chunk("progress", 9, token="idle")

    def close(self) -> None:
        self.closed = True


class Feed:
    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.listeners = 0

    def subscribe(self, since: str | None, snapshot: bool, until: str | None, asked: None) -> Subscription:
        return self.subscription

    def changes(self, position: int) -> list[Chunk]:
        return []

    def add_listener(self, listener: Any) -> int:
        self.listeners += 1
        return 1

    def remove_listener(self, number: int) -> None:
        self.listeners -= 1


class Instance:
    state = "ready"
    readers = None  # what opens rows is replaced, too
    published = Version(9, {}, {})

    def __init__(self, state: str = "live", feed: Feed | None = None, problem: Problem | None = None) -> None:
        definition = SimpleNamespace(definition={"from": {}}, plan=PLAN, reads={})
        said = {"name": "v", "state": state, "progress": 0.25, "problem": problem}
        self.view = SimpleNamespace(**said, feed=feed, view=definition, statistics=dict, inputs=[], costs={})
        self.views = {"v": self.view}
        self.versions = Pins()
        self.relations = {"a": SimpleNamespace(definition=DEFINITION)}
        self.replacements = SimpleNamespace(of=lambda name: None)

    def stored_for(self, views: Any) -> list[Any]:
        return []

    def admit(self) -> None:
        raise Problem("too-busy", "9 batches are waiting already")

    def register(self, name: str, data: dict[str, Any], replace: bool) -> Future[tuple[Any, Future[None]]]:
        registered: Future[tuple[Any, Future[None]]] = Future()
        registered.set_result((self.view, Future()))
        return registered


def on(engine: Instance) -> Context:
    context = Context(Settings())
    context.open(engine)  # type: ignore[arg-type]
    return context


def get(feed: Feed, query: str, **headers: str) -> httpx.Response:
    return ask("GET", f"/v1/views/v/changes{query}", on(Instance(feed=feed)), headers=headers)


def test_too_many_batches() -> None:
    sent = 0

    async def pour() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield b" " * 1000

    response = ask("POST", "/v1/changes", on(Instance()), content=pour(), headers={"Content-Type": "application/json"})
    is_problem(response, "too-busy")
    assert sent == 0 and response.headers["connection"] == "close"
    assert int(response.headers["retry-after"]) >= 1


def test_a_view_that_is_being_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def building(*_: Any, **__: Any) -> None:
        raise Problem("view-building", "the view v is being built", progress=0.25)

    monkeypatch.setattr(rows, "open_rows", building)
    monkeypatch.setattr(views, "BUILD_WAIT", 0.01)
    engine = Instance("building")
    shown = ask("PUT", "/v1/views/v", on(engine), json={})
    assert shown.status_code == 202
    assert (shown.json()["state"], shown.json()["progress"], shown.json()["empty"]) == ("building", 0.25, None)
    for path in ("rows", "count", "changes"):
        response = ask("GET", f"/v1/views/v/{path}", on(engine))
        assert is_problem(response, "view-building")["progress"] == 0.25
        assert int(response.headers["retry-after"]) >= 1


def test_a_view_that_has_failed() -> None:
    engine = Instance("failed", problem=Problem("view-failed", "no memory"))
    shown = ask("GET", "/v1/views/v", on(engine)).json()
    assert shown["state"] == "failed" and shown["problem"]["type"] == "/problems/view-failed"
    is_problem(ask("GET", "/v1/views/v/changes", on(engine)), "view-failed")


def test_progress_comes_when_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "PROGRESS_INTERVAL", 0.01)
    feed = Feed(Subscription())
    records = [json.loads(line) for line in get(feed, "?limit=3").text.splitlines()]
    assert records == [{"version": 9, "op": "progress", "token": "idle"}] * 3
    assert feed.listeners == 0


def keys() -> pa.RecordBatch:
    names = ["b.first", "b.second", "m.id"]
    return pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array(["x", 'y"}\n']), pa.array([7, 7])], names)


def test_records() -> None:
    row = pa.RecordBatch.from_arrays([pa.array([1.5, None])], ["value"])
    said = Chunk("rows", 4, "insert", keys(), row), Chunk("progress", 4, token="t4")
    feed = Feed(Subscription(*said))
    records = [json.loads(line) for line in get(feed, "?wait=0").text.splitlines()]
    assert records == [
        {"version": 4, "op": "insert", "key": {"b": {"first": 1, "second": "x"}, "m": {"id": 7}}, "row": {"value": 1.5}},
        {"version": 4, "op": "insert", "key": {"b": {"first": 2, "second": 'y"}\n'}, "m": {"id": 7}}, "row": {"value": None}},
        {"version": 4, "op": "progress", "token": "t4"},
    ]


def test_an_error_is_the_last_record() -> None:
    said = Chunk("error", 4, token="t4", problem=Problem("token-expired", "gone")), Chunk("progress", 5, token="never")
    for accept in ("application/jsonl", "text/event-stream"):
        text = get(Feed(Subscription(*said)), "", Accept=accept).text.strip()
        last = json.loads(text.split("data: ")[-1])
        assert last["op"] == "error" and last["token"] == "t4" and last["problem"]["type"] == "/problems/token-expired"
        assert accept == "application/jsonl" or text.startswith("event: error\n")


def test_the_limit_counts_progress_records() -> None:
    said = [Chunk("progress", version, token=str(version)) for version in (1, 2, 3)]
    found = [json.loads(line)["version"] for line in get(Feed(Subscription(*said)), "?limit=2").text.splitlines()]
    assert found == [1, 2]


def test_look_ups_that_wait_for_the_writer_hold_no_reader_up(monkeypatch: pytest.MonkeyPatch) -> None:
    built = threading.Event()

    def opening(engine: Any, name: str, *, point: Any, **_: Any) -> None:
        if point is not None:
            assert built.wait(60)
        raise Problem("internal", "looked up" if point is not None else "read")

    monkeypatch.setattr(rows, "open_rows", opening)
    context = on(Instance())

    async def run() -> list[str]:
        async with client(context) as asked:
            paths = [f"/v1/views/v/{what}?where.a.id={i}" for i in range(READERS) for what in ("rows", "count")]
            waiting = [asyncio.ensure_future(asked.get(path)) for path in paths]
            while context.waiters._work_queue.qsize() == 0 and len(context.waiters._threads) < len(paths):
                await asyncio.sleep(0)
            said = [(await asked.get(f"/v1/views/v/{what}")).json()["detail"] for what in ("rows", "count")]
            built.set()
            return said + [response.json()["detail"] for response in await asyncio.gather(*waiting)]

    assert asyncio.run(run()) == ["read"] * 2 + ["looked up"] * 2 * READERS


def test_an_error_within_a_snapshot_has_no_token() -> None:
    said = Chunk("error", 4, problem=Problem("snapshot-expired", "gone"))
    assert "token" not in json.loads(get(Feed(Subscription(said)), "?snapshot=true").text)


def test_figures_wait_for_no_work() -> None:
    """All workers are at long work: bodies that are decoded, plans that are made."""
    done = threading.Event()
    context = Context(Settings())

    async def run() -> list[int]:
        async with client(context) as asked:
            busy = [asyncio.ensure_future(context.work(done.wait, 60)) for _ in range(16)]
            try:
                return [(await asyncio.wait_for(asked.get(path), 30)).status_code for path in ("/livez", "/metrics", "/v1/status")]
            finally:
                done.set()
                await asyncio.gather(*busy)

    assert asyncio.run(run()) == [200, 200, 503]
