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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from service.durability.files import free_bytes
from service.durability.folder import FOLDER_MODE, discard, private, reason
from service.engine.versions import expired
from service.errors import Problem
from service.reading.holdings import Holding, Holdings

FOLDER = "spools"
_MOST = 1000  # spools at a time
_MOMENT = 2.0  # seconds
_ROOM = 16 << 20  # bytes left free on the disk, for the log


class TooLong(Exception):
    """A file exceeds the limit of all spools."""


class Spool(Holding):
    """One file: `what` it contains, its `tag`, the `version` of its rows, whether there are none. `size` in bytes; None: it is too long to
    be kept, which is remembered like a file. Its keys are its tag, and the readers whose last spool of `what` it is."""

    def __init__(self, spools: Spools, path: Path | None, what: str, tag: str, version: int, empty: bool) -> None:
        super().__init__(what)
        self._spools, self.idle = spools, spools.idle
        self.path, self.tag, self.version, self.empty = path, tag, version, empty
        self.size: int | None = None

    def discard(self) -> None:
        if self.path is not None:
            discard(self.path)
        self._spools.reserve(-(self.size or 0))


class Spools:
    """The spools of the service: `most` bytes together, each kept for `idle` seconds. Any thread."""

    def __init__(self, holdings: Holdings, data: Path, most: int, idle: float) -> None:
        self.start = secrets.token_urlsafe(6)  # identifies this run of the service: rows have another order after the next start
        self.written = 0
        self.bytes = 0  # including those being written
        self.idle = idle
        self._holdings, self._data, self._folder, self._most = holdings, data, data / FOLDER, most
        self._numbers = itertools.count(1)
        self.close()

    def find(self, what: str, tags: Sequence[str], readers: Sequence[str] = ()) -> Spool | None:
        """Return the spool with one of these tags."""
        for tag in tags:
            if (spool := self._holdings.find(Spool, ("tag", what, tag))) is not None:
                return self._read_by(spool, readers)
        return None

    def last(self, what: str, readers: Sequence[str], begins: bool) -> Spool | None:
        """Return the spool that a reader has used last, under the first of its names that is known: a file that is read in parts must stay
        the same file. `begins`: the part may be the first one of a read; some time after the last read, it is."""
        for key in [("reader", what, reader) for reader in readers]:
            if (spool := self._holdings.find(Spool, key)) is not None:
                is_new = begins and spool.keys.get(key, 0.0) < self._holdings.clock() - _MOMENT
                return None if is_new else self._read_by(spool, readers)
        return None

    def read(self, spool: Spool, start: int, size: int) -> bytes:
        """Read a part of it. Problems: `snapshot-expired` if it is gone; `disk-full` if the disk fails to read it; it is then forgotten."""
        if self.find(spool.owner, (spool.tag,)) is not spool or spool.path is None or spool.size is None:
            raise expired(spool.version)
        try:
            with _disk("does not give"), open(spool.path, "rb") as file:
                data = os.pread(file.fileno(), size, start)
                if len(data) < min(size, spool.size - start):
                    raise OSError(errno.EIO, "it is shorter than it was")
                return data
        except Problem:
            self._holdings.release(spool)
            raise

    def touch(self, spool: Spool) -> None:
        """Note that a reader has taken some of the data it was given."""
        self._holdings.use(spool)

    def draft(self, what: str, tag: str, version: int, empty: bool) -> Draft:
        """Return a spool to be written, for use in a `with`. Problems `too-busy`, `disk-full`."""
        self._holdings.sweep(Spool)
        if self._holdings.count(Spool) >= _MOST:
            raise self._busy(f"there are already {_MOST} files of rows of which parts are read")
        with _disk("does not take"):
            self._folder.mkdir(FOLDER_MODE, exist_ok=True)
            return Draft(self, Spool(self, self._folder / f"{next(self._numbers)}", what, tag, version, empty))

    def keep(self, spool: Spool, readers: Sequence[str]) -> Spool:
        """Add a complete one, unless there is an equivalent one; return the one that is kept."""
        with self._holdings.lock:
            former = self.find(spool.owner, (spool.tag,))
            if former is None:
                self._holdings.add(spool, ("tag", spool.owner, spool.tag))
            return self._read_by(former or spool, readers)

    def reserve(self, more: int, size: int = 0) -> None:
        """Reserve `more` bytes for a draft that has `size`; release them if it is negative. Problems `too-busy`, `disk-full`; TooLong."""
        if size + more > self._most:
            raise TooLong
        if self.bytes + more > self._most:
            self._holdings.sweep(Spool)
        with self._holdings.lock:
            if more > 0 and self.bytes + more > self._most:
                raise self._busy(f"the files of rows of which parts are read take the {self._most} bytes that they may (--spool-bytes)")
            if more > 0 and free_bytes(self._data) < more + _ROOM:
                raise _refused("has no room for the file")
            self.bytes += more

    def close(self) -> None:
        """Discard all spools, and the files that an earlier process has left."""
        for spool in self._holdings.of(Spool):
            self._holdings.release(spool)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _busy(self, reason: str) -> Problem:
        problem = Problem("too-busy", f"{reason}; each is removed when nobody has read of it for {self.idle:g} s (--spool-idle)")
        now = self._holdings.clock()
        oldest = min((spool.used for spool in self._holdings.of(Spool)), default=now)
        problem.headers["Retry-After"] = str(max(1, int(oldest + self.idle - now) + 1))
        return problem

    def _read_by(self, spool: Spool, readers: Sequence[str]) -> Spool:
        self._holdings.use(spool, *(("reader", spool.owner, reader) for reader in readers))
        return spool


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
        self._spools.reserve(len(data), self._size)
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
        kept = self._spools.keep(self._spool, readers)
        self._is_kept = kept is self._spool and kept.size is not None
        self._spools.written += self._is_kept
        return kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        if not self._is_kept:
            discard(self._path)
            self._spools.reserve(-self._size)


@contextmanager
def _disk(fails: str) -> Iterator[None]:
    """Raise Problem `disk-full` for an error of the disk, which `fails` to do something with the file."""
    try:
        yield
    except OSError as error:
        raise _refused(f"{fails} the file ({reason(error)})") from error


def _refused(said: str) -> Problem:
    return Problem("disk-full", f"the disk of the data folder {said}: read it whole, without a range")
