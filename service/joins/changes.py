"""What a batch did to one relation, as a view takes it: rows that go, rows that come, and rows that only move to another slot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.deltas import Moved
from service.resolution import NO_SLOTS, Resolved, Slots
from service.sides import Side

_NO_PLACES = np.empty(0, np.int64)
NOTHING_MOVED = Moved(NO_SLOTS, NO_SLOTS)


class Change:
    """The resolved changes of a relation, applied to its table, and the slots of the inserted rows.

    `replacing`: the places of those inserts that replace a row; `moved`: the slots of these rows, before and after.
    """

    def __init__(self, resolved: Resolved, new_slots: Slots) -> None:
        self.resolved = resolved
        self.new_slots = new_slots
        self.replacing, self.moved = _NO_PLACES, NOTHING_MOVED
        if len(resolved.deletes):
            self.replacing = np.flatnonzero(resolved.previous >= 0)
            self.moved = Moved(resolved.deletes[: len(self.replacing)], new_slots[self.replacing])


class Parted(NamedTuple):
    """A change as one alias takes it: slots that go, slots that come, and pairs of slots of a row that stays what it is."""

    old: Slots
    new: Slots
    before: Slots
    after: Slots


def parted(side: Side, change: Change, followed: bool) -> Parted:
    """`followed`: rows replaced by one that is equal in all that the view uses are told apart; else they go and come like others."""
    old, new = change.resolved.deletes, change.new_slots
    same = _unchanged(side, change) if followed and len(old) else None
    if same is None:
        return Parted(old, new, NO_SLOTS, NO_SLOTS)
    old_places, new_places = same
    return Parted(np.delete(old, old_places), np.delete(new, new_places), old[old_places], new[new_places])


def _unchanged(side: Side, change: Change) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Places, in the deletes and in the inserts, of the rows that were replaced by one equal in all that the view uses."""
    moved = change.moved
    if len(moved.old) == 0:
        return None
    same = np.flatnonzero(side.relation.table.same(side.varying, moved.old, moved.new))
    return (same, change.replacing[same]) if len(same) else None
