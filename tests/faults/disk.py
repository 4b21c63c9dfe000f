"""The contents of a disk after a power cut, computed from the journal of `shim.c`: everything that was synced, and a random selection of
the rest.

POSIX guarantees nothing about data that was not synced: each write may be present or not, in any order, and in part; so may each new,
changed or removed name in a folder. A sync of a file does not sync its name. Data written before a sync that failed is lost, and a later
sync does not restore it (as in Linux). A sector of 512 bytes is written completely or not at all, which SQLite assumes, too.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

_HEAD = struct.Struct("<5Q")
SECTOR = 512


@dataclass(frozen=True)
class Record:
    """One change: `kind` is a letter of shim.c, or 'A' for a note of the test (what was acknowledged by then)."""

    kind: str
    inode: int
    at: int
    first: bytes
    second: bytes


def records(journal: bytes) -> Iterator[Record]:
    """Return all complete records; a killed process may have written the last one in part."""
    at = 0
    while at + _HEAD.size <= len(journal):
        kind, inode, position, first, second = _HEAD.unpack_from(journal, at)
        at += _HEAD.size
        if at + first + second > len(journal):
            return
        yield Record(chr(kind), inode, position, journal[at : at + first], journal[at + first : at + first + second])
        at += first + second


def word(text: bytes) -> bytes:
    """Return the record of a note, to be appended to the journal."""
    return _HEAD.pack(ord("A"), 0, 0, len(text), 0) + text


class File:
    """The bytes of a file as a process sees them, as they are on the disk, and the changes in between: (offset, data), or (size, None) for
    a truncation."""

    def __init__(self, data: bytes = b"") -> None:
        self.now, self.synced = bytearray(data), bytes(data)
        self.pending: list[tuple[int, bytes | None]] = []

    def change(self, at: int, data: bytes | None) -> None:
        _put(self.now, at, data)
        self.pending.append((at, data))

    def sync(self) -> None:
        if self.pending:
            synced = bytearray(self.synced)
            for at, data in self.pending:
                _put(synced, at, data)
            self.synced, self.pending = bytes(synced), []

    def lose(self) -> None:
        """The effect of a failed sync."""
        self.pending = []


def _put(content: bytearray, at: int, data: bytes | None) -> None:
    end = at + len(data or b"")
    if data is None:
        del content[at:]
    if end > len(content):
        content.extend(bytes(end - len(content)))
    if data is not None:
        content[at:end] = data


@dataclass(eq=False)
class Step:
    """Changes of names that belong together: (folder, name, what it names afterwards)."""

    names: tuple[tuple[Folder, str, File | Folder | None], ...]


@dataclass(eq=False)
class Folder:
    now: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[Step] = field(default_factory=list)

    def sync(self) -> None:
        """A rename reaches the disk as a whole, together with earlier changes of the other folder."""
        pending, self.pending = self.pending, []
        for step in pending:
            for folder, name, what in step.names:
                if folder is self:
                    _name(self.synced, name, what)
                else:
                    folder.sync()


def _name(entries: dict[str, File | Folder], name: str, what: File | Folder | None) -> None:
    if what is None:
        entries.pop(name, None)
    else:
        entries[name] = what


class Disk:
    """The folder `root` in its current state, all of it synced; `follow` applies the records of a journal."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._by_inode: dict[int, File | Folder] = {}
        self.top = self._read(root)

    def _read(self, path: Path) -> Folder:
        folder = Folder()
        self._by_inode[path.stat().st_ino] = folder
        for entry in path.iterdir():
            what: File | Folder
            if entry.is_dir():
                what = self._read(entry)
            else:
                what = self._by_inode.setdefault(entry.stat().st_ino, File(entry.read_bytes()))
            folder.now[entry.name] = folder.synced[entry.name] = what
        return folder

    def follow(self, record: Record) -> None:
        kind = record.kind
        if kind in "WTSF":
            what = self._by_inode[record.inode]
            if kind == "S":
                what.sync()
            elif isinstance(what, Folder):
                assert kind == "F", record
            elif kind == "F":
                what.lose()
            else:
                what.change(record.at, record.first if kind == "W" else None)
            return
        if kind == "A":
            return
        parent, name = self._position(record.first)
        if kind in "CM":
            what = self._by_inode[record.inode] = File() if kind == "C" else Folder()
            self._step((parent, name, what))
        elif kind in "UD":
            self._step((parent, name, None))
        else:
            assert kind in "RL", kind
            to, new = self._position(record.second)
            what = parent.now[name]
            self._step(*([(parent, name, None)] if kind == "R" else []), (to, new, what))

    def _position(self, path: bytes) -> tuple[Folder, str]:
        *above, name = Path(os.fsdecode(path)).relative_to(self.root).parts
        folder = self.top
        for part in above:
            below = folder.now[part]
            assert isinstance(below, Folder)
            folder = below
        return folder, name

    def _step(self, *names: tuple[Folder, str, File | Folder | None]) -> None:
        step = Step(names)
        for folder, name, what in names:
            _name(folder.now, name, what)
            if step not in folder.pending:
                folder.pending.append(step)

    def contents(self) -> dict[str, bytes | None]:
        """Return what a process sees, by path; None for a folder."""
        return dict(_walk(self.top, "", lambda file: bytes(file.now), lambda folder: folder.now))

    def cut(self, chance: Random | None) -> dict[str, bytes | None]:
        """Return the contents after a power cut; without `chance`, nothing that was not synced."""
        if chance is None:
            return dict(_walk(self.top, "", lambda file: file.synced, lambda folder: folder.synced))
        kept = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))  # changes that were not synced
        steps: dict[int, bool] = {}  # by id: a rename takes effect in both folders or in neither

        def entries(folder: Folder) -> dict[str, File | Folder]:
            left = dict(folder.synced)
            for step in folder.pending:
                if steps.setdefault(id(step), chance.random() < kept):
                    for position, name, what in step.names:
                        if position is folder:
                            _name(left, name, what)
            return left

        return dict(_walk(self.top, "", lambda file: _torn(file, chance, kept), entries))


def _walk(folder: Folder, prefix: str, data: object, entries: object) -> Iterator[tuple[str, bytes | None]]:
    for name, what in entries(folder).items():  # type: ignore[operator]
        if isinstance(what, Folder):
            yield prefix + name, None
            yield from _walk(what, f"{prefix}{name}/", data, entries)
        else:
            yield prefix + name, data(what)  # type: ignore[operator]


def _torn(file: File, chance: Random, kept: float) -> bytes:
    """For each change that was not synced: all of it, nothing, or some of its sectors."""
    left = bytearray(file.synced)
    for at, data in file.pending:
        if chance.random() >= kept:
            if data is None or chance.random() < 0.7:
                continue
            for start, part in _sectors(at, data):
                if chance.random() < 0.5:
                    _put(left, start, part)
        else:
            _put(left, at, data)
    return bytes(left)


def _sectors(at: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR - (at + start) % SECTOR)
        yield at + start, data[start:end]
        start = end


def write_out(contents: dict[str, bytes | None], root: Path) -> None:
    """Replace the contents of `root`."""
    for entry in root.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for name, data in contents.items():
        if data is None:
            (root / name).mkdir(0o700)
        else:
            (root / name).write_bytes(data)


def read_in(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))}
