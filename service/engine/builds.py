"""Build views beside the writer, on two threads and a third for small views, in the order of a `Line`, once their kernels are compiled.

    begin, in the writer's turn     hold the published version, and record changes to the view's relations from then on
    build                           load that version, some relations at the newest one instead; writers continue
    rounds                          hold the newest version, follow the changes up to it, release the previous one
    last round, in the turn         few changes are left: follow them, and do a step of what can only be done there, such as adopting
                                    shared indexes; after the last step publish the root, and the view is live

A round follows what accumulated during the previous one, so rounds get shorter as long as following is faster than writing. After some
rounds that leave too much, or with millions of changes to follow, the writer takes small batches only until the view is live, for a limited
time (`LargeLane`). A build that is outrun even so fails.

After a start, a view that may be followed is replayed instead: it is built at the version of the snapshot, and then follows all later
changes (`tables/history.py`), version by version, so that its feed has the same content as before. When little is left, it goes live in the
writer's turn. Such a view shares no indexes with others, which are ahead of it, so it counts as one that has outgrown its structures. A
live view that has outgrown its structures is rebuilt in the same way, while it stays in use; the last round replaces its structures.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar, cast

from service.durability.failpoints import reach
from service.engine.state import State
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem
from service.priority import Line
from service.tables.backlog import Backlog, Piece, pieces
from service.tables.history import Passage
from service.tables.relations import Relation
from service.tables.store import NO_NUMBERS
from service.views.deltas import DeltaSink
from service.views.joins.making import rooms_of
from service.views.joins.protocol import Join
from service.views.live_view import LiveView
from service.warming import Kernels

log = logging.getLogger("livejoin.views")

T = TypeVar("T")

_FEW = 1 << 16  # rows of a small view, which is built in a tenth of a second
_LAST_SECONDS = 0.025  # that the last round may take in the turn, judged by earlier, longer rounds: it takes up to twice as long
_FIRST_LAST, _MOST_LAST = 64, 1 << 14  # changes left to the last round: while a build's speed is unknown, and at most
_ROUNDS = 4  # that leave too many changes for the last one; then the writer takes small batches only
_MANY_CHANGES, _MOST_CHANGES = 4_000_000, 32_000_000  # to follow, of 24 bytes each, before it does so, and before the build fails
_MOST_CLOSED, _LEAST_OPEN = 120.0, 60.0  # seconds in which the writer takes small batches only, and after them all batches
_CLOSINGS = 2  # that end before the view is live; then the build fails
_MOST_UNBEGUN = 16_000_000  # changes, of 32 bytes each, before a queued view gives up the earlier content of its feed
_SOON = 1e-3  # seconds until applied changes are published
_LOADED = 0.9  # share of the progress; the rounds have the rest


class _Cancelled(Exception):
    """The view is no longer wanted, or the service is stopping."""


class _Build:
    """A view to be built for a client, rebuilt (`anew`), or replayed. `future` is done when the new structures are live, or the build has
    failed or was cancelled."""

    def __init__(self, view: LiveView, client: str, anew: bool, passage: Passage | None) -> None:
        self.view, self.client, self.anew, self.passage = view, client, anew, passage
        self.begun = False
        self.state = "live" if anew else "building"  # state of the view during the build
        self.is_used = False
        self.backlog = Backlog(view.relations.values())
        self.over = threading.Event()
        self.future = Future[None]()
        self.last = _FIRST_LAST  # most changes that may be left to the last round
        self.rounds = 0  # that have left too many changes for the last one
        self.is_loaded = False
        self.closings = 0  # of the lane of large batches that were for it from the beginning, and have ended before its last round

    @property
    def behind(self) -> Backlog | Passage:
        """The changes that the build has yet to follow."""
        return self.backlog if self.passage is None else self.passage

    @property
    def must_end(self) -> bool:
        """Whether it needs the writer to take small batches only."""
        return self.begun and (self.rounds >= _ROUNDS or self.behind.changes > _MANY_CHANGES)

    def stop(self) -> None:
        """Mark the build as over: done, or not wanted."""
        self.over.set()

    def require(self) -> None:
        """Raise _Cancelled if the build is over, Problem `view-failed` if it will not come to an end."""
        if self.over.is_set():
            raise _Cancelled
        if self.closings >= _CLOSINGS or (self.begun and self.behind.changes > _MOST_CHANGES):
            again = "drop it, and register it again while fewer rows change"
            said = f"the relations of the view {self.view.name} change faster than it can be built"
            raise Problem("view-failed", f"{said}; {again}")

    def report(self, part: float) -> None:
        self.require()
        self.view.progress = max(self.view.progress, part)


class LargeLane:
    """When the writer takes small batches only, for builds: for `_MOST_CLOSED` seconds at most, then not for `_LEAST_OPEN` seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.closed_for: str | None = None  # name of the view that is being built
        self._changes = -math.inf  # time since which it is closed, or from which on it may be
        self._asked: Sequence[_Build] = ()  # those that it was closed for

    def close_for(self, builds: Sequence[_Build]) -> bool:
        """Return whether it is closed, as builds that must end ask for it. The writer's thread, before each group."""
        now = self._clock()
        if self.closed_for is not None and (not builds or now - self._changes > _MOST_CLOSED):
            for build in builds:
                build.closings += build in self._asked
            self.closed_for, self._changes = None, now + _LEAST_OPEN
        if self.closed_for is None and builds and now >= self._changes:
            self._changes, self._asked = now, [build for build in builds if build.is_loaded]
        self.closed_for = builds[0].view.name if builds and now >= self._changes else None
        return self.closed_for is not None


class Builds:
    """Build registered views and make them live. `feed_of` as in `Engine`; `kernels` returns the service's kernels."""

    def __init__(
        self, state: State, writer: Writer, versions: Pins, feed_of: Callable[[LiveView, tuple[int, int]], DeltaSink],
        kernels: Callable[[], Kernels],
    ) -> None:  # fmt: skip
        self._state, self._writer, self._versions, self._feed_of = state, writer, versions, feed_of
        self._kernels = kernels
        self._line: Line[_Build] = Line(_FEW)
        self._threads = ThreadPoolExecutor(Line.THREADS, thread_name_prefix="builder")
        self._lock = threading.Lock()  # guards the next attribute: the writer reads it while other threads begin and end builds
        self._builds: dict[str, _Build] = {}  # by the view's id
        self._in_vain: set[str] = set()  # ids of views that could not be built anew
        self.large_lane = LargeLane()

    # for the engine

    def start(self, view: LiveView, client: str = "", anew: bool = False, passage: Passage | None = None) -> Future[None]:
        """Queue a build of the view, among those of all clients, or a replay if it has a `passage`. The future is done when the view is
        live, or the build has failed or was cancelled. Any thread."""
        with self._lock:
            self._builds[view.id] = build = _Build(view, client, anew, passage)
        self._kernels().when_there(rooms_of(view.view.plan), partial(self._queue, build))
        return build.future

    def _queue(self, build: _Build) -> None:
        self._line.add(build, build.client, build.view.input_rows)
        try:
            self._threads.submit(self._serve)
        except RuntimeError:  # the service is stopping
            self._withdraw(build)

    def _withdraw(self, build: _Build) -> None:
        """Stop a build that is not wanted, and take it out of the line."""
        build.stop()
        if self._line.remove(build):
            build.future.set_result(None)

    def renew(self) -> None:
        """Rebuild the live views that have outgrown their structures. In the writer's turn; O(views)."""
        for view in self._state.views.values():
            if view.state != "live" or view.id in self._builds or view.id in self._in_vain:
                continue
            if self._state.unless_it_fails(view, partial(view.is_outgrown, self._state.newest), False):
                log.info("the view %s is being rebuilt, because its structures no longer fit its data", view.name)
                self.start(view, anew=True)

    def cancel(self, view: LiveView) -> None:
        """Cancel the view's build, running or queued. In the writer's turn."""
        with self._lock:
            build = self._builds.pop(view.id, None)
        self._in_vain.discard(view.id)
        if build is not None:
            self._withdraw(build)
            self._detach(build)

    def end(self) -> None:
        """Cancel all builds. Does not wait: a build that has yet to notice only reads what others write."""
        for build in self._running():
            self._withdraw(build)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def hold_back(self) -> bool:
        """Whether the writer must take small batches only. The writer's thread, before each group."""
        running = self._running() if self._builds else []
        for build in running:
            if not build.begun and build.behind.changes > _MOST_UNBEGUN:
                self._give_up_passage(build)
        return self.large_lane.close_for([build for build in running if build.must_end])

    def _running(self) -> list[_Build]:
        with self._lock:
            return list(self._builds.values())

    # the threads

    def _serve(self) -> None:
        """Run the builds in the line as long as there is one for this thread."""
        while (build := self._line.take()) is not None:
            try:
                self._run(build)
            finally:
                self._line.leave(build)
                build.future.set_result(None)

    def _run(self, build: _Build) -> None:
        try:
            build.require()
            self._kernels().load(rooms_of(build.view.view.plan))  # they are compiled, or never will be
            join = self._in_turn(build, partial(self._make_room, build))
            if self._in_turn(build, partial(self._begin_passage, build)):
                self._replay(build, join)
            else:
                self._build(build, join)
        except _Cancelled:
            pass
        except Exception as error:
            with suppress(_Cancelled):
                self._in_turn(build, partial(self._fail, build, error))
        finally:
            build.stop()
            with self._lock:
                self._builds.pop(build.view.id, None)

    def _in_turn(self, build: _Build, work: Callable[[], T], urgent: bool = False) -> T:
        """Have the writer call `work` (urgent: before the next batch), and return or raise what it does. Raises _Cancelled once the writer
        accepts no more jobs."""

        def attempt() -> tuple[T | None, Exception | None]:
            try:
                return work(), None
            except Exception as error:
                return None, error

        try:
            given, error = self._writer.call(attempt, urgent).result()
        except Problem as problem:
            raise _Cancelled from problem
        if error is not None:
            raise error
        return cast(T, given)

    def _build(self, build: _Build, join: Join) -> None:
        held = ExitStack()
        former = build.view.core  # if the structures are replaced, their memory is freed here, not in the writer's turn
        try:
            version = self._in_turn(build, partial(self._begin, build, join, held))
            started, rows = time.perf_counter(), build.view.input_rows
            held.callback(setattr, join, "hold_newest", None)  # also if the load fails
            join.hold_newest = partial(self._hold_newest, build, held)
            self._load(build, join, version)
            self._pace(build, rows, time.perf_counter() - started)
            reach("in-build")
            build.is_loaded = True
            newest: int | None = version
            while newest is not None:
                newer = ExitStack()
                try:
                    few = build.backlog.changes <= build.last
                    attempt = partial(self._conclude, build, join, newer) if few else partial(self._hold, join, newer)
                    newest = self._in_turn(build, attempt, urgent=True)
                    if newest is not None:
                        self._round(build, join, newest)
                finally:
                    held.close()
                    held = newer
        finally:
            held.close()
            del former
            if not build.is_used:
                with suppress(_Cancelled):
                    self._in_turn(build, lambda: join.abandon(self._state.newest))

    def _replay(self, build: _Build, join: Join) -> None:
        passage = build.passage
        assert passage is not None
        self._load(build, join, passage.version)
        build.is_loaded = True
        reach("in-replay")
        live = False
        while not live:
            self._catch_up_with_history(build, join, passage)
            if passage.left <= build.last:
                live = self._in_turn(build, partial(self._conclude_replay, build, passage))

    def _catch_up_with_history(self, build: _Build, join: Join, passage: Passage) -> None:
        """Follow, version by version, the changes that were recorded before this call."""
        feed = build.view.feed
        assert feed is not None
        started, first, rows = time.perf_counter(), passage.at, passage.left
        while passage.at < first + rows:
            before = passage.at
            self._pass(build, passage)
            while build.view.reclaim(passage.version, NO_NUMBERS):  # except what its feed still reads
                build.require()
            while feed.housekeep(self._versions.published.number, False):
                build.require()
            if passage.at == before:  # the rest is not published yet
                time.sleep(_SOON)
                break
            build.report(_LOADED + (1.0 - _LOADED) * (passage.at / (passage.at + passage.left)))
        self._pace(build, passage.at - first, time.perf_counter() - started)

    def _pass(self, build: _Build, passage: Passage) -> None:
        """Follow a few thousand published changes, and append the resulting deltas to the feed."""
        view = build.view
        assert view.feed is not None
        for step in passage.take(self._versions.published.number):
            build.require()
            if (delta := view.replay(step)) is not None:
                view.feed.append(delta)
            reach("in-replay")
        passage.passed()

    def _begin(self, build: _Build, join: Join, held: ExitStack) -> int:
        if not build.over.is_set():
            build.begun = True
            self._state.attach(build.backlog)
        return self._hold(join, held)

    def _hold(self, join: Join, held: ExitStack) -> int:
        """Hold the newest version."""
        version = held.enter_context(self._versions.holding())
        join.hold(version)
        return version

    def _hold_newest(self, build: _Build, held: ExitStack, relation: Relation) -> int:
        """As `HoldNewest`."""
        version = self._in_turn(build, lambda: held.enter_context(self._versions.holding()), urgent=True)
        build.backlog.skip(relation.name, version)
        return version

    @staticmethod
    def _load(build: _Build, join: Join, version: int) -> None:
        """Load all rows that the relations have at a held version."""
        join.build(version, lambda part: build.report(_LOADED * part))
        build.report(_LOADED)

    def _round(self, build: _Build, join: Join, version: int) -> None:
        """Follow the changes up to a held version."""
        started = time.perf_counter()
        nets = build.backlog.take(version)
        for piece in pieces(nets):
            build.require()
            self._catch_up(build, join, version, piece)
        join.settle()
        while join.reclaim(version, NO_NUMBERS):
            pass
        rows, seconds = sum(max(len(net.gone), len(net.come)) for net in nets), time.perf_counter() - started
        self._pace(build, rows, seconds)
        build.report(1.0 - (1.0 - build.view.progress) / 2)

    @staticmethod
    def _pace(build: _Build, rows: int, seconds: float) -> None:
        """After a round, or a load of `rows`, decide how many changes the last round may have."""
        if rows:
            build.last = max(_FIRST_LAST, min(_MOST_LAST, int(_LAST_SECONDS * rows / seconds)))
            build.rounds += build.behind.changes > build.last

    @staticmethod
    def _catch_up(build: _Build, join: Join, version: int, piece: Piece) -> None:
        """Follow changes up to `version` without producing deltas."""
        join.require(piece.resolved)
        join.catch_up(version, piece.runs)
        if not build.anew:
            build.view.changed_rows += sum(run.rows for run in piece.runs.values())

    # in the writer's turn

    def _is_wanted(self, build: _Build) -> bool:
        return self._state.has(build.view, build.state)

    def _make_room(self, build: _Build) -> Join:
        view = build.view
        if not self._is_wanted(build):
            raise _Cancelled
        if build.anew:
            return view.another()
        if not view.has_room:
            view.make_room(alone=build.passage is not None)
        return view.join

    def _begin_passage(self, build: _Build) -> bool:
        """Begin the replay if the view has a passage; return whether it has."""
        build.begun = build.passage is not None
        return build.begun

    def _give_up_passage(self, build: _Build) -> None:
        """Too many changes were written while the view waited: build it without its history, and let earlier tokens expire."""
        assert build.passage is not None and build.view.feed is not None
        log.warning("tokens of the view %s expire: it is built without its earlier changes, since too many are written", build.view.name)
        self._detach(build)
        build.passage = None
        build.view.feed.restart(self._versions.published.number)

    def _conclude_replay(self, build: _Build, passage: Passage) -> bool:
        """Follow the remaining changes and make the view live. Return whether the replay is over; if too many changes remain, the next call
        may follow more."""
        if not self._is_wanted(build):
            self._detach(build)
            return True
        if passage.left > build.last:
            return False
        while passage.left:
            self._pass(build, passage)
        self._detach(build)
        build.is_used = True
        self._go_live(build.view, replayed=True)
        return True

    def _conclude(self, build: _Build, join: Join, held: ExitStack) -> int | None:
        """Follow the remaining changes and make the view live in the new structures. If too many remain, or a step is left, return the
        newest version, which is held for another round."""
        view = build.view
        if not self._is_wanted(build):
            self._detach(build)
            return None
        version = self._hold(join, held)
        if build.backlog.changes > build.last:
            return version
        for piece in pieces(build.backlog.take(version)):
            self._catch_up(build, join, version, piece)
        if not join.conclude(version):
            return version
        self._detach(build)
        build.is_used = True
        if build.anew:
            view.replace(join)
            self._versions.publish(self._state.version(view))
            log.info("the view %s was rebuilt", view.name)
        else:
            self._go_live(view)
        return None

    def _detach(self, build: _Build) -> None:
        self._state.detach(build.backlog)
        if build.passage is not None:
            self._state.close_passage(build.passage)

    def _go_live(self, view: LiveView, replayed: bool = False) -> None:
        """Publish the view's root, then mark the view as live. `replayed`: its feed has all changes."""
        retain = view.view.query.retain
        if retain is not None and view.feed is None:
            view.feed = self._feed_of(view, retain)
        elif view.feed is not None and not replayed:
            view.feed.restart(self._versions.published.number)
        self._versions.publish(self._state.version(view))
        view.progress = 1.0
        view.state = "live"

    def _fail(self, build: _Build, error: Exception) -> None:
        self._detach(build)
        if not self._is_wanted(build):
            return
        if build.anew:
            self._in_vain.add(build.view.id)
            said = "the view %s could not be rebuilt; it stays in use, but changes to it take longer; to try again, restart the service"
            log.warning(said, build.view.name, exc_info=error)
        else:
            self._state.fail(build.view, error)
