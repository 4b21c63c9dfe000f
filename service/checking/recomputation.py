"""A view's rows by brute force, from whole tables; `livejoin check` compares the structures with them.

Aliases are joined one after another, by sorting and searching, without trees (`candidates`). Rows are compared as a multiset by count and
checksum, over identity and values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.kinds import kept
from livejoin.wire.schema import RelationDefinition
from service.checking.candidates import Candidates, Mask, between, candidates, ends_of, numbers_of
from service.checking.grouping import grouped
from service.checking.latest import KEPT, as_of_rows, latest_rows
from service.checking.parts import CheckedRows, with_parts
from service.checking.stretches import covered, stretched
from service.planning.plans.groups import core_of
from service.query.model import Query
from service.tables.masks import residual_mask, select_mask
from service.tables.projection import Projection, one_zero, values_schema
from service.tables.relations import computing

Hashes = npt.NDArray[np.uint64]
BLOCK = 1 << 18  # pairs at a time, approximately

_NULL = np.uint64(0x9E3779B97F4A7C15)


class Sum(NamedTuple):
    """The number of rows, and the sum of their hashes modulo 2^64."""

    rows: int
    checksum: int


def total(batches: Iterable[pa.RecordBatch]) -> Sum:
    """Return the sum over identities and values, in any order."""
    rows, checksum = 0, 0
    for batch in batches:
        rows += batch.num_rows
        checksum += int(hashes(batch).sum(dtype=np.uint64))
    return Sum(rows, checksum % 2**64)


def recompute(
    query: Query, definitions: Mapping[str, RelationDefinition], tables: Mapping[str, pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the view's rows over these tables (by relation): columns `alias.key…` and the outputs, in batches."""
    definitions = query.defined(definitions)
    tables = {name: computing(rows, definitions[name], query.computed) for name, rows in tables.items() if name in definitions}
    if query.stretches is not None and query.groups is not None:
        yield beside(*covered(query, definitions, tables))
        return
    if query.groups is not None:
        yield _groups(query, definitions, tables)
        return
    if query.stretches is not None:
        yield beside(*stretched(query, definitions, tables, _joined))
        return
    if query.never:
        return
    if query.united:
        yield from _united(query, definitions, tables)
        return
    if query.branches:
        yield from _distinct(query, definitions, tables)
        return
    whole, parts = query.whole, {}
    for alias, relation in whole.aliases:
        mask = select_mask([f for f in whole.filters if f.alias == alias], tables[relation])
        if query.as_of is not None and query.as_of.of.alias == alias:
            parts[alias] = tables[relation].append_column(KEPT, pa.array(mask))
            continue
        parts[alias] = tables[relation].filter(pa.array(mask))
        if query.latest is not None:
            parts[alias] = latest_rows(query.latest, definitions[relation].key, parts[alias])
    aliased = {alias: definitions[relation] for alias, relation in whole.aliases}
    if query.as_of is not None:
        yield identified(query, definitions, *as_of_rows(query, definitions, parts))
        return
    core = query.core
    order = [alias for alias, _ in core.aliases]
    first = min(order, key=lambda alias: len(parts[alias]))
    for rows in with_parts(query, aliased, tables, _joined, _joined(core, aliased, order, {first: parts[first]}, parts)):
        for group in query.absent:
            rows = _without(whole, [alias for alias, _ in group.aliases], aliased, rows, parts)
        found = identified(query, definitions, *rows)
        if query.distinct:
            columns = [one_zero(column) for column in found.columns[_keys(query.aliases, definitions) :]]
            values = pa.RecordBatch.from_arrays(columns, [output.name for output in query.outputs])
            found = beside(values, values)
        yield found


def _keys(aliases: Iterable[tuple[str, str]], definitions: Mapping[str, RelationDefinition]) -> int:
    """Return the number of key columns of these relations."""
    return sum(len(definitions[relation].key) for _, relation in aliases)


def _groups(query: Query, definitions: Mapping[str, RelationDefinition], tables: Mapping[str, pa.RecordBatch]) -> pa.RecordBatch:
    """Return keys and rows of a view with groups."""
    assert query.groups is not None
    core = core_of(query)
    schema = Projection(core, definitions).schema
    keys = _keys(query.aliases, definitions)
    parts = [pa.table([pa.array([], field.type) for field in [*schema, pa.field("", pa.int8())]], [*schema.names, ""])]
    for rows in recompute(core, definitions, tables):
        columns = [*rows.columns[keys:], pa.array(np.zeros(len(rows), np.int8))]  # the last column keeps their number
        parts.append(pa.table(columns, [*schema.names, ""]))
    return beside(*grouped(query.groups, pa.concat_tables(parts)))


def _distinct(
    query: Query, definitions: Mapping[str, RelationDefinition], tables: Mapping[str, pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a view with UNION or EXCEPT, by Arrow's grouping, in which nulls are equal."""
    fields = [*values_schema(query, definitions), pa.field("", pa.int8())]  # the last one says on which side a row is
    empty = pa.schema([(field.name, field.type) for field in fields]).empty_table()
    names = empty.schema.names[:-1]

    def selected(one: Query, input: int) -> pa.Table:
        keys = _keys(one.aliases, definitions)
        parts = [empty]
        for rows in recompute(one, definitions, tables):
            columns = [*map(one_zero, rows.columns[keys:]), pa.array(np.full(len(rows), input, np.int8))]
            parts.append(pa.table(columns, schema=empty.schema))
        return pa.concat_tables(parts)

    found = []
    for index, branch in enumerate(query.branches):
        inputs = [selected(query.of_right_side(at), 1) for at in branch.absent if query.absent[at].columns]
        grouped = pa.concat_tables([selected(query.of_branch(index), 0), *inputs]).group_by(names).aggregate([("", "max")])
        found.append(grouped.filter(pc.equal(grouped.column("_max"), 0)).select(names))
    for rows in pa.concat_tables(found).group_by(names).aggregate([]).to_batches(BLOCK):
        yield beside(rows, rows)


def _united(query: Query, definitions: Mapping[str, RelationDefinition], tables: Mapping[str, pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each SELECT of UNION ALL, with nulls in the keys of the others' aliases."""
    types = [definitions[relation].arrow_schema().field(name).type for _, relation in query.aliases for name in definitions[relation].key]
    before = 0
    for one in query.united:
        keys = _keys(one.aliases, definitions)
        for rows in recompute(one, definitions, tables):
            columns = [pa.nulls(len(rows), type_) for type_ in types]
            columns[before : before + keys] = rows.columns[:keys]
            columns += rows.columns[keys:]
            yield pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))])
        before += keys


Parts = Mapping[str, pa.RecordBatch]
"""By alias, of equal length."""


def _joined(query: Query, aliased: Mapping[str, RelationDefinition], order: list[str], bound: Parts, parts: Parts) -> Iterator[Parts]:
    """Join the bound parts with the other aliases: the one with the fewest candidates comes first, and pairs that do not match are dropped.
    An alias's rows are sorted for at least a quarter as many bound ones."""
    left = [alias for alias in order if alias not in bound]
    if not left:
        yield bound
        return
    found = {alias: candidates(query, aliased, bound, alias, parts[alias]) for alias in left}
    alias = min(left, key=lambda alias: found[alias].count)
    pairs, found = found[alias], {}
    size = max(BLOCK, *(len(parts[alias]) // 4 for alias in left))
    for rows in _gathered(_fitting(query, aliased, bound, alias, parts[alias], pairs), size):
        yield from _joined(query, aliased, order, rows, parts)


def _fitting(
    query: Query, aliased: Mapping[str, RelationDefinition], bound: Parts, alias: str, part: pa.RecordBatch, pairs: Candidates
) -> Iterator[Parts]:
    """Yield the candidates that meet all conditions."""
    for mine, theirs in pairs.pairs(BLOCK):
        taken = {name: part.take(pa.array(mine)) for name, part in bound.items()} | {alias: part.take(pa.array(theirs))}
        kept = pa.array(_fits(query, aliased, taken, alias))
        yield {name: part.filter(kept) for name, part in taken.items()}


def _gathered(found: Iterable[Parts], size: int) -> Iterator[Parts]:
    """Yield the same rows, at least `size` at a time, except for the last ones."""
    waiting: list[Parts] = []
    rows = 0
    for parts in found:
        count = len(next(iter(parts.values())))
        if count:
            waiting.append(parts)
            rows += count
        if rows >= size:
            yield _together(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _together(waiting)


def _together(parts: list[Parts]) -> Parts:
    return {alias: pa.concat_batches([one[alias] for one in parts]) for alias in parts[0]}


def _without(query: Query, group: list[str], aliased: Mapping[str, RelationDefinition], rows: CheckedRows, parts: Parts) -> CheckedRows:
    """Return the rows that match no combination of rows of all these aliases."""
    first, *_ = rows.parts.values()
    numbered = pa.RecordBatch.from_arrays([pa.array(np.arange(len(first)))], ["number"])
    kept = np.ones(len(first), bool)
    for found in _joined(query, aliased, group, {**rows.parts, "": numbered}, parts):
        kept[np.asarray(found[""].column(0))] = False
    return rows.only(kept)


def identified(
    query: Query, definitions: Mapping[str, RelationDefinition], parts: Mapping[str, pa.RecordBatch],
    missing: Mapping[str, npt.NDArray[np.bool_]] = MappingProxyType({}),
) -> pa.RecordBatch:  # fmt: skip
    """Return the keys of parts of equal length, and the view's rows over them; `missing`: as in `Projection.rows`."""
    keys = {f"{alias}.{name}": parts[alias].column(name) for alias, relation in query.aliases for name in definitions[relation].key}
    rows = Projection(query, definitions).rows(parts, missing)
    return beside(pa.RecordBatch.from_arrays(list(keys.values()), list(keys)), rows)


def beside(keys: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Join keys and rows; names do not matter from here on."""
    columns = [*keys.columns, *rows.columns]
    return pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))])


def _fits(query: Query, aliased: Mapping[str, RelationDefinition], parts: Mapping[str, pa.RecordBatch], alias: str) -> Mask:
    """Return which rows meet the newest alias's conditions besides equal keys, among parts of equal length."""
    kept = np.ones(len(parts[alias]), bool)
    others = {name: part for name, part in parts.items() if name != alias}
    for x, y in between(query.overlaps, others, alias):
        (left0, right0), (left1, right1) = ends_of(x, aliased, parts), ends_of(y, aliased, parts)
        kept &= (left0 <= right1) & (left1 <= right0)
    for condition in query.compared:
        named = {ref.alias for ref in condition.columns}
        if alias in named and named <= parts.keys():
            kept &= residual_mask([condition], parts)
    return kept


def hashes(batch: pa.RecordBatch) -> Hashes:
    """Return uint64[n]: a hash of each row's values, by position and type."""
    total = np.zeros(batch.num_rows, np.uint64)
    for i, column in enumerate(batch.columns):
        total = _mix(total ^ _mix(_bits(column) + np.uint64(i)))
    return total


def _bits(column: pa.Array) -> Hashes:
    if column.type in (pa.utf8(), pa.binary()):
        encoded = column.dictionary_encode()
        digests = np.array([_digest(text) for text in encoded.dictionary.to_pylist()] or [0], np.uint64)
        bits = digests[np.asarray(encoded.indices.fill_null(0))]
    elif pa.types.is_decimal(column.type) and column.type.precision > 19:  # a sum: two words
        words = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), 16 * column.offset).reshape(-1, 2)
        bits = _mix(words[:, 0]) ^ words[:, 1]
    else:
        bits = numbers_of(kept(column)).view(np.uint64)
    return np.where(np.asarray(column.is_null()), _NULL, bits) if column.null_count else bits


def _digest(text: str | bytes) -> int:
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def _mix(values: Hashes) -> Hashes:
    """Apply the finaliser of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
