"""Files of rows that are kept on disk for a while, for readers that need their length first, or parts of them.

    spools/7    the rows of a view or relation at one version, in one form

Everything else about a spool is in memory: a restart discards all spools and removes their files, so nothing is synced. A spool is kept
until it has not been read for `idle` seconds. Reading it needs no pin.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from service.durability.files import free_bytes
from service.durability.folder import FOLDER_MODE, discard, private, reason
from service.engine.versions import expired
from service.errors import Problem

FOLDER = "spools"
_MOST = 1000  # spools at a time
_MOST_READERS = 1000  # readers to remember per spool
_MOMENT = 2.0  # seconds
_ROOM = 16 << 20  # bytes left free on the disk, for the log


class TooLong(Exception):
    """A file exceeds the limit of all spools."""


class Spool:
    """One file: `what` it contains, its `tag`, the `version` of its rows, whether there are none. `size` in bytes; None: it is too long to
    be kept, which is remembered like a file."""

    def __init__(self, path: Path | None, what: str, tag: str, version: int, empty: bool) -> None:
        self.path, self.what, self.tag, self.version, self.empty = path, what, tag, version, empty
        self.size: int | None = None
        self.used = 0.0  # time of the last read
        self.readers: dict[str, float] = {}  # readers whose last spool of `what` this is, and the time of their last read


class Spools:
    """The spools of the service: `most` bytes together, each kept for `idle` seconds. Any thread."""

    def __init__(self, data: Path, most: int, idle: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.start = secrets.token_urlsafe(6)  # identifies this run of the service: rows have another order after the next start
        self.written = 0
        self.bytes = 0  # including those being written
        self._data, self._folder, self._most, self._idle, self._clock = data, data / FOLDER, most, idle, clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], Spool] = {}
        self._last: dict[tuple[str, str], Spool] = {}
        self._numbers = itertools.count(1)
        self.close()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, what: str, tags: Sequence[str], readers: Sequence[str] = ()) -> Spool | None:
        """Return the spool with one of these tags."""
        with self._lock:
            return self._used(next((spool for tag in tags if (spool := self._kept.get((what, tag))) is not None), None), readers)

    def last(self, what: str, readers: Sequence[str], begins: bool) -> Spool | None:
        """Return the spool that a reader has used last, under the first of its names that is known: a file that is read in parts must stay
        the same file. `begins`: the part may be the first one of a read; some time after the last read, it is."""
        with self._lock:
            for reader in readers:
                if (spool := self._last.get((what, reader))) is not None:
                    is_new = begins and spool.readers[reader] < self._clock() - _MOMENT
                    return None if is_new else self._used(spool, readers)
            return None

    def read(self, spool: Spool, start: int, size: int) -> bytes:
        """Read a part of it. Problems: `snapshot-expired` if it is gone; `disk-full` if the disk fails to read it; it is then forgotten."""
        with self._lock:
            is_kept = self._used(self._kept.get((spool.what, spool.tag)), ()) is spool
        if not is_kept or spool.path is None or spool.size is None:
            raise expired(spool.version)
        try:
            with _disk("does not give"), open(spool.path, "rb") as file:
                data = os.pread(file.fileno(), size, start)
                if len(data) < min(size, spool.size - start):
                    raise OSError(errno.EIO, "it is shorter than it was")
                return data
        except Problem:
            self._drop(spool)
            raise

    def touch(self, spool: Spool) -> None:
        """Note that a reader has taken some of the data it was given."""
        with self._lock:
            self._used(spool, ())

    def draft(self, what: str, tag: str, version: int, empty: bool) -> Draft:
        """Return a spool to be written, for use in a `with`. Problems `too-busy`, `disk-full`."""
        with self._lock:
            self._forget()
            if len(self._kept) >= _MOST:
                raise self._busy(f"there are already {_MOST} files of rows of which parts are read")
        with _disk("does not take"):
            self._folder.mkdir(FOLDER_MODE, exist_ok=True)
            return Draft(self, Spool(self._folder / f"{next(self._numbers)}", what, tag, version, empty))

    def sweep(self) -> None:
        """Remove spools that have not been read for long."""
        with self._lock:
            self._forget()

    def close(self) -> None:
        """Discard all spools, and the files that an earlier process has left."""
        with self._lock:
            self._kept.clear()
            self._last.clear()
            self.bytes = 0
            shutil.rmtree(self._folder, ignore_errors=True)

    def _keep(self, spool: Spool, readers: Sequence[str]) -> Spool:
        """Add a complete one, unless there is an equivalent one."""
        with self._lock:
            former = self._kept.setdefault((spool.what, spool.tag), spool)
            self._used(former, readers)
            return former

    def _reserve(self, size: int, more: int) -> None:
        """Reserve `more` bytes for a draft that has `size`. Problems `too-busy`, `disk-full`; TooLong."""
        with self._lock:
            if size + more > self._most:
                raise TooLong
            if self.bytes + more > self._most:
                self._forget()
            if self.bytes + more > self._most:
                raise self._busy(f"the files of rows of which parts are read take the {self._most} bytes that they may (--spool-bytes)")
            if free_bytes(self._data) < more + _ROOM:
                raise _refused("has no room for the file")
            self.bytes += more

    def _release(self, size: int) -> None:
        with self._lock:
            self.bytes -= size

    def _busy(self, reason: str) -> Problem:
        problem = Problem("too-busy", f"{reason}; each is removed when nobody has read of it for {self._idle:g} s (--spool-idle)")
        oldest = min((spool.used for spool in self._kept.values()), default=self._clock())
        problem.headers["Retry-After"] = str(max(1, int(oldest + self._idle - self._clock()) + 1))
        return problem

    def _used(self, spool: Spool | None, readers: Sequence[str]) -> Spool | None:
        if spool is not None:
            spool.used = self._clock()
            for reader in readers:
                before = self._last.get((spool.what, reader))
                if before is not None:
                    del before.readers[reader]
                spool.readers[reader] = spool.used
                self._last[spool.what, reader] = spool
            while len(spool.readers) > _MOST_READERS:
                oldest = next(iter(spool.readers))
                del spool.readers[oldest], self._last[spool.what, oldest]
        return spool

    def _forget(self) -> None:
        """Discard expired spools."""
        limit = self._clock() - self._idle
        for spool in list(self._kept.values()):
            if spool.used < limit:
                self._remove(spool)

    def _drop(self, spool: Spool) -> None:
        with self._lock:
            if self._kept.get((spool.what, spool.tag)) is spool:
                self._remove(spool)

    def _remove(self, spool: Spool) -> None:
        del self._kept[spool.what, spool.tag]
        for reader in spool.readers:
            del self._last[spool.what, reader]
        if spool.path is not None:
            discard(spool.path)
        self.bytes -= spool.size or 0


class Draft:
    """A spool while it is written; it is removed at the end of the `with`, unless it was kept."""

    def __init__(self, spools: Spools, spool: Spool) -> None:
        self._spools, self._spool = spools, spool
        self._size = 0
        self._is_kept = False
        assert spool.path is not None
        self._path = spool.path
        self._file = open(spool.path, "xb", buffering=0, opener=private)

    def write(self, data: bytes | memoryview) -> None:
        """Problems `too-busy`, `disk-full`; TooLong."""
        self._spools._reserve(self._size, len(data))
        self._size += len(data)
        view = memoryview(data)
        with _disk("does not take"):
            while view:
                view = view[self._file.write(view) :]

    def keep(self, readers: Sequence[str]) -> Spool:
        """Finish it, and return the spool that is kept: this one, or an equivalent one that was there before."""
        self._spool.size = self._size
        return self._conclude(readers)

    def is_too_long(self, readers: Sequence[str]) -> Spool:
        """Remember that the file is too long."""
        self._spool.path = None
        return self._conclude(readers)

    def _conclude(self, readers: Sequence[str]) -> Spool:
        kept = self._spools._keep(self._spool, readers)
        self._is_kept = kept is self._spool and kept.size is not None
        self._spools.written += self._is_kept
        return kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        if not self._is_kept:
            discard(self._path)
            self._spools._release(self._size)


@contextmanager
def _disk(fails: str) -> Iterator[None]:
    """Return Problem `disk-full` for an error of the disk, which `fails` to do something with the file."""
    try:
        yield
    except OSError as error:
        raise _refused(f"{fails} the file ({reason(error)})") from error


def _refused(said: str) -> Problem:
    return Problem("disk-full", f"the disk of the data folder {said}: read it whole, without a range")
