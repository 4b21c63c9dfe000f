"""Two sets of boxes, their overlapping pairs kept live in d dimensions: the structure of Theorem 2.

Problem: under inserts and deletes of closed boxes [left, right] of d >= 2 dimensions with an int32 key, tell the pairs (one of
each set, equal keys) that share a point: all of them, those that meet a window, those of given boxes, and the exact change that
an update makes; at any version that is still pinned.

In each dimension one of two boxes that meet starts later, and its left end lies in the other's side. Dimensions 0 to d - 2 are
handled by a hierarchy of slabs each, the last one by the 1-D trees of Theorem 1:

    level 0   [------------ slab of dimension 0 ------------]      the spanner s covers the slab (but not its parent's),
              s =====================================             the point p begins in it: they meet in dimension 0, and
                        p ====                                    lie in a tree of level 1 at this node, where dimension 1
    level 1   a tree of the spanners and points of this node      decides: again as spanner and point, or, at last, in 1-D

So a pair lies in exactly one tree of the last level or in one leaf. `layout.py` has the layout and the invariants.

Decisions, with their reasons
    - The hierarchy is a binary tree with leaves of up to CAP (512) endpoints over both endpoints of all boxes, balanced by weight through
      partial rebuilding. A fixed hierarchy of the key space (a compressed radix tree) needs no rebuilding, but on skewed values
      its depth follows the bits, ties need the slots' bits as well, and leaves of few boxes cost whole blocks. A fan-out above 2
      saves levels for points but multiplies the canonical nodes of a spanner: about the same number of copies.
    - A box shorter than a leaf lies in records only: most pairs of usual data are found there by a scan in the order of dimension
      k + 1. Leaves over both endpoints bound the boxes that only end in a leaf, whatever the ties.
    - A tree without spanners is not kept, its points are in the leaves: at a slab wider than all boxes there is nothing to pay. The
      first spanner builds it (amortised: as many changes went by); without spanners it goes after half as many changes as it has
      points.
    - All trees of all levels lie in one arena; those of the last dimension are `ordered/tree.py` as it is.

Costs (n boxes)
    bulk_load       O(n log^(d-1) n)
    apply           O(log^d n) amortised a change, besides its delta
    rows, partners  first row and between rows O(log^d n) steps, about one a row; a window: as much for each box that meets it, rows or not
    is_empty        O(1)
    memory          O(n log^(d-1) n): two endpoints, and a copy for each active tree that the box is a spanner or point of
Differences from the paper: two cases a dimension instead of four, on the dimension itself instead of a dominance join in three; live
bits instead of productive lists. Source: Tao and Yi, *Intersection Joins under Updates*, section 4.2; docs/design/ij-heap.md (*Theorem 2*).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from structures.box.build import load, plant
from structures.box.changes import AT, ITEM, MISSING, SEARCH, Changes, run_box_changes
from structures.box.check import check_boxes
from structures.box.cursors import Cursor, QueryCursor, Root, ViewCursor, WindowCursor, items_of
from structures.box.layout import (
    CAP,
    FULL,
    LIVE_,
    MOST_DIMENSIONS,
    TOP,
    TREE_WORDS,
    BoxArena,
)
from structures.box.search import BOTH, query_words
from structures.core.arena import INNER_WORDS, LEAF_WORDS
from structures.core.control import STORE_WORDS, VERSION
from structures.core.entries import Entries, tree_order
from structures.core.kernel import compiled
from structures.core.reserve import SLOTS, reserve
from structures.core.versioned import Versioned
from structures.ordered.search import STEPS

__all__ = ["BoxTree", "Cursor", "Entries", "Root"]

_CHUNK = 1 << 16
_FIRST = np.zeros(1, np.int64)

Sink = Callable[[int, np.ndarray], bool]
Window = tuple[np.ndarray, np.ndarray]


def _flat(entries: Entries) -> Entries:
    """The same, the ends of each box in all dimensions one after another."""
    sets, keys, left, right, slots = entries
    return Entries(sets, keys, left.reshape(-1), right.reshape(-1), slots)


class BoxTree(Versioned[BoxArena]):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile.

    Entries are those of `interval.tree`, with left and right int64[n, d], left <= right everywhere; a slot is given to another box
    only when no version in use has it.
    """

    def __init__(self, dimensions: int, kind: str, words: int = STORE_WORDS) -> None:
        """`kind`: "pair" (set 0 with set 1) or "self" (set 0 with itself, each unordered pair once); `words`: the arena's address
        space in 8-byte words (not memory). ValueError: not 2 to 8 dimensions, or another kind."""
        if not 2 <= dimensions <= MOST_DIMENSIONS or kind not in ("pair", "self"):
            raise ValueError(f"no structure for {kind!r} in {dimensions} dimensions")
        self.dimensions, self._single = dimensions, kind == "self"
        self.arena = BoxArena(dimensions, self._single, words)
        arena = self.arena
        self._arrays = arena.nodes, arena.writing
        plant(*self._arrays)
        self._run_changes = compiled(run_box_changes)
        sets = 1 if self._single else 2
        self._boxes = reserve(sets * SLOTS * 16 * dimensions, np.int64).reshape(sets, SLOTS, 2 * dimensions)  # left[d], right[d]
        self._before = self._top()  # when the version that is being written began
        self._state = np.zeros(SEARCH + query_words(dimensions), np.int64)
        self._out = np.empty((2, _CHUNK), np.int32)

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        name, _, count0, count1, state, _ = self.arena.W[TOP : TOP + TREE_WORDS].tolist()
        return Root((name & 0xFFFFFFFF) << 1, count0, count1, bool(state & LIVE_))  # as `root_of`, without a call

    @property
    def update_steps(self) -> int:
        """Nodes and entries looked at for all deltas so far."""
        return int(self._state[SEARCH + STEPS])

    # --- writing

    def bulk_load(self, version: int, entries: Entries) -> Root:
        """Fill an empty structure. Raises ValueError if it is not empty, MemoryError (nothing done) if it cannot fit."""
        if self.root.count0 or self.root.count1:
            raise ValueError("bulk_load fills an empty structure only")
        entries = self._checked(entries)
        self.require(len(entries.key), 1)
        self._begin(version)
        if len(entries.key):
            load(*self._arrays, _flat(entries))
            self._boxes[entries.set, entries.slot] = np.hstack((entries.left, entries.right))
        self._whole()
        return self.root

    def require(self, changes: int, applies: int) -> None:
        """Raise MemoryError unless so many deletes and inserts, in so many calls of `apply`, fit. O(1).

        At worst each change copies a path in every tree that it touches, or all is written anew, at three times its present words
        a box. Data may go beyond that (a rebuilding that needs trees that were not needed before): then `apply` raises MemoryError, and
        all that it did is undone.
        """
        arena = self.arena
        if arena.has_room(applies * changes * self._change_words(32)):
            return
        n = sum(self.root[1:3])
        levels = max(1, (2 * (n + changes) // CAP).bit_length())
        box = 64 + 9 * (3 * levels) ** min(2, self.dimensions - 1)
        if n:
            box = min(box, 3 * arena.live_bytes // (8 * n) + 64)
        anew = (n + changes) * box + (1 << 15)
        arena.require_words(applies * min(changes * self._change_words(levels), anew))

    def _checked(self, entries: Entries) -> Entries:
        """The same, as the kernels take them. TypeError, ValueError: they are no boxes of this structure."""
        if not len(entries.key):
            return entries
        if entries.left.shape != (len(entries.key), self.dimensions) or entries.right.shape != entries.left.shape:
            raise ValueError(f"boxes have {self.dimensions} left and right ends, not {entries.left.shape} and {entries.right.shape}")
        if len(entries.key) > 1:
            entries = Entries(*(np.ascontiguousarray(column) for column in entries))
        _flat(entries).require(len(self._boxes))
        return entries

    def _change_words(self, levels: int) -> int:
        """Words that a change writes when every tree on its way, of so many levels, is to be copied."""
        return (3 * levels) ** (self.dimensions - 1) * (2 * LEAF_WORDS + 3 * INNER_WORDS) + 8 * CAP * self.dimensions

    def _top(self) -> np.ndarray:
        """A copy of the holder of the tree of level 0."""
        return self.arena.W[TOP : TOP + TREE_WORDS].copy()

    def _begin(self, version: int) -> None:
        if self.arena.C.item(VERSION) != version:
            self._before = self._top()
            self.arena.C[VERSION] = version

    def _whole(self) -> None:
        """Raise MemoryError, all of the version undone, if it did not fit."""
        if self.arena.C.item(FULL):
            self.arena.undo()
            self.arena.C[FULL], self.arena.W[TOP : TOP + TREE_WORDS] = 0, self._before
            raise MemoryError(f"this view's structure has reached the size of its arena ({8 * self.arena.M.size} bytes)")

    def apply(self, version: int, deletes: Entries, inserts: Entries, sink: Sink | None) -> Root:
        """All deletes, then all inserts, as `version` (above every version before).

        `sink(sign, slots)` gets the delta in chunks: sign -1 or 1, int32[2, rows] of its own (set 0, set 1; "self": each unordered
        pair once). It returns False to get no more (the changes go on). None: no delta is computed. Deleted entries must be there
        and inserted ones not (KeyError: the structure is then damaged). MemoryError: nothing of the version was done, though its delta
        may have been told in part.
        """
        deletes, inserts = self._checked(deletes), self._checked(inserts)
        self.require(len(deletes.key) + len(inserts.key), 1)
        self._begin(version)
        for sign, entries in ((-1, deletes), (1, inserts)):
            if len(entries.key):
                sink = self._run(sign, entries, sink)
        return self.root

    def _run(self, sign: int, entries: Entries, sink: Sink | None) -> Sink | None:
        """Apply one sign; the sink, or None once it wants no more."""
        X, n, out = self._state, len(entries.key), self._out
        X[:ITEM] = 0
        order = _FIRST if n == 1 else tree_order(entries.set, entries.key, entries.left[:, 0].copy(), entries.slot)
        changes = Changes(*entries, order)
        while X[AT] < n:
            rows = self._run_changes(*self._arrays, sign, changes, X, self._boxes, out, sink is not None)
            self._whole()
            if sink is not None and rows and not sink(sign, out[:, :rows].copy()):
                sink = None
        if X[MISSING]:
            raise KeyError(f"{X[MISSING]} deleted entries were not in the structure")
        return sink

    # --- reading

    def is_empty(self, root: Root) -> bool:
        """Whether the version has no row. O(1)."""
        return not root.live

    def rows(self, root: Root, key: int | None = None, window: Window | None = None) -> Cursor:
        """Rows of a version: all, or of one key, or those whose boxes both meet the closed window (lo int64[d], hi int64[d]; NEG_INF
        and POS_INF where a dimension is unbounded). A window without a key is visited key by key."""
        if window is None:
            return ViewCursor(self.arena, root, key)
        lo, hi = (np.asarray(side, np.int64) for side in window)
        return WindowCursor(self.arena, root, self._boxes, key, lo, hi)

    def partners(self, root: Root, entries: Entries, window: Window | None = None) -> Cursor:
        """Rows in which the given entries (of one set, in this version) take part; "self": the given one first. With a window, those
        whose boxes both meet it; where it cuts a given box, boxes that begin in the part left may be looked at in vain."""
        lo, hi = entries.left, entries.right
        if window is not None:
            lo, hi = np.maximum(lo, window[0]), np.minimum(hi, window[1])
            inside = (lo <= hi).all(axis=1)
            entries, lo, hi = entries.take(inside), lo[inside], hi[inside]
        s = int(entries.set[0]) if len(entries.set) else 0
        codes = 2 * entries.slot.astype(np.int64) + s
        items = items_of(entries.slot, entries.key, 0 if self._single else 1 - s, BOTH, codes, lo, hi)
        return QueryCursor(self.arena, root, items, s == 1)

    @property
    def live_bytes(self) -> int:
        """Bytes of the newest version's blocks and of its boxes' places in the table by slot."""
        root = self.root
        return self.arena.live_bytes + 16 * self.dimensions * (root.count0 + root.count1)

    def check(self, root: Root, others: tuple[Root, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        check_boxes(self.arena, root, others)
