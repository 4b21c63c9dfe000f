"""A query that runs for a request: the event loop waits for the child process, a thread processes its output in slices, and a time limit
applies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

from service.adhoc.process import KEPT
from service.adhoc.session import End, Session
from service.api.context import Context
from service.api.http import formats
from service.api.http.bodies import Receive, Scope, Send
from service.api.metrics import QUERY_SECONDS, ROWS_SENT
from service.api.steps import SLICE
from service.api.stream import Chunk, StreamedResponse
from service.errors import Problem

log = logging.getLogger("livejoin.api")

T = TypeVar("T")

_OUTCOMES = {"query-too-large": "too-large", "query-timeout": "timeout"}  # of problems; others: refused


class RunningQuery:
    """One query, from its first slice to `leave`; it counts as running until then. Used in the event loop."""

    def __init__(self, context: Context, session: Session, kind: str, begun: float) -> None:
        """`kind`: media type. `begun`: when the request arrived, by time.monotonic."""
        self._context, self._session, self._kind, self._begun = context, session, kind, begun
        self._format: formats.Format | None = None
        self._outcome, self._counted = "gone", False
        self.empty, self.expired = True, False
        self.version = session.version

    async def first(self) -> Chunk:
        """Return everything before the first row, and the chunk with that row; otherwise as `next`."""
        body, more = await self.next()
        while more and self.empty:
            found, more = await self.next()
            body += found
        return body, more

    async def next(self) -> Chunk:
        """Return the next bytes of the response, and whether more follow. Raises the query's problem. Do not cancel this; call `leave`
        instead."""
        try:
            while True:
                if self._session.waits:
                    await self._readable()
                found = await self._in_time(self._context.loop.run_in_executor(self._context.readers, self._slice))
                if found is not None:
                    if not found[1]:
                        self._count("done")  # the child has ended: others need not wait until this client has read everything
                    return found
        except Problem as problem:
            self._outcome = _OUTCOMES.get(problem.type, "refused")
            raise
        except Exception:
            self._outcome = "failed"
            raise

    async def leave(self, last: asyncio.Future[Chunk]) -> None:
        """End the query in whatever state it is, and release everything; `last`: its last step, which may still be running."""
        context, queries = self._context, self._context.queries
        outcome = "timeout" if self.expired else self._outcome if last.done() else "gone"
        self._session.stop()
        with suppress(Exception):  # the error has been reported already, or nobody is left to receive it; a step ends with its child
            await last
        self._count(outcome)
        await context.work(self._session.close)
        QUERY_SECONDS.observe(time.monotonic() - self._begun)
        context.loop.call_later(KEPT + 1, lambda: context.closing or context.workers.submit(queries.children.tidy))

    def _count(self, outcome: str) -> None:
        """Count the query as ended, once."""
        if not self._counted:
            self._counted = True
            self._context.queries.end(outcome)

    @property
    def left(self) -> float:
        """Seconds that the query may still take."""
        return max(0.0, self._begun + self._session.limits.seconds - time.monotonic())

    async def _readable(self) -> None:
        """Wait for output of the child."""
        loop, word = self._context.loop, asyncio.Event()
        loop.add_reader(self._session.fileno, word.set)
        try:
            await self._in_time(asyncio.ensure_future(word.wait()))
        finally:
            loop.remove_reader(self._session.fileno)

    async def _in_time(self, job: asyncio.Future[T]) -> T:
        """Return the result of `job` if it completes within the query's time. Problem `query-timeout`."""
        done, _ = await asyncio.wait((job,), timeout=self.left)
        if not done:
            self._session.stop()
            await asyncio.wait((job,))  # ends when the child does
            job.exception()
            raise Problem("query-timeout", f"the query has taken {self._session.limits.seconds:g} seconds (--query-time)")
        return job.result()

    def _slice(self) -> Chunk | None:
        """In a thread: return what `next` returns, or None to continue."""
        found = self._session.advance(time.perf_counter() + SLICE)
        if found is None:
            return None
        if isinstance(found, End):
            assert self._format is not None, "the child tells the columns first"
            return [self._format.end(None)], False
        if self._format is None:
            self._format = formats.make(self._kind, self.version, found.schema)
            return [self._format.head()], True
        self.empty = self.empty and not found.num_rows
        ROWS_SENT.inc(found.num_rows)
        return self._format.chunk(found), True


class Answer(StreamedResponse):
    """The rows of a running query. While it runs, its time limit also covers waiting for the client."""

    def __init__(self, context: Context, running: RunningQuery, first: Chunk, kind: str, headers: Mapping[str, str]) -> None:
        super().__init__(context, first, kind, headers)
        self._running = running
        self._limit = asyncio.timeout(running.left if first[1] else None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._limit:
                await super().__call__(scope, receive, send)
        except TimeoutError:
            self._running.expired = True
            log.info("%s aborted: query-timeout, as its client took no more", scope["path"])

    def _begin(self) -> asyncio.Future[Chunk]:
        return asyncio.ensure_future(self._next())

    async def _next(self) -> Chunk:
        found = await self._running.next()
        if not found[1] and not self._limit.expired():
            self._limit.reschedule(None)  # the response is complete: how fast the client reads it is up to the connection
        return found

    def _release(self, job: asyncio.Future[Chunk]) -> None:
        self._leaving = asyncio.ensure_future(self._running.leave(job))
