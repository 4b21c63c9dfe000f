"""Requests whose answers are short and taken whole, by HTTP/1.1 over the streams of httpx's own engine.

httpx takes 700 µs of processor time for a request, more than the service does for a change of one row; this takes a tenth. httpx reads
answers that are streamed. RFC 9112 has the rules: the length of an answer in section 6.3, chunks in 7.1.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

import httpcore
import httpx

from livejoin.streams import AsyncStream

FAILURES = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)
_IDLE = 5.0  # seconds; older connections may just be closed by the service, which a request that is not repeatable must not meet
_KEPT = 20  # connections
_PIECE = 256 << 10  # bytes that are written at once
_BLOCK = 64 << 10  # bytes that are read at once
_HEXADECIMAL = b"0123456789abcdefABCDEF"
_HEAD = 64 << 10  # bytes of an answer's head, at most


class Answer(NamedTuple):
    """`fields` by name in lower case."""

    status: int
    reason: str
    fields: Mapping[str, str]
    content: bytes


class AsyncConnections:
    """Connections to one service, each used by one request after the other, each request by any thread.

    address: the service's, with what precedes all paths. headers: what every request has. trust: whose certificates are trusted. timeout:
    seconds for a read or a write, connect_timeout for a connection. Methods raise `FAILURES`, of which ConnectError and ConnectTimeout say
    that nothing was sent.
    """

    def __init__(
        self, address: httpx.URL, headers: Mapping[str, str], trust: ssl.SSLContext | bool, timeout: float, connect_timeout: float
    ) -> None:
        self._host = address.raw_host.decode()
        self._port = address.port or (443 if address.scheme == "https" else 80)
        self._prefix = address.raw_path.rstrip(b"/").decode("ascii")
        fields = {"Host": address.netloc.decode(), **headers}
        self._fields = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
        self._trust = trust
        self._timeout, self._connect_timeout = timeout, connect_timeout
        self._backend = httpcore.AnyIOBackend()
        self._idle: list[tuple[AsyncStream, float]] = []  # and since when; the last one is used first
        self._most = _KEPT

    async def aclose(self) -> None:
        """Those of requests that are under way close with their answers."""
        self._most = 0
        while (kept := self._taken()) is not None:
            await kept[0].aclose()

    def _taken(self) -> tuple[AsyncStream, float] | None:
        try:
            return self._idle.pop()
        except IndexError:  # there is none, perhaps because another thread has taken it
            return None

    async def exchange(self, method: str, path: str, content: bytes | None, media_type: str | None) -> Answer:
        """The answer to a request for `path`, which is encoded already, with its query."""
        about = ""
        if media_type is not None:
            if not (media_type.isascii() and media_type.isprintable()):
                raise ValueError(f"{media_type!r} is not a media type")
            about = f"Content-Type: {media_type}\r\n"
        if content is not None:
            about += f"Content-Length: {len(content)}\r\n"
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._fields}{about}\r\n".encode("ascii")
        stream = await self._stream()
        try:
            await self._write(stream, head, content or b"")
            answer, is_kept = await self._read(stream)
        except BaseException:
            await stream.aclose()
            raise
        if is_kept and len(self._idle) < self._most:
            self._idle.append((stream, monotonic()))
        else:
            await stream.aclose()
        if not self._most:  # it may have been closed meanwhile, by another thread
            await self.aclose()
        return answer

    async def _stream(self) -> AsyncStream:
        oldest = monotonic() - _IDLE
        while (kept := self._taken()) is not None:
            stream, since = kept
            if since > oldest and not stream.is_readable:  # the service has not closed it, nor sent what nobody asked for
                return stream
            await stream.aclose()
        made = await self._backend.connect_tcp(self._host, self._port, self._connect_timeout)
        if self._trust is not False:
            if self._trust is True:
                self._trust = httpx.create_ssl_context()
            made = await made.start_tls(self._trust, self._host, self._connect_timeout)
        return AsyncStream(made, self._timeout)

    async def _write(self, stream: AsyncStream, head: bytes, content: bytes) -> None:
        try:
            await stream.write(head + content[:_PIECE])
            for at in range(_PIECE, len(content), _PIECE):
                await stream.write(content[at : at + _PIECE])
        except httpcore.WriteError:
            pass  # the service may have refused it before its end, and said why

    async def _read(self, stream: AsyncStream) -> tuple[Answer, bool]:
        """And whether the connection can be used again."""
        status, data = 100, b""
        while status < 200:  # 1xx: the answer is still to come
            while (end := data.find(b"\r\n\r\n")) < 0:
                if len(data) > _HEAD:
                    raise httpcore.RemoteProtocolError("the head of the answer is too long")
                data += await self._block(stream)
            protocol, status, reason, fields = _parsed(data[:end])
            data = data[end + 4 :]
        is_kept = protocol == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
        coding, length = fields.get("transfer-encoding"), fields.get("content-length")
        if status in (204, 304):
            length = "0"
        if coding is not None:
            if coding.lower() != "chunked":
                raise httpcore.RemoteProtocolError(f"the answer has the transfer coding {coding}")
            content, rest = await self._chunks(stream, data)
        elif length is not None:
            if not length.isdecimal():
                raise httpcore.RemoteProtocolError(f"the answer has the length {length}")
            content, rest = await self._exactly(stream, data, int(length))
        else:
            content, rest, is_kept = await self._all(stream, data), b"", False
        return Answer(status, reason, fields, content), is_kept and not rest

    async def _block(self, stream: AsyncStream) -> bytes:
        block = await stream.read(_BLOCK)
        if not block:
            raise httpcore.RemoteProtocolError("the connection was closed before the end of the answer")
        return block

    async def _exactly(self, stream: AsyncStream, data: bytes, length: int) -> tuple[bytes, bytes]:
        """So many bytes, of which `data` are the first; and what else has come."""
        if len(data) < length:
            parts, missing = [data], length - len(data)
            while missing > 0:
                parts.append(await self._block(stream))
                missing -= len(parts[-1])
            data = b"".join(parts)
        return data[:length], data[length:]

    async def _chunks(self, stream: AsyncStream, data: bytes) -> tuple[bytes, bytes]:
        chunks: list[bytes] = []
        while True:
            line, data = await self._line(stream, data)
            size = line.partition(b";")[0].strip()
            if not size or size.strip(_HEXADECIMAL):
                raise httpcore.RemoteProtocolError(f"a chunk of the answer has the length {size.decode('latin-1')!r}")
            if not (length := int(size, 16)):
                break
            chunk, data = await self._exactly(stream, data, length + 2)
            chunks.append(chunk[:-2])
        while line:  # fields behind the last chunk, and an empty line
            line, data = await self._line(stream, data)
        return b"".join(chunks), data

    async def _line(self, stream: AsyncStream, data: bytes) -> tuple[bytes, bytes]:
        while (end := data.find(b"\r\n")) < 0:
            if len(data) > _HEAD:
                raise httpcore.RemoteProtocolError("a line of the answer is too long")
            data += await self._block(stream)
        return data[:end], data[end + 2 :]

    async def _all(self, stream: AsyncStream, data: bytes) -> bytes:
        parts = [data]
        while block := await stream.read(_BLOCK):
            parts.append(block)
        return b"".join(parts)


def _parsed(head: bytes) -> tuple[str, int, str, dict[str, str]]:
    """Protocol, status, reason and fields. Raises RemoteProtocolError for what is no head."""
    first, *lines = head.decode("latin-1").split("\r\n")
    protocol, _, rest = first.partition(" ")
    status, _, reason = rest.partition(" ")
    if not protocol.startswith("HTTP/1.") or len(status) != 3 or not (status.isascii() and status.isdigit()):
        raise httpcore.RemoteProtocolError("the answer is not HTTP/1.1")
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    return protocol, int(status), reason, fields
