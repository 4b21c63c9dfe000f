"""Cursors of the IJ-heap: readings of one version, resumable and cloned at no cost.

A cursor is plain data beside the tree: its state belongs to the kernels of `ij_walk`. Whoever holds one holds its version's pin.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from structures.ij_blocks import Blocks
from structures.ij_extreme import SCRATCH_WORDS
from structures.ij_goals import ANY_KEY, DEAD, DEPTH, EACH_KEY, GAP, STEPS, walk_words
from structures.ij_topology import SETS
from structures.ij_walk import partners_fill, start_all, walk_fill
from structures.interval_tree import Entries

_MOST_ROWS = 1 << 17  # of one call
_STEPS_A_CALL = 1 << 15


class Root(NamedTuple):
    """One version of a tree: plain data, good as long as its version is pinned."""

    offset: int
    height: int
    counts: tuple[int, ...]
    live: bool


class Cursor:
    """A reading of one version. `fill` releases the GIL in its kernels."""

    def __init__(self, blocks: Blocks, root: Root) -> None:
        self._arrays = blocks.M, blocks.W, blocks.T
        self._t = int(blocks.T[SETS])
        self._root = root
        self._Z = np.zeros(walk_words(self._t, root.height), np.int64)
        self._X = np.zeros(SCRATCH_WORDS, np.int64)
        self.done = False

    def fill(self, limit: int) -> np.ndarray:
        """Up to `limit` >= 1 further rows, int32[t, n], and at most 2**17. A call takes milliseconds, and may find none before `done`."""
        limit = min(limit, _MOST_ROWS)
        out = np.empty((self._t, limit), np.int32)
        n = self._more(out.reshape(-1), limit)
        return out if n == limit else out[:, :n].copy()

    def clone(self) -> Cursor:
        """An independent cursor at the same place."""
        other = copy.copy(self)
        other._Z, other._X = self._Z.copy(), self._X.copy()
        return other

    @property
    def steps(self) -> int:
        """Nodes, splits and entries looked at so far."""
        return int(self._Z[STEPS])

    @property
    def largest_gap(self) -> int:
        """The most steps between two rows so far."""
        return int(self._Z[GAP])

    @property
    def dead_ends(self) -> int:
        """Nodes entered for nothing so far: at most `FUEL_MOST` + rows + the height times the sets."""
        return int(self._Z[DEAD])

    def _more(self, out: np.ndarray, limit: int) -> int:
        raise NotImplementedError


class WalkCursor(Cursor):
    """Rows of a version, or of one key, whose intervals all meet [lo, hi]."""

    def __init__(self, blocks: Blocks, root: Root, key: int | None, lo: int, hi: int) -> None:
        super().__init__(blocks, root)
        start_all(*self._arrays, self._Z, self._X, root.offset, ANY_KEY if key is None else key, lo, hi)

    def _more(self, out: np.ndarray, limit: int) -> int:
        n = int(walk_fill(*self._arrays, self._Z, self._X, out, limit, _STEPS_A_CALL))
        self.done = bool(self._Z[DEPTH] == 0 and self._Z[EACH_KEY] == 0)
        return n


class PartnersCursor(Cursor):
    """Rows in which the given entries take part, entry after entry, all intervals meeting [lo, hi]."""

    def __init__(self, blocks: Blocks, root: Root, entries: Entries, lo: int, hi: int) -> None:
        super().__init__(blocks, root)
        self._entries, self._window = entries, (lo, hi)
        self._N = np.zeros(1, np.int64)

    def _more(self, out: np.ndarray, limit: int) -> int:
        n = partners_fill(
            *self._arrays, self._Z, self._X, self._N, self._root.offset, *self._entries, *self._window, out, limit, _STEPS_A_CALL
        )
        self.done = bool(self._Z[DEPTH] == 0 and self._N[0] == len(self._entries.key))
        return int(n)

    def clone(self) -> Cursor:
        other = super().clone()
        assert isinstance(other, PartnersCursor)
        other._N = self._N.copy()
        return other
