"""A reading's items, and their rows one item after another: what a cursor of `qdag.py` calls.

An item is given (an entry whose partners are wanted, or values that are looked up), or is an entry of the driving atom, whose tree is
scanned meanwhile, leaf after leaf, as many entries at a time as `items` has room for. A tuple whose rows fill more than a leaf is one item,
alone and without a slot: otherwise the same search would be repeated for each of its rows.

An item with a slot is read by the plan and the roots of `walking`: of all atoms but the one whose slot it is. One without is read by the
other plan and the other roots, of all atoms.

    scanning    the depth of the scan, 0 at its end; of the driving atom's tree base, arity, variables; whether each tuple is one item,
                without a slot; frames [place, level, children left, -1 before the first]

Costs: scan O(1) an entry or tuple of many, besides O(log l) a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from structures.core.bits import lowest
from structures.core.kernel import kernel, wide
from structures.qdag.layout import DEPTH, ITEM, ITEMS, STEPS, WIDTH, QdagWalk
from structures.qdag.refs import first_of_each
from structures.qdag.walk import and_steps
from structures.quadtree.layout import LEAF, LEVELS, MOST_ARITY, QuadNodes, QuadtreeShape
from structures.quadtree.search import child_of, children_of, copy_leaf, ends_at
from structures.quadtree.trees import QuadtreeRoot

SCANNED_AT_ONCE = 16 * LEAF  # entries
SCANNED, BASE, ARITY, VARIABLES, TUPLES, FRAMES = 0, 1, 2, 3, 3 + MOST_ARITY, 4 + MOST_ARITY
SCAN_WORDS = FRAMES + 3 * LEVELS
NO_SLOT = -1
_UNTOLD = -1


def scan_of(root: QuadtreeRoot, variables: Sequence[int], tuples: bool) -> np.ndarray:
    """Return the state of a scan of a plain tree whose coordinates are these variables."""
    scanning = np.zeros(SCAN_WORDS, np.int64)
    scanning[BASE], scanning[ARITY], scanning[TUPLES] = root.base, len(variables), tuples
    scanning[VARIABLES : VARIABLES + len(variables)] = variables
    if root.count:
        scanning[SCANNED], scanning[FRAMES : FRAMES + 3] = 1, (root.position, root.bits - 1, _UNTOLD)
    return scanning


@kernel
def scan(nodes: QuadNodes, scanning: Any, walking: QdagWalk, width: int) -> int:
    """Write the driving atom's next entries as items of `width` words, as long as a whole leaf fits, or its next tuple of many rows.
    Returns the number of items."""
    W, items, leaves = nodes.W, walking.items, walking.leaves
    n, base, k = wide(0), scanning[BASE], scanning[ARITY]
    while scanning[SCANNED] > 0 and n + LEAF * width <= len(items):
        f = FRAMES + 3 * (scanning[SCANNED] - 1)
        o, level, left = scanning[f], scanning[f + 1], scanning[f + 2]
        many = level < 0 and not ends_at(W, o)
        if many and n > 0:
            break
        while many and not ends_at(W, o):
            o, level = child_of(nodes, base, o, k, lowest(children_of(nodes, base, o, k))), level - 1
        if ends_at(W, o):
            scanning[SCANNED] -= 1
            count = copy_leaf(nodes, base, o, QuadtreeShape(k, 0), level, 0, leaves, 0)
            some = wide(1) if many else (wide(1) << count) - 1
            if scanning[TUPLES] != 0:
                some = first_of_each(leaves, 0, 0, k, some)
            while some != 0:
                i = lowest(some)
                some &= some - 1
                items[n] = NO_SLOT if many or scanning[TUPLES] != 0 else leaves[k * LEAF + i]
                for j in range(k):
                    items[n + 1 + scanning[VARIABLES + j]] = leaves[j * LEAF + i]
                n += width
            if many:
                break
            continue
        if left == _UNTOLD:
            left = children_of(nodes, base, o, k)
        scanning[f + 2] = left & (left - 1)
        if scanning[f + 2] != 0:  # else the last child takes its parent's place
            f += 3
            scanning[SCANNED] += 1
        scanning[f], scanning[f + 1], scanning[f + 2] = child_of(nodes, base, o, k, lowest(left)), level - 1, _UNTOLD
    return n // width


@kernel("int64(QuadNodes, QdagWalk, int64[::1], int64[::1], int64[::1], int32[:, ::1], int64)")
def read_items(nodes: QuadNodes, walking: QdagWalk, other_plan: Any, other_roots: Any, scanning: Any, out: Any, budget: int) -> int:
    """Continue until `out` (a line for each alias) is full, all items are read, or `budget` steps are made. Returns the number of rows in
    `out`. Cost: that of the steps; an item O(2**d m log l) times the AGM bound of what has its values."""
    plan, items, leaves, state = walking.plan, walking.items, walking.leaves, walking.state
    n, stop = wide(0), state[STEPS] + budget
    while n < out.shape[1] and state[STEPS] < stop:
        if state[DEPTH] == 0 and state[ITEM] == state[ITEMS]:
            if scanning[SCANNED] == 0:
                break
            state[ITEM], state[ITEMS] = 0, scan(nodes, scanning, walking, plan[WIDTH])
        if items[0] == NO_SLOT:
            n = and_steps(nodes, QdagWalk(other_plan, other_roots, items, leaves, state), out, n, stop)
        else:
            n = and_steps(nodes, walking, out, n, stop)
    return n
