"""Several changes of one leaf at once, or several searches in it: its summary is computed once, and so are those of the nodes above it,
each when the changes leave the node. The path to the next leaf begins at the lowest node that is above both. So a build follows what was
written meanwhile two to three times as fast.

Changes, or searches, in the order of the tree share leaves if they are about as many as its leaves, or more (`are_dense`). Then

    opened = CLOSED                                                 opened = CLOSED
    for each change: opened, _ = change_near(..., opened, ...)      for each search: opened, n = search_near(..., opened, ...)
    close_leaf(nodes, writing, opened)

While a leaf is open, the tree must not be changed otherwise; while it is open for changes, it must not be read either. Invariants then:

    I1  C[PATH:] has the path to the leaf; all nodes on it belong to this version, and so does the leaf
    I2  each node stores the summaries of its children, except those of the open leaf and of each node of the path whose bit is set in
        `stale` (bit d: the node at depth d; for the root, bit 0, it is C[LIVE]): these are the former ones

Costs: O(B) to open and close a leaf, O(F + log n) for each node on the way from one to the next, O(B) a change, or a search of one leaf,
in between; others as `search_fill`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from structures.core.arena import COUNT, HEIGHT, INNER_WORDS, KEY_MAX, LEAF_LEAST, LEAF_WORDS, LIVE, ROOT, SUM, B
from structures.core.blocks import Nodes, WriteState
from structures.core.encoding import NEG_INF
from structures.core.entries import Entry
from structures.core.kernel import kernel
from structures.ordered.inner_nodes import own_inner
from structures.ordered.layout import (
    CHILDREN,
    LIVE_,
    PATH_CHILD,
    PATH_NODE,
    OrderedTree,
    TreePosition,
    child_of,
    entries_of,
    is_before,
    separator,
    set_child,
)
from structures.ordered.leaves import cut_from_leaf, find_entry, own_leaf, put_in_leaf
from structures.ordered.search import DEPTH, EVERY_CODE, KEY_, MOST, STEPS, search_fill, search_leaf
from structures.ordered.summary import inner_summary, leaf_summary, write_child
from structures.ordered.tree import climb, descend_from, expect_block, find_child, put


class OpenLeaf(NamedTuple):
    """The leaf, or 0 if none is open; entries from `first` on and before `end` belong to it. stale: see I2."""

    leaf: int
    first: TreePosition
    end: TreePosition
    stale: int


CLOSED = OpenLeaf(0, TreePosition(0, 0, 0), TreePosition(0, 0, 0), 0)


@kernel
def are_dense(changes: int, entries: int) -> bool:
    """Whether so many changes or searches, spread over all leaves of a tree, are about one for each leaf, or more. Fewer changes take less
    time one by one, with the path to each prefetched."""
    return 2 * changes * B > 3 * entries


@kernel(forceinline=True)
def is_within(first: TreePosition, at: TreePosition, end: TreePosition) -> bool:
    return not is_before(at, first) and is_before(at, end)


@kernel
def bounds_of(nodes: Nodes, C: Any, depth: int) -> tuple[TreePosition, TreePosition]:
    """Where the entries below the node or leaf at this depth of the path begin, and where they end."""
    first, end = TreePosition(-1, NEG_INF, -1), TreePosition(KEY_MAX, NEG_INF, -1)
    has_first, has_end = False, False
    for d in range(depth - 1, -1, -1):
        above, c = C[PATH_NODE + 2 * d], C[PATH_CHILD + 2 * d]
        if not has_first and c > 0:
            first, has_first = separator(nodes, above, c), True
        if not has_end and c + 1 < nodes.W[2 * above + CHILDREN]:
            end, has_end = separator(nodes, above, c + 1), True
        if has_first and has_end:
            break
    return first, end


# --- the way up


@kernel
def update_above(nodes: Nodes, C: Any, depth: int, child: int, stale: int) -> int:
    """Have the node above the one at this depth, `child`, store its summary, which is at C[SUM]. Returns `stale`."""
    changed = write_child(nodes, C, C[PATH_NODE + 2 * depth - 2], C[PATH_CHILD + 2 * depth - 2], child, SUM)
    return stale | (1 << (depth - 1)) if changed else stale


@kernel
def leave(nodes: Nodes, C: Any, depth: int, stale: int) -> int:
    """Complete the node at this depth, which is not the root. Returns `stale`."""
    if stale >> depth & 1 == 0:
        return stale
    o = C[PATH_NODE + 2 * depth]
    inner_summary(nodes, C, o, SUM)
    return update_above(nodes, C, depth, o, stale & ~(1 << depth))


@kernel
def leave_all(nodes: Nodes, C: Any, stale: int) -> None:
    """Complete all nodes on the path."""
    for d in range(C[HEIGHT] - 1, 0, -1):
        stale = leave(nodes, C, d, stale)
    if stale != 0:
        inner_summary(nodes, C, C[ROOT], SUM)
        C[LIVE] = C[SUM + LIVE_]


@kernel
def close_leaf(nodes: Nodes, writing: WriteState, opened: OpenLeaf) -> None:
    """Make the tree complete again."""
    C, o = writing.C, opened.leaf
    if o == 0:
        return
    if has_to_climb(nodes, C, o):
        leave_all(nodes, C, opened.stale)  # `climb` ends where a summary is unchanged
        leaf_summary(nodes, C, o, SUM)
        climb(OrderedTree(nodes, writing), o, 0, True)
    else:
        leave_all(nodes, C, leave_leaf(nodes, C, opened))


@kernel(forceinline=True)
def has_to_climb(nodes: Nodes, C: Any, o: int) -> bool:
    """Whether an open leaf is the root, or so small that the nodes above it change."""
    return C[HEIGHT] == 0 or entries_of(nodes.W, o) < LEAF_LEAST


@kernel
def leave_leaf(nodes: Nodes, C: Any, opened: OpenLeaf) -> int:
    """Complete the open leaf, which is not the root. Returns `stale`."""
    leaf_summary(nodes, C, opened.leaf, SUM)
    return update_above(nodes, C, C[HEIGHT], opened.leaf, opened.stale)


@kernel
def leave_for(nodes: Nodes, writing: WriteState, opened: OpenLeaf, at: TreePosition) -> tuple[int, int]:
    """Complete the open leaf and the nodes above it up to the lowest one below which an entry at this place belongs. Returns its depth, and
    `stale`."""
    C = writing.C
    if opened.leaf == 0 or has_to_climb(nodes, C, opened.leaf):
        close_leaf(nodes, writing, opened)
        C[ROOT] = C[PATH_NODE] = own_inner(nodes, writing, C[ROOT]) if C[HEIGHT] > 0 else own_leaf(nodes, writing, C[ROOT])
        return 0, 0
    stale = leave_leaf(nodes, C, opened)
    depth = lowest_above(nodes, C, at)
    for d in range(C[HEIGHT] - 1, depth, -1):
        stale = leave(nodes, C, d, stale)
    return depth, stale


@kernel
def lowest_above(nodes: Nodes, C: Any, at: TreePosition) -> int:
    """The depth of the lowest node on the path, above its leaf, below which an entry at this place belongs."""
    for depth in range(C[HEIGHT] - 1, 0, -1):
        first, end = bounds_of(nodes, C, depth)
        if is_within(first, at, end):
            return depth
    return 0


# --- the way down


@kernel
def own_child(nodes: Nodes, writing: WriteState, o: int, c: int, is_leaf: bool) -> int:
    """Have this version own child c of its node o. Returns the child."""
    former = child_of(nodes.W, o, c)
    child = own_leaf(nodes, writing, former) if is_leaf else own_inner(nodes, writing, former)
    if child != former:
        set_child(nodes.W, o, c, child)
    return child


@kernel
def open_leaf(nodes: Nodes, writing: WriteState, opened: OpenLeaf, at: TreePosition) -> OpenLeaf:
    """Open the leaf to which an entry at this place belongs for changes, in the place of another or none."""
    C = writing.C
    depth, stale = leave_for(nodes, writing, opened, at)
    o = C[PATH_NODE + 2 * depth]
    for d in range(depth, C[HEIGHT]):
        c = find_child(nodes, o, at.key, at.left, at.code)
        C[PATH_NODE + 2 * d], C[PATH_CHILD + 2 * d] = o, c
        o = own_child(nodes, writing, o, c, d + 1 == C[HEIGHT])
    return opened_at(nodes, C, o, stale)


@kernel
def opened_at(nodes: Nodes, C: Any, o: int, stale: int) -> OpenLeaf:
    """Leaf o, at the end of the path. Prefetches the next leaf, and the node above the one after it if that is another node."""
    M, W, d = nodes.M, nodes.W, C[HEIGHT] - 1
    first, end = bounds_of(nodes, C, C[HEIGHT])
    if d >= 0:
        above, c = C[PATH_NODE + 2 * d], C[PATH_CHILD + 2 * d] + 1
        left = W[2 * above + CHILDREN] - c
        if left > 0:
            expect_block(M, child_of(W, above, c), LEAF_WORDS)
        if left < 2 and d > 0:
            above, c = C[PATH_NODE + 2 * d - 2], C[PATH_CHILD + 2 * d - 2] + 1
            if c < W[2 * above + CHILDREN]:
                beside = child_of(W, above, c)
                if left > 0:
                    expect_block(M, beside, INNER_WORDS)
                else:
                    expect_block(M, child_of(W, beside, 0), LEAF_WORDS)
    return OpenLeaf(o, first, end, stale)


@kernel
def change_near(nodes: Nodes, writing: WriteState, opened: OpenLeaf, inserted: bool, entry: Entry) -> tuple[OpenLeaf, bool]:
    """Insert an entry that is not there, or delete one. Returns the leaf that is open then, and whether the change was possible."""
    W, C, s = nodes.W, writing.C, entry.set
    at = TreePosition(entry.key, entry.left, 2 * entry.slot + s)
    if opened.leaf == 0 or not is_within(opened.first, at, opened.end):
        opened = open_leaf(nodes, writing, opened, at)
    o = opened.leaf
    if inserted and entries_of(W, o) == B:
        close_leaf(nodes, writing, opened)
        put(nodes, writing, s, entry.key, entry.left, entry.right, entry.slot)
        return CLOSED, True
    if inserted:
        put_in_leaf(nodes, o, s, entry.key, entry.left, entry.right, entry.slot)
        C[COUNT + s] += 1
        return opened, True
    p, end = find_entry(nodes, o, s, entry.key, entry.left, entry.slot)
    if p == end:
        return opened, False
    cut_from_leaf(nodes, o, s, p)
    C[COUNT + s] -= 1
    return opened, True


@kernel
def search_near(nodes: Nodes, C: Any, opened: OpenLeaf, state: Any, out: Any, n: int) -> tuple[OpenLeaf, int]:
    """Complete a search that has just begun in the tree that the writer works on (`search_start`, without a place to come after), as far
    as `out` has room: as `search_fill` from out[n] on. Returns the leaf that is open then, and the new end. A search that goes beyond the
    leaf begins again at the root."""
    first, last = TreePosition(state[KEY_], NEG_INF, -1), TreePosition(state[KEY_], state[MOST], EVERY_CODE)
    if opened.leaf == 0 or not is_within(opened.first, first, opened.end):
        depth = 0 if opened.leaf == 0 else lowest_above(nodes, C, first)
        o = C[PATH_NODE + 2 * depth] if depth > 0 else C[ROOT]
        opened = opened_at(nodes, C, descend_from(nodes, C, depth, o, first.key, first.left, first.code), 0)
    if not is_before(last, opened.end) or len(out) - n <= B:
        return opened, search_fill(nodes, state, out, n, state[:0])
    state[DEPTH] = 0
    state[STEPS] += 1
    return opened, search_leaf(nodes, state, opened.leaf, out, n, state[:0])
