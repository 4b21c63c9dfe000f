"""The data folder: its lock, its permissions, the newest known commit, and the exceptions for damage.

    livejoin.lock     held (flock) by the one process that uses the folder; its process id, for people
    livejoin.db       SQLite: catalogue, sources, log (log.py)
    livejoin.mark     the newest version and catalogue that were committed (`Mark`)
    snapshots/        the relations at a version (snapshots.py)

Only the owner may read it: files have the mode 0600, folders 0700.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DATABASE, LOCK, MARK, SNAPSHOTS = "livejoin.db", "livejoin.lock", "livejoin.mark", "snapshots"
REPAIRED = "repaired"  # a subfolder that exists while `livejoin repair` replaces the database
BACKUP = "backup.json"  # exists in a backup, which is not a data folder
FILE_MODE, FOLDER_MODE = 0o600, 0o700
_PIECE = 1 << 20  # bytes read at a time
_UNREADABLE = {errno.EIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)}  # the last one exists on Linux only


class FolderInUse(Exception):
    """Another process owns the data folder."""

    def __init__(self, folder: Path, owner: str) -> None:
        who = f"process {owner}" if owner else "another process"
        super().__init__(f"the data folder {folder} is in use by {who}: stop it first, or use another folder")
        self.folder = folder


class DamagedFolder(Exception):
    """Data in the folder is not what was written: `what`, `where` (a path), and `remedy`, what can be done."""

    def __init__(self, what: str, where: Path, remedy: str = "") -> None:
        self.what, self.where = what, where
        self.remedy = remedy or "`livejoin check` shows what can be recovered; otherwise restore the folder from a copy"
        super().__init__(f"{what} in {where}: {self.remedy}")


def refuse_backup(folder: Path) -> None:
    """Raise Damaged if the folder is a backup, in which nothing may be written."""
    if (folder / BACKUP).exists():
        raise DamagedFolder("this is a backup, not a data folder", folder, "`livejoin restore` makes a data folder from it")


class FolderLock:
    """The lock on a data folder, from construction to `release`, or to the end of a `with`. Raises FolderInUse; OSError on a disk that
    cannot be written.

    The kernel holds the lock: it is released when the process ends, however that happens. `read_only` takes it without writing anything,
    and takes none if no server has ever used the folder. file: the open file, -1 if there is none.
    """

    def __init__(self, folder: Path, read_only: bool = False) -> None:
        path = folder / LOCK
        self.file = -1
        if read_only and not path.exists():
            return
        self.file = os.open(path, os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self.file, 20, 0).decode(errors="replace").strip()
            os.close(self.file)
            raise FolderInUse(folder, owner) from None
        if not read_only:
            try:
                os.ftruncate(self.file, 0)
                os.pwrite(self.file, f"{os.getpid()}\n".encode(), 0)
            except OSError:
                os.close(self.file)
                raise

    def release(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self.release()


@contextlib.contextmanager
def tokens_locked(folder: Path) -> Iterator[None]:
    """Exclude other processes and threads from creating or revoking access tokens; waits for them. Locks the folder itself."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


class Reach(NamedTuple):
    """The newest known commit of a folder: its version, and the number of changes of the catalogue."""

    version: int
    catalog: int


class Mark:
    """A file that records the newest commit outside the database.

    SQLite takes a damaged WAL for an incomplete one, and silently drops the rest. So each commit is also recorded here, afterwards, without
    a sync: a database that is behind the mark has lost something that was acknowledged. Under synchronous=normal, a power failure may
    legitimately lose the last commits: such a mark is valid only until the machine is restarted. Therefore the mark is synced at each start
    (`begin`): a mark that an earlier run has left on disk is valid after a power failure, and would vouch for the commits of this run.
    """

    _FORM = struct.Struct("<8sqq?16s")  # followed by its CRC-32
    _MAGIC = b"livejoin"

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._full = synchronous == "full"
        self._boot = _boot_id()
        self._path = folder / MARK
        self._file = os.open(folder / MARK, os.O_RDWR | os.O_CREAT, FILE_MODE)

    def begin(self, reach: Reach) -> None:
        """Record the newest commit at a start, before anything else is committed. On disk on return. Raises SyncFailed, OSError."""
        self._write(reach)
        sync(self._file, self._path)
        sync_path(self._path.parent)

    def set(self, reach: Reach) -> None:
        """Record a commit. Errors are ignored: an old mark is correct too, only weaker."""
        try:  # `contextlib.suppress` costs 1 µs of each commit
            self._write(reach)
        except OSError:
            pass

    def finish(self, reach: Reach) -> None:
        """Record the last commit, once everything is on disk, and sync the mark: it is valid after a power failure too."""
        self._full = True
        self.set(reach)
        sync(self._file, self._path)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, reach: Reach) -> None:
        body = self._FORM.pack(self._MAGIC, reach.version, reach.catalog, self._full, self._boot)
        data, done = body + zlib.crc32(body).to_bytes(4, "little"), 0
        while done < len(data):
            done += os.pwrite(self._file, data[done:], done)

    @classmethod
    def read(cls, folder: Path) -> tuple[Reach | None, bool]:
        """Return the minimum that the database must have, None if unknown; and whether it cannot have had more. Raises Damaged."""
        path = folder / MARK
        if not path.exists() or path.stat().st_size == 0:
            return None, False  # an operator has removed it, to continue without the lost versions
        data = path.read_bytes()
        body, crc = data[: cls._FORM.size], data[cls._FORM.size :]
        if len(body) < cls._FORM.size or crc != struct.pack("<I", zlib.crc32(body)):
            raise DamagedFolder("wrong checksum", path, "if `livejoin check` finds nothing else, remove this file and start again")
        _, version, catalog, full, boot = cls._FORM.unpack(body)
        believed = full or (boot == _boot_id() != bytes(16))
        return (Reach(version, catalog), True) if believed else (Reach(0, 0), False)


def _boot_id() -> bytes:
    """Return an id of the current boot of the machine; zeros if it is not available."""
    try:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
    except OSError:
        return bytes(16)


def private(path: Path | str, flags: int) -> int:
    """An opener for `open`: a new file gets the mode 0600, whatever the umask."""
    return os.open(path, flags, FILE_MODE)


def make_folder(folder: Path) -> None:
    """Create the data folder, on disk, if it does not exist; otherwise correct the modes of files that older versions of livejoin, or an
    operator, left readable for others.

    Only livejoin's own files are considered. A folder whose mode we may not change (a mounted volume), or that is shared by everyone
    (sticky, such as /tmp), keeps its mode.
    """
    _make(folder.absolute())
    if not folder.stat().st_mode & stat.S_ISVTX:
        _restrict(folder)
    for path in (*folder.glob("livejoin.*"), *folder.glob(SNAPSHOTS), *folder.glob(f"{SNAPSHOTS}/**/*")):
        _restrict(path)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        sync_path(folder.parent)


def _restrict(path: Path) -> None:
    found = path.lstat().st_mode
    wanted = FOLDER_MODE if stat.S_ISDIR(found) else FILE_MODE
    if not stat.S_ISLNK(found) and stat.S_IMODE(found) & 0o777 != wanted:
        with contextlib.suppress(PermissionError):
            path.chmod(wanted)


def reason(error: OSError | sqlite3.Error) -> str:
    """Return the message of the system, or SQLite, without a path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def discard(path: Path) -> None:
    """Delete a file of a kind that a start deletes: if a broken disk prevents it, the next start does it."""
    with contextlib.suppress(OSError):
        path.unlink()


def is_full(error: BaseException) -> bool:
    """Return whether the error means that the disk, a quota, or a limit on files is exhausted."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0)
        return code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_WRITE
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_unreadable(error: BaseException) -> bool:
    """Return whether the error means that the disk cannot read written data, or that the file system finds it damaged."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_CORRUPTFS)
    return isinstance(error, OSError) and error.errno in _UNREADABLE


class SyncFailed(OSError):
    """An fsync has failed: it is unknown what is on disk, and another fsync may report success for lost data. Or the database was removed
    from the folder, so that what is synced is lost. So the service ends, and nothing is retried."""


def is_sync_failure(error: BaseException) -> bool:
    """Return whether the error is from one of our own fsyncs, or SQLite's."""
    codes = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
    return isinstance(error, SyncFailed) or (isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) in codes)


def sync(file: int, path: Path) -> None:
    """fsync an open file. Raises SyncFailed."""
    try:
        os.fsync(file)
    except OSError as error:
        raise SyncFailed(error.errno, f"fsync failed: {error.strerror}", str(path)) from error


def rewrite(path: Path) -> None:
    """Overwrite a file with its own content, and sync it: another process may have failed to sync it, after which the system considers its
    pages written, so that no later fsync writes them. Needs no space. Raises SyncFailed, OSError. Cost: that of the disk."""
    file = os.open(path, os.O_RDWR)
    try:
        at = 0
        while piece := os.pread(file, _PIECE, at):
            at += os.pwrite(file, piece, at)
        sync(file, path)
    finally:
        os.close(file)


def sync_path(path: Path) -> None:
    """fsync a file, or a folder's entries. Raises SyncFailed; OSError if it cannot be opened."""
    file = os.open(path, os.O_RDONLY)
    try:
        sync(file, path)
    finally:
        os.close(file)
