"""Boxes of one set that meet a given box: a resumable search through the levels.

At level k, boxes whose left end comes before that of the given box and whose right end does not are spanners of the nodes on the path to
it; boxes whose left end lies in the given box are points of the nodes that it spans; and the leaves of its two ends are scanned. At level
0, the mode says which of these are wanted: BOTH, BEFORE (those that stab the place of its left end), WITHIN. In the trees of such nodes the
search continues with the next dimension. If the given box spans a node whose points are not kept (no member spans it), the search scans
leaf by leaf: this never happens for a box that is a member.

Item: slot (excluded from its own partners in a "self" structure: `is_partner`), key, set searched, mode, tie of the left end in dimension
0, lo[d], hi[d]. A member asks with its own ties, so that it finds the nodes in whose trees it lies.
The state is plain data, which is also the cursor: that of `ordered.search` (in use if FLAT_IS_ON; its counters continue), then QUEUED tasks
of (what, level, node, height, set).

Costs: O(log n) 1-D searches to the power of d - 1 and O(CAP) a leaf, then as `ordered.search` says. Source: Tao and Yi, section 4.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from structures.box import layout
from structures.box.layout import ENDS, LEFT_HERE, TAG, BoxRoot, before, child_of, goes_right, records_of, root_of
from structures.box.records import beginning_by, code_of, key_of, meeting8, meets
from structures.core.arena import KEY_MAX, B
from structures.core.bits import LANES, lowest
from structures.core.blocks import Nodes
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import kernel
from structures.ordered.search import DEPTH, GAP, LAST, NOTHING_BEFORE, SEARCH_WORDS, STEPS, Bounds, search_fill, search_start

SLOT_, KEY_, SET_, MODE, TIE, LO_ = range(6)
BOTH, BEFORE, WITHIN = 0, 1, 2

QUEUED, FLAT_IS_ON, ITEM_AT = SEARCH_WORDS, SEARCH_WORDS + 1, SEARCH_WORDS + 2
QUEUE = SEARCH_WORDS + 3
NODES, FLAT, LEFT_LEAF, RIGHT_LEAF, POINTS = range(5)
TASK = 5


def query_words(dimensions: int) -> int:
    """Words of the state. In a tree, a node on the left path leaves at most two tasks waiting, one on the right path one, and so does each
    level below on which points are searched; they lie above those of the trees before."""
    return QUEUE + TASK * 4 * layout.DEEPEST * (dimensions - 1)


class Task(NamedTuple):
    what: int
    level: int
    node: int
    height: int
    set: int


@kernel
def push_task(state: Any, what: int, level: int, o: int, height: int, t: int) -> None:
    q = QUEUE + TASK * state[QUEUED]
    state[q], state[q + 1], state[q + 2], state[q + 3], state[q + 4] = what, level, o, height, t
    state[QUEUED] += 1


@kernel
def ask(state: Any, root: int) -> None:
    """Begin the search for an item."""
    state[QUEUED], state[FLAT_IS_ON] = 0, 0
    push_task(state, NODES, 0, root, 0, 0)


@kernel
def push_tree(nodes: Nodes, state: Any, level: int, dimensions: int, o: int, i: int, t: int) -> None:
    """Push the search of set t in tree i of node o."""
    W = nodes.W
    h = 2 * o + layout.TREES + layout.TREE_WORDS * i
    if W[h + layout.MEMBERS + t] > 0:
        push_task(state, FLAT if level + 2 == dimensions else NODES, level + 1, root_of(W, h), W[h + layout.HEIGHT_], t)


@kernel
def push_points(nodes: Nodes, state: Any, is_self: bool, level: int, dimensions: int, o: int, t: int) -> None:
    """Push the search of the points of set t at node o: in its tree, or leaf by leaf."""
    W = nodes.W
    within = is_self and level == 0
    i = 0 if within else 1 - t
    if W[2 * o + layout.TREES + layout.TREE_WORDS * i + layout.STATE] & layout.ACTIVE != 0:
        push_tree(nodes, state, level, dimensions, o, i, 1 if within else t)
    else:
        push_task(state, POINTS, level, o, 0, t)


@kernel
def expand(nodes: Nodes, state: Any, is_self: bool, dimensions: int, level: int, root: int, t: int, item: Any) -> None:
    """Push the searches that a tree of nodes requires for the item."""
    M, W = nodes.M, nodes.W
    mode = item[MODE] if level == 0 else BOTH
    key = item[KEY_] if level == 0 else 0
    tie = item[TIE] if level == 0 else 2 * item[SLOT_] + 1 - t
    end = layout.RIGHT_TIE + (layout.EVERY_CODE if mode == WITHIN else tie)
    low, high = item[LO_ + level], item[LO_ + dimensions + level]
    o, fork = root, 0
    while True:
        state[STEPS] += 1
        if mode != WITHIN:
            push_tree(nodes, state, level, dimensions, o, t, t)  # its spanners
        if W[2 * o + layout.FLAGS] & layout.LEAF_NODE != 0:
            push_task(state, LEFT_LEAF, level, o, 0, t)
            break
        left = goes_right(M, o, key, low, tie)
        if fork == 0 and mode != BEFORE and left != goes_right(M, o, key, high, end):
            fork = o
        elif fork != 0 and not left:
            push_points(nodes, state, is_self, level, dimensions, child_of(W, o, 1), t)
        o = child_of(W, o, left)
    if fork == 0:
        return
    o = child_of(W, fork, 1)
    while W[2 * o + layout.FLAGS] & layout.LEAF_NODE == 0:
        state[STEPS] += 1
        if goes_right(M, o, key, high, end):
            push_points(nodes, state, is_self, level, dimensions, child_of(W, o, 0), t)
            o = child_of(W, o, 1)
        else:
            o = child_of(W, o, 0)
    push_task(state, RIGHT_LEAF, level, o, 0, t)


@kernel
def is_partner(item: Any, slot: int) -> bool:
    """In a "self" structure, a box is not its own partner, and if two boxes contain the same place of a window, the one with the lower slot
    reports the pair."""
    if item[MODE] == BEFORE and item[TIE] == layout.EVERY_CODE:
        return slot > item[SLOT_]
    return slot != item[SLOT_]


@kernel
def partners_of(item: Any, slots: Any, lo: int, hi: int) -> int:
    """Keep those of slots[lo:hi] that are partners. Returns the new end."""
    n = lo
    for i in range(lo, hi):
        slots[n] = slots[i]
        n += is_partner(item, slots[i])
    return n


@kernel
def scan(nodes: Nodes, state: Any, tree: BoxRoot, task: Task, item: Any, out: Any, n: int) -> int:
    """Write the wanted records of a leaf, from out[n] on."""
    M, W, what, level, t = nodes.M, nodes.W, task.what, task.level, task.set
    is_self, d = tree.is_self, tree.dimensions
    o = records_of(W, task.node)
    mode = item[MODE] if level == 0 else BOTH
    key = item[KEY_] if level == 0 else 0
    lo, hi = item[LO_ : LO_ + d], item[LO_ + d : LO_ + 2 * d]
    within = is_self and level == 0
    if what == POINTS:
        least, most = NEG_INF, POS_INF
    elif what == RIGHT_LEAF or mode == WITHIN:
        least, most = NEG_INF, hi[level]
    elif mode == BEFORE:
        least, most = lo[0], lo[0]
    else:
        least, most = lo[level], hi[level]
    end = beginning_by(nodes, o, hi[level + 1])
    state[STEPS] += end
    start = n
    for first in range(0, end, LANES):
        found = meeting8(M, o, first, end, (least, lo[level + 1]), (most, hi[level + 1]))
        while found != 0:
            i = first + lowest(found)
            found &= found - 1
            tag = M[o + TAG + i]
            if not (within or code_of(tag) & 1 == t) or key_of(tag) != key and what != POINTS:
                continue
            if what != LEFT_LEAF:
                asked = tag & LEFT_HERE != 0
            elif mode == BEFORE:
                asked = before(0, M[o + ENDS + i], code_of(tag), 0, lo[0], item[TIE])
            elif mode == WITHIN:
                asked = tag & LEFT_HERE != 0 and before(0, lo[0], item[TIE], 0, M[o + ENDS + i], code_of(tag))
            else:
                asked = True
            if asked and meets(M, o, i, level + 2, level, d, lo, hi):
                slot = code_of(tag) >> 1
                if not is_self or is_partner(item, slot):
                    out[n] = slot
                    n += 1
    if n > start:
        state[GAP] = max(state[GAP], state[STEPS] - state[LAST])
        state[LAST] = state[STEPS]
    return n


@kernel("int64(Nodes, int64[::1], BoxRoot, int64[::1], int32[::1], int32[::1], int64, int64)")
def query_fill(nodes: Nodes, state: Any, tree: BoxRoot, items: Any, own: Any, other: Any, n: int, budget: int) -> int:
    """Continue with the items from state[ITEM_AT] on (the first has begun), and write (item's slot, hit) from place n on. Ends when all are
    done (state[QUEUED] is 0), when fewer than B + ROOM places are left, or after about `budget` steps. Returns the number of rows written
    so far. O(log**d n) steps to a first row and between two, besides O(CAP) a leaf."""
    W, is_self, d = nodes.W, tree.is_self, tree.dimensions
    words, ends = LO_ + 2 * d, items[:0]
    last, start = len(items) // words - 1, state[STEPS]
    while len(other) - n > B + layout.ROOM and state[STEPS] - start <= budget:
        item = items[state[ITEM_AT] * words : (state[ITEM_AT] + 1) * words]
        if state[QUEUED] == 0:
            if state[ITEM_AT] >= last:
                break
            state[ITEM_AT] += 1
            ask(state, tree.root)
            continue
        q = QUEUE + TASK * (state[QUEUED] - 1)
        task = Task(state[q], state[q + 1], state[q + 2], state[q + 3], state[q + 4])
        what, level, o, t = task.what, task.level, task.node, task.set
        m = n
        if what == FLAT:
            if state[FLAT_IS_ON] == 0:
                search_start(state, o, task.height, t, 0, Bounds(NEG_INF, NOTHING_BEFORE, item[LO_ + 2 * d - 1], item[LO_ + d - 1]))
                state[FLAT_IS_ON] = 1
            at, gap = state[LAST], state[GAP]
            m = search_fill(nodes, state, other, n, ends)
            if state[DEPTH] == 0:
                state[FLAT_IS_ON] = 0
                state[QUEUED] -= 1
            if is_self and m > n:
                m = partners_of(item, other, n, m)
                if m == n:
                    state[LAST], state[GAP] = at, gap
        else:
            state[QUEUED] -= 1
            if what == NODES:
                expand(nodes, state, is_self, d, level, o, item[SET_] if level == 0 else t, item)
            elif what == POINTS and W[2 * o + layout.FLAGS] & layout.LEAF_NODE == 0:
                state[STEPS] += 1
                push_points(nodes, state, is_self, level, d, child_of(W, o, 1), t)
                push_points(nodes, state, is_self, level, d, child_of(W, o, 0), t)
            else:
                m = scan(nodes, state, tree, task, item, other, n)
        for j in range(n, m):
            own[j] = item[SLOT_]
        n = m
    return n


@kernel("int64(Nodes, int64, int64)")
def next_box_key(nodes: Nodes, root: int, key: int) -> int:
    """The smallest key above `key`; KEY_MAX if there is none. O(log n + CAP)."""
    M, W = nodes.M, nodes.W
    o, then = root, 0
    while W[2 * o + layout.FLAGS] & layout.LEAF_NODE == 0:
        c = goes_right(M, o, key, POS_INF, 2 * layout.RIGHT_TIE)
        if not c:
            then = child_of(W, o, 1)
        o = child_of(W, o, c)
    least = KEY_MAX
    for _ in range(2):
        r = records_of(W, o)
        for p in range(W[2 * r + layout.COUNT]):
            k = key_of(M[r + TAG + p])
            if k > key:
                least = min(least, k)
        if least != KEY_MAX or then == 0:
            break
        o = then
        while W[2 * o + layout.FLAGS] & layout.LEAF_NODE == 0:
            o = child_of(W, o, 0)
    return least
