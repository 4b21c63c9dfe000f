"""Rows of relations and views → bytes: JSON lines, CSV, server-sent events, Arrow.

Text is put together by column: every column becomes a column of its texts, and one join of columns and constants writes all
rows at once. Timestamps leave as `2026-01-01T12:00:00Z`, with six decimals when the fraction is not zero, dates as
`2026-01-01`, times of day as `12:00:00`, with six decimals likewise; bytes in base64. NaN and infinities are "NaN", "Infinity",
"-Infinity" in JSON. In CSV null is an empty field, and the empty text `""`.
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

from service.wire.errors import UnsupportedMediaType
from service.wire.grammar import date_texts, decimal_texts, time_texts, timestamp_texts
from service.wire.values.texts import base64_texts

# A join must stay below Arrow's 2 GiB of text in one array; an escaped text is at most six times as long.
_MAX_BYTES = 2**28
_COPIED = 64 << 10  # bytes: in pieces that are smaller, each piece costs more than copying it
_CSV_QUOTED = re.compile('[",\r\n]')

Texts = Callable[[pa.Array], pa.Array]
Pieces = list[bytes | memoryview]  # bytes to be sent, one piece behind the other


@lru_cache(maxsize=4096)
def _constant(text: str) -> pa.Scalar:
    """A text as Arrow's functions want it. They take plain ones too, but make a scalar of each in 25 µs."""
    return pa.scalar(text, pa.utf8())


_QUOTE, _EMPTY = _constant('"'), _constant("")


def _json_texts(array: pa.Array) -> pa.Array:
    """A column as JSON values."""
    kind = array.type
    if pa.types.is_string(kind):
        return _json_strings(array)
    if (write := _writer(kind)) is not None:
        texts = write(array)
        return pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _EMPTY).fill_null(_constant("null"))
    return _named(array, '"NaN"', '"Infinity"', '"-Infinity"').fill_null(_constant("null"))


def _writer(kind: pa.DataType) -> Texts | None:
    """Of what is neither text nor a number to JSON."""
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
    """A column as CSV fields."""
    kind = array.type
    if pa.types.is_string(kind):
        return _csv_strings(array)
    if pa.types.is_binary(kind):
        return _csv_strings(base64_texts(array))
    if (write := _writer(kind)) is not None:
        return write(array).fill_null(_EMPTY)
    return _named(array, "NaN", "Infinity", "-Infinity").fill_null(_EMPTY)


def _csv_strings(array: pa.Array) -> pa.Array:
    if _holds(array, b'",', below=0x20):
        array = pa.array([None if text is None else _csv_field(text) for text in array.to_pylist()], pa.utf8())
    return pc.if_else(pc.equal(array, _EMPTY), _constant('""'), array).fill_null(_EMPTY)


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _CSV_QUOTED.search(text) else text


def _named(array: pa.Array, nan: str, infinity: str, minus_infinity: str) -> pa.Array:
    """Numbers and truth values as Arrow writes them, but for what is not finite."""
    texts = array.cast(pa.utf8())
    if not pa.types.is_floating(array.type):
        return texts
    if _holds_minus_zero(array):  # Arrow writes `-0`, which readers of whole numbers take for 0
        texts = pc.if_else(pc.equal(texts, _constant("-0")), _constant("-0.0"), texts)
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        for arrow_name, name in (("nan", nan), ("inf", infinity), ("-inf", minus_infinity)):
            texts = pc.if_else(pc.equal(texts, _constant(arrow_name)), _constant(name), texts)
    return texts


def _holds_minus_zero(array: pa.Array) -> bool:
    """Whether a float64 column may hold -0.0 (what lies under nulls is looked at as well)."""
    data = array.buffers()[1]
    if data is None:
        return False
    return bool((np.frombuffer(data, np.int64)[array.offset : array.offset + len(array)] == np.iinfo(np.int64).min).any())


def _holds(array: pa.Array, characters: bytes, below: int) -> bool:
    """Whether the texts hold one of the characters, or one below; all texts are looked at as one run of bytes."""
    offsets, data = array.buffers()[1:]
    if data is None or not len(array):
        return False
    first, last = np.frombuffer(offsets, np.int32)[[array.offset, array.offset + len(array)]]
    run = np.frombuffer(data, np.uint8)[first:last]
    return bool(len(run)) and bool(run.min() < below or any((run == character).any() for character in characters))


class _Form(NamedTuple):
    """How a media type writes a row: a head, the columns' texts after their names, a tail."""

    texts: Texts
    head: str
    named: bool
    tail: str


_FORMS = {
    "application/jsonl": _Form(_json_texts, "{", True, "}\n"),
    "application/x-ndjson": _Form(_json_texts, "{", True, "}\n"),
    "text/csv": _Form(_csv_texts, "", False, "\n"),
    "text/event-stream": _Form(_json_texts, "event: row\ndata: {", True, "}\n\n"),
}


def encode_rows(media_type: str, batch: pa.RecordBatch) -> bytes:
    """Rows as JSON lines, CSV without a header, or server-sent events named `row`."""
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
    """All texts, one after the other: they lie so in Arrow's buffer."""
    offsets, data = texts.buffers()[1:]
    first, last = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]].tolist()
    return bytes(memoryview(data)[first:last])


def csv_header(schema: pa.Schema) -> bytes:
    """The header row."""
    return (",".join(_csv_field(name) for name in schema.names) + "\n").encode()


class ArrowRows:
    """One Arrow IPC stream in pieces: the schema is sent with the first chunk, the end-of-stream marker only in `end`.

    An aborted stream therefore never looks complete.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._sink, self._has_begun = schema, _Sink(), False
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), schema)

    def chunk(self, batch: pa.RecordBatch) -> Pieces:
        """The bytes of one record batch of the schema: columns of many rows are not copied, but referred to."""
        if not batch.schema.equals(self._schema):  # what may be null
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        if self._has_begun and batch.nbytes < _COPIED:
            return [memoryview(batch.serialize())]
        self._has_begun = True
        self._writer.write_batch(batch)
        return self._sink.take()

    def end(self) -> bytes:
        """The bytes that close the stream."""
        self._writer.close()
        return b"".join(self._sink.take())


def joined(pieces: Pieces) -> Pieces:
    """The same bytes; small pieces next to each other are one."""
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
    """A file to be written, of which the pieces are taken away as they come."""

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
