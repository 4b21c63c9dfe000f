"""The rows of a view with EXISTS, NOT EXISTS, LEFT and FULL JOIN by brute force: rows of the core, block by block, joined with all of their
partners in each part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.schema import RelationDefinition
from service.query.model import Query, Subquery
from service.tables.masks import select_mask

Parts = Mapping[str, pa.RecordBatch]
Mask = npt.NDArray[np.bool_]
Joined = Callable[[Query, Mapping[str, RelationDefinition], list[str], Parts, Parts], Iterator[Parts]]
_NUMBER = "#"


class CheckedRows(NamedTuple):
    """Parts of equal length by alias, and which rows of them are missing."""

    parts: Parts
    missing: Mapping[str, Mask]

    def only(self, kept: Mask) -> CheckedRows:
        parts = {alias: part.filter(pa.array(kept)) for alias, part in self.parts.items()}
        return CheckedRows(parts, {alias: mask[kept] for alias, mask in self.missing.items()})


def with_parts(
    query: Query, aliased: Mapping[str, RelationDefinition], tables: Parts, joined: Joined, core: Iterator[Parts]
) -> Iterator[CheckedRows]:
    """Yield the rows of the view. `core`: the rows of the inner join, in blocks; `tables` by relation."""
    by_part = [_own_rows(part, tables) for part in query.subqueries]
    found = [np.zeros(len(next(iter(own.values()))), np.bool_) for own in by_part]
    for parts in core:
        rows = CheckedRows(parts, {})
        for index, part in enumerate(query.subqueries):
            rows = _apply(part, rows, by_part[index], aliased, joined, found[index])
        yield _judged(query, rows)
    for index, part in enumerate(query.subqueries):
        if part.kind == "full":
            (alias, own), on = next(iter(by_part[index].items())), part.on
            left = own.filter(pa.array(~found[index]))
            schema = tables[dict(query.aliases)[on]].schema
            lacking = pa.RecordBatch.from_arrays([pa.nulls(len(left), field.type) for field in schema], schema.names)
            yield _judged(query, CheckedRows({alias: left, on: lacking}, {on: np.ones(len(left), np.bool_)}))


def _judged(query: Query, rows: CheckedRows) -> CheckedRows:
    """Return the rows that the conditions after outer joins do not exclude."""
    for one in query.outer_filters:
        met = select_mask([one], rows.parts[one.alias])
        rows = rows.only(met | rows.missing.get(one.alias, np.zeros(len(met), np.bool_)))
    return rows


def _own_rows(part: Subquery, tables: Parts) -> Parts:
    """Return, for each of the part's own aliases, the rows that may be partners (for FULL JOIN, all rows), with their numbers."""
    found = {}
    for alias, relation in part.own:
        rows = tables[relation]
        if part.kind != "full":
            rows = rows.filter(pa.array(select_mask([one for one in part.filters if one.alias == alias], rows)))
        found[alias] = pa.RecordBatch.from_arrays([*rows.columns, pa.array(np.arange(len(rows)))], [*rows.schema.names, _NUMBER])
    return found


def _apply(
    part: Subquery, rows: CheckedRows, own: Parts, aliased: Mapping[str, RelationDefinition], joined: Joined, found: Mask
) -> CheckedRows:
    """Apply the part to the rows; mark in `found` which rows of its first own alias have a partner."""
    count = len(rows.parts[part.on])
    numbers, partners = [np.empty(0, np.int64)], {alias: [batch.slice(0, 0)] for alias, batch in own.items()}
    filters = [one for one in part.join.filters if one.alias == part.on]
    may = select_mask(filters, rows.parts[part.on]) & ~rows.missing.get(part.on, np.zeros(count, np.bool_))
    given = np.flatnonzero(may)
    numbered = pa.RecordBatch.from_arrays([pa.array(given)], [_NUMBER])
    bound = {part.on: rows.parts[part.on].take(pa.array(given)), "": numbered}
    ours = own
    if part.kind == "full":
        ours = {alias: batch.filter(pa.array(select_mask(part.filters, batch))) for alias, batch in own.items()}
    for some in () if part.join.never else joined(part.join, aliased, [part.on, *own], bound, ours):
        numbers.append(np.asarray(some[""].column(0)))
        for alias in own:
            partners[alias].append(some[alias])
    has = np.zeros(count, np.bool_)
    has[np.concatenate(numbers)] = True
    if not part.is_shown:
        return rows.only(has if part.kind == "exists" else ~has)
    first = next(iter(own))
    found[np.concatenate([np.asarray(batch.column(_NUMBER)) for batch in partners[first]])] = True
    at = np.concatenate([*numbers, np.flatnonzero(~has)])
    lacks = np.arange(len(at)) >= len(at) - np.count_nonzero(~has)
    made = {alias: batch.take(pa.array(at)) for alias, batch in rows.parts.items()}
    for alias, batches in partners.items():
        table = pa.Table.from_batches([batch.replace_schema_metadata() for batch in batches]).combine_chunks()
        position = pa.array(np.minimum(np.arange(len(at)), max(0, table.num_rows - 1)), mask=lacks)
        taken = [column.combine_chunks().take(position) if table.num_rows else pa.nulls(len(at), column.type) for column in table.columns]
        made[alias] = pa.RecordBatch.from_arrays(taken, table.schema.names)
    return CheckedRows(made, {alias: mask[at] for alias, mask in rows.missing.items()} | dict.fromkeys(own, lacks))
