"""How pieces of an answer are divided for the calls that write them."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable

import pytest
import uvloop

from livejoin.wire.rows import Pieces
from service.api.http import joined
from service.api.http.joined import JoinedTransport, in_portions


@pytest.mark.parametrize(
    "sizes", [[], [1], [10, 5, 300], [4, 1000, 4], [100, 100, 100], [99, 1, 101, 5000], [3] * 50, [0, 100, 0], [9] * 40 + [95]]
)
@pytest.mark.parametrize("encrypted", [False, True])
def test_pieces_are_written_in_turns(monkeypatch: pytest.MonkeyPatch, sizes: list[int], encrypted: bool) -> None:
    monkeypatch.setattr(joined, "_SMALL", 10)
    monkeypatch.setattr(joined, "PORTION", 200 if encrypted else 100)
    pieces: Pieces = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    portions = list(in_portions(pieces, encrypted))
    assert b"".join(part for portion in portions for part in portion) == b"".join(pieces)
    assert all(0 < sum(map(len, portion)) <= 100 for portion in portions)
    assert len(portions) <= sum(sizes) // 100 + 1


def test_large_pieces_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "PORTION", 1 << 15)
    piece = bytearray(100_000)
    parts = [part for portion in in_portions([b"head", memoryview(piece), b"tail"]) for part in portion]
    piece[:] = b"x" * 100_000
    assert b"".join(parts) == b"head" + piece + b"tail"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_bytes_arrive_in_order_however_many_the_system_takes(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The client reads while nothing, some, or all of what was written before is still to be sent."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw, sent, received = random.Random(seed), bytearray(), bytearray()
    loop = new_loop()

    async def write_and_read() -> None:
        own, other = socket.socketpair()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        other.setblocking(False)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=own)
        writer = JoinedTransport(transport, loop)
        for _ in range(200):
            pieces = [draw.randbytes(draw.choice([1, 100, 5000, 100_000])) for _ in range(draw.randint(1, 5))]
            sent.extend(b"".join(pieces))
            choice = draw.random()
            if choice < 0.6:
                writer.write_pieces([memoryview(piece) for piece in pieces])
            elif choice < 0.8:
                writer.write(b"".join(pieces))
            else:
                writer.write_now(b"".join(pieces))
            while len(received) < len(sent) - draw.choice([0, 50_000, 1_000_000]):
                received.extend(await loop.sock_recv(other, 1 << 16))
        while len(received) < len(sent):
            received.extend(await loop.sock_recv(other, 1 << 16))
        writer.close()
        writer.write_pieces([b"too late"])
        assert await loop.sock_recv(other, 1) == b""
        other.close()

    try:
        loop.run_until_complete(asyncio.wait_for(write_and_read(), 60))
    finally:
        loop.close()
    assert received == sent
