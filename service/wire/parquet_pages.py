"""The pages of a Parquet file: what they become is added up from their headers before a page is decoded, because the sizes in the footer
are only what the writer says.

Source: parquet-format's parquet.thrift and Encodings.md; Thrift's compact protocol.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from service.wire.errors import MalformedBody
from service.wire.room import Room

_MAX_PAGES = 500_000
_MAX_DEPTH = 16  # of structs in a page's header
_DICTIONARY_PAGE, _DATA_PAGE_2 = 2, 3
_RUN_LENGTHS, _DELTA_LENGTHS, _DELTA_BYTE_ARRAY = 3, 6, 7
_LENGTH = 8  # bytes of a text's lengths
_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd"}  # LZ4 has two forms, and Arrow tries both


class Pages(NamedTuple):
    """The pages of some columns: bytes of the largest; the columns that have dictionaries; whether values share their beginnings, so that
    a page may become many times as large as its bytes."""

    largest: int
    dictionaries: list[str]
    share: bool


def look_at_pages(body: bytes, metadata: pq.FileMetaData, names: set[str], room: Room) -> Pages:
    """Take what the pages of these columns become. Raises TooLarge, and MalformedBody for what is damaged."""
    largest = count = 0
    dictionaries: dict[str, None] = {}
    share = False
    for group in range(metadata.num_row_groups):
        chunks = metadata.row_group(group)
        for number in range(chunks.num_columns):
            chunk = chunks.column(number)
            name = chunk.path_in_schema
            if name not in names or not chunk.num_values:  # nothing is read of a chunk without values
                continue
            at = chunk.data_page_offset
            if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
                at = chunk.dictionary_page_offset
            end = at + chunk.total_compressed_size
            if not 0 <= at <= end <= len(body):
                raise MalformedBody(f"the body is not Parquet: the column {name!r} lies outside of the file")
            nullable = metadata.schema.column(number).max_definition_level > 0
            while at < end:
                page = _page(body, at)
                room.take(page.size)
                largest, count, at = max(largest, page.size), count + 1, page.end
                share |= page.encoding == _DELTA_BYTE_ARRAY
                if page.kind == _DICTIONARY_PAGE:
                    dictionaries[name] = None
                elif page.encoding in (_DELTA_LENGTHS, _DELTA_BYTE_ARRAY):
                    room.take(_LENGTH * page.values)
                    _check_lengths(page, body, chunk.compression, nullable, min(page.values, chunks.num_rows))
                if count > _MAX_PAGES:
                    raise MalformedBody(f"the Parquet file has more than {_MAX_PAGES} pages: write larger ones")
    return Pages(largest, list(dictionaries), share)


class _Page(NamedTuple):
    """Its data are body[start:end], of which the first `levels` bytes are never compressed; None: the levels are among the data, as run
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
    """The page whose header stands at `at`."""
    try:
        header, start = _struct(body, at, 0)
        kind, size, length = header[1], header[2], header[3]
        if size < 0 or length < 0:
            raise ValueError
        if kind == _DATA_PAGE_2:
            data = header[8]
            levels = data[5] + data[6]
            if min(data[5], data[6]) < 0 or levels > min(size, length):
                raise ValueError
            page = _Page(kind, size, data[4], data[1], start, start + length, levels, data.get(7) is not False, False)
        else:
            data = header.get(5) or {}
            page = _Page(kind, size, data.get(2), data.get(1, 0), start, start + length, None, True, data.get(3) != _RUN_LENGTHS)
        if page.values < 0:
            raise ValueError
        return page
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        raise MalformedBody(f"the body is not Parquet: the header of the page at byte {at} is damaged") from None


def _check_lengths(page: _Page, body: bytes, codec: str, nullable: bool, most: int) -> None:
    """Arrow makes room for the lengths of a page's texts, and computes them all, before it looks at how many values the page has: so they
    are counted here. MalformedBody if there are more than `most`, or if they cannot be counted."""
    try:
        data = body[page.start : page.end]
        at = page.levels or 0
        if at == len(data):
            return
        if codec != "UNCOMPRESSED" and page.compressed:
            if codec not in _CODECS:
                raise MalformedBody(f"texts in a DELTA encoding cannot be read if they are compressed by {codec}: use another compression")
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
    """Where numbers in the encoding DELTA_BINARY_PACKED end. Raises ValueError if there are more than `most`, and IndexError."""
    block, at = _varint(data, at)
    parts, at = _varint(data, at)
    count, at = _varint(data, at)
    _, at = _varint(data, at)
    if count > most or not parts or block % (8 * parts):
        raise ValueError
    left, part = count - 1, block // parts
    while left > 0:
        _, at = _varint(data, at)
        if part == 0 or at + parts > len(data):
            raise ValueError
        widths, at = data[at : at + parts], at + parts
        for width in widths[: -(-left // part)]:
            at += part * width // 8
        left -= block
    return at


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """A struct of Thrift's compact protocol: its integers and structs by the numbers of their fields."""
    if depth > _MAX_DEPTH:
        raise ValueError
    found: dict[int, Any] = {}
    field = 0
    while (head := data[at]) != 0:
        at += 1
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            number, at = _varint(data, at)
            field = (number >> 1) ^ -(number & 1)
        value, at = _value(data, at, kind, depth)
        if field in found:
            raise ValueError
        found[field] = value
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return kind == 1, at
        case 3:
            return None, at + 1
        case 4 | 5 | 6:
            number, at = _varint(data, at)
            return (number >> 1) ^ -(number & 1), at
        case 7:
            return None, at + 8
        case 8:
            length, at = _varint(data, at)
            return None, at + length
        case 12:
            return _struct(data, at, depth + 1)
    raise ValueError  # lists and maps are not in the headers of pages


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise ValueError
