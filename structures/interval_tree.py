"""Two sets of intervals, their overlapping pairs kept live: the structure of Theorem 1.

Problem: under inserts and deletes of closed intervals [left, right] with an int32 key, tell the pairs (one
of each set, equal keys) that share a point: all of them, those that meet a window, those of one interval,
and the exact change that an update makes; at any version that is still pinned.

It is an interval tree, pilot values and productive list in one: the ordered tree of `ordered_tree.py` whose
nodes hold the extremes of `summary.py`. Kinds: "pair" (set 0 with set 1), "self" (set 0 with itself, each
unordered pair once), "list" (set 0 alone: a row is an entry; for views of one relation).

Costs (n entries, r rows reported)
    bulk_load       O(n log n), the sort
    apply           O(log n) a change and its delta, O(log n) copied blocks a version
    rows, partners  first row O(log n) steps, O(log n) between rows, about one a row
    is_empty        O(1)
    memory          about 27 to 40 bytes an entry; blocks of old versions as long as a pin sees them
Differences from the paper: pairs are reported where the later-starting interval is stabbed by the earlier
one, so two cases suffice instead of four and nothing is reported twice; O(log n) worst-case delay instead
of O(1), measured at about one step a row. Source: Tao and Yi, *Intersection Joins under Updates*, section 4.1.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from structures.arena import ARENA_WORDS, COUNT, HEIGHT, KEY_MAX, KIND, LIVE, NEG_INF, POS_INF, ROOT, VERSION, Arena, B
from structures.interval_changes import AT, CHANGES_WORDS, MISSING, run_changes, tree_order
from structures.interval_search import (
    DEPTH,
    EVERY_CODE,
    GAP,
    ITEM,
    ITEM_AT,
    NOTHING_BEFORE,
    PARTNERS_WORDS,
    SEARCH_WORDS,
    STEPS,
    partners_fill,
    search_fill,
    search_start,
)
from structures.interval_walk import DONE, WALK_WORDS, walk_fill, walk_start
from structures.interval_walk import GAP as WALK_GAP
from structures.interval_walk import STEPS as WALK_STEPS
from structures.lookups import find_entries, next_key
from structures.ordered_tree import build, make_empty
from structures.summary import LIST, PAIR, SELF

KINDS = {"pair": PAIR, "self": SELF, "list": LIST}
_CHUNK = 1 << 16
_NONE = np.empty(0, np.int32)
_LOOKS = 256  # at parts without rows (a window has three a key) before a reading is interrupted
_NO_ENDS = np.empty(0, np.int64)

Sink = Callable[[int, np.ndarray, np.ndarray], bool]


class Entries(NamedTuple):
    """Intervals, closed, as columns of length n: set uint8 (0 or 1), key int32 >= 0, left <= right int64, slot int32 in [0, 2**30)."""

    set: np.ndarray
    key: np.ndarray
    left: np.ndarray
    right: np.ndarray
    slot: np.ndarray

    def take(self, places: np.ndarray) -> Entries:
        return Entries(*(column[places] for column in self))


class Root(NamedTuple):
    """One version of a tree: plain data, good as long as its version is pinned."""

    offset: int
    height: int
    count0: int
    count1: int
    live: bool


class IntervalTree:
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, kind: str, words: int = ARENA_WORDS) -> None:
        """`kind`: "pair", "self" or "list"; `words`: the arena's address space in 8-byte words (not memory)."""
        self.arena = Arena(words)
        self._kind = KINDS[kind]
        self.arena.C[KIND] = self._kind
        self._arrays = self.arena.M, self.arena.W, self.arena.C, self.arena.Q
        make_empty(*self._arrays)
        self._state = np.zeros(CHANGES_WORDS, np.int64)
        self._out0 = np.empty(_CHUNK, np.int32)
        self._out1 = np.empty(_CHUNK, np.int32)

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        C = self.arena.C.tolist()
        return Root(C[ROOT], C[HEIGHT], C[COUNT], C[COUNT + 1], bool(C[LIVE]))

    # --- writing

    def bulk_load(self, version: int, entries: Entries) -> Root:
        """Fill an empty tree. O(n log n). Raises ValueError if it is not empty, MemoryError (nothing done) if it cannot fit."""
        if self.arena.C[COUNT] or self.arena.C[COUNT + 1]:
            raise ValueError("bulk_load fills an empty tree only")
        self.arena.require(len(entries.key))
        self.arena.C[VERSION] = version
        if len(entries.key):
            build(*self._arrays, *entries, tree_order(entries.set, entries.key, entries.left, entries.slot))
        return self.root

    def require(self, changes: int, applies: int) -> None:
        """Raise MemoryError unless so many deletes and inserts, in so many calls of `apply`, surely fit. O(1)."""
        self.arena.require(changes, applies)

    def apply(self, version: int, deletes: Entries, inserts: Entries, sink: Sink | None) -> Root:
        """All deletes, then all inserts, as `version` (above every version before).

        `sink(sign, slots0, slots1)` gets the delta in chunks: sign -1 or 1, int32 arrays of its own, pairs in order of the sets ("self":
        each unordered pair once, "list": slots1 empty). It returns False to get no more (the changes go on). None: no delta is computed.
        Deleted entries must be there and inserted ones not (KeyError: the tree is then damaged). MemoryError: nothing was done.
        """
        self.arena.require(len(deletes.key) + len(inserts.key))
        self.arena.C[VERSION] = version
        for sign, entries in ((-1, deletes), (1, inserts)):
            if len(entries.key) == 0:
                continue
            if sink is not None and self._kind == LIST and not sink(sign, entries.slot.copy(), _NONE):
                sink = None
            sink = self._run(sign, entries, sink)
        return self.root

    def _run(self, sign: int, entries: Entries, sink: Sink | None) -> Sink | None:
        """Apply one sign; the sink, or None once it wants no more."""
        Z, n = self._state, len(entries.key)
        Z[AT:] = 0
        order = tree_order(entries.set, entries.key, entries.left, entries.slot)
        while Z[AT] < n:
            rows = run_changes(*self._arrays, sign, *entries, order, Z, self._out0, self._out1, sink is not None)
            if sink is not None and rows and not sink(sign, self._out0[:rows].copy(), self._out1[:rows].copy()):
                sink = None
                Z[AT + 1] = 0
        if Z[MISSING]:
            raise KeyError(f"{Z[MISSING]} deleted entries were not in the tree")
        return sink

    def reclaim(self, oldest: int, pins: np.ndarray) -> None:
        """Make blocks reusable that no version >= `oldest` and no pin (ascending int64) can see."""
        self.arena.reclaim(oldest, pins)

    # --- reading

    def is_empty(self, root: Root) -> bool:
        """Whether the version has no row. O(1)."""
        return not root.live

    def rows(self, root: Root, key: int | None = None, window: tuple[int, int] | None = None) -> Cursor:
        """Rows of a version: all, or of one key, or those whose intervals all meet the closed window; of a "list", the entries.

        With a window but no key the keys are visited one by one: O(log n) for each key, rows or not.
        """
        if self._kind == LIST:
            return SearchCursor(self, root)
        if window is None:
            low, high = (-1, KEY_MAX) if key is None else (key, key)
            return WalkCursor(self, root, (low, NEG_INF), (high, POS_INF))
        return WindowCursor(self, root, key, window)

    def partners(self, root: Root, entries: Entries, window: tuple[int, int] | None = None) -> Cursor:
        """Rows in which the given entries (of one set, in this version) take part; "self": the given one first, "list": the entries."""
        if self._kind == LIST or len(entries.key) == 0:
            return GivenCursor(entries.slot)
        lo, hi = window or (NEG_INF, POS_INF)
        if window is not None:
            entries = entries.take((entries.left <= hi) & (entries.right >= lo))
            if len(entries.key) == 0:
                return GivenCursor(entries.slot)
        n = len(entries.key)
        items = np.empty((n, ITEM), np.int64)
        items[:, 0], items[:, 1], items[:, 2], items[:, 3] = entries.slot, entries.key, NEG_INF, NOTHING_BEFORE
        items[:, 4], items[:, 5] = np.minimum(entries.right, hi), np.maximum(entries.left, lo)
        return PartnersCursor(self, root, int(entries.set[0]), items)

    def contains(self, root: Root, entries: Entries) -> np.ndarray:
        """bool[n]: whether the version has exactly this entry. O(log n) each."""
        found = np.empty(len(entries.key), np.bool_)
        find_entries(self.arena.M, self.arena.W, root.offset, root.height, *entries, found)
        return found

    def live_bytes(self) -> int:
        """Bytes of the newest version's blocks."""
        return self.arena.live_bytes

    @property
    def retired_bytes(self) -> int:
        """Bytes of blocks that only older versions see."""
        return self.arena.retired_bytes

    def check(self, root: Root, others: tuple[Root, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        from structures.tree_check import check_tree

        check_tree(self.arena, root, others)


class Cursor:
    """A reading of one version; plain data beside the tree. `fill` releases the GIL in its kernels."""

    def __init__(self) -> None:
        self._held: tuple[np.ndarray, np.ndarray] = (_NONE, _NONE)
        self._ended = False

    def fill(self, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Up to `limit` >= 1 further rows as (slots0, slots1), int32 ("list": slots1 always empty).

        Both are empty at the end (`done`), and where `_LOOKS` looks in a row found none, so that a call takes milliseconds.
        """
        a, b = self._held
        for _ in range(_LOOKS):
            if len(a) or self._ended:
                break
            a, b = self._more(limit)
        self._held = a[limit:], b[limit:]
        return a[:limit], b[:limit]

    @property
    def done(self) -> bool:
        return self._ended and len(self._held[0]) == 0

    def clone(self) -> Cursor:
        """An independent cursor at the same place."""
        other = copy.copy(self)
        other._copy_state()
        return other

    @property
    def steps(self) -> int:
        """Nodes and entries looked at so far."""
        return 0

    @property
    def largest_gap(self) -> int:
        """The most steps between two rows so far."""
        return 0

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def _copy_state(self) -> None:
        raise NotImplementedError


class WalkCursor(Cursor):
    """Rows of the entries between two places (key, left) of the order, both included (`interval_walk`)."""

    def __init__(self, tree: IntervalTree, root: Root, low: tuple[int, int], high: tuple[int, int]) -> None:
        super().__init__()
        self._M, self._W = tree.arena.M, tree.arena.W
        self._Z = np.zeros(WALK_WORDS, np.int64)
        walk_start(self._M, self._W, self._Z, root.offset, root.height, tree._kind, *low, *high)

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        out0, out1 = np.empty(want + B * B, np.int32), np.empty(want + B * B, np.int32)
        n = walk_fill(self._M, self._W, self._Z, out0, out1, want)
        self._ended = bool(self._Z[DONE])
        return out0[:n], out1[:n]

    def _copy_state(self) -> None:
        self._Z = self._Z.copy()

    @property
    def steps(self) -> int:
        return int(self._Z[WALK_STEPS])

    @property
    def largest_gap(self) -> int:
        return int(self._Z[WALK_GAP])


class SearchCursor(Cursor):
    """The entries of a "list" (`interval_search`)."""

    def __init__(self, tree: IntervalTree, root: Root) -> None:
        super().__init__()
        self._M, self._W = tree.arena.M, tree.arena.W
        self._Z = np.zeros(SEARCH_WORDS, np.int64)
        search_start(self._Z, root.offset, root.height, 0, 0, NEG_INF, NOTHING_BEFORE, POS_INF, NEG_INF)

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        out = np.empty(want + B, np.int32)
        n = search_fill(self._M, self._W, self._Z, out, 0, _NO_ENDS)
        self._ended = self._Z[DEPTH] == 0
        return out[:n], _NONE

    def _copy_state(self) -> None:
        self._Z = self._Z.copy()

    @property
    def steps(self) -> int:
        return int(self._Z[STEPS])

    @property
    def largest_gap(self) -> int:
        return int(self._Z[GAP])


class GivenCursor(Cursor):
    """The given slots of a "list", or nothing."""

    def __init__(self, slots: np.ndarray) -> None:
        super().__init__()
        self._held = (slots, _NONE)
        self._ended = True

    def _copy_state(self) -> None:
        pass


class PartnersCursor(Cursor):
    """Rows of the given items (`interval_search.ITEM`), which are of set s."""

    def __init__(self, tree: IntervalTree, root: Root, s: int, items: np.ndarray) -> None:
        super().__init__()
        self._tree, self._root, self._set, self._items = tree, root, s, items.reshape(-1)
        self._Z = np.zeros(PARTNERS_WORDS, np.int64)

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        tree, root = self._tree, self._root
        own, other = np.empty(want + B, np.int32), np.empty(want + B, np.int32)
        searched = 0 if tree._kind == SELF else 1 - self._set
        n = partners_fill(tree.arena.M, tree.arena.W, self._Z, root.offset, root.height, searched, self._items, own, other, 0)
        self._ended = ITEM * self._Z[ITEM_AT] >= len(self._items)
        own, other = own[:n], other[:n]
        if tree._kind == SELF:
            apart = own != other
            return own[apart], other[apart]
        return (own, other) if self._set == 0 else (other, own)

    def _copy_state(self) -> None:
        self._Z = self._Z.copy()

    @property
    def steps(self) -> int:
        return int(self._Z[STEPS])

    @property
    def largest_gap(self) -> int:
        return int(self._Z[GAP])


class StabCursor(Cursor):
    """Rows of the intervals of set s that contain `lo` and reach `least`, with those partners that come after `after` (None: after
    the interval itself in the order), begin by `hi` and reach `reach`: the outer search is resumed in small chunks."""

    def __init__(
        self, tree: IntervalTree, root: Root, s: int, key: int, lo: int, hi: int, least: int, after: tuple[int, int] | None, reach: int
    ) -> None:
        super().__init__()
        self._tree, self._root, self._set, self._key = tree, root, s, key
        self._hi, self._after, self._reach = hi, after, reach
        self._Z = np.zeros(SEARCH_WORDS, np.int64)
        self._inner: PartnersCursor | None = None
        search_start(self._Z, root.offset, root.height, s, key, NEG_INF, NOTHING_BEFORE, lo, least)

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        if self._inner is None or self._inner.done:
            if self._Z[DEPTH] == 0:
                self._ended = True
                return _NONE, _NONE
            self._inner = PartnersCursor(self._tree, self._root, self._set, self._next_items())
        return self._inner.fill(want)

    def _next_items(self) -> np.ndarray:
        out, ends = np.empty(4 * B, np.int32), np.empty(8 * B, np.int64)
        n = search_fill(self._tree.arena.M, self._tree.arena.W, self._Z, out, 0, ends)
        items = np.empty((n, ITEM), np.int64)
        items[:, 0], items[:, 1] = out[:n], self._key
        if self._after is None:
            items[:, 2], items[:, 3] = ends[: 2 * n : 2], 2 * out[:n].astype(np.int64) + self._set
        else:
            items[:, 2], items[:, 3] = self._after
        items[:, 4], items[:, 5] = np.minimum(ends[1 : 2 * n : 2], self._hi), self._reach
        return items

    def _copy_state(self) -> None:
        self._Z = self._Z.copy()
        if self._inner is not None:
            self._inner = self._inner.clone()  # type: ignore[assignment]


class WindowCursor(Cursor):
    """Rows whose two intervals both meet [lo, hi], key by key (or of one key).

    Two intervals that meet the window and each other either both contain lo, or the later-starting one begins in (lo, hi]. So: the
    intervals of set 0 that contain lo with all their partners; those of set 1 with partners that begin in (lo, hi]; the walk over what
    begins in (lo, hi]. An interval is only entered when it surely has a partner, so no dead ends beyond one a phase.
    """

    def __init__(self, tree: IntervalTree, root: Root, key: int | None, window: tuple[int, int]) -> None:
        super().__init__()
        self._tree, self._root, self._window = tree, root, window
        self._one = key is not None
        self._key = key if key is not None else next_key(tree.arena.M, tree.arena.W, root.offset, root.height, -1)
        self._phase = 0
        self._part: Cursor | None = None

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        if self._part is not None:
            rows = self._part.fill(want)
            if len(rows[0]) or not self._part.done:
                return rows
        self._part = None
        if self._key == KEY_MAX:
            self._ended = True
        else:
            self._part = self._next_part()
        return _NONE, _NONE

    def _next_part(self) -> Cursor | None:
        """The cursor of the current phase, None if it surely has no row; the phase moves on."""
        tree, root, key, (lo, hi) = self._tree, self._root, self._key, self._window
        phase, self._phase = self._phase, self._phase + 1
        before = (NEG_INF, NOTHING_BEFORE)
        if phase == 0:
            if tree._kind == SELF:
                return StabCursor(tree, root, 0, key, lo, hi, lo, None, lo)
            least = lo if self._first(1, lo, before, lo) is not None else self._first(1, hi, (lo, EVERY_CODE), NEG_INF)
            return None if least is None else StabCursor(tree, root, 0, key, lo, hi, least, before, lo)
        if phase == 1:
            least = None if tree._kind == SELF else self._first(0, hi, (lo, EVERY_CODE), NEG_INF)
            return None if least is None else StabCursor(tree, root, 1, key, lo, hi, least, (lo, EVERY_CODE), NEG_INF)
        if self._one:
            self._key = KEY_MAX
        else:
            self._key = next_key(tree.arena.M, tree.arena.W, root.offset, root.height, key)
        self._phase = 0
        return WalkCursor(tree, root, (key, lo + 1), (key, hi)) if lo < hi else None

    def _first(self, s: int, most: int, after: tuple[int, int], least: int) -> int | None:
        """The smallest left endpoint of the search's hits, None if there is none."""
        Z, out, ends = np.zeros(SEARCH_WORDS, np.int64), np.empty(B + 1, np.int32), np.empty(2 * B + 2, np.int64)
        search_start(Z, self._root.offset, self._root.height, s, self._key, *after, most, least)
        n = search_fill(self._tree.arena.M, self._tree.arena.W, Z, out, 0, ends)
        return int(ends[0]) if n else None

    def _copy_state(self) -> None:
        if self._part is not None:
            self._part = self._part.clone()
