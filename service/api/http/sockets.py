"""Operations on sockets that transports do not offer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys


def reset(transport: asyncio.Transport) -> None:
    """Abort a connection, so that its client cannot mistake what it has received for a complete response."""
    with contextlib.suppress(OSError), transport.get_extra_info("socket").dup() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def unacknowledged(transport: asyncio.Transport) -> int:
    """Return the bytes that were passed to the system but not yet acknowledged by the client's system; 0 if the system does not report it.
    It accepts more of the transport's data only when a third of its buffer is free, which is a megabyte."""
    left = bytearray(4)
    if sys.platform == "linux":
        import fcntl
        import termios

        with contextlib.suppress(OSError):
            fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, left)
    return int.from_bytes(left, sys.byteorder)
