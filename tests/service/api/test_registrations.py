"""Many registrations of views at once: while they wait for their views, they hold no thread that others need."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from service.api import views
from service.api.context import REGISTRARS, WAITERS, Context
from service.settings import Settings
from tests.service.api.asking import client
from tests.service.engine.test_kernels import HEAP, Held
from tests.service.running import PAIR, HeldWriter, running


def test_others_do_not_wait_for_registrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More wait than there are threads for requests that wait for the writer, as a drop does. Each is of a client."""
    monkeypatch.setattr(views, "BUILD_WAIT", 300.0)
    engine = running(tmp_path, {})
    engine.kernels = kernels = Held("ij_heap")
    context, count = Context(Settings(data=tmp_path)), WAITERS + 8
    context.open(engine)

    async def registered() -> None:
        while len(engine.views) < count:
            await asyncio.sleep(0.01)

    async def run() -> list[int]:
        async with client(context) as asked:
            puts = [asyncio.ensure_future(asked.put(f"/v1/views/v{number}", json=HEAP)) for number in range(count)]
            await asyncio.wait_for(registered(), 60)
            dropped = await asyncio.wait_for(asked.delete("/v1/views/v0"), 60)
            assert dropped.status_code == 204 and not any(put.done() for put in puts)
            assert {build.client for build in engine._builds._running()} == {"address 127.0.0.1"}
            kernels.release()
            return [(await put).status_code for put in puts]

    assert asyncio.run(run())[1:] == [201] * (count - 1)
    engine.close()


def test_registrations_are_planned_while_the_writer_is_busy(tmp_path: Path) -> None:
    """All of them have their turn when it comes, not as many as there are threads."""
    engine = running(tmp_path, {})
    context, count = Context(Settings(data=tmp_path)), REGISTRARS + 8
    context.open(engine)
    held = HeldWriter(engine)

    async def planned() -> None:
        while engine.waiting < count:
            await asyncio.sleep(0.01)

    async def run() -> list[int]:
        async with client(context) as asked:
            puts = [asyncio.ensure_future(asked.put(f"/v1/views/v{number}", json=PAIR)) for number in range(count)]
            await asyncio.wait_for(planned(), 60)
            assert not any(put.done() for put in puts)
            held.release()
            return [(await put).status_code for put in puts]

    assert {*asyncio.run(run())} <= {201, 202}
    engine.close()
