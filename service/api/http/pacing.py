"""Large writes are divided, and those of all connections take turns: after about a millisecond of them the event loop looks at what else is
ready.

Otherwise a round of the loop with hundreds of clients that read at once takes hundreds of system calls, each of which copies megabytes; and
every other request needs several rounds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from livejoin.wire.rows import Pieces

PORTION = 9 << 18  # bytes: the system call for them takes half a millisecond of the event loop
_SMALL = 1 << 16  # bytes; fewer are written at once
_COPIED = 4096  # bytes; smaller pieces are copied, not passed to the system separately


class _LoopPace:
    """Of one event loop. Refers to it only while something waits, so that it can be collected."""

    def __init__(self) -> None:
        self._left = PORTION  # bytes that may be written in this round of the loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._renews = False  # whether `_renew` is called in the next round

    async def take(self, size: int) -> None:
        if self._waiting or self._left <= 0:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        self._left -= size
        self._renew_soon()

    def _renew_soon(self) -> None:
        if not self._renews:
            self._renews = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Let the next one write that still waits."""
        self._left, self._renews = PORTION, False
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():  # cancelled
                waiting.set_result(None)
                self._renew_soon()
                break


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopPace] = WeakKeyDictionary()


async def pace(size: int, encrypted: bool = False) -> None:
    """Wait until `size` bytes may be written; to encrypt them takes as long again."""
    if size <= _SMALL:
        return
    loop = asyncio.get_running_loop()
    await _by_loop.setdefault(loop, _LoopPace()).take(2 * size if encrypted else size)


def in_portions(pieces: Pieces, encrypted: bool = False) -> Iterator[Pieces]:
    """Divide into system calls of about `PORTION` bytes, half of that if TLS encrypts them, without copying, except that adjacent small
    pieces are joined."""
    most = PORTION // 2 if encrypted else PORTION
    portion, small, room = Pieces(), Pieces(), most
    for piece in filter(len, pieces):
        if len(piece) < _COPIED and room > len(piece):
            small.append(piece)
            room -= len(piece)
            continue
        if small:
            portion.append(b"".join(small))
            small = []
        rest = memoryview(piece)
        while rest:
            portion.append(rest[:room])
            rest, room = rest[room:], room - len(portion[-1])
            if not room:
                yield portion
                portion, room = [], most
    if small:
        portion.append(b"".join(small))
    if portion:
        yield portion
