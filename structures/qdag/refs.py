"""Where a qdag stands: refs (`layout.py`), their children, the entries of their leaves, the way down to given values."""

from __future__ import annotations

from typing import Any

from structures.core.bits import equal16, highest, lowest, with_bit16
from structures.core.kernel import kernel, prefetch, wide
from structures.qdag.layout import (
    ARITY,
    AT,
    ATOM,
    ATOM_WORDS,
    EXT,
    FIRST,
    FRESH,
    ITEM,
    LINE,
    MAP,
    SUBSET,
    VARIABLES,
    WAY_WORDS,
    WAYS,
    WIDTH,
    Walking,
    base_of,
    bits_of,
    root_of,
)
from structures.quadtree.layout import CODE_BITS, HEAD, LEAF, QuadNodes, Shape, live_child
from structures.quadtree.search import child_of, children_of, copy_leaf, ends_at, leads_to_leaf


@kernel(forceinline=True)
def enter(W: Any, o: int) -> int:
    """The ref of a place, all of it."""
    return o << AT | FRESH if ends_at(W, o) else o << AT


@kernel(forceinline=True)
def enter_child(nodes: QuadNodes, base: int, o: int, k: int, c: int) -> int:
    """The ref of child c of an inner node, all of it; 0: there is none."""
    W = nodes.W
    child = child_of(nodes, base, o, k, c)
    return child << AT | FRESH if child != 0 and leads_to_leaf(W, o, c, child) else child << AT


@kernel(forceinline=True)
def loaded(nodes: QuadNodes, walking: Walking, t: int, ref: int, b: int) -> int:
    """Atom t's ref, its leaf in hand if it is one; b: the level."""
    P, R, S = walking.P, walking.R, walking.S
    if ref & FRESH == 0:
        return ref
    a = ATOM + t * ATOM_WORDS
    f = P[a + FIRST]
    known = f if b < CODE_BITS else 0
    return (1 << copy_leaf(nodes, base_of(R, t), ref >> AT, Shape(P[a + ARITY], f), b, known, S, t * LINE)) - 1


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
    if b >= bits_of(R, t):
        return ref
    a = ATOM + t * ATOM_WORDS
    some, k, c = ref & SUBSET, P[a + ARITY], P[a + MAP + i]
    if some == 0:
        return enter_child(nodes, base_of(R, t), ref >> AT, k, c)
    return of_child(S, t * LINE, k, P[a + FIRST], b, some, c)


@kernel(forceinline=True)
def await_child(W: Any, walking: Walking, t: int, ref: int, b: int, i: int) -> None:
    """Ask for the block of qdag t's child number i of level b, which is there, if it is a live one."""
    P, R = walking.P, walking.R
    o = ref >> AT
    if b < bits_of(R, t) and ref & SUBSET == 0 and o > 0:
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
    if b >= bits_of(R, t):
        return P[a + EXT]
    some, k, found = ref & SUBSET, P[a + ARITY], wide(0)
    if some == 0:
        mask = children_of(nodes, base_of(R, t), ref >> AT, k)
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
def agreeing(walking: Walking, t: int, some: int, coordinates: int, values: Any, v: int) -> int:
    """Those of some entries of atom t's leaf that have, in these coordinates (bits), their variables' values[v + variable]."""
    P, S = walking.P, walking.S
    a = ATOM + t * ATOM_WORDS + VARIABLES
    while coordinates != 0 and some != 0:
        j = lowest(coordinates)
        coordinates &= coordinates - 1
        some &= equal16(S, t * LINE + j * LEAF, values[v + P[a + j]])
    return some


@kernel(forceinline=True)
def first_of_each(S: Any, s: int, f: int, k: int, some: int) -> int:
    """Of some entries of the leaf at S[s] the first of each tuple, by the coordinates from f to k."""
    kept, same, i = wide(0), wide(0), wide(0)
    while some != 0:
        i = lowest(some)
        kept |= wide(1) << i
        same = some
        for j in range(f, k):
            same &= equal16(S, s + j * LEAF, wide(S[s + j * LEAF + i]))
        some &= ~same
    return kept


@kernel
def bind(nodes: QuadNodes, walking: Walking, t: int, count: int) -> int:
    """Atom t's ref where its first `count` coordinates have the values of item Z[ITEM] - 1; 0: nothing is there. The way down begins where
    it parts from the one before."""
    W, P, R, items, Z = nodes.W, walking.P, walking.R, walking.items, walking.Z
    a, ref, bits, base = ATOM + t * ATOM_WORDS, enter(W, root_of(R, t)), bits_of(R, t), base_of(R, t)
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
        ref = enter_child(nodes, base, ref >> AT, k, c)
        if ref == 0:
            Z[way + 1] = b
            return 0
        b -= 1
    Z[way + 1], Z[way + 3 + b] = b, ref
    rest = (1 << count) - 1 if b >= 0 else 0
    if count < k:
        b = CODE_BITS + b if b >= 0 else bits - 1
    ref = loaded(nodes, walking, t, ref, b)
    return agreeing(walking, t, ref, rest, items, v) if ref & SUBSET != 0 else ref
