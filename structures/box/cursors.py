"""Cursors: enumerations of one version of a box tree, resumable and cloned at no cost.

A cursor is plain data beside the tree: its state belongs to the kernels of `search` and `walk`. The owner of a cursor holds a pin on its
version.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from structures.box.layout import DIMENSIONS, EVERY_CODE, ROOM, SELF_, BoxArena, BoxRoot
from structures.box.search import BEFORE, ITEM_AT, LO_, QUEUED, WITHIN, next_box_key, query_fill, query_words
from structures.box.walk import ANY_KEY, ROWS_BEYOND, view_fill, view_start, view_words
from structures.box.walk import QUEUED as VIEW_QUEUED
from structures.core.arena import KEY_MAX, B
from structures.core.cursor import Cursor, PartedCursor
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.interval import walk
from structures.ordered.chunks import within
from structures.ordered.search import GAP, LAST, STEPS

NO_SLOT = -1  # slot of an item that is not a box
_CHUNK = 256  # boxes of a window whose partners are searched at a time


def tree_of(arena: BoxArena, root: EntryRoot) -> BoxRoot:
    """A version in the form that the kernels take."""
    return BoxRoot(root.offset, bool(arena.C[SELF_]), int(arena.C[DIMENSIONS]))


class ViewCursor(Cursor):
    """All rows, or those of one key (`walk`)."""

    _STEPS, _GAP = walk.STEPS, walk.GAP

    def __init__(self, arena: BoxArena, root: EntryRoot, key: int | None) -> None:
        self._arena, self._tree = arena, tree_of(arena, root)
        super().__init__(2, np.zeros(view_words(self._tree.dimensions), np.int64))
        compiled(view_start)(arena.W, self._Z, root.offset, ANY_KEY if key is None else key)
        self._ended = bool(self._Z[VIEW_QUEUED] == 0)

    def _more(self, want: int) -> np.ndarray:
        most = max(within(want, ROWS_BEYOND), 1)
        out = np.empty((2, most + ROWS_BEYOND), np.int32)
        n = compiled(view_fill)(self._arena.nodes, self._Z, self._tree, out[0], out[1], most)
        self._ended = bool(self._Z[VIEW_QUEUED] == 0)
        return out[:, :n]


class QueryCursor(Cursor):
    """Rows (item's slot, hit) of items (`search`), all of one set; `swap`: they are of set 1, so their slots come second."""

    _STEPS, _GAP = STEPS, GAP

    def __init__(self, arena: BoxArena, root: EntryRoot, items: np.ndarray, swap: bool) -> None:
        self._arena, self._tree, self._items, self._swap = arena, tree_of(arena, root), items, swap
        super().__init__(2, np.zeros(query_words(self._tree.dimensions), np.int64))
        self._Z[ITEM_AT] = -1
        self._ended = len(items) == 0

    def _more(self, want: int) -> np.ndarray:
        state, out = self._Z, np.empty((2, want + B + ROOM), np.int32)
        n = compiled(query_fill)(self._arena.nodes, state, self._tree, self._items.reshape(-1), out[0], out[1], 0, self._BUDGET)
        self._ended = bool(state[QUEUED] == 0 and state[ITEM_AT] == len(self._items) - 1)
        return out[::-1, :n] if self._swap else out[:, :n]


Column = np.ndarray | int


def items_of(slots: Column, keys: Column, searched: int, mode: int, ties: Column, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """int64[n, 5 + 2d]: items of `search`, from columns or common values, and boxes lo, hi [n, d]."""
    n, d = lo.shape
    items = np.empty((n, LO_ + 2 * d), np.int64)
    for column, values in enumerate((slots, keys, searched, mode, ties)):
        items[:, column] = values
    items[:, LO_ : LO_ + d], items[:, LO_ + d :] = lo, hi
    return items


class _PartCursor(PartedCursor):
    """A reading in parts that measures gaps across parts as far as the parts report: the result is too large by at most the largest gap of
    the next part."""

    def _across(self, part: Cursor) -> int:
        """The largest gap of a part that has rows, plus the gap before the part: an upper bound on the gap across both."""
        return self._past + self._beside() - self._last + part.largest_gap

    def _end_part(self, part: Cursor) -> None:
        if not self._has_emitted:
            super()._end_part(part)
            return
        gap, last = max(self._gap, self._across(part)), self._past + self._beside() + _last_row(part)
        super()._end_part(part)
        self._gap, self._last = gap, last

    @property
    def largest_gap(self) -> int:
        return max(self._gap, self._across(self._part)) if self._part is not None and self._has_emitted else self._gap


def _last_row(part: Cursor) -> int:
    """The steps of a part at its last row."""
    return part._last if isinstance(part, _PartCursor) else int(part._Z[LAST])


class WindowCursor(_PartCursor):
    """Rows whose two boxes both meet the window [lo, hi], key by key (or of one key).

    In dimension 0, if two intervals meet the window and each other, either both contain lo, or the one that starts later begins in (lo,
    hi]. So there are two phases: the boxes of set 0 that contain lo there, with the partners that contain it, too; then all boxes that
    begin in (lo, hi] there, with the partners that begin before them. In the other dimensions a box is cut to the window: three boxes that
    meet pairwise have a common point. Each box of the window costs a search, with or without rows: the delay is not bounded.
    """

    def __init__(self, arena: BoxArena, root: EntryRoot, boxes: np.ndarray, key: int | None, window: tuple[np.ndarray, np.ndarray]) -> None:
        super().__init__(2)
        self._arena, self._root, self._boxes, self._window = arena, root, boxes, window
        self._one = key is not None
        self._key = key if key is not None else self._next_key(-1)
        self._phase, self._phases = 0, 2 if arena.C[SELF_] else 3

    def _next_key(self, key: int) -> int:
        return int(compiled(next_box_key)(self._arena.nodes, self._root.offset, key))

    def _next_part(self) -> Cursor | None:
        """Return the cursor of the current phase, the last of which is of set 1; move to the next phase, and after the last one to the next
        key."""
        if self._key == KEY_MAX:
            self._ended = True
            return None
        key, phase = self._key, self._phase
        self._phase = (phase + 1) % self._phases
        if self._phase == 0:
            self._key = KEY_MAX if self._one else self._next_key(key)
        s, mode = 1 if phase == 2 else 0, BEFORE if phase == 0 else WITHIN
        return PhaseCursor(self._arena, self._root, self._boxes, key, self._window, s, mode)


class PhaseCursor(_PartCursor):
    """Rows of the boxes of set s whose position relative to the window in dimension 0 is that of `mode`, with their partners, some boxes at
    a time."""

    def __init__(
        self, arena: BoxArena, root: EntryRoot, boxes: np.ndarray, key: int, window: tuple[np.ndarray, np.ndarray], s: int, mode: int
    ) -> None:
        super().__init__(2)
        self._arena, self._root, self._boxes, self._key, self._set, self._mode = arena, root, boxes, key, s, mode
        self._lo, self._hi = window
        item = items_of(NO_SLOT, key, s, mode, EVERY_CODE, self._lo[None, :], self._hi[None, :])
        self._boxes_met = QueryCursor(arena, root, item, False)

    def _beside(self) -> int:
        return self._boxes_met.steps

    def clone(self) -> Self:
        other = super().clone()
        other._boxes_met = self._boxes_met.clone()
        return other

    def _next_part(self) -> Cursor | None:
        slots = self._boxes_met.fill(_CHUNK)[1]
        self._ended = self._boxes_met.done and len(slots) == 0
        return None if len(slots) == 0 else self._partners(slots)

    def _partners(self, slots: np.ndarray) -> QueryCursor:
        s, d, before = self._set, len(self._lo), self._mode == BEFORE
        boxes = self._boxes[s, slots]
        lo, hi = np.maximum(boxes[:, :d], self._lo), np.minimum(boxes[:, d:], self._hi)
        ties = EVERY_CODE if before else 2 * slots.astype(np.int64) + s
        items = items_of(slots, self._key, 0 if self._arena.C[SELF_] else 1 - s, BEFORE, ties, lo, hi)
        return QueryCursor(self._arena, self._root, items, s == 1)
