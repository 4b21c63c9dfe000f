"""The constraint tree that is kept from version to version, for the readings of all rows.

Constraints that a reading has found hold for later versions as long as entries are only deleted. A tuple that is inserted into an atom only
invalidates constraints that follow from this atom and have room for a row of it; so the writer logs it, and each node drops or cuts these
constraints when it is visited next (`cds.bring_up`). The mask of a merged interval names more atoms than each of its parts needs: then too
much is cut, never too little.

Versions are numbered by the changes that were followed. The tree is as new as the newest reading that used it: a reading of an older
version does not use it, nor does one while another holds the lock. A full log is dropped together with the tree.

Source: docs/design/natural-joins.md (*minesweeper*).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np

from structures.core.kernel import compiled
from structures.minesweeper.cds import (
    ATOM_BIT,
    HAS,
    LOG_WORDS,
    LOGGED,
    MOST_LOGGED,
    VALUE,
    ConstraintTree,
    Size,
    bring_all_up,
)


class Lease(NamedTuple):
    """A version: the number of changes followed, and of those that brought new tuples."""

    changes: int
    insertions: int


class _LoggedTree:
    """A tree, its log, and for each logged tuple the version in which it was inserted."""

    def __init__(self, size: Size) -> None:
        self.log = np.zeros((MOST_LOGGED, LOG_WORDS), np.int64)
        self.tree = ConstraintTree(size, self.log.reshape(-1))
        self.since: list[int] = []
        self.changes: int | None = None  # of the newest reading that used it

    def add(self, changes: int, atom: int, levels: Sequence[int], tuples: np.ndarray) -> bool:
        """Log tuples that were inserted by a version; False if there is no room."""
        first = len(self.since)
        if first + len(tuples) > MOST_LOGGED:
            return False
        rows = self.log[first : first + len(tuples)]
        rows[:, ATOM_BIT], rows[:, HAS] = 1 << atom, sum(1 << level for level in levels)
        for j, level in enumerate(levels):
            rows[:, VALUE + level] = tuples[:, j]
        self.since += [changes] * len(tuples)  # rows are complete before they are counted
        return True

    def see(self, changes: int) -> None:
        """Apply the log up to this version, which the holder of the lock reads."""
        self.changes = changes
        self.tree.arrays.table[LOGGED] = bisect_right(self.since, changes)


class Keeper:
    """The kept tree of one view. It is made before a reading needs it, as making it takes as long as many a first row. One thread writes,
    any number read."""

    def __init__(self, size: Size, used: bool = True) -> None:
        """`used`: whether readings take a kept tree."""
        self._size, self._lock = size, Lock()
        self._kept = self._made() if used else None
        self._empty: Lease | None = None  # a version in which a reading found no row
        self.newest = Lease(0, 0)

    def follow(self, atom: int, levels: Sequence[int], new: np.ndarray) -> None:
        """Follow a change of the atom that inserted these tuples: int64[n, k], the level of each coordinate."""
        with self._lock:
            self.newest = Lease(self.newest.changes + 1, self.newest.insertions + (len(new) > 0))
            kept = self._kept
            if kept is not None and kept.changes is not None and not kept.add(self.newest.changes, atom, levels, new):
                self._kept = self._made()

    def take(self, lease: Lease) -> ConstraintTree | None:
        """The tree in the state of this version, with its lock held; None if it is not available."""
        with self._lock:
            kept = self._kept = self._kept or self._made()
            if kept is not None and kept.changes is None and lease == self.newest:
                kept.changes = lease.changes  # from now on it needs a log
        if kept is None or kept.changes is None or not kept.tree.lock.acquire(blocking=False):
            return None
        if kept.changes > lease.changes:
            kept.tree.lock.release()
            return None
        kept.see(lease.changes)
        return kept.tree

    def _made(self) -> _LoggedTree | None:
        """A new empty tree; None if there is no room."""
        try:
            return _LoggedTree(self._size)
        except (OSError, MemoryError):
            return None

    def note_empty(self, lease: Lease) -> None:
        """Note that a reading of this version has found no row."""
        with self._lock:
            if self._empty is None or self._empty.changes < lease.changes:
                self._empty = lease

    def is_empty(self, lease: Lease) -> bool:
        """Whether this version certainly has no row."""
        empty = self._empty
        return empty is not None and empty.changes <= lease.changes and empty.insertions == lease.insertions

    @property
    def bytes(self) -> int:
        kept = self._kept
        return kept.tree.bytes + kept.log.nbytes if kept is not None else 0

    def constraints(self) -> list[tuple[tuple[int | None, ...], int, int, int]]:
        kept = self._kept
        if kept is None:
            return []
        with kept.tree.lock:
            kept.see(self.newest.changes)
            compiled(bring_all_up)(kept.tree.arrays)
            return [(kept.tree.pattern(v), low, high, mask) for v, low, high, mask in kept.tree.intervals()]

    def check(self) -> None:
        if (kept := self._kept) is not None:
            with kept.tree.lock:
                kept.tree.check()
