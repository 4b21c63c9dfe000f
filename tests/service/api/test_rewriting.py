"""Replacements and deletes over HTTP that wait for a thread: later batches of their source wait, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from service.api.context import REWRITERS, Context
from service.instance import Instance
from service.settings import Settings
from tests.service.api.asking import client
from tests.service.running import running

ROW = b'{"id": 1, "s": 1, "e": 2}\n'


def busy(tmp_path: Path) -> tuple[Instance, Context, threading.Event]:
    """Its threads for rewrites are in use until the event is set."""
    engine, context, go = running(tmp_path, {}), Context(Settings(data=tmp_path)), threading.Event()
    context.open(engine)
    for _ in range(REWRITERS):
        context.rewriters.submit(go.wait, 60)
    return engine, context, go


async def until(met: Callable[[], bool]) -> None:
    async def poll() -> None:
        while not met():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(poll(), 60)


@pytest.mark.parametrize("how", ["replace", "delete", "commit"])
def test_a_later_batch_does_not_overtake(tmp_path: Path, how: str) -> None:
    engine, context, go = busy(tmp_path)

    async def run() -> None:
        async with client(context) as asked:
            given = {"source": "s", "epoch": 1}
            where = {"where": [{"column": "id", "op": "=", "value": 1}]}
            lines = {"content": ROW, "headers": {"Content-Type": "application/jsonl"}}
            if how == "replace":
                first = asyncio.ensure_future(asked.post("/v1/relations/a/replace", params=given, **lines))
            elif how == "delete":
                first = asyncio.ensure_future(asked.post("/v1/relations/a/delete", params=given, json=where))
            else:
                first = asyncio.ensure_future(asked.post("/v1/relations/a/replace", params=given | {"stage": "n", "commit": True}))
            await until(lambda: engine.waiting == 1)
            changes = [{"relation": "a", "op": "upsert", "row": {"id": 2, "s": 1, "e": 2}}]
            later = asyncio.ensure_future(asked.post("/v1/changes", json={"source": "s", "epoch": 2, "changes": changes}))
            await until(lambda: engine.waiting == 2)
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


def test_who_has_gone_is_not_waited_for(tmp_path: Path) -> None:
    engine, context, go = busy(tmp_path)

    async def run() -> None:
        async with client(context) as asked:
            given, head = {"source": "s", "epoch": 1}, {"Content-Type": "application/jsonl"}
            first = asyncio.ensure_future(asked.post("/v1/relations/a/replace", params=given, content=ROW, headers=head))
            await until(lambda: engine.waiting == 1)
            first.cancel()
            await until(lambda: engine.waiting == 0)
            later = await asked.post("/v1/changes", json={"source": "s", "epoch": 2, "changes": []})
            assert later.json()["version"] == 1
            go.set()

    asyncio.run(run())
    engine.close()
