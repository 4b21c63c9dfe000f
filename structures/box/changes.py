"""Writer of the box tree: insert or delete one box at every level.

A box of a tree of level k has its two ends in leaves. It is a point of each node on the path to its left end, and a spanner of the O(log n)
nodes that hang between the two paths. A change continues in the trees of these nodes that are active, and finishes each tree, from the last
to the first, by repairing live bits and balance. Tasks wait on a stack, which is never deeper than d trees.

An inserted box is added before its partners are searched, a deleted box is removed afterwards: so a box that searches is always a member,
and the trees of the nodes that it spans are active.

Costs: O(log n) 1-D changes to the power of d - 1, amortised over rebuilding; O(CAP) in leaves.
Source: Tao and Yi, section 4.2; docs/design/ij-heap.md (*Theorem 2*).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.box import layout
from structures.box.balance import activate, drop_tree, repair
from structures.box.build import enter, leave
from structures.box.layout import (
    BOTH_HERE,
    LEFT_HERE,
    RIGHT_HERE,
    TAG,
    child_of,
    goes_right,
    holder,
    members_of,
    no_room,
    own_child,
    own_node,
    own_records,
    pointed,
    records_of,
    refresh,
    refresh_holder,
    root_of,
    set_records,
    set_root,
    spanned,
)
from structures.box.records import Box, code_of, count_rows, cut_record, find_record, key_of, put_record, tag_of
from structures.box.rotation import unbalanced
from structures.core.blocks import Nodes, WriteState
from structures.core.kernel import kernel
from structures.ordered.tree import cut, put

BEGIN, FINISH = 0, 1
TASK = 4  # words: what, level, holder, set in that tree
SEEN_WORDS = 4 * layout.DEEPEST  # for the nodes that the end of a tree looks at, above all tasks
# Tasks of a tree: its end, the trees of the points on one path and of the spanners beside both paths; they lie above those of the trees
# before.
STACK_WORDS = TASK * 4 * layout.DEEPEST * layout.MOST_DIMENSIONS + SEEN_WORDS


@kernel
def push(stack: Any, n: int, what: int, level: int, h: int, s: int) -> int:
    stack[n], stack[n + 1], stack[n + 2], stack[n + 3] = what, level, h, s
    return n + TASK


@kernel
def as_point(nodes: Nodes, writing: WriteState, stack: Any, n: int, level: int, o: int, s: int) -> int:
    """Push the tree of own node o that the box, with its left end in the node's slab, is a point of."""
    W, C = nodes.W, writing.C
    i, t = pointed(C, level, s)
    h = holder(o, i)
    if W[h + layout.STATE] & layout.ACTIVE == 0:
        return n
    if W[h + layout.MEMBERS + i] == 0:
        # Nothing spans the slab: the tree is dropped after as many changes as it takes to build it again.
        W[h + layout.IDLE] += 1
        if 2 * W[h + layout.IDLE] > W[h + layout.MEMBERS + 1 - i]:
            drop_tree(nodes, writing, level + 1, h)
            return n
    return push(stack, n, BEGIN, level + 1, h, t)


@kernel
def as_spanner(nodes: Nodes, writing: WriteState, stack: Any, n: int, level: int, o: int, box: Box) -> int:
    """Push, or build, the tree of own node o that the box is a spanner of: it covers the node's slab, but not that of the parent."""
    W, C = nodes.W, writing.C
    i, t = spanned(C, level, box.set)
    h = holder(o, i)
    if W[h + layout.STATE] & layout.ACTIVE == 0:
        activate(nodes, writing, level, o, i, Box(t, box.key, box.slot, box.lo, box.hi))
        return n
    W[h + layout.IDLE] = 0
    return push(stack, n, BEGIN, level + 1, h, t)


@kernel
def in_leaf(nodes: Nodes, writing: WriteState, sign: int, level: int, o: int, box: Box, here: int) -> None:
    """Add the box to the records of own leaf o, or remove it."""
    W, C = nodes.W, writing.C
    r = own_records(nodes, writing, level, records_of(W, o))
    tag = tag_of(box.key, box.slot, box.set, here)
    is_self = level == 0 and C[layout.SELF_] != 0
    set_records(W, o, r)
    W[2 * o + layout.ROWS] += sign * count_rows(nodes, writing, r, level, is_self, tag, box.lo, box.hi)
    if sign > 0:
        put_record(nodes, C, r, level, tag, box.lo, box.hi)
    else:
        cut_record(nodes, C, r, level, find_record(nodes, r, box.lo[level + 1], code_of(tag)))


@kernel
def begin(nodes: Nodes, writing: WriteState, stack: Any, n: int, sign: int, level: int, h: int, box: Box) -> int:
    """Change the nodes and records of the tree in holder h, and push the changes of the trees at its nodes."""
    M, W, s, key = nodes.M, nodes.W, box.set, box.key
    code, left, right = 2 * box.slot + s, box.lo[level], box.hi[level]
    W[h + layout.MEMBERS + s] += sign
    o = own_node(nodes, writing, root_of(W, h))
    set_root(W, h, o)
    while True:
        W[2 * o + layout.WEIGHT] += 2 * sign
        n = as_point(nodes, writing, stack, n, level, o, s)
        if W[2 * o + layout.FLAGS] & layout.LEAF_NODE != 0:
            in_leaf(nodes, writing, sign, level, o, box, BOTH_HERE)
            return n
        c, e = goes_right(M, o, key, left, code), goes_right(M, o, key, right, layout.RIGHT_TIE + code)
        if c != e:
            break
        o = own_child(nodes, writing, o, c)
    fork = o
    o = own_child(nodes, writing, fork, 0)
    while True:
        W[2 * o + layout.WEIGHT] += sign
        n = as_point(nodes, writing, stack, n, level, o, s)
        if W[2 * o + layout.FLAGS] & layout.LEAF_NODE != 0:
            break
        if goes_right(M, o, key, left, code):
            o = own_child(nodes, writing, o, 1)
        else:
            n = as_spanner(nodes, writing, stack, n, level, own_child(nodes, writing, o, 1), box)
            o = own_child(nodes, writing, o, 0)
    in_leaf(nodes, writing, sign, level, o, box, LEFT_HERE)
    o = own_child(nodes, writing, fork, 1)
    while True:
        W[2 * o + layout.WEIGHT] += sign
        if W[2 * o + layout.FLAGS] & layout.LEAF_NODE != 0:
            break
        if goes_right(M, o, key, right, layout.RIGHT_TIE + code):
            n = as_spanner(nodes, writing, stack, n, level, own_child(nodes, writing, o, 0), box)
            o = own_child(nodes, writing, o, 1)
        else:
            o = own_child(nodes, writing, o, 0)
    in_leaf(nodes, writing, sign, level, o, box, RIGHT_HERE)
    return n


@kernel
def finish(nodes: Nodes, writing: WriteState, seen: Any, level: int, h: int, box: Box) -> None:
    """Restore live bits and balance of the tree in holder h, to which the box was added or from which it was removed; drop the tree if it
    is empty. `seen`: room for SEEN_WORDS."""
    M, W = nodes.M, nodes.W
    if h != layout.TOP and members_of(W, h) == 0:
        drop_tree(nodes, writing, level, h)
        return
    key, code, left, right = box.key, 2 * box.slot + box.set, box.lo[level], box.hi[level]
    n, fork = 0, 0
    o = root_of(W, h)
    while True:
        seen[n] = o
        n += 1
        if W[2 * o + layout.FLAGS] & layout.LEAF_NODE != 0:
            break
        c, e = goes_right(M, o, key, left, code), goes_right(M, o, key, right, layout.RIGHT_TIE + code)
        if c != e:
            fork = o
            break
        o = child_of(W, o, c)
    for child in range(2 if fork != 0 else 0):
        value, tie = (left, code) if child == 0 else (right, layout.RIGHT_TIE + code)
        o = child_of(W, fork, child)
        seen[n] = o
        n += 1
        while W[2 * o + layout.FLAGS] & layout.LEAF_NODE == 0:
            c = 1 if goes_right(M, o, key, value, tie) else 0
            if c == child:
                seen[n] = child_of(W, o, 1 - c)
                n += 1
            o = child_of(W, o, c)
            seen[n] = o
            n += 1
    if not completed(nodes, writing, seen[:n], level, h):
        repair(nodes, writing, level, h, key, left, code)
        repair(nodes, writing, level, h, key, right, layout.RIGHT_TIE + code)


@kernel
def completed(nodes: Nodes, writing: WriteState, seen: Any, level: int, h: int) -> bool:
    """Update the live bits of these nodes of the tree in holder h, from the last to the first, and of the holder.
    Returns whether the nodes are balanced."""
    W = nodes.W
    balanced = True
    for i in range(len(seen) - 1, -1, -1):
        refresh(W, seen[i])
        balanced = balanced and not unbalanced(W, seen[i])
    refresh_holder(W, h)
    return balanced


@kernel
def change_flat(nodes: Nodes, writing: WriteState, sign: int, h: int, s: int, slot: int, left: int, right: int) -> None:
    """Insert into or delete from the 1-D tree in holder h."""
    W, C = nodes.W, writing.C
    enter(W, C, h)
    if sign > 0:
        put(nodes, writing, s, np.int32(0), left, right, np.int32(slot))
    else:
        cut(nodes, writing, s, np.int32(0), left, np.int32(slot))
    leave(W, C, h)
    if C[layout.FULL] == 0 and members_of(W, h) == 0:
        drop_tree(nodes, writing, C[layout.DIMENSIONS] - 1, h)


@kernel
def change_box(nodes: Nodes, writing: WriteState, stack: Any, sign: int, box: Box) -> None:
    """Insert the box, which is not there, or delete it, which is."""
    C = writing.C
    d, uneven = C[layout.DIMENSIONS], C[layout.UNEVEN]
    if sign > 0:
        layout.note_length(C, box.lo, box.hi)
    n = push(stack, 0, BEGIN, 0, layout.TOP, box.set)
    while n > 0 and not no_room(C, 0):
        n -= TASK
        what, level, h, t = stack[n], stack[n + 1], stack[n + 2], stack[n + 3]
        if level + 1 == d:
            change_flat(nodes, writing, sign, h, t, box.slot, box.lo[d - 1], box.hi[d - 1])
            continue
        member = Box(t, box.key if level == 0 else 0, box.slot, box.lo, box.hi)
        if what == BEGIN:
            n = push(stack, n, FINISH, level, h, t)
            n = begin(nodes, writing, stack, n, sign, level, h, member)
        else:
            finish(nodes, writing, stack[n:], level, h, member)
    if uneven < C[layout.UNEVEN] < layout.TOO_UNEVEN:
        C[layout.UNEVEN] = uneven + 1  # once a change, in however many trees it is


@kernel
def present(nodes: Nodes, box: Box) -> bool:
    """Whether the box is in the structure."""
    M, W = nodes.M, nodes.W
    key, code, o = box.key, 2 * box.slot + box.set, root_of(W, layout.TOP)
    while W[2 * o + layout.FLAGS] & layout.LEAF_NODE == 0:
        o = child_of(W, o, goes_right(M, o, key, box.lo[0], code))
    r = records_of(W, o)
    p = find_record(nodes, r, box.lo[1], code)
    if p == W[2 * r + layout.COUNT]:
        return False
    tag = M[r + TAG + p]
    return code_of(tag) == code and key_of(tag) == box.key and tag & LEFT_HERE != 0
