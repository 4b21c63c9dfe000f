"""Batches that truncate large relations: the new structures of their views are built before the batch has its turn (`views/emptied.py`).

Only the batch itself waits for that, and later batches of its source, which would make it a duplicate. Changes of the same views' relations
wait while rows that do not follow changes are listed for the last time, or if writers were faster than all rounds. Truncates are prepared
one after another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

import numpy as np

from livejoin.wire.batch import TRUNCATE, Batch
from service.engine.queued import Done, is_single, tell
from service.engine.state import Receipt, State
from service.engine.under_way import UnderWay
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem, ending
from service.tables.evolution import same
from service.tables.relations import Relation
from service.tables.resolution import allocate
from service.views.emptied import Emptied, TooManyLeft, log_unprepared, lost_without
from service.views.live_view import LiveView
from structures.rows.ending import touch_lives

log = logging.getLogger("livejoin.views")

_WORTH = 1 << 14  # rows of a relation: a view takes at most some 30 ms for the deletes of fewer
_ROUNDS, _FEW = 10, 1000  # at most; changes left to the last round, or to the turn

_Views = dict[LiveView, set[str]]


class _Needed(NamedTuple):
    """What a batch needs before its turn. large: relations of many rows that it truncates, by name; views: those that need new structures,
    each with the relations that it loses."""

    large: dict[str, Relation]
    views: _Views


_NOTHING = _Needed({}, {})


class Truncates:
    """`submit` as `Writer.submit`, from any thread."""

    def __init__(self, state: State, writer: Writer, versions: Pins) -> None:
        self._state, self._writer, self._versions = state, writer, versions
        self.under_way = UnderWay(state.may_use)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="truncates")
        self._toucher = ThreadPoolExecutor(1, thread_name_prefix="toucher")  # for batches without such views, which wait for no preparation
        self._room = threading.Lock()  # held for the one batch whose new memory is allocated before its turn: a thousand may wait
        self._closed: frozenset[str] = frozenset()  # relations whose changes wait, while lists of their rows are read
        self._behind: list[Callable[[], None]] = []  # what to do with those that wait
        self._door = threading.Condition()  # nothing passes while it is closed

    def submit(self, batch: Batch, done: Done) -> None:
        """As `Writer.submit`. A batch that must wait for another one of its source begins after that."""
        needed = None if self.under_way.holds(batch) else self._needed(batch)
        if needed is not None and not needed.large:
            with self._door:
                if not self.is_closed(batch):
                    self._writer.submit(batch, done)
                    return
        self._writer.admit(self.under_way.waiting)
        self.under_way.begin(batch, partial(self._go, batch, done, needed))

    def is_closed(self, batch: Batch) -> bool:
        """Whether the batch must wait because it changes relations whose rows are being listed."""
        return bool(self._closed) and any(changes.relation in self._closed for changes in batch.changes)

    def pass_on(self, batch: Batch, done: Done) -> None:
        """As `Writer.submit`, for a thread that may wait."""
        with self._door:
            self._door.wait_for(lambda: not self.is_closed(batch))
            self._writer.submit(batch, done)

    @contextmanager
    def _closing(self, names: Collection[str]) -> Iterator[None]:
        """Context in which batches that change these relations wait."""
        with self._door:
            self._closed = frozenset(names)
        try:
            yield
        finally:
            with self._door:
                self._closed, behind, self._behind = frozenset(), self._behind, []
                self._door.notify_all()
            for go in behind:
                go()

    def _go(self, batch: Batch, done: Done, needed: _Needed | None) -> None:
        """Prepare the batch, or submit it if it needs nothing; None: this is not known yet, as it had to wait."""
        try:
            if self.under_way.is_ending:
                raise ending()
            needed = self._needed(batch) if needed is None else needed
            if not needed.large:
                with self._door:
                    if self.is_closed(batch):
                        self._behind.append(partial(self._go, batch, done, None))
                        return
                    self._writer.submit(batch, done, True)
                self.under_way.end(batch)
                return
            if needed.views:
                future = self._thread.submit(self._run, batch, done, needed)
            else:
                future = self._toucher.submit(self._touch, batch, done, needed.large)
        except Problem as problem:
            self._tell(batch, done, problem)
        except RuntimeError:  # the thread has ended
            self._tell(batch, done, ending())
        except Exception:
            self._tell(batch, done, self._failed())
        else:
            future.add_done_callback(lambda future: self._tell(batch, done, ending()) if future.cancelled() else None)

    def end(self) -> None:
        """Refuse the batches that wait, and soon the one being prepared, unless the writer has it."""
        self.under_way.close()
        for thread in (self._thread, self._toucher):
            thread.shutdown(wait=False, cancel_futures=True)

    def refuse_waiting(self) -> None:
        """Refuse the batches that the writer has not begun, and all later ones."""
        self.end()
        self._writer.refuse_waiting()

    def _needed(self, batch: Batch) -> _Needed:
        """O(changes), and O(views) if there is a truncate."""
        if is_single(batch):
            return _NOTHING
        relations = self._state.relations
        names = {changes.relation for changes in batch.changes if len(changes.ops) and np.any(changes.ops == TRUNCATE)}
        large = {name: relations[name] for name in names if name in relations and relations[name].table.rows >= _WORTH}
        if not large:
            return _NOTHING
        views = {view: names & view.relations.keys() for view in self._state.views.values() if large.keys() & view.relations.keys()}
        views = {view: mine for view, mine in views.items() if lost_without(view, mine) is not None}
        return _Needed(large, views)

    def _tell(self, batch: Batch, done: Done, answer: Receipt | Problem) -> None:
        self.under_way.end(batch)
        tell(done, answer)

    @staticmethod
    def _failed() -> Problem:
        """Log the exception, and return the answer."""
        log.exception("a batch could not be prepared; nothing of it was applied")
        return Problem("internal", "the batch could not be applied")

    def _touch(self, batch: Batch, done: Done, large: dict[str, Relation]) -> None:
        """Allocate what the truncate of these relations will write, and submit the batch."""
        self._go(batch, self._allocate(batch, done, large), _NOTHING)

    def _allocate(self, batch: Batch, done: Done, large: dict[str, Relation]) -> Done:
        """Have the system allocate the memory that the truncate of these relations fills in its turn: what is theirs already, and what is
        new unless another batch has that. Return what to call with the batch's answer. If this fails, the turn only takes longer."""
        if has_room := self._room.acquire(blocking=False):
            done = partial(self._leave_room, done)
        try:
            for changes in batch.changes:
                relation = large.get(changes.relation)
                if relation is not None:
                    touch_lives(relation.table.store)
                    if has_room and same(changes.definition, relation.definition):
                        allocate(relation, changes)
        except Exception:
            log.warning("memory could not be allocated before a truncate", exc_info=True)
        return done

    def _leave_room(self, done: Done, answer: Receipt | Problem) -> None:
        self._room.release()
        done(answer)

    def _run(self, batch: Batch, done: Done, needed: _Needed) -> None:
        emptied: list[Emptied] = []
        answer: Future[Receipt | Problem] = Future()
        started = time.monotonic()
        try:
            for view, names in needed.views.items():
                self._prepare(view, names, emptied)
            for _ in range(_ROUNDS):
                if sum(one.backlog.changes for one in emptied) > _FEW:
                    self._go_on(emptied, False)
            done = self._allocate(batch, done, needed.large)
            with self._closing({name for one in emptied if one.reads_lists or one.needs_last_round for name in one.view.relations}):
                if self._closed:
                    self._go_on(emptied, True)
                batch.emptied = tuple(emptied)
                if emptied:
                    log.info("a truncate was prepared for %d views in %.1f s", len(emptied), time.monotonic() - started)
                self._writer.submit(batch, answer.set_result, True)
            self.under_way.end(batch)
            result = answer.result()
        except Problem as problem:
            result = problem
        except Exception:
            result = self._failed()
        self._tell(batch, done, result)
        batch.emptied = ()
        with suppress(Problem):  # the service is stopping
            self._writer.call(partial(self._release, emptied)).result()

    def _prepare(self, view: LiveView, names: set[str], emptied: list[Emptied]) -> None:
        """Build the view's new structures and add them to the batch, unless the view is gone or this fails."""
        for may_compare in (True, False):
            one = self._writer.call(partial(self._begin, view, names, emptied, may_compare)).result()
            error = None if one is None else self._attempt(one, emptied, partial(one.build, self._report))
            if error is None:
                return
            if not may_compare or not isinstance(error, TooManyLeft):
                log_unprepared(view, error)
                return

    def _report(self, _: float) -> None:
        """Of a build, from time to time. Problem `recovering` once the service ends."""
        if self.under_way.is_ending:
            raise ending()

    def _go_on(self, emptied: list[Emptied], is_last: bool) -> None:
        for one in self._writer.call(partial(self._hold, emptied, is_last), after_all=is_last).result():
            error = self._attempt(one, emptied, partial(one.go_on, is_last))
            if error is not None:
                log_unprepared(one.view, error)

    def _attempt(self, one: Emptied, emptied: list[Emptied], work: Callable[[], None]) -> Exception | None:
        """Do the work, or drop the structures and return why it failed."""
        try:
            work()
        except Exception as error:
            self._report(1.0)
            emptied.remove(one)
            self._writer.call(partial(self._release, [one])).result()
            return error
        return None

    # in the writer's turn

    def _begin(self, view: LiveView, names: set[str], emptied: list[Emptied], may_compare: bool) -> Emptied | None:
        lost = lost_without(view, names) if self._state.has(view, "live") else None
        if lost is None:
            return None
        try:
            one = Emptied(view, names, lost, partial(self._versions.holding, rows_only=False), may_compare, self._state.recorder)
        except Exception as error:
            log_unprepared(view, error)
            return None
        emptied.append(one)
        return one

    def _hold(self, emptied: list[Emptied], is_last: bool) -> list[Emptied]:
        """Hold the newest version for the preparations, and return them: without those whose views were dropped or have failed, and in the
        last round without those that do not need it. What was queued before the call has been applied."""
        gone = [one for one in emptied if not self._state.has(one.view, "live")]
        self._release(gone)
        emptied[:] = [one for one in emptied if one not in gone]
        held = [one for one in emptied if one.needs_last_round or not is_last]
        for one in held:
            one.hold()
        return held

    def _release(self, emptied: list[Emptied]) -> None:
        for one in emptied:
            self._state.recorder.close(one.backlog)
            one.release()
