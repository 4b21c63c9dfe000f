"""One view kept live: changed rows change its structures, which tell the delta.

The writer builds and applies; readers take a root of some version and the methods behind "reading" below.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.errors import Problem
from service.histogram import Histogram
from service.tables.changes import NOTHING_MOVED, Change, Moved, Singles, one_by_one
from service.tables.indexes import SharedIndexes
from service.tables.projection import Projection
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Resolved
from service.tables.sides import Side
from service.views.deltas import Collector, Combination, Delta, DeltaSink, Told, cancel, most_candidates
from service.views.joins.making import join_of
from service.views.joins.protocol import Join, Running
from service.views.parse import View
from service.views.read_counts import ReadCounts

log = logging.getLogger("livejoin.views")


class LiveView:
    """A view and its structures. `root` is the newest applied version's, perhaps not published yet."""

    def __init__(self, view: View, relations: Mapping[str, Relation], indexes: SharedIndexes) -> None:
        self.id = secrets.token_hex(8)  # a view that is dropped and made again is another one
        self.view = view
        self.name = view.name
        self.state = "building"
        self.progress = 0.0
        self.problem: Problem | None = None
        query = view.query
        self.sides = [Side(query, place, relations[name]) for place, (_, name) in enumerate(query.aliases)]
        self.relations = {name: relations[name] for _, name in query.aliases}
        self.definitions = {name: relation.definition for name, relation in self.relations.items()}
        self.projection = Projection(query, self.definitions)
        self._indexes = indexes
        self._join: Join | None = None  # there is none before there is room, nor of a view that failed
        self.feed: DeltaSink | None = None  # from "live" on, if somebody may follow
        self.update_seconds = Histogram()
        self.read_counts = ReadCounts()
        self.changed_rows = 0  # that have gone and come in its relations

    def make_room(self) -> None:
        """Reserve what the structures may grow into, before anything else. OSError, MemoryError: there is no room, and nothing was done."""
        self._join = join_of(self.view.query, self.view.plan, self.sides, self._indexes)

    @property
    def join(self) -> Join:
        """The structures of a view that has room. Problem `view-failed`."""
        if self._join is None:
            raise self.problem or Problem("view-failed", f"the view {self.name} has no structures")
        return self._join

    @property
    def root(self) -> Any:
        return self.join.root

    @property
    def is_prompt(self) -> bool:
        """Whether following one changed row is sure to take about as long as its delta is."""
        plan = self.view.plan
        return plan.guarantee == "strict" and not plan.amortised and (self.feed is None or self.feed.has_little_to_settle)

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Load everything that the relations have at `version`, the newest one. Cost: O(n log n) of sorting."""
        self.join.build(version, progress)
        progress(1.0)

    def fail(self, error: Exception) -> None:
        """Its structures could not be built or kept: the relations are whole, this view is not, and its followers are told."""
        what = "built" if self.state == "building" else "kept"
        log.error("the view %s could not be %s", self.name, what, exc_info=error)
        again = "" if what == "built" else "; a start of the service, or dropping it and registering it again, builds it anew"
        self.problem = Problem("view-failed", f"the structures of the view {self.name} could not be {what}: {error}{again}")
        self.state = "failed"
        self.let_go()
        self._join = None
        if self.feed is not None:
            self.feed.close(self.problem)

    def let_go(self) -> None:
        """It follows no more: what it has in common with other views is theirs alone."""
        self._indexes.forget(self._join)

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        """Raise MemoryError, before anything is touched, unless `apply` surely has room for these changes."""
        self.join.require(resolved)

    def apply(self, version: int, changes: Mapping[str, Change]) -> Delta | None:
        """Follow the changed relations to `version`; the delta if somebody may follow and there is one.

        Cost: as the plan says.
        """
        return self._apply(version, version, changes)

    def _apply(self, version: int, told_as: int, changes: Mapping[str, Change]) -> Delta | None:
        """The structures come to `version`; the delta is one of `told_as`, which nobody will read."""
        started = time.perf_counter()
        retain = self.view.query.retain
        delta = None
        if retain is None:
            self.join.apply(version, changes, None)
        else:
            collector = Collector(retain[0])
            self.join.apply(version, changes, collector)
            if collector.too_large:
                delta = Delta(told_as, (), (), True)
            else:
                gone, come = collector.rows(False, len(self.sides)), collector.rows(True, len(self.sides))
                delta = self._delta(told_as, gone, come, lambda name: changes[name].moved if name in changes else NOTHING_MOVED)
        for name, change in changes.items():
            if name in self.relations:
                self.changed_rows += len(change.deletes) + len(change.new_slots)
        self.update_seconds.observe(time.perf_counter() - started)
        return delta

    def _delta(self, version: int, gone: Combination, come: Combination, moved: Callable[[str], Moved]) -> Delta | None:
        """These rows without what cancels; None if that is all. `moved`: the replaced rows of a relation."""
        if len(gone[0]) and len(come[0]):
            gone, come = cancel(gone, come, [moved(side.relation.name) for side in self.sides], self.rows, self.text_bytes)
        delta = Delta(version, gone, come)
        retain = self.view.query.retain
        assert retain is not None
        if delta.rows > retain[0]:
            return Delta(version, (), (), True)
        return delta if delta.rows else None

    def apply_run(self, first: int, count: int, singles: Mapping[str, Singles]) -> list[Delta]:
        """Follow `count` single changes, one a version from `first` on, all in the tables already; their deltas. No version but the last
        can be read, so the structures may be at the last one for all of them. Cost: as `apply`, without what each call costs."""
        started = time.perf_counter()
        retain, last = self.view.query.retain, first + count - 1
        if isinstance(self.join, Running):
            told = self.join.apply_run(last, singles, None if retain is None else most_candidates(retain[0]))
            deltas = list(self._deltas_of(first, singles, told))
            for name, single in singles.items():
                if name in self.relations:
                    self.changed_rows += int(np.count_nonzero(single.old >= 0) + np.count_nonzero(single.new >= 0))
            self.update_seconds.observe(time.perf_counter() - started)
            return deltas
        applied = [self._apply(last, first + offset, changes) for offset, changes in one_by_one(singles)]
        return [delta for delta in applied if delta is not None]

    def _deltas_of(self, first: int, singles: Mapping[str, Singles], told: Iterable[Told]) -> Iterator[Delta]:
        """Deltas of the changes that did something, by version."""
        nothing: Combination = (NO_SLOTS,) * len(self.sides)
        for offset, parts in groupby(told, itemgetter(0)):
            rows = {False: nothing, True: nothing}
            too_large = False
            for _, inserted, part, part_too_large in parts:
                too_large |= part_too_large
                before = rows[inserted]
                rows[inserted] = part if before is nothing else tuple(map(np.concatenate, zip(before, part, strict=True)))
            if too_large:
                yield Delta(first + offset, (), (), True)
            elif (delta := self._delta(first + offset, rows[False], rows[True], partial(_moved, singles, offset))) is not None:
                yield delta

    def reclaim(self, oldest_needed: int, pins: npt.NDArray[np.int64]) -> None:
        if self._join is not None:
            self._join.reclaim(oldest_needed, pins)

    @property
    def retired_bytes(self) -> int:
        join = self._join
        return join.retired_bytes if join is not None else 0

    # reading: any thread, slots that a pinned version (or an unsettled delta) keeps

    def rows(self, combination: Combination) -> pa.RecordBatch:
        """The view's rows. Cost: a gather for each column."""
        parts = {side.alias: side.relation.table.take(side.output, slots) for side, slots in zip(self.sides, combination, strict=True)}
        return self.projection.rows(parts)

    def text_bytes(self, combination: Combination) -> npt.NDArray[np.int64]:
        """int64[n]: the bytes of text that `rows_with_keys` copies for each row."""
        total = np.zeros(len(combination[0]), np.int64)
        for side, slots in zip(self.sides, combination, strict=True):
            total += side.relation.table.text_bytes(side.identity, slots)
        return total

    def rows_with_keys(self, combination: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The identities (columns named alias.column) and the rows."""
        parts = {side.alias: side.relation.table.take(side.identity, slots) for side, slots in zip(self.sides, combination, strict=True)}
        names = [f"{side.alias}.{name}" for side in self.sides for name in side.relation.key]
        columns = [parts[side.alias].column(name) for side in self.sides for name in side.relation.key]
        return pa.RecordBatch.from_arrays(columns, names), self.projection.rows(parts)

    @property
    def bytes(self) -> int:
        """What its structures hold at the newest version."""
        join = self._join  # the writer may take it away meanwhile
        return join.bytes if join is not None else 0

    def statistics(self) -> dict[str, Any]:
        """As in `GET /v1/views/{name}`."""
        join = self._join
        held = join.bytes if join is not None else 0
        flips: int | None = getattr(join, "flips", None)  # of those that keep what is live
        bits: float | None = getattr(join, "bits_per_tuple", None)  # of those that have a compact form
        rows = sum(relation.table.rows for relation in self.relations.values())
        return {
            "intervals": join.entries(join.root) if join is not None else 0,
            "bytes": held,
            "update_seconds": {"p50": self.update_seconds.quantile(0.5), "p99": self.update_seconds.quantile(0.99)},
            "bytes_per_row": held / rows if join is not None and rows else None,
            "bits_per_tuple": bits,
            "steps_per_update": join.update_steps / self.changed_rows if join is not None and self.changed_rows else None,
            "flips_per_update": flips / self.changed_rows if flips is not None and self.changed_rows else None,
            **self.read_counts.to_json(),
        }


def _moved(singles: Mapping[str, Singles], offset: int, name: str) -> Moved:
    return singles[name].moved(offset) if name in singles else NOTHING_MOVED
