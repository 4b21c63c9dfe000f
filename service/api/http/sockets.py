"""What transports do not do with the sockets below them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys


def reset(transport: asyncio.Transport) -> None:
    """End a connection so that its client cannot take what it has got for whole."""
    with contextlib.suppress(OSError), transport.get_extra_info("socket").dup() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def unacknowledged(transport: asyncio.Transport) -> int:
    """Bytes that the system was given and the client's system does not have; 0 where it does not tell. It takes more of the transport's
    only when a third of its buffer is free, which is a megabyte."""
    left = bytearray(4)
    if sys.platform == "linux":
        import fcntl
        import termios

        with contextlib.suppress(OSError):
            fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, left)
    return int.from_bytes(left, sys.byteorder)
