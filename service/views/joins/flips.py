"""Count partners by slot, and find the rows that their changes in a run of versions insert or delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.tables.changes import Run
from service.tables.masks import Mask
from service.tables.relations import Relation
from service.tables.resolution import Indices, Slots

Arrays = tuple[Indices, Indices, Indices]

_NOTHING: Indices = np.empty(0, np.int64)
_MANY = 1024  # slots


class Events:
    """The increments and decrements of a count in a run: slots, offsets of versions, signs."""

    def __init__(self) -> None:
        self._offsets: list[Indices] = []
        self._inserted: list[Mask] = []
        self._slots: list[Slots] = []

    def note(self, offsets: Indices, inserted: Mask, slots: Slots) -> None:
        self._offsets.append(offsets)
        self._inserted.append(inserted)
        self._slots.append(slots)

    def arrays(self, run: Run | None, used: int) -> tuple[Indices, Indices, Indices]:
        """int64[n] each: slots, offsets, signs. A row that `run` replaces is one row: events of its old slot count for the new one. `used`:
        number of slots."""
        if not self._slots:
            return _NOTHING, _NOTHING, _NOTHING
        slots = np.concatenate(self._slots)
        if run is not None and len(slots):
            at = _positions(run.old, slots, used)
            new = run.new[at]
            slots = np.where((at >= 0) & (new >= 0), new, slots)
        return slots.astype(np.int64), np.concatenate(self._offsets), np.where(np.concatenate(self._inserted), 1, -1)


def _positions(of: Slots, wanted: npt.NDArray[np.integer], used: int) -> Indices:
    """int64[wanted]: the index of each in `of`, whose values other than -1 are distinct; -1: it is not there."""
    there = np.flatnonzero(of >= 0)
    if not len(there):
        return np.full(len(wanted), -1, np.int64)
    if len(wanted) > _MANY:  # a table of all slots takes less time than this many searches
        positions = np.full(used, -1, np.int64)
        positions[of[there]] = there
        found: Indices = positions[wanted]
        return found
    order = there[np.argsort(of[there])]
    ordered = of[order]
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[at] == wanted, order[at], -1)


class Counts:
    """int64 by slot of a table: 0 where there is no row."""

    def __init__(self, relation: Relation) -> None:
        self.relation, self.table = relation.name, relation.table
        self._counts = np.zeros(1024, np.int64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        used = self.table.used
        return bool(np.array_equal(self._reach(used)[:used], other._reach(used)[:used]))

    __hash__ = None  # type: ignore[assignment]

    def _reach(self, used: int) -> Indices:
        if used > len(self._counts):
            grown = np.zeros(max(used, 2 * len(self._counts)), np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        return self._counts

    def of(self, slots: npt.NDArray[np.integer]) -> Indices:
        """int64[n]"""
        counts: Indices = self._reach(self.table.used)[slots]
        return counts

    def add(self, slots: Indices, signs: Indices) -> None:
        np.add.at(self._reach(self.table.used), slots, signs)

    def follow(self, events: Arrays, run: Run | None) -> None:
        """Advance to the end of a run; `run`: of the table's rows, whose counts move from slot to slot."""
        counts = self._reach(self.table.used)
        if run is not None:
            both = (run.old >= 0) & (run.new >= 0)
            counts[run.new[both]] = counts[run.old[both]]
            counts[run.old[both]] = 0
        slots, _, signs = events
        np.add.at(counts, slots, signs)

    @property
    def bytes(self) -> int:
        return self._counts.nbytes


class Flips(NamedTuple):
    """The changes of the rows that pass; made: how many of these rows are unchanged, and only gain their first partner or lose their
    last."""

    run: Run
    made: int


Channel = tuple[Counts, Arrays, bool]
"""Partners, what they gain and lose in the run, and whether a row is to have some, or none."""


def flips(channels: Sequence[Channel], run: Run | None, versions: int) -> Flips | None:
    """Return the changes of the rows that pass all tests, as a run; None: there are none. `run`: the changes of their relation.

    A row counts as one from its old to its new slot. For each row and version, its state before and after the changes of that version is
    compared. Cost: a sort of the events.
    """
    ids, offsets, signs, of = [_NOTHING], [_NOTHING], [_NOTHING], [_NOTHING]
    for index, (_, (slots, at, sign), _) in enumerate(channels):
        ids.append(slots)
        offsets.append(at)
        signs.append(sign)
        of.append(np.full(len(slots), index))
    if run is not None:
        ids.append(np.where(run.new >= 0, run.new, run.old).astype(np.int64))
        offsets.append(run.offsets)
        signs.append((run.new >= 0).astype(np.int64) - (run.old >= 0))
        of.append(np.full(len(run.old), len(channels)))
    row, offset, sign, channel = (np.concatenate(part) for part in (ids, offsets, signs, of))
    if not len(row):
        return None
    order = np.lexsort((offset, row))
    row, offset, sign, channel = row[order], offset[order], sign[order], channel[order]
    begins = np.ones(len(row), np.bool_)
    begins[1:] = row[1:] != row[:-1]
    first = np.flatnonzero(begins)  # first event per row
    new = begins.copy()
    new[1:] |= offset[1:] != offset[:-1]
    ends = np.append(np.flatnonzero(new)[1:], len(row)) - 1  # last event per row and version
    of_row = np.cumsum(begins)[ends] - 1
    starts = np.flatnonzero(new)
    row, offset, is_first = row[starts], offset[starts], begins[starts]
    old_slot, changed_at, existed = _former(row, run, channels[0][0].table.used)
    exists = np.ones(len(row), np.bool_)
    passes_after = passes_before = np.ones(len(row), np.bool_)
    for index in range(len(channels) + (run is not None)):
        own = np.where(channel == index, sign, 0)
        total = np.cumsum(own)
        gained = total[ends] - (total[first] - own[first])[of_row]
        if index < len(channels):
            counts, _, wanted = channels[index]
            initial = counts.of(old_slot)
        else:
            initial, wanted = existed, True
        after = ((initial + gained) > 0) == wanted
        if index == len(channels):
            exists = after
        before = np.append(False, after[:-1])
        before[is_first] = ((initial > 0) == wanted)[is_first]
        passes_after, passes_before = passes_after & after, passes_before & before
    now = changed_at == offset
    emitted = np.where(now, passes_before | passes_after, passes_before != passes_after)
    before_slot = np.where(offset <= changed_at, old_slot, row)[emitted]
    after_slot = np.where(offset < changed_at, old_slot, row)[emitted]
    deleted = np.where(passes_before[emitted], before_slot, -1).astype(np.int32)
    inserted = np.where(passes_after[emitted], after_slot, -1).astype(np.int32)
    at = offset[emitted]
    if not len(at):
        return None
    if versions > 1:
        order = np.argsort(at, kind="stable")
        deleted, inserted, at = deleted[order], inserted[order], at[order]
    made = int(np.count_nonzero(emitted & (changed_at < 0) & (existed > 0) & exists))
    return Flips(Run.counted(versions, at, deleted, inserted), made)


def _former(row: Indices, run: Run | None, used: int) -> tuple[Indices, Indices, Indices]:
    """For each row: its slot before the run, the offset at which it is replaced (-1: it is not), and whether it existed before."""
    if run is None:
        return row, np.full(len(row), -1), np.ones(len(row), np.int64)
    at = _positions(run.new, row, used)
    replaced = (at >= 0) & (run.old[at] >= 0)
    old_slot = np.where(replaced, run.old[at], row).astype(np.int64)
    return old_slot, np.where(replaced, run.offsets[at], -1), np.where((at >= 0) & ~replaced, 0, 1)


def segments(runs: Sequence[Run], versions: int) -> list[tuple[int, int]]:
    """Split the versions into ranges [first, end) of offsets so that in each a slot of each run is inserted or deleted once. Greedy."""
    if versions == 1:
        return [(0, 1)]
    pairs = list[tuple[int, int]]()
    for run in runs:
        slots, offsets = np.concatenate((run.old, run.new)), np.concatenate((run.offsets, run.offsets))
        slots, offsets = slots[slots >= 0], offsets[slots >= 0]
        order = np.lexsort((offsets, slots))
        slots, offsets = slots[order], offsets[order]
        again = np.flatnonzero((slots[1:] == slots[:-1]) & (offsets[1:] != offsets[:-1]))
        pairs += zip(offsets[again + 1].tolist(), offsets[again].tolist(), strict=True)
    cuts = [0]
    for later, earlier in sorted(pairs):
        if earlier >= cuts[-1]:
            cuts.append(later)
    return list(zip(cuts, [*cuts[1:], versions], strict=True))
