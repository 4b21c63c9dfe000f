"""Pairs whose common length exceeds int64: sums and counts of lengths leave them out, as such a length is null.

Problem: a length is the number of points that two intervals have in common, and `more` (-1, 0, or 1). For each change, report how many of
the pairs that it adds or removes have a length of 2**63 or more, and the sum of these lengths.

Two intervals have such a length iff each right end is at least T = 2**63 - 1 - more beyond each left end, its own included: that is, iff
both are that long, and meet when each is cut short by T at its right end. Their common part is then the length less 2**63 - 1.
So these pairs are counted and added up like all others (`sums.py`), over the intervals that are that long alone: in most data, none.

Costs: O(1) for a change of any other interval, O(log n) for one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from structures.aggregate.amounts import Measures
from structures.core.entries import NO_ENTRIES, Entries
from structures.core.kernel import compiled
from structures.event_tree.sums import COMMON, HOW, LENGTHS, MISSING, STATE_WORDS, TIMES, WEIGHT, EventChanges, TreePair, follow
from structures.event_tree.tree import EventTree

_LEFT_OUT = 2**63 - 1  # difference between a length and the common points of the cut intervals


class Excess(NamedTuple):
    """For the changes with these numbers, what the sums leave out: int64[m, s, 3], digits of either sign."""

    which: np.ndarray
    sums: np.ndarray


class OverlongSums:
    """See the module's head. One thread."""

    def __init__(self, more: int, recipe: np.ndarray, itself: int, words: int) -> None:
        """`recipe`: int64[s, 2], of the sums: those of lengths with this `more` leave pairs out. `itself`, `words`: as of `Counting`."""
        ours = recipe[:, WEIGHT] == more
        self._sums, self._counts = (np.flatnonzero(ours & (recipe[:, HOW] == how)) for how in (COMMON, LENGTHS))
        self._all = len(recipe)
        self._least = np.uint64(_LEFT_OUT - more)
        self.trees = tuple(EventTree(words, 1, False) for _ in range(1 if itself else 2))
        state = np.zeros(STATE_WORDS, np.int64)
        state[TIMES] = max(1, itself)
        common = np.array([[[COMMON, 0]]] * 2, np.int64)
        self._both = TreePair(self.trees[0].arrays, self.trees[-1].arrays, common, np.zeros(5, np.int64), state)

    def load(self, first: Entries, second: Entries) -> None:
        """Fill both sides of two sets. O(n), and O(m log m) for the m intervals that are long enough."""
        for tree, entries in zip(self.trees, (first, second), strict=True):
            which = self._long(entries.left, entries.right)
            part = entries.take(which)._replace(right=self._cut(entries.right[which]))
            tree.load(part, NO_ENTRIES, (part.left.reshape(-1, 1), (part.right + 1).reshape(-1, 1)))

    def follow(self, changes: EventChanges) -> Excess:
        """Apply the changes that concern such intervals. KeyError: an interval to be deleted is not there."""
        which = self._long(changes.left, changes.right)
        sums = np.zeros((len(which), self._all, 3), np.int64)
        if len(which):
            part = EventChanges(*(np.ascontiguousarray(column[which]) for column in changes))
            part = part._replace(right=self._cut(part.right), weights=np.zeros((len(which), 1), np.int64))
            found = Measures(np.empty(len(which), np.int64), np.zeros((len(which), 1, 3), np.int64))
            compiled(follow)(self._both, part, found)
            if missing := int(self._both.Z[MISSING]):
                raise KeyError(f"{missing} intervals that were to go are not there")
            sums[:, self._counts, 0] = found.rows[:, None]
            sums[:, self._sums] = found.sums
            sums[:, self._sums, 0] -= found.rows[:, None]  # 2**63 - 1 for each
            sums[:, self._sums, 1] += found.rows[:, None] << 31
        return Excess(which, sums)

    def _long(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.flatnonzero((right - left).view(np.uint64) >= self._least)

    def _cut(self, right: np.ndarray) -> np.ndarray:
        cut: np.ndarray = (right.view(np.uint64) - self._least).view(np.int64)
        return cut

    @property
    def bytes(self) -> int:
        return sum(tree.bytes for tree in self.trees)

    def check(self) -> None:
        """Prove the invariants of the trees."""
        for tree in self.trees:
            tree.check()


def overlong_of(recipes: np.ndarray, itself: int, words: int) -> Sequence[OverlongSums]:
    """The structures that these recipes, int64[2, s, 2], require; both sides have the same lengths."""
    lengths = np.isin(recipes[0, :, HOW], (COMMON, LENGTHS))
    return [OverlongSums(more, recipes[0], itself, words) for more in np.unique(recipes[0, lengths, WEIGHT]).tolist()]
