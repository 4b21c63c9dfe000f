"""The protocol between the service and the child that runs a query, over a socket: a byte for the kind, four for the length, the content.

The child asks and the service answers, so a thread of the service sends only what the child is about to read.

    service  QUERY     JSON: {"sql", "tables": their names, "memory", "threads", "seconds"}; then for each table its SCHEMA
    child    OPEN      JSON: {"scan", "table", "columns"}: the child's number for a new scan of these columns of a table
    child    NEXT      the number of a scan -> service  ROWS: record batches of those columns, one after another; empty at the end
    child    CLOSE     the number of a scan that it no longer needs
    child    SCHEMA    of the result, before its first rows
    child    ROWS      a record batch of the result
    child    END       the result is complete
    child    FAILED    JSON: {"error", "message", "position"}: the name of DuckDB's exception, or one of those below

Schemas and record batches are messages of Arrow's IPC format. Positions count characters of the query from 0.
"""

from __future__ import annotations

import select
import socket
import struct

QUERY, SCHEMA, OPEN, NEXT, CLOSE, ROWS, END, FAILED = range(1, 9)
NOT_A_SELECT, SOURCE, TOO_LARGE = "not a SELECT", "source", "too large"

LONGEST = 64 << 20  # bytes of a frame that the service accepts
NUMBER = struct.Struct("<I")
_HEAD = struct.Struct("<BI")
_AT_ONCE = 64  # parts; the system accepts a thousand


class PeerGone(Exception):
    """The other side has closed the socket, or violates the protocol."""


def send(to: socket.socket, kind: int, *contents: bytes | memoryview) -> None:
    """Send one frame with the concatenation of these contents. Raises Gone."""
    parts = [_HEAD.pack(kind, sum(map(len, contents))), *contents]
    try:
        sent = to.sendmsg(parts[:_AT_ONCE])  # in one call: the other side wakes up once
        for part in parts:
            if sent < len(part):
                to.sendall(memoryview(part)[sent:])
            sent = max(sent - len(part), 0)
    except OSError:
        raise PeerGone from None


def receive(of: socket.socket, longest: int | None = None) -> tuple[int, bytearray]:
    """Return the kind and the content of the next frame. Raises Gone, for a frame longer than `longest` before reading it."""
    kind, size = _HEAD.unpack(_exactly(of, _HEAD.size))
    if longest is not None and size > longest:
        raise PeerGone
    return kind, _exactly(of, size)


def is_readable(of: socket.socket | int, seconds: float = 0.0) -> bool:
    """Return whether there is data, or the end, within `seconds`. `of`: a socket or a file descriptor."""
    poll = select.poll()
    poll.register(of, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _exactly(of: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        try:
            taken = of.recv_into(rest, 0, socket.MSG_WAITALL)
        except OSError:
            raise PeerGone from None
        if not taken:
            raise PeerGone
        rest = rest[taken:]
    return content
