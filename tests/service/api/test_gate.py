"""The application before its engine is there: problems, pages, the gate. In this process, without a socket."""

from __future__ import annotations

import asyncio
import html
import logging
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from livejoin.wire.batch import Batch
from service.api.app import _encoded
from service.api.context import Context, Mailbox
from service.engine.outcomes import Receipt
from service.engine.under_way import PendingSources
from service.errors import Problem
from service.settings import Settings
from tests.service.api.asking import ask, client, is_problem
from tests.service.running import DEFINITION, HeldWriter, opened, parts, running


class NoEngine:
    """Enough of an engine for requests that never reach one."""

    relations: dict[str, Any] = {}
    views: dict[str, Any] = {}
    state = "ready"
    under_way = PendingSources(lambda source, writes: False)

    def admit(self) -> None:
        pass


def ready() -> Context:
    context = Context(Settings(max_body=100))
    context.open(NoEngine())  # type: ignore[arg-type]
    return context


def test_what_a_probe_is_told_is_no_problem() -> None:
    context = Context(Settings())  # recovering
    for path in ("/readyz", "/v1/views"):
        is_problem(ask("GET", path, context), "recovering")
    assert [one.path for one in context.problems.newest()] == ["/v1/views"]


def test_while_it_starts() -> None:
    assert ask("GET", "/livez").status_code == 200
    context = Context(Settings())
    context.report("compiling", 0.25)
    for method, path in (
        ("GET", "/readyz"),
        ("GET", "/v1/views"),
        ("GET", "/v1/status"),
        ("PUT", "/v1/relations/a"),
        ("POST", "/v1/changes"),
    ):
        response = ask(method, path, context)
        body = is_problem(response, "recovering")
        assert body["progress"] == 0.25 and body["stage"] == "compiling"
        assert int(response.headers["retry-after"]) >= 1
    assert ask("GET", "/metrics").text.count("livejoin_ready 0.0") == 1
    assert ask("GET", "/openapi.json").json()["openapi"] == "3.1.0"
    assert _encoded().body is _encoded().body == ask("GET", "/openapi.json").content, "it is encoded once for all callers"
    shown = ask("GET", "/docs")
    assert shown.status_code == 200 and not re.search("src=|<link|href=.http|@import|url[(]", shown.text), "it needs nothing from elsewhere"
    for path in ask("GET", "/openapi.json").json()["paths"]:
        assert f" {html.escape(path)}</code>" in shown.text


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        *((method, f"/v1/{path}", "bad-definition") for method, path in (("PUT", "relations/a"), ("PUT", "views/v"), ("POST", "explain"))),
        *(("POST", f"/v1/{path}", "malformed-body") for path in ("changes", "query", "backup")),
    ],
)
def test_bodies_that_are_no_objects(method: str, path: str, kind: str) -> None:
    """An invalid definition where one is expected, otherwise a malformed body. Seen: one to a query was an invalid definition."""
    for body in (b"[]", b"null", b'"SELECT 1"'):
        is_problem(ask(method, path, ready(), content=body, headers={"Content-Type": "application/json"}), kind)
    twice = b'{"sql": "SELECT 1", "sql": "SELECT 2"}'
    is_problem(ask(method, path, ready(), content=twice, headers={"Content-Type": "application/json"}), kind)


def test_a_chunked_body_is_cut_off_at_the_limit() -> None:
    sent = 0

    async def pour() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield b"x" * 10

    json = {"Content-Type": "application/json"}
    is_problem(ask("POST", "/v1/changes", ready(), content=pour(), headers=json), "body-too-large")
    assert sent < 20


def test_an_error_of_our_own_tells_a_request_id_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(NoEngine):
        @property
        def views(self) -> dict[str, Any]:  # type: ignore[override]
            raise RuntimeError("secret of the house")

        relations = views

    for method, path in (("GET", "/v1/views"), ("POST", "/v1/relations/a/changes")):
        context = Context(Settings())
        context.open(Broken())  # type: ignore[arg-type]
        with caplog.at_level(logging.ERROR, "livejoin"):
            response = ask(method, path, context, headers={"Content-Type": "application/jsonl"})
        body = is_problem(response, "internal")
        assert body["request_id"] == response.headers["x-request-id"]
        assert body["request_id"] in caplog.text and "secret of the house" in caplog.text
        assert set(body) == {"type", "title", "status", "detail", "request_id"} and "secret" not in response.text


def test_what_the_writer_could_not_do_tells_the_request_id_too(caplog: pytest.LogCaptureFixture) -> None:
    """Its thread knows no requests: the id is in a line of its own."""

    class Failing(NoEngine):
        relations = {"a": SimpleNamespace(definition=DEFINITION)}

        def submit(self, batch: Batch, answer: Callable[[Receipt], None]) -> None:
            raise Problem("internal", "the batch could not be applied")

    context = Context(Settings())
    context.open(Failing())  # type: ignore[arg-type]
    change = {"changes": [{"relation": "a", "op": "delete", "key": {"id": 1}}]}
    response = ask("POST", "/v1/changes", context, json=change, headers={"X-Request-Id": "of-the-client"})
    assert is_problem(response, "internal")["request_id"] == "of-the-client"
    assert "request of-the-client failed: the batch could not be applied" in caplog.messages


def test_the_mailbox_wakes_the_loop_once_for_many() -> None:
    class Loop:
        calls: list[Callable[[], None]] = []

        def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
            self.calls.append(call)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        spy = Loop()
        mailbox = Mailbox(spy)  # type: ignore[arg-type]
        answers = [loop.create_future() for _ in range(5)]
        answers[1].cancel()
        for answer in answers[:4]:
            mailbox.deliver(answer, "receipt")  # type: ignore[arg-type]
        mailbox.deliver(answers[4], Problem("too-busy", "no"))
        assert len(spy.calls) == 1
        spy.calls.pop()()
        assert [a.result() for a in (answers[0], answers[2], answers[3])] == ["receipt"] * 3
        assert isinstance(answers[4].exception(), Problem)
        mailbox.deliver(loop.create_future(), "receipt")  # type: ignore[arg-type]
        assert len(spy.calls) == 1

    asyncio.run(run())


@pytest.mark.parametrize(("source", "expected"), [(None, "internal"), ("pms", "recovering")])
def test_a_batch_that_the_end_does_not_wait_for(tmp_path: Path, source: str | None, expected: str) -> None:
    """It is applied all the same: an answer to which clients send it again is for those batches of which a second copy is recognised."""
    engine = running(tmp_path, {})
    held, context = HeldWriter(engine), Context(Settings())
    context.open(engine)
    params = {} if source is None else {"source": source, "epoch": 1}
    row = {"relation": "a", "op": "upsert", "row": {"id": 1, "s": 0, "e": 1, "tag": None}}

    async def run() -> httpx.Response:
        async with client(context) as asked:
            answer = asyncio.create_task(asked.post("/v1/changes", params=params, json={"changes": [row]}))
            while not parts(engine).writer.waiting:
                await asyncio.sleep(0.001)
            context.break_streams()
            answer.cancel()
            return await answer

    is_problem(asyncio.run(run()), expected)
    held.release()
    engine.close()
    engine = opened(tmp_path)
    assert engine.published.number == 1 and engine.relations["a"].table.rows == 1
    engine.close()
