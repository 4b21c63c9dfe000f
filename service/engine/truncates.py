"""Batches that truncate large relations: a view over them is rebuilt without their rows before the batch has its turn.

To delete half a million rows one by one from a view's structures would stop the writer for half a second. So the batch waits, and later
batches of its source with it, which would make it a duplicate; others are written meanwhile. In the turn of the last round, the batch is
applied: its inserts to the new structures, which then replace the view's own. What the view has lost and gained is read afterwards, from
the former structures and the new ones, when its feed is settled (`views/differences.py`).

A view that cannot be rebuilt follows the batch in its own structures. Truncates are prepared one after another.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np

from livejoin.wire.batch import TRUNCATE, Batch
from service.engine.build import Build, BuildCancelled, Phase
from service.engine.builds import Builds
from service.engine.outcomes import Receipt
from service.engine.queued import Done, emit, is_single
from service.engine.state import State
from service.engine.under_way import PendingSources
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem, ending
from service.views.live_view import LiveView

log = logging.getLogger("livejoin.views")

_WORTH = 1 << 14  # rows of a relation: a view takes at most some 30 ms for the deletes of fewer
_SOON, _LATER = 1e-3, 0.05  # seconds until earlier batches of the source may be done, at first and after a while


class Truncates:
    """`submit` as `Writer.submit`, from any thread."""

    def __init__(self, state: State, writer: Writer, versions: Pins, builds: Builds) -> None:
        self._state, self._writer, self._versions, self._builds = state, writer, versions, builds
        self.under_way = PendingSources(state.may_use)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="truncates")
        self._running: list[Build] = []  # for the batch that is being prepared; replaced, never changed

    def submit(self, batch: Batch, done: Done) -> None:
        """As `Writer.submit`. A batch that must wait for another one of its source begins after that."""
        if not self.under_way.holds(batch) and not self._views(batch):
            self._writer.submit(batch, done)
            return
        self._writer.admit(self.under_way.waiting)
        self.under_way.begin(batch, partial(self._go, batch, done))

    def _go(self, batch: Batch, done: Done) -> None:
        """Prepare the batch, or submit it if there is nothing to prepare."""
        try:
            if self.under_way.is_ending:
                raise ending()
            if not self._views(batch):
                self._writer.submit(batch, done, True)
                self.under_way.end(batch)
                return
            future = self._thread.submit(self._run, batch, done)
        except Problem as problem:
            self._emit(batch, done, problem)
        except RuntimeError:  # the thread has ended
            self._emit(batch, done, ending())
        else:
            future.add_done_callback(lambda future: self._emit(batch, done, ending()) if future.cancelled() else None)

    def end(self) -> None:
        """Refuse the batches that wait, and soon the one being prepared, unless the writer has it."""
        self.under_way.close()
        for build in self._running:
            build.enter(Phase.DROPPED)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def refuse_waiting(self) -> None:
        """Refuse the batches that the writer has not begun, and all later ones."""
        self.end()
        self._writer.refuse_waiting()

    def _views(self, batch: Batch) -> dict[LiveView, set[str]]:
        """Return the live views over large relations that the batch truncates, each with all of its relations that the batch truncates.
        O(changes), and O(views) if there is a truncate."""
        if is_single(batch):
            return {}
        relations = self._state.relations
        names = {changes.relation for changes in batch.changes if len(changes.ops) and np.any(changes.ops == TRUNCATE)}
        large = {name for name in names if name in relations and relations[name].table.rows >= _WORTH}
        views = self._state.views.values() if large else ()
        rebuilt = [view for view in views if view.state == "live" and not view.is_composed and large & view.relations.keys()]
        return {view: names & view.relations.keys() for view in rebuilt}

    def _emit(self, batch: Batch, done: Done, answer: Receipt | Problem) -> None:
        self.under_way.end(batch)
        emit(done, answer)

    def _run(self, batch: Batch, done: Done) -> None:
        builds: list[Build] = []
        answers: list[Receipt | Problem] = []  # the first counts: the writer may have given it before it fails
        started = time.monotonic()

        def answer(given: Receipt | Problem) -> None:
            if not answers:
                answers.append(given)
                done(given)

        try:
            wait = _SOON
            while self._writer.has_of(batch) and not self.under_way.is_ending:
                time.sleep(wait)
                wait = min(2 * wait, _LATER)
            for view, names in self._views(batch).items():
                build = Build(view, without=names)
                builds.append(build)
                self._running = [*self._running, build]
                self._attempt(builds, build, self._builds.prepare)
            while not self._writer.call(partial(self._conclude, builds, batch, answer, started)).result():
                for build in [*builds]:
                    self._attempt(builds, build, self._builds.go_on)
        except Problem as problem:
            emit(answer, problem)
        except Exception:
            log.exception("a batch could not be prepared; nothing of it was applied")
            emit(answer, Problem("internal", "the batch could not be applied"))
        finally:
            self.under_way.end(batch)
            with suppress(Problem):  # the service is stopping
                self._writer.call(partial(self._drop_all, builds)).result()
            self._running = []  # frees the former structures

    def _attempt(self, builds: list[Build], build: Build, work: Callable[[Build], None]) -> None:
        """Do a part of the work beside the writer; if it fails, drop the build: the view then follows the batch in its own structures.
        Problem `recovering` once the service ends."""
        try:
            work(build)
        except Exception as error:
            if self.under_way.is_ending:
                raise ending() from error
            self._writer.call(partial(self._drop, builds, build, error)).result()

    # in the writer's turn

    def _drop(self, builds: list[Build], build: Build, error: Exception) -> None:
        builds.remove(build)
        is_cancelled = isinstance(error, BuildCancelled)  # the view was dropped
        self._builds.finish(build, Phase.DROPPED if is_cancelled else Phase.FAILED)
        if not is_cancelled:
            said = "the view %s could not be rebuilt for a truncate: its rows will be deleted one by one, and other changes wait meanwhile"
            log.warning(said, build.view.name, exc_info=error)

    def _drop_all(self, builds: list[Build]) -> None:
        for build in [*builds]:
            self._drop(builds, build, BuildCancelled())

    def _conclude(self, builds: list[Build], batch: Batch, done: Done, started: float) -> bool:
        """Apply the batch if the builds have little left to follow; otherwise return False: each holds the newest version for a round."""
        are_done = True
        for build in [*builds]:
            try:
                if not self._state.has(build.view, "live"):
                    raise BuildCancelled
                are_done &= self._builds.follow_rest(build)
            except Exception as error:
                self._drop(builds, build, error)
        if not are_done:
            return False
        if builds:
            log.info("%d views were rebuilt for a truncate in %.1f s", len(builds), time.monotonic() - started)
        batch.rebuilt = tuple(builds)
        self._writer.commit(batch, done)
        batch.rebuilt = ()
        for build in [*builds]:
            if build.difference is not None:
                build.difference.hold(self._versions.holding(rows_only=False))
            builds.remove(build)
            self._builds.finish(build, Phase.LIVE if build.is_in_place else Phase.DROPPED)
        return True
