"""The single writer: jobs and batches pass through a bounded queue to its thread, batches in groups that share an fsync, and one job after
each group.

    take what waits -> apply each in memory, as a version of its own -> append each to the log -> one commit
    -> publish the newest -> wake the followers -> answer each -> housekeeping, in pieces, while nothing waits

Whoever holds the turn writes: the thread, or for one short batch the caller of `apply_at_once`, when nothing waits and the thread is idle.
That caller may answer before it publishes, if no client can ask after the answer and before the publication. A duplicate is answered after
the commit of its group, so not before its first copy is on disk. When applying, appending or committing fails, the state on disk is
unknown, unless the disk was full: then nothing was committed. All callers that wait are told so, and the service must stop.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from service.durability.database import LogRow
from service.durability.failpoints import reach
from service.durability.log import Log
from service.engine.housekeeping import Owed
from service.engine.queued import Done, Item, Job, Made, Queue, Stop, Waiting, failed, is_small, problem_of, refuse, runs_of, subruns, tell
from service.engine.state import Applied, Outcome, Receipt, State, Unpublished
from service.engine.versions import Pins
from service.errors import Problem, ending
from service.histogram import Histogram
from service.views.deltas import Delta
from service.views.live_view import LiveView
from service.wire.batch import Batch

log = logging.getLogger("livejoin.writer")

Later = Callable[[Callable[[], None]], object]
T = TypeVar("T")

_GROUP_BATCHES, _GROUP_CHANGES, _GROUP_SECONDS = 256, 100_000, 0.02  # after so many seconds, no further batch of a group is begun
_LONG = 2e-3  # seconds that a batch takes for which a small one does not wait
_WAITING_BYTES = 1 << 30  # of decoded batches: beyond this, no more are accepted
_TICK = 1.0  # seconds between two checks of what expires with time
_SHORT = 1e-3  # seconds that a change may take in a caller's thread, judged by the previous ones
_FAST_COMMIT = 1e-3  # seconds of a commit for which the answer to a long batch waits
_MOST_ROWS, _MOST_VIEWS = 1_000, 50  # that a caller's thread may change; a structure counts rows by the piece, so may add one more
_SENDING = 2e-4  # seconds in which the event loop sends the answers, before it competes with housekeeping for Python's lock
_STUCK = 600.0  # seconds without a sign of progress: far more than a batch or a part of a build takes
_FADING = 0.9  # weight of a slow change, one change later


class Writer:
    """Owns the thread. It calls `pause` and `housekeep` after groups, `housekeep` also once a second, and while nothing waits until it
    returns that there is no more; `on_failure` when the service must stop; `is_short` to decide whether a caller may apply a batch."""

    def __init__(
        self, state: State, log: Log, versions: Pins, max_waiting: int, is_short: Callable[[Batch], bool], pause: Callable[[], None],
        housekeep: Callable[[], bool], on_failure: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._state, self._log, self._versions = state, log, versions
        self._max_waiting = max_waiting
        self._is_short, self._pause, self._housekeep, self._on_failure = is_short, pause, housekeep, on_failure
        self._queue = Queue()
        self._urgent: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._ends_group = False  # whether an urgent job waits for which the group in progress ends
        self._turn = threading.Lock()  # its holder writes
        self._lock = threading.Lock()  # nothing is queued after the end, and nothing is applied at once before what waits
        self._unpublished: Made | None = None  # of a caller that holds the turn and the answer
        self._left: tuple[Made, Done] | None = None  # of a caller that has returned the turn: for its next holder
        self._ended = False
        self._refuses = False  # whether all batches are refused, as the service ends
        self._unfinished = 0  # items queued or in progress
        self._untidy = False  # whether there is more housekeeping
        self._owed = Owed(lambda: len(self._queue) > 0)  # housekeeping
        self._each = 0.0  # seconds per change, measured on the last batch that was not small
        self._last = 0.0  # seconds that the last change took
        self._pace = 0.0  # likewise: the slowest of late, fading, without isolated slow ones, which are due to the scheduler
        self.failure: BaseException | None = None
        self._waiting_bytes = 0  # those in progress included
        self.batches = self.changes = 0
        self.batch_changes, self.update_seconds, self.turn_seconds = Histogram(), Histogram(), Histogram()
        self._beat: float | None = None  # time of the thread's last sign of progress; None while it is idle
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def busy_seconds(self) -> float:
        """Seconds since the thread's last sign of progress; 0 while it is idle."""
        beat = self._beat
        return 0.0 if beat is None else time.monotonic() - beat

    @property
    def is_stuck(self) -> bool:
        """Whether the writer has probably stopped for good."""
        return self.busy_seconds > _STUCK or (self._thread.ident is not None and not self._thread.is_alive() and not self._ended)

    def beat(self) -> None:
        """Signal progress within a job. The writer's thread."""
        self._beat = time.monotonic()

    def submit(self, batch: Batch, done: Done, is_admitted: bool = False) -> None:
        """Queue a batch. Problem `too-busy`, unless it was admitted before, or the reason why no more batches are accepted."""
        if not is_admitted:
            self.admit()
        self._put(Waiting(batch, done, batch.bytes + batch.prepared_bytes))

    def admit(self, elsewhere: int = 0) -> None:
        """Problem `too-busy` if the queue is full. `elsewhere`: number of batches that are yet to be submitted."""
        if len(self._queue) + elsewhere >= self._max_waiting:
            raise Problem("too-busy", f"{self._max_waiting} batches are already waiting")
        if self._waiting_bytes > _WAITING_BYTES:
            raise Problem("too-busy", f"batches of {self._waiting_bytes} bytes are already waiting")

    def apply_at_once(self, batch: Batch, later: Later) -> Receipt | Problem | Unpublished | None:
        """Apply a short batch in the caller's thread, without the queue; return the answer, which is on disk, or None if it must be queued.

        `later` is given a function that publishes it, and must call it soon: before anyone who may know the answer can ask. Unpublished:
        the batch changes many rows of a view.
        """
        with self._lock:
            if self._pace > _SHORT or self._unfinished or self._refuses or self._ended or not self._turn.acquire(blocking=False):
                return None
        try:
            self._log.look_at_disk()
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

    def _leave(self, made: Made, done: Done) -> None:
        """Return the turn to the thread, which first publishes what was applied at once."""
        with self._lock:
            left, self._unpublished = self._unpublished, None
        if left is None:  # `stop` has published it
            tell(done, made.answers[0])
            return
        self._left = left, done
        try:
            self._put(Job(lambda: None, Future(), True))  # to wake the thread
        except Problem:  # the end is queued already: the thread may not check again
            try:
                self._finish_left()
            except BaseException as error:
                self._fail(error)
        finally:
            self._turn.release()

    def _finish_left(self) -> None:
        """Publish what a caller has left. Called by the next holder of the turn."""
        if self._left is None:
            return
        (made, done), self._left = self._left, None
        try:
            self._publish(made)
        except BaseException:
            tell(done, failed())  # whether published or not, it is on disk
            raise
        tell(done, made.answers[0])

    def _conclude(self) -> None:
        """Publish what was applied at once, and return the turn. A second call does nothing."""
        with self._lock:
            made, self._unpublished = self._unpublished, None
        if made is not None:
            try:
                self._publish(made)
            except BaseException as error:
                self._fail(error)
            finally:
                self._turn.release()

    def call(self, work: Callable[[], T], urgent: bool = False, ends_group: bool = False) -> Future[T]:
        """Call `work` in the writer's thread, in its turn, or (urgent: it changes no rows) before the next group, or (ends_group) batch."""
        urgent = urgent or ends_group
        job = Job(work, Future[T](), urgent)
        if urgent:
            self._put(Job(self._run_urgent, Future(), True), job)
            self._ends_group |= ends_group
        else:
            self._put(job)
        return job.future

    def stop(self) -> None:
        """Finish all that waits, then end the thread. A second call does nothing."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._queue.put(Stop())
        self._conclude()  # the thread that was to do it later may have ended
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def refuse_waiting(self) -> None:
        """Refuse the batches that wait, and all later ones. Those in progress and jobs are finished."""
        with self._lock:
            self._refuses = True
            refused = self._queue.remove_batches()
            self._waiting_bytes -= sum(waiting.bytes for waiting in refused)
            self._unfinished -= len(refused)
        for waiting in refused:
            tell(waiting.done, ending())

    def _put(self, item: Item, urgent: Job | None = None) -> None:
        """Queue an item, and the urgent job that it does if nothing else does so before."""
        with self._lock:
            if self._ended or (self._refuses and isinstance(item, Waiting)):
                raise problem_of(self.failure) if self.failure else ending()
            if isinstance(item, Waiting):
                self._waiting_bytes += item.bytes
            self._unfinished += 1
            if urgent is not None:
                self._urgent.put(urgent)
            self._queue.put(item)

    def _run(self) -> None:
        ticked = time.monotonic()
        while True:
            item = self._queue.batch(0.0 if self._untidy else _TICK)
            idle = item is None and not self._queue
            self.beat()
            with self._turn:
                if self.failure is not None:  # from a batch that was applied at once
                    self._refuse_all(item, self.failure)
                    return
                left: Item | None = item  # in no queue
                try:
                    self._finish_left()
                    if isinstance(item, Waiting):
                        self._run_urgent()
                        left = None
                        was_long = self._group(item)
                        self.beat()
                        self._run_urgent_after(was_long)
                    else:
                        self._log.look_at_disk()
                    has_done = self._do_one()
                    if isinstance(item, Stop):
                        if not has_done:
                            return
                        self._queue.put(item)
                    owes = self._owed.is_much and not isinstance(item, Waiting)  # a group has done its part
                    if (idle and self._untidy) or owes or time.monotonic() - ticked > _TICK:
                        self._tidy()
                        ticked = time.monotonic()
                except BaseException as error:
                    self._fail(error)
                    refuse(left, error)
                    return
            self._beat = None

    def _do_one(self) -> bool:
        """Run a job, if one waits; return whether it did. A job too adds to the housekeeping due, which is done only once much is due: most
        jobs are short and leave nothing to do."""
        job = self._queue.job()
        if job is None:
            return False
        started = time.monotonic()
        job.do()
        with self._lock:
            self._unfinished -= 1
        self._owed.add(time.monotonic() - started)
        return True

    def _tidy(self, has_small: bool = False) -> None:
        """Wait for builds that fall behind, then do the housekeeping that is due. has_small: small batches have just been answered."""
        self._pause()
        if has_small and self._owed.is_worth_a_pause:
            time.sleep(_SENDING)
        self._untidy = self._owed.work(self._housekeep)

    def _run_urgent(self) -> None:
        self._ends_group = False
        while not self._urgent.empty():  # only this thread takes from it
            self._urgent.get_nowait().do()

    def _run_urgent_after(self, was_long: bool) -> None:
        """Run the urgent jobs after a group; quick batches that wait for a group with a large batch, or for the jobs, wait for no more."""
        if not self._urgent.empty():
            if was_long:
                self._ends_group = False  # not this one
                self.do_quick(keeps_small=True)
            self._run_urgent()
            self.do_quick(keeps_small=True)

    def _group(self, first: Waiting) -> bool:
        """Process `first` and the batches that wait behind it, except a long one behind a small one, until they have taken long enough; but
        quick ones that wait come before a long `first`, and before housekeeping. Return whether `first` was processed and is not small."""
        quick = self._quick(first) if self._estimate(first.batch) >= _LONG else []
        group, changes, has_small = quick or [first], first.batch.sent, is_small(first.batch)
        while not quick and len(group) < _GROUP_BATCHES and changes < _GROUP_CHANGES:
            item = self._queue.batch(0.0)  # sets aside the jobs before it, one of which has its turn after this group
            if item is None:
                break
            if isinstance(item, Stop) or (has_small and self._estimate(item.batch) >= _LONG):
                self._put_back([item])
                break
            group.append(item)
            changes += item.batch.sent
            has_small |= is_small(item.batch)
        started = time.monotonic()
        answers = [self._commit(group)]
        try:
            if not quick and time.monotonic() - started >= _LONG:
                self._ends_group = False  # urgent jobs wait for these, too
                if is_small(first.batch) or self._log.commit_seconds > _FAST_COMMIT:
                    answers.pop()()  # at once: only a long batch waits for those behind it, and not if commits are slow
                if behind := self._quick(keeps_small=True):
                    answers.append(self._commit(behind))
                    has_small = True
        finally:
            for deliver in answers:  # not before: the event loop, which sends them, would compete for Python's lock
                deliver()
        self._owed.add(time.monotonic() - started)
        if quick:
            return False  # `first` is the next batch: the housekeeping comes after it
        self._tidy(has_small)
        return not is_small(first.batch)

    def do_quick(self, keeps_small: bool = False) -> None:
        """Process the quick batches that wait (keeps_small: as in `Queue.quick`), while the others wait. Called by `pause`, too, which may
        take seconds: a small truncate does not keep the others waiting for so long."""
        if quick := self._quick(keeps_small=keeps_small):
            self._commit(quick)()

    def _quick(self, first: Waiting | None = None, keeps_small: bool = False) -> list[Waiting]:
        if not self._queue.quick_waits:
            return []
        with self._lock:
            return self._queue.quick(_GROUP_BATCHES, first, keeps_small)

    def _gives_way(self, batch: Batch) -> bool:
        """Whether something waits for which a group in progress ends before this batch."""
        return self._ends_group or (self._queue.quick_waits and self._estimate(batch) >= _LONG)

    def _estimate(self, batch: Batch) -> float:
        """Return how many seconds the batch will take, 0 if it is small."""
        return 0.0 if is_small(batch) else batch.sent * self._each

    def _commit(self, group: list[Waiting]) -> Callable[[], None]:
        """Apply, log and publish these, and return a function that delivers the answers; those that there is no time for are put back."""
        made = None
        self._log.look_at_disk()
        try:
            made = self._to_disk([waiting.batch for waiting in group])
            self._put_back(group[len(made.answers) :])
            group = group[: len(made.answers)]
            self._publish(made)
        except BaseException as error:
            for waiting in group:
                tell(waiting.done, problem_of(error) if made is None else failed())  # whether published or not, these are on disk
            raise
        finally:
            with self._lock:
                self._waiting_bytes -= sum(waiting.bytes for waiting in group)
                self._unfinished -= len(group)  # whoever asks needs the turn as well
        return partial(made.deliver, group)

    def _put_back(self, items: Sequence[Waiting | Stop]) -> None:
        """Return what was taken last to the queue; if all batches that wait were refused meanwhile, refuse these."""
        with self._lock:
            self._queue.put_back(items)
        if self._refuses:
            self.refuse_waiting()

    def _to_disk(self, batches: list[Batch], most: int | None = None) -> Made:
        """Apply these in memory, the first ones if they take long, and commit them to the log; there is an answer to each that was. `most`:
        rows of deltas that may be gathered for a single change; one that concerns many views is then not applied, and gets no answer."""
        started = time.perf_counter()
        answers: list[Receipt | Problem] = []
        deltas: list[tuple[LiveView, Delta]] = []
        for run in runs_of(batches) if len(batches) > 1 else [batches]:
            if answers and (time.perf_counter() - started > _GROUP_SECONDS or self._gives_way(run[0])):
                break
            answers += self._apply(run, deltas, most)
        newest = self._state.newest
        fresh = newest > self._versions.published.number
        if fresh:
            self._log.commit()
        turn, changes = time.perf_counter() - started, 0
        self.turn_seconds.observe(turn)
        for batch in batches[: len(answers)]:
            batch.turn = turn
            changes += batch.sent
        seconds = turn / max(1, changes)
        self._pace = max(min(seconds, self._last), _FADING**changes * self._pace)
        self._last = seconds
        for number, answer in enumerate(answers):
            if isinstance(answer, Receipt) and answer.duplicate:
                answers[number] = answer._replace(version=newest)
        return Made(answers, fresh, deltas)

    def _apply(self, batches: list[Batch], deltas: list[tuple[LiveView, Delta]], most: int | None) -> list[Receipt | Problem]:
        """Apply batches, together if possible, and append them to the log. If this raises, the state is broken."""
        judged = self._judge_together(batches) if len(batches) > 1 else self._judge(batches[0])
        if judged is None:
            return [answer for run in subruns(batches) for answer in self._apply(run, deltas, most)]
        if not isinstance(judged, Outcome):
            return [judged]
        if most is not None and len(judged.views) > _MOST_VIEWS:
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
        """Judge these together; None if they must be judged in smaller runs."""
        try:
            if any(self._state.is_duplicate(batch) for batch in batches):
                return None
            judged = self._state.judge_together(batches)
        except Exception:  # caused by one of them: it will be answered, or logged; nothing was changed yet
            return None
        return judged if judged is not None and self._log.takes([batch.bytes for batch in batches]) else None

    def _judge(self, batch: Batch) -> Outcome | Receipt | Problem:
        """Return the outcome to apply, or the answer to a batch that is not applied."""
        try:
            repeated = self._state.repeated(batch, 0) or self._state.unrecorded(batch)
            if repeated is not None:
                return repeated
            if not self._log.takes([batch.bytes]):
                return Problem("disk-full", "the disk of the data folder has no room for this batch; nothing of it was applied")
            return self._state.judge(batch)
        except Problem as problem:
            return problem
        except Exception:
            log.exception("a batch could not be validated; nothing of it was applied")
            return Problem("internal", "the batch could not be applied")

    def _append(self, batches: list[Batch], applied: Applied, seconds: float) -> None:
        """Append these, applied together in so many seconds, to the log."""
        rows, changes, count = [], 0, len(batches)
        last = applied.receipts[-1].version
        for version, batch in enumerate(batches, last + 1 - count):
            payload = applied.payload if version == last else b""
            of_source = () if batch.source is None else (self._state.receipts[batch.source], self._state.written[batch.source])
            rows.append(LogRow(version, batch.source, batch.run, batch.epoch, payload, *of_source))
            changes += batch.sent
        self._log.append(rows)
        if not is_small(batches[0]):
            self._each = seconds / changes
        self.update_seconds.observe(seconds / count, count)
        self.batch_changes.observe(changes / count, count)
        self.batches += count
        self.changes += changes

    def _publish(self, made: Made) -> None:
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
        """Tell the owner, and all callers that wait."""
        log.critical("the writer has failed and the service stops: %s", error, exc_info=error)
        self.failure = error
        with self._lock:
            self._ended = True
        self._refuse_all(None, error)
        while not self._urgent.empty():
            refuse(self._urgent.get_nowait(), error)
        self._queue.put(Stop())  # for a thread that waits for an item
        self._on_failure(error)

    def _refuse_all(self, item: Item | None, error: BaseException) -> None:
        """Tell the callers of this item, and of all that wait, that the writer has failed. In its turn."""
        for one in (item, *self._queue.clear()):
            refuse(one, error)
