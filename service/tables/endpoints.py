"""The endpoints of an interval's rows, encoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.schema import Interval
from service.query.model import Number, Span
from service.tables.arrow import null_mask
from service.tables.store import Table
from structures.core.encoding import NEG_INF, POS_INF, encode_any_floats, encode_floats

Ends = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def endpoints(rows: pa.RecordBatch, interval: Interval) -> tuple[Ends, Ends]:
    """int64[n] twice: the closed, encoded interval of each row; a null end is unbounded."""
    start, end = rows.column(interval.start_column), rows.column(interval.end_column)
    return _encode(interval, start.type, (_values(start), _values(end)), (null_mask(start), null_mask(end)))


def stored_endpoints(table: Table, span: Span, slots: npt.NDArray[np.int32]) -> tuple[Ends, Ends]:
    """The same for a span of the rows at these slots; the left end of a row is above its right end if nothing meets it."""
    names = span.columns
    values, nulls = table.numbers(names, slots)
    return _of_span(span, table.type_of(names[0]), values, nulls)


def _of_span(span: Span, type_: pa.DataType, values: Ends, nulls: Sequence[npt.NDArray[np.bool_] | None]) -> tuple[Ends, Ends]:
    """`values` (int64[k, n]), `nulls`: of the span's columns."""
    if span.declared:
        is_point = len(values) == 1
        ends = (values[0], values[0].copy()) if is_point else values
        left, right = _encode(span, type_, ends, (nulls[0], nulls[-1]))
        if is_point and nulls[0] is not None:
            left[nulls[0]], right[nulls[0]] = POS_INF, NEG_INF
        return left, right
    left, right = np.full(len(values[0]), NEG_INF), np.full(len(values[0]), POS_INF)
    at = dict(zip(span.columns, values, strict=True))
    nothing = [*nulls]
    if span.start is not None:
        left, _, above = _moved(at[span.start], type_, span.start_plus, int(span.start_open))
        nothing.append(above)
    if span.end is not None:
        right, below, _ = _moved(at[span.end], type_, span.end_plus, -int(span.end_open))
        nothing.append(below)
    for some in nothing:
        if some is not None:
            left[some], right[some] = POS_INF, NEG_INF
    return left, right


def _moved(values: Ends, type_: pa.DataType, plus: Number, steps: int) -> tuple[Ends, Mask | None, Mask | None]:
    """Encoded `values + plus`, and so many steps further, clamped to the extremes; and which are below and above these. Floats are added as
    floats are, so that NaN and infinities stay."""
    if type_.id == _FLOAT64:
        return encode_any_floats(sums_of_floats(values.view(np.float64), plus)) + steps, None, None
    assert isinstance(plus, int)
    return sums(values, plus + steps)


def sums(values: Ends, plus: int) -> tuple[Ends, Mask | None, Mask | None]:
    """`values + plus`, clamped to the extremes of int64, and which are below and above these; None: none."""
    if plus == 0:
        return values.copy(), None, None
    moved = (values.view(np.uint64) + np.uint64(plus % 2**64)).view(np.int64)
    beyond = values > POS_INF - plus if plus > 0 else values < NEG_INF - plus
    moved[beyond] = POS_INF if plus > 0 else NEG_INF
    return (moved, None, beyond) if plus > 0 else (moved, beyond, None)


def sums_of_floats(values: npt.NDArray[np.float64], plus: Number) -> npt.NDArray[np.float64]:
    with np.errstate(over="ignore", invalid="ignore"):
        return values + plus


def _encode(
    interval: Interval | Span, type_: pa.DataType, values: Sequence[Ends] | Ends, nulls: Sequence[npt.NDArray[np.bool_] | None]
) -> tuple[Ends, Ends]:  # fmt: skip
    """`values`: starts and ends, a float's bits; they are overwritten."""
    left, right = values
    if type_.id == _FLOAT64:
        left, right = encode_floats(left.view(np.float64), 0), encode_floats(right.view(np.float64), 0)
    if interval.start_open:
        left += 1
    if interval.end_open:
        right -= 1
    if nulls[0] is not None:
        left[nulls[0]] = NEG_INF
    if nulls[1] is not None:
        right[nulls[1]] = POS_INF
    return left, right


def _values(column: pa.Array) -> Ends:
    """Return a copy, a float as its bits."""
    values = numbers(column)
    return np.array(values.view(np.int64) if column.type.id == _FLOAT64 else values, np.int64)


def numbers(column: pa.Array) -> npt.NDArray[np.generic]:
    """Return the column's values without a copy, unspecified where null. Types other than TEXT_OR_BOOL."""
    dtype = _DTYPES.get(column.type.id, _INT64)
    length = len(column)
    data = column.buffers()[1]
    if data is None or length == 0:
        return np.zeros(length, dtype)
    return np.frombuffer(data, dtype, length, column.offset * dtype.itemsize)


def equal_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> Mask:
    """bool[n]: whether the rows look alike in every column; null equals null, NaN the same NaN, 0.0 not -0.0."""
    equal = np.ones(left.num_rows, np.bool_)
    for x, y in zip(left.columns, right.columns, strict=True):
        if x.type in TEXT_OR_BOOL or pa.types.is_decimal(x.type):
            same = np.asarray(pc.fill_null(pc.equal(x, y), False))
        else:
            same = _bits(x) == _bits(y)
        if x.null_count or y.null_count:
            no_x, no_y = np.asarray(x.is_null()), np.asarray(y.is_null())
            same = (same & ~(no_x | no_y)) | (no_x & no_y)
        equal &= same
        if not equal.any():
            break
    return equal


def _bits(column: pa.Array) -> npt.NDArray[np.generic]:
    values = numbers(column)
    return values.view(np.int64) if values.dtype == np.float64 else values


TEXT_OR_BOOL = (pa.utf8(), pa.binary(), pa.bool_())  # columns that NumPy cannot read

_INT64 = np.dtype(np.int64)
_FLOAT64 = pa.float64().id
_DTYPES: dict[int, np.dtype[Any]] = {pa.float64().id: np.dtype(np.float64), pa.date32().id: np.dtype(np.int32)}
