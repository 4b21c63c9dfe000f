"""The single writer: batches pass through two lanes to its thread, small ones and others alternately, in groups that share an fsync.

    take a group -> apply each in memory, as a version of its own -> append each to the log -> one commit
    -> publish the newest -> wake the followers -> answer each -> a job -> housekeeping

A duplicate is answered after the commit of its group, so not before its first copy is on disk. When applying, appending or committing
fails, the state on disk is unknown, unless the disk was full: then nothing was committed. All callers that wait are told so, and the
service must stop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from livejoin.wire.batch import Batch
from service.durability.database import LogRow
from service.durability.failpoints import reach
from service.durability.log import Log
from service.engine.outcomes import AppliedBatches, Outcome, Receipt
from service.engine.queued import Done, Item, Job, Queue, QueuedBatch, emit, failed, is_small, problem_of, refuse, runs_of, subruns
from service.engine.state import State
from service.engine.versions import Pins
from service.errors import Problem, ending
from service.histogram import Histogram
from service.views.deltas import Delta
from service.views.live_view import LiveView

log = logging.getLogger("livejoin.writer")

T = TypeVar("T")

_GROUP_BATCHES, _GROUP_CHANGES, _GROUP_SECONDS = 256, 100_000, 0.02  # after so many seconds, no further batch of a group is begun
_WAITING_BYTES = 1 << 30  # of decoded batches: beyond this, no more are accepted
_TICK = 1.0  # seconds between two checks of what expires with time
_PIECE, _MUCH_DEBT = 2e-3, 0.25  # seconds of housekeeping while something waits; owed, from which on it is ten times as much
_STUCK = 600.0  # seconds without a sign of progress: far more than a batch or a part of a build takes


class Writer:
    """Owns the thread. It takes only small batches while `holds_back`; calls `housekeep` after groups, once a second, and while nothing
    waits until it returns that there is no more; `on_failure` when the service must stop."""

    def __init__(
        self, state: State, log: Log, versions: Pins, max_waiting: int, holds_back: Callable[[], bool],
        housekeep: Callable[[], bool], on_failure: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._state, self._log, self._versions = state, log, versions
        self._max_waiting = max_waiting
        self._holds_back, self._housekeep, self._on_failure = holds_back, housekeep, on_failure
        self._queue = Queue()
        self._lock = threading.Lock()  # nothing is queued after the end
        self._ended = False
        self._refuses = False  # whether all batches are refused, as the service ends
        self._untidy = False  # whether there is more housekeeping
        self._debt = 0.0  # seconds of housekeeping
        self.failure: BaseException | None = None
        self._waiting_bytes = 0  # those in progress included
        self.batches = self.changes = 0
        self.batch_changes, self.update_seconds, self.turn_seconds = Histogram(), Histogram(), Histogram()
        self._heartbeat: float | None = None  # time of the thread's last sign of progress; None while it is idle
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def busy_seconds(self) -> float:
        """Seconds since the thread's last sign of progress; 0 while it is idle."""
        heartbeat = self._heartbeat
        return 0.0 if heartbeat is None else time.monotonic() - heartbeat

    @property
    def is_stuck(self) -> bool:
        """Whether the writer has probably stopped for good."""
        return self.busy_seconds > _STUCK or (self._thread.ident is not None and not self._thread.is_alive() and not self._ended)

    def heartbeat(self) -> None:
        """Signal progress within a job. The writer's thread."""
        self._heartbeat = time.monotonic()

    def submit(self, batch: Batch, done: Done, is_admitted: bool = False) -> None:
        """Queue a batch. Problem `too-busy`, unless it was admitted before, or the reason why no more batches are accepted."""
        if not is_admitted:
            self.admit()
        self._put(QueuedBatch(batch, done, batch.bytes + batch.prepared_bytes))

    def has_of(self, batch: Batch) -> bool:
        """As `Queue.has_of`."""
        return self._queue.has_of(batch)

    def commit(self, batch: Batch, done: Done) -> None:
        """Apply and log a batch that was admitted, publish, and answer. Within a job."""
        waiting = QueuedBatch(batch, done, batch.bytes + batch.prepared_bytes)
        with self._lock:
            is_refused = self._refuses
            self._waiting_bytes += 0 if is_refused else waiting.bytes
        if is_refused:
            emit(done, ending())
        else:
            self._commit([waiting])

    def admit(self, elsewhere: int = 0) -> None:
        """Problem `too-busy` if the queue is full. `elsewhere`: number of batches that are yet to be submitted."""
        if len(self._queue) + elsewhere >= self._max_waiting:
            raise Problem("too-busy", f"{self._max_waiting} batches are already waiting")
        if self._waiting_bytes > _WAITING_BYTES:
            raise Problem("too-busy", f"batches of {self._waiting_bytes} bytes are already waiting")

    def call(self, work: Callable[[], T], urgent: bool = False, only_reads: bool = False) -> Future[T]:
        """Call `work` in the writer's thread after the batches that wait, but for large ones that wait for a build; urgent: after the
        present group, for work that changes no rows; only_reads: its failure stops nothing."""
        job = Job(work, Future[T](), only_reads)
        self._put(job, urgent)
        return job.future

    def stop(self) -> None:
        """Finish all that waits, then end the thread. A second call does nothing."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._queue.end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def refuse_waiting(self) -> None:
        """Refuse the batches that wait, and all later ones. Those in progress and jobs are finished."""
        with self._lock:
            self._refuses = True
            refused = self._queue.remove_batches()
            self._waiting_bytes -= sum(waiting.bytes for waiting in refused)
        for waiting in refused:
            emit(waiting.done, ending())

    def _put(self, item: Item, urgent: bool = False) -> None:
        with self._lock:
            if self._ended or (self._refuses and isinstance(item, QueuedBatch)):
                raise problem_of(self.failure) if self.failure else ending()
            if isinstance(item, QueuedBatch):
                self._waiting_bytes += item.bytes
            self._queue.put(item, urgent)

    def _run(self) -> None:
        ticked = time.monotonic()
        while True:
            group, jobs = list[QueuedBatch](), list[Job]()
            try:
                group = self._queue.take(0.0 if self._untidy else _TICK, _GROUP_BATCHES, _GROUP_CHANGES, self._holds_back())
                self.heartbeat()
                started = time.monotonic()
                if group:
                    self._commit(group)
                else:
                    self._log.look_at_disk()
                jobs = self._queue.jobs()
                is_over = self._queue.ends and not (group or jobs or len(self._queue))
                while jobs:
                    jobs.pop(0).do()
                if is_over:
                    return
                now = time.monotonic()
                self._debt += now - started
                if group or self._untidy or now - ticked > _TICK:
                    self._tidy()
                    ticked = now
            except BaseException as error:
                self._fail(error)
                for job in jobs:
                    refuse(job, error)
                return
            self._heartbeat = None

    def _tidy(self) -> None:
        """Do the housekeeping that is due: as long as groups and jobs have taken, and all of it while nothing waits."""
        started, spent = time.monotonic(), 0.0
        self._untidy = True
        while self._untidy and (not len(self._queue) or spent < min(self._debt, _PIECE if self._debt < _MUCH_DEBT else 10 * _PIECE)):
            self._untidy = self._housekeep()
            spent = time.monotonic() - started
        self._debt = max(0.0, self._debt - spent) if self._untidy else 0.0

    def _commit(self, group: list[QueuedBatch]) -> None:
        """Apply, log and publish these, and answer; those that there is no time for are put back."""
        answers: list[Receipt | Problem] | None = None
        done = group
        self._log.look_at_disk()
        try:
            answers, deltas = self._to_disk([waiting.batch for waiting in group])
            done = group[: len(answers)]
            self._put_back(group[len(done) :])
            self._publish(deltas)
        except BaseException as error:
            for waiting in done:
                emit(waiting.done, problem_of(error) if answers is None else failed())  # whether published or not, these are on disk
            raise
        finally:
            with self._lock:
                self._waiting_bytes -= sum(waiting.bytes for waiting in done)
        self._queue.release()
        for waiting, answer in zip(done, answers, strict=True):
            if isinstance(answer, Receipt):  # a batch that was refused may be resent
                waiting.batch.release()  # before its client is answered, and the memory of its body reused
            emit(waiting.done, answer)

    def _put_back(self, group: Sequence[QueuedBatch]) -> None:
        """Return batches to the queue; if all that wait were refused meanwhile, refuse these."""
        if group:
            with self._lock:
                self._queue.put_back(group)
            if self._refuses:
                self.refuse_waiting()

    def _to_disk(self, batches: list[Batch]) -> tuple[list[Receipt | Problem], list[tuple[LiveView, Delta]]]:
        """Apply these in memory, the first ones if they take long, and commit them to the log; return an answer to each that was, and the
        deltas of views."""
        started = time.perf_counter()
        answers: list[Receipt | Problem] = []
        deltas: list[tuple[LiveView, Delta]] = []
        for run in runs_of(batches) if len(batches) > 1 else [batches]:
            if answers and (time.perf_counter() - started > _GROUP_SECONDS or (self._queue.has_small and not is_small(run[0]))):
                break
            answers += self._apply(run, deltas)
        newest = self._state.newest
        if newest > self._versions.published.number:
            self._log.commit()
        turn = time.perf_counter() - started
        self.turn_seconds.observe(turn)
        for batch in batches[: len(answers)]:
            batch.turn = turn
        for index, answer in enumerate(answers):
            if isinstance(answer, Receipt) and answer.duplicate:
                answers[index] = answer._replace(version=newest)
        return answers, deltas

    def _apply(self, batches: list[Batch], deltas: list[tuple[LiveView, Delta]]) -> list[Receipt | Problem]:
        """Apply batches, together if possible, and append them to the log. If this raises, the state is broken."""
        validated = self._validate(batches)
        if validated is None:
            return [answer for run in subruns(batches) for answer in self._apply(run, deltas)]
        if not isinstance(validated, Outcome):
            return [validated]
        started = time.perf_counter()
        try:
            applied = self._state.apply(validated)
        except BaseException:
            what, first = "applying %d batches failed, the first of %d changes (source %r, epoch %r)", batches[0]
            log.critical(what, len(batches), first.sent, first.source, first.epoch)
            raise
        self._append(batches, applied, time.perf_counter() - started)
        deltas += applied.deltas
        return [*applied.receipts]

    def _validate(self, batches: list[Batch]) -> Outcome | Receipt | Problem | None:
        """Return the outcome to apply, or the answer to a batch that is not applied. None: several must be validated in smaller runs, as
        one of them has an answer of its own; nothing was changed yet."""
        answer: Receipt | Problem | None = None
        try:
            for batch in batches:
                answer = answer or self._state.repeated(batch, 0) or self._state.unrecorded(batch)
            if answer is None and self._log.takes([batch.bytes for batch in batches]):
                return self._state.validate(batches)
            answer = answer or Problem("disk-full", "the disk of the data folder has no room for this batch; nothing of it was applied")
        except Problem as problem:
            answer = problem
        except Exception:
            if len(batches) == 1:
                log.exception("a batch could not be validated; nothing of it was applied")
            answer = Problem("internal", "the batch could not be applied")
        return answer if len(batches) == 1 else None

    def _append(self, batches: list[Batch], applied: AppliedBatches, seconds: float) -> None:
        """Append these, applied together in so many seconds, to the log."""
        rows, changes, count = [], 0, len(batches)
        last = applied.receipts[-1].version
        for version, batch in enumerate(batches, last + 1 - count):
            payload = applied.payload if version == last else b""
            of_source = () if batch.source is None else (self._state.receipts[batch.source], self._state.written[batch.source])
            rows.append(LogRow(version, batch.source, batch.run, batch.epoch, payload, *of_source))
            changes += batch.sent
        self._log.append(rows)
        self.update_seconds.observe(seconds / count, count)
        self.batch_changes.observe(changes / count, count)
        self.batches += count
        self.changes += changes

    def _publish(self, deltas: list[tuple[LiveView, Delta]]) -> None:
        if self._state.newest == self._versions.published.number:
            return
        reach("before-publish")
        to_feeds = [(view.feed, delta) for view, delta in deltas if view.feed is not None]  # one that is to replace another has none yet
        for feed, delta in to_feeds:
            feed.append(delta)
        self._versions.publish(self._state.version())
        for feed in {feed for feed, _ in to_feeds}:
            feed.wake()

    def _fail(self, error: BaseException) -> None:
        """Tell the owner, and all callers that wait."""
        log.critical("the writer has failed and the service stops: %s", error, exc_info=error)
        self.failure = error
        with self._lock:
            self._ended = True
        for one in self._queue.clear():
            refuse(one, error)
        self._on_failure(error)
