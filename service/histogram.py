"""Counts of values in buckets that grow by a fixed factor: quantiles to within 10 % from a few hundred integers."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left

_STEPS = 4  # buckets per factor of two
_LOW = -24  # 2**-24 s: 60 ns
_BUCKETS = 64 * _STEPS
_BOUNDS: tuple[float, ...] = tuple(2.0 ** (_LOW + (i + 1) / _STEPS) for i in range(_BUCKETS))


class Histogram:
    """Counts positive values between 2**-24 and 2**40; others fall into the first or the last bucket. Cost: O(1) per value.

    Any thread may observe; `bounds[i]` is the upper bound of `counts[i]`, `sum` that of all values.
    """

    bounds = _BOUNDS

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float, times: int = 1) -> None:
        with self._lock:
            self.counts[bisect_left(_BOUNDS, value, 0, _BUCKETS - 1)] += times
            self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

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
