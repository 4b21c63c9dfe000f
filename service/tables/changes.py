"""The changes that a run of versions makes in one relation, in the form that views take.

A batch is a run of one version; single changes that the writer applies together are a run of one version each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Indices, Slots
from structures.core import entries

# The order in which a structure takes the entries of one version.
LEAVE, ENTER, DELETE, INSERT = range(4)
SIGNS = np.array([entries.LEAVE, entries.ENTER, entries.DELETE, entries.INSERT], np.int8)  # by kind, as the structures encode it

_NO_INDICES: Indices = np.empty(0, np.int64)
_FIRST: Indices = np.zeros(1, np.int64)  # never written to


class Run:
    """Changed rows of a relation, already in its table, over `versions` consecutive versions.

    old, new   int32[n]: change i removes the row at old[i] and adds the one at new[i]; -1 for none. All of different keys
    offsets    int64[n], ascending, from 0 to versions - 1: the version of each change
    """

    __slots__ = ("versions", "offsets", "old", "new", "rows")

    def __init__(self, versions: int, offsets: Indices, old: Slots, new: Slots, rows: int) -> None:
        """`rows`: how many rows are removed and added (`counted` finds out)."""
        self.versions, self.offsets, self.old, self.new, self.rows = versions, offsets, old, new, rows

    @classmethod
    def counted(cls, versions: int, offsets: Indices, old: Slots, new: Slots) -> Run:
        """Return the run of these changes."""
        if len(old) == 1:
            return cls(versions, offsets, old, new, int(old[0] >= 0) + int(new[0] >= 0))
        return cls(versions, offsets, old, new, int(np.count_nonzero(old >= 0)) + int(np.count_nonzero(new >= 0)))

    @property
    def replaced(self) -> AliasChanges:
        """The rows that are replaced, and their replacements."""
        if len(self.old) == 1:
            return AliasChanges(self.offsets, self.old, self.new) if self.old[0] >= 0 and self.new[0] >= 0 else NOTHING
        both = (self.old >= 0) & (self.new >= 0)
        return AliasChanges(self.offsets[both], self.old[both], self.new[both])


def inserting(run: Run) -> Run:
    """Return the rows that a run of one version adds, as if they replaced none."""
    inserted = run.new[run.new >= 0]
    return Run(1, np.zeros(len(inserted), np.int64), np.full(len(inserted), -1, np.int32), inserted, len(inserted))


def apart(run: Run) -> Run:
    """Return a run of one version in which no row replaces another: all removed rows first, then all added ones."""
    deleted, inserted = run.old[run.old >= 0], run.new[run.new >= 0]
    old, new = np.full(len(deleted) + len(inserted), -1, np.int32), np.full(len(deleted) + len(inserted), -1, np.int32)
    old[: len(deleted)], new[len(deleted) :] = deleted, inserted
    return Run(1, np.zeros(len(old), np.int64), old, new, run.rows)


def batch_run(previous: Slots, deletes: Slots, inserted: Slots) -> Run:
    """Return a run of one version: it adds the rows at `inserted`, which replace those at `previous` (int32[come]; -1: none), and deletes
    those of `deletes` after the replaced ones."""
    deleted = deletes
    if len(deleted):
        replaced = int(previous[0] >= 0) if len(previous) == 1 else np.count_nonzero(previous >= 0)
        deleted = deletes[replaced:]
    if not len(deleted):
        old, new = previous, inserted
    else:
        none = np.full(len(deleted), -1, np.int32)
        old, new = (np.concatenate((previous, deleted)), np.concatenate((inserted, none))) if len(inserted) else (deleted, none)
    offsets = _FIRST if len(old) == 1 else np.zeros(len(old), np.int64)
    return Run(1, offsets, old, new, len(deletes) + len(inserted))


Runs = Mapping[str, Run]
"""By relation; all over the same versions."""


def versions_of(runs: Runs) -> int:
    for run in runs.values():
        return run.versions
    return 1


def by_version(runs: Runs) -> Iterator[tuple[int, Runs]]:
    """Yield each version that changes something, as a run of its own: its number in `runs`, and the changes."""
    if versions_of(runs) == 1:
        yield 0, runs
        return
    changes = [(offset, name, at) for name, run in runs.items() for at, offset in enumerate(run.offsets.tolist())]
    for offset, some in groupby(sorted(changes), key=itemgetter(0)):
        of: dict[str, list[int]] = {}
        for _, name, at in some:  # contiguous: the offsets of a run ascend
            of.setdefault(name, []).append(at)
        yield offset, {name: _these(runs[name], at[0], at[-1] + 1) for name, at in of.items()}


def _these(run: Run, first: int, end: int) -> Run:
    """Return changes number `first` to `end`, all of one version, as a run of that version."""
    return Run.counted(1, _FIRST if end - first == 1 else np.zeros(end - first, np.int64), run.old[first:end], run.new[first:end])


def of_versions(runs: Runs, first: int, end: int) -> Runs:
    """Return the versions with these numbers, renumbered from 0, of the relations that change in them."""
    if first == 0 and end == versions_of(runs):
        return runs
    found = {}
    for name, run in runs.items():
        low, high = np.searchsorted(run.offsets, (first, end)).tolist()
        if low < high:
            found[name] = Run.counted(end - first, run.offsets[low:high] - first, run.old[low:high], run.new[low:high])
    return found


class WatchedRelation(Protocol):
    """A relation, and the columns in which its rows with the same key may differ."""

    @property
    def relation(self) -> Relation: ...

    @property
    def varying(self) -> list[str]: ...


class AliasChanges(NamedTuple):
    """Changes of one sort for an alias: the offset of each one's version, and its slots before and after (if any)."""

    offsets: Indices
    old: Slots
    new: Slots

    def only(self, chosen: npt.NDArray[np.bool_] | Indices | None) -> AliasChanges:
        """Return some of them; None: all."""
        return self if chosen is None else AliasChanges(self.offsets[chosen], self.old[chosen], self.new[chosen])


class DividedRun(NamedTuple):
    """A run divided for one alias: deleted rows, inserted rows, and unchanged rows that only move to another slot."""

    deleted: AliasChanges
    inserted: AliasChanges
    moved: AliasChanges


NOTHING = AliasChanges(_NO_INDICES, NO_SLOTS, NO_SLOTS)


def parted(input: WatchedRelation, run: Run, followed: bool) -> DividedRun:
    """`followed`: rows replaced by one with the same values in all columns that the view uses count as moved; otherwise as deleted and
    inserted."""
    whole = AliasChanges(run.offsets, run.old, run.new)
    if len(run.old) == 1:
        had, came = run.old[0] >= 0, run.new[0] >= 0
        if had and came and followed and input.relation.table.same(input.varying, run.old, run.new)[0]:
            return DividedRun(NOTHING, NOTHING, whole)
        return DividedRun(whole if had else NOTHING, whole if came else NOTHING, NOTHING)
    had, came = run.old >= 0, run.new >= 0
    moved = np.flatnonzero(had & came) if followed else _NO_INDICES
    if len(moved):
        moved = moved[input.relation.table.same(input.varying, run.old[moved], run.new[moved])]
        had[moved] = came[moved] = False
    return DividedRun(whole.only(had), whole.only(came), whole.only(moved) if len(moved) else NOTHING)


def order_of(offsets: Indices, steps: npt.NDArray[Any], *within: npt.NDArray[Any]) -> Indices:
    """Return the order in which a structure takes entries, given each one's version offset and step (0 or more): by version, then by step,
    and within a step as given, or by the columns `within`, the first of them first. Cost: a sort, and one for each column."""
    if len(offsets) < 2:
        return np.arange(len(offsets))
    ticks = offsets * (int(steps.max()) + 1) + steps
    if not within:
        return np.argsort(ticks, kind="stable")
    order = np.argsort(within[0]) if len(within) == 1 else np.lexsort(within[::-1])
    return order[np.argsort(ticks[order], kind="stable")]


class InOrder(NamedTuple):
    """n entries in order: their kinds (LEAVE, ENTER, DELETE, INSERT), the offsets of their versions, and their places among the parts."""

    kinds: Indices
    offsets: Indices
    order: Indices


def in_order(parts: Sequence[tuple[int, Indices]]) -> InOrder:
    """Order the entries of these parts, (kind, offset of each), concatenated, as a structure takes them: by version, then by kind, then as
    given."""
    lengths = np.array([len(offsets) for _, offsets in parts], np.int64)
    kinds = np.repeat(np.array([kind for kind, _ in parts], np.int64), lengths)
    offsets = np.concatenate([_NO_INDICES, *(offsets for _, offsets in parts)])
    order = order_of(offsets, kinds)
    return InOrder(kinds[order], offsets[order], order)
