"""A view's feed: its recent changes, and the followers who read them.

A delta consists of slots until it is settled: converted to Arrow, many versions by one gather. That of a version in which the view has got
new structures is first read from both; followers wait for that. Unsettled deltas retain their slots (`floor`); settled ones are kept in
segments, up to the view's bounds in rows and bytes. Dropping changes advances `lost`: tokens of older versions have expired. A quiet view
drops nothing, so its tokens stay valid. Snapshots store the settled changes (`stored`), and a start restores them (`restore`); replaying
the log brings back the later versions.

    lost < kept versions that changed the view < ... <= published

The writer calls append (before the version is published), wake (after), housekeep, restart, hand_over and close, any thread everything
else. Rows are gathered under `_settling`, never under `_lock`, so the writer waits only for a few assignments. The writer itself settles
some thousand rows at a time; a separate thread settles a larger version.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.durability.folder import DamagedFolder
from service.errors import Problem, bad_parameter
from service.following.chunks import CHUNK_ROWS, Chunk, cut_up
from service.following.listeners import Listeners
from service.following.pending import PendingDeltas, first_rows
from service.following.segments import Segment, merged, segment_of, stored, taken_back, to_merge
from service.following.subscriptions import Subscription
from service.reading.choosing import Asked, ChosenChanges
from service.reading.cursors import Readers, open_rows
from service.reading.tokens import ForgedToken, Tokens
from service.tables.store import pieces
from service.views.deltas import Combination, Delta, SettledDelta, StoredDeltas, joined, too_large

log = logging.getLogger("livejoin.feeds")

_PENDING_ROWS, _PENDING_VERSIONS = 4096, 256
_LONG_ROWS = 1 << 16  # of one version: gathering them takes some milliseconds
_LARGEST_TEXT = 1 << 30  # bytes of one version to take at once
Gather = Callable[[Combination], tuple[pa.RecordBatch, pa.RecordBatch]]
TextBytes = Callable[[Combination], npt.NDArray[np.int64]]


class Feed(Listeners):
    """The changes of one view, from the published version on. `gather` converts slots to keys and rows, and `text_bytes` returns their
    bytes of text, per row. `owns_rows`: as in `LiveView`: unsettled deltas retain no other rows. A version with more than 1 GiB of text
    cannot be followed."""

    def __init__(
        self, name: str, id_: str, retain: tuple[int, int], readers: Readers, tokens: Tokens, gather: Gather, text_bytes: TextBytes,
        owns_rows: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._id, self._owns_rows = id_, owns_rows
        self.owner = f"view {name} {id_}"
        self._readers, self.versions = readers, readers.versions
        self._retain_rows, self._retain_bytes = retain
        self._tokens = tokens
        self.gather, self._text_bytes = gather, text_bytes
        self._lock = threading.RLock()
        self._settling = threading.Lock()  # its holder settles; taken before `_lock`
        self._in_hand: int | None = None  # the first of the versions that are being settled
        self._pending = PendingDeltas()
        self.segments: deque[Segment] = deque()
        self._first = 0  # number of the first segment's first kept version
        self._rows, self._bytes = 0, 0.0
        self.emitted = 0  # rows, whether still kept or not
        self._lost = self.versions.published.number
        self._cut = -1  # the newest version whose delta was too large
        self._closed: Problem | None = None

    # the writer

    def append(self, delta: Delta) -> None:
        """Take the changes of versions that will be published together, or are published already."""
        with self._lock:
            if self._closed is not None:  # the view has failed in the same group of batches
                if delta.later is not None:
                    delta.later.close()
                return
            self._take(len(self._pending), delta)

    def _take(self, at: int, delta: Delta) -> None:
        if delta.cut >= 0:
            self._cut_at(delta.cut)
        if delta.versions:
            self.emitted += delta.rows
            self._pending.put(at, delta)
            if delta.versions[0] <= self._lost:  # replayed, of a version before the view's definition was replaced
                self._pending.leave_out(self._lost)
            self._trim()

    def housekeep(self, published: int, everything: bool) -> bool:
        """Settle old changes, or all, some thousand rows of them: unsettled changes retain the slots of their rows, and of all rows retired
        in their relations since. Return whether there are more to settle here."""
        with self._lock:
            if not self._pending or self._closed is not None:
                return False
            grown = everything or self._pending.rows > _PENDING_ROWS
            old = not self._owns_rows and published - self._pending[0].versions[0] >= _PENDING_VERSIONS
            long = self._pending[0].later is not None or self._pending[0].starts[1] > _LONG_ROWS
        if not (grown or old or long) or not self._settling.acquire(blocking=False):  # another thread, or a follower, is settling
            return False
        try:
            if not long:
                self._settle_some(_PENDING_ROWS)
        finally:
            self._settling.release()
        if long:
            threading.Thread(target=self.settle, name="settle", daemon=True).start()
            return False
        with self._lock:
            return bool(self._pending) and (everything or self._pending.rows > _PENDING_ROWS)

    def floor(self) -> int | None:
        """The oldest version whose rows unsettled deltas still read; None if there are none."""
        with self._lock:
            first = self._in_hand if self._in_hand is not None else self._pending[0].versions[0] if self._pending else None
            return None if first is None else first - 1

    def restart(self, version: int) -> None:
        """Discard everything up to this version, the published one; later deltas follow it."""
        with self._lock:
            self._drop_up_to(version)
            self._lost = version

    def hand_over(self, gather: Gather, text_bytes: TextBytes, owns_rows: bool, retain: tuple[int, int]) -> None:
        """Take the deltas of another view, with the same columns, from now on. Nothing is to be read, and everything is published; in the
        writer's turn."""
        self.settle()
        with self._lock:
            self.gather, self._text_bytes, self._owns_rows = gather, text_bytes, owns_rows
            self._retain_rows, self._retain_bytes = retain

    # snapshots

    def stored(self, version: int) -> StoredDeltas:
        """Return the retained changes up to a published version, for a snapshot of it. Any thread; takes as long as settling all of
        them."""
        self.settle()
        with self._lock:
            lost, cut = min(self._lost, version), min(self._cut, version)
            parts = []
            for at, segment in enumerate(self.segments):
                first, end = self._first if at == 0 else 0, bisect_right(segment.versions, version)
                if end > first and self._closed is None:
                    parts.append((segment, first, end))
        return stored(lost, cut, parts)

    def restore(self, version: int, found: StoredDeltas | None, keys: pa.Schema, rows: pa.Schema) -> None:
        """Restore the stored changes up to a version, that of the snapshot; `append` receives all later ones. If there are none, or they
        are damaged, the feed starts empty. `keys`, `rows`: the schemas of the view. Call this before anyone follows."""
        self._lost = version
        if found is None:
            return
        try:
            lost, cut, segments = taken_back(found, keys, rows, version)
        except (ValueError, TypeError, KeyError, OSError, DamagedFolder) as error:
            what = "the changes of the view %s up to version %d cannot be read, so tokens from before it expire: %s"
            log.error(what, self._name, version, error)
            return
        self._lost, self._cut = lost, cut
        for segment in segments:
            self.segments.append(segment)
            self._rows += segment.starts[-1]
            self._bytes += segment.bytes
            self._merge_small()
        self._trim()

    # the end

    def close(self, problem: Problem) -> None:
        """End the followers with this problem: the view is dropped or has failed. Rows that are being gathered are discarded: their slots
        may be reused."""

        def unavailable(*_: object) -> NoReturn:
            raise problem

        with self._lock:
            self._closed = problem
            self._cut_at(self.versions.published.number)
            # They hold the view, which holds this feed: its memory must be freed at once, not by the cycle collector.
            self.gather = self._text_bytes = unavailable
        self.wake()

    # followers

    def subscribe(
        self, since: str | None = None, snapshot: bool = False, until: str | None = None, asked: Asked | None = None
    ) -> Subscription:
        """Follow from a token, from a snapshot of the whole view (then `since` is ignored), or from now on; up to another token, if one is
        given beside `since`. `asked`: only of these rows; their windows are on intervals whose ends the view shows.

        Problems: `bad-token`, `token-expired`; `bad-parameter` of `asked`, and if `until` is before `since`; `view-building`; `too-busy`;
        `not-found` once the view is dropped.
        """
        if self._closed is not None:
            raise self._closed
        chosen = None if asked is None else ChosenChanges(self._readers.published.view(self._name), asked, self._readers.settings)
        window, _, _, where, columns = asked or Asked()
        reader = open_rows(self._readers, self._name, window=window, where=where, columns=columns) if snapshot else None
        if reader is not None:
            position = reader.version
        else:
            position = self.versions.published.number if since is None else self._position(since)
        end = None if until is None else self._position(until)
        if end is not None and end < position:
            raise bad_parameter("until", f"this token is of version {end}, before that of since, {position}")
        subscription = Subscription(self, position, reader, end, chosen)
        holdings, most = self._readers.holdings, self._readers.settings.max_followers
        with holdings.lock:
            if holdings.count(Subscription) >= most:
                subscription.close()
                raise Problem("too-busy", f"there are already {most} followers, the maximum (--max-followers)")
            holdings.add(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        self._readers.holdings.release(subscription)

    @property
    def subscribers(self) -> int:
        return self._readers.holdings.count(Subscription, self.owner)

    @property
    def lag(self) -> int:
        """Number of versions by which the slowest follower lags; 0 if no follower has changes to read."""
        newest = self.versions.published.number
        return max([0, *(newest - self.quiet_until(one.at) for one in self._readers.holdings.of(Subscription, self.owner))])

    @property
    def kept_rows(self) -> int:
        return self._rows + self._pending.rows

    @property
    def bytes(self) -> int:
        """Bytes of the settled rows."""
        return int(self._bytes)

    def token(self, version: int) -> str:
        return self._tokens.seal(self._name, self._id, version)

    def changes(self, position: int) -> list[Chunk]:
        """Return the changes after `position`, whole versions of some thousand rows in all; none if there are none yet."""
        with self._lock:
            problem = self._trouble(position)
        if problem is None:
            self.settle()
        with self._lock:
            problem = self._trouble(position)  # settling may have dropped changes beyond the bounds
            if problem is not None:
                return [Chunk("error", position, token=self.token(position), problem=problem)]
            found = list(self._after(position))
        chunks: list[Chunk] = []
        for version, keys, rows, deletes in found:
            chunks += cut_up(version, "delete", keys.slice(0, deletes), rows.slice(0, deletes))
            chunks += cut_up(version, "insert", keys.slice(deletes), rows.slice(deletes))
            chunks.append(Chunk("progress", version, token=self.token(version)))
        return chunks

    def end(self, since: str, most: int | None) -> tuple[int, int]:
        """Return the last version after a token up to which there are at most `most` rows of changes, or the first version if that alone
        has more (None: the newest version), and the number of rows up to it. Reads no rows.

        Problems: `bad-token`, `token-expired`, `not-found`.
        """
        if self._closed is not None:
            raise self._closed
        position = self._position(since)
        with self._lock:
            published = max(position, self.versions.published.number)
            stretches = list[tuple[Sequence[int], Sequence[int]]]()
            for segment, first in self._segments_after(position):
                stretches.append((segment.versions[first:], segment.starts[first:]))
            for delta in self._pending:
                if delta.later is not None:  # one that has come just now
                    published = min(published, delta.versions[0] - 1)
                if position < delta.versions[-1] <= published:
                    first = bisect_right(delta.versions, position)
                    stretches.append((delta.versions[first:], delta.starts[first:]))
        last, rows = position, 0
        for versions, starts in stretches:
            fit = len(versions) if most is None else bisect_right(starts, starts[0] + most - rows) - 1
            fit = max(fit, int(last == position))
            if fit:
                last, rows = versions[fit - 1], rows + starts[fit] - starts[0]
            if fit < len(versions):
                return last, rows
        return published, rows

    def quiet_until(self, position: int) -> int:
        """Return the newest published version if nothing has changed the view since `position`; otherwise `position`."""
        with self._lock:
            published = self.versions.published.number
            return position if self._news(position) else max(position, published)

    def _position(self, since: str) -> int:
        try:
            name, id_, version, is_of_here = self._tokens.open(since)
        except ForgedToken:
            raise Problem("bad-token", "the token was not issued by this service") from None
        if name != self._name:
            raise Problem("bad-token", f"the token belongs to another view, named {name}")
        if not is_of_here:
            raise Problem("token-expired", "the token is of a version that this folder has lost", version=version)
        if id_ != self._id:
            raise Problem("bad-token", f"the token belongs to an earlier view named {name}")
        if version > self.versions.published.number:
            raise Problem("token-expired", f"there is no version {version} yet", version=version)
        self.settle()  # only this determines the size in bytes
        with self._lock:
            trouble = self._trouble(version)
        if trouble is not None:
            raise Problem("token-expired", f"the changes after version {version} are no longer kept", version=version)
        return int(version)

    def _trouble(self, position: int) -> Problem | None:
        """Return why the changes after `position` are not available; None if they are."""
        if self._closed is not None:
            return self._closed
        if position < self._cut:
            return Problem("delta-too-large", f"the changes of version {self._cut} exceed what the view keeps", version=self._cut)
        if position < self._lost:
            return Problem("reader-too-slow", f"the changes after version {position} are no longer kept", version=position)
        return None

    def _news(self, position: int) -> bool:
        if position < self._lost or self._closed is not None:
            return True
        if self.segments and self.segments[-1].versions[-1] > position:
            return True
        published = self.versions.published.number
        for delta in reversed(self._pending):
            if delta.versions[-1] <= published:
                return delta.versions[-1] > position
        return False

    def _after(self, position: int) -> Iterator[tuple[int, pa.RecordBatch, pa.RecordBatch, int]]:
        """Yield the settled changes after `position`, oldest first, some thousand rows."""
        rows = 0
        for segment, first in self._segments_after(position):
            for i in range(first, len(segment.versions)):
                if rows >= CHUNK_ROWS:
                    return
                rows += segment.starts[i + 1] - segment.starts[i]
                yield segment.change(i)

    def _segments_after(self, position: int) -> Iterator[tuple[Segment, int]]:
        """Return the segments with changes after `position`, the oldest first, each with its first wanted version."""
        wanted: list[tuple[Segment, int]] = []
        for segment in reversed(self.segments):
            if segment.versions[-1] <= position:
                break
            wanted.append((segment, bisect_right(segment.versions, position)))
        return reversed(wanted)

    def settle(self) -> None:
        """Settle all published changes. Any thread; takes as long as reading and converting them."""
        with self._settling:
            while self._read_one():
                pass
            self._settle_some(None)

    @property
    def is_behind(self) -> bool:
        with self._lock:
            return self._pending.to_read(self.versions.published.number) is not None

    def _read_one(self) -> bool:
        """Put its rows in the place of a delta that is to be read, unless it is dropped meanwhile; return False if there is none."""
        with self._lock:
            delta = self._pending.to_read(self.versions.published.number)
        if delta is None or delta.later is None:
            return False
        try:
            read = delta.later.read()
        except Exception:
            log.exception("changes of the view %s could not be read: its followers are told that they are too large", self._name)
            read = too_large(delta.versions[0])
        with self._lock:
            at = self._pending.take_out(delta)
            if at is not None and isinstance(read, Delta):
                self._take(at, read)
            elif at is not None and isinstance(read, SettledDelta):  # of a replaced view: everything before it is settled
                version, deletes, keys, rows = read
                self.emitted += rows.num_rows
                self._take_in(segment_of(Delta([version], [0, rows.num_rows], [deletes], ()), keys, rows))
        return True

    def _settle_some(self, most: int | None) -> None:
        """Convert pending published changes to segments: the oldest versions with `most` rows together (None: all), at least one. Versions
        that exceed the bound by their text alone are dropped without copying it."""
        with self._lock:
            published = self.versions.published.number
            pending = self._pending.to_settle(published)
            if not pending or self._closed is not None:
                return
            self._in_hand = pending[0].versions[0]
            gather, text_bytes = self.gather, self._text_bytes
        try:
            settled = joined(pending if most is None else first_rows(pending, most))
            texts = np.add.reduceat(text_bytes(settled.slots), settled.starts[:-1])
            too_large = np.flatnonzero(texts > min(self._retain_bytes, _LARGEST_TEXT))
            behind = np.cumsum(texts[::-1])[::-1]  # of each version and all later ones
            first = max(int(np.count_nonzero(behind > self._retain_bytes)), int(too_large[-1]) + 1 if len(too_large) else 0)
            with self._lock:
                if len(too_large):
                    self._cut_at(settled.versions[too_large[-1]])
                if first:
                    self._drop_up_to(settled.versions[first - 1])
            for part in pieces(texts[first:]):
                some = settled.part(first + part.start, first + part.stop)
                segment = segment_of(some, *gather(some.slots))
                with self._lock:
                    self._take_in(segment)
                self._merge_small()
        finally:
            with self._lock:
                self._in_hand = None

    def _take_in(self, segment: Segment) -> None:
        """Replace the oldest pending versions by their segment, without those dropped meanwhile."""
        dropped = bisect_right(segment.versions, self._lost)
        if dropped == len(segment.versions) or self._closed is not None:
            return
        if dropped:
            assert not self.segments, "the oldest go first"
            self._first = dropped
        rows = segment.starts[-1] - segment.starts[dropped]
        self.segments.append(segment)
        self._pending.leave_out(segment.versions[-1])
        self._rows += rows
        self._bytes += rows * segment.row_bytes
        too_large = np.flatnonzero(np.diff(segment.starts) * segment.row_bytes > self._retain_bytes)
        if len(too_large):
            self._cut_at(segment.versions[too_large[-1]])
        self._trim()

    def _merge_small(self) -> None:
        """Merge small segments. Without the lock: only the holder of `_settling` adds segments, and the oldest are dropped first."""
        while True:
            with self._lock:
                some = to_merge(self.segments)
            if not some:
                return
            one = merged(some)
            with self._lock:
                if len(self.segments) <= len(some):  # some were dropped meanwhile
                    return
                for _ in some:
                    self.segments.pop()
                self.segments.append(one)

    def _trim(self) -> None:
        """Drop the oldest versions until the rest is within the bounds."""
        while self.segments and (self._rows + self._pending.rows > self._retain_rows or self._bytes > self._retain_bytes):
            self._drop_oldest()
        while (excess := self._rows + self._pending.rows - self._retain_rows) > 0:
            oldest = self._pending[0]
            self._lost = self._pending.leave_out(oldest.versions[min(bisect_left(oldest.starts, excess), len(oldest.versions)) - 1])

    def _cut_at(self, version: int) -> None:
        """Discard everything up to this version, which cannot be followed."""
        self._drop_up_to(version)
        self._lost, self._cut = max(self._lost, version), max(self._cut, version)

    def _drop_up_to(self, version: int) -> None:
        while self.segments and self.segments[0].versions[self._first] <= version:
            self._drop_oldest()
        if not self.segments and self._pending and self._pending[0].versions[0] <= version:
            self._lost = self._pending.leave_out(version)

    def _drop_oldest(self) -> None:
        """Drop the oldest version of the segments."""
        segment = self.segments[0]
        rows = segment.starts[self._first + 1] - segment.starts[self._first]
        self._rows -= rows
        self._bytes -= rows * segment.row_bytes
        self._lost = segment.versions[self._first]
        self._first += 1
        if self._first == len(segment.versions):
            self.segments.popleft()
            self._first = 0
            if not self.segments:
                self._bytes = 0.0  # no rounding errors are left
