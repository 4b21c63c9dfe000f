"""The answer to one request, as it is written to the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from livejoin.wire.rows import Pieces
from service.api.http.answers import PIECES, TAKEN, WHOLE
from service.api.http.pacing import in_portions, pace

_LARGE = 1 << 20  # bytes of a body: larger ones are not copied, but sent as pieces


class Cycle(RequestResponseCycle):
    """A request and its answer, which may come as a single message (`answers.WHOLE`), or with its body as `answers.PIECES`."""

    defaults: ClassVar[tuple[list[tuple[bytes, bytes]], bytes]] = [], b""  # fields of every answer, the same list for a second; as bytes
    on_taken: Callable[[], None] | None = None  # see `answers.TAKEN`

    async def send(self, message: Any) -> None:
        if message["type"] == PIECES:
            await self._send_pieces(message["pieces"])
            return
        if message["type"] != WHOLE:
            if TAKEN in message:
                self.on_taken = message[TAKEN]
            if len(message.get("body", b"")) > _LARGE:
                await self._send_pieces([message["body"]])
                message = message | {"body": b""}
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if self.default_headers is not Cycle.defaults[0]:
            Cycle.defaults = self.default_headers, b"".join([b"%b: %b\r\n" % field for field in self.default_headers])
        close = b"" if self.keep_alive else b"connection: close\r\n"
        parts = STATUS_LINE[message["status"]], Cycle.defaults[1], message["head"], close, b"\r\n", message["body"]
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join(parts))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    async def _send_pieces(self, pieces: Pieces) -> None:
        """Send the pieces as one chunk, if the answer is chunked."""
        size = sum(map(len, pieces))
        if not size or self.scope["method"] == "HEAD" or self.disconnected:  # an empty chunk would end the body
            return
        if self.chunked_encoding:
            pieces = [b"%x\r\n" % size, *pieces, b"\r\n"]
        elif size > self.expected_content_length:
            raise RuntimeError("the body is longer than Content-Length says")
        else:
            self.expected_content_length -= size
        encrypted = self.scope["scheme"] == "https"
        for parts in in_portions(pieces, encrypted):
            if self.flow.write_paused and not self.disconnected:
                await self.flow.drain()
            await pace(sum(map(len, parts)), encrypted)
            if self.disconnected:
                return
            self.transport.writelines(parts)
