"""Decimals of more than 18 digits, which expressions may have: their two words, and their 16 bytes in the order of the numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import MOST_DIGITS
from service.tables.values.columns import words

_SIGN = np.int64(-(2**63))
_BYTES = 16


def is_wide(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_) and type_.precision > MOST_DIGITS)


def signed_words(decimals: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """int64[n] twice: numbers l and h so that 2**64 h + l is the decimal's."""
    low, high = words(decimals)
    return low, high + (low < 0)


def encoded(column: pa.Array) -> pa.Array:
    """Return bytes for decimals; any other column is returned as it is."""
    if not is_wide(column.type):
        return column
    low, high = words(column)
    data = np.ascontiguousarray(np.stack((high ^ _SIGN, low), axis=1).astype(">i8"))
    ends = np.arange(0, _BYTES * (len(column) + 1), _BYTES, dtype=np.int32)
    valid = pa.array(column.is_valid()).buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(pa.binary(), len(column), [valid, pa.py_buffer(ends), pa.py_buffer(data)], column.null_count)


def decoded(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the decimals of such bytes."""
    filled = column.fill_null(b"\0" * _BYTES).cast(pa.binary(_BYTES))
    big = np.frombuffer(filled.buffers()[1], ">i8", 2 * len(filled), _BYTES * filled.offset).reshape(-1, 2).astype(np.int64)
    data = np.ascontiguousarray(np.stack((big[:, 1], big[:, 0] ^ _SIGN), axis=1))
    valid = pa.array(column.is_valid()).buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(type_, len(column), [valid, pa.py_buffer(data)], column.null_count)
