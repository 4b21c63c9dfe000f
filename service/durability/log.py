"""The log: batches, the catalogue and the sources, in SQLite.

A batch is on disk when `commit` returns; batches appended since the last commit share one transaction, so all or none of them are there,
each with its source's epoch. Reading returns what was written, or raises `Damaged`: every row has a CRC-32, versions are consecutive, and
the database is not behind the mark.

Cost: append and commit of a small batch about 15 µs (synchronous=normal), an fsync more with full.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from service.durability import database
from service.durability.checksums import batch_checksum
from service.durability.database import (
    INSERT,
    INSERT_REST,
    ROW,
    Catalog,
    LogRow,
    RelationRecord,
    SourceRecord,
    ViewRecord,
    put_meta,
)
from service.durability.failpoints import reach
from service.durability.files import free_bytes
from service.durability.folder import (
    DATABASE,
    FolderLock,
    Mark,
    Reach,
    SyncFailed,
    is_full,
    is_sync_failure,
    make_folder,
    refuse_backup,
    rewrite,
)
from service.errors import Problem

_PAGE = 4096  # SQLite's; a small commit writes about one, and one for each source
_CATALOG_PAGES = 6  # written by a change of the catalogue, besides a long definition
_WAL_BYTES = 8 << 20  # of SQLite's WAL, worth a checkpoint
_NEW_BYTES, _COMMITS = 1 << 20, 8  # payload that is worth a checkpoint, some 2 ms per MiB; of larger commits, that of so many
LEFT = 64 << 20  # bytes of the disk that snapshots and backups leave free for the log
_CATALOG_ROOM = _LEAST_ROOM = 512 << 10  # bytes of the disk
_BATCH_FACTOR, _BATCH_MORE = 4, 2 << 10  # bytes of the disk for each byte of a batch; and for any batch
_GIVEN_PAGES = 32  # pages returned per transaction at most: those in use are moved
_GIVEN_LOOKS = 400_000  # per transaction, some 3 ms: SQLite may scan its whole list of free pages for each page it returns
_GIVEN_PAUSE = 3  # times the duration of the last transaction
_FORGET_ROWS, _FORGET_BYTES = 512, 4 << 20  # removed per transaction, during which appending waits: some milliseconds


class Log:
    """The log of one data folder, which it owns from construction to `close`.

    `append`, `commit` and `takes` are called by one thread at a time, the rest by any. `folder_id` identifies the folder permanently,
    `secret` signs what only this folder may have issued. Raises FolderInUse, Damaged, and OSError or sqlite3.OperationalError for a disk
    that is full, read-only or broken: then everything appended since the last commit is undone.
    """

    def __init__(self, folder: Path, synchronous: Literal["full", "normal"] = "full") -> None:
        self._path = (folder / DATABASE).absolute()
        refuse_backup(folder)
        make_folder(folder)
        self._lock = FolderLock(folder)
        self._guard = threading.RLock()
        self._room = 0  # free bytes of the disk when last looked at, less what was used since
        self._changed = threading.Condition(self._guard)
        try:
            if database.is_new(folder):
                database.create(folder)
            found = database.verify(folder)
            wal = self._path.with_name(f"{DATABASE}-wal")
            if wal.exists():  # not after a clean end: its commits must be on disk before anyone sees them
                rewrite(wal)
            self._db = database.open_database(self._path, synchronous)
            self._files = [(str(path), _identity(str(path))) for path in (self._path, wal)]
            self._mark = Mark(folder, synchronous)
        except BaseException:
            self._lock.release()
            raise
        self.folder_id, self.secret = found.folder_id, found.secret
        self.timelines = found.timelines
        self._forgotten = found.forgotten
        self._next_relation_id = found.next_relation_id
        self._committed = self._state = _State(found.reach, found.bytes)
        self._keepers = 0  # the number of callers that keep batches from being forgotten
        self._written = found.bytes
        self._appender: int | None = None  # the thread with uncommitted batches
        self._appended: list[LogRow] = []
        self._pages = self._new_bytes = self._last_bytes = 0  # since the last checkpoint: other pages, payload, payload of the last commit
        try:
            if not found.is_certain:
                self._begin_timeline()
            self._mark.begin(found.reach)
        except BaseException as error:
            self.close(error)
            raise

    @property
    def last_version(self) -> int:
        """The newest appended version, committed or not; 0 before the first."""
        return self._state.reach.version

    @property
    def committed_version(self) -> int:
        return self._committed.reach.version

    @property
    def timeline(self) -> int:
        """The number of the newest timeline: `timelines` has each with its first version; restore and repair begin a new one."""
        return self.timelines[-1][0]

    def _begin_timeline(self) -> None:
        """Begin a new timeline: a power failure under synchronous=normal may lose versions that were seen, whose numbers are then
        reused."""
        self.timelines = database.next_timeline(self.timelines, self.last_version)
        with self._transaction() as db:
            put_meta(db, "timelines", json.dumps(self.timelines))
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # on disk, before anyone sees it

    @property
    def free_bytes(self) -> int:
        """The free space on the disk of the folder."""
        return free_bytes(self._lock.file)

    @property
    def bytes(self) -> int:
        """Bytes of payload in the log."""
        return self._state.bytes

    @property
    def written_bytes(self) -> int:
        """Bytes of payload appended since the start, plus those that were there."""
        return self._written

    @property
    def forgotten(self) -> int:
        """The version up to which batches have been removed."""
        return self._forgotten

    def bytes_after(self, version: int) -> int:
        """Return the bytes of payload of the batches after a version. Cost: reads the length of each."""
        with self._guard:
            tables = ("log", "log_rest")
            sums = (f"SELECT coalesce(sum(length(payload)), 0) FROM {table} WHERE version > ?" for table in tables)
            return sum(self._db.execute(text, (version,)).fetchone()[0] for text in sums)

    @property
    def next_relation_id(self) -> int:
        """An id that no relation, not even a dropped one, has had in this folder: old log rows refer to relations by id."""
        return self._next_relation_id

    def append(self, rows: Sequence[LogRow]) -> None:
        """Add batches, and their sources' epochs, to the next commit. Their versions must be consecutive."""
        reach("before-append")
        with self._guard:
            (version, catalog), size = self._state
            for row in rows:
                if row.version != version + 1:
                    raise ValueError(f"version {row.version} does not follow {version}")
                version, size = row.version, size + len(row.payload)
            self._appender = threading.get_ident()
            self._appended += rows
            self._state = _State(Reach(version, catalog), size)
        reach("after-append")

    def commit(self) -> None:
        """Make everything appended so far durable, with one fsync (synchronous=full)."""
        with self._guard:
            if self._appender is None:
                return
            rows, self._appended = self._appended, []
            try:
                self._write(rows)
            except BaseException:
                self._roll_back()
                raise
            self._last_bytes = self._state.bytes - self._committed.bytes
            self._new_bytes += self._last_bytes
            self._written += self._last_bytes
            self._has_committed()
        reach("after-commit")

    def _write(self, rows: Sequence[LogRow]) -> None:
        """Write the rows in one transaction, with few statements: each lets other threads take the GIL. A single statement is a transaction
        by itself."""
        values: list[Any] = []
        known: dict[str, SourceRecord] = {}
        now = time.time_ns() // 1000
        size, long = 0, False
        for version, source, run, epoch, payload, receipt, written in rows:
            if source is not None:
                assert epoch is not None
                known[source] = SourceRecord(run, epoch, version, now, receipt, written)
            size, long = size + len(payload), long or len(payload) > database.LARGEST
            values += version, source, run, epoch, batch_checksum(version, source, run, epoch, payload), payload
        self._pages += 1 + len(known)
        statement = INSERT + f", {ROW}" * (len(rows) - 1)
        if known or long:
            self._db.execute("BEGIN IMMEDIATE")
            if long:
                values[5::6] = [database.put_rest(self._db, row.version, row.payload) for row in rows]
            self._db.execute(statement, values)
            for source, record in known.items():
                database.put_source(self._db, source, record)
            self._db.execute("COMMIT")
        else:
            self._db.execute(statement, values)
        if size > database.KEPT:
            for used in (statement, INSERT_REST) if long else (statement,):
                database.forget_values(self._db, used)

    def _has_committed(self) -> None:
        self._appender = None
        self._committed = self._state
        self._mark.set(self._state.reach)
        self._changed.notify_all()

    @property
    def checkpoint_due(self) -> bool:
        new = self._new_bytes
        return new + _PAGE * self._pages > _WAL_BYTES or (new > _NEW_BYTES and new > _COMMITS * self._last_bytes)

    def checkpoint_if_due(self) -> None:
        """Checkpoint SQLite's WAL when it has grown: two fsyncs, whatever `synchronous` is."""
        if self.checkpoint_due:
            with self._guard:
                self._pages = self._new_bytes = 0
                try:
                    self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                except sqlite3.Error as error:
                    if not is_full(error):  # committed data is safe where it is
                        raise

    def _roll_back(self) -> None:
        self._appender, self._appended = None, []
        self._state = self._committed
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
        self._changed.notify_all()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a separate transaction, after the batches that are being appended: those fail or succeed in their own thread."""
        with self._guard:
            if self._appender == threading.get_ident():
                raise RuntimeError("commit the appended batches first")
            while self._appender is not None:
                self._changed.wait()
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            self._pages += _CATALOG_PAGES
            self._has_committed()

    def look_at_disk(self) -> None:
        """Note how much free space the disk has, for `takes`. SyncFailed: the database is no longer in the folder."""
        self._room = self.free_bytes
        for path, known in self._files:
            if _identity(path) != known:
                raise SyncFailed(errno.ENOENT, "the file was deleted or replaced while the service was using it", path)

    def takes(self, sizes: Sequence[int]) -> bool:
        """Whether the disk has room for batches of so many bytes, in the log, in SQLite's own log, and for SQLite's temporary needs; if so,
        reserve it. To be asked before anything is changed: a later failure stops the service."""
        left = self._room - sum([_BATCH_FACTOR * size + _BATCH_MORE for size in sizes])
        if left < _LEAST_ROOM:
            return False
        self._room = left
        return True

    def require_room(self) -> None:
        """Raise Problem `disk-full` if the disk has no room for a change of the catalogue."""
        if self.free_bytes < _CATALOG_ROOM:
            raise Problem("disk-full", "the disk of the data folder has no room for this; nothing was changed")

    @contextlib.contextmanager
    def _catalog_transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that has no effect if the disk is full: Problem `disk-full`."""
        try:
            with self._transaction() as db:
                yield db
        except (OSError, sqlite3.Error) as error:
            if is_full(error):
                raise Problem("disk-full", "the disk of the data folder is full; nothing was changed") from error
            raise

    def sources(self) -> dict[str, SourceRecord]:
        """Return the last batch of each source, as of the last commit."""
        with self._guard:
            return database.read_sources(self._db)

    def forget_source(self, name: str) -> None:
        """Forget the batches of a source: its next epoch is its first. Durable on return."""
        with self._catalog_transaction() as db:
            db.execute("DELETE FROM sources WHERE source = ?", (name,))

    def put_relation(self, relation_id: int, name: str, definition: dict[str, Any]) -> None:
        """Add a relation under an id that was never used (`next_relation_id`). Durable on return."""
        if relation_id < self._next_relation_id:
            raise ValueError(f"relation id {relation_id} has been used before: take {self._next_relation_id}")
        with self._catalog_transaction() as db:
            shapes = [(self.last_version, len(definition["columns"]))]
            size = database.put_relation(db, RelationRecord(relation_id, name, definition, shapes))
            put_meta(db, "next_relation_id", relation_id + 1)
            self._count_catalog_change(db, size)
        self._next_relation_id = relation_id + 1

    def change_relation(self, name: str, definition: dict[str, Any]) -> None:
        """Replace a relation's definition by one with the same columns, or more after them. Durable on return."""
        with self._catalog_transaction() as db:
            (record,) = (record for record in database.read_catalog(db)[0] if record.name == name)
            columns = len(definition["columns"])
            shapes = record.shapes if columns == record.shapes[-1][1] else [*record.shapes, (self.last_version, columns)]
            db.execute("DELETE FROM relations WHERE name = ?", (name,))
            size = database.put_relation(db, record._replace(definition=definition, shapes=shapes))
            self._count_catalog_change(db, size)

    def put_view(self, name: str, definition: dict[str, Any], query: str) -> str:
        """Add a view; `query`: its definition as it was interpreted. Return its id. Durable on return."""
        record = ViewRecord(database.new_view_id(), name, definition, query)
        with self._catalog_transaction() as db:
            self._count_catalog_change(db, database.put_view(db, record))
        return record.id

    def replace_views(self, version: int, records: Sequence[ViewRecord]) -> None:
        """Replace the definitions of the views with these ids, in a version of its own, which must be the next one. Durable on return."""
        with self._catalog_transaction() as db:
            if version != self.last_version + 1:
                raise ValueError(f"version {version} does not follow {self.last_version}")
            db.execute(INSERT, (version, None, None, None, batch_checksum(version, None, None, None, b""), b""))
            self._state = _State(Reach(version, self._state.reach.catalog), self._state.bytes)
            self._count_catalog_change(db, sum([database.put_view(db, record) for record in records]))

    def drop_relation(self, name: str) -> None:
        """Remove a relation, and the answers to batches that may tell of its rows; these stay in the log until `forget`. Durable on
        return."""
        with self._catalog_transaction() as db:
            db.execute("DELETE FROM relations WHERE name = ?", (name,))
            for source, record in database.read_sources(db).items():
                if name in record.written:
                    database.put_source(db, source, record._replace(receipt=None))
            self._count_catalog_change(db)

    def drop_view(self, name: str) -> None:
        """Remove a view. Durable on return."""
        with self._catalog_transaction() as db:
            db.execute("DELETE FROM views WHERE name = ?", (name,))
            self._count_catalog_change(db)

    def _count_catalog_change(self, db: sqlite3.Connection, size: int = 0) -> None:
        """`size`: bytes of the inserted definition."""
        self._pages += size // _PAGE
        version, changes = self._state.reach
        put_meta(db, "catalog_changes", changes + 1)
        self._state = _State(Reach(version, changes + 1), self._state.bytes)

    def catalog(self) -> Catalog:
        """Return relations and views, each in the order of registration."""
        with self._guard:
            return database.read_catalog(self._db)

    def replay(self, after_version: int) -> Iterator[LogRow]:
        """Yield every batch after `after_version` (the newest snapshot's, otherwise 0), in order, each verified. Raises Damaged."""
        yield from database.replay(self._db, self._path, after_version, self._forgotten, self._state.reach.version)

    def give_back(self, spare: int, go_on: Callable[[], bool] = lambda: True) -> None:
        """Return to the file system the database's free bytes beyond `spare`; in steps like `forget`, with longer pauses. The cost of a
        page grows with the number of free ones, so a step then returns fewer."""
        while go_on():
            started = time.monotonic()
            with self._guard:
                while self._appender is not None:
                    self._changed.wait()
                free = self._db.execute("PRAGMA freelist_count").fetchone()[0]
                left = free - spare // _PAGE
                if left <= 0:
                    return
                pages = min(left, _GIVEN_PAGES, max(_GIVEN_LOOKS // free, 1))
                self._db.executescript(f"PRAGMA incremental_vacuum({pages})")  # `execute` would return only one page
                self._pages += 1 + pages  # each may have moved one that is in use
            time.sleep(_GIVEN_PAUSE * (time.monotonic() - started))

    def forget(self, up_to_version: int, go_on: Callable[[], bool] = lambda: True) -> None:
        """Remove the batches up to a version that a snapshot contains; in steps, with pauses of the same length, while `go_on` returns True
        and nobody keeps them (`keeping`): the next call removes the rest."""
        while go_on():
            started = time.monotonic()
            with self._guard:  # held over the commit: a later keeper then sees what has been removed
                with self._transaction() as db:
                    if self._keepers:
                        return
                    last, removed = self._forget_some(db, min(up_to_version, self._committed.reach.version))
                    if last is None:
                        return
                    db.execute("DELETE FROM log WHERE version <= ?", (last,))
                    db.execute("DELETE FROM log_rest WHERE version <= ?", (last,))
                    put_meta(db, "forgotten", last)
                    self._state = _State(self._state.reach, self._state.bytes - removed)
                self._forgotten = last
            reach("in-log-cleaning")
            time.sleep(time.monotonic() - started)

    @property
    def is_kept(self) -> bool:
        """Whether nothing may be forgotten now (`keeping`)."""
        return self._keepers > 0

    @contextlib.contextmanager
    def keeping(self) -> Iterator[int]:
        """Prevent forgetting meanwhile. Yields the version up to which batches have been removed."""
        with self._guard:
            self._keepers += 1
            forgotten = self._forgotten
        try:
            yield forgotten
        finally:
            with self._guard:
                self._keepers -= 1

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the database as of `committed_version`. Commits wait meanwhile, so use it for some milliseconds only."""
        with self._guard:
            yield self._db

    @staticmethod
    def _forget_some(db: sqlite3.Connection, up_to: int) -> tuple[int | None, int]:
        """Return the batches that one step removes: the version of the last one (None if there are none), and the bytes of all."""
        last, size = None, 0
        sizes = (
            "SELECT version, length(payload) + coalesce((SELECT sum(length(r.payload)) FROM log_rest r WHERE r.version = log.version), 0)"
            " FROM log WHERE version <= ? ORDER BY version LIMIT ?"
        )
        for version, length in db.execute(sizes, (up_to, _FORGET_ROWS)).fetchall():
            last, size = version, size + length
            if size >= _FORGET_BYTES:
                break
        return last, size

    def close(self, failure: BaseException | None = None) -> None:
        """Close the database and release the folder. Uncommitted batches are lost.

        Everything is then in the database and synced, and the mark records that; raises sqlite3.Error or OSError if that fails. This is
        skipped after a `failure` of the service; if that was an fsync, the files are left as they are.
        """
        with self._guard:
            self._roll_back()
            try:
                if failure is None:
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                    self._mark.finish(self._state.reach)
            except BaseException as error:
                failure = error
                raise
            finally:
                if failure is not None and is_sync_failure(failure):
                    database.leave(self._db)
                else:
                    self._db.close()
                self._mark.close()
                self._lock.release()


def _identity(path: str) -> tuple[int, int] | None:
    """Return which file this is; None: there is none. Takes 2 µs."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class _State(NamedTuple):
    reach: Reach
    bytes: int  # of payload in the log
