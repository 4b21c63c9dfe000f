"""Compaction of ordered indexes: blocks are moved out of chunks that should become empty (`core/blocks.py`), and thin leaves are refilled.

A view tree keeps the roots of the indexes that it reads, and learns of new ones from their changes. So the only blocks that are moved are
children of those that a change has written anyway: the neighbours of its path.

Costs: O(room log n) a change while a store is sparse, besides the copies.
"""

from __future__ import annotations

from typing import Any

from structures.core.blocks import Nodes, Writing
from structures.core.compaction import has_looked_at, is_behind
from structures.core.control import SPARSE
from structures.core.kernel import kernel, wide
from structures.index import layout
from structures.index.changes import LEAF_FILL, climb, descend
from structures.index.layout import child_of, count_of, drop_block, move, moved_block, new_block, set_child, set_separator, size_of, tree_at

STEP_BLOCKS = 64 * 24  # most blocks copied: all children of a path of 64 blocks


@kernel
def has_spare_room(C: Any) -> bool:
    """Whether the store should be compacted beside changes, and has room for that."""
    return C[SPARSE] != 0 and C[layout.ROOMY] != 0


@kernel
def move_children(nodes: Nodes, writing: Writing, h: int, d: int) -> None:
    """Move those children of the path's own block number d that lie in chunks to be emptied."""
    W, C = nodes.W, writing.C
    o, arity = C[layout.PATH_NODE + 2 * d], C[h + layout.ARITY]
    for c in range(count_of(W, o)):
        child = child_of(W, arity, o, c)
        if is_behind(C, child, 0):
            child = moved_block(nodes, writing, child)
            set_child(W, arity, o, c, child)
            if c == C[layout.PATH_CHILD + 2 * d]:
                C[layout.PATH_NODE + 2 * (d + 1)] = child


@kernel
def fill_leaves(nodes: Nodes, writing: Writing, h: int, o: int, leaves: int) -> None:
    """Write the entries below own inner node o, whose children are leaves, into `leaves` new ones."""
    W, C = nodes.W, writing.C
    arity, n = C[h + layout.ARITY], count_of(W, o)
    total = size_of(W, arity, o)
    for c in range(n):
        C[layout.OLD + c] = child_of(W, arity, o, c)
    c, i = wide(0), wide(0)
    for b in range(leaves):
        need, filled = total * (b + 1) // leaves - total * b // leaves, wide(0)
        new = new_block(nodes, C, h, 0)
        while filled < need:
            some = min(count_of(W, C[layout.OLD + c]) - i, need - filled)
            move(nodes, arity, C[layout.OLD + c], i, i + some, new, filled)
            filled += some
            i += some
            if i == count_of(W, C[layout.OLD + c]):
                c, i = c + 1, wide(0)
        W[2 * new + layout.COUNT] = need
        C[layout.NEW + b] = new
    for b in range(leaves):
        if b > 0:
            set_separator(nodes, arity, o, b, C[layout.NEW + b], 0)
        set_child(W, arity, o, b, C[layout.NEW + b])
    W[2 * o + layout.COUNT] = leaves
    for c in range(n):
        drop_block(nodes, writing, h, C[layout.OLD + c])


@kernel
def compact_beside(nodes: Nodes, writing: Writing, h: int, coordinates: Any, start: int, slot: int) -> None:
    """Move and refill blocks beside the path to an entry that was inserted or deleted."""
    W, C = nodes.W, writing.C
    arity = C[h + layout.ARITY]
    descend(nodes, C, h, coordinates, start, slot)
    for d in range(C[layout.DEPTH]):
        move_children(nodes, writing, h, d)
    if C[layout.DEPTH] > 0:
        o = C[layout.PATH_NODE + 2 * (C[layout.DEPTH] - 1)]
        has_looked_at(C, count_of(W, o))
        leaves = -(-size_of(W, arity, o) // LEAF_FILL[arity])
        if leaves + leaves // 8 < count_of(W, o):
            fill_leaves(nodes, writing, h, o, leaves)
            C[layout.DEPTH] -= 1
            climb(tree_at(nodes, writing, h), o, 0, False)
