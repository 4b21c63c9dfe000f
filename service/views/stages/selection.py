"""The rows of one relation that meet the filters, for a stage that takes the delta; only the relation itself stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from service.tables.changes import Runs
from service.tables.inputs import Input
from service.tables.resolution import Resolution, Slots
from service.tables.store import Numbers
from service.views.collecting import ReportedRows
from service.views.deltas import Sink
from service.views.joins.protocol import Bounds, Enumeration, Join
from service.views.joins.slots_cursor import GivenRowsCursor, Scan
from structures.rows.reading import Run


class Selection(Join):
    """`protocol` describes the methods. A root is a version, to be read while it is held or newest."""

    root = update_steps = bytes = 0

    def __init__(self, input: Input, never: bool) -> None:
        self.input, self._never = input, never

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        self.root = version

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        pass

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Cost: O(changed rows)."""
        found = self.follow(version, runs)
        if sink is None or found is None:
            return
        sink(*found)

    def follow(self, version: int, runs: Runs) -> ReportedRows | None:
        """As `apply`, returning the deleted and inserted rows, for each change the deleted one first; None if there are none. Cost:
        O(changed rows)."""
        run = self.chosen(version, runs)
        return None if run is None else self.differing(run)

    def differing(self, run: Run) -> ReportedRows | None:
        """Return the rows that changes of chosen rows delete and insert; as `follow`."""
        offsets, inserted, slots = self.input.relation.table.differing(self.input.varying, run)
        return ReportedRows(offsets, inserted, (slots,)) if len(slots) else None

    def chosen(self, version: int, runs: Runs) -> Run | None:
        """Return the changes up to a version, without rows that do not meet the filters; None if there are none."""
        self.root = version
        run = runs.get(self.input.relation.name)
        if run is None or self._never:
            return None
        if not self.input.filters:
            return Run(run.offsets, run.old, run.new)
        return Run(run.offsets, self.input.masked(run.old), self.input.masked(run.new))

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return False

    def rows(self, root: int, window: Bounds | None) -> Enumeration:
        return GivenRowsCursor((np.empty(0, np.int32),)) if self._never else Scan(self.input.relation.table, root, self.input.chosen)

    def partners(self, root: int, position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        return GivenRowsCursor((self.input.chosen(slots),))

    def of_key(self, root: int, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        raise TypeError("a selection has no join key")

    def is_empty(self, root: int) -> bool | None:
        return None

    def entries(self, root: int) -> int:
        return 0

    def check(self) -> None:
        pass
