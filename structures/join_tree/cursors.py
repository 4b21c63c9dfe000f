"""Cursors of a join tree: rows of one version by alias (`walk`), and the rows of one alias that they begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np

from structures.core.cursor import Cursor
from structures.core.kernel import compiled
from structures.join_tree import walk
from structures.join_tree.tables import JoinTables
from structures.join_tree.walk import begin_walk

_CHUNK = 4096  # rows that a walk begins with, at a time
MOST = 1 << 16  # most rows of a call
_NONE = np.empty(0, np.int32)


class Start(Protocol):
    """Rows of one alias, as of a cursor of one line."""

    @property
    def done(self) -> bool: ...

    def fill(self, limit: int) -> Sequence[np.ndarray] | np.ndarray: ...

    def clone(self) -> Start: ...


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
                self._starts = self._start.fill(min(limit, _CHUNK))[0]
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
