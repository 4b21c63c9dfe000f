"""The whole view of a box tree: every row once, resumable.

A row lies at one node of level 0: in one of its trees, where the walk goes on with the next dimension, or among the records of
a leaf. Only what is live is entered, so there are no dead ends; with a key, only nodes whose slabs reach into that key, so
dead ends lie on the two ways to its first and last place.

State Z, plain data, which is also the cursor: that of `interval.walk` (in use if FLAT_IS_ON; its counters run on), ONLY (a key or
-1), then QUEUED tasks of (what, level, node, height or next record).

Costs: O(log n) steps between rows for each dimension, besides O(CAP ** 2) in a leaf whose boxes all meet in dimension k + 1 and
few in dimension k; about one a row. Source: Tao and Yi, section 4.2 (productive lists at every level; here, live bits).
"""

from __future__ import annotations

from typing import Any

from structures.box import layout
from structures.box.layout import BoxRoot, child_of, goes_right, records_of, root_of
from structures.box.records import TAG, code_of, key_of, next_row
from structures.core.arena import B
from structures.core.blocks import Nodes
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import kernel
from structures.interval.walk import DONE, STEPS, WALK_WORDS, WHOLE, note_row, walk_fill, walk_start
from structures.ordered.summary import PAIR

QUEUED, FLAT_IS_ON, ONLY = WALK_WORDS, WALK_WORDS + 1, WALK_WORDS + 2
QUEUE = WALK_WORDS + 3
TASK = 4
NODE_, FLAT, RECORDS_ = 0, 1, 2


def view_words(dimensions: int) -> int:
    """Words of the state."""
    return QUEUE + TASK * 4 * layout.DEEPEST * (dimensions - 1)


@kernel
def push_live(Z: Any, what: int, level: int, o: int, extra: int) -> None:
    q = QUEUE + TASK * Z[QUEUED]
    Z[q], Z[q + 1], Z[q + 2], Z[q + 3] = what, level, o, extra
    Z[QUEUED] += 1


@kernel("void(int32[::1], int64[::1], int64, int64)")
def view_start(W: Any, Z: Any, root: int, only: int) -> None:
    """Begin a view walk of one tree at the node `root`; `only`: the key to stay with, or a negative number for all. O(1)."""
    Z[ONLY] = only
    if W[2 * root + layout.FLAGS] & layout.LIVE_NODE != 0:
        push_live(Z, NODE_, 0, root, 0)


@kernel
def enter_node(nodes: Nodes, Z: Any, d: int, level: int, o: int) -> None:
    """Push what is live at a node and below it."""
    M, W = nodes.M, nodes.W
    w, key = 2 * o, Z[ONLY]
    if W[w + layout.FLAGS] & layout.LEAF_NODE != 0:
        if W[w + layout.ROWS] > 0:
            push_live(Z, RECORDS_, level, records_of(W, o), 0)
    else:
        for c in range(2):
            child = child_of(W, o, c)
            if W[2 * child + layout.FLAGS] & layout.LIVE_NODE == 0:
                continue
            if level == 0 and key >= 0:
                if c == 0 and goes_right(M, o, key, NEG_INF, -1) or c == 1 and not goes_right(M, o, key, POS_INF, 2 * layout.RIGHT_TIE):
                    continue
            push_live(Z, NODE_, level, child, 0)
    for i in range(2):
        h = w + layout.TREES + layout.TREE_WORDS * i
        if W[h + layout.STATE] & layout.LIVE_ != 0:
            push_live(Z, FLAT if level + 2 == d else NODE_, level + 1, root_of(W, h), W[h + layout.HEIGHT_])


@kernel
def rows_of_record(nodes: Nodes, Z: Any, tree: BoxRoot, q: int, out0: Any, out1: Any, n: int) -> int:
    """Report the rows of the next record of the task at word q with later ones, from place n on."""
    M, W = nodes.M, nodes.W
    level, o, i, d = Z[q + 1], Z[q + 2], Z[q + 3], tree.dimensions
    tag = M[o + TAG + i]
    if level == 0 and Z[ONLY] >= 0 and key_of(tag) != Z[ONLY]:
        return n
    code = code_of(tag)
    alone, end, e = tree.single and level == 0, W[2 * o + layout.COUNT], i
    own, other = (out0, out1) if alone or code & 1 == 0 else (out1, out0)
    while True:
        j = next_row(M, o, level, d, alone, i, e + 1, end)
        Z[STEPS] += (j if j >= 0 else ~j) - e
        if j < 0:
            return n
        own[n], other[n] = code >> 1, code_of(M[o + TAG + j]) >> 1
        n += 1
        e = j
        note_row(Z)


@kernel("int64(Nodes, int64[::1], BoxRoot, int32[::1], int32[::1], int64)")
def view_fill(nodes: Nodes, Z: Any, tree: BoxRoot, out0: Any, out1: Any, want: int) -> int:
    """Go on with the walk until `want` rows are written or Z[QUEUED] is 0; out0, out1 must hold want + max(B * B, ROOM)."""
    W = nodes.W
    n = 0
    while n < want and Z[QUEUED] > 0:
        q = QUEUE + TASK * (Z[QUEUED] - 1)
        what, level, o = Z[q], Z[q + 1], Z[q + 2]
        if what == NODE_:
            Z[QUEUED] -= 1
            Z[STEPS] += 1
            enter_node(nodes, Z, tree.dimensions, level, o)
        elif what == RECORDS_:
            n = rows_of_record(nodes, Z, tree, q, out0, out1, n)
            Z[q + 3] += 1
            if Z[q + 3] == W[2 * o + layout.COUNT]:
                Z[QUEUED] -= 1
        else:
            if Z[FLAT_IS_ON] == 0:
                walk_start(nodes, Z, o, Z[q + 3], PAIR, WHOLE)
                Z[FLAT_IS_ON] = 1
            n += walk_fill(nodes, Z, out0[n:], out1[n:], want - n)
            if Z[DONE] != 0:
                Z[FLAT_IS_ON] = 0
                Z[QUEUED] -= 1
    return n


ROWS_BEYOND = max(B * B, layout.ROOM)  # what a filling may write beyond the rows wanted
