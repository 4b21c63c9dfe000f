"""The base of `IJHeap` and `CliqueTree`: load, change and reclaim the tree of `tree.py`. They differ in what a node records about the
entries below it, and so in what a change reports."""

from __future__ import annotations

import numpy as np

from structures.core.entries import Entries, tree_order
from structures.core.entry_tree import EntryTree
from structures.core.runs import RUN_WORDS
from structures.multiway.layout import MultiwayArena
from structures.multiway.topology import SETS
from structures.multiway.tree import build, make_empty


class MultiwayTree(EntryTree[MultiwayArena]):
    """`EntryTree` describes changes."""

    def __init__(self, arena: MultiwayArena, scratch: np.ndarray, members: int) -> None:
        """`scratch`: int64, for the summaries; `members`: the slots of a row."""
        super().__init__(arena, int(arena.table[SETS]), members, np.zeros(RUN_WORDS, np.int64))
        self._arrays = arena.nodes, arena.writing, scratch
        make_empty(*self._arrays)

    def _order(self, entries: Entries) -> np.ndarray:
        """The tree's order: (key, left, code = 8 * slot + set)."""
        return tree_order(entries.set, entries.key, entries.left, 4 * entries.slot.astype(np.int64))

    def _load(self, entries: Entries) -> None:
        build(*self._arrays, entries, self._order(entries))
