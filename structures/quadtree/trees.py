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
    - A merge makes a tree compact again when half as many entries as it has have changed since: beside it, some steps with each change and
      the rest while nothing else is to be done (`merging.py`), one tree after another. While nothing else is to be done, one in 256 is
      enough: a changed entry makes a whole leaf live, which takes thirty times what the entry does in the compact form, and only a merge
      empties the chunks of live blocks. With batch after batch, merges at an eighth would take more time than the changes themselves.
    - A plain tree's root grows by a level a bit as codes grow. A tree in two parts would have to grow in every cell: it is made anew, by a
      merge too, when a quarter of its codes are left; at once only where codes come faster than that.
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
from structures.quadtree.merging import ALL, DROPPED, REPLAYED, Descent, Merge, PointChanges, descent, drop_blocks, gather_entries

__all__ = ["QuadTrees", "QuadtreeRoot", "in_order"]

_LEAST = 32 * layout.LEAF  # entries of a tree that gets a compact form
_FORM_WORDS = 2**30  # of all compact forms
_RUN = 2048  # most changes of a tree that may be separate versions
_CHANGED = 2  # a tree is merged when 1 in this many of its entries has changed
_CHANGED_SPARE = 256  # the same between versions, while nothing else is to be done
_SHARE = 32  # steps of merges that a changed entry pays for, besides its own replay; a merge takes some 7 an entry of its tree
_GROWING = 20  # steps for each entry of all trees, divided among the new codes that are left: some 3 times what a merge takes
_DROPPABLE = 1 << 13  # blocks that may be dropped between two reclaims, besides one for each changed entry: so few wait as records


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
        self._changed = [0] * len(self.shapes)  # entries changed since the tree's form was made
        self._unpaid = 0  # entries that have changed, and for which no steps were done
        self._replays = 0  # of these, entries of the tree that is being merged
        self._done = 0  # steps of its merge that were done between versions, and for which no entry has changed yet
        self._reached = [0] * len(self.shapes)  # the highest code that is expected
        self._wanted = [0] * len(self.shapes)  # bits that a tree in two parts needs for that
        self._new_codes = 0  # codes that were expected since steps were last done for them
        self._merge: Merge | None = None
        self._dropping: list[Descent] = []  # for roots that no later version has
        self._droppable = _DROPPABLE
        self.steps = 0  # of all merges so far

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
        trees anew. A merge replays what has changed of its tree in the last of the versions.
        """
        arena = self.arena
        inner, leaf = self._largest
        trees = len(self.shapes)
        counts = arena.C[layout.TREE + layout.COUNT : layout.PATH : layout.TREE_WORDS][:trees].tolist()
        path = layout.LEVELS * inner + (layout.LEAF + 2) * leaf
        entries = sum(counts) + changes
        most = min(changes * path, times * self._anew(entries, trees) + min(changes, _RUN * trees) * path)
        most += self._anew(min(entries, self._least * trees), trees)
        if self._merge is not None:
            most += min((changes + self._merge.changed) * path, self._anew(counts[self._merge.tree] + changes, 1))
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
        self._give_up(tree)
        h = layout.TREE + layout.TREE_WORDS * tree
        most = reach | int(np.bitwise_or.reduce(entries[:, :-1], axis=None, initial=min(1, len(entries))))
        self._await(tree, most)
        bits = most.bit_length() if len(entries) < self._least else self._bits_for(tree, most)
        self.arena.C[h + layout.BITS] = bits
        if len(entries) < self._least:
            self._write(tree, entries, True)
        else:
            base = self.forms.build(self.arena.C.item(VERSION), entries, self.shapes[tree], bits)
            self.arena.C[h : h + 4] = compact_position(0, False), bits, base, len(entries)
        self._changed[tree] = 0

    def _bits_for(self, tree: int, most: int) -> int:
        """Return the bits of codes of a tree that must reach code `most`: if it cannot grow, at most three quarters of its codes are
        used."""
        ample = most + most // 3 + 1 if self.shapes[tree].first else most
        return min(layout.CODE_BITS, ample.bit_length())

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
        self._note(tree, entries, inserted)

    def _write(self, tree: int, entries: np.ndarray, inserted: bool) -> None:
        flat = np.ascontiguousarray(entries).reshape(-1)
        done = change_entries(*self.arrays, tree, flat, 0, inserted)
        if done < len(flat):
            rest = entries[done // entries.shape[1] :]
            self._load(tree, np.concatenate((self._taken(tree), rest)))
        self._note(tree, entries, np.full(len(entries), inserted))

    def _note(self, tree: int, entries: np.ndarray, inserted: np.ndarray) -> None:
        """Record that these entries have changed."""
        self._changed[tree] += len(entries)
        self._unpaid += len(entries)
        if self._merge is not None and self._merge.tree == tree:
            self._replays += len(entries)
            self._merge.add(PointChanges(np.array(entries, np.int32, order="C"), inserted.astype(np.uint8)))

    def _taken(self, tree: int) -> np.ndarray:
        """Return all entries of a tree, and empty it."""
        self._give_up(tree)
        entries = self._entries(tree)
        h = layout.TREE + layout.TREE_WORDS * tree
        position, bits, base, _ = self.arena.C[h : h + 4].tolist()
        compiled(drop_blocks)(*self.arrays, descent(position, bits, base, self.shapes[tree]), ALL)
        self._retire(tree)
        self.arena.C[h : h + 4] = 0
        return entries

    def _entries(self, tree: int) -> np.ndarray:
        """Return all entries of a tree."""
        position, bits, base, count = self.roots[tree]
        entries = np.empty((count, self.shapes[tree].arity + 1), np.int32)
        compiled(gather_entries)(self.arrays[0], descent(position, bits, base, self.shapes[tree]), entries.reshape(-1), ALL)
        return entries

    def _retire(self, tree: int) -> None:
        """Retire the compact form of an empty tree."""
        h = layout.TREE + layout.TREE_WORDS * tree
        self.forms.retire(self.arena.C.item(h + layout.BASE), self.arena.C.item(VERSION))
        self.arena.C[h + layout.BASE] = 0

    # --- merges

    def merge(self, version: int) -> None:
        """Merge trees in which much has changed into the compact form, completely, as the last part of `version`. Cost: O(n levels)."""
        self._advance(version, ALL)

    def keep_up(self, version: int) -> None:
        """Continue merging, as the last part of `version`, as far as the changes since the last call pay for it, less what was done between
        versions. Of a merge that was begun early, only its replay is done here. Cost: O(1) a change."""
        share = _SHARE * self._unpaid if self._merge is None or self._is_pressing() else min(self._unpaid, 1)
        spared = min(self._done, share - min(share, 1))  # one step is left, for the switch
        self._done -= spared
        steps = share - spared + REPLAYED * self._replays
        if self._new_codes:
            steps = max(steps, self._pressing_steps())
        self._advance(version, steps)

    def reach(self, tree: int, code: int) -> None:
        """Note that codes of a tree will soon reach `code`."""
        if code > self._reached[tree]:
            self._new_codes = max(self._new_codes, code - self._reached[tree])
            self._await(tree, code)

    def _await(self, tree: int, code: int) -> None:
        self._reached[tree] = max(self._reached[tree], code)
        if self.shapes[tree].first:
            self._wanted[tree] = self._bits_for(tree, self._reached[tree])

    def _pressing_steps(self) -> int:
        """Return the steps that the new codes pay for, so that trees that have to grow are finished before they must."""
        roots = self.roots
        growing = [tree for tree, root in enumerate(roots) if self._has_to_grow(tree, root)]
        left = min((max(1, (1 << roots[tree].bits) - self._reached[tree]) for tree in growing), default=1)
        return _GROWING * sum(root.count for root in roots) * self._new_codes // left if growing else 0

    def maintain(self, steps: int) -> bool:
        """Continue merging between versions, which keep the trees that they have. Returns whether there is more to do. Cost: `steps` steps,
        and a few for the last piece begun."""
        left = self._go_on(steps, True)
        self._done += steps - left
        return left <= 0

    def _advance(self, version: int, steps: int) -> None:
        self.arena.C[VERSION] = version
        self._droppable += self._unpaid if steps < ALL else ALL
        self._unpaid = self._replays = self._new_codes = 0
        for tree, root in enumerate(self.roots):
            if root.count < self._least and self._is_due(tree, root):
                self._load(tree, self._taken(tree))  # few entries
        while steps > 0:
            steps = self._go_on(steps)
            if self._merge is None or not self._merge.is_ready:
                break
            self._switch(self._merge)

    def _go_on(self, steps: int, spare: bool = False) -> int:
        """Continue merging. Returns the number of steps left, 0 or less if there may be more to do. `spare`: nothing else is to be done."""
        given = steps
        while steps > 0 and self._dropping and self._droppable > 0:
            most = min(steps // DROPPED + 1, self._droppable)
            dropped = most - int(compiled(drop_blocks)(*self.arrays, self._dropping[0], most))
            self._droppable -= dropped
            steps -= DROPPED * dropped
            if self._dropping[0].is_over:
                self._dropping.pop(0)
        if self._merge is None and not self._dropping:
            self._begin(spare)
        if self._merge is not None:
            try:
                steps = self._merge.go_on(steps)
            except (MemoryError, ValueError):  # as many changes later it is tried again
                self._changed[self._merge.tree] = 0
                self._give_up(self._merge.tree)
        self.steps += given - steps
        return steps

    def _begin(self, spare: bool) -> None:
        """Begin the merge of a tree that is due, first of one that has to grow."""
        roots = self.roots
        due = [tree for tree, root in enumerate(roots) if root.count >= self._least and self._is_due(tree, root, spare)]
        if due:
            tree = max(due, key=lambda tree: self._has_to_grow(tree, roots[tree]))
            self._done = 0
            self._merge = Merge(self.arena, self.forms, tree, self.shapes[tree], max(roots[tree].bits, self._wanted[tree]))

    def _is_due(self, tree: int, root: QuadtreeRoot, spare: bool = False) -> bool:
        changed, share = self._changed[tree], _CHANGED_SPARE if spare else _CHANGED
        much = 0 < changed and root.count <= share * changed and (root.base != 0 or root.count >= self._least)
        return much or self._has_to_grow(tree, root)

    def _is_pressing(self) -> bool:
        """Return whether a merge is due even while there is other work."""
        return any(root.count >= self._least and self._is_due(tree, root) for tree, root in enumerate(self.roots))

    def _has_to_grow(self, tree: int, root: QuadtreeRoot) -> bool:
        return root.bits < self._wanted[tree] and root.count >= self._least

    def _switch(self, merge: Merge) -> None:
        """Replace the tree in the newest version by the one that was made. O(1)."""
        h, shape = layout.TREE + layout.TREE_WORDS * merge.tree, self.shapes[merge.tree]
        position, bits, base, _ = self.arena.C[h : h + 4].tolist()
        self._drop_later(position, bits, base, shape)
        self.arena.C[h : h + 4] = merge.take()
        self._changed[merge.tree], self._merge = merge.changed, None

    def _give_up(self, tree: int) -> None:
        """Abandon the merge of this tree, if there is one."""
        merge = self._merge
        if merge is not None and merge.tree == tree:
            position, bits, base, _ = merge.take()
            self._drop_later(position, bits, base, self.shapes[tree])
            self._merge = None

    def _drop_later(self, position: int, bits: int, base: int, shape: QuadtreeShape) -> None:
        """Queue the blocks of a root that the newest version no longer uses, to be dropped some at a time."""
        self.forms.retire(base, self.version)
        if position > 0:
            self._dropping.append(descent(position, bits, base, shape))

    def reclaim(self, oldest: int, pins: np.ndarray, most: int = ALL_BLOCKS) -> bool:
        """Free blocks that no version >= `oldest` and no pin (ascending int64) can see, at most about `most`. Returns whether there may be
        more."""
        if self._merge is not None and self._merge.since is not None:
            pins = np.union1d(pins, [self._merge.since])
        if self.arena.reclaim(oldest, pins, most):
            return True
        self.forms.reclaim(oldest, pins)
        self._droppable = _DROPPABLE
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
        beside: list[tuple[QuadtreeRoot, QuadtreeShape]] = []
        made: list[int] = []
        if self._merge is not None:
            shape, made = self.shapes[self._merge.tree], [base for base in self._merge.made[2:3] if base]
            if self._merge.since is not None:
                beside.append((QuadtreeRoot(*self._merge.root), shape))
            if self._merge.is_placed:
                beside.append((QuadtreeRoot(*self._merge.made), shape))
        dropped = [way.waiting for way in self._dropping]
        check_quads(self.arena, self.forms, self.shapes, (*others, roots), beside, dropped, made)
