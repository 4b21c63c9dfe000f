"""One follower of a view: its position, and the changes it gets next."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from service.errors import Problem
from service.following.chunks import CHUNK_BYTES, CHUNK_ROWS, Chunk
from service.reading.choosing import ChosenChanges
from service.reading.cursors import RowReader
from service.reading.holdings import Holding


class FollowedFeed(Protocol):
    """The part of a feed that a follower needs."""

    owner: str

    def changes(self, position: int) -> list[Chunk]: ...

    def quiet_until(self, position: int) -> int: ...

    def token(self, version: int) -> str: ...

    def forget(self, subscription: Subscription) -> None: ...


class Subscription(Holding):
    """Reads a feed from `position` (a version that the follower has completely) on; with a snapshot the whole view first. `until`: a
    published version, whose `progress` is the last chunk. `chosen`: which rows the follower gets; None: all. The snapshot has only those.

    Used by one thread at a time. An `error` chunk is the last one.
    """

    def __init__(
        self, feed: FollowedFeed, position: int, snapshot: RowReader | None = None, until: int | None = None,
        chosen: ChosenChanges | None = None,
    ) -> None:  # fmt: skip
        super().__init__(feed.owner)
        self._feed = feed
        self._position = position
        self._snapshot = snapshot
        self.final, self._chosen = until, chosen
        self._backlog: deque[Chunk] = deque()
        self.ended = False

    def next(self) -> list[Chunk]:
        """Return the available changes, at most about 16,000 rows and 32 MiB; [] if there are none.

        A `progress` completes each version before the next one begins, though perhaps not within one call.
        """
        if self.ended:
            return []
        if self._snapshot is not None:
            return self._read_snapshot(self._snapshot)
        if not self._backlog:
            self._backlog.extend(self._ahead())
            if not self._backlog:
                self._position = self._feed.quiet_until(self._position)
        chunks: list[Chunk] = []
        rows = bytes = 0
        while self._backlog and rows < CHUNK_ROWS and bytes < CHUNK_BYTES:
            chunk = self._backlog.popleft()
            chunks.append(self._shown(chunk))
            if chunk.rows is not None:
                rows += chunk.rows.num_rows
                bytes += chunk.rows.nbytes
            elif chunk.kind == "progress":
                self._position = chunk.version
                if chunk.version == self.final:
                    self.close()
            else:
                self.close()
        return chunks

    @property
    def position(self) -> int | None:
        """The last version that was returned completely; None within a snapshot, within a version, after the end, if an end is set, and of
        chosen rows: in these cases no other source may provide what follows."""
        is_within = self.ended or self.is_in_snapshot or self._backlog or self.final is not None or self._chosen is not None
        return None if is_within else self._position

    @property
    def is_in_snapshot(self) -> bool:
        """Whether rows of the snapshot, or its end, are still to be returned; a call of `next` may find none."""
        return self._snapshot is not None

    @property
    def at(self) -> int:
        """The last version that was begun; it may still be incomplete. Any thread."""
        return self._position

    def go_on_from(self, version: int) -> None:
        """Advance: the follower has received everything up to this version from another source."""
        assert self.position is not None
        self._position = version

    def idle_progress(self) -> Chunk:
        """Return a `progress` to send when there are no changes: its token is as new as possible without skipping changes (None within a
        snapshot)."""
        if self._snapshot is not None:
            return Chunk("progress", self._position)
        if not self._backlog:
            self._position = self._feed.quiet_until(self._position)
        return Chunk("progress", self._position, token=self._feed.token(self._position))

    def touch(self) -> None:
        """Note that the follower has taken some of the data it was given. Any thread."""
        snapshot = self._snapshot
        if snapshot is not None:
            snapshot.touch()

    def close(self) -> None:
        """Stop following; a second call does nothing."""
        self.ended = True
        self._backlog.clear()
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        self._feed.forget(self)

    def _shown(self, chunk: Chunk) -> Chunk:
        if self._chosen is None or chunk.keys is None or chunk.rows is None:
            return chunk
        keys, rows = self._chosen.of(chunk.keys, chunk.rows)
        return chunk._replace(keys=keys, rows=rows)

    def _ahead(self) -> list[Chunk]:
        """Return the next changes, up to the last version that is wanted."""
        if self.final is None:
            return self._feed.changes(self._position)
        wanted: list[Chunk] = []
        if self._position < self.final:
            found = self._feed.changes(self._position)
            wanted = [chunk for chunk in found if chunk.kind == "error" or chunk.version <= self.final]
        return wanted or [Chunk("progress", self.final, token=self._feed.token(self.final))]

    def _read_snapshot(self, reader: RowReader) -> list[Chunk]:
        try:
            found = reader.read_with_keys(CHUNK_ROWS)
        except Problem as problem:
            self.close()
            return [Chunk("error", reader.version, problem=problem)]
        if found is not None:
            return [Chunk("rows", reader.version, "insert", *found)]
        self._snapshot = None
        reader.close()
        return [Chunk("progress", reader.version, token=self._feed.token(reader.version))]
