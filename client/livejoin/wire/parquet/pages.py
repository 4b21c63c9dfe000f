"""The pages of a Parquet file: their decoded sizes are computed from their headers before a page is decoded, because the sizes in the
footer are only what the writer claims. Their positions are read from the footer, not with pyarrow: its `ColumnChunkMetaData` lets
exceptions of Arrow pass through code that may not throw, which ends the process.

Source: parquet-format's parquet.thrift and Encodings.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from livejoin.wire.budget import Budget
from livejoin.wire.errors import MalformedBody
from livejoin.wire.parquet.thrift import BINARY, FALSE, I32, I64, LIST, STRUCT, Struct, read_struct, read_varint

_MAX_PAGES = 500_000
_DICTIONARY_PAGE, _DATA_PAGE_2 = 2, 3
_RUN_LENGTHS, _DELTA_LENGTHS, _DELTA_BYTE_ARRAY = 3, 6, 7
_LENGTH = 8  # bytes of a text's lengths
_UNCOMPRESSED = 0
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}  # by number; LZ4 has two forms, and Arrow tries both
_TAIL = 8  # bytes after the footer: its length, and PAR1


class Pages(NamedTuple):
    """The pages of some columns: bytes of the largest; the columns with dictionaries; whether values share prefixes, so that a page may
    become many times as large as its bytes."""

    largest: int
    dictionaries: list[str]
    share: bool


class _Chunk(NamedTuple):
    """A column of a row group of `rows` rows: its pages are body[start:end]."""

    column: int
    name: str
    rows: int
    start: int
    end: int
    codec: int


def look_at_pages(body: bytes, schema: pq.ParquetSchema, names: set[str], room: Budget) -> Pages:
    """Take the decoded size of these columns' pages from `room`. Raises TooLarge, and MalformedBody for damaged pages."""
    largest = count = 0
    dictionaries: dict[str, None] = {}
    share = False
    for chunk in _chunks(body, schema, names):
        nullable = schema.column(chunk.column).max_definition_level > 0
        at = chunk.start
        while at < chunk.end:
            page = _page(body, at)
            room.take(page.size)
            largest, count, at = max(largest, page.size), count + 1, page.end
            share |= page.encoding == _DELTA_BYTE_ARRAY
            if page.kind == _DICTIONARY_PAGE:
                dictionaries[chunk.name] = None
            elif page.encoding in (_DELTA_LENGTHS, _DELTA_BYTE_ARRAY):
                room.take(_LENGTH * page.values)
                _check_lengths(page, body, chunk.codec, nullable, min(page.values, chunk.rows))
            if count > _MAX_PAGES:
                raise MalformedBody(f"the Parquet file has more than {_MAX_PAGES} pages: write larger ones")
    return Pages(largest, list(dictionaries), share)


def _chunks(body: bytes, schema: pq.ParquetSchema, names: set[str]) -> Iterator[_Chunk]:
    """Yield the chunks of these columns, except those without values, which are not read."""
    end = len(body) - _TAIL
    try:
        footer, _ = read_struct(body[end - int.from_bytes(body[end : end + 4], "little") : end], 0)
        columns = [(group[3, I64], _elements(group, 1, STRUCT)) for group in _elements(footer, 4, STRUCT)]
        found = [(number, rows, chunk[3, STRUCT]) for rows, chunks in columns for number, chunk in enumerate(chunks)]
        if any(len(chunks) != len(schema) for _, chunks in columns):
            raise ValueError
        for number, rows, chunk in found:
            name = ".".join(part.decode() for part in _elements(chunk, 3, BINARY))
            if name in names and chunk[5, I64]:
                yield _chunk(chunk, number, name, rows, len(body))
    except (IndexError, KeyError, TypeError, ValueError):
        raise MalformedBody("the body is not Parquet: its footer is damaged") from None


def _chunk(chunk: Struct, number: int, name: str, rows: int, size: int) -> _Chunk:
    at = chunk[9, I64]
    dictionary = chunk.get((11, I64), 0)
    if 0 < dictionary < at:
        at = dictionary
    end = at + chunk[7, I64]
    if not 0 <= at <= end <= size:
        raise MalformedBody(f"the body is not Parquet: the column {name!r} lies outside of the file")
    return _Chunk(number, name, rows, at, end, chunk[4, I32])


def _elements(struct: Struct, field: int, kind: int) -> list[Any]:
    found, elements = struct[field, LIST]
    if elements and found != kind:
        raise ValueError
    return list(elements)


class _Page(NamedTuple):
    """Its data are body[start:end], of which the first `levels` bytes are never compressed; None: the levels are part of the data, as run
    lengths unless `bits`."""

    kind: int
    size: int
    encoding: int | None
    values: int
    start: int
    end: int
    levels: int | None
    compressed: bool
    bits: bool


def _page(body: bytes, at: int) -> _Page:
    """Return the page whose header starts at `at`."""
    try:
        header, start = read_struct(body, at)
        kind, size, length = header[1, I32], header[2, I32], header[3, I32]
        if size < 0 or length < 0:
            raise ValueError
        if kind == _DATA_PAGE_2:
            data = header[8, STRUCT]
            before = data[5, I32], data[6, I32]
            if min(before) < 0 or sum(before) > min(size, length):
                raise ValueError
            page = _Page(kind, size, data[4, I32], data[1, I32], start, start + length, sum(before), (7, FALSE) not in data, False)
        else:
            data = header.get((5, STRUCT), {})
            encoding, values, bits = data.get((2, I32)), data.get((1, I32), 0), data.get((3, I32)) != _RUN_LENGTHS
            page = _Page(kind, size, encoding, values, start, start + length, None, True, bits)
        if page.values < 0:
            raise ValueError
        return page
    except (IndexError, KeyError, ValueError):
        raise MalformedBody(f"the body is not Parquet: the header of the page at byte {at} is damaged") from None


def _check_lengths(page: _Page, body: bytes, codec: int, nullable: bool, most: int) -> None:
    """Check the number of lengths of a page's texts: Arrow allocates memory for all of them, and computes them, before it checks how many
    values the page has. MalformedBody if there are more than `most`, or if they cannot be counted."""
    try:
        data = body[page.start : page.end]
        at = page.levels or 0
        if at == len(data):
            return
        if codec != _UNCOMPRESSED and page.compressed:
            if codec not in _CODECS:
                raise MalformedBody("texts in a DELTA encoding cannot be read with this compression: use snappy, gzip, brotli or zstd")
            data = data[:at] + pa.decompress(data[at:], page.size - at, _CODECS[codec], asbytes=True)
        if page.levels is None and nullable:
            if page.bits:
                raise ValueError
            at = 4 + int.from_bytes(data[:4], "little")
        at = _past_deltas(data, at, most)
        if page.encoding == _DELTA_BYTE_ARRAY:
            _past_deltas(data, at, most)
    except (IndexError, ValueError, pa.ArrowException, OSError):
        raise MalformedBody(f"the body is not Parquet: the lengths of the texts of the page at byte {page.start} are damaged") from None


def _past_deltas(data: bytes, at: int, most: int) -> int:
    """Return the end of numbers in the encoding DELTA_BINARY_PACKED. Raises ValueError if there are more than `most`, and IndexError."""
    block, at = read_varint(data, at)
    parts, at = read_varint(data, at)
    count, at = read_varint(data, at)
    _, at = read_varint(data, at)
    if count > most or not parts or block % (8 * parts):
        raise ValueError
    left, part = count - 1, block // parts
    while left > 0:
        _, at = read_varint(data, at)
        if part == 0 or at + parts > len(data):
            raise ValueError
        widths, at = data[at : at + parts], at + parts
        for width in widths[: -(-left // part)]:
            at += part * width // 8
        left -= block
    return at
