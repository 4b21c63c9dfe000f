"""Repairs a damaged data folder: a new database of all undamaged data, up to the last good batch, replaces the old one.

What is replaced or left out is moved to `damaged-…` in the data folder; nothing is deleted. The repaired folder begins a new timeline.
"""

from __future__ import annotations

import itertools
import json
import secrets
import shutil
import sqlite3
import time
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.access.store import TOKENS, forget_tokens, read_tokens
from service.backups.tables import put_rows
from service.durability import database
from service.durability.checksums import checksum
from service.durability.database import ENTRIES, LogRow
from service.durability.failpoints import reach
from service.durability.files import link_or_copy
from service.durability.folder import DATABASE, FOLDER_MODE, MARK, REPAIRED, DamagedFolder, Mark, sync_path
from service.durability.snapshots import Snapshot, leave_out_feeds, read_snapshot, snapshot_paths

_DRAFT = "repaired.tmp"
_RESTORE = "restore the folder from a backup"


@dataclass
class Plan:
    """What a repair of `folder` would do. `dropped`: one sentence for each loss; empty: there is nothing to repair."""

    folder: Path
    version: int = 0  # the last good batch
    forgotten: int = 0  # the batch before the first one that is kept
    dropped: list[str] = field(default_factory=list)
    moved: list[Path] = field(default_factory=list)  # files and folders that are left out
    feeds: dict[Path, list[str]] = field(default_factory=dict)  # by snapshot, the views whose recent changes are left out
    tables: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)  # rows of the new database, without the log
    timelines: database.Timelines = field(default_factory=list)
    tokens: bool = False  # whether they are left out
    rows: bool = False  # whether batches or relations are dropped, so that something must be sent again


def plan(folder: Path) -> Plan:
    """Read everything, and return the plan; the caller has the folder's lock. Raises Damaged if nothing can be kept. Changes nothing."""
    found = Plan(folder)
    path = folder / DATABASE
    if not path.exists():
        raise DamagedFolder("the database is missing", path, _RESTORE)
    with database.open_read_only(path) as db:
        database.require_format(db, path)
        meta = _meta(found, db, path)
        bases = _snapshots(found, meta["forgotten"])
        for table, columns in ENTRIES.items():
            _entries(found, db, table, columns)
        _log(found, db, path, meta["forgotten"], bases)
    try:
        database.verify(folder)
    except DamagedFolder as problem:
        if not found.dropped:
            found.dropped.append(f"the damaged parts of {problem.where.name}, which hold nothing that is needed ({problem.what})")
    try:
        read_tokens(folder)
    except DamagedFolder:
        found.tokens = True
        found.dropped.append("all access tokens: their file is damaged. The folder stays in token mode: create new tokens with --data")
    return found


def _snapshots(found: Plan, forgotten: int) -> list[int]:
    """Return the versions of the undamaged snapshots from which the log continues."""
    bases = []
    for path in snapshot_paths(found.folder, forgotten)[0]:
        try:
            snapshot = read_snapshot(path)
            snapshot.verify()
        except DamagedFolder as problem:
            found.dropped.append(f"the snapshot of version {path.name}: {problem.what} in {problem.where.name}")
            found.moved.append(path)
        else:
            bases.append(snapshot.version)
            _feeds(found, snapshot)
    return bases


def _feeds(found: Plan, snapshot: Snapshot) -> None:
    damaged = snapshot.damaged_feeds()
    if damaged:
        found.feeds[snapshot.path] = [*damaged]
    for problem in damaged.values():
        found.dropped.append(f"recent changes of a view in {problem.where.name} ({problem.what}): its followers start again")
        if problem.where.exists():
            found.moved.append(problem.where)


def _meta(found: Plan, db: sqlite3.Connection, path: Path) -> dict[str, Any]:
    """Return the entries of `meta`; those that nothing else depends on are created anew if they are damaged."""
    fresh = {"secret": secrets.token_bytes(32), "folder_id": str(uuid.uuid4())}
    try:
        rows = db.execute("SELECT name, value, crc FROM meta").fetchall()
    except sqlite3.DatabaseError as error:
        raise DamagedFolder(f"the catalogue cannot be read ({error})", path, _RESTORE) from error
    meta = {name: value for name, value, crc in rows if crc == checksum(name, value)}
    for name in ("format", "timelines", "forgotten", "next_relation_id", "catalog_changes"):
        if name not in meta:
            raise DamagedFolder(f"the entry {name!r} of the catalogue is damaged", path, _RESTORE)
    for name, value in fresh.items():
        if name not in meta:
            found.dropped.append("all tokens of followers and all cursors: the key that they are sealed with is damaged")
            meta[name] = value
    found.timelines = [(number, begun) for number, begun in json.loads(meta["timelines"])]
    found.tables["meta"] = [(name, value, checksum(name, value)) for name, value in meta.items()]
    return meta


def _entries(found: Plan, db: sqlite3.Connection, table: str, columns: str) -> None:
    """Collect the undamaged rows of a table of the catalogue."""
    names = columns.split(", ")
    found.tables[table] = []
    kind = {"relations": "relation", "views": "view", "sources": "source"}[table]
    try:
        cursor = db.execute(f"SELECT * FROM {table}")
        positions = [description[0] for description in cursor.description]
        for row in cursor:
            values = dict(zip(positions, row, strict=True))
            if values["crc"] == checksum(*(values[name] for name in names)):
                found.tables[table].append(row)
            else:
                name = values["source" if table == "sources" else "name"]
                lost = {"relation": " and all of its rows", "view": "", "source": ": its epoch is no longer known"}[kind]
                found.dropped.append(f"the {kind} {name!r}{lost}")
                found.rows |= kind == "relation"
    except sqlite3.DatabaseError as error:
        raise DamagedFolder(f"the catalogue cannot be read ({error})", found.folder / DATABASE, _RESTORE) from error


def _log(found: Plan, db: sqlite3.Connection, path: Path, forgotten: int, bases: list[int]) -> None:
    """Determine the last good batch, the first one of those before it without a gap, and the sources at that time."""
    if not bases and forgotten:
        raise DamagedFolder(f"versions 1 to {forgotten} are neither in the log nor in a whole snapshot", path, _RESTORE)
    base = max(bases, default=0)
    last = max(base, forgotten)
    with suppress(sqlite3.DatabaseError):
        last = max(last, db.execute("SELECT max(version) FROM log").fetchone()[0] or 0)
    rows = _before(found, db, path, forgotten, base)
    end, reason = _behind(db, path, base, last, rows)
    found.version = rows[-1].version if end else base
    committed = max(last, _marked(found))
    if committed > found.version:
        reason = reason or "the end of the log is missing"
        first = found.version + 1
        what = f"versions {first} to {committed}, the last {committed - first + 1} batches" if first < committed else f"version {first}"
        found.dropped.append(f"{what}: {reason}")
        found.rows = True
        _set_back(found, rows)


def _before(found: Plan, db: sqlite3.Connection, path: Path, forgotten: int, base: int) -> list[LogRow]:
    """Return the undamaged batches up to the newest undamaged snapshot, without payloads. An older snapshot needs them, and they show which
    epochs were sent."""
    rows: list[LogRow] = []
    damage: dict[int, str] = {}
    found.forgotten = version = forgotten
    for row in database.readable(db, path, forgotten, base):
        version += 1
        if isinstance(row, DamagedFolder):
            found.forgotten, damage[version] = version, row.what
        else:
            rows.append(row._replace(payload=b""))
    if damage:
        first, more = next(iter(damage)), f", and {len(damage) - 1} more" if len(damage) > 1 else ""
        found.dropped.append(f"version {first} of the log{more}, which the snapshot of version {base} has: {damage[first]}")
    return rows


def _behind(db: sqlite3.Connection, path: Path, base: int, last: int, rows: list[LogRow]) -> tuple[bool, str]:
    """Add the batches after the snapshot that can be replayed; return whether there are any, and why there are no more."""
    begin = len(rows)
    empty = 0  # at the end: of single changes committed together, only the last row has the payload
    reason = ""
    try:
        for row in database.replay(db, path, base, base, last):
            rows.append(row._replace(payload=b""))
            empty = 0 if row.payload else empty + 1
    except DamagedFolder as problem:
        reason = problem.what
        if empty:
            del rows[-empty:]
    return len(rows) > begin, reason


def _marked(found: Plan) -> int:
    """Return the version that was committed last, according to the mark."""
    try:
        reach = Mark.read(found.folder)[0]
    except DamagedFolder:
        return 0
    return reach.version if reach is not None else 0


def _set_back(found: Plan, rows: list[LogRow]) -> None:
    """Set the sources back to the last good batch: the batch of a dropped epoch must not count as a duplicate when it is sent again."""
    last = {row.source: row for row in rows if row.source is not None}
    kept = []
    for *record, _ in found.tables["sources"]:
        source, _, epoch, version, _, _, written = record
        if version is None or version <= found.version:
            kept.append((*record, checksum(*record)))
        elif source in last:
            row = last[source]
            back = source, row.run, row.epoch, row.version, None, None, written
            kept.append((*back, checksum(*back)))
            found.dropped.append(f"of the source {source!r}, what came after epoch {row.epoch} (up to {epoch})")
        else:
            found.dropped.append(f"the source {source!r}: which epochs before {epoch} it has sent is no longer known")
    found.tables["sources"] = kept


def repair(found: Plan) -> tuple[Path, database.Timelines]:
    """Repair the folder; return the folder with what was left out, and the timelines. OSError on a full disk, before anything was
    replaced."""
    folder = found.folder
    draft = folder / _DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    aside = _new_folder(folder)
    timelines = database.next_timeline(found.timelines, found.version)
    try:
        draft.mkdir(FOLDER_MODE)
        with database.open_read_only(folder / DATABASE) as old:
            database.create(draft, lambda db: _fill(db, old, found, timelines))
        sync_path(draft)
        aside.mkdir(FOLDER_MODE)
        for name in (DATABASE, f"{DATABASE}-wal", MARK, *((TOKENS,) if found.tokens else ())):
            if (folder / name).exists():
                link_or_copy(folder / name, aside / name)
        sync_path(aside)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)
        raise
    reach("in-repair")
    for snapshot, view_ids in found.feeds.items():
        leave_out_feeds(snapshot, view_ids)
        reach("in-repair")
    for path in found.moved:
        target = aside / path.relative_to(folder)
        target.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        path.rename(target)
        sync_path(target.parent)
        reach("in-repair")
    if found.tokens:
        forget_tokens(folder)
    sync_path(aside)
    draft.rename(folder / REPAIRED)
    sync_path(folder)
    finish(folder)
    return aside, timelines


def _new_folder(folder: Path) -> Path:
    """Return a name for the folder of what is left out."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (f"damaged-{stamp}{f'-{number}' if number else ''}" for number in itertools.count())
    return next(path for path in map(folder.joinpath, names) if not path.exists())


def finish(folder: Path) -> bool:
    """Replace the old files by those that a repair has made; return whether there were any. This may be interrupted, and repeated: until it
    is complete, no service starts on the folder (`database.verify`)."""
    made = folder / REPAIRED
    is_due = (made / DATABASE).exists()
    if is_due:
        reach("in-repair")
        (folder / f"{DATABASE}-wal").unlink(missing_ok=True)  # it must not be applied to another database
        sync_path(folder)
        reach("in-repair")
        if (made / MARK).exists():
            (made / MARK).replace(folder / MARK)
        sync_path(folder)
        reach("in-repair")
        (made / DATABASE).replace(folder / DATABASE)
        sync_path(folder)
    shutil.rmtree(made, ignore_errors=True)
    return is_due


def _fill(db: sqlite3.Connection, old: sqlite3.Connection, found: Plan, timelines: database.Timelines) -> None:
    put_rows(db, found.tables)
    database.put_meta(db, "forgotten", found.forgotten)
    database.put_meta(db, "timelines", json.dumps(timelines))
    for table, insert in (("log", database.INSERT), ("log_rest", database.INSERT_REST)):
        with closing(old.execute(f"SELECT * FROM {table} WHERE version > ? AND version <= ?", (found.forgotten, found.version))) as rows_:
            db.executemany(insert, rows_)
