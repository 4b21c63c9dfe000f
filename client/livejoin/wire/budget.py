"""Limits on the memory of decoding, and estimates of the decoded size of bodies: checked in advance, because the size that a body declares
or repeats may be thousands of times its own."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.errors import MalformedBody, TooLarge

# Bytes of Python objects and lists for each of these characters, as measured; lower bounds.
JSON_WEIGHTS: Mapping[bytes, int] = {b",": 56, b"{": 192, b"[": 64, b"\n": 96}
CSV_WEIGHTS: Mapping[bytes, int] = {b",": 8, b"\n": 8}  # of Arrow columns of text
_SMALL = 64 << 10  # bytes; smaller texts are not examined
_PIECE = 1 << 20


class Budget:
    """The limits of one decoder: `rows`, and memory. This one is unbounded; that of a request has the service's limits."""

    rows = sys.maxsize
    rows_setting = "--max-batch-rows"

    def take(self, size: int) -> None:
        """Reserve `size` bytes that are about to be allocated. Raises TooLarge, or the problem that rejects the request."""

    def check_rows(self, count: int) -> None:
        """Raise TooLarge for more rows than a batch may have."""
        if count > self.rows:
            raise TooLarge(f"the batch has more than {self.rows} rows ({self.rows_setting})", self.rows)


UNBOUNDED = Budget()


def take_text(body: bytes, weights: Mapping[bytes, int], room: Budget) -> None:
    """Reserve the decoded size of a text. An estimate, which also counts characters within strings. Takes 0.25 s per gigabyte, without the
    GIL."""
    if len(body) < _SMALL:
        return
    size = len(body) if body.isascii() else 2 * len(body)
    array = np.frombuffer(body, np.uint8)
    for start in range(0, len(array), _PIECE):
        piece = array[start : start + _PIECE]
        size += sum([weight * int(np.count_nonzero(piece == ord(character))) for character, weight in weights.items()])
    room.take(size)


def repeated(array: pa.Array) -> int:
    """Return the bytes that a column as plain values has beyond its present ones: those that a dictionary or views repeat. 0 for other
    columns."""
    if pa.types.is_dictionary(array.type):
        indices = pc.drop_null(array.indices).to_numpy()
        if not _is_text(array.type.value_type):
            return 8 * len(indices)
        return int(_lengths(array.dictionary)[indices].sum()) if len(indices) else 0
    return int(_lengths(array).sum()) if is_view(array.type) else 0


def _is_text(kind: pa.DataType) -> bool:
    """Return whether the type is text or bytes, of variable or fixed width."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or is_view(kind)) or is_bytes(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether the type is bytes in any of Arrow's layouts."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind))


def is_view(kind: pa.DataType) -> bool:
    """Return whether the type is text or bytes as views."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _lengths(texts: pa.Array) -> npt.NDArray[np.int64]:
    if is_view(texts.type):
        return without_junk(texts)[1]
    lengths: npt.NDArray[np.int64] = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def without_junk(views: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return a column of views whose nulls are empty, and the lengths of its texts. In external data, the view of a null may be anything;
    Arrow's casts follow it nevertheless, beyond the bounds of its buffers."""
    if not len(views):
        return views, np.zeros(0, np.int64)
    # A view has 16 bytes; the first four are the length.
    words = np.frombuffer(views.buffers()[1], np.int64, 2 * len(views), 16 * views.offset).reshape(-1, 2)
    if views.null_count:
        valid = views.is_valid().to_numpy(zero_copy_only=False)
        words = words * valid[:, np.newaxis]
        bits = np.packbits(valid, bitorder="little")
        views = pa.Array.from_buffers(views.type, len(views), [pa.py_buffer(bits), pa.py_buffer(words), *views.buffers()[2:]])
    return views, words[:, 0] & 0xFFFFFFFF


def take_arrow_stream(source: pa.BufferReader, rows: int, room: Budget) -> int:
    """Examine the next IPC stream without decoding it: reserve the size of its decompressed buffers, and return `rows` plus its rows.
    Leaves the source after the stream. Raises TooLarge, and MalformedBody or ArrowException for unreadable data."""
    size = 0
    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type not in ("record batch", "dictionary"):
            continue
        try:
            length, decompressed = _record_batch(memoryview(message.metadata), message.body)
        except (struct.error, IndexError, TypeError):
            raise MalformedBody("an Arrow message is damaged") from None
        size += decompressed
        if message.type == "record batch":
            rows += length
        room.check_rows(rows)
    room.take(size)
    return rows


class _Table:
    """A table of a flatbuffer (https://flatbuffers.dev/internals): an offset to its vtable, which has the offsets of its fields."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at

    def position(self, field: int) -> int | None:
        """Return the position of a field; None if it is absent."""
        vtable = self._at - self._int("<i", self._at)
        slot = 4 + 2 * field
        offset = self._int("<H", vtable + slot) if slot < self._int("<H", vtable) else 0
        return self._at + offset if offset else None

    def follow(self, field: int) -> int | None:
        """Return the start of the table or vector that a field refers to."""
        position = self.position(field)
        return None if position is None else position + self._int("<I", position)

    def table(self, field: int) -> _Table | None:
        at = self.follow(field)
        return None if at is None else _Table(self._data, at)

    def _int(self, form: str, at: int) -> int:
        number: int = struct.unpack_from(form, self._data, at)[0]
        return number


def _record_batch(metadata: memoryview, body: pa.Buffer) -> tuple[int, int]:
    """Return the rows, and the decoded bytes of the buffers beyond those of the body, from a message of a RecordBatch or DictionaryBatch
    (Arrow's Message.fbs): for compressed buffers, and for those that share bytes, because joining batches copies each."""
    root = _Table(metadata, struct.unpack_from("<I", metadata)[0])
    kind = root.position(1)
    header = root.table(2)
    if kind is not None and metadata[kind] == 2 and header is not None:
        header = header.table(1)  # the dictionary's
    if header is None:
        return 0, 0
    position = header.position(0)
    rows = 0 if position is None else struct.unpack_from("<q", metadata, position)[0]
    buffers = header.follow(2)
    if buffers is None:
        return rows, 0
    compressed = header.position(3) is not None
    size, sent = 0, -body.size
    for index in range(struct.unpack_from("<I", metadata, buffers)[0]):
        offset, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * index)
        sent += max(0, length)
        if compressed and length >= 8:
            # The size of a compressed buffer precedes it; -1: it is not compressed.
            size += max(0, struct.unpack_from("<q", memoryview(body), offset)[0])
    return rows, size + max(0, sent)
