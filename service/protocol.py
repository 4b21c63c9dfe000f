"""Connections: uvicorn's HTTP protocol over httptools, extended by the service's own rules."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, cast

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.errors import Problem


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


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, but for its own words to what is not HTTP, and with fewer system calls."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, Joined(transport, self.loop)))

    def send_400_response(self, msg: str) -> None:
        body = orjson.dumps(Problem("malformed-body", "this is not a request in HTTP/1.1, or its address is longer than 64 KiB").to_json())
        head = (
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\nconnection: close\r\n"
            b"x-request-id: %s\r\n\r\n"
        )
        self.transport.write(head % (len(body), secrets.token_hex(8).encode()) + body)
        self.transport.close()
