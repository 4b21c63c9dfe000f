"""What waits for the writer, and how whoever waits is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, NoReturn

from service.durability.folder import is_full
from service.engine.state import Receipt
from service.errors import Problem
from service.wire.batch import Batch

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
    """Behind it comes nothing."""


Item = Waiting | Job | Stop


def do(job: Job) -> None:
    """Run a job; what it raises is its caller's, and the writer's end if it was to write."""
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
    """A job that fails, and the writer with it."""
    raise error


def refuse(item: Item | None, error: BaseException) -> None:
    """Tell who waits for it that the writer has failed."""
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
    """What the clients are told of a failure of the writer, before or in a commit. `disk-full`: a page could not be written, so the last
    page of the transaction, which commits it, is not whole, and nothing was applied."""
    if isinstance(error, Problem):
        return error
    if is_full(error):
        return Problem("disk-full", "the disk of the data folder is full; the service stops")
    return failed()


def failed() -> Problem:
    return Problem("internal", "the service has failed and stops")
