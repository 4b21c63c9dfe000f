"""The base of the adaptive joins: versions, look-ups by a key, and the checks of what they read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from structures.adaptive.cursors import AdaptiveCursor
from structures.index.following import IndexReader
from structures.index.indexes import Entries


class AdaptiveRoot(NamedTuple):
    """One version: the roots of the atoms' indexes, the number of entries of each atom, and for a bow-tie its top level and the roots of
    those below. Plain data, valid as long as the version is pinned."""

    roots: tuple[int, ...]
    counts: tuple[int, ...]
    levels: tuple[int, ...] = ()


class Reader(IndexReader):
    """One thread writes; any number read roots of pinned versions meanwhile."""

    @property
    def root(self) -> AdaptiveRoot:
        """The newest version, published or not."""
        return AdaptiveRoot(tuple(self._roots.tolist()), tuple(self._counts))

    def is_empty(self, root: AdaptiveRoot) -> bool | None:
        """True if an atom has no entry, so that the version has no row; None otherwise: only reading the rows can decide. O(1)."""
        return True if min(root.counts) == 0 else None

    def partners(self, root: AdaptiveRoot, position: int, entries: Entries) -> AdaptiveCursor:
        """The rows in which atom `position` is one of these entries, in their order, which are not looked up."""
        return self._below(root, position, entries, True)

    def of_key(self, root: AdaptiveRoot, position: int, coordinates: Sequence[int]) -> AdaptiveCursor:
        """The rows in which atom `position` has these values in all its variables."""
        return self._below(root, position, self._entry(position, coordinates), False)

    @abstractmethod
    def _below(self, root: AdaptiveRoot, position: int, items: Entries, given: bool) -> AdaptiveCursor:
        """The rows in which atom `position` has the values of these items, and, if `given`, their slots."""

    @property
    def own_bytes(self) -> int:
        """Bytes of the structure, besides the indexes."""
        return 0

    def check(self) -> None:
        """Prove F1 and F2 of the newest version: the roots of the atoms are those of their indexes, and all indexes of an atom have as many
        entries as it counts. AssertionError names the invariant."""
        self.check_roots("F")
