"""What `connections` reads from and writes to, with asyncio and without."""

from __future__ import annotations

import select
import socket

import httpcore


class AsyncStream:
    """A stream of httpcore. `timeout`: seconds for a read or a write. Methods raise httpcore's exceptions."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, timeout: float) -> None:
        self._stream, self._timeout = stream, timeout

    async def read(self, most: int) -> bytes:
        """What has come, at least a byte; none at the end."""
        return await self._stream.read(most, self._timeout)

    async def write(self, content: bytes) -> None:
        await self._stream.write(content, self._timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def is_readable(self) -> bool:
        """Whether a read returns at once, also because the other side has closed."""
        return bool(self._stream.get_extra_info("is_readable"))


class Stream:
    """The same over the socket of a stream: httpcore sets a time-out for each call, which takes as long as the call."""

    def __init__(self, stream: httpcore.NetworkStream, timeout: float) -> None:
        self._stream = stream
        self._socket: socket.socket = stream.get_extra_info("socket")
        self._socket.settimeout(timeout)
        self._poll = select.poll() if hasattr(select, "poll") else None
        if self._poll is not None:
            self._poll.register(self._socket, select.POLLIN)

    def read(self, most: int) -> bytes:
        try:
            return self._socket.recv(most)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(error) from error
        except OSError as error:
            raise httpcore.ReadError(error) from error

    def write(self, content: bytes) -> None:
        try:
            self._socket.sendall(content)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(error) from error
        except OSError as error:
            raise httpcore.WriteError(error) from error

    def close(self) -> None:
        self._socket.close()

    @property
    def is_readable(self) -> bool:
        return bool(self._poll.poll(0) if self._poll else self._stream.get_extra_info("is_readable"))
