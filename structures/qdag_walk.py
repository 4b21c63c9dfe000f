"""The AND of qdags, depth first in Morton order: what a cursor of `qdag.py` runs on.

A frame is a node of the completions' intersection: a level, and of each qdag the node of its base quadtree that stands there. Its children
that no qdag leaves empty are one word: each qdag says which of its base node's children there are, each of these stands for the quadrants
that project to it (EXT), and the words are ANDed. So Algorithm 5's test of 2**d children is a few operations, and a bound variable one more.

    Z    state: header | slots being reported | refs of the cell | frames [level, children left, unused, ref a qdag]
         level >= 0: a joint node; -1 - t: the rows of qdag t in the cell are being gone through
    ref  offset << 32 | which entries of a leaf, as bits (0: an inner node)
    P    the qdags: atoms, dimension, all quadrants | per atom: arity, place of its slot, MAP, EXT | per variable: quadrants with bit 1
    R    per atom: root, bits          items: per reading slot of the given row, code of each variable (-1: free)

Steps are joint nodes and rows of cells; a dead end is a joint node without children. Source: Navarro, Reutter and Rojas-Ledesma, section 3,
Algorithms 2 (ChildAt), 3 (Extend) and 5 (And); its pruning step has nothing to do here, as no tree is made of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.ij_bits import lowest
from structures.kernel import kernel
from structures.quad_nodes import CODE_BITS, digit, is_leaf

MOST_VARIABLES = 6  # quadrants are bits of a word
MOST_ATOMS = 8

DEPTH, STEPS, GAP, SINCE, DEAD, ITEM = 0, 1, 2, 3, 4, 5
SLOTS, CELL = 8, 8 + MOST_ATOMS
FRAMES = CELL + MOST_ATOMS

ATOMS, DIMENSION, ALL, GIVEN = 0, 1, 2, 3
ATOM, ATOM_WORDS = 8, 84  # per atom, from here on
ARITY, PLACE, MAP, EXT = 0, 1, 4, 68
_SUBSET = 2**32 - 1


def plan_words(atoms: int, variables: int) -> int:
    return ATOM + atoms * ATOM_WORDS + variables


def state_words(atoms: int) -> int:
    """A cursor's state: a frame a level of codes, and a level of slots an atom."""
    return FRAMES + (CODE_BITS + 2 + atoms * (CODE_BITS + 2)) * (3 + atoms)


@kernel
def ref_of(W: Any, o: int) -> int:
    """Block o with all that lies in it."""
    if is_leaf(W, o):
        return o << 32 | ((1 << np.int64(W[2 * o + 2])) - 1)
    return o << 32


@kernel
def child_at(W: Any, P: Any, R: Any, t: int, ref: int, b: int, i: int) -> int:
    """The ref of qdag t's child number i of level b, which is there."""
    if b >= R[2 * t + 1]:
        return ref
    a = ATOM + t * ATOM_WORDS
    o, some, c = ref >> 32, ref & _SUBSET, P[a + MAP + i]
    if some == 0:
        return ref_of(W, np.int64(W[2 * o + 4 + c]))
    k, kept = P[a + ARITY], np.int64(0)
    while some != 0:
        j = lowest(some)
        some &= some - 1
        if digit(W, 2 * o + 4 + j * (k + 1), k, b) == c:
            kept |= 1 << j
    return o << 32 | kept


@kernel
def quadrants(W: Any, P: Any, R: Any, t: int, ref: int, b: int) -> int:
    """The children of level b that qdag t does not leave empty."""
    a = ATOM + t * ATOM_WORDS
    if b >= R[2 * t + 1]:
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
        found |= P[a + EXT + digit(W, 2 * o + 4 + lowest(some) * (k + 1), k, b)]
        some &= some - 1
    return found


@kernel
def common(W: Any, P: Any, R: Any, items: Any, Z: Any, f: int) -> int:
    """The children of frame f that no qdag leaves empty and no bound variable excludes."""
    b, mask, variables = Z[f], P[ALL], ATOM + P[ATOMS] * ATOM_WORDS
    for v in range(P[DIMENSION]):
        code = items[Z[ITEM] - 1, 1 + v]
        if code >= 0:
            mask &= P[variables + v] if (code >> b) & 1 else ~P[variables + v]
    for t in range(P[ATOMS]):
        mask &= quadrants(W, P, R, t, Z[f + 3 + t], b)
        if mask == 0:
            break
    return mask


@kernel
def begin(W: Any, P: Any, R: Any, items: Any, Z: Any) -> int:
    """The level of the root of the next reading, its refs in the first frame; -2: nothing can be there."""
    i, m, top = Z[ITEM], P[ATOMS], np.int64(0)
    Z[ITEM] = i + 1
    for t in range(m):
        if R[2 * t] == 0:
            return -2
        Z[FRAMES + 3 + t] = ref_of(W, R[2 * t])
        top = max(top, R[2 * t + 1])
    for v in range(P[DIMENSION]):
        if items[i, 1 + v] >= 0 and items[i, 1 + v] >> top != 0:
            return -2
    return top - 1


@kernel
def report(W: Any, P: Any, items: Any, Z: Any, t: int, out: Any, n: int) -> int:
    """With the slots of the qdags before t chosen: go on with the cell's rows from qdag t on. The rows written are those before n, and one
    more if every qdag from t on has a single one; else a frame waits."""
    m = P[ATOMS]
    while t < m:
        ref = Z[CELL + t]
        o, some = ref >> 32, ref & _SUBSET
        if some == 0 or some & (some - 1) != 0:
            f = FRAMES + Z[DEPTH] * (3 + m)
            Z[f], Z[f + 3] = -1 - t, ref
            Z[f + 1] = some if some != 0 else np.int64(W[2 * o + 3])
            Z[DEPTH] += 1
            return n
        k = P[ATOM + t * ATOM_WORDS + ARITY]
        Z[SLOTS + t] = W[2 * o + 4 + lowest(some) * (k + 1) + k]
        t += 1
    for t in range(m):
        out[P[ATOM + t * ATOM_WORDS + PLACE], n] = Z[SLOTS + t]
    if P[GIVEN] >= 0:
        out[P[GIVEN], n] = items[Z[ITEM] - 1, 0]
    Z[GAP] = max(Z[GAP], Z[STEPS] - Z[SINCE])
    Z[SINCE] = Z[STEPS]
    return n + 1


@kernel
def next_in_cell(W: Any, P: Any, items: Any, Z: Any, f: int, i: int, out: Any, n: int) -> int:
    """Frame f of qdag t's rows goes to number i of them, or of its node's children."""
    t, ref = -1 - Z[f], Z[f + 3]
    o, k = ref >> 32, P[ATOM + t * ATOM_WORDS + ARITY]
    if ref & _SUBSET != 0:
        Z[SLOTS + t] = W[2 * o + 4 + i * (k + 1) + k]
        return report(W, P, items, Z, t + 1, out, n)
    whole, Z[CELL + t] = Z[CELL + t], ref_of(W, np.int64(W[2 * o + 4 + i]))
    n = report(W, P, items, Z, t, out, n)
    Z[CELL + t] = whole
    return n


@kernel("int64(int32[::1], int64[::1], int64[::1], int64[:, ::1], int64[::1], int32[:, ::1], int64)")
def and_fill(W: Any, P: Any, R: Any, items: Any, Z: Any, out: Any, budget: int) -> int:
    """Go on until `out` (a line an alias) is full, all readings are done, or `budget` steps are made; the rows written."""
    n, m, width = np.int64(0), P[ATOMS], 3 + P[ATOMS]
    stop = Z[STEPS] + budget
    while n < out.shape[1] and Z[STEPS] < stop:
        if Z[DEPTH] == 0:
            if Z[ITEM] == len(items):
                break
            Z[FRAMES] = begin(W, P, R, items, Z)
            g = np.int64(FRAMES)
            if Z[g] == -2:
                continue
        else:
            f = FRAMES + (Z[DEPTH] - 1) * width
            left = Z[f + 1]
            if left == 0:
                Z[DEPTH] -= 1
                continue
            i, b = lowest(left), Z[f]
            left &= left - 1
            Z[f + 1] = left
            if b < 0:
                Z[STEPS] += 1
                n = next_in_cell(W, P, items, Z, f, i, out, n)
                continue
            g = f + width
            if left == 0:  # the last child takes its parent's place
                g = f
                Z[DEPTH] -= 1
            for t in range(m):
                Z[g + 3 + t] = child_at(W, P, R, t, Z[f + 3 + t], b, i)
            Z[g] = b - 1
        Z[STEPS] += 1
        if Z[g] < 0:
            for t in range(m):
                Z[CELL + t] = Z[g + 3 + t]
            n = report(W, P, items, Z, 0, out, n)
            continue
        Z[g + 1] = common(W, P, R, items, Z, g)
        if Z[g + 1] != 0:
            Z[DEPTH] += 1
        else:
            Z[DEAD] += 1
    return n
