"""A backup of a data folder in use, made in a thread of its own at low priority, one at a time.

    the log is not cut meanwhile -> files of the newest snapshot: linked, or copied from files held open -> catalogue and sources at the
    newest version -> the log up to it, in pieces -> everything read again and verified -> the manifest

The writer waits for a piece of the log, about a millisecond, and there are pauses between the pieces.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import secrets
import shutil
import sqlite3
import threading
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.access.store import TOKENS
from service.backups.manifest import Backup, Since, StoredFile, begin, chain_of, digest, finish, read_backup
from service.backups.tables import Catalogue, copy_log, read_catalogue
from service.durability import database
from service.durability.failpoints import reach
from service.durability.folder import BACKUP, DATABASE, FOLDER_MODE, MARK, SNAPSHOTS, Damaged, private, sync_path
from service.durability.log import Log
from service.durability.snapshots import Snapshot, read_snapshot, snapshot_paths
from service.errors import Problem

log = logging.getLogger("livejoin.backup")

_NICE = 10
_SPARE = 16 << 20  # bytes of room beside what is copied
_PIECE = 1 << 20


class Ended(Exception):
    """The service ends before the backup is whole."""


class Backups:
    """The backups of one data folder in use. Any thread."""

    def __init__(self, folder: Path, log: Log) -> None:
        self._folder, self._log = folder, log
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._state: dict[str, Any] = {"state": "none"}
        self._done = self._total = 0

    def start(self, target: Path, since: Path | None) -> dict[str, Any]:
        """Begin a backup in a new folder, or an empty one; its state. `since`: only what came after that backup.

        Problems `bad-parameter`, `too-many` (one is being made), `disk-full`; then nothing was written.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise Problem("too-many", f"a backup is being made in {self._state['target']}: wait until it has ended (GET /v1/backup)")
            self._check_target(target)
            chain = [] if since is None else self._chain(since)
            estimate = self._estimate(target)
            try:
                target.mkdir(FOLDER_MODE, exist_ok=True)
                begin(target)
            except OSError as error:
                raise Problem("bad-parameter", f"target: {_of(error)}", parameter="target") from None
            self._done, self._total = 0, max(1, estimate)
            self._state = {"state": "running", "target": str(target), "since": None if since is None else str(since), "started": _now()}
            self._thread = threading.Thread(target=self._run, args=(target, chain), name="backup", daemon=True)
            self._thread.start()
            return self.state()

    def state(self) -> dict[str, Any]:
        """`state` is none, running, done or failed; of a backup `target`, `since`, `started`, `ended`, `progress`, `version`, `bytes`,
        `problem`, as far as they are known."""
        state = dict(self._state)
        if state["state"] == "running":
            state["progress"] = round(min(0.999, self._done / self._total), 3)
        return state

    def end(self) -> None:
        """Break off one that is being made, and wait for it. None can be started afterwards."""
        with self._lock:
            self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _check_target(self, target: Path) -> None:
        if self._ending.is_set():
            raise Problem("recovering", "the service is shutting down")
        reason = None
        if not target.is_absolute():
            reason = "is a relative path: give an absolute one, on the machine of the service"
        elif not target.parent.is_dir():
            reason = "cannot be made: the folder that it is to be in does not exist"
        elif _is_within(target, self._folder):
            reason = "is in the data folder: choose a folder outside it, on another disk if there is one"
        elif target.exists() and (not target.is_dir() or any(target.iterdir())):
            reason = "exists and is not an empty folder: choose a new one; a backup never writes over anything"
        if reason is not None:
            raise Problem("bad-parameter", f"target: the folder {reason}", parameter="target")

    def _chain(self, since: Path) -> list[Backup]:
        """The backups that an incremental one stands on. Problem `bad-parameter` if it cannot."""
        reason = None
        try:
            if not since.is_absolute():
                raise FileNotFoundError("it is a relative path: give an absolute one, on the machine of the service")
            chain = chain_of(read_backup(since))
        except (Damaged, OSError) as error:
            raise Problem("bad-parameter", f"since: {error if isinstance(error, Damaged) else _of(error)}", parameter="since") from None
        last = chain[-1]
        if last.folder_id != self._log.folder_id:
            reason = "is of another data folder"
        elif [tuple(line) for line in last.timelines] != self._log.timelines[: len(last.timelines)]:
            reason = "is of another timeline: the data folder was restored or repaired from an earlier state"
        elif any(begun < last.version for _, begun in self._log.timelines[len(last.timelines) :]):
            reason = "has versions that are no longer part of the data folder, which was restored or repaired from an earlier state"
        if reason is not None:
            raise Problem("bad-parameter", f"since: the backup {reason}: make a full backup", parameter="since")
        return chain

    def _estimate(self, target: Path) -> int:
        """Bytes to write. Problem `disk-full` if the disk has no room for them."""
        place = target if target.exists() else target.parent
        size = self._log.bytes
        if place.stat().st_dev != self._folder.stat().st_dev:
            size += max((_size_of(path) for path in snapshot_paths(self._folder)[0]), default=0)
        free = os.statvfs(place)
        if free.f_bavail * free.f_frsize < 2 * self._log.bytes + size + _SPARE:
            raise Problem("disk-full", f"the disk of the target has no room for a backup of about {size:,} bytes; nothing was written")
        return size

    def _run(self, target: Path, chain: list[Backup]) -> None:
        lower_priority()
        try:
            backup = self._make(target, chain)
        except Exception as error:
            if isinstance(error, Damaged | OSError | sqlite3.Error | Ended):
                reason = str(error) if isinstance(error, Damaged | Ended) else _of(error)
                log.error("the backup in %s failed: %s", target, reason)
            else:
                reason = "an unforeseen error, which is in the log of the service"
                log.error("the backup in %s failed", target, exc_info=error)
            _remove(target)
            self._state |= {"state": "failed", "ended": _now(), "problem": f"{reason}; what was written of it has been removed"}
        else:
            log.info("the backup in %s is whole: version %d, %d bytes", target, backup.version, backup.bytes)
            self._state |= {"state": "done", "ended": _now(), "progress": 1.0, "version": backup.version, "bytes": backup.bytes}

    def _make(self, target: Path, chain: list[Backup]) -> Backup:
        id_ = secrets.token_hex(8)
        earlier = chain[-1] if chain else None
        with self._log.keeping() as forgotten:
            snapshot: int | None = None
            files: list[StoredFile] = []
            (target / SNAPSHOTS).mkdir(FOLDER_MODE)
            if earlier is not None and earlier.version >= forgotten:
                after = earlier.version
            else:
                after = snapshot = self._copy_snapshot(target, id_, forgotten, chain, files)
            with self._log.reading() as db:
                catalogue = read_catalogue(db, self._log.committed_version)
            self._copy_database(target, catalogue, after)
        self._copy_tokens(target)
        own = [target / DATABASE, target / TOKENS]
        files += [StoredFile(path.name, path.stat().st_size, digest(path)[0], id_) for path in own if path.exists()]
        since = None if earlier is None else Since(earlier.id, earlier.version, str(earlier.folder.resolve()))
        timelines = [list(line) for line in self._log.timelines]
        backup = Backup(
            id_, _now(), self._log.folder_id, timelines, catalogue.version, after, snapshot, since, files, target
        )  # fmt: skip
        sync_path(target)
        reach("in-backup")
        finish(backup)
        sync_path(target.parent)
        return backup

    def _copy_snapshot(self, target: Path, id_: str, forgotten: int, chain: list[Backup], files: list[StoredFile]) -> int:
        """Bring the newest whole snapshot into the target; its version (0: there is none, the log has everything)."""
        for path in reversed(snapshot_paths(self._folder)[0]):
            if int(path.name) < forgotten:
                break
            try:
                self._copy_files(read_snapshot(path), target, id_, chain, files)
            except (Damaged, FileNotFoundError) as error:  # one is left, or the log; or a newer one has just taken its place
                log.warning("a snapshot is left out of the backup: %s", error)
                files.clear()
                shutil.rmtree(target / SNAPSHOTS / path.name, ignore_errors=True)
                continue
            return int(path.name)
        if forgotten:
            raise Damaged("no whole snapshot", self._folder / SNAPSHOTS)
        return 0

    def _copy_files(self, snapshot: Snapshot, target: Path, id_: str, chain: list[Backup], files: list[StoredFile]) -> None:
        """Link the files, or hold them open and copy them: an older snapshot may be removed at any time."""
        held = {(file.sha256, file.bytes): file for backup in chain for file in backup.files}
        crcs = {table.file: table.crc for table in snapshot.tables.values()}
        folder = target / SNAPSHOTS / snapshot.path.name
        folder.mkdir(FOLDER_MODE)
        with ExitStack() as stack:
            opened: list[tuple[str, io.BufferedReader, bool]] = []
            for path in sorted(snapshot.path.iterdir()):
                file = stack.enter_context(open(path, "rb"))
                opened.append((path.name, file, _link(path, folder / path.name)))
            for name, file, linked in opened:
                copy = folder / name
                if not linked:
                    self._copy_file(file, copy)
                reach("in-backup")
                sha256, crc = digest(copy)
                if crcs.get(name, crc) != crc:
                    raise Damaged("wrong checksum", snapshot.path / name)
                found = StoredFile(copy.relative_to(target).as_posix(), copy.stat().st_size, sha256, id_)
                known = held.get((found.sha256, found.bytes))
                if known is not None:
                    copy.unlink()
                files.append(found if known is None else StoredFile(found.path, found.bytes, found.sha256, known.held_by))
        sync_path(folder)
        sync_path(target / SNAPSHOTS)

    def _copy_file(self, file: io.BufferedReader, copy: Path) -> None:
        with open(copy, "wb", opener=private) as made:
            while piece := file.read(_PIECE):
                self._progress(len(piece))
                made.write(piece)
            made.flush()
            os.fsync(made.fileno())

    def _copy_database(self, target: Path, catalogue: Catalogue, after: int) -> None:
        """The catalogue, and the log behind `after`; then read again and verified."""

        def entries(db: sqlite3.Connection) -> None:
            catalogue.put(db)
            database.put_meta(db, "forgotten", after)
            copy_log(self._log.reading, db, after, catalogue.version, self._progress, patient=True)

        database.create(target, entries)
        (target / MARK).unlink()
        found = database.verify(target, trust_mark=False)
        with database.open_read_only(target / DATABASE) as db:
            for _ in database.replay(db, target / DATABASE, after, after, found.reach.version):
                self._progress(0)
        if found.reach.version != catalogue.version:
            raise Damaged(f"the log ends at version {found.reach.version} instead of {catalogue.version}", self._folder / DATABASE)

    def _copy_tokens(self, target: Path) -> None:
        try:
            tokens = open(self._folder / TOKENS, "rb")  # it is replaced as a whole
        except FileNotFoundError:
            return
        with tokens:
            self._copy_file(tokens, target / TOKENS)

    def _progress(self, count: int) -> None:
        self._done += count
        if self._ending.is_set():
            raise Ended("the service was stopped before the backup was whole")


def lower_priority() -> None:
    """Of the calling thread: writers come first. Where the system has it."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
    except (OSError, AttributeError):
        pass


def _link(path: Path, copy: Path) -> bool:
    try:
        os.link(path, copy)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOSPC):
            raise
        return False  # another disk, or one without links
    return True


def _remove(target: Path) -> None:
    """What was written of a backup, and nothing else."""
    shutil.rmtree(target / SNAPSHOTS, ignore_errors=True)
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-journal", MARK, TOKENS, f"{BACKUP}.unfinished", BACKUP):
        with suppress(OSError):
            (target / name).unlink(missing_ok=True)
    with suppress(OSError):
        target.rmdir()


def _is_within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _of(error: Exception) -> str:
    """The error without the paths in it."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
