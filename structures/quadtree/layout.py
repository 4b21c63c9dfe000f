"""Nodes of quadtrees: how they lie in an arena, which several trees share.

An entry is a point of k coordinates below 2**30 and a slot; the pair is there once. A level divides by one bit of every coordinate, its
digit: child `digit` is the paper's quadrant, the first coordinate's bit highest. Where few entries are left (LEAF), they lie in one block,
whatever the level. A tree may be of two parts: the first f coordinates are divided to the end, and each of their cells is a quadtree of
the other k - f. So the entries with given values are in one subtree; in a quadtree of all k they are in sqrt(n) places.

    levels 30 + bits - 1 to 30   bits of the first f coordinates, if f > 0
    levels bits - 1 to 0         bits of the others, or of all
    levels -1, -2, ...           k bits each of the slot, the highest first: the rows of one tuple

                 (inner: mask)                   digits of bit b
                 /       |        \\
        (inner)         nil       [leaf]          leaf: up to LEAF entries in no order
        /     \\
    [leaf]   <compact> ...                        cells with more than LEAF rows go on by the slots' digits

    inner   M[o] born | W those children that are leaves, children, as bits | child [2**k, int32]
    leaf    M[o] born | W entries, -1              | k coordinates, slot [LEAF each, int32]

A live block is known by its first word's index in M; a child's word holds half of that; 0 is NIL. A child may lie in the tree's compact
form instead (`compact.py`, whose places are below 0): it becomes a live block when it is changed, as if it were one of an older version.
Invariants, named by `check()` when violated: I1 to I4 of `core/blocks.py`, and
    Q1  an entry lies where its digits lead; it is there once; every coordinate is below 2**bits
    Q2  a leaf has 1 to LEAF entries; an inner node has more than LOW below it
    Q3  the bits of children are exactly those that are not NIL; the bits of leaves those that are leaves: a reader need not look

Costs: drop, allocate O(1). Differences from the paper's MX-quadtree: leaves of several entries end the unary paths, so memory goes by the
tuples, not by tuples times bits; trees in two parts. Source: Navarro, Reutter and Rojas-Ledesma, *Optimal Joins using Compact Data
Structures*, section 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import B
from structures.core.blocks import Blocks, WriteState, allocate, drop, next_free
from structures.core.control import KEPT, words_of
from structures.core.kernel import arrays, kernel, prefetch, wide

LEAF = min(16, max(2, B // 4))
LOW = LEAF // 2  # an inner node with so few entries becomes a leaf
MOST_ARITY = 4
MOST_TREES = 128  # 8 relations, each with the 15 subsets of its 4 attributes that can be given
CODE_BITS = 30  # of a coordinate, and of a slot

# Words of C.
MISSING = KEPT
TREE, TREE_WORDS = KEPT + 1, 6
ROOT, BITS, BASE, COUNT, ARITY, FIRST = 0, 1, 2, 3, 4, 5  # of a tree; BASE: of its compact form, FIRST: f
PATH = TREE + TREE_WORDS * MOST_TREES
LEVELS = 3 * CODE_BITS + 2  # the most
CONTROL_WORDS = PATH + 3 * LEVELS
# Words of W, from 2 * o: of an inner node which children are leaves, and which there are, as bits; of a leaf its entries, and LEAF_MARK.
# Behind them children, or columns.
LEAVES, CHILDREN = 2, 3
ENTRIES, MARK = 2, 3
HEAD = 4
LEAF_MARK = -1
QUAD_WORDS = 2**32  # most words of a store that the words of children can address


@arrays("int64[::1]", "int32[::1]", "int64[::1]", "uint8[::1]")
class QuadNodes(NamedTuple):
    """The live blocks, as in `Nodes`, and the compact forms (`compact.py`)."""

    M: np.ndarray
    W: np.ndarray
    compact: np.ndarray
    packed: np.ndarray


@kernel
def is_leaf(W: Any, o: int) -> bool:
    return W[2 * o + MARK] == LEAF_MARK


@kernel(forceinline=True)
def live_child(W: Any, o: int, c: int) -> int:
    """Return the place of child c of live inner node o; 0: there is none."""
    name = wide(W[2 * o + HEAD + c])
    return name + max(name, 0)


@kernel
def slot_levels(arity: int) -> int:
    return (CODE_BITS + arity - 1) // arity


class QuadtreeShape(NamedTuple):
    """The shape of a tree: its number of attributes, and how many of them come first (0: a plain quadtree)."""

    arity: int
    first: int


@kernel
def digit(entries: Any, e: int, step: int, arity: int, leading: int, level: int) -> int:
    """Return the number of the child to which the entry at entries[e], entries[e + step], ... belongs at this level."""
    if level < 0:
        return (wide(entries[e + arity * step]) >> (arity * (slot_levels(arity) + level))) & ((1 << arity) - 1)
    low, high = leading, arity
    if level >= CODE_BITS:
        low, high, level = 0, leading, level - CODE_BITS
    found = wide(0)
    for j in range(low, high):
        found = found << 1 | ((wide(entries[e + j * step]) >> level) & 1)
    return found


@kernel
def level_below(level: int, bits: int) -> int:
    return bits - 1 if level == CODE_BITS else level - 1


@kernel
def top_level(C: Any, h: int) -> int:
    """Return the level of the root of the tree at holder h."""
    return C[h + BITS] - 1 + (CODE_BITS if C[h + FIRST] > 0 else 0)


@kernel
def new_block(M: Any, C: Any, cls: int) -> int:
    """Return a block of the class, born now; its contents are undefined."""
    o = allocate(M, C, cls)
    ahead = next_free(C, cls)
    if ahead != 0:
        for line in range(0, words_of(C, cls), 8):
            prefetch(M, ahead + line)  # the block that is taken next
    return o


@kernel
def class_of(W: Any, o: int, arity: int) -> int:
    return 2 * (arity - 1) + (1 if is_leaf(W, o) else 0)


@kernel
def drop_block(nodes: QuadNodes, writing: WriteState, o: int, arity: int) -> None:
    """Drop block o of a tree with `arity` attributes, which the newest version no longer uses."""
    drop(nodes.M, writing, o, class_of(nodes.W, o, arity))


@kernel
def new_leaf(nodes: QuadNodes, C: Any, arity: int) -> int:
    M, W = nodes.M, nodes.W
    o = new_block(M, C, 2 * (arity - 1) + 1)
    W[2 * o + ENTRIES], W[2 * o + MARK] = 0, LEAF_MARK
    return o


@kernel
def new_inner(nodes: QuadNodes, C: Any, arity: int) -> int:
    """Return an inner node without children."""
    M, W = nodes.M, nodes.W
    o = new_block(M, C, 2 * (arity - 1))
    W[2 * o + LEAVES], W[2 * o + CHILDREN] = 0, 0
    for c in range(1 << arity):
        W[2 * o + HEAD + c] = 0
    return o


class QuadArena(Blocks):
    """The store of several quadtrees. `words`: reserved address space, not memory."""

    def __init__(self, shapes: tuple[tuple[int, int], ...], words: int) -> None:
        sizes = []
        for k in range(1, MOST_ARITY + 1):
            inner, leaf = 2 + ((1 << k) + 1) // 2, 2 + (LEAF * k + 17) // 2  # columns are written sixteen at once
            sizes += [inner + inner % 2, leaf + leaf % 2]
        super().__init__(sizes, CONTROL_WORDS - KEPT, words)
        for t, shape in enumerate(shapes):
            self.C[TREE + TREE_WORDS * t + ARITY :][:2] = shape
