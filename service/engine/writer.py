"""The one writer: jobs and batches through a bounded queue to its thread, batches in groups that share an fsync.

    take what waits -> apply each in memory, as a version of its own -> append each to the log -> one commit
    -> publish the newest -> wake the followers -> answer each -> housekeeping, in pieces, while nothing waits

Writer is who holds the turn: the thread, or for one short batch the caller of `apply_at_once`, when nothing waits and the thread is idle.
That caller may answer before it publishes, if nobody who has heard the answer can ask before it has.
A duplicate is answered after the commit of its group, so not before its first copy is on disk. When applying, appending or
committing fails, nothing can be known of what is on disk, unless the disk was full: then nothing was committed. Everything that waits is
told so, and the service is to end.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeVar

from service.durability.database import LogRow
from service.durability.failpoints import reach
from service.durability.log import Log
from service.engine.queued import Done, Item, Job, Stop, Waiting, do, failed, problem_of, refuse, runs_of, smaller_runs, tell
from service.engine.state import Applied, Outcome, Receipt, State
from service.engine.versions import Pins
from service.errors import Problem
from service.histogram import Histogram
from service.views.deltas import Delta
from service.views.live_view import LiveView
from service.wire.batch import Batch

log = logging.getLogger("livejoin.writer")

Later = Callable[[Callable[[], None]], object]
T = TypeVar("T")

_GROUP_BATCHES, _GROUP_CHANGES = 256, 100_000
_FEW_CHANGES, _LONG = 16, 2e-3  # who sends so few does not wait for a larger batch behind that takes so many seconds
_WAITING_BYTES = 1 << 30  # of decoded batches: with more, nothing further is taken
# A batch is taken only if the disk has room for it in the log, in SQLite's own log, and for what SQLite does meanwhile.
_ROOM_FACTOR, _ROOM_LEAST = 4, 512 << 10
_TICK = 1.0  # seconds between two looks at what has grown old
_PIECE = 2e-3  # seconds of housekeeping in a turn, while nobody waits
_SHARE = 1.0  # of the time of a group, if that is more: what is freed at once is still in the caches when the next group takes it
_MOST_OWED = 0.1  # seconds of this that may be put off while somebody waits
_SHORT = 1e-3  # seconds that a change may take in a caller's thread, as far as the last ones tell
_MOST_ROWS, _MOST_VIEWS = 1_000, 50  # that a caller's thread changes; a structure tells the rows by the piece, so there may be one more
_STUCK = 600.0  # seconds without a sign of progress: far more than a batch or a part of a build takes
_FADING = 0.9  # of what a slow change counts, one change later


class _Made(NamedTuple):
    """Batches that are on disk, and not published: the answers to them, whether there is a new version, and what changes by it."""

    answers: list[Receipt | Problem]
    fresh: bool
    deltas: list[tuple[LiveView, Delta]]

    @property
    def is_long(self) -> bool:
        """Whether a delta is still to be gathered."""
        for _, delta in self.deltas:
            if delta.rest is not None:
                return True
        return False


class Unpublished(NamedTuple):
    """A batch that was applied at once and is on disk, but takes long to publish. `leave(done)`, to be called next, leaves that to the
    writer's thread, which then calls `done` with the answer."""

    leave: Callable[[Done], None]


class Writer:
    """Owns the thread. `pause` is called in it after each group; `housekeep` after each group, once a second, and while nothing waits until
    it says that there is no more, unless it is put off; `on_failure` when the service is to end; `is_short` by the writer, whether a batch
    may be applied in a caller's thread."""

    def __init__(
        self, state: State, log: Log, versions: Pins, max_waiting: int, is_short: Callable[[Batch], bool], pause: Callable[[], None],
        housekeep: Callable[[], bool], on_failure: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._state, self._log, self._versions = state, log, versions
        self._max_waiting = max_waiting
        self._is_short, self._pause, self._housekeep, self._on_failure = is_short, pause, housekeep, on_failure
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._urgent: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._turn = threading.Lock()  # who holds it writes
        self._lock = threading.Lock()  # nothing is queued behind the end, nothing is applied at once before what waits
        self._unpublished: _Made | None = None  # of a caller that has the turn and its answer
        self._left: tuple[_Made, Done] | None = None  # of a caller that has given back the turn: for whoever has it next
        self._ended = False
        self._unfinished = 0  # items in the queue or at work
        self._untidy = False  # whether there is more housekeeping
        self._owed = 0.0  # seconds of it for which nothing was left between groups
        self._each = 0.0  # seconds that applying a change took, of the last ones that were not few
        self._last = 0.0  # seconds that the last change took
        self._pace = 0.0  # as many: the slowest of late, fading, without those that were slow alone: the scheduler's doing, not the views'
        self.failure: BaseException | None = None
        self._waiting_bytes = 0
        self._room = 0  # bytes that the disk takes, as it said at the beginning of a turn, less what was taken
        self.batches = self.changes = 0
        self.batch_changes = Histogram()
        self.update_seconds = Histogram()
        self.turn_seconds = Histogram()
        self._beat: float | None = None  # when the thread last gave a sign of progress; None while it has nothing to do
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    @property
    def busy_seconds(self) -> float:
        """How long the thread has been at work without a sign of progress; 0 while it has nothing to do."""
        beat = self._beat
        return 0.0 if beat is None else time.monotonic() - beat

    @property
    def is_stuck(self) -> bool:
        """Whether nothing will be applied any more, as far as can be told."""
        return self.busy_seconds > _STUCK or (self._thread.ident is not None and not self._thread.is_alive() and not self._ended)

    def beat(self) -> None:
        """A sign of progress in the midst of a job. The writer's thread."""
        self._beat = time.monotonic()

    def submit(self, batch: Batch, done: Done) -> None:
        """Queue a batch. Problem `too-busy`, or the reason why nothing is taken any more."""
        self.admit()
        waiting = Waiting(batch, done, batch.bytes + batch.prepared_bytes)
        self._put(waiting)

    def admit(self, elsewhere: int = 0) -> None:
        """Problem `too-busy` if no further batch may wait. `elsewhere`: so many wait that are to be submitted."""
        if self._queue.qsize() + elsewhere >= self._max_waiting:
            raise Problem("too-busy", f"{self._max_waiting} batches are already waiting")
        if self._waiting_bytes > _WAITING_BYTES:
            raise Problem("too-busy", f"batches of {self._waiting_bytes} bytes are already waiting")

    def apply_at_once(self, batch: Batch, later: Later) -> Receipt | Problem | Unpublished | None:
        """Apply a short batch in the caller's thread, without a queue: the answer, which is on disk; None if it is to be queued.

        `later` is given what publishes it, and calls it soon: before it lets anybody ask who may know the answer. Unpublished: the batch
        changes many rows of a view.
        """
        with self._lock:
            if self._pace > _SHORT or self._unfinished or self._ended or not self._turn.acquire(blocking=False):
                return None
        try:
            self._room = self._log.free_bytes
            made = self._unpublished = self._to_disk([batch], _MOST_ROWS) if self._is_short(batch) else None
        except BaseException as error:
            self._fail(error)
            self._turn.release()
            return problem_of(error)
        if made is None or not made.answers:
            self._unpublished = None
            self._turn.release()
            return None
        if made.is_long:
            return Unpublished(partial(self._leave, made))
        later(self._conclude)
        return made.answers[0]

    def _leave(self, made: _Made, done: Done) -> None:
        """Give back the turn to the thread, which publishes what was applied at once before it does anything else."""
        with self._lock:
            left, self._unpublished = self._unpublished, None
        if left is None:  # `stop` has published it
            tell(done, made.answers[0])
            return
        self._left = left, done
        try:
            self._put(Job(lambda: None, Future(), True))  # so that it wakes
        except Problem:  # the end is queued already: the thread may not look again
            try:
                self._finish_left()
            except BaseException as error:
                self._fail(error)
        finally:
            self._turn.release()

    def _finish_left(self) -> None:
        """Publish what a caller has left. By whoever has the turn."""
        if self._left is None:
            return
        (made, done), self._left = self._left, None
        try:
            self._publish(made)
        except BaseException:
            tell(done, failed())  # published or not, it is on disk
            raise
        tell(done, made.answers[0])

    def _conclude(self) -> None:
        """Publish what was applied at once, and give back the turn. A second time does nothing."""
        with self._lock:
            made, self._unpublished = self._unpublished, None
        if made is not None:
            try:
                self._publish(made)
            except BaseException as error:
                self._fail(error)
            finally:
                self._turn.release()

    def call(self, work: Callable[[], T], urgent: bool = False) -> Future[T]:
        """Have `work` done in the writer's thread, in its turn, or (urgent: it changes nothing) before the next group."""
        future: Future[T] = Future()
        if urgent:
            self._urgent.put(Job(work, future, True))
            self._put(Job(self._run_urgent, Future(), True))
        else:
            self._put(Job(work, future))
        return future

    def stop(self) -> None:
        """Finish all that waits, then end the thread. Further calls do nothing."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._queue.put(Stop())
        self._conclude()  # who was to do it later may have ended
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _put(self, item: Item) -> None:
        with self._lock:
            if self._ended:
                raise problem_of(self.failure) if self.failure else Problem("recovering", "the service is shutting down")
            if isinstance(item, Waiting):
                self._waiting_bytes += item.bytes
            self._unfinished += 1
            self._queue.put(item)

    def _run(self) -> None:
        item: Item | None
        ticked = time.monotonic()
        while True:
            try:
                item = self._queue.get(timeout=0.0 if self._untidy else _TICK)
            except queue.Empty:
                item = None
            idle = item is None
            self.beat()
            with self._turn:
                if self.failure is not None:  # of a batch that was applied at once
                    refuse(item, self.failure)
                    return
                try:
                    self._finish_left()
                    while isinstance(item, Waiting):
                        item = self._group(item)
                        self.beat()
                        self._run_urgent()
                    if isinstance(item, Stop):
                        return
                    if item is not None:
                        self._do(item)
                    if (idle and self._untidy) or self._owed > _MOST_OWED or time.monotonic() - ticked > _TICK:
                        self._tidy()
                        ticked = time.monotonic()
                except BaseException as error:
                    self._fail(error)
                    return
            self._beat = None

    def _do(self, job: Job) -> None:
        """Jobs owe as groups do, but are followed by housekeeping only once they owe much: most are short, and leave nothing."""
        started = time.monotonic()
        do(job)
        self._finished(1)
        self._owed += _SHARE * (time.monotonic() - started)

    def _tidy(self, share: float = 0.0, following: Item | None = None) -> None:
        """Wait for builds that fall behind; then a piece of housekeeping, and more for as long as is owed, which is `share` seconds more by
        now, and as much longer as a piece takes. While somebody waits, in the queue or as `following`, some of it is put off."""
        self._pause()
        self._owed += share
        started, spent, more = time.monotonic(), 0.0, True
        while more and spent <= (max(_PIECE, self._owed) if following is None and self._queue.empty() else self._owed - _MOST_OWED):
            more = self._housekeep()
            spent = time.monotonic() - started
        self._owed = max(0.0, self._owed - spent) if more else 0.0
        self._untidy = more

    def _finished(self, count: int) -> None:
        with self._lock:
            self._unfinished -= count

    def _run_urgent(self) -> None:
        while not self._urgent.empty():  # this thread alone takes from it
            do(self._urgent.get_nowait())

    def _group(self, first: Waiting) -> Item | None:
        """Take what waits behind `first`, but for a long batch behind few changes, and bring it to its end; gives the item behind that does
        not belong to it, if there is one."""
        group, changes, fewest = [first], first.batch.sent, first.batch.sent
        following: Item | None = None
        while len(group) < _GROUP_BATCHES and changes < _GROUP_CHANGES:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if not isinstance(item, Waiting) or (fewest <= _FEW_CHANGES < item.batch.sent and item.batch.sent * self._each >= _LONG):
                following = item
                break
            group.append(item)
            changes += item.batch.sent
            fewest = min(fewest, item.batch.sent)
        with self._lock:
            self._waiting_bytes -= sum(waiting.bytes for waiting in group)
        try:
            started = time.monotonic()
            self._room = self._log.free_bytes
            self._commit(group)
            self._tidy(_SHARE * (time.monotonic() - started), following)
        except BaseException as error:
            refuse(following, error)  # it is in no queue any more
            raise
        self._finished(len(group))
        return following

    def _commit(self, group: list[Waiting]) -> None:
        """Bring these to their end, but for what grows old by them."""
        made = None
        try:
            made = self._to_disk([waiting.batch for waiting in group])
            self._publish(made)
        except BaseException as error:
            for waiting in group:
                tell(waiting.done, problem_of(error) if made is None else failed())  # published or not, these are on disk
            raise
        for waiting, answer in zip(group, made.answers, strict=True):
            if isinstance(answer, Receipt):  # one that was refused may be sent again
                waiting.batch.let_go()  # before its client is told, and the room of its body taken by another
            tell(waiting.done, answer)

    def _to_disk(self, batches: list[Batch], most: int | None = None) -> _Made:
        """Apply these in memory and commit them to the log. `most`: rows of deltas that may be gathered for a single change; one that
        concerns many views is then not applied, and gets no answer."""
        started = time.perf_counter()
        answers: list[Receipt | Problem] = []
        deltas: list[tuple[LiveView, Delta]] = []
        for run in runs_of(batches) if len(batches) > 1 else [batches]:
            answers += self._apply(run, deltas, most)
        newest = self._state.newest
        fresh = newest > self._versions.published.number
        if fresh:
            self._log.commit()
        changes = sum([batch.sent for batch in batches])
        turn = time.perf_counter() - started
        self.turn_seconds.observe(turn)
        for batch in batches:
            batch.turn = turn
        seconds = turn / max(1, changes)
        self._pace = max(min(seconds, self._last), _FADING**changes * self._pace)
        self._last = seconds
        for number, answer in enumerate(answers):
            if isinstance(answer, Receipt) and answer.duplicate:
                answers[number] = answer._replace(version=newest)
        return _Made(answers, fresh, deltas)

    def _apply(self, batches: list[Batch], deltas: list[tuple[LiveView, Delta]], most: int | None) -> list[Receipt | Problem]:
        """Apply batches, together if they can be, and append them to the log. What is raised here leaves the state broken."""
        judged = self._judge_together(batches) if len(batches) > 1 else self._judge(batches[0])
        if judged is None:
            return [answer for run in smaller_runs(batches) for answer in self._apply(run, deltas, most)]
        if not isinstance(judged, Outcome):
            return [judged]
        if most is not None and self._state.concerned(judged) > _MOST_VIEWS:
            return []
        started = time.perf_counter()
        try:
            applied = self._state.apply(judged, most)
        except BaseException:
            what, first = "applying %d batches failed, the first of %d changes (source %r, epoch %r)", batches[0]
            log.critical(what, len(batches), first.sent, first.source, first.epoch)
            raise
        self._append(batches, applied, time.perf_counter() - started)
        deltas += applied.deltas
        return [*applied.receipts]

    def _judge_together(self, batches: list[Batch]) -> Outcome | None:
        """None: they are to be judged in smaller runs."""
        try:
            if any(self._state.is_duplicate(batch) for batch in batches):
                return None
            judged = self._state.judge_together(batches)
        except Exception:  # of one of them: it will be told, or logged; nothing is touched yet
            return None
        return judged if judged is not None and self._has_room(batches) else None

    def _judge(self, batch: Batch) -> Outcome | Receipt | Problem:
        """What is to be applied; or the answer to a batch of which nothing is."""
        try:
            repeated = self._state.repeated(batch, 0)
            if repeated is not None:
                return repeated
            if not self._has_room([batch]):
                return Problem("disk-full", "the disk of the data folder has no room for this batch; nothing of it was applied")
            return self._state.judge(batch)
        except Problem as problem:
            return problem
        except Exception:
            log.exception("a batch could not be validated; nothing of it was applied")
            return Problem("internal", "the batch could not be applied")

    def _append(self, batches: list[Batch], applied: Applied, seconds: float) -> None:
        """Log these, applied together in so many seconds."""
        rows, changes, count = [], 0, len(batches)
        last = applied.receipts[-1].version
        for batch, (version, *_) in zip(batches, applied.receipts, strict=True):
            receipt = None if batch.source is None else self._state.receipts[batch.source]
            payload = applied.payload if version == last else b""
            rows.append(LogRow(version, batch.source, batch.run, batch.epoch, payload, receipt))
            changes += batch.sent
        self._log.append(rows)
        if changes > _FEW_CHANGES:
            self._each = seconds / changes
        self.update_seconds.observe(seconds / count, count)
        self.batch_changes.observe(changes / count, count)
        self.batches += count
        self.changes += changes

    def _has_room(self, batches: list[Batch]) -> bool:
        """Whether the disk has room for these; takes it if so. Asked while nothing has been touched: what fails later ends the service."""
        left = self._room - sum([_ROOM_FACTOR * batch.bytes + _ROOM_LEAST // _GROUP_BATCHES for batch in batches])
        if left < _ROOM_LEAST:
            return False
        self._room = left
        return True

    def _publish(self, made: _Made) -> None:
        if not made.fresh:
            return
        reach("before-publish")
        for view, delta in made.deltas:
            assert view.feed is not None
            gathered = self._state.gathered(view, delta)
            if gathered is not None:
                view.feed.append(gathered)
        self._versions.publish(self._state.version())
        for feed in {view.feed for view, _ in made.deltas}:
            assert feed is not None
            feed.wake()

    def _fail(self, error: BaseException) -> None:
        """Tell everybody who waits, and the owner."""
        log.critical("the writer has failed and the service stops: %s", error, exc_info=error)
        self.failure = error
        with self._lock:
            self._ended = True
        while not self._queue.empty():
            with contextlib.suppress(queue.Empty):  # the thread has taken it, and waits for the turn
                refuse(self._queue.get_nowait(), error)
        while not self._urgent.empty():
            refuse(self._urgent.get_nowait(), error)
        self._queue.put(Stop())  # to a thread that waits for something to do
        self._on_failure(error)
