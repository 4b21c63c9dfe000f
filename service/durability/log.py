"""The log: each batch, the catalogue and the sources, in SQLite.

A batch is on disk when `commit` returns; batches appended since the last commit share one transaction, so they are
there together or not at all, each with its source's epoch. Reading returns what was written, or raises `Damaged`:
every row has a CRC-32, versions follow one another without a gap, and the database reaches as far as the mark.

Cost: append and commit of a small batch about 15 µs (synchronous=normal), an fsync more with full.
"""
from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import threading
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from service.durability.failpoints import reach
from service.durability.folder import DATABASE, MARK, SNAPSHOTS, Damaged, FolderLock, Mark, Reach, make_folder, private, sync_path

_FORMAT = 1
_COLUMNS = {
    "meta": "(name TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    "relations": "(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL, crc INTEGER NOT NULL)",
    "views": "(place INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL, crc INTEGER NOT NULL)",
    "sources": "(source TEXT PRIMARY KEY, run TEXT, epoch INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    "log": "(version INTEGER PRIMARY KEY, source TEXT, run TEXT, epoch INTEGER, crc INTEGER NOT NULL, payload BLOB NOT NULL)",
    # the rest of a large payload
    "log_rest": "(version INTEGER, part INTEGER, payload BLOB NOT NULL, PRIMARY KEY (version, part))",
}
_TABLES = {name: f"CREATE TABLE {name} {columns}" for name, columns in _COLUMNS.items()}
_COUNTERS = {"forgotten": 0, "next_relation_id": 0, "catalog_changes": 0}
_LARGEST = 4 << 20  # bytes of a payload in one row, of which SQLite makes two copies; former versions wrote up to 512 MiB
_PAGE = 4096  # SQLite's; a small commit writes about one
_WAL_BYTES = 8 << 20  # of SQLite's own log, worth a checkpoint
_NEW_BYTES, _COMMITS = 1 << 20, 8  # payload that is worth one, in some 2 ms a MiB; of larger commits, as much as so many have
_FORGET_ROWS, _FORGET_BYTES = 512, 4 << 20  # removed in one transaction, for which whoever appends waits: some milliseconds

_ROW = "(?, ?, ?, ?, ?, ?)"
_INSERT = f"INSERT INTO log VALUES {_ROW}"  # a row, and as many more as there are
_SOURCE = "REPLACE INTO sources VALUES (?, ?, ?, ?)"
_META = "REPLACE INTO meta VALUES (?, ?, ?)"


Catalog = tuple[list[tuple[int, str, dict[str, Any]]], list[tuple[str, dict[str, Any]]]]


class LogRow(NamedTuple):
    """One batch as it was appended."""

    version: int
    source: str | None
    run: str | None
    epoch: int | None
    payload: bytes


class Log:
    """The log of one data folder, which it owns from construction to `close`.

    `append` and `commit` are called by one thread at a time, the rest by any. `folder_id` names the folder for good, `secret`
    signs what only this folder may have given out. Raises FolderInUse, Damaged, and OSError or sqlite3.OperationalError for a
    disk that is full, read-only or broken: then everything appended since the last commit is undone.
    """

    def __init__(self, folder: Path, synchronous: Literal["full", "normal"] = "full") -> None:
        self._path, self._folder = folder / DATABASE, str(folder)
        make_folder(folder)
        self._lock = FolderLock(folder)
        self._guard = threading.RLock()
        self._changed = threading.Condition(self._guard)
        try:
            if _is_new(folder):
                _create(folder)
            found = verify(folder)
            self._db = _open(self._path, synchronous)
            self._mark = Mark(folder, synchronous)
        except BaseException:
            self._lock.release()
            raise
        self.folder_id, self.secret = found.folder_id, found.secret
        self._forgotten = found.forgotten
        self._next_relation_id = found.next_relation_id
        self._committed = self._state = _State(found.reach, found.bytes)
        self._appender: int | None = None  # the thread whose batches are not committed yet
        self._appended: list[LogRow] = []
        self._commits = self._new_bytes = self._last_bytes = 0  # since the last checkpoint: commits, their payload, that of the last
        self._mark.set(found.reach)

    @property
    def last_version(self) -> int:
        """The newest appended version, committed or not; 0 before the first."""
        return self._state.reach.version

    @property
    def free_bytes(self) -> int:
        """The free space on the disk of the folder."""
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    @property
    def bytes_since_snapshot(self) -> int:
        """Bytes of payload in the log."""
        return self._state.bytes

    @property
    def next_relation_id(self) -> int:
        """An id that no relation, not even a dropped one, has had in this folder: old log rows name relations by id."""
        return self._next_relation_id

    def append(self, rows: Sequence[LogRow]) -> None:
        """Add batches, and their sources' epochs, to the next commit. Each version must follow the one before."""
        reach("before-append")
        with self._guard:
            for version, row in enumerate(rows, self._state.reach.version + 1):
                if row.version != version:
                    raise ValueError(f"version {row.version} does not follow {version - 1}")
            self._appender = threading.get_ident()
            self._appended += rows
            size = sum([len(row.payload) for row in rows])
            self._state = _State(Reach(rows[-1].version, self._state.reach.catalog), self._state.bytes + size)
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
            self._has_committed()
        reach("after-commit")

    def _write(self, rows: Sequence[LogRow]) -> None:
        """In one transaction, of few statements: each lets other threads have the interpreter. One statement is a transaction by itself."""
        values: list[Any] = []
        known, long = [], []
        for row in rows:
            version, source, run, epoch, payload = row
            if source is not None:
                known.append((source, run, epoch, _crc(source, run, epoch)))
            first: bytes | memoryview = payload
            if len(payload) > _LARGEST:
                long.append(row)
                first = memoryview(payload)[:_LARGEST]
            values += version, source, run, epoch, _batch_crc(version, source, run, epoch, payload), first
        statement = _INSERT + f", {_ROW}" * (len(rows) - 1)
        if not known and not long:
            self._db.execute(statement, values)
            return
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(statement, values)
        for row in long:
            for part in range(1, -(-len(row.payload) // _LARGEST)):
                rest = memoryview(row.payload)[part * _LARGEST : (part + 1) * _LARGEST]
                self._db.execute("INSERT INTO log_rest VALUES (?, ?, ?)", (row.version, part, rest))
        self._db.executemany(_SOURCE, known)
        self._db.execute("COMMIT")

    def _has_committed(self) -> None:
        self._appender = None
        self._commits += 1
        self._committed = self._state
        self._mark.set(self._state.reach)
        self._changed.notify_all()

    @property
    def checkpoint_due(self) -> bool:
        wal_bytes = self._new_bytes + _PAGE * self._commits
        return wal_bytes > _WAL_BYTES or self._new_bytes > max(_NEW_BYTES, _COMMITS * self._last_bytes)

    def checkpoint_if_due(self) -> None:
        """Bring what SQLite's own log holds into the database when it has grown: two fsyncs, whatever `synchronous` is."""
        if self.checkpoint_due:
            with self._guard:
                self._commits = self._new_bytes = 0
                with contextlib.suppress(sqlite3.Error):  # what is committed is safe where it is
                    self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _roll_back(self) -> None:
        self._appender, self._appended = None, []
        self._state = self._committed
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
        self._changed.notify_all()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction of its own, after the batches that are being appended: those fail or succeed in their own thread."""
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
            self._has_committed()

    def sources(self) -> dict[str, tuple[str | None, int]]:
        """Each source's run and last epoch, as of the last commit."""
        with self._guard:
            return read_sources(self._db)

    def put_relation(self, relation_id: int, name: str, definition: dict[str, Any]) -> None:
        """Add a relation under an id that was never used (`next_relation_id`). Durable on return."""
        if relation_id < self._next_relation_id:
            raise ValueError(f"relation id {relation_id} has been used before: take {self._next_relation_id}")
        text = json.dumps(definition)
        with self._transaction() as db:
            db.execute("INSERT INTO relations VALUES (?, ?, ?, ?)", (relation_id, name, text, _crc(relation_id, name, text)))
            _put_meta(db, "next_relation_id", relation_id + 1)
            self._count_catalog_change(db)
        self._next_relation_id = relation_id + 1

    def put_view(self, name: str, definition: dict[str, Any]) -> None:
        """Add a view. Durable on return."""
        text = json.dumps(definition)
        with self._transaction() as db:
            db.execute("INSERT INTO views (name, definition, crc) VALUES (?, ?, ?)", (name, text, _crc(name, text)))
            self._count_catalog_change(db)

    def drop_relation(self, name: str) -> None:
        """Remove a relation; its rows in the log stay until `forget`. Durable on return."""
        with self._transaction() as db:
            db.execute("DELETE FROM relations WHERE name = ?", (name,))
            self._count_catalog_change(db)

    def drop_view(self, name: str) -> None:
        """Remove a view. Durable on return."""
        with self._transaction() as db:
            db.execute("DELETE FROM views WHERE name = ?", (name,))
            self._count_catalog_change(db)

    def _count_catalog_change(self, db: sqlite3.Connection) -> None:
        version, changes = self._state.reach
        _put_meta(db, "catalog_changes", changes + 1)
        self._state = _State(Reach(version, changes + 1), self._state.bytes)

    def catalog(self) -> Catalog:
        """Relations as (id, name, definition) and views as (name, definition), each in the order of registration."""
        with self._guard:
            return read_catalog(self._db)

    def replay(self, after_version: int) -> Iterator[LogRow]:
        """Every batch after `after_version` (the newest snapshot's, else 0), in order, each verified. Raises Damaged."""
        yield from replay(self._db, self._path, after_version, self._forgotten, self._state.reach.version)

    def forget(self, up_to_version: int) -> None:
        """Remove the batches up to and including a version that a snapshot holds; in steps, with as long pauses between them."""
        while True:
            started = time.monotonic()
            with self._transaction() as db:
                last, removed = self._forget_some(db, min(up_to_version, self._committed.reach.version))
                if last is None:
                    return
                db.execute("DELETE FROM log WHERE version <= ?", (last,))
                db.execute("DELETE FROM log_rest WHERE version <= ?", (last,))
                _put_meta(db, "forgotten", last)
                self._state = _State(self._state.reach, self._state.bytes - removed)
            self._forgotten = last
            reach("in-log-cleaning")
            time.sleep(time.monotonic() - started)

    @staticmethod
    def _forget_some(db: sqlite3.Connection, up_to: int) -> tuple[int | None, int]:
        """Which batches one step removes: the last one's version (None: there is none), and the bytes of all."""
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

    def close(self) -> None:
        """Close the database and release the folder. What is appended and not committed is lost."""
        with self._guard:
            self._roll_back()
            try:
                self._db.close()
                self._mark.close()
            finally:
                self._lock.release()


class _State(NamedTuple):
    reach: Reach
    bytes: int  # of payload in the log


class Found(NamedTuple):
    """The state of a sound database."""

    folder_id: str
    secret: bytes
    forgotten: int  # batches up to this version have been removed
    next_relation_id: int
    reach: Reach
    bytes: int


@contextlib.contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database without changing it, not even to recover its WAL (which is read). The caller holds the folder's lock.

    On closing, SQLite deletes a WAL in which it finds nothing whole: a second link keeps it, as evidence. What SQLite finds
    damaged becomes Damaged; a disk's own errors pass.
    """
    wal, kept = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-wal.kept")
    with contextlib.suppress(OSError):  # no WAL, or a disk on which nothing can be deleted either
        if kept.exists() and not wal.exists():  # killed between SQLite's deletion and the way back
            kept.rename(wal)
        if wal.exists():
            kept.unlink(missing_ok=True)
            os.link(wal, kept)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&vfs=unix-none"
        with _damage(path), contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)) as db:
            db.text_factory = _text
            db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()  # the WAL's index in memory: no -shm file
            yield db
    finally:
        with contextlib.suppress(OSError):
            if wal.exists():
                kept.unlink(missing_ok=True)
            elif kept.exists():
                kept.rename(wal)


def read_sources(db: sqlite3.Connection) -> dict[str, tuple[str | None, int]]:
    return {source: (run, epoch) for source, run, epoch in db.execute("SELECT source, run, epoch FROM sources")}


def read_catalog(db: sqlite3.Connection) -> Catalog:
    relations = db.execute("SELECT id, name, definition FROM relations ORDER BY id").fetchall()
    views = db.execute("SELECT name, definition FROM views ORDER BY place").fetchall()
    return [(i, name, json.loads(text)) for i, name, text in relations], [(name, json.loads(text)) for name, text in views]


def verify(folder: Path, trust_mark: bool = True) -> Found:
    """Check all of the database but the payloads (`replay` does those), without changing anything. Raises Damaged."""
    path = folder / DATABASE
    if not path.exists():
        raise Damaged("the database is missing", path)
    mark = Mark.read(folder) if trust_mark else None
    with open_read_only(path) as db:
        wrong = db.execute("PRAGMA quick_check(1)").fetchall()
        if wrong != [("ok",)]:
            raise Damaged(f"damaged database ({' '.join(str(wrong[0][0]).split())})", path)
        if dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()) != _TABLES:
            raise Damaged("the tables are missing, or not those of this version of livejoin", path)
        meta = {}
        for name, value, crc in db.execute("SELECT * FROM meta"):
            _require(crc == _crc(name, value), f"wrong checksum of the entry {name!r}", path)
            meta[name] = value
        _require(meta.keys() >= {"format", "folder_id", "secret", *_COUNTERS}, "missing entries", path)
        if meta["format"] != _FORMAT:
            raise Damaged(f"unknown format {meta['format']}", path, "written by another version of livejoin: use that version")
        for table, columns in (("relations", "id, name, definition"), ("views", "name, definition"), ("sources", "source, run, epoch")):
            for *values, crc in db.execute(f"SELECT {columns}, crc FROM {table}"):
                _require(crc == _crc(*values), f"wrong checksum of an entry of {table} ({values[0]!r})", path)
        last, size = db.execute("SELECT max(version), coalesce(sum(length(payload)), 0) FROM log").fetchone()
        size += db.execute("SELECT coalesce(sum(length(payload)), 0) FROM log_rest").fetchone()[0]
        known = Reach(max(last or 0, meta["forgotten"]), meta["catalog_changes"])
    _require_reach(known, mark, folder)
    return Found(meta["folder_id"], meta["secret"], meta["forgotten"], meta["next_relation_id"], known, size)


def _require_reach(known: Reach, mark: Reach | None, folder: Path) -> None:
    if mark is None:
        return
    remedy = f"restore the folder from a copy, or remove {folder / MARK} to continue without the lost versions"
    if known.version < mark.version:
        raise Damaged(f"the log ends at version {known.version}, but version {mark.version} was committed", folder / DATABASE, remedy)
    if known.catalog < mark.catalog:
        raise Damaged("the last changes of the catalogue are missing", folder / DATABASE, remedy)


def replay(db: sqlite3.Connection, path: Path, after: int, forgotten: int, last: int) -> Iterator[LogRow]:
    """The batches (after, last] of a database whose batches up to `forgotten` are gone, each verified. Raises Damaged."""
    if after < forgotten:
        raise Damaged(f"versions {after + 1} to {forgotten} are neither in the log nor in a snapshot", path)
    if after > last:
        raise Damaged(f"the log ends at version {last}, before the snapshot's version {after}", path)
    expected = after + 1
    with _damage(path), contextlib.closing(db.cursor()) as rows:
        for version, source, run, epoch, crc, payload in rows.execute("SELECT * FROM log WHERE version > ? ORDER BY version", (after,)):
            if version != expected:
                break
            if isinstance(payload, bytes) and len(payload) >= _LARGEST:
                parts = db.execute("SELECT payload FROM log_rest WHERE version = ? ORDER BY part", (version,)).fetchall()
                payload = b"".join([payload, *(part for (part,) in parts)])
            if not isinstance(payload, bytes) or crc != _batch_crc(version, source, run, epoch, payload):
                raise Damaged(f"wrong checksum of version {version}", path)
            yield LogRow(version, source, run, epoch, payload)
            expected += 1
    if expected <= last:
        raise Damaged(f"version {expected} is missing from the log", path)


def _is_new(folder: Path) -> bool:
    """Whether nothing was ever committed here: no database, or one whose creation was interrupted before its mark was written."""
    if (folder / MARK).exists():
        return False
    if not (folder / DATABASE).exists():
        return not (folder / SNAPSHOTS).exists()
    with open_read_only(folder / DATABASE) as db:
        return not db.execute("SELECT 1 FROM sqlite_schema").fetchall()


def _create(folder: Path) -> None:
    """Create the database of a new folder: in one transaction, checkpointed, on disk; then its mark."""
    path = folder / DATABASE
    os.close(private(path, os.O_RDWR | os.O_CREAT))  # its log gets the same mode from SQLite
    with contextlib.closing(_open(path, "full")) as db:
        db.execute("BEGIN IMMEDIATE")
        for table in _TABLES.values():
            db.execute(table)
        _put_meta(db, "format", _FORMAT)
        _put_meta(db, "folder_id", str(uuid.uuid4()))
        _put_meta(db, "secret", secrets.token_bytes(32))
        for counter, start in _COUNTERS.items():
            _put_meta(db, counter, start)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    mark = Mark(folder, "full")
    mark.set(Reach(0, 0))
    mark.sync()
    mark.close()
    sync_path(folder)


def _open(path: Path, synchronous: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for pragma in (
        "locking_mode = EXCLUSIVE",  # the folder has one owner: no shared memory between processes, fewer system calls
        "journal_mode = WAL",
        f"synchronous = {synchronous.upper()}",
        "wal_autocheckpoint = 0",  # an fsync in the middle of a commit: see `checkpoint_if_due`
        "secure_delete = FAST",  # some builds write zeros over all that is deleted, which wrote each page of a log that is cut once more
        "cache_size = -512",  # KiB: the log is written and read once, in order; a larger cache is filled and of no use
    ):
        db.execute(f"PRAGMA {pragma}").fetchall()
    db.execute("SELECT 1 FROM sqlite_schema").fetchall()  # opens the WAL
    return db


def _put_meta(db: sqlite3.Connection, name: str, value: object) -> None:
    db.execute(_META, (name, value, _crc(name, value)))


def _crc(*values: object) -> int:
    return zlib.crc32(repr(values).encode())


def _batch_crc(version: int, source: str | None, run: str | None, epoch: int | None, payload: bytes) -> int:
    return zlib.crc32(payload, _crc(version, source, run, epoch))


def _text(data: bytes) -> str:
    """Damaged text must not stop the reading: its checksum says what it is."""
    return data.decode(errors="replace")


def _require(condition: bool, what: str, path: Path) -> None:
    if not condition:
        raise Damaged(what, path)


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Converts SQLite's errors about damage to Damaged."""
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            raise Damaged(f"damaged database ({error})", path) from error
        raise
