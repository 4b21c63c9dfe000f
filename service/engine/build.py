"""A view's build as a state machine, and when the writer takes small batches only, for builds.

    waiting ──> loading ──> following ──> last round ──> live
       │           │          │   ^           │
       │           │          │   └───────────┤  too much is left, or a step
       └───────────┴──────────┴───────────────┴──> failed, dropped

    waiting      in the line; of a replay, the changes since are recorded
    loading      all rows of a version, some relations at a newer one instead, while others write
    following    the changes since, round by round: each up to a version that is held meanwhile
    last round   in the writer's turn: few changes are left, which are followed, and then a step of what can only be done there, such as
                 adopting shared indexes; after the last step the structures are published
    live, failed, dropped   it is over

    since        None: load the published version, hold a version in each round, and follow the net effect of the changes. A backlog: load
                 the version that it begins at, and follow its changes version by version, so that the view's feed gets each delta: a replay
    replaces     the view is live meanwhile, in its former structures
    without      relations whose rows are left out, as a batch is about to truncate them (`truncates.py`): the batch is applied after the
                 last round, in the same turn, and puts the structures in place of the view's own
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from enum import Enum

from service.errors import Problem
from service.tables.backlog import Backlog
from service.tables.changes import Runs
from service.tables.relations import RowVisibility
from service.tables.resolution import Resolution, inserted
from service.views.deltas import Delta, to_read
from service.views.differences import Difference
from service.views.joins.protocol import Join
from service.views.live_view import LiveView, ViewRoot
from service.views.stages.groups import LoadedGroups
from service.views.stored import StoredView

_LAST_SECONDS = 0.025  # that the last round may take in the turn, judged by earlier, longer rounds: it takes up to twice as long
_FIRST_LAST, _MOST_LAST = 64, 1 << 14  # changes left to the last round: while a build's speed is unknown, and at most
_ROUNDS = 4  # that leave too many changes for the last one; then the writer takes small batches only
_MANY_CHANGES, _MOST_CHANGES = 4_000_000, 32_000_000  # to follow, of 24 bytes each, before it does so, and before the build fails
_MOST_CLOSED, _LEAST_OPEN = 120.0, 60.0  # seconds in which the writer takes small batches only, and after them all batches
_CLOSINGS = 2  # that end before the view is live; then the build fails


class BuildCancelled(Exception):
    """The build is no longer wanted, or the service is stopping."""


class Phase(Enum):
    """See the module docstring."""

    WAITING = "waiting"
    LOADING = "loading"
    FOLLOWING = "following"
    LAST_ROUND = "last round"
    LIVE = "live"
    FAILED = "failed"
    DROPPED = "dropped"


_OVER = (Phase.LIVE, Phase.FAILED, Phase.DROPPED)


class Build:
    """`future` is done when the build is over; `backlog` is None while it waits, unless it is a replay."""

    join: Join  # from the phase `loading` on
    _former: ViewRoot
    _former_core: Join
    is_in_place = False

    def __init__(
        self, view: LiveView, since: Backlog | None = None, replaces: bool = False, without: Collection[str] = ()
    ) -> None:
        self.view, self.replaces, self.without = view, replaces or len(without) > 0, frozenset(without)
        self.backlog, self.is_replay = since, since is not None
        self.phase, self._lock = Phase.WAITING, threading.Lock()
        self.future = Future[None]()
        self.job: Future[None] | None = None  # of the thread that builds
        self.last = _FIRST_LAST  # most changes that may be left to the last round
        self.rounds = 0  # that have left too many changes for the last one
        self.closings = 0  # of the lane of large batches that were for it from the beginning, and have ended before its last round
        self.version = 0  # of this round
        self.held = self.before = ExitStack()  # this version, and that of the previous round until the changes are followed
        self.difference: Difference | None = None  # once it is in place, if the view may be followed
        self._hidden: RowVisibility | None = None
        self._taken: LoadedGroups | None = None  # of groups, those of the rows of `join`

    @property
    def is_over(self) -> bool:
        return self.phase in _OVER

    @property
    def stores(self) -> StoredView | None:
        """The stored view whose table it fills."""
        return self.view if isinstance(self.view, StoredView) and not self.replaces else None

    def make_room(self) -> None:
        """Make empty structures. In the writer's turn. OSError, MemoryError: there is no room."""
        view = self.view
        if self.without:
            self.join, self._hidden = view.without(self.without)
        elif self.replaces:
            self.join = view.another()
        else:
            if not view.has_room:
                view.make_room(own_indexes=self.is_replay)
            self.join = view.join

    def load(self, version: int, progress: Callable[[float], None]) -> None:
        """Load all rows that the relations have at a version; groups that are rebuilt without some also take those of the join."""
        try:
            self.join.build(version, progress)
        finally:
            self.join.hold_newest = None
        if self.stores is not None:
            self.stores.fill(version)
        if self._hidden is not None:
            if (groups := self.view.groups) is not None:
                self._taken = groups.nothing_taken()
                groups.take_beside(self._taken, self.join, progress)
            self._hidden.now = False

    def catch_up(self, version: int, runs: Runs) -> None:
        """Follow changes up to `version` without producing deltas."""
        if self._taken is not None and self.view.groups is not None:
            self.view.groups.follow_taken(self._taken, self.join, version, runs, lambda _: None)
        else:
            self.join.catch_up(version, runs)
        if not self.replaces:
            self.view.changed_rows += sum(run.rows for run in runs.values())

    def release(self) -> None:
        """Release the versions, and what groups have taken for nothing: of a build without some relations in the writer's turn."""
        if self._taken is not None and self.view.groups is not None:
            self.view.groups.drop(self._taken, self.version)
        self._taken = None
        self.before.close()
        self.held.close()

    # for the batch that truncates the relations `without`, in its turn

    def require_room(self, resolved: Mapping[str, Resolution]) -> None:
        """As `LiveView.require`."""
        self.join.require({name: inserted(one) if name in self.without else one for name, one in resolved.items()})

    def put_in_place(self) -> None:
        """Replace the view's structures. The former ones have the version that is held; their memory is freed with this object, not in the
        turn."""
        self._former = self.view.root
        self._former_core = self.view.replace(self.join)
        self.is_in_place = True

    def apply(self, version: int, runs: Runs) -> Delta | None:
        """Follow the batch, once in place; return the delta if the view may be followed."""
        view, taken = self.view, self._taken
        self._taken = None
        delta = view.apply_without(version, runs, self.without, taken)
        if view.view.query.retain is None or view.groups is not None:
            return delta
        mine = {name: run for name, run in runs.items() if name in view.relations}
        self.difference = Difference(view, version, self.without, mine, self._former, view.root, self.held.pop_all())
        return to_read(version, self.difference)

    # its state

    @property
    def following(self) -> Backlog:
        """The changes that it has yet to follow, once it has begun."""
        assert self.backlog is not None
        return self.backlog

    @property
    def has_begun(self) -> bool:
        return not self.is_over and self.phase != Phase.WAITING

    @property
    def must_end(self) -> bool:
        """Whether it needs the writer to take small batches only."""
        return self.has_begun and (self.rounds >= _ROUNDS or self.following.changes > _MANY_CHANGES)

    @property
    def state(self) -> str:
        """The state of the view during the build."""
        return "live" if self.replaces else "building"

    def enter(self, phase: Phase) -> None:
        """Enter a phase, unless the build is over. Any thread."""
        with self._lock:
            if not self.is_over:
                self.phase = phase

    def require(self) -> None:
        """Raise Cancelled if the build is over, Problem `view-failed` if it will not come to an end."""
        if self.is_over:
            raise BuildCancelled
        if self.closings >= _CLOSINGS or (self.has_begun and self.following.changes > _MOST_CHANGES):
            again = "drop it, and register it again while fewer rows change"
            said = f"the relations of the view {self.view.name} change faster than it can be built"
            raise Problem("view-failed", f"{said}; {again}")

    def report(self, part: float) -> None:
        self.require()
        self.view.progress = max(self.view.progress, part)

    def pace(self, rows: int, seconds: float) -> None:
        """After a round, or a load of `rows`, decide how many changes the last round may have."""
        if rows:
            self.last = max(_FIRST_LAST, min(_MOST_LAST, int(_LAST_SECONDS * rows / seconds)))


class LargeLane:
    """When the writer takes small batches only, for builds: for `_MOST_CLOSED` seconds at most, then not for `_LEAST_OPEN` seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.closed_for: str | None = None  # name of the view that is being built
        self._changes = -math.inf  # time since which it is closed, or from which on it may be
        self._asked: Sequence[Build] = ()  # those that it was closed for

    def close_for(self, builds: Sequence[Build]) -> bool:
        """Return whether it is closed, as builds that must end ask for it. The writer's thread, before each group."""
        now = self._clock()
        if self.closed_for is not None and (not builds or now - self._changes > _MOST_CLOSED):
            for build in builds:
                build.closings += build in self._asked
            self.closed_for, self._asked, self._changes = None, (), now + _LEAST_OPEN
        if self.closed_for is None and builds and now >= self._changes:
            self._changes, self._asked = now, [build for build in builds if build.phase != Phase.LOADING]
        self.closed_for = builds[0].view.name if builds and now >= self._changes else None
        return self.closed_for is not None
