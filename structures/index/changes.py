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

from structures.btree.nodes import Helpers, Kind, halving, making_room, moving, shifting
from structures.btree.paths import building, climbing
from structures.core.blocks import Nodes, WriteState
from structures.core.control import VERSION
from structures.core.kernel import kernel, wide
from structures.index import layout
from structures.index.layout import (
    IndexTree,
    child_of,
    count_of,
    drop_block,
    expect_block,
    level_of,
    move,
    new_block,
    own_block,
    set_child,
    set_separator,
    slot_at,
    tree_at,
)
from structures.index.search import IndexPosition, Items, child_for, position, same

LEAF_FILL = np.maximum(1, layout.LEAF_ROOM * 7 // 8)  # most entries of a leaf, by arity, in a bulk build
INNER_FILL = np.maximum(3, layout.INNER_ROOM - 1)  # most children of an inner node, likewise
WAY_BLOCK, WAY_NEXT, WAY_WORDS = range(3)  # for each block on the path through a tree that is dropped: the block, and its next child


@kernel
def descend(nodes: Nodes, C: Any, h: int, coordinates: Any, start: int, slot: int) -> int:
    """The leaf to which the entry belongs; leaves the path in C[PATH:]."""
    M, W = nodes.M, nodes.W
    arity, o, d = C[h + layout.ARITY], C[h + layout.ROOT], 0
    while level_of(W, o) > 0:
        c = child_for(nodes, o, arity, IndexPosition(coordinates, start, 1, arity, slot))
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
def in_common(nodes: Nodes, writing: WriteState, arity: int, o: int, before: int, after: int, coordinates: Any, start: int) -> int:
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
def resize(tree: IndexTree, o: int, n: int) -> None:
    tree.nodes.W[2 * o + layout.COUNT] = n


@kernel
def new_at(tree: IndexTree, level: int) -> int:
    return new_block(tree.nodes, tree.writing.C, tree.h, level)


@kernel
def link(tree: IndexTree, o: int, c: int, child: int) -> None:
    set_child(tree.nodes.W, tree.arity, o, c, child)


@kernel
def note(tree: IndexTree, o: int, c: int, child: int, leaf: bool) -> bool:
    link(tree, o, c, child)
    return True


@kernel
def plant(tree: IndexTree, root: int, by: int, differs: bool) -> None:
    tree.writing.C[tree.h + layout.ROOT] = root


@kernel
def is_roomy(tree: IndexTree, above: int, o: int) -> bool:
    """Whether a leaf has room for a quarter, and this version wrote it and the node above: otherwise evening out would cost copies."""
    M, room, version = tree.nodes.M, layout.LEAF_ROOM[tree.arity], tree.writing.C[VERSION]
    few = min(room * 3 // 4, room - 2)  # then both have room
    return count_of(tree.nodes.W, o) <= few and M[o] == version and M[above] == version


_new = kernel(lambda tree, o: new_at(tree, level_of(tree.nodes.W, o)))
_drop = kernel(lambda tree, o: drop_block(tree.nodes, tree.writing, tree.h, o))
_size = kernel(lambda tree, o: count_of(tree.nodes.W, o))
_items = _size, resize, kernel(lambda tree, source, low, high, target, at: move(tree.nodes, tree.arity, source, low, high, target, at))
_open, _close = shifting(*_items)
_LEAF = Kind(
    _new,
    _drop,
    _size,
    kernel(lambda tree: layout.LEAF_ROOM[tree.arity]),
    kernel(lambda tree: max(1, layout.LEAF_ROOM[tree.arity] // 4)),
    *moving(*_items),
)
_INNER = _LEAF._replace(
    most=kernel(lambda tree: layout.INNER_ROOM[tree.arity]), least=kernel(lambda tree: max(2, layout.INNER_ROOM[tree.arity] // 4))
)
_HELPERS = Helpers(
    leaf=_LEAF,
    inner=_INNER,
    height=kernel(lambda tree: tree.writing.C[layout.DEPTH]),
    step=kernel(lambda tree, d: (tree.writing.C[layout.PATH_NODE + 2 * d], tree.writing.C[layout.PATH_CHILD + 2 * d])),
    child=kernel(lambda tree, o, c: child_of(tree.nodes.W, tree.arity, o, c)),
    own=kernel(lambda tree, o, leaf: own_block(tree.nodes, tree.writing, o)),
    above=kernel(lambda tree, o: new_at(tree, level_of(tree.nodes.W, o) + 1)),
    open=_open,
    close=_close,
    separate=kernel(lambda tree, o, c, child, leaf: set_separator(tree.nodes, tree.arity, o, c, child, 0)),
    inherit=kernel(lambda tree, o, c, child: set_separator(tree.nodes, tree.arity, child, 0, o, c)),
    position=link,
    note=note,
    refresh=kernel(lambda tree, o, c, child, leaf: link(tree, o, c, child)),
    plant=plant,
)
climb, halve, make_room = climbing(_HELPERS), halving(_LEAF), making_room(_HELPERS, is_roomy)
build_nodes, _ = building(_HELPERS)


@kernel
def write_entry(tree: IndexTree, o: int, i: int, coordinates: Any, start: int, slot: int) -> None:
    """Write an entry at place i of own leaf o, which has room."""
    M, W, arity = tree.nodes.M, tree.nodes.W, tree.arity
    _open(tree, o, i)
    room = layout.LEAF_ROOM[arity]
    for j in range(arity):
        M[o + layout.HEAD + j * room + i] = coordinates[start + j]
    W[slot_at(o, arity, room) + i] = slot


@kernel
def is_at(nodes: Nodes, arity: int, o: int, i: int, coordinates: Any, start: int, slot: int) -> bool:
    """Whether entry i of leaf o is this one."""
    M, W = nodes.M, nodes.W
    room = layout.LEAF_ROOM[arity]
    return i < count_of(W, o) and W[slot_at(o, arity, room) + i] == slot and same(M, o, room, i, coordinates, start, 1, arity)


@kernel
def put(nodes: Nodes, writing: WriteState, h: int, coordinates: Any, start: int, slot: int) -> int:
    """Insert an entry. Returns the most first coordinates that another entry shares with it; -1, and nothing done: it is there already."""
    M, W, C, tree = nodes.M, nodes.W, writing.C, tree_at(nodes, writing, h)
    arity, extra = tree.arity, wide(0)
    if C[h + layout.ROOT] == 0:
        C[h + layout.ROOT] = new_at(tree, 0)
        write_entry(tree, C[h + layout.ROOT], 0, coordinates, start, slot)
        return 0
    o = descend(nodes, C, h, coordinates, start, slot)
    i = position(nodes, o, arity, 0, IndexPosition(coordinates, start, 1, arity, slot))
    if is_at(nodes, arity, o, i, coordinates, start, slot):
        return -1
    if count_of(W, o) == layout.LEAF_ROOM[arity] and M[o] == C[VERSION] and make_room(tree):
        o = descend(nodes, C, h, coordinates, start, slot)
        i = position(nodes, o, arity, 0, IndexPosition(coordinates, start, 1, arity, slot))
    common = in_common(nodes, writing, arity, o, i - 1, i, coordinates, start)
    o = own_block(nodes, writing, o)
    into = o
    if count_of(W, o) == layout.LEAF_ROOM[arity]:
        extra, into, i = halve(tree, o, i)
    write_entry(tree, into, i, coordinates, start, slot)
    climb(tree, o, extra, True)
    return common


@kernel
def cut(nodes: Nodes, writing: WriteState, h: int, coordinates: Any, start: int, slot: int) -> int:
    """Delete an entry. Returns the most first coordinates that another entry shares with it; -1, and nothing done: it is not there."""
    W, C, tree = nodes.W, writing.C, tree_at(nodes, writing, h)
    arity = tree.arity
    if C[h + layout.ROOT] == 0:
        return -1
    o = descend(nodes, C, h, coordinates, start, slot)
    i = position(nodes, o, arity, 0, IndexPosition(coordinates, start, 1, arity, slot))
    if not is_at(nodes, arity, o, i, coordinates, start, slot):
        return -1
    common = in_common(nodes, writing, arity, o, i - 1, i + 1, coordinates, start)
    if C[layout.DEPTH] == 0 and count_of(W, o) == 1:
        drop_block(nodes, writing, h, o)
        C[h + layout.ROOT] = 0
        return common
    o = own_block(nodes, writing, o)
    _close(tree, o, i)
    climb(tree, o, 0, True)
    return common


# --- from Python


@kernel("void(Nodes, WriteState, int64, Items, int64[::1], int64, int64)")
def build_leaves(nodes: Nodes, writing: WriteState, h: int, items: Items, leaves: Any, first: int, last: int) -> None:
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


@kernel("void(Nodes, WriteState, int64, int64[::1], int64[::1], int64, int64)")
def build_inner(nodes: Nodes, writing: WriteState, h: int, below: Any, level: Any, first: int, last: int) -> None:
    """Write the inner nodes level[first:last] of a level, over the nodes of the complete level below. O(k) a node below."""
    build_nodes(tree_at(nodes, writing, h), below, level, first, last, False)


@kernel
def drop_on(nodes: Nodes, writing: WriteState, h: int, way: Any, at: int, most: int) -> int:
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


@kernel("void(Nodes, WriteState, int64)")
def drop_all(nodes: Nodes, writing: WriteState, h: int) -> None:
    """Drop all blocks of the tree at holder h, which is then empty. O(blocks)."""
    C = writing.C
    root = C[h + layout.ROOT]
    C[layout.DEPTH], C[layout.PATH_NODE], C[layout.PATH_CHILD] = 1 if root != 0 else 0, root, 0
    drop_on(nodes, writing, h, C, layout.DEPTH, wide(1) << 62)
    C[h + layout.ROOT] = 0


@kernel("int64(Nodes, WriteState, int64, int64[::1], int64)")
def drop_some(nodes: Nodes, writing: WriteState, h: int, way: Any, most: int) -> int:
    """As `drop_on`, with its own path. O(most)."""
    return drop_on(nodes, writing, h, way, 0, most)
