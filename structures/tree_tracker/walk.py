"""TreeTracker as a walk that can be suspended and resumed anywhere: nested loops over the positions of a plan, each looked up by its key
from the position above, that jump back to the culprit and store it.

A position whose group has no entry that can be in a row makes the entry above it a no-good (the paper's RemoveDanglingT): the walk
continues there, and the loops between are abandoned. If an entry of a group has been in a row, the group has merely ended, even if all
later entries are no-goods: the walk continues with the loop outside. (Algorithms 5.2 to 5.4 treat such an end as a failure, and lose rows.)
`LIVED` of a position distinguishes the two cases, so the rows do not depend on which no-goods are stored.

TT-gamma is the same walk after a pass from the leaves of the tree to its root, which marks all entries without partners (REDUCE): nothing
fails after it.

The state is plain data, which is also the cursor: counters, then for each position its entry, the end of its group in that leaf, whether it
LIVED, and its key. `LEVEL` and `PHASE` determine the next step.

Costs: a look-up O(log n); for t atoms (t - 1) (r + removed) look-ups for r rows, and at most n entries are removed while there is room to
store them. Source: *TreeTracker Join*, Sections 4 and 5; docs/design/natural-joins.md (*tree-tracker*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes
from structures.core.entries import RowBuffer
from structures.core.kernel import arrays, kernel, wide
from structures.index.layout import HEAD, LEAF_ROOM, MOST_ARITY, count_of, slot_at
from structures.index.search import BEFORE, IndexPosition, Items, group_end, next_entry, same, seek, seek_near
from structures.tree_tracker.no_goods import address_of, entry_of, is_full, leaf_of, must_grow, note, passed_over
from structures.tree_tracker.shape import (
    ABOVE,
    ARITY_,
    ATOM,
    BOUND,
    CHILDREN,
    GIVEN,
    MEMBER,
    MOST_ATOMS,
    POSITION,
    POSITION_WORDS,
    POSITIONS,
    SOURCE,
)

OPEN, FORWARD, REMOVE, EMIT, REDUCE = range(5)  # phases
AT, LEVEL, PHASE, STEPS, LAST, GAP, LOOKUPS, REMOVED, NO_GOODS, FORGOTTEN, INDEX_POSITIONS = range(11)
LEAF_, ENTRY, END, LIVED, KEY = range(5)  # words of a position
INDEX_POSITION_WORDS = KEY + MOST_ARITY
STATE_WORDS = INDEX_POSITIONS + INDEX_POSITION_WORDS * MOST_ATOMS


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class TreeTrackerWalk(NamedTuple):
    """A reading of the version with these roots by this plan, its state, and a table of no-goods."""

    plan: np.ndarray
    roots: np.ndarray
    state: np.ndarray
    table: np.ndarray


@kernel
def go(state: Any, level: int, phase: int) -> None:
    state[LEVEL], state[PHASE] = level, phase


@kernel
def settle(nodes: Nodes, walking: TreeTrackerWalk, q: int, leaf: int, i: int, end: int) -> bool:
    """Move position q to the first entry of its group, from (leaf, i) on, that is not a no-good; False if there is none. `end`: of the
    group in that leaf, 0 if unknown."""
    plan, _, state, table = walking
    a, z = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
    k, p = plan[a + ARITY_], plan[a + BOUND]
    first = leaf
    if leaf != 0 and plan[a + CHILDREN] != 0:
        address, steps = passed_over(table, address_of(leaf, i), plan[a + ATOM])
        leaf, i = leaf_of(address), entry_of(address)
        state[STEPS] += steps
    if leaf == 0:
        return False
    if leaf != first or end == 0:
        if not same(nodes.M, leaf, LEAF_ROOM[k], i, state, z + KEY, 1, p):
            return False
        end = group_end(nodes, leaf, k, i, state, z + KEY, 1, p)
    if i >= end:
        return False
    state[z + LEAF_], state[z + ENTRY], state[z + END] = leaf, i, end
    return True


@kernel
def look_up(nodes: Nodes, walking: TreeTrackerWalk, items: Items, q: int) -> bool:
    """Move position q to the first entry of the group that the position above requires; False if it has none that can be in a row."""
    plan, roots, state, _ = walking
    a, z = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
    k, p, above = plan[a + ARITY_], plan[a + BOUND], plan[a + ABOVE]
    Y, y, step = items.coordinates, state[AT] * items.width, 1
    if above > 0 or (above == 0 and plan[GIVEN] == 0):
        b = INDEX_POSITIONS + INDEX_POSITION_WORDS * above
        step = LEAF_ROOM[plan[a + ARITY_ + POSITION_WORDS * (above - q)]]
        Y, y = nodes.M, state[b + LEAF_] + HEAD + state[b + ENTRY]
    for j in range(p):
        state[z + KEY + j] = Y[y + plan[a + SOURCE + j] * step]
    near = min(state[z + ENTRY], state[z + END] - 1)
    leaf, i = seek_near(nodes, roots[plan[a + MEMBER]], k, state[z + LEAF_], near, IndexPosition(state, z + KEY, 1, p, BEFORE))
    state[STEPS] += 1
    state[LOOKUPS] += q > 0
    state[z + LIVED] = 0
    return settle(nodes, walking, q, leaf, i, 0)


@kernel
def forward(nodes: Nodes, walking: TreeTrackerWalk, q: int) -> bool:
    """Move position q to the next entry of its group that is not a no-good; False if there is none."""
    plan, roots, state, _ = walking
    if q == 0 and plan[GIVEN] != 0:
        return False
    a, z = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
    leaf, k = state[z + LEAF_], plan[a + ARITY_]
    state[STEPS] += 1
    if state[z + ENTRY] + 1 < state[z + END]:
        return settle(nodes, walking, q, leaf, state[z + ENTRY] + 1, state[z + END])
    n = count_of(nodes.W, leaf)
    if state[z + END] < n:
        return False
    other, i = next_entry(nodes, roots[plan[a + MEMBER]], k, leaf, n - 1)
    return settle(nodes, walking, q, other, i, 0)


@kernel
def remove_dangling(nodes: Nodes, walking: TreeTrackerWalk, q: int, noted: bool) -> None:
    """Remove the entry of position q, which is in no row. `noted`: store it, as it may be met again."""
    plan, roots, state, table = walking
    a, z = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
    state[REMOVED] += 1
    if not noted:
        return
    if is_full(table):
        state[FORGOTTEN] += 1
        return
    leaf, i = state[z + LEAF_], state[z + ENTRY]
    other, j = next_entry(nodes, roots[plan[a + MEMBER]], plan[a + ARITY_], leaf, i)
    state[NO_GOODS] += note(table, address_of(leaf, i), plan[a + ATOM], address_of(other, j))


@kernel
def arrive(plan: Any, state: Any, q: int) -> None:
    """Position q has an entry: continue with the next position, or the row."""
    if q + 1 < plan[POSITIONS]:
        go(state, q + 1, OPEN)
    else:
        go(state, q, EMIT)


@kernel
def leave(plan: Any, state: Any, q: int) -> None:
    """End the group of position q: it has failed unless it has lived."""
    if q == 0:
        state[AT] += 1
        go(state, 0, OPEN)
    elif state[INDEX_POSITIONS + INDEX_POSITION_WORDS * q + LIVED] != 0:
        go(state, q - 1, FORWARD)
    else:
        go(state, plan[POSITION + POSITION_WORDS * q + ABOVE], REMOVE)


@kernel
def reduce(nodes: Nodes, walking: TreeTrackerWalk, items: Items, q: int) -> None:
    """Visit the next entry of position q, from the last position to the first, and check whether each child has a partner for it."""
    plan, roots, state, _ = walking
    a, z = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
    if plan[a + CHILDREN] != 0:
        k, root = plan[a + ARITY_], roots[plan[a + MEMBER]]
        if state[z + LIVED] == 0:
            leaf, i = seek(nodes, root, k, IndexPosition(state, z + KEY, 1, 0, BEFORE))
        else:
            leaf, i = next_entry(nodes, root, k, state[z + LEAF_], state[z + ENTRY])
        state[STEPS] += 1
        if leaf != 0:
            state[z + LEAF_], state[z + ENTRY], state[z + END], state[z + LIVED] = leaf, i, i + 1, 1
            for r in range(q + 1, plan[POSITIONS]):
                if plan[POSITION + POSITION_WORDS * r + ABOVE] == q and not look_up(nodes, walking, items, r):
                    remove_dangling(nodes, walking, q, True)
                    break
            return
    go(state, max(q - 1, 0), REDUCE if q > 0 else OPEN)


@kernel
def emit(nodes: Nodes, walking: TreeTrackerWalk, slots: Any, emitted: RowBuffer, n: int) -> int:
    """Write the rows from the current positions through the last position's group in its leaf, as long as there is room. Returns the number
    of rows then written."""
    W, plan, state = nodes.W, walking.plan, walking.state
    out, stride = emitted
    last = plan[POSITIONS] - 1
    z = INDEX_POSITIONS + INDEX_POSITION_WORDS * last
    low, m = state[z + ENTRY], min(state[z + END] - state[z + ENTRY], stride - n)
    for q in range(last + 1):
        a, position = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
        k, o = plan[a + ARITY_], plan[a + ATOM] * stride + n
        source = slot_at(state[position + LEAF_], k, LEAF_ROOM[k])
        if q == last:
            for j in range(m):
                out[o + j] = W[source + low + j]
        else:
            slot = slots[state[AT]] if q == 0 and plan[GIVEN] != 0 else W[source + state[position + ENTRY]]
            for j in range(m):
                out[o + j] = slot
    state[z + ENTRY] = low + m
    state[STEPS] += m
    state[GAP] = max(state[GAP], state[STEPS] - m + 1 - state[LAST])
    state[LAST] = state[STEPS]
    return n + m


@kernel
def step(nodes: Nodes, walking: TreeTrackerWalk, items: Items, emitted: RowBuffer, n: int) -> int:
    """Do the next step. Returns the number of rows then written."""
    plan, _, state, _ = walking
    q, phase = state[LEVEL], state[PHASE]
    z = INDEX_POSITIONS + INDEX_POSITION_WORDS * q
    if phase == EMIT:
        n = emit(nodes, walking, items.slots, emitted, n)
        if state[z + ENTRY] == state[z + END]:
            go(state, q, FORWARD)
        return n
    if phase == REDUCE:
        reduce(nodes, walking, items, q)
        return n
    if phase == OPEN:
        if q == 0 and plan[GIVEN] != 0:
            state[z + LIVED] = 0
            found = True
        else:
            found = look_up(nodes, walking, items, q)
    else:
        if phase == FORWARD:
            state[z + LIVED] = 1
        else:
            remove_dangling(nodes, walking, q, q > 0)
        found = forward(nodes, walking, q)
    if found:
        arrive(plan, state, q)
    else:
        leave(plan, state, q)
    return n


@kernel
def walk(nodes: Nodes, walking: TreeTrackerWalk, items: Items, end: int, emitted: RowBuffer, n: int, budget: int) -> int:
    """Continue: write rows from index n on, until all items before index `end` are done, there are `stride` rows, `budget` steps were
    taken, or the table has to grow. Returns the number of rows then written."""
    state, table = walking.state, walking.table
    stop = state[STEPS] + budget
    while n < emitted.stride and state[AT] < end and state[STEPS] < stop and not must_grow(table):
        n = step(nodes, walking, items, emitted, n)
    return n


@kernel("int64(Nodes, TreeTrackerWalk, Items, RowBuffer, int64)")
def tracker_fill(nodes: Nodes, walking: TreeTrackerWalk, items: Items, emitted: RowBuffer, budget: int) -> int:
    """Write further rows of the items, from the position in `state` on. Returns their number, at most `stride`. All are written once
    state[AT] is the number of items.

    `items`: given entries or keys, or one with no coordinates for all rows. Stops after `budget` steps too (look-ups, entries skipped,
    rows; state[STEPS] counts them), and when the table has to grow: call it again with a larger one. Cost: O(1) a step, O(log n) a look-up.
    """
    return walk(nodes, walking, items, len(items.slots), emitted, wide(0), budget)
