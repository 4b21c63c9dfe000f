"""Relations and views kept live and durable: batches in, versions out. Readers and followers stand on it: `service.instance` has the
class that is made.

    engine.recover(progress); engine.submit(batch, done); engine.close()

One thread at a time writes (`writer.py`); everything here but `on_failure` may be called by any thread.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as waiting
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from service.durability.database import SourceRecord
from service.durability.log import Log
from service.durability.snapshots import Snapshot
from service.engine.alterations import Alterations
from service.engine.builds import Builds
from service.engine.housekeeping import Housekeeping
from service.engine.kept_views import kept_view
from service.engine.queued import Done, fail, is_single
from service.engine.recovery import Ended, Loading, Progress, recover_relations
from service.engine.refusals import check_source, or_no_room, refuse_more
from service.engine.retention import Retention
from service.engine.rewrites import Rewrites
from service.engine.snapshotting import Snapshotting
from service.engine.stages import Stage, Stages
from service.engine.state import Receipt, State, refuse_bad
from service.engine.truncates import Truncates
from service.engine.versions import Pins, Version
from service.engine.writer import Later, Unpublished, Writer
from service.errors import Problem
from service.query.assembly import Limits
from service.query.model import Condition
from service.settings import Settings
from service.tables.estimates import estimates_of
from service.tables.history import Passage
from service.tables.relations import Relation
from service.views.deltas import DeltaSink, Stored
from service.views.joins.making import rooms_of
from service.views.live_view import LiveView
from service.views.parse import View, noted, parse_view
from service.warming import Kernels
from service.wire.batch import Batch
from service.wire.errors import WireError, cut
from service.wire.schema import RelationDefinition, RelationPatch

log = logging.getLogger("livejoin.engine")

_OTHER = "the {} {} already exists with another definition: use another name, or drop it first (DELETE)"
T = TypeVar("T")
_POLL = 0.1  # seconds between two reports of the progress of builds


class Engine(ABC):
    """One data folder, open. `on_failure` is called (by the writer) when the service has to end: what is on disk is unknown.
    `kernels`: those that are not compiled yet; a view waits for its own.

    state: "recovering" until the views of the folder are built, "ready", "failed" or "closed". `folder_id`, `secret`: of the folder, for
    texts that only it can have given out. Raises FolderInUse, Damaged, OSError.
    """

    def __init__(self, data: Path, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.model_validate({"data": data})
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.kernels = Kernels()
        self.limits = Limits(self.settings.max_aliases, self.settings.max_conditions, self.settings.max_columns, self.settings.max_sql)
        self.state = "recovering"
        self._is_open = False  # the writer has begun
        self._is_clean = False  # it has ended, and as it should
        self.progress = 0.0
        self.versions = Pins()
        self._folder = data
        self._log = Log(data, self.settings.synchronous)
        self.folder_id, self.secret = self._log.folder_id, self._log.secret
        self.timelines = self._log.timelines
        self._state = State()
        self._housekeeping = Housekeeping(self._state, self._log, self.versions, self.settings, self.sweep, lambda: self._builds.renew())
        self._writer = Writer(
            self._state, self._log, self.versions, self.settings.max_waiting, self._is_short, lambda: self._builds.pause(),
            self._housekeeping.piece, self._failed,
        )  # fmt: skip
        self._builds = Builds(self._state, self._writer, self.versions, self.feed_of, lambda: self.kernels)
        self.stages = Stages(data, self.settings.max_relation_rows)
        self._truncates = Truncates(self._state, self._writer, self.versions)
        self._rewrites = Rewrites(self._state, self._writer, self.versions)
        self.retention = Retention(self._state, self._writer, self.versions, self.stages.sweep)
        self._alterations = Alterations(self._state, self._writer, self._log, self.versions, self._rewrites, self.settings.max_columns)
        self.admit = self._writer.admit  # whether a batch could be submitted now, whatever it is: ask before its body is read
        self._snapshots: Snapshotting
        self._closing, self._loading = threading.Lock(), Loading()

    def recover(self, progress: Progress = lambda stage, part: None, opened: Callable[[], None] = lambda: None) -> None:
        """Load the folder, take batches from then on, build the views. `progress(stage, part)`; `opened()` is called when relations can be
        read and written, and views are being built. Returns when each of them is live or has failed, or when it is closed meanwhile.

        Raises Damaged."""

        def report(stage: str, part: float) -> None:
            self._loading.go_on()
            self.progress = part
            progress(stage, part)

        with suppress(Ended):
            self._recover(report, opened)

    def _recover(self, report: Progress, opened: Callable[[], None]) -> None:
        with self._loading:
            to_build = self._load(report)
        building = [self._builds.start(view, passage=passage) for view, passage in to_build]
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

    def _load(self, report: Progress) -> list[tuple[LiveView, Passage | None]]:
        """Everything but the views, which are to be built."""
        kept = self._log.catalog()[1]
        is_followed = any(record.definition.get("changes") is not False for record in kept)
        snapshot = recover_relations(self._state, self._log, self._folder, report, is_followed)
        version = snapshot.version if snapshot is not None else 0
        snapshots = Snapshotting(self._folder, self._log, self._state, self.versions, version, self.fail_soon)
        self._snapshots = self._housekeeping.snapshots = snapshots
        self.versions.publish(self._state.version())
        to_build: list[tuple[LiveView, Passage | None]] = []
        for record in kept:
            view = kept_view(record, self._state)
            self._add_view(view)
            if view.state == "building":
                to_build.append((view, self._passage_of(view, snapshot)))
        if all(passage is None for _, passage in to_build):
            self._state.history = None
        self._housekeeping.pages.start()
        self._writer.start()
        self._is_open = True
        return to_build

    def _passage_of(self, view: LiveView, snapshot: Snapshot | None) -> Passage | None:
        """Of a view that may be followed: its feed has what the snapshot has of it, and is to get what has changed since."""
        retain, history = view.view.query.retain, self._state.history
        if retain is None or history is None:
            return None
        found = snapshot.feed(view.id) if snapshot is not None else None
        view.feed = self.restored_feed_of(view, retain, history.since, None if found is None else Stored(*found))
        return history.passage(view.relations.values())

    # what there is

    @property
    def waiting(self) -> int:
        """Batches and other jobs that wait for the writer."""
        return self._writer.waiting + self._truncates.waiting

    @property
    def is_open(self) -> bool:
        """Whether it takes batches, or has taken some."""
        return self._is_open

    @property
    def is_stuck(self) -> bool:
        """Whether it has failed, or its writer makes no progress."""
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
        """Do what needs no look at the tables before the writer's turn. In any thread, while others write."""
        self._state.prepare(batch)

    def submit(self, batch: Batch, done: Done) -> None:
        """Queue a batch; another thread calls `done(Receipt or Problem)` once it is on disk and published, or refused. Raises Problem
        `too-busy`, `bad-parameter` (source, epoch, run, reset do not go together)."""
        check_source(batch)
        self._truncates.submit(batch, done)

    def apply_at_once(self, batch: Batch, later: Later = lambda work: work()) -> Receipt | Unpublished | None:
        """Apply a batch in the caller's thread, if that surely takes less than handing it over; None, and nothing done, if not: submit it.

        It is on disk on return, and published when `later` has called what it is given: before anybody asks who may know the answer.
        One that turns out to change many rows of a view is `Unpublished`: call its `leave`. Raises the Problem.
        """
        if self.settings.synchronous == "full" or not is_single(batch) or self._truncates.holds(batch.source):  # an fsync holds a thread
            return None
        check_source(batch)
        answer = self._writer.apply_at_once(batch, later)
        if isinstance(answer, Problem):
            raise answer
        return answer

    def apply(self, batch: Batch) -> Receipt:
        """Submit and wait. Raises the Problem."""
        answer: Future[Receipt | Problem] = Future()
        self.submit(batch, answer.set_result)
        result = answer.result()
        if isinstance(result, Problem):
            raise result
        return result

    def repeated(self, batch: Batch) -> Receipt | None:
        """The answer to a batch that was applied already (its changes are not looked at); None if it was not.

        Problems `source-reset`, `bad-parameter`.
        """
        check_source(batch)
        return None if batch.source is None else self._writer.call(lambda: self._state.repeated(batch, self.published.number)).result()

    def replace(self, name: str, batch: Batch) -> Receipt:
        """Give a relation the rows of a batch of upserts, and no others; waits. As `Rewrites.replace`, and a repetition is answered."""
        return self.repeated(batch) or self._rewrites.replace(name, batch)

    def stage(self, name: str, stage: str, part: int | None, batch: Batch) -> tuple[int, Stage]:
        """Keep a part of a replacement, as `Stages.put`. Problems: its own, `bad-rows`, `not-found`."""
        if batch.on_error == "reject":
            refuse_bad(batch, batch.errors, batch.error_count)
        return self.stages.put(self.relation(name), stage, part, batch)

    def commit_stage(self, name: str, stage: str, batch: Batch) -> Receipt:
        """The same with the rows that were staged, which are forgotten; `batch`: whose they are. Problems `not-found`, `bad-rows`."""
        if (repeated := self.repeated(batch)) is not None:  # it waits for no other rewriting
            self.stages.drop(self.relation(name), stage)
            return repeated
        with self._rewrites.held(name) as held:
            if (repeated := self.repeated(batch)) is not None:
                self.stages.drop(held.relation, stage)
                return repeated
            with self.stages.taken(held.relation, stage, batch):
                return self._rewrites.replace_held(held, batch)

    def delete(self, name: str, batch: Batch, filters: Callable[[Relation], Sequence[Condition]]) -> Receipt:
        """Delete the rows of a relation that meet the filters; waits. As `Rewrites.delete`; a repeated batch is answered as such."""
        return self.repeated(batch) or self._rewrites.delete(name, batch, filters)

    def sources(self) -> dict[str, SourceRecord]:
        """The last batch of each source. Waits for a commit."""
        return self._log.sources()

    def forget_source(self, name: str) -> None:
        """Forget what a source has sent: whatever epoch and run come next are its first. Durable on return. Problem `not-found`."""

        def forget() -> None:
            if name not in self._state.sources:
                raise Problem("not-found", f"there is no source {cut(name)!r}")
            self._log.forget_source(name)
            self._state.forget_source(name)

        self._writer.call(forget).result()

    def put_relation(self, name: str, definition: RelationDefinition) -> str:
        """Register; "created" or "same". Durable on return. Problems `definition-differs`, `too-many`, `no-room`."""

        def put() -> str:
            known = self._state.relations.get(name)
            if known is not None:
                if not definition.is_met_by(known.definition):
                    raise Problem("definition-differs", _OTHER.format("relation", name))
                return "same"
            refuse_more("relations", self._state.relations, self.settings.max_relations)
            self._log.require_room()
            id_ = self._log.next_relation_id
            with or_no_room(f"the relation {name}"):
                relation = Relation(id_, name, definition)
            self._log.put_relation(id_, name, definition.to_json())
            self._state.relations = {**self._state.relations, name: relation}
            self.versions.publish(self._state.version())
            return "created"

        return self._writer.call(put).result()

    def patch_relation(self, name: str, patch: RelationPatch) -> None:
        """Extend a definition, as `Alterations.apply`; waits. Durable on return."""
        self._alterations.apply(name, patch)
        self.retention.wake()

    def drop_relation(self, name: str) -> None:
        """Problems `not-found`, `relation-in-use`."""

        def drop() -> Relation:
            relation = self.relation(name)
            users = sorted(view.name for view in self._state.views.values() if name in view.view.query.named)
            if users:
                said = f"the relation {name} is used by {', '.join(users)}: drop {'this view' if len(users) == 1 else 'these views'} first"
                raise Problem("relation-in-use", said, views=users)
            self._log.drop_relation(name)
            self._state.relations = {other: kept for other, kept in self._state.relations.items() if other != name}
            self.versions.publish(self._state.version())
            return relation

        self._writer.call(drop).result()  # the memory of what it gives comes back here, not in the writer's turn

    def put_view(self, name: str, data: dict[str, Any], wait: float = 1.0) -> tuple[LiveView, str]:
        """Register, as `register`, and build; the view and "created", "same", or "building" when that takes longer than `wait` seconds."""
        view, built = self.register(name, data).result()
        if built is not None:
            waiting([built], wait)
        return view, "same" if built is None else "building" if view.state == "building" else "created"

    def register(self, name: str, data: dict[str, Any], client: str = "") -> Future[tuple[LiveView, Future[None] | None]]:
        """Have a view built in its turn among those of all clients. Once its definition is durable: the view, and what is done when it is
        live, has failed or was dropped, or None if it was registered already. Does not wait for the writer.

        Problems: those of `parse_view`, and by the future `definition-differs`, `too-many`, `no-room`.
        """
        known = self._state.views.get(name)
        if known is not None and self._is_as_registered(known, data):
            same: Future[tuple[LiveView, Future[None] | None]] = Future()
            same.set_result((known, None))
            return same
        with self.versions.holding() as version:  # here, not in the writer's turn: planning reads thousands of rows
            relations = self._state.relations
            parsed = self._parse_view(name, data, relations, version)
        return self._writer.call(lambda: self._put_view(parsed, data, relations, client))

    def drop_view(self, name: str) -> None:
        """Its followers are told; its readers read on. Problem `not-found`."""

        def drop() -> LiveView:
            view = self.view(name)
            self._log.drop_view(name)
            self._builds.cancel(view)
            view.let_go()
            self._state.views = {other: kept for other, kept in self._state.views.items() if other != name}
            self.versions.publish(self._state.version())
            if view.feed is not None:
                view.feed.close(Problem("not-found", f"the view {name} was dropped"))
            return view

        self._writer.call(drop).result()  # the memory of what it gives comes back here, not in the writer's turn

    def at_rest(self, work: Callable[[], T]) -> T:
        """Have `work`, which only reads, done in the writer's thread when the newest version is the published one. Waits for a group."""
        return self._writer.call(work, urgent=True).result()

    def close(self) -> bool:
        """Finish the waiting batches, write a snapshot if that takes no longer than a second, let go of the folder. Returns whether this
        was a clean end: all is on disk, and nothing has failed. A second time does nothing but say so."""
        with self._closing:
            if self.state == "closed":
                return self._is_clean
            self._loading.end()
            try:
                self.retention.stop()
                self._builds.end()
                self._truncates.end()
                if self._is_open and self.state != "failed":
                    self._writer.stop()
                self._housekeeping.pages.stop()
                if self._is_open and self.state != "failed":  # it may have failed on the way
                    self._snapshots.finish()
                elif self._is_open:
                    self._snapshots.abandon()  # it must not go on in a folder that is another's by then
            finally:
                self.state = "closed"
                for view in self._state.views.values():
                    if view.feed is not None:
                        view.feed.close(Problem("recovering", "the service is shutting down"))
                self.stages.close()
                failure = self._writer.failure or (self._snapshots.failure if self._is_open else None)
                try:
                    self._log.close(failure)
                    self._is_clean = failure is None
                except (OSError, sqlite3.Error) as error:
                    log.critical("the log could not be closed, and what is on disk is unknown: %s", error)
        return self._is_clean

    def metrics(self) -> dict[str, Any]:
        """Counters, gauges, and histograms (`Histogram`: bounds, counts, count, sum), for whoever exports them."""
        views = self._state.views.values()
        return {
            "version": self.versions.published.number,
            "pins": len(self.versions),
            "retired_bytes": self._state.retired_bytes,
            "free_bytes": self._state.free_bytes,
            "waiting_batches": self.waiting,
            "writer_busy_seconds": self._writer.busy_seconds,
            "log_bytes": self._snapshots.log_bytes,
            "snapshot_failures": self._snapshots.failures,
            "subscribers": sum(view.feed.subscribers for view in views if view.feed is not None),
            "batches": self._writer.batches,
            "changes": self._writer.changes,
            "update_seconds": self._writer.update_seconds,
            "turn_seconds": self._writer.turn_seconds,
            "checkpoint_seconds": self._housekeeping.checkpoint_seconds,
            "batch_changes": self._writer.batch_changes,
        }

    # for whoever reads and follows (`service.instance`)

    @abstractmethod
    def feed_of(self, view: LiveView, retain: tuple[int, int]) -> DeltaSink:
        """Where the deltas of a view go that is about to be live; `retain`: rows and bytes to keep."""

    @abstractmethod
    def restored_feed_of(self, view: LiveView, retain: tuple[int, int], version: int, stored: Stored | None) -> DeltaSink:
        """The same before it is live, with what a snapshot of this version has stored; all later deltas will come."""

    @abstractmethod
    def sweep(self) -> None:
        """Forget what stood on pins that are gone. The writer's thread, about once a second."""

    # the writer

    def _is_short(self, batch: Batch) -> bool:
        """Whether a single change takes no longer than its views promise: nothing else is due first, or holds a lock that it needs."""
        if self._housekeeping.is_due or self._log.checkpoint_due or self._snapshots.under_way or self._builds.hold_back:
            return False
        name = batch.changes[0].relation
        return all(view.is_prompt(name) for view in self._state.interest.using(name))

    def _parse_view(self, name: str, data: dict[str, Any], relations: Mapping[str, Relation], version: int, kept: bool = False) -> View:
        """Planned by the rows of a version that is held, or of the newest one by the writer."""
        definitions = {name: relation.definition for name, relation in relations.items()}
        counted = partial(estimates_of, relations=relations, version=version)
        return parse_view(name, data, definitions, counted, kept, None if kept else self.limits)

    def _is_as_registered(self, known: LiveView, data: dict[str, Any]) -> bool:
        """Whether a definition means the view, by the definitions of its relations at its registration."""
        definitions = {name: relation.definition for name, relation in self._state.relations.items()} | known.view.relations
        try:
            return parse_view(known.name, data, definitions, None, False, self.limits).query == known.view.query
        except (Problem, WireError):  # to be told by the definitions of now
            return False

    def _put_view(
        self, parsed: View, data: dict[str, Any], relations: Mapping[str, Relation], client: str
    ) -> tuple[LiveView, Future[None] | None]:
        """As `register`. `relations`: as of when it was parsed."""
        known = self._state.views.get(parsed.name)
        if known is not None:
            if known.view.query != parsed.query:
                raise Problem("definition-differs", _OTHER.format("view", parsed.name))
            return known, None
        refuse_more("views", self._state.views, self.settings.max_views)
        self._log.require_room()
        if any(self._state.relations.get(name) is not relations.get(name) for name in parsed.query.named):
            parsed = self._parse_view(parsed.name, data, self._state.relations, self._state.newest)
        with or_no_room(f"the view {parsed.name}"):
            view = LiveView("", parsed, self._state.relations, self._state.indexes)
            if self.kernels.has(rooms_of(parsed.plan)):  # otherwise it would compile some here
                view.make_room()
        view.id = self._log.put_view(parsed.name, parsed.definition, noted(parsed))
        self._add_view(view)
        return view, self._builds.start(view, client)

    def _add_view(self, view: LiveView) -> None:
        self._state.views = {**self._state.views, view.name: view}

    def fail_soon(self, error: BaseException) -> None:
        """Have the service end for what has failed in another thread."""
        with suppress(Problem):  # it ends already
            self._writer.call(partial(fail, error))

    def _failed(self, error: BaseException) -> None:
        self.state = "failed"
        self.on_failure(error)
