"""Leaves: where an entry lies, and moving entries in, out and between leaves (layout: `layout.py`).

Writers own the leaves they change: they were made by the version being written. Costs: O(log B) to find, O(B) to move.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import LEAF, LEAF_WORDS, VERSION, B, allocate, drop
from structures.core.kernel import kernel
from structures.ordered.layout import KEY, LEFT, RIGHT, SLOT


@kernel
def position(M: Any, W: Any, o: int, lo: int, hi: int, key: int, left: int, slot: int) -> int:
    """The first place in [lo, hi) of leaf o whose (key, left, slot) is >= the given one."""
    while lo < hi:
        mid = (lo + hi) // 2
        k, v = W[2 * o + KEY + mid], M[o + LEFT + mid]
        if k < key or (k == key and (v < left or (v == left and W[2 * o + SLOT + mid] < slot))):
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def place(M: Any, W: Any, o: int, s: int, key: int, left: int, slot: int) -> tuple[int, int]:
    """(place, end) of the entry in leaf o; place == end if it is not there."""
    if s == 0:
        lo, end = 0, W[2 * o + 2]
    else:
        lo, end = B - W[2 * o + 3], B
    p = position(M, W, o, lo, end, key, left, slot)
    if p < end and W[2 * o + KEY + p] == key and M[o + LEFT + p] == left and W[2 * o + SLOT + p] == slot:
        return p, end
    return end, end


@kernel
def move_entries(M: Any, W: Any, source: int, lo: int, hi: int, target: int, at: int) -> None:
    """Copy entries [lo, hi) of one leaf to place `at` of another."""
    to, w, wt = at - lo, 2 * source, 2 * target
    for i in range(lo, hi):
        M[target + LEFT + to + i] = M[source + LEFT + i]
    for i in range(lo, hi):
        M[target + RIGHT + to + i] = M[source + RIGHT + i]
    for i in range(lo, hi):
        W[wt + SLOT + to + i] = W[w + SLOT + i]
    for i in range(lo, hi):
        W[wt + KEY + to + i] = W[w + KEY + i]


@kernel
def new_leaf(M: Any, W: Any, C: Any, n0: int, n1: int) -> int:
    o = allocate(M, W, C, LEAF)
    W[2 * o + 2], W[2 * o + 3] = n0, n1
    return o


@kernel
def own_leaf(M: Any, W: Any, C: Any, Q: Any, o: int) -> int:
    """The leaf itself if this version wrote it, else a copy in its place."""
    if M[o] == C[VERSION]:
        return o
    new = allocate(M, W, C, LEAF)
    source, target = np.uint64(o), np.uint64(new)  # unsigned places need no check of their sign, so that this is vectorised
    for i in range(np.uint64(1), np.uint64(LEAF_WORDS)):
        M[target + i] = M[source + i]
    drop(M, C, Q, o, LEAF)
    return new


@kernel
def merged_prefix(M: Any, W: Any, o: int, m: int) -> int:
    """How many of the first m entries of leaf o, both sets in order, are of set 0."""
    n0, n1 = W[2 * o + 2], W[2 * o + 3]
    i, j = 0, B - n1
    for _ in range(m):
        if j == B:
            i += 1
        elif i == n0:
            j += 1
        else:
            ki, kj = W[2 * o + KEY + i], W[2 * o + KEY + j]
            li, lj = M[o + LEFT + i], M[o + LEFT + j]
            if ki < kj or (ki == kj and (li < lj or (li == lj and W[2 * o + SLOT + i] <= W[2 * o + SLOT + j]))):
                i += 1
            else:
                j += 1
    return i


@kernel
def cut_leaf(M: Any, W: Any, C: Any, o: int, m: int) -> tuple[int, int]:
    """Two new leaves: the first m entries of leaf o, and the rest."""
    n0, n1 = W[2 * o + 2], W[2 * o + 3]
    i = merged_prefix(M, W, o, m)
    j = m - i
    a = new_leaf(M, W, C, i, j)
    move_entries(M, W, o, 0, i, a, 0)
    move_entries(M, W, o, B - n1, B - n1 + j, a, B - j)
    b = new_leaf(M, W, C, n0 - i, n1 - j)
    move_entries(M, W, o, i, n0, b, 0)
    move_entries(M, W, o, B - n1 + j, B, b, B - n1 + j)
    return a, b


@kernel
def concatenate_leaves(M: Any, W: Any, C: Any, a: int, b: int) -> int:
    """A new leaf with the entries of a, then those of b (together at most B)."""
    a0, a1, b0, b1 = W[2 * a + 2], W[2 * a + 3], W[2 * b + 2], W[2 * b + 3]
    o = new_leaf(M, W, C, a0 + b0, a1 + b1)
    move_entries(M, W, a, 0, a0, o, 0)
    move_entries(M, W, b, 0, b0, o, a0)
    move_entries(M, W, a, B - a1, B, o, B - b1 - a1)
    move_entries(M, W, b, B - b1, B, o, B - b1)
    return o


@kernel
def even_leaves(M: Any, W: Any, C: Any, Q: Any, a: int, b: int) -> tuple[int, int]:
    """New leaves with the entries of a and b in two halves; a and b are dropped. Needs more than B together."""
    na = W[2 * a + 2] + W[2 * a + 3]
    nb = W[2 * b + 2] + W[2 * b + 3]
    half = (na + nb) // 2
    if na >= half:
        x, rest = cut_leaf(M, W, C, a, half)
        y = concatenate_leaves(M, W, C, rest, b)
    else:
        rest, y = cut_leaf(M, W, C, b, half - na)
        x = concatenate_leaves(M, W, C, a, rest)
    drop(M, C, Q, rest, LEAF)
    drop(M, C, Q, a, LEAF)
    drop(M, C, Q, b, LEAF)
    return x, y


@kernel
def put_in_leaf(M: Any, W: Any, o: int, s: int, key: int, left: int, right: int, slot: int) -> None:
    """Put the entry into leaf o, which has room and belongs to this version."""
    n0, n1 = W[2 * o + 2], W[2 * o + 3]
    w = 2 * o
    if s == 0:
        p = position(M, W, o, 0, n0, key, left, slot)
        for i in range(n0, p, -1):
            M[o + LEFT + i] = M[o + LEFT + i - 1]
            M[o + RIGHT + i] = M[o + RIGHT + i - 1]
            W[w + SLOT + i] = W[w + SLOT + i - 1]
            W[w + KEY + i] = W[w + KEY + i - 1]
        W[w + 2] = n0 + 1
    else:
        p = position(M, W, o, B - n1, B, key, left, slot) - 1
        for i in range(B - n1, p + 1):
            M[o + LEFT + i - 1] = M[o + LEFT + i]
            M[o + RIGHT + i - 1] = M[o + RIGHT + i]
            W[w + SLOT + i - 1] = W[w + SLOT + i]
            W[w + KEY + i - 1] = W[w + KEY + i]
        W[w + 3] = n1 + 1
    M[o + LEFT + p], M[o + RIGHT + p] = left, right
    W[w + SLOT + p], W[w + KEY + p] = slot, key


@kernel
def cut_from_leaf(M: Any, W: Any, o: int, s: int, p: int) -> None:
    """Take the entry at place p of set s out of leaf o, which belongs to this version."""
    w = 2 * o
    if s == 0:
        n0 = W[w + 2] - 1
        for i in range(p, n0):
            M[o + LEFT + i] = M[o + LEFT + i + 1]
            M[o + RIGHT + i] = M[o + RIGHT + i + 1]
            W[w + SLOT + i] = W[w + SLOT + i + 1]
            W[w + KEY + i] = W[w + KEY + i + 1]
        W[w + 2] = n0
    else:
        n1 = W[w + 3]
        for i in range(p, B - n1, -1):
            M[o + LEFT + i] = M[o + LEFT + i - 1]
            M[o + RIGHT + i] = M[o + RIGHT + i - 1]
            W[w + SLOT + i] = W[w + SLOT + i - 1]
            W[w + KEY + i] = W[w + KEY + i - 1]
        W[w + 3] = n1 - 1
