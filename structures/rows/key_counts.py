"""The number of uses of each code of a key. Costs: O(1) a code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, kernel, wide
from structures.core.reserve import reserve
from structures.rows.retired import LIVING, NEVER

_NO_CODES = np.empty(0, np.int32)


@kernel
def take(counts: Any, died: Any, code: int) -> None:
    """Count one more use of a key; the key is then living."""
    counts[code] += 1
    if died[code] != LIVING:
        died[code] = LIVING


@kernel
def give_up(counts: Any, code: int) -> int:
    """Count one use less. Returns the number of uses left; -1 if the key was not in use."""
    if counts[code] < 1:
        return wide(-1)
    counts[code] -= 1
    return wide(counts[code])


@kernel("void(int64[::1], int64[::1], int32[::1])")
def _count_up(counts: Any, died: Any, codes: Any) -> None:
    """Count one more use for each code, which may occur more than once; codes that had died live again. O(1) a code."""
    for code in codes:
        take(counts, died, code)


@kernel("int64(int64[::1], int32[::1], int32[::1])")
def _count_down(counts: Any, codes: Any, dropped: Any) -> int:
    """Count one use less for each code. Returns the number of codes that came to 0, written into `dropped`; -1 if one was not in use. O(1)
    a code."""
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


@kernel("int64(int64[::1], int64[::1])")
def _lower(counts: Any, kept: Any) -> int:
    """Set the first counts to `kept`. Returns how many of these were greater. O(1) a code."""
    wrong = 0
    for code in range(len(kept)):
        wrong += kept[code] > counts[code]
        counts[code] = kept[code]
    return wrong


@arrays("int64[::1]", "boolean[::1]", "int32[::1]")
class KeyUses(NamedTuple):
    """Counts by code; for each key whether it comes or goes; and room for the codes that come to 0."""

    counts: np.ndarray
    inserted: np.ndarray
    dropped: np.ndarray


@kernel
def count_both(died: Any, codes: Any, uses: KeyUses) -> int:
    """Count the keys that come first, then those that go. Returns the same as `_count_down`."""
    for i in range(len(codes)):
        if uses.inserted[i]:
            take(uses.counts, died, codes[i])
    n = wide(0)
    for i in range(len(codes)):
        if not uses.inserted[i]:
            left = give_up(uses.counts, codes[i])
            if left < 0:
                return wide(-1)
            if left == 0:
                uses.dropped[n] = codes[i]
                n += 1
    return n


class KeyCounts:
    """Counts by code, for up to `capacity` codes; the arrays never move."""

    def __init__(self, capacity: int) -> None:
        self.counts = reserve(capacity * 8, np.int64)
        self.unswept = range(0)  # codes that may be living without a use

    def up(self, codes: np.ndarray, died: np.ndarray) -> None:
        """Count each code (int32[n]) once more; `died`, the end of each code's life, is set to living."""
        _count_up(self.counts, died, codes)

    def down(self, codes: np.ndarray) -> np.ndarray:
        """Count each code once less, except -1. Returns int32[m]: codes that are no longer in use."""
        dropped = np.empty(len(codes), np.int32)
        n = _count_down(self.counts, codes, dropped)
        assert n >= 0, "a code was released more often than it was acquired"
        return dropped[:n]

    def down_to(self, kept: np.ndarray, codes: int) -> None:
        """Set the count of each code to that of `kept` (int64[n]), which is not greater, or to 0. `codes`: their number. Leaves it to
        `sweep` to find those that are no longer in use. O(codes), as fast as memory is written."""
        wrong = _lower(self.counts, kept)
        assert not wrong, "a code keeps more uses than it has"
        self.counts[len(kept) : codes] = 0
        self.unswept = range(codes)

    def sweep(self, most: int, born: np.ndarray, died: np.ndarray) -> np.ndarray:
        """Look at up to `most` codes that `down_to` has left. Returns as `unused`."""
        if not self.unswept:
            return _NO_CODES
        swept, self.unswept = self.unswept[:most], self.unswept[most:]
        return self.unused(swept, born, died)

    def unused(self, codes: range, born: np.ndarray, died: np.ndarray) -> np.ndarray:
        """Return int32[m]: those of these consecutive codes that are living without a use. `born`, `died`: of all. O(codes)."""
        some = slice(codes.start, codes.stop)
        found = np.flatnonzero((self.counts[some] == 0) & (died[some] == LIVING) & (born[some] != NEVER))
        return (found + codes.start).astype(np.int32)
