"""A view's rows by brute force, from whole tables; `livejoin check` compares the structures with them.

Alias after alias, by sort and search, no tree: per key, an interval's partners are those that begin within it, and those within
which it begins; the rest is checked pair by pair. Rows are compared as a multiset by count and checksum, over identity and values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.query.model import ColumnRef, IntervalRef, Query
from service.tables.endpoints import endpoints
from service.tables.masks import compare, select_mask
from service.tables.projection import Projection, one_zero, values_schema
from service.wire.schema import RelationDefinition
from structures.core.encoding import NEG_INF, POS_INF

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
BLOCK = 1 << 18  # pairs at a time, about
Ref = TypeVar("Ref", ColumnRef, IntervalRef)

_NULL = np.uint64(0x9E3779B97F4A7C15)


class Sum(NamedTuple):
    """Rows, and the sum of their hashes modulo 2^64."""

    rows: int
    checksum: int


def total(batches: Iterable[pa.RecordBatch]) -> Sum:
    """The sum of identities and values, in whatever order they come."""
    rows, checksum = 0, 0
    for batch in batches:
        rows += batch.num_rows
        checksum += int(hashes(batch).sum(dtype=np.uint64))
    return Sum(rows, checksum % 2**64)


def recompute(
    query: Query, definitions: Mapping[str, RelationDefinition], tables: Mapping[str, pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The view's rows over these tables (by relation): columns `alias.key…` and the outputs, in batches."""
    if query.never:
        return
    if query.branches:
        yield from _distinct(query, definitions, tables)
        return
    whole, parts = query.whole, {}
    for alias, relation in whole.aliases:
        mask = select_mask([f for f in whole.filters if f.column.alias == alias], tables[relation])
        parts[alias] = tables[relation].filter(pa.array(mask))
    aliased = {alias: definitions[relation] for alias, relation in whole.aliases}
    order = [alias for alias, _ in query.aliases]
    for rows in _joined(query, aliased, order, {order[0]: parts[order[0]]}, parts):
        for group in query.absent:
            rows = _without(whole, [alias for alias, _ in group.aliases], aliased, rows, parts)
        yield identified(query, definitions, rows)


def _distinct(
    query: Query, definitions: Mapping[str, RelationDefinition], tables: Mapping[str, pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Of a view with UNION or EXCEPT, by Arrow's grouping, in which nulls are equal."""
    fields = [*values_schema(query, definitions), pa.field("", pa.int8())]  # the last one tells on which side a row is
    empty = pa.schema([(field.name, field.type) for field in fields]).empty_table()
    names = empty.schema.names[:-1]

    def selected(one: Query, side: int) -> pa.Table:
        keys = sum(len(definitions[relation].key) for _, relation in one.aliases)
        parts = [empty]
        for rows in recompute(one, definitions, tables):
            columns = [*map(one_zero, rows.columns[keys:]), pa.array(np.full(len(rows), side, np.int8))]
            parts.append(pa.table(columns, schema=empty.schema))
        return pa.concat_tables(parts)

    found = []
    for number, branch in enumerate(query.branches):
        sides = [selected(query.of_right_side(at), 1) for at in branch.absent if query.absent[at].columns]
        grouped = pa.concat_tables([selected(query.of_branch(number), 0), *sides]).group_by(names).aggregate([("", "max")])
        found.append(grouped.filter(pc.equal(grouped.column("_max"), 0)).select(names))
    for rows in pa.concat_tables(found).group_by(names).aggregate([]).to_batches(BLOCK):
        yield beside(rows, rows)


Parts = Mapping[str, pa.RecordBatch]
"""By alias, equally long."""


def _joined(query: Query, aliased: Mapping[str, RelationDefinition], order: list[str], bound: Parts, parts: Parts) -> Iterator[Parts]:
    """Rows that begin with the bound parts: the next alias is paired with them, and what does not fit is dropped."""
    if all(alias in bound for alias in order):
        yield bound
        return
    alias = next(alias for alias in order if alias not in bound)
    for mine, theirs in _pairs(query, aliased, bound, alias, parts[alias]):
        taken = {name: part.take(pa.array(mine)) for name, part in bound.items()} | {alias: parts[alias].take(pa.array(theirs))}
        kept = pa.array(_fits(query, aliased, taken, alias))
        taken = {name: part.filter(kept) for name, part in taken.items()}
        if len(taken[alias]):
            yield from _joined(query, aliased, order, taken, parts)


def _without(query: Query, group: list[str], aliased: Mapping[str, RelationDefinition], rows: Parts, parts: Parts) -> Parts:
    """These rows but for those that rows of all these aliases go with."""
    first, *_ = rows.values()
    numbered = pa.RecordBatch.from_arrays([pa.array(np.arange(len(first)))], ["number"])
    kept = np.ones(len(first), bool)
    for found in _joined(query, aliased, group, {**rows, "": numbered}, parts):
        kept[np.asarray(found[""].column(0))] = False
    return {alias: part.filter(pa.array(kept)) for alias, part in rows.items()}


def identified(query: Query, definitions: Mapping[str, RelationDefinition], parts: Mapping[str, pa.RecordBatch]) -> pa.RecordBatch:
    """The keys of equally long parts, and the view's row over them."""
    keys = {f"{alias}.{name}": parts[alias].column(name) for alias, relation in query.aliases for name in definitions[relation].key}
    rows = Projection(query, definitions).rows(parts)
    return beside(pa.RecordBatch.from_arrays(list(keys.values()), list(keys)), rows)


def beside(keys: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Keys and rows in one; names do not matter from here on."""
    columns = [*keys.columns, *rows.columns]
    return pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))])


def _pairs(
    query: Query, aliased: Mapping[str, RelationDefinition], bound: Mapping[str, pa.RecordBatch], alias: str, part: pa.RecordBatch
) -> Iterator[tuple[Ints, Ints]]:
    """Indices in the bound parts and in the alias's: equal keys, and the first overlap with one of them (all, where there is neither)."""
    first = next(iter(bound.values()))
    equal = [(bound[x.alias].column(x.column), part.column(y.column)) for x, y in _between(query.equal, bound, alias)]
    codes0, codes1 = _codes(equal, len(first), len(part))
    overlaps = _between(query.overlaps, bound, alias)
    if overlaps:
        (left0, right0), (left1, right1) = _ends(overlaps[0][0], aliased, bound), _ends(overlaps[0][1], aliased, {alias: part})
    else:
        left0, right0 = np.full(len(first), NEG_INF), np.full(len(first), POS_INF)
        left1, right1 = np.full(len(part), NEG_INF), np.full(len(part), POS_INF)
    known0, known1 = np.flatnonzero(codes0 >= 0), np.flatnonzero(codes1 >= 0)
    at = _ranks(left0, right0, left1, right1)
    begin0, end0 = at(codes0[known0], left0[known0]), at(codes0[known0], right0[known0])
    begin1, end1 = at(codes1[known1], left1[known1]), at(codes1[known1], right1[known1])
    for mine, theirs in _beginning_within(begin0, end0, begin1, "left"):
        yield known0[mine], known1[theirs]
    for mine, theirs in _beginning_within(begin1, end1, begin0, "right"):  # not those that begin together, which have been reported
        yield known0[theirs], known1[mine]


def _between(pairs: Sequence[tuple[Ref, Ref]], bound: Mapping[str, pa.RecordBatch], alias: str) -> list[tuple[Ref, Ref]]:
    """Those of these pairs that join the alias with a bound one, that one first."""
    found = [pair if pair[1].alias == alias else (pair[1], pair[0]) for pair in pairs if alias in (pair[0].alias, pair[1].alias)]
    return [pair for pair in found if pair[0].alias in bound]


def _beginning_within(low: Ints, high: Ints, begins: Ints, side: Literal["left", "right"]) -> Iterator[tuple[Ints, Ints]]:
    """All (i, j) with low[i] <= begins[j] <= high[i] (side right: low[i] < begins[j])."""
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    for mine, theirs in _expand(np.searchsorted(begins, low, side), np.searchsorted(begins, high, "right")):
        yield mine, order[theirs]


def _expand(low: Ints, high: Ints) -> Iterator[tuple[Ints, Ints]]:
    """All (i, j) with low[i] <= j < high[i], about BLOCK at a time."""
    counts = high - low
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        behind = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, behind + BLOCK, "right")))
        some = counts[start:stop]
        mine = np.repeat(np.arange(start, stop), some)
        yield mine, np.arange(len(mine)) - np.repeat(ends[start:stop] - some - behind, some) + np.repeat(low[start:stop], some)
        start = stop


def _ranks(*values: Ints) -> Callable[[Ints, Ints], Ints]:
    """(codes, endpoints) -> int64 in the order of both."""
    distinct = np.unique(np.concatenate(values))
    return lambda codes, ends: codes * (len(distinct) + 1) + np.searchsorted(distinct, ends)


def _codes(columns: list[tuple[pa.Array, pa.Array]], count0: int, count1: int) -> tuple[Ints, Ints]:
    """Equal composite keys have equal numbers; a null anywhere is -1."""
    codes = np.zeros(count0 + count1, np.int64)
    null = np.zeros(count0 + count1, bool)
    for x, y in columns:
        both = pa.concat_arrays([x, y])
        if pa.types.is_floating(both.type):
            both = pc.add(both, 0.0)  # -0.0 = 0.0
        encoded = both.dictionary_encode()
        null |= np.asarray(encoded.indices.is_null())
        ordinals = np.asarray(encoded.indices.fill_null(0), np.int64)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + ordinals, return_inverse=True)[1].astype(np.int64)
    codes[null] = -1
    return codes[:count0], codes[count0:]


def _fits(
    query: Query, aliased: Mapping[str, RelationDefinition], parts: Mapping[str, pa.RecordBatch], alias: str
) -> npt.NDArray[np.bool_]:
    """What the newest alias must meet besides equal keys, among equally long parts."""
    kept = np.ones(len(parts[alias]), bool)
    others = {name: part for name, part in parts.items() if name != alias}
    for x, y in _between(query.overlaps, others, alias):
        (left0, right0), (left1, right1) = _ends(x, aliased, parts), _ends(y, aliased, parts)
        kept &= (left0 <= right1) & (left1 <= right0)
    for left, op, right in query.comparisons:
        if alias in (left.alias, right.alias) and left.alias in parts and right.alias in parts:
            kept &= compare(op, parts[left.alias].column(left.column), parts[right.alias].column(right.column))
    for left, right, distance in query.within:
        if alias in (left.alias, right.alias) and left.alias in parts and right.alias in parts:
            kept &= _near(parts[left.alias].column(left.column), parts[right.alias].column(right.column), distance)
    return kept


def _near(left: pa.Array, right: pa.Array, distance: int | float) -> npt.NDArray[np.bool_]:
    """Whether right lies in [left - distance, left + distance]; false where one is null or NaN."""
    if pa.types.is_floating(left.type):
        x, y = (np.asarray(column.fill_null(np.nan)) for column in (left, right))
        return (x - distance <= y) & (y <= x + distance)
    null: npt.NDArray[np.bool_] = np.asarray(left.is_null()) | np.asarray(right.is_null())
    pairs = zip(_plain(left).view(np.int64).tolist(), _plain(right).view(np.int64).tolist(), strict=True)
    near: npt.NDArray[np.bool_] = np.fromiter((abs(x - y) <= distance for x, y in pairs), np.bool_, len(left))
    return near & ~null


def _ends(ref: IntervalRef, aliased: Mapping[str, RelationDefinition], parts: Mapping[str, pa.RecordBatch]) -> tuple[Ints, Ints]:
    return endpoints(parts[ref.alias], aliased[ref.alias].intervals[ref.interval])


def hashes(batch: pa.RecordBatch) -> Hashes:
    """uint64[n]: a hash of each row's values, by position and type."""
    total = np.zeros(batch.num_rows, np.uint64)
    for i, column in enumerate(batch.columns):
        total = _mix(total ^ _mix(_bits(column) + np.uint64(i)))
    return total


def _bits(column: pa.Array) -> Hashes:
    if pa.types.is_string(column.type):
        encoded = column.dictionary_encode()
        digests = np.array([_digest(text) for text in encoded.dictionary.to_pylist()] or [0], np.uint64)
        bits = digests[np.asarray(encoded.indices.fill_null(0))]
    else:
        bits = _plain(column)
    return np.where(np.asarray(column.is_null()), _NULL, bits) if column.null_count else bits


def _plain(column: pa.Array) -> Hashes:
    if pa.types.is_floating(column.type):
        numbers: npt.NDArray[Any] = np.ascontiguousarray(column.fill_null(0.0).to_numpy(), np.float64)
        return numbers.view(np.uint64)
    if pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    return np.asarray(column.cast(pa.int64()).fill_null(0), np.int64).view(np.uint64)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _mix(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
