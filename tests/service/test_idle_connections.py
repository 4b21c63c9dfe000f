"""When a connection whose client does nothing is closed and freed, without a server."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from service import protocol
from service.api.http.answers import PIECES, WHOLE
from service.api.http.cycle import Cycle
from service.protocol import ConnectionLimits, Protocol
from service.settings import Settings

HOST = b"Host: localhost\r\n"
GET = b"GET /livez HTTP/1.1\r\n" + HOST


class _Socket:
    """The socket of a transport whose client reads as much as the test specifies."""

    def __init__(self) -> None:
        self.ours, self.theirs, self.aborted = 0, 0, False

    def get_write_buffer_size(self) -> int:
        return self.ours

    def is_closing(self) -> bool:
        return True

    def get_extra_info(self, name: str) -> Any:
        made = socket.socket()
        made.close()
        return made

    def abort(self) -> None:
        self.aborted = True


def test_a_client_that_takes_something_now_and_then_is_told_of_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: its version was released if it read less than a chunk of 2 MiB during --pin-idle, and its connection was closed if the system,
    which takes a megabyte at a time, took no more from the service."""
    emitted, transport = list[float](), _Socket()
    monkeypatch.setattr(protocol, "unacknowledged", lambda of: of.theirs)
    connection = Protocol.__new__(Protocol)
    connection._limits, connection.transport, connection.lingers = ConnectionLimits(Settings(pin_idle=10)), transport, False  # type: ignore[assignment]
    connection._unsent, connection._taken, connection._since = (0, 0), 0.0, 0.0
    cycle = connection._running = Cycle.__new__(Cycle)
    now = 0.0
    cycle.on_taken = lambda: emitted.append(now)
    for now, transport.ours, transport.theirs in [(1, 0, 0), (9, 9, 3), (18, 9, 2), (27, 9, 1), (36, 8, 1), (45, 0, 1), (54, 0, 0)]:
        connection.look(now)
    assert emitted == [9, 18, 27, 36, 45] and not transport.aborted
    for now, transport.ours, transport.theirs in [(60, 9, 3), (69, 9, 3), (70, 9, 3)]:
        connection.look(now)
    assert emitted == [9, 18, 27, 36, 45, 60] and transport.aborted, "nothing was taken for ten seconds"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_that_was_reset_is_freed(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Seen: uvicorn's timer for idle connections kept it, with its last request, for 75 seconds: 22 KB each."""
    made: list[weakref.ref[Protocol]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def run() -> None:
        config = uvicorn.Config(application, timeout_keep_alive=3600)
        config.load()

        def protocol_of() -> Protocol:
            one = Protocol(ConnectionLimits(Settings()), config=config, server_state=ServerState(), app_state={})
            made.append(weakref.ref(one))
            return one

        server = await asyncio.get_running_loop().create_server(protocol_of, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        client.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(client, GET + b"\r\n")
        assert (await asyncio.get_running_loop().sock_recv(client, 1000)).startswith(b"HTTP/1.1 200 ")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        while made[0]() is not None:
            gc.collect()
            await asyncio.sleep(0.01)
        server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(run(), 60))


class _Connection(asyncio.Transport):
    """A transport whose client takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.is_open = list[bytes](), True

    def write(self, data: Any) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return not self.is_open

    def close(self) -> None:
        self.is_open = False


def test_an_idle_connection_is_closed_after_its_time() -> None:
    """The time counts from the last answer; while something other than a request has arrived since, the limit is that of a head."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": WHOLE, "status": 200, "head": b"content-length: 0\r\n", "body": b""})

    async def run() -> None:
        config = uvicorn.Config(application, timeout_keep_alive=75)
        config.load()
        connection = Protocol(ConnectionLimits(Settings(head_time=20)), config=config, server_state=ServerState(), app_state={})
        transport = _Connection()
        connection.connection_made(transport)

        async def ask(*pieces: bytes, now: float = 0.0) -> None:
            before = len(transport.written)
            for piece in pieces:
                connection.data_received(piece)
                connection.look(now)
            while len(transport.written) == before:
                await asyncio.sleep(0)

        def is_open(now: float) -> bool:
            connection.look(now)
            return transport.is_open

        assert is_open(1) and is_open(20), "the client has not sent anything"
        await ask(GET + b"\r\n")
        assert is_open(30) and is_open(104)
        post = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n"
        await ask(post, b"1", b"2", now=104)
        assert is_open(150) and is_open(224), "the request was answered meanwhile"
        connection.data_received(b"\r\n")
        assert is_open(224.5), "a line end, which clients may send after a request"
        await ask(GET + b"\r\n")
        assert is_open(300) and is_open(374) and not is_open(375)

    asyncio.run(run())


def test_pieces_for_a_client_that_left_before_the_head_was_sent() -> None:
    """Seen: an ERROR in the log for each, as no Content-Length had been sent."""
    cycle = Cycle.__new__(Cycle)
    cycle.scope, cycle.disconnected, cycle.chunked_encoding, cycle.expected_content_length = {"method": "GET"}, True, None, 0  # type: ignore[typeddict-item]
    asyncio.run(cycle.send({"type": PIECES, "pieces": [b"rows"]}))
