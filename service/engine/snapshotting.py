"""Write snapshots of the relations, and remove the log before them, without stopping the writer."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from service.durability.folder import is_sync_failure
from service.durability.log import LEFT, Log
from service.durability.snapshots import GENERATIONS, read_snapshot, snapshot_paths, write_snapshot
from service.engine.state import State
from service.engine.versions import Pin, Pins
from service.errors import Problem
from service.tables.relations import Relation
from service.tables.store import PIECE_ROWS
from service.views.live_view import LiveView

log = logging.getLogger("livejoin.snapshots")

T = TypeVar("T")
File = tuple[T, pa.Schema, Iterator[pa.RecordBatch]]

_LOG_WORTH = 64 << 20  # bytes of log since the last snapshot that justify a new one ...
_LOG_SHARE = 0.5  # ... but at least this share of the size of the last one

_PATIENCE, _LONGEST_PATIENCE = 10.0, 600.0  # seconds to wait after a failure: at first, at most
_AT_THE_END = 1.0  # seconds that the last snapshot may take: without it the log has the same data
_ATTEMPTS = 2  # attempts that may be abandoned for the memory they hold; the next one may hold it


class _SnapshotAbandoned(Exception):
    """The snapshot is abandoned; the text says why."""


class SnapshotWriter:
    """Write a snapshot of a pinned version in a separate thread when the log has grown, and remove the log before the older of two.
    `version`: the last snapshot's. `fail` is called, in that thread, if the service must stop."""

    def __init__(
        self, folder: Path, log: Log, state: State, versions: Pins, version: int, fail: Callable[[BaseException], None]
    ) -> None:  # fmt: skip
        self._folder, self._log, self._state, self._versions, self._fail = folder, log, state, versions, fail
        self._version = version
        path = next((path for path in snapshot_paths(folder)[0] if path.name == str(version)), None)
        self._bytes = read_snapshot(path).bytes if path is not None else 0
        self._written = log.written_bytes - log.bytes_after(version)  # bytes of the log at the last snapshot
        self._to_forget = self._older_version()
        self._thread: threading.Thread | None = None
        self._not_before = 0.0
        self._until: float | None = None  # when to abandon a running snapshot
        self._in_vain = 0  # successive attempts that were abandoned for the memory they held
        self.failures = 0
        self.failure: BaseException | None = None  # because of which the service must stop
        self._patience = _PATIENCE

    @property
    def log_bytes(self) -> int:
        """Bytes of the log since the last snapshot, which the next start must replay."""
        return self._log.written_bytes - self._written

    @property
    def _worth(self) -> int:
        """Bytes of log that justify a snapshot: as many as the log grows by again until it is next cut."""
        return max(_LOG_WORTH, int(_LOG_SHARE * self._bytes))

    def consider(self) -> None:
        """Begin a snapshot, or continue to cut the log, if it is time and neither is running. The writer's thread."""
        if time.monotonic() < self._not_before or self.under_way:
            return
        is_due = self.log_bytes > self._worth or any(view.since > self._version for view in self._state.views.values())
        if is_due and not self._state.is_behind:
            work: Callable[[], None] = partial(self._try, *self._what)
        elif self._log.forgotten < self._to_forget and not self._log.is_kept:
            work = self._cut
        else:
            return
        self._thread = threading.Thread(target=work, name="snapshot", daemon=True)
        self._thread.start()

    @property
    def _what(self) -> tuple[Pin, list[Relation], list[LiveView]]:
        """Hold a version, and return it with its content: the feed of a live view has all changes up to it."""
        views = [view for view in self._state.views.values() if view.state == "live" and view.feed is not None]
        pin = self._versions.pin(rows_only=True)
        pin.reading, pin.expires = "a snapshot", False  # because the disk may be slow
        return pin, list(self._state.relations.values()), views

    @property
    def under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def finish(self) -> None:
        """Write a last snapshot after the writer has ended, so that the next start is fast; abandon it if it takes long."""
        self._until = time.monotonic() + _AT_THE_END
        self.wait()
        if self.failure is None and self._versions.published.number > self._version and not self._state.is_behind:
            self.write()

    def write(self) -> None:
        """Write a snapshot in this thread, then cut the log."""
        self._try(*self._what)

    def abandon(self) -> None:
        """Abandon a running snapshot, and wait until it has ended."""
        self._until = 0.0
        self.wait()

    def wait(self) -> None:
        """Wait for a running snapshot."""
        if self._thread is not None:
            self._thread.join()

    def _try(self, pin: Pin, relations: list[Relation], views: list[LiveView]) -> None:
        """Write a snapshot, then cut the log."""
        try:
            self._write(pin, relations, views)
        except _SnapshotAbandoned as reason:
            log.info("a snapshot was abandoned: %s", reason)
            self._put_off()
            self.failures += 1
        except Exception as error:  # no data is lost: the log has everything
            self._failed("no snapshot could be written", error)
            self.failures += 1
        else:
            self._patience, self._in_vain = _PATIENCE, 0
            self._cut()

    def _cut(self) -> None:
        """Remove from the log what the older snapshot covers. What cannot be removed, because a backup reads it or the disk is full, is
        removed later."""
        try:
            self._log.forget(self._to_forget, lambda: not self._is_over)
            self._log.give_back(self._worth, lambda: not self._is_over)
        except Exception as error:
            self._failed("the log could not be truncated; this will be retried", error)

    def _failed(self, what: str, error: Exception) -> None:
        if is_sync_failure(error):
            self.failure = error
            self._fail(error)
            return
        expected = isinstance(error, OSError | sqlite3.Error)
        log.error("%s: %s", what, error, exc_info=None if expected else error)
        self._put_off()

    def _put_off(self) -> None:
        """Retry later: an attempt takes up space on a disk that has little."""
        self._not_before = time.monotonic() + self._patience
        self._patience = min(2 * self._patience, _LONGEST_PATIENCE)

    def _write(self, pin: Pin, relations: list[Relation], views: list[LiveView]) -> None:
        version, written = pin.version.number, self._log.written_bytes
        try:
            self._require_room(self._bytes)
            with ExitStack() as held:
                is_held = self._in_vain >= _ATTEMPTS
                if is_held:
                    held.enter_context(self._versions.reading(pin))
                tables = self._tables(None if is_held else pin, version, relations)
                snapshot = write_snapshot(self._folder, version, tables, self._feeds(version, views), self._go_on)
        finally:
            self._versions.release(pin)
        self._version, self._bytes, self._written = snapshot.version, snapshot.bytes, written
        self._to_forget = self._older_version()

    def _older_version(self) -> int:
        """The version of the older snapshot, up to which the log is not needed. Without one, the log from its beginning replaces it."""
        kept = snapshot_paths(self._folder)[0]
        return int(kept[-GENERATIONS].name) if len(kept) >= GENERATIONS else 0

    def _tables(self, pin: Pin | None, version: int, relations: list[Relation]) -> Iterator[File[int]]:
        schemas = [relation.table.schema for relation in relations]  # a relation may be given another one meanwhile
        for relation, schema in zip(relations, schemas, strict=True):
            yield relation.id, schema, self._rows(pin, relation, schema, version)

    def _feeds(self, version: int, views: list[LiveView]) -> Iterator[File[str]]:
        """The retained changes of the feeds; they need no pin."""
        for view in views:
            if view.feed is not None:
                schema, batches = view.feed.stored(version)
                yield view.id, schema, (rows for rows in batches if self._go_on())

    def _rows(self, pin: Pin | None, relation: Relation, schema: pa.Schema, version: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in pieces; between two of them the pin may expire, like those of other readers. None: it is held throughout."""
        start = 0
        while start >= 0:
            self._go_on()
            slots, start = self._reading(pin, partial(relation.table.scan, version, start, PIECE_ROWS))
            if len(slots):
                pieces = relation.table.take_pieces(schema.names, slots)
                while (piece := self._reading(pin, partial(next, pieces, None))) is not None:
                    yield pa.RecordBatch.from_arrays(piece[1].columns, schema=schema)

    def _reading(self, pin: Pin | None, work: Callable[[], T]) -> T:
        if pin is None:
            return work()
        try:
            with self._versions.reading(pin):
                return work()
        except Problem:
            self._in_vain += 1
            raise _SnapshotAbandoned("the memory that it held exceeded --pin-bytes; it will be retried") from None

    @property
    def _is_over(self) -> bool:
        """Whether the service is stopping, and has no more time for it."""
        return self._until is not None and time.monotonic() > self._until

    def _go_on(self) -> bool:
        self._require_room(0)
        if self._is_over:
            raise _SnapshotAbandoned("the service is stopping; the log has everything that the snapshot would have had")
        return True

    def _require_room(self, needed: int) -> None:
        free = self._log.free_bytes
        if free < needed + LEFT:
            raise _SnapshotAbandoned(f"the disk has {free >> 20} MiB left, which the log may need; it will be retried")
