"""Counts of the work that readers of a view have done: measurements of what its plan promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock
from typing import Any


class ReadCounts:
    """Sums over all reads of one view; any thread may add.

    rows         rows that were enumerated
    steps        nodes, entries and candidates visited
    largest_gap  the most steps between two rows
    dead_ends    nodes entered, rows bound and candidates visited without a result; None: the algorithm does not count them
    counters     further counts of the algorithm, by name
    """

    def __init__(self) -> None:
        self.rows = self.steps = self.largest_gap = 0
        self.dead_ends: int | None = None
        self.counters: Counter[str] = Counter()
        self._lock = Lock()

    def add(self, rows: int, steps: int, largest_gap: int, dead_ends: int | None, counters: Mapping[str, int]) -> None:
        with self._lock:
            self.rows += rows
            self.steps += steps
            self.largest_gap = max(self.largest_gap, largest_gap)
            if dead_ends is not None:
                self.dead_ends = (self.dead_ends or 0) + dead_ends
            self.counters.update(counters)

    def to_json(self) -> dict[str, Any]:
        """The `statistics` of a view; None before the first row."""
        return {
            "rows_read": self.rows,
            "steps_per_row": self.steps / self.rows if self.rows else None,
            "delay_steps": {"max": self.largest_gap},
            "dead_ends": self.dead_ends,
            "counters": dict(self.counters),
        }
