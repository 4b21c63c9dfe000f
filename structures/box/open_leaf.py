"""Several changes of one leaf of the tree of level 0: the path to it is searched once for all of them, and completed after the last.

    if not is_inside(opened, box):
        close_leaf(nodes, writing, opened)                    of `changes.py`; afterwards, no leaf is open
        is_open = open_leaf(nodes, writing, opened, box)      False: this box does not concern one leaf only
    ... change the records of opened_leaf(opened); then note_change(opened, sign): True if the leaf must be closed now

A leaf is opened only if no node on the path has an active tree, so that a change of a box with both ends in its slab concerns its records
and nothing else, and if all these nodes are balanced. It is closed before one of them stays unbalanced: so balance is restored as often as
without open leaves. While a leaf is open, nodes on the path have their former weights and live bits: the tree must not be searched, or
changed otherwise.

`opened`: int64[OPEN_WORDS], the state; all words are 0 at first.

Costs: O(log n) to open and to close, O(1) a change in between, besides its records.
"""

from __future__ import annotations

from typing import Any

from structures.box import layout
from structures.box.layout import (
    ACTIVE,
    BEHIND,
    CAP,
    FIRST,
    FLAGS,
    LEAF_NODE,
    STATE,
    TOP,
    TREE_WORDS,
    TREES,
    WEIGHT,
    before,
    child_of,
    goes_right,
    narrow,
    own_child,
    own_node,
    root_of,
    set_root,
    widen_slab,
)
from structures.box.records import Box
from structures.core.blocks import Nodes, Writing
from structures.core.kernel import kernel

# Words: the number of nodes on the path (0: no leaf is open), by how many endpoints the leaf's weight has grown since then, by how many it
# may grow and shrink before a node becomes unbalanced; the slab, then the path from the root.
LENGTH, GROWN, MOST_GAIN, MOST_LOSS, SLAB = range(5)
PATH = SLAB + layout.SLAB_WORDS
OPEN_WORDS = PATH + layout.DEEPEST


@kernel
def opened_leaf(opened: Any) -> int:
    """The leaf that is open; this version has written it."""
    return opened[PATH + opened[LENGTH] - 1]


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
    """Open the leaf with both ends of the box, none being open. Returns False, with nothing done, if there is none, or it is not opened."""
    M, W = nodes.M, nodes.W
    key, left, right, code = box.key, box.lo[0], box.hi[0], 2 * box.slot + box.set
    slab = opened[SLAB:PATH]
    widen_slab(slab)
    gain = loss = layout.EVERY_CODE
    n, o = 0, root_of(W, TOP)
    while True:
        if (W[2 * o + TREES + STATE] | W[2 * o + TREES + TREE_WORDS + STATE]) & ACTIVE != 0:
            return False
        opened[PATH + n] = o
        n += 1
        if W[2 * o + FLAGS] & LEAF_NODE != 0:
            break
        c = 1 if goes_right(M, o, key, left, code) else 0
        if goes_right(M, o, key, right, layout.RIGHT_TIE + code) != (c == 1):
            return False
        weight, other = W[2 * child_of(W, o, c) + WEIGHT], W[2 * child_of(W, o, 1 - c) + WEIGHT]
        # As `is_even`: neither child has over three times the other's weight, and both together have more than CAP / 2.
        gain = min(gain, 3 * other - weight)
        loss = min(loss, weight - (other + 2) // 3, weight + other - CAP // 2 - 1)
        narrow(M, o, c, slab)
        o = child_of(W, o, c)
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
