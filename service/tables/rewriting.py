"""Changes to a whole relation, mostly computed beside the writer: a replacement of its rows, a delete by condition.

    beside the writer   on a held version: which of the new rows differ, which rows to delete
    in its turn         the same for the rows that have changed since (a `Backlog`), to obtain the net effect

Rows that the held version sees are not overwritten, so a slot that was read stays valid. The result is the same as if all of it had been
computed in the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import Changes, RowBlock
from service.query.conditions import Condition
from service.tables.backlog import Backlog, Net, Recorder
from service.tables.endpoints import equal_rows
from service.tables.masks import select_mask
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Resolution, Slots, last_of_each
from service.tables.store import PIECE_ROWS
from structures.rows.key_table import RowSet

_NO_INDICES = np.empty(0, np.int64)
_NO_OPS = np.empty(0, np.uint8)


class Rewrite(Changes):
    """A change to a whole relation, validated at `version`, which the caller holds until it is applied. `backlog`: of the changes since."""

    __slots__ = ("target", "version", "backlog", "count")

    def __init__(self, relation: Relation, version: int, backlog: Backlog) -> None:
        super().__init__(relation.name, relation.definition, _NO_OPS, relation.no_rows, _NO_INDICES)
        self.target, self.version, self.backlog = relation, version, backlog
        self.count = 0  # rows concerned, as far as known

    def resolve(self, version: int) -> Resolution:
        """Return the net effect on the newest version; in the writer's turn, once. Cost: proportional to the rows that differ or have
        changed since."""
        raise NotImplementedError

    def sent(self, declared: int) -> int:
        """Return the number of changes in the batch, after `resolve`."""
        return declared

    def _since(self, version: int) -> Net:
        return next(iter(self.backlog.take(version)), Net(self.target, NO_SLOTS, NO_SLOTS))

    def _effect(self, inserts: RowBlock, given: RowSet | None, previous: Slots, deleted: Slots, keys: pa.RecordBatch) -> Resolution:
        """`deleted`: rows that are deleted and not replaced, `keys` their keys."""
        deletes = np.concatenate((previous[previous >= 0], deleted))
        delete_keys = RowBlock(keys) if len(deleted) else self.target.no_keys
        return Resolution(self.target, False, inserts, previous, deletes, delete_keys, 0, _NO_INDICES, given)


class Replacement(Rewrite):
    """Replaces all rows of the relation by the given ones.

    `kept`: keys whose rows stay, unless there is a new row; None: all, so that the given rows are upserts. Of several rows with a key the
    last one counts. The constructor does the part beside the writer: O(rows of both; with None, of the given ones), and memory for the rows
    that differ, plus 4 bytes for each other row. Raises OverflowError for more than 2 GiB of text in one column of the rows that differ.
    """

    __slots__ = ("_equal", "_absent", "_absent_keys", "_kept", "_given")

    def __init__(
        self, relation: Relation, version: int, backlog: Backlog, rows: Sequence[pa.RecordBatch],
        kept: Sequence[pa.RecordBatch] | None,
    ) -> None:
        super().__init__(relation, version, backlog)
        self.count = sum(batch.num_rows for batch in rows)
        table = relation.table
        stays = np.zeros(table.used if kept is not None else 0, np.bool_)
        different: list[pa.RecordBatch] = []
        equal: list[Slots] = [NO_SLOTS]
        for piece in _each_key_once(relation, rows):
            slots = table.find_seen(version, table.given_keys(RowBlock(piece.select(relation.key))))
            known = slots >= 0
            if kept is not None:
                stays[slots[known]] = True
            same = np.zeros(len(slots), np.bool_)
            same[known] = equal_rows(piece.filter(pa.array(known)), table.take(piece.schema.names, slots[known]))
            equal.append(slots[same])
            if not same.all():
                different.append(piece.filter(pa.array(~same)))
        self._equal = np.sort(np.concatenate(equal))
        self.rows = RowBlock(_joined(different)) if different else relation.no_rows
        self._absent = NO_SLOTS if kept is None else _scanned(relation, version, lambda slots: slots[~stays[slots]])
        self._absent_keys = _keys_at(relation, self._absent)
        self._kept = None if kept is None else [keys for keys in kept if keys.num_rows]
        self._given = table.given(self.rows) if different else None

    @property
    def bytes(self) -> int:
        return self.rows.bytes + int(self._absent_keys.nbytes)

    def resolve(self, version: int) -> Resolution:
        table, since = self.target.table, self._since(version)
        inserts, given = self.rows, self._given
        changed = np.intersect1d(self._equal, since.deleted, assume_unique=True)
        if len(changed):  # the rows that the version has at these slots must be inserted again
            back = table.take(self.target.schema.names, changed)
            inserts, given = RowBlock(_joined([self.rows.arrow, back]) if self.rows.num_rows else back), None
        given = given if given is not None or not inserts.num_rows else table.given(inserts)
        previous = table.find_given(given) if given is not None else NO_SLOTS
        if self._kept is None:
            return self._effect(inserts, given, previous, NO_SLOTS, self._absent_keys)
        kept = np.concatenate([NO_SLOTS, *(table.find(RowBlock(keys)) for keys in self._kept)])
        stays = table.living(self._absent) & ~np.isin(self._absent, kept)
        new = np.setdiff1d(since.inserted, np.concatenate((previous, kept)), assume_unique=False).astype(np.int32)
        deleted, keys = self._absent, self._absent_keys
        if not stays.all():
            deleted, keys = deleted[stays], keys.filter(pa.array(stays))
        if len(new):
            deleted, keys = np.concatenate((deleted, new)), _joined([keys, _keys_at(self.target, new)])
        return self._effect(inserts, given, previous, deleted, keys)


class Deletion(Rewrite):
    """Deletes all rows that meet the filters. The constructor does the part beside the writer: O(rows).

    Raises OverflowError for more than 2 GiB of text in one column of their keys.
    """

    __slots__ = ("_filters", "_found", "_keys")

    def __init__(self, relation: Relation, version: int, backlog: Backlog, filters: Sequence[Condition]) -> None:
        super().__init__(relation, version, backlog)
        self._filters = filters
        self._found = slots_that_meet(relation, version, filters)
        self._keys = _keys_at(relation, self._found)
        self.count = len(self._found)

    @property
    def bytes(self) -> int:
        return int(self._keys.nbytes)

    def resolve(self, version: int) -> Resolution:
        came = _meeting(self.target, self._filters, self._since(version).inserted)
        deleted, keys = self._found, self._keys
        living = self.target.table.living(deleted)
        if not living.all():
            deleted, keys = deleted[living], keys.filter(pa.array(living))
        if len(came):
            deleted, keys = np.concatenate((deleted, came)), _joined([keys, _keys_at(self.target, came)])
        self.count = len(deleted)
        return self._effect(self.target.no_rows, None, NO_SLOTS, deleted, keys)

    def sent(self, declared: int) -> int:
        return self.count


class Removal(Deletion):
    """Deletes the rows at these slots of the version, unless they were deleted or replaced since."""

    __slots__ = ()

    def __init__(self, relation: Relation, version: int, slots: Slots) -> None:
        Rewrite.__init__(self, relation, version, Recorder().open(()))
        self._filters, self._found, self._keys, self.count = (), slots, _keys_at(relation, slots), len(slots)


def slots_that_meet(relation: Relation, version: int, filters: Sequence[Condition]) -> Slots:
    """Return the slots of a version's rows that meet the filters, ascending. O(rows)."""
    return _scanned(relation, version, lambda slots: _meeting(relation, filters, slots))


def _meeting(relation: Relation, filters: Sequence[Condition], slots: Slots) -> Slots:
    """Return the slots whose rows meet the filters."""
    columns = list(dict.fromkeys(ref.column for one in filters for ref in one.columns))
    pieces = relation.table.take_pieces(columns, slots)
    return np.concatenate([part[select_mask(filters, rows)] for part, rows in pieces])


def _each_key_once(relation: Relation, rows: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in pieces, only the last one of each key."""
    last = last_of_each(relation, rows)
    start = 0
    for batch in rows:
        for at in range(0, batch.num_rows, PIECE_ROWS):
            piece = batch.slice(at, PIECE_ROWS)
            if last is not None:
                piece = piece.filter(pa.array(last[start : start + piece.num_rows]))
            start += min(PIECE_ROWS, batch.num_rows - at)
            if piece.num_rows:
                yield piece


def _scanned(relation: Relation, version: int, chosen: Callable[[Slots], Slots]) -> Slots:
    """Return the slots of a version that `chosen` returns."""
    return np.concatenate([NO_SLOTS, *(chosen(slots) for slots in relation.table.scanned(version) if len(slots))])


def _keys_at(relation: Relation, slots: Slots) -> pa.RecordBatch:
    """Return the keys of the rows at these slots. Raises OverflowError as `Table.take`."""
    return relation.table.take(relation.key, slots)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches. Raises OverflowError for more than 2 GiB of text in one column."""
    if len(batches) == 1:
        return batches[0]
    schema = batches[0].schema
    try:
        return pa.concat_batches([pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches])
    except pa.ArrowInvalid as error:
        raise OverflowError(str(error)) from None
