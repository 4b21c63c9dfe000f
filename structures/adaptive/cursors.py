"""Cursors of the adaptive joins: plain data beside the indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from structures.adaptive.holes import DEEPEST, DEPTH, FORGOTTEN, HOLES_WORDS, MOST, RANGE, holes_fill
from structures.adaptive.product import AT, GAP, LOOKUPS, OUTPUTS, PROBES, STATE_WORDS, STEPS, ProductWalk
from structures.adaptive.shape import POSITIONS
from structures.adaptive.walk import adaptive_fill
from structures.core import cursor
from structures.core.entries import RowBuffer
from structures.core.kernel import compiled
from structures.index.following import ONE
from structures.index.indexes import Entries, items_of
from structures.index.layout import IndexArena

_FEW = 64  # initial capacity of a stack, in ranges


class AdaptiveCursor(cursor.Cursor):
    """A reading by the adaptive walk. Its steps are look-ups, items and rows; its dead ends are places tried that are not tuples."""

    _STEPS, _GAP = STEPS, GAP

    def __init__(self, arena: IndexArena, plan: np.ndarray, roots: Sequence[int], items: Entries, words: int = STATE_WORDS) -> None:
        super().__init__(int(plan[POSITIONS]), np.zeros(words, np.int64))
        self._arena, self._items = arena, items_of(items)
        self._walking = ProductWalk(plan, np.array(roots, np.int64), self._Z)
        self._ended = len(items.slot) == 0

    def _more(self, want: int) -> np.ndarray:
        out = np.empty((len(self._nothing), want), np.int32)
        n = self._fill(RowBuffer(out.reshape(-1), want))
        self._ended = self._Z.item(AT) == len(self._items.slots)
        return out[:, :n]

    def _fill(self, emitted: RowBuffer) -> int:
        return int(compiled(adaptive_fill)(self._arena.nodes, self._walking, self._items, emitted, self._BUDGET))

    def clone(self) -> Self:
        other = super().clone()
        other._walking = self._walking._replace(state=other._Z)
        return other

    @property
    def dead_ends(self) -> int:
        return int(self._Z[PROBES] - self._Z[OUTPUTS])

    @property
    def counters(self) -> dict[str, int]:
        """Look-ups in indexes; places tried; those that are tuples of the join."""
        return {"lookups": int(self._Z[LOOKUPS]), "probes": int(self._Z[PROBES]), "outputs": int(self._Z[OUTPUTS])}


class HolesCursor(AdaptiveCursor):
    """A reading of a whole bow-tie by Algorithm 4. Its dead ends are points of S that are not tuples."""

    def __init__(self, arena: IndexArena, plan: np.ndarray, roots: Sequence[int], most: int) -> None:
        """`most`: maximum ranges on the stack, at least one."""
        super().__init__(arena, plan, roots, ONE, HOLES_WORDS)
        self._Z[MOST] = most
        self._ranges = np.zeros(RANGE * min(most, _FEW), np.int64)

    def _fill(self, emitted: RowBuffer) -> int:
        if RANGE * self._Z[DEPTH] == len(self._ranges) and self._Z[DEPTH] < self._Z[MOST]:
            more = np.zeros(RANGE * int(min(2 * self._Z[DEPTH], self._Z[MOST])), np.int64)
            more[: len(self._ranges)] = self._ranges
            self._ranges = more
        return int(compiled(holes_fill)(self._arena.nodes, self._walking, self._ranges, self._items, emitted, self._BUDGET))

    def clone(self) -> Self:
        other = super().clone()
        other._ranges = self._ranges.copy()
        return other

    @property
    def counters(self) -> dict[str, int]:
        """In addition, the most ranges that waited, and those for which there was no room."""
        return {**super().counters, "ranges": int(self._Z[DEEPEST]), "forgotten": int(self._Z[FORGOTTEN])}
