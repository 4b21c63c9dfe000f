"""Cliques of one interval set, kept live: every t of its intervals that share a point, t = 3 to 8, each combination once.

Problem: under inserts and deletes of closed intervals [left, right] with an int32 key, tell the sets of t intervals of one key that
overlap pairwise (so all of them share a point: Helly in one dimension): all, those that meet a window, those of given intervals, and the
exact change that an update makes; at any version that is still pinned.

    a ====================           the start of c lies in a and in b: with t = 3 the row {a, b, c} is told at c
    b     ===========                the start of b lies in a alone: with t = 3 nothing is told there
    c         ==================

One entry an interval, in the tree of `ij_tree.py`, ordered by (key, left, slot): of intervals that start together the one with the larger
slot comes later. A node knows where k of the intervals below it first share a point, and the ends of the t that reach farthest
(`clique_summary.py`); so a walk sees what has rows (`clique_walk.py`), and a change is a walk from its start to its end.

Costs (n entries, r rows reported, t members)
    bulk_load       O(n log n), the sort
    apply           O(t log n + t**2 log n) a change besides its delta, O(log n) copied blocks a version
    rows, partners  O(t log n) steps to the first row and between rows, O(1) a row when rows abound
    is_empty        O(1)
    memory          O(n): 2 t words for every leaf of 63 entries twice
Dead ends: none in the whole view; one leaf, where it begins, for a given interval or a window of a key. A window over all keys is one a
key that has rows, in the window or not. Source: ij-heap.md (*Self-joins*), from Tao and Yi, *Intersection Joins under Updates*, section 6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from structures.arena import ARENA_WORDS, HEIGHT, KEY_MAX, ROOT, VERSION
from structures.clique_changes import run_changes
from structures.clique_cursors import Cursor
from structures.clique_state import FULL, STEPS, grown, new_walk
from structures.clique_summary import MOST, SCRATCH_WORDS, keys_at, summary_words
from structures.ij_blocks import COUNTS, Blocks
from structures.ij_changes import ACTIVE, AT, MISSING, ij_order
from structures.ij_cursors import Root
from structures.ij_topology import CLIQUE, SETS
from structures.ij_tree import build, make_empty
from structures.interval_tree import Entries

__all__ = ["CliqueTree", "Cursor", "Entries", "Root"]

_CHUNK = 1 << 16

Sink = Callable[[int, np.ndarray], bool]


class CliqueTree:
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, members: int, words: int = ARENA_WORDS) -> None:
        """`members`: of a row, 3 to 8; `words`: the arena's address space in 8-byte words (not memory)."""
        if not 3 <= members <= MOST:
            raise ValueError(f"a clique has 3 to {MOST} members, not {members}")
        self.members = members
        table = np.zeros(16, np.int64)
        table[SETS], table[CLIQUE] = 1, members
        self.arena = Blocks(table, summary_words(members), words)
        A = self.arena
        self._arrays = A.M, A.W, A.C, A.Q, A.T, np.zeros(SCRATCH_WORDS, np.int64)
        make_empty(*self._arrays)
        self._Z, self._H, self._I = new_walk()
        self._state = np.zeros(3, np.int64)
        self._out = np.empty((members, _CHUNK), np.int32)

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        A = self.arena
        o = int(A.C[ROOT])
        live = A.W[keys_at(A.T, o) + 1 + self.members] != KEY_MAX
        return Root(o, int(A.C[HEIGHT]), (int(A.C[COUNTS]),), bool(live))

    @property
    def update_steps(self) -> int:
        """Nodes and entries looked at, and rows told, for all deltas so far."""
        return int(self._Z[STEPS])

    # --- writing

    def bulk_load(self, version: int, entries: Entries) -> Root:
        """Fill an empty tree (sets are all 0). O(n log n). Raises ValueError if it is not empty, MemoryError (nothing done) if it cannot
        fit."""
        if self.arena.C[COUNTS]:
            raise ValueError("bulk_load fills an empty tree only")
        self.arena.require(len(entries.key))
        self.arena.C[VERSION] = version
        if len(entries.key):
            build(*self._arrays, *entries, ij_order(entries.set, entries.key, entries.left, entries.slot))
        return self.root

    def require(self, changes: int, applies: int) -> None:
        """Raise MemoryError unless so many deletes and inserts, in so many calls of `apply`, surely fit. O(1)."""
        self.arena.require(changes, applies)

    def apply(self, version: int, deletes: Entries, inserts: Entries, sink: Sink | None) -> Root:
        """All deletes, then all inserts, as `version` (above every version before).

        `sink(sign, slots)` gets the delta in chunks: sign -1 or 1, slots int32[t, n] of its own, a row in any order. It returns False to
        get no more (the changes go on). None: no delta is computed. Deleted entries must be there and inserted ones not (KeyError: the tree
        is then damaged). MemoryError: nothing was done.
        """
        self.arena.require(len(deletes.key) + len(inserts.key))
        self.arena.C[VERSION] = version
        for sign, entries in ((-1, deletes), (1, inserts)):
            if len(entries.key):
                sink = self._run(sign, entries, sink)
        return self.root

    def _run(self, sign: int, entries: Entries, sink: Sink | None) -> Sink | None:
        """Apply one sign; the sink, or None once it wants no more."""
        Z, N, out = self._Z, self._state, self._out
        N[:] = 0
        order = ij_order(entries.set, entries.key, entries.left, entries.slot)
        while N[AT] < len(order):
            n = run_changes(*self._arrays, Z, self._H, self._I, N, sign, *entries, order, out.reshape(-1), _CHUNK, sink is not None)
            if Z[FULL]:
                self._H, self._I = grown(self._H, self._I)
                Z[FULL] = 0
            if sink is not None and n and not sink(sign, out[:, :n].copy()):
                sink = None
                N[ACTIVE] = 0
        if N[MISSING]:
            raise KeyError(f"{N[MISSING]} deleted entries were not in the tree")
        return sink

    def reclaim(self, oldest: int, pins: np.ndarray) -> None:
        """Make blocks reusable that no version >= `oldest` and no pin (ascending int64) can see."""
        self.arena.reclaim(oldest, pins)

    # --- reading

    def is_empty(self, root: Root) -> bool:
        """Whether the version has no row. O(1)."""
        return not root.live

    def rows(self, root: Root, key: int | None = None, window: tuple[int, int] | None = None) -> Cursor:
        """Rows of a version: all, or of one key, or those whose intervals all meet the closed window.

        With a window but no key the keys that have rows are visited one by one: O(t log n) for each, rows in the window or not.
        """
        return Cursor(self.arena, root, key, window, None)

    def partners(self, root: Root, entries: Entries, window: tuple[int, int] | None = None) -> Cursor:
        """Rows in which any of the given entries, which are in this version, take part; with a window, as `rows`."""
        return Cursor(self.arena, root, None, window, entries)

    def live_bytes(self) -> int:
        """Bytes of the newest version's blocks."""
        return self.arena.live_bytes

    @property
    def retired_bytes(self) -> int:
        """Bytes of blocks that only older versions see."""
        return self.arena.retired_bytes

    def check(self, root: Root, others: tuple[Root, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        from structures.clique_check import check_clique

        check_clique(self.arena, root, others)
