"""Leaves: find an entry; insert, delete and move entries (layout: `layout.py`).

Writers own the leaves they change: they were made by the version being written. Costs: O(log B) to find, O(B) to move.
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import LEAF, LEAF_WORDS, B
from structures.core.blocks import Nodes, Writing, allocate, close_place, drop, moved, open_place
from structures.core.control import VERSION
from structures.core.kernel import kernel
from structures.ordered.layout import COUNTS, KEY, LEFT, RIGHT, SLOT, entries_of, run_of


@kernel
def position(nodes: Nodes, o: int, lo: int, hi: int, key: int, left: int, slot: int) -> int:
    """The first place in [lo, hi) of leaf o whose (key, left, slot) is >= the given one."""
    M, W = nodes.M, nodes.W
    while lo < hi:
        mid = (lo + hi) // 2
        k, v = W[2 * o + KEY + mid], M[o + LEFT + mid]
        if k < key or (k == key and (v < left or (v == left and W[2 * o + SLOT + mid] < slot))):
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def place(nodes: Nodes, o: int, s: int, key: int, left: int, slot: int) -> tuple[int, int]:
    """(place, end) of the entry in leaf o; place == end if it is not there."""
    M, W = nodes.M, nodes.W
    lo, end = run_of(W, o, s)
    p = position(nodes, o, lo, end, key, left, slot)
    if p < end and W[2 * o + KEY + p] == key and M[o + LEFT + p] == left and W[2 * o + SLOT + p] == slot:
        return p, end
    return end, end


@kernel
def move_entries(nodes: Nodes, source: int, lo: int, hi: int, target: int, at: int) -> None:
    """Copy entries [lo, hi) of one leaf to place `at` of another."""
    M, W = nodes.M, nodes.W
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
def new_leaf(nodes: Nodes, C: Any, n0: int, n1: int) -> int:
    W = nodes.W
    o = allocate(nodes.M, C, LEAF)
    W[2 * o + COUNTS], W[2 * o + COUNTS + 1] = n0, n1
    return o


@kernel
def own_leaf(nodes: Nodes, writing: Writing, o: int) -> int:
    """The leaf itself if this version wrote it, otherwise a copy that replaces it."""
    return o if nodes.M[o] == writing.C[VERSION] else moved_leaf(nodes, writing, o)


@kernel
def moved_leaf(nodes: Nodes, writing: Writing, o: int) -> int:
    """A copy that replaces the leaf."""
    return moved(nodes.M, writing, o, LEAF, LEAF_WORDS)


@kernel
def merged_prefix(nodes: Nodes, o: int, m: int) -> int:
    """The number of entries of set 0 among the first m entries of leaf o, both sets in order."""
    M, W = nodes.M, nodes.W
    n0, n1 = W[2 * o + COUNTS], W[2 * o + COUNTS + 1]
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
def cut_leaf(nodes: Nodes, C: Any, o: int, m: int) -> tuple[int, int]:
    """Two new leaves: the first m entries of leaf o, and the rest."""
    W = nodes.W
    n0, n1 = W[2 * o + COUNTS], W[2 * o + COUNTS + 1]
    i = merged_prefix(nodes, o, m)
    j = m - i
    a = new_leaf(nodes, C, i, j)
    move_entries(nodes, o, 0, i, a, 0)
    move_entries(nodes, o, B - n1, B - n1 + j, a, B - j)
    b = new_leaf(nodes, C, n0 - i, n1 - j)
    move_entries(nodes, o, i, n0, b, 0)
    move_entries(nodes, o, B - n1 + j, B, b, B - n1 + j)
    return a, b


@kernel
def concatenate_leaves(nodes: Nodes, C: Any, a: int, b: int) -> int:
    """A new leaf with the entries of a, then those of b (together at most B)."""
    W = nodes.W
    a0, a1, b0, b1 = W[2 * a + COUNTS], W[2 * a + COUNTS + 1], W[2 * b + COUNTS], W[2 * b + COUNTS + 1]
    o = new_leaf(nodes, C, a0 + b0, a1 + b1)
    move_entries(nodes, a, 0, a0, o, 0)
    move_entries(nodes, b, 0, b0, o, a0)
    move_entries(nodes, a, B - a1, B, o, B - b1 - a1)
    move_entries(nodes, b, B - b1, B, o, B - b1)
    return o


@kernel
def even_leaves(nodes: Nodes, writing: Writing, a: int, b: int) -> tuple[int, int]:
    """New leaves with the entries of a and b in two halves; a and b are dropped. Needs more than B together."""
    W, C = nodes.W, writing.C
    na = entries_of(W, a)
    nb = entries_of(W, b)
    half = (na + nb) // 2
    if na >= half:
        x, rest = cut_leaf(nodes, C, a, half)
        y = concatenate_leaves(nodes, C, rest, b)
    else:
        rest, y = cut_leaf(nodes, C, b, half - na)
        x = concatenate_leaves(nodes, C, a, rest)
    drop(nodes.M, writing, rest, LEAF)
    drop(nodes.M, writing, a, LEAF)
    drop(nodes.M, writing, b, LEAF)
    return x, y


@kernel
def open_places(nodes: Nodes, o: int, at: int, end: int) -> None:
    """Move the entries at places [at, end) of leaf o one to the right."""
    M, W = nodes.M, nodes.W
    open_place(M, o + LEFT + at, o + LEFT + end)
    open_place(M, o + RIGHT + at, o + RIGHT + end)
    open_place(W, 2 * o + SLOT + at, 2 * o + SLOT + end)
    open_place(W, 2 * o + KEY + at, 2 * o + KEY + end)


@kernel
def close_places(nodes: Nodes, o: int, at: int, end: int) -> None:
    """Move the entries at places [at + 1, end) of leaf o one to the left."""
    M, W = nodes.M, nodes.W
    close_place(M, o + LEFT + at, o + LEFT + end)
    close_place(M, o + RIGHT + at, o + RIGHT + end)
    close_place(W, 2 * o + SLOT + at, 2 * o + SLOT + end)
    close_place(W, 2 * o + KEY + at, 2 * o + KEY + end)


@kernel
def put_in_leaf(nodes: Nodes, o: int, s: int, key: int, left: int, right: int, slot: int) -> None:
    """Insert the entry into leaf o, which has room and belongs to this version."""
    M, W = nodes.M, nodes.W
    n0, n1 = W[2 * o + COUNTS], W[2 * o + COUNTS + 1]
    w = 2 * o
    if s == 0:
        p = position(nodes, o, 0, n0, key, left, slot)
        open_places(nodes, o, p, n0)
        W[w + COUNTS] = n0 + 1
    else:
        p = position(nodes, o, B - n1, B, key, left, slot) - 1
        close_places(nodes, o, B - n1 - 1, p + 1)
        W[w + COUNTS + 1] = n1 + 1
    M[o + LEFT + p], M[o + RIGHT + p] = left, right
    W[w + SLOT + p], W[w + KEY + p] = slot, key


@kernel
def cut_from_leaf(nodes: Nodes, o: int, s: int, p: int) -> None:
    """Delete the entry at place p of set s from leaf o, which belongs to this version."""
    W, w = nodes.W, 2 * o
    if s == 0:
        n0 = W[w + COUNTS] - 1
        close_places(nodes, o, p, n0 + 1)
        W[w + COUNTS] = n0
    else:
        n1 = W[w + COUNTS + 1]
        open_places(nodes, o, B - n1, p)
        W[w + COUNTS + 1] = n1 - 1
