"""Makes a backup of a data folder in use, in a separate thread at low priority, one at a time.

    the log is not truncated meanwhile -> files of the newest snapshot: linked, or copied from open files -> catalogue and sources at the
    newest version -> the log up to it, in pieces -> everything read again and verified -> the manifest

The writer waits for a piece of the log, about a millisecond, and there are pauses between the pieces.
"""

from __future__ import annotations

import io
import logging
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.access.store import TOKENS
from service.backups.manifest import Backup, PreviousBackup, StoredFile, begin, chain_of, finish, read_backup
from service.backups.tables import Catalogue, copy_log, put_rows, read_catalogue
from service.durability import database
from service.durability.failpoints import reach
from service.durability.files import copy_file, digest, free_bytes, link
from service.durability.folder import BACKUP, DATABASE, FOLDER_MODE, MARK, SNAPSHOTS, DamagedFolder, is_full, sync_path
from service.durability.log import LEFT, Log
from service.durability.snapshots import Snapshot, read_snapshot, snapshot_paths
from service.errors import Problem, bad_parameter, ending

log = logging.getLogger("livejoin.backup")

_SPARE = 16 << 20  # bytes of free space besides what is copied
_SYNC_BYTES = 16 << 20  # of the copied log, written before they are synced
_PATIENCE = 3.0  # seconds for a backup to stop
_LOOK = 0.05  # seconds between two attempts to interrupt it
_STOPPED = "the service was stopped before the backup was complete"


class _BackupAbandoned(Exception):
    """The backup is not to be finished: the text says why."""


class Backups:
    """The backups of one data folder in use. Any thread."""

    def __init__(self, folder: Path, log: Log) -> None:
        self._folder, self._log = folder, log
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._state: dict[str, Any] = {"state": "none"}
        self._previous: dict[str, Any] | None = None
        self._done = self._total = 0
        self._shares_disk = False  # with the data folder
        self._database: sqlite3.Connection | None = None  # that is being written

    def start(self, target: Path, since: Path | None) -> dict[str, Any]:
        """Start a backup in a new folder, or an empty one; return its state. `since`: only what came after that backup.

        Problems `bad-parameter`, `too-many` (a backup is running), `disk-full`; then nothing is left of it.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise Problem("too-many", f"a backup is being made in {self._state['target']}: wait until it has ended (GET /v1/backup)")
            with _refused("target"):
                self._check_target(target)
            chain = [] if since is None else self._chain(since)
            with _refused("target"):
                is_new = _begin(target)  # the free space is checked in the folder: if none can be created, the problem shows here
                try:
                    estimate = self._estimate(target)
                except BaseException:
                    _remove(target, is_new)
                    raise
            self._done, self._total = 0, max(1, estimate)
            if self._state["state"] != "none":
                self._previous = self._state
            id_ = secrets.token_hex(8)
            about = {"target": str(target), "since": None if since is None else str(since), "started": _now()}
            self._state = {"state": "running", "id": id_, **about}
            self._thread = threading.Thread(target=self._run, args=(target, is_new, id_, chain), name="backup", daemon=True)
            self._thread.start()
            return self.state()

    def state(self) -> dict[str, Any]:
        """Return `state`: none, running, done or failed; and for a backup `id`, `target`, `since`, `started`, `ended`, `progress`,
        `version`, `bytes`, `problem`, as far as they are known. `previous`: the same for the previous one."""
        state = dict(self._state)
        if state["state"] == "running":
            state["progress"] = round(min(0.999, self._done / self._total), 3)
        return state if self._previous is None else {**state, "previous": self._previous}

    def end(self) -> bool:
        """Stop a running backup; return whether it has ended in time. None can be started afterwards."""
        with self._lock:
            self._ending.set()
        thread, limit = self._thread, time.monotonic() + _PATIENCE
        while thread is not None and thread.is_alive():
            if time.monotonic() > limit:
                log.error("the backup in %s could not be stopped in time and is incomplete: remove this folder", self._state["target"])
                return False
            if (db := self._database) is not None:
                with suppress(sqlite3.Error):  # it has just been closed
                    db.interrupt()
            thread.join(_LOOK)
        return True

    def _check_target(self, target: Path) -> None:
        if self._ending.is_set():
            raise ending()
        reason = None
        if not target.is_absolute():
            reason = "is a relative path: give an absolute one, on the machine of the service"
        elif not target.parent.is_dir():
            reason = "cannot be created: its parent folder does not exist"
        elif target.resolve().is_relative_to(self._folder.resolve()):
            reason = "is in the data folder: choose a folder outside it, on another disk if there is one"
        elif target.exists() and (not target.is_dir() or any(target.iterdir())):
            reason = "exists and is not an empty folder: choose a new one; a backup never overwrites anything"
        if reason is not None:
            raise bad_parameter("target", f"the folder {reason}")

    def _chain(self, since: Path) -> list[Backup]:
        """Return the backups that an incremental one builds on. Problem `bad-parameter` if it cannot."""
        reason = None
        try:
            if not since.is_absolute():
                raise FileNotFoundError("it is a relative path: give an absolute one, on the machine of the service")
            chain = chain_of(read_backup(since))
        except (DamagedFolder, OSError) as error:
            raise bad_parameter("since", str(error) if isinstance(error, DamagedFolder) else _of(error)) from None
        last = chain[-1]
        if last.folder_id != self._log.folder_id:
            reason = "is of another data folder"
        elif [tuple(line) for line in last.timelines] != self._log.timelines[: len(last.timelines)]:
            reason = "is of another timeline: the data folder was restored or repaired from an earlier state"
        elif any(begun < last.version for _, begun in self._log.timelines[len(last.timelines) :]):
            reason = "has versions that are no longer part of the data folder, which was restored or repaired from an earlier state"
        if reason is not None:
            raise bad_parameter("since", f"the backup {reason}: make a full backup")
        return chain

    def _estimate(self, target: Path) -> int:
        """Return the bytes to write. Problem `disk-full` if the disk has no room for them."""
        self._shares_disk = target.stat().st_dev == self._folder.stat().st_dev
        size = self._log.bytes
        if not self._shares_disk:
            size += max((_size_of(path) for path in snapshot_paths(self._folder)[0]), default=0)
        if free_bytes(target) < 2 * self._log.bytes + size + (LEFT if self._shares_disk else _SPARE):
            raise Problem("disk-full", f"the disk of the target has no room for a backup of about {size:,} bytes; nothing was written")
        return size

    def _run(self, target: Path, is_new: bool, id_: str, chain: list[Backup]) -> None:
        try:
            backup = self._make(target, id_, chain)
        except Exception as error:
            foreseen = isinstance(error, DamagedFolder | OSError | sqlite3.Error | _BackupAbandoned)
            if self._ending.is_set():
                reason = _STOPPED
            elif not foreseen:
                reason = "an unforeseen error, which is in the log of the service"
            else:
                reason = str(error) if isinstance(error, DamagedFolder | _BackupAbandoned) else _of(error)
            log.error("the backup in %s failed: %s", target, reason, exc_info=None if foreseen else error)
            left = "has been removed" if _remove(target, is_new) else "is unfinished: remove it"
            self._state |= {"state": "failed", "ended": _now(), "problem": f"{reason}; what was written of it {left}"}
        else:
            log.info("the backup in %s is complete: version %d, %d bytes", target, backup.version, backup.bytes)
            self._state |= {"state": "done", "ended": _now(), "progress": 1.0, "version": backup.version, "bytes": backup.bytes}

    def _make(self, target: Path, id_: str, chain: list[Backup]) -> Backup:
        earlier = chain[-1] if chain else None
        with self._log.keeping() as forgotten:
            snapshot: int | None = None
            files: list[StoredFile] = []
            (target / SNAPSHOTS).mkdir(FOLDER_MODE)
            if earlier is not None and earlier.version >= forgotten:
                after = earlier.version
            else:
                after, files = self._copy_snapshot(target, id_, forgotten, chain)
                snapshot = after
            with self._log.reading() as db:
                catalogue = read_catalogue(db, self._log.committed_version)
            self._copy_database(target, catalogue, after)
        self._copy_tokens(target)
        for path in (target / DATABASE, target / TOKENS):
            if path.exists():
                found = digest(path, self._go_on)
                files.append(StoredFile(path.name, found.bytes, found.sha256, id_))
        since = None if earlier is None else PreviousBackup(earlier.id, earlier.version, str(earlier.folder.resolve()))
        timelines = [list(line) for line in self._log.timelines]
        backup = Backup(
            id_, _now(), self._log.folder_id, timelines, catalogue.version, after, snapshot, since, files, target
        )  # fmt: skip
        sync_path(target)
        reach("in-backup")
        finish(backup)
        sync_path(target.parent)
        return backup

    def _copy_snapshot(self, target: Path, id_: str, forgotten: int, chain: list[Backup]) -> tuple[int, list[StoredFile]]:
        """Copy the newest undamaged snapshot to the target; return its version (0: there is none, the log has everything) and files."""
        tried: set[Path] = set()
        while left := [path for path in snapshot_paths(self._folder)[0] if path not in tried and int(path.name) >= forgotten]:
            path = left[-1]
            tried.add(path)
            try:
                return int(path.name), self._copy_files(read_snapshot(path), target, id_, chain)
            except (DamagedFolder, FileNotFoundError) as error:  # another one is left, or the log; or a newer one has just replaced it
                log.warning("a snapshot is left out of the backup: %s", error)
                shutil.rmtree(target / SNAPSHOTS / path.name, ignore_errors=True)
        if forgotten:
            raise DamagedFolder("no whole snapshot", self._folder / SNAPSHOTS)
        return 0, []

    def _copy_files(self, snapshot: Snapshot, target: Path, id_: str, chain: list[Backup]) -> list[StoredFile]:
        """Link the files, or hold them open and copy them: an older snapshot may be removed at any time. Raises Damaged if one is missing
        or damaged."""
        folder = target / SNAPSHOTS / snapshot.path.name
        folder.mkdir(FOLDER_MODE)
        with ExitStack() as stack:
            opened: list[tuple[str, io.BufferedReader, bool]] = []
            for path in sorted(snapshot.path.iterdir()):
                file = stack.enter_context(open(path, "rb"))
                opened.append((path.name, file, link(path, folder / path.name)))
            for name, file, linked in opened:
                if not linked:
                    copy_file(file, folder / name, self._progress)
                reach("in-backup")
        copied = read_snapshot(folder)
        described = {file.file: file for file in (*copied.tables.values(), *copied.feeds.values())}
        held = {(file.sha256, file.bytes): file for backup in chain for file in backup.files}
        files = []
        for name in sorted({*described, *(name for name, _, _ in opened)}):
            copy, wanted = folder / name, described.get(name)
            found = digest(copy, self._go_on)
            if wanted is not None and (found.bytes, found.crc) != (wanted.bytes, wanted.crc):
                raise DamagedFolder("wrong checksum", snapshot.path / name)
            known = held.get((found.sha256, found.bytes))
            if known is not None:
                copy.unlink()
            held_by = id_ if known is None else known.held_by
            files.append(StoredFile(copy.relative_to(target).as_posix(), found.bytes, found.sha256, held_by))
        sync_path(folder)
        sync_path(target / SNAPSHOTS)
        return files

    def _copy_database(self, target: Path, catalogue: Catalogue, after: int) -> None:
        """Copy the catalogue, and the log after `after`; then read them again and verify them."""
        wal = target / f"{DATABASE}-wal"
        pending = 0

        def copied(count: int) -> None:
            nonlocal pending
            self._progress(count)
            pending += count
            if pending >= _SYNC_BYTES and wal.exists():
                sync_path(wal)
                pending = 0

        def entries(db: sqlite3.Connection) -> None:
            self._database = db
            put_rows(db, catalogue.rows)
            database.put_meta(db, "forgotten", after)
            copy_log(self._log.reading, db, after, catalogue.version, copied, patient=True)
            self._require_room(wal.stat().st_size if wal.exists() else 0)  # the commit copies it once more

        try:
            database.create(target, entries)
        finally:
            self._database = None
        (target / MARK).unlink()
        found = database.verify(target, trust_mark=False)
        with database.open_read_only(target / DATABASE) as db:
            for _ in database.replay(db, target / DATABASE, after, after, found.reach.version):
                self._go_on()
        if found.reach.version != catalogue.version:
            raise DamagedFolder(f"the log ends at version {found.reach.version} instead of {catalogue.version}", self._folder / DATABASE)

    def _copy_tokens(self, target: Path) -> None:
        try:
            tokens = open(self._folder / TOKENS, "rb")  # it is only replaced as a whole
        except FileNotFoundError:
            return
        with tokens:
            copy_file(tokens, target / TOKENS, self._progress)

    def _progress(self, count: int) -> None:
        """Count bytes that were written."""
        self._done += count
        self._go_on()
        self._require_room(0)

    def _go_on(self, _: int = 0) -> None:
        if self._ending.is_set():
            raise _BackupAbandoned(_STOPPED)

    def _require_room(self, needed: int) -> None:
        if self._shares_disk and (free := self._log.free_bytes) < needed + LEFT:
            raise _BackupAbandoned(f"the disk, which is that of the data folder, has {free >> 20} MiB left, which the log may need")


@contextmanager
def _refused(parameter: str) -> Iterator[None]:
    """Convert the system's errors about a folder to problems."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise Problem("disk-full", "the disk of the target is full; nothing was written") from error
        raise bad_parameter(parameter, f"the folder cannot be used ({_of(error)}): choose another one") from error


def _begin(target: Path) -> bool:
    """Create the folder, if it is new, and mark it as an unfinished backup; return whether it is new. Nothing is left if that fails."""
    is_new = not target.exists()
    try:
        target.mkdir(FOLDER_MODE, exist_ok=True)
        begin(target)
    except OSError:
        _remove(target, is_new)
        raise
    return is_new


def _remove(target: Path, is_new: bool) -> bool:
    """Remove what was written of a backup, and nothing else; return whether nothing is left of it."""
    shutil.rmtree(target / SNAPSHOTS, ignore_errors=True)
    with suppress(OSError):
        for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-journal", MARK, TOKENS, f"{BACKUP}.unfinished", BACKUP):
            (target / name).unlink(missing_ok=True)
        if is_new:
            target.rmdir()
        return not (target / SNAPSHOTS).exists()
    return False


def _size_of(folder: Path) -> int:
    """Return the bytes of a snapshot; 0 if a newer one has just replaced it."""
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except FileNotFoundError:
        return 0


def _of(error: Exception) -> str:
    """Return the message of the error without paths."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
