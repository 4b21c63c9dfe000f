"""The number of pairs of intervals of two sets that meet, and the sums of their weights, under updates: by counting partners.

Problem: intervals with an int32 key and weights come and go on both sides; for each change, report how many pairs it adds or removes, and
by how much sums over the pairs change: of weights of its own side, of the other side, and of the lengths that two intervals have in common,
except those beyond int64.

    first, second   an event tree for each side (`tree.py`), or one for a set with itself: each pair of different intervals is there
                    once, or in both orders
    overlong        the pairs whose lengths are left out (`overlong.py`), where lengths are added up or counted

Invariants: those of the trees.
Costs: a change O(log n) for each weight, however many intervals it meets; memory twice that of an event an interval.
Source: docs/design/queries.md (*Groups*).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from structures.aggregate.amounts import Measures
from structures.core.control import STORE_WORDS
from structures.core.encoding import POS_INF
from structures.core.entries import NO_ENTRIES, Entries
from structures.core.kernel import compiled
from structures.event_tree.overlong import overlong_of
from structures.event_tree.sums import (
    COMMON,
    DELETE,
    HOW,
    INSERT,
    LENGTHS,
    MEASURE,
    MISSING,
    MOVE,
    OWN,
    STEPS,
    THEIRS,
    TIMES,
    EventChanges,
    TreePair,
    follow,
)
from structures.event_tree.sums import STATE_WORDS as _STATE_WORDS
from structures.event_tree.tree import EventTree

Recipe = tuple[int, int]  # how a sum changes, and the number of the weight: `sums.Both`


class Counting:
    """See the module's head. One thread."""

    def __init__(
        self, weights: tuple[int, int], recipes: tuple[Sequence[Recipe], Sequence[Recipe]], itself: int = 0, words: int = STORE_WORDS
    ) -> None:
        """`weights`: the number an interval of each side has; with COMMON or LENGTHS among the recipes, the first one is the structure's
        own, and all intervals have both ends. `recipes`: of the sums, for each side. `itself`: 0 for two sets, otherwise one set, whose
        different intervals are paired once or twice (1 or 2). `words`: address space of each tree in 8-byte words (not memory)."""
        self.weights, self.recipes = weights, recipes
        self._itself, self._sums = itself, len(recipes[0])
        self.trees = tuple(EventTree(words, many, False) for many in (weights[:1] if itself else weights))
        recipe = np.array(recipes, np.int64).reshape(2, self._sums, 2)
        Z = np.zeros(_STATE_WORDS, np.int64)
        Z[TIMES] = max(1, itself)
        self._both = TreePair(self.trees[0].arrays, self.trees[-1].arrays, recipe, np.zeros(3 + 2 * max(weights), np.int64), Z)
        self._overlong = overlong_of(recipe, itself, words)

    def load(self, first: Entries, second: Entries, weights: tuple[np.ndarray, np.ndarray]) -> None:
        """Fill both sides of two sets, with weights int64[n, w]. O(n log n). MemoryError: they do not fit."""
        assert not self._itself
        for tree, entries, given in zip(self.trees, (first, second), weights, strict=True):
            tree.load(entries, NO_ENTRIES, weights_of(tree, entries, given, self._both.recipe))
        for one in self._overlong:
            one.load(first, second)

    def require(self, first: int, second: int) -> None:
        """Raise MemoryError unless the given numbers of intervals of each side certainly fit. O(1)."""
        for tree, intervals in zip(self.trees, (first, second), strict=False):
            tree.require(2 * intervals)

    def follow(self, changes: EventChanges) -> Measures:
        """Apply these changes one after another. For each, report how many pairs it adds or removes, and by how much the sums change,
        relative to the state left by the changes before it. KeyError: an interval to be deleted is not there, and the structure is damaged.
        TypeError, ValueError: the columns of the changes are invalid, and nothing was done. O(log n) each."""
        changes.require(max(self.weights))
        n = len(changes.kind)
        measured = Measures(np.empty(n, np.int64), np.zeros((n, self._sums, 3), np.int64))
        compiled(follow)(self._both, changes, measured)
        if missing := int(self._both.Z[MISSING]):
            raise KeyError(f"{missing} intervals that were to go are not there")
        for one in self._overlong:
            left_out = one.follow(changes)
            measured.sums[left_out.which] -= left_out.sums
        return measured

    @property
    def intervals(self) -> int:
        """Intervals of both sides."""
        return sum(tree.events for tree in self.trees) // 2

    @property
    def steps(self) -> int:
        """Nodes visited for counts and sums so far."""
        return int(self._both.Z[STEPS])

    @property
    def bytes(self) -> int:
        return sum(tree.bytes for tree in self.trees) + sum(one.bytes for one in self._overlong)

    def check(self) -> None:
        """Prove the invariants of the trees."""
        for tree in self.trees:
            tree.check()
        for one in self._overlong:
            one.check()


def weights_of(tree: EventTree, entries: Entries, given: np.ndarray, recipe: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Given intervals with these weights (int64[n, w]), return the weights of their STARTs and of their ENDs."""
    mine = given[:, : tree.weights]
    if not (recipe[:, :, HOW] == COMMON).any():
        return mine, mine
    starts, ends = mine.copy(), mine.copy()
    starts[:, 0], ends[:, 0] = entries.left, entries.right + (entries.right != POS_INF)
    return starts, ends


__all__ = ["COMMON", "DELETE", "INSERT", "LENGTHS", "MEASURE", "MOVE", "OWN", "THEIRS", "EventChanges", "Counting", "Measures", "Recipe"]
