"""All who follow one view in one format, where they are up to date: what is new is taken and encoded once, and every one of them is
sent the same bytes.

    writer -- rings --> audience: takes what is new in a thread -> `_said`, the newest versions' records -> wakes the seats
    follower at position p, base <= p: the records after p, already encoded; else it reads for itself, until it is up to date

Everything here lives in the event loop, but for `ring` and what `_take` does in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from concurrent.futures import Executor
from typing import NamedTuple

from service.api.records import records
from service.following.chunks import CHUNK_BYTES, CHUNK_ROWS
from service.following.feeds import Feed

log = logging.getLogger("livejoin.api")

_KEPT_BYTES = 8 << 20  # of records that were sent of late
_PAUSE = 0.25  # seconds at most between two rounds


class Said(NamedTuple):
    """Records of whole versions, each closed by a progress: the last of the versions, how many, and how many records."""

    body: bytes
    version: int
    versions: int
    records: int


class Seat:
    """Where one follower waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: asyncio.Future[None] | None = None
        self._woken = False  # since the last wait
        self._due = self._rings = 0.0  # when it is to be woken, and when the timer rings
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, due: float) -> None:
        """Until it is woken, if it was not since the last time, or until `due`, by the loop's clock."""
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
        self._untold = -1  # what comes next after this version each follower reads for itself: a problem, or very many rows
        self._news = asyncio.Event()
        self._rung = False
        self._telling = loop.create_task(self._tell())
        self._telling.add_done_callback(self._told_no_more)
        self._listener = feed.add_listener(self.ring)

    def join(self) -> Seat:
        seat = Seat(self._loop)
        self._seats.add(seat)
        return seat

    def leave(self, seat: Seat) -> bool:
        """Whether somebody is left; if not, it is told nothing any more."""
        seat.close()
        self._seats.discard(seat)
        if not self._seats:
            self.feed.remove_listener(self._listener)
            self._telling.cancel()
        return bool(self._seats)

    def ring(self) -> None:
        """There is something new. From any thread; never waits; many rings before they are heard are one."""
        if not self._rung:
            self._rung = True
            self._loop.call_soon_threadsafe(self._news.set)

    def after(self, position: int, versions: int | None) -> Said | None:
        """What was said after `position`, of so many versions at most; None: to be read by the follower itself.

        Whoever asks was up to date a moment ago: the first is where the audience begins.
        """
        if position <= self._untold or self._is_alone:
            return None
        if self._base < 0:
            self._base = self._head = position
            self._news.set()  # what came meanwhile was told to nobody
            self._wake()  # who sleeps since an earlier version would not hear of what is before this one
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
                # A crowd takes a quarter of the loop's time: what comes meanwhile is one message more to each, not many.
                await asyncio.sleep(min(_PAUSE, 3 * (self._loop.time() - begun)))

    @property
    def _is_alone(self) -> bool:
        """One follower reads for itself: going by way of the audience is a fifth more work for one."""
        return len(self._seats) == 1

    def _told_no_more(self, telling: asyncio.Task[None]) -> None:
        """Nobody is left; or it broke, and each reads for itself."""
        if not telling.cancelled():
            log.error("an audience is told nothing any more", exc_info=telling.exception())
            self._untold = 1 << 62
            self._forget()
            self._wake()

    def _wake(self) -> None:
        for seat in self._seats:
            seat.wake()

    def _take(self, position: int) -> list[Said] | None:
        """Whole versions after `position`, encoded; None: there is a problem, or more than is to be kept."""
        try:
            return self._encoded(position)
        except Exception:
            log.exception("changes after version %d could not be encoded", position)
            return None  # each follower will be told for itself

    def _encoded(self, position: int) -> list[Said] | None:
        found: list[Said] = []
        parts: list[bytes] = []
        rows = size = 0
        for chunk in self.feed.changes(position, 0.0):
            if chunk.kind == "error":
                return None
            if chunk.rows is not None:
                rows, size = rows + chunk.rows.num_rows, size + chunk.rows.nbytes
                if rows > CHUNK_ROWS or size > CHUNK_BYTES:
                    return found or None
            parts += records(chunk, self.kind)
            if chunk.kind == "progress":
                found.append(Said(b"".join(parts), chunk.version, 1, len(parts)))
                parts, rows, size = [], 0, 0
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
    return Said(b"".join([one.body for one in said]), said[-1].version, len(said), sum([one.records for one in said]))


class Audiences:
    """Of every feed and format that is followed."""

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
