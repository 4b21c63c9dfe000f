"""Columns of numbers as arrays, Arrow columns of other values, and functions that are applied value by value.

Costs: a function in Python about 1 µs for each distinct value, or row of several arguments, besides its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import SENT_TYPES, sent
from service.query.conditions import Term
from service.query.terms import LOCAL
from service.tables.arrow import any_null

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
INT64 = np.iinfo(np.int64)
_DTYPES: dict[str, Any] = {
    **dict.fromkeys(("int64", "timestamp", LOCAL, "time", "date"), np.int64), "float64": np.float64, "bool": np.bool_,
}  # fmt: skip


class Values(NamedTuple):
    """Integers, times, dates (as integers), floats or bools, as arrays: on a few rows, Arrow's calls cost more than the work. null: where
    there is no value (None: nowhere); what stands there is unspecified."""

    values: Ints | Floats | Mask
    null: Mask | None


Column: TypeAlias = "pa.Array | Values"


def type_of(kind: str) -> pa.DataType:
    return SENT_TYPES["timestamp" if kind == LOCAL else kind]


def has_values(kind: str) -> bool:
    """Whether columns of this kind are `Values`; all others are Arrow arrays."""
    return kind in _DTYPES


def values_of(column: Column, kind: str) -> Column:
    """Return a column of Arrow as rules take it."""
    if kind not in _DTYPES or isinstance(column, Values):
        return column
    null = np.asarray(column.is_null()) if column.null_count else None
    if kind == "date":
        column = column.view(pa.int32())
    elif _DTYPES[kind] == np.int64:
        column = column.view(pa.int64())
    values = np.asarray(column.fill_null(False if kind == "bool" else 0) if null is not None else column)
    return Values(values.astype(np.int64) if kind == "date" else values, null)


def of_words(words: Ints, null: Mask | None, kind: str) -> Column:
    """Return a column of the words in which a table stores numbers of this kind."""
    dtype = _DTYPES.get(kind)
    if dtype is np.int64:
        return Values(words, null)
    if dtype is None:
        return sent(pa.array(words, mask=null), type_of(kind))
    return Values(words.view(dtype) if dtype is np.float64 else words.astype(dtype), null)


def to_words(column: Values) -> tuple[Ints, Mask | None]:
    """Return the words in which a table stores the values."""
    values: Any = column.values
    return values.view(np.int64) if values.dtype == np.float64 else np.asarray(values, np.int64), column.null


def arrow(column: Column, kind: str) -> pa.Array:
    """Return a column as it is sent."""
    if not isinstance(column, Values):
        return column
    values = column.values.astype(np.int32) if kind == "date" else column.values
    found = pa.array(values, mask=column.null)
    return found if found.type == type_of(kind) else found.view(type_of(kind))


def repeated(value: Any, kind: str, count: int) -> Values:
    """Return `count` times a constant, or null."""
    return Values(np.full(count, 0 if value is None else value, _DTYPES[kind]), np.ones(count, np.bool_) if value is None else None)


def nulls(*columns: Values) -> Mask:
    """Return where one of the columns is null."""
    null = np.zeros(len(columns[0].values), np.bool_)
    for column in columns:
        if column.null is not None:
            null |= column.null
    return null


def ints(column: Values) -> Ints:
    """Return integers, times, timestamps and dates as integers; 0 where null."""
    found: Any = column.values if column.null is None else np.where(column.null, 0, column.values)
    return cast(Ints, found)


def words(decimals: pa.Array) -> tuple[Ints, Ints]:
    """Return the low and the high words of decimals in two's complement; whatever they are where null."""
    both = np.frombuffer(decimals.buffers()[1], np.int64, 2 * len(decimals), 16 * decimals.offset).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def floats(column: Values) -> Floats:
    found: Any = column.values if column.null is None else np.where(column.null, 0.0, column.values)
    return cast(Floats, found)


def made(values: Ints | Floats | Mask, *null: Mask | None) -> Values:
    """`null`: parts of where they are null."""
    found = any_null(null)
    return Values(values, None if found is None or not np.count_nonzero(found) else found)


def days_made(days: Ints, null: Mask) -> Values:
    """Return dates; null where they are beyond those of int32."""
    outside = (days < -(2**31)) | (days >= 2**31)
    return made(np.where(outside, 0, days), null | outside)


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
