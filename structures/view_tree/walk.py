"""Rows of a view tree: its plan as nested loops that can be suspended and resumed anywhere.

Items are given, each with coordinates (and a slot); the rows of each are the product of the entries at the plan's positions. A position's
prefix certainly exists if its parent is a node, as nodes hold live prefixes only; so an empty item is recognised by its first entries, and
after that every step finds rows. A position that advances searches at or just after its last entry (`seek_near`): mostly in the same leaf.

The state is plain data, which is also the cursor: counters; then for each position its current entry and the end of its group in that leaf,
and both at the group's beginning. All positions are at the next row, if ACTIVE.

Costs: O(t log n) to an item's first row; between rows O(t) look-ups of O(log n), and O(1) amortised in order. Source:
docs/design/natural-joins.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes
from structures.core.entries import RowBuffer
from structures.core.kernel import arrays, kernel, wide
from structures.index.layout import HEAD, LEAF_ROOM, count_of, slot_at
from structures.index.search import BEFORE, IndexPosition, Items, group_end, next_entry, same, seek_near
from structures.view_tree import shape

AT, ACTIVE, STEPS, LAST, GAP, DEAD = range(6)  # the item; whether it has begun; steps: all, at the last row, most between rows; empty items
POSITIONS, POSITION_WORDS = 6, 6
LEAF_, ENTRY, END, FIRST = range(4)  # FIRST: the same three at the beginning of the group
STATE_WORDS = POSITIONS + POSITION_WORDS * shape.MOST_MEMBERS


@arrays("int64[::1]", "int64[::1]", "int64[::1]")
class ViewTreeWalk(NamedTuple):
    """A reading of the version with these roots, by these plans, and its state."""

    plans: np.ndarray
    roots: np.ndarray
    state: np.ndarray


@kernel
def forget(state: Any) -> None:
    """Discard what is known of the positions. The counters continue."""
    state[ACTIVE] = 0
    for q in range(shape.MOST_MEMBERS):
        state[POSITIONS + POSITION_WORDS * q + LEAF_] = 0


@kernel
def open_position(nodes: Nodes, plans: Any, a: int, roots: Any, coordinates: Any, start: int, state: Any, q: int) -> bool:
    """Move position q, described at plans[a], to the first entry with its prefix; False if there is none."""
    M = nodes.M
    k, p, above = plans[a + shape.ARITY_], plans[a + shape.BOUND], plans[a + shape.ABOVE]
    z = POSITIONS + POSITION_WORDS * q
    Y, y, step = coordinates, start, 1
    if above >= 0:
        b = POSITIONS + POSITION_WORDS * above
        step = LEAF_ROOM[plans[a + shape.ARITY_ + shape.POSITION_WORDS * (above - q)]]
        Y, y = M, state[b + LEAF_] + HEAD + state[b + ENTRY]
    near = min(state[z + ENTRY], state[z + END] - 1)
    leaf, i = seek_near(nodes, roots[plans[a + shape.MEMBER]], k, state[z + LEAF_], near, IndexPosition(Y, y, step, p, BEFORE))
    state[STEPS] += 1
    if leaf == 0 or not same(M, leaf, LEAF_ROOM[k], i, Y, y, step, p):
        return False
    end = group_end(nodes, leaf, k, i, Y, y, step, p)
    state[z + LEAF_], state[z + ENTRY], state[z + END] = leaf, i, end
    state[z + FIRST], state[z + FIRST + 1], state[z + FIRST + 2] = leaf, i, end
    return True


@kernel
def forward(nodes: Nodes, plans: Any, a: int, roots: Any, state: Any, q: int) -> bool:
    """Move position q to the next entry with its prefix; False if there is none."""
    M, W = nodes.M, nodes.W
    z = POSITIONS + POSITION_WORDS * q
    state[STEPS] += 1
    if state[z + ENTRY] + 1 < state[z + END]:
        state[z + ENTRY] += 1
        return True
    leaf, k, p = state[z + LEAF_], plans[a + shape.ARITY_], plans[a + shape.BOUND]
    room, n = LEAF_ROOM[k], count_of(W, leaf)
    if state[z + END] < n:
        return False
    other, i = next_entry(nodes, roots[plans[a + shape.MEMBER]], k, leaf, n - 1)
    last = leaf + HEAD + n - 1
    if other == 0 or not same(M, other, room, i, M, last, room, p):
        return False
    state[z + LEAF_], state[z + ENTRY], state[z + END] = other, i, group_end(nodes, other, k, i, M, last, room, p)
    return True


@kernel
def settle(nodes: Nodes, plans: Any, first: int, roots: Any, coordinates: Any, start: int, state: Any, q: int) -> bool:
    """After position q has moved (-1: the item is new), move all later ones to their first entries. False if there is none."""
    moved = wide(0) if q < 0 else wide(1) << q
    for r in range(q + 1, plans[first + shape.POSITIONS]):
        a = first + shape.POSITION + shape.POSITION_WORDS * r
        z, above = POSITIONS + POSITION_WORDS * r, plans[a + shape.ABOVE]
        if q < 0 or (above >= 0 and (moved >> above) & 1 != 0):
            if not open_position(nodes, plans, a, roots, coordinates, start, state, r):
                return False
        elif state[z + LEAF_] == state[z + FIRST] and state[z + ENTRY] == state[z + FIRST + 1]:
            continue
        else:
            state[z + LEAF_], state[z + ENTRY], state[z + END] = state[z + FIRST], state[z + FIRST + 1], state[z + FIRST + 2]
        moved |= wide(1) << r
    return True


@kernel
def fill(out: Any, first: int, m: int, slot: int) -> None:
    """Write the slot m times."""
    to = np.uint64(first)  # unsigned places need no check of their sign, so the loop is vectorised
    for j in range(np.uint64(m)):
        out[to + j] = slot


@kernel
def emit(nodes: Nodes, walking: ViewTreeWalk, first: int, slots: Any, emitted: RowBuffer, n: int) -> int:
    """Write the rows from the current positions through the last position's group in its leaf, as long as there is room. Returns the number
    of rows then written."""
    W, plans, state = nodes.W, walking.plans, walking.state
    out, stride = emitted
    last = plans[first + shape.POSITIONS] - 1
    z = POSITIONS + POSITION_WORDS * last
    low, m = state[z + ENTRY], min(state[z + END] - state[z + ENTRY], stride - n)
    if plans[first + shape.GIVEN] >= 0:
        fill(out, plans[first + shape.GIVEN] * stride + n, m, slots[state[AT]])
    q = last
    while q >= 0 and plans[first + shape.POSITION + shape.POSITION_WORDS * q + shape.ALIAS] >= 0:
        a, z = first + shape.POSITION + shape.POSITION_WORDS * q, POSITIONS + POSITION_WORDS * q
        k = plans[a + shape.ARITY_]
        source, o = slot_at(state[z + LEAF_], k, LEAF_ROOM[k]), plans[a + shape.ALIAS] * stride + n
        if q == last:
            to, of = np.uint64(o), np.uint64(source + low)
            for j in range(np.uint64(m)):
                out[to + j] = W[of + j]
        else:
            fill(out, o, m, W[source + state[z + ENTRY]])
        q -= 1
    state[POSITIONS + POSITION_WORDS * last + ENTRY] = low + m
    state[STEPS] += m
    state[GAP] = max(state[GAP], state[STEPS] - m + 1 - state[LAST])
    state[LAST] = state[STEPS]
    return n + m


@kernel
def walk(nodes: Nodes, walking: ViewTreeWalk, first: int, items: Items, end: int, emitted: RowBuffer, n: int, budget: int) -> int:
    """Continue with the plan at plans[first]: write rows from index n on, until all items before index `end` are done, there are `stride`
    rows, or `budget` steps were taken. Returns the number of rows then written."""
    plans, roots, state = walking
    coordinates, width, slots = items
    last = plans[first + shape.POSITIONS] - 1
    z, stop = POSITIONS + POSITION_WORDS * last, state[STEPS] + budget
    while n < emitted.stride and state[AT] < end and state[STEPS] < stop:
        start = state[AT] * width
        if state[ACTIVE] == 0:
            if not settle(nodes, plans, first, roots, coordinates, start, state, -1):
                state[AT] += 1
                state[DEAD] += 1
                continue
            state[ACTIVE] = 1
        n = emit(nodes, walking, first, slots, emitted, n)
        if state[z + ENTRY] < state[z + END]:
            break
        q = last
        while q >= 0 and not forward(nodes, plans, first + shape.POSITION + shape.POSITION_WORDS * q, roots, state, q):
            q -= 1
        if q < 0:
            state[ACTIVE] = 0
            state[AT] += 1
        else:
            settle(nodes, plans, first, roots, coordinates, start, state, q)
    return n


@kernel("int64(Nodes, ViewTreeWalk, int64, Items, RowBuffer, int64)")
def view_fill(nodes: Nodes, walking: ViewTreeWalk, first: int, items: Items, emitted: RowBuffer, budget: int) -> int:
    """Write further rows of the items, from the position in `state` on. Returns their number, at most `stride`. All are written once
    state[AT] is the number of items.

    `first`: where the plan begins. `items`: given entries or keys, with as many coordinates as the plan knows, or one with none for all
    rows. `budget`: look-ups and rows after which it stops, give or take those of one row; state[STEPS] counts them. Cost: O(1) a step, but
    O(log n) a look-up.
    """
    return walk(nodes, walking, first, items, len(items.slots), emitted, 0, budget)
