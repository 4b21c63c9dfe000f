"""A transport that writes the parts of a response together, and how large responses are divided."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

from livejoin.wire.rows import Pieces

_SMALL = 4096  # bytes; smaller pieces are copied, not passed to the system separately
PORTION = 9 << 18  # bytes: the system call for them takes half a millisecond of the event loop


def in_portions(pieces: Pieces, encrypted: bool = False) -> Iterator[Pieces]:
    """Divide into system calls of about `PORTION` bytes, half of that if TLS encrypts them, without copying, except that adjacent small
    pieces are joined."""
    most = PORTION // 2 if encrypted else PORTION
    portion, small, room = Pieces(), Pieces(), most
    for piece in filter(len, pieces):
        if len(piece) < _SMALL and room > len(piece):
            small.append(piece)
            room -= len(piece)
            continue
        if small:
            portion.append(b"".join(small))
            small = []
        rest = memoryview(piece)
        while rest:
            portion.append(rest[:room])
            rest, room = rest[room:], room - len(portion[-1])
            if not room:
                yield portion
                portion, room = [], most
    if small:
        portion.append(b"".join(small))
    if portion:
        yield portion


class JoinedTransport:
    """A transport that holds written data until the next piece arrives, or for one round of the loop: the head and the body of a response
    thus leave in one system call, and the client is woken once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: bytes | None = None
        self._socket = None if transport.get_extra_info("ssl_object") else transport.get_extra_info("socket")

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._held = data
            self._loop.call_soon(self._let_go)
        else:
            self._transport.writelines((self._held, data))
            self._held = None

    def write_pieces(self, pieces: list[Any]) -> None:
        """Write any number of pieces at once."""
        if self._held is not None:
            pieces.insert(0, self._held)
            self._held = None
        if rest := self._untaken(pieces):
            self._transport.writelines(rest)

    def _untaken(self, pieces: list[Any]) -> list[Any]:
        """Write to the socket, without the interpreter's lock (uvloop holds it while the system copies); return what the system did not
        take."""
        transport = self._transport
        if self._socket is None or transport.is_closing() or transport.get_write_buffer_size():
            return pieces
        try:
            taken = os.writev(self._socket.fileno(), pieces)
        except OSError:  # not possible now; or an error, which the transport will find too
            return pieces
        for index, piece in enumerate(pieces):
            if taken < len(piece):
                return [memoryview(piece)[taken:], *pieces[index + 1 :]]
            taken -= len(piece)
        return []

    def write_now(self, data: bytes) -> None:
        """Like `write`, for the last part of a response."""
        self._let_go()
        self._transport.write(data)

    def close(self) -> None:
        self._let_go()
        self._transport.close()

    def _let_go(self) -> None:
        if self._held is not None:
            if not self._transport.is_closing():  # the client may have disconnected meanwhile
                self._transport.write(self._held)
            self._held = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
