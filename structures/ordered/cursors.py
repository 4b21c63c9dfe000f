"""Cursors of a tree of one set whose rows are its entries, int32[1, n] slots: all, those of a key, those that meet a window.

A cursor is plain data beside the tree: its state belongs to the kernels of `scan` and `search`. The owner of a cursor holds a pin on its
version.
Costs: O(1) a row; for a window O(log n) a key, with or without rows.
"""

from __future__ import annotations

import numpy as np

from structures.core.arena import KEY_MAX, Arena, B
from structures.core.cursor import Cursor, PartedCursor
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.ordered import search
from structures.ordered.chunks import within
from structures.ordered.scan import SCAN_DEPTH, SCAN_WORDS, scan_fill, scan_start
from structures.ordered.search import NOTHING_BEFORE, SEARCH_WORDS, Bounds, next_key, search_fill, search_start

_NO_ENDS = np.empty(0, np.int64)


def list_cursor(arena: Arena, root: EntryRoot, key: int | None, window: tuple[int, int] | None) -> Cursor:
    """The entries of a version: all, or those of a key, that meet the closed window."""
    if key is not None or window is not None:
        return KeysCursor(arena, root, key, window or (NEG_INF, POS_INF))
    return ScanCursor(arena, root)


class ScanCursor(Cursor):
    """All entries, in the order of the tree."""

    _STEPS, _GAP = SCAN_WORDS, SCAN_WORDS + 1

    def __init__(self, arena: Arena, root: EntryRoot) -> None:
        super().__init__(1, np.zeros(SCAN_WORDS + 2, np.int64))
        self._arena, self._height = arena, root.height
        compiled(scan_start)(self._Z, root.offset)
        self._Z[self._GAP] = 1

    def _more(self, want: int) -> np.ndarray:
        out = np.empty((1, within(want, B) + B), np.int32)
        n = compiled(scan_fill)(self._arena.M, self._arena.W, self._Z, self._height, out[0])
        self._Z[self._STEPS] += n
        self._ended = bool(self._Z[SCAN_DEPTH] == 0)
        return out[:, :n]


class SearchCursor(Cursor):
    """The entries of one key that meet a window."""

    _STEPS, _GAP = search.STEPS, search.GAP

    def __init__(self, arena: Arena, root: EntryRoot, key: int, window: tuple[int, int]) -> None:
        super().__init__(1, np.zeros(SEARCH_WORDS, np.int64))
        self._nodes = arena.nodes
        bounds = Bounds(NEG_INF, NOTHING_BEFORE, window[1], window[0])
        compiled(search_start)(self._Z, root.offset, root.height, 0, key, bounds)

    def _more(self, want: int) -> np.ndarray:
        out = np.empty((1, within(want, B) + B), np.int32)
        n = compiled(search_fill)(self._nodes, self._Z, out[0], 0, _NO_ENDS)
        self._ended = bool(self._Z[search.DEPTH] == 0)
        return out[:, :n]


class KeysCursor(PartedCursor):
    """The entries that meet a window, key by key, or of one key."""

    def __init__(self, arena: Arena, root: EntryRoot, key: int | None, window: tuple[int, int]) -> None:
        super().__init__(1)
        self._arena, self._root, self._window, self._is_one = arena, root, window, key is not None
        self._key = key if key is not None else self._after(-1)

    def _after(self, key: int) -> int:
        return int(compiled(next_key)(self._arena.nodes, self._root.offset, self._root.height, key))

    def _next_part(self) -> Cursor | None:
        if self._key == KEY_MAX:
            self._ended = True
            return None
        key, self._key = self._key, KEY_MAX if self._is_one else self._after(self._key)
        return SearchCursor(self._arena, self._root, key, self._window)
