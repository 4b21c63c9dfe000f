"""The whole view of a box tree: every row once, resumable.

A row lies at one node of level 0: in one of its trees, where the walk continues with the next dimension, or among the records of a leaf.
The walk only enters what is live, so there are no dead ends; with a key, it only enters nodes whose slabs reach into that key, so dead ends
lie on the two paths to its first and last place.

The state is plain data, which is also the cursor: that of `interval.walk` (in use if FLAT_IS_ON; its counters continue), ONLY (a key or
ANY_KEY), then QUEUED tasks of (what, level, node, height or next record).

Costs: O(log n) steps between rows for each dimension, besides O(CAP ** 2) in a leaf whose boxes all meet in dimension k + 1 and few in
dimension k; about one a row. Source: Tao and Yi, section 4.2 (productive lists at every level; here, live bits).
"""

from __future__ import annotations

from typing import Any

from structures.box import layout
from structures.box.layout import TAG, BoxRoot, child_of, goes_right, records_of, root_of
from structures.box.records import code_of, key_of, next_row
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
ANY_KEY = -1


def view_words(dimensions: int) -> int:
    """Words of the state. A node leaves at most three others waiting, and the nodes of a tree lie above those of the tree that it hangs
    on."""
    return QUEUE + TASK * 4 * layout.DEEPEST * (dimensions - 1)


@kernel
def push_live(state: Any, what: int, level: int, o: int, extra: int) -> None:
    q = QUEUE + TASK * state[QUEUED]
    state[q], state[q + 1], state[q + 2], state[q + 3] = what, level, o, extra
    state[QUEUED] += 1


@kernel("void(int32[::1], int64[::1], int64, int64)")
def view_start(W: Any, state: Any, root: int, only: int) -> None:
    """Begin a walk of one tree at the node `root`; `only`: the key to which it is limited, or ANY_KEY. O(1)."""
    state[ONLY] = only
    if W[2 * root + layout.FLAGS] & layout.LIVE_NODE != 0:
        push_live(state, NODE_, 0, root, 0)


@kernel
def enter_node(nodes: Nodes, state: Any, dimensions: int, level: int, o: int) -> None:
    """Push the live parts of a node and of what is below it."""
    M, W = nodes.M, nodes.W
    w, key = 2 * o, state[ONLY]
    if W[w + layout.FLAGS] & layout.LEAF_NODE != 0:
        if W[w + layout.ROWS] > 0:
            push_live(state, RECORDS_, level, records_of(W, o), 0)
    else:
        for c in range(2):
            child = child_of(W, o, c)
            if W[2 * child + layout.FLAGS] & layout.LIVE_NODE == 0:
                continue
            if level == 0 and key != ANY_KEY:
                if c == 0 and goes_right(M, o, key, NEG_INF, -1) or c == 1 and not goes_right(M, o, key, POS_INF, 2 * layout.RIGHT_TIE):
                    continue
            push_live(state, NODE_, level, child, 0)
    for i in range(2):
        h = w + layout.TREES + layout.TREE_WORDS * i
        if W[h + layout.STATE] & layout.LIVE_ != 0:
            push_live(state, FLAT if level + 2 == dimensions else NODE_, level + 1, root_of(W, h), W[h + layout.HEIGHT_])


@kernel
def rows_of_record(nodes: Nodes, state: Any, tree: BoxRoot, q: int, out0: Any, out1: Any, n: int) -> int:
    """Write the rows of the next record of the task at word q with later ones, from place n on."""
    M, W = nodes.M, nodes.W
    level, o, i, d = state[q + 1], state[q + 2], state[q + 3], tree.dimensions
    tag = M[o + TAG + i]
    if level == 0 and state[ONLY] != ANY_KEY and key_of(tag) != state[ONLY]:
        return n
    code = code_of(tag)
    within, end, e = tree.is_self and level == 0, W[2 * o + layout.COUNT], i
    own, other = (out0, out1) if within or code & 1 == 0 else (out1, out0)
    while True:
        j = next_row(M, o, level, d, within, i, e + 1, end)
        state[STEPS] += (j if j >= 0 else ~j) - e
        if j < 0:
            return n
        own[n], other[n] = code >> 1, code_of(M[o + TAG + j]) >> 1
        n += 1
        e = j
        note_row(state)


@kernel("int64(Nodes, int64[::1], BoxRoot, int32[::1], int32[::1], int64)")
def view_fill(nodes: Nodes, state: Any, tree: BoxRoot, out0: Any, out1: Any, want: int) -> int:
    """Continue the walk until `want` rows are written or state[QUEUED] is 0; out0 and out1 must hold want + max(B * B, ROOM) rows. O(1) a
    row; between two as the head says."""
    W = nodes.W
    n = 0
    while n < want and state[QUEUED] > 0:
        q = QUEUE + TASK * (state[QUEUED] - 1)
        what, level, o = state[q], state[q + 1], state[q + 2]
        if what == NODE_:
            state[QUEUED] -= 1
            state[STEPS] += 1
            enter_node(nodes, state, tree.dimensions, level, o)
        elif what == RECORDS_:
            n = rows_of_record(nodes, state, tree, q, out0, out1, n)
            state[q + 3] += 1
            if state[q + 3] == W[2 * o + layout.COUNT]:
                state[QUEUED] -= 1
        else:
            if state[FLAT_IS_ON] == 0:
                walk_start(nodes, state, o, state[q + 3], PAIR, WHOLE)
                state[FLAT_IS_ON] = 1
            n += walk_fill(nodes, state, out0[n:], out1[n:], want - n)
            if state[DONE] != 0:
                state[FLAT_IS_ON] = 0
                state[QUEUED] -= 1
    return n


ROWS_BEYOND = max(B * B, layout.ROOM)  # rows that a call may write beyond those wanted
