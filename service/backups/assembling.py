"""Assembles a data folder from a chain of backups: for `livejoin restore`, and for `livejoin check` of a backup."""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, nullcontext
from pathlib import Path

from service.access.store import TOKENS
from service.backups.manifest import Backup, position_of
from service.backups.tables import Reading, copy_log, put_rows, read_catalogue
from service.durability import database
from service.durability.failpoints import reach
from service.durability.files import copy_path
from service.durability.folder import DATABASE, FOLDER_MODE, SNAPSHOTS, DamagedFolder, sync_path


def assemble(chain: list[Backup], folder: Path, *, forks: bool, links: bool = False) -> database.Timelines:
    """Write the data folder that the last of these backups contains to `folder`, which is new or empty. `forks`: a new timeline begins;
    `links`: snapshots are links to the backups' files.

    The database, without which no service starts on the folder, comes last. Return the timelines. Raises Damaged, also for a backup of
    another format, before anything is written; OSError.
    """
    base = max((index for index, backup in enumerate(chain) if backup.snapshot is not None), default=-1)
    if base < 0:
        raise DamagedFolder("no backup of the chain has a snapshot", chain[0].folder, "use another backup")
    last = chain[-1]
    for backup in chain[base:]:
        _require_format(backup)
    folder.mkdir(FOLDER_MODE, exist_ok=True)
    (folder / SNAPSHOTS).mkdir(FOLDER_MODE)
    sync_path(folder.absolute().parent)
    files = [file for file in chain[base].files if file.path.startswith(f"{SNAPSHOTS}/")]
    for file in [*files, *(file for file in last.files if file.path == TOKENS)]:
        source, copy = position_of(file, chain), folder / file.path
        copy.parent.mkdir(FOLDER_MODE, exist_ok=True)
        if links:
            copy.symlink_to(source.resolve())
        else:
            copy_path(source, copy)
        reach("in-restore")
    for path in (*(folder / SNAPSHOTS).iterdir(), folder / SNAPSHOTS, folder):
        sync_path(path)
    timelines = [(line[0], line[1]) for line in last.timelines]
    if forks:
        timelines = database.next_timeline(timelines, last.version)
    with ExitStack() as stack:
        databases = [stack.enter_context(database.open_read_only(backup.folder / DATABASE)) for backup in chain[base:]]
        database.create(folder, lambda db: _fill(db, databases, chain[base:], timelines))
    return timelines


def _require_format(backup: Backup) -> None:
    """Require the current format: tables are copied unchanged, including `meta` with the number of the format."""
    path = backup.folder / DATABASE
    with database.open_read_only(path) as db:
        number = database.read_format(db, path)
    if number != database.FORMAT:
        remedy = "restore it with the version of livejoin that made it"
        raise DamagedFolder(f"a backup of a data folder of format {number}; this is {database.FORMAT}", path, remedy)


def _fill(db: sqlite3.Connection, databases: list[sqlite3.Connection], chain: list[Backup], timelines: database.Timelines) -> None:
    """Insert the newest catalogue, and the logs of all backups one after another."""
    put_rows(db, read_catalogue(databases[-1], chain[-1].version).rows)
    database.put_meta(db, "forgotten", chain[0].log_after)
    database.put_meta(db, "timelines", json.dumps(timelines))
    for source, backup in zip(databases, chain, strict=True):
        copy_log(_always(source), db, backup.log_after, backup.version, lambda count: None, patient=False)


def _always(db: sqlite3.Connection) -> Reading:
    return lambda: nullcontext(db)
