"""The period in which each row is the latest of its key, under updates.

Problem: rows (key, place, slot) come and go; a row is valid from its place to just before the next place of its key; of several rows at one
place, the first is valid. For each group of changes, report the places at which this changes, from what to what.

    places    [p1 ........)[p2 ...)[p3 .................
              before p1 nothing, or what fills the gap

All rows are in an ordered index of (key, place …), written in place (`entries.py`). Nothing else is kept: the caller keeps the intervals in
a tree of its own. Further coordinates, or words (`tries.py`), order the rows of a place.

Invariants: those of the index, and of the words.
Costs (n rows): a change O(log n), for a row of w words O(w log n); memory 8 bytes a coordinate and 4 a row, at least a quarter full.
Source: docs/design/queries.md (*As-of joins*).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from structures.core.control import STORE_WORDS
from structures.core.encoding import POS_INF
from structures.core.kernel import compiled
from structures.index.indexes import Entries, items_of
from structures.ranked import tries
from structures.ranked.changes import FILLED, POSITIONS, WORDED, Positions, Visit, change_positions
from structures.ranked.entries import RankedChanges, RankedRows
from structures.ranked.tries import NOBODY, Words, words_with

WordsOf = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Of rows at n slots where their words begin, int64[n + 1], and all of these, int64: a row's begin no other's of its place, and of two rows
that with the lesser words stands first."""


class Spans(NamedTuple):
    """Rows that are valid, with their keys, from `left` to `right`, both included."""

    key: np.ndarray
    left: np.ndarray
    right: np.ndarray
    slot: np.ndarray


class ValidityChanges(NamedTuple):
    """Places of keys, in their order within a group: the row valid there, before the group's changes and after (NOBODY: none), and until
    where."""

    group: np.ndarray
    at: np.ndarray
    before: np.ndarray
    until_before: np.ndarray
    after: np.ndarray
    until_after: np.ndarray


class Validity(RankedRows):
    """See the module's head. Only the writer uses it."""

    def __init__(self, emitted_by: int | WordsOf, filled: bool, words: int = STORE_WORDS) -> None:
        """`emitted_by`: the number of further coordinates that order the rows of a place, or words. `filled`: whether what lies before the
        first place of a key counts as a place too, at NEG_INF, where no row is valid. `words`: as `RankedRows`."""
        super().__init__(2 + emitted_by if isinstance(emitted_by, int) else tries.ARITY, 1, None, words)
        self._words_of = None if isinstance(emitted_by, int) else emitted_by
        self._filled = filled
        self._nodes = np.zeros(tries.WORDS_STATE, np.int64)
        self._no_words = tries.no_words(self._nodes)

    def load(self, entries: Entries) -> None:
        """Fill the structure, which is empty. O(n log n). MemoryError: the rows do not fit."""
        if self._words_of is not None:
            entries, self._nodes[tries.LAST] = tries.expanded(entries, *self._words_of(entries.slot))
        self.load_index(entries)

    def spans(self) -> Spans:
        """The spans of all valid rows, in order. O(n), with words O(log n) a place that has several rows."""
        entries = self.all_entries()
        if self._words_of is not None:
            entries = entries.take(entries.coordinates[:, 0] >= 0)
        entries = entries.take(self.firsts(entries, 2))
        if self._words_of is not None:
            several = np.flatnonzero(entries.coordinates[:, tries.BELOW])
            entries.slot[several] = self._find(tries.find_firsts, entries.take(several), self._no_words)
        keys, left = entries.coordinates[:, 0], entries.coordinates[:, 1]
        right = np.full(len(keys), POS_INF)
        followed = keys[1:] == keys[:-1]
        right[:-1][followed] = left[1:][followed] - 1
        return Spans(keys, left, right, entries.slot)

    def apply(self, changes: RankedChanges) -> ValidityChanges:
        """Apply these changes; those of a group ascend by their places. KeyError: as `Tops.apply`."""
        state = self.state()
        state[FILLED], state[WORDED] = self._filled, self._words_of is not None
        most = 2 * len(changes.signs)
        positions = Positions(*(np.empty(most, np.int64) for _ in range(4)))
        visit = Visit(state, np.empty(2, np.int64), positions, self._words(changes.entries))
        slots, of, after = self.change(changes, state, compiled(change_positions), (visit,))
        n = state.item(POSITIONS)
        found = np.full((2, n), NOBODY, np.int32)
        found[after, of] = slots
        group, at, until_before, until_after = (column[:n] for column in positions)
        return ValidityChanges(group, at, found[0], until_before, found[1], until_after)

    def _words(self, entries: Entries) -> Words:
        """The words of the rows that change, and of those with which they may have to be compared."""
        if self._words_of is None:
            return self._no_words
        slots = np.unique(entries.slot)
        words = words_with(slots, *self._words_of(slots), self._nodes)
        neighbours = np.unique(self._find(tries.find_neighbours, entries, words))
        if len(others := np.setdiff1d(neighbours[neighbours >= 0], slots, assume_unique=True)):
            slots = np.union1d(slots, others)
            words = words_with(slots, *self._words_of(slots), self._nodes)
        return words

    def _find(self, kernel: Any, entries: Entries, words: Words) -> np.ndarray:
        found = np.empty(len(entries.slot), np.int32)
        compiled(kernel)(self._indexes.arena.nodes, self._indexes.root(self._index), items_of(entries), words, found)
        return found

    @property
    def looked_at(self) -> int:
        """Rows, and nodes of words, visited so far for what is reported."""
        return self.steps + self._nodes.item(tries.LOOKED)

    def check(self) -> None:
        """Prove the invariants."""
        self.check_index()
        if self._words_of is not None:
            tries.check_nodes(self.all_entries())
