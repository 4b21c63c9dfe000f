"""Connections: uvicorn's HTTP protocol over httptools, with limits that keep a connection from holding memory or its place forever.

    accepted -> head: `max_head` bytes, `head_time` -> body: `body_idle` between two bytes -> answer: `pin_idle` between two reads

No connection has a timer of its own: twice a second, `ConnectionLimits.sweep` checks all of them. The time in a state is counted from the
first check that finds it, so a time-out may come half a second late, but never early.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import ssl
import sys
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote
from weakref import WeakSet

import httptools
import orjson
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.api import problems
from service.api.http.access_log import log_request
from service.api.http.bodies import COMPLETE, Receive, Scope, Send
from service.api.http.cycle import Cycle
from service.api.http.heads import fault, malformed
from service.api.http.media import fields_of
from service.api.http.sockets import reset, unacknowledged
from service.api.metrics import count_request
from service.errors import Problem
from service.settings import Settings

SWEEP = 0.5  # seconds
LINGER = 5.0  # seconds during which further data of a rejected client is discarded
SPARE = 64  # connections beyond the limit that may ask whether the service is alive; others are told that there are too many
MAX_FIELDS = 256  # header fields: each takes more memory than its bytes
MAX_PIPELINED = 32  # requests that wait for the answers to earlier ones of their connection
OPEN_PATHS = frozenset({"/livez", "/readyz", "/metrics"})

_IDLE, _HEAD, _BODY = range(3)  # the state of the newest request of a connection: received completely, or partly
_FILES = 1024  # open files besides the connections
_ASGI = {"version": "3.0", "spec_version": "2.3"}

log = logging.getLogger("livejoin.server")


class LingeringTransport:
    """The transport of a `Protocol`. If it is closed before a request has arrived completely, further data is discarded for a while: if it
    were closed at once, the system would reset the connection, and a client that is still sending might not see the answer."""

    def __init__(self, transport: asyncio.Transport, protocol: Protocol) -> None:
        self._transport, self._protocol = transport, protocol
        self._closed = False

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, pieces: Iterable[Any]) -> None:
        if not self.is_closing():  # the client may have disconnected
            self._transport.writelines(pieces)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._protocol.is_receiving and not self._transport.is_closing():
                self._protocol.linger(self._transport)
                return
        if not self._protocol.lingers:
            self._transport.close()

    def is_closing(self) -> bool:
        return self._closed or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Body:
    """The callbacks of a parser for a body whose head another one has read: ignores its own head, passes the rest to the protocol."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._is_behind = False  # past the body

    def on_message_begin(self) -> None:
        if self._is_behind:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_behind:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_behind:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_behind:
            self._protocol.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._protocol.on_body(body)

    def on_message_complete(self) -> None:
        self._is_behind = True
        self._protocol.on_message_complete()


class ConnectionLimits:
    """The common state of a server's connections: their limits, and the answer on excess ones."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.handshakes: WeakSet[ssl.SSLObject] = WeakSet()  # TLS handshakes in progress: an object disappears with its connection
        self._swept = 0.0

    def sweep(self, now: float, connections: Iterable[Any]) -> None:
        """End connections that take too long. Call it often; it checks all connections every `SWEEP` seconds. Takes a microsecond each."""
        if now - self._swept >= SWEEP:
            self._swept = now
            for connection in list(connections):
                connection.look(now)

    def excess(self, connections: int) -> int:
        """Return by how many the limit is exceeded, with this number of connections besides the handshakes."""
        return connections + len(self.handshakes) - self.settings.max_connections

    def admit(self, handshake: ssl.SSLObject, connections: int) -> None:
        """Count a new handshake as a connection until it ends. ConnectionRefusedError: there are too many."""
        if self.excess(connections) >= SPARE:
            raise ConnectionRefusedError(f"there are already {self.settings.max_connections} connections")
        self.handshakes.add(handshake)

    def too_many(self) -> Problem:
        problem = Problem("too-busy", f"there are already {self.settings.max_connections} connections, the maximum (--max-connections)")
        problem.headers["Connection"] = "close"
        return problem

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application of excess connections."""
        problem = self.too_many()
        count_request(scope["method"], problem.status)
        if self.settings.access_log == "on":
            log_request(scope, problem.status, 0.0)
        await problems.render(problem)(scope, receive, send)


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, limits: ConnectionLimits, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._most = limits.settings.max_head
        self._phase = _IDLE
        self._since = 0.0  # when the sweep found the connection waiting as it is now; 0: not yet
        self._bytes = 0  # since the last piece of a body: of a head, of trailers, of extensions of chunks
        self._discarded = 0  # bytes of a body received after its answer
        self._unsent, self._taken = (0, 0), 0.0  # bytes that the client has not received: ours, the system's; the time of their last change
        self._refusal: Problem | None = None  # why a callback of the parser has failed
        self._exceeds = False  # whether the limit on connections is exceeded
        self._running: RequestResponseCycle | None = None  # the request being answered, or the last one
        self._is_kept = False  # nothing has arrived since the last answer
        self._ends = False  # further data is not read: a request was rejected, and others before it wait for their answers
        self.lingers = False

    @property
    def is_receiving(self) -> bool:
        return self._phase != _IDLE

    # receiving

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, LingeringTransport(transport, self)))
        if (begun := transport.get_extra_info("ssl_object")) is not None:
            self._limits.handshakes.discard(begun)
        more = self._limits.excess(len(self.connections))
        self._exceeds = more > 0
        if more > SPARE:
            self._refuse(self._limits.too_many())

    def data_received(self, data: bytes) -> None:
        if self.lingers or self._ends:
            return
        if self._is_kept:
            self._is_kept, self._since = False, 0.0
        self._bytes += len(data)
        if self._phase == _BODY:
            self._since = 0.0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(self._refusal or malformed())
        except httptools.HttpParserUpgrade as found:
            self._pass_over_upgrade(data[found.args[0] :])
        else:
            if self._bytes > self._most and self._phase != _IDLE:
                self._refuse(self._too_large())

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection if a client that sends no more data may wait for the answer to a change; for a stream, it may have
        disconnected."""
        waiting = self._unanswered()
        streams = any(cycle.scope["method"] in ("GET", "HEAD") or cycle.scope["path"] == "/v1/query" for cycle in waiting)
        if not waiting or streams or self._phase != _IDLE or self.scheme == "https":  # TLS closes both directions
            return False
        waiting[-1].keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for cycle in self._unanswered():
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()

    def _unanswered(self) -> list[RequestResponseCycle]:
        """Return the requests that wait for their answers, in order of arrival."""
        waiting = [cycle for cycle, _ in reversed(self.pipeline)]
        return waiting if self._running is None or self._running.response_complete else [self._running, *waiting]

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """There is nothing to upgrade to: the request is answered as it is. The parser considers the request complete after its head, so
        another parser reads the body, starting with the fields that determine its length."""
        fields = [field for field in self.scope["headers"] if field[0] in (b"content-length", b"transfer-encoding")]
        if fields:
            self._phase, self.cycle.more_body, self.scope[COMPLETE] = _BODY, True, False  # type: ignore[literal-required]
            self.cycle.message_event.clear()
            self.parser = httptools.HttpRequestParser(_Body(self))
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join([b"%b: %b\r\n" % field for field in fields]))
        if rest:
            self.data_received(rest)

    def on_message_begin(self) -> None:
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._phase, self._since = _HEAD, 0.0

    def on_headers_complete(self) -> None:
        parser, headers = self.parser, self.headers
        if self._bytes > self._most or len(headers) > MAX_FIELDS:
            self._check_size()
        version, fields = parser.get_http_version(), fields_of(headers)
        self._refusal = fault(version, headers, fields)
        if self._refusal is not None:
            raise self._refusal
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refusal = Problem("too-busy", f"{MAX_PIPELINED} requests of this connection already wait for their answers")
            raise self._refusal
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        self._phase, self._since, self._bytes, self._discarded = _BODY, 0.0, 0, 0
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": headers,
            "fields": fields,
            "state": {},
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
        }
        self.scope = scope  # type: ignore[assignment]
        self.headers = []  # fields that follow are trailers, which are ignored
        before, self.cycle = self.cycle, Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        self._bytes = 0
        cycle = self.cycle
        if cycle.response_complete:  # nobody reads the rest, whose length the client determines
            self._discarded += len(body)
            if self._discarded > self._limits.settings.max_body:
                self.transport.close()
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._phase, self._bytes, self.scope[COMPLETE] = _IDLE, 0, True  # type: ignore[literal-required]
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def _check_size(self) -> None:
        """Check whether a complete head is too large by itself, without the data that follows it."""
        size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])
        if size > self._most or len(self.headers) > MAX_FIELDS:
            self._refusal = self._too_large()
            raise self._refusal

    def _too_large(self) -> Problem:
        limit = f"a request's head may have {self._most} bytes (--max-head) and {MAX_FIELDS} fields; trailers count too"
        return Problem("headers-too-large", limit, limit=self._most)

    # answering

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._exceeds and cycle.scope["path"] not in OPEN_PATHS:
            app = self._limits.refuse
        if cycle.scope["http_version"] == "1.0":
            app = partial(_without_chunks, app, cycle)
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Go on with the next request, if there is one. Unlike uvicorn's, without a timer: `look` closes idle connections."""
        self.server_state.total_requests += 1
        self._since = 0.0
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._is_kept = True

    def _refuse(self, problem: Problem) -> None:
        """Answer a request that no handler sees, after those that wait for their answers, and close the connection."""
        if self.transport.is_closing() or self._ends:
            return
        if self._phase == _BODY and self.pipeline:  # it waits itself, the newest of all
            self.pipeline.popleft()
            earlier = self._unanswered()
        else:
            earlier = [] if self._phase == _BODY else self._unanswered()
        if earlier:
            self._ends = True
            earlier[-1].on_response = partial(self._refuse_now, problem)
            return
        if self._phase == _BODY:
            self.scope["refused"] = problem.status  # type: ignore[typeddict-unknown-key]  # for who logs the request
        self._refuse_now(problem, self._phase == _BODY)

    def _refuse_now(self, problem: Problem, is_logged: bool = False) -> None:
        if self.transport.is_closing():
            return
        count_request("other", problem.status)
        if not is_logged and self._limits.settings.access_log == "on":
            log_request({"client": self.client, "method": "-"}, problem.status, 0.0)
        body = orjson.dumps(problem.to_json())
        head = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}", "content-type: application/problem+json"]
        fields = {**problem.headers, "content-length": len(body), "connection": "close", "x-request-id": secrets.token_hex(8)}
        head += [f"{name.lower()}: {value}" for name, value in fields.items() if name != "Connection"]
        self.transport.write("\r\n".join([*head, "\r\n"]).encode() + body)
        self._notify_disconnected()
        self.transport.close()

    def _notify_disconnected(self) -> None:
        """Notify the reader of the request that nothing more will arrive."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def linger(self, transport: asyncio.Transport) -> None:
        self.lingers, self._since = True, 0.0
        self.flow.resume_reading()
        if transport.can_write_eof():
            with contextlib.suppress(OSError):
                transport.write_eof()

    # time-outs

    def look(self, now: float) -> None:
        """End the connection if its client has kept it waiting for too long; `now` on any monotonic clock."""
        ours, on_taken = self.transport.get_write_buffer_size(), getattr(self._running, "on_taken", None)
        unsent = ours, unacknowledged(self.transport) if ours or on_taken is not None else 0
        if ours and unsent == self._unsent:
            if now - self._taken >= self._limits.settings.pin_idle:
                log.info("a client read nothing of its response for %g s; its connection is closed", now - self._taken)
                reset(self.transport)
                return
        else:
            if on_taken is not None and unsent != self._unsent and any(unsent):
                on_taken()
            self._unsent, self._taken = unsent, now
        patience = self._patience()
        if patience is None:
            self._since = 0.0
        elif not self._since:
            self._since = now
        elif now - self._since >= patience:
            self._time_out(patience)

    def _patience(self) -> float | None:
        """Return for how many seconds the connection may stay as it is; None if it does not wait for its client."""
        if self.lingers:
            return LINGER
        if self.transport.is_closing() or self.flow.read_paused:
            return None
        if self._phase == _BODY:
            return self._limits.settings.body_idle
        if self._phase == _IDLE and self._is_kept:
            return self.timeout_keep_alive
        answered = self.cycle is None or self.cycle.response_complete
        return self._limits.settings.head_time if self._phase == _HEAD or answered else None

    def _time_out(self, seconds: float) -> None:
        if self.lingers:
            self.transport.abort()
        elif self._phase == _BODY and self.cycle.response_started:
            self._notify_disconnected()
            self.transport.close()
        elif self._phase == _IDLE:
            self.transport.close()
        else:
            what = "the head of the request was" if self._phase == _HEAD else "no more of the body arrived; the request was"
            self._refuse(Problem("request-timeout", f"{what} not complete after {seconds:g} s"))


async def _without_chunks(app: Any, cycle: RequestResponseCycle, scope: Scope, receive: Receive, send: Send) -> None:
    """Run the application for HTTP/1.0, which has no chunks: an answer of unknown length ends with its connection. If it is aborted, the
    connection is reset, so that the client does not mistake it for complete."""

    unknown = False

    async def send_plainly(message: Any) -> None:
        nonlocal unknown
        if message["type"] == "http.response.start":
            unknown = not any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            if unknown:
                cycle.chunked_encoding, cycle.expected_content_length = False, sys.maxsize
        elif unknown and not message.get("more_body"):
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    try:
        await app(scope, receive, send_plainly)
    finally:
        if cycle.response_started and not cycle.response_complete and not cycle.disconnected:
            reset(cycle.transport)


def allow_files(connections: int) -> None:
    """Raise the process's limit on open files to what this number of connections needs, as far as the system permits."""
    if sys.platform == "win32":  # there is no such limit
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE + _FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            log.warning("the system allows %d open files: fewer connections than %d (--max-connections)", most, connections)
