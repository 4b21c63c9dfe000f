"""Any connected topology of 2 to 6 interval sets in one dimension, its join kept live: the structure of Theorem 4, in linear space.

Problem: under inserts and deletes of closed intervals [left, right] with an int32 key, tell the tuples (one interval of each set, equal
keys) in which neighbours of the topology share a point: all of them, those that meet a window, those of given intervals, the least or
greatest under any bounds, and the exact change that an update makes; at any version that is still pinned.

One balanced tree holds all sets, ordered by (key, left, slot, set); a node keeps, for each connected subset V of the sets, the least
and the greatest V-tuple below it (`ij_summary.py`). From these all queries are answered (`ij_extreme.py`, `ij_walk.py`).

Costs (n entries, r rows reported; polylog grows with t and the topology)
    bulk_load       O(n log n), the sort
    apply           polylog(n) a change besides its delta, O(log n) copied blocks a version
    rows, partners  polylog(n) steps to the first row and between rows, O(1) a row when rows abound
    min_ij, max_ij  polylog(n)
    is_empty        O(1)
    memory          O(n): 5 words a member of a connected subset, for every leaf of 63 entries twice
Differences from the paper: one tree instead of 3**t - 2**t secondary structures, nothing is written while it enumerates, no dead ends
beyond a bounded number. Source: Tao and Yi, *Intersection Joins under Updates*, sections 5 and 6, Theorem 4; ij-heap.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from structures.arena import ARENA_WORDS, HEIGHT, KEY_MAX, NEG_INF, POS_INF, ROOT, VERSION
from structures.ij_blocks import COUNTS, Blocks, key_at, summary_words
from structures.ij_changes import ACTIVE, AT, MISSING, ij_order, run_changes
from structures.ij_cursors import Cursor, Root
from structures.ij_extreme import ANSWER, ASK, LAST_KEY, SCRATCH_WORDS, find_extreme
from structures.ij_goals import STEPS, new_walk
from structures.ij_leaves import KEY_, NEAR_, SLOT_
from structures.ij_strip import STRIP_SCRATCH
from structures.ij_topology import ALL, Topology
from structures.ij_tree import build, make_empty
from structures.interval_tree import Entries

__all__ = ["Cursor", "Entries", "IJHeap", "Root", "Topology"]

_CHUNK = 1 << 16
_LEVELS = 48  # more than a tree can have

Sink = Callable[[int, np.ndarray], bool]


class IJHeap:
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, topology: Topology, words: int = ARENA_WORDS) -> None:
        """`words`: the arena's address space in 8-byte words (not memory)."""
        self.topology = topology
        self.arena = Blocks(topology.table, summary_words(topology), words)
        self._scratch = np.zeros(STRIP_SCRATCH, np.int64)
        self._arrays = self.arena.M, self.arena.W, self.arena.C, self.arena.Q, self.arena.T, self._scratch
        make_empty(*self._arrays)
        self._walk = new_walk(self.arena.T, _LEVELS)
        self._state = np.zeros(3, np.int64)
        self._out = np.empty((topology.t, _CHUNK), np.int32)

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        A = self.arena
        o = int(A.C[ROOT])
        live = A.W[key_at(A.T, o, 0) + A.T[ALL]] != KEY_MAX
        return Root(o, int(A.C[HEIGHT]), tuple(A.C[COUNTS : COUNTS + self.topology.t].tolist()), bool(live))

    @property
    def update_steps(self) -> int:
        """Nodes, splits and entries looked at for all deltas so far."""
        return int(self._walk[STEPS])

    # --- writing

    def bulk_load(self, version: int, entries: Entries) -> Root:
        """Fill an empty tree. O(n log n). Raises ValueError if it is not empty, MemoryError (nothing done) if it cannot fit."""
        if any(self.root.counts):
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

        `sink(sign, slots)` gets the delta in chunks: sign -1 or 1, slots int32[t, n] of its own. It returns False to get no more (the
        changes go on). None: no delta is computed. Deleted entries must be there and inserted ones not (KeyError: the tree is then
        damaged). MemoryError: nothing was done.
        """
        self.arena.require(len(deletes.key) + len(inserts.key))
        self.arena.C[VERSION] = version
        for sign, entries in ((-1, deletes), (1, inserts)):
            if len(entries.key):
                sink = self._run(sign, entries, sink)
        return self.root

    def _run(self, sign: int, entries: Entries, sink: Sink | None) -> Sink | None:
        """Apply one sign; the sink, or None once it wants no more."""
        Z, N, out = self._walk, self._state, self._out
        N[:] = 0
        order = ij_order(entries.set, entries.key, entries.left, entries.slot)
        while N[AT] < len(order):
            n = run_changes(*self._arrays, Z, Z.view(np.int32), N, sign, *entries, order, out.reshape(-1), _CHUNK, sink is not None)
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

        With a window but no key the keys that have rows are visited one by one: polylog(n) for each, rows in the window or not.
        """
        return Cursor(self.arena, root, key, window or (NEG_INF, POS_INF), None)

    def partners(self, root: Root, entries: Entries, window: tuple[int, int] | None = None) -> Cursor:
        """Rows in which the given entries (of one set, in this version) take part; with a window, as `rows`."""
        return Cursor(self.arena, root, None, window or (NEG_INF, POS_INF), entries)

    def min_ij(self, root: Root, b: Sequence[int], a: Sequence[int] | None = None, key: int = 0) -> np.ndarray | None:
        """The row of the key with the smallest left endpoints (in every coordinate at once) among those with right_i >= b[i] and
        left_i <= a[i], as slots int32[t]; None if there is none. With equal left endpoints any of the intervals. polylog(n)."""
        return self._extreme(0, root, b, a, key)

    def max_ij(self, root: Root, a: Sequence[int], b: Sequence[int] | None = None, key: int = 0) -> np.ndarray | None:
        """The row of the key with the largest right endpoints among those with left_i <= a[i] and right_i >= b[i]: as `min_ij`."""
        return self._extreme(1, root, a, b, key)

    def _extreme(self, which: int, root: Root, bound: Sequence[int], other: Sequence[int] | None, key: int) -> np.ndarray | None:
        A, t, X = self.arena, self.topology.t, np.zeros(SCRATCH_WORDS, np.int64)
        if not (0 <= key <= LAST_KEY and len(bound) == t and (other is None or len(other) == t)):
            raise ValueError(f"bounds are {t} values, a key is 0 to {LAST_KEY}")
        X[ASK], X[ASK + 1 : ASK + 1 + t] = key, bound
        if not find_extreme(A.M, A.W, A.T, X, which, root.offset, int(A.T[ALL])) or X[ANSWER + KEY_] != key:
            return None
        near = X[ANSWER + NEAR_ : ANSWER + NEAR_ + t]
        if other is not None and any((v > o) if which == 0 else (v < o) for v, o in zip(near, other, strict=True)):
            return None
        return X[ANSWER + SLOT_ : ANSWER + SLOT_ + t].astype(np.int32)

    def live_bytes(self) -> int:
        """Bytes of the newest version's blocks."""
        return self.arena.live_bytes

    @property
    def retired_bytes(self) -> int:
        """Bytes of blocks that only older versions see."""
        return self.arena.retired_bytes

    def check(self, root: Root, others: tuple[Root, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        from structures.ij_check import check_heap

        check_heap(self.arena, self.topology, root, others)
