"""The AND of qdags, depth first in Morton order: what a cursor of `qdag.py` runs on.

A frame is a node of the completions' intersection: a level, and of each qdag the node of its base quadtree that stands there. Its children
that no qdag leaves empty are one word: each qdag says which of its base node's children there are, each of these stands for the quadrants
that project to it (EXT), and the words are ANDed. So Algorithm 5's test of 2**d children is a few operations. Where all that is left lies
in leaves, their entries are joined one by one instead of bit by bit.

Variables with given values are bound at once, not level by level: an atom all of whose variables are given is a cell; one of which some
are is a subtree of a tree with these first. What is left is an AND over the free variables only.

    Z    state: header | slots, cells, their levels, candidates of each atom, values of the variables | each atom's way down to the given
         values | frames [level, left, level in a cell or of leaves, ref in a cell, a ref an atom]; level >= 0: a joint node, `left` its
         children; JOIN: leaves that are joined, `left` one more than the atom in hand; -1 - t: the rows of atom t in the cell, `left`
         entries or children
    ref  place << _AT of an inner node; place << _AT | FRESH of a leaf; of a leaf in S which of its entries, as bits
    S    of each atom the leaf in hand: LINE words, k coordinates (but for given ones, in a cell of these) and the slots [LEAF each, int32].
         On the way down to a frame, and below it, an atom has only one
    P    joint atoms, all atoms, all quadrants, place of the given atom, words an item; an atom: arity, first, place, checks, variables,
         MAP, EXT, LATE, SOURCES; the joint atoms come before those that are cells
    R    per atom: root, bits, base         items: each the slot of the given row, and each variable's value, if it has one

Steps are joint nodes, entries of leaves tried and rows of cells; a dead end is a joint node without children, or an item or an entry tried
that joins none. Source: Navarro, Reutter and Rojas-Ledesma, section 3, Algorithms 2 (ChildAt), 3 (Extend) and 5 (And); its pruning step
has nothing to do here, as no tree is made of the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.bits import count_bits, equal16, highest, lowest, with_bit16
from structures.core.kernel import arrays, kernel, prefetch, wide
from structures.quadtree.layout import CODE_BITS, HEAD, LEAF, MOST_ARITY, QuadNodes, Shape, live_child
from structures.quadtree.search import child_of, children_of, copy_leaf, ends_at, leads_to_leaf

MOST_VARIABLES = 6  # quadrants are bits of a word
MOST_ATOMS = 8

DEPTH, STEPS, GAP, SINCE, DEAD, ITEM, ITEMS = 0, 1, 2, 3, 4, 5, 6  # ITEM: read so far, of ITEMS
SLOTS, CELL, LEVEL, CANDIDATES, VALUES = 8, 16, 24, 32, 40
WAYS, WAY_WORDS = 48, CODE_BITS + 3  # per atom: of the last item that was bound its number (-1: none is), lowest level, ref at each from -1
FRAMES = WAYS + MOST_ATOMS * WAY_WORDS
LINE = MOST_ARITY * LEAF + 16  # sixteen words are copied and compared at once

JOINT, ATOMS, ALL, GIVEN, WIDTH = 0, 1, 2, 3, 4
ATOM, ATOM_WORDS = 5, 90  # per atom, from here on
ARITY, FIRST, PLACE, CHECKS, VARIABLES, MAP, EXT, LATE, SOURCES = 0, 1, 2, 3, 4, 8, 72, 88, 89
# CHECKS: coordinates whose variables atoms before it have, as bits; LATE: of these those of the atom just before it, at its
# coordinate SOURCES >> 4 j.
JOIN = -100
NOTHING = -2
_AT = 20  # of a ref: where the place begins, behind the bits of a leaf's entries (LEAF at most) and FRESH
_SUBSET = 2**_AT - 1
FRESH = 2 ** (_AT - 1)


def plan_words(atoms: int) -> int:
    return ATOM + atoms * ATOM_WORDS


def state_words(atoms: int) -> int:
    """A cursor's state: a frame a level of codes, and a level of slots an atom."""
    return FRAMES + (CODE_BITS + 2) * (1 + atoms) * (4 + atoms)


def line_words(atoms: int) -> int:
    """Leaves in hand."""
    return atoms * LINE


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int32[::1]", "int64[::1]")
class Walking(NamedTuple):
    """What is read, and how far: see the drawing."""

    P: np.ndarray
    R: np.ndarray
    items: np.ndarray
    S: np.ndarray
    Z: np.ndarray


@kernel(forceinline=True)
def enter(W: Any, o: int) -> int:
    """The ref of a place, all of it."""
    return o << _AT | FRESH if ends_at(W, o) else o << _AT


@kernel(forceinline=True)
def enter_child(nodes: QuadNodes, base: int, o: int, k: int, c: int) -> int:
    """The ref of child c of an inner node, all of it; 0: there is none."""
    W = nodes.W
    child = child_of(nodes, base, o, k, c)
    return child << _AT | FRESH if child != 0 and leads_to_leaf(W, o, c, child) else child << _AT


@kernel(forceinline=True)
def loaded(nodes: QuadNodes, walking: Walking, t: int, ref: int, b: int) -> int:
    """Atom t's ref, its leaf in hand if it is one; b: the level."""
    P, R, S = walking.P, walking.R, walking.S
    if ref & FRESH == 0:
        return ref
    a = ATOM + t * ATOM_WORDS
    f = P[a + FIRST]
    known = f if b < CODE_BITS else 0
    return (1 << copy_leaf(nodes, R[3 * t + 2], ref >> _AT, Shape(P[a + ARITY], f), b, known, S, t * LINE)) - 1


@kernel(forceinline=True)
def of_child(S: Any, s: int, k: int, f: int, b: int, some: int, c: int) -> int:
    """Those of some entries of the leaf at S[s] that belong to child c of level b >= 0, below the coordinates that come first."""
    for j in range(k - 1, f - 1, -1):
        ones = with_bit16(S, s + j * LEAF, b)
        some &= ones if c & 1 != 0 else ~ones
        c >>= 1
    return some


@kernel(forceinline=True)
def child_at(nodes: QuadNodes, walking: Walking, t: int, ref: int, b: int, i: int) -> int:
    """The ref of qdag t's child number i of level b, which is there."""
    P, R, S = walking.P, walking.R, walking.S
    if b >= R[3 * t + 1]:
        return ref
    a = ATOM + t * ATOM_WORDS
    some, k, c = ref & _SUBSET, P[a + ARITY], P[a + MAP + i]
    if some == 0:
        return enter_child(nodes, R[3 * t + 2], ref >> _AT, k, c)
    return of_child(S, t * LINE, k, P[a + FIRST], b, some, c)


@kernel(forceinline=True)
def await_child(W: Any, walking: Walking, t: int, ref: int, b: int, i: int) -> None:
    """Ask for the block of qdag t's child number i of level b, which is there, if it is a live one."""
    P, R = walking.P, walking.R
    o = ref >> _AT
    if b < R[3 * t + 1] and ref & _SUBSET == 0 and o > 0:
        child = live_child(W, o, P[ATOM + t * ATOM_WORDS + MAP + i])
        if child > 0:
            prefetch(W, 2 * child)
            prefetch(W, 2 * child + HEAD + LEAF)
            prefetch(W, 2 * child + HEAD + 2 * LEAF)


@kernel(forceinline=True)
def quadrants(nodes: QuadNodes, walking: Walking, t: int, ref: int, b: int) -> int:
    """The children of level b that qdag t does not leave empty."""
    P, R, S = walking.P, walking.R, walking.S
    a = ATOM + t * ATOM_WORDS
    if b >= R[3 * t + 1]:
        return P[a + EXT]
    some, k, found = ref & _SUBSET, P[a + ARITY], wide(0)
    if some == 0:
        mask = children_of(nodes, R[3 * t + 2], ref >> _AT, k)
        while mask != 0:
            found |= P[a + EXT + lowest(mask)]
            mask &= mask - 1
        return found
    f = P[a + FIRST]
    for c in range(1 << (k - f)):
        if of_child(S, t * LINE, k, f, b, some, c) != 0:
            found |= P[a + EXT + c]
    return found


@kernel(forceinline=True)
def common(nodes: QuadNodes, walking: Walking, g: int) -> int:
    """The children of frame g that no qdag leaves empty."""
    P, R, Z = walking.P, walking.R, walking.Z
    mask, b = P[ALL], Z[g]
    for t in range(P[JOINT]):
        if b < R[3 * t + 1]:
            Z[g + 4 + t] = loaded(nodes, walking, t, Z[g + 4 + t], b)
        mask &= quadrants(nodes, walking, t, Z[g + 4 + t], b)
        if mask == 0:
            break
    return mask


@kernel(forceinline=True)
def agreeing(walking: Walking, t: int, some: int, coordinates: int, values: Any, v: int) -> int:
    """Those of some entries of atom t's leaf that have, in these coordinates (bits), their variables' values[v + variable]."""
    P, S = walking.P, walking.S
    a = ATOM + t * ATOM_WORDS + VARIABLES
    while coordinates != 0 and some != 0:
        j = lowest(coordinates)
        coordinates &= coordinates - 1
        some &= equal16(S, t * LINE + j * LEAF, values[v + P[a + j]])
    return some


@kernel
def bind(nodes: QuadNodes, walking: Walking, t: int, count: int) -> int:
    """Atom t's ref where its first `count` coordinates have the values of item Z[ITEM] - 1; 0: nothing is there. The way down begins where
    it parts from the one before."""
    W, P, R, items, Z = nodes.W, walking.P, walking.R, walking.items, walking.Z
    a, ref, bits, base = ATOM + t * ATOM_WORDS, enter(W, R[3 * t]), R[3 * t + 1], R[3 * t + 2]
    way, v, differ = WAYS + t * WAY_WORDS, (Z[ITEM] - 1) * P[WIDTH] + 1, wide(0)
    last = Z[way] * P[WIDTH] + 1 if Z[way] >= 0 else v
    for j in range(count):
        variable = P[a + VARIABLES + j]
        if items[v + variable] >> bits != 0:
            return 0
        differ |= items[v + variable] ^ items[last + variable]
    k, b = P[a + ARITY], bits - 1
    if Z[way] >= 0:
        b = max(Z[way + 1], highest(differ)) if differ != 0 else Z[way + 1]
        ref = Z[way + 3 + b]
    Z[way] = Z[ITEM] - 1
    while b >= 0 and ref & FRESH == 0:
        Z[way + 3 + b] = ref
        c = wide(0)
        for j in range(count):
            c = c << 1 | ((items[v + P[a + VARIABLES + j]] >> b) & 1)
        ref = enter_child(nodes, base, ref >> _AT, k, c)
        if ref == 0:
            Z[way + 1] = b
            return 0
        b -= 1
    Z[way + 1], Z[way + 3 + b] = b, ref
    rest = (1 << count) - 1 if b >= 0 else 0
    if count < k:
        b = CODE_BITS + b if b >= 0 else bits - 1
    ref = loaded(nodes, walking, t, ref, b)
    return agreeing(walking, t, ref, rest, items, v) if ref & _SUBSET != 0 else ref


@kernel
def begin(nodes: QuadNodes, walking: Walking) -> int:
    """The level of the root of the next item's AND, its refs in the first frame and in the cells; NOTHING: nothing can be there."""
    W, P, R, Z = nodes.W, walking.P, walking.R, walking.Z
    joint, top, anew = P[JOINT], wide(0), Z[ITEM] == 0
    Z[ITEM] += 1
    for t in range(P[ATOMS]):
        if anew:
            Z[WAYS + t * WAY_WORDS] = -1
        if R[3 * t] == 0:
            return NOTHING
        if t < joint:
            top = max(top, R[3 * t + 1])
    for t in range(P[ATOMS]):
        a = ATOM + t * ATOM_WORDS
        if t >= joint:
            ref = bind(nodes, walking, t, P[a + ARITY])
            Z[CELL + t], Z[LEVEL + t] = ref, -1
        elif P[a + FIRST] > 0:
            ref = bind(nodes, walking, t, P[a + FIRST])
            Z[FRAMES + 4 + t] = ref
        else:
            ref = enter(W, R[3 * t])
            Z[FRAMES + 4 + t] = ref
        if ref == 0:
            return NOTHING
    return top - 1


@kernel
def report(nodes: QuadNodes, walking: Walking, t: int, out: Any, n: int) -> int:
    """With the slots of the atoms before t chosen: go on with the cell's rows from atom t on. The rows written are those before n, and one
    more if every atom from t on has a single one; else a frame waits."""
    P, R, items, S, Z = walking.P, walking.R, walking.items, walking.S, walking.Z
    m = P[ATOMS]
    while t < m:
        ref = loaded(nodes, walking, t, Z[CELL + t], Z[LEVEL + t])
        some, k = ref & _SUBSET, P[ATOM + t * ATOM_WORDS + ARITY]
        if some == 0 or some & (some - 1) != 0:
            f = FRAMES + Z[DEPTH] * (4 + P[JOINT])
            Z[f], Z[f + 2], Z[f + 3] = -1 - t, Z[LEVEL + t], ref
            Z[f + 1] = some if some != 0 else children_of(nodes, R[3 * t + 2], ref >> _AT, k)
            Z[DEPTH] += 1
            return n
        Z[SLOTS + t] = S[t * LINE + k * LEAF + lowest(some)]
        t += 1
    for t in range(m):
        out[P[ATOM + t * ATOM_WORDS + PLACE], n] = Z[SLOTS + t]
    if P[GIVEN] >= 0:
        out[P[GIVEN], n] = items[(Z[ITEM] - 1) * P[WIDTH]]
    Z[GAP] = max(Z[GAP], Z[STEPS] - Z[SINCE])
    Z[SINCE] = Z[STEPS]
    return n + 1


@kernel
def next_in_cell(nodes: QuadNodes, walking: Walking, f: int, out: Any, n: int) -> int:
    """Frame f, of an atom's rows, goes to the next of them, or of its node's children."""
    P, R, S, Z = walking.P, walking.R, walking.S, walking.Z
    left = Z[f + 1]
    i, t, ref = lowest(left), -1 - Z[f], Z[f + 3]
    Z[f + 1] = left & (left - 1)
    Z[STEPS] += 1
    k = P[ATOM + t * ATOM_WORDS + ARITY]
    if ref & _SUBSET != 0:
        Z[SLOTS + t] = S[t * LINE + k * LEAF + i]
        return report(nodes, walking, t + 1, out, n)
    whole, level = Z[CELL + t], Z[LEVEL + t]
    Z[LEVEL + t] = Z[f + 2] - 1
    Z[CELL + t] = enter_child(nodes, R[3 * t + 2], ref >> _AT, k, i)
    n = report(nodes, walking, t, out, n)
    Z[CELL + t], Z[LEVEL + t] = whole, level
    return n


@kernel
def all_leaves(walking: Walking, g: int) -> bool:
    P, Z = walking.P, walking.Z
    for t in range(P[JOINT]):
        if Z[g + 4 + t] & _SUBSET == 0:
            return False
    return True


@kernel(forceinline=True)
def write_rows(walking: Walking, t: int, out: Any, n: int) -> int:
    """Rows of the slots before atom t, the last one, and its candidates, until none is left or `out` is full; how many there are then."""
    P, S, Z = walking.P, walking.S, walking.Z
    a, left, start, steps = ATOM + t * ATOM_WORDS, Z[CANDIDATES + t], n, Z[STEPS]
    line, slots = P[a + PLACE], t * LINE + P[a + ARITY] * LEAF
    while left != 0 and n < out.shape[1]:
        out[line, n] = S[slots + lowest(left)]
        left &= left - 1
        n += 1
    Z[CANDIDATES + t] = left
    fill_others(walking, t, out, start, n)
    Z[STEPS] = steps + n - start
    Z[GAP] = max(Z[GAP], steps + 1 - Z[SINCE])
    Z[SINCE] = Z[STEPS]
    return n


@kernel(forceinline=True)
def join_last_two(walking: Walking, t: int, some: int, out: Any, n: int) -> int:
    """Rows of the slots before atom t, its candidates, and those of the last atom's entries `some` that agree with them, until no candidate
    is left or `out` is full, maybe within the last atom's candidates; how many rows there are then."""
    P, S, Z = walking.P, walking.S, walking.Z
    a, z, start = ATOM + t * ATOM_WORDS, ATOM + (t + 1) * ATOM_WORDS, n
    late, sources, limit = P[z + LATE], P[z + SOURCES], out.shape[1]
    some = agreeing(walking, t + 1, some, P[z + CHECKS] & ~late, Z, VALUES)
    left, found, gap, dead, idle = Z[CANDIDATES + t], wide(0), Z[GAP], wide(0), Z[STEPS] - Z[SINCE]  # idle: steps since a row
    tried = count_bits(left)
    line, last, slots, ends = P[a + PLACE], P[z + PLACE], t * LINE + P[a + ARITY] * LEAF, (t + 1) * LINE + P[z + ARITY] * LEAF
    i, j = wide(0), lowest(late) if late != 0 else wide(0)
    source, column = t * LINE + ((sources >> 4 * j) & 15) * LEAF, (t + 1) * LINE + j * LEAF
    while left != 0 and n < limit:
        i = lowest(left)
        left &= left - 1
        found, rest = some, late & (late - 1)
        if late != 0:
            found &= equal16(S, column, wide(S[source + i]))
        while rest != 0:
            j = lowest(rest)
            rest &= rest - 1
            value = wide(S[t * LINE + ((sources >> 4 * j) & 15) * LEAF + i])
            found &= equal16(S, (t + 1) * LINE + j * LEAF, value)
        if found == 0:
            dead += 1
            idle += 1
            continue
        gap, idle, slot = max(gap, idle + 2), 0, S[slots + i]
        while found != 0 and n < limit:
            out[line, n], out[last, n] = slot, S[ends + lowest(found)]
            found &= found - 1
            n += 1
    if found != 0:
        Z[SLOTS + t] = S[slots + i]
    Z[CANDIDATES + t], Z[CANDIDATES + t + 1], Z[GAP] = left, found, gap
    Z[STEPS] += tried - count_bits(left) + n - start
    Z[SINCE] = Z[STEPS] - idle
    Z[DEAD] += dead
    fill_others(walking, t, out, start, n)
    return n


@kernel(forceinline=True)
def fill_others(walking: Walking, t: int, out: Any, start: int, n: int) -> None:
    """The slots of the atoms before t, and of the given one, in the rows [start, n)."""
    P, items, Z = walking.P, walking.items, walking.Z
    for before in range(t):
        out[P[ATOM + before * ATOM_WORDS + PLACE], start:n] = Z[SLOTS + before]
    if P[GIVEN] >= 0:
        out[P[GIVEN], start:n] = items[(Z[ITEM] - 1) * P[WIDTH]]


@kernel(forceinline=True)
def join_leaves(nodes: QuadNodes, walking: Walking, f: int, out: Any, n: int, stop: int) -> int:
    """Go on with the leaves of frame f until they are done, `out` is full, `stop` is reached, or the rows of a cell come between."""
    P, S, Z = walking.P, walking.S, walking.Z
    m, depth = P[JOINT], Z[DEPTH]
    t = Z[f + 1] - 1
    while t >= 0 and n < out.shape[1] and Z[STEPS] < stop and Z[DEPTH] == depth:
        left = Z[CANDIDATES + t]
        if left == 0:
            t -= 1
            continue
        if t == P[ATOMS] - 1:
            n = write_rows(walking, t, out, n)
            continue
        if t == P[ATOMS] - 2 and m == P[ATOMS]:
            Z[f + 5 + t] = loaded(nodes, walking, t + 1, Z[f + 5 + t], Z[f + 2])
            n = join_last_two(walking, t, Z[f + 5 + t], out, n)
            if Z[CANDIDATES + t + 1] != 0:
                t += 1
            continue
        Z[CANDIDATES + t] = left & (left - 1)
        Z[STEPS] += 1
        a = ATOM + t * ATOM_WORDS
        k = P[a + ARITY]
        p = t * LINE + lowest(left)
        Z[SLOTS + t] = S[p + k * LEAF]
        if t == m - 1:
            n = report(nodes, walking, m, out, n)
            continue
        for j in range(k):
            Z[VALUES + P[a + VARIABLES + j]] = S[p + j * LEAF]
        Z[f + 5 + t] = loaded(nodes, walking, t + 1, Z[f + 5 + t], Z[f + 2])
        found = agreeing(walking, t + 1, Z[f + 5 + t], P[a + ATOM_WORDS + CHECKS], Z, VALUES)
        if found == 0:
            Z[DEAD] += 1
            continue
        t += 1
        Z[CANDIDATES + t] = found
    Z[f + 1] = t + 1
    return n


@kernel
def and_steps(nodes: QuadNodes, walking: Walking, out: Any, n: int, stop: int) -> int:
    """Go on until `out` (a line an alias), n rows long, is full, all items are done, or Z[STEPS] has reached `stop`, which an entry and
    its partners in a leaf may exceed; its rows then."""
    W, P, Z = nodes.W, walking.P, walking.Z
    m, width = P[JOINT], 4 + P[JOINT]
    while n < out.shape[1] and Z[STEPS] < stop:
        if Z[DEPTH] == 0:
            if Z[ITEM] == Z[ITEMS]:
                break
            g = wide(FRAMES)
            Z[g] = begin(nodes, walking)
            Z[STEPS] += 1
            if Z[g] == NOTHING:
                Z[DEAD] += 1
                continue
        else:
            f = FRAMES + (Z[DEPTH] - 1) * width
            left, b = Z[f + 1], Z[f]
            if left == 0:
                Z[DEPTH] -= 1
                continue
            if b < 0 and b != JOIN:
                n = next_in_cell(nodes, walking, f, out, n)
                continue
            g = f
            if b != JOIN:
                i = lowest(left)
                left &= left - 1
                Z[f + 1] = left
                if left == 0:  # the last child takes its parent's place
                    Z[DEPTH] -= 1
                else:
                    g = f + width
                    for t in range(m):
                        await_child(W, walking, t, Z[f + 4 + t], b, lowest(left))
                for t in range(m):
                    Z[g + 4 + t] = child_at(nodes, walking, t, Z[f + 4 + t], b, i)
                Z[g] = b - 1
                Z[STEPS] += 1
        if Z[g] != JOIN and m > 0 and all_leaves(walking, g):
            Z[g + 4] = loaded(nodes, walking, 0, Z[g + 4], Z[g])
            Z[g], Z[g + 1], Z[g + 2], Z[CANDIDATES] = JOIN, 1, Z[g], Z[g + 4]
            Z[DEPTH] += 1
        if Z[g] == JOIN:
            n = join_leaves(nodes, walking, g, out, n, stop)
            if Z[g + 1] == 0 and FRAMES + (Z[DEPTH] - 1) * width == g:
                Z[DEPTH] -= 1
        elif m == 0 or Z[g] < 0:
            for t in range(m):
                Z[CELL + t], Z[LEVEL + t] = Z[g + 4 + t], -1
            n = report(nodes, walking, 0, out, n)
        else:
            Z[g + 1] = common(nodes, walking, g)
            if Z[g + 1] != 0:
                Z[DEPTH] += 1
            else:
                Z[DEAD] += 1
    return n
