"""Work that may take long, in steps of milliseconds: it holds a thread for one slice at a time, and ends when its client has disconnected.

A `Steps` is a generator: it yields wherever it may be interrupted, and returns its result. When the client disconnects or the service shuts
down, the generator is closed: release what it holds (above all a pin) in a `finally` or an `except BaseException`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from concurrent.futures import Executor
from typing import Generic, NamedTuple, TypeVar

from service.api.context import Context
from service.api.http.bodies import ClientGone, Receive
from service.api.stream import client_gone, release

T = TypeVar("T")
Steps = Generator[None, None, T]

SLICE = 0.020  # seconds; then the thread serves the request that has waited longest


class _Result(NamedTuple, Generic[T]):
    result: T


async def finish(context: Context, pool: Executor, receive: Receive, steps: Steps[T]) -> T:
    """Return the result of all steps, run in threads of `pool`. Raises what they raise, and ClientGone; cancelled when the service shuts
    down."""
    context.track()
    gone: asyncio.Future[None] | None = None  # most work is done within its first slice: until then, the connection is not watched
    job = context.loop.run_in_executor(pool, _slice, steps)
    try:
        while True:
            await asyncio.wait((job,) if gone is None else (job, gone), return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                done = job.result()
                if done is not None:
                    return done.result
            if gone is None:
                gone = asyncio.ensure_future(client_gone(receive))
            elif gone.done():
                raise ClientGone
            if job.done():
                job = context.loop.run_in_executor(pool, _slice, steps)
    except BaseException:
        release(pool, job, steps)
        raise
    finally:
        if gone is not None:
            gone.cancel()


def _slice(steps: Steps[T]) -> _Result[T] | None:
    end = time.perf_counter() + SLICE
    try:
        while True:
            next(steps)
            if time.perf_counter() >= end:
                return None
    except StopIteration as stop:
        return _Result(stop.value)
