"""How a response that is made in pieces is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from livejoin.wire.rows import Pieces
from service.api import stream
from service.api.context import Context
from service.api.http.answers import PIECES, TAKEN
from service.api.http.cycle import Cycle
from service.api.stream import Chunk, Stream
from service.settings import Settings


class _Made:
    """A source of these chunks, but for the first."""

    def __init__(self, *chunks: Pieces) -> None:
        self.chunks, self.touched = list(chunks), 0

    def step(self) -> Chunk:
        return self.chunks.pop(0), bool(self.chunks)

    def touch(self) -> None:
        self.touched += 1

    def close(self) -> None: ...


def sent(source: _Made, first: Chunk, rest: Any = None) -> list[dict[str, Any]]:
    """The messages of a response."""
    messages = list[dict[str, Any]]()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        messages.append(message)

    async def run() -> None:
        context = Context(Settings())
        context.attach(asyncio.get_running_loop(), ())
        response = Stream(context, context.readers, source, first, "text/plain", {})
        response.rest = rest
        await response({"type": "http", "path": "/"}, receive, send)

    asyncio.run(run())
    return messages


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("chunks", [1, 3])
def test_the_last_chunk_is_joined_only_if_it_is_little(monkeypatch: pytest.MonkeyPatch, large: bool, chunks: int) -> None:
    """Seen: it was sent whole, up to 16 MiB, which the event loop copied twice."""
    monkeypatch.setattr(stream, "_SMALL", 10)
    last: Pieces = [b"ab", b"c" * (100 if large else 5)]
    made: list[Pieces] = [[b"first"], [], last] if chunks == 3 else [last]
    messages = sent(_Made(*made[1:]), (made[0], chunks > 1))
    bodies = [message for message in messages if message["type"] == "http.response.body"]
    pieces = [message["pieces"] for message in messages if message["type"] == PIECES]
    assert [body["more_body"] for body in bodies] == [False]
    assert bodies[0]["body"] == (b"" if large else b"".join(last))
    assert pieces == [*([[b"first"]] if chunks == 3 else []), *([last] if large else [])]


def test_who_makes_the_chunks_hears_that_some_were_taken() -> None:
    """So does what is held beyond their end."""
    source, rest = _Made([b"more"]), list[int]()
    head, *_, end = sent(source, ([b"some"], True), lambda: rest.append(1))
    head[TAKEN]()
    assert source.touched == 1 and len(rest) == 1
    end[TAKEN]()
    assert source.touched == 1 and len(rest) == 2


class _Transport:
    def __init__(self) -> None:
        self.written = list[bytes]()

    def writelines(self, pieces: Pieces) -> None:
        self.written.append(b"".join(pieces))


class _Flow:
    write_paused = False


@pytest.mark.parametrize(("chunked", "method"), [(True, "GET"), (False, "GET"), (True, "HEAD"), (False, "HEAD")])
def test_pieces_go_in_turns_with_and_without_chunks(monkeypatch: pytest.MonkeyPatch, chunked: bool, method: str) -> None:
    monkeypatch.setattr("service.api.http.pacing._COPIED", 10)
    monkeypatch.setattr("service.api.http.pacing.PORTION", 100)
    cycle, transport = Cycle.__new__(Cycle), _Transport()
    cycle.scope, cycle.transport, cycle.flow = {"method": method, "scheme": "http"}, transport, _Flow()  # type: ignore[assignment,typeddict-item]
    cycle.chunked_encoding, cycle.expected_content_length, cycle.disconnected = chunked, 1000, False
    asyncio.run(cycle.send({"type": PIECES, "pieces": [b"a" * 50, b"b" * 400], "more_body": True}))
    body = b"a" * 50 + b"b" * 400
    if method == "HEAD":
        assert not transport.written
        return
    assert b"".join(transport.written) == (b"1c2\r\n" + body + b"\r\n" if chunked else body)
    assert len(transport.written) >= 4 and max(map(len, transport.written)) <= 110
    assert cycle.expected_content_length == (1000 if chunked else 550)
    last = {"type": "http.response.body", "body": b"d" * 300, "more_body": False}
    monkeypatch.setattr("service.api.http.cycle._LARGE", 299)
    sent_last = list[dict[str, Any]]()

    async def send(self: Any, message: Any) -> None:
        sent_last.append(message)

    monkeypatch.setattr("uvicorn.protocols.http.httptools_impl.RequestResponseCycle.send", send)
    transport.written.clear()
    asyncio.run(cycle.send(last))
    assert sent_last == [{**last, "body": b""}] and b"".join(transport.written).count(b"d") == 300 and len(transport.written) >= 3
    if not chunked:
        with pytest.raises(RuntimeError, match="Content-Length"):
            asyncio.run(cycle.send({"type": PIECES, "pieces": [b"c" * 251], "more_body": True}))
