"""Views are built beside the writer, two at a time and a small one, in the order of a `Line` once their kernels are there.

    begin, in the writer's turn     hold the published version, and note from then on what changes in the view's relations
    build                           at the version that is held; writers go on
    rounds                          hold the newest version, follow what has changed up to it, let go of the one before
    last round, in the turn         what has changed since is little: follow it, do a step of what can only be done there, such as to take
                                    what other views have too; after the last step publish the root, and the view is live

A round is what has accumulated during the one before, so rounds get shorter as long as following is faster than writing. Where it is
not, the writer pauses after each group for as long as the build takes for its changes, twice over, so that the next round is half as long;
of two builds for the slower one. How long it takes for them the load tells before the first round.

After a start, a view that may be followed is replayed instead: it is built at the version of the snapshot, and then passes through all
that has changed since (`tables/history.py`), version by version, so that its feed has again what it had before, and misses nothing of what
is written meanwhile. It goes live, in the writer's turn, when little is left. Such a view shares no indexes with others, which are ahead of
it; the next look at views that have outgrown their structures finds that, and it is built anew with those that it can share.

A live view that has outgrown its structures is built anew in the same way, in others, while it lives on; in the last round these replace
its own.
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

import numpy as np

from service.durability.failpoints import reach
from service.engine.state import State
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem
from service.priority import Line, give_way
from service.tables.backlog import Backlog, Piece, pieces
from service.tables.history import Passage
from service.views.deltas import DeltaSink
from service.views.joins.making import rooms_of
from service.views.joins.protocol import Join
from service.views.live_view import LiveView
from service.warming import Kernels

log = logging.getLogger("livejoin.views")

T = TypeVar("T")

_FEW = 1 << 16  # rows of a small view: built in a tenth of a second
_NICE = 3  # of the threads: beside two builds on two cores, writers keep half of their rows, and builds take less than three times as long
_LAST_SECONDS = 0.01  # that the last round may take in the turn, as far as the others tell
_FIRST_LAST, _MOST_LAST = 64, 8192  # changes of the last round: while nothing is known of a build's speed; at most
_MOST_CHANGES = 4_000_000  # changes, of 24 bytes, before the writer waits for the build
_MOST_UNBEGUN = 16_000_000  # of 32 bytes, before a view that waits for its turn gives up what its feed has had before
_LONGEST_PAUSE = 1.0  # seconds, after a group
_FEW_GROUPS = 1 << 17  # changes
_LOADED_A_CHANGE = 2  # rows that are loaded while one is followed that has changed, which goes and comes
_SOON = 1e-3  # seconds in which what is applied is published
_NO_PINS = np.empty(0, np.int64)  # nobody reads a view before it is live
_LOADED = 0.9  # of the progress: the rest is for the rounds


class _Cancelled(Exception):
    """Nobody wants the view any more, or the service ends."""


class _Build:
    """One view that is to be built for a client, or built `anew`, or replayed. `future`: done when it is live in what was built, has
    failed, or was cancelled."""

    def __init__(self, view: LiveView, client: str, anew: bool, passage: Passage | None) -> None:
        self.view, self.client, self.anew, self.passage = view, client, anew, passage
        self.begun = False
        self.state = "live" if anew else "building"  # of the view meanwhile
        self.is_used = False
        self.backlog = Backlog(view.relations.values())
        self.over = threading.Event()
        self.future = Future[None]()
        self.rows = _MOST_CHANGES  # of the round before
        self.last = _FIRST_LAST  # changes that may be left to the last round
        self.pause = 0.0  # seconds that the writer is to pause for each change
        self.seen = 0  # changes for which it has paused
        self.asks = threading.Event()  # it waits for the writer's turn, or is over: then the writer does not pause for it

    @property
    def behind(self) -> Backlog | Passage:
        """What it has to follow still."""
        return self.backlog if self.passage is None else self.passage

    @property
    def holds_back(self) -> bool:
        return self.pause > 0.0 or (self.begun and self.behind.changes > _MOST_CHANGES)

    def stop(self) -> None:
        """It is over: done, or not wanted."""
        self.over.set()
        self.asks.set()

    def answered(self) -> None:
        """It has had the writer's turn."""
        self.asks.clear()
        if self.over.is_set():
            self.asks.set()

    def require(self) -> None:
        """Raises _Cancelled."""
        if self.over.is_set():
            raise _Cancelled

    def report(self, part: float) -> None:
        self.require()
        self.view.progress = max(self.view.progress, part)


def _rows(view: LiveView) -> int:
    """That are loaded for it."""
    return sum(relation.table.rows for relation in view.relations.values())


class Builds:
    """Brings registered views to life. `feed_of` as in `Engine`; `kernels` gives those of the service."""

    def __init__(
        self, state: State, writer: Writer, versions: Pins, feed_of: Callable[[LiveView, tuple[int, int]], DeltaSink],
        kernels: Callable[[], Kernels],
    ) -> None:  # fmt: skip
        self._state, self._writer, self._versions, self._feed_of = state, writer, versions, feed_of
        self._kernels = kernels
        self._line: Line[_Build] = Line(_FEW)
        self._threads = ThreadPoolExecutor(Line.THREADS, thread_name_prefix="builder", initializer=partial(give_way, _NICE))
        self._lock = threading.Lock()  # on the next: the writer looks at it while others begin and end
        self._builds: dict[str, _Build] = {}  # by the view's id
        self._in_vain: set[str] = set()  # ids of views that could not be built anew

    # for the engine

    def start(self, view: LiveView, client: str = "", anew: bool = False, passage: Passage | None = None) -> Future[None]:
        """Build it when its turn comes, among those of all clients, or replay it if it has a `passage`; done when it is live, has failed,
        or was cancelled. Any thread."""
        build = _Build(view, client, anew, passage)
        with self._lock:
            self._builds[view.id] = build
        self._kernels().when_there(rooms_of(view.view.plan), partial(self._queue, build))
        return build.future

    def _queue(self, build: _Build) -> None:
        self._line.add(build, build.client, _rows(build.view))
        try:
            self._threads.submit(self._serve)
        except RuntimeError:  # the service ends
            self._withdraw(build)

    def _withdraw(self, build: _Build) -> None:
        """It is not wanted: nobody takes it out of the line."""
        build.stop()
        if self._line.remove(build):
            build.future.set_result(None)

    def renew(self) -> None:
        """Build those live views anew whose structures are outgrown. In the writer's turn; O(views)."""
        for view in self._state.views.values():
            if view.state != "live" or view.id in self._builds or view.id in self._in_vain:
                continue
            if self._state.unless_it_fails(view, partial(view.is_outgrown, self._state.newest), False):
                log.info("the view %s is being rebuilt, because its structures no longer fit its data", view.name)
                self.start(view, anew=True)

    def cancel(self, view: LiveView) -> None:
        """Give it up if it is being built, or waits for that. In the writer's turn."""
        with self._lock:
            build = self._builds.pop(view.id, None)
        self._in_vain.discard(view.id)
        if build is not None:
            self._withdraw(build)
            self._detach(build)

    def end(self) -> None:
        """Cancel all. Does not wait: a build that has not noticed yet only reads what others write."""
        for build in self._running():
            self._withdraw(build)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def hold_back(self) -> bool:
        """Whether the writer is to pause after what it does next."""
        return bool(self._builds) and any(build.holds_back for build in self._running())

    def pause(self) -> None:
        """Let builds catch up that fall behind, once for what a group has changed. The writer's thread."""
        if not self._builds:
            return
        building = self._running()
        slowest, longest = None, 0.0
        for build in building:
            noted = build.behind.noted
            fresh, build.seen = noted - build.seen, noted
            if build.pause * fresh > longest:
                slowest, longest = build, build.pause * fresh
        if slowest is not None:
            slowest.asks.wait(min(_LONGEST_PAUSE, longest))
        for build in building:
            if not build.begun and build.behind.changes > _MOST_UNBEGUN:
                self._give_up_passage(build)
            while build.begun and build.behind.changes > _MOST_CHANGES and not build.asks.wait(0.01):
                self._writer.beat()

    def _running(self) -> list[_Build]:
        with self._lock:
            return list(self._builds.values())

    # the threads

    def _serve(self) -> None:
        """What comes next, for as long as there is something for this thread."""
        while (build := self._line.take()) is not None:
            try:
                self._run(build)
            finally:
                self._line.leave(build)
                build.future.set_result(None)

    def _run(self, build: _Build) -> None:
        try:
            build.require()
            self._kernels().require(rooms_of(build.view.view.plan))  # they are there, or will never be
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

    def _in_turn(self, build: _Build, work: Callable[[], T]) -> T:
        """What `work` gives or raises, which the writer does. Raises _Cancelled once it takes nothing any more."""

        def attempt() -> tuple[T | None, Exception | None]:
            try:
                return work(), None
            except Exception as error:
                return None, error

        build.asks.set()
        try:
            given, error = self._writer.call(attempt).result()
        except Problem as problem:
            raise _Cancelled from problem
        finally:
            build.answered()
        if error is not None:
            raise error
        return cast(T, given)

    def _build(self, build: _Build, join: Join) -> None:
        held = ExitStack()
        former = build.view.core  # if it is replaced, its memory is freed here, not in the writer's turn
        try:
            version = self._in_turn(build, partial(self._begin, build, join, held))
            started, rows = time.perf_counter(), _rows(build.view)
            self._load(build, join, version)
            self._pace(build, -(-rows // _LOADED_A_CHANGE), time.perf_counter() - started, build.backlog.changes)
            reach("in-build")
            newest: int | None = version
            while newest is not None:
                newer = ExitStack()
                try:
                    few = build.backlog.changes <= build.last
                    attempt = partial(self._conclude, build, join, newer) if few else partial(self._hold, join, newer)
                    newest = self._in_turn(build, attempt)
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
        reach("in-replay")
        live = False
        while not live:
            self._catch_up_with_history(build, join, passage)
            if passage.left <= build.last:
                live = self._in_turn(build, partial(self._conclude_replay, build, passage))

    def _catch_up_with_history(self, build: _Build, join: Join, passage: Passage) -> None:
        """Follow, version by version, what was noted before this began."""
        feed = build.view.feed
        assert feed is not None
        started, first, rows = time.perf_counter(), passage.at, passage.left
        while passage.at < first + rows:
            before = passage.at
            self._pass(build, passage)
            while build.view.reclaim(passage.version, _NO_PINS):  # not what its feed still reads
                build.require()
            while feed.housekeep(self._versions.published.number, False):
                build.require()
            if passage.at == before:  # the rest is not published yet
                time.sleep(_SOON)
                break
            build.report(_LOADED + (1.0 - _LOADED) * (passage.at / (passage.at + passage.left)))
        self._pace(build, rows, time.perf_counter() - started, passage.left)

    def _pass(self, build: _Build, passage: Passage) -> None:
        """Follow some thousand changes that are published, and give the feed what they come to."""
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
            self._state.backlogs = [*self._state.backlogs, build.backlog]
        return self._hold(join, held)

    def _hold(self, join: Join, held: ExitStack) -> int:
        """Hold the newest version."""
        version = held.enter_context(self._versions.holding())
        join.hold(version)
        return version

    @staticmethod
    def _load(build: _Build, join: Join, version: int) -> None:
        """Load everything that the relations have at a version, which is held."""
        join.build(version, lambda part: build.report(_LOADED * part))
        build.report(_LOADED)

    def _round(self, build: _Build, join: Join, version: int) -> None:
        """Follow what has changed up to a version that is held."""
        started = time.perf_counter()
        nets = build.backlog.take(version)
        for piece in pieces(nets):
            build.require()
            self._catch_up(build, join, version, piece)
        join.settle()
        while join.reclaim(version, _NO_PINS):
            pass
        self._pace(build, sum(max(len(net.gone), len(net.come)) for net in nets), time.perf_counter() - started, build.backlog.changes)
        build.report(1.0 - (1.0 - build.view.progress) / 2)

    @staticmethod
    def _pace(build: _Build, rows: int, seconds: float, left: int) -> None:
        """A round of so many changed rows has left so many: how long may the last one be, and is the writer too fast?"""
        if not rows:
            return
        is_no_shorter, build.rows = rows >= build.rows, rows
        each = seconds / rows
        build.last = max(build.last, min(_MOST_LAST, int(_LAST_SECONDS / each)))
        falls_behind = left > max(build.last, rows // 2)
        build.pause = 2 * each if falls_behind else 0.0
        if rows <= _FEW_GROUPS and (falls_behind or is_no_shorter):  # it is as long as what comes between two of the build's turns
            build.last *= 2

    @staticmethod
    def _catch_up(build: _Build, join: Join, version: int, piece: Piece) -> None:
        """Follow changes up to `version`: nobody is told."""
        join.require(piece.resolved)
        join.apply(version, piece.runs, None)
        if not build.anew:
            build.view.changed_rows += sum(run.rows for run in piece.runs.values())

    # in the writer's turn

    def _is_wanted(self, build: _Build) -> bool:
        return self._state.views.get(build.view.name) is build.view and build.view.state == build.state

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
        """Whether it is replayed."""
        build.begun = build.passage is not None
        return build.begun

    def _give_up_passage(self, build: _Build) -> None:
        """Too much is written while it waits for its turn: it is built as it is then, and earlier tokens expire."""
        assert build.passage is not None and build.view.feed is not None
        log.warning("tokens of the view %s expire: it is built without its earlier changes, since too many are written", build.view.name)
        self._detach(build)
        build.passage = None
        build.view.feed.restart(self._versions.published.number)

    def _conclude_replay(self, build: _Build, passage: Passage) -> bool:
        """Follow the rest, and let the view live; whether it does, or is not wanted: if the rest is too long, more is allowed next time."""
        if not self._is_wanted(build):
            self._detach(build)
            return True
        if passage.left > build.last:
            build.last *= 2
            return False
        while passage.left:
            self._pass(build, passage)
        self._detach(build)
        build.is_used = True
        self._go_live(build.view, replayed=True)
        return True

    def _conclude(self, build: _Build, join: Join, held: ExitStack) -> int | None:
        """Follow the rest, and let the view live in what was built; if the rest is too long, or another step is left, the newest version,
        which is held for a further round. More is allowed each time: batches that wait could always be before this."""
        view = build.view
        if not self._is_wanted(build):
            self._detach(build)
            return None
        version = self._hold(join, held)
        if build.backlog.changes > build.last:
            build.last *= 2
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
        self._state.backlogs = [backlog for backlog in self._state.backlogs if backlog is not build.backlog]
        if build.passage is not None:
            self._state.close_passage(build.passage)

    def _go_live(self, view: LiveView, replayed: bool = False) -> None:
        """Its root is published before anybody is told that it can be read. `replayed`: its feed has all changes."""
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
