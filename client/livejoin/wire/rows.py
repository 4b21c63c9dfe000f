"""Encodes rows of relations and views as bytes: JSON lines, CSV, server-sent events, Arrow.

Text is assembled by column: every column becomes a column of texts, and one join of columns and constants writes all rows at once.
Timestamps are written as `2026-01-01T12:00:00Z`, with six decimals if the fraction is not zero, dates as `2026-01-01`, times of day as
`12:00:00`, with six decimals likewise; bytes in base64. NaN and infinities are "NaN", "Infinity", "-Infinity" in JSON. In CSV, null is an
empty field, and the empty text `""`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.errors import UnsupportedMediaType
from livejoin.wire.grammar import date_texts, decimal_texts, time_texts, timestamp_texts
from livejoin.wire.values.texts import base64_texts

# A join must stay below Arrow's 2 GiB of text in one array; an escaped text is at most six times as long.
_MAX_BYTES = 2**28
_COPIED = 64 << 10  # bytes: a smaller piece costs more than copying it
_CSV_QUOTED = re.compile('[",\r\n]')

Texts = Callable[[pa.Array], pa.Array]
Pieces = list[bytes | memoryview]  # bytes to be sent, in order


@lru_cache(maxsize=4096)
def _constant(text: str) -> pa.Scalar:
    """Return a text as a scalar for Arrow's functions. They accept plain texts too, but convert each of them in 25 µs."""
    return pa.scalar(text, pa.utf8())


_QUOTE, _EMPTY = _constant('"'), _constant("")


def json_texts(array: pa.Array) -> pa.Array:
    """Convert a column to JSON values."""
    kind = array.type
    if pa.types.is_string(kind):
        return _json_strings(array)
    if (write := writer(kind)) is not None:
        texts = write(array)
        return pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _EMPTY).fill_null(_constant("null"))
    return _named(array, '"NaN"', '"Infinity"', '"-Infinity"').fill_null(_constant("null"))


def writer(kind: pa.DataType) -> Texts | None:
    """Return the function that converts types other than texts and JSON's numbers."""
    if pa.types.is_timestamp(kind):
        return timestamp_texts
    if pa.types.is_date32(kind):
        return date_texts
    if pa.types.is_time(kind):
        return time_texts
    if pa.types.is_binary(kind):
        return base64_texts
    return decimal_texts if pa.types.is_decimal(kind) else None


def _json_strings(array: pa.Array) -> pa.Array:
    if _holds(array, b'"\\', below=0x20):
        texts = pa.array([None if text is None else orjson.dumps(text).decode() for text in array.to_pylist()], pa.utf8())
    else:
        texts = pc.binary_join_element_wise(_QUOTE, array, _QUOTE, _EMPTY)
    return texts.fill_null(_constant("null"))


def _csv_texts(array: pa.Array) -> pa.Array:
    """Convert a column to CSV fields."""
    kind = array.type
    if pa.types.is_string(kind):
        return _csv_strings(array)
    if pa.types.is_binary(kind):
        return _csv_strings(base64_texts(array))
    if (write := writer(kind)) is not None:
        return write(array).fill_null(_EMPTY)
    return _named(array, "NaN", "Infinity", "-Infinity").fill_null(_EMPTY)


def _csv_strings(array: pa.Array) -> pa.Array:
    if _holds(array, b'",', below=0x20):
        array = pa.array([None if text is None else _csv_field(text) for text in array.to_pylist()], pa.utf8())
    return pc.if_else(pc.equal(array, _EMPTY), _constant('""'), array).fill_null(_EMPTY)


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _CSV_QUOTED.search(text) else text


def _named(array: pa.Array, nan: str, infinity: str, minus_infinity: str) -> pa.Array:
    """Convert numbers and truth values as Arrow does, except those that are not finite."""
    texts = array.cast(pa.utf8())
    if not pa.types.is_floating(array.type):
        return texts
    if _holds_minus_zero(array):  # Arrow writes `-0`, which readers of integers take for 0
        texts = pc.if_else(pc.equal(texts, _constant("-0")), _constant("-0.0"), texts)
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        for arrow_name, name in (("nan", nan), ("inf", infinity), ("-inf", minus_infinity)):
            texts = pc.if_else(pc.equal(texts, _constant(arrow_name)), _constant(name), texts)
    return texts


def _holds_minus_zero(array: pa.Array) -> bool:
    """Return whether a float64 column may contain -0.0 (values under nulls are examined too)."""
    data = array.buffers()[1]
    if data is None:
        return False
    return bool((np.frombuffer(data, np.int64)[array.offset : array.offset + len(array)] == np.iinfo(np.int64).min).any())


def _holds(array: pa.Array, characters: bytes, below: int) -> bool:
    """Return whether the texts contain one of the characters, or one less than `below`; all texts are examined as one run of bytes."""
    offsets, data = array.buffers()[1:]
    if data is None or not len(array):
        return False
    first, last = np.frombuffer(offsets, np.int32)[[array.offset, array.offset + len(array)]]
    run = np.frombuffer(data, np.uint8)[first:last]
    return bool(len(run)) and bool(run.min() < below or any((run == character).any() for character in characters))


class _Form(NamedTuple):
    """How a media type writes a row: a head, the columns' texts (after their names, if `named`), a tail."""

    texts: Texts
    head: str
    named: bool
    tail: str


_FORMS = {
    "application/jsonl": _Form(json_texts, "{", True, "}\n"),
    "application/x-ndjson": _Form(json_texts, "{", True, "}\n"),
    "text/csv": _Form(_csv_texts, "", False, "\n"),
    "text/event-stream": _Form(json_texts, "event: row\ndata: {", True, "}\n\n"),
}


def encode_rows(media_type: str, batch: pa.RecordBatch) -> bytes:
    """Encode rows as JSON lines, CSV without a header, or server-sent events named `row`."""
    form = _FORMS.get(media_type)
    if form is None:
        raise UnsupportedMediaType(f"rows are not available as {media_type or 'no media type'}; use one of {', '.join(_FORMS)}")
    if batch.num_rows == 0:
        return b""
    if batch.nbytes > _MAX_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        return encode_rows(media_type, batch.slice(0, half)) + encode_rows(media_type, batch.slice(half))
    parts: list[Any] = []
    before = form.head
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        head = before + orjson.dumps(name).decode() + ":" if form.named else before
        parts += [_constant(head), form.texts(column)]
        before = ","
    parts += [_constant(form.tail), _EMPTY]
    return _run(pc.binary_join_element_wise(*parts))


def _run(texts: pa.Array) -> bytes:
    """Return all texts one after the other, as they are in Arrow's buffer."""
    offsets, data = texts.buffers()[1:]
    first, last = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]].tolist()
    return bytes(memoryview(data)[first:last])


def csv_header(schema: pa.Schema) -> bytes:
    """Return the header row."""
    return (",".join(_csv_field(name) for name in schema.names) + "\n").encode()


class ArrowRows:
    """One Arrow IPC stream in pieces: the schema is sent with the first chunk, the end-of-stream marker only in `end`.

    An aborted stream therefore never looks complete.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._sink, self._has_begun = schema, _Sink(), False
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), schema)

    def chunk(self, batch: pa.RecordBatch) -> Pieces:
        """Return the bytes of one record batch with the schema: columns of many rows are not copied, but referred to."""
        if not batch.schema.equals(self._schema):  # nullability may differ
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        if self._has_begun and batch.nbytes < _COPIED:
            return [memoryview(batch.serialize())]
        self._has_begun = True
        self._writer.write_batch(batch)
        return self._sink.take()

    def end(self) -> bytes:
        """Return the bytes that end the stream."""
        self._writer.close()
        return b"".join(self._sink.take())


def joined(pieces: Pieces) -> Pieces:
    """Return the same bytes with adjacent small pieces joined."""
    found, small = Pieces(), Pieces()
    for piece in filter(len, pieces):
        if len(piece) < _COPIED:
            small.append(piece)
            continue
        if small:
            found.append(b"".join(small))
        found.append(piece)
        small = []
    last = b"".join(small)
    return [*found, last] if last else found


class _Sink:
    """A write-only file whose pieces are removed as they arrive."""

    closed = False

    def __init__(self) -> None:
        self._pieces: Pieces = []

    def write(self, piece: bytes | pa.Buffer) -> int:
        self._pieces.append(piece if isinstance(piece, bytes) else memoryview(piece))
        return len(piece)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def take(self) -> Pieces:
        taken, self._pieces = self._pieces, []
        return taken
