"""Counts of values in buckets that grow by a fixed factor: quantiles to within 10 % from a few hundred integers."""

from __future__ import annotations

import math
import threading

import numpy as np

_STEPS = 4  # buckets per factor of two
_LOW = -24  # 2**-24 s: 60 ns
_BUCKETS = 64 * _STEPS
_NOTED = 256
_BOUNDS: tuple[float, ...] = tuple(2.0 ** (_LOW + (i + 1) / _STEPS) for i in range(_BUCKETS))
_INNER_BOUNDS = np.array(_BOUNDS[:-1])


class Histogram:
    """Counts positive values between 2**-24 and 2**40; others fall into the first or the last bucket. Cost: O(1) per value.

    Any thread may observe; `bounds[i]` is the upper bound of `counts[i]`. Values are sorted into buckets by the hundreds, or when the
    counts are read.
    """

    bounds = _BOUNDS

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS)  # integers
        self._sum = 0.0
        self._noted: list[float] = []  # each value, followed by its number of times; one call extends or cuts it, without other threads
        self._lock = threading.Lock()

    def observe(self, value: float, times: int = 1) -> None:
        self._noted.extend((value, times))
        if len(self._noted) >= 2 * _NOTED:
            self._sort_in()

    def _sort_in(self) -> None:
        with self._lock:
            noted = self._noted[:]
            if not noted:
                return
            del self._noted[: len(noted)]
            values, times = np.array(noted, np.float64).reshape(-1, 2).T
            self._counts += np.bincount(np.searchsorted(_INNER_BOUNDS, values), times, _BUCKETS)
            self._sum += float(values @ times)

    @property
    def counts(self) -> list[int]:
        self._sort_in()
        return self._counts.astype(np.int64).tolist()

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def sum(self) -> float:
        self._sort_in()
        return self._sum

    def quantile(self, part: float) -> float | None:
        """Return the value that `part` of all values do not exceed; None without values."""
        if not self.count:
            return None
        left = math.ceil(part * self.count)
        for bound, count in zip(self.bounds, self.counts, strict=True):
            left -= count
            if left <= 0:
                return bound
        return self.bounds[-1]
