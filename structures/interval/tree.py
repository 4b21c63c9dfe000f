"""The overlapping pairs of two sets of intervals, maintained under updates: the structure of Theorem 1.

Problem: under inserts and deletes of closed intervals [left, right] with an int32 key, report the pairs (one of each set, equal keys) that
share a point: all of them, those that meet a window, those of one interval, and the exact change that an update causes; at any version that
is still pinned.

    set 0   ==========       =====        a pair is found where the later of the two starts: the other one stabs it there
    set 1        ========  =====

The structure is an interval tree, pilot values and productive list in one: the ordered tree of `ordered/tree.py` (which states the
invariants), whose nodes hold the extremes of `ordered/summary.py`. Kinds: "pair" (set 0 with set 1), "self" (set 0 with itself, each
unordered pair once), "list" (set 0 alone: a row is an entry; for views of one relation).

Costs (n entries, r rows reported)
    bulk_load       O(n log n), the sort
    apply           O(log n) a change and its delta, O(log n) copied blocks a version
    rows, partners  first row O(log n) steps, O(log n) between rows, about one a row
    is_empty        O(1)
    memory          about 27 to 40 bytes an entry; blocks of old versions as long as a pin needs them
Differences from the paper: a pair is reported where the interval that starts earlier stabs the one that starts later, so two cases suffice
instead of four and no row is reported twice; O(log n) worst-case delay instead of O(1), measured at about one step a row. Source: Tao and
Yi, *Intersection Joins under Updates*, section 4.1.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from structures.core.arena import KIND, LIVE, ROOT, Arena
from structures.core.control import STORE_WORDS
from structures.core.cursor import Cursor, GivenCursor
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries, require_key, tree_order
from structures.core.entry_tree import EntryRoot, EntryTree
from structures.core.kernel import compiled
from structures.core.runs import RUN_WORDS
from structures.interval.changes import run_changes
from structures.interval.cursors import PartnersCursor, WalkCursor, WindowCursor
from structures.interval.walk import WHOLE, KeyRange
from structures.ordered.check import check_tree
from structures.ordered.cursors import list_cursor
from structures.ordered.search import ITEM, NOTHING_BEFORE, SEARCH_WORDS, STEPS
from structures.ordered.summary import LIST, PAIR, SELF
from structures.ordered.tree import build, make_empty

__all__ = ["Cursor", "Entries", "IntervalTree", "EntryRoot"]

KINDS = {"pair": PAIR, "self": SELF, "list": LIST}


class IntervalTree(EntryTree[Arena]):
    """See the module's head; `EntryTree` describes changes. Rows are pairs in the order of the sets ("self": in any order), or the entries
    of a "list"."""

    def __init__(self, kind: str, words: int = STORE_WORDS) -> None:
        """`kind`: "pair", "self" or "list"; `words`: the arena's address space in 8-byte words (not memory)."""
        self._kind = KINDS[kind]
        members = 1 if self._kind == LIST else 2
        super().__init__(Arena(words), 2 if self._kind == PAIR else 1, members, np.zeros(RUN_WORDS + SEARCH_WORDS, np.int64))
        self.arena.C[KIND] = self._kind
        self._arrays = self.arena.nodes, self.arena.writing
        make_empty(*self._arrays)
        self._change = partial(compiled(run_changes), *self._arrays, self._state, self._emitted)

    @property
    def root(self) -> EntryRoot:
        """The newest version, published or not."""
        offset, height, first, second, live = self.arena.C[ROOT : LIVE + 1].tolist()
        return EntryRoot(offset, height, (first, second), live != 0)

    @property
    def update_steps(self) -> int:
        """Nodes and entries visited for all deltas so far."""
        return int(self._state[RUN_WORDS + STEPS])

    # --- writing

    def _order(self, entries: Entries) -> np.ndarray:
        return tree_order(entries.set, entries.key, entries.left, entries.slot)

    def _load(self, entries: Entries) -> None:
        build(*self._arrays, entries, self._order(entries))

    # --- reading

    def rows(self, root: EntryRoot, key: int | None = None, window: tuple[int, int] | None = None) -> Cursor:
        """Rows of a version: all, or of one key, or those whose intervals all meet the closed window.

        With a window but no key, the keys are visited one by one: O(log n) for each key, with or without rows. ValueError: the key is out
        of range.
        """
        require_key(key)
        if self._kind == LIST:
            return list_cursor(self.arena, root, key, window)
        if window is None:
            return WalkCursor(self.arena, root, WHOLE if key is None else KeyRange(key, NEG_INF, key, POS_INF))
        return WindowCursor(self.arena, root, key, window)

    def partners(self, root: EntryRoot, entries: Entries, window: tuple[int, int] | None = None) -> Cursor:
        """Rows that contain the given entries (of one set, in this version); "self": the given one first, "list": the entries. ValueError:
        they are of several sets."""
        lo, hi = window or (NEG_INF, POS_INF)
        if window is not None:
            entries = entries.take((entries.left <= hi) & (entries.right >= lo))
        if self._kind == LIST:
            return GivenCursor(entries.slot.reshape(1, -1))
        n = len(entries.key)
        if n == 0:
            return GivenCursor(np.empty((2, 0), np.int32))
        items = np.empty((n, ITEM), np.int64)
        items[:, 0], items[:, 1], items[:, 2], items[:, 3] = entries.slot, entries.key, NEG_INF, NOTHING_BEFORE
        items[:, 4], items[:, 5] = np.minimum(entries.right, hi), np.maximum(entries.left, lo)
        return PartnersCursor(self.arena, root, entries.only_set(), items)

    def check(self, root: EntryRoot, others: tuple[EntryRoot, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        check_tree(self.arena, root, others)
