"""The rows of one relation that meet the filters, for a stage that takes the delta: nothing is kept but what the relation keeps itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from service.tables.changes import Part, Runs, parted
from service.tables.resolution import Resolved, Slots
from service.tables.sides import Side
from service.tables.store import Numbers
from service.views.collecting import Changed
from service.views.deltas import Combination, Sink
from service.views.joins.product_join import These
from service.views.joins.protocol import Bounds, Defaults, Enumeration


class _Scan:
    """The rows of a version that is held."""

    steps = largest_gap = 0
    dead_ends: int | None = None
    counters: Mapping[str, int] = {}

    def __init__(self, side: Side, version: int) -> None:
        self._side, self._version, self._at = side, version, 0

    @property
    def done(self) -> bool:
        return self._at < 0

    def fill(self, limit: int) -> Combination:
        slots, self._at = self._side.relation.table.scan(self._version, self._at, limit)
        return (self._side.chosen(slots),)

    def clone(self) -> _Scan:
        return copy.copy(self)


class Selection(Defaults):
    """What the methods do is said in `protocol`. A root is a version, to be read while it is held, or newest."""

    update_steps = bytes = retired_bytes = 0

    def __init__(self, side: Side, never: bool) -> None:
        self._side, self._never = side, never
        self.root = 0

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        self.root = version

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        pass

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Cost: O(changed rows)."""
        found = self.follow(version, runs)
        if sink is None or found is None:
            return
        sink.several(*found)

    def follow(self, version: int, runs: Runs) -> Changed | None:
        """As `apply`: the rows that go and come, of each version those that go first; None if there are none. Cost: O(changed rows)."""
        self.root = version
        run = runs.get(self._side.relation.name)
        if run is None or self._never:
            return None
        gone, come, _ = parted(self._side, run, True)
        at_gone, old = self._chosen(gone, gone.old)
        at_come, new = self._chosen(come, come.new)
        if not len(old) and not len(new):
            return None
        offsets, slots = np.concatenate((at_gone, at_come)), np.concatenate((old, new))
        inserted = np.zeros(len(slots), np.bool_)
        inserted[len(old) :] = True
        if run.versions == 1:
            return Changed(offsets, inserted, (slots,))
        order = np.argsort(2 * offsets + inserted, kind="stable")
        return Changed(offsets[order], inserted[order], (slots[order],))

    def _chosen(self, part: Part, slots: Slots) -> tuple[np.ndarray, Slots]:
        indices = self._side.selected(slots) if len(slots) else None
        return (part.offsets, slots) if indices is None else (part.offsets[indices], slots[indices])

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return False

    def rows(self, root: int, window: Bounds | None) -> Enumeration:
        return These((np.empty(0, np.int32),)) if self._never else _Scan(self._side, root)

    def partners(self, root: int, place: int, slots: Slots, window: Bounds | None) -> Enumeration:
        return These((self._side.chosen(slots),))

    def of_key(self, root: int, place: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        raise TypeError("a selection has no join key")

    def is_empty(self, root: int) -> bool | None:
        return None

    def entries(self, root: int) -> int:
        return 0

    def check(self) -> None:
        pass
