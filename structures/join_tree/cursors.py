"""Cursors of a join tree: rows of one version by alias (`walk`), and the rows of one alias that they begin with."""

from __future__ import annotations

import copy
from typing import Protocol, Self

import numpy as np

from structures.core.arena import Arena, B
from structures.core.cursor import Cursor, Resumable
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import compiled
from structures.join_tree import walk
from structures.join_tree.tables import JoinTables
from structures.join_tree.walk import begin_walk
from structures.ordered.scan import SCAN_DEPTH, SCAN_WORDS, scan_fill, scan_start
from structures.ordered.search import DEPTH as FRAMES_LEFT
from structures.ordered.search import NOTHING_BEFORE, SEARCH_WORDS, Bounds, search_fill, search_start

_CHUNK = 4096  # rows that a walk begins with, at a time
MOST = 1 << 16  # most rows of a call
_NONE = np.empty(0, np.int32)
_NO_ENDS = np.empty(0, np.int64)


class Start(Protocol):
    """Rows of one alias."""

    @property
    def done(self) -> bool: ...

    def fill(self, limit: int) -> np.ndarray:
        """int32[<= limit, or a little more] slots; an empty array does not mean the end."""
        ...

    def clone(self) -> Start: ...


class GivenRows:
    """Given rows."""

    def __init__(self, slots: np.ndarray) -> None:
        self._slots = slots

    @property
    def done(self) -> bool:
        return len(self._slots) == 0

    def fill(self, limit: int) -> np.ndarray:
        slots, self._slots = self._slots[:limit], self._slots[limit:]
        return slots

    def clone(self) -> GivenRows:
        return copy.copy(self)


class TreeScan(Resumable):
    """All entries of a tree, in its order."""

    def __init__(self, arena: Arena, root: tuple[int, int]) -> None:
        self._arena, self._height, self._Z = arena, root[1], np.zeros(SCAN_WORDS, np.int64)
        compiled(scan_start)(self._Z, root[0])

    @property
    def done(self) -> bool:
        return bool(self._Z[SCAN_DEPTH] == 0)

    def fill(self, limit: int) -> np.ndarray:
        out = np.empty(limit + B, np.int32)
        return out[: compiled(scan_fill)(self._arena.M, self._arena.W, self._Z, self._height, out)]


class CodeScan(Resumable):
    """The entries with one code."""

    def __init__(self, arena: Arena, root: tuple[int, int], code: int) -> None:
        self._arena, self._Z = arena, np.zeros(SEARCH_WORDS, np.int64)
        compiled(search_start)(self._Z, *root, 0, code, Bounds(NEG_INF, NOTHING_BEFORE, POS_INF, NEG_INF))

    @property
    def done(self) -> bool:
        return bool(self._Z[FRAMES_LEFT] == 0)

    def fill(self, limit: int) -> np.ndarray:
        out = np.empty(limit + B, np.int32)
        return out[: compiled(search_fill)(self._arena.nodes, self._Z, out, 0, _NO_ENDS)]


class JoinCursor(Cursor):
    """Rows of a version that begin with the rows from `start` of alias `position`, which take part in rows of the join there.

    Dead ends are rows of single aliases that did not meet the window.
    """

    _STEPS, _GAP, _DEAD = walk.STEPS, walk.GAP, walk.DEAD

    def __init__(self, tree: JoinTables, roots: np.ndarray, position: int, start: Start, bounds: np.ndarray, nulled: int = -1) -> None:
        """`nulled`: an optional link along which nothing is searched."""
        self._tree, self._start, self._starts = tree, start, _NONE
        self._walking = tree.walking(roots, bounds)
        super().__init__(tree.shown, self._walking.state[0])
        compiled(begin_walk)(self._walking.state, position)
        self._walking.state[0, walk.NULLED] = nulled + 1

    @property
    def _idle(self) -> bool:
        return bool(self._Z[walk.DEPTH] == 0 and self._Z[walk.START] == len(self._starts))

    @property
    def done(self) -> bool:
        return self._idle and self._start.done

    def fill(self, limit: int) -> np.ndarray:
        """int32[t, <= limit] slots by alias, -1: missing. Empty at the end (`done`), and after milliseconds without a row."""
        out, n, looks = np.empty((self._tree.shown, min(limit, MOST)), np.int32), 0, 0
        while n < out.shape[1] and looks < 2:
            if self._idle:
                if self._start.done:
                    break
                self._starts = self._start.fill(min(limit, _CHUNK))
                self._Z[walk.START] = 0
                looks += len(self._starts) == 0
                continue
            found = n
            n = self._tree.walk(self._walking, self._starts, out, n)
            looks += n == found
        return out[:, :n]

    def clone(self) -> Self:
        other = super().clone()
        other._start = self._start.clone()
        other._walking = self._walking._replace(state=self._walking.state.copy(), lists=self._walking.lists.copy())
        other._Z = other._walking.state[0]
        return other
