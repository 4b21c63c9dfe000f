"""Cursors: enumerations of one version of a box tree, resumable and cloned at no cost.

A cursor is plain data beside the tree: its state Z belongs to the kernels of `search` and `walk`. Whoever holds one
holds its version's pin.
"""

from __future__ import annotations

import copy

import numpy as np

from structures.box.layout import DIMENSIONS, EVERY_CODE, ROOM, SELF_, BoxArena, BoxRoot
from structures.box.search import BEFORE, ITEM_AT, LO_, QUEUED, WITHIN, next_box_key, query_fill, query_words
from structures.box.walk import QUEUED as VIEW_QUEUED
from structures.box.walk import ROWS_BEYOND, view_fill, view_start, view_words
from structures.core.arena import B
from structures.core.entry_tree import Root
from structures.core.kernel import compiled
from structures.interval.walk import GAP as WALK_GAP
from structures.interval.walk import STEPS as WALK_STEPS
from structures.ordered.search import GAP, STEPS

_NOTHING = np.empty((2, 0), np.int32)
_BUDGET = 1 << 18  # steps of a call that finds nothing: about a millisecond
_LOOKS = 64  # at parts without rows before a reading is interrupted
_CHUNK = 256  # boxes of a window that are asked for partners at a time


class Cursor:
    """A reading of one version; plain data beside the tree. `fill` releases the GIL in its kernels."""

    def __init__(self, arena: BoxArena, root: Root) -> None:
        self._arena, self._root = arena, root
        self._dimensions, self._single = int(arena.C[DIMENSIONS]), bool(arena.C[SELF_])
        self._tree = BoxRoot(root.offset, self._single, self._dimensions)
        self._held = _NOTHING
        self._ended = False

    def fill(self, limit: int) -> np.ndarray:
        """Up to `limit` >= 1 further rows, int32[2, rows]: slots of set 0 and of set 1 ("self": in no order, given ones first).

        May have no rows before the end (`done`), so that a call takes milliseconds at most.
        """
        start = self.steps
        for _ in range(_LOOKS):
            if self._held.shape[1] or self._ended or self.steps - start > _BUDGET:
                break
            self._held = self._more(limit)
        rows, self._held = self._held[:, :limit], self._held[:, limit:]
        return rows

    @property
    def done(self) -> bool:
        return self._ended and self._held.shape[1] == 0

    def clone(self) -> Cursor:
        """An independent cursor at the same place."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """Nodes and entries looked at so far."""
        raise NotImplementedError

    @property
    def largest_gap(self) -> int:
        """The most steps between two rows so far."""
        raise NotImplementedError

    def _more(self, want: int) -> np.ndarray:
        raise NotImplementedError


class ViewCursor(Cursor):
    """All rows, or those of one key (`walk`)."""

    def __init__(self, arena: BoxArena, root: Root, key: int | None) -> None:
        super().__init__(arena, root)
        self._Z = np.zeros(view_words(self._dimensions), np.int64)
        compiled(view_start)(arena.W, self._Z, root.offset, -1 if key is None else key)
        self._ended = self._Z[VIEW_QUEUED] == 0

    def clone(self) -> Cursor:
        other = copy.copy(self)
        other._Z = self._Z.copy()
        return other

    @property
    def steps(self) -> int:
        return int(self._Z[WALK_STEPS])

    @property
    def largest_gap(self) -> int:
        return int(self._Z[WALK_GAP])

    def _more(self, want: int) -> np.ndarray:
        out = np.empty((2, want + ROWS_BEYOND), np.int32)
        n = compiled(view_fill)(self._arena.nodes, self._Z, self._tree, out[0], out[1], want)
        self._ended = self._Z[VIEW_QUEUED] == 0
        return out[:, :n]


class QueryCursor(Cursor):
    """Rows (item's slot, hit) of items (`search`) that are of one set; `swap`: of set 1, to come second."""

    def __init__(self, arena: BoxArena, root: Root, items: np.ndarray, swap: bool) -> None:
        super().__init__(arena, root)
        self._items, self._swap = items, swap
        self._Z = np.zeros(query_words(self._dimensions), np.int64)
        self._Z[ITEM_AT] = -1
        self._ended = len(items) == 0

    def clone(self) -> Cursor:
        other = copy.copy(self)
        other._Z = self._Z.copy()
        return other

    @property
    def steps(self) -> int:
        return int(self._Z[STEPS])

    @property
    def largest_gap(self) -> int:
        return int(self._Z[GAP])

    def _more(self, want: int) -> np.ndarray:
        arena, Z = self._arena, self._Z
        out = np.empty((2, want + B + ROOM), np.int32)
        n = compiled(query_fill)(arena.nodes, Z, self._tree, self._items.reshape(-1), out[0], out[1], 0, _BUDGET)
        self._ended = Z[QUEUED] == 0 and Z[ITEM_AT] == len(self._items) - 1
        return out[::-1, :n] if self._swap else out[:, :n]


Column = np.ndarray | int


def items_of(slots: Column, keys: Column, searched: int, mode: int, ties: Column, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """int64[n, 5 + 2d]: items of `search`, from columns or what all have, and boxes lo, hi [n, d]."""
    n, d = lo.shape
    items = np.empty((n, LO_ + 2 * d), np.int64)
    for column, values in enumerate((slots, keys, searched, mode, ties)):
        items[:, column] = values
    items[:, LO_ : LO_ + d], items[:, LO_ + d :] = lo, hi
    return items


class WindowCursor(Cursor):
    """Rows whose two boxes both meet the window [lo, hi], key by key (or of one key).

    In dimension 0 two intervals that meet the window and each other either both contain lo, or the later-starting one begins in
    (lo, hi]. So: the boxes of set 0 that contain lo there, with those partners that contain it, too; then all boxes that begin in
    (lo, hi] there, with those partners that begin before them. In the other dimensions a box is cut to the window: three boxes
    that meet pairwise have a common point. Each box of the window costs a search, rows or not: the delay is not promised.
    """

    def __init__(self, arena: BoxArena, root: Root, boxes: np.ndarray, key: int | None, lo: np.ndarray, hi: np.ndarray) -> None:
        super().__init__(arena, root)
        self._boxes, self._lo, self._hi = boxes, lo, hi
        self._one = key is not None
        self._phases = 2 if self._single else 3
        self._key = key if key is not None else self._next_key(-1)
        self._phase = -1
        self._outer: Cursor | None = None
        self._inner: Cursor | None = None
        self._ended = self._key == EVERY_CODE
        self._steps = self._gap = self._at_row = 0

    def clone(self) -> Cursor:
        other = copy.copy(self)
        other._outer, other._inner = (part and part.clone() for part in (self._outer, self._inner))
        return other

    @property
    def steps(self) -> int:
        return self._steps + sum(part.steps for part in (self._outer, self._inner) if part is not None)

    @property
    def largest_gap(self) -> int:
        return self._gap

    def _next_key(self, key: int) -> int:
        return int(compiled(next_box_key)(self._arena.nodes, self._root.offset, key))

    def _more(self, want: int) -> np.ndarray:
        if self._inner is not None:
            rows = self._inner.fill(want)
            if self._inner.done:
                self._steps += self._inner.steps
                self._inner = None
            if self._single and self._phase == 0:
                rows = rows[:, rows[0] < rows[1]]
            if rows.shape[1]:
                self._gap, self._at_row = max(self._gap, self.steps - self._at_row), self.steps
            return rows
        if self._outer is None:
            self._begin()
        else:
            found = self._outer.fill(_CHUNK)[1]
            if len(found):
                self._inner = self._partners(found)
            if self._outer.done:
                self._steps += self._outer.steps
                self._outer = None
        return _NOTHING

    def _begin(self) -> None:
        """Go on to the next phase, and after the last to the next key."""
        self._phase += 1
        if self._phase == self._phases:
            self._phase = 0
            self._key = EVERY_CODE if self._one else self._next_key(self._key)
            if self._key == EVERY_CODE:
                self._ended = True
                return
        mode = BEFORE if self._phase == 0 else WITHIN
        item = items_of(-1, self._key, self._set, mode, EVERY_CODE, self._lo[None, :], self._hi[None, :])
        self._outer = QueryCursor(self._arena, self._root, item, False)

    @property
    def _set(self) -> int:
        """Of the boxes that are asked for partners in this phase."""
        return 1 if self._phase == 2 else 0

    def _partners(self, slots: np.ndarray) -> QueryCursor:
        s, d = self._set, self._dimensions
        boxes = self._boxes[s, slots]
        lo, hi = np.maximum(boxes[:, :d], self._lo), np.minimum(boxes[:, d:], self._hi)
        ties = EVERY_CODE if self._phase == 0 else 2 * slots.astype(np.int64) + s
        items = items_of(slots, self._key, 0 if self._single else 1 - s, BEFORE, ties, lo, hi)
        return QueryCursor(self._arena, self._root, items, s == 1)
