"""The database of a data folder, format 3: its tables, and how they are created, opened, verified and read.

    meta        format, folder_id, secret, timelines, forgotten, next_relation_id, catalog_changes
    relations   each with its definition and its shapes: its number of columns, from which version on
    views       each with its definition as given, and as it was interpreted (`query`)
    sources     for each source its last batch, the answer to it, and the relations that it has written
    log         one row per batch; the rest of a large payload is in log_rest

Every row has a checksum (`checksums.py`). The row of `format` in `meta` has this form in all formats, and is read first.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from service.durability.checksums import batch_checksum, checksum
from service.durability.folder import (
    DATABASE,
    MARK,
    REPAIRED,
    SNAPSHOTS,
    DamagedFolder,
    FolderLock,
    Mark,
    Reach,
    is_sync_failure,
    is_unreadable,
    private,
    refuse_backup,
    sync_path,
)

FORMAT = 3
LARGEST = 4 << 20  # bytes of a payload in one row, of which SQLite makes two copies
KEPT = 1 << 17  # bytes of values that a cached statement may keep
_TIMELINE_BITS = 48
_WRITING_AT = 18  # in SQLite's file format: the version for writing, 1 for a rollback journal and 2 for a WAL
_COLUMNS = {
    "meta": "(name TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    "relations": (
        "(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL, shapes TEXT NOT NULL, crc INTEGER NOT NULL)"
    ),
    "views": (
        "(place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL, query TEXT NOT NULL,"
        " crc INTEGER NOT NULL)"
    ),
    "sources": (
        "(source TEXT PRIMARY KEY, run TEXT, epoch INTEGER NOT NULL, version INTEGER, time INTEGER, receipt BLOB, written TEXT NOT NULL,"
        " crc INTEGER NOT NULL) WITHOUT ROWID"
    ),
    "log": "(version INTEGER PRIMARY KEY, source TEXT, run TEXT, epoch INTEGER, crc INTEGER NOT NULL, payload BLOB NOT NULL)",
    "log_rest": "(version INTEGER, part INTEGER, payload BLOB NOT NULL, PRIMARY KEY (version, part))",
}
_COUNTERS = {"forgotten": 0, "next_relation_id": 0, "catalog_changes": 0}
_META = "REPLACE INTO meta VALUES (?, ?, ?)"

ROW = "(?, ?, ?, ?, ?, ?)"
INSERT = f"INSERT INTO log VALUES {ROW}"  # one row; more are appended
INSERT_REST = "INSERT INTO log_rest VALUES (?, ?, ?)"
PUT_SOURCE = "REPLACE INTO sources VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
PUT_RELATION = "INSERT INTO relations VALUES (?, ?, ?, ?, ?)"
PUT_VIEW = (
    "INSERT INTO views (id, name, definition, query, crc) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET definition = excluded.definition, query = excluded.query, crc = excluded.crc"
)

Shapes = list[tuple[int, int]]
Timelines = list[tuple[int, int]]


_TABLES = {name: f"CREATE TABLE {name} {columns}" for name, columns in _COLUMNS.items()}
ENTRIES = {  # the columns that a checksum covers
    "relations": "id, name, definition, shapes",
    "views": "id, name, definition, query",
    "sources": "source, run, epoch, version, time, receipt, written",
}


class WrongFormat(DamagedFolder):
    """The folder has another format, `number`."""

    def __init__(self, number: int, path: Path) -> None:
        self.number = number
        said = f"the folder has format {number}, and this version of livejoin reads format {FORMAT} only"
        super().__init__(said, path, "start the version that wrote it, or send the data to a service on a new folder")


class LogRow(NamedTuple):
    """One batch as it was appended. `receipt`: the answer to it, as JSON, if it has a source; `written`: the relations that this has
    written so far. Only the last ones of each source are kept, with the source, so a replay returns neither."""

    version: int
    source: str | None
    run: str | None
    epoch: int | None
    payload: bytes
    receipt: bytes | None = None
    written: frozenset[str] = frozenset()


class SourceRecord(NamedTuple):
    """The last batch of a source: `time` in microseconds since 1970 (UTC). None: unknown after a repair. `written`: the names of all
    relations that the source has written, whether these still exist or not."""

    run: str | None
    epoch: int
    version: int | None
    time: int | None
    receipt: bytes | None
    written: frozenset[str]


class RelationRecord(NamedTuple):
    """`shapes`: (version, columns): after that version, its log rows and snapshots have so many columns; further columns are appended."""

    id: int
    name: str
    definition: dict[str, Any]
    shapes: Shapes


class ViewRecord(NamedTuple):
    """`id`: permanent, and unique: a view that is dropped and created again has another one. `query`: the definition as it was interpreted
    at registration."""

    id: str
    name: str
    definition: dict[str, Any]
    query: str


Catalog = tuple[list[RelationRecord], list[ViewRecord]]


class DatabaseState(NamedTuple):
    """The state of an undamaged database."""

    folder_id: str
    secret: bytes
    timelines: Timelines  # (number, first version)
    is_certain: bool  # no committed data can be missing
    forgotten: int  # batches up to this version have been removed
    next_relation_id: int
    reach: Reach
    bytes: int  # of payload in the log


def new_view_id() -> str:
    return secrets.token_hex(8)


def next_timeline(timelines: Timelines, version: int) -> Timelines:
    """Return the timelines with a new one, which begins at `version`. Its number is random: two that start from the same copy differ,
    whatever the clock says. It has few enough bits for clients that read numbers as float64."""
    return [*timelines, (secrets.randbits(_TIMELINE_BITS), version)]


def is_new(folder: Path) -> bool:
    """Return whether nothing was ever committed here: no database, or one whose creation was interrupted before its mark was written."""
    if (folder / MARK).exists():
        return False
    if not (folder / DATABASE).exists():
        return not (folder / SNAPSHOTS).exists()
    if (folder / f"{DATABASE}-journal").exists() and not (folder / SNAPSHOTS).exists():
        return True  # SQLite's own creation was interrupted: later, there is no such file
    with open_read_only(folder / DATABASE) as db:
        return not db.execute("SELECT 1 FROM sqlite_schema").fetchall()


def create(folder: Path, entries: Callable[[sqlite3.Connection], None] | None = None) -> None:
    """Create the database of a new folder, in one transaction, on disk; then its mark. `entries` fills it in the same transaction.

    The remains of an interrupted creation are removed.
    """
    path = folder / DATABASE
    for ending in ("", "-journal", "-wal"):
        path.with_name(f"{DATABASE}{ending}").unlink(missing_ok=True)
    os.close(private(path, os.O_RDWR | os.O_CREAT))  # SQLite gives its WAL the same mode
    with closing(open_database(path, "full")) as db:
        db.execute("BEGIN IMMEDIATE")
        for table in _TABLES.values():
            db.execute(table)
        put_meta(db, "format", FORMAT)
        put_meta(db, "folder_id", str(uuid.uuid4()))
        put_meta(db, "secret", secrets.token_bytes(32))
        put_meta(db, "timelines", json.dumps([[1, 0]]))
        for counter, start in _COUNTERS.items():
            put_meta(db, counter, start)
        if entries is not None:
            entries(db)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        reach = _reach(db, read_meta(db, path))
    mark = Mark(folder, "full")
    mark.finish(reach)
    mark.close()
    sync_path(folder)
    sync_path(folder.absolute().parent)  # the process that made the folder may have been killed before it did this


@contextlib.contextmanager
def closing(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Close the database afterwards, unless an fsync has failed (`leave`)."""
    try:
        yield db
    except BaseException as error:
        leave(db) if is_sync_failure(error) else db.close()
        raise
    db.close()


def leave(db: sqlite3.Connection) -> None:
    """Never close the database, because an fsync has failed: SQLite would checkpoint its WAL, sync again, and remove the WAL."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))


def open_database(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open the database for writing. The caller holds the folder's lock."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for pragma in (
        "locking_mode = EXCLUSIVE",  # the folder has one owner: no shared memory between processes, fewer system calls
        "auto_vacuum = INCREMENTAL",  # for a new database; free pages are then returned (`Log.give_back`)
        "journal_mode = WAL",
        f"synchronous = {synchronous.upper()}",
        "wal_autocheckpoint = 0",  # would fsync in the middle of a commit: see `Log.checkpoint_if_due`
        "secure_delete = FAST",  # some builds overwrite deleted data with zeros, which would write each page of a truncated log once more
        "cache_size = -512",  # KiB: the log is written and read once, in order; a larger cache would not help
    ):
        db.execute(f"PRAGMA {pragma}").fetchall()
    db.execute("SELECT 1 FROM sqlite_schema").fetchall()  # opens the WAL
    return db


@contextlib.contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database without changing it, not even to recover its WAL (which is read). The caller holds the folder's lock.

    On closing, SQLite deletes a WAL in which it finds no complete transaction: a second link keeps it, as evidence. It would also sync a
    WAL, and ignore a failure of that. Data that SQLite finds damaged, or the disk cannot read, becomes Damaged; other disk errors
    propagate.
    """
    wal, kept = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-wal.kept")
    with contextlib.suppress(OSError):  # no WAL, or a disk on which nothing can be deleted either
        if kept.exists() and not wal.exists():  # killed between SQLite's deletion and the renaming
            kept.rename(wal)
        if wal.exists():
            kept.unlink(missing_ok=True)
            os.link(wal, kept)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&vfs=unix-none"
        with _damage(path), contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)) as db:
            db.text_factory = _text
            db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()  # the WAL's index in memory: no -shm file
            db.execute("PRAGMA synchronous = OFF").fetchall()
            yield db
    finally:
        with contextlib.suppress(OSError):
            if wal.exists():
                kept.unlink(missing_ok=True)
            elif kept.exists():
                kept.rename(wal)


def _check_header(path: Path) -> None:
    """Check the version in the header: SQLite reads a database that requires a newer one for writing, and would refuse to write it only
    later."""
    with open(path, "rb") as file:
        writing = file.read(_WRITING_AT + 1)[_WRITING_AT:]
    _require(writing in (b"\1", b"\2"), "damaged database (its header)", path)


def verify(folder: Path, trust_mark: bool = True) -> DatabaseState:
    """Verify the whole database except the payloads (`replay` verifies those), without changing anything. Raises Damaged; WrongFormat
    before anything else is read."""
    path = folder / DATABASE
    if not path.exists():
        raise DamagedFolder("the database is missing", path)
    if (folder / REPAIRED / DATABASE).exists():
        raise DamagedFolder("an interrupted repair", folder / REPAIRED, "run `livejoin repair` again, which finishes it")
    with open_read_only(path) as db:
        require_format(db, path)
        _check_header(path)
        mark, is_certain = Mark.read(folder) if trust_mark else (None, False)
        wrong = db.execute("PRAGMA quick_check(1)").fetchall()
        if wrong != [("ok",)]:
            raise DamagedFolder(f"damaged database ({' '.join(str(wrong[0][0]).split())})", path)
        if dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()) != _TABLES:
            raise DamagedFolder("the tables are missing, or not those of this format", path)
        meta = read_meta(db, path)
        for table, columns in ENTRIES.items():
            for *values, crc in db.execute(f"SELECT {columns}, crc FROM {table}"):
                _require(crc == checksum(*values), f"wrong checksum of an entry of {table} ({values[0]!r})", path)
        size = sum(db.execute(f"SELECT coalesce(sum(length(payload)), 0) FROM {table}").fetchone()[0] for table in ("log", "log_rest"))
        known = _reach(db, meta)
    _require_reach(known, mark, folder)
    timelines = [(number, begun) for number, begun in json.loads(meta["timelines"])]
    return DatabaseState(meta["folder_id"], meta["secret"], timelines, is_certain, meta["forgotten"], meta["next_relation_id"], known, size)


def refuse_other(folder: Path) -> None:
    """Raise Damaged if the folder is a backup, WrongFormat if it has another format: to be called before anything is written to it. Raises
    FolderInUse, OSError too."""
    refuse_backup(folder)
    if (folder / DATABASE).exists():
        with FolderLock(folder, read_only=True):
            if not is_new(folder):
                with open_read_only(folder / DATABASE) as db:
                    require_format(db, folder / DATABASE)


def require_format(db: sqlite3.Connection, path: Path) -> None:
    """Raise WrongFormat, Damaged."""
    number = read_format(db, path)
    if number != FORMAT:
        raise WrongFormat(number, path)


def read_format(db: sqlite3.Connection, path: Path) -> int:
    """Return the format number in a database. Raises Damaged."""
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchall():
        raise DamagedFolder("the tables are missing", path)
    rows = db.execute("SELECT value, crc FROM meta WHERE name = 'format'").fetchall()
    _require(len(rows) == 1 and isinstance(rows[0][0], int), "no format number", path)
    ((number, crc),) = rows
    _require(crc == checksum("format", number) or (number, crc) == _FORMAT_1, "wrong checksum of the entry 'format'", path)
    return int(number)


_FORMAT_1 = (1, 0x1F4383F8)  # it had other checksums, and is refused by its number too


def read_meta(db: sqlite3.Connection, path: Path) -> dict[str, Any]:
    """Return the entries of `meta`, verified. Raises Damaged."""
    meta = {}
    for name, value, crc in db.execute("SELECT * FROM meta"):
        _require(crc == checksum(name, value), f"wrong checksum of the entry {name!r}", path)
        meta[name] = value
    _require(meta.keys() >= {"format", "folder_id", "secret", "timelines", *_COUNTERS}, "missing entries", path)
    return meta


def put_meta(db: sqlite3.Connection, name: str, value: int | str | bytes) -> None:
    db.execute(_META, (name, value, checksum(name, value)))


def read_sources(db: sqlite3.Connection) -> dict[str, SourceRecord]:
    rows = db.execute("SELECT source, run, epoch, version, time, receipt, written FROM sources")
    return {
        source: SourceRecord(run, epoch, version, time, receipt, frozenset(json.loads(written)))
        for source, run, epoch, version, time, receipt, written in rows
    }


def read_catalog(db: sqlite3.Connection) -> Catalog:
    """Return relations and views, each in the order of registration."""
    relations = db.execute("SELECT id, name, definition, shapes FROM relations ORDER BY id").fetchall()
    views = db.execute("SELECT id, name, definition, query FROM views ORDER BY place").fetchall()
    return (
        [RelationRecord(i, name, json.loads(text), [tuple(shape) for shape in json.loads(shapes)]) for i, name, text, shapes in relations],
        [ViewRecord(id_, name, json.loads(text), query) for id_, name, text, query in views],
    )


def put_relation(db: sqlite3.Connection, record: RelationRecord) -> int:
    """Insert a relation; return the bytes of its definition."""
    definition, shapes = json.dumps(record.definition), json.dumps(record.shapes)
    values = record.id, record.name, definition, shapes
    db.execute(PUT_RELATION, (*values, checksum(*values)))
    return len(definition) + len(shapes)


def put_view(db: sqlite3.Connection, record: ViewRecord) -> int:
    """Insert a view, or replace the definition of the one with its id, in its place; return the bytes of its definition."""
    definition = json.dumps(record.definition)
    values = record.id, record.name, definition, record.query
    db.execute(PUT_VIEW, (*values, checksum(*values)))
    return len(definition) + len(record.query)


def put_source(db: sqlite3.Connection, source: str, record: SourceRecord) -> None:
    values = source, *record[:-1], json.dumps(sorted(record.written))
    db.execute(PUT_SOURCE, (*values, checksum(*values)))


def put_rest(db: sqlite3.Connection, version: int, payload: bytes) -> bytes | memoryview:
    """Write the part of a payload that does not fit into the row itself; return the part that does."""
    if len(payload) <= LARGEST:
        return payload
    whole = memoryview(payload)
    for part in range(1, -(-len(payload) // LARGEST)):
        db.execute(INSERT_REST, (version, part, whole[part * LARGEST : (part + 1) * LARGEST]))
    return whole[:LARGEST]


def forget_values(db: sqlite3.Connection, statement: str) -> None:
    """Have a cached statement free its values: SQLite keeps its copy of them until the statement is used again, and one for another number
    of rows may never be. Instead of them it is given nulls, which the table refuses before anything is written. Outside a transaction."""
    with contextlib.suppress(sqlite3.Error):
        db.execute(statement, (None,) * statement.count("?"))


def replay(db: sqlite3.Connection, path: Path, after: int, forgotten: int, last: int) -> Iterator[LogRow]:
    """Yield the batches (after, last] of a database without the batches up to `forgotten`, each verified. Raises Damaged."""
    if after < forgotten:
        raise DamagedFolder(f"versions {after + 1} to {forgotten} are neither in the log nor in a snapshot", path)
    if after > last:
        raise DamagedFolder(f"the log ends at version {last}, before the snapshot's version {after}", path)
    expected = after + 1
    with _damage(path), contextlib.closing(db.cursor()) as rows:
        found = rows.execute("SELECT * FROM log WHERE version > ? AND version <= ? ORDER BY version", (after, last))
        for version, source, run, epoch, crc, payload in found:
            if version != expected:
                break
            if isinstance(payload, bytes) and len(payload) >= LARGEST:
                parts = db.execute("SELECT payload FROM log_rest WHERE version = ? ORDER BY part", (version,)).fetchall()
                payload = b"".join([payload, *(part for (part,) in parts)])
            if not isinstance(payload, bytes) or crc != batch_checksum(version, source, run, epoch, payload):
                raise DamagedFolder(f"wrong checksum of version {version}", path)
            yield LogRow(version, source, run, epoch, payload)
            expected += 1
    if expected <= last:
        raise DamagedFolder(f"version {expected} is missing from the log", path)


def readable(db: sqlite3.Connection, path: Path, after: int, last: int) -> Iterator[LogRow | DamagedFolder]:
    """Like `replay`, for the batches (after, last], but continue after a damaged or missing batch, and yield what is wrong with it."""
    while after < last:
        try:
            for row in replay(db, path, after, after, last):
                yield row
                after = row.version
        except DamagedFolder as problem:
            yield problem
            after += 1


def _reach(db: sqlite3.Connection, meta: dict[str, Any]) -> Reach:
    last = db.execute("SELECT max(version) FROM log").fetchone()[0]
    return Reach(max(last or 0, meta["forgotten"]), meta["catalog_changes"])


def _require_reach(known: Reach, mark: Reach | None, folder: Path) -> None:
    if mark is None:
        return
    remedy = f"restore the folder from a copy, or remove {folder / MARK} to continue without the lost versions"
    if known.version < mark.version:
        raise DamagedFolder(f"the log ends at version {known.version}, but version {mark.version} was committed", folder / DATABASE, remedy)
    if known.catalog < mark.catalog:
        raise DamagedFolder("the last changes of the catalogue are missing", folder / DATABASE, remedy)


def _text(data: bytes) -> str:
    """Decode text without errors: damaged text must not stop the reading, and its checksum reveals it."""
    return data.decode(errors="replace")


def _require(condition: bool, what: str, path: Path) -> None:
    if not condition:
        raise DamagedFolder(what, path)


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Convert SQLite's errors about damage, and about unreadable data, to Damaged."""
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR) or is_unreadable(error):
            raise DamagedFolder(f"damaged database ({error})", path) from error
        raise
