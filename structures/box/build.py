"""Build box trees from given boxes.

A subtree is built level of nodes by level of nodes: its endpoints are sorted once, and boxes are represented by ranks; the boxes of each
node stay in the order of dimension k + 1, so that the trees at a node are built from sorted members. Trees of level k + 1 that are not 1-D
wait in a list; live bits are written at the end, from the last node made to the first.

Costs: O(n log n) for n boxes with the last dimension next, times O(log n) for each dimension more.
Source: Tao and Yi, section 4.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.box import layout
from structures.box.layout import (
    BOTH_HERE,
    LEFT_HERE,
    RIGHT_HERE,
    clear_holder,
    holder,
    new_node,
    new_records,
    no_room,
    own_node,
    records_of,
    refresh,
    refresh_holder,
    root_of,
    set_child,
    set_records,
    set_root,
)
from structures.box.records import code_of, key_of, rows_inside, tag_of, write_record
from structures.core.arena import COUNT, HEIGHT, INNER_WORDS, LEAF_WORDS, LIVE, ROOT
from structures.core.blocks import Nodes, WriteState, drop
from structures.core.control import words_of
from structures.core.entries import Entries
from structures.core.kernel import arrays, kernel, wide
from structures.ordered.tree import LEAF_FILL, build, make_empty

# --- 1-D trees in holders


@kernel
def enter(W: Any, C: Any, h: int) -> None:
    """Make the 1-D tree in holder h the current one for the kernels of `ordered.tree`."""
    C[ROOT], C[HEIGHT], C[LIVE] = root_of(W, h), W[h + layout.HEIGHT_], W[h + layout.STATE] & layout.LIVE_
    C[COUNT], C[COUNT + 1] = W[h + layout.MEMBERS], W[h + layout.MEMBERS + 1]


@kernel
def leave(W: Any, C: Any, h: int) -> None:
    set_root(W, h, C[ROOT])
    W[h + layout.HEIGHT_], W[h + layout.STATE] = C[HEIGHT], layout.ACTIVE | C[LIVE]
    W[h + layout.MEMBERS], W[h + layout.MEMBERS + 1] = C[COUNT], C[COUNT + 1]


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class BoxList(NamedTuple):
    """The boxes to build from: refs to them, and, by ref, their lower and upper ends and their tags."""

    refs: np.ndarray
    LO: np.ndarray
    HI: np.ndarray
    TAGS: np.ndarray


@kernel(allocates=True)
def build_entries(nodes: Nodes, writing: WriteState, h: int, entries: Entries, order: Any) -> None:
    """Build the 1-D tree of holder h, from scratch, from its entries; `order`: their places in its order."""
    W, C = nodes.W, writing.C
    if no_room(C, (len(order) // LEAF_FILL + 64) * (LEAF_WORDS + INNER_WORDS)):  # no more inner nodes than leaves
        return
    make_empty(nodes, writing)
    build(nodes, writing, entries, order)
    leave(W, C, h)
    W[h + layout.IDLE] = 0


@kernel(allocates=True)
def build_flat(nodes: Nodes, writing: WriteState, h: int, given: BoxList) -> None:
    """Build a 1-D tree from members (see `build_trees`), given in its order."""
    refs, LO, HI, TAGS = given
    n, d = len(refs), writing.C[layout.DIMENSIONS]
    sets, keys = np.empty(n, np.uint8), np.zeros(n, np.int32)
    lefts, rights, slots = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32)
    for i in range(n):
        m = refs[i] >> 1
        sets[i], slots[i] = refs[i] & 1, code_of(TAGS[m]) >> 1
        lefts[i], rights[i] = LO[m * d + d - 1], HI[m * d + d - 1]
    build_entries(nodes, writing, h, Entries(sets, keys, lefts, rights, slots), np.arange(n))


# --- trees of nodes


@kernel(allocates=True)
def sort_by(column: Any, positions: Any, other: Any) -> tuple[Any, Any]:
    """The places of a column sorted by its values (stable), and scratch of the same size. O(n) for each byte in which values differ."""
    n, differ = len(column), wide(0)
    for value in column:
        differ |= value ^ column[0]
    for shift in range(0, 64, 8):
        if (differ >> shift) & 255 == 0:
            continue
        flip = 128 if shift == 56 else 0  # the sign bit
        starts = np.zeros(257, np.int64)
        for value in column:
            starts[(((value >> shift) & 255) ^ flip) + 1] += 1
        for digit in range(1, 256):
            starts[digit] += starts[digit - 1]
        for i in range(n):
            digit = ((column[positions[i]] >> shift) & 255) ^ flip
            other[starts[digit]] = positions[i]
            starts[digit] += 1
        positions, other = other, positions
    return positions, other


@kernel(allocates=True)
def sorted_positions(keys: Any, values: Any, ties: Any) -> Any:
    """int64: the places of the arrays sorted by (key, value, tie). Radix sort: O(n) for each byte in which they differ, at most 20."""
    positions, other = sort_by(ties, np.arange(len(values)), np.empty(len(values), np.int64))
    positions, other = sort_by(values, positions, other)
    return sort_by(keys, positions, other)[0]


class NodeMembers(NamedTuple):
    """Members of a tree's node, and for each member the ranks of its left and right end among all ends in the node's slab: -1, or the
    number of ends, for an end outside."""

    given: BoxList
    left: np.ndarray
    right: np.ndarray


class PendingTrees(NamedTuple):
    """Trees to be built (level, holder, place in the pool, members), and their members; the nodes made, after ~holder of their tree; the
    numbers of words in use in these three."""

    waiting: np.ndarray
    pool: np.ndarray
    made: np.ndarray
    used: np.ndarray


@kernel(allocates=True)
def ranked_ends(C: Any, level: int, given: BoxList, here: Any) -> tuple[Any, NodeMembers, Any]:
    """For members with ends in a slab (`here`, as in a tag), return the ends in order, as words (key, value, tie) of a flat array; their
    ranks; and the members sorted by dimension k + 1."""
    refs, LO, HI, TAGS = given.refs, given.LO, given.HI, given.TAGS
    n, d = len(refs), C[layout.DIMENSIONS]
    keys, values, ties, of = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64), np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    next_keys, next_values, next_ties = np.zeros(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    e = 0
    for j in range(n):
        m = refs[j] >> 1
        code = (code_of(TAGS[m]) & ~1) | (refs[j] & 1)
        key = key_of(TAGS[m]) if level == 0 else 0
        next_values[j], next_ties[j] = LO[m * d + level + 1], code
        if here[j] & LEFT_HERE != 0:
            keys[e], values[e], ties[e], of[e] = key, LO[m * d + level], code, 2 * j
            e += 1
        if here[j] & RIGHT_HERE != 0:
            keys[e], values[e], ties[e], of[e] = key, HI[m * d + level], layout.RIGHT_TIE + code, 2 * j + 1
            e += 1
    order = sorted_positions(keys[:e], values[:e], ties[:e])
    ends, left, right = np.empty(3 * e, np.int64), np.full(n, -1), np.full(n, e)
    for r in range(e):
        x = order[r]
        ends[3 * r], ends[3 * r + 1], ends[3 * r + 2] = keys[x], values[x], ties[x]
        if of[x] & 1 == 0:
            left[of[x] >> 1] = r
        else:
            right[of[x] >> 1] = r
    return ends, NodeMembers(given, left, right), sorted_positions(next_keys, next_values, next_ties)


@kernel
def build_leaf(nodes: Nodes, writing: WriteState, level: int, o: int, a: int, b: int, members: Any, ranked: NodeMembers) -> None:
    """Make node o the leaf of the ends ranked [a, b), from the members with an end there."""
    M, W, C, left, right = nodes.M, nodes.W, writing.C, ranked.left, ranked.right
    refs, LO, HI, TAGS = ranked.given
    d = C[layout.DIMENSIONS]
    r = new_records(nodes, C, level)
    for p in range(len(members)):
        j = members[p]
        m = refs[j] >> 1
        here = (LEFT_HERE if a <= left[j] < b else 0) | (RIGHT_HERE if a <= right[j] < b else 0)
        key = key_of(TAGS[m]) if level == 0 else 0
        write_record(M, r, d, level, p, tag_of(key, code_of(TAGS[m]) >> 1, refs[j] & 1, here), LO[m * d : m * d + d], HI[m * d : m * d + d])
    W[2 * r + layout.COUNT] = len(members)
    w = 2 * o
    W[w + layout.FLAGS] = layout.LEAF_NODE
    set_records(W, o, r)
    W[w + layout.ROWS] = rows_inside(nodes, C, r, level, level == 0 and C[layout.SELF_] != 0)


@kernel
def hand_down(is_self: bool, a: int, b: int, members: Any, ranked: NodeMembers, below: Any, tree0: Any, tree1: Any) -> tuple[int, int, int]:
    """Distribute the members of a node to the child with the ends ranked [a, b): those with an end there into `below`, the members of the
    child's trees into tree0 and tree1 (`is_self`: all into tree0). Returns the number of each; 0 for a tree without spanners."""
    refs, left, right = ranked.given.refs, ranked.left, ranked.right
    n, n0, n1, spanners0, spanners1 = 0, 0, 0, 0, 0
    for j in members:
        s = refs[j] & 1
        point, spanner = a <= left[j] < b, left[j] < a and right[j] >= b
        if point or a <= right[j] < b:
            below[n] = j
            n += 1
        if not (point or spanner):
            continue
        if is_self:
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
def build_below(nodes: Nodes, writing: WriteState, level: int, top: int, given: BoxList, here: Any, pending: PendingTrees) -> None:
    """Build what is below node `top` from its members; record the nodes made, and the trees of more dimensions that are still to be
    built."""
    M, W, C, refs, LO, HI, TAGS = nodes.M, nodes.W, writing.C, given.refs, given.LO, given.HI, given.TAGS
    made, used = pending.made, pending.used
    ends, ranked, order = ranked_ends(C, level, given, here)
    is_self = level == 0 and C[layout.SELF_] != 0
    n, flat = len(refs), level + 2 == C[layout.DIMENSIONS]
    most = len(ends) // (3 * layout.FILL) + 2
    if no_room(C, 2 * most * layout.NODE_WORDS + most * words_of(C, layout.RECORD_LEVELS + level)):
        return
    present, next_present = np.empty((most, 5), np.int64), np.empty((most, 5), np.int64)  # node, its ranks, places of its members
    lists, next_lists = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    tree0, tree1 = np.empty(n, np.int64), np.empty(n, np.int64)
    lists[:n] = order
    present[0, 0], present[0, 1], present[0, 2], present[0, 3], present[0, 4] = top, 0, len(ends) // 3, 0, n
    count = 1
    while count > 0:
        next_count, end = 0, 0
        for x in range(count):
            if no_room(C, 2 * layout.NODE_WORDS + words_of(C, layout.RECORD_LEVELS + level)):  # the 1-D trees reserve their own words
                return
            o, a, b = present[x, 0], present[x, 1], present[x, 2]
            members = lists[present[x, 3] : present[x, 4]]
            W[2 * o + layout.WEIGHT] = b - a
            made[used[2]] = o
            used[2] += 1
            if b - a <= layout.FILL:
                build_leaf(nodes, writing, level, o, a, b, members, ranked)
                continue
            leaves = -(-(b - a) // layout.FILL)
            mid = a + (b - a) * (leaves // 2) // leaves
            W[2 * o + layout.FLAGS] = 0
            s = o + layout.SEPARATOR
            M[s + 1], M[s], M[s + 2] = ends[3 * mid], ends[3 * mid + 1], ends[3 * mid + 2]
            for c in range(2):
                child = new_node(nodes, C, 0, layout.LEAF_NODE)
                set_child(W, o, c, child)
                lo, hi = (a, mid) if c == 0 else (mid, b)
                m, n0, n1 = hand_down(is_self, lo, hi, members, ranked, next_lists[end:], tree0, tree1)
                for i in range(2):
                    inside = tree0[:n0] if i == 0 else tree1[:n1]
                    if len(inside) > 0 and flat:
                        build_flat(nodes, writing, holder(child, i), BoxList(inside, LO, HI, TAGS))
                    elif len(inside) > 0:
                        await_build(pending, level + 1, holder(child, i), inside)
                y = next_present[next_count]
                y[0], y[1], y[2], y[3], y[4] = child, lo, hi, end, end + m
                next_count += 1
                end += m
        present, next_present, lists, next_lists, count = next_present, present, next_lists, lists, next_count


@kernel(allocates=True)
def await_build(pending: PendingTrees, level: int, h: int, refs: Any) -> None:
    waiting, pool, used = pending.waiting, pending.pool, pending.used
    w, p = used[0], used[1]
    waiting[w], waiting[w + 1], waiting[w + 2], waiting[w + 3] = level, h, p, len(refs)
    pool[p : p + len(refs)] = refs
    used[0], used[1] = w + 4, p + len(refs)


@kernel(allocates=True)
def with_room(array: Any, used: int, more: int) -> Any:
    """The array, or a larger copy, with room for `more` words after the first `used`."""
    if used + more <= len(array):
        return array
    larger = np.empty(2 * used + more, np.int64)
    larger[:used] = array[:used]
    return larger


@kernel(allocates=True)
def build_trees(nodes: Nodes, writing: WriteState, level: int, h: int, top: int, given: BoxList, here: Any) -> None:
    """Build the tree of holder h (of the level, from scratch), or, h = 0, what is below node `top`.

    given.refs: members, 2 * place + set in the tree, of the boxes LO[place * d:], HI[place * d:] with TAGS[place]; for a 1-D tree in its
    order.
    """
    W, C, refs = nodes.W, writing.C, given.refs
    d = C[layout.DIMENSIONS]
    if level + 1 == d:
        build_flat(nodes, writing, h, given)
        return
    waiting, pool, made = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    used = np.zeros(3, np.int64)
    first = 0
    while True:
        leaves, rounds = 2 * len(refs) // layout.FILL + 2, 2
        while 1 << rounds < 2 * leaves:
            rounds += 1
        made = with_room(made, used[2], 2 * leaves + 1)
        if level + 2 < d:
            waiting, pool = with_room(waiting, used[0], 16 * leaves), with_room(pool, used[1], 3 * len(refs) * rounds)
        if h != 0:
            top = new_node(nodes, C, 0, layout.LEAF_NODE)
            clear_holder(W, h)
            set_root(W, h, top)
            W[h + layout.STATE] = layout.ACTIVE
            made[used[2]] = ~h
            used[2] += 1
            for r in refs:
                W[h + layout.MEMBERS + (r & 1)] += 1
        build_below(
            nodes, writing, level, top, BoxList(refs, given.LO, given.HI, given.TAGS), here, PendingTrees(waiting, pool, made, used)
        )
        if first == used[0] or C[layout.FULL] != 0:
            break
        level, h, start = waiting[first], waiting[first + 1], waiting[first + 2]
        refs = pool[start : start + waiting[first + 3]]
        here = np.full(len(refs), BOTH_HERE, np.uint8)
        first += 4
    for i in range(used[2] - 1, -1, -1):
        if made[i] < 0:
            refresh_holder(W, ~made[i])
        else:
            refresh(W, made[i])


# --- level 0


@kernel("void(Nodes, WriteState, Entries)", allocates=True)
def load(nodes: Nodes, writing: WriteState, entries: Entries) -> None:
    """Fill the empty tree; left, right: flat, with the dimensions of a box side by side. O(n log**(d - 1) n)."""
    sets, keys, lefts, rights, slots = entries
    W, d = nodes.W, writing.C[layout.DIMENSIONS]
    n = len(slots)
    refs, tags = np.empty(n, np.int64), np.empty(n, np.int64)
    for j in range(n):
        s = wide(sets[j])
        layout.note_length(writing.C, lefts[j * d : (j + 1) * d], rights[j * d : (j + 1) * d])
        refs[j], tags[j] = 2 * j + s, tag_of(wide(keys[j]), wide(slots[j]), s, BOTH_HERE)
        W[layout.TOP + layout.MEMBERS + s] += 1
    top = own_node(nodes, writing, root_of(W, layout.TOP))
    set_root(W, layout.TOP, top)
    drop(nodes.M, writing, records_of(W, top), layout.RECORD_LEVELS)
    build_trees(nodes, writing, 0, 0, top, BoxList(refs, lefts, rights, tags), np.full(n, BOTH_HERE, np.uint8))
    refresh_holder(W, layout.TOP)


@kernel("void(Nodes, WriteState)")
def plant(nodes: Nodes, writing: WriteState) -> None:
    """Make the empty tree of level 0. O(1)."""
    W, C = nodes.W, writing.C
    o = new_node(nodes, C, 0, layout.LEAF_NODE)
    set_records(W, o, new_records(nodes, C, 0))
    set_root(W, layout.TOP, o)
    W[layout.TOP + layout.STATE] = layout.ACTIVE
