"""A structure's own clock, in addition to the service's versions.

A structure that needs several states in one version (before its deletes, after them, after its inserts) counts *ticks*: its blocks are
born and retired at ticks. Readers pin versions, so the last tick of each version that can still be read is kept.

    versions   ... 17 ... | 40   41   42   43        one for each pin, and all from the oldest that can still be pinned on
    last tick  ... 50 ... | 119  122  122  125

Costs: end O(1), of O(log n), keep O(pins log n) and amortized O(1) for each version that is forgotten; memory: what is in the drawing.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np


class Ticks:
    def __init__(self) -> None:
        self._versions: list[int] = []  # ascending; those before `_first` are forgotten
        self._ticks: list[int] = []
        self._first = 0
        self._pinned: list[tuple[int, int]] = []  # (version, last tick), ascending

    def end(self, version: int, tick: int) -> None:
        """Note that the version, which is not below any previous one, has reached this tick."""
        if self._versions and self._versions[-1] == version:
            self._ticks[-1] = tick
        else:
            self._versions.append(version)
            self._ticks.append(tick)

    def of(self, version: int) -> int:
        """Return the last tick that the version sees; 0 before the first. `keep` must not have forgotten the version."""
        return self._seen(version)[1]

    def keep(self, oldest: int, pins: np.ndarray) -> tuple[int, np.ndarray]:
        """Forget versions that are neither pinned (int64[n]) nor seen by `oldest` or a later one. Returns the tick of `oldest`, and those
        of the pins, ascending, each once: to code that counts in ticks, these are versions and pins."""
        self._pinned = sorted({self._seen(pin) for pin in pins.tolist()})
        self._first = max(self._first, bisect_right(self._versions, oldest) - 1)
        if 2 * self._first > len(self._versions):
            del self._versions[: self._first], self._ticks[: self._first]
            self._first = 0
        return self.of(oldest), np.array(sorted({tick for _, tick in self._pinned}), np.int64)

    def __len__(self) -> int:
        """Return the number of ticks that are kept."""
        return len(self._versions) - self._first + len(self._pinned)

    def _seen(self, version: int) -> tuple[int, int]:
        """Return the newest version kept that is not above this one, and its tick."""
        i = bisect_right(self._versions, version, self._first)
        if i > self._first:
            return self._versions[i - 1], self._ticks[i - 1]
        i = bisect_right(self._pinned, version, key=lambda one: one[0])
        return self._pinned[i - 1] if i else (0, 0)
