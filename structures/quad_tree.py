"""Live quadtrees: relations as sets of points in a grid of codes, kept under inserts and deletes, readable at every pinned version.

Problem: hold relations of 1 to 4 attributes, whose values are codes below 2**30, so that their joins can be found by dividing the space of
all attributes (`qdag.py`). `quad_nodes.py` has the layout and the invariants.

Several trees share one arena: those of a join, which are read together, at roots that may be of different versions.

Decisions, with their reasons
    - An entry is a tuple and the slot of a row that has it. Rows of one tuple are told apart by further levels over their slots: no list
      beside the tree, and the same copy-on-write for all.
    - Up to LEAF entries lie together. The plain quadtree has a path of single children for each tuple, log l nodes long.
    - A tree's root grows by a level a bit as codes grow; a leaf reaches as far as it must.
    - Trees in two parts beside the plain one: a row of a quadtree's grid meets sqrt(n) of its nodes (1,400 steps for a changed edge of a
      triangle over 100,000), a tree in which the given attributes come first a path. They are a further copy of the entries each.

Costs (n entries, codes below l)
    bulk_load       O(n log l), words as they come, no sort
    insert, delete  O(2^k) words copied a level; log n / k levels where points are spread, log l + 30 / k at worst
    memory          a leaf of LEAF (16) entries is full to a third and more: about 36 bytes an entry of two attributes
Source: Navarro, Reutter and Rojas-Ledesma, *Optimal Joins using Compact Data Structures*, section 2; natural-joins.md (*qdag*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from structures.kernel import kernel
from structures.quad_nodes import (
    ARITY,
    ARRAYS,
    BITS,
    BUMP,
    COUNT,
    FIRST,
    LEAF,
    LEVELS,
    LOW,
    MISSING,
    MOST_ARITY,
    MOST_TREES,
    PATH,
    ROOT,
    SIZE,
    TREE,
    TREE_WORDS,
    VERSION,
    WORDS,
    QuadArena,
    append,
    delete_entry,
    digit,
    insert_entry,
    new_inner,
    new_leaf,
    top_level,
)

__all__ = ["QuadTrees", "Root"]


class Root(NamedTuple):
    """One version of a tree: plain data, good as long as its version is pinned."""

    offset: int
    bits: int
    count: int


@kernel("void(" + ARRAYS + ", int64, int32[::1], boolean)")
def change_entries(M: Any, W: Any, C: Any, Q: Any, t: int, E: Any, come: bool) -> None:
    """Insert or delete all of them. C[MISSING] counts deletes of what was not there."""
    for e in range(0, len(E), C[TREE + TREE_WORDS * t + ARITY] + 1):
        if come:
            insert_entry(M, W, C, Q, t, E, e)
        elif not delete_entry(M, W, C, Q, t, E, e):
            C[MISSING] += 1


@kernel("void(" + ARRAYS + ", int64, int32[::1], int64)", allocates=True)
def build(M: Any, W: Any, C: Any, Q: Any, t: int, E: Any, bits: int) -> None:
    """Fill the empty tree t: each range of entries is dealt to its quadrants in place of being sorted."""
    h = TREE + TREE_WORDS * t
    k, f = C[h + ARITY], C[h + FIRST]
    n = len(E) // (k + 1)
    C[h + BITS], C[h + COUNT] = bits, n
    order, spare = np.arange(n), np.empty(n, np.int64)
    ends = np.empty((1 << k) + 1, np.int64)
    todo = np.empty(((LEVELS + 1) << k, 4), np.int64)  # first, end, level, place of the pointer (-1: the holder)
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = 0, n, top_level(C, h), -1
    left = 1
    while left > 0:
        left -= 1
        first, end, b, place = todo[left, 0], todo[left, 1], todo[left, 2], todo[left, 3]
        if end - first <= LEAF:
            o = new_leaf(M, W, C, k)
            for i in range(first, end):
                append(W, o, k, E, order[i] * (k + 1), 1)
        else:
            o = new_inner(M, W, C, k, end - first)
            ends[:] = 0
            for i in range(first, end):
                ends[digit(E, order[i] * (k + 1), 1, k, f, b) + 1] += 1
            ends[0] = first
            for c in range(1 << k):
                if ends[c + 1] > 0:
                    W[2 * o + 3] |= 1 << c
                    todo[left, 0], todo[left, 1], todo[left, 2], todo[left, 3] = ends[c], ends[c] + ends[c + 1], b - 1, 2 * o + 4 + c
                    left += 1
                ends[c + 1] += ends[c]
            for i in range(first, end):
                spare[i] = order[i]
            for i in range(first, end):
                c = digit(E, spare[i] * (k + 1), 1, k, f, b)
                order[ends[c]] = spare[i]
                ends[c] += 1
        if place < 0:
            C[h + ROOT] = o
        else:
            W[place] = o


class QuadTrees:
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile.

    Entries are int32[n, k + 1]: k codes in [0, 2**30), a slot in [0, 2**30).
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], words: int = WORDS) -> None:
        """A tree a shape: its attributes, and how many of them come first (0: a plain quadtree). `words`: the arena's address space in
        8-byte words (not memory). ValueError: not 1 to 4 attributes, or none beside the first."""
        if not 1 <= len(shapes) <= MOST_TREES or not all(0 <= first < arity <= MOST_ARITY for arity, first in shapes):
            raise ValueError(f"no quadtrees of {shapes} attributes")
        self.shapes = tuple(shapes)
        self.arena = QuadArena(self.shapes, words)
        cls = SIZE + 2 * (max(self.shapes)[0] - 1)
        self._largest: list[int] = self.arena.C[cls : cls + 2].tolist()  # words of an inner node, and of a leaf
        self._arrays = self.arena.M, self.arena.W, self.arena.C, self.arena.Q

    @property
    def roots(self) -> tuple[Root, ...]:
        """The newest version of each tree, published or not."""
        C = self.arena.C[TREE : TREE + TREE_WORDS * len(self.shapes)].tolist()
        return tuple(Root(*C[h : h + 3]) for h in range(0, len(C), TREE_WORDS))

    def require(self, changes: int, times: int) -> None:
        """Raise MemoryError unless so many inserts and deletes, in so many versions, surely fit. O(1).

        At worst each change copies a path and divides a leaf at every level, or all trees are written anew.
        """
        arena = self.arena
        inner, leaf = self._largest
        entries = int(arena.C[TREE + COUNT : PATH : TREE_WORDS].sum()) + changes
        anew = LEVELS * (entries // (LOW + 1) + len(self.shapes)) * inner + entries * leaf
        if arena.C.item(BUMP) + times * min(changes * LEVELS * (inner + leaf), anew) > arena.M.size:
            raise MemoryError(f"this view's structure has reached the size of its arena ({8 * arena.M.size} bytes)")

    def bulk_load(self, version: int, tree: int, entries: np.ndarray) -> None:
        """Fill an empty tree. ValueError if it is not empty, MemoryError (nothing done) if it cannot fit."""
        if self.roots[tree].count:
            raise ValueError("bulk_load fills an empty tree only")
        self.require(len(entries), 1)
        self.arena.C[VERSION] = version
        if len(entries):
            bits = int(np.bitwise_or.reduce(entries[:, :-1], axis=None)).bit_length()
            build(*self._arrays, tree, np.ascontiguousarray(entries).reshape(-1), bits)

    def insert(self, version: int, tree: int, entries: np.ndarray) -> None:
        """Put in entries that are not there, as `version` (not below one before). `require` comes first."""
        self._change(version, tree, entries, True)

    def delete(self, version: int, tree: int, entries: np.ndarray) -> None:
        """Take out entries. KeyError: some were not there; the others are gone."""
        self._change(version, tree, entries, False)
        missing, self.arena.C[MISSING] = int(self.arena.C[MISSING]), 0
        if missing:
            raise KeyError(f"{missing} deleted entries were not in the tree")

    def _change(self, version: int, tree: int, entries: np.ndarray, come: bool) -> None:
        self.arena.C[VERSION] = version
        change_entries(*self._arrays, tree, np.ascontiguousarray(entries).reshape(-1), come)

    def reclaim(self, oldest: int, pins: np.ndarray) -> None:
        """Make blocks reusable that no version >= `oldest` and no pin (ascending int64) can see."""
        self.arena.reclaim(oldest, pins)

    @property
    def live_bytes(self) -> int:
        """Bytes of the newest version's blocks."""
        return self.arena.live_bytes

    @property
    def retired_bytes(self) -> int:
        """Bytes of blocks that only older versions see."""
        return self.arena.retired_bytes

    def check(self, roots: tuple[Root, ...], others: tuple[tuple[Root, ...], ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        from structures.quad_check import check_quads

        check_quads(self.arena, self.shapes, (*others, roots))
