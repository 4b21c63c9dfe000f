"""Collect the rows that structures report for a run of changes, and net them into a delta for each version.

Reports of one version may cancel: a row that one change inserts and another deletes is unchanged, and so is a row that is deleted with a
part of it and inserted with the replacement of that part, if the two look alike. One kernel call (`structures.netting`) nets all versions
of a run, and one gather finds which rows look alike; a few rows of a single version often need neither (`_are_apart`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.tables.changes import NOTHING, AliasChanges, Runs
from service.tables.inputs import Input
from service.tables.masks import Mask
from service.tables.resolution import NO_SLOTS, Indices
from service.views.deltas import Combination, Delta, agree, delta_of, emitted_by, look_alike, too_large
from service.views.deltas import joined as together
from service.views.shown import STRETCH, ShownColumns
from structures.core.runs import Deltas
from structures.netting.net import Moves, NetRows, netted
from structures.rows.succession import VersionSlots

_NO_INDICES: Indices = np.empty(0, np.int64)
_NO_MASK: Mask = np.empty(0, np.bool_)
_FEW = 64  # rows that are looked at here before the kernel is called, which takes some 30 µs
_Arrays = tuple[npt.NDArray[Any], ...]


class ReportedRows(NamedTuple):
    """Reported rows: for each one the number of its version, and whether it is inserted or else deleted."""

    offsets: Indices
    inserted: Mask
    rows: Combination


class RetainedRows(NamedTuple):
    """What the deltas of a view depend on. inputs: its aliases; runs: the changes of their rows, if the view's rows are made of these;
    shown: how rows look, or None if deleted rows are no longer readable; most: rows of a version that are kept."""

    inputs: Sequence[Input]
    runs: Runs
    shown: ShownColumns | None
    most: int

    @property
    def moved(self) -> list[AliasChanges]:
        """For each alias the rows that the run replaces."""
        runs = [self.runs.get(input.relation.name) for input in self.inputs]
        return [NOTHING if run is None else run.replaced for run in runs]


def joined(parts: Sequence[ReportedRows], width: int) -> ReportedRows:
    """Join the parts in the order of versions; the order within a version is kept. `width`: arrays per row."""
    if not parts:
        return ReportedRows(_NO_INDICES, _NO_MASK, (NO_SLOTS,) * width)
    offsets, inserted, *rows = _concatenated([(part.offsets, part.inserted, *part.rows) for part in parts])
    emitted = ReportedRows(offsets, inserted, tuple(rows))
    if (emitted.offsets[1:] >= emitted.offsets[:-1]).all():
        return emitted
    order = np.argsort(emitted.offsets, kind="stable")
    return ReportedRows(emitted.offsets[order], emitted.inserted[order], tuple(slots[order] for slots in emitted.rows))


def delta_left(first: int, emitted: ReportedRows, view: RetainedRows, too_many: Collection[int]) -> Delta | None:
    """Return the delta of the versions that change something; `first`: that at offset 0. `emitted`: in the order of versions; `too_many`:
    the versions that have too many rows, of which `emitted` has none. Cost: O(1) per reported row, and a gather of the moved ones."""
    if 0 < len(emitted.inserted) <= _FEW and emitted.offsets[0] == emitted.offsets[-1] and not too_many:
        deleted, inserted = (tuple(slots[mask] for slots in emitted.rows) for mask in (~emitted.inserted, emitted.inserted))
        if not len(deleted[0]) or not len(inserted[0]) or _are_apart(deleted, inserted, view):
            return of_one(first + emitted.offsets.item(0), deleted, inserted, view.most)
    is_deleted, is_inserted = rows_left(emitted, view)
    deletes, inserts = ((emitted.offsets[rows], tuple(slots[rows] for slots in emitted.rows)) for rows in (is_deleted, is_inserted))
    return delta_of(first, deletes, inserts, view.most, too_many)


def rows_left(emitted: ReportedRows, view: RetainedRows) -> tuple[Indices, Indices]:
    """Return the numbers of the rows that are deleted after netting, and of those that are inserted."""
    columns = np.empty((len(emitted.rows), len(emitted.inserted)), np.int64)
    for column, slots in zip(columns, emitted.rows, strict=True):
        column[:] = slots
    is_deleted, is_inserted, pairs = netted(NetRows(emitted.offsets, emitted.inserted, columns), _moves(view.moved, len(columns)))
    if pairs.shape[1] and view.shown is not None:
        before, after = (
            tuple(slots[rows[some]] for slots in emitted.rows) for rows, some in zip((is_deleted, is_inserted), pairs, strict=True)
        )
        equal = agree(before, after, view.inputs)
        others = np.flatnonzero(~equal)
        if len(others):  # computed columns may still be equal
            before, after = (tuple(slots[others] for slots in rows) for rows in (before, after))
            equal[others] = look_alike(before, after, view.shown.rows, view.shown.text_bytes)
        is_deleted, is_inserted = np.delete(is_deleted, pairs[0, equal]), np.delete(is_inserted, pairs[1, equal])
    return is_deleted, is_inserted


def _moves(moved: Sequence[AliasChanges], columns: int) -> Moves:
    """`columns`: per row; those after the aliases do not move."""
    lengths = [len(part.old) for part in moved] + [0] * (columns - len(moved))
    ends = np.array([*accumulate(lengths)])
    some = [part for part in moved if len(part.old)]
    if not some:
        return Moves(_NO_INDICES, _NO_INDICES, _NO_INDICES, ends)
    offsets, old, new = some[0] if len(some) == 1 else map(np.concatenate, zip(*some, strict=True))
    return Moves(offsets, old.astype(np.int64), new.astype(np.int64), ends)


class Collector:
    """A join's sink: collects the delta rows of a run, up to a bound for each version and sign."""

    def __init__(self, limit: int, versions: int) -> None:
        self.limit = limit
        self._parts: list[ReportedRows] = []
        self._counts = np.zeros(2 * versions, np.int64)  # per version and sign
        self._too_large: set[int] = set()

    def __call__(self, offsets: Indices, inserted: Mask, rows: Combination) -> bool:
        if not len(inserted):
            return True
        self._counts += np.bincount(2 * offsets + inserted, minlength=len(self._counts))
        self._parts.append(_without(ReportedRows(offsets, inserted, rows), self._too_large))
        if self._counts.max() > self.limit:
            for offset in {*(np.flatnonzero(self._counts > self.limit) >> 1).tolist()} - self._too_large:
                self.exceeded(offset)
        return offsets.item(-1) not in self._too_large

    def exceeded(self, offset: int) -> None:
        self._too_large.add(offset)
        self._parts = [_without(part, {offset}) for part in self._parts]

    def left(self, inputs: Sequence[Input]) -> tuple[Combination, Combination] | None:
        """Of a run of one version, return the deleted and the inserted rows after netting, which may look alike; None: too many."""
        if self._too_large:
            return None
        emitted = joined(self._parts, len(inputs))
        deleted, inserted = rows_left(emitted, RetainedRows(inputs, {}, None, self.limit))
        return tuple(slots[deleted] for slots in emitted.rows), tuple(slots[inserted] for slots in emitted.rows)

    def delta(self, first: int, view: RetainedRows) -> Delta | None:
        """As `delta_left`."""
        return delta_left(first, joined(self._parts, len(view.inputs)), view, self._too_large)


def _are_apart(deleted: Combination, inserted: Combination, view: RetainedRows) -> bool:
    """Whether certainly none of these rows cancel: two that do have the same slot of each alias whose relation has not changed."""
    for input, before, after in zip(view.inputs, deleted, inserted, strict=False):
        if input.relation.name not in view.runs and set(before.tolist()).isdisjoint(after.tolist()):
            return True
    return False


def of_one(version: int, deleted: Combination, inserted: Combination, most: int) -> Delta | None:
    """Return the delta of a version that deletes and inserts exactly these rows."""
    rows = len(deleted[0]) + len(inserted[0])
    if rows > most:
        return too_large(version)
    return Delta([version], [0, rows], [len(deleted[0])], tuple(map(np.concatenate, zip(deleted, inserted, strict=True)))) if rows else None


def _concatenated(parts: Sequence[_Arrays]) -> _Arrays:
    """Concatenate the parts, of which there is at least one, array by array."""
    return parts[0] if len(parts) == 1 else tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _without(part: ReportedRows, offsets: Collection[int]) -> ReportedRows:
    if not offsets:
        return part
    kept = np.isin(part.offsets, [*offsets], invert=True)
    return part if kept.all() else ReportedRows(part.offsets[kept], part.inserted[kept], tuple(slots[kept] for slots in part.rows))


class StretchCollector:
    """The sink of a stage whose rows are stretches. `limit`: as in `Sink`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts, self._too_large = list[ReportedRows](), set[int]()

    def exceeded(self, offset: int) -> None:
        self._too_large.add(offset)

    def take(self, offsets: Indices, deltas: Deltas, keep: Callable[[Combination], Mask] | None = None) -> None:
        """Take all rows that a run reports: slot (~slot: deleted), start and last. `offsets`: int64[n], the number of each change's
        version, ascending. `keep`: which of them are rows of the view; None: all."""
        self._too_large.update(offsets[deltas.too_large].tolist())
        changes, (slots, starts, lasts) = emitted_by(deltas)
        inserted = slots >= 0
        reported = ReportedRows(offsets[changes], inserted, (np.where(inserted, slots, ~slots).astype(np.int32), starts, lasts))
        if keep is not None:
            kept = keep(reported.rows)
            reported = ReportedRows(reported.offsets[kept], inserted[kept], tuple(one[kept] for one in reported.rows))
        self._parts.append(reported)

    def delta(self, first: int, view: RetainedRows) -> Delta | None:
        """As `delta_left`."""
        emitted = joined([_without(part, self._too_large) for part in self._parts], STRETCH)
        return delta_left(first, emitted, view, self._too_large)


class RowCollector:
    """The sink of a stage that has its own rows, so that none cancel: collects the deltas of a run. `limit`: rows of one version, of both
    signs."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[Delta] = []
        self._pieces: list[VersionSlots] = []  # of a version that is reported in pieces, after those in _parts
        self._offset, self._rows = -1, 0  # the offset of that version, and its rows so far
        self._cut = -1  # the last version with too many rows

    def take(self, first: int, emitted: VersionSlots) -> None:
        """Take the rows that some versions change (numbered from `first`), after the previous ones; or a piece of one version."""
        versions = (first + emitted.versions).tolist()
        if versions[-1] != self._offset:
            self._close()
            if len(versions) > 1:
                self._parts.append(Delta(versions, emitted.starts.tolist(), emitted.deletes.tolist(), (emitted.slots,)))
                return
            (self._offset,) = versions
        self._rows += len(emitted.slots)
        if self._rows <= self.limit:
            self._pieces.append(emitted)
        else:
            self._cut = self._offset
            self._parts, self._pieces = [], []

    def _close(self) -> None:
        """End a version that was reported in pieces."""
        if len(self._pieces) == 1:
            ((_, starts, deletes, slots),) = self._pieces
            self._parts.append(Delta([self._offset], starts.tolist(), deletes.tolist(), (slots,)))
        elif self._pieces:
            deleted = [slots[: deletes[0]] for _, _, deletes, slots in self._pieces]
            inserted = [slots[deletes[0] :] for _, _, deletes, slots in self._pieces]
            self._parts.append(Delta([self._offset], [0, self._rows], [sum(map(len, deleted))], (np.concatenate([*deleted, *inserted]),)))
        self._pieces, self._offset, self._rows = [], -1, 0

    def delta(self, first: int) -> Delta | None:
        """Return the delta of the versions that change something; `first`: the one at offset 0."""
        self._close()
        cut = self._cut
        if not self._parts:
            return None if cut < 0 else too_large(first + cut)
        delta = together(self._parts)
        if delta.rows > self.limit:
            too_many = np.flatnonzero(np.diff(delta.starts) > self.limit)
            if len(too_many):
                last = int(too_many[-1])
                cut, delta = delta.versions[last], delta.part(last + 1, len(delta.versions))
        return delta._replace(versions=[first + version for version in delta.versions], cut=first + cut if cut >= 0 else -1)
