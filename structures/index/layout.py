r"""Blocks of ordered indexes: how entries and children lie in them, and how they are moved.

An entry is k coordinates (int64) and a slot (int32 >= 0); the order is lexicographic, the slot last. Trees of every k share one store, as
all blocks are of one size, BLOCK words, whatever lies in them:

    leaf    M[o] born | W count, 0     | k coordinates [LEAF_ROOM[k] each]  | slot [LEAF_ROOM[k], int32]
    inner   M[o] born | W count, level | k coordinates [INNER_ROOM[k] each] | slot, child, entries below [INNER_ROOM[k] each, int32]

Coordinates and slot of an inner node's item c are its separator: above all entries below child c - 1, and not above those below child c.
That of item 0 is not used. A separator stays when the entry from which it was taken is deleted. A child is named by the number of its
block, its place / BLOCK: all indexes of a service share one store.

A tree is described by a *holder*, TREE_WORDS words of C: its root, 0 when it is empty; its arity k; its number of blocks.

Source: B+-trees; copy-on-write and blocks as in `core/blocks.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import B
from structures.core.bits import LANES, copy16, move_words
from structures.core.blocks import Blocks, Nodes, WriteState, allocate, drop, next_free
from structures.core.control import KEPT, OUT, VERSION, WAITING
from structures.core.kernel import kernel, prefetch, wide

BLOCK_BITS = 6
BLOCK = 1 << BLOCK_BITS
HEAD = 2  # words of M before the first column
COUNT, LEVEL = 2, 3  # words of W, from 2 * o
MOST_ARITY = 8
_ROOM = 2 * (BLOCK - HEAD)
LEAF_ROOM = np.array([0] + [min(B, _ROOM // (2 * k + 1)) for k in range(1, MOST_ARITY + 1)])
INNER_ROOM = np.array([0] + [min(max(3, B), _ROOM // (2 * k + 3)) for k in range(1, MOST_ARITY + 1)])

# Words of C.
MISSING, DEPTH, PATH = KEPT, KEPT + 1, KEPT + 2  # changes that could not be made; levels of the path after it (2 words a level)
MOST_LEVELS = 64  # most levels of a tree: an inner node has at least two children, and there are fewer than 2**31 entries
PATH_NODE, PATH_CHILD = PATH, PATH + 1  # + 2 * level: the block, and the child taken
TREES = PATH + 2 * MOST_LEVELS  # the first holder
ROOT, ARITY, BLOCKS, TREE_WORDS = 0, 1, 2, 3
MOST_TREES = 1 << 20
INDEX_WORDS = 1 << 35  # 256 GiB of address space


class IndexTree(NamedTuple):
    """A tree that is being changed: the store, the holder, its arity."""

    nodes: Nodes
    writing: WriteState
    h: int
    arity: int


@kernel
def tree_at(nodes: Nodes, writing: WriteState, h: int) -> IndexTree:
    """The tree at holder h."""
    return IndexTree(nodes, writing, h, writing.C[h + ARITY])


@kernel
def count_of(W: Any, o: int) -> int:
    """Entries of a leaf, children of an inner node."""
    return wide(W[2 * o + COUNT])


@kernel
def level_of(W: Any, o: int) -> int:
    """0: a leaf."""
    return wide(W[2 * o + LEVEL])


@kernel
def room_of(W: Any, o: int, arity: int) -> int:
    """The capacity of block o: the distance of its columns."""
    return LEAF_ROOM[arity] if W[2 * o + LEVEL] == 0 else INNER_ROOM[arity]


@kernel
def slot_at(o: int, arity: int, room: int) -> int:
    """The place in W of the first slot of a block; those of children and counts are `room` and twice that further."""
    return 2 * (o + HEAD + arity * room)


@kernel
def child_at(arity: int, o: int, c: int) -> int:
    """The place in W of child c of inner node o."""
    return slot_at(o, arity, INNER_ROOM[arity]) + INNER_ROOM[arity] + c


@kernel
def child_of(W: Any, arity: int, o: int, c: int) -> int:
    return wide(W[child_at(arity, o, c)]) << BLOCK_BITS


@kernel
def size_of(W: Any, arity: int, o: int) -> int:
    """Entries below block o."""
    n = count_of(W, o)
    if level_of(W, o) == 0:
        return n
    first = child_at(arity, o, 0) + INNER_ROOM[arity]
    size = wide(0)
    for c in range(n):
        size += W[first + c]
    return size


@kernel(forceinline=True)
def expect_block(M: Any, o: int) -> None:
    """Prefetch the cache lines of a block that is used next, except for the first, which is read at once: a search or a copy would wait for
    one after another."""
    for line in range(8, BLOCK, 8):
        prefetch(M, o + line)


@kernel
def new_block(nodes: Nodes, C: Any, h: int, level: int) -> int:
    """Allocate an empty block for the tree at holder h, born now."""
    M, W = nodes.M, nodes.W
    o = allocate(nodes.M, C, 0)
    expect_block(M, next_free(C, 0))  # the next one to be allocated
    C[h + BLOCKS] += 1
    W[2 * o + COUNT], W[2 * o + LEVEL] = 0, level
    return o


@kernel
def drop_block(nodes: Nodes, writing: WriteState, h: int, o: int) -> None:
    """Drop block o, which the newest version of the tree no longer uses."""
    C = writing.C
    C[h + BLOCKS] -= 1
    drop(nodes.M, writing, o, 0)


@kernel
def own_block(nodes: Nodes, writing: WriteState, o: int) -> int:
    """The block itself if this version wrote it, otherwise a copy that replaces it."""
    return o if nodes.M[o] == writing.C[VERSION] else moved_block(nodes, writing, o)


@kernel
def moved_block(nodes: Nodes, writing: WriteState, o: int) -> int:
    """A copy that replaces the block."""
    M, C = nodes.M, writing.C
    new = allocate(M, C, 0)
    expect_block(M, next_free(C, 0))  # as in `new_block`
    for i in range(0, BLOCK, 2 * LANES):  # a loop over words would be unrolled before it is vectorised
        copy16(M, new + i, M, o + i)
    M[new] = C[VERSION]  # not that of the old one
    drop(M, writing, o, 0)
    return new


@kernel
def move(nodes: Nodes, arity: int, source: int, low: int, high: int, target: int, at: int) -> None:
    """Copy items [low, high) of a block to place `at` of another of its kind, or of the same one. Sizes stay."""
    M, W = nodes.M, nodes.W
    room = room_of(W, source, arity)
    for j in range(arity):
        move_words(M, source + HEAD + j * room + low, target + HEAD + j * room + at, high - low)
    a, b = slot_at(source, arity, room), slot_at(target, arity, room)
    for j in range(1 if W[2 * source + LEVEL] == 0 else 3):
        move_words(W, a + j * room + low, b + j * room + at, high - low)


@kernel
def set_separator(nodes: Nodes, arity: int, target: int, at: int, source: int, i: int) -> None:
    """Set the separator of item `at` of an inner node to item i of a block."""
    M, W = nodes.M, nodes.W
    room, there = room_of(W, source, arity), INNER_ROOM[arity]
    for j in range(arity):
        M[target + HEAD + j * there + at] = M[source + HEAD + j * room + i]
    W[slot_at(target, arity, there) + at] = W[slot_at(source, arity, room) + i]


@kernel
def set_child(W: Any, arity: int, o: int, c: int, child: int) -> None:
    """Set child c of inner node o to this block, with the number of entries below it."""
    p = child_at(arity, o, c)
    W[p], W[p + INNER_ROOM[arity]] = child >> BLOCK_BITS, size_of(W, arity, child)


class IndexArena(Blocks):
    """The store of all indexes. `words`: reserved address space, not memory."""

    def __init__(self, words: int = INDEX_WORDS) -> None:
        super().__init__((BLOCK,), TREES + TREE_WORDS * MOST_TREES - KEPT, words)

    @property
    def blocks(self) -> int:
        """The number of blocks of the newest version. Each change asks for it: `live_bytes` takes several times as long."""
        found: int = self.classes.item(0, OUT) - self.classes.item(0, WAITING)
        return found
