"""The pairs of two sets of intervals that meet, and the rows of either that meet none, under updates: LEFT and FULL JOIN.

Problem: outer rows and partners, closed intervals with an int32 key, come and go; tell the pairs that meet, and the rows of one set or of
both that are in none: all of them at any version that is pinned, and the exact change that an update causes.

    pairs    an interval tree (`interval/tree.py`): one set has the outer rows, the other one the partners
    alone    of each set that is told: a persistent list of the rows without a partner (`event_tree/lists.py`)
    counts   of each set that is told: by slot, how many partners a row has; the writer alone reads them

All that a change meets is in its delta, so partners are counted for the price of the delta. Where the pairs are not told, as by NOT EXISTS,
a `Matching` does not visit them.

Invariants, by which `check()` names what broke: those of the tree and of the lists, and
    O1  a row's count is the number of its partners; one that is not counted has some
    O2  the list of a set has just its rows whose count is 0, and those that can have no partner

Costs (n rows and partners): a change O(log n), O(1) a pair that comes or goes, and O(log n) a row that gains its first partner or loses its
last one (`changes.py` has the details); reading as an interval tree; memory that of an interval tree, 4 bytes a row of a set that is told,
and 27 to 40 a row that is alone. Source: docs/design/queries.md (*Parts*).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from structures.core.arena import B
from structures.core.compaction import LOOKED_AT
from structures.core.control import STORE_WORDS, VERSION
from structures.core.entries import NO_ENTRIES, Entries, room_for
from structures.core.entry_tree import Root
from structures.core.kernel import compiled
from structures.core.reserve import SLOTS, reserve
from structures.core.runs import MISSING, Deltas, gather
from structures.event_tree.lists import RowList
from structures.event_tree.runs import LONELY, Moves
from structures.event_tree.tree import EventTree
from structures.interval.tree import IntervalTree
from structures.ordered.compaction import compact
from structures.ordered.search import STEPS
from structures.ordered.whole import read_all
from structures.outer.changes import (
    FLIPS,
    HITS,
    MOST,
    OTHER,
    OUT_LINES,
    OUTER_SET,
    SEARCH,
    SPARE,
    STATE_WORDS,
    UNCOUNTED,
    Alone,
    Scratch,
    run_moves,
)

CHUNK = 1 << 16  # rows told at once
MANY = 1 << 16  # partners of a row that are counted if nobody is told of them
T = TypeVar("T")


class OuterTree:
    """See the module's head. One thread writes; any number read roots of pinned versions, of `pairs` and of `alone`, meanwhile.

    A row that can have no partner has the key LONELY and any interval; of a set that is not told there is none.
    """

    def __init__(self, pairs: IntervalTree, outer: int, full: bool, words: int = STORE_WORDS) -> None:
        """`pairs`: of kind "pair", empty. `outer`: the set of the outer rows, which are told alone; `full`: the partners are too. `words`:
        address space of each list in 8-byte words (not memory)."""
        self.pairs, self._outer, self.told = pairs, outer, (full or outer == 0, full or outer == 1)
        self.alone = tuple(RowList(words if told else 1 << 16) for told in self.told)
        self._counts = tuple(reserve(4 * SLOTS, np.int32) if told else np.empty(0, np.int32) for told in self.told)
        arenas = [rows.arena for rows in self.alone]
        self._sides = [Alone(arena.nodes, arena.writing, counts) for arena, counts in zip(arenas, self._counts, strict=True)]
        self._Z = np.zeros(STATE_WORDS, np.int64)
        self._Z[OUTER_SET], self._Z[MOST] = outer, MANY
        self._scratch = Scratch(self._Z, np.empty(HITS, np.int32), np.empty(2 * HITS, np.int64), np.empty(2 * B, np.int32))
        self._out = np.empty((OUT_LINES, CHUNK + SPARE), np.int32)
        self._promised = 0

    def load(self, version: int, rows: Entries, partners: Entries) -> None:
        """Fill it; it is empty. O(n log n). MemoryError: it cannot fit."""
        both = self._by_set(rows, partners)
        able = [some.take(some.key != LONELY) for some in both]
        sets = np.repeat(np.arange(2, dtype=np.uint8), [len(some.slot) for some in able])
        self.pairs.bulk_load(version, _together(*able)._replace(set=sets))
        for s, every in enumerate(both):
            if self.told[s]:
                counts = partners_of(able[s], able[1 - s])
                self._counts[s][able[s].slot] = counts
                self.alone[s].load(version, _together(able[s].take(counts == 0), every.take(every.key == LONELY)))

    def _by_set(self, of_rows: T, of_partners: T) -> tuple[T, T]:
        return (of_rows, of_partners) if self._outer == 0 else (of_partners, of_rows)

    def require(self, changes: int, rows: int, partners: int) -> None:
        """Raise MemoryError unless so many deletes and inserts surely fit (a move is one of each), after which there are so many rows and
        partners at most: each may be alone. O(1)."""
        self._promised = self.pairs.arena.require(changes, 1)
        for alone, told, count in zip(self.alone, self.told, self._by_set(rows, partners), strict=True):
            if told:
                alone.require(count)

    def apply(self, version: int, moves: Moves, limit: int | None) -> Deltas:
        """Make these changes one after another, as `version`; each tells its delta against what the ones before it left, int32[3, n]: the
        slots in set 0 and in set 1 (-1: it has none), and 1 if it comes, 0 if it goes. Those of a version are to be in the order of the
        kinds of `event_tree/runs.py`: a row that stays is then alone at most once.

        Deltas of more than `limit` rows that fill more than a chunk are given up; None: there are none. KeyError: what was to go is not
        there, and the structure is damaged. MemoryError: nothing was done.
        """
        arena = self.pairs.arena
        arena.C[VERSION] = version
        for alone in self.alone:
            alone.begin(version)

        def go_on(end: int, told: bool) -> int:
            part = moves if end == len(moves.kind) else Moves(*(column[:end] for column in moves))
            return int(compiled(run_moves)(arena.nodes, arena.writing, *self._sides, self._scratch, self._out, part, told))

        deltas = gather(self._Z, moves.done, self._out, go_on, limit)
        if missing := int(self._Z[MISSING]):
            raise KeyError(f"{missing} rows or partners that were to go are not there")
        if arena.is_sparse:
            compiled(compact)(arena.nodes, arena.writing, LOOKED_AT * len(moves.kind), self._promised)
        for alone in self.alone:
            alone.compact(len(moves.kind))
        return deltas

    def reclaim(self, oldest: int, pins: np.ndarray, most: int) -> bool:
        """As `Versioned.reclaim`."""
        return any(store.reclaim(oldest, pins, most) for store in (self.pairs, *self.alone))

    # --- reading: by `pairs` and `alone`

    @property
    def flips(self) -> int:
        """Rows that gained their first partner, or lost their last one, in all changes so far."""
        return int(self._Z[FLIPS])

    @property
    def steps(self) -> int:
        """Nodes and entries looked at for all deltas so far."""
        return int(self._Z[SEARCH + STEPS] + self._Z[OTHER + STEPS])

    @property
    def bytes(self) -> int:
        """Of the lists and the counts; not of the pairs."""
        counted = sum(int(told) * 4 * rows for told, rows in zip(self.told, self.pairs.root.counts, strict=True))
        return counted + sum(alone.live_bytes for alone in self.alone)

    def check(self, others: tuple[tuple[Root, ...], ...] = ()) -> None:
        """Prove the invariants of the lists and counts of the newest version, and that no block of a list is lost, given their other roots
        in use by set; those of the pairs are checked by `pairs.check`."""
        every = room_for(sum(self.pairs.root.counts))
        compiled(read_all)(self.pairs.arena.nodes, self.pairs.arena.C, every)
        sets = [every.take(every.set == s) for s in range(2)]
        for s, alone in enumerate(self.alone):
            alone.check(alone.root, tuple(roots[s] for roots in others))
            listed = room_for(alone.root.counts[0])
            compiled(read_all)(alone.arena.nodes, alone.arena.C, listed)
            if self.told[s]:
                counts = partners_of(sets[s], sets[1 - s])
                kept = self._counts[s][sets[s].slot]
                assert np.where(kept == UNCOUNTED, counts > 0, kept == counts).all(), "O1: the partners of a row are miscounted"
                wanted = np.sort(sets[s].slot[counts == 0])
                assert np.array_equal(np.sort(listed.slot[listed.key != LONELY]), wanted), "O2: the list of the rows alone"
            else:
                assert not len(listed.slot), "O2: rows of a set that is not told"


def partners_of(rows: Entries, partners: Entries) -> np.ndarray:
    """int64[n]: how many of these intervals each row meets. O(n log n)."""
    tree = EventTree(rows=False)
    tree.load(partners, NO_ENTRIES)
    return tree.count(rows)


def _together(some: Entries, others: Entries) -> Entries:
    return Entries(*(np.concatenate(columns) for columns in zip(some, others, strict=True)))
