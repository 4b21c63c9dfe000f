"""Cursors of the IJ-heap: enumerations of one version, resumable and cloned at no cost.

A cursor is plain data beside the tree: its state belongs to the kernels of `walk`. The owner of a cursor holds a pin on its version.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from structures.core import cursor
from structures.core.entries import NO_ENTRIES, Entries, RowBuffer
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.ij_heap import goals
from structures.ij_heap.goals import HeapWalk
from structures.ij_heap.strip import STRIP_SCRATCH
from structures.ij_heap.walk import start_all, walk_fill
from structures.multiway.extreme import ASKED
from structures.multiway.layout import MultiwayArena
from structures.multiway.topology import SETS

_MOST_ROWS = 1 << 17  # most rows of one call


class HeapCursor(cursor.Cursor):
    """A reading of one version: rows of all, of one key, or of given entries, one after the other; all intervals meet the window.

    `fill` returns at most 2**17 rows. Dead ends are nodes entered without finding a row: at most `FUEL_MOST` + rows + the height times the
    number of sets (for each given entry, or key).
    """

    _STEPS, _GAP, _DEAD = goals.STEPS, goals.GAP, goals.DEAD
    _BUDGET = 1 << 15

    def __init__(self, blocks: MultiwayArena, root: EntryRoot, key: int | None, window: tuple[int, int], given: Entries | None) -> None:
        super().__init__(blocks.table.item(SETS), goals.new_walk(blocks.table, root.height))
        self._entries, self._window = given or NO_ENTRIES, window
        scratch = np.empty(STRIP_SCRATCH, np.int64)  # not cleared: of its 22 kB little is used
        scratch[ASKED] = 0
        self._walking = HeapWalk(self._Z, self._Z.view(np.int32), scratch)
        if given is None:
            compiled(start_all)(blocks.table, self._walking, root.offset, goals.ANY_KEY if key is None else key, *window)
        self._nodes, self._offset = blocks.nodes, root.offset

    def _more(self, want: int) -> np.ndarray:
        state, want = self._Z, min(want, _MOST_ROWS)
        out = np.empty((len(self._nothing), want), np.int32)
        emitted = RowBuffer(out.reshape(-1), want)
        n = compiled(walk_fill)(self._nodes, self._walking, self._offset, self._entries, *self._window, emitted, self._BUDGET)
        depth, keys, items = state.item(goals.DEPTH), state.item(goals.EACH_KEY), state.item(goals.ITEM)
        self._ended = depth == 0 and keys == 0 and items == len(self._entries.key)
        return out if n == want else out[:, :n].copy()

    def clone(self) -> Self:
        other = super().clone()
        other._walking = HeapWalk(other._Z, other._Z.view(np.int32), self._walking.scratch.copy())
        return other
