"""Quadtrees: relations as sets of points in a grid of codes, under inserts and deletes, readable at every pinned version.

Problem: hold relations of 1 to 4 attributes, whose values are codes below 2**30, so that their joins can be found by dividing the space of
all attributes (`qdag/qdag.py`). `layout.py` has the layout and the invariants, `compact.py` the compact form.

Several trees share one arena: those of a join, which are read together, at roots that may be of different versions.

Decisions, with their reasons
    - An entry is a tuple and the slot of a row that has it. Rows of one tuple are distinguished by further levels over their slots: no list
      next to the tree, and the same copy-on-write for all.
    - Up to LEAF entries lie together. The plain quadtree has a path of single children for each tuple, log l nodes long.
    - What is loaded in bulk is compact. A change makes the blocks on its path live, as it copies those of an older version; so a tree is
      one tree to a reader, live where it was changed. Two small live trees beside it (added, removed) would take less after a few changes,
      but three nodes to look at in place of one at each step of a join: this way joins and changes take about as long as in a tree that is
      live throughout, and never more memory than that and the compact form together.
    - A merge makes a tree compact again, at once, when half as many entries as it has have changed since: 0.25 microseconds an entry,
      for 100,000 entries 25 ms a tree, during which the writer does nothing else.
    - A plain tree's root grows by a level a bit as codes grow. A tree in two parts would have to grow in every cell: it is rebuilt.
    - Trees in two parts beside the plain one: a row of a quadtree's grid meets sqrt(n) of its nodes (1,400 steps for a changed edge of a
      triangle over 100,000), a tree in which the given attributes come first a path. They are a further copy of the entries each.

Costs (n entries, codes below l)
    bulk_load       O(n log l), entries dealt level by level, no sort; a second copy of them meanwhile
    insert, delete  O(2^k) words copied a level; log n / k levels where points are spread, log l + 30 / k at worst
    memory          compact 6 to 8 bytes an entry of two attributes, of these 4 for the slot; live about 26: a leaf of LEAF (16) entries is
                    full to a third and more
Source: Navarro, Reutter and Rojas-Ledesma, *Optimal Joins using Compact Data Structures*, section 2; docs/design/natural-joins.md (*qdag*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from structures.core.control import SIZE, VERSION
from structures.core.versioned import Versioned
from structures.quadtree import layout
from structures.quadtree.changes import change_entries, collect, morton_keys
from structures.quadtree.check import check_quads
from structures.quadtree.compact import CompactForms, compact_place, most_words
from structures.quadtree.layout import QuadArena, QuadNodes, Shape

__all__ = ["QuadTrees", "Root", "in_order"]

_LEAST = 32 * layout.LEAF  # entries of a tree that gets a compact form
_FORM_WORDS = 2**30  # of all compact forms
_RUN = 2048  # changes of a tree that may be versions of their own at most
_CHANGED = 2  # it gets a new one when 1 in so many of its entries has changed


class Root(NamedTuple):
    """One version of a tree: plain data, good as long as its version is pinned."""

    place: int
    bits: int
    base: int
    count: int  # type: ignore[assignment]  # not the method of tuples


def in_order(entries: np.ndarray) -> np.ndarray:
    """Entries in Morton order: neighbours share their ways down, and what a processor's cache holds of the trees is used again soon."""
    keys = np.empty(len(entries), np.int64)
    morton_keys(np.ascontiguousarray(entries).reshape(-1), entries.shape[1] - 1, keys)
    return entries[np.argsort(keys)]


class QuadTrees(Versioned[QuadArena]):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile.

    Entries are int32[n, k + 1]: k codes in [0, 2**30), a slot in [0, 2**30).
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], words: int = layout.QUAD_WORDS, least: int = _LEAST) -> None:
        """A tree a shape: its attributes, and how many of them come first (0: a plain quadtree). `words`: the arena's address space in
        8-byte words (not memory); `least`: entries of a tree that gets a compact form. ValueError: not 1 to 4 attributes, or none beside
        the first."""
        if not 1 <= len(shapes) <= layout.MOST_TREES or not all(0 <= first < arity <= layout.MOST_ARITY for arity, first in shapes):
            raise ValueError(f"no quadtrees of {shapes} attributes")
        self.shapes = tuple(Shape(*shape) for shape in shapes)
        self.arena = QuadArena(self.shapes, words)
        self.forms = CompactForms(min(words // 2, _FORM_WORDS))
        cls = 2 * (max(self.shapes)[0] - 1)
        self._largest: list[int] = self.arena.classes[cls : cls + 2, SIZE].tolist()  # words of an inner node, and of a leaf
        self.arrays = QuadNodes(self.arena.M, self.arena.W, self.forms.K, self.forms.B), self.arena.writing
        self._least = max(least, layout.LEAF + 1)
        self._changed = [0] * len(self.shapes)  # entries, since the tree's form was made

    @property
    def roots(self) -> tuple[Root, ...]:
        """The newest version of each tree, published or not."""
        C = self.arena.C[layout.TREE : layout.TREE + layout.TREE_WORDS * len(self.shapes)].tolist()
        return tuple(Root(*C[h : h + 4]) for h in range(0, len(C), layout.TREE_WORDS))

    @property
    def version(self) -> int:
        """The newest one that was written."""
        return self.arena.C.item(VERSION)

    def require(self, changes: int, times: int) -> None:
        """Raise MemoryError unless so many inserts and deletes, in so many versions or in a run of singles, surely fit. O(1).

        At worst each change copies a path and divides a leaf at every level, or all trees are written anew.
        """
        arena = self.arena
        inner, leaf = self._largest
        counts = arena.C[layout.TREE + layout.COUNT : layout.PATH : layout.TREE_WORDS][: len(self.shapes)]
        entries = int(counts.sum()) + changes
        path = layout.LEVELS * (inner + leaf)
        most = times * min(changes * path, self._anew(entries)) + min(changes, _RUN * len(self.shapes)) * path
        arena.require_words(most + self._anew(min(entries, self._least * len(self.shapes))))
        self.forms.require(
            times
            * sum(most_words(n + changes, k) for n, (k, _) in zip(counts.tolist(), self.shapes, strict=True) if n + changes >= self._least)
        )

    def _anew(self, entries: int) -> int:
        """Words of so many entries in all trees, at most."""
        inner, leaf = self._largest
        return layout.LEVELS * (entries // (layout.LOW + 1) + len(self.shapes)) * inner + entries * leaf

    def bulk_load(self, version: int, tree: int, entries: np.ndarray) -> None:
        """Fill an empty tree. ValueError if it is not empty, MemoryError (nothing done) if it cannot fit."""
        if self.arena.C.item(layout.TREE + layout.TREE_WORDS * tree + layout.COUNT):
            raise ValueError("bulk_load fills an empty tree only")
        if len(entries) < self._least:
            self.require(len(entries), 1)
        else:
            self.forms.require(most_words(len(entries), self.shapes[tree][0]))
        self.arena.C[VERSION] = version
        self._retire(tree)
        self._load(tree, np.array(entries, np.int32, order="C"))

    def _load(self, tree: int, entries: np.ndarray, reach: int = 0) -> None:
        """Fill an empty tree with entries, which are put in another order; codes up to `reach` will come."""
        h = layout.TREE + layout.TREE_WORDS * tree
        most = reach | int(np.bitwise_or.reduce(entries[:, :-1], axis=None, initial=min(1, len(entries))))
        bits = most.bit_length()
        self.arena.C[h + layout.BITS] = bits
        if len(entries) < self._least:
            self._write(tree, entries, True)
        else:
            base = self.forms.build(self.arena.C.item(VERSION), entries, self.shapes[tree], bits)
            self.arena.C[h : h + 4] = compact_place(0, False), bits, base, len(entries)
        self._changed[tree] = 0

    def insert(self, version: int, tree: int, entries: np.ndarray) -> None:
        """Put in entries that are not there, as `version` (not below one before). `require` comes first."""
        self.arena.C[VERSION] = version
        self._write(tree, entries, True)

    def delete(self, version: int, tree: int, entries: np.ndarray) -> None:
        """Take out entries. KeyError: some were not there; the others are gone."""
        self.arena.C[VERSION] = version
        self._write(tree, entries, False)
        self.settle_missing()

    def settle_missing(self) -> None:
        """KeyError: some entries were deleted that were not there, or inserted in a run beyond what was expected."""
        missing, self.arena.C[layout.MISSING] = int(self.arena.C[layout.MISSING]), 0
        if missing:
            raise KeyError(f"{missing} entries were not in the tree, or it does not reach them")

    def expect(self, tree: int, changes: int, reach: int) -> None:
        """So many entries of a tree will be changed by `Runs`, in versions after the newest, and codes up to `reach` (as bits) inserted."""
        if reach >> self.roots[tree].bits and self.shapes[tree][1]:
            self.arena.C[VERSION] += 1
            self._load(tree, self._taken(tree), reach)
        self._changed[tree] += changes

    def _write(self, tree: int, entries: np.ndarray, come: bool) -> None:
        flat = np.ascontiguousarray(entries).reshape(-1)
        done = change_entries(*self.arrays, tree, flat, 0, come)
        if done < len(flat):
            rest = entries[done // entries.shape[1] :]
            self._load(tree, np.concatenate((self._taken(tree), rest)))
        self._changed[tree] += len(entries)

    def _taken(self, tree: int) -> np.ndarray:
        """All entries of a tree, which is empty then."""
        h = layout.TREE + layout.TREE_WORDS * tree
        entries = np.empty((self.arena.C.item(h + layout.COUNT), self.shapes[tree][0] + 1), np.int32)
        collect(*self.arrays, tree, entries.reshape(-1))
        self._retire(tree)
        return entries

    def _retire(self, tree: int) -> None:
        """The empty tree needs its compact form no more."""
        h = layout.TREE + layout.TREE_WORDS * tree
        self.forms.retire(self.arena.C.item(h + layout.BASE), self.arena.C.item(VERSION))
        self.arena.C[h + layout.BASE] = 0

    def merge(self, version: int) -> None:
        """Put trees in which much has changed into the compact form, whole. Cost: O(n levels), O(levels) a change."""
        self.arena.C[VERSION] = version
        for tree, changed in enumerate(self._changed):
            _, _, base, count = self.arena.C[layout.TREE + layout.TREE_WORDS * tree :][:4].tolist()
            if changed and _CHANGED * changed >= count and (base or count >= self._least):
                self._load(tree, self._taken(tree))

    def reclaim(self, oldest: int, pins: np.ndarray) -> None:
        """Make blocks reusable that no version >= `oldest` and no pin (ascending int64) can see."""
        self.arena.reclaim(oldest, pins)
        self.forms.reclaim(oldest, pins)

    @property
    def live_bytes(self) -> int:
        """Bytes of the newest version: its blocks and compact forms."""
        return self.arena.live_bytes + self.forms.bytes(True)

    @property
    def retired_bytes(self) -> int:
        """Bytes that only older versions see."""
        return self.arena.retired_bytes + self.forms.bytes(False)

    def bits_a_tuple(self, tree: int) -> float:
        """Of a tree's compact form, without the slots; 0: it has none. Any thread."""
        base = self.arena.C.item(layout.TREE + layout.TREE_WORDS * tree + layout.BASE)
        return self.forms.bits_a_tuple(base) if base else 0.0

    def check(self, roots: tuple[Root, ...], others: tuple[tuple[Root, ...], ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        check_quads(self.arena, self.forms, self.shapes, (*others, roots))
