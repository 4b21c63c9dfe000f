"""Cliques of one interval set, maintained under updates: all groups of t intervals that share a point, t = 3 to 8, each once.

Problem: under inserts and deletes of closed intervals [left, right] with an int32 key, report the sets of t intervals of one key that
overlap pairwise (so all of them share a point: Helly in one dimension): all of them, those that meet a window, those of given intervals,
and the exact change that an update causes; at any version that is still pinned.

    a ====================           the start of c lies in a and in b: with t = 3 the row {a, b, c} is found at c
    b     ===========                the start of b lies in a alone: with t = 3 nothing is found there
    c         ==================

Each interval has one entry in the tree of `multiway/tree.py`, which states the invariants, ordered by (key, left, slot): among intervals
that start together, the one with the larger slot comes later. A node knows where k of the intervals below it first share a point, and the
ends of the t that reach farthest (`multiway/clique_summary.py`); so a walk sees which subtrees have rows (`walk.py`), and a change is a
walk from the start of its interval to the end.

Costs (n entries, r rows reported, t members)
    bulk_load       O(n log n), the sort
    apply           O(t log n + t**2 log n) a change besides its delta, O(log n) copied blocks a version
    rows, partners  O(t log n) steps to the first row and between rows, O(1) a row when rows abound
    is_empty        O(1)
    memory          O(n): 2 t words, twice for every leaf of 63 entries
Dead ends: none in the whole view; one leaf, where the walk begins, for a given interval or a window of a key; for a window over all keys,
the same for each key that has rows, in the window or not. Source: docs/design/ij-heap.md (*Self-joins*), from Tao and Yi, *Intersection
Joins under Updates*, section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from structures.clique.changes import run_changes
from structures.clique.check import check_clique
from structures.clique.cursors import CliqueCursor
from structures.clique.state import FULL, STEPS, grown, new_walk
from structures.core.arena import HEIGHT, KEY_MAX, ROOT
from structures.core.control import STORE_WORDS
from structures.core.entries import Entries, require_key
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.core.runs import RunChanges
from structures.multiway.base import MultiwayTree
from structures.multiway.clique_summary import MOST, SCRATCH_WORDS, keys_at, summary_words
from structures.multiway.layout import COUNTS, MultiwayArena
from structures.multiway.topology import CLIQUE, SETS

__all__ = ["CliqueTree", "CliqueCursor", "Entries", "EntryRoot"]


class CliqueTree(MultiwayTree):
    """See the module's head; `EntryTree` describes changes. All sets are 0; the slots of a row come in any order."""

    def __init__(self, members: int, words: int = STORE_WORDS) -> None:
        """`members`: intervals a row, 3 to 8; `words`: the arena's address space in 8-byte words (not memory)."""
        if not 3 <= members <= MOST:
            raise ValueError(f"a clique has 3 to {MOST} members, not {members}")
        self.members = members
        table = np.zeros(16, np.int64)
        table[SETS], table[CLIQUE] = 1, members
        super().__init__(MultiwayArena(table, summary_words(members), words), np.zeros(SCRATCH_WORDS, np.int64), members)
        self._walking = new_walk()
        self._change = self._with_room()

    @property
    def root(self) -> EntryRoot:
        """The newest version, published or not."""
        A = self.arena
        o = int(A.C[ROOT])
        live = A.W[keys_at(A.table, o) + 1 + self.members] != KEY_MAX
        return EntryRoot(o, int(A.C[HEIGHT]), (int(A.C[COUNTS]),), bool(live))

    @property
    def update_steps(self) -> int:
        """Nodes and entries visited, and rows reported, for all deltas so far."""
        return int(self._walking.Z[STEPS])

    def _go_on(self, changes: RunChanges, deltas: bool) -> int:
        emitted = super()._go_on(changes, deltas)
        if self._walking.Z[FULL]:
            self._walking = grown(self._walking)
            self._walking.Z[FULL] = 0
            self._change = self._with_room()
        return emitted

    def _with_room(self) -> Callable[[RunChanges, bool], int]:
        """The writing kernel, with the arrays that its walk has now."""
        return partial(compiled(run_changes), *self._arrays, self._walking, self._state, self._emitted)

    # --- reading

    def rows(self, root: EntryRoot, key: int | None = None, window: tuple[int, int] | None = None) -> CliqueCursor:
        """Rows of a version: all, or of one key, or those whose intervals all meet the closed window.

        With a window but no key, the keys that have rows are visited one by one: O(t log n) for each, with or without rows in the window.
        ValueError: the key is out of range.
        """
        require_key(key)
        return CliqueCursor(self.arena, root, key, window, None)

    def partners(self, root: EntryRoot, entries: Entries, window: tuple[int, int] | None = None) -> CliqueCursor:
        """Rows that contain any of the given entries, which are in this version; with a window, as `rows`."""
        entries.require(self._sets)
        return CliqueCursor(self.arena, root, None, window, entries)

    def check(self, root: EntryRoot, others: tuple[EntryRoot, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        check_clique(self.arena, root, others)
