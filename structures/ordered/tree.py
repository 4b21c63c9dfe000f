r"""The persistent ordered tree with leaf blocks on which the structures are built.

Problem: keep entries (set, key, left, right, slot) in the order of (key, left, slot code), under single
inserts and deletes, with every version complete and readable while the next is written. Slot code = 2 * slot + set.

            [ c0 | c1 | c2 ]            inner nodes hold F children with their summaries; the separator of
            /     |       \             a child is its smallest (key, left) and `first`
        [....]  [....]  [....]          leaves hold up to B entries of both sets; all at one depth

Invariants, named by `check()` when violated
    I1  entries ascend by (key, left, slot code) along the leaves, in each set within a leaf
    I2  a stored summary equals the one computed from the child
    I3  all leaves lie at depth HEIGHT; an inner node has 2..F children (the root too), a leaf
        max(1, B // 4)..B entries (the root leaf 0..B)
    I4  unused positions of an inner node are cleared (`summary.clear_child`)

Costs: put, cut O(B + F log n) and O(log n) copied blocks; build O(n) after the sort.
Copy-on-write as in docs/design/versions.md: an update copies the path once a version, and ends where a block already
belongs to this version and its summary did not change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import COUNT, HEIGHT, INNER, INNER_WORDS, LEAF, LEAF_LEAST, LEAF_WORDS, LIVE, ROOT, SUM, SUM2, B, F
from structures.core.bits import LANES, at_most8, below8, count_bits
from structures.core.blocks import Nodes, Writing, drop, next_free
from structures.core.entries import Entries
from structures.core.kernel import kernel, prefetch
from structures.ordered.inner_nodes import concatenate_inners, even_inners, insert_child, new_inner, own_inner, remove_child, split_inner
from structures.ordered.layout import (
    CHILDREN,
    COUNTS,
    FIRST,
    FIRST_,
    KEY,
    KL,
    KL_,
    LEFT,
    LIVE_,
    LIVE_CHILDREN,
    ML,
    ML_,
    PATH_CHILD,
    PATH_NODE,
    RIGHT,
    SLOT,
    child_of,
    entries_of,
    set_child,
)
from structures.ordered.leaves import concatenate_leaves, cut_from_leaf, cut_leaf, even_leaves, new_leaf, own_leaf, place, put_in_leaf
from structures.ordered.summary import inner_summary, leaf_summary, leaf_summary_with, leaf_summary_without, read_child, write_child

LEAF_FILL = max(1, B * 7 // 8)
INNER_FILL = F - 1 if F > 3 else F


@kernel
def find_child(nodes: Nodes, o: int, key: int, left: int, code: int) -> int:
    """The last child of o whose separator is <= (key, left, code), otherwise 0: counted, eight at once."""
    M, W = nodes.M, nodes.W
    n = 0
    for c in range(0, F, LANES):
        mask, ties = 0, 0
        for s in range(2):
            keys, lefts = 2 * o + KL + s * F + c, o + ML + s * F + c
            before, within = below8(W, keys, key), at_most8(W, keys, key)
            mask |= before | (within & below8(M, lefts, left))
            ties |= within & ~before & at_most8(M, lefts, left)
        ties &= ~mask & ((1 << (F - c)) - 1)
        if ties != 0:
            mask |= ties & at_most8(W, 2 * o + FIRST + c, code)
        n += count_bits(mask & ((1 << (F - c)) - 1))
    return max(n - 1, 0)


@kernel
def descend(nodes: Nodes, C: Any, key: int, left: int, code: int) -> int:
    """The leaf to which the entry belongs; leaves the path in C[PATH:]."""
    return descend_from(nodes, C, 0, C[ROOT], key, left, code)


@kernel
def descend_from(nodes: Nodes, C: Any, depth: int, o: int, key: int, left: int, code: int) -> int:
    """The leaf to which the entry belongs, which is below node o at this depth; leaves the path from there on in C[PATH:]."""
    W = nodes.W
    for d in range(depth, C[HEIGHT]):
        c = find_child(nodes, o, key, left, code)
        C[PATH_NODE + 2 * d], C[PATH_CHILD + 2 * d] = o, c
        o = child_of(W, o, c)
    return o


# --- the way up


@kernel
def summarise(nodes: Nodes, C: Any, o: int, base: int, leaf: bool) -> None:
    if leaf:
        leaf_summary(nodes, C, o, base)
    else:
        inner_summary(nodes, C, o, base)


@kernel
def rebalance(nodes: Nodes, writing: Writing, o: int, c: int, leaf: bool) -> None:
    """Merge child c of own node o, which is too small, with a neighbour, or even the two out."""
    W, C = nodes.W, writing.C
    a = c - 1 if c > 0 else 0
    x, y = child_of(W, o, a), child_of(W, o, a + 1)
    if leaf:
        together = entries_of(W, x) + entries_of(W, y) <= B
        if together:
            z = concatenate_leaves(nodes, C, x, y)
            drop(nodes.M, writing, x, LEAF)
            drop(nodes.M, writing, y, LEAF)
            x = z
        else:
            x, y = even_leaves(nodes, writing, x, y)
    else:
        together = W[2 * x + CHILDREN] + W[2 * y + CHILDREN] <= F
        if together:
            x = concatenate_inners(nodes, writing, x, y)
        else:
            x, y = even_inners(nodes, writing, x, y)
    summarise(nodes, C, x, SUM, leaf)
    write_child(nodes, C, o, a, x, SUM)
    if together:
        remove_child(nodes, o, a + 1)
    else:
        summarise(nodes, C, y, SUM2, leaf)
        write_child(nodes, C, o, a + 1, y, SUM2)


@kernel
def swap_up(nodes: Nodes, writing: Writing, d: int, old: int, new: int) -> None:
    """Replace node `old`, below level d of the path, by `new` with the same summary: only pointers change, up to the first node that was
    owned already."""
    W, C = nodes.W, writing.C
    while old != new and d >= 0:
        above, c = C[PATH_NODE + 2 * d], C[PATH_CHILD + 2 * d]
        o = own_inner(nodes, writing, above)
        set_child(W, o, c, new)
        old, new = above, o
        d -= 1
    if old != new:
        C[ROOT] = new


@kernel
def climb(nodes: Nodes, writing: Writing, child: int, extra: int) -> None:
    """Update the path in C[PATH:]: its last child is now `child` (summary at C[SUM]), followed by the new node `extra` (C[SUM2]) unless
    0."""
    W, C = nodes.W, writing.C
    leaf = True
    for d in range(C[HEIGHT] - 1, -1, -1):
        old, c = C[PATH_NODE + 2 * d], C[PATH_CHILD + 2 * d]
        o = own_inner(nodes, writing, old)
        changed = write_child(nodes, C, o, c, child, SUM)
        if leaf:
            small = entries_of(W, child) < LEAF_LEAST
        else:
            small = W[2 * child + CHILDREN] < 2
        if extra == 0 and not small and not changed:
            swap_up(nodes, writing, d - 1, old, o)
            return
        right = 0
        if extra != 0:
            if W[2 * o + CHILDREN] == F:
                o, right = split_inner(nodes, writing, o, c + 1, extra)
            else:
                insert_child(nodes, C, o, c + 1, extra, SUM2)
        elif small:
            rebalance(nodes, writing, o, c, leaf)
        inner_summary(nodes, C, o, SUM)
        if right != 0:
            inner_summary(nodes, C, right, SUM2)
        child, extra, leaf = o, right, False
    if extra != 0:
        root = new_inner(nodes, C)
        insert_child(nodes, C, root, 0, child, SUM)
        insert_child(nodes, C, root, 1, extra, SUM2)
        C[HEIGHT] += 1
        inner_summary(nodes, C, root, SUM)
        child = root
    elif not leaf and W[2 * child + CHILDREN] == 1:
        root = child_of(W, child, 0)
        C[SUM + LIVE_] = W[2 * child + LIVE_CHILDREN] & 1
        drop(nodes.M, writing, child, INNER)
        C[HEIGHT] -= 1
        child = root
    C[ROOT] = child
    C[LIVE] = C[SUM + LIVE_]


@kernel
def summary_above(nodes: Nodes, C: Any, o: int) -> None:
    """Write the summary of leaf o, at the end of the path, into C[SUM], as stored above it."""
    d = C[HEIGHT] - 1
    if d < 0:
        leaf_summary(nodes, C, o, SUM)
    else:
        read_child(nodes, C, C[PATH_NODE + 2 * d], C[PATH_CHILD + 2 * d], SUM)


@kernel
def put(nodes: Nodes, writing: Writing, s: int, key: int, left: int, right: int, slot: int) -> None:
    """Insert an entry that is not there."""
    W, C = nodes.W, writing.C
    code = 2 * slot + s
    o = descend(nodes, C, key, left, code)
    extra = 0
    if entries_of(W, o) == B:
        full = o
        o, extra = cut_leaf(nodes, C, full, B - B // 2)
        drop(nodes.M, writing, full, LEAF)
        leaf_summary(nodes, C, extra, SUM2)
        k, v = C[SUM2 + KL_], C[SUM2 + ML_]
        if C[SUM2 + KL_ + 1] < k or (C[SUM2 + KL_ + 1] == k and C[SUM2 + ML_ + 1] < v):
            k, v = C[SUM2 + KL_ + 1], C[SUM2 + ML_ + 1]
        if k < key or (k == key and (v < left or (v == left and C[SUM2 + FIRST_] <= code))):
            put_in_leaf(nodes, extra, s, key, left, right, slot)
            leaf_summary(nodes, C, extra, SUM2)
        else:
            put_in_leaf(nodes, o, s, key, left, right, slot)
        leaf_summary(nodes, C, o, SUM)
    else:
        summary_above(nodes, C, o)
        o = own_leaf(nodes, writing, o)
        put_in_leaf(nodes, o, s, key, left, right, slot)
        leaf_summary_with(nodes, C, o, s, key, right)
    climb(nodes, writing, o, extra)
    C[COUNT + s] += 1


@kernel
def cut(nodes: Nodes, writing: Writing, s: int, key: int, left: int, slot: int) -> bool:
    """Delete an entry; False, and nothing done, if it is not there."""
    M, C = nodes.M, writing.C
    o = descend(nodes, C, key, left, 2 * slot + s)
    p, end = place(nodes, o, s, key, left, slot)
    if p == end:
        return False
    right = M[o + RIGHT + p]
    summary_above(nodes, C, o)
    o = own_leaf(nodes, writing, o)
    cut_from_leaf(nodes, o, s, p)
    leaf_summary_without(nodes, C, o, s, key, right)
    climb(nodes, writing, o, 0)
    C[COUNT + s] -= 1
    return True


@kernel
def expect_block(M: Any, o: int, words: int) -> None:
    for line in range(0, words, 8):
        prefetch(M, o + line)


@kernel
def expect(nodes: Nodes, C: Any, key: int, left: int, code: int, height: int) -> None:
    """Prefetch the cache lines that a change of this entry will touch, down to the height: those of its path; with height 0 its leaf, and
    the blocks that copies will take."""
    M, W = nodes.M, nodes.W
    o = C[ROOT]
    for _ in range(C[HEIGHT] - height):
        expect_block(M, o, INNER_WORDS)
        o = child_of(W, o, find_child(nodes, o, key, left, code))
    if height > 0:
        expect_block(M, o, INNER_WORDS)
    else:
        expect_block(M, o, LEAF_WORDS)
        expect_block(M, next_free(C, LEAF), LEAF_WORDS)
        expect_block(M, next_free(C, INNER), INNER_WORDS)


# --- bulk build


@kernel("void(Nodes, Writing)")
def make_empty(nodes: Nodes, writing: Writing) -> None:
    """Make a tree of one leaf without entries. O(1)."""
    C = writing.C
    C[ROOT] = new_leaf(nodes, C, 0, 0)
    C[HEIGHT], C[COUNT], C[COUNT + 1], C[LIVE] = 0, 0, 0, 0


@kernel("void(Nodes, Writing, Entries, int64[::1])", allocates=True)
def build(nodes: Nodes, writing: Writing, entries: Entries, order: Any) -> None:
    """Build an empty tree from entries; `order`: their places by (key, left, slot code). O(n)."""
    M, W, C = nodes.M, nodes.W, writing.C
    sets, keys, lefts, rights, slots = entries.set, entries.key, entries.left, entries.right, entries.slot
    n = len(order)
    drop(nodes.M, writing, C[ROOT], LEAF)
    leaves = max(1, -(-n // LEAF_FILL))
    level = np.empty(leaves, np.int64)
    for b in range(leaves):
        lo, hi = n * b // leaves, n * (b + 1) // leaves
        o = new_leaf(nodes, C, 0, 0)
        n0, n1 = 0, 0
        for i in range(lo, hi):
            n1 += sets[order[i]]
        j = B - n1
        for i in range(lo, hi):
            e = order[i]
            if sets[e] == 0:
                p = n0
                n0 += 1
            else:
                p = j
                j += 1
            M[o + LEFT + p], M[o + RIGHT + p] = lefts[e], rights[e]
            W[2 * o + SLOT + p], W[2 * o + KEY + p] = slots[e], keys[e]
        W[2 * o + COUNTS], W[2 * o + COUNTS + 1] = n0, n1
        C[COUNT] += n0
        C[COUNT + 1] += n1
        level[b] = o
    leaf = True
    while len(level) > 1:
        parents = -(-len(level) // INNER_FILL)
        above = np.empty(parents, np.int64)
        for b in range(parents):
            o = new_inner(nodes, C)
            lo, hi = len(level) * b // parents, len(level) * (b + 1) // parents
            for c in range(lo, hi):
                summarise(nodes, C, level[c], SUM, leaf)
                insert_child(nodes, C, o, c - lo, level[c], SUM)
            above[b] = o
        level = above
        leaf = False
        C[HEIGHT] += 1
    summarise(nodes, C, level[0], SUM, leaf)
    C[ROOT], C[LIVE] = level[0], C[SUM + LIVE_]
