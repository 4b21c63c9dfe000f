"""Rows under updates, by key and interval, each version readable: the ordered tree alone, without joins.

Costs (n rows): a change O(log n) and as many copied blocks a version; reading O(1) a row, a window O(log n) a key; O(log n) to test whether
it has a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import KIND, LIVE, ROOT, Arena, words_anew
from structures.core.blocks import Nodes
from structures.core.control import STORE_WORDS, VERSION
from structures.core.cursor import Cursor
from structures.core.entries import Entries, tree_order
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled, kernel, wide
from structures.core.versioned import VersionedStructure
from structures.ordered.check import check_tree
from structures.ordered.cursors import list_cursor
from structures.ordered.layout import RIGHT, child_of
from structures.ordered.leaves import find_entry
from structures.ordered.summary import LIST
from structures.ordered.tree import build, find_child, make_empty


class RowList(VersionedStructure[Arena]):
    """See the module's head. Kernels of other structures change it; all entries are of set 0."""

    def __init__(self, words: int = STORE_WORDS) -> None:
        """`words`: the arena's address space in 8-byte words (not memory)."""
        self.arena = Arena(words)
        self.arena.C[KIND] = LIST
        make_empty(self.arena.nodes, self.arena.writing)

    @property
    def root(self) -> EntryRoot:
        """The newest version, published or not."""
        offset, height, first, second, live = self.arena.C[ROOT : LIVE + 1].tolist()
        return EntryRoot(offset, height, (first, second), live != 0)

    def begin(self, version: int) -> None:
        self.arena.C[VERSION] = version

    def load(self, version: int, entries: Entries) -> None:
        """Fill the empty list. ValueError: the columns have different lengths. O(n log n)."""
        entries.require_even()
        self.require(len(entries.slot))
        self.begin(version)
        if len(entries.slot):
            build(self.arena.nodes, self.arena.writing, entries, tree_order(entries.set, entries.key, entries.left, entries.slot))

    def require(self, rows: int) -> None:
        """Raise MemoryError unless a version with this number of rows certainly fits. O(1)."""
        self.arena.require_words(words_anew(rows, 1))

    def rows(self, root: EntryRoot, key: int | None = None, window: tuple[int, int] | None = None) -> Cursor:
        """The rows of a version, int32[1, n] slots: all, or those of a key, that meet the closed window."""
        return list_cursor(self.arena, root, key, window)

    def holds(self, root: EntryRoot, entries: Entries) -> np.ndarray:
        """bool[n]: which of these entries a version has. O(log n) each."""
        held = np.zeros(len(entries.slot), np.uint8)
        compiled(find_ends)(self.arena.nodes, root.offset, root.height, entries, held)
        return held.view(np.bool_)

    def check(self, root: EntryRoot, others: tuple[EntryRoot, ...] = ()) -> None:
        """Prove the invariants of a version, and that no block is lost, given every root in use."""
        check_tree(self.arena, root, others)


@kernel("void(Nodes, int64, int64, Entries, uint8[::1])")
def find_ends(nodes: Nodes, root: int, height: int, entries: Entries, held: Any) -> None:
    """Find which of these entries a version has, and fill in their right ends. O(log n) each."""
    W = nodes.W
    for i in range(len(held)):
        s, key, left, slot = wide(entries.set[i]), wide(entries.key[i]), entries.left[i], wide(entries.slot[i])
        o = root
        for _ in range(height):
            o = child_of(W, o, find_child(nodes, o, key, left, 2 * slot + s))
        at, end = find_entry(nodes, o, s, key, left, slot)
        held[i] = at < end
        if at < end:
            entries.right[i] = nodes.M[o + RIGHT + at]
