"""The upgrade of a data folder of format 1: a copy is made, then it replaces the folder, which is kept next to it.

    beside    DIR.upgrade            the copy, marked as ours by livejoin.copy; if the other files are missing it is unfinished, and is
                                     made again
              DIR -> DIR.format1     then DIR.upgrade -> DIR; if only the first was done, the next start does the second

    inside    DIR/livejoin.upgrade.tmp -> DIR/livejoin.upgrade   the complete copy: the next start continues from here
              each old file -> DIR/livejoin.format1.tmp/, which then becomes DIR/livejoin.format1
              each file of livejoin.upgrade -> DIR

The second way is for a folder that cannot or should not be renamed: a mount point (the volume of a container), a folder in one where we may
not write, one with files of others, one that is a process's working directory.

Everything is verified while it is copied. Snapshots are the same in both formats and never written to: the copy links their files. Until
the copy is complete, nothing of the old folder is touched, and none of its files is ever changed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from service.durability import database
from service.durability.database import INSERT, Form, LogRow, RelationRecord, SourceRecord, ViewRecord
from service.durability.failpoints import reach
from service.durability.files import copy_path, free_bytes, link_or_copy
from service.durability.folder import (
    DATABASE,
    FILE_MODE,
    FOLDER_MODE,
    LOCK,
    MARK,
    SNAPSHOTS,
    Damaged,
    FolderLock,
    is_full,
    make_folder,
    refuse_backup,
    sync_path,
    tokens_locked,
)
from service.durability.snapshots import read_snapshot, snapshot_paths

log = logging.getLogger("livejoin.upgrade")

_SPARE = 16 << 20  # bytes that must stay free
_OWN = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-wal.kept", MARK, SNAPSHOTS)  # these belong to a format; other files are unchanged
_OURS = "livejoin.copy"  # in the copy beside the folder, from its creation until it has replaced the folder
_CANNOT_RENAME = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)


def _repr_checksum(*values: object) -> int:
    return zlib.crc32(repr(values).encode())


def _repr_batch_checksum(version: int, source: str | None, run: str | None, epoch: int | None, payload: bytes) -> int:
    return zlib.crc32(payload, _repr_checksum(version, source, run, epoch))


_COLUMNS = {
    "meta": "(name TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    "relations": "(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL, crc INTEGER NOT NULL)",
    "views": "(place INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL, crc INTEGER NOT NULL)",
    "sources": "(source TEXT PRIMARY KEY, run TEXT, epoch INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    "log": "(version INTEGER PRIMARY KEY, source TEXT, run TEXT, epoch INTEGER, crc INTEGER NOT NULL, payload BLOB NOT NULL)",
    "log_rest": "(version INTEGER, part INTEGER, payload BLOB NOT NULL, PRIMARY KEY (version, part))",
}
_FORM_1 = Form(
    1,
    {name: f"CREATE TABLE {name} {columns}" for name, columns in _COLUMNS.items()},
    {"relations": "id, name, definition", "views": "name, definition", "sources": "source, run, epoch"},
    _repr_checksum,
    _repr_batch_checksum,
)


class CannotUpgrade(Exception):
    """The folder has an earlier format and is unchanged: the text says why, and what to do."""


def upgrade(folder: Path) -> None:
    """Upgrade a data folder of format 1 to the current format, or continue an interrupted upgrade.

    Raises CannotUpgrade, Damaged, WrongFormat (a newer format), FolderInUse, OSError. Cost: the database is read and written once, the
    newest snapshot is read.
    """
    folder = folder.resolve()
    refuse_backup(folder)
    _finish_beside(folder)
    if not folder.is_dir() or not (folder / DATABASE).exists() and not _copy_inside(folder).exists():
        return
    lock = FolderLock(folder)
    try:
        (folder / _OURS).unlink(missing_ok=True)
        _finish_inside(folder)
        number = database.format_of(folder)
        if number is None or number == database.FORMAT:
            return
        if number != _FORM_1.number:
            raise database.WrongFormat(number, folder / DATABASE)
        make_folder(folder)  # others must not be able to read the old folder either
        shutil.rmtree(_unfinished_inside(folder), ignore_errors=True)
        with tokens_locked(folder):
            if not _can_move(folder) or not _upgrade_beside(folder):
                _upgrade_inside(folder)
    finally:
        lock.release()


def upgraded_copy(folder: Path, copy: Path, place: Callable[[Path, Path], object]) -> None:
    """Create in `copy`, an empty folder, the database, mark and newest snapshot of a folder of format 1 in the current format. `place(from,
    to)` puts a file of the snapshot there. The caller holds the lock of `folder`. Raises Damaged, OSError, sqlite3.OperationalError."""
    found = database.verify(folder, form=_FORM_1)
    finished = snapshot_paths(folder)[0]
    base = 0
    if finished:
        snapshot = read_snapshot(finished[-1])
        base = snapshot.version
        snapshot.verify()
    if base < found.forgotten:
        raise Damaged(f"versions {base + 1} to {found.forgotten} are neither in the log nor in a snapshot", folder / DATABASE)
    path = folder / DATABASE
    with database.open_read_only(path) as old:
        rows = database.replay(old, path, found.forgotten, found.forgotten, found.reach.version, _FORM_1)
        if base > found.reach.version:
            raise Damaged(f"the log ends at version {found.reach.version}, before the snapshot's version {base}", path)
        database.create(copy, lambda new: _fill(new, old, found, rows))
    reach("in-upgrade")
    if finished:
        target = copy / SNAPSHOTS / finished[-1].name
        target.mkdir(FOLDER_MODE, parents=True)
        (copy / SNAPSHOTS).chmod(FOLDER_MODE)
        for file in sorted(finished[-1].iterdir()):
            place(file, target / file.name)
        for changed in (target, copy / SNAPSHOTS, copy):
            sync_path(changed)


def _fill(new: sqlite3.Connection, old: sqlite3.Connection, found: database.Found, rows: Iterator[LogRow]) -> None:
    database.put_meta(new, "folder_id", found.folder_id)
    database.put_meta(new, "secret", found.secret)
    database.put_meta(new, "forgotten", found.forgotten)
    database.put_meta(new, "next_relation_id", found.next_relation_id)
    database.put_meta(new, "catalog_changes", found.reach.catalog)
    for relation_id, name, text in old.execute("SELECT id, name, definition FROM relations ORDER BY id"):
        definition = json.loads(text)
        database.put_relation(new, RelationRecord(relation_id, name, definition, [(0, len(definition["columns"]))]))
    for name, text in old.execute("SELECT name, definition FROM views ORDER BY place"):
        database.put_view(new, ViewRecord(database.new_view_id(), name, json.loads(text), None))
    last: dict[str | None, int] = {}
    for row in rows:
        last[row.source] = row.version
        crc = database.CURRENT.batch_checksum(*row[:5])
        new.execute(INSERT, (*row[:4], crc, database.put_rest(new, row.version, row.payload)))
    for source, run, epoch in old.execute("SELECT source, run, epoch FROM sources"):
        database.put_source(new, source, SourceRecord(run, epoch, last.get(source), None, None))


# beside the folder


def _can_move(folder: Path) -> bool:
    """Return whether the folder can be renamed, as far as can be determined: it and its contents are ours alone."""
    here = Path.cwd().resolve()
    own = all(path.name in _OWN or (path.name.startswith("livejoin.") and path.is_file()) for path in folder.iterdir())
    return own and not os.path.ismount(folder) and os.access(folder.parent, os.W_OK) and folder not in (here, *here.parents)


def _places_beside(folder: Path) -> tuple[Path, Path]:
    return folder.with_name(f"{folder.name}.upgrade"), folder.with_name(f"{folder.name}.format1")


def _upgrade_beside(folder: Path) -> bool:
    """Return False, without effect, if the folder cannot be renamed after all."""
    copy, kept = _places_beside(folder)
    _require_none(folder, kept)
    if copy.exists() and any(copy.iterdir()):
        if not (copy / _OURS).exists():
            said = f"the data folder {folder} is of format 1, and is copied to {copy} to be upgraded, but there is such a folder already"
            raise CannotUpgrade(f"{said}, which livejoin has not made: move that away and start again; nothing was changed")
        _discard(copy)
    with _made_again(copy):
        (copy / _OURS).touch(FILE_MODE)
        sync_path(copy)  # before it contains anything else
        _make_copy(folder, copy)
        for path in folder.iterdir():
            if path.name not in _OWN and path.name != LOCK:
                copy_path(path, copy / path.name)
        sync_path(copy)
    reach("after-upgrade-copy")
    lock = FolderLock(copy)  # held during the renames: no other process can open the folder in between
    try:
        try:
            folder.rename(kept)
        except OSError as error:
            if error.errno not in _CANNOT_RENAME:
                raise
            _discard(copy)
            return False
        sync_path(folder.parent)
        reach("in-upgrade-switch")
        _put_in_place(copy, folder)
    finally:
        lock.release()
    reach("after-upgrade")
    _log_upgrade(folder, kept)
    return True


def _put_in_place(copy: Path, folder: Path) -> None:
    copy.rename(folder)
    sync_path(folder.parent)
    (folder / _OURS).unlink(missing_ok=True)


def _discard(copy: Path) -> None:
    """Remove a copy, and last the file that marks it as ours."""
    for path in copy.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _OURS:
            path.unlink()
    sync_path(copy)
    shutil.rmtree(copy)


def _finish_beside(folder: Path) -> None:
    """Do the second rename, if only the first was done. Raises CannotUpgrade if a new folder has the name, and is not empty."""
    copy, kept = _places_beside(folder)
    if not (copy.exists() and kept.exists()) or (folder.exists() and not (copy / _OURS).exists()):
        return
    lock = FolderLock(copy)
    try:
        _put_in_place(copy, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
            raise
        said = f"an upgrade of {folder} was interrupted: the data are in {copy}, and as they were before in {kept}"
        raise CannotUpgrade(f"{said}. Since then another {folder} was made: move that away and start again; nothing was changed") from error
    finally:
        lock.release()
    _log_upgrade(folder, kept)


# inside the folder


def _copy_inside(folder: Path) -> Path:
    return folder / "livejoin.upgrade"


def _unfinished_inside(folder: Path) -> Path:
    return folder / "livejoin.upgrade.tmp"


def _kept_inside(folder: Path) -> Path:
    return folder / "livejoin.format1"


def _upgrade_inside(folder: Path) -> None:
    copy = _copy_inside(folder)
    _require_none(folder, _kept_inside(folder))
    unfinished = _unfinished_inside(folder)
    with _made_again(unfinished):
        _make_copy(folder, unfinished)
    unfinished.rename(copy)
    sync_path(folder)
    reach("after-upgrade-copy")
    _finish_inside(folder)


def _finish_inside(folder: Path) -> None:
    """Replace the files by the complete copy. Each step may have been done already."""
    copy, kept = _copy_inside(folder), _kept_inside(folder)
    if not copy.exists():
        return
    if not kept.exists():
        moving = kept.with_name(f"{kept.name}.tmp")
        moving.mkdir(FOLDER_MODE, exist_ok=True)
        for name in _OWN:
            if (folder / name).exists():
                if (moving / name).exists():
                    raise CannotUpgrade(f"{folder / name} was written while the folder was being upgraded: move it away and start again")
                (folder / name).rename(moving / name)
                sync_path(moving)
                sync_path(folder)
                reach("in-upgrade-switch")
        moving.rename(kept)
        sync_path(folder)
    for path in sorted(copy.iterdir()):
        path.rename(folder / path.name)
        sync_path(folder)
        reach("in-upgrade-switch")
    copy.rmdir()
    sync_path(folder)
    reach("after-upgrade")
    _log_upgrade(folder, kept)


# both


def _make_copy(folder: Path, copy: Path) -> None:
    """Raises CannotUpgrade if there is not enough space."""
    needed = sum(path.stat().st_size for name in _OWN[:2] if (path := folder / name).exists()) + _SPARE
    free = free_bytes(folder)
    if free < needed:
        raise _no_room(folder, f"it takes about {needed >> 20} MiB, and {free >> 20} MiB are free")
    log.warning("the data folder %s is of format 1, and this version of livejoin has format %d: upgrading it", folder, database.FORMAT)
    try:
        upgraded_copy(folder, copy, link_or_copy)
    except (OSError, sqlite3.OperationalError) as error:
        if is_full(error):
            raise _no_room(folder, "the disk is full") from error
        raise


def _no_room(folder: Path, why: str) -> CannotUpgrade:
    return CannotUpgrade(
        f"the data folder {folder} is of format 1 and has to be copied to be upgraded, but there is no room for the copy ({why}): make"
        " room and start again; nothing was changed"
    )


def _require_none(folder: Path, kept: Path) -> None:
    if kept.exists():
        raise CannotUpgrade(
            f"the data folder {folder} is of format 1 and would stay as {kept} when it is upgraded, but there is such a folder already:"
            " move that away and start again; nothing was changed"
        )


@contextlib.contextmanager
def _made_again(copy: Path) -> Iterator[None]:
    """Provide an empty folder for the copy, and remove it on an error."""
    copy.mkdir(FOLDER_MODE, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            _discard(copy)
        raise


def _log_upgrade(folder: Path, kept: Path) -> None:
    said = "the data folder %s was upgraded to format %d; the old one is kept as %s: remove it once you are sure not to go back"
    log.warning(said, folder, database.FORMAT, kept)
