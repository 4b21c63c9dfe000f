"""What a batch did to one relation, as a view takes it: rows that go, rows that come, and rows that only move to another slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Slots

_NO_INDICES, _FIRST = np.empty(0, np.int64), np.zeros(1, np.int64)


class Moved(NamedTuple):
    """Of one alias: rows that were replaced, as pairs of old and new slots."""

    old: Slots
    new: Slots


NOTHING_MOVED = Moved(NO_SLOTS, NO_SLOTS)


class Watched(Protocol):
    """A relation, and the columns by which one of its rows differs from another of the same key."""

    @property
    def relation(self) -> Relation: ...

    @property
    def varying(self) -> list[str]: ...


class Change:
    """Slots of a relation's rows that go (`deletes`, the replaced ones first, in the order of their inserts) and come, in its table by now.

    `previous`: of each inserted row the slot of the one that it replaces, or -1; `replacing`: the indices of those inserts that replace a
    row; `moved`: the slots of these rows, before and after.
    """

    def __init__(self, deletes: Slots, previous: Slots, new_slots: Slots) -> None:
        self.deletes, self.new_slots = deletes, new_slots
        self.replacing, self.moved = _NO_INDICES, NOTHING_MOVED
        if len(deletes) == len(previous) == 1 and previous[0] >= 0:
            self.replacing, self.moved = _FIRST, Moved(deletes, new_slots)
        elif len(deletes):
            self.replacing = np.flatnonzero(previous >= 0)
            self.moved = Moved(deletes[: len(self.replacing)], new_slots[self.replacing])


class Half(Change):
    """What goes of a change, and what only moves; or what comes: for joins that are told the one before the other.

    `followed` as in `parted`, for both halves alike.
    """

    def __init__(self, change: Change, come: bool, followed: bool) -> None:
        self.deletes, self.new_slots = change.deletes, change.new_slots
        self.replacing, self.moved = change.replacing, change.moved
        self.come, self.followed = come, followed


class Singles(NamedTuple):
    """Changes of one relation, each a version of its own: number offsets[i] of a run takes the row at old[i] away and puts the one at
    new[i], already in the table; -1 for none. All of different keys; offsets ascend."""

    offsets: npt.NDArray[np.int64]
    old: Slots
    new: Slots

    def moved(self, offset: int) -> Moved:
        """The row that change number `offset` replaced, if it did."""
        at = int(np.searchsorted(self.offsets, offset))
        if at == len(self.offsets) or self.offsets[at] != offset or self.old[at] < 0 or self.new[at] < 0:
            return NOTHING_MOVED
        return Moved(self.old[at : at + 1], self.new[at : at + 1])


def one_by_one(singles: Mapping[str, Singles]) -> Iterator[tuple[int, dict[str, Change]]]:
    """The same changes in their order, each for itself."""
    rows = [(offset, name, old, new) for name, single in singles.items() for offset, old, new in zip(*single, strict=True)]
    for offset, name, old, new in sorted(rows):
        gone, come = (np.array([slot] if slot >= 0 else [], np.int32) for slot in (old, new))
        yield int(offset), {name: Change(gone, np.array([old], np.int32)[: len(come)], come)}


class Parted(NamedTuple):
    """A change as one alias takes it: slots that go, slots that come, and pairs of slots of a row that stays what it is."""

    old: Slots
    new: Slots
    before: Slots
    after: Slots


class PartedSingles(NamedTuple):
    """The same of single changes: which of them take a row away, put one, or only move a row that stays what it is."""

    gone: npt.NDArray[np.int64]
    come: npt.NDArray[np.int64]
    moved: npt.NDArray[np.int64]


def parted_singles(side: Watched, single: Singles, followed: bool) -> PartedSingles:
    """`followed` as in `parted`."""
    _, old, new = single
    had, came = old >= 0, new >= 0
    both = np.flatnonzero(had & came) if followed else _NO_INDICES
    if len(both):
        both = both[side.relation.table.same(side.varying, old[both], new[both])]
        had[both] = came[both] = False
    return PartedSingles(np.flatnonzero(had), np.flatnonzero(came), both)


def parted(side: Watched, change: Change, followed: bool) -> Parted:
    """`followed`: rows replaced by one that is equal in all that the view uses are told apart; else they go and come like others."""
    if isinstance(change, Half):
        part = _parted(side, change, change.followed)
        return Parted(NO_SLOTS, part.new, NO_SLOTS, NO_SLOTS) if change.come else part._replace(new=NO_SLOTS)
    return _parted(side, change, followed)


def _parted(side: Watched, change: Change, followed: bool) -> Parted:
    old, new = change.deletes, change.new_slots
    same = _unchanged(side, change) if followed and len(old) else None
    if same is None:
        return Parted(old, new, NO_SLOTS, NO_SLOTS)
    old_indices, new_indices = same
    return Parted(np.delete(old, old_indices), np.delete(new, new_indices), old[old_indices], new[new_indices])


def _unchanged(side: Watched, change: Change) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Indices, in the deletes and in the inserts, of the rows that were replaced by one equal in all that the view uses."""
    moved = change.moved
    if len(moved.old) == 0:
        return None
    equal = side.relation.table.same(side.varying, moved.old, moved.new)
    if not equal.any():
        return None
    same = np.flatnonzero(equal)
    return same, change.replacing[same]
