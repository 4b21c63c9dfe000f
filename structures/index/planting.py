"""Trees that a reader of indexes keeps of its own, in the same store, and how they come to be while others write to the indexes.

    hold        in the writer's turn: the version of the indexes that is to be read; it stays pinned until the next `hold`
    gather      beside the writer: what the next tree has at that version
    note        entries of the indexes that have changed since the first `hold`
    advance     in the writer's turn: put in a piece of what was gathered; once all trees are there, follow a piece of what was noted

Trees that were gathered at different versions agree in the end, because an entry that was noted is not applied as a change: what it may
concern is looked up in the indexes as they are by then, and put or cut accordingly. So the order of what was noted is of no importance, and
noting too much does no harm.

Costs: `advance` puts in `PLANTED` entries without a search, or follows `PIECE` entries, or twice as many as were noted since, if these are
more: so it comes to an end whatever is written meanwhile.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from structures.index.following import Atom, IndexReader
from structures.index.indexes import Entries, Growth, OrderedIndexes

PIECE = 1 << 10
PLANTED = 1 << 15  # two or three milliseconds


class Planted(IndexReader):
    """See the module's head. One thread writes; `gather` is for another, while that one calls none of these methods."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom]) -> None:
        super().__init__(indexes, atoms)
        self._gathered: Entries | None = None
        self._growth: Growth | None = None  # of the tree that was gathered last
        self._has_all = False  # trees
        self._noted: list[tuple[int, Entries]] = []
        self._fresh = 0  # entries noted since `advance`
        self._closed = 0  # trees that are gone

    def load(self) -> None:
        """Make all trees of the indexes as they are: nobody writes meanwhile. MemoryError: they cannot fit."""
        self.hold()
        while True:
            self.gather()
            if self.advance():
                return

    def hold(self) -> None:
        """What the indexes are now is to be gathered. O(1)."""
        self.look()

    def gather(self) -> None:
        """Find what the next tree has. O(n log n)."""
        if self._gathered is None and self._growth is None and not self._has_all:
            self._gathered = self._next_tree()
            self._has_all = self._gathered is None

    def note(self, atom: int, entries: Entries) -> None:
        """These entries of the atom's first index have come or gone, or only may have."""
        if len(entries.slot):
            self._noted.append((atom, entries))
            self._fresh += len(entries.slot)

    def advance(self) -> bool:
        """Put in a piece of a tree, or follow some of what was noted; whether all that was noted is followed, and all trees are there.
        MemoryError: there is no room."""
        self.look()
        most, self._fresh = max(PIECE, 2 * self._fresh), 0
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            self._growth = self.indexes.growth(self._place(), gathered)
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
        """The entries of the next tree, in its order, at the version held; None: there is no further one."""

    @abstractmethod
    def _place(self) -> int:
        """The empty index that is to be the next tree."""

    @abstractmethod
    def _grown(self) -> None:
        """The next tree is there."""

    @abstractmethod
    def _recheck(self, atom: int, entries: Entries) -> None:
        """Let the trees have of these changed entries what they should, as the indexes are."""

    def close(self, most: int) -> bool:
        """The newest version has this reader no more: let so many blocks of its trees go, as `OrderedIndexes.remove`; whether that is
        all."""
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
        """Its trees."""

    @abstractmethod
    def flips(self, counts: Mapping[int, int]) -> int:
        """The most entries of its trees that so many changes of these indexes put or cut."""
