"""Rows of a view tree: its plan as nested loops that can be suspended and resumed anywhere.

Items are given, each with coordinates (and a slot); of each, the rows are the product of what the plan's positions have. A position's
prefix is surely there if its parent is a node, as nodes hold live prefixes only; so an item is found empty by its first entries, and after
that every step gives rows. A position that goes on looks at or just after where it stood (`seek_near`): in the leaf at hand, most often.
While the rows of an item are reported, the leaves of the next one are prefetched.

State Z, plain data, which is also the cursor: counters, then of each position the entry that it is at and the end of its group in that
leaf, and both at the group's beginning; then their leaves for the next item. All stand at the next row, if ACTIVE.

Costs: O(t log n) to an item's first row; between rows O(t) look-ups of O(log n), and O(1) amortised in order. Source:
docs/design/natural-joins.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes
from structures.core.entries import Told
from structures.core.kernel import arrays, kernel, wide
from structures.index.layout import HEAD, LEAF_ROOM, count_of, slot_at
from structures.index.search import BEFORE, Items, Place, expect_leaf, group_end, next_entry, same, seek_near
from structures.view_tree import shape

AT, ACTIVE, STEPS, LAST, GAP, DEAD = range(6)  # the item; whether it has begun; steps in all, at the last row, most between rows; no rows
PLACES, PLACE_WORDS = 6, 6
LEAF_, ENTRY, END, FIRST = range(4)  # FIRST: the same three at the beginning
NEXT = PLACES + PLACE_WORDS * shape.MOST_MEMBERS  # of each position the leaf where it looks first for the next item; 0: it is not known
STATE_WORDS = NEXT + shape.MOST_MEMBERS


@arrays("int64[::1]", "int64[::1]", "int64[::1]")
class Walking(NamedTuple):
    """A reading of the version with these roots R, by plans at P, and its state."""

    P: np.ndarray
    R: np.ndarray
    Z: np.ndarray


@kernel
def forget(Z: Any) -> None:
    """Start anew: nothing is known of where the positions were. The counters go on."""
    Z[ACTIVE] = 0
    for q in range(shape.MOST_MEMBERS):
        Z[PLACES + PLACE_WORDS * q + LEAF_], Z[NEXT + q] = 0, 0


@kernel
def open_position(nodes: Nodes, P: Any, a: int, R: Any, X: Any, x: int, Z: Any, q: int) -> bool:
    """Take position q, described at P[a], to the first entry with its prefix; False if there is none."""
    M = nodes.M
    k, p, above = P[a + shape.ARITY_], P[a + shape.BOUND], P[a + shape.ABOVE]
    z = PLACES + PLACE_WORDS * q
    Y, y, step = X, x, 1
    if above >= 0:
        b = PLACES + PLACE_WORDS * above
        step = LEAF_ROOM[P[a + shape.ARITY_ + shape.POSITION_WORDS * (above - q)]]
        Y, y = M, Z[b + LEAF_] + HEAD + Z[b + ENTRY]
    near = min(Z[z + ENTRY], Z[z + END] - 1)
    leaf, i = seek_near(nodes, R[P[a + shape.MEMBER]], k, Z[z + LEAF_], near, Place(Y, y, step, p, BEFORE))
    Z[STEPS] += 1
    if leaf == 0 or not same(M, leaf, LEAF_ROOM[k], i, Y, y, step, p):
        return False
    end = group_end(nodes, leaf, k, i, Y, y, step, p)
    Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = leaf, i, end
    Z[z + FIRST], Z[z + FIRST + 1], Z[z + FIRST + 2] = leaf, i, end
    return True


@kernel
def forward(nodes: Nodes, P: Any, a: int, R: Any, Z: Any, q: int) -> bool:
    """Take position q to the next entry with its prefix; False if there is none."""
    M, W = nodes.M, nodes.W
    z = PLACES + PLACE_WORDS * q
    Z[STEPS] += 1
    if Z[z + ENTRY] + 1 < Z[z + END]:
        Z[z + ENTRY] += 1
        return True
    leaf, k, p = Z[z + LEAF_], P[a + shape.ARITY_], P[a + shape.BOUND]
    room, n = LEAF_ROOM[k], count_of(W, leaf)
    if Z[z + END] < n:
        return False
    other, i = next_entry(nodes, R[P[a + shape.MEMBER]], k, leaf, n - 1)
    last = leaf + HEAD + n - 1
    if other == 0 or not same(M, other, room, i, M, last, room, p):
        return False
    Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = other, i, group_end(nodes, other, k, i, M, last, room, p)
    return True


@kernel
def settle(nodes: Nodes, P: Any, first: int, R: Any, X: Any, x: int, Z: Any, q: int) -> bool:
    """Position q stands elsewhere than before (-1: the item is new): take all behind it to their first entries. False: there is none."""
    moved = wide(0) if q < 0 else wide(1) << q
    for r in range(q + 1, P[first + shape.POSITIONS]):
        a = first + shape.POSITION + shape.POSITION_WORDS * r
        z, above = PLACES + PLACE_WORDS * r, P[a + shape.ABOVE]
        if q < 0 or (above >= 0 and (moved >> above) & 1 != 0):
            if not open_position(nodes, P, a, R, X, x, Z, r):
                return False
        elif Z[z + LEAF_] == Z[z + FIRST] and Z[z + ENTRY] == Z[z + FIRST + 1]:
            continue
        else:
            Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = Z[z + FIRST], Z[z + FIRST + 1], Z[z + FIRST + 2]
        moved |= wide(1) << r
    return True


@kernel
def fill(out: Any, first: int, m: int, slot: int) -> None:
    """So many times the slot."""
    to = np.uint64(first)  # unsigned places need no check of their sign, so that this is vectorised
    for j in range(np.uint64(m)):
        out[to + j] = slot


@kernel
def emit(nodes: Nodes, walking: Walking, first: int, slots: Any, told: Told, n: int) -> int:
    """Write rows from where all stand through the last position's group in its leaf, as long as there is room; the rows then."""
    W, P, Z = nodes.W, walking.P, walking.Z
    out, stride = told
    last = P[first + shape.POSITIONS] - 1
    z = PLACES + PLACE_WORDS * last
    low, m = Z[z + ENTRY], min(Z[z + END] - Z[z + ENTRY], stride - n)
    if P[first + shape.GIVEN] >= 0:
        fill(out, P[first + shape.GIVEN] * stride + n, m, slots[Z[AT]])
    q = last
    while q >= 0 and P[first + shape.POSITION + shape.POSITION_WORDS * q + shape.ALIAS] >= 0:
        a, z = first + shape.POSITION + shape.POSITION_WORDS * q, PLACES + PLACE_WORDS * q
        k = P[a + shape.ARITY_]
        source, o = slot_at(Z[z + LEAF_], k, LEAF_ROOM[k]), P[a + shape.ALIAS] * stride + n
        if q == last:
            to, of = np.uint64(o), np.uint64(source + low)
            for j in range(np.uint64(m)):
                out[to + j] = W[of + j]
        else:
            fill(out, o, m, W[source + Z[z + ENTRY]])
        q -= 1
    Z[PLACES + PLACE_WORDS * last + ENTRY] = low + m
    Z[STEPS] += m
    Z[GAP] = max(Z[GAP], Z[STEPS] - m + 1 - Z[LAST])
    Z[LAST] = Z[STEPS]
    return n + m


@kernel
def arrive(P: Any, first: int, Z: Any) -> None:
    """An item is new: take the positions to the leaves that were found for it."""
    for q in range(P[first + shape.POSITIONS]):
        z, leaf = PLACES + PLACE_WORDS * q, Z[NEXT + q]
        if leaf != 0 and leaf != Z[z + LEAF_]:
            Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = leaf, 0, 1


@kernel
def look_ahead(nodes: Nodes, P: Any, first: int, R: Any, X: Any, x: int, Z: Any) -> None:
    """Find the leaves where the item at X[x], the next, has its prefixes, as far as they are known: they are in the cache at its turn."""
    for q in range(P[first + shape.POSITIONS]):
        a = first + shape.POSITION + shape.POSITION_WORDS * q
        Z[NEXT + q] = expect_leaf(nodes, R[P[a + shape.MEMBER]], P[a + shape.ARITY_], X, x, P[a + shape.KNOWN])
        Z[STEPS] += 1


@kernel
def walk(nodes: Nodes, walking: Walking, first: int, items: Items, end: int, told: Told, n: int, budget: int) -> int:
    """Go on with the plan at P[first]: rows from number n on, until all items before number `end` are done, there are `stride` rows, or so
    many steps were taken; the rows then."""
    P, R, Z = walking
    X, width, slots = items
    last = P[first + shape.POSITIONS] - 1
    z, stop = PLACES + PLACE_WORDS * last, Z[STEPS] + budget
    while n < told.stride and Z[AT] < end and Z[STEPS] < stop:
        x = Z[AT] * width
        if Z[ACTIVE] == 0:
            arrive(P, first, Z)
            if Z[AT] + 1 < end:
                look_ahead(nodes, P, first, R, X, x + width, Z)
            if not settle(nodes, P, first, R, X, x, Z, -1):
                Z[AT] += 1
                Z[DEAD] += 1
                continue
            Z[ACTIVE] = 1
        n = emit(nodes, walking, first, slots, told, n)
        if Z[z + ENTRY] < Z[z + END]:
            break
        q = last
        while q >= 0 and not forward(nodes, P, first + shape.POSITION + shape.POSITION_WORDS * q, R, Z, q):
            q -= 1
        if q < 0:
            Z[ACTIVE] = 0
            Z[AT] += 1
        else:
            settle(nodes, P, first, R, X, x, Z, q)
    return n


@kernel("int64(Nodes, Walking, int64, Items, Told, int64)")
def view_fill(nodes: Nodes, walking: Walking, first: int, items: Items, told: Told, budget: int) -> int:
    """Further rows of the items, from where Z is; how many, at most `stride`. All are told once Z[AT] is the number of items.

    `first`: where the plan begins in P. `items`: given entries or keys, with as many coordinates as the plan knows, or one of none for all
    rows. `budget`: look-ups and rows after which it stops, give or take those of one row; Z[STEPS] counts them. Cost: O(1) a step, but
    O(log n) a look-up.
    """
    return walk(nodes, walking, first, items, len(items.slots), told, 0, budget)
