r"""The persistent tree of the IJ-heap, and of cliques of one set: binary, balanced by height, with leaf blocks of all sets together.

                [ separator | summary ]           an inner node has two children; `lower` lies before the separator
                /                     \\
        [ separator | summary ]     [ leaf ]      a leaf holds up to L entries in t runs, and its summary
        /             \\
    [ leaf ]        [ leaf ]

Invariants, named by `check()` when violated
    I1  entries ascend by (key, left, code), code = 8 * slot + set; each run ascends; separators divide
    I2  a stored summary is that of the entries below
    I3  the heights of two children differ by one at most; a leaf that is not the root has max(1, L // 4)..L entries

Costs: put, cut O(L + log n) besides the extremes that change (`summary`: next to none, by the touch rule), O(log n) copied blocks;
build O(n) after the sort. Copy-on-write as in docs/design/versions.md. Source: docs/design/ij-heap.md; Adelson-Velsky and Landis for the
balance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import HEIGHT, INNER, LEAF, ROOT
from structures.core.blocks import WriteState, drop
from structures.core.entries import Entries, Entry
from structures.core.kernel import kernel, wide
from structures.multiway import layout
from structures.multiway.layout import MultiwayNodes, allocate_block, height_of, own, start_of
from structures.multiway.leaves import (
    AT,
    concatenate_leaves,
    count_of,
    cut_from_leaf,
    cut_leaf,
    entry_at,
    even_leaves,
    holds,
    position,
    put_in_leaf,
    separate,
)
from structures.multiway.summary import CUT, PUT, concerned, refresh, summarise
from structures.multiway.topology import SETS

LEAF_FILL = max(1, layout.L * 7 // 8)


@kernel
def input_of(nodes: MultiwayNodes, o: int, key: int, left: int, code: int) -> int:
    """1 if the entry belongs to the upper child of o, else 0."""
    M, W = nodes.M, nodes.W
    k, v = W[2 * o + layout.SEPARATOR_KEY], M[o + layout.SEPARATOR_LEFT]
    return k < key or (k == key and (v < left or (v == left and M[o + layout.SEPARATOR_CODE] <= code)))


@kernel
def descend(nodes: MultiwayNodes, C: Any, key: int, left: int, code: int) -> int:
    """The leaf to which the entry belongs; leaves the path in C[PATH:]."""
    M, W = nodes.M, nodes.W
    o, d = C[ROOT], layout.PATH
    while height_of(W, o) > 0:
        input = 1 if input_of(nodes, o, key, left, code) else 0
        C[d], C[d + 1] = o, input
        d += 2
        o = M[o + layout.CHILD + input]
    C[d] = 0
    return o


# --- balance


@kernel
def measure(nodes: MultiwayNodes, o: int) -> None:
    M, W = nodes.M, nodes.W
    W[2 * o + layout.HEIGHT_] = 1 + max(height_of(W, M[o + layout.CHILD]), height_of(W, M[o + layout.CHILD + 1]))


@kernel
def swap_separators(nodes: MultiwayNodes, a: int, b: int) -> None:
    M, W = nodes.M, nodes.W
    M[a + layout.SEPARATOR_LEFT], M[b + layout.SEPARATOR_LEFT] = M[b + layout.SEPARATOR_LEFT], M[a + layout.SEPARATOR_LEFT]
    M[a + layout.SEPARATOR_CODE], M[b + layout.SEPARATOR_CODE] = M[b + layout.SEPARATOR_CODE], M[a + layout.SEPARATOR_CODE]
    W[2 * a + layout.SEPARATOR_KEY], W[2 * b + layout.SEPARATOR_KEY] = W[2 * b + layout.SEPARATOR_KEY], W[2 * a + layout.SEPARATOR_KEY]


@kernel
def balance(nodes: MultiwayNodes, writing: WriteState, scratch: Any, o: int) -> None:
    """Restore I3 at own inner node o, whose children's heights differ by at most two. The entries below o stay the same, and so may its
    summary; the nodes that change places are summarised again."""
    M, W = nodes.M, nodes.W
    lower, upper = height_of(W, M[o + layout.CHILD]), height_of(W, M[o + layout.CHILD + 1])
    if abs(lower - upper) > 1:
        a = 0 if lower > upper else 1
        b = 1 - a
        y = own(nodes, writing, M[o + layout.CHILD + a])
        if height_of(W, M[y + layout.CHILD + a]) >= height_of(W, M[y + layout.CHILD + b]):
            M[o + layout.CHILD + a], M[y + layout.CHILD + a] = M[y + layout.CHILD + a], M[y + layout.CHILD + b]
            M[y + layout.CHILD + b], M[o + layout.CHILD + b] = M[o + layout.CHILD + b], y
            swap_separators(nodes, o, y)
        else:
            z = own(nodes, writing, M[y + layout.CHILD + b])
            M[y + layout.CHILD + b], M[z + layout.CHILD + a] = M[z + layout.CHILD + a], M[z + layout.CHILD + b]
            M[z + layout.CHILD + b], M[o + layout.CHILD + a], M[o + layout.CHILD + b] = M[o + layout.CHILD + b], y, z
            swap_separators(nodes, o, z)
            measure(nodes, z)
            summarise(nodes, scratch, z)
        measure(nodes, y)
        summarise(nodes, scratch, y)
    measure(nodes, o)


@kernel
def fill_up(nodes: MultiwayNodes, writing: WriteState, scratch: Any, o: int, input: int) -> int:
    """Merge child `input` of own node o, a leaf with too few entries, with the leaf beside it, or even the two out. Returns what replaces
    o: o itself, or the one leaf that is left."""
    M, W, C = nodes.M, nodes.W, writing.C
    x, beside = M[o + layout.CHILD + input], M[o + layout.CHILD + 1 - input]
    inner = height_of(W, beside) > 0
    y = M[beside + layout.CHILD + input] if inner else beside
    a, b = (x, y) if input == 0 else (y, x)
    if count_of(nodes, a) + count_of(nodes, b) <= layout.L:
        z = concatenate_leaves(nodes, C, a, b)
        drop(nodes.M, writing, a, LEAF)
        drop(nodes.M, writing, b, LEAF)
        summarise(nodes, scratch, z)
        if not inner:
            drop(nodes.M, writing, o, INNER)
            return z
        M[o + layout.CHILD + input], M[o + layout.CHILD + 1 - input] = z, M[beside + layout.CHILD + 1 - input]
        M[o + layout.SEPARATOR_LEFT], M[o + layout.SEPARATOR_CODE] = M[beside + layout.SEPARATOR_LEFT], M[beside + layout.SEPARATOR_CODE]
        W[2 * o + layout.SEPARATOR_KEY] = W[2 * beside + layout.SEPARATOR_KEY]
        drop(nodes.M, writing, beside, INNER)
        return o
    a, b = even_leaves(nodes, writing, scratch, a, b)
    separate(nodes, scratch, o, b)
    summarise(nodes, scratch, a)
    summarise(nodes, scratch, b)
    x, y = (a, b) if input == 0 else (b, a)
    M[o + layout.CHILD + input] = x
    if inner:
        beside = own(nodes, writing, beside)
        M[beside + layout.CHILD + input] = y
        summarise(nodes, scratch, beside)
        y = beside
    M[o + layout.CHILD + 1 - input] = y
    return o


# --- changes


@kernel
def climb(nodes: MultiwayNodes, writing: WriteState, scratch: Any, child: int, least: int, greatest: int, entry: Entry, sign: int) -> None:
    """Update the path in C[PATH:]: its leaf is now `child`, in which the entry was inserted or deleted; the masks say which extremes may
    still change above."""
    M, W, C = nodes.M, nodes.W, writing.C
    d = layout.PATH
    while C[d] != 0:
        d += 2
    uneven = height_of(W, child) > 0
    while d > layout.PATH:
        d -= 2
        old, input = C[d], C[d + 1]
        o = own(nodes, writing, old)
        M[o + layout.CHILD + input] = child
        if height_of(W, child) == 0 and count_of(nodes, child) < layout.LEAF_LEAST:
            uneven = True
            above = fill_up(nodes, writing, scratch, o, input)
            if above != o:
                child = above
                continue
        if uneven:
            height = height_of(W, o)
            balance(nodes, writing, scratch, o)
            uneven = height != height_of(W, o)
        if least != 0:
            least = refresh(nodes, scratch, 0, o, least, entry, sign)
        if greatest != 0:
            greatest = refresh(nodes, scratch, 1, o, greatest, entry, sign)
        if o == old and least == 0 and greatest == 0 and not uneven:
            return
        child = o
    C[ROOT] = child
    C[HEIGHT] = height_of(W, child)


@kernel
def split(nodes: MultiwayNodes, writing: WriteState, scratch: Any, full: int, entry: Entry) -> int:
    """Insert an entry into a full leaf, which is replaced by a new inner node over two new leaves."""
    M, W, C = nodes.M, nodes.W, writing.C
    o = allocate_block(nodes, C, INNER)
    a, b = cut_leaf(nodes, C, scratch, full, layout.L - layout.L // 2)
    drop(nodes.M, writing, full, LEAF)
    separate(nodes, scratch, o, b)
    target = b if input_of(nodes, o, entry.key, entry.left, 8 * entry.slot + entry.set) else a
    put_in_leaf(nodes, target, entry)
    M[o + layout.CHILD], M[o + layout.CHILD + 1] = a, b
    W[2 * o + layout.HEIGHT_] = 1
    summarise(nodes, scratch, a)
    summarise(nodes, scratch, b)
    summarise(nodes, scratch, o)
    return o


@kernel
def put(nodes: MultiwayNodes, writing: WriteState, scratch: Any, entry: Entry) -> None:
    """Insert an entry that is not there."""
    table, C = nodes.table, writing.C
    o = descend(nodes, C, entry.key, entry.left, 8 * entry.slot + entry.set)
    least = concerned(table, entry.set)
    greatest = least
    if count_of(nodes, o) == layout.L:
        o = split(nodes, writing, scratch, o, entry)
    else:
        o = own(nodes, writing, o)
        put_in_leaf(nodes, o, entry)
        least = refresh(nodes, scratch, 0, o, least, entry, PUT)
        greatest = refresh(nodes, scratch, 1, o, greatest, entry, PUT)
    climb(nodes, writing, scratch, o, least, greatest, entry, PUT)
    C[layout.COUNTS + entry.set] += 1


@kernel
def cut(nodes: MultiwayNodes, writing: WriteState, scratch: Any, s: int, key: int, left: int, slot: int) -> bool:
    """Delete an entry; False, and nothing done, if it is not there."""
    M, table, C = nodes.M, nodes.table, writing.C
    o = descend(nodes, C, key, left, 8 * slot + s)
    p = position(nodes, o, s, key, left, slot)
    if not holds(nodes, o, s, p, key, left, slot):
        return False
    entry = Entry(s, key, left, M[entry_at(table, o)[0] + layout.L + p], slot)
    o = own(nodes, writing, o)
    cut_from_leaf(nodes, o, s, p)
    least = refresh(nodes, scratch, 0, o, concerned(table, s), entry, CUT)
    greatest = refresh(nodes, scratch, 1, o, concerned(table, s), entry, CUT)
    climb(nodes, writing, scratch, o, least, greatest, entry, CUT)
    C[layout.COUNTS + s] -= 1
    return True


# --- bulk build


@kernel("void(MultiwayNodes, WriteState, int64[::1])")
def make_empty(nodes: MultiwayNodes, writing: WriteState, scratch: Any) -> None:
    """Make a tree of one leaf without entries; `scratch`: of a summary. O(1)."""
    W, table, C = nodes.W, nodes.table, writing.C
    o = allocate_block(nodes, C, LEAF)
    for i in range(table[SETS] + 1):
        W[2 * o + layout.STARTS + i] = 0
    summarise(nodes, scratch, o)
    C[ROOT], C[HEIGHT] = o, 0


@kernel
def build_leaf(nodes: MultiwayNodes, writing: WriteState, scratch: Any, entries: Entries, order: Any) -> int:
    """A new leaf of the entries at the places `order`, in the tree's order."""
    M, W, table, C = nodes.M, nodes.W, nodes.table, writing.C
    sets, keys, lefts, rights, slots = entries.set, entries.key, entries.left, entries.right, entries.slot
    o, t = allocate_block(nodes, C, LEAF), table[SETS]
    for i in range(t + 1):
        W[2 * o + layout.STARTS + i] = 0
    for n in order:
        W[2 * o + layout.STARTS + 1 + wide(sets[n])] += 1
    for i in range(t):
        scratch[AT + i] = start_of(W, o, i)
        W[2 * o + layout.STARTS + i + 1] += start_of(W, o, i)
    e, w = entry_at(table, o)
    for n in order:
        s = wide(sets[n])
        p = scratch[AT + s]
        scratch[AT + s] = p + 1
        M[e + p], M[e + layout.L + p] = lefts[n], rights[n]
        W[w + p], W[w + layout.L + p] = slots[n], keys[n]
        C[layout.COUNTS + s] += 1
    summarise(nodes, scratch, o)
    return o


@kernel
def build_inner(nodes: MultiwayNodes, C: Any, scratch: Any, a: int, b: int) -> int:
    """A new node over a and b; its separator is the first entry below b."""
    M, W = nodes.M, nodes.W
    o, leaf = allocate_block(nodes, C, INNER), b
    while height_of(W, leaf) > 0:
        leaf = M[leaf + layout.CHILD]
    M[o + layout.CHILD], M[o + layout.CHILD + 1] = a, b
    separate(nodes, scratch, o, leaf)
    measure(nodes, o)
    summarise(nodes, scratch, o)
    return o


@kernel
def build_above(nodes: MultiwayNodes, C: Any, scratch: Any, level: Any, leaves: int) -> int:
    """The root of a new tree over the leaves level[:leaves], which is overwritten. Each of 2**h places takes one or two leaves, so that
    heights differ by at most one."""
    width = 1
    while 2 * width <= leaves:
        width *= 2
    for at in range(width):
        lo, hi = leaves * at // width, leaves * (at + 1) // width
        level[at] = level[lo] if hi - lo == 1 else build_inner(nodes, C, scratch, level[lo], level[lo + 1])
    while width > 1:
        width //= 2
        for at in range(width):
            level[at] = build_inner(nodes, C, scratch, level[2 * at], level[2 * at + 1])
    return level[0]


@kernel("void(MultiwayNodes, WriteState, int64[::1], Entries, int64[::1])", allocates=True)
def build(nodes: MultiwayNodes, writing: WriteState, scratch: Any, entries: Entries, order: Any) -> None:
    """Build an empty tree from entries; `order`: their places by (key, left, code). O(n)."""
    W, C = nodes.W, writing.C
    n = len(order)
    drop(nodes.M, writing, C[ROOT], LEAF)
    level = np.empty(max(1, -(-n // LEAF_FILL)), np.int64)
    for b in range(len(level)):
        level[b] = build_leaf(nodes, writing, scratch, entries, order[n * b // len(level) : n * (b + 1) // len(level)])
    C[ROOT] = build_above(nodes, C, scratch, level, len(level))
    C[HEIGHT] = height_of(W, C[ROOT])
