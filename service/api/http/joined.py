"""A transport that writes the parts of an answer together."""

from __future__ import annotations

import asyncio
from typing import Any


class Joined:
    """A transport that holds what is written until the next piece comes, or for one turn of the loop: so the head and the body of an
    answer leave by one system call, and the client is woken once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: bytes | None = None

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._held = data
            self._loop.call_soon(self._let_go)
        else:
            self._transport.writelines((self._held, data))
            self._held = None

    def write_pieces(self, pieces: list[Any]) -> None:
        """What is written, in any number of pieces, at once."""
        if self._held is not None:
            pieces.insert(0, self._held)
            self._held = None
        self._transport.writelines(pieces)

    def write_now(self, data: bytes) -> None:
        """As `write`, of an answer that has come to its end."""
        self._let_go()
        self._transport.write(data)

    def close(self) -> None:
        self._let_go()
        self._transport.close()

    def _let_go(self) -> None:
        if self._held is not None:
            if not self._transport.is_closing():  # the client may have gone meanwhile
                self._transport.write(self._held)
            self._held = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
