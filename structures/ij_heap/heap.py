"""The join of 2 to 6 interval sets with any connected topology, in one dimension, maintained under updates in linear space: the
structure of Theorem 4.

Problem: under inserts and deletes of closed intervals [left, right] with an int32 key, report the tuples (one interval of each set, equal
keys) in which neighbours of the topology share a point: all of them, those that meet a window, those of given intervals, the least or
greatest under any bounds, and the exact change that an update causes; at any version that is still pinned.

    a   =======       ======        of a path a - b - c: b meets an a and a c, which need not meet each other; the row is (a1, b1, c1)
    b        =======                a2 and c2 meet no b, so they are in no row
    c            ====       ====

One balanced tree (`multiway/tree.py`, which has the invariants) holds all sets, ordered by (key, left, slot, set); a node keeps, for each
connected subset V of the sets, the least and the greatest V-tuple below it (`multiway/summary.py`). All queries are answered from these
(`multiway/extreme.py`, `walk.py`).

Costs (n entries, r rows reported; polylog grows with t and the topology)
    bulk_load       O(n log n), the sort
    apply           polylog(n) a change besides its delta, O(log n) copied blocks a version
    rows, partners  polylog(n) steps to the first row and between rows, O(1) a row when rows abound
    min_ij, max_ij  polylog(n)
    is_empty        O(1)
    memory          O(n): 5 words a member of a connected subset, twice for every leaf of 63 entries
Differences from the paper: one tree instead of 3**t - 2**t secondary structures, enumeration writes nothing, a bounded number of dead ends.
Source: Tao and Yi, *Intersection Joins under Updates*, sections 5 and 6, Theorem 4; docs/design/ij-heap.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log2

import numpy as np

from structures.core.arena import HEIGHT, KEY_MAX, ROOT
from structures.core.control import STORE_WORDS
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries, require_key
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.ij_heap.changes import run_changes
from structures.ij_heap.check import check_heap
from structures.ij_heap.cursors import HeapCursor
from structures.ij_heap.goals import STEPS, HeapWalk, new_walk
from structures.ij_heap.strip import STRIP_SCRATCH
from structures.multiway.base import MultiwayTree
from structures.multiway.extreme import ANSWER, ASK, SCRATCH_WORDS, find_extreme
from structures.multiway.layout import COUNTS, SUMMARY, L, MultiwayArena, key_at, summary_words
from structures.multiway.leaves import KEY_, NEAR_, SLOT_
from structures.multiway.topology import ALL, Topology

__all__ = ["HeapCursor", "Entries", "IJHeap", "EntryRoot", "Topology"]

_LEVELS = 48  # most levels that the writer's walk has frames for: trees balanced by height have 1.45 log2(n) over n leaves, and one more


class IJHeap(MultiwayTree):
    """See the module's head; `EntryTree` describes changes."""

    def __init__(self, topology: Topology, words: int = STORE_WORDS) -> None:
        """`words`: the arena's address space in 8-byte words (not memory). ValueError: a tree of that size may have too many levels."""
        summary = summary_words(topology)
        if 1.45 * log2(words / (SUMMARY + summary + 3 * L)) + 1 > _LEVELS:
            raise ValueError(f"a tree of {words} words may have more than {_LEVELS} levels")
        self.topology = topology
        super().__init__(MultiwayArena(topology.table, summary, words), np.zeros(STRIP_SCRATCH, np.int64), topology.t)
        state = new_walk(self.arena.table, _LEVELS)
        self._walking = HeapWalk(state, state.view(np.int32), self._arrays[2])
        self._change = partial(compiled(run_changes), *self._arrays[:2], self._walking, self._state, self._emitted)

    @property
    def root(self) -> EntryRoot:
        """The newest version, published or not."""
        A = self.arena
        o = int(A.C[ROOT])
        live = A.W[key_at(A.table, o, 0) + A.table[ALL]] != KEY_MAX
        return EntryRoot(o, int(A.C[HEIGHT]), tuple(A.C[COUNTS : COUNTS + self.topology.t].tolist()), bool(live))

    @property
    def update_steps(self) -> int:
        """Nodes, splits and entries visited for all deltas so far."""
        return int(self._walking.state[STEPS])

    # --- reading

    def rows(self, root: EntryRoot, key: int | None = None, window: tuple[int, int] | None = None) -> HeapCursor:
        """Rows of a version: all, or of one key, or those whose intervals all meet the closed window.

        With a window but no key, the keys that have rows are visited one by one: polylog(n) for each, with or without rows in the window.
        ValueError: the key is out of range.
        """
        require_key(key)
        return HeapCursor(self.arena, root, key, window or (NEG_INF, POS_INF), None)

    def partners(self, root: EntryRoot, entries: Entries, window: tuple[int, int] | None = None) -> HeapCursor:
        """Rows that contain the given entries (of one set, in this version); with a window, as `rows`."""
        entries.require(self._sets)
        return HeapCursor(self.arena, root, None, window or (NEG_INF, POS_INF), entries)

    def min_ij(self, root: EntryRoot, b: Sequence[int], a: Sequence[int] | None = None, key: int = 0) -> np.ndarray | None:
        """The row of the key with the smallest left endpoints (in every coordinate at once) among those with right_i >= b[i] and left_i <=
        a[i], as slots int32[t]; None if there is none. Among equal left endpoints the choice is arbitrary. polylog(n)."""
        return self._extreme(0, root, b, a, key)

    def max_ij(self, root: EntryRoot, a: Sequence[int], b: Sequence[int] | None = None, key: int = 0) -> np.ndarray | None:
        """The row of the key with the largest right endpoints among those with left_i <= a[i] and right_i >= b[i]: as `min_ij`."""
        return self._extreme(1, root, a, b, key)

    def _extreme(self, which: int, root: EntryRoot, bound: Sequence[int], other: Sequence[int] | None, key: int) -> np.ndarray | None:
        A, t, scratch = self.arena, self.topology.t, np.zeros(SCRATCH_WORDS, np.int64)
        require_key(key)
        if len(bound) != t or (other is not None and len(other) != t):
            raise ValueError(f"bounds are {t} values, not {len(bound)}" + (f" and {len(other)}" if other is not None else ""))
        scratch[ASK], scratch[ASK + 1 : ASK + 1 + t] = key, bound
        if not find_extreme(A.nodes, scratch, which, root.offset, int(A.table[ALL])) or scratch[ANSWER + KEY_] != key:
            return None
        near = scratch[ANSWER + NEAR_ : ANSWER + NEAR_ + t]
        if other is not None and any((v > o) if which == 0 else (v < o) for v, o in zip(near, other, strict=True)):
            return None
        return scratch[ANSWER + SLOT_ : ANSWER + SLOT_ + t].astype(np.int32)

    def check(self, root: EntryRoot, others: tuple[EntryRoot, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        check_heap(self.arena, self.topology, root, others)
