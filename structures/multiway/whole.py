"""Operations on a whole tree: read all of its entries, drop all of its blocks. Costs: O(n), and O(blocks)."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import ROOT
from structures.core.blocks import Writing, drop
from structures.core.entries import Entries
from structures.core.kernel import kernel
from structures.multiway import layout
from structures.multiway.layout import MultiwayNodes, class_of, height_of, start_of
from structures.multiway.leaves import entry_at
from structures.multiway.topology import SETS
from structures.multiway.tree import make_empty


@kernel("void(MultiwayNodes, Writing, int64[::1])", allocates=True)
def clear(nodes: MultiwayNodes, writing: Writing, scratch: Any) -> None:
    """Delete all entries of the tree in C. O(blocks)."""
    M, W, table, C = nodes.M, nodes.W, nodes.table, writing.C
    stack = np.empty(2 * layout.MOST_LEVELS, np.int64)
    stack[0] = C[ROOT]
    n = 1
    while n > 0:
        n -= 1
        o = stack[n]
        if height_of(W, o) > 0:
            stack[n], stack[n + 1] = M[o + layout.CHILD], M[o + layout.CHILD + 1]
            n += 2
        drop(M, writing, o, class_of(W, o))
    for s in range(table[SETS]):
        C[layout.COUNTS + s] = 0
    make_empty(nodes, writing, scratch)


@kernel("void(MultiwayNodes, int64[::1], Entries)", allocates=True)
def read_all(nodes: MultiwayNodes, C: Any, into: Entries) -> None:
    """Copy the entries of the tree in C to `into`, which has room for exactly these, leaf by leaf in order. O(n)."""
    M, W, table = nodes.M, nodes.W, nodes.table
    stack = np.empty(2 * layout.MOST_LEVELS, np.int64)
    stack[0] = C[ROOT]
    n, at = 1, 0
    while n > 0:
        n -= 1
        o = stack[n]
        if height_of(W, o) > 0:
            stack[n], stack[n + 1] = M[o + layout.CHILD + 1], M[o + layout.CHILD]
            n += 2
            continue
        e, w = entry_at(table, o)
        for s in range(table[SETS]):
            for p in range(start_of(W, o, s), start_of(W, o, s + 1)):
                into.set[at], into.key[at], into.slot[at] = s, W[w + layout.L + p], W[w + p]
                into.left[at], into.right[at] = M[e + p], M[e + layout.L + p]
                at += 1
