"""The stretches that partners leave of the intervals of rows, or cover of them, by brute force: all pairs, sorted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import kept
from livejoin.wire.schema import RelationDefinition
from service.checking.candidates import ends_of
from service.checking.grouping import coded
from service.checking.parts import Joined, Parts
from service.query.conditions import ColumnRef
from service.query.model import GROUP, OF_STRETCH, Output, Query
from service.tables.masks import pair_mask, select_mask
from service.tables.projection import Projection
from structures.core.encoding import NEG_INF, POS_INF

Ints = npt.NDArray[np.int64]
_NUMBER = "#"


def stretched(
    query: Query, definitions: Mapping[str, RelationDefinition], tables: Parts, joined: Joined
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the keys and the rows of the view. `tables` by relation."""
    assert query.stretches is not None
    function, name, of, conditions = query.stretches
    (part,) = query.subqueries
    ((on, relation),), ((own, its),) = query.aliases, part.own
    aliased = {on: definitions[relation], own: definitions[its]}
    rows = _selected(query, on, tables[relation])
    numbered = pa.RecordBatch.from_arrays([*rows.columns, pa.array(np.arange(len(rows)))], [*rows.schema.names, _NUMBER])
    able = numbered.filter(pa.array(select_mask([one for one in part.join.filters if one.alias == on], numbered)))
    partners = tables[its].filter(pa.array(select_mask([one for one in part.filters if one.alias == own], tables[its])))
    left, right = ends_of(of, aliased, {on: rows})
    blocks = [np.empty((3, 0), np.int64)]
    found: Iterator[Parts] = iter(()) if part.join.never else joined(part.join, aliased, [on, own], {on: able}, {own: partners})
    for pairs in found:
        blocks.append(np.stack([np.asarray(pairs[on].column(_NUMBER)), *ends_of(part.join.overlaps[0][1], aliased, pairs)]))
    runs = _runs(np.concatenate(blocks, axis=1), left, right)
    number, starts, ends = runs if function == "coverage" else _between(runs, left, right)
    taken = {on: rows.take(pa.array(number))}
    keys = [taken[on].column(key) for key in definitions[relation].key]
    start = Output(f"{name}.start", f"{function}_start", None, (of,))
    keys += Projection(replace(query, outputs=(start,)), definitions).rows({}, stretches=(starts, ends)).columns
    shown = Projection(query, definitions).rows(taken, stretches=(starts, ends))
    outputs = tuple(Output(end, f"{function}_{end}", None, (of,)) for end in ("start", "end"))
    both = Projection(replace(query, outputs=outputs), definitions).rows({}, stretches=(starts, ends))

    def column(ref: ColumnRef) -> pa.Array:
        return kept(both.column(ref.column)) if ref.alias == OF_STRETCH else taken[on].column(ref.column)

    met = pa.array(pair_mask(conditions, column, len(shown)))
    return _numbered([key.filter(met) for key in keys]), shown.filter(met)


def _selected(query: Query, alias: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    if query.never:
        return rows.slice(0, 0)
    return rows.filter(pa.array(select_mask([one for one in query.filters if one.alias == alias], rows)))


def _runs(pairs: Ints, left: Ints, right: Ints) -> tuple[Ints, Ints, Ints]:
    """Return what pairs (row number, ends of the partner) cover of each row, in order: number, start, last."""
    number = pairs[0]
    starts, ends = np.maximum(pairs[1], left[number]), np.minimum(pairs[2], right[number])
    order = np.lexsort((starts, number))
    number, starts, ends = number[order], starts[order], ends[order]
    if not len(number):
        return number, starts, ends
    known, rank = np.unique(ends, return_inverse=True)
    reach = known[np.maximum.accumulate(number * len(known) + rank) % len(known)]  # so far, within the row
    new = np.ones(len(number), np.bool_)
    new[1:] = (number[1:] != number[:-1]) | ((starts[1:] > reach[:-1]) & (starts[1:] - (starts[1:] > NEG_INF) > reach[:-1]))
    first = np.flatnonzero(new)
    return number[first], starts[first], reach[np.append(first[1:], len(number)) - 1]


def _between(runs: tuple[Ints, Ints, Ints], left: Ints, right: Ints) -> tuple[Ints, Ints, Ints]:
    """Return what these runs leave of the rows."""
    number, starts, ends = runs
    n = len(left)
    # A run ends a gap and begins another; each row begins one and ends one.
    begins_of, ends_of_ = np.concatenate([np.arange(n), number]), np.concatenate([number, np.arange(n)])
    open_ends, open_starts = ends == POS_INF, starts == NEG_INF
    begins = np.concatenate([left, np.where(open_ends, POS_INF, ends + ~open_ends)])
    lasts = np.concatenate([np.where(open_starts, NEG_INF, starts - ~open_starts), right])
    nothing_behind = np.concatenate([np.zeros(n, np.bool_), open_ends])
    nothing_before = np.concatenate([open_starts, np.zeros(n, np.bool_)])
    by_begin = np.lexsort((np.concatenate([np.full(n, -1), np.arange(len(number))]), begins_of))
    by_end = np.lexsort((np.concatenate([np.arange(len(number)), np.full(n, len(number))]), ends_of_))
    begin, last = begins[by_begin], lasts[by_end]
    kept = (begin <= last) & ~nothing_behind[by_begin] & ~nothing_before[by_end]
    return begins_of[by_begin][kept], begin[kept], last[kept]


def covered(query: Query, definitions: Mapping[str, RelationDefinition], tables: Parts) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the keys and the rows of a view of what groups cover."""
    assert query.stretches is not None and query.groups is not None
    function, name, of, _ = query.stretches
    ((alias, relation),) = query.aliases
    rows = _selected(query, alias, tables[relation])
    reads = Projection(query, definitions).rows({alias: rows}).columns
    keys, codes = coded(query.groups, pa.table([*reads, pa.array(np.zeros(len(rows), np.int8))], [str(i) for i in range(len(reads) + 1)]))
    groups = int(codes.max()) + 1 if len(codes) else 0
    pairs = np.stack([codes, *ends_of(of, {alias: definitions[relation]}, {alias: rows})])
    number, starts, ends = _runs(pairs, np.full(groups, NEG_INF), np.full(groups, POS_INF))
    first = np.zeros(groups, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    shown = tuple(Output(end, f"{function}_{end}", None, (of,)) for end in ("start", "end"))
    made = Projection(replace(query, outputs=shown), definitions).rows({}, stretches=(starts, ends)).columns
    columns = [key.take(pa.array(first[number])) for key in keys]
    identity = [*columns, made[0]]
    found = [(columns if output.kind == GROUP else made)[output.position] for output in query.groups.outputs]
    return _numbered(identity), _numbered(found)


def _numbered(columns: list[pa.Array]) -> pa.RecordBatch:
    """Join columns; names do not matter from here on."""
    return pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))])
