"""Compute the net effect of changes to one relation: they are validated in order against the table, and the last one of each key is kept.

The changes of a key form a chain: the key exists before a change iff the previous change was no delete (for the first one: iff the table
has it). So one stable sort by key suffices, without walking the chains. A truncate splits the batch: the changes before it are validated
and then discarded, those after it start from an empty table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.batch import DELETE, INSERT, TRUNCATE, Changes, RowBlock
from service.tables.arrow import concatenated_sets
from service.tables.relations import Relation
from structures.rows.key_groups import key_groups
from structures.rows.key_table import RowSet

Slots = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]
NO_SLOTS: Slots = np.empty(0, np.int32)
_NO_INDICES: Indices = np.empty(0, np.int64)
_WORTH_PREPARING = 256  # changes


class StoredRows(RowBlock):
    """Rows that are in a relation's table already, at a version that the caller holds. Their values are read when they are needed, all at
    once; their number and bytes are not."""

    __slots__ = ("_relation", "_slots")

    def __init__(self, relation: Relation, slots: Slots) -> None:
        self.values, self.struct, self._batch, self.num_rows, self._bytes = None, None, None, len(slots), -1
        self._relation, self._slots = relation, slots

    @property
    def arrow(self) -> pa.RecordBatch:
        if self._batch is None:
            self._batch = self._relation.table.take(self._relation.schema.names, self._slots)
        return self._batch

    def _count(self) -> int:
        names: list[str] = self._relation.schema.names
        texts = int(self._relation.table.text_bytes(names, self._slots).sum())
        return 16 * len(names) * len(self._slots) + texts


@dataclass(slots=True)
class Resolution:
    """The net effect of a batch on one relation: first truncate, then deletes, then inserts; each key at most once per sign.

    inserts      whole rows
    previous     int32[inserts]: the slot of the row that each of them replaces, -1 for none
    deletes      int32: the slots of all deleted rows; the replaced ones first, in the order of their inserts
    delete_keys  keys of the rows that are deleted and not replaced; empty if truncated
    ignored      number of deletes of keys that did not exist
    bad          int64: indices in the batch of inserts whose key existed
    given        the inserts in the table's form, if they were looked up in it
    offsets      of several batches with one change each: int64, the positions of those that insert a row, then of those that delete one
    """

    relation: Relation
    truncate: bool
    inserts: RowBlock
    previous: Slots
    deletes: Slots
    delete_keys: RowBlock
    ignored: int
    bad: Indices
    given: RowSet | None = None
    offsets: tuple[Indices, Indices] | None = None


@dataclass(slots=True)
class LastChanges:
    """The changes after the last truncate, or all, with the part of their resolution that does not depend on the table. A `Prepared`.

    ops, index, rows    of these
    groups              as `key_groups` of their keys
    keys                their keys in the table's form; None if there are none
    given               the rows in the table's form, if none is deleted
    """

    ops: npt.NDArray[np.uint8]
    index: Indices
    rows: pa.RecordBatch
    groups: Indices | None
    keys: RowSet | None
    given: RowSet | None

    @property
    def bytes(self) -> int:
        """Bytes in addition to the rows."""
        sets = sum([_own_bytes(part) for part in (self.keys, self.given) if part is not None])
        return sets + (0 if self.groups is None else self.groups.nbytes)


def _own_bytes(rows: RowSet) -> int:
    """Bytes without texts that are stored in the batch itself, as those of a single column are."""
    return rows.cells.nbytes + rows.positions.nbytes + (rows.heap.nbytes if rows.heap.base is None else 0)


def prepare(relation: Relation, changes: Changes) -> None:
    """Do in advance the work of `resolve` that need not be done in the writer's turn, if there are many changes. Any thread. The changes
    were validated against this relation's definition, which must be the same when they are applied."""
    if len(changes.ops) >= _WORTH_PREPARING:
        changes.prepared = _last(relation, changes)


def _last(relation: Relation, changes: Changes) -> LastChanges:
    cuts = np.flatnonzero(changes.ops == TRUNCATE)
    start = int(cuts[-1]) + 1 if len(cuts) else 0
    rows, ops = changes.rows.arrow.slice(start), changes.ops[start:]
    keys, groups = _grouped(relation, rows)
    given = relation.table.given(RowBlock(rows)) if keys is not None and not np.any(ops == DELETE) else None
    return LastChanges(ops, changes.index[start:], rows, groups, keys, given)


def inserted(one: Resolution) -> Resolution:
    """Return the same effect on a relation without rows."""
    return replace(one, previous=np.full(one.inserts.num_rows, -1, np.int32), deletes=NO_SLOTS)


def _grouped(relation: Relation, rows: pa.RecordBatch) -> tuple[RowSet | None, Indices | None]:
    """Return the keys of the rows in the table's form, and their `key_groups`; None, None: there are no rows."""
    keys = relation.table.given_keys(RowBlock(rows.select(relation.key))) if rows.num_rows else None
    return keys, None if keys is None else key_groups(keys)


def _found(relation: Relation, keys: RowSet | None) -> Slots:
    return NO_SLOTS if keys is None else relation.table.find_given(keys)


def resolve(relation: Relation, changes: Changes, version: int) -> Resolution:
    """Compute the net effect; `version` is the newest applied one. Changes nothing. Cost: a sort of the keys if any occurs twice."""
    ops = changes.ops
    if len(ops) == 1 and ops[0] != TRUNCATE:
        return _resolve_one(relation, int(ops[0]), changes.rows, changes.index)
    last = changes.prepared if isinstance(changes.prepared, LastChanges) else _last(relation, changes)
    known = _found(relation, last.keys)
    cuts = np.flatnonzero(ops == TRUNCATE)
    if len(cuts) == 0:
        return _fold(relation, last, _validate(last.groups, ops, known), known)
    ignored, bad = 0, []
    start = 0
    for cut in cuts.tolist():
        keys, groups = _grouped(relation, changes.rows.arrow.slice(start, cut - start))
        there = _found(relation, keys) if start == 0 else np.full(cut - start, -1, np.int32)
        validated = _validate(groups, ops[start:cut], there)
        ignored += validated.ignored
        bad.append(changes.index[start:cut][validated.bad])
        start = cut + 1
    result = _fold(relation, last, _validate(last.groups, last.ops, np.full(len(last.ops), -1, np.int32)), known)
    result.truncate = True
    result.delete_keys = relation.no_keys
    rows = relation.table.rows
    everything, _ = relation.table.scan(version, 0, rows)
    replaced = result.previous[result.previous >= 0]
    if len(replaced):
        stays = np.zeros(relation.table.used, np.bool_)
        stays[replaced] = True
        everything = np.concatenate((replaced, everything[~stays[everything]]))
    result.deletes = everything
    result.ignored += ignored
    result.bad = np.concatenate((*bad, result.bad))
    return result


class _ValidatedChanges(NamedTuple):
    last: Indices  # ascending: for each key the last change that is not bad
    ignored: int
    bad: Indices


def _validate(groups: Indices | None, ops: npt.NDArray[np.uint8], known: Slots) -> _ValidatedChanges:
    """`groups`: as `key_groups` of the keys; `known`: their slots in the table before the changes."""
    if groups is None:
        bad = (ops == INSERT) & (known >= 0)
        ignored = (ops == DELETE) & (known < 0)
        return _ValidatedChanges(np.flatnonzero(~bad), int(np.count_nonzero(ignored)), np.flatnonzero(bad))
    order = np.argsort(groups, kind="stable")
    group, op = groups[order], ops[order]
    first = np.concatenate(([True], group[1:] != group[:-1]))
    exists = np.concatenate(([False], op[:-1] != DELETE))
    exists = np.where(first, known[order] >= 0, exists)
    bad = (op == INSERT) & exists
    ignored = (op == DELETE) & ~exists
    good = order[~bad]
    group = group[~bad]
    last = good[np.concatenate((group[1:] != group[:-1], [True]))] if len(good) else good
    return _ValidatedChanges(np.sort(last), int(np.count_nonzero(ignored)), np.sort(order[bad]))


def last_of_each(relation: Relation, rows: Sequence[pa.RecordBatch]) -> npt.NDArray[np.bool_] | None:
    """bool[n]: which rows are the last ones of their key; None if no key occurs twice. O(n log n) if one does."""
    parts = [relation.table.given_keys(RowBlock(batch.select(relation.key))) for batch in rows if batch.num_rows]
    groups = key_groups(concatenated_sets(parts)) if parts else None
    if groups is None:
        return None
    is_last = np.zeros(len(groups), np.bool_)
    is_last[len(groups) - 1 - np.unique(groups[::-1], return_index=True)[1]] = True
    return is_last


def _fold(relation: Relation, changes: LastChanges, validated: _ValidatedChanges, known: Slots) -> Resolution:
    last = validated.last
    deleting = changes.ops[last] == DELETE
    deleted = last[deleting]
    deleted = deleted[known[deleted] >= 0]
    inserted = last[~deleting]
    rows, whole = changes.rows, len(inserted) == changes.rows.num_rows
    inserts = RowBlock(rows if whole else rows.take(pa.array(inserted)))
    previous = known[inserted]
    keys = RowBlock(rows.select(relation.key).take(pa.array(deleted))) if len(deleted) else relation.no_keys
    deletes = np.concatenate((previous[previous >= 0], known[deleted]))
    given = changes.given if whole else None
    return Resolution(relation, False, inserts, previous, deletes, keys, validated.ignored, changes.index[validated.bad], given)


def _resolve_one(relation: Relation, op: int, rows: RowBlock, index: Indices) -> Resolution:
    if op == DELETE:
        keys = relation.keys_of(rows)
        known = relation.table.find(keys)
        if known[0] < 0:
            return Resolution(relation, False, relation.no_rows, NO_SLOTS, NO_SLOTS, relation.no_keys, 1, _NO_INDICES)
        return Resolution(relation, False, relation.no_rows, NO_SLOTS, known, keys, 0, _NO_INDICES)
    given = relation.table.given(rows)
    known = relation.table.find_given(given)
    if known[0] < 0:
        return Resolution(relation, False, rows, known, NO_SLOTS, relation.no_keys, 0, _NO_INDICES, given)
    if op == INSERT:
        return Resolution(relation, False, relation.no_rows, NO_SLOTS, NO_SLOTS, relation.no_keys, 0, index)
    return Resolution(relation, False, rows, known, known, relation.no_keys, 0, _NO_INDICES, given)
