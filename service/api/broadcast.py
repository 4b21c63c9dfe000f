"""The up-to-date followers of one view in one format: new changes are fetched and encoded once, and all followers are sent the same bytes.

    writer -- rings --> broadcast: fetches new changes in a thread -> `_said`, the newest versions' records -> wakes the seats
    follower at position p, base <= p: is sent the records after p, already encoded; before base, it reads for itself until it is up to date

Records are kept until all followers have taken them; for slow followers, all broadcasts together keep `_KEPT_BYTES`, in equal parts.

Everything here runs in the event loop, except `ring` and the work that `_take` does in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from typing import NamedTuple

from service.api.records import records
from service.following.feeds import Feed

log = logging.getLogger("livejoin.api")

_LARGEST_BYTES = 8 << 20  # of one version: each follower reads a larger version itself
_KEPT_BYTES = 16 << 20  # of records that slow followers have not taken, in all broadcasts
_OVERHEAD_BYTES = 256  # of the objects that hold the records of one version
_JOINED_BYTES = 1 << 20  # of records per send, except that one version is never divided: they are copied in the event loop
_PAUSE = 0.25  # seconds at most between two rounds


class EncodedChanges(NamedTuple):
    """Records of whole versions, each ended by a progress: the last version, the number of versions and of records."""

    body: bytes
    version: int
    versions: int
    records: int


class Waiter:
    """The place where one follower waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.position = -1  # the version that the follower had when it last asked for records
        self._waiting: asyncio.Future[None] | None = None
        self._woken = False  # since the last wait

    async def wait(self, due: float) -> None:
        """Wait until `wake` is called, unless it was called since the last wait, or until `due` on the loop's clock."""
        if not self._woken and self._loop.time() < due:
            self._waiting = self._loop.create_future()
            timer = self._loop.call_at(due, self.wake)
            try:
                await self._waiting
            finally:
                timer.cancel()
        self._woken = False

    def wake(self, *_: object) -> None:
        self._woken = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Broadcast:
    """The followers of a feed in one format."""

    def __init__(self, feed: Feed, kind: str, loop: asyncio.AbstractEventLoop, pool: Executor, share: Callable[[], int]) -> None:
        self.feed, self.kind = feed, kind
        self._loop, self._pool = loop, pool
        self._share = share  # bytes to keep at most for slow followers
        self._seats: set[Waiter] = set()
        self._said: list[EncodedChanges] = []  # one per version
        self._bytes = 0  # of `_said`
        self._joined: tuple[int, EncodedChanges] | None = None  # all of `_said` from this index on: most followers are at the same one
        self._base = self._head = -1  # `_said` covers the versions after the first, up to the second; -1: none
        self._unsent = -1  # each follower reads what follows this version itself: a problem, or a very large version
        self._news = asyncio.Event()
        self._rung = False
        self._telling = loop.create_task(self._emit(), context=Context())  # without the context of the first follower's request
        self._telling.add_done_callback(self._emitted_no_more)
        self._listener = feed.add_listener(self.ring)

    def join(self) -> Waiter:
        seat = Waiter(self._loop)
        self._seats.add(seat)
        return seat

    def leave(self, seat: Waiter) -> bool:
        """Remove a follower; return whether any is left. If not, the broadcast stops encoding."""
        self._seats.discard(seat)
        if not self._seats:
            self.feed.remove_listener(self._listener)
            self._telling.cancel()
        return bool(self._seats)

    def ring(self) -> None:
        """Signal new changes. Any thread; never waits; several calls before the next round count as one."""
        if not self._rung:
            self._rung = True
            self._loop.call_soon_threadsafe(self._news.set)

    def after(self, position: int, versions: int | None, seat: Waiter) -> EncodedChanges | None:
        """Return the records after `position`, of at most `versions` versions; None: the follower on `seat` must read by itself.

        The caller was up to date a moment ago; the first caller determines where the broadcast begins.
        """
        seat.position = position
        if position <= self._unsent:
            return None
        if self._base < 0:
            self._base = self._head = position
            self._news.set()  # changes that arrived meanwhile are not encoded yet
            self._wake()  # a follower that sleeps at an earlier version would miss the versions before this one
        if position < self._base:
            return None
        first = bisect_right(self._said, position, key=lambda said: said.version)
        if first == len(self._said):
            return EncodedChanges(b"", position, 0, 0)
        if versions is not None:
            return _together(self._said[first : first + versions])
        if self._joined is None or self._joined[0] != first:
            self._joined = first, _together(self._said[first:])
        return self._joined[1]

    async def _emit(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            self._rung = False
            if self._base < 0:  # each follower reads for itself
                self._wake()
            while self._base >= 0:
                new = await self._loop.run_in_executor(self._pool, self._take, self._head)
                if new is not None and not new:
                    break
                self._keep(new)
                begun = self._loop.time()
                self._wake()
                await asyncio.sleep(0)  # the followers continue,
                await asyncio.sleep(0)  # and have sent what is available
                # Many followers get a quarter of the loop's time: changes that arrive meanwhile are then one more message to each, not
                # many.
                await asyncio.sleep(min(_PAUSE, 3 * (self._loop.time() - begun)))
                self._drop()

    def _emitted_no_more(self, telling: asyncio.Task[None]) -> None:
        """Handle the end of `_emit`: no follower is left, or encoding has failed, and each follower reads by itself."""
        if not telling.cancelled():
            log.error("shared encoding for followers has failed; each follower now reads for itself", exc_info=telling.exception())
            self._unsent = 1 << 62
            self._forget()
            self._wake()

    def _wake(self) -> None:
        for seat in self._seats:
            seat.wake()

    def _take(self, position: int) -> list[EncodedChanges] | None:
        """Return whole versions after `position`, encoded; None if there is a problem or too much to keep."""
        try:
            return self._encoded(position)
        except Exception:
            log.exception("changes after version %d could not be encoded", position)
            return None  # each follower will meet the error itself

    def _encoded(self, position: int) -> list[EncodedChanges] | None:
        found: list[EncodedChanges] = []
        parts: list[bytes] = []
        size = 0
        for chunk in self.feed.changes(position):
            if chunk.kind == "error":
                return None
            more = list(records(chunk, self.kind))
            size += sum(map(len, more))
            if size > _LARGEST_BYTES:
                return found or None
            parts += more
            if chunk.kind == "progress":
                found.append(EncodedChanges(b"".join(parts), chunk.version, 1, len(parts)))
                parts, size = [], 0
        return found

    def _keep(self, new: list[EncodedChanges] | None) -> None:
        self._joined = None
        if new is None:
            self._unsent = self._head
            self._forget()
            return
        self._said += new
        self._bytes += _size(new)
        self._head = new[-1].version

    def _drop(self) -> None:
        """Drop the records that all followers have, and the oldest of the others beyond the share. Followers before `_base` read by
        themselves."""
        slowest = min([seat.position for seat in self._seats if seat.position >= self._base], default=self._head)
        dropped = bisect_right(self._said, slowest, key=lambda said: said.version)
        self._bytes -= _size(self._said[:dropped])
        share = self._share()
        while self._bytes > share:
            self._bytes -= _size(self._said[dropped : dropped + 1])
            dropped += 1
        if dropped:
            self._base = self._said[dropped - 1].version
            del self._said[:dropped]
            self._joined = None

    def _forget(self) -> None:
        self._said.clear()
        self._bytes = 0
        self._joined = None
        self._base = self._head = -1


def _size(said: list[EncodedChanges]) -> int:
    return sum([len(one.body) + _OVERHEAD_BYTES for one in said])


def _together(said: list[EncodedChanges]) -> EncodedChanges:
    """Join the first ones, up to `_JOINED_BYTES`, at least one."""
    size = 0
    for end, one in enumerate(said):
        size += len(one.body)
        if end and size > _JOINED_BYTES:
            said = said[:end]
            break
    return EncodedChanges(b"".join([one.body for one in said]), said[-1].version, len(said), sum([one.records for one in said]))


class Broadcasts:
    """The broadcasts of every feed and format that has followers."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._found: dict[tuple[Feed, str], Broadcast] = {}

    def join(self, feed: Feed, kind: str, loop: asyncio.AbstractEventLoop) -> tuple[Broadcast, Waiter]:
        broadcast = self._found.get((feed, kind))
        if broadcast is None:
            broadcast = self._found[feed, kind] = Broadcast(feed, kind, loop, self._pool, lambda: _KEPT_BYTES // len(self._found))
        return broadcast, broadcast.join()

    def leave(self, broadcast: Broadcast, seat: Waiter) -> None:
        if not broadcast.leave(seat):
            del self._found[broadcast.feed, broadcast.kind]
