"""Several changes of one leaf of the tree of level 0 at once: the path to it is searched once for all of them, and completed at the end.

Changes without a delta, in the order of the tree or nearly so:

    for each change: change_near(nodes, writing, opened, stack, sign, box)
    close_leaf(nodes, writing, opened)

A leaf is opened only if no node on the path has a tree, so that a change of a box with both ends in its slab concerns its records and
nothing else, and if all these nodes are balanced. It is closed by the first change that makes one of them unbalanced, and that node is then
repaired: the tree is the same as without open leaves. Other boxes are changed one by one. While a leaf is open, the members of the tree are
counted, but nodes on the path have their former weights and live bits (N2, N4): it must not be searched, or changed otherwise.

`opened`: int64[OPEN_WORDS], 0 at first.

Costs: O(log n) to open and to close a leaf, besides repairs; O(CAP) a change in between. This is never more than one by one: so many
changes of each leaf are not required, unlike in `ordered/open_leaf.py`.
"""

from __future__ import annotations

from typing import Any

from structures.box import layout
from structures.box.balance import repair
from structures.box.changes import begins_in, change_box, completed, in_leaf, present
from structures.box.layout import (
    BEHIND,
    BOTH_HERE,
    CAP,
    FIRST,
    FLAGS,
    LEAF_NODE,
    MEMBERS,
    TOP,
    WEIGHT,
    before,
    child_of,
    goes_right,
    has_tree,
    narrow,
    no_room,
    note_length,
    own_child,
    own_node,
    root_of,
    set_root,
    widen,
)
from structures.box.records import Box
from structures.box.rotation import slack
from structures.core.blocks import Nodes, Writing
from structures.core.kernel import kernel

# Words: the number of nodes on the path (0: no leaf is open), by how many endpoints the leaf's weight has grown since it was opened, by how
# many it may grow and shrink before a node becomes unbalanced; the slab, then the path from the root.
LENGTH, GROWN, MOST_GAIN, MOST_LOSS, SLAB = range(5)
PATH = SLAB + layout.SLAB_WORDS
OPEN_WORDS = PATH + layout.DEEPEST


@kernel
def is_inside(opened: Any, box: Box) -> bool:
    """Whether a leaf is open, and both ends of the box lie in its slab."""
    if opened[LENGTH] == 0:
        return False
    slab, code = opened[SLAB:PATH], 2 * box.slot + box.set
    if before(box.key, box.lo[0], code, slab[FIRST], slab[FIRST + 1], slab[FIRST + 2]):
        return False
    return before(box.key, box.hi[0], layout.RIGHT_TIE + code, slab[BEHIND], slab[BEHIND + 1], slab[BEHIND + 2])


@kernel
def open_leaf(nodes: Nodes, writing: Writing, opened: Any, box: Box) -> bool:
    """Open the leaf with both ends of the box, none being open. Returns False, with the tree unchanged, if there is no such leaf, or if a
    node on the path has a tree or is unbalanced."""
    M, W = nodes.M, nodes.W
    key, left, right, code = box.key, box.lo[0], box.hi[0], 2 * box.slot + box.set
    slab = opened[SLAB:PATH]
    widen(slab)
    n, o = 0, root_of(W, TOP)
    gain = loss = 2 * W[2 * o + WEIGHT] + CAP
    while True:
        if has_tree(W, o):
            return False
        opened[PATH + n] = o
        n += 1
        if W[2 * o + FLAGS] & LEAF_NODE != 0:
            break
        c, e = goes_right(M, o, key, left, code), goes_right(M, o, key, right, layout.RIGHT_TIE + code)
        if c != e:
            return False
        narrow(M, o, c, slab)
        child, other = child_of(W, o, c), child_of(W, o, not c)
        more, less = slack(W[2 * child + WEIGHT], W[2 * other + WEIGHT])
        gain, loss = min(gain, more), min(loss, less)
        o = child
    gain = min(gain, CAP - W[2 * o + WEIGHT])
    if gain < 0 or loss < 0:
        return False
    o = own_node(nodes, writing, opened[PATH])
    set_root(W, TOP, o)
    opened[PATH] = o
    for i in range(1, n):
        o = own_child(nodes, writing, o, 0 if child_of(W, o, 0) == opened[PATH + i] else 1)
        opened[PATH + i] = o
    opened[LENGTH], opened[GROWN], opened[MOST_GAIN], opened[MOST_LOSS] = n, 0, gain, loss
    return True


@kernel
def note_change(opened: Any, sign: int) -> bool:
    """Note that a box with both ends in the open leaf was added or removed. Returns whether a node on the path is now unbalanced."""
    opened[GROWN] += 2 * sign
    return opened[GROWN] > opened[MOST_GAIN] or -opened[GROWN] > opened[MOST_LOSS]


@kernel
def update_weights(W: Any, opened: Any) -> None:
    """Add what the leaf has grown by to the weights of the nodes on the path."""
    for i in range(opened[LENGTH]):
        W[2 * opened[PATH + i] + WEIGHT] += opened[GROWN]


@kernel
def change_near(nodes: Nodes, writing: Writing, opened: Any, stack: Any, sign: int, box: Box) -> bool:
    """Insert the box, which is not there, or delete it; a leaf with both its ends may be open afterwards. Returns False, with nothing done,
    if it should be deleted and is not there. Does nothing if there is no room (FULL). `stack`: as for `change_box`."""
    C = writing.C
    if not is_inside(opened, box):
        close_leaf(nodes, writing, opened)
        if no_room(C, 0):
            return True
        if not open_leaf(nodes, writing, opened, box):
            if sign < 0 and not present(nodes, box):
                return False
            change_box(nodes, writing, stack, sign, box)
            return True
    o = opened[PATH + opened[LENGTH] - 1]
    if sign > 0:
        note_length(C, box.lo, box.hi)
    elif not begins_in(nodes, o, box):
        return False
    nodes.W[TOP + MEMBERS + box.set] += sign
    in_leaf(nodes, writing, sign, 0, o, box, BOTH_HERE)
    if note_change(opened, sign):
        close_leaf(nodes, writing, opened)
    return True


@kernel
def close_leaf(nodes: Nodes, writing: Writing, opened: Any) -> None:
    """Complete the tree if a leaf is open: afterwards, none is. Of several large nodes that have become unbalanced, one is balanced, and
    the others by the next changes there, before which no leaf is opened."""
    n = opened[LENGTH]
    if n == 0:
        return
    update_weights(nodes.W, opened)
    opened[LENGTH] = 0
    if no_room(writing.C, 0) or completed(nodes, writing, opened[PATH : PATH + n], 0, TOP):
        return
    slab = opened[SLAB:PATH]
    repair(nodes, writing, 0, TOP, slab[FIRST], slab[FIRST + 1], slab[FIRST + 2])
