"""What the handlers share: the settings, the engine once it is ready, thread pools, and the way back from the writer.

Everything here runs in the event loop, except `Mailbox.deliver` and what the starting thread sets.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as waiting
from typing import Any, TypeVar

from service.access.audit import Audit
from service.access.guard import Guard
from service.adhoc.queries import Queries
from service.api.broadcast import Broadcasts
from service.api.dashboard.happenings import Problems
from service.api.dashboard.named_readers import NamedReaders
from service.api.http.admission import Bodies
from service.durability.usage import RecentUsage
from service.engine.outcomes import Receipt
from service.errors import Problem
from service.histogram import Histogram
from service.instance import Instance
from service.settings import Settings

T = TypeVar("T")
Answer = asyncio.Future[Receipt]

# Readers and followers hold a thread only while one of their chunks is made.
READERS = 32
FOLLOWERS = 32
# Requests that wait for the writer, such as a look-up of a row just changed: a large batch may take the writer seconds, and other requests
# must not wait for that.
WAITERS = 64
USAGE_AGE = 5.0  # seconds; each open dashboard asks every second
BUSY = 0.05  # seconds that the writer may need for a registration before the next view is planned all the same
REWRITERS = 4  # replacements, deletes by condition, changes of definitions: each may read all rows of a relation


class Mailbox:
    """Passes results from the writer's thread to the event loop, and wakes the loop once for many of them.

    Cost: one wake-up (a byte through a pipe) per group instead of one per batch.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Answer, Receipt | Problem]] = deque()
        self._armed = False

    def deliver(self, answer: Answer, result: Receipt | Problem) -> None:
        """Resolve `answer`. Any thread."""
        self._waiting.append((answer, result))
        if not self._armed:  # Append before the check: a drain that has begun either sees the item or has already disarmed.
            self._armed = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                if not self._loop.is_closed():  # at a stop, its clients have been answered
                    raise

    def _drain(self) -> None:
        self._armed = False
        while self._waiting:
            answer, result = self._waiting.popleft()
            if answer.done():  # the client has disconnected
                continue
            if isinstance(result, Problem):
                answer.set_exception(result)
            else:
                answer.set_result(result)


class Context:
    """One running service, for the handlers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.guard = Guard(settings.data)
        self.audit = Audit(settings.data, lambda seconds, call: self.loop.call_later(seconds, call))
        self.started = time.monotonic()
        self.stage = "starting"
        self.progress = 0.0
        self.ready_after: float | None = None  # seconds from start to ready
        self.closing = False
        self.loop_delays = Histogram()
        self._engine: Instance | None = None
        self._requests: Collection[object] = ()  # in progress, including streams
        self._streams: set[asyncio.Task[None]] = set()
        self.bodies = Bodies(settings)
        self.problems = Problems()
        self.named_readers = NamedReaders()
        self.queries = Queries(settings)
        self.usage = RecentUsage(settings.data, USAGE_AGE)
        self.workers = ThreadPoolExecutor(4, thread_name_prefix="worker")
        self.lookers = ThreadPoolExecutor(1, thread_name_prefix="looker")
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        self.followers = ThreadPoolExecutor(FOLLOWERS, thread_name_prefix="follower")
        self.broadcasts = Broadcasts(self.followers)
        self.rewriters = ThreadPoolExecutor(REWRITERS, thread_name_prefix="rewriter")
        self.registrar = ThreadPoolExecutor(1, thread_name_prefix="registrar")
        self.waiters = ThreadPoolExecutor(WAITERS, thread_name_prefix="waiter")
        self.loop: asyncio.AbstractEventLoop
        self.mailbox: Mailbox

    def attach(self, loop: asyncio.AbstractEventLoop, requests: Collection[object]) -> None:
        """Called once, in the loop, before the first request. `requests`: the server's set of current requests."""
        self.loop, self._requests = loop, requests
        self.mailbox = Mailbox(loop)

    def report(self, stage: str, progress: float) -> None:
        """Report the progress of the start: `stage` in a word, `progress` of that stage from 0 to 1. Any thread."""
        self.stage, self.progress = stage, progress

    def open(self, engine: Instance) -> None:
        """Admit requests: relations can be read and written. Any thread."""
        self._engine = engine

    def become_ready(self) -> None:
        """Let `/readyz` report that the service is ready. Any thread."""
        if self.ready_after is None:
            self.ready_after = time.monotonic() - self.started

    @property
    def ready(self) -> bool:
        return self._engine is not None

    @property
    def engine(self) -> Instance:
        """The engine; Problem `recovering` while there is none yet."""
        if self._engine is None:
            raise Problem("recovering", f"the service is starting: {self.stage}", stage=self.stage, progress=round(self.progress, 4))
        return self._engine

    async def work(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run something that takes milliseconds in a worker thread."""
        return await self.loop.run_in_executor(self.workers, function, *arguments)

    async def look(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a query for operators, which must not wait for other work."""
        return await self.loop.run_in_executor(self.lookers, function, *arguments)

    async def wait(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run something that waits for the writer."""
        return await self.loop.run_in_executor(self.waiters, function, *arguments)

    async def register(self, function: Callable[..., Future[T]], *arguments: Any) -> T:
        """Plan a view and have the writer register it. The next view is planned when the writer has done so, or is busy for long:
        otherwise, planning would compete for Python's lock with the writer's turn, for which single changes wait."""

        def planned() -> Future[T]:
            registered = function(*arguments)
            waiting([registered], BUSY)
            return registered

        registered = await self.loop.run_in_executor(self.registrar, planned)
        return await asyncio.shield(asyncio.wrap_future(registered))  # the writer continues if the service stops waiting

    async def rewrite(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run something that may read all of a relation, and waits for the writer."""
        return await self.loop.run_in_executor(self.rewriters, function, *arguments)

    def release_threads(self) -> None:
        self.audit.close()
        self.queries.children.close()
        for pool in (self.workers, self.lookers, self.readers, self.followers, self.rewriters, self.registrar, self.waiters):
            pool.shutdown(wait=False, cancel_futures=True)

    def track(self) -> asyncio.Task[None]:
        """Count the current task among the open streams, which a shutdown aborts."""
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)
        if self.closing:  # the request arrived just before the sockets were closed
            task.cancel()
        return task

    def break_streams(self) -> None:
        """At shutdown: abort every open stream."""
        self.closing = True
        for task in list(self._streams):
            task.cancel()
