"""Cursors of the IJ-heap: enumerations of one version, resumable and cloned at no cost.

A cursor is plain data beside the tree: its state belongs to the kernels of `walk`. Whoever holds one holds its version's pin.
"""

from __future__ import annotations

import copy

import numpy as np

from structures.core.entries import Entries, Told
from structures.core.entry_tree import Root
from structures.core.kernel import compiled
from structures.ij_heap.goals import ANY_KEY, DEAD, DEPTH, EACH_KEY, GAP, ITEM, STEPS, Walking, new_walk
from structures.ij_heap.strip import STRIP_SCRATCH
from structures.ij_heap.walk import start_all, walk_fill
from structures.multiway.layout import MultiwayArena
from structures.multiway.topology import SETS

_MOST_ROWS = 1 << 17  # of one call
_STEPS_A_CALL = 1 << 15
_NO_ENTRIES = Entries(*(np.empty(0, kind) for kind in (np.uint8, np.int32, np.int64, np.int64, np.int32)))


class Cursor:
    """A reading of one version: rows of all, of one key, or of given entries, one after the other; all intervals meeting the window.

    `fill` releases the GIL in its kernel.
    """

    def __init__(self, blocks: MultiwayArena, root: Root, key: int | None, window: tuple[int, int], given: Entries | None) -> None:
        self._t = int(blocks.T[SETS])
        self._entries, self._window = given or _NO_ENTRIES, window
        Z = new_walk(blocks.T, root.height)
        walking = Walking(Z, Z.view(np.int32), np.zeros(STRIP_SCRATCH, np.int64))
        if given is None:
            compiled(start_all)(blocks.T, walking, root.offset, ANY_KEY if key is None else key, *window)
        self._walking = walking
        self._nodes, self._offset = blocks.nodes, root.offset
        self.done = False

    def fill(self, limit: int) -> np.ndarray:
        """Up to `limit` >= 1 further rows, int32[t, n], and at most 2**17. A call takes milliseconds, and may find none before `done`."""
        limit = min(limit, _MOST_ROWS)
        out = np.empty((self._t, limit), np.int32)
        Z = self._Z
        told = Told(out.reshape(-1), limit)
        n = compiled(walk_fill)(self._nodes, self._walking, self._offset, self._entries, *self._window, told, _STEPS_A_CALL)
        self.done = bool(Z[DEPTH] == 0 and Z[EACH_KEY] == 0 and Z[ITEM] == len(self._entries.key))
        return out if n == limit else out[:, :n].copy()

    def clone(self) -> Cursor:
        """An independent cursor at the same place."""
        other = copy.copy(self)
        Z, X = self._Z.copy(), self._walking.X.copy()
        other._walking = Walking(Z, Z.view(np.int32), X)
        return other

    @property
    def _Z(self) -> np.ndarray:
        return self._walking.Z

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
        """Nodes entered for nothing so far: at most `FUEL_MOST` + rows + the height times the sets (for each given entry, or key)."""
        return int(self._Z[DEAD])
