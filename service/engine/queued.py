"""The writer's queue: its items, which of them are applied together, and how their callers are answered."""

from __future__ import annotations

import logging
import queue
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn, TypeVar

from service.durability.folder import is_full
from service.engine.state import Receipt
from service.errors import Problem
from service.views.deltas import Delta
from service.views.live_view import LiveView
from service.wire.batch import TRUNCATE, Batch

log = logging.getLogger("livejoin.writer")

_FEW_CHANGES = 16  # of a small batch

T = TypeVar("T")
Done = Callable[[Receipt | Problem], None]


class Waiting(NamedTuple):
    batch: Batch
    done: Done
    bytes: int


class Unchanged(Exception):
    """A job has failed before it wrote anything; the cause is for its caller."""


def change(plan: Callable[[], Callable[[], T]]) -> T:
    """A job in two steps. `plan` leaves nothing behind that others can see, so what it raises goes to the caller alone: as Unchanged. What
    it returns then writes, to disk and memory: what that raises also stops the service, unless it is a Problem."""
    try:
        write = plan()
    except Exception as error:
        raise Unchanged from error
    return write()


class Job(NamedTuple):
    work: Callable[[], Any]
    future: Future[Any]
    only_reads: bool = False

    def do(self) -> None:
        """Run the job. What it raises goes to its caller, and also stops the writer if the job may have written something."""
        try:
            result = self.work()
        except Problem as problem:
            self.future.set_exception(problem)
        except Unchanged as failure:
            self.future.set_exception(failure.__cause__)
        except BaseException as error:
            self.future.set_exception(error if self.only_reads else problem_of(error))
            if not self.only_reads:
                raise
        else:
            self.future.set_result(result)


class Made(NamedTuple):
    """Batches that are on disk but not published: their answers, whether there is a new version, and its deltas."""

    answers: list[Receipt | Problem]
    fresh: bool
    deltas: list[tuple[LiveView, Delta]]

    @property
    def is_long(self) -> bool:
        """Whether a delta is still to be completed."""
        for _, delta in self.deltas:
            if delta.rest is not None:
                return True
        return False

    def deliver(self, group: Sequence[Waiting]) -> None:
        """Answer each of these."""
        for waiting, answer in zip(group, self.answers, strict=True):
            if isinstance(answer, Receipt):  # a batch that was refused may be resent
                waiting.batch.release()  # before its client is answered, and the memory of its body reused
            tell(waiting.done, answer)


class Stop(NamedTuple):
    """The last item of the queue."""


Item = Waiting | Job | Stop


def is_small(batch: Batch) -> bool:
    return batch.sent <= _FEW_CHANGES


def is_quick(batch: Batch) -> bool:
    """Whether the batch is small, and neither truncates nor rewrites a relation."""
    return is_small(batch) and all(len(changes.ops) > 0 and TRUNCATE not in changes.ops.tolist() for changes in batch.changes)


class Queue:
    """What waits for the writer's thread, which alone takes from it. Batches keep their order, and so do jobs, but batches do not wait for
    the jobs before them: the thread sets these aside, and runs one after each group of batches. Otherwise a change that takes a fraction
    of a millisecond would wait for all views that are registered at the same moment. A job does not overtake the batches before it.

    Quick batches may overtake others, but none of their source. Batches that wait at the same time come over different connections, and
    whoever has sent them cannot know in which order they arrive."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._returned: deque[Item] = deque()  # the next items
        self._jobs: deque[Job] = deque()  # set aside
        self._taken: list[Item] = []  # since the last call of `job`
        self.quick_waits = False  # whether a quick batch may wait: one was put since the last call of `quick`, or left by it
        self._overtaken: Waiting | None = None

    def put(self, item: Item) -> None:
        self.quick_waits |= isinstance(item, Waiting) and is_quick(item.batch)
        self._items.put(item)

    def put_back(self, items: Sequence[Waiting | Stop]) -> None:
        """Return what was taken last, since the last call of `job`, and the jobs behind the first of it. The writer's thread."""
        if items:
            at = next(at for at, item in enumerate(self._taken) if item is items[0])
            self._returned.extendleft(reversed(self._taken[at:]))
            for item in self._taken[at:]:
                if isinstance(item, Job):
                    self._jobs.pop()
                elif isinstance(item, Waiting):
                    self.quick_waits |= is_quick(item.batch)
            del self._taken[at:]

    def quick(self, most: int, first: Waiting | None = None, keeps_small: bool = False) -> list[Waiting]:
        """Remove and return up to `most` quick batches that overtake all others, `first` included: if there are any, it is returned to the
        queue, and has its turn when it is taken next. Nothing passes a batch of its source, or one for which structures were prepared, as
        more changes would outdate them; keeps_small: nor a small one that is not quick. The writer's thread, while nothing is put."""
        if first is not None and (first is self._overtaken or first.batch.emptied):
            return []
        self._returned.extend(_all_of(self._items.get_nowait))
        passed: set[str | None] = set() if first is None else {first.batch.source}
        found: list[Waiting] = []
        others: deque[Item] = deque()
        barred = self.quick_waits = False
        for item in self._returned:
            if isinstance(item, Waiting):
                source = item.batch.source
                if quick := is_quick(item.batch):
                    if len(found) < most and not barred and (source is None or source not in passed):
                        found.append(item)
                        continue
                self.quick_waits |= quick
                passed.add(source)
                barred |= bool(item.batch.emptied) or (keeps_small and is_small(item.batch) and not quick)
            others.append(item)
        self._returned = others
        if found and first is not None:
            self.put_back([first])
            self._overtaken = first
        self._taken += found
        return found

    def __len__(self) -> int:
        return self._items.qsize() + len(self._returned) + len(self._jobs)

    def batch(self, timeout: float) -> Waiting | Stop | None:
        """Remove and return the next batch, or the end; None if there is none. Waits as long as there is no job either."""
        with suppress(queue.Empty):
            while True:
                item = self._next(0.0 if self._jobs else timeout)
                self._taken.append(item)
                if not isinstance(item, Job):
                    return item
                self._jobs.append(item)
        return None

    def _next(self, timeout: float) -> Item:
        with suppress(IndexError):
            return self._returned.popleft()
        return self._items.get(timeout=timeout)

    def job(self) -> Job | None:
        """Remove and return the first of the jobs that were set aside. After each group, in the writer's turn."""
        self._taken.clear()
        return self._jobs.popleft() if self._jobs else None

    def remove_batches(self) -> list[Waiting]:
        """Remove the batches. Any thread; nothing is put, or put back, meanwhile."""
        items = [*_all_of(self._returned.popleft), *_all_of(self._items.get_nowait)]
        for item in items:
            if not isinstance(item, Waiting):
                self._items.put(item)
        return [item for item in items if isinstance(item, Waiting)]

    def clear(self) -> list[Item]:
        """Remove everything. Only the holder of the writer's turn: the thread may set more jobs aside meanwhile, but takes none."""
        jobs = [self._jobs.popleft() for _ in range(len(self._jobs))]
        return [*jobs, *_all_of(self._returned.popleft), *_all_of(self._items.get_nowait)]


def _all_of(take: Callable[[], T]) -> Iterator[T]:
    """What this function returns until nothing is left."""
    with suppress(IndexError, queue.Empty):
        while True:
            yield take()


def fail(error: BaseException) -> NoReturn:
    """Fail a job, and stop the writer with it."""
    raise error


def refuse(item: Item | None, error: BaseException) -> None:
    """Answer an item's caller that the writer has failed."""
    if isinstance(item, Waiting):
        tell(item.done, problem_of(error))
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


def tell(done: Done, answer: Receipt | Problem) -> None:
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
