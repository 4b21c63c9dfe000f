"""Keep relations and views live and durable: batches in, versions out. Readers and followers build on it; `service.instance` has the
concrete class.

    engine.recover(progress); engine.submit(batch, done); engine.close()

Only one thread at a time writes (`writer.py`); everything here but `on_failure` may be called from any thread.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as waiting
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from livejoin.wire.batch import Batch
from livejoin.wire.errors import cut
from livejoin.wire.schema import RelationDefinition, RelationPatch
from service.durability.database import SourceRecord
from service.durability.log import Log
from service.durability.snapshots import Snapshot
from service.engine.builds import Builds
from service.engine.catalog.alterations import Alteration, Alterations
from service.engine.catalog.registrations import OTHER, Registration, Registrations, is_over
from service.engine.catalog.replacements import Replacements
from service.engine.housekeeping import Housekeeping
from service.engine.outcomes import Receipt
from service.engine.queued import Done, change, fail, receipt_of
from service.engine.recovery import LoadContext, Progress, RecoveryEnded, kept_view, recover_relations
from service.engine.refusals import check_source, or_no_room, refuse_bad, refuse_new, refuse_used
from service.engine.retention import Retention
from service.engine.rewrites import Rewrites
from service.engine.snapshotting import SnapshotWriter
from service.engine.staging import Stage, Stages
from service.engine.state import State
from service.engine.truncates import Truncates
from service.engine.versions import Pins, Version
from service.engine.writer import Writer
from service.errors import Problem, dropped, ending
from service.query.assembly import Limits
from service.query.conditions import Condition
from service.settings import Settings
from service.tables.backlog import Backlog
from service.tables.relations import Relation
from service.views.deltas import DeltaSink, StoredDeltas
from service.views.live_view import LiveView
from service.views.parse import ViewSource
from service.views.stored import StoredView
from service.warming import EVERY_BATCH, Kernels

log = logging.getLogger("livejoin.engine")

T = TypeVar("T")
_POLL = 0.1  # seconds between two progress reports of builds


class Engine(ABC):
    """An open data folder. The writer calls `on_failure` when the service must stop because the state on disk is unknown. `kernels`: those
    that are still to be compiled or loaded; each view waits for its own. `folder_id`, `secret`: the folder's, for tokens that no other
    folder can have issued. state: "recovering" until the folder's views are built, then "ready", "failed" or "closed". Raises FolderInUse,
    Damaged, OSError."""

    def __init__(self, data: Path, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.model_validate({"data": data})
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.kernels = Kernels()
        self.limits = Limits(self.settings.max_aliases, self.settings.max_conditions, self.settings.max_columns, self.settings.max_sql)
        self.state = "recovering"
        self._is_open = False  # the writer has started
        self._is_clean = False  # it has ended without a failure
        self.progress = 0.0
        self.versions = Pins()
        self._folder = data
        self._log = Log(data, self.settings.synchronous)
        self.folder_id, self.secret = self._log.folder_id, self._log.secret
        self.timelines = self._log.timelines
        self._state = State()
        self._housekeeping = Housekeeping(self._state, self._log, self.versions, self.settings, self.sweep, lambda: self._builds.renew())
        self._writer = Writer(
            self._state, self._log, self.versions, self.settings.max_waiting, lambda: self._builds.hold_back(),
            self._housekeeping.piece, self._failed,
        )  # fmt: skip
        self._builds = Builds(self._state, self._writer, self.versions, self.feed_of, lambda: self.kernels)
        self.stages = Stages(data, self.settings.max_relation_rows)
        self._truncates = Truncates(self._state, self._writer, self.versions, self._builds)
        self.under_way = self._truncates.under_way
        self._rewrites = Rewrites(self._state, self._writer, self.versions)
        self.retention = Retention(self._state, self._writer.submit, self.versions, self.stages.sweep)
        altering = self._log, self.versions, self._rewrites, self.retention, self.settings.max_columns
        self._alterations = Alterations(self._state, self._writer, *altering)
        base = self._state, self._writer, self._log, self.versions, self._builds
        self.replacements = Replacements(*base, self.feed_of)
        self.registrations = Registrations(*base, lambda: self.kernels, self.settings, self.limits, self.replacements)
        self.refuse_waiting = self._truncates.refuse_waiting  # at a stop
        self.admit = self._writer.admit  # whether a batch can be submitted now: ask before reading its body
        self.snapshots: SnapshotWriter
        self._closing, self._loading = threading.Lock(), LoadContext()

    def recover(self, progress: Progress = lambda stage, part: None, opened: Callable[[], None] = lambda: None) -> None:
        """Load the folder, accept batches from then on, and build the views. `progress(stage, part)`; `opened()` is called when relations
        can be read and written and views are being built. Returns when each view is live or has failed, or the engine is closed. Raises
        Damaged."""

        def report(stage: str, part: float) -> None:
            self._loading.go_on()
            self.progress = part
            progress(stage, part)

        with suppress(RecoveryEnded):
            self._recover(report, opened)

    def _recover(self, report: Progress, opened: Callable[[], None]) -> None:
        with self._loading:
            to_build = self._load(report)
        building = [self._builds.start(view, since=since) for view, since in to_build]
        opened()
        self.retention.start()
        if building:
            report("building the views", 0.0)
        while waiting(building, _POLL).not_done and self.state == "recovering":
            report("building the views", sum(view.progress for view, _ in to_build) / len(to_build))
        with self._closing:
            if self.state == "recovering" and self._writer.failure is None:
                self.state = "ready"
                report("ready", 1.0)

    def _load(self, report: Progress) -> list[tuple[LiveView, Backlog | None]]:
        """Load everything but the views, which are built later."""
        kept = self._log.catalog()[1]
        is_followed = any(record.definition.get("changes") is not False for record in kept)
        snapshot = recover_relations(self._state, self._log, self._folder, report, is_followed)
        version = snapshot.version if snapshot is not None else 0
        snapshots = SnapshotWriter(self._folder, self._log, self._state, self.versions, version, self.fail_soon)
        self.snapshots = self._housekeeping.snapshots = snapshots
        self.versions.publish(self._state.version())
        to_build: list[tuple[LiveView, Backlog | None]] = []
        for record in kept:
            view = kept_view(record, self._state)
            self._state.views = {**self._state.views, view.name: view}
        for view in (*self._state.stored.values(), *self._state.views.values()):  # each after those that it reads
            if view.state == "building":
                to_build.append((view, self._replay_of(view, snapshot)))
        self._state.recorder.begin()
        self.kernels.load(EVERY_BATCH if self._state.relations else ())
        self._writer.start()
        self._is_open = True
        return to_build

    def _replay_of(self, view: LiveView, snapshot: Snapshot | None) -> Backlog | None:
        """Restore a view's feed from the snapshot, if it may be followed, or one that reads it; return the later changes to be replayed."""
        if (retain := self._state.retained_for(view)) is None:
            return None
        found = snapshot.feed(view.id) if snapshot is not None else None
        backlog = self._state.recorder.open_replay(view.relations.values())
        if not isinstance(view, StoredView):
            kept = None if found is None or backlog.version < view.since else StoredDeltas(*found)  # these are of the former definition
            view.feed = self.restored_feed_of(view, retain, max(backlog.version, view.since), kept)
        return backlog

    # queries

    @property
    def waiting(self) -> int:
        """Number of batches and jobs that wait for the writer."""
        return self._writer.waiting + self.under_way.waiting

    @property
    def is_open(self) -> bool:
        """Whether the engine accepts batches, or has accepted some."""
        return self._is_open

    @property
    def is_stuck(self) -> bool:
        """Whether the engine has failed, or its writer makes no progress."""
        return self.state == "failed" or self._writer.is_stuck

    @property
    def timeline(self) -> int:
        """The number of the folder's newest timeline."""
        return self._log.timeline

    @property
    def published(self) -> Version:
        return self.versions.published

    @property
    def relations(self) -> Mapping[str, Relation]:
        return self._state.relations

    @property
    def views(self) -> Mapping[str, LiveView]:
        return self._state.views

    @property
    def view_sources(self) -> Mapping[str, ViewSource]:
        """What definitions may name besides relations."""
        return self._state.view_sources

    def relation(self, name: str) -> Relation:
        """Problem `not-found`."""
        found = self._state.relations.get(name)
        if found is None:
            raise Problem("not-found", f"there is no relation {name}")
        return found

    def view(self, name: str) -> LiveView:
        """Problem `not-found`."""
        found = self._state.views.get(name)
        if found is None:
            raise Problem("not-found", f"there is no view {name}")
        return found

    # writing

    def prepare(self, batch: Batch) -> None:
        """Do the work on a batch that does not depend on the tables, before the writer's turn. Any thread, while others write."""
        self._state.prepare(batch)

    def submit(self, batch: Batch, done: Done) -> None:
        """Queue a batch; another thread calls `done(Receipt or Problem)` once it is on disk and published, or refused. Raises Problem
        `too-busy`, `bad-parameter` (source, epoch, run and reset do not go together)."""
        check_source(batch)
        self._truncates.submit(batch, done)

    def apply(self, batch: Batch) -> Receipt:
        """Submit and wait. Raises the Problem."""
        return receipt_of(self.submit, batch)

    def repeated(self, batch: Batch) -> Receipt | None:
        """Return the answer to a batch that was applied already (its changes are not compared), or None. Problems `forbidden`,
        `source-reset`, `bad-parameter`."""
        check_source(batch)
        return None if batch.source is None else self._writer.call(lambda: self._state.repeated(batch, self.published.number)).result()

    def replace(self, name: str, batch: Batch) -> Receipt:
        """Replace a relation's rows by those of a batch of upserts; waits. As `Rewrites.replace`; a repeated batch is not applied again."""
        with self.under_way.turn(batch):
            return self.repeated(batch) or self._rewrites.replace(name, batch)

    def stage(self, name: str, stage: str, part: int | None, batch: Batch) -> tuple[int, Stage]:
        """Store a part of a replacement, as `Stages.put`. Problems: those of `Stages.put`, `bad-rows`, `not-found`."""
        if batch.on_error == "reject":
            refuse_bad(batch, batch.errors, batch.error_count)
        relation = self.relation(name)
        kept = self.stages.put(relation, stage, part, batch)
        if (now := self._state.relations.get(name)) is None or now.id != relation.id:
            self.stages.drop_all(relation)
            raise dropped(name)
        return kept

    def commit_stage(self, name: str, stage: str, batch: Batch, parts: Collection[int] | None = None, keep: bool = False) -> Receipt:
        """As `replace`, with the rows of these parts of a stage (None: all), which are removed; `batch` names its source. `keep`: rows with
        other keys stay. Problems `not-found`, `bad-rows`."""
        with self.under_way.turn(batch):
            if (repeated := self.repeated(batch)) is not None:
                with suppress(Problem), self.stages.taken(self.relation(name), stage, batch, parts):
                    pass  # sent once more
                return repeated
            with self._rewrites.held(name) as held, self.stages.taken(held.relation, stage, batch, parts):
                return self._rewrites.replace_held(held, batch, keep)

    def delete(self, name: str, batch: Batch, filters: Callable[[Relation], Sequence[Condition]]) -> Receipt:
        """Delete the rows of a relation that meet the filters; waits. As `Rewrites.delete`; a repeated batch is not applied again."""
        with self.under_way.turn(batch):
            return self.repeated(batch) or self._rewrites.delete(name, batch, filters)

    def sources(self) -> dict[str, SourceRecord]:
        """Return the last batch of each source. Waits for a commit."""
        return self._log.sources()

    def forget_source(self, name: str) -> None:
        """Forget the batches of a source: its next epoch and run count as its first. Durable on return. Problem `not-found`."""

        def forget() -> None:
            if name not in self._state.sources:
                raise Problem("not-found", f"there is no source {cut(name)!r}")
            self._log.forget_source(name)
            self._state.forget_source(name)

        self._writer.call(forget).result()

    def put_relation(self, name: str, definition: RelationDefinition) -> str:
        """Register a relation; return "created" or "same". Durable on return. Problems `definition-differs`, `too-many`, `no-room`."""

        def put() -> Callable[[], str]:
            known = self._state.relations.get(name)
            if known is not None:
                if not definition.is_met_by(known.definition):
                    raise Problem("definition-differs", OTHER.format("relation", name, ""))
                return lambda: "same"
            refuse_new("relation", name, self._state.relations, self._state.views, self.settings.max_relations)
            self._log.require_room()
            with or_no_room(f"the relation {name}"):
                relation = Relation(self._log.next_relation_id, name, definition)
            return partial(write, relation, definition.to_json())

        def write(relation: Relation, stored: dict[str, Any]) -> str:
            self._log.put_relation(relation.id, name, stored)
            self._state.relations = {**self._state.relations, name: relation}
            self.versions.publish(self._state.version())
            return "created"

        self.kernels.load(EVERY_BATCH)
        return self._writer.call(partial(change, put)).result()

    def patch_relation(self, name: str, patch: RelationPatch, dry_run: bool = False) -> Alteration:
        """Extend a definition, as `Alterations.apply`; waits. Durable on return."""
        return self._alterations.apply(name, patch, dry_run)

    def drop_relation(self, name: str) -> None:
        """Problems `not-found`, `relation-in-use`."""

        def drop() -> Relation:
            relation = self.relation(name)
            refuse_used(f"the relation {name} is used by ", {one.name for one in self._state.registered if name in one.view.query.named})
            self._log.drop_relation(name)
            self._state.forget_receipts(name)
            self._state.relations = {other: kept for other, kept in self._state.relations.items() if other != name}
            self.versions.publish(self._state.version())
            return relation

        self.stages.drop_all(self._writer.call(drop).result())  # the relation's memory is freed here, not in the writer's turn

    def put_view(self, name: str, data: dict[str, Any], wait: float = 1.0, replace: bool = False) -> tuple[LiveView, str]:
        """Register a view, as `Registrations.register`, and build it; return it and "created", "same", or "building" after more than `wait`
        seconds. `replace`: as `Registrations.replace`; "replaced" or "building"."""
        done = "replaced" if replace and name in self._state.views else "created"
        view, built = self.register(name, data, replace=replace).result()
        if built is not None:
            waiting([built], wait)  # type: ignore[misc]
        return self.views.get(name, view), "same" if built is None else done if is_over(built) else "building"

    def register(self, name: str, data: dict[str, Any], replace: bool = False) -> Future[Registration]:
        """As `Registrations.register`, or `Registrations.replace`."""
        return (self.registrations.replace if replace else self.registrations.register)(name, data)

    def drop_view(self, name: str) -> None:
        """As `Registrations.drop`; waits."""
        self.registrations.drop(name)

    def at_rest(self, work: Callable[[], T]) -> T:
        """Call `work`, which only reads, in the writer's thread when the newest version is the published one. Waits for a group."""
        return self._writer.call(work, urgent=True, only_reads=True).result()

    def close(self) -> bool:
        """Finish the queued batches, write a snapshot if that takes at most a second, and release the folder. Return whether this was a
        clean end: everything is on disk, and nothing has failed. A second call only returns the same again."""
        with self._closing:
            if self.state == "closed":
                return self._is_clean
            self._loading.end()
            try:
                self.retention.stop()
                self._truncates.end()
                was_replaying = self._state.recorder.is_replaying  # a snapshot would lack the feeds of cancelled replays
                self._builds.end()
                if self._is_open and self.state != "failed":
                    self._writer.stop()
                if self._is_open and self.state != "failed" and not was_replaying:  # it may have failed meanwhile
                    self.snapshots.finish()
                elif self._is_open:
                    self.snapshots.abandon()  # it must not continue in a folder that another process may own by then
            finally:
                self.state = "closed"
                for feed in filter(None, [view.feed for view in self._state.views.values()]):
                    feed.close(ending())
                self.stages.close()
                failure = self._writer.failure or (self.snapshots.failure if self._is_open else None)
                try:
                    self._log.close(failure)
                    self._is_clean = failure is None
                except (OSError, sqlite3.Error) as error:
                    log.critical("the log could not be closed, and what is on disk is unknown: %s", error)
        return self._is_clean

    def metrics(self) -> dict[str, Any]:
        """Return counters, gauges, and histograms (`Histogram`: bounds, counts, count, sum), for exporters."""
        views = self._state.views.values()
        return {
            "version": self.versions.published.number,
            "pins": len(self.versions),
            "retired_bytes": self._state.retired_bytes,
            "free_bytes": self._state.free_bytes,
            "waiting_batches": self.waiting,
            "writer_busy_seconds": self._writer.busy_seconds,
            "log_bytes": self.snapshots.log_bytes,
            "snapshot_failures": self.snapshots.failures,
            "subscribers": sum(view.feed.subscribers for view in views if view.feed is not None),
            "batches": self._writer.batches,
            "changes": self._writer.changes,
            "update_seconds": self._writer.update_seconds,
            "turn_seconds": self._writer.turn_seconds,
            "checkpoint_seconds": self._housekeeping.checkpoint_seconds,
            "batch_changes": self._writer.batch_changes,
        }

    @property
    def large_batches_wait_for(self) -> str | None:
        """The name of the view whose build must end before the writer takes large batches again."""
        return self._builds.large_lane.closed_for

    # for readers and followers (`service.instance`)

    @abstractmethod
    def feed_of(self, view: LiveView, retain: tuple[int, int]) -> DeltaSink:
        """Return the sink for the deltas of a view that is about to be live; `retain`: rows and bytes to keep."""

    @abstractmethod
    def restored_feed_of(self, view: LiveView, retain: tuple[int, int], version: int, stored: StoredDeltas | None) -> DeltaSink:
        """The same for a view that is still to be replayed, with what a snapshot of this version has stored; all later deltas follow."""

    @abstractmethod
    def sweep(self) -> None:
        """Forget what belonged to expired pins. The writer's thread, about once a second."""

    # the writer

    def fail_soon(self, error: BaseException) -> None:
        """Stop the service because of a failure in another thread."""
        with suppress(Problem):  # it is stopping already
            self._writer.call(partial(fail, error))

    def _failed(self, error: BaseException) -> None:
        self.state = "failed"
        self.on_failure(error)
