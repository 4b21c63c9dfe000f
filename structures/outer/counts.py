"""Rows of one side of a join and the number of partners of each, counted from the pairs that the join reports; rows without any are listed.

Problem: pairs of a join come and go, reported in the order of versions, and rows of one side come, go, and move to other slots. Report
which rows gain their first partner or lose their last one, and in which version; and the rows without a partner, at any pinned version.

    counts  by slot, the number of a row's partners; only the writer reads them. For a guessed row, some of its partners, and GUESSED
    list    a persistent list (`ordered/lists.py`) of the rows without a partner

Invariants, by which `check()` names what broke: those of the list (I1 to I4 of `ordered/tree.py`), and
    O1  a row's count is the number of its partners; for a guessed row at most that, and at least `least`
    O2  the list has exactly the rows whose count is 0

Costs (n rows): O(1) a pair, O(log n) a row that flips, comes or goes; memory 4 bytes a row, and 27 to 40 a listed row. Where the pairs are
not reported, a `Matching` (`event_tree/matching.py`) does the same without visiting them; where they are, it takes 1.7 times as long.
Source: docs/design/queries.md (*Parts*).
"""

from __future__ import annotations

import numpy as np

from structures.core.control import STORE_WORDS
from structures.core.cursor import Cursor
from structures.core.entries import Entries
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.core.reserve import SLOTS, reserve
from structures.event_tree.runs import LONELY
from structures.ordered.lists import RowList
from structures.outer.changes import (
    FEW,
    FLIPS,
    GUESSED,
    LEAST,
    NOTED,
    OPEN,
    SILENT,
    STATE_WORDS,
    Flips,
    OwnRows,
    Pairs,
    count_pairs,
    relist,
)

_END = 2**62  # after all versions of a run
_NUMBERS, _SLOTS, _MARKS = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8)
_NO_PAIRS = Pairs(_NUMBERS, _MARKS, _SLOTS)
_NO_OWN = OwnRows(_NUMBERS, _SLOTS, _NUMBERS, _SLOTS, _SLOTS, _MARKS, _NUMBERS, _SLOTS)


class PairCounts:
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile.

    A row that can have no partner has the key LONELY and any interval.
    """

    def __init__(self, least: int, words: int = STORE_WORDS) -> None:
        """`least`: a guessed row with fewer counted partners has few; must exceed what a run of several versions can remove. `words`:
        address space of the list in 8-byte words (not memory)."""
        self.list = RowList(words)
        self._counts = reserve(4 * SLOTS, np.int32)
        self._state = np.zeros(STATE_WORDS, np.int64)
        self._state[LEAST] = least
        self._own, self.few = _NO_OWN, _SLOTS  # rows with few counted partners, at the end of a run
        self._reach = 0  # slots that have had a row
        self._parts: list[Flips] = []

    @property
    def root(self) -> EntryRoot:
        """The newest version, published or not."""
        return self.list.root

    # --- writing

    def load(self, version: int, rows: Entries, partners: Entries) -> None:
        """Fill the structure, which is empty. O(n log n). MemoryError: the rows do not fit."""
        counts = counts_of(rows, partners)
        self._counts[rows.slot] = counts
        self._reach = int(rows.slot.max(initial=-1)) + 1
        self.list.load(version, rows.take(counts == 0))

    def require(self, rows: int) -> None:
        """Raise MemoryError unless a version with this number of rows certainly fits: all may flip. O(1)."""
        self.list.require(rows)

    def begin(self, own: OwnRows) -> None:
        """Begin a run of versions, which changes these rows. The caller must then pass all its pairs to `take`, and call `end`."""
        self._own, self._parts = own, []
        self._state[:FLIPS] = 0
        self._reach = max(self._reach, int(own.inserted.max(initial=-1)) + 1, int(own.moved.max(initial=-1)) + 1)

    def take(self, at: np.ndarray, is_inserted: np.ndarray, slots: np.ndarray) -> None:
        """Count pairs of these rows: int64[n], the offset of each pair's version, not below earlier ones; bool[n], whether it comes;
        int32[n], slots."""
        self._count(Pairs(at, is_inserted.view(np.uint8), np.ascontiguousarray(slots)), int(at[-1]) if len(at) else -1)

    def _count(self, pairs: Pairs, until: int) -> None:
        own = self._own
        most = len(pairs.slots) + len(own.deleted) + 2 * len(own.moved) + len(own.inserted)
        flips = Flips(np.empty(most, np.int64), np.empty(most, np.int32))
        n = compiled(count_pairs)(own, self._state, self._counts, pairs, flips, until)
        if n:
            self._parts.append(Flips(flips.at[:n], flips.slots[:n]))

    def end(self) -> Flips:
        """End the run, all of whose pairs have been counted. Returns the flips, including the rows without a partner that come and go, in
        order for each row. A row that flips twice in a version is there twice. Guessed rows with few counted partners, in `few`, must be
        counted again by `recount`."""
        self._count(_NO_PAIRS, _END)
        parts, self._parts, self._own, self.few = self._parts, [], _NO_OWN, _SLOTS
        if not parts:
            return Flips(_NUMBERS, _SLOTS)
        flips = parts[0] if len(parts) == 1 else Flips(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        if self._state[NOTED]:
            noted = flips.at == FEW
            few = np.unique(flips.slots[noted])
            self.few = few[self._counts[few] < GUESSED + self._state[LEAST]]  # without those deleted, moved, or with new partners
            flips = Flips(flips.at[~noted], flips.slots[~noted])
        return flips

    def relist(self, version: int, rows: Entries, inserted: np.ndarray) -> None:
        """Update the list to the version by the flips (bool[n]: whether a row now has no partner). KeyError: a row to be removed is not
        there, and the structure is damaged."""
        self.list.begin(version)
        arena = self.list.arena
        if missing := compiled(relist)(arena.nodes, arena.writing, rows, inserted.view(np.uint8)):
            raise KeyError(f"{missing} rows that were to go are not there")

    def replace(self, rows: Entries, partners: Entries) -> np.ndarray:
        """Count all rows again. Returns bool[n]: which have no partner. O(n log n)."""
        counts = counts_of(rows, partners)
        self._counts[rows.slot] = counts
        return counts == 0

    def overrule(self, slot: int, count: int, is_all: bool) -> None:
        """Between `begin` and `end`, set the number of partners of a row that the first version inserts and whose pairs are not
        reported; unless `is_all`, the row is guessed."""
        self._count(_NO_PAIRS, 0)
        self._counts[slot] = OPEN + count + (0 if is_all else GUESSED)

    def recount(self, slot: int, count: int, is_all: bool) -> bool:
        """After a run, set the number of partners of a row in `few`; unless `is_all`, it has more than `count`, which is not below `least`.
        Returns whether it has none, and so flips."""
        self._counts[slot] = count + (0 if is_all else GUESSED)
        self._state[FLIPS] += not count
        return not count

    def reclaim(self, oldest: int, pins: np.ndarray, most: int) -> bool:
        """As `Versioned.reclaim`."""
        return self.list.reclaim(oldest, pins, most)

    # --- reading

    def rows(self, root: EntryRoot, key: int | None = None, window: tuple[int, int] | None = None) -> Cursor:
        """The rows of a version without a partner: all, or those of a key, that meet the closed window."""
        return self.list.rows(root, key, window)

    def holds(self, root: EntryRoot, rows: Entries) -> np.ndarray:
        """bool[n]: which of these rows have no partner. O(log n) each."""
        return self.list.holds(root, rows)

    def count(self, root: EntryRoot) -> int:
        """The number of rows without a partner. O(1)."""
        return root.counts[0]

    def entries(self, root: EntryRoot) -> int:
        return root.counts[0]

    @property
    def flips(self) -> int:
        """Rows that gained their first partner or lost their last one, in all changes so far."""
        return int(self._state[FLIPS])

    @property
    def steps(self) -> int:
        """0: all counted pairs have been visited by the join."""
        return 0

    @property
    def bytes(self) -> int:
        return self.list.live_bytes + self._counts.itemsize * self._reach

    def guessed(self, rows: Entries) -> np.ndarray:
        """bool[n]: which of these rows have, as far as is known, more partners than are counted."""
        return self._counts[rows.slot] >= GUESSED

    def check(self, rows: Entries, partners: Entries, others: tuple[EntryRoot, ...] = ()) -> None:
        """Prove the invariants of the newest version, given all its rows and partners, and that no block is lost, given the other roots in
        use."""
        self.list.check(self.list.root, others)
        wanted, counted = counts_of(rows, partners), self._counts[rows.slot]
        some = self.guessed(rows)
        assert (counted[~some] == wanted[~some]).all(), "O1: a row's count"
        guessed = counted[some] - GUESSED
        assert (guessed >= self._state[LEAST]).all(), "O1: few partners are counted of a guessed row"
        assert (guessed <= wanted[some]).all(), "O1: a row has fewer partners than are counted"
        held = self.list.holds(self.list.root, rows)
        assert (held == (wanted == 0)).all(), "O2: a row is listed that has a partner, or one is not that has none"
        assert np.count_nonzero(held) == self.list.root.counts[0], "O2: a row is listed that is not there"


def counts_of(rows: Entries, partners: Entries) -> np.ndarray:
    """int64[n]: the number of partners of each row: intervals that begin up to its end, less those that end before it begins. O(n log
    n)."""
    begun = _before(partners.key, partners.left, rows.key, rows.right, True)
    counts = begun - _before(partners.key, partners.right, rows.key, rows.left, False)
    counts[rows.key == LONELY] = 0
    return counts


def _before(keys: np.ndarray, positions: np.ndarray, of_keys: np.ndarray, of_positions: np.ndarray, or_there: bool) -> np.ndarray:
    """int64[n]: how many of the first (key, place) are before each of the others, or at it too (`or_there`). By sorting all, which needs no
    reserved address space."""
    both = [(keys, positions), (of_keys, of_positions)]
    all_keys, all_positions = (np.concatenate(columns) for columns in zip(*(both if or_there else both[::-1]), strict=True))
    order = np.lexsort((all_positions, all_keys))
    is_first = order < len(keys) if or_there else order >= len(of_keys)
    ranks = np.empty(len(of_keys), np.int64)
    ranks[order[~is_first] - (len(keys) if or_there else 0)] = np.cumsum(is_first)[~is_first]
    return ranks


__all__ = ["SILENT", "Flips", "OwnRows", "PairCounts"]
