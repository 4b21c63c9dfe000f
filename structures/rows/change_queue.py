"""Changes in the order in which they happened, in blocks that are filled from the front and never move.

Problem: one thread records changes, millions of them, and others follow some way behind. An array that grows moves all that it holds now
and then, and one that shrinks at its front moves the rest, while whoever records a change waits.

    dropped | block | block | block ...... |
            ^ begin                 ^ end       records are numbered from 0 on, those dropped included
"""

from __future__ import annotations

import numpy as np

_BLOCK = 1 << 14  # records


class ChangeQueue:
    """Records of `width` numbers (int64). Not synchronized, except that parts may be read while others append and drop."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._blocks: list[np.ndarray] = []  # int64[width, _BLOCK]
        self._first = 0  # number of the first record of the first block
        self.begin = self.end = 0

    def append(self, count: int, *columns: int | np.ndarray) -> None:
        """Add `count` records, given by their columns: int64[count] or int32[count], or one number for all. O(count): nothing moves."""
        done = 0
        while done < count:
            at = self.end - self._first - _BLOCK * (len(self._blocks) - 1)  # in the last block
            if at == _BLOCK:
                self._blocks.append(np.empty((self._width, _BLOCK), np.int64))
                at = 0
            some = min(count - done, _BLOCK - at)
            for values, column in zip(self._blocks[-1], columns, strict=True):
                values[at : at + some] = column if isinstance(column, int) else column[done : done + some]
            done += some
            self.end += some

    def parts(self, first: int, end: int) -> list[np.ndarray]:
        """Return the records with these numbers, first <= number < end, none of them dropped: int64[width, n] each, which do not change
        later. O(blocks)."""
        assert self.begin <= first, "these records were dropped"
        found = []
        while first < end:
            block, at = divmod(first - self._first, _BLOCK)
            some = min(end - first, _BLOCK - at)
            found.append(self._blocks[block][:, at : at + some])
            first += some
        return found

    def drop(self, end: int) -> None:
        """Drop the records below this number, at most `self.end`. O(blocks)."""
        self.begin = max(self.begin, end)
        blocks = (self.begin - self._first) // _BLOCK
        del self._blocks[:blocks]
        self._first += blocks * _BLOCK

    def check(self) -> None:
        """Verify the invariants: each record that was not dropped has a place, and no block is empty."""
        assert self._first <= self.begin <= self.end, "more was dropped than there was"
        assert self.begin - self._first < _BLOCK, "a block that was dropped is still there"
        assert 0 <= self._first + _BLOCK * len(self._blocks) - self.end < _BLOCK, "there is no room for a record, or a block too many"
