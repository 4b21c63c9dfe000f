"""From where to where each row is the latest of its key, under change.

Problem: rows (key, place, slot) come and go; a row is valid from its place on until just before the next place of its key, and of several
at one place the first. Tell, for each group of changes, at which places that differs, from what to what.

    places    [p1 ........)[p2 ...)[p3 .................
              before p1 nothing, or what fills the gap

All rows are in an ordered index of (key, place …), written in place (`entries.py`). Nothing else is kept: whoever asks has the intervals in
a tree of its own.

Invariants: those of the index.
Costs (n rows): a change O(log n), and as much as rows tie at a place; memory 8 bytes a coordinate and 4 a row, full to a quarter at least.
Source: docs/design/queries.md (*As-of joins*).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.control import STORE_WORDS
from structures.core.encoding import POS_INF
from structures.core.kernel import compiled
from structures.index.indexes import Entries
from structures.ranked.changes import FILLED, PLACES, Places, Visit, change_places
from structures.ranked.entries import Changes, Rank, Ranked

NOBODY = -1


class Spans(NamedTuple):
    """Rows that are valid, with their keys, from `left` to `right`, both included."""

    key: np.ndarray
    left: np.ndarray
    right: np.ndarray
    slot: np.ndarray


class Turns(NamedTuple):
    """Places of keys, in their order within a group: who is valid there, before the group's changes and after (NOBODY), and until where."""

    group: np.ndarray
    at: np.ndarray
    before: np.ndarray
    until_before: np.ndarray
    after: np.ndarray
    until_after: np.ndarray


class Validity(Ranked):
    """See the module's head. The writer's alone."""

    def __init__(self, arity: int, rank: Rank | None, filled: bool, words: int = STORE_WORDS) -> None:
        """As `Ranked`. `filled`: what lies before the first place of a key counts as a place too, at NEG_INF, where nobody is valid."""
        super().__init__(arity, 1, rank, words)
        self._filled = filled

    def load(self, entries: Entries) -> None:
        """Fill it; it is empty. O(n log n). MemoryError: it cannot fit."""
        self.load_index(entries)

    def spans(self) -> Spans:
        """Of all rows that are valid, in order. O(n)."""
        entries = self.all_entries()
        entries = entries.take(self.firsts(entries, 2))
        keys, left = entries.coordinates[:, 0], entries.coordinates[:, 1]
        right = np.full(len(keys), POS_INF)
        followed = keys[1:] == keys[:-1]
        right[:-1][followed] = left[1:][followed] - 1
        return Spans(keys, left, right, entries.slot)

    def apply(self, changes: Changes) -> Turns:
        """Make these changes; those of a group ascend by their places. KeyError: as `Tops.apply`."""
        state = self.state()
        state[FILLED] = self._filled
        most = 2 * len(changes.signs)
        places = Places(*(np.empty(most, np.int64) for _ in range(4)))
        visit = Visit(state, np.empty(2, np.int64), places)
        slots, of, after = self.change(changes, state, compiled(change_places), (visit,))
        n = state.item(PLACES)
        found = np.full((2, n), NOBODY, np.int32)
        found[after, of] = slots
        group, at, until_before, until_after = (column[:n] for column in places)
        return Turns(group, at, found[0], until_before, found[1], until_after)

    def check(self) -> None:
        """Prove the invariants."""
        self.check_index()
