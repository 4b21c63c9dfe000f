"""Mutated requests to a real service over HTTP: each is answered soon, with a problem or a valid answer and never with 500; refused
requests have no effect; and the service continues as before, also after a restart."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

import orjson
import psutil
import pytest

from service.api.http import media
from service.errors import CATALOGUE
from tests.end_to_end import talk
from tests.fuzz import samples
from tests.fuzz.mutations import WORDS, drawn, mutated
from tests.server_process import ServerProcess

COUNT = 700
RAW_COUNT = 120
SOAK_COUNT = 60_000
PATIENCE = 60.0  # seconds for one answer, on a busy machine
GROWTH = 200 << 20  # bytes by which the service may grow in the soak after its first tenth
AT_ONCE = 40  # connections with data that is not a request


class Request(NamedTuple):
    method: bytes
    path: bytes
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    def encoded(self) -> bytes:
        """Encode a request as a client would: whatever the parts are, it is clear where each one ends."""
        target = b"?".join([_visible(self.path), _visible(self.query)]) if self.query else _visible(self.path)
        lines = [b"%b /%b HTTP/1.1" % (self.method, target.lstrip(b"/")), b"Host: localhost", b"Content-Length: %d" % len(self.body)]
        lines += [b"%b: %b" % (name, value.translate(None, b"\r\n\0")) for name, value in self.headers]
        return b"\r\n".join([*lines, b"", self.body])


class Connection:
    """An HTTP/1.1 connection, opened again when the service closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, request: Request) -> tuple[int, str, bytes]:
        """Return status, type and body of the answer; for an endless stream, only the head."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE)
        self._socket.sendall(request.encoded())
        response = HTTPResponse(self._socket, method=request.method.decode("latin-1"))
        response.begin()
        endless = response.status == 200 and request.path.endswith(b"/changes") and request.method == b"GET"
        body = b"" if endless else response.read()
        if endless or response.will_close:
            self.close()
        return response.status, response.headers.get_content_type(), body

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _visible(text: bytes) -> bytes:
    """Remove the bytes that would end the line or the target; all others are sent unchanged."""
    return b"".join(quote_from_bytes(bytes([byte])).encode() if byte <= 0x20 or byte in b"#\x7f" else bytes([byte]) for byte in text)


def _post(path: bytes, kind: str, body: bytes) -> Request:
    return Request(b"POST", path, b"on_error=skip", ((b"Content-Type", kind.encode()),), body)


def requests(cursor: bytes, token: bytes) -> list[Request]:
    """Return one valid request of each kind."""
    one, json = b"v1/relations/bookings/changes", ((b"Content-Type", b"application/json"),)
    rows, views = b"v1/views/meets/rows", [b"v1/views/v%d" % number for number in range(len(samples.VIEW) + 1)]
    return [
        *(_post(b"v1/changes", media.JSON, body) for body in samples.JSON),
        *(_post(b"v1/changes", media.JSONL, body) for body in samples.JSONL),
        *(_post(b"v1/changes", media.ARROW, body) for body in samples.NAMED_ARROW),
        *(_post(one, media.JSONL, body) for body in samples.ROWS_JSONL),
        *(_post(one, media.CSV, body) for body in samples.CSV),
        *(_post(one, media.ARROW, body) for body in samples.ARROW[:4]),
        *(_post(one, media.PARQUET, body) for body in samples.PARQUET[:2]),
        *(_post(one, media.DEBEZIUM, body) for body in samples.DEBEZIUM[:3]),
        *(Request(b"PUT", b"v1/relations/r%d" % number, headers=json, body=body) for number, body in enumerate(samples.RELATION)),
        *(Request(b"PUT", path, headers=json, body=body) for path, body in zip(views, samples.VIEW * 2, strict=False)),
        *(Request(b"POST", b"v1/explain", headers=json, body=orjson.dumps({"sql": text.decode()})) for text in samples.SQL),
        *(Request(b"DELETE", path) for path in (*views, b"v1/relations/r0", b"v1/relations/r1")),
        *(
            Request(method, rows, query, ((b"Accept", kind),))
            for method, query, kind in [
                (b"GET", b"limit=2", b"application/json"),
                (b"GET", b"limit=2&cursor=" + cursor, b"text/csv"),
                (b"HEAD", b"limit=9", b"*/*"),
                (b"GET", b"overlaps=2026-01-01T00:00:00Z,2027-01-01", b"text/event-stream"),
                (b"GET", b"overlaps.stay=,", media.ARROW.encode()),
                (b"GET", b"where.b.id=1", b"application/jsonl"),
                (b"GET", b"where.r.room=A&where.r.day=2026-01-01", b"text/csv;q=0.5,*/*;q=0.1"),
            ]
        ),
        Request(b"GET", b"v1/views/meets/count", b"where.b.id=2"),
        Request(b"GET", b"v1/views/meets/changes", b"wait=0&limit=3&since=" + token),
        Request(b"GET", b"v1/views/meets/changes", b"wait=0&snapshot=true", ((b"Last-Event-ID", token), (b"Accept", b"text/event-stream"))),
        *(
            Request(b"GET", path)
            for path in (b"v1/views", b"v1/views/meets", b"v1/relations", b"v1/relations/bookings/rows", b"v1/status", b"metrics")
        ),
        *(Request(b"GET", path) for path in (b"livez", b"readyz", b"problems/bad-rows", b"docs", b"openapi.json", b"")),
        *(Request(method, b"v1/views") for method in (b"PATCH", b"OPTIONS", b"TRACE", b"POST")),
    ]


def spoilt(request: Request, chance: Random, every: list[Request]) -> Request:
    """Return a request with one or two of its parts changed, sometimes replaced by a part of another request."""
    changed = request
    for _ in range(chance.choice((1, 1, 2))):
        part = chance.choice(("path", "query", "query", "header", "headers", "body", "body", "method"))
        other = chance.choice(every)
        if part in ("path", "query", "body"):
            value = mutated(getattr(changed, part), drawn(chance), [getattr(other, part) for other in every], WORDS)
            changed = changed._replace(**{part: value})
        elif part == "header" and changed.headers:
            name, value = chance.choice(changed.headers)
            changed = changed._replace(headers=(*changed.headers, (name, mutated(value, drawn(chance), [value], WORDS))))
        elif part == "headers":
            changed = changed._replace(headers=other.headers)
        elif part == "method":
            changed = changed._replace(method=other.method)
    if changed.method == b"DELETE" and unquote_to_bytes(changed.path).rpartition(b"/")[2] in (b"meets", b"bookings", b"rooms"):
        return request  # the other requests need them
    return changed


def check_answer(request: Request, status: int, kind: str, body: bytes) -> None:
    """Check that it is not 500, and that a refusal is a problem of the catalogue."""
    assert status < 500 or status == 503, (request.body, status, body)
    if status >= 400 and request.method != b"HEAD":
        assert kind == media.PROBLEM, (request, status, body)
        problem = orjson.loads(body)
        name = problem["type"].removeprefix("/problems/")
        assert CATALOGUE[name].status == problem["status"] == status and problem["detail"], (request, problem)
        assert name not in ("internal", "view-failed", "recovering", "no-room"), (request, problem)


class Limits:
    """A service with two relations and a view, which receives invalid requests."""

    def __init__(self, server: ServerProcess, chance: Random) -> None:
        self.server, self.chance = server, chance
        client = server.client()
        for name, definition in samples.RELATIONS.items():
            talk.define(client, name, definition.to_json())
        talk.view(client, "meets", "SELECT b.id, r.room FROM bookings b JOIN rooms r ON overlaps(b.stay, r.stay)")
        rows = [{"id": number, "room": "A", "starts": 0, "ends": 10, "day": "2026-01-01"} for number in range(10)]
        for relation in samples.RELATIONS:
            talk.ok(talk.send(client, [{"relation": relation, "row": row} for row in rows]))
        page = talk.ok(client.get("/v1/views/meets/rows?limit=2", headers={"Accept": "application/json"}))
        token = orjson.loads(client.get("/v1/views/meets/changes?wait=0").content.splitlines()[-1])["token"]
        self.requests = requests(page["next"].encode(), token.encode())

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = talk.ok(self.server.client().get("/v1/status"))
        return found

    def ask(self, count: int) -> None:
        """Send this number of mutated requests. Each accepted batch makes one version, the others none."""
        before, accepted = self.status()["version"], 0
        with closing(Connection(self.server.port)) as connection:
            for _ in range(count):
                request = spoilt(self.chance.choice(self.requests), self.chance, self.requests)
                try:
                    status, kind, body = connection.ask(request)
                except (OSError, HTTPException) as error:
                    raise AssertionError(f"no answer to {request}: {error!r}") from error
                check_answer(request, status, kind, body)
                applied = status == 200 and request.method == b"POST" and kind == media.JSON
                accepted += applied and orjson.loads(body).get("duplicate") is False
        assert self.status()["version"] - before == accepted

    def is_well(self) -> None:
        """Check that the service accepts a change, shows it, and has met no unexpected error."""
        client = self.server.client()
        talk.ok(talk.send(client, [{"relation": "bookings", "row": {"id": 10**9, "room": "Z", "starts": 0, "ends": 1}}]))
        assert talk.ok(client.get("/v1/views/meets"))["state"] == "live"
        assert talk.ok(client.get("/v1/relations/bookings"))["rows"] > 0
        assert "Traceback" not in self.server.output() and " failed" not in self.server.output(), self.server.output()[-5000:]


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limits]:
    with ServerProcess(tmp_path_factory.mktemp("door") / "data") as server:
        yield Limits(server, Random(1))


def test_good_requests_are_good(limits: Limits) -> None:
    """Otherwise, all mutated requests would be refused for the same reason."""
    with closing(Connection(limits.server.port)) as connection:
        found = [(request, *connection.ask(request)) for request in limits.requests]
    for request, status, kind, body in found:
        check_answer(request, status, kind, body)
    assert sum(status < 300 for _, status, _, _ in found) > 0.75 * len(found), [(one[0][:3], *one[1:]) for one in found if one[1] >= 300]


def test_spoilt_requests(limits: Limits) -> None:
    limits.ask(COUNT)
    limits.is_well()


def test_what_is_no_request(limits: Limits) -> None:
    """The answer is empty or a refusal, and other clients are served meanwhile."""
    whole = [request.encoded() for request in limits.requests]
    chance, sockets = limits.chance, selectors.DefaultSelector()
    for _ in range(RAW_COUNT // AT_ONCE):
        said: dict[socket.socket, bytes] = {}
        for _ in range(AT_ONCE):
            one = socket.create_connection(("127.0.0.1", limits.server.port))
            said[one] = b""
            one.sendall(mutated(chance.choice(whole), drawn(chance) + drawn(chance), whole, WORDS))
            sockets.register(one, selectors.EVENT_READ)
        limits.is_well()
        while ready := sockets.select(0.1):
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                try:
                    part = key.fileobj.recv(1 << 16)
                except ConnectionResetError:
                    part = b""
                said[key.fileobj] += part
                if not part or len(said[key.fileobj]) > 1 << 20:
                    sockets.unregister(key.fileobj)
        for one, answer in said.items():
            one.close()
            assert not answer or answer.startswith(b"HTTP/1.1 ") and not answer.startswith(b"HTTP/1.1 500"), answer[:500]
        sockets.close()
        sockets = selectors.DefaultSelector()


def content(status: dict[str, Any]) -> tuple[int, dict[str, int]]:
    """Return the version, and the rows of each relation."""
    return status["version"], {name: relation["rows"] for name, relation in status["relations"].items()}


def test_afterwards_it_starts_again(limits: Limits) -> None:
    """Everything that was accepted is on disk, and can be read from there."""
    before = content(limits.status())
    assert limits.server.stop() == 0
    with ServerProcess(limits.server.data) as again:
        found = talk.ok(again.client().get("/v1/status"))
        assert content(found) == before
        assert {view["state"] for view in found["views"].values()} == {"live"}


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_spoilt_requests_for_long(tmp_path: Path) -> None:
    """LIVEJOIN_FUZZ requests (60,000) that have never been tried."""
    seed, count = int.from_bytes(os.urandom(4)), int(os.environ.get("LIVEJOIN_FUZZ") or SOAK_COUNT)
    print(f"seed {seed}")
    with ServerProcess(tmp_path / "data") as server:
        limits = Limits(server, Random(seed))
        process, early = psutil.Process(server.process.pid), 0
        for part in range(10):
            limits.ask(count // 10)
            limits.is_well()
            early = early or process.memory_info().rss
            print(f"{part + 1}/10: {process.memory_info().rss >> 20} MiB", flush=True)
        assert process.memory_info().rss - early < GROWTH
        assert server.stop() == 0
        with server:
            limits.is_well()
