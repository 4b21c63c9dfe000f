"""Building box trees of given boxes.

A subtree is built level of nodes by level of nodes: its endpoints are sorted once and boxes stand for their ranks; the
boxes of each node stay in the order of dimension k + 1, so that the trees at a node are built from sorted members. Trees of
level k + 1 that are not 1-D wait their turn in a list; live bits are written at the end, from the last node made to the first.

Costs: O(n log n) for n boxes with the last dimension next, times O(log n) for each dimension more.
Source: Tao and Yi, section 4.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.box.layout import (
    ACTIVE,
    BOX_ARRAYS,
    CHILD0,
    DIMENSIONS,
    FILL,
    FLAGS,
    FULL,
    HEIGHT_,
    IDLE,
    LEAF_NODE,
    LIVE_,
    MEMBERS,
    NODE_WORDS,
    RECORDS,
    RIGHT_TIE,
    ROOT_,
    ROWS,
    SELF_,
    SEPARATOR,
    STATE,
    TOP,
    TREE_WORDS,
    WEIGHT,
    WORDS,
    before,
    drop_block,
    holder,
    new_node,
    new_records,
    no_room,
    refresh,
    refresh_holder,
)
from structures.box.records import code_of, key_of, rows_inside, tag_of, write_record
from structures.core.arena import COUNT, HEIGHT, INNER_WORDS, LEAF_WORDS, LIVE, ROOT
from structures.core.kernel import kernel
from structures.ordered.tree import build, make_empty

# --- 1-D trees in holders


@kernel
def enter(W: Any, C: Any, h: int) -> None:
    """Make the 1-D tree in holder h the one that the kernels of `ordered.tree` change."""
    C[ROOT], C[HEIGHT], C[LIVE] = W[h + ROOT_], W[h + HEIGHT_], W[h + STATE] & LIVE_
    C[COUNT], C[COUNT + 1] = W[h + MEMBERS], W[h + MEMBERS + 1]


@kernel
def leave(W: Any, C: Any, h: int) -> None:
    W[h + ROOT_], W[h + HEIGHT_], W[h + STATE] = C[ROOT], C[HEIGHT], ACTIVE | C[LIVE]
    W[h + MEMBERS], W[h + MEMBERS + 1] = C[COUNT], C[COUNT + 1]


@kernel(allocates=True)
def build_flat(M: Any, W: Any, C: Any, Q: Any, h: int, refs: Any, LO: Any, HI: Any, TAGS: Any) -> None:
    """Build a 1-D tree from members (see `build_trees`) in its order."""
    n, d = len(refs), C[DIMENSIONS]
    if no_room(C, (n // 8 + 64) * (LEAF_WORDS + INNER_WORDS)):
        return
    sets, keys = np.empty(n, np.uint8), np.zeros(n, np.int32)
    lefts, rights, slots = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32)
    for i in range(n):
        m = refs[i] >> 1
        sets[i], slots[i] = refs[i] & 1, code_of(TAGS[m]) >> 1
        lefts[i], rights[i] = LO[m * d + d - 1], HI[m * d + d - 1]
    make_empty(M, W, C, Q)
    build(M, W, C, Q, sets, keys, lefts, rights, slots, np.arange(n))
    leave(W, C, h)
    W[h + IDLE] = 0


# --- trees of nodes


@kernel(allocates=True)
def sorted_places(keys: Any, values: Any, ties: Any) -> Any:
    """int64: the places of the arrays by (key, value, tie). O(n log n), merging."""
    n = len(values)
    a, b = np.arange(n), np.empty(n, np.int64)
    width = 1
    while width < n:
        for lo in range(0, n, 2 * width):
            mid, hi = min(lo + width, n), min(lo + 2 * width, n)
            i, j = lo, mid
            for p in range(lo, hi):
                if i == mid:
                    first = False
                elif j == hi:
                    first = True
                else:
                    x, y = a[i], a[j]
                    first = not before(keys[y], values[y], ties[y], keys[x], values[x], ties[x])
                if first:
                    b[p] = a[i]
                    i += 1
                else:
                    b[p] = a[j]
                    j += 1
        a, b = b, a
        width *= 2
    return a


@kernel(allocates=True)
def ranked_ends(C: Any, level: int, refs: Any, here: Any, LO: Any, HI: Any, TAGS: Any) -> tuple[Any, Any, Any, Any]:
    """Of members with their ends in a slab (`here`, as in a tag): the ends in order, as words (key, value, tie) of a flat array;
    the rank of each member's left and right end (-1 and the number of ends if not here); the members by dimension k + 1."""
    n, d = len(refs), C[DIMENSIONS]
    keys, values, ties, of = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64), np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    next_keys, next_values, next_ties = np.zeros(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    e = 0
    for j in range(n):
        m = refs[j] >> 1
        code = (code_of(TAGS[m]) & ~1) | (refs[j] & 1)
        key = key_of(TAGS[m]) if level == 0 else 0
        next_values[j], next_ties[j] = LO[m * d + level + 1], code
        if here[j] & 2 != 0:
            keys[e], values[e], ties[e], of[e] = key, LO[m * d + level], code, 2 * j
            e += 1
        if here[j] & 1 != 0:
            keys[e], values[e], ties[e], of[e] = key, HI[m * d + level], RIGHT_TIE + code, 2 * j + 1
            e += 1
    order = sorted_places(keys[:e], values[:e], ties[:e])
    ends, left, right = np.empty(3 * e, np.int64), np.full(n, -1), np.full(n, e)
    for r in range(e):
        x = order[r]
        ends[3 * r], ends[3 * r + 1], ends[3 * r + 2] = keys[x], values[x], ties[x]
        if of[x] & 1 == 0:
            left[of[x] >> 1] = r
        else:
            right[of[x] >> 1] = r
    return ends, left, right, sorted_places(next_keys, next_values, next_ties)


@kernel
def build_leaf(
    M: Any, W: Any, C: Any, level: int, o: int, a: int, b: int, members: Any, left: Any, right: Any, refs: Any, LO: Any, HI: Any, TAGS: Any
) -> None:  # fmt: skip
    """Make node o the leaf of the ends ranked [a, b), from the members with one there."""
    d = C[DIMENSIONS]
    r = new_records(M, W, C, level)
    for p in range(len(members)):
        j = members[p]
        m = refs[j] >> 1
        here = 2 * (a <= left[j] < b) + (a <= right[j] < b)
        key = key_of(TAGS[m]) if level == 0 else 0
        write_record(M, r, d, level, p, tag_of(key, code_of(TAGS[m]) >> 1, refs[j] & 1, here), LO[m * d : m * d + d], HI[m * d : m * d + d])
    W[2 * r + 2] = len(members)
    w = 2 * o
    W[w + FLAGS], W[w + RECORDS] = LEAF_NODE, r
    W[w + ROWS] = rows_inside(M, W, C, r, level, level == 0 and C[SELF_] != 0)


@kernel
def hand_down(
    C: Any, level: int, a: int, b: int, members: Any, left: Any, right: Any, refs: Any, below: Any, tree0: Any, tree1: Any
) -> tuple[int, int, int]:  # fmt: skip
    """Of the members of a node, those of its child with the ends ranked [a, b): with an end there, into `below`; as members of the
    child's trees, into tree0 and tree1. The numbers of each; 0 for a tree without spanners."""
    single = level == 0 and C[SELF_] != 0
    n, n0, n1, spanners0, spanners1 = 0, 0, 0, 0, 0
    for j in members:
        s = refs[j] & 1
        point, spanner = a <= left[j] < b, left[j] < a and right[j] >= b
        if point or a <= right[j] < b:
            below[n] = j
            n += 1
        if not (point or spanner):
            continue
        if single:
            tree0[n0] = refs[j] | (1 if point else 0)
            n0 += 1
            spanners0 += spanner
        elif (s == 0) == spanner:
            tree0[n0] = refs[j]
            n0 += 1
            spanners0 += spanner
        else:
            tree1[n1] = refs[j]
            n1 += 1
            spanners1 += spanner
    return n, n0 if spanners0 > 0 else 0, n1 if spanners1 > 0 else 0


@kernel(allocates=True)
def build_below(
    M: Any, W: Any, C: Any, Q: Any, level: int, top: int, refs: Any, here: Any, LO: Any, HI: Any, TAGS: Any,
    waiting: Any, pool: Any, made: Any, used: Any,
) -> None:  # fmt: skip
    """Build what is below node `top` from its members. Trees of more dimensions go to `waiting` (level, holder, place in the pool,
    members), nodes to `made`, after ~holder of their tree; used: the numbers of words in use in waiting, pool and made."""
    ends, left, right, order = ranked_ends(C, level, refs, here, LO, HI, TAGS)
    n, flat = len(refs), level + 2 == C[DIMENSIONS]
    most = len(ends) // (3 * FILL) + 2
    if no_room(C, 2 * most * NODE_WORDS + most * C[WORDS + 1 + level]):
        return
    nodes, next_nodes = np.empty((most, 5), np.int64), np.empty((most, 5), np.int64)  # node, ranks, places of members
    lists, next_lists = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    tree0, tree1 = np.empty(n, np.int64), np.empty(n, np.int64)
    lists[:n] = order
    nodes[0, 0], nodes[0, 1], nodes[0, 2], nodes[0, 3], nodes[0, 4] = top, 0, len(ends) // 3, 0, n
    count = 1
    while count > 0:
        next_count, end = 0, 0
        for x in range(count):
            o, a, b = nodes[x, 0], nodes[x, 1], nodes[x, 2]
            members = lists[nodes[x, 3] : nodes[x, 4]]
            W[2 * o + WEIGHT] = b - a
            made[used[2]] = o
            used[2] += 1
            if b - a <= FILL:
                build_leaf(M, W, C, level, o, a, b, members, left, right, refs, LO, HI, TAGS)
                continue
            leaves = -(-(b - a) // FILL)
            mid = a + (b - a) * (leaves // 2) // leaves
            W[2 * o + FLAGS] = 0
            M[o + SEPARATOR + 1], M[o + SEPARATOR], M[o + SEPARATOR + 2] = ends[3 * mid], ends[3 * mid + 1], ends[3 * mid + 2]
            for c in range(2):
                child = new_node(M, W, C, 0, LEAF_NODE)
                W[2 * o + CHILD0 + c] = child
                lo, hi = (a, mid) if c == 0 else (mid, b)
                m, n0, n1 = hand_down(C, level, lo, hi, members, left, right, refs, next_lists[end:], tree0, tree1)
                for i in range(2):
                    inside = tree0[:n0] if i == 0 else tree1[:n1]
                    if len(inside) > 0 and flat:
                        build_flat(M, W, C, Q, holder(child, i), inside, LO, HI, TAGS)
                    elif len(inside) > 0:
                        await_build(waiting, pool, used, level + 1, holder(child, i), inside)
                y = next_nodes[next_count]
                y[0], y[1], y[2], y[3], y[4] = child, lo, hi, end, end + m
                next_count += 1
                end += m
        nodes, next_nodes, lists, next_lists, count = next_nodes, nodes, next_lists, lists, next_count


@kernel(allocates=True)
def await_build(waiting: Any, pool: Any, used: Any, level: int, h: int, refs: Any) -> None:
    w, p = used[0], used[1]
    waiting[w], waiting[w + 1], waiting[w + 2], waiting[w + 3] = level, h, p, len(refs)
    pool[p : p + len(refs)] = refs
    used[0], used[1] = w + 4, p + len(refs)


@kernel(allocates=True)
def with_room(array: Any, used: int, more: int) -> Any:
    """The array, or a larger copy of it, with room for `more` words after the first `used`."""
    if used + more <= len(array):
        return array
    larger = np.empty(2 * used + more, np.int64)
    larger[:used] = array[:used]
    return larger


@kernel(allocates=True)
def build_trees(
    M: Any, W: Any, C: Any, Q: Any, level: int, h: int, top: int, refs: Any, here: Any, LO: Any, HI: Any, TAGS: Any
) -> None:  # fmt: skip
    """Build the tree of holder h (of the level, from scratch), or, h = 0, what is below node `top`.

    refs: members, 2 * place + set in the tree, of the boxes LO[place * d:], HI[place * d:] with TAGS[place]; for a 1-D tree in its order.
    """
    d = C[DIMENSIONS]
    if level + 1 == d:
        build_flat(M, W, C, Q, h, refs, LO, HI, TAGS)
        return
    waiting, pool, made = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    used = np.zeros(3, np.int64)
    first = 0
    while True:
        leaves, rounds = 2 * len(refs) // FILL + 2, 2
        while 1 << rounds < 2 * leaves:
            rounds += 1
        made = with_room(made, used[2], 2 * leaves + 1)
        if level + 2 < d:
            waiting, pool = with_room(waiting, used[0], 16 * leaves), with_room(pool, used[1], 3 * len(refs) * rounds)
        if h != 0:
            top = new_node(M, W, C, 0, LEAF_NODE)
            for i in range(TREE_WORDS):
                W[h + i] = 0
            W[h + ROOT_], W[h + STATE] = top, ACTIVE
            made[used[2]] = ~h
            used[2] += 1
            for r in refs:
                W[h + MEMBERS + (r & 1)] += 1
        build_below(M, W, C, Q, level, top, refs, here, LO, HI, TAGS, waiting, pool, made, used)
        if first == used[0] or C[FULL] != 0:
            break
        level, h, start = waiting[first], waiting[first + 1], waiting[first + 2]
        refs = pool[start : start + waiting[first + 3]]
        here = np.full(len(refs), 3, np.uint8)
        first += 4
    for i in range(used[2] - 1, -1, -1):
        if made[i] < 0:
            refresh_holder(W, ~made[i])
        else:
            refresh(W, made[i])


# --- level 0


@kernel("void(" + BOX_ARRAYS + ", uint8[::1], int32[::1], int64[::1], int64[::1], int32[::1])", allocates=True)
def load(M: Any, W: Any, C: Any, Q: Any, R: Any, sets: Any, keys: Any, lefts: Any, rights: Any, slots: Any) -> None:
    """Fill the empty tree; lefts, rights: flat, dimensions next to each other."""
    n = len(slots)
    refs, tags = np.empty(n, np.int64), np.empty(n, np.int64)
    for j in range(n):
        s = np.int64(sets[j])
        refs[j], tags[j] = 2 * j + s, tag_of(np.int64(keys[j]), np.int64(slots[j]), s, 3)
        W[TOP + MEMBERS + s] += 1
    top = W[TOP + ROOT_]
    drop_block(M, C, R, W[2 * top + RECORDS], 1)
    build_trees(M, W, C, Q, 0, 0, top, refs, np.full(n, 3, np.uint8), lefts, rights, tags)
    refresh_holder(W, TOP)


@kernel("void(" + BOX_ARRAYS + ")")
def plant(M: Any, W: Any, C: Any, Q: Any, R: Any) -> None:
    """Make the empty tree of level 0."""
    o = new_node(M, W, C, 0, LEAF_NODE)
    W[2 * o + RECORDS] = new_records(M, W, C, 0)
    W[TOP + ROOT_], W[TOP + STATE] = o, ACTIVE
