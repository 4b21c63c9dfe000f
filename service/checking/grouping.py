"""Groups by brute force: the rows of a join are sorted by group, and each group is aggregated with Python's integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.kinds import SENT_TYPES, kept
from livejoin.wire.rows import json_texts
from service.query.model import AGGREGATE, GROUP, MOST_LISTED, VARIANCES, Aggregate, Grouping, Listing
from service.tables.masks import group_mask
from service.tables.truncation import trunc_dates, trunc_timestamps
from service.tables.values.terms import evaluated

Ints = npt.NDArray[np.int64]
_DATE = pa.date32()


def grouped(groups: Grouping, rows: pa.Table) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return keys and rows of the groups of these rows, whose columns are the outputs of the join, and one more."""
    rows = rows.combine_chunks()
    keys, codes = coded(groups, rows)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1)) if len(order) else np.empty(0, np.int64)
    if not groups.columns and not len(starts):
        starts = np.zeros(1, np.int64)
    ends = np.append(starts[1:], len(order))[: len(starts)]
    columns = [key.take(pa.array(order[starts])) for key in keys]
    emitted = [_aggregate(one, rows, order, starts, ends) for one in groups.aggregates]
    found = {GROUP: columns, AGGREGATE: emitted}
    kept = pa.array(group_mask(groups.having, lambda ref: found[ref.alias][int(ref.column)], len(starts)))
    columns, emitted = [column.filter(kept) for column in columns], [column.filter(kept) for column in emitted]
    found = {GROUP: columns, AGGREGATE: emitted}
    groups_left = len((emitted or columns)[0])
    shown = [
        found[output.kind][output.position] if output.term is None
        else evaluated(output.term, lambda ref: found[ref.alias][int(ref.column)], groups_left)
        for output in groups.outputs
    ]  # fmt: skip
    identity = columns or [pa.nulls(groups_left)]
    names = [f"{GROUP}.{column.name}" for column in groups.columns] or [GROUP]
    return pa.RecordBatch.from_arrays(identity, names), pa.RecordBatch.from_arrays(shown, [output.name for output in groups.outputs])


def coded(groups: Grouping, rows: pa.Table) -> tuple[list[pa.Array], Ints]:
    """Return the columns of the groups, and int64[n], equal for rows of the same group."""
    keys = [canonical(_array(rows, column.of), column.trunc) for column in groups.columns]
    return keys, codes_of(keys, len(rows))


def _array(rows: pa.Table, position: int) -> pa.Array:
    column = rows.column(position)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def codes_of(keys: Sequence[pa.Array], rows: int) -> Ints:
    """Return int64[rows]: equal where all keys are equal, nulls included; the keys are `canonical`."""
    codes = np.zeros(rows, np.int64)
    for key in keys:
        encoded = key.dictionary_encode(null_encoding="encode")
        ordinals = np.asarray(encoded.indices, np.int64)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + ordinals, return_inverse=True)[1].astype(np.int64)
    return codes


def canonical(column: pa.Array, trunc: str | None = None) -> pa.Array:
    """Return the column with a single representation of each value."""
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(math.nan, pa.float64()), pc.add(column, 0.0))
    if trunc is None:
        return column
    days = column.type == _DATE
    ints = column.view(pa.int32()).cast(pa.int64()) if days else column.view(pa.int64())
    words = (trunc_dates if days else trunc_timestamps)(trunc, np.asarray(ints.fill_null(0), np.int64))
    found = pa.array(words, mask=np.asarray(column.is_null()))
    return found.cast(pa.int32()).view(_DATE) if days else found.view(column.type)


def _aggregate(one: Aggregate, rows: pa.Table, order: Ints, starts: Ints, ends: Ints) -> pa.Array:
    """Return the aggregate of each group, the rows order[start : end]."""
    if one.of is None:
        return pa.array(ends - starts, pa.int64())
    if one.listing is not None:
        return pa.array([_list(one, one.listing, rows, order[a:b]) for a, b in zip(starts, ends, strict=True)], pa.utf8())
    values = _array(rows, one.of).take(pa.array(order))
    null = np.asarray(values.is_null())
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(~null)))
    first, behind = before[starts], before[ends]
    known = values.filter(pa.array(~null))
    if one.function == "count":
        return pa.array(behind - first, pa.int64())
    make = _FUNCTIONS[one.function]
    items = _items(known)
    nothing = 0 if one.function == "count_distinct" else None
    if pa.types.is_decimal(known.type) and one.function in _OF_DECIMALS:
        make = partial(_OF_DECIMALS[one.function], 10**known.type.scale)
    parts = zip(first.tolist(), behind.tolist(), strict=True)
    return _of_items([make(items[a:b]) if a < b else nothing for a, b in parts], SENT_TYPES[one.type])


def _list(one: Aggregate, listing: Listing, rows: pa.Table, mine: Ints) -> str | None:
    """Return what STRING_AGG or ARRAY_AGG lists of a group's rows."""
    assert one.of is not None
    if listing.where is not None:
        mine = mine[np.asarray(_array(rows, listing.where).take(pa.array(mine)).fill_null(False), np.bool_)]
    taken = [_array(rows, position).take(pa.array(mine)) for position in (one.of, *(key.of for key in listing.order))]
    texts = taken[0]
    if one.type == "json":
        texts = texts.fill_null("null") if listing.of_json else json_texts(canonical(texts) if listing.distinct else texts)
    items, places = texts.to_pylist(), list(range(len(mine)))
    for key, column in reversed(list(zip(listing.order, taken[1:], strict=True))):
        known = iter(map(_position, _items(column.drop_null())))
        null = key.nulls_first == key.descending  # behind the others as they are sorted, before they are turned round
        ranks = [(null, (False, 0)) if column[at].as_py() is None else (not null, next(known)) for at in range(len(column))]
        places.sort(key=ranks.__getitem__, reverse=key.descending)
    listed = [items[at] for at in places if items[at] is not None]
    if listing.distinct:
        listed = list(dict.fromkeys(listed))
    text = listing.separator.join(listed)
    if one.type == "json":
        text = f"[{text}]"
    return text if listed and len(text.encode()) <= MOST_LISTED and len(listed) <= MOST_LISTED else None


def _items(known: pa.Array) -> list[Any]:
    """Return integers, floats, or texts."""
    if pa.types.is_decimal(known.type):
        return list(map(int, known.view(pa.decimal128(38, 0)).to_pylist()))
    known = kept(known)
    if known.type == _DATE:
        return list(known.view(pa.int32()).to_pylist())
    if pa.types.is_timestamp(known.type) or pa.types.is_time(known.type):
        return list(known.view(pa.int64()).to_pylist())
    return list(known.to_pylist())


def _of_items(found: list[Any], type_: pa.DataType) -> pa.Array:
    if type_ == _DATE:
        return pa.array(found, pa.int32()).view(_DATE)
    if pa.types.is_timestamp(type_) or pa.types.is_time(type_):
        return pa.array(found, pa.int64()).view(type_)
    if pa.types.is_decimal(type_):
        return pa.array(found, pa.decimal128(38, 0)).view(type_)
    return pa.array(found, type_)


def _sum(values: list[Any]) -> Any:
    if isinstance(values[0], float):
        return _exactly(values, 1)
    total = sum(values)
    return total if -(2**63) <= total < 2**63 else None


def _exactly(values: list[Any], divisor: int) -> float:
    if isinstance(values[0], float):
        odd = {value for value in values if math.isinf(value)}
        if len(odd) == 2 or any(math.isnan(value) for value in values):
            return math.nan
        if odd:
            return float(odd.pop())
    total = sum(map(Fraction, values), Fraction()) / divisor
    try:
        return total.numerator / total.denominator
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _position(value: Any) -> tuple[bool, Any]:
    """Return a sort key for values: NaN is the greatest."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0 if is_nan else value


def _one(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _variance(function: str, unit: int, values: list[Any]) -> float | None:
    """The exact variance, or its root, rounded once; null if a square is beyond the floats."""
    less = function.endswith("samp")
    if len(values) <= less:
        return None
    if isinstance(values[0], float):
        if not all(map(math.isfinite, values)):
            return math.nan
        if any(math.isinf(value * value) for value in values):
            return None
    exact = [Fraction(value) / unit for value in values]
    mean = sum(exact, Fraction()) / len(exact)
    try:
        found = float(sum(((value - mean) ** 2 for value in exact), Fraction()) / (len(exact) - less))
    except OverflowError:
        return None
    return math.sqrt(found) if function.startswith("stddev") else found


_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    **{function: partial(_variance, function, 1) for function in VARIANCES},
    "count_distinct": lambda values: len({_position(value) for value in values}),
    "sum": _sum,
    "avg": lambda values: _exactly(values, len(values)),
    "min": lambda values: _one(min(values, key=_position)),
    "max": lambda values: _one(max(values, key=_position)),
}
_OF_DECIMALS: dict[str, Callable[[int, list[Any]], Any]] = {
    **{function: partial(_variance, function) for function in VARIANCES},
    "sum": lambda unit, values: total if abs(total := sum(values)) < 10**38 else None,
    "avg": lambda unit, values: _exactly(values, len(values) * unit),
}
