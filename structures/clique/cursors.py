"""Cursors of a clique tree: enumerations of one version, resumable and cloned at the cost of the intervals that cover one start.

A cursor is plain data beside the tree: its state belongs to the kernels of `walk`. Whoever holds one holds its version's pin.
"""

from __future__ import annotations

import copy

import numpy as np

from structures.clique.state import DEAD, DONE, EACH_KEY, FULL, GAP, ITEM, MODE, STEPS, Walking, grown, new_walk
from structures.clique.walk import ANY_KEY, start_reading, walk_fill
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries, Told
from structures.core.entry_tree import Root
from structures.core.kernel import compiled
from structures.multiway.layout import MultiwayArena
from structures.multiway.topology import CLIQUE

_MOST_ROWS = 1 << 17  # of one call
_STEPS_A_CALL = 1 << 15
_EVER = (NEG_INF, POS_INF)
_NO_ENTRIES = Entries(*(np.empty(0, kind) for kind in (np.uint8, np.int32, np.int64, np.int64, np.int32)))


class Cursor:
    """A reading of one version: rows of all, of one key, or of given entries, one after the other; all members meeting the window.

    `fill` releases the GIL in its kernel. Memory: a few kB, and 20 bytes for each interval that covers the start it stands at.
    """

    def __init__(self, blocks: MultiwayArena, root: Root, key: int | None, window: tuple[int, int] | None, given: Entries | None) -> None:
        self._members, self._offset = int(blocks.T[CLIQUE]), root.offset
        self._nodes = blocks.nodes
        self._window = window or _EVER
        self._entries = given or _NO_ENTRIES
        self._given = np.sort(self._entries.slot)
        self._walking = new_walk()
        if given is None:
            compiled(start_reading)(self._nodes, self._walking, root.offset, ANY_KEY if key is None else key, *self._window)
        self.done = False

    def fill(self, limit: int) -> np.ndarray:
        """Up to `limit` >= 1 further rows, int32[t, n], and at most 2**17. A call takes milliseconds, and may find none before `done`."""
        limit = min(limit, _MOST_ROWS)
        out = np.empty((self._members, limit), np.int32)
        Z = self._Z
        if Z[FULL]:
            self._walking = grown(self._walking)
            Z[FULL] = 0
        told = Told(out.reshape(-1), limit)
        n = compiled(walk_fill)(self._nodes, self._walking, self._offset, self._entries, *self._window, told, _STEPS_A_CALL)
        self.done = bool(Z[MODE] == DONE and Z[EACH_KEY] == 0 and Z[ITEM] == len(self._given))
        rows = out if n == limit else out[:, :n].copy()
        return rows if len(self._given) < 2 else self._once(rows)

    def _once(self, rows: np.ndarray) -> np.ndarray:
        """A row of several given ones is told with the first of them: row 0 has the one that it was found with."""
        kept, last = np.ones(rows.shape[1], np.bool_), len(self._given) - 1
        for part in rows[1:]:
            kept &= (part > rows[0]) | (self._given[np.minimum(np.searchsorted(self._given, part), last)] != part)
        return rows[:, kept]

    def clone(self) -> Cursor:
        """An independent cursor at the same place."""
        other = copy.copy(self)
        other._walking = Walking(*(array.copy() for array in self._walking))
        return other

    @property
    def _Z(self) -> np.ndarray:
        return self._walking.Z

    @property
    def steps(self) -> int:
        """Nodes and entries looked at, and rows told, so far."""
        return int(self._Z[STEPS])

    @property
    def largest_gap(self) -> int:
        """The most steps between two rows so far."""
        return int(self._Z[GAP])

    @property
    def dead_ends(self) -> int:
        """Leaves entered, and starts looked at, for nothing so far: of the whole view none; of a key, a window in it, or a given entry the
        leaf where the walk begins at most; of a window over all keys two leaves a key."""
        return int(self._Z[DEAD])
