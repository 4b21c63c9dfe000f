"""A reading's items, and their rows one item after another: what a cursor of `qdag.py` calls.

An item is given (an entry whose partners are wanted, or values that are looked up), or is an entry of the driving atom, whose tree is
scanned meanwhile, leaf after leaf, as many at a time as `items` has room for. A tuple whose rows fill more than a leaf is one item, by
itself and without a slot: row by row, the same would be searched again for each of them.

    P, R    the plan and the roots by which an item with a slot is read: of all atoms but the one whose slot it is
    A, Q    of all atoms, by which an item without one is read

    Y    the depth of the scan, 0 at its end; of the driving atom's tree base, arity, variables; whether each tuple is one item, without a
         slot; frames [place, level, children left, -1 before the first]

Costs: scan O(1) an entry or tuple of many, besides O(log l) a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from structures.core.bits import lowest
from structures.core.kernel import kernel, wide
from structures.qdag.layout import DEPTH, ITEM, ITEMS, STEPS, WIDTH, Walking
from structures.qdag.refs import first_of_each
from structures.qdag.walk import and_steps
from structures.quadtree.layout import LEAF, LEVELS, MOST_ARITY, QuadNodes, Shape
from structures.quadtree.search import child_of, children_of, copy_leaf, ends_at
from structures.quadtree.trees import Root

SCANNED_AT_ONCE = 16 * LEAF  # entries
SCANNED, BASE, ARITY, VARIABLES, TUPLES, FRAMES = 0, 1, 2, 3, 3 + MOST_ARITY, 4 + MOST_ARITY
SCAN_WORDS = FRAMES + 3 * LEVELS
NO_SLOT = -1
_UNTOLD = -1


def scan_of(root: Root, variables: Sequence[int], tuples: bool) -> np.ndarray:
    """Y of a plain tree whose coordinates are these variables."""
    Y = np.zeros(SCAN_WORDS, np.int64)
    Y[BASE], Y[ARITY], Y[TUPLES], Y[VARIABLES : VARIABLES + len(variables)] = root.base, len(variables), tuples, variables
    if root.count:
        Y[SCANNED], Y[FRAMES : FRAMES + 3] = 1, (root.place, root.bits - 1, _UNTOLD)
    return Y


@kernel
def scan(nodes: QuadNodes, Y: Any, walking: Walking, width: int) -> int:
    """The driving atom's next entries as items of `width` words, as long as a whole leaf has room, or its next tuple of many rows; how many
    they are."""
    W, items, S = nodes.W, walking.items, walking.S
    n, base, k = wide(0), Y[BASE], Y[ARITY]
    while Y[SCANNED] > 0 and n + LEAF * width <= len(items):
        f = FRAMES + 3 * (Y[SCANNED] - 1)
        o, b, left = Y[f], Y[f + 1], Y[f + 2]
        many = b < 0 and not ends_at(W, o)
        if many and n > 0:
            break
        while many and not ends_at(W, o):
            o, b = child_of(nodes, base, o, k, lowest(children_of(nodes, base, o, k))), b - 1
        if ends_at(W, o):
            Y[SCANNED] -= 1
            count = copy_leaf(nodes, base, o, Shape(k, 0), b, 0, S, 0)
            some = wide(1) if many else (wide(1) << count) - 1
            if Y[TUPLES] != 0:
                some = first_of_each(S, 0, 0, k, some)
            while some != 0:
                i = lowest(some)
                some &= some - 1
                items[n] = NO_SLOT if many or Y[TUPLES] != 0 else S[k * LEAF + i]
                for j in range(k):
                    items[n + 1 + Y[VARIABLES + j]] = S[j * LEAF + i]
                n += width
            if many:
                break
            continue
        if left == _UNTOLD:
            left = children_of(nodes, base, o, k)
        Y[f + 2] = left & (left - 1)
        if Y[f + 2] != 0:  # else the last child takes its parent's place
            f += 3
            Y[SCANNED] += 1
        Y[f], Y[f + 1], Y[f + 2] = child_of(nodes, base, o, k, lowest(left)), b - 1, _UNTOLD
    return n // width


@kernel("int64(QuadNodes, Walking, int64[::1], int64[::1], int64[::1], int32[:, ::1], int64)")
def read_items(nodes: QuadNodes, walking: Walking, A: Any, Q: Any, Y: Any, out: Any, budget: int) -> int:
    """Go on until `out` (a line an alias) is full, all items are read, or `budget` steps are made; how many rows it has then."""
    P, items, S, Z = walking.P, walking.items, walking.S, walking.Z
    n, stop = wide(0), Z[STEPS] + budget
    while n < out.shape[1] and Z[STEPS] < stop:
        if Z[DEPTH] == 0 and Z[ITEM] == Z[ITEMS]:
            if Y[SCANNED] == 0:
                break
            Z[ITEM], Z[ITEMS] = 0, scan(nodes, Y, walking, P[WIDTH])
        if items[0] == NO_SLOT:
            n = and_steps(nodes, Walking(A, Q, items, S, Z), out, n, stop)
        else:
            n = and_steps(nodes, walking, out, n, stop)
    return n
