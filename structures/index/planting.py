"""Trees that a reader of indexes keeps of its own, in the same store, and how they are built while others write to the indexes.

    hold        in the writer's turn: the version of the indexes to read; it stays pinned until the next `hold`
    gather      beside the writer: collect the content of the next tree at that version
    note        record entries of the indexes that have changed since the first `hold`
    advance     in the writer's turn: write a piece of what was gathered; once all trees are there, follow a piece of what was noted

Trees that were gathered at different versions agree in the end, because a noted entry is not applied as a change: whatever it may
concern is looked up in the indexes as they are by then, and inserted or deleted accordingly. So the order of notes is irrelevant, and
superfluous notes do no harm.

Costs: `advance` writes `PLANTED` entries without a search, or links as many blocks of a level, or follows `PIECE` entries, or twice as many
as were noted since, if these are more: so it terminates whatever is written meanwhile.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from structures.index.following import Atom, IndexReader
from structures.index.indexes import Entries, Growth, OrderedIndexes

PIECE = 1 << 10
PLANTED = 1 << 14  # entries that take two or three milliseconds


class IndexLoader(IndexReader):
    """See the module's head. One thread writes; another may call `gather`, while the first calls none of these methods."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom]) -> None:
        super().__init__(indexes, atoms)
        self._gathered: Entries | None = None
        self._growth: Growth | None = None  # of the tree gathered last
        self._has_all = False  # all trees
        self._noted: list[tuple[int, Entries]] = []
        self._fresh = 0  # entries noted since `advance`
        self._closed = 0  # trees that are removed

    def load(self) -> None:
        """Build all trees from the indexes as they are, while nobody writes. MemoryError: they do not fit."""
        self.hold()
        while True:
            self.gather()
            if self.advance():
                return

    def hold(self) -> None:
        """Select the current version of the indexes to be gathered. O(1)."""
        self.look()

    def gather(self) -> None:
        """Collect the content of the next tree. O(n log n)."""
        if self._gathered is None and self._growth is None and not self._has_all:
            self._gathered = self._next_tree()
            self._has_all = self._gathered is None

    def note(self, atom: int, entries: Entries) -> None:
        """Record that these entries of the atom's first index were inserted or deleted, or may have been."""
        if len(entries.slot):
            self._noted.append((atom, entries))
            self._fresh += len(entries.slot)

    def advance(self) -> bool:
        """Write a piece of a tree, or follow some of what was noted. Returns whether everything noted is followed, and all trees are there.
        MemoryError: there is no room."""
        self.look()
        most, self._fresh = max(PIECE, 2 * self._fresh), 0
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            self._growth = self.indexes.growth(self._position(), gathered)
        if self._growth is not None:
            self.indexes.require(len(self._growth.entries.slot), 1)
            if not self.indexes.grow(self._growth, PLANTED):
                return False
            self._growth = None
            self._grown()
        if not self._has_all:
            return False
        while self._noted and most > 0:
            atom, entries = self._noted.pop()
            if len(entries.slot) > most:
                self._noted.append((atom, entries.take(np.arange(most, len(entries.slot)))))
                entries = entries.take(np.arange(most))
            self._recheck(atom, entries)
            most -= len(entries.slot)
        return not self._noted

    @abstractmethod
    def _next_tree(self) -> Entries | None:
        """The entries of the next tree, in its order, at the version held; None if there is no further one."""

    @abstractmethod
    def _position(self) -> int:
        """The empty index that becomes the next tree."""

    @abstractmethod
    def _grown(self) -> None:
        """Called when the next tree is complete."""

    @abstractmethod
    def _recheck(self, atom: int, entries: Entries) -> None:
        """Update the trees for these changed entries, as the indexes are now."""

    def close(self, most: int) -> bool:
        """Remove this reader from the newest version: drop at most `most` blocks of its trees, as `OrderedIndexes.remove`. Returns whether
        these are all."""
        if self._growth is not None:
            self.indexes.end_growth(self._growth)
            self._growth = None
        own = self._own_indexes
        if self._closed < len(own) and self.indexes.remove(own[self._closed], most):
            self._closed += 1
        return self._closed == len(own)

    @property
    @abstractmethod
    def _own_indexes(self) -> Sequence[int]:
        """The indexes that are its trees."""

    @abstractmethod
    def flips(self, counts: Mapping[int, int]) -> int:
        """The most entries of its trees that these numbers of changes of the indexes insert or delete."""
