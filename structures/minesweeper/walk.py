"""Minesweeper as a walk that can be suspended and resumed anywhere: ask the constraint tree for the least tuple that may be a row, look it
up in all atoms, write its rows or insert the gaps around it, and repeat.

A look-up of a tuple finds the longest prefix that the atom shares with it, and the values between which its next one lies: a gap. So of the
gaps that Algorithm 2 explores only those along the tuple are inserted, one an atom. For a tuple that is a row, the gaps after it are
inserted, so that the next probe need not find them. Rows themselves are not constraints: the search continues after them, in lexicographic
order, and so a cursor is the tuple and the place among its rows, which are the product of its slots in the atoms.

The state is plain data, which is also the cursor: counters, the frontier and the tuple (`shadow.py`), then for each atom its entry, the end
of its group in that leaf, both at the group's beginning, and its key. Bound values are in the key's first coordinates.

Costs: a look-up O(log n); at most arity of them, as the paper counts, for each atom and probe. Source: *Beyond Worst-case Analysis for
Joins with Minesweeper*, Algorithm 2; docs/design/natural-joins.md (*minesweeper*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes
from structures.core.entries import RowBuffer
from structures.core.kernel import arrays, kernel, wide
from structures.index.layout import HEAD, LEAF_ROOM, MOST_ARITY, count_of, slot_at
from structures.index.search import BEFORE, BEHIND, IndexPosition, Items, group_end, next_entry, same, seek_last, seek_near
from structures.minesweeper.cds import GREATEST, LEAST, Constraints, clear, is_short, node_of, put_interval
from structures.minesweeper.shadow import (
    AT,
    CONSTRAINTS,
    COVERED,
    ENDED,
    FREE,
    FRONTIER,
    GAP,
    LAST,
    LOOKUPS,
    OUTPUTS,
    OVER,
    PHASE,
    POSITIONS,
    PROBES,
    STEPS,
    TUPLE,
    next_probe,
    pass_on,
)
from structures.minesweeper.shape import ARITY_, ATOM, ATOM_WORDS, ATOMS, BOUND, GIVEN, LEVELS, MEMBER, MOST_ATOMS, NUMBER, SOURCE, TRIANGLE
from structures.minesweeper.triangle import advance, grow, next_triple, put_triangle_gap

OPEN, PROBE, EXPLORE, EMIT = range(4)  # phases
LEAF_, ENTRY, END, FIRST, KEY_ = 0, 1, 2, 3, 6  # words of an atom; FIRST: the same three at the beginning of the group
POSITION_WORDS = KEY_ + MOST_ARITY
STATE_WORDS = POSITIONS + POSITION_WORDS * MOST_ATOMS


@arrays("int64[::1]", "int64[::1]", "int64[::1]")
class MinesweeperWalk(NamedTuple):
    """A reading of the version with these roots by this plan, and its state."""

    plan: np.ndarray
    roots: np.ndarray
    state: np.ndarray


@kernel
def atom_at(q: int) -> int:
    return ATOM + ATOM_WORDS * q


@kernel
def position_at(q: int) -> int:
    return POSITIONS + POSITION_WORDS * q


@kernel
def take_group(nodes: Nodes, walking: MinesweeperWalk, q: int, leaf: int, i: int) -> None:
    """Move atom q to this entry, the first of the tuple's group."""
    plan, _, state = walking
    k, z = plan[atom_at(q) + ARITY_], position_at(q)
    end = group_end(nodes, leaf, k, i, state, z + KEY_, 1, k)
    state[z + LEAF_], state[z + ENTRY], state[z + END] = leaf, i, end
    state[z + FIRST], state[z + FIRST + 1], state[z + FIRST + 2] = leaf, i, end


@kernel
def in_common(nodes: Nodes, walking: MinesweeperWalk, q: int, leaf: int, i: int) -> int:
    """The number of first coordinates of its key that atom q has in entry i of the leaf; 0 if there is no leaf."""
    M, (plan, _, state) = nodes.M, walking
    k, z, j = plan[atom_at(q) + ARITY_], position_at(q), wide(0)
    room = LEAF_ROOM[k]
    while leaf != 0 and j < k and M[leaf + HEAD + j * room + i] == state[z + KEY_ + j]:
        j += 1
    return j


@kernel
def put_gap(tree: Constraints, walking: MinesweeperWalk, q: int, c: int, low: int, high: int) -> None:
    """Insert that, where the tuple has the values of atom q's key before coordinate c, coordinate c has no value from `low` to `high`."""
    plan, _, state = walking
    a, bits = atom_at(q), wide(0)
    for j in range(plan[a + BOUND], c):
        bits |= wide(1) << plan[a + SOURCE + j]
    if plan[TRIANGLE] != 0:
        put_triangle_gap(tree, state, bits, plan[a + SOURCE + c], low, high)
        return
    v = node_of(tree, bits, plan[a + SOURCE + c], state, TUPLE)
    state[CONSTRAINTS] += put_interval(tree, v, low, high, wide(1) << q)


@kernel
def look_up(nodes: Nodes, tree: Constraints, walking: MinesweeperWalk, q: int) -> bool:
    """Move atom q to the group of its key; False if it has none, after inserting the gap around it."""
    M, (plan, roots, state) = nodes.M, walking
    a, z = atom_at(q), position_at(q)
    k, p = plan[a + ARITY_], plan[a + BOUND]
    room, root = LEAF_ROOM[k], roots[plan[a + MEMBER]]
    position = IndexPosition(state, z + KEY_, 1, k, BEFORE)
    leaf, i = seek_near(nodes, root, k, state[z + FIRST], state[z + FIRST + 1], position)
    state[STEPS] += 1
    behind = in_common(nodes, walking, q, leaf, i)
    if behind == k:
        state[LOOKUPS] += k - p
        take_group(nodes, walking, q, leaf, i)
        return True
    other, b = seek_last(nodes, root, k, position) if leaf == 0 or i == 0 else (leaf, i - 1)
    before = in_common(nodes, walking, q, other, b)
    if leaf != 0:
        state[z + FIRST], state[z + FIRST + 1] = leaf, i
    c = max(before, behind)
    if c < p:
        c = p
    state[LOOKUPS] += c - p + 1
    if p < k:
        low = M[other + HEAD + c * room + b] + 1 if other != 0 and before == c else wide(LEAST)
        high = M[leaf + HEAD + c * room + i] - 1 if leaf != 0 and behind == c else wide(GREATEST)
        put_gap(tree, walking, q, c, low, high)
    return False


@kernel
def put_gap_behind(nodes: Nodes, tree: Constraints, walking: MinesweeperWalk, q: int) -> None:
    """Insert the gap after the tuple in atom q: at its last level, no value before that of its next entry."""
    M, (plan, roots, state) = nodes.M, walking
    a, z = atom_at(q), position_at(q)
    k = plan[a + ARITY_]
    if plan[a + BOUND] == k or plan[a + SOURCE + k - 1] != plan[LEVELS] - 1 or state[z + KEY_ + k - 1] == GREATEST:
        return
    leaf, i = seek_near(nodes, roots[plan[a + MEMBER]], k, state[z + LEAF_], state[z + ENTRY], IndexPosition(state, z + KEY_, 1, k, BEHIND))
    state[STEPS] += 1
    state[LOOKUPS] += 1
    low, high = state[z + KEY_ + k - 1] + 1, wide(GREATEST)
    if leaf != 0 and in_common(nodes, walking, q, leaf, i) == k - 1:
        high = M[leaf + HEAD + (k - 1) * LEAF_ROOM[k] + i] - 1
    if low <= high:
        put_gap(tree, walking, q, k - 1, low, high)


@kernel
def open_item(nodes: Nodes, tree: Constraints, walking: MinesweeperWalk, items: Items) -> bool:
    """Begin the search for the next item; False if an atom whose variables are all bound does not have it."""
    plan, _, state = walking
    x = state[AT] * items.width
    for d in range(plan[LEVELS]):
        state[FRONTIER + d] = LEAST
    state[OVER] = 0
    found = True
    for q in range(plan[ATOMS]):
        a, z = atom_at(q), position_at(q)
        for j in range(plan[a + BOUND]):
            state[z + KEY_ + j] = items.coordinates[x + plan[a + SOURCE + j]]
        if plan[a + BOUND] == plan[a + ARITY_] and found:
            found = look_up(nodes, tree, walking, q)
    return found


@kernel
def explore(nodes: Nodes, tree: Constraints, walking: MinesweeperWalk) -> bool:
    """Look the tuple up in all atoms; False if it is not a row, after inserting gaps around it."""
    plan, _, state = walking
    found = True
    state[PROBES] += 1
    for q in range(plan[ATOMS]):
        a, z = atom_at(q), position_at(q)
        if plan[a + BOUND] == plan[a + ARITY_]:
            continue
        for j in range(plan[a + BOUND], plan[a + ARITY_]):
            state[z + KEY_ + j] = state[TUPLE + plan[a + SOURCE + j]]
        found = look_up(nodes, tree, walking, q) and found
    if found:
        state[OUTPUTS] += 1
        if plan[TRIANGLE] != 0:
            advance(state, 2, state[TUPLE + 2])
        for q in range(plan[ATOMS]):
            put_gap_behind(nodes, tree, walking, q)
    return found


@kernel
def emit(nodes: Nodes, walking: MinesweeperWalk, slots: Any, emitted: RowBuffer, n: int) -> int:
    """Write the rows from the current positions through the last atom's group in its leaf, as long as there is room. Returns the number of
    rows then written."""
    W, (plan, _, state) = nodes.W, walking
    out, stride = emitted
    last = plan[ATOMS] - 1
    z = position_at(last)
    low, m = state[z + ENTRY], min(state[z + END] - state[z + ENTRY], stride - n)
    for q in range(-1, last + 1):
        o = (plan[GIVEN] if q < 0 else plan[atom_at(q) + NUMBER]) * stride + n
        if q < 0:
            for j in range(m if plan[GIVEN] >= 0 else 0):
                out[o + j] = slots[state[AT]]
            continue
        k, position = plan[atom_at(q) + ARITY_], position_at(q)
        source = slot_at(state[position + LEAF_], k, LEAF_ROOM[k])
        for j in range(m):
            out[o + j] = W[source + (low + j if q == last else state[position + ENTRY])]
    state[z + ENTRY] = low + m
    state[STEPS] += m
    state[GAP] = max(state[GAP], state[STEPS] - m + 1 - state[LAST])
    state[LAST] = state[STEPS]
    return n + m


@kernel
def forward(nodes: Nodes, walking: MinesweeperWalk, q: int) -> bool:
    """Move atom q to the next entry of its group; False if there is none, after moving back to the first."""
    plan, roots, state = walking
    a, z = atom_at(q), position_at(q)
    k, leaf = plan[a + ARITY_], state[z + LEAF_]
    state[STEPS] += 1
    if state[z + ENTRY] + 1 < state[z + END]:
        state[z + ENTRY] += 1
        return True
    n = count_of(nodes.W, leaf)
    if state[z + END] == n:
        other, i = next_entry(nodes, roots[plan[a + MEMBER]], k, leaf, n - 1)
        if other != 0 and same(nodes.M, other, LEAF_ROOM[k], i, state, z + KEY_, 1, k):
            state[z + LEAF_], state[z + ENTRY], state[z + END] = other, i, group_end(nodes, other, k, i, state, z + KEY_, 1, k)
            return True
    state[z + LEAF_], state[z + ENTRY], state[z + END] = state[z + FIRST], state[z + FIRST + 1], state[z + FIRST + 2]
    return False


@kernel
def next_item(state: Any) -> None:
    state[AT] += 1
    state[PHASE] = OPEN


@kernel
def step(nodes: Nodes, tree: Constraints, walking: MinesweeperWalk, items: Items, emitted: RowBuffer, rows: tuple[int, int]) -> int:
    """Do the next step. Returns the number of rows then written. `rows`: those before, and the steps at which to stop."""
    plan, _, state = walking
    n, stop = rows
    if state[PHASE] == EMIT:
        n = emit(nodes, walking, items.slots, emitted, n)
        q = plan[ATOMS] - 1
        if state[position_at(q) + ENTRY] == state[position_at(q) + END]:
            state[position_at(q) + ENTRY] -= 1
            while q >= 0 and not forward(nodes, walking, q):
                q -= 1
            if q < 0:
                state[PHASE] = PROBE
                if plan[TRIANGLE] == 0 and pass_on(state, plan[LEVELS], plan[LEVELS]) < 0:
                    next_item(state)
    elif state[PHASE] == EXPLORE:
        if plan[TRIANGLE] == 0 or grow(tree, state, stop):  # another cursor may have left it unfinished
            state[PHASE] = EMIT if explore(nodes, tree, walking) else PROBE
    elif state[PHASE] == OPEN:
        if len(items.slots) > 1:
            clear(tree)
        state[PHASE] = PROBE
        if not open_item(nodes, tree, walking, items):
            next_item(state)
    else:
        how = next_triple(tree, state, stop) if plan[TRIANGLE] != 0 else next_probe(tree, state, plan[LEVELS], stop)
        if how == FREE:
            state[PHASE] = EXPLORE
        elif how == ENDED:
            if plan[TRIANGLE] != 0 and state[OUTPUTS] == 0:
                state[COVERED] = 1
            next_item(state)
    return n


@kernel("int64(Nodes, Constraints, MinesweeperWalk, Items, RowBuffer, int64)")
def mine(nodes: Nodes, tree: Constraints, walking: MinesweeperWalk, items: Items, emitted: RowBuffer, budget: int) -> int:
    """Write further rows of the items, from the position in `state` on. Returns their number, at most `stride`. All are written once
    state[AT] is the number of items.

    `items`: given entries or keys, or one with no coordinates for all rows; between two of several the tree is cleared. Stops after
    `budget` steps too (look-ups, steps in the tree, rows; state[STEPS] counts them), and when the tree is short of room. Cost: as the class
    says.
    """
    state = walking.state
    n, stop = wide(0), state[STEPS] + budget
    while n < emitted.stride and state[AT] < len(items.slots) and state[STEPS] < stop and not is_short(tree):
        n = step(nodes, tree, walking, items, emitted, (n, stop))
    return n
