"""The AND of qdags, depth first in Morton order: what a cursor of `qdag.py` runs on.

A frame is a node of the completions' intersection: a level, and of each qdag the node of its base quadtree that stands there. Its children
that no qdag leaves empty are one word: each qdag says which of its base node's children there are, each of these stands for the quadrants
that project to it (EXT), and the words are ANDed. So Algorithm 5's test of 2**d children is a few operations. Where all that is left lies
in leaves, their entries are joined one by one instead of bit by bit.

Variables with given values are bound at once, not level by level: an atom all of whose variables are given is a cell; one of which some
are is a subtree of a tree with these first. What is left is an AND over the free variables only.

    Z    state: header | slots, cells, candidates of each atom, values of the variables | frames [level, left, unused, a ref an atom]
         level >= 0: a joint node, `left` its children; JOIN: leaves that are joined, `left` one more than the atom in hand;
         -1 - t: the rows of atom t in the cell, `left` entries or children
    ref  offset << 32 | which entries of a leaf, as bits (0: an inner node)
    P    joint atoms, all atoms, all quadrants, place of the given atom, words an item; an atom: arity, first, place, checks, variables,
         MAP, EXT; the joint atoms come before those that are cells
    R    per atom: root, bits          items: per reading the slot of the given row, and each variable's value, if it has one

Steps are joint nodes, entries of leaves tried and rows of cells; a dead end is a joint node without children, or an entry tried that joins
none. Source: Navarro, Reutter and Rojas-Ledesma, section 3, Algorithms 2 (ChildAt), 3 (Extend) and 5 (And); its pruning step has nothing
to do here, as no tree is made of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.bits import equal16, lowest
from structures.kernel import kernel
from structures.quad_nodes import CODE_BITS, LEAF, digit, is_leaf

MOST_VARIABLES = 6  # quadrants are bits of a word
MOST_ATOMS = 8

DEPTH, STEPS, GAP, SINCE, DEAD, ITEM = 0, 1, 2, 3, 4, 5
SLOTS, CELL, CANDIDATES, VALUES = 8, 16, 24, 32
FRAMES = 40

JOINT, ATOMS, ALL, GIVEN, WIDTH = 0, 1, 2, 3, 4
ATOM, ATOM_WORDS = 5, 88  # per atom, from here on
ARITY, FIRST, PLACE, CHECKS, VARIABLES, MAP, EXT = 0, 1, 2, 3, 4, 8, 72  # CHECKS: coordinates whose variables atoms before it have, as bits
JOIN = -100
NOTHING = -2
_SUBSET = 2**32 - 1


def plan_words(atoms: int) -> int:
    return ATOM + atoms * ATOM_WORDS


def state_words(atoms: int) -> int:
    """A cursor's state: a frame a level of codes, and a level of slots an atom."""
    return FRAMES + (CODE_BITS + 2) * (1 + atoms) * (4 + atoms)


@kernel
def ref_of(W: Any, o: int) -> int:
    """Block o with all that lies in it."""
    if is_leaf(W, o):
        return o << 32 | ((1 << np.int64(W[2 * o + 2])) - 1)
    return o << 32


@kernel
def child_at(W: Any, P: Any, R: Any, t: int, ref: int, b: int, i: int) -> int:
    """The ref of qdag t's child number i of level b, which is there."""
    a = ATOM + t * ATOM_WORDS
    f = P[a + FIRST]
    if f == 0 and b >= R[2 * t + 1]:
        return ref
    o, some, c = ref >> 32, ref & _SUBSET, P[a + MAP + i]
    if some == 0:
        return ref_of(W, np.int64(W[2 * o + 4 + c]))
    k, kept = P[a + ARITY], np.int64(0)
    while some != 0:
        j = lowest(some)
        some &= some - 1
        if digit(W, 2 * o + 4 + j, LEAF, k, f, b) == c:
            kept |= 1 << j
    return o << 32 | kept


@kernel
def quadrants(W: Any, P: Any, R: Any, t: int, ref: int, b: int) -> int:
    """The children of level b that qdag t does not leave empty."""
    a = ATOM + t * ATOM_WORDS
    f = P[a + FIRST]
    if f == 0 and b >= R[2 * t + 1]:
        return P[a + EXT]
    o, some, found = ref >> 32, ref & _SUBSET, np.int64(0)
    if some == 0:
        mask = np.int64(W[2 * o + 3])
        while mask != 0:
            found |= P[a + EXT + lowest(mask)]
            mask &= mask - 1
        return found
    k = P[a + ARITY]
    while some != 0:
        found |= P[a + EXT + digit(W, 2 * o + 4 + lowest(some), LEAF, k, f, b)]
        some &= some - 1
    return found


@kernel
def common(W: Any, P: Any, R: Any, Z: Any, g: int) -> int:
    """The children of frame g that no qdag leaves empty."""
    mask = P[ALL]
    for t in range(P[JOINT]):
        mask &= quadrants(W, P, R, t, Z[g + 4 + t], Z[g])
        if mask == 0:
            break
    return mask


@kernel
def agreeing(W: Any, P: Any, a: int, ref: int, coordinates: int, values: Any, v: int) -> int:
    """Those entries of a leaf's ref that have, in these coordinates (bits), their variables' values[v + variable]."""
    first, kept = 2 * (ref >> 32) + 4, ref & _SUBSET
    while coordinates != 0 and kept != 0:
        j = lowest(coordinates)
        coordinates &= coordinates - 1
        kept &= equal16(W, first + j * LEAF, values[v + P[a + VARIABLES + j]])
    return kept


@kernel
def bind(W: Any, P: Any, R: Any, t: int, count: int, stop: int, values: Any, v: int) -> int:
    """Atom t's ref at level `stop` - 1, its first `count` coordinates having the values[v + variable]; 0: nothing is there."""
    a, o, bits = ATOM + t * ATOM_WORDS, R[2 * t], R[2 * t + 1]
    for j in range(count):
        if values[v + P[a + VARIABLES + j]] >> bits != 0:
            return 0
    b = bits - 1
    while b >= 0 and not is_leaf(W, o):
        c = np.int64(0)
        for j in range(count):
            c = c << 1 | ((values[v + P[a + VARIABLES + j]] >> b) & 1)
        o = np.int64(W[2 * o + 4 + c])
        if o == 0:
            return 0
        b -= 1
    if not is_leaf(W, o):
        b = CODE_BITS - 1
        while b >= stop and not is_leaf(W, o):  # of the coordinates that are not bound: all lie in the first quadrant
            o = np.int64(W[2 * o + 4])
            b -= 1
        if not is_leaf(W, o):
            return o << 32
    kept = agreeing(W, P, a, ref_of(W, o), (1 << count) - 1, values, v)
    return o << 32 | kept if kept != 0 else 0


@kernel
def begin(W: Any, P: Any, R: Any, items: Any, Z: Any) -> int:
    """The level of the root of the next reading, its refs in the first frame and in the cells; NOTHING: nothing can be there."""
    joint, top, v = P[JOINT], np.int64(0), Z[ITEM] * P[WIDTH] + 1
    Z[ITEM] += 1
    for t in range(P[ATOMS]):
        if R[2 * t] == 0:
            return NOTHING
        if t < joint:
            top = max(top, R[2 * t + 1])
    for t in range(P[ATOMS]):
        a = ATOM + t * ATOM_WORDS
        if t >= joint:
            ref = bind(W, P, R, t, P[a + ARITY], CODE_BITS, items, v)
            Z[CELL + t] = ref
        elif P[a + FIRST] > 0:
            ref = bind(W, P, R, t, P[a + FIRST], top, items, v)
            Z[FRAMES + 4 + t] = ref
        else:
            ref = ref_of(W, R[2 * t])
            Z[FRAMES + 4 + t] = ref
        if ref == 0:
            return NOTHING
    return top - 1


@kernel
def report(W: Any, P: Any, items: Any, Z: Any, t: int, out: Any, n: int) -> int:
    """With the slots of the atoms before t chosen: go on with the cell's rows from atom t on. The rows written are those before n, and one
    more if every atom from t on has a single one; else a frame waits."""
    m = P[ATOMS]
    while t < m:
        ref = Z[CELL + t]
        o, some = ref >> 32, ref & _SUBSET
        if some == 0 or some & (some - 1) != 0:
            f = FRAMES + Z[DEPTH] * (4 + P[JOINT])
            Z[f], Z[f + 3] = -1 - t, ref
            Z[f + 1] = some if some != 0 else np.int64(W[2 * o + 3])
            Z[DEPTH] += 1
            return n
        k = P[ATOM + t * ATOM_WORDS + ARITY]
        Z[SLOTS + t] = W[2 * o + 4 + k * LEAF + lowest(some)]
        t += 1
    for t in range(m):
        out[P[ATOM + t * ATOM_WORDS + PLACE], n] = Z[SLOTS + t]
    if P[GIVEN] >= 0:
        out[P[GIVEN], n] = items[(Z[ITEM] - 1) * P[WIDTH]]
    Z[GAP] = max(Z[GAP], Z[STEPS] - Z[SINCE])
    Z[SINCE] = Z[STEPS]
    return n + 1


@kernel
def next_in_cell(W: Any, P: Any, items: Any, Z: Any, f: int, out: Any, n: int) -> int:
    """Frame f, of an atom's rows, goes to the next of them, or of its node's children."""
    left = Z[f + 1]
    i, t, ref = lowest(left), -1 - Z[f], Z[f + 3]
    Z[f + 1] = left & (left - 1)
    Z[STEPS] += 1
    o, k = ref >> 32, P[ATOM + t * ATOM_WORDS + ARITY]
    if ref & _SUBSET != 0:
        Z[SLOTS + t] = W[2 * o + 4 + k * LEAF + i]
        return report(W, P, items, Z, t + 1, out, n)
    whole = Z[CELL + t]
    Z[CELL + t] = ref_of(W, np.int64(W[2 * o + 4 + i]))
    n = report(W, P, items, Z, t, out, n)
    Z[CELL + t] = whole
    return n


@kernel
def all_leaves(P: Any, Z: Any, g: int) -> bool:
    for t in range(P[JOINT]):
        if Z[g + 4 + t] & _SUBSET == 0:
            return False
    return True


@kernel
def join_leaves(W: Any, P: Any, items: Any, Z: Any, f: int, out: Any, n: int) -> int:
    """Go on with the leaves of frame f until they are done, `out` is full, or the rows of a cell come between."""
    m, depth = P[JOINT], Z[DEPTH]
    t = Z[f + 1] - 1
    while t >= 0 and n < out.shape[1] and Z[DEPTH] == depth:
        left = Z[CANDIDATES + t]
        if left == 0:
            t -= 1
            continue
        Z[CANDIDATES + t] = left & (left - 1)
        Z[STEPS] += 1
        a = ATOM + t * ATOM_WORDS
        k = P[a + ARITY]
        p = 2 * (Z[f + 4 + t] >> 32) + 4 + lowest(left)
        Z[SLOTS + t] = W[p + k * LEAF]
        if t == m - 1:
            n = report(W, P, items, Z, m, out, n)
            continue
        for j in range(k):
            Z[VALUES + P[a + VARIABLES + j]] = W[p + j * LEAF]
        a += ATOM_WORDS
        found = agreeing(W, P, a, Z[f + 5 + t], P[a + CHECKS], Z, VALUES)
        if found == 0:
            Z[DEAD] += 1
            continue
        t += 1
        Z[CANDIDATES + t] = found
    Z[f + 1] = t + 1
    return n


@kernel("int64(int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int32[:, ::1], int64)")
def and_fill(W: Any, P: Any, R: Any, items: Any, Z: Any, out: Any, budget: int) -> int:
    """Go on until `out` (a line an alias) is full, all readings are done, or `budget` steps are made; the rows written."""
    n, m, width = np.int64(0), P[JOINT], 4 + P[JOINT]
    stop = Z[STEPS] + budget
    while n < out.shape[1] and Z[STEPS] < stop:
        if Z[DEPTH] == 0:
            if Z[ITEM] * P[WIDTH] == len(items):
                break
            g = np.int64(FRAMES)
            Z[g] = begin(W, P, R, items, Z)
            Z[STEPS] += 1
            if Z[g] == NOTHING:
                continue
        else:
            f = FRAMES + (Z[DEPTH] - 1) * width
            left, b = Z[f + 1], Z[f]
            if left == 0:
                Z[DEPTH] -= 1
                continue
            if b == JOIN:
                n = join_leaves(W, P, items, Z, f, out, n)
                continue
            if b < 0:
                n = next_in_cell(W, P, items, Z, f, out, n)
                continue
            i = lowest(left)
            left &= left - 1
            Z[f + 1] = left
            g = f + width
            if left == 0:  # the last child takes its parent's place
                g = f
                Z[DEPTH] -= 1
            for t in range(m):
                Z[g + 4 + t] = child_at(W, P, R, t, Z[f + 4 + t], b, i)
            Z[g] = b - 1
            Z[STEPS] += 1
        if m > 0 and all_leaves(P, Z, g):
            Z[g], Z[g + 1] = JOIN, 1
            Z[CANDIDATES] = Z[g + 4] & _SUBSET
            Z[DEPTH] += 1
        elif m == 0 or Z[g] < 0:
            for t in range(m):
                Z[CELL + t] = Z[g + 4 + t]
            n = report(W, P, items, Z, 0, out, n)
        else:
            Z[g + 1] = common(W, P, R, Z, g)
            if Z[g + 1] != 0:
                Z[DEPTH] += 1
            else:
                Z[DEAD] += 1
    return n
