"""The difference of a view between two versions that it has in different structures, read from both.

A batch that truncates relations puts new structures in the place of a view's own (`engine/truncates.py`). The former ones still have the
version before, and the new ones its own: all rows before, less all rows after, are deleted, and the other way round. Rows are identified by
their slots, those of UNION and EXCEPT by their values, as are those of a view whose definition is replaced
(`engine/catalog/replacements.py`). Reading takes as long as reading the view twice, so the thread that settles the view's feed does it;
both versions are held until then.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.tables.changes import Runs
from service.tables.inputs import Input
from service.tables.masks import Mask
from service.tables.resolution import NO_SLOTS, Indices
from service.views.collecting import ReportedRows, RetainedRows, delta_left, of_one, rows_left
from service.views.deltas import Combination, Delta, SettledDelta, most_candidates, too_large
from service.views.joins.union_join import rows_apart
from service.views.live_view import LiveView, ViewRoot

_CHUNK = 1 << 16  # rows to read at once
_COMPARED = 1 << 20  # rows to compare at once
_MOST_READ = 1 << 24  # rows to compare in all: beyond this, followers are told that the change is too large
_MOST_REPLACED, _MOST_BYTES = 1 << 22, 1 << 30  # of a view that is replaced, or replaces one, to compare by value; likewise


class _HeldDifference(ABC):
    """The delta of one version, a `Later`. `held`: holds the version before, and `hold` the version itself."""

    def __init__(self, version: int, most: int, held: ExitStack) -> None:
        self._version, self._most, self._held, self._lock = version, most, held, threading.Lock()
        self._is_read = self._is_over = False  # being read; read, or not wanted

    def hold(self, holding: AbstractContextManager[int]) -> None:
        """Also hold this, unless the delta was read already."""
        with self._lock:
            if not self._is_over:
                self._held.enter_context(holding)

    def read(self) -> Delta | SettledDelta | None:
        """Return the delta; None: nothing has changed. Once. Cost: that of reading both versions, and O(1) a row."""
        with self._lock:
            if self._is_over:
                return None
            self._is_read = True
        try:
            return self._read()
        finally:
            self._is_read = False
            self.close()

    def close(self) -> None:
        """Release the versions, once nobody reads them; what is being read comes to an end. A second call does nothing."""
        with self._lock:
            self._is_over = True
            if not self._is_read:
                self._held.close()

    @abstractmethod
    def _read(self) -> Delta | SettledDelta | None: ...

    def _rows(self, root: ViewRoot) -> Iterator[Combination]:
        cursor = root.join.rows(root.root, None)
        while not (cursor.done or self._is_over):
            yield cursor.fill(_CHUNK)


class Difference(_HeldDifference):
    """That of a view in new structures. `before` and `after`: the view's roots; `names`: the relations that the version truncates; `runs`:
    its changes of the view's relations."""

    def __init__(
        self, view: LiveView, version: int, names: Collection[str], runs: Runs, before: ViewRoot, after: ViewRoot, held: ExitStack
    ) -> None:  # fmt: skip
        self._view, self._runs, self._before, self._after = view, runs, before, after
        query = view.view.query
        assert query.retain is not None
        super().__init__(version, most_candidates(query.retain[0]), held)
        self._retained = view.retained(runs)
        self._is_union = bool(query.branches)
        # Aliases whose rows are all deleted: a row of the view that has one of these is deleted.
        self._truncated = [] if self._is_union or view.owns_rows else [
            input.position for input in view.inputs if input.relation.name in names
        ]

    def _read(self) -> Delta | None:
        lost, kept, new = (_GatheredRows(self._view.width) for _ in range(3))
        for rows in self._rows(self._before):
            deleted = np.zeros(len(rows[0]), np.bool_)
            for position in self._truncated:
                deleted |= rows[position] >= 0
            lost.add(_some(rows, deleted))
            kept.add(_some(rows, ~deleted))
            if lost.count > self._most or kept.count > _MOST_READ:
                return too_large(self._version)
        for rows in self._rows(self._after):
            new.add(rows)
            if kept.count + new.count > _MOST_READ:
                return too_large(self._version)
        gone_too, inserted = self._apart(kept.all, new.all)
        return self._delta(_together([lost.all, *gone_too]), _together(inserted))

    def _apart(self, before: Combination, after: Combination) -> tuple[list[Combination], list[Combination]]:
        """Return the rows that only one of the versions has, some thousand at a time."""
        none = (NO_SLOTS,) * self._view.width
        deleted, inserted = [none], [none]
        count = -(-(len(before[0]) + len(after[0])) // _COMPARED)
        for index in range(count):
            old, new = (_some(rows, rows[0] % count == index) for rows in (before, after))
            is_deleted, is_inserted = _different(old, new, self._view.inputs)
            deleted.append(_some(old, is_deleted))
            inserted.append(_some(new, is_inserted))
        return deleted, inserted

    def _delta(self, deleted: Combination, inserted: Combination) -> Delta | None:
        if self._is_union:
            return of_one(self._version, *rows_apart(deleted, inserted, self._view.shown), self._retained.most)
        lost, n = len(deleted[0]), len(deleted[0]) + len(inserted[0])
        if max(lost, n - lost) > self._most:
            return too_large(self._version)
        return delta_left(
            self._version, ReportedRows(np.zeros(n, np.int64), np.arange(n) >= lost, _together((deleted, inserted))), self._retained, ()
        )


class ReplacedRows(_HeldDifference):
    """That of a view and of one that replaces it, with the same columns (`same_columns`)."""

    def __init__(self, before: LiveView, after: LiveView, version: int, held: ExitStack) -> None:
        assert after.view.query.retain is not None
        super().__init__(version, most_candidates(after.view.query.retain[0]), held)
        self._before, self._after = before.root, after.root

    def _read(self) -> SettledDelta | Delta | None:
        before, after = self._gathered(self._before), self._gathered(self._after)
        if before is None or after is None:
            return too_large(self._version)
        both = [pa.concat_batches(parts) for parts in zip(before, after, strict=True)]
        count = both[0].num_rows
        signs = np.where(np.arange(count) < before[0].num_rows, -1, 1)
        columns = [_comparable(column) for batch in both for column in batch.columns]
        names = [str(at) for at in range(len(columns))]
        rows = pa.table([*columns, pa.array(signs), pa.array(np.arange(count))], [*names, "sign", "at"])
        net = rows.group_by(names, use_threads=False).aggregate([("sign", "sum"), ("at", "min")])
        total = net.column("sign_sum")
        chosen = [net.column("at_min").filter(keep).combine_chunks() for keep in (pc.less(total, 0), pc.greater(total, 0))]
        if max(map(len, chosen)) > self._most:
            return too_large(self._version)
        keys, shown = (batch.take(pa.concat_arrays(chosen)) for batch in both)
        return SettledDelta(self._version, len(chosen[0]), keys, shown) if keys.num_rows else None

    def _gathered(self, root: ViewRoot) -> tuple[pa.RecordBatch, pa.RecordBatch] | None:
        """Return the keys and rows of all rows, with nullable columns; None: they are too many."""
        shown, count, size = root.view.shown, 0, 0
        parts = [[_nullable(batch)] for batch in shown.with_keys((NO_SLOTS,) * root.view.width)]
        for found in self._rows(root):
            if not len(found[0]):
                continue
            for of, batch in zip(parts, shown.with_keys(found), strict=True):
                of.append(_nullable(batch))
                size += batch.nbytes
            count += len(found[0])
            if count > _MOST_REPLACED or size > _MOST_BYTES:
                return None
        keys, rows = map(pa.concat_batches, parts)
        return keys, rows


def same_columns(before: LiveView, after: LiveView) -> bool:
    """Whether rows of one are valid as rows of the view before: their columns and their keys are the same, and none may be null that could
    not."""
    for one, other in zip(*(view.shown.with_keys((NO_SLOTS,) * view.width) for view in (before, after)), strict=True):
        if len(one.schema) != len(other.schema):
            return False
        wanted = [field.with_nullable(field.nullable or known.nullable) for field, known in zip(other.schema, one.schema, strict=True)]
        if not one.schema.equals(pa.schema(wanted), check_metadata=True):
            return False
    return True


def _nullable(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema([field.with_nullable(True) for field in batch.schema]))


def _comparable(column: pa.Array) -> pa.Array:
    """Return a column by whose values Arrow can group."""
    return pa.array(map(repr, column.to_pylist()), pa.utf8()) if pa.types.is_nested(column.type) else column


class _GatheredRows:
    """`count` rows, which come in parts. Small ones are joined now and then: to join thousands holds the interpreter's lock."""

    def __init__(self, width: int) -> None:
        self._large: list[Combination] = [(NO_SLOTS,) * width]
        self._small: list[Combination] = []
        self.count = self._few = 0

    def add(self, rows: Combination) -> None:
        self._small.append(rows)
        self.count, self._few = self.count + len(rows[0]), self._few + len(rows[0])
        if self._few >= _CHUNK:
            self._large.append(_together(self._small))
            self._small, self._few = [], 0

    @property
    def all(self) -> Combination:
        return _together(self._large + self._small)


def _some(rows: Combination, which: Mask | Indices) -> Combination:
    return tuple(part[which] for part in rows)


def _together(parts: Sequence[Combination]) -> Combination:
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


def _different(before: Combination, after: Combination, inputs: Sequence[Input]) -> tuple[Indices, Indices]:
    """Return the numbers of the rows that only the first ones have, and those that only the others have. Cost: O(1) a row."""
    lost, n = len(before[0]), len(before[0]) + len(after[0])
    is_deleted, is_inserted = rows_left(
        ReportedRows(np.zeros(n, np.int64), np.arange(n) >= lost, _together((before, after))), RetainedRows(inputs, {}, None, n)
    )
    return is_deleted, is_inserted - lost
