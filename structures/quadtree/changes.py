"""Inserting and deleting entries of quadtrees, one at a time on a path.

Before a node or leaf is changed, it becomes a block of this version: it is copied if it is an older block, or lies in the compact form.
Costs: insert, delete O(2^k) words copied a level, log n / k levels for n spread points.
Source: docs/design/natural-joins.md (*qdag*); `layout.py` has the layout and the invariants.
"""

from __future__ import annotations

from typing import Any

from structures.core.bits import equal16, highest, lowest
from structures.core.blocks import WriteState, free
from structures.core.control import VERSION
from structures.core.kernel import kernel, wide
from structures.quadtree import layout
from structures.quadtree.layout import (
    QuadNodes,
    QuadtreeShape,
    class_of,
    digit,
    drop_block,
    is_leaf,
    level_below,
    live_child,
    new_block,
    new_inner,
    new_leaf,
    top_level,
)
from structures.quadtree.search import child_of, children_of, copy_leaf, ends_at, size_of


@kernel
def set_child(W: Any, o: int, c: int, child: int) -> None:
    """Make `child` (0: none) child c of live inner node o."""
    bit = 1 << c
    W[2 * o + layout.LEAVES] &= ~bit
    W[2 * o + layout.CHILDREN] &= ~bit
    if child != 0:
        W[2 * o + layout.CHILDREN] |= bit
        if ends_at(W, child):
            W[2 * o + layout.LEAVES] |= bit
    W[2 * o + layout.HEAD + c] = child >> 1 if child > 0 else child


@kernel
def thaw(nodes: QuadNodes, C: Any, h: int, o: int, level: int) -> int:
    """Return a live block with the contents of the compact node or leaf at place o of a level."""
    W = nodes.W
    k, base = C[h + layout.ARITY], C[h + layout.BASE]
    if ends_at(W, o):
        new = new_leaf(nodes, C, k)
        W[2 * new + layout.ENTRIES] = copy_leaf(nodes, base, o, QuadtreeShape(k, C[h + layout.FIRST]), level, 0, W, 2 * new + layout.HEAD)
        return new
    new = new_inner(nodes, C, k)
    mask = children_of(nodes, base, o, k)
    while mask != 0:
        c = lowest(mask)
        mask &= mask - 1
        set_child(W, new, c, child_of(nodes, base, o, k, c))
    return new


@kernel
def own_block(nodes: QuadNodes, writing: WriteState, h: int, o: int, level: int) -> int:
    """Return the block at place o itself if this version wrote it, otherwise a copy that replaces it."""
    M, W, C = nodes.M, nodes.W, writing.C
    if o < 0:
        return thaw(nodes, C, h, o, level)
    if M[o] == C[VERSION]:
        return o
    k = C[h + layout.ARITY]
    new = new_block(M, C, class_of(W, o, k))
    length = layout.HEAD + ((k + 1) * layout.LEAF if is_leaf(W, o) else 1 << k)
    for i in range(2, length):
        W[2 * new + i] = W[2 * o + i]
    drop_block(nodes, writing, o, k)
    return new


@kernel
def append(W: Any, o: int, arity: int, entries: Any, e: int, step: int) -> None:
    """Append the entry at entries[e] to a leaf that has room."""
    n = wide(W[2 * o + layout.ENTRIES])
    p = 2 * o + layout.HEAD + n
    for j in range(arity + 1):
        W[p + j * layout.LEAF] = entries[e + j * step]
    W[2 * o + layout.ENTRIES] = n + 1


@kernel
def split(nodes: QuadNodes, writing: WriteState, o: int, arity: int, leading: int, level: int) -> int:
    """Return an inner node of this level that replaces live leaf o."""
    W, C = nodes.W, writing.C
    n = wide(W[2 * o + layout.ENTRIES])
    new = new_inner(nodes, C, arity)
    for i in range(n):
        e = 2 * o + layout.HEAD + i
        c = digit(W, e, layout.LEAF, arity, leading, level)
        child = live_child(W, new, c)
        if child == 0:
            child = new_leaf(nodes, C, arity)
            set_child(W, new, c, child)
        append(W, child, arity, W, e, layout.LEAF)
    drop_block(nodes, writing, o, arity)
    return new


@kernel
def grow(nodes: QuadNodes, C: Any, h: int, entries: Any, e: int) -> bool:
    """Extend the tree at holder h so that its codes reach the entry: add one level for each bit, with everything in the first quadrant.
    Returns False and changes nothing for a tree in two parts, which would have to grow in each cell."""
    W = nodes.W
    k, root = C[h + layout.ARITY], C[h + layout.ROOT]
    reach = wide(1)
    for j in range(k):
        reach |= wide(entries[e + j])
    while reach >> C[h + layout.BITS] != 0:
        if root != 0 and not ends_at(W, root):
            if C[h + layout.FIRST] > 0:
                return False
            above = new_inner(nodes, C, k)
            set_child(W, above, 0, root)
            root = above
            C[h + layout.ROOT] = root
        C[h + layout.BITS] += 1
    return True


@kernel
def insert_entry(nodes: QuadNodes, writing: WriteState, t: int, entries: Any, e: int) -> bool:
    """Insert an entry that is not in tree t. Returns False and changes nothing if the tree does not reach it (`grow`)."""
    W, C = nodes.W, writing.C
    h = layout.TREE + layout.TREE_WORDS * t
    if not grow(nodes, C, h, entries, e):
        return False
    k, f, o, b = C[h + layout.ARITY], C[h + layout.FIRST], C[h + layout.ROOT], top_level(C, h)
    above, c = wide(0), wide(0)  # o is its child c; 0: the root
    while True:
        if o == 0:
            o = new_leaf(nodes, C, k)
        elif ends_at(W, o) and size_of(nodes, C[h + layout.BASE], o) == layout.LEAF:
            o = split(nodes, writing, thaw(nodes, C, h, o, b) if o < 0 else o, k, f, b)
        else:
            o = own_block(nodes, writing, h, o, b)
        if above == 0:
            C[h + layout.ROOT] = o
        else:
            set_child(W, above, c, o)
        if is_leaf(W, o):
            append(W, o, k, entries, e, 1)
            break
        above, c = o, digit(entries, e, 1, k, f, b)
        o = live_child(W, o, c)
        b = level_below(b, C[h + layout.BITS])
    C[h + layout.COUNT] += 1
    return True


@kernel
def position_in(W: Any, o: int, arity: int, entries: Any, e: int) -> int:
    """Return the number of the entry of live leaf o that equals the one at entries[e]; -1: there is none."""
    found = (1 << wide(W[2 * o + layout.ENTRIES])) - 1
    for j in range(arity, -1, -1):
        found &= equal16(W, 2 * o + layout.HEAD + j * layout.LEAF, wide(entries[e + j]))
    return lowest(found) if found != 0 else -1


@kernel
def is_small(nodes: QuadNodes, C: Any, h: int, o: int, c: int, child: int) -> bool:
    """Return whether live inner node o, with its child c replaced by `child`, has only leaves, with at most LOW entries in all."""
    W = nodes.W
    total = wide(0)
    if (W[2 * o + layout.CHILDREN] ^ W[2 * o + layout.LEAVES]) & ~(1 << c) != 0 or (child != 0 and not ends_at(W, child)):
        return False
    for i in range(1 << C[h + layout.ARITY]):
        one = child if i == c else live_child(W, o, i)
        if one != 0:
            total += size_of(nodes, C[h + layout.BASE], one)
            if total > layout.LOW:
                return False
    return True


@kernel
def gather(nodes: QuadNodes, writing: WriteState, h: int, o: int, level: int, c: int, child: int) -> int:
    """Return a leaf that replaces live inner node o of this level, which is small. Its children are dropped."""
    W, C = nodes.W, writing.C
    k = C[h + layout.ARITY]
    leaf = new_leaf(nodes, C, k)
    for i in range(1 << k):
        one = child if i == c else live_child(W, o, i)
        if one != 0:
            if one < 0:
                one = thaw(nodes, C, h, one, level_below(level, C[h + layout.BITS]))
            for e in range(W[2 * one + layout.ENTRIES]):
                append(W, leaf, k, W, 2 * one + layout.HEAD + e, layout.LEAF)
            drop_block(nodes, writing, one, k)
    drop_block(nodes, writing, o, k)
    return leaf


@kernel
def take_out(nodes: QuadNodes, writing: WriteState, h: int, o: int, level: int, entries: Any, e: int) -> int:
    """Return leaf o of this level without the entry, 0 if that was its only one; -1, with nothing changed, if the entry is not in it."""
    M, W, C = nodes.M, nodes.W, writing.C
    k = C[h + layout.ARITY]
    leaf = thaw(nodes, C, h, o, level) if o < 0 else o
    i, last = position_in(W, leaf, k, entries, e), wide(W[2 * leaf + layout.ENTRIES]) - 1
    if i < 0:
        if o < 0:
            free(M, C, leaf, class_of(W, leaf, k))
        return -1
    if last == 0:
        drop_block(nodes, writing, leaf, k)
        return 0
    leaf = own_block(nodes, writing, h, leaf, level)
    W[2 * leaf + layout.ENTRIES] = last
    for j in range(k + 1):
        W[2 * leaf + layout.HEAD + j * layout.LEAF + i] = W[2 * leaf + layout.HEAD + j * layout.LEAF + last]
    return leaf


@kernel
def delete_entry(nodes: QuadNodes, writing: WriteState, t: int, entries: Any, e: int) -> bool:
    """Delete an entry from tree t. Returns False and changes nothing if it is not there."""
    W, C = nodes.W, writing.C
    h = layout.TREE + layout.TREE_WORDS * t
    k, f, o, b, base = C[h + layout.ARITY], C[h + layout.FIRST], C[h + layout.ROOT], top_level(C, h), C[h + layout.BASE]
    for j in range(k):
        if wide(entries[e + j]) >> C[h + layout.BITS] != 0:
            return False
    depth = 0
    while o != 0 and not ends_at(W, o):
        c = digit(entries, e, 1, k, f, b)
        C[layout.PATH + 3 * depth], C[layout.PATH + 3 * depth + 1], C[layout.PATH + 3 * depth + 2] = o, c, b
        o = wide(child_of(nodes, base, o, k, c))
        depth += 1
        b = level_below(b, C[h + layout.BITS])
    o = take_out(nodes, writing, h, o, b, entries, e) if o != 0 else -1
    if o < 0:
        return False
    small = True  # what lies below may have become so
    while depth > 0:
        depth -= 1
        p, c, b = C[layout.PATH + 3 * depth], C[layout.PATH + 3 * depth + 1], C[layout.PATH + 3 * depth + 2]
        if p < 0:
            p = thaw(nodes, C, h, p, b)
        small = small and is_small(nodes, C, h, p, c, o)
        if small:
            o = gather(nodes, writing, h, p, b, c, o)
            continue
        p = own_block(nodes, writing, h, p, b)
        set_child(W, p, c, o)
        o = p
    C[h + layout.ROOT] = o
    C[h + layout.COUNT] -= 1
    if o == 0 and f == 0:
        C[h + layout.BITS] = 0  # a tree in two parts keeps its levels: it cannot grow
    return True


@kernel("void(int32[::1], int64, int64[::1])")
def morton_keys(entries: Any, arity: int, keys: Any) -> None:
    """Write the place of each entry in Morton order to `keys`, using as many of its highest bits as fit. `arity`: coordinates of an entry.
    O(62) an entry."""
    highest_code = wide(0)
    for i in range(len(keys)):
        for j in range(arity):
            highest_code |= wide(entries[i * (arity + 1) + j])
    top = highest(highest_code) if highest_code != 0 else 0
    for i in range(len(keys)):
        keys[i] = 0
        for b in range(top, max(-1, top - 62 // arity), -1):
            keys[i] = keys[i] << arity | digit(entries, i * (arity + 1), 1, arity, 0, b)


@kernel("int64(QuadNodes, WriteState, int64, int32[::1], int64, boolean)")
def change_entries(nodes: QuadNodes, writing: WriteState, t: int, entries: Any, e: int, inserted: bool) -> int:
    """Insert or delete all entries from entries[e] on. Returns where it stopped: at the end, or at an entry that the tree does not reach.
    C[MISSING] counts deletes of entries that were not there. O(2**k log n) an entry of k coordinates."""
    C = writing.C
    h = layout.TREE + layout.TREE_WORDS * t
    width = C[h + layout.ARITY] + 1
    while e < len(entries):
        if not inserted:
            if not delete_entry(nodes, writing, t, entries, e):
                C[layout.MISSING] += 1
        elif not insert_entry(nodes, writing, t, entries, e):
            break
        e += width
    return e
