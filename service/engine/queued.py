"""The writer's queue: its items, which of them are applied together, and how their callers are answered."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, NoReturn, TypeVar

from livejoin.wire.batch import TRUNCATE, Batch
from service.durability.folder import is_full
from service.engine.outcomes import Receipt
from service.errors import Problem

log = logging.getLogger("livejoin.writer")

_FEW_CHANGES = 16  # of a small batch
_MOMENT = 1e-3  # seconds, while other batches may not be taken

T = TypeVar("T")
_Sender = tuple[str, frozenset[str] | None]  # a source, and the relations that the sender may write to; None: all
Done = Callable[[Receipt | Problem], None]


class QueuedBatch(NamedTuple):
    batch: Batch
    done: Done
    bytes: int


class NothingWritten(Exception):
    """A job has failed before it wrote anything; the cause is for its caller."""


def change(plan: Callable[[], Callable[[], T]]) -> T:
    """A job in two steps. `plan` leaves nothing behind that others can see, so what it raises goes to the caller alone: as Unchanged. What
    it returns then writes, to disk and memory: what that raises also stops the service, unless it is a Problem."""
    try:
        write = plan()
    except Exception as error:
        raise NothingWritten from error
    return write()


class Job(NamedTuple):
    """`only_reads`: what it raises goes to its caller alone."""

    work: Callable[[], Any]
    future: Future[Any]
    only_reads: bool = False

    def do(self) -> None:
        """Run the job. What it raises goes to its caller, and also stops the writer if the job may have written something."""
        try:
            result = self.work()
        except Problem as problem:
            self.future.set_exception(problem)
        except NothingWritten as failure:
            self.future.set_exception(failure.__cause__)
        except BaseException as error:
            self.future.set_exception(error if self.only_reads else problem_of(error))
            if not self.only_reads:
                raise
        else:
            self.future.set_result(result)


Item = QueuedBatch | Job


def is_small(batch: Batch) -> bool:
    """Whether the batch has few changes, and neither truncates nor rewrites a relation."""
    return batch.sent <= _FEW_CHANGES and all(len(changes.ops) > 0 and TRUNCATE not in changes.ops.tolist() for changes in batch.changes)


def _sender_of(batch: Batch) -> _Sender | None:
    """None: batches without a source may pass each other."""
    return None if batch.source is None else (batch.source, batch.writes)


class Queue:
    """What waits for the writer's thread, which alone takes from it. Small batches have a lane of their own, so that none waits for more
    than one group of large ones; but no batch passes another of its source by senders of the same rights. Batches that wait at the same
    time come over different connections, and whoever has sent them cannot know in which order they arrive. A job passes no batch before it,
    unless it is urgent, or the batch is a large one that waits for a build."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._small: deque[tuple[int, QueuedBatch]] = deque()  # each with the number of its arrival
        self._large: deque[tuple[int, QueuedBatch]] = deque()
        self._sources: Counter[_Sender] = Counter()  # of the large lane, and of what was taken from it last
        self._taken: list[tuple[int, QueuedBatch]] = []  # by the last call of `take`, and not put back
        self._took_small = self._only_small = False
        self._jobs: deque[tuple[int, Job]] = deque()
        self._urgent: deque[Job] = deque()
        self._arrived = 0
        self.ends = False  # nothing more will be put

    def put(self, item: Item, urgent: bool = False) -> None:
        with self._ready:
            self._arrived += 1
            if isinstance(item, Job):
                self._urgent.append(item) if urgent else self._jobs.append((self._arrived, item))
            elif is_small(item.batch) and _sender_of(item.batch) not in self._sources:
                self._small.append((self._arrived, item))
            else:
                sender = _sender_of(item.batch)
                before = [one for one in self._small if _sender_of(one[1].batch) == sender] if sender is not None else []
                for one in before:
                    self._small.remove(one)
                for one in (*before, (self._arrived, item)):
                    self._large.append(one)
                    self._enter(one[1].batch)
            self._ready.notify()

    def _enter(self, batch: Batch) -> None:
        if (sender := _sender_of(batch)) is not None:
            self._sources[sender] += 1

    def _leave(self, batch: Batch) -> None:
        if (sender := _sender_of(batch)) is not None:
            self._sources[sender] -= 1
            if not self._sources[sender]:
                del self._sources[sender]

    def end(self) -> None:
        with self._ready:
            self.ends = True
            self._ready.notify()

    def __len__(self) -> int:
        return len(self._small) + len(self._large) + len(self._jobs) + len(self._urgent)

    def has_of(self, batch: Batch) -> bool:
        """Whether a batch of the same source, by a sender of the same rights, waits or is being applied."""
        sender = _sender_of(batch)
        with self._ready:
            waiting = (*self._small, *self._large, *self._taken)
            return sender is not None and any(_sender_of(one.batch) == sender for _, one in waiting)

    @property
    def has_small(self) -> bool:
        return len(self._small) > 0

    def take(self, timeout: float, batches: int, changes: int, only_small: bool = False) -> list[QueuedBatch]:
        """Remove and return the next batches of one lane, at most so many with about so many changes; of both alternately, unless only
        small ones are wanted. [] if nothing comes within the timeout, or only jobs. What was taken before was released or put back."""
        with self._ready:
            self._only_small = only_small = only_small and not self.ends
            if only_small and not (self._small or self._urgent):
                self._ready.wait(_MOMENT)  # not longer: the large lane may be opened meanwhile
            elif not len(self) and not self.ends and timeout > 0:
                self._ready.wait(timeout)
            self._took_small = only_small or (self.has_small and not (self._took_small and self._large))
            lane, self._taken = self._small if self._took_small else self._large, []
            while lane and len(self._taken) < batches and changes > 0:
                self._taken.append(lane.popleft())
                changes -= self._taken[-1][1].batch.sent
            return [waiting for _, waiting in self._taken]

    def release(self) -> None:
        """What was taken is done: later batches of its sources may pass what waits."""
        with self._ready:
            for _, waiting in () if self._took_small else self._taken:
                self._leave(waiting.batch)
            self._taken = []

    def put_back(self, group: Sequence[QueuedBatch]) -> None:
        """Put back the last of those that were taken. A small one that would now pass one of its source begins the large lane."""
        with self._ready:
            for _ in group:
                arrival, waiting = self._taken.pop()
                if self._took_small and _sender_of(waiting.batch) not in self._sources:
                    self._small.appendleft((arrival, waiting))
                else:
                    self._large.appendleft((arrival, waiting))
                    if self._took_small:
                        self._enter(waiting.batch)

    def jobs(self) -> list[Job]:
        """Remove and return the urgent jobs, and another one if all batches before it were taken, but for large ones that may not be."""
        with self._ready:
            found = [*self._urgent]
            self._urgent.clear()
            waiting = self._small if self._only_small else (*self._small, *self._large)
            if self._jobs and self._jobs[0][0] < min((arrival for arrival, _ in waiting), default=self._arrived + 1):
                found.append(self._jobs.popleft()[1])
            return found

    def remove_batches(self) -> list[QueuedBatch]:
        with self._ready:
            found = [waiting for _, waiting in (*self._small, *self._large)]
            for _, waiting in self._large:
                self._leave(waiting.batch)
            self._small.clear()
            self._large.clear()
            return found

    def clear(self) -> list[Item]:
        """Remove everything."""
        jobs = [*self._urgent, *(job for _, job in self._jobs)]
        self._urgent.clear()
        self._jobs.clear()
        return [*jobs, *self.remove_batches()]


def fail(error: BaseException) -> NoReturn:
    """Fail a job, and stop the writer with it."""
    raise error


def refuse(item: Item | None, error: BaseException) -> None:
    """Answer an item's caller that the writer has failed."""
    if isinstance(item, QueuedBatch):
        emit(item.done, problem_of(error))
    elif isinstance(item, Job):
        item.future.set_exception(problem_of(error))


def receipt_of(submit: Callable[[Batch, Done], None], batch: Batch) -> Receipt:
    """Submit the batch and wait. Raises the Problem."""
    answer: Future[Receipt | Problem] = Future()
    submit(batch, answer.set_result)
    result = answer.result()
    if isinstance(result, Problem):
        raise result
    return result


def emit(done: Done, answer: Receipt | Problem) -> None:
    try:
        done(answer)
    except Exception:
        log.exception("a response could not be delivered")


def problem_of(error: BaseException) -> Problem:
    """The answer to clients after a failure of the writer, before or during a commit. `disk-full`: a page could not be written, so the last
    page of the transaction, which commits it, is incomplete, and nothing was applied."""
    if isinstance(error, Problem):
        return error
    if is_full(error):
        return Problem("disk-full", "the disk of the data folder is full; the service stops")
    return failed()


def failed() -> Problem:
    return Problem("internal", "the service has failed and stops")


def is_single(batch: Batch) -> bool:
    """Whether the batch is exactly one row's change: many of these may be applied together."""
    if batch.sent != 1 or len(batch.changes) != 1:
        return False
    ops = batch.changes[0].ops
    return len(ops) == 1 and ops[0] != TRUNCATE


def runs_of(batches: list[Batch]) -> Iterator[list[Batch]]:
    """Split the batches, in order, into runs: single changes together, any other batch alone. A source occurs once in a run."""
    run: list[Batch] = []
    sources: set[str | None] = set()
    for batch in batches:
        single = is_single(batch)
        if run and not (single and (batch.source is None or batch.source not in sources)):
            yield run
            run, sources = [], set()
        if single:
            run.append(batch)
            sources.add(batch.source)
        else:
            yield [batch]
    if run:
        yield run


def subruns(batches: Sequence[Batch]) -> list[list[Batch]]:
    """Split at least two single changes that cannot be one run: into runs in which each row occurs once, or else into halves."""
    runs: list[list[Batch]] = [[]]
    met: set[tuple[Any, ...]] = set()
    for batch in batches:
        key = _key_of(batch)
        if key in met:
            runs.append([])
            met.clear()
        runs[-1].append(batch)
        met.add(key)
    if len(runs) > 1:
        return runs
    middle = len(batches) // 2
    return [[*batches[:middle]], [*batches[middle:]]]


def _key_of(batch: Batch) -> tuple[Any, ...]:
    """The relation of a single change, and the key of its row."""
    (changes,) = batch.changes
    rows, key = changes.rows, changes.definition.rules.key_ordinals
    if rows.values is not None:
        return changes.relation, *[rows.values[0][ordinal] for ordinal in key]
    return changes.relation, *[rows.arrow.column(ordinal)[0].as_py() for ordinal in key]
