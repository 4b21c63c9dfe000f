"""Cursors: enumerations of one version of an interval tree, resumable and cloned at no cost.

A cursor is plain data beside the tree: its state belongs to the kernels of `ordered.search` and `walk`. The owner of a cursor holds a pin
on its version. Costs: those of its kernel; a window is read key by key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.arena import KEY_MAX, KIND, Arena, B
from structures.core.cursor import Cursor, PartedCursor
from structures.core.encoding import NEG_INF
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.interval import walk
from structures.ordered import search
from structures.ordered.chunks import within
from structures.ordered.search import Bounds, next_key, partners_fill, search_fill, search_start
from structures.ordered.summary import SELF


class WalkCursor(Cursor):
    """Rows of the entries in a stretch of the tree's order (`walk`)."""

    _STEPS, _GAP = walk.STEPS, walk.GAP

    def __init__(self, arena: Arena, root: EntryRoot, stretch: walk.KeyRange) -> None:
        super().__init__(2, np.zeros(walk.WALK_WORDS, np.int64))
        self._nodes = arena.nodes
        compiled(walk.walk_start)(self._nodes, self._Z, root.offset, root.height, int(arena.C[KIND]), stretch)

    def _more(self, want: int) -> np.ndarray:
        most = within(want, B * B)
        out = np.empty((2, most + B * B), np.int32)
        n = compiled(walk.walk_fill)(self._nodes, self._Z, out[0], out[1], most)
        self._ended = bool(self._Z[walk.DONE])
        return out[:, :n]


class PartnersCursor(Cursor):
    """Rows of the given items (`ordered.search.ITEM`), all of set s."""

    _STEPS, _GAP = search.STEPS, search.GAP

    def __init__(self, arena: Arena, root: EntryRoot, s: int, items: np.ndarray) -> None:
        super().__init__(2, np.zeros(search.PARTNERS_WORDS, np.int64))
        self._arena, self._set, self._items = arena, s, items.reshape(-1)
        self._Z[search.SET], self._Z[search.TOP], self._Z[search.HIGH] = 0 if arena.C[KIND] == SELF else 1 - s, root.offset, root.height

    def _more(self, want: int) -> np.ndarray:
        s, out = self._set, np.empty((2, within(want, B) + B), np.int32)
        n = compiled(partners_fill)(self._arena.nodes, self._Z, self._items, out[s], out[1 - s], self._BUDGET)
        self._ended = bool(search.ITEM * self._Z[search.ITEM_AT] >= len(self._items))
        rows = out[:, :n]
        return rows.take(np.flatnonzero(rows[0] != rows[1]), axis=1) if self._arena.C[KIND] == SELF else rows


class PartnerRange(NamedTuple):
    """Partners that come after a place in the order (None: after the interval itself), begin at `by` or earlier and reach `reach`."""

    after: tuple[int, int] | None
    by: int
    reach: int


class StabCursor(PartedCursor):
    """Rows of the intervals of set s and of one key that contain `lo` and reach `least`, with their partners that meet `wanted`. The outer
    search is resumed in small chunks."""

    def __init__(self, arena: Arena, root: EntryRoot, s: int, key: int, lo: int, least: int, wanted: PartnerRange) -> None:
        super().__init__(2, np.zeros(search.SEARCH_WORDS, np.int64))
        self._arena, self._root, self._set, self._key, self._wanted = arena, root, s, key, wanted
        compiled(search_start)(self._Z, root.offset, root.height, s, key, Bounds(NEG_INF, search.NOTHING_BEFORE, lo, least))

    def _beside(self) -> int:
        return int(self._Z[search.STEPS])

    def _next_part(self) -> Cursor | None:
        self._ended = bool(self._Z[search.DEPTH] == 0)
        return None if self._ended else PartnersCursor(self._arena, self._root, self._set, self._next_items())

    def _next_items(self) -> np.ndarray:
        out, ends = np.empty(4 * B, np.int32), np.empty(8 * B, np.int64)
        n = compiled(search_fill)(self._arena.nodes, self._Z, out, 0, ends)
        items = np.empty((n, search.ITEM), np.int64)
        items[:, 0], items[:, 1] = out[:n], self._key
        wanted = self._wanted
        if wanted.after is None:
            items[:, 2], items[:, 3] = ends[: 2 * n : 2], 2 * out[:n].astype(np.int64) + self._set
        else:
            items[:, 2], items[:, 3] = wanted.after
        items[:, 4], items[:, 5] = np.minimum(ends[1 : 2 * n : 2], wanted.by), wanted.reach
        return items


class WindowCursor(PartedCursor):
    """Rows whose two intervals both meet [lo, hi], key by key (or of one key).

    If two intervals meet the window and each other, either both contain lo, or the one that starts later begins in (lo, hi]. So there are
    three phases: the intervals of set 0 that contain lo, with all their partners; those of set 1 that contain lo, with their partners that
    begin in (lo, hi]; the walk over the entries that begin in (lo, hi]. An interval is only visited when it certainly has a partner, so
    there is at most one dead end a phase.
    """

    def __init__(self, arena: Arena, root: EntryRoot, key: int | None, window: tuple[int, int]) -> None:
        super().__init__(2)
        self._arena, self._root, self._window = arena, root, window
        self._one = key is not None
        self._key = key if key is not None else compiled(next_key)(arena.nodes, root.offset, root.height, -1)
        self._phase = 0

    def _next_part(self) -> Cursor | None:
        """Return the cursor of the current phase, and move to the next phase."""
        arena, root, key, (lo, hi) = self._arena, self._root, self._key, self._window
        if key == KEY_MAX:
            self._ended = True
            return None
        phase, self._phase = self._phase, self._phase + 1
        before = (NEG_INF, search.NOTHING_BEFORE)
        if phase == 0:
            if arena.C[KIND] == SELF:
                return StabCursor(arena, root, 0, key, lo, lo, PartnerRange(None, hi, lo))
            least = lo if self._first(1, lo, before, lo) is not None else self._first(1, hi, (lo, search.EVERY_CODE), NEG_INF)
            return None if least is None else StabCursor(arena, root, 0, key, lo, least, PartnerRange(before, hi, lo))
        if phase == 1:
            least = None if arena.C[KIND] == SELF else self._first(0, hi, (lo, search.EVERY_CODE), NEG_INF)
            return None if least is None else StabCursor(arena, root, 1, key, lo, least, PartnerRange((lo, search.EVERY_CODE), hi, NEG_INF))
        self._key = KEY_MAX if self._one else compiled(next_key)(arena.nodes, root.offset, root.height, key)
        self._phase = 0
        return WalkCursor(arena, root, walk.KeyRange(key, lo + 1, key, hi)) if lo < hi else None

    def _first(self, s: int, most: int, after: tuple[int, int], least: int) -> int | None:
        """The smallest left endpoint that the search finds, or None."""
        state, out, ends = np.zeros(search.SEARCH_WORDS, np.int64), np.empty(B + 1, np.int32), np.empty(2 * B + 2, np.int64)
        compiled(search_start)(state, self._root.offset, self._root.height, s, self._key, Bounds(*after, most, least))
        n = compiled(search_fill)(self._arena.nodes, state, out, 0, ends)
        return int(ends[0]) if n else None
