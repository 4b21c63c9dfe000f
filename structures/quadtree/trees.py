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
    - Only a load makes compact forms. A tree of which half has changed since is outgrown, and its owner loads another: a changed entry
      makes a whole leaf live, which takes thirty times what the entry does in the compact form.
    - A plain tree's root grows by a level a bit as codes grow. A tree in two parts would have to grow in every cell: it has levels for
      twice as many codes as are expected, and is outgrown once three quarters of them are; if they come faster, it is loaded anew at once.
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

from structures.core.blocks import ALL_BLOCKS
from structures.core.control import SIZE, VERSION
from structures.core.kernel import compiled
from structures.core.versioned import VersionedStructure
from structures.quadtree import layout
from structures.quadtree.changes import change_entries, morton_keys
from structures.quadtree.check import check_quads
from structures.quadtree.compact import CompactForms, compact_position, most_words
from structures.quadtree.layout import QuadArena, QuadNodes, QuadtreeShape
from structures.quadtree.whole import take_entries

__all__ = ["QuadTrees", "QuadtreeRoot", "in_order"]

_LEAST = 32 * layout.LEAF  # entries of a tree that gets a compact form
_FORM_WORDS = 2**30  # of all compact forms
_RUN = 2048  # most changes of a tree that may be separate versions
_MUCH = 1 << 16  # changed entries; fewer do not make a tree outgrown


class QuadtreeRoot(NamedTuple):
    """One version of a tree: plain data, valid as long as its version is pinned."""

    position: int
    bits: int
    base: int
    count: int  # type: ignore[assignment]  # not the method of tuples


def in_order(entries: np.ndarray) -> np.ndarray:
    """Return the entries in Morton order: neighbours share their paths, so that the parts of the trees in the processor's cache are soon
    used again."""
    keys = np.empty(len(entries), np.int64)
    morton_keys(np.ascontiguousarray(entries).reshape(-1), entries.shape[1] - 1, keys)
    return entries[np.argsort(keys)]


class QuadTrees(VersionedStructure[QuadArena]):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile.

    Entries are int32[n, k + 1]: k codes in [0, 2**30), a slot in [0, 2**30).
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], words: int = layout.QUAD_WORDS, least: int = _LEAST) -> None:
        """Create one tree for each shape: the number of its attributes, and how many of them come first (0: a plain quadtree). `words`: the
        arena's address space in 8-byte words (not memory); `least`: the least number of entries of a tree with a compact form. Raises
        ValueError for other than 1 to 4 attributes, or if all come first."""
        if not 1 <= len(shapes) <= layout.MOST_TREES or not all(0 <= first < arity <= layout.MOST_ARITY for arity, first in shapes):
            raise ValueError(f"no quadtrees of {shapes} attributes")
        self.shapes = tuple(QuadtreeShape(*shape) for shape in shapes)
        self.arena = QuadArena(self.shapes, words)
        self.forms = CompactForms(min(words // 2, _FORM_WORDS))
        cls = 2 * (max(self.shapes)[0] - 1)
        self._largest: list[int] = self.arena.classes[cls : cls + 2, SIZE].tolist()  # words of an inner node, and of a leaf
        self.arrays = QuadNodes(self.arena.M, self.arena.W, self.forms.compact, self.forms.packed), self.arena.writing
        self._least = max(least, layout.LEAF + 1)
        self._changed = [0] * len(self.shapes)  # entries changed since the tree was loaded
        self._reached = [0] * len(self.shapes)  # the highest code that is expected

    @property
    def roots(self) -> tuple[QuadtreeRoot, ...]:
        """The newest version of each tree, published or not."""
        C = self.arena.C[layout.TREE : layout.TREE + layout.TREE_WORDS * len(self.shapes)].tolist()
        return tuple(QuadtreeRoot(*C[h : h + 4]) for h in range(0, len(C), layout.TREE_WORDS))

    @property
    def version(self) -> int:
        """The newest version that was written."""
        return self.arena.C.item(VERSION)

    def require(self, changes: int, times: int) -> int:
        """Raise MemoryError unless `changes` inserts and deletes, in `times` versions or in a run of singles, surely fit. Returns the
        maximum number of words that they take, besides compact forms. O(1).

        At worst each change copies a path, at whose end a leaf is divided at every level or leaves become one; or each version writes all
        trees anew.
        """
        arena = self.arena
        inner, leaf = self._largest
        trees = len(self.shapes)
        counts = arena.C[layout.TREE + layout.COUNT : layout.PATH : layout.TREE_WORDS][:trees].tolist()
        path = layout.LEVELS * inner + (layout.LEAF + 2) * leaf
        entries = sum(counts) + changes
        most = min(changes * path, times * self._anew(entries, trees) + min(changes, _RUN * trees) * path)
        arena.require_words(most)
        self.forms.require(
            times * sum(most_words(n + changes, k) for n, (k, _) in zip(counts, self.shapes, strict=True) if n + changes >= self._least)
        )
        return most

    def _anew(self, entries: int, trees: int) -> int:
        """Return the maximum number of words of `entries` entries in `trees` trees."""
        inner, leaf = self._largest
        return layout.LEVELS * (entries // (layout.LOW + 1) + trees) * inner + entries * leaf

    def _require_entries(self, tree: int, entries: np.ndarray) -> None:
        """Raise ValueError unless the entries are valid for this tree. O(n)."""
        width = self.shapes[tree].arity + 1
        if entries.ndim != 2 or entries.shape[1] != width:
            raise ValueError(f"entries of tree {tree} have {width} columns, not {entries.shape[1:]}")
        if int(np.bitwise_or.reduce(entries, axis=None, initial=0)) >> layout.CODE_BITS:  # of a number below 0, too
            raise ValueError(f"codes and slots are 0 to {(1 << layout.CODE_BITS) - 1}, not {entries.min()} to {entries.max()}")

    def bulk_load(self, version: int, tree: int, entries: np.ndarray, reach: int = 0) -> None:
        """Fill an empty tree; codes up to `reach` are expected later. Raises ValueError if it is not empty or the entries are invalid,
        MemoryError if they cannot fit; nothing is done then."""
        self._require_entries(tree, entries)
        if not 0 <= reach < 1 << layout.CODE_BITS:
            raise ValueError(f"codes are 0 to {(1 << layout.CODE_BITS) - 1}: {reach} cannot come")
        if self.arena.C.item(layout.TREE + layout.TREE_WORDS * tree + layout.COUNT):
            raise ValueError("bulk_load fills an empty tree only")
        if len(entries) < self._least:
            self.require(len(entries), 1)
        else:
            self.forms.require(most_words(len(entries), self.shapes[tree][0]))
        self.arena.C[VERSION] = version
        self._retire(tree)
        self._load(tree, np.array(entries, np.int32, order="C"), reach)

    def _load(self, tree: int, entries: np.ndarray, reach: int = 0) -> None:
        """Fill an empty tree with entries, which are reordered; codes up to `reach` are expected later."""
        h = layout.TREE + layout.TREE_WORDS * tree
        most = reach | int(np.bitwise_or.reduce(entries[:, :-1], axis=None, initial=min(1, len(entries))))
        self.reach(tree, most)
        is_large, bits = len(entries) >= self._least, most.bit_length()
        if is_large and self.shapes[tree].first:
            bits = min(layout.CODE_BITS, self._reached[tree].bit_length() + 1)
        self.arena.C[h + layout.BITS] = bits
        if is_large:
            base = self.forms.build(self.arena.C.item(VERSION), entries, self.shapes[tree], bits)
            self.arena.C[h : h + 4] = compact_position(0, False), bits, base, len(entries)
        else:
            self._write(tree, entries, True)
        self._changed[tree] = 0

    def reach(self, tree: int, code: int) -> None:
        """Note that codes of a tree will soon reach `code`."""
        self._reached[tree] = max(self._reached[tree], code)

    @property
    def is_outgrown(self) -> bool:
        """Whether half of a tree has changed since it was loaded, or the codes of one that cannot grow will soon come to its end."""
        return any(map(self._has_changed, range(len(self.shapes)), self.roots))

    def _has_changed(self, tree: int, root: QuadtreeRoot) -> bool:
        much = _MUCH <= self._changed[tree] and root.count <= 2 * self._changed[tree]
        is_full = self.shapes[tree].first > 0 and root.count >= self._least and 4 * self._reached[tree] >= 3 << root.bits
        return much or (is_full and root.bits < layout.CODE_BITS)

    def insert(self, version: int, tree: int, entries: np.ndarray) -> None:
        """Insert entries that are not in the tree, as `version` (not below an earlier one). Call `require` first. Raises ValueError, with
        nothing done, if the entries are invalid."""
        self._require_entries(tree, entries)
        self.arena.C[VERSION] = version
        self._write(tree, entries, True)

    def delete(self, version: int, tree: int, entries: np.ndarray) -> None:
        """Delete entries. Raises KeyError if some were not there (the others are deleted); ValueError, with nothing done, if the entries
        are invalid."""
        self._require_entries(tree, entries)
        self.arena.C[VERSION] = version
        self._write(tree, entries, False)
        self.settle_missing()

    def settle_missing(self) -> None:
        """Raise KeyError if entries were deleted that were not there, or inserted in a run beyond the codes that were expected."""
        missing, self.arena.C[layout.MISSING] = int(self.arena.C[layout.MISSING]), 0
        if missing:
            raise KeyError(f"{missing} entries were not in the tree, or it does not reach them")

    def expect(self, tree: int, entries: np.ndarray, inserted: np.ndarray) -> None:
        """Prepare for changes of these entries of a tree by `Runs`, in order, in versions after the newest; `inserted`: which are inserted.
        Raises ValueError if the entries are invalid."""
        self._require_entries(tree, entries)
        reach = int(np.bitwise_or.reduce(entries[inserted, :-1], axis=None, initial=0))
        if reach >> self.roots[tree].bits and self.shapes[tree][1]:
            self.arena.C[VERSION] += 1
            self._load(tree, self._taken(tree), reach)
        self._changed[tree] += len(entries)

    def _write(self, tree: int, entries: np.ndarray, inserted: bool) -> None:
        flat = np.ascontiguousarray(entries).reshape(-1)
        done = change_entries(*self.arrays, tree, flat, 0, inserted)
        if done < len(flat):
            rest = entries[done // entries.shape[1] :]
            self._load(tree, np.concatenate((self._taken(tree), rest)))
        self._changed[tree] += len(entries)

    def _taken(self, tree: int) -> np.ndarray:
        """Return all entries of a tree, and empty it."""
        h = layout.TREE + layout.TREE_WORDS * tree
        entries = np.empty((self.roots[tree].count, self.shapes[tree].arity + 1), np.int32)
        compiled(take_entries)(*self.arrays, tree, entries.reshape(-1))
        self._retire(tree)
        self.arena.C[h : h + 4] = 0
        return entries

    def _retire(self, tree: int) -> None:
        """Retire the compact form of an empty tree."""
        h = layout.TREE + layout.TREE_WORDS * tree
        self.forms.retire(self.arena.C.item(h + layout.BASE), self.arena.C.item(VERSION))
        self.arena.C[h + layout.BASE] = 0

    def reclaim(self, oldest: int, pins: np.ndarray, most: int = ALL_BLOCKS) -> bool:
        """Free blocks that no version >= `oldest` and no pin (ascending int64) can see, at most about `most`. Returns whether there may be
        more."""
        if self.arena.reclaim(oldest, pins, most):
            return True
        self.forms.reclaim(oldest, pins)
        return False

    @property
    def live_bytes(self) -> int:
        """Bytes of the newest version: its blocks and compact forms."""
        return self.arena.live_bytes + self.forms.bytes(True)

    @property
    def retired_bytes(self) -> int:
        """Bytes that only older versions see."""
        return self.arena.retired_bytes + self.forms.bytes(False)

    def bits_a_tuple(self, tree: int) -> float:
        """Return the bits per tuple of a tree's compact form, without the slots; 0: it has none. May be called in any thread."""
        base = self.arena.C.item(layout.TREE + layout.TREE_WORDS * tree + layout.BASE)
        return self.forms.bits_a_tuple(base) if base else 0.0

    def check(self, roots: tuple[QuadtreeRoot, ...], others: tuple[tuple[QuadtreeRoot, ...], ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost (given every root in use); AssertionError names the invariant."""
        check_quads(self.arena, self.forms, self.shapes, (*others, roots))
