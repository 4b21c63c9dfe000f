"""Versions of a view as a follower gets them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import orjson

_IN_MEMORY = 64 * 2**20  # bytes of a version held in memory; beyond this in a temporary file


class Change(NamedTuple):
    """A row that came into the view, or left it. `key` is its identity: the primary keys of its parts, by alias; of UNION and
    EXCEPT the row itself, as `{"row": …}`."""

    op: Literal["insert", "delete"]
    key: dict[str, Any]
    row: dict[str, Any]


class Version:
    """What changed in a view from one version to the next: deletes, then inserts.

    `token` goes on from here. With `snapshot` the inserts are all rows of the view, in place of everything that was known before.
    """

    def __init__(self) -> None:
        self.version = 0
        self.token = ""
        self.snapshot = False
        self.size = 0  # changes
        self._held: list[bytes] = []  # whole lines
        self._bytes = 0
        self._file: IO[bytes] | None = None  # what came before them, of a version that is large

    def __repr__(self) -> str:
        return f"<version {self.version}: {self.size:,} {'rows' if self.snapshot else 'changes'}>"

    def add(self, lines: bytes) -> None:
        """Hold records, each with its newline."""
        self._hold(lines)
        self.size += lines.count(b"\n")

    def close(self, record: dict[str, Any], line: bytes) -> None:
        """The version is whole, says this progress record."""
        self.version, self.token = record["version"], record["token"]
        self._hold(line)

    def _hold(self, lines: bytes) -> None:
        self._held.append(lines)
        self._bytes += len(lines)
        if self._bytes > _IN_MEMORY:
            self._file = self._file or tempfile.TemporaryFile()
            self._file.seek(0, os.SEEK_END)
            self._file.writelines(self._held)
            self._held, self._bytes = [], 0

    def lines(self) -> Iterator[bytes]:
        """The records as the service sent them, the `progress` last, each with its newline."""
        if self._file is not None:
            self._file.seek(0)
            yield from self._file
        for lines in self._held:
            yield from lines.splitlines(keepends=True)

    @property
    def changes(self) -> Iterator[Change]:
        """Deletes, then inserts. Each access begins again."""
        for line in self.lines():
            record = orjson.loads(line)
            if record["op"] != "progress":
                yield Change(record["op"], record["key"], record["row"])


class TokenFile:
    """A file with one token, replaced at once: it holds the old one or the new one at any time."""

    def __init__(self, path: str | Path) -> None:
        """FileNotFoundError: there is no such folder."""
        self._path = Path(path)
        if not self._path.absolute().parent.is_dir():
            raise FileNotFoundError(f"the folder of the token file {self._path} does not exist: create it")

    def read(self) -> str | None:
        """None if there is no file yet."""
        try:
            return self._path.read_text(encoding="utf-8").strip() or None
        except FileNotFoundError:
            return None

    def write(self, token: str) -> None:
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}.{id(self)}")
        with beside.open("w", encoding="utf-8") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._path)
