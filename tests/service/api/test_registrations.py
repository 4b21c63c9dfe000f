"""Registrations: many of views at once hold no thread that others need while they wait; a relation may be dropped before the answer."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.api import views
from service.api.context import WAITERS, Context
from service.engine.builds import Builds
from service.settings import Settings
from tests.service.api.asking import ask, client
from tests.service.engine.test_kernels import HEAP, Held
from tests.service.engine.test_replays import Gate
from tests.service.running import PAIR, HeldWriter, parts, running


def test_others_do_not_wait_for_registrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More wait than there are threads for requests that wait for the writer, as a drop does."""
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
            kernels.release()
            return [(await put).status_code for put in puts]

    assert asyncio.run(run())[1:] == [201] * (count - 1)
    engine.close()


def test_registrations_are_planned_while_the_writer_is_busy(tmp_path: Path) -> None:
    """All of them have their turn when it comes, not as many as there are threads."""
    engine = running(tmp_path, {})
    context, count = Context(Settings(data=tmp_path)), 9
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


def test_the_next_view_is_planned_when_one_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning several at a time, or during the writer's turn, made single changes wait longer."""
    monkeypatch.setattr("service.api.context.BUSY", 60.0)
    engine = running(tmp_path, {})
    context = Context(Settings(data=tmp_path))
    context.open(engine)
    register, begun, registered = engine.register, list[str](), list[Future[Any]]()

    def watched(name: str, *given: Any) -> Future[Any]:
        begun.append(name)
        assert len(begun) == 1 + sum(one.done() for one in registered)
        parts(engine).writer.call(partial(time.sleep, 0.02))  # the writer needs longer than the next plan needs to begin
        registered.append(register(name, *given))
        return registered[-1]

    monkeypatch.setattr(engine, "register", watched)

    async def run() -> list[int]:
        async with client(context) as asked:
            return [one.status_code for one in await asyncio.gather(*(asked.put(f"/v1/views/v{n}", json=PAIR) for n in range(9)))]

    assert {*asyncio.run(run())} <= {201, 202} and len(registered) == 9
    engine.close()


@pytest.mark.parametrize(("method", "status"), [("PUT", 201), ("PATCH", 404)])
def test_a_relation_that_is_dropped_before_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, status: int) -> None:
    """Seen: 500."""
    engine = running(tmp_path, {})
    context, name = Context(Settings(data=tmp_path)), "c" if method == "PUT" else "a"
    context.open(engine)
    work = engine.put_relation if method == "PUT" else engine.patch_relation

    def dropped_then(*given: Any) -> Any:
        outcome = work(*given)
        engine.drop_relation(name)
        return outcome

    monkeypatch.setattr(engine, f"{method.lower()}_relation", dropped_then)
    data = {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]} if method == "PUT" else {"nullable": ["tag"]}
    response = ask(method, f"/v1/relations/{name}", context, json=data)
    assert response.status_code == status
    assert response.json()["type" if status == 404 else "key"] == ("/problems/not-found" if status == 404 else ["id"])
    engine.close()


def test_replacing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the parameter and by the statement; while the new view is built, and after that has failed, the answers say so."""
    engine, gate = running(tmp_path, {}), Gate(monkeypatch)
    context = Context(Settings(data=tmp_path))
    context.open(engine)
    monkeypatch.setattr(views, "BUILD_WAIT", 30.0)

    async def run() -> None:
        async with client(context) as asked:

            async def put(sql: str, **params: str) -> tuple[int, dict[str, Any]]:
                answer = await asked.put("/v1/views/v", json={"sql": sql}, params=params)
                return answer.status_code, answer.json()

            assert (await put("CREATE VIEW v AS SELECT a.id FROM a"))[0] == 201
            assert (await put("SELECT a.id FROM a", replace="true"))[0] == 200
            status, said = await put("SELECT a.id AS i FROM a")
            assert status == 409 and "replace it (?replace=true)" in said["detail"]
            status, said = await put('create or replace view "v" as\nSELECT a.id AS i FROM a')
            assert status == 200 and said["definition"] == {"sql": "SELECT a.id AS i FROM a"} and "replacement" not in said
            status, said = await put("CREATE OR REPLACE VIEW w AS SELECT a.id FROM a")
            assert status == 422 and said["detail"] == "the statement creates the view w, and the path of the request names v"
            monkeypatch.setattr(views, "BUILD_WAIT", 0.01)
            gate.open.clear()
            status, said = await put("SELECT a.id AS j FROM a", replace="true")
            assert status == 202 and said["state"] == "live" and 0 <= said["replacement"]["progress"] < 1
            assert (await put("SELECT a.id AS i FROM a", replace="true"))[0] == 200
            gate.open.set()
            assert "replacement" not in (await asked.get("/v1/views/v")).json()
            monkeypatch.setattr(views, "BUILD_WAIT", 30.0)
            monkeypatch.setattr(Builds, "_load", staticmethod(_fail))
            status, said = await put("SELECT a.id AS j FROM a", replace="true")
            assert status == 503 and said["type"] == "/problems/view-failed"
            shown = (await asked.get("/v1/views/v")).json()
            assert shown["state"] == "live" and shown["replacement"]["problem"]["type"] == "/problems/view-failed"

    asyncio.run(run())
    engine.close()


def _fail(build: Any, version: int) -> None:
    raise MemoryError("no room")
