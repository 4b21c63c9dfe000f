"""Two sets of intervals, their overlapping pairs kept live: the structure of Theorem 1.

Problem: under inserts and deletes of closed intervals [left, right] with an int32 key, tell the pairs (one
of each set, equal keys) that share a point: all of them, those that meet a window, those of one interval,
and the exact change that an update makes; at any version that is still pinned.

It is an interval tree, pilot values and productive list in one: the ordered tree of `ordered/tree.py` whose
nodes hold the extremes of `ordered/summary.py`. Kinds: "pair" (set 0 with set 1), "self" (set 0 with itself, each
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

from collections.abc import Callable

import numpy as np

from structures.core.arena import COUNT, KIND, LIVE, ROOT, Arena
from structures.core.compaction import LOOKED_AT
from structures.core.control import STORE_WORDS, VERSION
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import DELETE, INSERT, Deltas, Entries, tree_order
from structures.core.kernel import compiled
from structures.core.versioned import Versioned
from structures.interval.changes import ACTIVE, AT, CHANGES_WORDS, MISSING, REFUSED, Changes, Told, run_changes
from structures.interval.cursors import Cursor, GivenCursor, PartnersCursor, Root, SearchCursor, WalkCursor, WindowCursor
from structures.interval.walk import WHOLE, Stretch
from structures.ordered.check import check_tree
from structures.ordered.compaction import compact
from structures.ordered.search import ITEM, NOTHING_BEFORE, STEPS
from structures.ordered.summary import LIST, PAIR, SELF
from structures.ordered.tree import build, make_empty

__all__ = ["Cursor", "Entries", "IntervalTree", "Root"]

KINDS = {"pair": PAIR, "self": SELF, "list": LIST}
_CHUNK = 1 << 16
_NONE = np.empty(0, np.int32)
_NOT_ASKED = np.empty(0, np.int64)
_NO_ROWS = np.zeros(1, np.int64)
_FEW = {sign: np.full(64, sign, np.int8) for sign in (DELETE, INSERT)}  # not written to

Sink = Callable[[int, np.ndarray, np.ndarray], bool]


class IntervalTree(Versioned[Arena]):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, kind: str, words: int = STORE_WORDS) -> None:
        """`kind`: "pair", "self" or "list"; `words`: the arena's address space in 8-byte words (not memory)."""
        self.arena = Arena(words)
        self._kind = KINDS[kind]
        self.arena.C[KIND] = self._kind
        self._sets = 2 if self._kind == PAIR else 1
        self._arrays = self.arena.nodes, self.arena.writing
        make_empty(*self._arrays)
        self._run_changes = compiled(run_changes)
        self._promised = 0  # words, to the changes that room was asked for last
        self._state = np.zeros(CHANGES_WORDS, np.int64)
        self._out0 = np.empty(_CHUNK, np.int32)
        self._out1 = np.empty(_CHUNK, np.int32)
        self._told = Told(self._out0, self._out1, _NOT_ASKED)

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        root, height, count0, count1, live = self.arena.C[ROOT : LIVE + 1].tolist()
        return Root(root, height, count0, count1, bool(live))

    @property
    def update_steps(self) -> int:
        """Nodes and entries looked at for all deltas so far."""
        return int(self._state[STEPS])

    # --- writing

    def bulk_load(self, version: int, entries: Entries) -> Root:
        """Fill an empty tree. O(n log n). Raises ValueError if it is not empty, MemoryError (nothing done) if it cannot fit."""
        if self.arena.C[COUNT] or self.arena.C[COUNT + 1]:
            raise ValueError("bulk_load fills an empty tree only")
        entries.require(self._sets)
        self.arena.require(len(entries.key))
        self.arena.C[VERSION] = version
        if len(entries.key):
            build(*self._arrays, entries, tree_order(entries.set, entries.key, entries.left, entries.slot))
        return self.root

    def require(self, changes: int, applies: int) -> None:
        """Raise MemoryError unless so many deletes and inserts, in so many calls of `apply`, surely fit. O(1)."""
        self._promised = self.arena.require(changes, applies)

    def apply(self, version: int, deletes: Entries, inserts: Entries, sink: Sink | None) -> Root:
        """All deletes, then all inserts, as `version` (above every version before).

        `sink(sign, slots0, slots1)` gets the delta in chunks: sign -1 or 1, int32 arrays of its own, pairs in order of the sets ("self":
        each unordered pair once, "list": slots1 empty). It returns False to get no more (the changes go on). None: no delta is computed.
        Deleted entries must be there and inserted ones not (KeyError: the tree is then damaged). MemoryError: nothing was done.
        """
        if len(deletes.key) and len(inserts.key):
            inserts.require(self._sets)  # before deletes are written; what else there is the kernel looks at first
        self.arena.require(len(deletes.key) + len(inserts.key))
        self.arena.C[VERSION] = version
        for sign, entries in ((DELETE, deletes), (INSERT, inserts)):
            if len(entries.key) == 0:
                continue
            if sink is not None and self._kind == LIST and not sink(sign, entries.slot.copy(), _NONE):
                sink = None
            sink = self._run(sign, entries, sink)
        if self.arena.is_sparse:
            compact(*self._arrays, LOOKED_AT * (len(deletes.key) + len(inserts.key)), self._promised)
        return self.root

    def _run(self, sign: int, entries: Entries, sink: Sink | None) -> Sink | None:
        """Apply one sign; the sink, or None once it wants no more."""
        Z, n = self._state, len(entries.key)
        entries.require_columns()
        Z[AT:] = 0
        signs = _FEW[sign][:n] if n <= len(_FEW[sign]) else np.full(n, sign, np.int8)
        order = tree_order(entries.set, entries.key, entries.left, entries.slot)
        changes = Changes(signs, entries, order)
        while Z[AT] < n:
            rows = self._go_on(changes, self._told, sink is not None)
            if sink is not None and rows and not sink(sign, self._out0[:rows].copy(), self._out1[:rows].copy()):
                sink = None
                Z[ACTIVE] = 0
        self._none_missing()
        return sink

    def _go_on(self, changes: Changes, told: Told, deltas: bool) -> int:
        """Go on with a run; the rows written. ValueError, and nothing done: an entry is none."""
        rows = int(self._run_changes(*self._arrays, changes, self._state, told, deltas))
        if rows == REFUSED:
            changes.entries.require(self._sets)
        return rows

    def _none_missing(self) -> None:
        if self._state[MISSING]:
            raise KeyError(f"{self._state[MISSING]} deleted entries were not in the tree")

    def apply_in_order(self, version: int, signs: np.ndarray, entries: Entries, limit: int | None) -> Deltas:
        """Deletes and inserts one after another, as `version`; each tells its delta against what the ones before it left.

        signs: int8[n], of `core/entries`: DELETE, INSERT; LEAVE, ENTER without a delta. Deltas of more than `limit` rows that fill more
        than a chunk are given up; None: there are none. Errors as `apply`. Cost: as `apply`, and a copy of the deltas.
        """
        n = len(signs)
        entries.require_columns()
        self.arena.require(n)
        self.arena.C[VERSION] = version
        Z = self._state
        Z[AT:] = 0
        order = np.arange(n)
        ends, too_large = np.zeros(n, np.int64), np.zeros(n, np.bool_)
        parts, total = [(_NONE, _NONE)], 0
        changes, told = Changes(signs, entries, order), Told(self._out0, self._out1, ends)
        while Z[AT] < n:
            first = int(Z[AT])
            rows = self._go_on(changes, told, limit is not None)
            parts.append((self._out0[:rows].copy(), self._out1[:rows].copy()))
            at = int(Z[AT])
            ends[first:at] += total
            total += rows
            if at < n and limit is not None and total - (ends[at - 1] if at else 0) > limit:
                too_large[at] = True
                Z[ACTIVE] = 0
                self._go_on(changes._replace(order=order[: at + 1]), self._told, False)
                ends[at] = total
        self._none_missing()
        if self.arena.is_sparse:
            compact(*self._arrays, LOOKED_AT * n, self._promised)
        starts = np.concatenate((_NO_ROWS, ends))[:n]
        starts[too_large] = ends[too_large]
        if self._kind == LIST and limit is not None:
            with_delta = (signs == DELETE) | (signs == INSERT)
            ends = np.cumsum(with_delta)
            return Deltas(ends - with_delta, ends, entries.slot[with_delta], np.empty(int(with_delta.sum()), np.int32), too_large)
        slots0, slots1 = parts[-1] if len(parts) <= 2 else (np.concatenate(part) for part in zip(*parts, strict=True))
        return Deltas(starts, ends, slots0, slots1, too_large)

    # --- reading

    def is_empty(self, root: Root) -> bool:
        """Whether the version has no row. O(1)."""
        return not root.live

    def rows(self, root: Root, key: int | None = None, window: tuple[int, int] | None = None) -> Cursor:
        """Rows of a version: all, or of one key, or those whose intervals all meet the closed window; of a "list", the entries.

        With a window but no key the keys are visited one by one: O(log n) for each key, rows or not.
        """
        if self._kind == LIST:
            return SearchCursor(self.arena, root)
        if window is None:
            return WalkCursor(self.arena, root, WHOLE if key is None else Stretch(key, NEG_INF, key, POS_INF))
        return WindowCursor(self.arena, root, key, window)

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
        return PartnersCursor(self.arena, root, int(entries.set[0]), items)

    def check(self, root: Root, others: tuple[Root, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        check_tree(self.arena, root, others)
