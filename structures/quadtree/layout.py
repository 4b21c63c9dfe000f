"""Nodes of quadtrees: how they lie in an arena, which several trees share.

An entry is a point of k coordinates below 2**30 and a slot; the pair is there once. A level divides by one bit of every coordinate, its
digit: child `digit` is the paper's quadrant, the first coordinate's bit highest. Where few entries are left (LEAF), they lie in one block,
whatever the level. A tree may be of two parts: the first f coordinates are divided to the end, and each of their cells is a quadtree of
the other k - f: so what some given values have to do with is one subtree, where a quadtree of all k has it in sqrt(n) places.

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

A live block is named by its first word's index in M; 0 is NIL. A child may lie in the tree's compact form instead (`compact.py`, whose
places are below 0): it becomes a live block when it is changed, as if it were one of an older version.
Invariants, by which `check()` names what broke: I1 to I3 of `core/arena.py`, and
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

from structures.core.arena import B, Writing
from structures.core.kernel import arrays, kernel, prefetch, wide
from structures.core.pins import pinned
from structures.core.reserve import reserve

LEAF = min(16, max(2, B // 4))
LOW = LEAF // 2  # an inner node with so few entries becomes a leaf
MOST_ARITY = 4
MOST_TREES = 128  # 8 relations, each with the 15 parts of its 4 attributes that can be given
CODE_BITS = 30  # of a coordinate, and of a slot
WORDS = 2**31 - 1  # offsets are int32

# The control array C.
BUMP, VERSION, RETIRED, HELD, MISSING = 0, 1, 2, 3, 4
FREE, OUT, WAITING, SIZE = 8, 16, 24, 32  # + class: first free block, blocks out, of these retired, words
TREE, TREE_WORDS = 40, 6
ROOT, BITS, BASE, COUNT, ARITY, FIRST = 0, 1, 2, 3, 4, 5  # of a tree; BASE: of its compact form, FIRST: f
PATH = TREE + TREE_WORDS * MOST_TREES
LEVELS = 3 * CODE_BITS + 2  # the most
CONTROL_WORDS = PATH + 3 * LEVELS
LEAF_MARK = -1


@arrays("int64[::1]", "int32[::1]", "int64[::1]", "uint8[::1]")
class QuadNodes(NamedTuple):
    """The live blocks, as in `Nodes`, and the compact forms (`compact.py`)."""

    M: np.ndarray
    W: np.ndarray
    K: np.ndarray
    B: np.ndarray


@kernel
def is_leaf(W: Any, o: int) -> bool:
    return W[2 * o + 3] == LEAF_MARK


@kernel
def slot_levels(k: int) -> int:
    return (CODE_BITS + k - 1) // k


class Shape(NamedTuple):
    """Of a tree: its attributes, and how many of them come first (0: a plain quadtree)."""

    arity: int
    first: int


@kernel
def digit(E: Any, e: int, step: int, k: int, f: int, b: int) -> int:
    """Which child the entry at E[e], E[e + step], ... belongs to at level b."""
    if b < 0:
        return (wide(E[e + k * step]) >> (k * (slot_levels(k) + b))) & ((1 << k) - 1)
    low, high = f, k
    if b >= CODE_BITS:
        low, high, b = 0, f, b - CODE_BITS
    found = wide(0)
    for j in range(low, high):
        found = found << 1 | ((wide(E[e + j * step]) >> b) & 1)
    return found


@kernel
def level_below(b: int, bits: int) -> int:
    return bits - 1 if b == CODE_BITS else b - 1


@kernel
def top_level(C: Any, h: int) -> int:
    """The level of the root of the tree at holder h."""
    return C[h + BITS] - 1 + (CODE_BITS if C[h + FIRST] > 0 else 0)


@kernel
def new_block(M: Any, C: Any, cls: int) -> int:
    """A block of the class, born now; its contents are whatever was there."""
    o = C[FREE + cls]
    if o != 0:
        C[FREE + cls] = M[o]
        for line in range(0, C[SIZE + cls], 8):
            prefetch(M, M[o] + line)  # the block that is taken next
    else:
        o = C[BUMP]
        C[BUMP] = o + C[SIZE + cls]
    C[OUT + cls] += 1
    M[o] = C[VERSION]
    return o


@kernel
def free_block(M: Any, C: Any, o: int, cls: int) -> None:
    M[o] = C[FREE + cls]
    C[FREE + cls] = o
    C[OUT + cls] -= 1


@kernel
def class_of(W: Any, o: int, k: int) -> int:
    return 2 * (k - 1) + (1 if is_leaf(W, o) else 0)


@kernel
def drop_block(nodes: QuadNodes, writing: Writing, o: int, k: int) -> None:
    """The newest version no longer uses block o: free it if nobody can have seen it (I1), else retire it."""
    M, W, C, Q = nodes.M, nodes.W, writing.C, writing.Q
    cls = class_of(W, o, k)
    if M[o] == C[VERSION]:
        free_block(M, C, o, cls)
    else:
        i = C[RETIRED]
        Q[2 * i], Q[2 * i + 1] = 8 * o + cls, C[VERSION]
        C[RETIRED] = i + 1
        C[WAITING + cls] += 1


@kernel("void(int64[::1], int64[::1], int64[::1], int64, int64[::1], boolean)")
def reclaim_quads(M: Any, C: Any, Q: Any, oldest: int, pins: Any, everything: bool) -> None:
    """As `arena.reclaim`."""
    h = 0 if everything else C[HELD]
    w = h
    for i in range(h, C[RETIRED]):
        block, retired = Q[2 * i], Q[2 * i + 1]
        o, cls = block >> 3, block & 7
        held = pinned(pins, M[o], retired)
        if not held and retired <= oldest:
            C[WAITING + cls] -= 1
            free_block(M, C, o, cls)
            continue
        Q[2 * w], Q[2 * w + 1] = block, retired
        if held:
            Q[2 * w], Q[2 * h] = Q[2 * h], block
            Q[2 * w + 1], Q[2 * h + 1] = Q[2 * h + 1], retired
            h += 1
        w += 1
    C[HELD] = h
    C[RETIRED] = w


@kernel
def new_leaf(nodes: QuadNodes, C: Any, k: int) -> int:
    M, W = nodes.M, nodes.W
    o = new_block(M, C, 2 * (k - 1) + 1)
    W[2 * o + 2], W[2 * o + 3] = 0, LEAF_MARK
    return o


@kernel
def new_inner(nodes: QuadNodes, C: Any, k: int) -> int:
    """Without children."""
    M, W = nodes.M, nodes.W
    o = new_block(M, C, 2 * (k - 1))
    W[2 * o + 2], W[2 * o + 3] = 0, 0
    for c in range(1 << k):
        W[2 * o + 4 + c] = 0
    return o


class QuadArena:
    """The arrays of several quadtrees. `words`: reserved address space, not memory."""

    def __init__(self, shapes: tuple[tuple[int, int], ...], words: int) -> None:
        self.M: np.ndarray = reserve((words + LEAF) * 8, np.int64)[:words]  # the last leaf's columns are read at once
        self.W: np.ndarray = self.M.view(np.int32)
        self.C: np.ndarray = np.zeros(CONTROL_WORDS, np.int64)
        self.C[BUMP] = 8
        for k in range(1, MOST_ARITY + 1):
            self.C[SIZE + 2 * (k - 1)] = 2 + ((1 << k) + 1) // 2
            self.C[SIZE + 2 * (k - 1) + 1] = 2 + (LEAF * k + 17) // 2  # columns are written sixteen at once
        for t, shape in enumerate(shapes):
            self.C[TREE + TREE_WORDS * t + ARITY :][:2] = shape
        self.Q: np.ndarray = reserve(2 * (words // 3 + 1) * 8, np.int64)
        self.writing = Writing(self.C, self.Q)
        self._pins: set[int] = set()

    def reclaim(self, oldest: int, pins: np.ndarray) -> None:
        """See I2 of `core/arena.py`; `pins` ascending int64."""
        now = set(pins.tolist())
        gone = not self._pins <= now
        self._pins = now
        reclaim_quads(self.M, self.C, self.Q, oldest, pins, gone)

    def _bytes(self, counts: int) -> int:
        return 8 * int(self.C[counts : counts + 8] @ self.C[SIZE : SIZE + 8])

    @property
    def live_bytes(self) -> int:
        return self._bytes(OUT) - self._bytes(WAITING)

    @property
    def retired_bytes(self) -> int:
        return self._bytes(WAITING)
