"""Partners, counted by slot, and the rows that come or go by them in a run of versions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from service.tables.changes import Run
from service.tables.resolution import Indices, Slots
from service.tables.store import Table

_NOTHING: Indices = np.empty(0, np.int64)


class Events:
    """What a count gains and loses in a run: slots, offsets of versions, signs."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, Slots]] = []

    def note(self, offset: int, come: bool, slots: Slots) -> None:
        if len(slots):
            self._parts.append((offset, 1 if come else -1, slots))

    def arrays(self) -> tuple[Indices, Indices, Indices]:
        """int64[n] each: slots, offsets, signs."""
        if not self._parts:
            return _NOTHING, _NOTHING, _NOTHING
        lengths = [len(slots) for _, _, slots in self._parts]
        slots = np.concatenate([slots for _, _, slots in self._parts]).astype(np.int64)
        return slots, np.repeat([offset for offset, _, _ in self._parts], lengths), np.repeat([sign for _, sign, _ in self._parts], lengths)


class Counts:
    """int64 by slot of a table: 0 where there is no row."""

    def __init__(self, table: Table) -> None:
        self.table = table
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

    def follow(self, events: Events, run: Run | None) -> int:
        """Come to the end of a run; `run`: of the table's rows, whose counts move from slot to slot. How many counts became zero or not."""
        counts = self._reach(self.table.used)
        slots, _, signs = events.arrays()
        if run is not None:
            both = (run.old >= 0) & (run.new >= 0)
            counts[run.new[both]] = counts[run.old[both]]
            counts[run.old[both]] = 0
            slots = _moved(slots, run)
        touched = np.unique(slots)
        before = counts[touched] > 0
        np.add.at(counts, slots, signs)
        return int(np.count_nonzero(before != (counts[touched] > 0)))

    @property
    def bytes(self) -> int:
        return self._counts.nbytes


def _moved(slots: Indices, run: Run) -> Indices:
    """A row that is replaced is one row: what is told of its old slot counts for the new one."""
    both = np.flatnonzero((run.old >= 0) & (run.new >= 0))
    if not len(both) or not len(slots):
        return slots
    old, new = run.old[both], run.new[both]
    order = np.argsort(old)
    at = order[np.minimum(np.searchsorted(old, slots, sorter=order), len(old) - 1)]
    return np.where(old[at] == slots, new[at], slots).astype(np.int64)


Channel = tuple[Counts, Events, bool]
"""Partners, what they gain and lose in the run, and whether a row is to have some, or none."""


def flips(channels: Sequence[Channel], run: Run | None, versions: int) -> Run | None:
    """The changes of those rows that pass all tests, as a run; None: there are none. `run`: the changes of their relation.

    A row counts as one from its old to its new slot. By row and version: what it is after the changes before, and after those of the
    version. Cost: a sort of the events.
    """
    ids, offsets, signs, of = [_NOTHING], [_NOTHING], [_NOTHING], [_NOTHING]
    for number, (_, events, _) in enumerate(channels):
        slots, at, sign = events.arrays()
        ids.append(slots if run is None else _moved(slots, run))
        offsets.append(at)
        signs.append(sign)
        of.append(np.full(len(slots), number))
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
    first = np.flatnonzero(begins)  # of each row
    new = begins.copy()
    new[1:] |= offset[1:] != offset[:-1]
    ends = np.append(np.flatnonzero(new)[1:], len(row)) - 1  # of each row and version, its last event
    of_row = np.cumsum(begins)[ends] - 1
    starts = np.flatnonzero(new)
    row, offset, is_first = row[starts], offset[starts], begins[starts]
    old_slot, changed_at, existed = _former(row, run)
    passes_after = passes_before = np.ones(len(row), np.bool_)
    for number in range(len(channels) + (run is not None)):
        own = np.where(channel == number, sign, 0)
        total = np.cumsum(own)
        gained = total[ends] - (total[first] - own[first])[of_row]
        if number < len(channels):
            counts, _, wanted = channels[number]
            initial = counts.of(old_slot)
        else:
            initial, wanted = existed, True
        after = ((initial + gained) > 0) == wanted
        before = np.append(False, after[:-1])
        before[is_first] = ((initial > 0) == wanted)[is_first]
        passes_after, passes_before = passes_after & after, passes_before & before
    now = changed_at == offset
    told = np.where(now, passes_before | passes_after, passes_before != passes_after)
    before_slot = np.where(offset <= changed_at, old_slot, row)[told]
    after_slot = np.where(offset < changed_at, old_slot, row)[told]
    gone = np.where(passes_before[told], before_slot, -1).astype(np.int32)
    come = np.where(passes_after[told], after_slot, -1).astype(np.int32)
    at = offset[told]
    if not len(at):
        return None
    order = np.argsort(at, kind="stable")
    gone, come, at = gone[order], come[order], at[order]
    return Run(versions, at, gone, come, int(np.count_nonzero(gone >= 0)) + int(np.count_nonzero(come >= 0)))


def _former(row: Indices, run: Run | None) -> tuple[Indices, Indices, Indices]:
    """Of each row its slot before the run, the offset at which it is replaced (-1: it is not), and whether it existed before."""
    old_slot, changed_at, existed = row.copy(), np.full(len(row), -1), np.ones(len(row), np.int64)
    if run is None:
        return old_slot, changed_at, existed
    come = np.flatnonzero(run.new >= 0)
    if len(come):
        order = come[np.argsort(run.new[come])]
        at = order[np.minimum(np.searchsorted(run.new[order], row), len(order) - 1)]
        mine = run.new[at] == row
        replaced = mine & (run.old[at] >= 0)
        old_slot = np.where(replaced, run.old[at], row)
        changed_at = np.where(replaced, run.offsets[at], -1)
        existed = np.where(mine & ~replaced, 0, 1)
    return old_slot.astype(np.int64), changed_at, existed


def segments(runs: Sequence[Run], versions: int) -> list[tuple[int, int]]:
    """Offsets [first, end) into which the versions fall so that in each a slot of each of these runs comes or goes once. Greedy."""
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


def sliced(run: Run, first: int, end: int) -> Run:
    """Of a run the versions [first, end)."""
    if first == 0 and end >= run.versions:
        return run
    start, stop = np.searchsorted(run.offsets, (first, end)).tolist()
    old, new = run.old[start:stop], run.new[start:stop]
    return Run(end - first, run.offsets[start:stop] - first, old, new, int(np.count_nonzero(old >= 0)) + int(np.count_nonzero(new >= 0)))
