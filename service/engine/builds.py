"""Build views beside the writer, small ones on two threads and the others on two more, in order, once their kernels are compiled.

`build.py` has the phases of a build. A round follows what accumulated during the previous one, so rounds get shorter as long as following
is faster than writing. After some rounds that leave too much, or with millions of changes to follow, the writer takes small batches only
until the view is live, for a limited time (`LargeLane`). A build that is outrun even so fails.

After a start, a view that may be followed is replayed: it is built at the version of the snapshot, and then follows all later changes, so
that its feed has the same content as before. Such a view shares no indexes with others, which are ahead of it, so it counts as one that has
outgrown its structures. A live view that has outgrown its structures is rebuilt, while it stays in use.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar, cast

from service.durability.failpoints import reach
from service.engine.build import Build, BuildCancelled, LargeLane, Phase
from service.engine.state import State
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem
from service.tables.backlog import Backlog, Piece, pieces
from service.tables.relations import Relation
from service.tables.store import NO_NUMBERS
from service.views.deltas import DeltaSink
from service.views.joins.making import rooms_of
from service.views.live_view import LiveView
from service.warming import Kernels

log = logging.getLogger("livejoin.views")

T = TypeVar("T")

_FEW = 1 << 16  # rows of a small view, which is built in a tenth of a second
_MOST_UNBEGUN = 16_000_000  # changes, of 24 bytes each, before a queued view gives up the earlier content of its feed
_SOON = 1e-3  # seconds until applied changes are published
_LOADED = 0.9  # share of the progress; the rounds have the rest


class Builds:
    """Build registered views and make them live. `feed_of` as in `Engine`; `kernels` returns the service's kernels."""

    def __init__(
        self, state: State, writer: Writer, versions: Pins, feed_of: Callable[[LiveView, tuple[int, int]], DeltaSink],
        kernels: Callable[[], Kernels],
    ) -> None:  # fmt: skip
        self._state, self._writer, self._versions, self._feed_of = state, writer, versions, feed_of
        self._kernels = kernels
        self._large, self._small = (ThreadPoolExecutor(2, thread_name_prefix="builder") for _ in range(2))
        self._lock = threading.Lock()  # held to replace the next attribute
        self._builds: list[Build] = []  # that are not over; replaced, never changed
        self._in_vain: set[str] = set()  # ids of views that could not be rebuilt
        self.large_lane = LargeLane()

    # for the engine

    def start(self, view: LiveView, since: Backlog | None = None) -> Future[None]:
        """Queue a build of the view, after those of the stored views that it reads, or a replay of the changes `since`. The future is done
        when the view is live, or the build has failed or was cancelled. Any thread."""
        return self._start(Build(view, since))

    def rebuild(self, view: LiveView) -> Future[None]:
        """Queue a rebuild of a live view, which is used meanwhile. The future is done when the new structures are in use, or the build has
        failed, or was cancelled because the view was dropped; it logs a failure, and `renew` does not try again. Any thread."""
        return self._start(Build(view, replaces=True))

    def _start(self, build: Build) -> Future[None]:
        before = [one.future for one in self._builds if one.view.name in build.view.view.stored]
        self._note(build)
        self._go_on_after(before, build)
        return build.future

    def _go_on_after(self, before: list[Future[None]], build: Build) -> None:
        """Queue the build once these are done."""
        while before:
            if not before[-1].done():
                before[-1].add_done_callback(lambda _: self._go_on_after(before, build))
                return
            before.pop()
        self._kernels().when_there(rooms_of(build.view.view.plan), partial(self._queue, build))

    def _note(self, build: Build) -> None:
        with self._lock:
            self._builds = [*self._builds, build]

    def _forget(self, build: Build) -> None:
        with self._lock:
            self._builds = [other for other in self._builds if other is not build]

    def _queue(self, build: Build) -> None:
        threads = self._small if build.view.input_rows <= _FEW else self._large
        try:
            build.job = threads.submit(self._serve, build)
        except RuntimeError:  # the service is stopping
            build.enter(Phase.DROPPED)
            build.future.set_result(None)

    def _withdraw(self, build: Build) -> None:
        """End a build that is not wanted."""
        build.enter(Phase.DROPPED)
        if build.job is not None and build.job.cancel() and not build.future.done():
            build.future.set_result(None)

    def renew(self) -> None:
        """Rebuild the live views that have outgrown their structures. In the writer's turn; O(views)."""
        built = {build.view for build in self._builds}
        self._state.indexes.renew()
        for view in self._state.maintained:
            if view.state != "live" or view in built or view.id in self._in_vain:
                continue
            if self._state.unless_it_fails(view, partial(view.is_outgrown, self._state.newest), False):
                log.info("the view %s is being rebuilt, because its structures no longer fit its data", view.name)
                self.rebuild(view)

    def cancel(self, view: LiveView) -> None:
        """Cancel the view's builds, running or queued. In the writer's turn."""
        self._in_vain.discard(view.id)
        for build in self._builds:
            if build.view is view:
                self._forget(build)
                self._withdraw(build)
                self._detach(build)

    def end(self) -> None:
        """Cancel all builds. Does not wait: a build that has yet to notice only reads what others write."""
        for build in self._builds:
            self._withdraw(build)
        for threads in (self._large, self._small):
            threads.shutdown(wait=False, cancel_futures=True)

    def hold_back(self) -> bool:
        """Whether the writer must take small batches only. The writer's thread, before each group."""
        for build in self._builds:
            if build.phase == Phase.WAITING and build.backlog is not None and build.backlog.changes > _MOST_UNBEGUN:
                self._give_up_replay(build)
        return self.large_lane.close_for([build for build in self._builds if build.must_end])

    # the threads

    def _serve(self, build: Build) -> None:
        try:
            self._run(build)
        finally:
            build.future.set_result(None)

    def _run(self, build: Build) -> None:
        try:
            build.require()
            self._kernels().load(rooms_of(build.view.view.plan))  # they are compiled, or never will be
            self._build(build)
        except BuildCancelled:
            pass
        except Exception as error:
            with suppress(BuildCancelled):
                self._in_turn(partial(self._fail, build, error))
        finally:
            build.enter(Phase.DROPPED)
            self._forget(build)

    def _in_turn(self, work: Callable[[], T], urgent: bool = False) -> T:
        """Have the writer call `work` (urgent: before the next batch), and return or raise what it does. Raises Cancelled once the writer
        accepts no more jobs."""

        def attempt() -> tuple[T | None, Exception | None]:
            try:
                return work(), None
            except Exception as error:
                return None, error

        try:
            given, error = self._writer.call(attempt, urgent).result()
        except Problem as problem:
            raise BuildCancelled from problem
        if error is not None:
            raise error
        return cast(T, given)

    def _build(self, build: Build) -> None:
        former = build.view.core if build.replaces else None  # its memory is freed here, not in the writer's turn
        try:
            self._begin_and_load(build)
            reach("in-replay") if build.is_replay else reach("in-build")
            while not self._in_turn(partial(self._last_round, build), urgent=True):
                self.go_on(build)
        finally:
            build.release()
            del former
            if build.phase != Phase.LIVE and not build.is_replay and hasattr(build, "join"):
                with suppress(BuildCancelled):
                    self._in_turn(lambda: build.join.abandon(self._state.newest))

    def _begin_and_load(self, build: Build) -> None:
        self._in_turn(partial(self._begin, build))
        started, rows = time.perf_counter(), build.view.input_rows
        self._load(build, build.version)
        if not build.is_replay:
            build.pace(rows, time.perf_counter() - started)

    @staticmethod
    def _load(build: Build, version: int) -> None:
        """Load all rows that the relations have at a version; from then on, the build follows changes."""
        build.load(version, lambda part: build.report(_LOADED * part))
        build.report(_LOADED)
        build.enter(Phase.FOLLOWING)

    def _hold_newest(self, build: Build, relation: Relation) -> int:
        """As `HoldNewest`."""
        version = self._in_turn(lambda: build.held.enter_context(self._versions.holding()), urgent=True)
        build.following.skip(relation.name, version)
        return version

    def _round(self, build: Build) -> None:
        """Follow the changes up to the held version."""
        started, version = time.perf_counter(), build.version
        rows = self._follow(build, version)
        build.join.settle()
        while build.join.reclaim(version, NO_NUMBERS):
            pass
        build.pace(rows, time.perf_counter() - started)
        build.report(1.0 - (1.0 - build.view.progress) / 2)

    def _follow(self, build: Build, version: int) -> int:
        """Follow the net effect of the changes up to `version` without producing deltas; return the number of rows."""
        nets = [net for net in build.following.take(version) if net.relation.name not in build.without]
        for piece in pieces(nets):
            if build.phase != Phase.LAST_ROUND:
                build.require()
            self._catch_up(build, version, piece)
        return sum(max(len(net.deleted), len(net.inserted)) for net in nets)

    @staticmethod
    def _catch_up(build: Build, version: int, piece: Piece) -> None:
        build.join.require(piece.resolved)
        build.catch_up(version, piece.runs)

    def _replay(self, build: Build) -> None:
        """Follow the changes that were recorded before this call, version by version."""
        view, backlog, feed = build.view, build.following, build.view.feed
        started, first, rows = time.perf_counter(), backlog.passed_changes, backlog.left
        while backlog.passed_changes < first + rows:
            before = backlog.passed_changes
            self._replay_some(build)
            while view.reclaim(backlog.version, NO_NUMBERS):  # except what its feed still reads
                build.require()
            while feed is not None and feed.housekeep(self._versions.published.number, False):
                build.require()
            if backlog.passed_changes == before:  # the rest is not published yet
                time.sleep(_SOON)
                break
            build.report(_LOADED + (1.0 - _LOADED) * (backlog.passed_changes / (backlog.passed_changes + backlog.left)))
        build.pace(backlog.passed_changes - first, time.perf_counter() - started)

    def _replay_some(self, build: Build) -> None:
        """Follow a few thousand published changes, and append the resulting deltas to the feed, or store them."""
        view = build.view
        for step in build.following.steps(self._versions.published.number):
            build.require()
            if (delta := view.replay(step)) is not None and view.feed is not None:
                view.feed.append(delta)
            elif delta is not None and build.stores is not None:
                for version, run in build.stores.store(delta):
                    self._state.recorder.note(version, {view.name: run})
            reach("in-replay")
        build.following.passed()

    # for truncates

    def prepare(self, build: Build) -> None:
        """Begin a build at once, in this thread, and load it; `finish` must follow. Raises Cancelled, and what loading raises."""
        self._note(build)
        self._begin_and_load(build)

    def go_on(self, build: Build) -> None:
        """Follow, in a round, what has changed up to the held version."""
        build.enter(Phase.FOLLOWING)
        (self._replay if build.is_replay else self._round)(build)
        build.before.close()

    def follow_rest(self, build: Build) -> bool:
        """Follow what is left. In the writer's turn; if that is too much for it, return False: the newest version is held for a round."""
        if not build.is_replay:
            self._hold(build)
        if build.following.left > build.last:
            build.rounds += build.following.changes > build.last
            return False
        build.enter(Phase.LAST_ROUND)
        if build.is_replay:
            while build.following.left:
                self._replay_some(build)
        else:
            self._follow(build, build.version)
        return True

    def finish(self, build: Build, phase: Phase) -> None:
        """End a build that was prepared. In the writer's turn."""
        build.enter(phase)
        self._forget(build)
        self._detach(build)
        build.release()
        build.future.set_result(None)

    # in the writer's turn

    def _is_wanted(self, build: Build) -> bool:
        return not build.is_over and self._state.has(build.view, build.state)

    def _begin(self, build: Build) -> None:
        """Make room for the structures, and hold the version to load."""
        if not self._is_wanted(build):
            self._detach(build)
            raise BuildCancelled
        build.make_room()
        if build.backlog is None and build.stores is not None:
            build.backlog, build.is_replay = self._state.recorder.open_steps(build.view.relations.values(), self._state.newest), True
        elif build.backlog is None:
            build.backlog = self._state.recorder.open(build.view.relations.values())
        build.enter(Phase.LOADING)
        if build.is_replay:
            build.version = build.backlog.version
        else:
            build.join.hold_newest = partial(self._hold_newest, build)
            self._hold(build)

    def _hold(self, build: Build) -> None:
        """Hold the newest version for a round; also that of views, if the former structures are to be read."""
        build.before, build.held = build.held, ExitStack()
        build.version = build.held.enter_context(self._versions.holding(rows_only=not build.without))
        build.join.hold(build.version)

    def _last_round(self, build: Build) -> bool:
        """Follow the remaining changes and make the view live in the new structures; return whether the build is over. If not, as too many
        remain, or a step is left, the newest version is held for another round."""
        if not self._is_wanted(build):
            self._detach(build)
            return True
        if not self.follow_rest(build) or not (build.is_replay or build.join.conclude(build.version)):
            return False
        self._detach(build)
        self._go_live(build)
        return True

    def _go_live(self, build: Build) -> None:
        """Publish the view's root in the new structures, then mark the view as live."""
        view = build.view
        retain = view.view.query.retain
        build.enter(Phase.LIVE)
        if build.replaces:
            view.replace(build.join)
            self._versions.publish(self._state.version(view))
            log.info("the view %s was rebuilt", view.name)
            return
        if build.stores is not None:
            view.progress, view.state = 1.0, "live"
            return
        if retain is not None and view.feed is None and view.id:  # one that is to replace another gets its feed then
            view.feed = self._feed_of(view, retain)
        elif view.feed is not None and not build.is_replay:  # the feed of a replay has all changes
            view.feed.restart(self._versions.published.number)
        self._versions.publish(self._state.version(view))
        view.progress = 1.0
        view.state = "live"

    def _give_up_replay(self, build: Build) -> None:
        """Too many changes were written while the view waited: build it without its history, and let earlier tokens expire; also those of
        views that read it."""
        self._detach(build)
        build.backlog, build.is_replay = None, False
        if (feed := build.view.feed) is not None:
            said = "tokens of the view %s expire: it is built without its earlier changes, since too many are written"
            log.warning(said, build.view.name)
            feed.restart(self._versions.published.number)
        for other in self._builds:
            if build.view.name in other.view.view.stored and other.phase == Phase.WAITING and other.is_replay:
                self._give_up_replay(other)

    def _detach(self, build: Build) -> None:
        if build.backlog is not None:
            self._state.recorder.close(build.backlog)

    def _fail(self, build: Build, error: Exception) -> None:
        self._detach(build)
        if not self._is_wanted(build):
            return
        build.enter(Phase.FAILED)
        if build.replaces and isinstance(error, OSError | MemoryError):
            build.view.lack_room(error)
        elif build.replaces:
            self._in_vain.add(build.view.id)
            said = "the view %s could not be rebuilt; it stays in use, but changes to it take longer; to try again, restart the service"
            log.warning(said, build.view.name, exc_info=error)
        else:
            self._state.fail(build.view, error)
