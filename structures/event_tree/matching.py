"""The rows of one set of intervals that meet an interval of another, under updates: for semi, anti and outer joins.

Problem: rows and partners, closed intervals with an int32 key, come and go. Report the rows that gain their first partner or lose their
last one, at the cost of these rows and not of all that a partner meets; and the rows with a partner, and those without, at any pinned
version.

    matched      ROWs in an event tree (`tree.py`), which only the writer reads; if matched rows are reported, in a list too
    unmatched    a persistent list (`ordered/lists.py`)

When a partner comes, the unmatched rows that it meets become matched. When it goes, its events are removed, then dead rows until none is
left. In a join of a set with itself that leaves out each row with itself, a row is its own partner: one partner counts as none.

Invariants, by which `check()` names what broke: those of the tree, including E4, and of the lists (I1 to I4 of `ordered/tree.py`)
    M1  no unmatched row meets a partner; the list of matched rows has those of the tree

Costs (n rows and partners): a change O(log n), and O(log n) for each row that it flips; memory 27 to 40 bytes an unmatched row, 24 to 48 a
matched row (twice, if they are reported), twice that a partner. Source: docs/design/queries.md (*Parts*).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.control import STORE_WORDS
from structures.core.cursor import Cursor
from structures.core.entries import NO_ENTRIES, Entries, room_for
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.core.runs import MISSING, Deltas, gather
from structures.event_tree.check import check_events
from structures.event_tree.layout import ROW
from structures.event_tree.runs import BASE, EMITS_MATCHED, FLIPS, HITS, LONELY, SEARCH, STATE_WORDS, Lists, Moves, Scratch, run_moves
from structures.event_tree.tree import EventTree
from structures.ordered.lists import RowList
from structures.ordered.search import STEPS
from structures.ordered.whole import read_all

CHUNK = 1 << 16  # rows reported at once


class MatchRoot(NamedTuple):
    """A version: plain data, valid as long as it is pinned. `matched`: of a Matching that reports matched rows."""

    unmatched: EntryRoot
    matched: EntryRoot


class Matching:
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile.

    A row that can have no partner has the key LONELY and any interval.
    """

    def __init__(self, emits_matched: bool, itself: bool, words: int = STORE_WORDS) -> None:
        """`emits_matched`: whether the matched rows are reported, or the unmatched ones. `itself`: each row is its own partner, at the same
        slot, which does not count. `words`: address space of each tree in 8-byte words (not memory)."""
        self.emits_matched, self._itself = emits_matched, itself
        self.tree = EventTree(words)
        self.unmatched = RowList(words)
        self.matched = RowList(words if emits_matched else 1 << 16)
        stores = self.unmatched.arena, self.matched.arena
        self._lists = Lists(*(part for store in stores for part in (store.nodes, store.writing)))
        self._Z = np.zeros(STATE_WORDS, np.int64)
        self._Z[BASE], self._Z[EMITS_MATCHED] = itself, emits_matched
        self._scratch = Scratch(self._Z, np.empty(HITS, np.int32), np.empty(2 * HITS, np.int64))
        self._out = np.empty((1, CHUNK + HITS), np.int32)

    @property
    def root(self) -> MatchRoot:
        """The newest version, published or not."""
        return MatchRoot(self.unmatched.root, self.matched.root)

    # --- writing

    def load(self, version: int, rows: Entries, partners: Entries) -> None:
        """Fill the structure, which is empty. O(n log n). MemoryError: the rows do not fit."""
        self.tree.load(partners, NO_ENTRIES)
        has = (rows.key != LONELY) & (self.tree.count(rows) > self._Z[BASE])
        matched = rows.take(has)
        self.unmatched.load(version, rows.take(~has))
        self.tree.load(partners, matched)
        if self.emits_matched:
            self.matched.load(version, matched)

    def require(self, rows: int, partners: int) -> None:
        """Raise MemoryError unless a version certainly fits that has at most these numbers of rows and partners: a change may flip all.
        O(1)."""
        self.tree.require(rows + 2 * partners)
        self.unmatched.require(rows)
        if self.emits_matched:
            self.matched.require(rows)

    def apply(self, version: int, moves: Moves, limit: int | None) -> Deltas:
        """Apply these changes one after another, as `version`. Each reports its delta relative to the state left by the changes before it:
        slots of rows that come, ~slots of rows that go. The changes of a version must be in the order of the kinds of `runs.py`, or of
        `STEPS_UNMATCHED` there.

        Deltas of more than `limit` rows that fill more than a chunk are abandoned; None: no deltas are reported. KeyError: a row to be
        deleted is not there, and the structure is damaged. MemoryError, TypeError, ValueError: nothing was done.
        """
        moves.require()
        self.unmatched.begin(version)
        self.matched.begin(version)

        def go_on(end: int, emitted: bool) -> int:
            part = moves if end == len(moves.kind) else Moves(*(column[:end] for column in moves))
            return int(compiled(run_moves)(self.tree.arrays, self._lists, self._scratch, self._out[0], part, emitted))

        deltas = gather(self._Z, moves.done, self._out, go_on, limit)
        if missing := int(self._Z[MISSING]):
            raise KeyError(f"{missing} rows or partners that were to go are not there")
        return deltas

    def reclaim(self, oldest: int, pins: np.ndarray, most: int) -> bool:
        """As `Versioned.reclaim`."""
        return self.unmatched.reclaim(oldest, pins, most) or self.matched.reclaim(oldest, pins, most)

    # --- reading

    def rows(self, root: MatchRoot, key: int | None = None, window: tuple[int, int] | None = None) -> Cursor:
        """The reported rows of a version: all, or those of a key, that meet the closed window."""
        return self.matched.rows(root.matched, key, window) if self.emits_matched else self.unmatched.rows(root.unmatched, key, window)

    def holds(self, root: MatchRoot, rows: Entries) -> np.ndarray:
        """bool[n]: which of these rows are among the reported rows of a version. O(log n) each."""
        return self.matched.holds(root.matched, rows) if self.emits_matched else self.unmatched.holds(root.unmatched, rows)

    def count(self, root: MatchRoot) -> int:
        """The number of reported rows. O(1)."""
        return (root.matched if self.emits_matched else root.unmatched).counts[0]

    def entries(self, root: MatchRoot) -> int:
        """Events of the newest version, and rows in the lists of a version."""
        return self.tree.events + root.unmatched.counts[0] + root.matched.counts[0]

    @property
    def flips(self) -> int:
        """Rows that gained their first partner or lost their last one, in all changes so far."""
        return int(self._Z[FLIPS])

    @property
    def steps(self) -> int:
        """Nodes and entries visited for unmatched rows that a partner meets, and rows that flipped, so far."""
        return int(self._Z[SEARCH + STEPS] + self._Z[FLIPS])

    @property
    def bytes(self) -> int:
        return self.tree.bytes + self.unmatched.live_bytes + self.matched.live_bytes

    def check(self, others: tuple[MatchRoot, ...] = ()) -> None:
        """Prove the invariants of the newest version, and that no block is lost, given the other roots in use."""
        self.unmatched.check(self.unmatched.root, tuple(root.unmatched for root in others))
        self.matched.check(self.matched.root, tuple(root.matched for root in others))
        events = check_events(self.tree.arrays)
        mine = sorted(event[3] for event in events if event[2] == ROW)
        assert not self.emits_matched or mine == sorted(_all(self.matched).slot.tolist()), "M1: the list of matched rows"
        rows = room_for(len(mine))
        found = [(key, at, value, slot) for key, at, rank, slot, value in events if rank == ROW]
        columns = np.array(found, np.int64).reshape(-1, 4).T
        for column, values in zip((rows.key, rows.left, rows.right, rows.slot), columns, strict=True):
            column[:] = values
        assert (self.tree.count(rows) > self._itself).all(), "E4: a row in the tree is dead"
        alone = _all(self.unmatched)
        alone = alone.take(alone.key != LONELY)
        assert (self.tree.count(alone) <= self._itself).all(), "M1: an unmatched row has a partner"


def _all(rows: RowList) -> Entries:
    entries = room_for(rows.root.counts[0])
    compiled(read_all)(rows.arena.nodes, rows.arena.C, entries)
    return entries


__all__ = ["LONELY", "MatchRoot", "Matching", "Moves"]
