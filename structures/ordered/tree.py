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
With the path of the next changes prefetched (`expect`), large batches take two thirds of the time.
Copy-on-write as in docs/design/versions.md: an update copies the path once a version, and ends where a block already
belongs to this version and its summary did not change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.btree.nodes import Helpers, halving
from structures.btree.paths import building, climbing
from structures.core.arena import COUNT, HEIGHT, INNER, INNER_WORDS, LEAF, LEAF_WORDS, LIVE, ROOT, SUM, B, F
from structures.core.bits import LANES, at_most8, below8, count_bits
from structures.core.blocks import Nodes, WriteState, drop, next_free
from structures.core.entries import Entries
from structures.core.kernel import kernel, prefetch, wide
from structures.ordered.inner_nodes import INNER_KIND, close_child, open_child, own_inner
from structures.ordered.layout import (
    COUNTS,
    FIRST,
    KEY,
    KL,
    LEFT,
    LIVE_,
    ML,
    PATH_CHILD,
    PATH_NODE,
    RIGHT,
    SLOT,
    OrderedTree,
    child_of,
    entries_of,
    set_child,
)
from structures.ordered.leaves import LEAF_KIND, cut_from_leaf, entries_before, find_entry, new_leaf, own_leaf, put_in_leaf
from structures.ordered.summary import inner_summary, leaf_summary, write_child

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
def link(tree: OrderedTree, o: int, c: int, child: int) -> None:
    set_child(tree.nodes.W, o, c, child)


@kernel
def note(tree: OrderedTree, o: int, c: int, child: int, leaf: bool) -> bool:
    """The summary of a leaf is at C[SUM] already."""
    if not leaf:
        inner_summary(tree.nodes, tree.writing.C, child, SUM)
    return write_child(tree.nodes, tree.writing.C, o, c, child, SUM)


@kernel
def refresh(tree: OrderedTree, o: int, c: int, child: int, leaf: bool) -> None:
    summarise(tree.nodes, tree.writing.C, child, SUM, leaf)
    write_child(tree.nodes, tree.writing.C, o, c, child, SUM)


@kernel
def plant(tree: OrderedTree, root: int, by: int, differs: bool) -> None:
    C = tree.writing.C
    C[ROOT] = root
    C[HEIGHT] += by
    if differs:
        if C[HEIGHT] > 0 or by < 0:
            summarise(tree.nodes, C, root, SUM, C[HEIGHT] == 0)
        C[LIVE] = C[SUM + LIVE_]


_HELPERS = Helpers(
    leaf=LEAF_KIND,
    inner=INNER_KIND,
    height=kernel(lambda tree: tree.writing.C[HEIGHT]),
    step=kernel(lambda tree, d: (tree.writing.C[PATH_NODE + 2 * d], tree.writing.C[PATH_CHILD + 2 * d])),
    child=kernel(lambda tree, o, c: child_of(tree.nodes.W, o, c)),
    own=kernel(lambda tree, o, leaf: own_leaf(tree.nodes, tree.writing, o) if leaf else own_inner(tree.nodes, tree.writing, o)),
    above=INNER_KIND.new,
    open=open_child,
    close=close_child,
    separate=kernel(lambda tree, o, c, child, leaf: None),
    inherit=kernel(lambda tree, o, c, child: None),
    position=link,
    note=note,
    refresh=refresh,
    plant=plant,
)
climb, halve = climbing(_HELPERS), halving(LEAF_KIND)
_, build_levels = building(_HELPERS)


@kernel
def put(nodes: Nodes, writing: WriteState, s: int, key: int, left: int, right: int, slot: int) -> None:
    """Insert an entry that is not there."""
    C, tree, extra = writing.C, OrderedTree(nodes, writing), wide(0)
    o = descend(nodes, C, key, left, 2 * slot + s)
    if entries_of(nodes.W, o) == B:
        o = own_leaf(nodes, writing, o)
        extra, into, _ = halve(tree, o, entries_before(nodes, o, s, key, left, slot))
        put_in_leaf(nodes, into, s, key, left, right, slot)
    else:
        o = own_leaf(nodes, writing, o)
        put_in_leaf(nodes, o, s, key, left, right, slot)
        leaf_summary(nodes, C, o, SUM)
    climb(tree, o, extra, True)
    C[COUNT + s] += 1


@kernel
def cut(nodes: Nodes, writing: WriteState, s: int, key: int, left: int, slot: int) -> bool:
    """Delete an entry; False, and nothing done, if it is not there."""
    C = writing.C
    o = descend(nodes, C, key, left, 2 * slot + s)
    p, end = find_entry(nodes, o, s, key, left, slot)
    if p == end:
        return False
    o = own_leaf(nodes, writing, o)
    cut_from_leaf(nodes, o, s, p)
    leaf_summary(nodes, C, o, SUM)
    climb(OrderedTree(nodes, writing), o, 0, True)
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


@kernel("void(Nodes, WriteState)")
def make_empty(nodes: Nodes, writing: WriteState) -> None:
    """Make a tree of one leaf without entries. O(1)."""
    C = writing.C
    C[ROOT] = new_leaf(nodes, C, 0, 0)
    C[HEIGHT], C[COUNT], C[COUNT + 1], C[LIVE] = 0, 0, 0, 0


@kernel("void(Nodes, WriteState, Entries, int64[::1])", allocates=True)
def build(nodes: Nodes, writing: WriteState, entries: Entries, order: Any) -> None:
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
    leaf_summary(nodes, C, level[0], SUM)
    build_levels(OrderedTree(nodes, writing), level, INNER_FILL)
