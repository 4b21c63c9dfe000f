"""Replace the definitions of views: a view's own, and with it those of all views that read it.

    beside the writer    build the new views, as any others; they follow changes, but nobody can read them
    in its turn          once all are live: a version of its own, which changes no row, and is in the log together with the definitions

The new views take over the ids of the former ones, so that tokens and cursors stay valid, and their feeds, if the columns are the same:
the delta of the version is then read from both (`views/differences.py`). Otherwise followers end with `token-expired`, and start again from
a snapshot. Versions before are read in the former views, which `ViewRoot` has. After a kill before the next snapshot, tokens of versions
before the replacement have expired: only the new definition is replayed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as waiting
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from service.durability.database import ViewRecord
from service.durability.log import Log
from service.engine.builds import Builds
from service.engine.queued import change
from service.engine.state import State
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem
from service.views.deltas import DeltaSink, to_read
from service.views.differences import ReplacedRows, same_columns
from service.views.live_view import LiveView
from service.views.parse import View, noted
from service.views.stored import StoredView

log = logging.getLogger("livejoin.views")


class Candidates(NamedTuple):
    """Views to be built, each after those that it reads, and the stored views that they read, some of which may be new."""

    views: Mapping[str, LiveView]
    stored: Mapping[str, StoredView]


class Replacement:
    """One that is under way or has failed. name: the view that gets the new definition; `views`: it, and those that read it."""

    def __init__(self, name: str, views: Mapping[str, LiveView]) -> None:
        self.name, self.views = name, views
        self.future = Future[Problem | None]()  # done when it is over; of one that has failed or was cancelled, the problem

    @property
    def problem(self) -> Problem | None:
        """Why it has failed."""
        return self.future.result() if self.future.done() else None

    @property
    def progress(self) -> float:
        views = self.views  # none once it has failed
        return sum(view.progress for view in views.values()) / max(1, len(views))


class Replacements:
    """One at a time. The writer's thread calls everything but `of`."""

    def __init__(
        self, state: State, writer: Writer, log: Log, versions: Pins, builds: Builds,
        feed_of: Callable[[LiveView, tuple[int, int]], DeltaSink],
    ) -> None:  # fmt: skip
        self._state, self._writer, self._log, self._versions = state, writer, log, versions
        self._builds, self._feed_of = builds, feed_of
        self._now: Replacement | None = None
        self._failed: dict[str, Replacement] = {}  # replaced, never changed

    def of(self, view: str) -> Replacement | None:
        """Return the replacement of a view that is under way, or was the last one and has failed."""
        now = self._now
        return now if now is not None and view in now.views else self._failed.get(view)

    def forget(self, name: str) -> None:
        """Cancel the replacement of a view, or of one that it reads, if it is under way; forget that it has failed."""
        self._failed = {other: one for other, one in self._failed.items() if other != name}
        if (now := self._now) is not None and name in now.views:
            self._end(now, Problem("definition-differs", f"another request has cancelled the replacement of the view {now.name}"))

    def under_way(self, name: str, view: View) -> Replacement | None:
        """Return the replacement of a view by this definition that is under way."""
        now = self._now
        return now if now is not None and now.name == name and now.views[name].view.stated == view.stated else None

    def refuse_other(self, name: str) -> None:
        """Problem `too-busy` if a replacement is under way, unless it is that of this view."""
        if self._now is not None and self._now.name != name:
            raise Problem("too-busy", f"the view {self._now.name} is being replaced: one replacement is done at a time")

    def refuse_reader(self, reads: Mapping[str, object]) -> None:
        """Problem `too-busy` for a new view that reads these, if one of them is being replaced."""
        if self._now is not None and (found := sorted(self._now.views.keys() & reads)):
            raise Problem("too-busy", f"the view {found[0]} is being replaced: register views that read it afterwards")

    def begin(self, name: str, candidates: Candidates) -> Future[Problem | None]:
        """Build the candidates; return a future that is done when they have replaced the views, or this was cancelled or has failed."""
        self._now = made = Replacement(name, candidates.views)
        fresh = self._state.add_stored(candidates.stored)
        self._state.incoming = {**candidates.views}
        built = [self._builds.start(view) for view in (*fresh, *candidates.views.values())]
        threading.Thread(target=self._run, args=(made, built), name="replacement", daemon=True).start()
        return made.future

    def _run(self, made: Replacement, built: list[Future[None]]) -> None:
        waiting(built)
        try:
            is_over = False
            while not is_over:
                for view in filter(None, map(self._state.views.get, made.views)):
                    if view.feed is not None:
                        view.feed.settle()  # here, not in the writer's turn
                is_over = self._writer.call(partial(change, partial(self._conclude, made))).result()
        except Problem as problem:  # the service is stopping
            if not made.future.done():
                made.future.set_result(problem)

    def _conclude(self, made: Replacement) -> Callable[[], bool]:
        """Replace the views, unless that is not wanted any more, or a view has failed; False: their feeds have got deltas that are to be
        read first."""
        if self._now is not made:
            return lambda: True
        for view in made.views.values():
            if view.state != "live":
                problem = view.problem or Problem("view-failed", f"the view {view.name} could not be built")
                return partial(self._fail, made, problem)
        former = {name: self._state.views[name] for name in made.views}
        if any(view.feed is not None and view.feed.is_behind for view in former.values()):
            return lambda: False
        try:
            self._log.require_room()
        except Problem as problem:
            return partial(self._fail, made, problem)
        return partial(self._replace, made, former)

    def _fail(self, made: Replacement, problem: Problem) -> bool:
        log.error("the view %s could not be replaced, and stays as it was: %s", made.name, problem.detail)
        self._failed = {**self._failed, made.name: made}
        self._end(made, problem)
        made.views = {}  # their structures are freed
        return True

    def _end(self, made: Replacement, problem: Problem) -> None:
        """Give up the new views."""
        self._now, self._state.incoming = None, {}
        for view in (*made.views.values(), *self._state.drop_unread()):
            self._builds.cancel(view)
            view.release_shared()
        made.future.set_result(problem)

    def _replace(self, made: Replacement, former: Mapping[str, LiveView]) -> bool:
        state, version = self._state, self._state.newest + 1
        records = [ViewRecord(former[name].id, name, view.view.definition, noted(view.view, version)) for name, view in made.views.items()]
        self._log.replace_views(version, records)
        self._now, state.incoming, state.newest = None, {}, version
        differences, ended = [], []
        for name, view in made.views.items():
            view.id, view.since = former[name].id, version
            if (difference := self._hand_over(former[name], view, version)) is not None:
                differences.append(difference)
            if (feed := former[name].feed) is not None:
                ended.append((feed, name))
        state.views = {name: made.views.get(name, view) for name, view in state.views.items()}
        self._versions.publish(state.version())
        for difference in differences:
            difference.hold(self._versions.holding(rows_only=False))
        for view in (*former.values(), *state.drop_unread()):
            self._builds.cancel(view)
            view.release_shared()
        for feed, name in ended:  # not before: followers start again at once, with a snapshot of the published version
            said = f"version {version} has replaced the definition of the view {name}, and the changes do not continue those before it"
            feed.close(Problem("token-expired", f"{said}: start again with a snapshot", version=version))
        for view in made.views.values():
            if view.feed is not None:
                view.feed.wake()
        made.future.set_result(None)
        return True

    def _hand_over(self, before: LiveView, after: LiveView, version: int) -> ReplacedRows | None:
        """Give a view the feed of the one that it replaces, or a new one; return the delta that is to be read."""
        retain, feed = after.view.query.retain, before.feed
        if retain is not None and feed is not None and before.state == "live" and same_columns(before, after):
            held = ExitStack()
            held.enter_context(self._versions.holding(rows_only=False))
            difference = ReplacedRows(before, after, version, held)
            feed.hand_over(after.shown.with_keys, after.shown.text_bytes, after.owns_rows, retain)
            feed.append(to_read(version, difference))
            after.feed, before.feed = feed, None
            return difference
        if retain is not None:
            after.feed = self._feed_of(after, retain)
            after.feed.restart(version)
        return None
