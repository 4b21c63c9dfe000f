"""How often each code of a key is in use. Costs: O(1) a code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, kernel, wide
from structures.core.reserve import reserve
from structures.rows.retired import LIVING


@kernel
def take(counts: Any, died: Any, code: int) -> None:
    """A key is used once more, and lives."""
    counts[code] += 1
    if died[code] != LIVING:
        died[code] = LIVING


@kernel
def give_up(counts: Any, code: int) -> int:
    """-> how often a key is used yet; -1: it was not in use."""
    if counts[code] < 1:
        return wide(-1)
    counts[code] -= 1
    return wide(counts[code])


@kernel("void(int64[::1], int64[::1], int32[::1])")
def _count_up(counts: Any, died: Any, codes: Any) -> None:
    """One use more for each code, which may come more than once; codes that had ended live again. O(1) a code."""
    for code in codes:
        take(counts, died, code)


@kernel("int64(int64[::1], int32[::1], int32[::1])")
def _count_down(counts: Any, codes: Any, dropped: Any) -> int:
    """-> how many codes came to 0, put into `dropped`; -1 when one was not in use. O(1) a code."""
    n = 0
    for code in codes:
        if code < 0:
            continue
        left = give_up(counts, code)
        if left < 0:
            return -1
        if left == 0:
            dropped[n] = code
            n += 1
    return n


@arrays("int64[::1]", "boolean[::1]", "int32[::1]")
class Uses(NamedTuple):
    """Counts by code; of keys whether each comes, else it goes; and room for the codes that come to 0."""

    counts: np.ndarray
    come: np.ndarray
    dropped: np.ndarray


@kernel
def count_both(died: Any, codes: Any, uses: Uses) -> int:
    """First those that come. -> as of `_count_down`."""
    for i in range(len(codes)):
        if uses.come[i]:
            take(uses.counts, died, codes[i])
    n = wide(0)
    for i in range(len(codes)):
        if not uses.come[i]:
            left = give_up(uses.counts, codes[i])
            if left < 0:
                return wide(-1)
            if left == 0:
                uses.dropped[n] = codes[i]
                n += 1
    return n


class KeyCounts:
    """Counts by code, for up to `capacity` codes; they never move."""

    def __init__(self, capacity: int) -> None:
        self.counts = reserve(capacity * 8, np.int64)

    def up(self, codes: np.ndarray, died: np.ndarray) -> None:
        """Count each code (int32[n]) once more; in `died`, the end of a code's life, it is living from here on."""
        _count_up(self.counts, died, codes)

    def down(self, codes: np.ndarray) -> np.ndarray:
        """Count each code once less, passing over -1. -> int32[m]: codes that are not in use any more."""
        dropped = np.empty(len(codes), np.int32)
        n = _count_down(self.counts, codes, dropped)
        assert n >= 0, "a code was released more often than it was acquired"
        return dropped[:n]

    def down_all(self, codes: int) -> np.ndarray:
        """Count the codes below `codes` not at all. -> int32[m]: those that were in use. O(codes)."""
        counts = self.counts[:codes]
        dropped = np.flatnonzero(counts).astype(np.int32)
        counts[:] = 0
        return dropped
