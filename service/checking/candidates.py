"""Candidate pairs of rows, found by sorting and searching, without trees: what the brute force of `livejoin check` examines.

Rows pair by equal keys and one ordered condition (an overlap, a comparison, two of them), each of which means that two spans share a point:
of all conditions between an alias and the previous ones, the one with the fewest candidates. The rest is checked pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.schema import RelationDefinition
from service.checking.grouping import canonical, codes_of
from service.query.conditions import ColumnRef, IntervalRef
from service.query.model import Comparison, Number, Query
from service.tables.endpoints import endpoints, sums, sums_of_floats
from structures.core.encoding import encode_any_floats

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Ref = TypeVar("Ref", ColumnRef, IntervalRef)

_MOST = np.iinfo(np.int64).max


class Spans(NamedTuple):
    """For each row, the span that must share a point with the other side's; `known`: the rows that can match any."""

    begin: npt.NDArray[Any]
    end: npt.NDArray[Any]
    known: Mask


class Candidates:
    """Pairs of rows of two sides with equal keys and spans that share a point, without duplicates: one span begins within the other."""

    def __init__(self, codes: tuple[Ints, Ints], spans: tuple[Spans, Spans]) -> None:
        """Cost: sorting both sides."""
        distinct = np.unique(np.concatenate([ends for input in spans for ends in (input.begin[input.known], input.end[input.known])]))
        rows, begins, ends = [], [], []
        for code, input in zip(codes, spans, strict=True):
            known = np.flatnonzero(input.known & (code >= 0))
            rows.append(known)
            key = code[known] * (len(distinct) + 1)
            begins.append(key + np.searchsorted(distinct, input.begin[known]))
            ends.append(key + np.searchsorted(distinct, input.end[known]))
        self._rows = rows
        self._second = _RangePairs(begins[0], ends[0], begins[1], "left")
        self._first = _RangePairs(begins[1], ends[1], begins[0], "right")  # without equal begins, which `_second` has
        self.count = self._first.count + self._second.count

    def pairs(self, block: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield row numbers of both sides, about `block` at a time."""
        first, second = self._rows
        for mine, theirs in self._second.pairs(block):
            yield first[mine], second[theirs]
        for mine, theirs in self._first.pairs(block):
            yield first[theirs], second[mine]


class _RangePairs:
    """All (i, j) with low[i] <= begins[j] <= high[i] (side right: low[i] < begins[j])."""

    def __init__(self, low: Ints, high: Ints, begins: Ints, input: Literal["left", "right"]) -> None:
        self._order = np.argsort(begins, kind="stable")
        begins = begins[self._order]
        self._low = np.searchsorted(begins, low, input)
        self._counts = np.searchsorted(begins, high, "right") - self._low
        self.count = int(self._counts.sum())

    def pairs(self, block: int) -> Iterator[tuple[Ints, Ints]]:
        ends = np.cumsum(self._counts)
        start = 0
        while start < len(ends):
            behind = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, behind + block, "right")))
            some = self._counts[start:stop]
            mine = np.repeat(np.arange(start, stop), some)
            offsets = np.arange(len(mine)) - np.repeat(ends[start:stop] - some - behind, some)
            yield mine, self._order[offsets + np.repeat(self._low[start:stop], some)]
            start = stop


def candidates(
    query: Query, aliased: Mapping[str, RelationDefinition], bound: Mapping[str, pa.RecordBatch], alias: str, part: pa.RecordBatch
) -> Candidates:
    """Return the pairs of bound rows and rows of another alias by the condition with the fewest candidates; all pairs, if there is no
    condition."""
    count = len(next(iter(bound.values())))
    equal = [(bound[x.alias].column(x.column), part.column(y.column)) for x, y in between(query.equal, bound, alias)]
    codes = codes_of_pairs(equal, count, len(part))
    conditions = list(_conditions(query, aliased, bound, alias, part)) or [(_everything(count), _everything(len(part)))]
    return min((Candidates(codes, spans) for spans in conditions), key=lambda found: found.count)


def between(pairs: Sequence[tuple[Ref, Ref]], bound: Mapping[str, Any], alias: str) -> list[tuple[Ref, Ref]]:
    """Return the pairs that join the alias with a bound one, with the bound one first."""
    found = [pair if pair[1].alias == alias else (pair[1], pair[0]) for pair in pairs if alias in (pair[0].alias, pair[1].alias)]
    return [pair for pair in found if pair[0].alias in bound]


def ends_of(ref: IntervalRef, aliased: Mapping[str, RelationDefinition], parts: Mapping[str, pa.RecordBatch]) -> tuple[Ints, Ints]:
    return endpoints(parts[ref.alias], aliased[ref.alias].intervals[ref.interval])


def numbers_of(column: pa.Array) -> npt.NDArray[Any]:
    """Return float64 or int64, for dates, timestamps and times in their unit; 0 for null."""
    if pa.types.is_floating(column.type):
        return np.ascontiguousarray(column.fill_null(0.0).to_numpy(), np.float64)
    if pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(column.type) or pa.types.is_time(column.type):
        column = column.view(pa.int64())
    return np.asarray(column.cast(pa.int64()).fill_null(0), np.int64)


def _everything(count: int) -> Spans:
    return Spans(np.zeros(count, np.int64), np.zeros(count, np.int64), np.ones(count, bool))


def _conditions(
    query: Query, aliased: Mapping[str, RelationDefinition], bound: Mapping[str, pa.RecordBatch], alias: str, part: pa.RecordBatch
) -> Iterator[tuple[Spans, Spans]]:
    """Yield each ordered condition between the alias and a bound one: the spans of the bound rows, and of the alias's rows."""
    for x, y in between(query.overlaps, bound, alias):
        yield _all_known(ends_of(x, aliased, bound)), _all_known(ends_of(y, aliased, {alias: part}))
    parts = {**bound, alias: part}
    ordered = [
        one for one in query.comparisons if one.op != "<>" and alias in (ends := {one.left.alias, one.right.alias}) and ends <= parts.keys()
    ]  # fmt: skip
    for one in ordered:
        left, right = (parts[ref.alias].column(ref.column) for ref in (one.left, one.right))
        inputs = _beyond(one, left, right) if one in query.shifted else _compared(left, right, one.op)
        yield inputs if one.right.alias == alias else (inputs[1], inputs[0])
    for one, other in permutations(ordered, 2):
        if one.left.alias == other.right.alias != alias and other.left.alias == alias and {one, other} & {*query.shifted}:
            yield from _window(one, other, parts)


def _all_known(ends: tuple[Ints, Ints]) -> Spans:
    return Spans(*ends, np.ones(len(ends[0]), bool))


def _compared(left: pa.Array, right: pa.Array, op: str) -> tuple[Spans, Spans]:
    """Return the spans of `left op right`, op `<` or `<=`: the right value is a point, and the left one everything above it."""
    values = pa.concat_arrays([left, right])
    known = np.asarray(values.is_valid())
    if values.type in (pa.utf8(), pa.binary()):
        ranks = np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64)
    else:
        ranks = np.unique(numbers_of(values), return_inverse=True)[1].astype(np.int64)  # NaN is the greatest
    mine, theirs = ranks[: len(left)], ranks[len(left) :]
    from_ = mine + 1 if op == "<" else mine
    return Spans(from_, np.full(len(mine), len(values) + 1), known[: len(left)]), Spans(theirs, theirs, known[len(left) :])


def _beyond(one: Comparison, left: pa.Array, right: pa.Array) -> tuple[Spans, Spans]:
    """Return the spans of a comparison of sums: the right sum is a point, and the left one everything from it on."""
    at, known = _sums(right, one.right_plus), (np.asarray(left.is_valid()), np.asarray(right.is_valid()))
    return Spans(_sums(left, one.plus), np.full(len(left), _MOST), known[0]), Spans(at, at, known[1])


def _window(low: Comparison, high: Comparison, parts: Mapping[str, pa.RecordBatch]) -> Iterator[tuple[Spans, Spans]]:
    """Yield the spans that share a point where both comparisons hold: of the rows that `low` has on its left, and of the others. Nothing if
    the comparisons may hold where a span is empty: none must be, unless all of the others are points."""
    (x, y), (z, w) = ([parts[ref.alias].column(ref.column) for ref in (one.left, one.right)] for one in (low, high))
    if x.type != z.type:
        return
    shift = (high.right_plus, high.plus, low.right_plus) if pa.types.is_floating(x.type) else (-high.plus, 0, 0)
    begin, end = _sums(x, low.plus), _sums(w, shift[0])
    other_begin, other_end = _sums(z, shift[1]), _sums(y, shift[2])
    mine = np.asarray(x.is_valid()) & np.asarray(w.is_valid()) & (begin <= end)
    theirs = np.asarray(z.is_valid()) & np.asarray(y.is_valid()) & (other_begin <= other_end)
    if (mine.all() and theirs.all()) or (begin == end).all() or (other_begin == other_end).all():
        yield Spans(begin, end, mine), Spans(other_begin, other_end, theirs)


def _sums(column: pa.Array, plus: Number) -> Ints:
    """Return int64 in the order of the sums, clamped to its extremes."""
    values = numbers_of(column)
    if values.dtype == np.float64:
        return encode_any_floats(sums_of_floats(values, plus))
    return sums(values, int(plus))[0]


def codes_of_pairs(columns: list[tuple[pa.Array, pa.Array]], count0: int, count1: int) -> tuple[Ints, Ints]:
    """Return equal numbers for equal composite keys; -1 if any part is null."""
    keys = [canonical(pa.concat_arrays(pair)) for pair in columns]
    codes = codes_of(keys, count0 + count1)
    for key in keys:
        codes[np.asarray(key.is_null())] = -1
    return codes[:count0], codes[count0:]
