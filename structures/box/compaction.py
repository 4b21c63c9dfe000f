"""Compaction of box trees: blocks next to the nodes that a change has written are moved out of chunks that should become empty
(`core/blocks.py`): children, records, roots of trees; and, in a 1-D tree that a change has written, a path and its leaves.

Costs: O(1) for each changed node while the store is sparse, besides the copies.
"""

from __future__ import annotations

from typing import Any

from structures.box import layout
from structures.box.layout import (
    MOST_DIMENSIONS,
    NODE_WORDS,
    ROOM,
    SPARE,
    TAG,
    child_of,
    holder,
    moved_node,
    moved_records,
    records_of,
    root_of,
    set_child,
    set_records,
    set_root,
)
from structures.core.arena import AFTER, INNER, INNER_WORDS, LEAF, LEAF_WORDS
from structures.core.blocks import Nodes, Writing
from structures.core.compaction import has_looked_at, is_behind
from structures.core.control import SPARSE, VERSION, room
from structures.core.kernel import kernel
from structures.ordered.compaction import STEP_WORDS, compact_next
from structures.ordered.inner_nodes import moved_inner
from structures.ordered.leaves import moved_leaf

# Most words of what lies beside a node (two roots, two children or its records), or of a path of a 1-D tree with the leaves at its end, and
# of what the rest of the change takes.
_ROOM = SPARE + max(2 * (LEAF_WORDS + INNER_WORDS + NODE_WORDS) + TAG + (1 + 2 * MOST_DIMENSIONS) * ROOM, STEP_WORDS)


@kernel
def has_spare_room(C: Any) -> bool:
    """Whether the store should be compacted, and has room for that."""
    return C[SPARSE] != 0 and room(C) >= _ROOM


@kernel
def move_roots(nodes: Nodes, writing: Writing, level: int, o: int) -> None:
    """Move the roots of the trees of own node o."""
    W, C = nodes.W, writing.C
    for i in range(2):
        h = holder(o, i)
        root = root_of(W, h)
        if W[h + layout.STATE] & layout.ACTIVE == 0 or nodes.M[root] == C[VERSION]:
            continue
        if level + 2 < C[layout.DIMENSIONS]:
            if is_behind(C, root, layout.NODE):
                set_root(W, h, moved_node(nodes, writing, root))
        elif W[h + layout.HEIGHT_] == 0:
            if is_behind(C, root, LEAF):
                set_root(W, h, moved_leaf(nodes, writing, root))
        elif is_behind(C, root, INNER):
            set_root(W, h, moved_inner(nodes, writing, root))


@kernel
def move_below(nodes: Nodes, writing: Writing, level: int, o: int) -> None:
    """Move what hangs on own node o of a tree of the level, except blocks that this version has written."""
    M, W, C = nodes.M, nodes.W, writing.C
    move_roots(nodes, writing, level, o)
    if W[2 * o + layout.FLAGS] & layout.LEAF_NODE != 0:
        r = records_of(W, o)
        if is_behind(C, r, layout.RECORD_LEVELS + level):
            set_records(W, o, moved_records(nodes, writing, level, r))
        return
    for c in range(2):
        child = child_of(W, o, c)
        if M[child] != C[VERSION] and is_behind(C, child, layout.NODE):
            set_child(W, o, c, moved_node(nodes, writing, child))


@kernel
def compact_beside(nodes: Nodes, writing: Writing, level: int, changed: Any) -> None:
    """Compact beside these own nodes of a tree of the level."""
    for o in changed:
        if not has_spare_room(writing.C):
            break
        move_below(nodes, writing, level, o)
    has_looked_at(writing.C, len(changed))


@kernel
def compact_flat(nodes: Nodes, writing: Writing, left: int, code: int) -> None:
    """Compact beside the path to an entry in the 1-D tree that is being changed."""
    C = writing.C
    C[AFTER], C[AFTER + 1], C[AFTER + 2] = 0, left, code
    leaves, _ = compact_next(nodes, writing)
    has_looked_at(C, leaves)
