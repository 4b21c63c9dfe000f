"""Definitions from the whole grammar, registered at a real service: each is accepted or refused with a problem, and never answered with
500; an accepted view can be read and follows changes; the service goes on."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from random import Random
from typing import Any

import orjson
import psutil
import pytest

from livejoin.wire.batch import batch_to_arrow
from service.api.http import media
from tests.end_to_end import talk
from tests.fuzz.mutations import WORDS, drawn, mutated
from tests.fuzz.statements import Drawn, definition
from tests.fuzz.test_limits import GROWTH, Connection, Request, check_answer
from tests.server_process import ServerProcess
from tests.service.random_sql import DEFINITIONS, Rows, to_batch

COUNT = 2_000
SOAK_COUNT = 100_000
KEPT = 6  # views at a time
ROWS = 60
JSON = ((b"Content-Type", media.JSON.encode()),)
ACCEPTS = (media.JSON, media.JSONL, media.CSV, media.ARROW)
PARTS = (  # of a view's rows
    b"overlaps=5,15", b"overlaps.i=5,", b"overlaps.x.i=,20", b"overlaps.y.j=5,15", b"overlaps.free=5,9", b"where.x.id=1", b"where.x.k=2",
    b"where.y.k=2&overlaps=5,15", b"where.group.c1=2", b"where.x.nr=1&where.x.site=N", b"where.x.t=a&limit=3", b"where.c0=2", b"limit=1",
)  # fmt: skip
MORE = {"add_columns": [{"name": "more", "type": "int64", "nullable": True}], "add_intervals": {"moment": {"at": "p"}}, "nullable": ["n"]}


class Registrar:
    """A service with two relations, to which definitions are sent; the last views that it accepted stay registered for a while."""

    def __init__(self, server: ServerProcess, chance: Random) -> None:
        self.server, self.chance = server, chance
        self.connection = Connection(server.port)
        self.rows = Rows(chance, 2 * ROWS // 3)
        self.views: deque[bytes] = deque()
        self.relations: list[bytes] = []
        self.found: Counter[str] = Counter()
        for name, one in DEFINITIONS.items():
            talk.define(server.client(), name, one.to_json())
        self.write(ROWS)

    def ask(self, method: bytes, path: bytes, data: Any = None, query: bytes = b"", accept: str = media.JSON) -> tuple[int, bytes]:
        """Return status and body of the answer, which is checked."""
        body = b"" if data is None else data if isinstance(data, bytes) else orjson.dumps(data)
        request = Request(method, path, query, JSON if data is not None else ((b"Accept", accept.encode()),), body)
        status, kind, answer = self.answer(request)
        check_answer(request, status, kind, answer)
        return status, answer

    def answer(self, request: Request) -> tuple[int, str, bytes]:
        try:
            return self.connection.ask(request)
        except (OSError, HTTPException) as error:
            raise AssertionError(f"no answer to {request}: {error!r}; {self.server.output()[-5000:]}") from error

    def write(self, count: int) -> None:
        """Send changes, also to the views that are registered."""
        body = batch_to_arrow(to_batch(self.rows.changes(count)))
        status, _, answer = self.answer(Request(b"POST", b"v1/changes", b"", ((b"Content-Type", media.ARROW.encode()),), body))
        assert status == 200, answer

    def query(self) -> None:
        """Send ad hoc SQL, whose refusals have their own statuses."""
        request = Request(b"POST", b"v1/query", b"", JSON, orjson.dumps({"sql": Drawn(self.chance).text()}))
        status, _, answer = self.answer(request)
        assert status < 500, (request, status, answer)

    def view(self, number: int, data: dict[str, Any]) -> None:
        name = b"v%d" % number
        status, answer = self.ask(b"PUT", b"v1/views/" + name, data)
        found = orjson.loads(answer)
        self.found["view" if status < 300 else found["type"].removeprefix("/problems/")] += 1
        if status >= 300:
            return
        self.views.append(name)
        self.look(name, data)
        if len(self.views) > KEPT:
            old = self.views.popleft()
            self.look(old, None)
            assert self.ask(b"DELETE", b"v1/views/" + old)[0] == 204

    def look(self, name: bytes, data: Any) -> None:
        """Read some rows of a view, unless it is still being built. It may have failed only because it has too many groups."""
        path = b"v1/views/" + name
        view = orjson.loads(self.ask(b"GET", path)[1])
        if view["state"] == "failed":
            assert view["problem"]["type"] == "/problems/too-many-groups", (view, data)
        elif view["state"] == "live":
            status, answer = self.ask(b"GET", path + b"/rows", query=b"limit=20", accept=self.chance.choice(ACCEPTS))
            assert status == 200, (answer, view, data)
            for _ in range(self.chance.choice((0, 0, 1))):
                self.ask(b"GET", path + self.chance.choice((b"/rows", b"/count")), query=self.chance.choice(PARTS))
            if self.chance.random() < 0.2:
                status, answer = self.ask(b"GET", path + b"/changes", query=b"wait=0&snapshot=true", accept=media.JSONL)
                assert status in (200, 409), (answer, view, data)

    def explain(self, number: int) -> None:
        """Explain a definition, and register it with one of the algorithms that are correct for it."""
        data = definition(self.chance)
        status, answer = self.ask(b"POST", b"v1/explain", data)
        others = orjson.loads(answer)["alternatives"] if status == 200 else []
        if others:
            self.view(number, data | {"algorithm": self.chance.choice(others)["algorithm"]})

    def relation(self, number: int) -> None:
        """Define or extend a relation that no view uses, sometimes with a spoilt body."""
        name, chance = b"v1/relations/f%d" % number, self.chance
        bodies = [orjson.dumps(one.to_json()) for one in DEFINITIONS.values()] + [orjson.dumps(MORE)]
        whole = chance.choice(bodies[:2])
        body = mutated(whole, drawn(chance), bodies, WORDS) if chance.random() < 0.5 else whole
        if self.ask(b"PUT", name, body)[0] < 300:
            self.relations.append(name)
        if self.relations:
            self.ask(b"PATCH", chance.choice(self.relations), mutated(bodies[2], drawn(chance), bodies, WORDS))
        if len(self.relations) > 2:
            assert self.ask(b"DELETE", self.relations.pop(0))[0] == 204

    def try_many(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            kind = self.chance.random()
            if kind < 0.8:
                self.view(number, definition(self.chance))
            elif kind < 0.93:
                self.explain(number)
            elif kind < 0.95:
                self.query()
            elif kind < 0.98:
                self.relation(number)
            else:
                self.write(4)
        assert self.found["view"] > 0.1 * count, self.found

    def is_well(self) -> None:
        """Nothing was logged as an error, and the views still registered are live."""
        for name in self.views:
            self.look(name, None)
        self.write(1)
        output = self.server.output()
        assert "Traceback" not in output and "CRITICAL" not in output and "RuntimeWarning" not in output, output[-5000:]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    # Cursors are left behind; versions that they hold keep the address space of dropped views.
    with ServerProcess(tmp_path / "data", arguments=["--log-level", "debug", "--pin-idle", "2"]) as server:
        yield server


def test_definitions(server: ServerProcess) -> None:
    registrar = Registrar(server, Random(1))
    with closing(registrar.connection):
        registrar.try_many(0, COUNT)
        registrar.is_well()
    assert server.stop() == 0


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_definitions_for_long(server: ServerProcess) -> None:
    """LIVEJOIN_FUZZ definitions (100,000) that have never been tried; then the service starts again with the last of them."""
    seed, count = int.from_bytes(os.urandom(4)), int(os.environ.get("LIVEJOIN_FUZZ") or SOAK_COUNT)
    print(f"seed {seed}")
    registrar = Registrar(server, Random(seed))
    process, early = psutil.Process(server.process.pid), 0
    with closing(registrar.connection):
        for part in range(10):
            registrar.try_many(part * count // 10, count // 10)
            registrar.is_well()
            early = early or process.memory_info().rss
            print(f"{part + 1}/10: {process.memory_info().rss >> 20} MiB, {dict(registrar.found)}", flush=True)
    assert process.memory_info().rss - early < GROWTH
    assert server.stop() == 0
    with server, closing(Connection(server.port)) as registrar.connection:
        registrar.is_well()
