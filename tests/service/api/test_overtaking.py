"""A batch is not overtaken by a later one of its source, while its body is received or decoded: it would be lost as a duplicate."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest

from service.api.changes import SMALL
from service.api.context import Context
from service.instance import Instance
from service.settings import Settings
from tests.server_process import ServerProcess
from tests.service.api.asking import client
from tests.service.api.test_rewriting import ROW, busy, until
from tests.service.running import running

JSON, JSONL = {"Content-Type": "application/json"}, {"Content-Type": "application/jsonl"}
CHANGE = {"relation": "a", "op": "upsert", "row": {"id": 1, "s": 1, "e": 2}}
Posted = asyncio.Task[httpx.Response]


def posted(asked: httpx.AsyncClient, epoch: int, change: dict[str, Any] = CHANGE, **fields: Any) -> Posted:
    return asyncio.ensure_future(asked.post("/v1/changes", json={"source": "s", "epoch": epoch, "changes": [change]} | fields))


def large(how: str, epoch: int) -> dict[str, Any]:
    """The arguments of a request that is decoded in a thread."""
    given, space = {"source": "s", "epoch": epoch}, b" " * SMALL
    change = orjson.dumps(CHANGE)
    rows = pa.RecordBatch.from_pylist([{"id": 1, "s": 1, "e": 2}])
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as out:
        out.write_batch(rows)
    return {
        "JSON": {"url": "/v1/changes", "params": given, "content": b'{"changes": [%b]}' % change + space, "headers": JSON},
        "fields": {
            "url": "/v1/changes", "headers": JSON,
            "content": b'{ "source": "s", "epoch": %d , "changes" : [%b]}' % (epoch, change) + space,
        },
        "lines": {"url": "/v1/changes", "params": given, "content": change + space, "headers": JSONL},
        "Arrow": {
            "url": "/v1/relations/a/changes", "params": given, "content": stream.getvalue().to_pybytes(),
            "headers": {"Content-Type": "application/vnd.apache.arrow.stream"},
        },
        "replace": {"url": "/v1/relations/a/replace", "params": given, "content": ROW + space, "headers": JSONL},
    }[how]  # fmt: skip


def in_a_service(tmp_path: Path, work: Callable[[Instance, httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    engine, context = running(tmp_path, {}), Context(Settings(data=tmp_path))
    context.open(engine)

    async def run() -> None:
        async with client(context) as asked:
            await asyncio.wait_for(work(engine, asked), 100)

    asyncio.run(run())
    engine.close()


def shown(answers: list[httpx.Response]) -> list[tuple[int, bool]]:
    return [(one.json()["version"], one.json()["duplicate"]) for one in answers]


class Slow:
    """A body that is sent until `go`."""

    def __init__(self, content: bytes = orjson.dumps(CHANGE)) -> None:
        self.content, self.begun, self.go = content, asyncio.Event(), asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.begun.set()
        yield self.content
        await self.go.wait()
        yield b"\n"

    async def posted(self, asked: httpx.AsyncClient, epoch: int, url: str = "/v1/changes", has_length: bool = False) -> Posted:
        given, length = {"source": "s", "epoch": epoch}, {"Content-Length": str(len(self.content) + 1)} if has_length else {}
        kind = JSON if url.endswith("delete") else JSONL
        answer = asyncio.ensure_future(asked.post(url, params=given, headers=kind | length, content=aiter(self)))
        await self.begun.wait()
        return answer


@pytest.mark.parametrize("how", ["JSON", "fields", "lines", "Arrow", "replace"])
def test_one_that_is_decoded(tmp_path: Path, how: str) -> None:
    engine, context, go = busy(tmp_path)

    async def run() -> None:
        async with client(context) as asked:
            first = asyncio.ensure_future(asked.post(**large(how, 1)))
            await until(lambda: first.done() or context.workers._work_queue.qsize() == 1)
            later = posted(asked, 2)
            await until(lambda: later.done() or engine.under_way.waiting == 1)
            assert not later.done()
            assert shown([await posted(asked, 1, source="t")]) == [(1, False)], "other sources do not wait"
            go.set()
            assert shown([await first, await later]) == [(2, False), (3, False)]

    asyncio.run(asyncio.wait_for(run(), 100))
    engine.close()


@pytest.mark.parametrize("has_length", [False, True])
@pytest.mark.parametrize(("url", "content"), [
    ("/v1/changes", orjson.dumps(CHANGE)), ("/v1/relations/a/replace", ROW),
    ("/v1/relations/a/delete", b'{"where": [{"column": "id", "op": "=", "value": 1}]}'),
])  # fmt: skip
def test_one_that_is_received(tmp_path: Path, url: str, content: bytes, has_length: bool) -> None:
    """`has_length`: it is known to be small."""

    async def work(engine: Instance, asked: httpx.AsyncClient) -> None:
        body = Slow(content)
        first = await body.posted(asked, 1, url, has_length)
        later = posted(asked, 2)
        await until(lambda: later.done() or engine.under_way.waiting == 1)
        assert not later.done()
        body.go.set()
        assert shown([await first, await later]) == [(1, False), (2, False)]

    in_a_service(tmp_path, work)


@pytest.mark.parametrize("fields", [b"Connection: close\r\n", b"Connection: close, upgrade\r\nUpgrade: h2c\r\n"], ids=["plain", "upgrade"])
def test_a_small_one_whose_body_follows_its_head(tmp_path: Path, fields: bytes) -> None:
    """Over real connections. Seen: it was lost."""

    def whole(connection: socket.socket) -> bytes:
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    def head_and_body(epoch: int) -> tuple[bytes, bytes]:
        body = orjson.dumps({"changes": [CHANGE | {"row": {"id": epoch, "s": 1, "e": 2}}]})
        line = b"POST /v1/changes?source=s&epoch=%d HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % epoch
        return line + fields + b"Content-Length: %d\r\n\r\n" % len(body), body

    with ServerProcess(tmp_path / "data") as server, server.client() as asked:
        columns = [{"name": name, "type": "int64"} for name in ("id", "s", "e")]
        assert asked.put("/v1/relations/a", json={"columns": columns, "key": ["id"]}).status_code == 201
        address = "127.0.0.1", server.port
        with socket.create_connection(address, 60) as first, socket.create_connection(address, 60) as later:
            head, body = head_and_body(1)
            first.sendall(head)
            for _ in range(2):  # then the service has read what was sent before
                assert asked.get("/livez").status_code == 200
            later.sendall(b"".join(head_and_body(2)))
            for _ in range(2):
                assert asked.get("/livez").status_code == 200
            first.sendall(body)
            one, two = (orjson.loads(whole(connection).partition(b"\r\n\r\n")[2]) for connection in (first, later))
    assert not one["duplicate"] and two == one | {"version": one["version"] + 1}


def test_an_earlier_one_does_not_wait(tmp_path: Path) -> None:
    """Otherwise it would be lost itself."""

    async def work(engine: Instance, asked: httpx.AsyncClient) -> None:
        body = Slow()
        later = await body.posted(asked, 2)
        assert shown([await posted(asked, 1)]) == [(1, False)]
        body.go.set()
        assert shown([await later]) == [(2, False)]

    in_a_service(tmp_path, work)


def test_another_run_does_not_wait(tmp_path: Path) -> None:
    """Its epochs are not compared: the earlier one is refused, not lost."""

    async def work(engine: Instance, asked: httpx.AsyncClient) -> None:
        body = Slow()
        first = await body.posted(asked, 1)
        assert shown([await posted(asked, 2, run="r")]) == [(1, False)]
        body.go.set()
        assert (await first).json()["type"] == "/problems/source-reset"

    in_a_service(tmp_path, work)


def test_one_that_is_sent_again_takes_its_place(tmp_path: Path) -> None:
    """The first copy's connection may be lost, which is noticed late."""

    async def work(engine: Instance, asked: httpx.AsyncClient) -> None:
        lost, again = Slow(), Slow()
        first = await lost.posted(asked, 1)
        second = await again.posted(asked, 1)
        later = posted(asked, 2)
        await until(lambda: later.done() or engine.under_way.waiting == 1)
        again.go.set()
        assert shown([await second, await later]) == [(1, False), (2, False)]
        lost.go.set()
        assert shown([await first]) == [(2, True)]

    in_a_service(tmp_path, work)


@pytest.mark.parametrize("how", ["gone", "bad"])
def test_one_that_is_not_applied(tmp_path: Path, how: str) -> None:
    """Later ones go on."""

    async def work(engine: Instance, asked: httpx.AsyncClient) -> None:
        body = Slow(b"{")
        first = await body.posted(asked, 1)
        later = posted(asked, 2)
        await until(lambda: later.done() or engine.under_way.waiting == 1)
        assert not later.done()
        first.cancel() if how == "gone" else body.go.set()
        assert shown([await later]) == [(1, False)]
        assert how == "gone" or (await first).status_code == 400

    in_a_service(tmp_path, work)
