"""A view's feed: its changes of late, and the followers who read them.

A delta is two sets of slots until it is settled: turned into Arrow, many versions by one gather. Unsettled deltas keep their
slots (`floor`); settled ones keep themselves, in segments, up to the view's bound in rows and bytes. What is dropped
moves `lost`: a token of an older version has expired. A quiet view loses nothing, so its tokens stay good.

    lost < kept versions that changed the view < ... <= published

Writer: append (before the version is published), wake (after), housekeep, close. Everything else: any thread.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.chunks import CHUNK_ROWS, Chunk, cut_up
from service.deltas import Combination, Delta
from service.errors import Problem
from service.subscriptions import Subscription
from service.tokens import Forged, FromBefore, Signer
from service.versions import Pins

if TYPE_CHECKING:
    from service.cursors import RowReader

_PENDING_ROWS, _PENDING_VERSIONS = 4096, 256
Gather = Callable[[Combination], tuple[pa.RecordBatch, pa.RecordBatch]]
Open = Callable[[], "RowReader"]


@dataclass(slots=True)
class _Segment:
    """Settled changes: of versions[i] the rows starts[i]..starts[i+1], the first deletes[i] of them deleted."""

    versions: list[int]
    starts: list[int]
    deletes: list[int]
    keys: pa.RecordBatch
    rows: pa.RecordBatch
    row_bytes: float

    def change(self, place: int) -> tuple[int, pa.RecordBatch, pa.RecordBatch, int]:
        start, end = self.starts[place], self.starts[place + 1]
        return self.versions[place], self.keys.slice(start, end - start), self.rows.slice(start, end - start), self.deletes[place]


class Feed:
    """The changes of one view, from the published version on. `gather` turns slots into keys and rows, `open_reader` reads it whole."""

    def __init__(
        self, name: str, id_: str, retain: tuple[int, int], versions: Pins, signer: Signer, gather: Gather, open_reader: Open
    ) -> None:
        self._name, self._id = name, id_
        self.versions = versions
        self._open_reader = open_reader
        self._retain_rows, self._retain_bytes = retain
        self._signer = signer
        self._gather = gather
        self._changed = threading.Condition()
        self._pending: list[Delta] = []
        self._pending_rows = 0
        self._segments: deque[_Segment] = deque()
        self._first = 0  # the first kept version of the first segment
        self._rows, self._bytes = 0, 0.0
        self._lost = versions.published.number
        self._cut = -1  # the version whose delta was too large, the newest such
        self._closed: Problem | None = None
        self._listeners: dict[int, Callable[[], None]] = {}
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()

    # the writer

    def append(self, delta: Delta) -> None:
        """Take the changes of a version that is about to be published."""
        with self._changed:
            if delta.too_large:
                self._cut_at(delta.version)
                return
            self._pending.append(delta)
            self._pending_rows += delta.rows
            self._trim()

    def wake(self) -> None:
        """Tell the followers that there is something."""
        with self._changed:
            self._changed.notify_all()
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener()

    def housekeep(self, published: int) -> None:
        """Settle what has grown old."""
        if self._pending and (self._pending_rows > _PENDING_ROWS or published - self._pending[0].version >= _PENDING_VERSIONS):
            with self._changed:
                self._settle()

    def floor(self) -> int | None:
        """The oldest version whose rows unsettled deltas still read; None if there are none."""
        with self._changed:
            return self._pending[0].version - 1 if self._pending else None

    def close(self, problem: Problem) -> None:
        """The view is dropped: its followers end with this problem."""
        with self._changed:
            self._closed = problem
            self._cut_at(self.versions.published.number)
        self.wake()

    # followers

    def subscribe(self, since: str | None = None, snapshot: bool = False) -> Subscription:
        """Follow from a token on, from a whole reading of the view on (then `since` is not looked at), or from now on.

        Problems: `bad-token`, `token-expired`; `view-building`; `not-found` once the view is dropped.
        """
        if self._closed is not None:
            raise self._closed
        reader = self._open_reader() if snapshot else None
        if reader is not None:
            position = reader.version
        else:
            position = self.versions.published.number if since is None else self._position(since)
        subscription = Subscription(self, position, reader)
        self._subscriptions.add(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    @property
    def subscribers(self) -> int:
        return len(self._subscriptions)

    def add_listener(self, listener: Callable[[], None]) -> int:
        """Have `listener` called (by the writer's thread; it must not wait) whenever there is something new; gives its number."""
        with self._changed:
            number = max(self._listeners, default=0) + 1
            self._listeners[number] = listener
            return number

    def remove_listener(self, number: int) -> None:
        with self._changed:
            self._listeners.pop(number, None)

    def token(self, version: int) -> str:
        return self._signer.seal("token", self._name, self._id, version)

    def changes(self, position: int, timeout: float) -> list[Chunk]:
        """What follows `position`, whole versions of some thousand rows in all; waits for it up to `timeout` seconds."""
        with self._changed:
            if timeout > 0 and not self._news(position):
                self._changed.wait_for(lambda: self._news(position), timeout)
            problem = self._trouble(position)
            if problem is None:
                self._settle()
                problem = self._trouble(position)  # what was settled may be more than is kept
            if problem is not None:
                return [Chunk("error", position, token=self.token(position), problem=problem)]
            found = list(self._after(position))
        chunks: list[Chunk] = []
        for version, keys, rows, deletes in found:
            chunks += cut_up(version, "delete", keys.slice(0, deletes), rows.slice(0, deletes))
            chunks += cut_up(version, "insert", keys.slice(deletes), rows.slice(deletes))
            chunks.append(Chunk("progress", version, token=self.token(version)))
        return chunks

    def quiet_until(self, position: int) -> int:
        """The newest published version, if nothing has changed the view since `position`; else `position`."""
        with self._changed:
            published = self.versions.published.number
            return position if self._news(position) else max(position, published)

    def _position(self, since: str) -> int:
        try:
            name, id_, version = self._signer.open("token", since)
        except Forged:
            raise Problem("bad-token", "this is not a token of this service") from None
        except FromBefore as error:
            if error.args[0][0] != self._name:
                raise Problem("bad-token", f"this is a token of the view {error.args[0][0]}") from None
            raise Problem("token-expired", "the service was started again since") from None
        if (name, id_) != (self._name, self._id):
            raise Problem("bad-token", f"this is a token of {'another view' if name != self._name else 'an earlier view'} named {name}")
        with self._changed:
            self._settle()  # the bound in bytes is known only then
            trouble = self._trouble(version)
        if trouble is not None:
            raise Problem("token-expired", f"the changes after version {version} are no longer kept", version=version)
        return int(version)

    def _trouble(self, position: int) -> Problem | None:
        """Why the changes after `position` can't be had."""
        if self._closed is not None:
            return self._closed
        if position < self._cut:
            return Problem("delta-too-large", f"version {self._cut} changed more rows than the view keeps changes", version=self._cut)
        if position < self._lost:
            return Problem("reader-too-slow", f"the changes after version {position} are no longer kept", version=position)
        return None

    def _news(self, position: int) -> bool:
        if position < self._lost or self._closed is not None:
            return True
        if self._segments and self._segments[-1].versions[-1] > position:
            return True
        published = self.versions.published.number
        for delta in reversed(self._pending):
            if delta.version <= published:
                return delta.version > position
        return False

    def _after(self, position: int) -> Iterator[tuple[int, pa.RecordBatch, pa.RecordBatch, int]]:
        """The settled changes after `position`, oldest first, some thousand rows."""
        wanted: list[tuple[_Segment, int]] = []
        for segment in reversed(self._segments):
            if segment.versions[-1] <= position:
                break
            wanted.append((segment, bisect_right(segment.versions, position)))
        rows = 0
        for segment, first in reversed(wanted):
            for place in range(first, len(segment.versions)):
                if rows >= CHUNK_ROWS:
                    return
                rows += segment.starts[place + 1] - segment.starts[place]
                yield segment.change(place)

    def _settle(self) -> None:
        """Turn what is pending and published into one segment."""
        published = self.versions.published.number
        settled = [delta for delta in self._pending if delta.version <= published]
        if not settled:
            return
        parts = [part for delta in settled for part in (delta.deletes, delta.inserts)]
        keys, rows = self._gather(tuple(np.concatenate(slots) for slots in zip(*parts, strict=True)))
        sizes = np.array([delta.rows for delta in settled], np.int64)
        starts: npt.NDArray[np.int64] = np.concatenate(([0], np.cumsum(sizes)))
        row_bytes = (keys.nbytes + rows.nbytes) / keys.num_rows
        versions = [delta.version for delta in settled]
        self._segments.append(_Segment(versions, starts.tolist(), [len(delta.deletes[0]) for delta in settled], keys, rows, row_bytes))
        self._pending = self._pending[len(settled) :]
        self._pending_rows -= keys.num_rows
        self._rows += keys.num_rows
        self._bytes += keys.num_rows * row_bytes
        too_large = np.flatnonzero(sizes * row_bytes > self._retain_bytes)
        if len(too_large):
            self._cut_at(versions[too_large[-1]])
        self._trim()

    def _trim(self) -> None:
        """Drop the oldest versions until the rest is within the bounds."""
        while self._rows + self._pending_rows > self._retain_rows or self._bytes > self._retain_bytes:
            self._drop_oldest()

    def _cut_at(self, version: int) -> None:
        """Keep nothing up to this version, which can't be followed."""
        while (oldest := self._oldest()) is not None and oldest <= version:
            self._drop_oldest()
        self._lost = self._cut = version

    def _oldest(self) -> int | None:
        if self._segments:
            return self._segments[0].versions[self._first]
        return self._pending[0].version if self._pending else None

    def _drop_oldest(self) -> None:
        if not self._segments:
            delta = self._pending.pop(0)
            self._pending_rows -= delta.rows
            self._lost = delta.version
            return
        segment = self._segments[0]
        rows = segment.starts[self._first + 1] - segment.starts[self._first]
        self._rows -= rows
        self._bytes -= rows * segment.row_bytes
        self._lost = segment.versions[self._first]
        self._first += 1
        if self._first == len(segment.versions):
            self._segments.popleft()
            self._first = 0
            if not self._segments:
                self._bytes = 0.0  # no dust of subtractions
