"""Cursors of a clique tree: enumerations of one version, resumable and cloned at the cost of the intervals that cover one start.

A cursor is plain data beside the tree: its state belongs to the kernels of `walk`. The owner of a cursor holds a pin on its version.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from structures.clique import state
from structures.clique.walk import ANY_KEY, start_reading, walk_fill
from structures.core import cursor
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import NO_ENTRIES, Entries, RowBuffer
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.multiway.layout import MultiwayArena
from structures.multiway.topology import CLIQUE

_MOST_ROWS = 1 << 17  # most rows of one call
_EVER = (NEG_INF, POS_INF)


class CliqueCursor(cursor.Cursor):
    """A reading of one version: rows of all, of one key, or of given entries, one after the other; all members meet the window.

    `fill` returns at most 2**17 rows. Memory: a few kB, and 20 bytes for each interval that covers the current start. Dead ends are leaves
    entered, and starts visited, without finding a row: none for the whole view; for a key, a window in it, or a given entry at most the
    leaf where the walk begins; for a window over all keys two leaves a key.
    """

    _STEPS, _GAP, _DEAD = state.STEPS, state.GAP, state.DEAD
    _BUDGET = 1 << 15

    def __init__(
        self, blocks: MultiwayArena, root: EntryRoot, key: int | None, window: tuple[int, int] | None, given: Entries | None
    ) -> None:
        self._walking = state.new_walk()
        super().__init__(int(blocks.table[CLIQUE]), self._walking.Z)
        self._nodes, self._offset = blocks.nodes, root.offset
        self._window = window or _EVER
        self._entries = given or NO_ENTRIES
        self._given = np.sort(given.slot) if given else NO_ENTRIES.slot
        if given is None:
            compiled(start_reading)(self._nodes, self._walking, root.offset, ANY_KEY if key is None else key, *self._window)

    def _more(self, want: int) -> np.ndarray:
        Z, want = self._Z, min(want, _MOST_ROWS)
        out = np.empty((len(self._nothing), want), np.int32)
        if Z[state.FULL]:
            self._walking = state.grown(self._walking)
            Z[state.FULL] = 0
        emitted = RowBuffer(out.reshape(-1), want)
        n = compiled(walk_fill)(self._nodes, self._walking, self._offset, self._entries, *self._window, emitted, self._BUDGET)
        self._ended = bool(Z[state.MODE] == state.DONE and Z[state.EACH_KEY] == 0 and Z[state.ITEM] == len(self._given))
        rows = out if n == want else out[:, :n].copy()
        return rows if len(self._given) < 2 else self._once(rows)

    def _once(self, rows: np.ndarray) -> np.ndarray:
        """Report a row that contains several given entries with the first of them only: row 0 has the entry that it was found with."""
        kept, last = np.ones(rows.shape[1], np.bool_), len(self._given) - 1
        for part in rows[1:]:
            kept &= (part > rows[0]) | (self._given[np.minimum(np.searchsorted(self._given, part), last)] != part)
        return rows[:, kept]

    def clone(self) -> Self:
        other = super().clone()
        other._walking = state.CliqueWalk(other._Z, self._walking.H.copy(), self._walking.J.copy())
        return other
