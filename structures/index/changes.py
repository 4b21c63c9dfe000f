r"""The trees of ordered indexes: inserting and deleting entries, neighbours, bulk build.

    inner         [ - | s1 | s2 ]        s1, s2: separators (`layout.py`); beside each child the number of entries below it
                  /     |      \
    leaves     [....] [....] [....]      all at one depth

Invariants, named by `check()` when violated: I1 to I4 of `core/blocks.py`, and
    X1  entries ascend along the leaves; separators are between the children they separate
    X2  a child's level is one below its parent's; the stored numbers of entries are right
    X3  an inner node has at least a quarter of its room, and 2; a leaf a quarter, and 1; the root at least 2 children or 1 entry

Costs: put, cut O(log n) blocks copied a version, one a level; build O(n). Source: B+-trees; docs/design/versions.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.blocks import Nodes, Writing
from structures.core.control import VERSION
from structures.core.kernel import kernel, wide
from structures.index import layout
from structures.index.layout import (
    child_of,
    close_place,
    count_of,
    drop_block,
    expect_block,
    level_of,
    move,
    new_block,
    open_place,
    own_block,
    room_of,
    set_child,
    set_separator,
    slot_at,
)
from structures.index.search import Items, Place, child_for, position, same

LEAF_FILL = np.maximum(1, layout.LEAF_ROOM * 7 // 8)  # most entries of a leaf, by arity, in a bulk build
INNER_FILL = np.maximum(3, layout.INNER_ROOM - 1)  # most children of an inner node, likewise
WAY_BLOCK, WAY_NEXT, WAY_WORDS = range(3)  # for each block on the path through a tree that is dropped: the block, and its next child


@kernel
def descend(nodes: Nodes, C: Any, h: int, coordinates: Any, start: int, slot: int) -> int:
    """The leaf to which the entry belongs; leaves the path in C[PATH:]."""
    M, W = nodes.M, nodes.W
    arity, o, d = C[h + layout.ARITY], C[h + layout.ROOT], 0
    while level_of(W, o) > 0:
        c = child_for(nodes, o, arity, Place(coordinates, start, 1, arity, slot))
        C[layout.PATH_NODE + 2 * d], C[layout.PATH_CHILD + 2 * d] = o, c
        o = child_of(W, arity, o, c)
        expect_block(M, o)
        d += 1
    C[layout.DEPTH] = d
    return o


@kernel
def shared(M: Any, o: int, room: int, i: int, coordinates: Any, start: int, arity: int) -> int:
    """The number of first coordinates that entry i of leaf o shares with these."""
    j = 0
    while j < arity and M[o + layout.HEAD + j * room + i] == coordinates[start + j]:
        j += 1
    return j


@kernel
def neighbour_leaf(W: Any, C: Any, arity: int, right: bool) -> int:
    """The leaf beside the one at the end of the path; 0 if there is none."""
    d = C[layout.DEPTH] - 1
    while d >= 0:
        o, c = C[layout.PATH_NODE + 2 * d], C[layout.PATH_CHILD + 2 * d]
        if (c + 1 < count_of(W, o)) if right else c > 0:
            o = child_of(W, arity, o, c + 1 if right else c - 1)
            while level_of(W, o) > 0:
                o = child_of(W, arity, o, 0 if right else count_of(W, o) - 1)
            return o
        d -= 1
    return 0


@kernel
def in_common(nodes: Nodes, writing: Writing, arity: int, o: int, before: int, after: int, coordinates: Any, start: int) -> int:
    """The most first coordinates that these share with an entry beside them: number `before` and `after` of the path's leaf o."""
    M, W, C = nodes.M, nodes.W, writing.C
    room, n = layout.LEAF_ROOM[arity], 0
    leaf, i = o, before
    if i < 0:
        leaf = neighbour_leaf(W, C, arity, False)
        i = count_of(W, leaf) - 1
    if leaf != 0:
        n = shared(M, leaf, room, i, coordinates, start, arity)
    leaf, i = o, after
    if n < arity and i == count_of(W, o):
        leaf, i = neighbour_leaf(W, C, arity, True), 0
    if n < arity and leaf != 0:
        n = max(n, shared(M, leaf, room, i, coordinates, start, arity))
    return n


@kernel
def halve(nodes: Nodes, C: Any, h: int, o: int, at: int) -> tuple[int, int, int]:
    """Divide full own block o, into which item `at` is to be inserted. Returns the new right part, then the block and the place to which
    item `at` belongs.

    If the item comes at the end, as in ascending inserts, three quarters stay behind.
    """
    W = nodes.W
    arity, n = C[h + layout.ARITY], count_of(W, o)
    new = new_block(nodes, C, h, level_of(W, o))
    left = at <= n // 2
    half = n // 2 if left else (n + 1) // 2 if at < n else n - max(1, n // 4)
    move(nodes, arity, o, half, n, new, 0)
    W[2 * o + layout.COUNT], W[2 * new + layout.COUNT] = half, n - half
    if left:
        return new, o, at
    return new, new, at - half


@kernel
def even_out(nodes: Nodes, writing: Writing, h: int, o: int, c: int) -> None:
    """Merge child c of own node o, which is too small, with a neighbour, or even the two out."""
    W, C = nodes.W, writing.C
    arity = C[h + layout.ARITY]
    a = c - 1 if c > 0 else 0
    start, y = own_block(nodes, writing, child_of(W, arity, o, a)), child_of(W, arity, o, a + 1)
    nx, ny = count_of(W, start), count_of(W, y)
    inner = level_of(W, start) > 0
    if nx + ny <= room_of(W, start, arity):
        move(nodes, arity, y, 0, ny, start, nx)
        if inner:
            set_separator(nodes, arity, start, nx, o, a + 1)
        W[2 * start + layout.COUNT] = nx + ny
        drop_block(nodes, writing, h, y)
        set_child(W, arity, o, a, start)
        close_place(nodes, arity, o, a + 1, 1)
        return
    y = own_block(nodes, writing, y)
    if inner:
        set_separator(nodes, arity, y, 0, o, a + 1)
    half = (nx + ny) // 2
    if nx < half:
        move(nodes, arity, y, 0, half - nx, start, nx)
        W[2 * start + layout.COUNT] = half
        close_place(nodes, arity, y, 0, half - nx)
    else:
        open_place(nodes, arity, y, 0, nx - half)
        move(nodes, arity, start, half, nx, y, 0)
        W[2 * start + layout.COUNT] = half
    set_separator(nodes, arity, o, a + 1, y, 0)
    set_child(W, arity, o, a, start)
    set_child(W, arity, o, a + 1, y)


@kernel
def make_room(nodes: Nodes, writing: Writing, h: int) -> bool:
    """Even out the full leaf at the end of the path with a neighbour below the same node, if that has room for a quarter and this version
    has written both, and the node: otherwise this would cost copies. Without it, leaves of random changes in place are less than two thirds
    full."""
    M, W, C = nodes.M, nodes.W, writing.C
    arity, d = C[h + layout.ARITY], C[layout.DEPTH] - 1
    if d < 0:
        return False
    o, c = C[layout.PATH_NODE + 2 * d], C[layout.PATH_CHILD + 2 * d]
    roomy = min(layout.LEAF_ROOM[arity] * 3 // 4, layout.LEAF_ROOM[arity] - 2)  # then both have room
    for right in range(max(c, 1), min(c + 2, count_of(W, o))):
        beside = child_of(W, arity, o, right if right > c else c - 1)
        if count_of(W, beside) <= roomy and M[beside] == C[VERSION] and M[o] == C[VERSION]:
            even_out(nodes, writing, h, o, right)
            return True
    return False


@kernel
def insert_child(nodes: Nodes, arity: int, o: int, c: int, child: int) -> None:
    """Insert a child, whose separator is its first item, into own node o, which has room."""
    W = nodes.W
    open_place(nodes, arity, o, c, 1)
    set_separator(nodes, arity, o, c, child, 0)
    set_child(W, arity, o, c, child)


@kernel
def least_of(W: Any, o: int, arity: int) -> int:
    """The minimum size of a block that is not the root."""
    return max(2 if level_of(W, o) > 0 else 1, room_of(W, o, arity) // 4)


@kernel
def climb(nodes: Nodes, writing: Writing, h: int, depth: int, child: int, extra: int) -> None:
    """Update the path in C[PATH:]: what was below its first `depth` blocks is now `child`, followed by the new block `extra` unless that is
    0."""
    W, C = nodes.W, writing.C
    arity = C[h + layout.ARITY]
    for d in range(depth - 1, -1, -1):
        o, c = own_block(nodes, writing, C[layout.PATH_NODE + 2 * d]), C[layout.PATH_CHILD + 2 * d]
        set_child(W, arity, o, c, child)
        right = wide(0)
        if extra != 0:
            at, into = c + 1, o
            if count_of(W, o) == layout.INNER_ROOM[arity]:
                right, into, at = halve(nodes, C, h, o, at)
            insert_child(nodes, arity, into, at, extra)
        elif count_of(W, child) < least_of(W, child, arity):
            even_out(nodes, writing, h, o, c)
        child, extra = o, right
    if extra != 0:
        root = new_block(nodes, C, h, level_of(W, child) + 1)
        insert_child(nodes, arity, root, 0, child)
        insert_child(nodes, arity, root, 1, extra)
        child = root
    elif level_of(W, child) > 0 and count_of(W, child) == 1:
        root = child_of(W, arity, child, 0)
        drop_block(nodes, writing, h, child)
        child = root
    C[h + layout.ROOT] = child


@kernel
def write_entry(nodes: Nodes, arity: int, o: int, i: int, coordinates: Any, start: int, slot: int) -> None:
    """Write an entry at place i of own leaf o, which has room."""
    M, W = nodes.M, nodes.W
    open_place(nodes, arity, o, i, 1)
    room = layout.LEAF_ROOM[arity]
    for j in range(arity):
        M[o + layout.HEAD + j * room + i] = coordinates[start + j]
    W[slot_at(o, arity, room) + i] = slot


@kernel
def is_at(nodes: Nodes, arity: int, o: int, i: int, coordinates: Any, start: int, slot: int) -> bool:
    """Whether entry number i of leaf o is this one."""
    M, W = nodes.M, nodes.W
    room = layout.LEAF_ROOM[arity]
    return i < count_of(W, o) and W[slot_at(o, arity, room) + i] == slot and same(M, o, room, i, coordinates, start, 1, arity)


@kernel
def put(nodes: Nodes, writing: Writing, h: int, coordinates: Any, start: int, slot: int) -> int:
    """Insert an entry. Returns the most first coordinates that another entry shares with it; -1, and nothing done: it is there already."""
    M, W, C = nodes.M, nodes.W, writing.C
    arity, extra = C[h + layout.ARITY], wide(0)
    if C[h + layout.ROOT] == 0:
        C[h + layout.ROOT] = new_block(nodes, C, h, 0)
        write_entry(nodes, arity, C[h + layout.ROOT], 0, coordinates, start, slot)
        return 0
    o = descend(nodes, C, h, coordinates, start, slot)
    i = position(nodes, o, arity, 0, Place(coordinates, start, 1, arity, slot))
    if is_at(nodes, arity, o, i, coordinates, start, slot):
        return -1
    if count_of(W, o) == layout.LEAF_ROOM[arity] and M[o] == C[VERSION] and make_room(nodes, writing, h):
        o = descend(nodes, C, h, coordinates, start, slot)
        i = position(nodes, o, arity, 0, Place(coordinates, start, 1, arity, slot))
    common = in_common(nodes, writing, arity, o, i - 1, i, coordinates, start)
    o = own_block(nodes, writing, o)
    into = o
    if count_of(W, o) == layout.LEAF_ROOM[arity]:
        extra, into, i = halve(nodes, C, h, o, i)
    write_entry(nodes, arity, into, i, coordinates, start, slot)
    climb(nodes, writing, h, C[layout.DEPTH], o, extra)
    return common


@kernel
def cut(nodes: Nodes, writing: Writing, h: int, coordinates: Any, start: int, slot: int) -> int:
    """Delete an entry. Returns the most first coordinates that another entry shares with it; -1, and nothing done: it is not there."""
    W, C = nodes.W, writing.C
    arity = C[h + layout.ARITY]
    if C[h + layout.ROOT] == 0:
        return -1
    o = descend(nodes, C, h, coordinates, start, slot)
    i = position(nodes, o, arity, 0, Place(coordinates, start, 1, arity, slot))
    if not is_at(nodes, arity, o, i, coordinates, start, slot):
        return -1
    common = in_common(nodes, writing, arity, o, i - 1, i + 1, coordinates, start)
    if C[layout.DEPTH] == 0 and count_of(W, o) == 1:
        drop_block(nodes, writing, h, o)
        C[h + layout.ROOT] = 0
        return common
    o = own_block(nodes, writing, o)
    close_place(nodes, arity, o, i, 1)
    climb(nodes, writing, h, C[layout.DEPTH], o, 0)
    return common


# --- from Python


@kernel("void(Nodes, Writing, int64, Items, int64[::1], int64, int64)")
def build_leaves(nodes: Nodes, writing: Writing, h: int, items: Items, leaves: Any, first: int, last: int) -> None:
    """Build leaves `first` to before `last` of those over which entries, which ascend, are divided: leaves[first:last]. O(k) an entry."""
    M, W, C = nodes.M, nodes.W, writing.C
    coordinates, width, slots = items
    arity, n, blocks = C[h + layout.ARITY], len(slots), len(leaves)
    for b in range(first, last):
        low, high = n * b // blocks, n * (b + 1) // blocks
        o = new_block(nodes, C, h, 0)
        for j in range(arity):
            a = o + layout.HEAD + j * layout.LEAF_ROOM[arity] - low
            for i in range(low, high):
                M[a + i] = coordinates[i * width + j]
        a = slot_at(o, arity, layout.LEAF_ROOM[arity]) - low
        for i in range(low, high):
            W[a + i] = slots[i]
        W[2 * o + layout.COUNT] = high - low
        leaves[b] = o


@kernel("void(Nodes, Writing, int64, int64[::1], int64[::1], int64, int64)")
def build_inner(nodes: Nodes, writing: Writing, h: int, below: Any, level: Any, first: int, last: int) -> None:
    """Write the inner nodes level[first:last] of a level, over the nodes of the complete level below. O(k) a node below."""
    W, C, blocks = nodes.W, writing.C, len(level)
    for b in range(first, last):
        low, high = len(below) * b // blocks, len(below) * (b + 1) // blocks
        o = new_block(nodes, C, h, level_of(W, below[0]) + 1)
        for c in range(low, high):
            insert_child(nodes, C[h + layout.ARITY], o, c - low, below[c])
        level[b] = o


@kernel
def drop_on(nodes: Nodes, writing: Writing, h: int, way: Any, at: int, most: int) -> int:
    """Continue to drop the blocks of a tree that belonged to holder h, at most `most`. Returns what is left of `most`. way[at]: levels of
    the path, 0 when all are dropped; it is followed by WAY_BLOCK and WAY_NEXT of each."""
    W, C = nodes.W, writing.C
    arity, d = C[h + layout.ARITY], way[at] - 1
    while d >= 0 and most > 0:
        p = at + 1 + WAY_WORDS * d
        o, c = way[p + WAY_BLOCK], way[p + WAY_NEXT]
        if level_of(W, o) > 0 and c < count_of(W, o):
            way[p + WAY_NEXT] = c + 1
            p += WAY_WORDS
            way[p + WAY_BLOCK], way[p + WAY_NEXT] = child_of(W, arity, o, c), 0
            d += 1
        else:
            drop_block(nodes, writing, h, o)
            d -= 1
            most -= 1
    way[at] = d + 1
    return most


@kernel("void(Nodes, Writing, int64)")
def drop_all(nodes: Nodes, writing: Writing, h: int) -> None:
    """Drop all blocks of the tree at holder h, which is then empty. O(blocks)."""
    C = writing.C
    root = C[h + layout.ROOT]
    C[layout.DEPTH], C[layout.PATH_NODE], C[layout.PATH_CHILD] = 1 if root != 0 else 0, root, 0
    drop_on(nodes, writing, h, C, layout.DEPTH, wide(1) << 62)
    C[h + layout.ROOT] = 0


@kernel("int64(Nodes, Writing, int64, int64[::1], int64)")
def drop_some(nodes: Nodes, writing: Writing, h: int, way: Any, most: int) -> int:
    """As `drop_on`, with its own path. O(most)."""
    return drop_on(nodes, writing, h, way, 0, most)
