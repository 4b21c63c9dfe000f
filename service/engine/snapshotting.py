"""Snapshots of the relations, and the cleaning of the log behind them, without stopping the writer."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from service.durability.log import Log
from service.durability.snapshots import write_snapshot
from service.engine.state import State
from service.engine.versions import Pin, Pins
from service.tables.relations import Relation
from service.tables.store import PIECE_ROWS
from service.trimming import give_back
from service.views.live_view import LiveView

log = logging.getLogger("livejoin.snapshots")

_LOG_BYTES = 256 << 20  # a log longer than this is worth a snapshot
_LOG_FACTOR = 4  # and so is one that is so many times the last snapshot ...
_LOG_WORTH = 4 << 20  # ... unless it is shorter than this

_PATIENCE, _LONGEST_PATIENCE = 10.0, 600.0  # seconds after one that failed


class Snapshotting:
    """Writes a snapshot of a pinned version in a thread of its own when the log has grown. `version`: the last one's."""

    def __init__(self, folder: Path, log: Log, state: State, versions: Pins, version: int) -> None:
        self._folder, self._log, self._state, self._versions = folder, log, state, versions
        self._version = version
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._not_before = 0.0
        self.failures = 0
        self._patience = _PATIENCE

    def consider(self) -> None:
        """Begin a snapshot if it is time and none is under way. The writer's thread."""
        grown = self._log.bytes_since_snapshot
        due = grown > _LOG_BYTES or grown > max(_LOG_WORTH, _LOG_FACTOR * self._bytes)
        if not due or time.monotonic() < self._not_before or self.under_way or self._is_replaying:
            return
        self._thread = threading.Thread(target=self._try_behind, args=self._what, name="snapshot", daemon=True)
        self._thread.start()

    @property
    def _what(self) -> tuple[Pin, list[Relation], list[LiveView]]:
        """A version that is held, and what there is of it: the feed of a live view has all changes up to it."""
        views = [view for view in self._state.views.values() if view.state == "live" and view.feed is not None]
        return self._versions.pin(), list(self._state.relations.values()), views

    @property
    def under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def _is_replaying(self) -> bool:
        """Whether the feeds of some views do not have all yet that the log has."""
        return self._state.history is not None

    def finish(self) -> None:
        """Write the last one, so that the next start is quick. After the writer has ended."""
        self.wait()
        if self._versions.published.number > self._version and not self._is_replaying:
            self._try(*self._what)

    def wait(self) -> None:
        """Wait for one under way."""
        if self._thread is not None:
            self._thread.join()

    def _try_behind(self, pin: Pin, relations: list[Relation], views: list[LiveView]) -> None:
        self._try(pin, relations, views)
        give_back()

    def _try(self, pin: Pin, relations: list[Relation], views: list[LiveView]) -> None:
        try:
            self._write(pin, relations, views)
            self._patience = _PATIENCE
            return
        except (OSError, sqlite3.Error) as error:
            log.error("no snapshot could be written: %s", error)
        except Exception as error:  # nothing is lost either: the log has everything
            log.error("no snapshot could be written", exc_info=error)
        self.failures += 1
        self._not_before = time.monotonic() + self._patience  # trying takes room on a disk that has little
        self._patience = min(2 * self._patience, _LONGEST_PATIENCE)

    def _write(self, pin: Pin, relations: list[Relation], views: list[LiveView]) -> None:
        try:
            with self._versions.reading(pin) as version:
                schemas = [relation.table.schema for relation in relations]  # a relation may get another one meanwhile
                shapes = zip(relations, schemas, strict=True)
                tables = ((relation.id, schema, self._rows(relation, schema, version.number)) for relation, schema in shapes)
                feeds = ((view.id, *view.feed.stored(version.number)) for view in views if view.feed is not None)
                snapshot = write_snapshot(self._folder, version.number, tables, feeds)
        finally:
            self._versions.release(pin)
        self._version = snapshot.version
        self._bytes = snapshot.bytes
        self._log.forget(snapshot.version)

    @staticmethod
    def _rows(relation: Relation, schema: pa.Schema, version: int) -> Iterator[pa.RecordBatch]:
        start = 0
        while start >= 0:
            slots, start = relation.table.scan(version, start, PIECE_ROWS)
            if len(slots):
                for _, rows in relation.table.take_pieces(schema.names, slots):
                    yield pa.RecordBatch.from_arrays(rows.columns, schema=schema)
