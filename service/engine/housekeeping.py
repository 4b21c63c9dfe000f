"""Recurring work that writes and time make due: settling feeds, reclaiming memory, expiring pins, snapshots. Done in pieces.

    tasks   feed, feed, ...  view, view, ...  shared indexes  table, table, ...  pins
            each is called, for a few milliseconds at a time, until it reports that nothing is left

A round begins when enough rows have changed or a second has passed, and takes as many turns of the writer as it needs: a share of each
change's time, and all idle time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

from service.durability.log import Log
from service.engine.snapshotting import SnapshotWriter
from service.engine.state import State
from service.engine.versions import Pins, VersionsInUse
from service.histogram import Histogram
from service.settings import Settings
from service.tables.relations import Relation
from service.views.deltas import DeltaSink

_RATE = 1.0  # seconds between two checks of the pins
_WORTH_RECLAIMING = 512  # changed rows


class Housekeeping:
    """Used by the writer. Once a second, after pins have expired, it calls `sweep`, and `renew`, which looks for views to rebuild."""

    def __init__(
        self, state: State, log: Log, versions: Pins, settings: Settings, sweep: Callable[[], None], renew: Callable[[], None]
    ) -> None:
        self._state, self._log, self._versions = state, log, versions
        self._settings, self._sweep, self._renew = settings, sweep, renew
        self.snapshots: SnapshotWriter | None = None  # set once the folder is loaded
        self.checkpoint_seconds = Histogram()
        self._looked = time.monotonic()
        self._tasks: deque[Callable[[], bool]] = deque()
        self._everything = False  # whether the next round is a full one, as once a second
        self._giving_up = 1  # versions to expire at the next check: there may be thousands of pins

    @property
    def _aged(self) -> bool:
        return time.monotonic() - self._looked > _RATE

    def piece(self) -> bool:
        """Do a piece of what is due; return whether there is more. Called after groups, while nothing waits, and once a second."""
        if self._log.checkpoint_due:
            started = time.perf_counter()
            self._log.checkpoint_if_due()
            self.checkpoint_seconds.observe(time.perf_counter() - started)
            return True
        if self._aged:
            self._looked, self._everything = time.monotonic(), True
            self._versions.expire_idle(self._settings.pin_idle)
            if self.snapshots is not None:
                self.snapshots.consider()
        if not self._tasks and (self._everything or self._state.rows_changed >= _WORTH_RECLAIMING):
            self._begin()
        if not self._tasks:
            return False
        if not self._tasks[0]():
            self._tasks.popleft()
        return True

    def _begin(self) -> None:
        everything, self._everything = self._everything, False
        self._tasks.extend(partial(self._settle, view.feed, everything) for view in self._state.views.values() if view.feed is not None)
        self._reclaim()
        self._tasks.extend(partial(self._prepare, relation) for relation in self._state.relations.values())
        if everything:
            self._renew()
            self._tasks.append(self._give_up_pins)

    def _settle(self, feed: DeltaSink, everything: bool) -> bool:
        return feed.housekeep(self._versions.published.number, everything)

    def _reclaim(self) -> None:
        self._tasks.extend(partial(self._call, task) for task in self._state.to_reclaim())

    def _call(self, task: Callable[[VersionsInUse], bool]) -> bool:
        return task(self._versions.needed())

    @staticmethod
    def _prepare(relation: Relation) -> bool:
        relation.table.prepare(_WORTH_RECLAIMING)  # callers' threads change at most this many rows in between
        return False

    def _give_up_pins(self) -> bool:
        """Expire the oldest pinned versions, more at each check, until the memory they retain is within the bound."""
        held_otherwise = self._state.is_behind  # no pin is to blame
        if not held_otherwise and self._state.retired_bytes > self._settings.pin_bytes and self._versions.expire_oldest(self._giving_up):
            self._giving_up *= 2
            self._reclaim()
            self._tasks.append(self._give_up_pins)
        else:
            self._giving_up = 1
            self._sweep()
        return False
