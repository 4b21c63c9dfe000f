"""Minesweeper as a walk that stops and goes on anywhere: ask the constraint tree for the least tuple that may be a row, look it up in all
atoms, tell its rows or put the gaps around it, and ask again.

A look-up of a tuple finds the longest beginning that the atom has of it, and between which values its next one lies: a gap. So of the gaps
that Algorithm 2 explores only those along the tuple are put, one an atom. Of a tuple that is a row the gaps behind it are put, so that the
next probe need not find them. Rows themselves are no constraints: the search goes on behind them, in lexicographic order, and so a cursor
is the tuple and the place among its rows, which are the product of its slots in the atoms.

State Z, plain data, which is also the cursor: counters, the frontier and the tuple (`shadow.py`), then of each atom its entry, the end of
its group in that leaf, both at the group's beginning, and its key. What is bound is in the key's first coordinates.

Costs: a look-up O(log n); at most arity many of them, as the paper counts, an atom and probe. Source: *Beyond Worst-case Analysis for
Joins with Minesweeper*, Algorithm 2; docs/design/natural-joins.md (*minesweeper*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes
from structures.core.entries import Told
from structures.core.kernel import arrays, kernel, wide
from structures.index.layout import HEAD, LEAF_ROOM, MOST_ARITY, count_of, slot_at
from structures.index.search import BEFORE, BEHIND, Items, Place, group_end, next_entry, same, seek_last, seek_near
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
    PLACES,
    PROBES,
    STEPS,
    TUPLE,
    next_probe,
    pass_on,
)
from structures.minesweeper.shape import ARITY_, ATOM, ATOM_WORDS, ATOMS, BOUND, GIVEN, LEVELS, MEMBER, MOST_ATOMS, NUMBER, SOURCE, TRIANGLE
from structures.minesweeper.triangle import advance, grow, next_triple, put_triangle_gap

OPEN, PROBE, EXPLORE, EMIT = range(4)  # phases
LEAF_, ENTRY, END, FIRST, KEY_ = 0, 1, 2, 3, 6  # of an atom; FIRST: the same three at the beginning
PLACE_WORDS = KEY_ + MOST_ARITY
STATE_WORDS = PLACES + PLACE_WORDS * MOST_ATOMS


@arrays("int64[::1]", "int64[::1]", "int64[::1]")
class Walking(NamedTuple):
    """A reading of the version with these roots R by the plan P, and its state."""

    P: np.ndarray
    R: np.ndarray
    Z: np.ndarray


@kernel
def atom_at(q: int) -> int:
    return ATOM + ATOM_WORDS * q


@kernel
def place_at(q: int) -> int:
    return PLACES + PLACE_WORDS * q


@kernel
def take_group(nodes: Nodes, walking: Walking, q: int, leaf: int, i: int) -> None:
    """Atom q is at the first entry of the tuple's group."""
    P, _, Z = walking
    k, z = P[atom_at(q) + ARITY_], place_at(q)
    end = group_end(nodes, leaf, k, i, Z, z + KEY_, 1, k)
    Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = leaf, i, end
    Z[z + FIRST], Z[z + FIRST + 1], Z[z + FIRST + 2] = leaf, i, end


@kernel
def in_common(nodes: Nodes, walking: Walking, q: int, leaf: int, i: int) -> int:
    """How many first coordinates of its key atom q has in entry i of the leaf; 0 is no leaf."""
    M, (P, _, Z) = nodes.M, walking
    k, z, j = P[atom_at(q) + ARITY_], place_at(q), wide(0)
    room = LEAF_ROOM[k]
    while leaf != 0 and j < k and M[leaf + HEAD + j * room + i] == Z[z + KEY_ + j]:
        j += 1
    return j


@kernel
def put_gap(tree: Constraints, walking: Walking, q: int, c: int, low: int, high: int) -> None:
    """Where the tuple has the values of atom q's key before coordinate c, that one is not from `low` to `high`."""
    P, _, Z = walking
    a, bits = atom_at(q), wide(0)
    for j in range(P[a + BOUND], c):
        bits |= wide(1) << P[a + SOURCE + j]
    if P[TRIANGLE] != 0:
        put_triangle_gap(tree, Z, bits, P[a + SOURCE + c], low, high)
        return
    v = node_of(tree, bits, P[a + SOURCE + c], Z, TUPLE)
    Z[CONSTRAINTS] += put_interval(tree, v, low, high, wide(1) << q)


@kernel
def look_up(nodes: Nodes, tree: Constraints, walking: Walking, q: int) -> bool:
    """Take atom q to the group of its key; False: it has none, and the gap around it is put."""
    M, (P, R, Z) = nodes.M, walking
    a, z = atom_at(q), place_at(q)
    k, p = P[a + ARITY_], P[a + BOUND]
    room, root = LEAF_ROOM[k], R[P[a + MEMBER]]
    place = Place(Z, z + KEY_, 1, k, BEFORE)
    leaf, i = seek_near(nodes, root, k, Z[z + FIRST], Z[z + FIRST + 1], place)
    Z[STEPS] += 1
    behind = in_common(nodes, walking, q, leaf, i)
    if behind == k:
        Z[LOOKUPS] += k - p
        take_group(nodes, walking, q, leaf, i)
        return True
    other, b = seek_last(nodes, root, k, place) if leaf == 0 or i == 0 else (leaf, i - 1)
    before = in_common(nodes, walking, q, other, b)
    if leaf != 0:
        Z[z + FIRST], Z[z + FIRST + 1] = leaf, i
    c = max(before, behind)
    if c < p:
        c = p
    Z[LOOKUPS] += c - p + 1
    if p < k:
        low = M[other + HEAD + c * room + b] + 1 if other != 0 and before == c else wide(LEAST)
        high = M[leaf + HEAD + c * room + i] - 1 if leaf != 0 and behind == c else wide(GREATEST)
        put_gap(tree, walking, q, c, low, high)
    return False


@kernel
def put_gap_behind(nodes: Nodes, tree: Constraints, walking: Walking, q: int) -> None:
    """Atom q has the tuple, and no next value of the last level before that of its next entry."""
    M, (P, R, Z) = nodes.M, walking
    a, z = atom_at(q), place_at(q)
    k = P[a + ARITY_]
    if P[a + BOUND] == k or P[a + SOURCE + k - 1] != P[LEVELS] - 1 or Z[z + KEY_ + k - 1] == GREATEST:
        return
    leaf, i = seek_near(nodes, R[P[a + MEMBER]], k, Z[z + LEAF_], Z[z + ENTRY], Place(Z, z + KEY_, 1, k, BEHIND))
    Z[STEPS] += 1
    Z[LOOKUPS] += 1
    low, high = Z[z + KEY_ + k - 1] + 1, wide(GREATEST)
    if leaf != 0 and in_common(nodes, walking, q, leaf, i) == k - 1:
        high = M[leaf + HEAD + (k - 1) * LEAF_ROOM[k] + i] - 1
    if low <= high:
        put_gap(tree, walking, q, k - 1, low, high)


@kernel
def open_item(nodes: Nodes, tree: Constraints, walking: Walking, items: Items) -> bool:
    """Begin the search for the next item; False: an atom whose variables are all bound does not have it."""
    P, _, Z = walking
    x = Z[AT] * items.width
    for d in range(P[LEVELS]):
        Z[FRONTIER + d] = LEAST
    Z[OVER] = 0
    found = True
    for q in range(P[ATOMS]):
        a, z = atom_at(q), place_at(q)
        for j in range(P[a + BOUND]):
            Z[z + KEY_ + j] = items.X[x + P[a + SOURCE + j]]
        if P[a + BOUND] == P[a + ARITY_] and found:
            found = look_up(nodes, tree, walking, q)
    return found


@kernel
def explore(nodes: Nodes, tree: Constraints, walking: Walking) -> bool:
    """Look the tuple up in all atoms; False: it is no row, and gaps around it are put."""
    P, _, Z = walking
    found = True
    Z[PROBES] += 1
    for q in range(P[ATOMS]):
        a, z = atom_at(q), place_at(q)
        if P[a + BOUND] == P[a + ARITY_]:
            continue
        for j in range(P[a + BOUND], P[a + ARITY_]):
            Z[z + KEY_ + j] = Z[TUPLE + P[a + SOURCE + j]]
        found = look_up(nodes, tree, walking, q) and found
    if found:
        Z[OUTPUTS] += 1
        if P[TRIANGLE] != 0:
            advance(Z, 2, Z[TUPLE + 2])
        for q in range(P[ATOMS]):
            put_gap_behind(nodes, tree, walking, q)
    return found


@kernel
def emit(nodes: Nodes, walking: Walking, slots: Any, told: Told, n: int) -> int:
    """Write rows from where all atoms stand through the last one's group in its leaf, as long as there is room; the rows then."""
    W, (P, _, Z) = nodes.W, walking
    out, stride = told
    last = P[ATOMS] - 1
    z = place_at(last)
    low, m = Z[z + ENTRY], min(Z[z + END] - Z[z + ENTRY], stride - n)
    for q in range(-1, last + 1):
        o = (P[GIVEN] if q < 0 else P[atom_at(q) + NUMBER]) * stride + n
        if q < 0:
            for j in range(m if P[GIVEN] >= 0 else 0):
                out[o + j] = slots[Z[AT]]
            continue
        k, place = P[atom_at(q) + ARITY_], place_at(q)
        source = slot_at(Z[place + LEAF_], k, LEAF_ROOM[k])
        for j in range(m):
            out[o + j] = W[source + (low + j if q == last else Z[place + ENTRY])]
    Z[z + ENTRY] = low + m
    Z[STEPS] += m
    Z[GAP] = max(Z[GAP], Z[STEPS] - m + 1 - Z[LAST])
    Z[LAST] = Z[STEPS]
    return n + m


@kernel
def forward(nodes: Nodes, walking: Walking, q: int) -> bool:
    """Take atom q to the next entry of its group, or back to the first: False."""
    P, R, Z = walking
    a, z = atom_at(q), place_at(q)
    k, leaf = P[a + ARITY_], Z[z + LEAF_]
    Z[STEPS] += 1
    if Z[z + ENTRY] + 1 < Z[z + END]:
        Z[z + ENTRY] += 1
        return True
    n = count_of(nodes.W, leaf)
    if Z[z + END] == n:
        other, i = next_entry(nodes, R[P[a + MEMBER]], k, leaf, n - 1)
        if other != 0 and same(nodes.M, other, LEAF_ROOM[k], i, Z, z + KEY_, 1, k):
            Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = other, i, group_end(nodes, other, k, i, Z, z + KEY_, 1, k)
            return True
    Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = Z[z + FIRST], Z[z + FIRST + 1], Z[z + FIRST + 2]
    return False


@kernel
def next_item(Z: Any) -> None:
    Z[AT] += 1
    Z[PHASE] = OPEN


@kernel
def step(nodes: Nodes, tree: Constraints, walking: Walking, items: Items, told: Told, rows: tuple[int, int]) -> int:
    """Do what comes next; the rows then. `rows`: those before, and the steps at which to stop."""
    P, _, Z = walking
    n, stop = rows
    if Z[PHASE] == EMIT:
        n = emit(nodes, walking, items.slots, told, n)
        q = P[ATOMS] - 1
        if Z[place_at(q) + ENTRY] == Z[place_at(q) + END]:
            Z[place_at(q) + ENTRY] -= 1
            while q >= 0 and not forward(nodes, walking, q):
                q -= 1
            if q < 0:
                Z[PHASE] = PROBE
                if P[TRIANGLE] == 0 and pass_on(Z, P[LEVELS], P[LEVELS]) < 0:
                    next_item(Z)
    elif Z[PHASE] == EXPLORE:
        if P[TRIANGLE] == 0 or grow(tree, Z, stop):  # others may have left it undone
            Z[PHASE] = EMIT if explore(nodes, tree, walking) else PROBE
    elif Z[PHASE] == OPEN:
        if len(items.slots) > 1:
            clear(tree)
        Z[PHASE] = PROBE
        if not open_item(nodes, tree, walking, items):
            next_item(Z)
    else:
        how = next_triple(tree, Z, stop) if P[TRIANGLE] != 0 else next_probe(tree, Z, P[LEVELS], stop)
        if how == FREE:
            Z[PHASE] = EXPLORE
        elif how == ENDED:
            if P[TRIANGLE] != 0 and Z[OUTPUTS] == 0:
                Z[COVERED] = 1
            next_item(Z)
    return n


@kernel("int64(Nodes, Constraints, Walking, Items, Told, int64)")
def mine(nodes: Nodes, tree: Constraints, walking: Walking, items: Items, told: Told, budget: int) -> int:
    """Further rows of the items, from where Z is; how many, at most `stride`. All are told once Z[AT] is the number of items.

    `items`: given entries or keys, or one of no coordinates for all rows; between two of several the tree is cleared. Stops after `budget`
    steps too (look-ups, steps in the tree, rows; Z[STEPS] counts them), and when the tree is short of room. Cost: as the class says.
    """
    Z = walking.Z
    n, stop = wide(0), Z[STEPS] + budget
    while n < told.stride and Z[AT] < len(items.slots) and Z[STEPS] < stop and not is_short(tree):
        n = step(nodes, tree, walking, items, told, (n, stop))
    return n
