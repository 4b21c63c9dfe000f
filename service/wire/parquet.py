"""Changes as a Parquet file. What its pages become is added up from their headers before a page is decoded: the sizes in the footer are
only what the writer says.

Source: parquet-format's parquet.thrift and Encodings.md; Thrift's compact protocol.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from service.wire.arrow import check_readable, judge_record_batch, one_batch
from service.wire.batch import Batch
from service.wire.errors import MalformedBody
from service.wire.json import Definitions
from service.wire.judge import assemble
from service.wire.room import UNBOUNDED, Room
from service.wire.schema import OP_COLUMN, RowRules
from service.wire.table import is_text, refuse_twice

_FOOTER = 256  # bytes of objects for each byte of a footer, at most: of a column chunk with three bytes
_WIDTH = 12  # bytes of a value of fixed width, or of an index and its entry
_MAX_PAGES = 500_000
_MAX_DEPTH = 16  # of structs in a page's header
_PIECE = 64 << 20  # bytes, of rows whose texts share their beginnings
_DICTIONARY_PAGE = 2
_DELTA_BYTE_ARRAY = 7


def decode_parquet(body: bytes, relation: str, definitions: Definitions, room: Room = UNBOUNDED) -> Batch:
    """One relation's changes as a Parquet file."""
    rules = definitions(relation).rules
    try:
        batch = _read(body, rules, room)
    except UnicodeDecodeError:
        raise MalformedBody("the body is not Parquet: a column's name is not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        raise MalformedBody(f"the body is not Parquet: {error}") from None
    return assemble(batch.num_rows, 0, [judge_record_batch(rules, relation, batch, 0, room)])


def _read(body: bytes, rules: RowRules, room: Room) -> pa.RecordBatch:
    """The columns of the relation, and `_op`; other columns have only nulls: their names suffice to refuse the rows."""
    if len(body) >= 12:
        room.take(_FOOTER * min(len(body), int.from_bytes(body[-8:-4], "little")))
    file = pq.ParquetFile(pa.BufferReader(body), pre_buffer=False)
    rows = sum([file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)])
    room.check_rows(max(rows, file.metadata.num_rows))
    schema = file.schema_arrow
    refuse_twice(schema.names)
    wanted = [name for name in schema.names if name in rules.name_set or name == OP_COLUMN]
    for name in wanted:
        if name != OP_COLUMN:
            check_readable(rules, rules.ordinal[name], schema.field(name).type)
        elif not (pa.types.is_null(schema.field(name).type) or is_text(schema.field(name).type)):
            raise MalformedBody(f"the column {OP_COLUMN!r} is {schema.field(name).type}, not text")
    pages = _pages_of(body, file.metadata, set(wanted))
    room.take(pages.size + _WIDTH * rows * len(wanted))
    if pages.share:
        pieces = []
        for piece in file.iter_batches(max(1, _PIECE // max(pages.largest, 1)), columns=wanted, use_threads=False):
            room.take(piece.nbytes)
            pieces.append(piece)
        table = pa.Table.from_batches(pieces, None if pieces else pa.schema([schema.field(name) for name in wanted]))
    else:
        texts = [name for name in pages.dictionaries if is_text(schema.field(name).type)]
        source = pa.BufferReader(body)
        table = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=texts, pre_buffer=False).read(columns=wanted)
    table.validate(full=True)
    if not wanted:
        return pa.RecordBatch.from_arrays([pa.nulls(rows) for _ in schema.names], names=schema.names)
    batch = one_batch(table)
    for name in schema.names:
        if name not in wanted:
            batch = batch.append_column(name, pa.nulls(batch.num_rows))
    return batch


class _Pages(NamedTuple):
    """What the pages of some columns become: bytes in all, and of the largest page; the columns that have dictionaries; whether values
    share their beginnings, so that a page may become many times as large as its bytes."""

    size: int
    largest: int
    dictionaries: list[str]
    share: bool


def _pages_of(body: bytes, metadata: pq.FileMetaData, names: set[str]) -> _Pages:
    size = largest = count = 0
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
            while at < end:
                page, at = _page(body, at)
                size, largest, count = size + page.size, max(largest, page.size), count + 1
                share |= page.encoding == _DELTA_BYTE_ARRAY
                if page.kind == _DICTIONARY_PAGE:
                    dictionaries[name] = None
                if count > _MAX_PAGES:
                    raise MalformedBody(f"the Parquet file has more than {_MAX_PAGES} pages: write larger ones")
    return _Pages(size, largest, list(dictionaries), share)


class _Page(NamedTuple):
    kind: int
    size: int
    encoding: int | None


def _page(body: bytes, at: int) -> tuple[_Page, int]:
    """The page whose header stands at `at`, and where the next one begins."""
    try:
        header, at = _struct(body, at, 0)
        kind, size, compressed = header[1], header[2], header[3]
        if size < 0 or compressed < 0:
            raise ValueError
        data = header.get(5) or header.get(8) or {}
        encoding = data.get(2 if 5 in header else 4)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        raise MalformedBody(f"the body is not Parquet: the header of the page at byte {at} is damaged") from None
    return _Page(kind, size, encoding), at + compressed


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
        found[field] = value
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return None, at
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
