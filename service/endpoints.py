"""The endpoints of an interval's rows, encoded; and of a window, from its text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.arrow import null_mask
from service.errors import Problem
from service.literals import BadLiteral, from_text
from service.store import Table
from service.wire.schema import Interval
from structures.encoding import NEG_INF, POS_INF, encode_floats, encode_ints

Ends = npt.NDArray[np.int64]


def endpoints(rows: pa.RecordBatch, interval: Interval) -> tuple[Ends, Ends]:
    """int64[n] twice: the closed, encoded interval of each row; a null end is unbounded."""
    start, end = rows.column(interval.start_column), rows.column(interval.end_column)
    left = _encode(numbers(start), int(interval.start_open), null_mask(start), NEG_INF)
    return left, _encode(numbers(end), -int(interval.end_open), null_mask(end), POS_INF)


def stored_endpoints(table: Table, interval: Interval, slots: npt.NDArray[np.int32]) -> tuple[Ends, Ends]:
    """The same of the rows at these slots."""
    names = interval.start_column, interval.end_column
    (starts, ends), (no_start, no_end) = table.numbers(names, slots)
    if table.schema.field(names[0]).type.id == _FLOAT64:
        starts, ends = starts.view(np.float64), ends.view(np.float64)
    left = _encode(starts, int(interval.start_open), no_start, NEG_INF)
    return left, _encode(ends, -int(interval.end_open), no_end, POS_INF)


def parse_window(window: tuple[str | None, str | None], type_: str) -> tuple[int, int]:
    """The encoded window of (lo, hi), texts in the endpoints' type; None is unbounded. Problem `bad-parameter`."""
    low, high = window
    left, right = _end(low, type_, NEG_INF), _end(high, type_, POS_INF)
    if left > right:
        raise Problem("bad-parameter", f"overlaps: the window is empty: {low} is after {high}")
    return left, right


def _end(text: str | None, type_: str, missing: int) -> int:
    if text is None:
        return missing
    try:
        value = from_text(type_, text)
    except BadLiteral as error:
        raise Problem("bad-parameter", f"overlaps: {error}") from None
    return int(encode_floats(np.array([value]), 0)[0]) if type_ == "float64" else int(value)


def _encode(values: npt.NDArray[Any], shift: int, nulls: npt.NDArray[np.bool_] | None, missing: int) -> Ends:
    ends = encode_floats(values, shift) if values.dtype == np.float64 else encode_ints(values, shift)
    if nulls is not None:
        ends[nulls] = missing
    return ends


def numbers(column: pa.Array) -> npt.NDArray[np.generic]:
    """The column's values without a copy, anything where it is null. Fixed-width types but bool."""
    dtype = _DTYPES.get(column.type.id, _INT64)
    length = len(column)
    data = column.buffers()[1]
    if data is None or length == 0:
        return np.zeros(length, dtype)
    return np.frombuffer(data, dtype, length, column.offset * dtype.itemsize)


_INT64 = np.dtype(np.int64)
_FLOAT64 = pa.float64().id
_DTYPES: dict[int, np.dtype[Any]] = {pa.float64().id: np.dtype(np.float64), pa.date32().id: np.dtype(np.int32)}
