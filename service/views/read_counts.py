"""Counts of the work that readers of a view do: measurements of what its plan promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock
from typing import Any, NamedTuple

from structures.core.cursor import Cursor


class Counts(NamedTuple):
    """The work of a cursor so far.

    steps        nodes, entries and candidates visited
    largest_gap  the most steps between two rows
    dead_ends    nodes entered, rows bound and candidates visited without a result; None: the algorithm does not count them
    counters     further counts of the algorithm, by name
    """

    steps: int = 0
    largest_gap: int = 0
    dead_ends: int | None = None
    counters: Mapping[str, int] = {}

    @classmethod
    def of(cls, cursor: Cursor) -> Counts:
        return cls(cursor.steps, cursor.largest_gap, cursor.dead_ends, cursor.counters)

    def then(self, other: Counts) -> Counts:
        """Return the counts of this and another cursor, one after the other."""
        counters = Counter(self.counters)
        counters.update(other.counters)  # their sum would lack those that are 0
        return Counts(self.steps + other.steps, max(self.largest_gap, other.largest_gap), self._dead(other.dead_ends), counters)

    def dropping(self, rows: int) -> Counts:
        """Count these dead ends as well."""
        return self._replace(dead_ends=self._dead(rows))

    def _dead(self, more: int | None) -> int | None:
        return self.dead_ends if more is None else more + (self.dead_ends or 0)


class ReadCounts:
    """Sums over all reads of one view; any thread may add."""

    def __init__(self) -> None:
        self.rows, self._sum = 0, Counts()
        self._lock = Lock()

    def add(self, rows: int, before: Counts, now: Counts) -> None:
        """Add what a cursor has done since `before`."""
        dead_ends = None if now.dead_ends is None else now.dead_ends - (before.dead_ends or 0)
        counters = {name: count - before.counters.get(name, 0) for name, count in now.counters.items()}
        with self._lock:
            self.rows += rows
            self._sum = self._sum.then(Counts(now.steps - before.steps, now.largest_gap, dead_ends, counters))

    def to_json(self) -> dict[str, Any]:
        """The `statistics` of a view; None before the first row."""
        return {
            "rows_read": self.rows,
            "steps_per_row": self._sum.steps / self.rows if self.rows else None,
            "delay_steps": {"max": self._sum.largest_gap},
            "dead_ends": self._sum.dead_ends,
            "counters": dict(self._sum.counters),
        }
