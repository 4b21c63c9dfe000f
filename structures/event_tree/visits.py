"""Rows of one side, each of which counts its partners, and partners that come and go, each of which visits the rows that it meets.

Problem: intervals of two sides with an int32 key and weights come and go; for each change of a row, report how many partners it has and the
sums of their weights; for each change of a partner, report the rows that it meets.

    rows        a list (`ordered/lists.py`), which is searched for the rows that meet a partner
    partners    an event tree (`tree.py`)
    overlong    the intervals of both sides whose common lengths are left out (`overlong.py`), where lengths are added up or counted

Costs: O(log n) a change, and O(log n) for the first row that a partner meets, O(1) for each further one.
Source: docs/design/queries.md (*Groups*).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from structures.aggregate.amounts import Measures
from structures.core.arena import HEIGHT, ROOT, B
from structures.core.blocks import Nodes, WriteState
from structures.core.control import STORE_WORDS
from structures.core.encoding import NEG_INF
from structures.core.entries import NO_ENTRIES, Entries
from structures.core.kernel import arrays, compiled, kernel, wide
from structures.core.runs import AT, BEGUN, RUN_WORDS
from structures.event_tree.changes import cut_ends, put_ends
from structures.event_tree.counting import Recipe, weights_of
from structures.event_tree.overlong import overlong_of
from structures.event_tree.sums import (
    DELETE,
    INSERT,
    MEASURE,
    MISSING,
    MOVE,
    STATE_WORDS,
    STEPS,
    TIMES,
    EventChanges,
    TreePair,
    give,
    measure,
)
from structures.event_tree.tree import EventTree
from structures.ordered.lists import RowList
from structures.ordered.search import DEPTH, NOTHING_BEFORE, SEARCH_WORDS, Bounds, search_fill, search_start
from structures.ordered.search import STEPS as SEARCHED
from structures.ordered.tree import cut as take_out
from structures.ordered.tree import put as take_in

HITS = 1 << 16  # hits reported at once


@arrays(TreePair, Nodes, WriteState, "int64[::1]", "int64[::1]")
class VisitInputs(NamedTuple):
    """The tree of partners (twice) with the recipe of rows; the list of rows; the states of a run and of a search."""

    both: TreePair
    nodes: Any
    writing: Any
    run: np.ndarray
    Z: np.ndarray


@arrays("int64[::1]", "int32[::1]", "int64[::1]")
class Hits(NamedTuple):
    """For each hit, the number of the change, and the slot of the row that its partner meets; no ends."""

    changes: np.ndarray
    slots: np.ndarray
    ends: np.ndarray


@kernel
def change_row(inputs: VisitInputs, changes: EventChanges, i: int, measured: Measures) -> None:
    """Apply change i, of a row."""
    kind, key, left, right = changes.kind[i], wide(changes.key[i]), changes.left[i], changes.right[i]
    measured.rows[i] = 0
    if kind == MOVE or kind == DELETE:
        slot = wide(changes.former[i]) if kind == MOVE else wide(changes.slot[i])
        if not take_out(inputs.nodes, inputs.writing, 0, key, left, slot):
            inputs.both.Z[MISSING] += 1
    if kind != MOVE:
        measure(inputs.both.first, inputs.both, changes, i, measured)
    if kind == MOVE or kind == INSERT:
        take_in(inputs.nodes, inputs.writing, 0, key, left, right, wide(changes.slot[i]))


@kernel
def change_partner(inputs: VisitInputs, changes: EventChanges, i: int) -> None:
    """Apply change i, of a partner."""
    tree, kind = inputs.both.first, changes.kind[i]
    key, left, right, slot = wide(changes.key[i]), changes.left[i], changes.right[i], wide(changes.slot[i])
    if kind == MOVE or kind == DELETE:
        if not cut_ends(tree, key, left, right, wide(changes.former[i]) if kind == MOVE else slot):
            inputs.both.Z[MISSING] += 1
    if kind == MOVE or kind == INSERT:
        give(tree, inputs.both, changes, i)
        put_ends(tree, key, left, right, slot)


@kernel("int64(VisitInputs, EventChanges, Measures, Hits)")
def follow(inputs: VisitInputs, changes: EventChanges, measured: Measures, hits: Hits) -> int:
    """Apply the changes from index run[AT] on, until all are done or there is no room for hits. Returns the number of hits. O(log n) a
    change, O(1) a hit."""
    run, Z, C, n = inputs.run, inputs.Z, inputs.writing.C, wide(0)
    while run[AT] < len(changes.kind):
        i = run[AT]
        if changes.role[i] == 0:
            change_row(inputs, changes, i, measured)
        else:
            if run[BEGUN] == 0:
                change_partner(inputs, changes, i)
                measured.rows[i] = 0
                bounds = Bounds(NEG_INF, NOTHING_BEFORE, changes.right[i], changes.left[i])
                search_start(Z, C[ROOT], C[HEIGHT], 0, wide(changes.key[i]), bounds)
                if changes.kind[i] == MOVE:
                    Z[DEPTH] = 0
                run[BEGUN] = 1
            m = search_fill(inputs.nodes, Z, hits.slots, n, hits.ends)
            for j in range(n, m):
                hits.changes[j] = i
            n = m
            if Z[DEPTH] > 0:
                return n
            run[BEGUN] = 0
        run[AT] += 1
    return n


class Visits:
    """See the module's head. One thread."""

    def __init__(self, weights: int, recipe: Sequence[Recipe], words: int = STORE_WORDS) -> None:
        """`weights`: of a partner; `recipe`: of the sums, for a changed row: both as of `Counting`. `words`: address space of the list and
        of the tree, each, in 8-byte words (not memory)."""
        self.tree, self.rows = EventTree(words, weights, False), RowList(words)
        made = np.array([recipe, recipe], np.int64).reshape(2, len(recipe), 2)
        state = np.zeros(STATE_WORDS, np.int64)
        state[TIMES] = 1
        totals = np.zeros(3 + 2 * weights, np.int64)
        both = TreePair(self.tree.arrays, self.tree.arrays, made, totals, state)
        arena = self.rows.arena
        self._inputs = VisitInputs(both, arena.nodes, arena.writing, np.zeros(RUN_WORDS, np.int64), np.zeros(SEARCH_WORDS, np.int64))
        self._overlong = overlong_of(made, 0, words)
        self._sums = len(recipe)

    def load(self, version: int, rows: Entries, partners: Entries, weights: np.ndarray) -> None:
        """Fill both sides, which are empty. O(n log n). MemoryError: they do not fit."""
        self.rows.load(version, rows)
        self.tree.load(partners, NO_ENTRIES, weights_of(self.tree, partners, weights, self._inputs.both.recipe))
        for one in self._overlong:
            one.load(rows, partners)

    def require(self, rows: int, partners: int) -> None:
        """Raise MemoryError unless a version with these numbers of rows and partners certainly fits. O(1)."""
        self.rows.require(rows)
        self.tree.require(2 * partners)

    def follow(self, version: int, changes: EventChanges) -> Iterator[tuple[int, Measures, np.ndarray, np.ndarray]]:
        """Apply these changes one after another, as `version`: side 0 has the rows, side 1 the partners. Yields, for some changes at a
        time, the number of changes applied so far; the measurements of the rows among them; and for each hit the number of the change
        (int64[n]) and the slot of the row (int32[n]). KeyError: an interval to be deleted is not there, and the structure is damaged.
        TypeError, ValueError: the columns of the changes are invalid, and nothing was done."""
        changes.require(self.tree.weights)
        self.rows.begin(version)
        n, inputs = len(changes.kind), self._inputs
        measured = Measures(np.zeros(n, np.int64), np.zeros((n, self._sums, 3), np.int64))
        inputs.run[:] = 0
        left_out = np.zeros((n, self._sums, 3), np.int64)
        for one in self._overlong:
            which, sums = one.follow(changes)
            left_out[which] += sums * (changes.role[which] == 0)[:, None, None]
        while (done := int(inputs.run[AT])) < n:
            hits = Hits(np.empty(HITS + B + 1, np.int64), np.empty(HITS + B + 1, np.int32), np.empty(0, np.int64))
            found = compiled(follow)(inputs, changes, measured, hits)
            if missing := int(inputs.both.Z[MISSING]):
                raise KeyError(f"{missing} rows or partners that were to go are not there")
            measured.sums[done : inputs.run[AT]] -= left_out[done : inputs.run[AT]]
            yield int(inputs.run[AT]), measured, hits.changes[:found], hits.slots[:found]

    def reclaim(self, oldest: int, most: int) -> bool:
        """As `Versioned.reclaim`, for readers of the newest version only."""
        return self.rows.reclaim(oldest, np.empty(0, np.int64), most)

    @property
    def entries(self) -> int:
        """Rows and partners."""
        return self.rows.root.counts[0] + self.tree.events // 2

    @property
    def steps(self) -> int:
        """Nodes and entries visited for counts, sums and hits, so far."""
        return int(self._inputs.both.Z[STEPS] + self._inputs.Z[SEARCHED])

    @property
    def bytes(self) -> int:
        return self.tree.bytes + self.rows.live_bytes + sum(one.bytes for one in self._overlong)

    def check(self) -> None:
        """Prove the invariants of the list and of the trees."""
        self.rows.check(self.rows.root)
        self.tree.check()
        for one in self._overlong:
            one.check()


__all__ = ["DELETE", "INSERT", "MEASURE", "MOVE", "EventChanges", "Visits"]
