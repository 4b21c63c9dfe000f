"""Arrow IPC streams, read from blocks as they come and written piece by piece.

pyarrow reads a stream by pulling from a file. Here bytes are pushed, so that the same code serves asyncio: messages are cut out of the
blocks (https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format), pyarrow decodes each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from livejoin.problems import LivejoinError

ARROW = "application/vnd.apache.arrow.stream"
_CONTINUATION = 0xFFFFFFFF


class Decoder:
    """One stream. Memory: the message that has begun."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._held = 0  # bytes in the blocks
        self._wanted = 8  # bytes with which the next step can be taken
        self._schema: pa.Schema | None = None
        self._ended = False

    @property
    def schema(self) -> pa.Schema:
        """Raises ValueError before the first block."""
        if self._schema is None:
            raise ValueError("the schema has not arrived yet: iterate over the rows first")
        return self._schema

    def add(self, block: bytes) -> Iterator[pa.RecordBatch]:
        """The batches that are complete with this block."""
        self._blocks.append(block)
        self._held += len(block)
        while self._held >= self._wanted and not self._ended:
            data = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks)
            self._blocks = [data]
            size = _message_size(data)
            if size is None or size > len(data):
                self._wanted = 8 + _metadata_size(data) if size is None else size
                continue
            self._blocks, self._held, self._wanted = [data[size:]], self._held - size, 8
            yield from self._message(pa.py_buffer(data).slice(0, size))

    def end(self) -> None:
        """The body is over. Raises LivejoinError if the stream is not."""
        if not self._ended or self._held:
            raise LivejoinError("the Arrow stream ended in the middle of a message")

    def _message(self, data: pa.Buffer) -> Iterator[pa.RecordBatch]:
        if data.size == 8:  # the end of the stream: a message without metadata
            self._ended = True
            return
        message = pa.ipc.read_message(data)
        if message.type == "schema":
            self._schema = pa.ipc.read_schema(message)
        else:
            yield pa.ipc.read_record_batch(message, self.schema)


def _metadata_size(data: bytes) -> int:
    continuation, size = struct.unpack_from("<Ii", data)
    if continuation != _CONTINUATION or size < 0:
        raise LivejoinError("the body is not an Arrow stream")
    return int(size)


def _message_size(data: bytes) -> int | None:
    """The size of the message that begins here, with prefix and body; None: not enough of it has come."""
    if len(data) < 8:
        return None
    metadata = _metadata_size(data)
    if metadata == 0:
        return 8
    if len(data) < 8 + metadata:
        return None
    # The flatbuffer's root table, Message: its fourth field is bodyLength.
    root = 8 + struct.unpack_from("<I", data, 8)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    fields = (struct.unpack_from("<H", data, vtable)[0] - 4) // 2
    position = struct.unpack_from("<H", data, vtable + 4 + 3 * 2)[0] if fields > 3 else 0
    body = struct.unpack_from("<q", data, root + position)[0] if position else 0
    return int(8 + metadata + body)


def stream_of(batches: list[pa.RecordBatch], metadata: dict[bytes, bytes] | None = None) -> bytes:
    """The batches, of one schema, as one stream."""
    schema = batches[0].schema.with_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(metadata))
    return bytes(sink.getvalue().to_pybytes())
