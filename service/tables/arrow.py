"""Convert Arrow arrays of the canonical types to NumPy and back, without copying and without a call per row; also a few rows of Python
values.

| type | NumPy form |
|---|---|
| int64, float64, timestamp, time64 | int64 (a float's bits) |
| date32 | int32 |
| bool | uint8 |
| utf8, binary | int32 offsets and read-only bytes |

Arrays may be sliced. The values under nulls are unspecified.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from structures.core.encoding import encode_any_floats
from structures.rows.key_table import FLOAT, PLAIN, TEXT, RowSet
from structures.rows.rows import RowStore, join_texts

Array = np.ndarray[Any, Any]
Readers = Sequence[Callable[[pa.Array], Array] | None]

_WORD, _REAL = struct.Struct("<q"), struct.Struct("<d")
_WHOLE = {int}
_FIRST_START = np.zeros(1, np.int64)
_NO_BYTES = np.empty(0, np.uint8)
_NO_BYTES.flags.writeable = False


def bits(buffer: pa.Buffer, offset: int, length: int) -> Array:
    """uint8[length], 0 or 1: the bits from `offset` on."""
    first, last = offset >> 3, (offset + length + 7) >> 3
    part = np.frombuffer(buffer, np.uint8, last - first, first)
    return np.unpackbits(part, bitorder="little")[offset & 7 :][:length]


def _wide(array: pa.Array) -> Array:
    return np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)


def _days(array: pa.Array) -> Array:
    return np.frombuffer(array.buffers()[1], np.int32, len(array), array.offset * 4)


def _truth(array: pa.Array) -> Array:
    return bits(array.buffers()[1], array.offset, len(array))


_FIXED: dict[int, Callable[[pa.Array], Array]] = {
    pa.int64().id: _wide,
    pa.float64().id: _wide,
    pa.timestamp("us").id: _wide,
    pa.time64("us").id: _wide,
    pa.date32().id: _days,
    pa.bool_().id: _truth,
}
_BOOL = pa.bool_().id
_DATE = pa.date32().id
_FLOAT64 = pa.float64().id
_TEXTS = frozenset({pa.utf8().id, pa.binary().id})


def reader(type: pa.DataType) -> Callable[[pa.Array], Array] | None:
    """Return the function that reads a column of this type, with at least one value; None for text."""
    return None if is_text(type) else _FIXED[type.id]


def numbers_in_order(column: pa.Array) -> Array:
    """int64[n]: words that preserve order and equality; unspecified where the column, which is no text, is null."""
    read = reader(column.type)
    assert read is not None
    words: Array = read(column).astype(np.int64) if len(column) else np.empty(0, np.int64)
    return encode_any_floats(words.view(np.float64)) if column.type.id == _FLOAT64 else words


def is_text(type: pa.DataType) -> bool:
    """Whether its values are stored as text; true for bytes, too."""
    return type.id in _TEXTS


def null_mask(array: pa.Array) -> Array | None:
    """bool[n], true at nulls, or None if there are none."""
    if not array.null_count:
        return None
    mask: Array = bits(array.buffers()[0], array.offset, len(array)) == 0
    return mask


def _text(array: pa.Array) -> tuple[Array, Array]:
    """int32[n + 1] offsets into the bytes, and the bytes."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    if data is None or not data.size:
        return ends, _NO_BYTES
    content = np.frombuffer(data, np.uint8)
    content.flags.writeable = False  # kernels are compiled for read-only bytes
    return ends, content


def kind(type: pa.DataType) -> int:
    """Return the kind of a cell of this type (`structures.rows.key_table`)."""
    return TEXT if is_text(type) else FLOAT if type.id == _FLOAT64 else PLAIN


def to_row_set(columns: Sequence[pa.Array], readers: Readers, kinds: Array, key: Array, width: int) -> RowSet:
    """Convert columns of equal length, with at least one row, to rows of cells; `width` includes room for null bits, if any.

    `readers`: one per column. Raises ValueError for a null without room for its bit. O(cells + bytes of text if there are several texts).
    """
    length = len(columns[0])
    cells = np.zeros((length, width), np.int64)
    texts = []
    for i, (column, read) in enumerate(zip(columns, readers, strict=True)):
        if read is None:
            ends, data = _text(column)
            np.subtract(ends[1:], ends[:-1], out=cells[:, i])
            texts.append((i, ends, data))
        else:
            cells[:, i] = read(column)
        if column.null_count:
            if width == len(columns):
                raise ValueError("a null in a column that has none")
            mask = null_mask(column)
            cells[mask, i] = 0
            cells[:, len(columns) + (i >> 5)] |= mask.astype(np.int64) << (i & 31)  # type: ignore[union-attr]
    if not texts:
        return RowSet(kinds, key, cells, _FIRST_START, _NO_BYTES)
    if len(texts) == 1:
        _, ends, data = texts[0]
        return RowSet(kinds, key, cells, ends[:-1].astype(np.int64), data)
    return RowSet(kinds, key, cells, *_joined(texts, cells))


def few_to_row_set(rows: Sequence[Sequence[Any]], kinds: Array, key: Array, width: int) -> RowSet:
    """Convert rows of physical Python values likewise. Raises as `to_row_set`. O(cells), in Python."""
    columns = len(kinds)
    if width == columns and len(rows) == 1 and set(map(type, rows[0])) == _WHOLE:
        return RowSet(kinds, key, np.array(rows, np.int64), _FIRST_START, _NO_BYTES)
    cells, starts, texts = [], [], bytearray()
    for row in rows:
        starts.append(len(texts))
        words = list(row)
        words += [0] * (width - columns)
        for i, value in enumerate(row):
            if isinstance(value, str | bytes):
                text = value.encode() if isinstance(value, str) else value
                words[i] = len(text)
                texts += text
            elif type(value) is float:
                words[i] = _WORD.unpack(_REAL.pack(value))[0]
            elif value is None:
                if width == columns:
                    raise ValueError("a null in a column that has none")
                words[i] = 0
                words[columns + (i >> 5)] |= 1 << (i & 31)
        cells.append(words)
    begin = _FIRST_START if len(rows) == 1 else np.array(starts, np.int64)
    return RowSet(kinds, key, np.array(cells, np.int64), begin, np.frombuffer(bytes(texts), np.uint8))


def concatenated_sets(parts: Sequence[RowSet]) -> RowSet:
    """Concatenate row sets of the same kinds, at least one, each with at least one row. Their texts may exceed 2 GiB."""
    kinds, key = parts[0].kinds, parts[0].key
    if len(parts) == 1:
        return parts[0]
    cells = np.concatenate([part.cells for part in parts])
    if not (kinds == TEXT).any():
        return RowSet(kinds, key, cells, _FIRST_START, _NO_BYTES)
    before = np.cumsum([0, *(len(part.heap) for part in parts)]).tolist()
    positions = np.concatenate([part.positions + first for part, first in zip(parts, before, strict=False)])
    heap = np.concatenate([part.heap for part in parts])
    heap.flags.writeable = False
    return RowSet(kinds, key, cells, positions, heap)


def _joined(texts: list[tuple[int, Array, Array]], cells: Array) -> tuple[Array, Array]:
    """Return starts and bytes for rows with several texts, the texts of each row contiguous."""
    totals = cells[:, [i for i, _, _ in texts]].sum(axis=1)
    after = np.cumsum(totals)
    starts = after - totals
    heap = np.empty(after[-1], np.uint8)
    ends = starts.copy()
    for i, offsets, data in texts:
        join_texts(offsets[:-1].astype(np.int64), data, np.ascontiguousarray(cells[:, i]), ends, heap)
    heap.flags.writeable = False
    return starts, heap


def from_cells(cells: Array, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows of cells (int64[n, width]) without texts."""
    arrays, columns = [], len(schema)
    for i, field in enumerate(schema):
        null = (cells[:, columns + (i >> 5)] >> (i & 31)) & 1 if cells.shape[1] > columns else np.zeros(len(cells), np.int64)
        nulls = int(null.sum())
        valid = pa.py_buffer(np.packbits(null == 0, bitorder="little")) if nulls else None
        values = np.ascontiguousarray(cells[:, i])
        arrays.append(pa.Array.from_buffers(field.type, len(cells), [valid, pa.py_buffer(data_of(field.type, values))], nulls))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def data_of(type: pa.DataType, values: Array) -> Array:
    """Convert words to Arrow data of the type."""
    if type.id == _DATE:
        return values.astype(np.int32)
    return np.packbits(values.astype(np.uint8), bitorder="little") if type.id == _BOOL else values


def from_rows(rows: RowStore, schema: pa.Schema, columns: Array, slots: Array) -> pa.RecordBatch:
    """Return the rows at these slots; `schema` has a field for each of `columns` (int64[k])."""
    cells = rows.gather(columns, slots)
    arrays = []
    for field, column, values in zip(schema, columns.tolist(), cells, strict=True):
        valid, nulls = rows.gather_valid(column, slots) if field.nullable else (None, 0)
        buffers = [pa.py_buffer(valid) if nulls else None]
        if is_text(field.type):
            buffers += [pa.py_buffer(part) for part in rows.gather_text(column, slots, values)]
        else:
            buffers.append(pa.py_buffer(data_of(field.type, values)))
        arrays.append(pa.Array.from_buffers(field.type, len(slots), buffers, nulls))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def writable(values: Array, dtype: type) -> Array:
    """Return the array as kernels need it: contiguous and writable."""
    if values.dtype != dtype or not values.flags.forc:
        return np.array(values, dtype)
    return values if values.flags.writeable else values.copy()


def any_null(masks: Sequence[Array | None]) -> Array | None:
    """bool[n]: whether any column of a row is null; None: none is."""
    nulls: Array | None = None
    for mask in masks:
        if mask is not None:
            nulls = mask if nulls is None else nulls | mask
    return nulls


def padded(codes: Array, nulls: Array | None) -> Array:
    """Extend the codes of rows without nulls to all rows, with -1 for the others."""
    if nulls is None:
        return codes
    found = np.full(len(nulls), -1, np.int32)
    found[~nulls] = codes
    return found
