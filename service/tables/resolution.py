"""What the changes of one relation come to: judged in order against the table, the last of each key kept.

A key's changes form a chain: a change finds the key there iff the one before it was no delete (the first one: iff the
table has it). So one stable sort by key tells everything, without walking. A truncate cuts the batch in two: what stands
before it is judged and then forgotten, what comes after starts from nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.tables.relations import Relation
from service.wire.batch import DELETE, INSERT, TRUNCATE, Changes, RowBlock
from structures.rows.key_table import RowSet

Slots = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]
NO_SLOTS: Slots = np.empty(0, np.int32)
_NO_INDICES: Indices = np.empty(0, np.int64)


@dataclass(slots=True)
class Resolved:
    """The net effect of a batch on one relation: first truncate, then deletes, then inserts; each key at most once a sign.

    inserts      whole rows
    previous     int32[inserts]: the slot of the row that each of them replaces, -1 for none
    deletes      int32: the slots of all rows that go; the replaced ones first, in the order of their inserts
    delete_keys  keys of the rows that are deleted and not replaced; of none if truncated
    ignored      deletes of keys that were not there
    bad          int64: indices in the batch of inserts whose key existed
    given        the inserts as the table takes them, if they were looked at so
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


def resolve(relation: Relation, changes: Changes, version: int) -> Resolved:
    """Judge and fold; `version` is the newest applied one. Changes nothing. Cost: a sort of the keys if any comes twice."""
    ops = changes.ops
    if len(ops) == 1 and ops[0] != TRUNCATE:
        return _resolve_one(relation, int(ops[0]), changes.rows, changes.index)
    rows = changes.rows.arrow
    keys = rows.select(relation.key)
    cuts = np.flatnonzero(ops == TRUNCATE)
    if len(cuts) == 0:
        known = relation.table.find(RowBlock(keys))
        judged = _judge(keys, ops, known)
        return _fold(relation, changes, judged, known)
    ignored, bad = 0, []
    start = 0
    for cut in cuts.tolist():
        part = keys.slice(start, cut - start)
        known = relation.table.find(RowBlock(part)) if start == 0 else np.full(len(part), -1, np.int32)
        judged = _judge(part, ops[start:cut], known)
        ignored += judged.ignored
        bad.append(changes.index[start:cut][judged.bad])
        start = cut + 1
    rest = Changes(changes.relation, changes.definition, ops[start:], RowBlock(rows.slice(start)), changes.index[start:])
    part = keys.slice(start)
    judged = _judge(part, rest.ops, np.full(len(part), -1, np.int32))
    result = _fold(relation, rest, judged, relation.table.find(RowBlock(part)))
    result.truncate = True
    result.delete_keys = relation.no_keys
    everything, _ = relation.table.scan(version, 0, relation.table.rows)
    replaced = result.previous[result.previous >= 0]
    stays = np.zeros(relation.table.used, np.bool_)
    stays[replaced] = True
    result.deletes = np.concatenate((replaced, everything[~stays[everything]]))
    result.ignored += ignored
    result.bad = np.concatenate((*bad, result.bad))
    return result


class _Judged(NamedTuple):
    last: Indices  # ascending: of each key the last change that is not bad
    ignored: int
    bad: Indices


def _judge(keys: pa.RecordBatch, ops: npt.NDArray[np.uint8], known: Slots) -> _Judged:
    groups = _groups(keys)
    if groups is None:
        bad = (ops == INSERT) & (known >= 0)
        ignored = (ops == DELETE) & (known < 0)
        return _Judged(np.flatnonzero(~bad), int(np.count_nonzero(ignored)), np.flatnonzero(bad))
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
    return _Judged(np.sort(last), int(np.count_nonzero(ignored)), np.sort(order[bad]))


def _groups(keys: pa.RecordBatch) -> Indices | None:
    """A number for each row, equal iff the keys are; None if no key comes twice."""
    if keys.num_rows < 2:
        return None
    codes: Indices | None = None
    distinct = 0
    for column in keys.columns:
        if pa.types.is_floating(column.type):
            column = pc.add(column, 0.0)  # -0.0 is 0.0
        encoded = column.dictionary_encode()
        part = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is None:
            codes, distinct = part, len(encoded.dictionary)
        else:
            unique, codes = np.unique(codes * len(encoded.dictionary) + part, return_inverse=True)
            distinct = len(unique)
        if distinct == keys.num_rows:
            return None
    return codes


def _fold(relation: Relation, changes: Changes, judged: _Judged, known: Slots) -> Resolved:
    last = judged.last
    deleting = changes.ops[last] == DELETE
    gone = last[deleting]
    gone = gone[known[gone] >= 0]
    come = last[~deleting]
    rows = changes.rows.arrow
    inserts = RowBlock(rows if len(come) == rows.num_rows else rows.take(pa.array(come)))
    previous = known[come]
    keys = RowBlock(rows.select(relation.key).take(pa.array(gone))) if len(gone) else relation.no_keys
    deletes = np.concatenate((previous[previous >= 0], known[gone]))
    return Resolved(relation, False, inserts, previous, deletes, keys, judged.ignored, changes.index[judged.bad])


def _resolve_one(relation: Relation, op: int, rows: RowBlock, index: Indices) -> Resolved:
    if op == DELETE:
        keys = relation.keys_of(rows)
        known = relation.table.find(keys)
        if known[0] < 0:
            return Resolved(relation, False, relation.no_rows, NO_SLOTS, NO_SLOTS, relation.no_keys, 1, _NO_INDICES)
        return Resolved(relation, False, relation.no_rows, NO_SLOTS, known, keys, 0, _NO_INDICES)
    given = relation.table.given(rows)
    known = relation.table.find_given(given)
    if known[0] < 0:
        return Resolved(relation, False, rows, known, NO_SLOTS, relation.no_keys, 0, _NO_INDICES, given)
    if op == INSERT:
        return Resolved(relation, False, relation.no_rows, NO_SLOTS, NO_SLOTS, relation.no_keys, 0, index)
    return Resolved(relation, False, rows, known, known, relation.no_keys, 0, _NO_INDICES, given)
