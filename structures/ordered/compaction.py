"""Compaction: blocks of the tree are copied out of chunks that should become empty (`core/blocks.py`), and thin leaves are refilled, inner
node by inner node in the tree's order, a few with each change. Between two steps only the place in that order is kept: so the tree may
change in any way.

Costs: a step O(F + log n) besides the copies, at most F leaves and a path.
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import FIRST_PLACE, HEIGHT, INNER, INNER_WORDS, LEAF, LEAF_WORDS, NEW, OLD, ROOT, SUM, B, F
from structures.core.blocks import Nodes, Writing, drop
from structures.core.compaction import earn, end_compaction, is_behind, may_compact
from structures.core.control import CREDIT, VERSION
from structures.core.kernel import kernel, wide
from structures.ordered.inner_nodes import moved_inner
from structures.ordered.layout import (
    CHILDREN,
    COUNTS,
    MOST_LEVELS,
    PATH_CHILD,
    PATH_NODE,
    REACHED_CODE,
    REACHED_KEY,
    REACHED_LEFT,
    child_of,
    entries_of,
    separator,
    set_child,
)
from structures.ordered.leaves import merged_prefix, move_entries, moved_leaf, new_leaf
from structures.ordered.summary import clear_child, leaf_summary, write_child
from structures.ordered.tree import LEAF_FILL, descend

STEP_WORDS = 2 * F * LEAF_WORDS + MOST_LEVELS * INNER_WORDS


@kernel
def go_on_after(nodes: Nodes, C: Any, o: int, c: int) -> None:
    """Let the next step begin at child c of inner node o."""
    C[REACHED_KEY], C[REACHED_LEFT], C[REACHED_CODE] = separator(nodes, o, c)


@kernel
def is_leaf_behind(nodes: Nodes, C: Any, o: int) -> bool:
    """Whether a leaf below inner node o lies in a chunk to be emptied."""
    W = nodes.W
    for c in range(W[2 * o + CHILDREN]):
        if is_behind(C, child_of(W, o, c), LEAF):
            return True
    return False


@kernel
def move_path(nodes: Nodes, writing: Writing) -> int:
    """Copy the nodes of the path in C[PATH:] that lie in chunks to be emptied; nodes above a copy belong to this version afterwards.
    Returns the path's last inner node."""
    M, W, C = nodes.M, nodes.W, writing.C
    above = 0
    for d in range(C[HEIGHT]):
        o = C[PATH_NODE + 2 * d]
        if M[o] != C[VERSION] or is_behind(C, o, INNER):
            o = moved_inner(nodes, writing, o)
            C[PATH_NODE + 2 * d] = o
            if d == 0:
                C[ROOT] = o
            else:
                set_child(W, above, C[PATH_CHILD + 2 * (d - 1)], o)
        above = o
    return above


@kernel
def move_leaves(nodes: Nodes, writing: Writing, o: int) -> None:
    """Copy the leaves below own inner node o that lie in chunks to be emptied."""
    W, C = nodes.W, writing.C
    for c in range(W[2 * o + CHILDREN]):
        leaf = child_of(W, o, c)
        if is_behind(C, leaf, LEAF):
            set_child(W, o, c, moved_leaf(nodes, writing, leaf))


@kernel
def entries_below(W: Any, o: int) -> int:
    """The number of entries below inner node o, whose children are leaves."""
    total = wide(0)
    for c in range(W[2 * o + CHILDREN]):
        leaf = child_of(W, o, c)
        total += entries_of(W, leaf)
    return total


@kernel
def written_leaf(nodes: Nodes, C: Any, n: int, low: int, high: int) -> int:
    """Write a leaf with entries number low to high - 1 of the n leaves at C[OLD:]."""
    W = nodes.W
    new = new_leaf(nodes, C, 0, 0)
    for copies in range(2):  # the number of entries of set 0 determines where those of set 1 begin
        at0, at1, start = wide(0), wide(B - W[2 * new + COUNTS + 1]), wide(0)
        for c in range(n):
            o = C[OLD + c]
            n0, n1 = wide(W[2 * o + COUNTS]), wide(W[2 * o + COUNTS + 1])
            p, q = max(low - start, 0), min(high - start, n0 + n1)
            if p < q:
                i, j = merged_prefix(nodes, o, p), merged_prefix(nodes, o, q)
                if copies == 1:
                    move_entries(nodes, o, i, j, new, at0)
                    move_entries(nodes, o, B - n1 + p - i, B - n1 + q - j, new, at1)
                at0 += j - i
                at1 += q - j - p + i
            start += n0 + n1
        W[2 * new + COUNTS], W[2 * new + COUNTS + 1] = at0, high - low - at0
    return new


@kernel
def fill_leaves(nodes: Nodes, writing: Writing, o: int, leaves: int) -> None:
    """Write the entries below own inner node o, which has more leaves, into `leaves` new ones. Its summary stays."""
    W, C = nodes.W, writing.C
    n, total = wide(W[2 * o + CHILDREN]), entries_below(W, o)
    for c in range(n):
        C[OLD + c] = child_of(W, o, c)
    for b in range(leaves):
        C[NEW + b] = written_leaf(nodes, C, n, total * b // leaves, total * (b + 1) // leaves)
    for c in range(n):
        if c < leaves:
            leaf_summary(nodes, C, C[NEW + c], SUM)
            write_child(nodes, C, o, c, C[NEW + c], SUM)
        else:
            clear_child(nodes, o, c)
        drop(nodes.M, writing, C[OLD + c], LEAF)
    W[2 * o + CHILDREN] = leaves


@kernel
def compact_next(nodes: Nodes, writing: Writing) -> tuple[int, bool]:
    """Process the next inner node above leaves, and the path to it. Returns the number of its leaves, and whether it was the last."""
    W, C = nodes.W, writing.C
    o, levels = descend(nodes, C, C[REACHED_KEY], C[REACHED_LEFT], C[REACHED_CODE]), C[HEIGHT]
    C[REACHED_KEY], C[REACHED_LEFT], C[REACHED_CODE] = FIRST_PLACE
    if levels == 0:
        if is_behind(C, o, LEAF):
            C[ROOT] = moved_leaf(nodes, writing, o)
        return 1, True
    parent = C[PATH_NODE + 2 * (levels - 1)]
    leaves = wide(W[2 * parent + CHILDREN])
    filled = max(2, -(-entries_below(W, parent) // LEAF_FILL))
    found = filled < leaves or is_leaf_behind(nodes, C, parent)
    for d in range(levels):
        found = found or is_behind(C, C[PATH_NODE + 2 * d], INNER)
    if found:
        parent = move_path(nodes, writing)
        if filled < leaves:
            fill_leaves(nodes, writing, parent, filled)
        else:
            move_leaves(nodes, writing, parent)
    for d in range(levels - 2, -1, -1):
        o, c = C[PATH_NODE + 2 * d], C[PATH_CHILD + 2 * d]
        if c + 1 < W[2 * o + CHILDREN]:
            go_on_after(nodes, C, o, c + 1)
            return leaves, False
    return leaves, True


@kernel("void(Nodes, Writing, int64, int64)")
def compact(nodes: Nodes, writing: Writing, leaves: int, spare: int) -> None:
    """Visit about `leaves` more leaves, writing as the current version; `spare`: words promised to other changes. O(B) a leaf, and O(log n)
    for the path to its neighbours."""
    C = writing.C
    if not earn(C, leaves):
        return
    while may_compact(C, STEP_WORDS + spare):
        looked, last = compact_next(nodes, writing)
        C[CREDIT] -= looked
        if last:
            end_compaction(C)
