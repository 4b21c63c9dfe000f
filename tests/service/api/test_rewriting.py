"""Replacements and deletes over HTTP that wait for a thread: later batches of their source wait, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from livejoin.wire.batch import Batch
from service.api.changes import SMALL
from service.api.context import Context
from service.instance import Instance
from service.settings import Settings
from tests.service.api.asking import client
from tests.service.running import running

ROW = b'{"id": 1, "s": 1, "e": 2}\n'


def busy(tmp_path: Path) -> tuple[Instance, Context, threading.Event]:
    """Its threads for rewrites and for decoding are in use until the event is set."""
    engine, context, go = running(tmp_path, {}), Context(Settings(data=tmp_path)), threading.Event()
    context.open(engine)
    for pool in (context.rewriters, context.workers):
        for _ in range(pool._max_workers):
            pool.submit(go.wait, 60)
    return engine, context, go


async def until(met: Callable[[], bool]) -> None:
    async def poll() -> None:
        while not met():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(poll(), 60)


@pytest.mark.parametrize("how", ["replace", "large replace", "delete", "commit"])
def test_a_later_batch_does_not_overtake(tmp_path: Path, how: str) -> None:
    engine, context, go = busy(tmp_path)

    async def run() -> None:
        async with client(context) as asked:
            given = {"source": "s", "epoch": 1}
            where = {"where": [{"column": "id", "op": "=", "value": 1}]}
            content = ROW + b" " * SMALL if how == "large replace" else ROW
            lines: dict[str, Any] = {"content": content, "headers": {"Content-Type": "application/jsonl"}}
            if how.endswith("replace"):
                first = asyncio.ensure_future(asked.post("/v1/relations/a/replace", params=given, **lines))
            elif how == "delete":
                first = asyncio.ensure_future(asked.post("/v1/relations/a/delete", params=given, json=where))
            else:
                first = asyncio.ensure_future(asked.post("/v1/relations/a/replace", params=given | {"stage": "n", "commit": True}))
            await until(lambda: engine.under_way.holds(Batch([], 0, 0, [], 0, "s", 2)))
            changes: list[Any] = [{"relation": "a", "op": "upsert", "row": {"id": 2, "s": 1, "e": 2}}]
            later = asyncio.ensure_future(asked.post("/v1/changes", json={"source": "s", "epoch": 2, "changes": changes}))
            await until(lambda: engine.waiting == (1 if how == "large replace" else 2))
            assert not later.done()
            go.set()
            answers = [await first, await later]
            if how == "commit":  # there is no such stage
                assert answers[0].status_code == 404 and answers[1].json()["version"] == 1, answers
            else:
                assert [(one.json()["version"], one.json()["duplicate"]) for one in answers] == [(1, False), (2, False)]
            await until(lambda: engine.waiting == 0)

    asyncio.run(run())
    engine.close()


def test_a_repeated_batch_is_told_so_though_its_relation_was_dropped(tmp_path: Path) -> None:
    """Otherwise its sender could never continue."""
    engine, context, go = busy(tmp_path)
    go.set()

    async def run() -> None:
        async with client(context) as asked:
            where, head = {"where": [{"column": "id", "op": "=", "value": 1}]}, {"Content-Type": "application/jsonl"}
            replace, delete = "/v1/relations/a/replace", "/v1/relations/a/delete"
            await asked.post(replace, params={"stage": "n"}, content=ROW, headers=head)
            commit = {"stage": "n", "commit": True}
            requests: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
                (replace, {}, {"content": ROW, "headers": head}), (delete, {}, {"json": where}), (replace, commit, {}),
            ]  # fmt: skip
            for source, (url, given, body) in enumerate(requests):
                assert (await asked.post(url, params=given | {"source": source, "epoch": 5}, **body)).json()["duplicate"] is False
            engine.drop_relation("a")
            for source, (url, given, body) in enumerate(requests):
                if url == delete:
                    in_body = await asked.post(url, json={**where, "source": str(source), "epoch": 5})
                    assert in_body.json()["duplicate"]
                again = await asked.post(url, params=given | {"source": source, "epoch": 5}, **body)
                assert again.json()["duplicate"] and "first" not in again.json(), "it may have rows of the relation"
                for fields in ({"source": source, "epoch": 6}, {}):
                    later = await asked.post(url, params=given | fields, **body)
                    assert later.status_code == 404 and "there is no relation 'a'" in later.json()["detail"]

    asyncio.run(run())
    engine.close()


def test_who_has_gone_is_not_waited_for(tmp_path: Path) -> None:
    engine, context, go = busy(tmp_path)

    async def run() -> None:
        async with client(context) as asked:
            changes: list[Any] = [{"relation": "a", "op": "upsert", "row": {"id": 2, "s": 1, "e": 2}}]
            given, head = {"source": "s", "epoch": 1}, {"Content-Type": "application/jsonl"}
            first = asyncio.ensure_future(asked.post("/v1/relations/a/replace", params=given, content=ROW, headers=head))
            await until(lambda: engine.waiting == 1)
            first.cancel()
            await until(lambda: engine.waiting == 0)
            later = await asked.post("/v1/changes", json={"source": "s", "epoch": 2, "changes": changes})
            assert later.json()["version"] == 1
            go.set()

    asyncio.run(run())
    engine.close()


def test_a_body_that_cannot_be_decoded_is_not_waited_for(tmp_path: Path) -> None:
    engine, context, go = busy(tmp_path)
    go.set()

    async def run() -> None:
        async with client(context) as asked:
            head = {"Content-Type": "application/jsonl"}
            for content in (b"{", b"{" + b" " * SMALL):
                bad = await asked.post("/v1/relations/a/replace", params={"source": "s", "epoch": 1}, content=content, headers=head)
                assert bad.status_code == 400 and engine.waiting == 0

    asyncio.run(run())
    engine.close()


def test_those_that_wait_hold_no_thread(tmp_path: Path) -> None:
    """More rewrites than there are threads wait for one of their source, which is being decoded; those of another source do not."""
    engine, context, go = running(tmp_path, {}), Context(Settings(data=tmp_path)), threading.Event()
    context.open(engine)
    for _ in range(context.workers._max_workers):
        context.workers.submit(go.wait, 60)

    async def run() -> None:
        async with client(context) as asked:

            def replace(source: str, epoch: int, content: bytes = ROW) -> asyncio.Task[httpx.Response]:
                given, head = {"source": source, "epoch": epoch}, {"Content-Type": "application/jsonl"}
                return asyncio.ensure_future(asked.post("/v1/relations/a/replace", params=given, content=content, headers=head))

            count = context.rewriters._max_workers + 2
            answers = [replace("s", 1, ROW + b" " * SMALL)]
            await until(lambda: engine.under_way.holds(Batch([], 0, 0, [], 0, "s", 2)))
            answers += [replace("s", epoch) for epoch in range(2, count + 1)]
            await until(lambda: engine.waiting == count - 1)
            assert (await replace("t", 1)).json()["version"] == 1
            assert engine.waiting == count - 1
            go.set()
            receipts = [(await one).json() for one in answers]
            assert [(one["version"], one["duplicate"]) for one in receipts] == [(version, False) for version in range(2, count + 2)]

    asyncio.run(asyncio.wait_for(run(), 100))
    engine.close()
