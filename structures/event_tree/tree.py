r"""Intervals as events, and rows between them, so that partners are counted without a visit.

Problem: under inserts and deletes of closed intervals with an int32 key, report how many of them a given interval meets and the sums of
their weights (`sums.py`); and among rows, which are intervals too, find one that meets none.

    key 3   START 2    ROW 2..4    END 5    ROW 6..7    START 9 …        by (key, place, rank, slot): START at the left end l, rank 0;
            |------------------------|                  |-------         END at r + 1, rank 1; ROW at its left end, rank 2
               |--------|            .        |-----|
               has a partner         .        is dead: depth 0, and it ends before the next event

The END of an interval without end is at the first place of the next key, so that the depth (starts less ends) is 0 again there.

Invariants, by which `check()` names what broke
    E1  events ascend by (key, place, rank, slot)
    E2  a stored summary (`summary.py`) equals that of the events below
    E3  all leaves lie at one depth; nodes except the root have LEAF_LEAST to B events, 2 to F children; each block is in use or free
For a tree in a `Matching` also
    E4  its rows are the matched ones, and none is dead

Costs (n events): a change O(log n), partners counted or added up O(log n), a dead row found O(log n); memory 24 bytes an event, and 8 a
further weight, in leaves at least a quarter full. Differs from docs/design/queries.md only in the place of an END without end.
"""

from __future__ import annotations

import numpy as np

from structures.core.arena import B, F
from structures.core.control import STORE_WORDS
from structures.core.encoding import POS_INF
from structures.core.entries import Entries
from structures.core.kernel import compiled
from structures.core.reserve import reserve
from structures.event_tree.changes import build, make_empty
from structures.event_tree.check import check_events
from structures.event_tree.layout import (
    CONTROL_WORDS,
    END,
    EVENTS,
    INNER_FIELDS,
    LEAF_FIELDS,
    LEAF_LEAST,
    MOST_LEVELS,
    PLAIN,
    ROW,
    START,
    VALUE,
    WEIGHT_FIELDS,
    WEIGHTS,
    Tree,
)
from structures.event_tree.search import count_partners


class EventTree:
    """See the module's head. Only the writing thread may read."""

    def __init__(self, words: int = STORE_WORDS, weights: int = 0, rows: bool = True) -> None:
        """`words`: address space in 8-byte words (not memory). `weights`: the number an interval has; `rows`: whether the tree has rows."""
        leaf, inner = max(LEAF_FIELDS, VALUE + weights), INNER_FIELDS + WEIGHT_FIELDS * weights
        self.weights = weights
        self._words = leaf * B + inner * F + 1  # of a leaf and an inner node, with their sizes
        self._most = words // self._words
        self.arrays = Tree(
            reserve(8 * self._most * leaf * B, np.int64).reshape(-1, leaf, B),
            reserve(8 * self._most * inner * F, np.int64).reshape(-1, inner, F),
            reserve(4 * self._most, np.int32),
            reserve(4 * self._most, np.int32),
            np.zeros(CONTROL_WORDS, np.int64),
            np.zeros((MOST_LEVELS, 2), np.int64),
            np.zeros((2, max(1, weights)), np.int64),
        )
        self.arrays.control[WEIGHTS], self.arrays.control[PLAIN] = weights, not rows
        compiled(make_empty)(self.arrays)

    @property
    def events(self) -> int:
        """STARTs, ENDs and rows."""
        return int(self.arrays.control[EVENTS])

    @property
    def bytes(self) -> int:
        """Bytes of the nodes, at their average fill."""
        return 8 * self.events * self._words * 4 // (3 * B)

    def require(self, events: int) -> None:
        """Raise MemoryError unless this number of events certainly fits. O(1)."""
        if events // LEAF_LEAST + 2 >= self._most:
            raise MemoryError(f"this view's structure has reached its size ({self._most} leaves)")

    def load(self, intervals: Entries, rows: Entries, weights: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        """Replace the content by these intervals and rows. `weights`: those of their STARTs and of their ENDs, int64[n, weights]. O(n log
        n)."""
        self.require(2 * len(intervals.slot) + len(rows.slot))
        open_ = intervals.right == POS_INF
        ends = Entries(intervals.set, intervals.key + open_.astype(np.int32), intervals.right + 1, intervals.right, intervals.slot)  # wraps
        names = np.concatenate([_names(intervals, START), _names(ends, END), _names(rows, ROW)])
        ats = np.concatenate([intervals.left, ends.left, rows.left])
        values = np.zeros((len(names), self.arrays.leaves.shape[1] - VALUE), np.int64)
        values[2 * len(open_) :, 0] = rows.right
        for first, given in ((0, weights[0]), (len(open_), weights[1])) if weights is not None else ():
            values[first : first + len(open_), : given.shape[1]] = given
        order = np.lexsort((names & (2**32 - 1), ats, names >> 32))
        compiled(build)(self.arrays, names[order], ats[order], values[order])

    def count(self, entries: Entries) -> np.ndarray:
        """int64[n]: the number of intervals that each of these meets. O(log n) each."""
        counts = np.empty(len(entries.slot), np.int64)
        compiled(count_partners)(self.arrays, entries.key, entries.left, entries.right, counts)
        return counts

    def check(self) -> None:
        """Prove E1 to E3; AssertionError names what broke."""
        check_events(self.arrays)


def _names(entries: Entries, rank: int) -> np.ndarray:
    names: np.ndarray = entries.key.astype(np.int64) << 32 | rank << 30 | entries.slot
    return names
