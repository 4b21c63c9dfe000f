"""The latest rows of each key, and the latest row for each row of another relation, by brute force: all rows are sorted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.kinds import MOST_DIGITS, SENT_TYPES, digits_of, kept, sent
from livejoin.wire.schema import RelationDefinition
from service.checking.candidates import codes_of_pairs
from service.checking.grouping import Ints, canonical, codes_of
from service.checking.parts import CheckedRows, Parts
from service.query.conditions import ColumnRef, RowValue, columns_of
from service.query.model import Latest, Ordering, Query
from service.tables.masks import pair_mask
from service.tables.values.terms import evaluated

KEPT = "#"  # a column that marks the rows that meet WHERE


def latest_rows(latest: Latest, key: Sequence[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the latest ones of these rows of a relation with this primary key."""
    codes = codes_of([canonical(_value(value, rows)) for value in latest.by], len(rows))
    ties = [-_ranks(rows.column(name)) for name in reversed(key)]
    positions = np.lexsort((*ties, *(_in_order(key, rows) for key in reversed(latest.order)), codes))
    begins = np.flatnonzero(np.diff(codes[positions], prepend=-1))
    number = np.arange(len(positions)) - np.repeat(begins, np.diff(begins, append=len(positions)))
    kept = np.zeros(len(rows), np.bool_)
    kept[positions] = number < latest.rows
    return rows.filter(pa.array(kept))


def _in_order(key: Ordering, rows: pa.RecordBatch) -> Ints:
    column = _value(key.value, rows)
    ranks, of_null = _ranks(column), -len(rows) - 1 if key.nulls_first else len(rows) + 1
    found: Ints = np.where(np.asarray(column.is_null()), of_null, -ranks if key.descending else ranks)
    return found


def _value(value: RowValue, rows: pa.RecordBatch) -> pa.Array:
    """Return the values as they are stored; decimals of more digits as they are."""
    if isinstance(value, ColumnRef):
        return rows.column(value.column)
    kinds = columns_of(value)
    found = evaluated(value, lambda ref: sent(rows.column(ref.column), SENT_TYPES[kinds[ref]]), len(rows))
    return found if (digits_of(value.kind) or (0, 0))[0] > MOST_DIGITS else kept(found)


def _ranks(column: pa.Array) -> Ints:
    """Return equal numbers for equal values, in their order: NaN is the greatest."""
    found: Ints = np.asarray(pc.rank(canonical(column), tiebreaker="dense")).astype(np.int64)
    return found


def as_of_rows(query: Query, definitions: Mapping[str, RelationDefinition], parts: Parts) -> CheckedRows:
    """Join each row with the latest one of the other alias. All of that alias's rows count; KEPT marks those that can be in rows of the
    view."""
    as_of = query.as_of
    assert as_of is not None
    points, others = parts[as_of.point.alias], parts[as_of.of.alias]
    n = len(points)
    pairs = [pair if pair[0].alias == as_of.point.alias else pair[::-1] for pair in query.equal]
    codes, its = codes_of_pairs([(points.column(x.column), others.column(y.column)) for x, y in pairs], n, len(others))
    both = pa.concat_arrays([points.column(as_of.point.column), others.column(as_of.of.column)])
    ranks = _ranks(both) * (-1 if as_of.op in (">", ">=") else 1) + len(both)
    known = np.asarray(both.is_valid())
    key = definitions[dict(query.aliases)[as_of.of.alias]].key
    able = np.flatnonzero(known[n:] & (its >= 0))
    ties = [_ranks(others.column(name))[able] for name in reversed(key)]
    order = able[np.lexsort((*ties, ranks[n:][able], its[able]))]
    span = 2 * len(both) + 2
    found = np.searchsorted(its[order] * span + ranks[n:][order], codes * span + ranks[:n], "left" if as_of.op in ("<", ">") else "right")
    at = order[np.maximum(found - 1, 0)] if len(order) else np.zeros(n, np.int64)
    has = known[:n] & (codes >= 0) & (found > 0)
    has &= (its[at] == codes) if len(others) else False
    has &= np.asarray(others.column(KEPT).take(pa.array(at, mask=~has)).fill_null(False)) if len(others) else False
    kept = np.ones(n, np.bool_) if as_of.optional else has
    position = pa.array(at, mask=~has).filter(pa.array(kept))
    taken = [column.take(position) if len(others) else pa.nulls(int(kept.sum()), column.type) for column in others.columns]
    beside = pa.RecordBatch.from_arrays(taken, others.schema.names)
    found_rows = CheckedRows({as_of.point.alias: points.filter(pa.array(kept)), as_of.of.alias: beside}, {as_of.of.alias: ~has[kept]})
    return found_rows.only(pair_mask(as_of.conditions, lambda ref: found_rows.parts[ref.alias].column(ref.column), int(kept.sum())))
