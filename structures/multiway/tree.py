r"""The persistent tree of the IJ-heap, and of cliques of one set: binary, balanced by height, with leaf blocks of all sets together.

                [ separator | summary ]           an inner node has two children; `lower` lies before the separator
                /                     \\
        [ separator | summary ]     [ leaf ]      a leaf holds up to L entries in t runs, and its summary
        /             \\
    [ leaf ]        [ leaf ]

Invariants, by which `check()` names what broke
    I1  entries ascend by (key, left, code), code = 8 * slot + set; each run ascends; separators divide
    I2  a stored summary is that of the entries below
    I3  the heights of two children differ by one at most; a leaf that is not the root has max(1, L // 4)..L entries

Costs: put, cut O(L + log n) besides the extremes that change (`summary`: next to none, by the touch rule), O(log n) copied blocks;
build O(n) after the sort. Copy-on-write as in docs/design/versions.md. Source: docs/design/ij-heap.md; Adelson-Velsky and Landis for the
balance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import HEIGHT, INNER, LEAF, ROOT, drop
from structures.core.kernel import kernel
from structures.multiway.layout import (
    ARRAYS,
    CHILD,
    COUNTS,
    HEIGHT_,
    LEAF_LEAST,
    PATH,
    SEPARATOR_CODE,
    SEPARATOR_KEY,
    SEPARATOR_LEFT,
    STARTS,
    L,
    allocate_block,
    height_of,
    own,
    start_of,
)
from structures.multiway.leaves import (
    AT,
    concatenate_leaves,
    count_of,
    cut_from_leaf,
    cut_leaf,
    entry_at,
    even_leaves,
    holds,
    position,
    put_in_leaf,
    separate,
)
from structures.multiway.summary import CUT, PUT, concerned, refresh, summarise
from structures.multiway.topology import SETS

LEAF_FILL = max(1, L * 7 // 8)


@kernel
def side_of(M: Any, W: Any, o: int, key: int, left: int, code: int) -> int:
    """1 if the entry belongs to the upper child of o, else 0."""
    k, v = W[2 * o + SEPARATOR_KEY], M[o + SEPARATOR_LEFT]
    return k < key or (k == key and (v < left or (v == left and M[o + SEPARATOR_CODE] <= code)))


@kernel
def descend(M: Any, W: Any, C: Any, key: int, left: int, code: int) -> int:
    """The leaf where the entry belongs; the path is left in C[PATH:]."""
    o, d = C[ROOT], PATH
    while height_of(W, o) > 0:
        side = 1 if side_of(M, W, o, key, left, code) else 0
        C[d], C[d + 1] = o, side
        d += 2
        o = M[o + CHILD + side]
    C[d] = 0
    return o


# --- balance


@kernel
def measure(M: Any, W: Any, o: int) -> None:
    W[2 * o + HEIGHT_] = 1 + max(height_of(W, M[o + CHILD]), height_of(W, M[o + CHILD + 1]))


@kernel
def swap_separators(M: Any, W: Any, a: int, b: int) -> None:
    M[a + SEPARATOR_LEFT], M[b + SEPARATOR_LEFT] = M[b + SEPARATOR_LEFT], M[a + SEPARATOR_LEFT]
    M[a + SEPARATOR_CODE], M[b + SEPARATOR_CODE] = M[b + SEPARATOR_CODE], M[a + SEPARATOR_CODE]
    W[2 * a + SEPARATOR_KEY], W[2 * b + SEPARATOR_KEY] = W[2 * b + SEPARATOR_KEY], W[2 * a + SEPARATOR_KEY]


@kernel
def balance(M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, o: int) -> None:
    """Restore I3 at own inner node o, whose children's heights differ by two at most. The entries below o stay the same, and so may
    its summary; the nodes that change places are summarised anew."""
    lower, upper = height_of(W, M[o + CHILD]), height_of(W, M[o + CHILD + 1])
    if abs(lower - upper) > 1:
        a = 0 if lower > upper else 1
        b = 1 - a
        y = own(M, W, C, Q, T, M[o + CHILD + a])
        if height_of(W, M[y + CHILD + a]) >= height_of(W, M[y + CHILD + b]):
            M[o + CHILD + a], M[y + CHILD + a] = M[y + CHILD + a], M[y + CHILD + b]
            M[y + CHILD + b], M[o + CHILD + b] = M[o + CHILD + b], y
            swap_separators(M, W, o, y)
        else:
            z = own(M, W, C, Q, T, M[y + CHILD + b])
            M[y + CHILD + b], M[z + CHILD + a] = M[z + CHILD + a], M[z + CHILD + b]
            M[z + CHILD + b], M[o + CHILD + a], M[o + CHILD + b] = M[o + CHILD + b], y, z
            swap_separators(M, W, o, z)
            measure(M, W, z)
            summarise(M, W, T, X, z)
        measure(M, W, y)
        summarise(M, W, T, X, y)
    measure(M, W, o)


@kernel
def fill_up(M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, o: int, side: int) -> int:
    """Child `side` of own node o is a leaf with too few entries: join it with the leaf beside it, or even the two out. Gives what stands
    in o's place: o, or the one leaf that is left."""
    x, beside = M[o + CHILD + side], M[o + CHILD + 1 - side]
    inner = height_of(W, beside) > 0
    y = M[beside + CHILD + side] if inner else beside
    a, b = (x, y) if side == 0 else (y, x)
    if count_of(W, T, a) + count_of(W, T, b) <= L:
        z = concatenate_leaves(M, W, C, T, a, b)
        drop(M, C, Q, a, LEAF)
        drop(M, C, Q, b, LEAF)
        summarise(M, W, T, X, z)
        if not inner:
            drop(M, C, Q, o, INNER)
            return z
        M[o + CHILD + side], M[o + CHILD + 1 - side] = z, M[beside + CHILD + 1 - side]
        M[o + SEPARATOR_LEFT], M[o + SEPARATOR_CODE] = M[beside + SEPARATOR_LEFT], M[beside + SEPARATOR_CODE]
        W[2 * o + SEPARATOR_KEY] = W[2 * beside + SEPARATOR_KEY]
        drop(M, C, Q, beside, INNER)
        return o
    a, b = even_leaves(M, W, C, Q, T, X, a, b)
    separate(M, W, T, X, o, b)
    summarise(M, W, T, X, a)
    summarise(M, W, T, X, b)
    x, y = (a, b) if side == 0 else (b, a)
    M[o + CHILD + side] = x
    if inner:
        beside = own(M, W, C, Q, T, beside)
        M[beside + CHILD + side] = y
        summarise(M, W, T, X, beside)
        y = beside
    M[o + CHILD + 1 - side] = y
    return o


# --- changes


@kernel
def climb(
    M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, child: int, least: int, greatest: int,
    s: int, key: int, left: int, right: int, slot: int, sign: int,
) -> None:  # fmt: skip
    """Bring the path in C[PATH:] up to date: its leaf is now `child`, r was put or cut there; the masks say which extremes may still
    change above."""
    d = PATH
    while C[d] != 0:
        d += 2
    uneven = height_of(W, child) > 0
    while d > PATH:
        d -= 2
        old, side = C[d], C[d + 1]
        o = own(M, W, C, Q, T, old)
        M[o + CHILD + side] = child
        if height_of(W, child) == 0 and count_of(W, T, child) < LEAF_LEAST:
            uneven = True
            above = fill_up(M, W, C, Q, T, X, o, side)
            if above != o:
                child = above
                continue
        if uneven:
            height = height_of(W, o)
            balance(M, W, C, Q, T, X, o)
            uneven = height != height_of(W, o)
        if least != 0:
            least = refresh(M, W, T, X, 0, o, least, s, key, left, slot, sign)
        if greatest != 0:
            greatest = refresh(M, W, T, X, 1, o, greatest, s, key, right, slot, sign)
        if o == old and least == 0 and greatest == 0 and not uneven:
            return
        child = o
    C[ROOT] = child
    C[HEIGHT] = height_of(W, child)


@kernel
def split(M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, full: int, s: int, key: int, left: int, right: int, slot: int) -> int:
    """Put an entry into a full leaf: a new inner node over two new leaves stands in its place."""
    o = allocate_block(M, W, C, T, INNER)
    a, b = cut_leaf(M, W, C, T, X, full, L - L // 2)
    drop(M, C, Q, full, LEAF)
    separate(M, W, T, X, o, b)
    target = b if side_of(M, W, o, key, left, 8 * slot + s) else a
    put_in_leaf(M, W, T, target, s, key, left, right, slot)
    M[o + CHILD], M[o + CHILD + 1] = a, b
    W[2 * o + HEIGHT_] = 1
    summarise(M, W, T, X, a)
    summarise(M, W, T, X, b)
    summarise(M, W, T, X, o)
    return o


@kernel
def put(M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, s: int, key: int, left: int, right: int, slot: int) -> None:
    """Put an entry that is not there."""
    o = descend(M, W, C, key, left, 8 * slot + s)
    least = concerned(T, s)
    greatest = least
    if count_of(W, T, o) == L:
        o = split(M, W, C, Q, T, X, o, s, key, left, right, slot)
    else:
        o = own(M, W, C, Q, T, o)
        put_in_leaf(M, W, T, o, s, key, left, right, slot)
        least = refresh(M, W, T, X, 0, o, least, s, key, left, slot, PUT)
        greatest = refresh(M, W, T, X, 1, o, greatest, s, key, right, slot, PUT)
    climb(M, W, C, Q, T, X, o, least, greatest, s, key, left, right, slot, PUT)
    C[COUNTS + s] += 1


@kernel
def cut(M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, s: int, key: int, left: int, slot: int) -> bool:
    """Take an entry out; False, and nothing done, if it is not there."""
    o = descend(M, W, C, key, left, 8 * slot + s)
    p = position(M, W, T, o, s, key, left, slot)
    if not holds(M, W, T, o, s, p, key, left, slot):
        return False
    right = M[entry_at(T, o)[0] + L + p]
    o = own(M, W, C, Q, T, o)
    cut_from_leaf(M, W, T, o, s, p)
    least = refresh(M, W, T, X, 0, o, concerned(T, s), s, key, left, slot, CUT)
    greatest = refresh(M, W, T, X, 1, o, concerned(T, s), s, key, right, slot, CUT)
    climb(M, W, C, Q, T, X, o, least, greatest, s, key, left, right, slot, CUT)
    C[COUNTS + s] -= 1
    return True


# --- bulk build


@kernel("void(" + ARRAYS + ")")
def make_empty(M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any) -> None:
    o = allocate_block(M, W, C, T, LEAF)
    for i in range(T[SETS] + 1):
        W[2 * o + STARTS + i] = 0
    summarise(M, W, T, X, o)
    C[ROOT], C[HEIGHT] = o, 0


@kernel
def build_leaf(M: Any, W: Any, C: Any, T: Any, X: Any, sets: Any, keys: Any, lefts: Any, rights: Any, slots: Any, order: Any) -> int:
    """A new leaf of the entries at the places `order`, in the tree's order."""
    o, t = allocate_block(M, W, C, T, LEAF), T[SETS]
    for i in range(t + 1):
        W[2 * o + STARTS + i] = 0
    for n in order:
        W[2 * o + STARTS + 1 + sets[n]] += 1
    for i in range(t):
        X[AT + i] = start_of(W, o, i)
        W[2 * o + STARTS + i + 1] += start_of(W, o, i)
    e, w = entry_at(T, o)
    for n in order:
        p = X[AT + sets[n]]
        X[AT + sets[n]] = p + 1
        M[e + p], M[e + L + p] = lefts[n], rights[n]
        W[w + p], W[w + L + p] = slots[n], keys[n]
        C[COUNTS + sets[n]] += 1
    summarise(M, W, T, X, o)
    return o


@kernel
def build_inner(M: Any, W: Any, C: Any, T: Any, X: Any, a: int, b: int) -> int:
    """A new node over a and b; its separator is the first entry below b."""
    o, leaf = allocate_block(M, W, C, T, INNER), b
    while height_of(W, leaf) > 0:
        leaf = M[leaf + CHILD]
    M[o + CHILD], M[o + CHILD + 1] = a, b
    separate(M, W, T, X, o, leaf)
    measure(M, W, o)
    summarise(M, W, T, X, o)
    return o


@kernel("void(" + ARRAYS + ", uint8[::1], int32[::1], int64[::1], int64[::1], int32[::1], int64[::1])", allocates=True)
def build(
    M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, sets: Any, keys: Any, lefts: Any, rights: Any, slots: Any, order: Any
) -> None:
    """Build an empty tree from entries; `order`: their places by (key, left, code). 2**h places take one or two leaves each, so that all
    heights differ by one at most."""
    n = len(order)
    drop(M, C, Q, C[ROOT], LEAF)
    leaves = max(1, -(-n // LEAF_FILL))
    width = 1
    while 2 * width <= leaves:
        width *= 2
    level = np.empty(width, np.int64)
    for place in range(width):
        lo, hi = leaves * place // width, leaves * (place + 1) // width
        for b in range(lo, hi):
            part = order[n * b // leaves : n * (b + 1) // leaves]
            leaf = build_leaf(M, W, C, T, X, sets, keys, lefts, rights, slots, part)
            level[place] = leaf if b == lo else build_inner(M, W, C, T, X, level[place], leaf)
    while width > 1:
        width //= 2
        for place in range(width):
            level[place] = build_inner(M, W, C, T, X, level[2 * place], level[2 * place + 1])
    C[ROOT], C[HEIGHT] = level[0], height_of(W, level[0])
