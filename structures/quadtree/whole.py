"""A whole quadtree: all of its entries are taken out."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.blocks import WriteState
from structures.core.kernel import kernel, wide
from structures.quadtree import layout
from structures.quadtree.layout import QuadNodes, QuadtreeShape, drop_block, level_below, top_level
from structures.quadtree.search import child_of, copy_leaf, ends_at


@kernel("void(QuadNodes, WriteState, int64, int32[::1])", allocates=True)
def take_entries(nodes: QuadNodes, writing: WriteState, t: int, entries: Any) -> None:
    """Copy all entries of tree t to `entries`, which has room for exactly these, and drop its live blocks. The caller empties the tree.
    O(n)."""
    W, C, h, e, n = nodes.W, writing.C, layout.TREE + layout.TREE_WORDS * t, 0, 0
    k, f, base, root = C[h + layout.ARITY], C[h + layout.FIRST], C[h + layout.BASE], C[h + layout.ROOT]
    todo = np.empty(((layout.LEVELS + 1) << k, 2), np.int64)
    S = np.empty(k * layout.LEAF + 16, np.int32)
    if root != 0:
        todo[0, 0], todo[0, 1], n = root, top_level(C, h), 1
    while n > 0:
        n -= 1
        o, level = todo[n, 0], todo[n, 1]
        if ends_at(W, o):
            for i in range(copy_leaf(nodes, base, o, QuadtreeShape(k, f), level, 0, S, 0)):
                for j in range(k + 1):
                    entries[e + j] = S[j * layout.LEAF + i]
                e += k + 1
        else:
            for c in range(1 << k):
                child = wide(child_of(nodes, base, o, k, c))
                if child != 0:
                    todo[n, 0], todo[n, 1] = child, level_below(level, C[h + layout.BITS])
                    n += 1
        if o > 0:
            drop_block(nodes, writing, o, k)
