"""CRC-32 over canonical bytes: data on disk must have the same checksum in every later version of Python, SQLite and livejoin.

    None    "n"
    int     "i", 8 bytes, little-endian, signed
    str     "s", its length in bytes (8 bytes, little-endian), UTF-8
    bytes   "b", their length, the bytes

A JSON document is a sequence of such values (`json_checksum`).

Tags and lengths ensure that different values have different bytes. Nothing here may ever change; another encoding is another format of the
folder.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

Value = int | str | bytes | None

_INT = struct.Struct("<cq")
_LENGTH = struct.Struct("<cQ")
_WITHOUT_SOURCE = struct.Struct("<cq3s")


def checksum(*values: Value) -> int:
    """Return the CRC-32 of these values. Raises struct.error for an int beyond 64 bits. Cost: about 0.3 µs per value."""
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, int):
            parts.append(_INT.pack(b"i", value))
        elif isinstance(value, str):
            data = value.encode()
            parts += _LENGTH.pack(b"s", len(data)), data
        elif isinstance(value, bytes):
            parts += _LENGTH.pack(b"b", len(value)), value
        else:  # a float: we never write one, but damage may produce one
            parts.append(b"?")
    return zlib.crc32(b"".join(parts))


def batch_checksum(version: int, source: str | None, run: str | None, epoch: int | None, payload: bytes) -> int:
    """Return the checksum of a row of the log: of its numbers and names, continued over the payload."""
    if source is None and run is None and epoch is None:
        return zlib.crc32(payload, zlib.crc32(_WITHOUT_SOURCE.pack(b"i", version, b"nnn")))
    return zlib.crc32(payload, checksum(version, source, run, epoch))


def json_checksum(document: Any) -> int:
    """Return the checksum of a document without floats as `json.loads` returns it, however it was written: of an object "{", the number of
    its members, and each name and value in the order of the names; of an array "[", its length and its elements; of true and false 1 and
    0."""
    return checksum(*_values(document))


def _values(document: Any) -> Iterator[Value]:
    if isinstance(document, dict):
        yield from ("{", len(document))
        for name in sorted(document):
            yield name
            yield from _values(document[name])
    elif isinstance(document, list):
        yield from ("[", len(document))
        for element in document:
            yield from _values(element)
    elif isinstance(document, int) and not -(1 << 63) <= document < 1 << 63:
        yield f"?{document}"  # we never write such a number, but damage may produce one
    else:
        yield document
