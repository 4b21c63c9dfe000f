"""The overlapping pairs of two sets of boxes in d dimensions, maintained under updates: the structure of Theorem 2.

Problem: under inserts and deletes of closed boxes [left, right] of d >= 2 dimensions with an int32 key, report the pairs (one of
each set, equal keys) that share a point: all of them, those that meet a window, those of given boxes, and the exact change that
an update causes; at any version that is still pinned.

In each dimension, one of two overlapping boxes starts later, and its left end lies within the other. Each of dimensions 0 to d - 2 has a
hierarchy of slabs, the last one the 1-D trees of Theorem 1:

    level 0   [------------ slab of dimension 0 ------------]      the spanner s covers the slab (but not its parent's),
              s =====================================             the point p begins in it: they meet in dimension 0, and
                        p ====                                    lie in a tree of level 1 at this node, where dimension 1
    level 1   a tree of the spanners and points of this node      decides: again as spanner and point, or, at last, in 1-D

So a pair lies in exactly one tree of the last level or in one leaf. `layout.py` has the layout and the invariants.

Decisions, with their reasons
    - The hierarchy is a binary tree with leaves of up to CAP (512) endpoints over both endpoints of all boxes, balanced by weight through
      rotations where no large tree changes by them, and partial rebuilding; large subtrees are not rebuilt within a change, but left to
      the structure's owner (`is_uneven`). A fixed hierarchy of the key space (a compressed radix tree) needs no rebuilding, but on skewed
      values its depth follows the bits, ties need the slots' bits as well, and leaves of few boxes cost whole blocks. A fan-out above 2
      saves levels for points but multiplies the canonical nodes of a spanner: about the same number of copies.
    - A box shorter than a leaf lies in records only: most pairs of usual data are found there by a scan in the order of dimension
      k + 1. Leaves over both endpoints bound the boxes that only end in a leaf, whatever the ties.
    - A tree without spanners is not kept, its points are in the leaves: a slab wider than all boxes costs nothing. The
      first spanner builds it (amortised over as many changes); without spanners it is dropped after half as many changes as it
      has points.
    - All trees of all levels lie in one arena; those of the last dimension are unmodified trees of `ordered/tree.py`.

Costs (n boxes)
    bulk_load       O(n log^(d-1) n)
    apply           O(log^d n) amortised a change, besides its delta
    rows, partners  first row and between rows O(log^d n) steps, about one a row; a window: as much for each box that meets it
    is_empty        O(1)
    memory          O(n log^(d-1) n): two endpoints, and a copy for each active tree that the box is a spanner or point of
Differences from the paper: two cases a dimension instead of four, on the dimension itself instead of a dominance join in three; live
bits instead of productive lists. Source: Tao and Yi, *Intersection Joins under Updates*, section 4.2; docs/design/ij-heap.md (*Theorem 2*).
"""

from __future__ import annotations

from functools import partial
from typing import NoReturn

import numpy as np

from structures.box.build import load, plant
from structures.box.check import check_boxes
from structures.box.cursors import QueryCursor, ViewCursor, WindowCursor, items_of
from structures.box.layout import FULL, LIVE_, MOST_DIMENSIONS, TOP, TREE_WORDS, UNEVEN, BoxArena
from structures.box.runs import SEARCH, run_changes
from structures.box.search import BOTH, query_words
from structures.core.control import STORE_WORDS, VERSION
from structures.core.cursor import Cursor
from structures.core.entries import Entries, require_key, tree_order
from structures.core.entry_tree import EntryRoot, EntryTree
from structures.core.kernel import compiled
from structures.core.reserve import SLOTS, reserve
from structures.core.runs import RunChanges
from structures.ordered.search import STEPS

__all__ = ["BoxTree", "Cursor", "Entries", "EntryRoot"]

_FEWEST_SLOTS, _GROWTH = 1 << 24, 4  # slots of the table of boxes at first (1 GiB of address space in 2-D), and its growth factor
_PIECE = 1 << 18  # slots that are copied at once
_SAMPLE = 1 << 16  # boxes of a sample
_UNEVEN = 4  # entries for each tolerated change below an unbalanced node
Window = tuple[np.ndarray, np.ndarray]


class BoxTree(EntryTree[BoxArena]):
    """See the module's head; `EntryTree` describes changes. Rows are pairs in the order of the sets ("self": in any order).

    Entries are those of `interval.tree`, with left and right int64[n, d], left <= right everywhere; a slot is given to another box only
    when no version in use has it.
    """

    def __init__(self, dimensions: int, kind: str, words: int = STORE_WORDS) -> None:
        """`kind`: "pair" (set 0 with set 1) or "self" (set 0 with itself, each unordered pair once); `words`: the arena's address
        space in 8-byte words (not memory). ValueError: not 2 to 8 dimensions, or another kind."""
        if not 2 <= dimensions <= MOST_DIMENSIONS or kind not in ("pair", "self"):
            raise ValueError(f"no structure for {kind!r} in {dimensions} dimensions")
        self.dimensions, self._is_self = dimensions, kind == "self"
        sets = 1 if self._is_self else 2
        super().__init__(BoxArena(dimensions, self._is_self, words), sets, 2, np.zeros(SEARCH + query_words(dimensions), np.int64))
        self._arrays = self.arena.nodes, self.arena.writing
        plant(*self._arrays)
        self._boxes, self._slots = np.empty((sets, 0, 2 * dimensions), np.int64), 0  # by slot: left[d], right[d]
        self._reach(0)
        self._before = self._top()  # the top holder when the version that is being written began

    @property
    def root(self) -> EntryRoot:
        """The newest version, published or not."""
        name, _, count0, count1, state, _ = self.arena.W[TOP : TOP + TREE_WORDS].tolist()
        return EntryRoot((name & 0xFFFFFFFF) << 1, 0, (count0, count1), bool(state & LIVE_))  # as `root_of`, without a call

    @property
    def update_steps(self) -> int:
        """Nodes and entries visited for all deltas so far."""
        return int(self._state[SEARCH + STEPS])

    @property
    def is_uneven(self) -> bool:
        """Whether a new structure should be loaded with the entries and replace this one: changes below several subtrees that are out of
        balance, but too large to be rebuilt within a change, number a quarter of the entries. Until then, a change costs more, as its
        path is longer."""
        return bool(self.arena.C.item(UNEVEN) > sum(self.root.counts) // _UNEVEN)

    # --- writing

    def bulk_load(self, version: int, entries: Entries) -> EntryRoot:
        """As `EntryTree.bulk_load`. The worst case for this number of boxes may be many times what they take: if it does not fit, the tree
        of a sample provides an estimate."""
        n = len(entries.key)
        try:
            self.arena.require(n)
        except MemoryError:
            if n < _SAMPLE:
                raise
            sample = BoxTree(self.dimensions, "self" if self._is_self else "pair")
            some = Entries(*(column[np.random.default_rng(n).choice(n, _SAMPLE, replace=False)] for column in entries))
            sample.bulk_load(1, some._replace(slot=np.arange(_SAMPLE, dtype=np.int32)))
            self.arena.sampled = 2 * sample.arena.live_bytes // (8 * _SAMPLE)  # twice: a larger tree has more levels
        return super().bulk_load(version, entries)

    def _reach(self, slot: int) -> None:
        """Copy the table of boxes to one several times as long that has the slot: amortised, O(1) is copied a slot.

        Readers keep the table that they have, which has every box of their versions. Parts that were never written are not copied, as that
        would take memory.
        """
        if slot >= SLOTS:
            return  # the kernel refuses it
        sets, slots, words = self._boxes.shape
        longer = min(SLOTS, max(_FEWEST_SLOTS, _GROWTH * slots, 1 << slot.bit_length()))
        try:
            boxes = reserve(8 * sets * longer * words, np.int64).reshape(sets, longer, words)
        except OSError as error:
            raise MemoryError(f"no address space for a table of {longer} boxes: {error}") from None
        for s in range(sets):
            for first in range(0, slots, _PIECE):
                part = self._boxes[s, first : first + _PIECE]
                if part.any():
                    boxes[s, first : first + len(part)] = part
        self._boxes, self._slots = boxes, longer
        self._change = partial(compiled(run_changes), *self._arrays, self._state, boxes, self._emitted)

    def reach(self, slots: int) -> None:
        """Provide room for the boxes of `slots` slots, counted from 0. MemoryError, and nothing done, if there is none."""
        if slots > self._slots:
            self._reach(min(slots, SLOTS) - 1)

    def _columns(self, entries: Entries) -> Entries:
        """The entries with the ends of each box flat, in all dimensions one after another; provides room for their slots."""
        self._require_ends(entries)
        n = len(entries.key)
        if n > 1:
            entries = Entries(*(np.ascontiguousarray(column) for column in entries))
            entries.require_columns()
        sets, keys, left, right, slots = entries
        slot = slots.item(0) if len(slots) == 1 else int(slots.max(initial=-1))
        if slot >= self._slots:
            self._reach(slot)
        return Entries(sets, keys, left.reshape(-1), right.reshape(-1), slots)

    def _require_ends(self, entries: Entries) -> None:
        """ValueError unless the boxes have as many dimensions as the structure."""
        left, right = entries.left, entries.right
        if left.shape != (len(entries.key), self.dimensions) or right.shape != left.shape:
            raise ValueError(f"boxes have {self.dimensions} left and right ends, not {left.shape} and {right.shape}")

    def _order(self, entries: Entries) -> np.ndarray:
        return tree_order(entries.set, entries.key, entries.left[:: self.dimensions].copy(), entries.slot)

    def _load(self, entries: Entries) -> None:
        load(*self._arrays, entries)
        self.arena.C[UNEVEN] = 0
        if self.arena.C.item(FULL):
            self._undo()
        ends = (side.reshape(-1, self.dimensions) for side in (entries.left, entries.right))
        self._boxes[entries.set, entries.slot] = np.hstack(tuple(ends))

    def _top(self) -> np.ndarray:
        """A copy of the holder of the tree of level 0."""
        return self.arena.W[TOP : TOP + TREE_WORDS].copy()

    def _begin(self, version: int) -> None:
        if self.arena.C.item(VERSION) != version:
            self._before = self._top()
            self.arena.C[VERSION] = version

    def _go_on(self, changes: RunChanges, deltas: bool) -> int:
        """As `EntryTree._go_on`. MemoryError: the version is unchanged, though part of its delta may have been reported."""
        emitted = super()._go_on(changes, deltas)
        if self.arena.C.item(FULL):
            self._undo()
        return emitted

    def _undo(self) -> NoReturn:
        """Undo the whole version, which did not fit."""
        self.arena.undo()
        self.arena.C[FULL], self.arena.W[TOP : TOP + TREE_WORDS] = 0, self._before
        raise MemoryError(f"this view's structure has reached the size of its arena ({8 * self.arena.M.size} bytes)")

    # --- reading

    def rows(self, root: EntryRoot, key: int | None = None, window: Window | None = None) -> Cursor:
        """Rows of a version: all, or of one key, or those whose boxes both meet the closed window (lo int64[d], hi int64[d]; NEG_INF and
        POS_INF where a dimension is unbounded). A window without a key is visited key by key. ValueError: the key is out of range, or the
        window has other dimensions."""
        require_key(key)
        if window is None:
            return ViewCursor(self.arena, root, key)
        return WindowCursor(self.arena, root, self._boxes, key, self._window(window))

    def _window(self, window: Window) -> Window:
        lo, hi = (np.ascontiguousarray(input, np.int64) for input in window)
        if lo.shape != (self.dimensions,) or hi.shape != lo.shape:
            raise ValueError(f"a window has {self.dimensions} lower and upper ends, not {lo.shape} and {hi.shape}")
        return lo, hi

    def partners(self, root: EntryRoot, entries: Entries, window: Window | None = None) -> Cursor:
        """Rows that contain the given entries (of one set, in this version); "self": the given one first. With a window, those whose boxes
        both meet it; where it cuts a given box, boxes that begin in the remaining part may be visited in vain. ValueError: the boxes, or
        the window, have other dimensions, or the boxes are of several sets."""
        self._require_ends(entries)
        lo, hi = entries.left, entries.right
        if window is not None:
            least, most = self._window(window)
            lo, hi = np.maximum(lo, least), np.minimum(hi, most)
            inside = (lo <= hi).all(axis=1)
            entries, lo, hi = entries.take(inside), lo[inside], hi[inside]
        s = entries.only_set() if len(entries.set) else 0
        codes = 2 * entries.slot.astype(np.int64) + s
        items = items_of(entries.slot, entries.key, 0 if self._is_self else 1 - s, BOTH, codes, lo, hi)
        return QueryCursor(self.arena, root, items, s == 1)

    @property
    def live_bytes(self) -> int:
        """Bytes of the newest version's blocks and of the places of its boxes in the table by slot."""
        return self.arena.live_bytes + 16 * self.dimensions * sum(self.root.counts)

    def check(self, root: EntryRoot, others: tuple[EntryRoot, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        check_boxes(self.arena, self._boxes, root, others)
