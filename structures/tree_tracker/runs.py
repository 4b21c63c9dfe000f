"""Runs of changes, each tick with its delta.

The changes of a tick are a *group*, whose entries become visible together, atom by atom. The rows of an atom's entries are a walk from them
by the atom's plan, in which the atoms before it have their new roots and those after it the old ones.
No-goods that the walk stores are valid for these roots only, so the table is emptied before a root changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes
from structures.core.entries import RowBuffer
from structures.core.kernel import arrays, kernel, wide
from structures.core.runs import AT as GROUP
from structures.core.runs import BEGUN, RUN_WORDS, end_change
from structures.index.search import Items
from structures.tree_tracker.no_goods import COUNT, forget_all, is_first
from structures.tree_tracker.shape import MOST_ATOMS
from structures.tree_tracker.walk import AT, INDEX_POSITION_WORDS, INDEX_POSITIONS, LEAF_, OPEN, TreeTrackerWalk, go, walk

ATOM, RUN_STATE = range(RUN_WORDS, RUN_WORDS + 2)  # after the state of a run, whose changes are groups: the current atom
_EVER = 2**62  # steps: only its rows interrupt a delta, and a table that has to grow


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]", "boolean[::1]")
class Groups(NamedTuple):
    """Group g is the changes starts[g] to starts[g + 1] (excluded). Change i was made to `members[i]`, as bits, which have the root
    after[i] since; wanted[g]: whether its rows are wanted. `first`: for each atom its first member, then the number of members; `plans`:
    one after another."""

    plans: np.ndarray
    first: np.ndarray
    starts: np.ndarray
    members: np.ndarray
    after: np.ndarray
    wanted: np.ndarray


@kernel
def begin(groups: Groups, walking: TreeTrackerWalk, a: int, e: int) -> None:
    """Start the walk from change e of atom a. The counters continue."""
    plan, _, state, _ = walking
    for w in range(len(plan)):
        plan[w] = groups.plans[a * len(plan) + w]
    for q in range(MOST_ATOMS):
        state[INDEX_POSITIONS + INDEX_POSITION_WORDS * q + LEAF_] = 0
    state[AT] = e
    go(state, 0, OPEN)


@kernel
def changes_of(groups: Groups, g: int, a: int) -> tuple[int, int]:
    """The changes of the group that concern the atom, by its first member: the first one, and the one after the last; equal if there are
    none."""
    e, end = groups.starts[g], groups.starts[g + 1]
    while e < end and (groups.members[e] >> groups.first[a]) & 1 == 0:
        e += 1
    last = e
    while last < end and (groups.members[last] >> groups.first[a]) & 1 != 0:
        last += 1
    return e, last


@kernel
def move_roots(groups: Groups, roots: Any, g: int, a: int) -> None:
    for e in range(groups.starts[g], groups.starts[g + 1]):
        for m in range(groups.first[a], groups.first[a + 1]):
            if (groups.members[e] >> m) & 1 != 0:
                roots[m] = groups.after[e]


@kernel("int64(Nodes, TreeTrackerWalk, Groups, Items, RowBuffer, int64[::1], int64[::1])")
def follow_run(nodes: Nodes, walking: TreeTrackerWalk, groups: Groups, items: Items, emitted: RowBuffer, done: Any, run: Any) -> int:
    """Follow groups from index run[GROUP] on until all are done, there is no room for more rows, or the table must be replaced. Returns
    the number of rows written, at most `stride`.

    `items`: entry i is that of change i. done: int64[groups], the rows written when group g was done. Updates the roots. run[BEGUN] says
    whether to continue with the same table, enlarged if necessary, or with a new one. Cost: O(log n) a look-up, for the rows and dead ends.
    """
    _, roots, state, table = walking
    n = wide(0)
    while run[GROUP] < len(groups.starts) - 1:
        g = run[GROUP]
        while run[ATOM] < len(groups.first) - 1:
            a = run[ATOM]
            e, end = changes_of(groups, g, a)
            if end > e:
                if groups.wanted[g]:
                    if run[BEGUN] == 0:
                        begin(groups, walking, a, e)
                        run[BEGUN] = 1
                    n = walk(nodes, walking, items, end, emitted, n, _EVER)
                    if state[AT] < end:
                        return n
                run[BEGUN] = 0
                move_roots(groups, roots, g, a)
            run[ATOM] += 1
            if table[COUNT] != 0:
                if not is_first(table):
                    return n
                forget_all(table)
        end_change(run, done, n, False)
        run[ATOM] = 0
    return n
