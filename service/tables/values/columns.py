"""Arrow columns to arrays of numbers and back, and functions that are applied value by value.

Costs: a function in Python about 1 µs for each distinct value, or row of several arguments, besides its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import SENT_TYPES
from service.query.conditions import Term
from service.query.terms import LOCAL

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
INT64 = np.iinfo(np.int64)


def type_of(kind: str) -> pa.DataType:
    return SENT_TYPES["timestamp" if kind == LOCAL else kind]


def nulls(*arrays: pa.Array) -> Mask:
    null = np.zeros(len(arrays[0]), np.bool_)
    for array in arrays:
        if array.null_count:
            null |= np.asarray(array.is_null())
    return null


def ints(array: pa.Array) -> Ints:
    """Return int64, times, timestamps and dates as integers; 0 where null."""
    if pa.types.is_timestamp(array.type) or pa.types.is_time64(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.view(pa.int32()).cast(pa.int64())
    return np.asarray(array.fill_null(0) if array.null_count else array)


def words(decimals: pa.Array) -> tuple[Ints, Ints]:
    """Return the low and the high words of decimals in two's complement; whatever they are where null."""
    both = np.frombuffer(decimals.buffers()[1], np.int64, 2 * len(decimals), 16 * decimals.offset).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def floats(array: pa.Array) -> Floats:
    return np.asarray(array.fill_null(0.0) if array.null_count else array)


def made(values: Ints | Floats | Mask, null: Mask, kind: str) -> pa.Array:
    found = pa.array(values, mask=null if null.any() else None)
    if kind in ("timestamp", LOCAL, "time"):
        return found.view(type_of(kind))
    return found.cast(pa.int32()).view(SENT_TYPES[kind]) if kind == "date" else found


def days_made(days: Ints, null: Mask) -> pa.Array:
    """Return dates; null where they are beyond those of int32."""
    outside = (days < -(2**31)) | (days >= 2**31)
    return made(np.where(outside, 0, days), null | outside, "date")


def by_value(convert: Callable[[Any], Any], of: pa.Array, type_: pa.DataType) -> pa.Array:
    """Apply a function to each distinct value; null for null."""
    coded = of.dictionary_encode()
    found = pa.array([convert(value) for value in coded.dictionary.to_pylist()], type_)
    return found.take(coded.indices)


def by_row(convert: Callable[..., Any], type_: pa.DataType, *columns: pa.Array) -> pa.Array:
    """Apply a function to the values of each row; null if one of them is null."""
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return pa.array([None if None in row else convert(*row) for row in rows], type_)


def constant(term: Term) -> Any:
    """Return the value of a constant; None for null and other terms."""
    return term.value if term.op == "constant" else None
