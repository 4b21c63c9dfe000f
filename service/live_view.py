"""One view kept live: changed rows become entries, entries change the structure, the structure tells the delta.

The writer's thread builds and applies; readers take a root of some version and the methods of `reading`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.deltas import Collector, Combination, Delta, Moved, cancel
from service.errors import Problem
from service.feeds import Feed
from service.histogram import Histogram
from service.query import View, project
from service.relations import Relation
from service.resolution import NO_SLOTS, Resolved, Slots
from service.shapes import Shape
from service.sides import Side, joined
from service.store import Domain
from structures.interval_tree import Entries, IntervalTree, Root

log = logging.getLogger("livejoin")

_CHUNK = 1 << 16  # rows in a step of building
_LEAST_WORDS = 1 << 12  # of a structure that stays empty
_NO_PLACES = np.empty(0, np.int64)
_NOTHING_MOVED = Moved(NO_SLOTS, NO_SLOTS)
_KINDS = {"pair": "pair", "self_less": "self", "self_not_equal": "self", "list": "list"}


class Change:
    """What a batch did to one relation: its resolved changes, applied to the table, and the slots of the inserted rows.

    `replacing`: the places of those inserts that replace a row; `moved`: the slots of these rows, before and after.
    """

    def __init__(self, resolved: Resolved, new_slots: Slots) -> None:
        self.resolved = resolved
        self.new_slots = new_slots
        self.replacing, self.moved = _NO_PLACES, _NOTHING_MOVED
        if len(resolved.deletes):
            self.replacing = np.flatnonzero(resolved.previous >= 0)
            self.moved = Moved(resolved.deletes[: len(self.replacing)], new_slots[self.replacing])


class LiveView:
    """A view and its structure. `root` is the newest applied version's, perhaps not published yet."""

    def __init__(self, view: View, relations: Mapping[str, Relation]) -> None:
        self.id = secrets.token_hex(8)  # a view that is dropped and made again is another one
        self.view = view
        self.name = view.name
        self.state = "building"
        self.progress = 0.0
        self.problem: Problem | None = None
        query, plan = view.query, view.plan
        self.sides = [Side(query, plan, place, relations[name]) for place, (_, name) in enumerate(query.aliases)]
        self.relations = {name: relations[name] for _, name in query.aliases}
        self.definitions = {name: relation.definition for name, relation in self.relations.items()}
        # One set under two aliases takes its entries from the first.
        self._feeding = [] if query.never else self.sides if plan.shape == "pair" else self.sides[:1]
        self._nothing = self.tree = IntervalTree(_KINDS[plan.shape], _LEAST_WORDS)
        self.domain: Domain | None = None
        self.shape = Shape(query, plan, self.sides)
        self.feed: Feed | None = None  # from "live" on, if somebody may follow
        self.update_seconds = Histogram()
        self.delay_steps = 0

    def make_room(self) -> None:
        """Reserve what the structure may grow into, before anything else. OSError, MemoryError: there is no room, and nothing was done."""
        side = self.sides[0]
        domain = Domain([side.relation.schema.field(name).type for name in side.join]) if side.join else None
        self.tree, self.domain = IntervalTree(_KINDS[self.view.plan.shape]), domain

    @property
    def root(self) -> Root:
        return self.tree.root

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Load everything that the relations have at `version`, the newest one. Cost: O(n log n) of sorting."""
        total = sum(side.relation.table.rows for side in self._feeding) or 1
        acquire = self.domain.acquire if self.domain is not None else None
        parts, done = [], 0
        for side in self._feeding:
            start = 0
            while start >= 0:
                slots, start = side.relation.table.scan(version, start, _CHUNK)
                parts.append(side.entries(slots, acquire).entries)
                done += len(slots)
                progress(0.8 * done / total)
        entries = joined(parts)
        if len(entries.slot):
            self.tree.bulk_load(version, entries)
        progress(1.0)

    def fail(self, error: Exception) -> None:
        """It could not be built: the relations are whole, this view is not."""
        log.error("the view %s could not be built", self.name, exc_info=error)
        self.problem = Problem("view-failed", f"the structures of the view {self.name} could not be built: {error}")
        self.state = "failed"
        self.tree, self.domain = self._nothing, None

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        """Raise MemoryError, before anything is touched, unless `apply` surely has room for these changes."""
        changes = keys = text_bytes = 0
        for side in self._feeding:
            one = resolved.get(side.relation.name)
            if one is not None:
                changes += len(one.deletes) + one.inserts.num_rows
                keys += one.inserts.num_rows
                text_bytes += one.inserts.get_total_buffer_size()
        self.tree.require(changes, 2)
        if self.domain is not None:
            self.domain.require(keys, text_bytes)

    def apply(self, version: int, changes: Mapping[str, Change]) -> Delta | None:
        """Follow the changed relations to `version`; the delta if somebody may follow and there is one.

        Cost: O(log n) a changed row, and the rows of its delta.
        """
        started = time.perf_counter()
        work = _Work()
        retain = self.view.query.retain
        for side in self._feeding:
            change = changes.get(side.relation.name)
            if change is not None:
                self._collect(side, change, retain is not None, work)
        deletes, inserts = joined(work.deletes), joined(work.inserts)
        moved_from, moved_to = joined(work.moved_from), joined(work.moved_to)
        delta = None
        if len(moved_from.slot):
            self.tree.apply(version, moved_from, moved_to, None)
        if len(deletes.slot) or len(inserts.slot):
            if retain is None:
                self.tree.apply(version, deletes, inserts, None)
            else:
                delta = self._apply_followed(version, deletes, inserts, changes, retain[0])
        if self.domain is not None and len(deletes.slot):
            self.domain.release(deletes.key, version)
        self.update_seconds.observe(time.perf_counter() - started)
        return delta

    def _apply_followed(
        self, version: int, deletes: Entries, inserts: Entries, changes: Mapping[str, Change], retain_rows: int
    ) -> Delta | None:
        collector = Collector(retain_rows, self.shape.combine)
        self.tree.apply(version, deletes, inserts, collector)
        aliases = len(self.sides)
        if collector.too_large:
            return Delta(version, (), (), True)
        gone, come = collector.rows(False, aliases), collector.rows(True, aliases)
        if len(gone[0]) and len(come[0]):
            gone, come = cancel(gone, come, [_moved(changes, side) for side in self.sides], self.rows, self.text_bytes)
        delta = Delta(version, gone, come)
        if delta.rows > retain_rows:
            return Delta(version, (), (), True)
        return delta if delta.rows else None

    def _collect(self, side: Side, change: Change, followed: bool, work: _Work) -> None:
        """The entries that go, come, or only point to another slot, of one alias."""
        acquire, look_up = (self.domain.acquire, self.domain.look_up) if self.domain is not None else (None, None)
        old_slots, slots = change.resolved.deletes, change.new_slots
        same = _unchanged(side, change) if followed and len(old_slots) else None
        if same is not None:
            old_places, new_places = same
            chosen = side.entries(slots[new_places], look_up)
            before = old_slots[old_places]
            work.moved_to.append(chosen.entries)
            work.moved_from.append(chosen.entries._replace(slot=before if chosen.places is None else before[chosen.places]))
            old_slots, slots = np.delete(old_slots, old_places), np.delete(slots, new_places)
        if len(slots):
            work.inserts.append(side.entries(slots, acquire).entries)
        if len(old_slots):
            work.deletes.append(side.entries(old_slots, look_up).entries)

    def reclaim(self, oldest_needed: int, pins: npt.NDArray[np.int64]) -> None:
        self.tree.reclaim(oldest_needed, pins)
        if self.domain is not None:
            self.domain.reclaim(oldest_needed, pins)

    # reading: any thread, slots that a pinned version (or an unsettled delta) keeps

    def rows(self, combination: Combination) -> pa.RecordBatch:
        """The view's rows. Cost: a gather for each column."""
        parts = {side.alias: side.relation.table.take(side.output, slots) for side, slots in zip(self.sides, combination, strict=True)}
        return project(self.view.query, self.definitions, parts)

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
        return pa.RecordBatch.from_arrays(columns, names), project(self.view.query, self.definitions, parts)

    def statistics(self) -> dict[str, Any]:
        """As in `GET /v1/views/{name}`."""
        root = self.root
        domain_bytes = self.domain.bytes if self.domain is not None else 0
        return {
            "intervals": root.count0 + root.count1,
            "bytes": self.tree.live_bytes() + domain_bytes,
            "update_seconds": {"p50": self.update_seconds.quantile(0.5), "p99": self.update_seconds.quantile(0.99)},
            "delay_steps": {"max": self.delay_steps},
        }


@dataclass(slots=True)
class _Work:
    deletes: list[Entries] = field(default_factory=list)
    inserts: list[Entries] = field(default_factory=list)
    moved_from: list[Entries] = field(default_factory=list)
    moved_to: list[Entries] = field(default_factory=list)


def _unchanged(side: Side, change: Change) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Places, in the deletes and in the inserts, of the rows that were replaced by one equal in all that the view uses."""
    moved = change.moved
    if len(moved.old) == 0:
        return None
    same = np.flatnonzero(side.relation.table.same(side.varying, moved.old, moved.new))
    return (same, change.replacing[same]) if len(same) else None


def _moved(changes: Mapping[str, Change], side: Side) -> Moved:
    change = changes.get(side.relation.name)
    return _NOTHING_MOVED if change is None else change.moved
