"""Operations on a whole tree: read all of its entries, drop all of its blocks. Costs: O(n), and O(blocks)."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import HEIGHT, INNER, LEAF, ROOT, F
from structures.core.blocks import Nodes, WriteState, drop
from structures.core.entries import Entries
from structures.core.kernel import kernel
from structures.ordered.layout import CHILDREN, KEY, LEFT, MOST_LEVELS, RIGHT, SLOT, child_of, run_of
from structures.ordered.scan import SCAN_WORDS, next_leaf, scan_start

_DEEPEST = MOST_LEVELS * F  # most blocks that wait in a walk through a tree: a node's children, on each level


@kernel(allocates=True)
def drop_flat(nodes: Nodes, writing: WriteState, root: int, height: int) -> None:
    """Drop the blocks of a tree."""
    W = nodes.W
    stack = np.empty((_DEEPEST, 2), np.int64)
    stack[0, 0], stack[0, 1] = root, height
    n = 1
    while n > 0:
        n -= 1
        o, h = stack[n, 0], stack[n, 1]
        if h == 0:
            drop(nodes.M, writing, o, LEAF)
            continue
        for c in range(W[2 * o + CHILDREN]):
            stack[n, 0], stack[n, 1] = child_of(W, o, c), h - 1
            n += 1
        drop(nodes.M, writing, o, INNER)


@kernel
def read_leaf(nodes: Nodes, o: int, into: Entries, at: int) -> int:
    """Copy the entries of leaf o to `into`, from place `at` on. Returns the place after them."""
    M, W = nodes.M, nodes.W
    for s in range(2):
        lo, hi = run_of(W, o, s)
        for i in range(lo, hi):
            into.set[at], into.key[at], into.slot[at] = s, W[2 * o + KEY + i], W[2 * o + SLOT + i]
            into.left[at], into.right[at] = M[o + LEFT + i], M[o + RIGHT + i]
            at += 1
    return at


@kernel("void(Nodes, int64[::1], Entries)", allocates=True)
def read_all(nodes: Nodes, C: Any, into: Entries) -> None:
    """Copy the entries of the tree in C to `into`, which has room for exactly these, leaf by leaf in order. O(n)."""
    state, at = np.empty(SCAN_WORDS, np.int64), 0
    scan_start(state, C[ROOT])
    o = next_leaf(nodes.W, state, C[HEIGHT])
    while o != 0:
        at = read_leaf(nodes, o, into, at)
        o = next_leaf(nodes.W, state, C[HEIGHT])
