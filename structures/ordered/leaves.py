"""Leaves: find an entry; insert, delete and move entries (layout: `layout.py`).

Writers own the leaves they change: they were made by the version being written. Costs: O(log B) to find, O(B) to move.
"""

from __future__ import annotations

from typing import Any

from structures.btree.nodes import Kind
from structures.core.arena import LEAF, LEAF_LEAST, LEAF_WORDS, B
from structures.core.bits import move_words
from structures.core.blocks import Nodes, WriteState, allocate, close_position, drop, moved, open_position
from structures.core.control import VERSION
from structures.core.kernel import kernel, wide
from structures.ordered.layout import COUNTS, KEY, LEFT, RIGHT, SLOT, OrderedTree, entries_of, run_of


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
def find_entry(nodes: Nodes, o: int, s: int, key: int, left: int, slot: int) -> tuple[int, int]:
    """(place, end) of the entry in leaf o; place == end if it is not there."""
    M, W = nodes.M, nodes.W
    lo, end = run_of(W, o, s)
    p = position(nodes, o, lo, end, key, left, slot)
    if p < end and W[2 * o + KEY + p] == key and M[o + LEFT + p] == left and W[2 * o + SLOT + p] == slot:
        return p, end
    return end, end


@kernel
def move_entries(nodes: Nodes, source: int, lo: int, hi: int, target: int, at: int) -> None:
    """Copy entries [lo, hi) of one leaf to place `at` of another, or of itself."""
    M, W, n = nodes.M, nodes.W, hi - lo
    move_words(M, source + LEFT + lo, target + LEFT + at, n)
    move_words(M, source + RIGHT + lo, target + RIGHT + at, n)
    move_words(W, 2 * source + SLOT + lo, 2 * target + SLOT + at, n)
    move_words(W, 2 * source + KEY + lo, 2 * target + KEY + at, n)


@kernel
def new_leaf(nodes: Nodes, C: Any, n0: int, n1: int) -> int:
    W = nodes.W
    o = allocate(nodes.M, C, LEAF)
    W[2 * o + COUNTS], W[2 * o + COUNTS + 1] = n0, n1
    return o


@kernel
def own_leaf(nodes: Nodes, writing: WriteState, o: int) -> int:
    """The leaf itself if this version wrote it, otherwise a copy that replaces it."""
    return o if nodes.M[o] == writing.C[VERSION] else moved(nodes.M, writing, o, LEAF, LEAF_WORDS)


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
def entries_before(nodes: Nodes, o: int, s: int, key: int, left: int, slot: int) -> int:
    """The number of entries of leaf o, of both sets, before this one of set s."""
    lo, hi = run_of(nodes.W, o, s)
    low, high = run_of(nodes.W, o, 1 - s)
    return position(nodes, o, lo, hi, key, left, slot) - lo + position(nodes, o, low, high, key, left, slot + s) - low


@kernel
def counts_of(W: Any, o: int) -> tuple[int, int]:
    """The number of entries of each set in leaf o."""
    return wide(W[2 * o + COUNTS]), wide(W[2 * o + COUNTS + 1])


@kernel
def entries_to_left(tree: OrderedTree, o: int, other: int, m: int) -> None:
    """Append the first m entries of leaf `other`, which follows leaf o, to those of o."""
    nodes, W = tree.nodes, tree.nodes.W
    n0, n1 = counts_of(W, o)
    its0, its1 = counts_of(W, other)
    m0 = merged_prefix(nodes, other, m)
    m1 = m - m0
    move_entries(nodes, other, 0, m0, o, n0)
    move_entries(nodes, o, B - n1, B, o, B - n1 - m1)
    move_entries(nodes, other, B - its1, B - its1 + m1, o, B - m1)
    move_entries(nodes, other, m0, its0, other, 0)
    W[2 * o + COUNTS], W[2 * o + COUNTS + 1] = n0 + m0, n1 + m1
    W[2 * other + COUNTS], W[2 * other + COUNTS + 1] = its0 - m0, its1 - m1


@kernel
def entries_to_right(tree: OrderedTree, o: int, other: int, m: int) -> None:
    """Move the last m entries of leaf o before those of leaf `other`, which follows it."""
    nodes, W = tree.nodes, tree.nodes.W
    n0, n1 = counts_of(W, o)
    its0, its1 = counts_of(W, other)
    stay0 = merged_prefix(nodes, o, n0 + n1 - m)
    stay1 = n0 + n1 - m - stay0
    m0, m1 = n0 - stay0, n1 - stay1
    move_entries(nodes, other, 0, its0, other, m0)
    move_entries(nodes, o, stay0, n0, other, 0)
    move_entries(nodes, o, B - m1, B, other, B - its1 - m1)
    move_entries(nodes, o, B - n1, B - m1, o, B - stay1)
    W[2 * o + COUNTS], W[2 * o + COUNTS + 1] = stay0, stay1
    W[2 * other + COUNTS], W[2 * other + COUNTS + 1] = its0 + m0, its1 + m1


LEAF_KIND = Kind(
    kernel(lambda tree, o: new_leaf(tree.nodes, tree.writing.C, 0, 0)),
    kernel(lambda tree, o: drop(tree.nodes.M, tree.writing, o, LEAF)),
    kernel(lambda tree, o: entries_of(tree.nodes.W, o)),
    kernel(lambda tree: B),
    kernel(lambda tree: LEAF_LEAST),
    entries_to_left,
    entries_to_right,
)


@kernel
def open_positions(nodes: Nodes, o: int, at: int, end: int) -> None:
    """Move the entries at places [at, end) of leaf o one to the right."""
    M, W = nodes.M, nodes.W
    open_position(M, o + LEFT + at, o + LEFT + end)
    open_position(M, o + RIGHT + at, o + RIGHT + end)
    open_position(W, 2 * o + SLOT + at, 2 * o + SLOT + end)
    open_position(W, 2 * o + KEY + at, 2 * o + KEY + end)


@kernel
def close_positions(nodes: Nodes, o: int, at: int, end: int) -> None:
    """Move the entries at places [at + 1, end) of leaf o one to the left."""
    M, W = nodes.M, nodes.W
    close_position(M, o + LEFT + at, o + LEFT + end)
    close_position(M, o + RIGHT + at, o + RIGHT + end)
    close_position(W, 2 * o + SLOT + at, 2 * o + SLOT + end)
    close_position(W, 2 * o + KEY + at, 2 * o + KEY + end)


@kernel
def put_in_leaf(nodes: Nodes, o: int, s: int, key: int, left: int, right: int, slot: int) -> None:
    """Insert the entry into leaf o, which has room and belongs to this version."""
    M, W = nodes.M, nodes.W
    n0, n1 = W[2 * o + COUNTS], W[2 * o + COUNTS + 1]
    w = 2 * o
    if s == 0:
        p = position(nodes, o, 0, n0, key, left, slot)
        open_positions(nodes, o, p, n0)
        W[w + COUNTS] = n0 + 1
    else:
        p = position(nodes, o, B - n1, B, key, left, slot) - 1
        close_positions(nodes, o, B - n1 - 1, p + 1)
        W[w + COUNTS + 1] = n1 + 1
    M[o + LEFT + p], M[o + RIGHT + p] = left, right
    W[w + SLOT + p], W[w + KEY + p] = slot, key


@kernel
def cut_from_leaf(nodes: Nodes, o: int, s: int, p: int) -> None:
    """Delete the entry at place p of set s from leaf o, which belongs to this version."""
    W, w = nodes.W, 2 * o
    if s == 0:
        n0 = W[w + COUNTS] - 1
        close_positions(nodes, o, p, n0 + 1)
        W[w + COUNTS] = n0
    else:
        n1 = W[w + COUNTS + 1]
        open_positions(nodes, o, B - n1, p)
        W[w + COUNTS + 1] = n1 - 1
