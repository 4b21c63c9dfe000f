"""The up-to-date followers of one view in one format: new changes are taken and encoded once, and all of them are
sent the same bytes.

    writer -- rings --> audience: takes what is new in a thread -> `_said`, the newest versions' records -> wakes the seats
    follower at position p, base <= p: the records after p, already encoded; else it reads for itself, until it is up to date

Everything here runs in the event loop, except `ring` and the work that `_take` does in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from concurrent.futures import Executor
from contextvars import Context
from typing import NamedTuple

from service.api.records import records
from service.following.feeds import Feed

log = logging.getLogger("livejoin.api")

_KEPT_BYTES = 8 << 20  # of records that were sent of late; a larger version is read by each follower itself
_JOINED_BYTES = 1 << 20  # of records that a follower is given at once, or one version's: they are copied in the event loop
_PAUSE = 0.25  # seconds at most between two rounds


class Said(NamedTuple):
    """Records of whole versions, each ended by a progress: the last version, the number of versions and of records."""

    body: bytes
    version: int
    versions: int
    records: int


class Seat:
    """The place where one follower waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: asyncio.Future[None] | None = None
        self._woken = False  # since the last wait
        self._due = self._rings = 0.0  # when it is to be woken, and when the timer rings
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, due: float) -> None:
        """Waits until it is woken, unless it has been since the last wait, or until `due` on the loop's clock."""
        if not self._woken and self._loop.time() < due:
            self._due = due
            if self._timer is None or self._rings > due:
                self._set_timer()
            self._waiting = self._loop.create_future()
            await self._waiting
        self._woken = False

    def wake(self, *_: object) -> None:
        self._woken = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        # One timer for many waits: a follower of a busy view waits a hundred times a second, each time until something comes.
        self.close()
        self._rings = self._due  # not asked of the timer: uvloop's has no time if it is close
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._loop.time() >= self._due:
            self.wake()
        else:
            self._set_timer()


class Audience:
    """Those who follow a feed in one format."""

    def __init__(self, feed: Feed, kind: str, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        self.feed, self.kind = feed, kind
        self._loop, self._pool = loop, pool
        self._seats: set[Seat] = set()
        self._said: list[Said] = []  # a version each
        self._joined: tuple[int, Said] | None = None  # all of `_said` from this place on: most stand at the same
        self._base = self._head = -1  # what was said after the first, up to the second; none yet
        self._untold = -1  # what comes next after this version each follower reads for itself: a problem, or a very large version
        self._news = asyncio.Event()
        self._rung = False
        self._telling = loop.create_task(self._tell(), context=Context())  # not that of the request of the first follower
        self._telling.add_done_callback(self._told_no_more)
        self._listener = feed.add_listener(self.ring)

    def join(self) -> Seat:
        seat = Seat(self._loop)
        self._seats.add(seat)
        return seat

    def leave(self, seat: Seat) -> bool:
        """Returns whether any follower is left; if not, the audience stops encoding."""
        seat.close()
        self._seats.discard(seat)
        if not self._seats:
            self.feed.remove_listener(self._listener)
            self._telling.cancel()
        return bool(self._seats)

    def ring(self) -> None:
        """Signals new changes. From any thread; never waits; several calls before the next round count as one."""
        if not self._rung:
            self._rung = True
            self._loop.call_soon_threadsafe(self._news.set)

    def after(self, position: int, versions: int | None) -> Said | None:
        """The records after `position`, of at most this many versions; None: the follower must read by itself.

        The caller was up to date a moment ago; the first caller determines where the audience begins.
        """
        if position <= self._untold or self._is_alone:
            return None
        if self._base < 0:
            self._base = self._head = position
            self._news.set()  # nothing that came meanwhile was encoded
            self._wake()  # a follower that sleeps at an earlier version would miss what is before this one
        if position < self._base:
            return None
        first = bisect_right(self._said, position, key=lambda said: said.version)
        if first == len(self._said):
            return Said(b"", position, 0, 0)
        if versions is not None:
            return _together(self._said[first : first + versions])
        if self._joined is None or self._joined[0] != first:
            self._joined = first, _together(self._said[first:])
        return self._joined[1]

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            self._rung = False
            if self._is_alone:
                self._forget()
            if self._base < 0:  # each reads for itself
                self._wake()
            while self._base >= 0:
                new = await self._loop.run_in_executor(self._pool, self._take, self._head)
                if new is not None and not new:
                    break
                self._keep(new)
                begun = self._loop.time()
                self._wake()
                await asyncio.sleep(0)  # they go on,
                await asyncio.sleep(0)  # and have sent what there is
                # A crowd gets a quarter of the loop's time: changes that arrive meanwhile are one more message to each, not many.
                await asyncio.sleep(min(_PAUSE, 3 * (self._loop.time() - begun)))
                if self._is_alone:
                    self._forget()
                    self._wake()

    @property
    def _is_alone(self) -> bool:
        """A single follower reads by itself: going through the audience costs a fifth more for one."""
        return len(self._seats) == 1

    def _told_no_more(self, telling: asyncio.Task[None]) -> None:
        """No follower is left; or encoding has failed, and each reads by itself."""
        if not telling.cancelled():
            log.error("shared encoding for followers has failed; each follower now reads for itself", exc_info=telling.exception())
            self._untold = 1 << 62
            self._forget()
            self._wake()

    def _wake(self) -> None:
        for seat in self._seats:
            seat.wake()

    def _take(self, position: int) -> list[Said] | None:
        """Whole versions after `position`, encoded; None if there is a problem or too much to keep."""
        try:
            return self._encoded(position)
        except Exception:
            log.exception("changes after version %d could not be encoded", position)
            return None  # each follower will get the error by itself

    def _encoded(self, position: int) -> list[Said] | None:
        found: list[Said] = []
        parts: list[bytes] = []
        size = 0
        for chunk in self.feed.changes(position, 0.0):
            if chunk.kind == "error":
                return None
            more = list(records(chunk, self.kind))
            size += sum(map(len, more))
            if size > _KEPT_BYTES:
                return found or None
            parts += more
            if chunk.kind == "progress":
                found.append(Said(b"".join(parts), chunk.version, 1, len(parts)))
                parts, size = [], 0
        return found

    def _keep(self, new: list[Said] | None) -> None:
        self._joined = None
        if new is None:
            self._untold = self._head
            self._forget()
            return
        self._said += new
        self._head = new[-1].version
        held, first = 0, len(self._said)
        while first > 0 and (held := held + len(self._said[first - 1].body)) <= _KEPT_BYTES:
            first -= 1
        if first:
            self._base = self._said[first - 1].version
            del self._said[:first]

    def _forget(self) -> None:
        self._said.clear()
        self._base = self._head = -1


def _together(said: list[Said]) -> Said:
    """The first ones, as many as may be joined."""
    size = 0
    for end, one in enumerate(said):
        size += len(one.body)
        if end and size > _JOINED_BYTES:
            said = said[:end]
            break
    return Said(b"".join([one.body for one in said]), said[-1].version, len(said), sum([one.records for one in said]))


class Audiences:
    """The audiences of every feed and format that is followed."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._found: dict[tuple[Feed, str], Audience] = {}

    def join(self, feed: Feed, kind: str, loop: asyncio.AbstractEventLoop) -> tuple[Audience, Seat]:
        audience = self._found.get((feed, kind))
        if audience is None:
            audience = self._found[feed, kind] = Audience(feed, kind, loop, self._pool)
        return audience, audience.join()

    def leave(self, audience: Audience, seat: Seat) -> None:
        if not audience.leave(seat):
            del self._found[audience.feed, audience.kind]
