"""Cursors: enumerations of one version of an interval tree, resumable and cloned at no cost.

A cursor is plain data beside the tree: its state Z belongs to the kernels of `ordered.search` and `walk`.
Whoever holds one holds its version's pin. Costs: as its kernel says; a window goes key by key.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from structures.core.arena import KEY_MAX, KIND, Arena, B
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entry_tree import Root
from structures.core.kernel import compiled
from structures.interval.walk import DONE, WALK_WORDS, Stretch, walk_fill, walk_start
from structures.interval.walk import GAP as WALK_GAP
from structures.interval.walk import STEPS as WALK_STEPS
from structures.ordered.search import (
    DEPTH,
    EVERY_CODE,
    GAP,
    HIGH,
    ITEM,
    ITEM_AT,
    LAST,
    NOTHING_BEFORE,
    PARTNERS_WORDS,
    SEARCH_WORDS,
    SET,
    STEPS,
    TOP,
    Bounds,
    next_key,
    partners_fill,
    search_fill,
    search_start,
)
from structures.ordered.summary import SELF

_NONE = np.empty(0, np.int32)
_LOOKS = 256  # at parts without rows (a window has three a key) before a reading is interrupted
_BUDGET = 1 << 18  # steps of a call that finds nothing: about a millisecond
_NO_ENDS = np.empty(0, np.int64)


class Cursor:
    """A reading of one version; plain data beside the tree. `fill` releases the GIL in its kernels."""

    _STEPS, _GAP = STEPS, GAP  # where Z counts

    def __init__(self) -> None:
        self._held: tuple[np.ndarray, np.ndarray] = (_NONE, _NONE)
        self._ended = False
        self._Z = np.zeros(SEARCH_WORDS, np.int64)

    def fill(self, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Up to `limit` >= 1 further rows as (slots0, slots1), int32 ("list": slots1 always empty).

        Both may be empty before the end (`done`), so that a call takes milliseconds at most.
        """
        a, b = self._held
        start = self.steps
        for _ in range(_LOOKS):
            if len(a) or self._ended or self.steps - start > _BUDGET:
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
        other._Z = self._Z.copy()
        return other

    @property
    def steps(self) -> int:
        """Nodes and entries looked at so far."""
        return int(self._Z[self._STEPS])

    @property
    def largest_gap(self) -> int:
        """The most steps between two rows so far."""
        return int(self._Z[self._GAP])

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError


class PartedCursor(Cursor):
    """A reading of parts, one after the other; Z counts what is done beside them and in those that have ended."""

    def __init__(self) -> None:
        super().__init__()
        self._part: Cursor | None = None

    def _end_part(self) -> None:
        self._Z[STEPS], self._Z[GAP] = self.steps, self.largest_gap
        self._Z[LAST] = self._Z[STEPS]
        self._part = None

    @property
    def steps(self) -> int:
        return super().steps + (self._part.steps if self._part is not None else 0)

    @property
    def largest_gap(self) -> int:
        return max(super().largest_gap, self._part.largest_gap if self._part is not None else 0)

    def clone(self) -> Cursor:
        other = copy.copy(self)
        other._Z = self._Z.copy()
        if self._part is not None:
            other._part = self._part.clone()
        return other


class WalkCursor(Cursor):
    """Rows of the entries in a stretch of the order (`walk`)."""

    _STEPS, _GAP = WALK_STEPS, WALK_GAP

    def __init__(self, arena: Arena, root: Root, stretch: Stretch) -> None:
        super().__init__()
        self._nodes = arena.nodes
        self._Z = np.zeros(WALK_WORDS, np.int64)
        compiled(walk_start)(self._nodes, self._Z, root.offset, root.height, int(arena.C[KIND]), stretch)

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        out0, out1 = np.empty(want + B * B, np.int32), np.empty(want + B * B, np.int32)
        n = compiled(walk_fill)(self._nodes, self._Z, out0, out1, want)
        self._ended = bool(self._Z[DONE])
        return out0[:n], out1[:n]


class SearchCursor(Cursor):
    """The entries of a "list" (`ordered.search`)."""

    def __init__(self, arena: Arena, root: Root) -> None:
        super().__init__()
        self._nodes = arena.nodes
        compiled(search_start)(self._Z, root.offset, root.height, 0, 0, Bounds(NEG_INF, NOTHING_BEFORE, POS_INF, NEG_INF))

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        out = np.empty(want + B, np.int32)
        n = compiled(search_fill)(self._nodes, self._Z, out, 0, _NO_ENDS)
        self._ended = self._Z[DEPTH] == 0
        return out[:n], _NONE


class GivenCursor(Cursor):
    """The given slots of a "list", or nothing."""

    def __init__(self, slots: np.ndarray) -> None:
        super().__init__()
        self._held = (slots, _NONE)
        self._ended = True


class PartnersCursor(Cursor):
    """Rows of the given items (`ordered.search.ITEM`), which are of set s."""

    def __init__(self, arena: Arena, root: Root, s: int, items: np.ndarray) -> None:
        super().__init__()
        self._arena, self._set, self._items = arena, s, items.reshape(-1)
        self._Z = np.zeros(PARTNERS_WORDS, np.int64)
        self._Z[SET], self._Z[TOP], self._Z[HIGH] = 0 if arena.C[KIND] == SELF else 1 - s, root.offset, root.height

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        arena = self._arena
        own, other = np.empty(want + B, np.int32), np.empty(want + B, np.int32)
        n = compiled(partners_fill)(arena.nodes, self._Z, self._items, own, other, _BUDGET)
        self._ended = ITEM * self._Z[ITEM_AT] >= len(self._items)
        own, other = own[:n], other[:n]
        if arena.C[KIND] == SELF:
            apart = own != other
            return own[apart], other[apart]
        return (own, other) if self._set == 0 else (other, own)


class Wanted(NamedTuple):
    """Partners that come after a place of the order (None: after the interval itself), begin by `by` and reach `reach`."""

    after: tuple[int, int] | None
    by: int
    reach: int


class StabCursor(PartedCursor):
    """Rows of the intervals of set s, of one key, that contain `lo` and reach `least`, with those of their partners that `wanted` says: the
    outer search is resumed in small chunks."""

    def __init__(self, arena: Arena, root: Root, s: int, key: int, lo: int, least: int, wanted: Wanted) -> None:
        super().__init__()
        self._arena, self._root, self._set, self._key, self._wanted = arena, root, s, key, wanted
        compiled(search_start)(self._Z, root.offset, root.height, s, key, Bounds(NEG_INF, NOTHING_BEFORE, lo, least))

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        if self._part is None or self._part.done:
            self._end_part()
            if self._Z[DEPTH] == 0:
                self._ended = True
                return _NONE, _NONE
            self._part = PartnersCursor(self._arena, self._root, self._set, self._next_items())
        return self._part.fill(want)

    def _next_items(self) -> np.ndarray:
        out, ends = np.empty(4 * B, np.int32), np.empty(8 * B, np.int64)
        n = compiled(search_fill)(self._arena.nodes, self._Z, out, 0, ends)
        items = np.empty((n, ITEM), np.int64)
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

    Two intervals that meet the window and each other either both contain lo, or the later-starting one begins in (lo, hi]. So: the
    intervals of set 0 that contain lo with all their partners; those of set 1 with partners that begin in (lo, hi]; the walk over what
    begins in (lo, hi]. An interval is only entered when it surely has a partner, so no dead ends beyond one a phase.
    """

    def __init__(self, arena: Arena, root: Root, key: int | None, window: tuple[int, int]) -> None:
        super().__init__()
        self._arena, self._root, self._window = arena, root, window
        self._one = key is not None
        self._key = key if key is not None else compiled(next_key)(arena.nodes, root.offset, root.height, -1)
        self._phase = 0

    def _more(self, want: int) -> tuple[np.ndarray, np.ndarray]:
        if self._part is not None:
            rows = self._part.fill(want)
            if len(rows[0]) or not self._part.done:
                return rows
        self._end_part()
        if self._key == KEY_MAX:
            self._ended = True
        else:
            self._part = self._next_part()
        return _NONE, _NONE

    def _next_part(self) -> Cursor | None:
        """The cursor of the current phase, None if it surely has no row; the phase moves on."""
        arena, root, key, (lo, hi) = self._arena, self._root, self._key, self._window
        phase, self._phase = self._phase, self._phase + 1
        before = (NEG_INF, NOTHING_BEFORE)
        if phase == 0:
            if arena.C[KIND] == SELF:
                return StabCursor(arena, root, 0, key, lo, lo, Wanted(None, hi, lo))
            least = lo if self._first(1, lo, before, lo) is not None else self._first(1, hi, (lo, EVERY_CODE), NEG_INF)
            return None if least is None else StabCursor(arena, root, 0, key, lo, least, Wanted(before, hi, lo))
        if phase == 1:
            least = None if arena.C[KIND] == SELF else self._first(0, hi, (lo, EVERY_CODE), NEG_INF)
            return None if least is None else StabCursor(arena, root, 1, key, lo, least, Wanted((lo, EVERY_CODE), hi, NEG_INF))
        if self._one:
            self._key = KEY_MAX
        else:
            self._key = compiled(next_key)(arena.nodes, root.offset, root.height, key)
        self._phase = 0
        return WalkCursor(arena, root, Stretch(key, lo + 1, key, hi)) if lo < hi else None

    def _first(self, s: int, most: int, after: tuple[int, int], least: int) -> int | None:
        """The smallest left endpoint of the search's hits, None if there is none."""
        Z, out, ends = np.zeros(SEARCH_WORDS, np.int64), np.empty(B + 1, np.int32), np.empty(2 * B + 2, np.int64)
        compiled(search_start)(Z, self._root.offset, self._root.height, s, self._key, Bounds(*after, most, least))
        n = compiled(search_fill)(self._arena.nodes, Z, out, 0, ends)
        return int(ends[0]) if n else None
