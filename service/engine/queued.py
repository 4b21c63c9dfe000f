"""The writer's queue: its items, which of them are applied together, how their callers are answered, and which batches are yet to come."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn

from service.durability.folder import is_full
from service.engine.state import Receipt
from service.errors import Problem, ending
from service.wire.batch import TRUNCATE, Batch

log = logging.getLogger("livejoin.writer")

Done = Callable[[Receipt | Problem], None]


class Waiting(NamedTuple):
    batch: Batch
    done: Done
    bytes: int


class Job(NamedTuple):
    work: Callable[[], Any]
    future: Future[Any]
    only_reads: bool = False


class Stop(NamedTuple):
    """The last item of the queue."""


Item = Waiting | Job | Stop


def do(job: Job) -> None:
    """Run a job. What it raises goes to its caller, and also stops the writer if the job was to write."""
    try:
        result = job.work()
    except Problem as problem:
        job.future.set_exception(problem)
    except BaseException as error:
        job.future.set_exception(error if job.only_reads else problem_of(error))
        if not job.only_reads:
            raise
    else:
        job.future.set_result(result)


def fail(error: BaseException) -> NoReturn:
    """Fail a job, and stop the writer with it."""
    raise error


def refuse(item: Item | None, error: BaseException) -> None:
    """Answer an item's caller that the writer has failed."""
    if isinstance(item, Waiting):
        tell(item.done, problem_of(error))
    elif isinstance(item, Job):
        item.future.set_exception(problem_of(error))


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
    return batch.sent == 1 and len(batch.changes) == 1 and len(batch.changes[0].ops) == 1 and batch.changes[0].ops[0] != TRUNCATE


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


def smaller_runs(batches: Sequence[Batch]) -> list[list[Batch]]:
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


class UnderWay:
    """Batches that are prepared outside the queue: truncates (`truncates.py`), rewrites (`rewrites.py`), and those that wait behind one of
    their source. Later ones of a source wait: else they would make the earlier ones duplicates. Any thread."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []  # in order; replaced, never changed
        self._changed = threading.Condition()
        self.is_ending = False  # no batch waits any longer

    @property
    def count(self) -> int:
        return len(self._batches)

    def holds(self, source: str | None) -> bool:
        """Whether a batch of this source is under way."""
        return source is not None and any(batch.source == source for batch in self._batches)

    def begin(self, batch: Batch) -> None:
        """A second call does nothing."""
        with self._changed:
            if not any(other is batch for other in self._batches):
                self._batches = [*self._batches, batch]

    def end(self, batch: Batch) -> None:
        with self._changed:
            self._batches = [other for other in self._batches if other is not batch]
            self._changed.notify_all()

    def wait(self, batch: Batch) -> None:
        """Wait until no earlier batch of its source is under way. Problem `recovering` once the service ends."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_ending or not self._is_behind(batch))
        if self.is_ending:
            raise ending()

    def _is_behind(self, batch: Batch) -> bool:
        earlier = takewhile(lambda other: other is not batch, self._batches)
        return batch.source is not None and any(other.source == batch.source for other in earlier)

    @contextmanager
    def turn(self, batch: Batch) -> Iterator[None]:
        """Context in which it is under way, perhaps since before, and no earlier batch of its source is. Problem `recovering`."""
        self.begin(batch)
        try:
            self.wait(batch)
            yield
        finally:
            self.end(batch)

    def close(self) -> None:
        """Let no batch wait any longer."""
        with self._changed:
            self.is_ending = True
            self._changed.notify_all()
