"""The sources of a room's compiled code, and their hash.

A compiled kernel contains the helpers that it calls and the constants that it reads. They are of its own room, or of one that this room
imports, directly or not. A change of any other room does not concern it.

Imports are read from the text, without parsing it: each `structures.x` counts, in comments too. An import that cannot be read so (a
relative one, one of the package itself, one by a name made at run time) counts as an import of all rooms.

Costs: each file is read once a process, when the first kernel of a room that needs it is defined; a few ms for all rooms.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

TOP = ""  # the files that lie in no room: all rooms depend on them


class _SourceFile(NamedTuple):
    digest: bytes
    named: set[str]
    readable: bool


class Sources:
    """The sources of the package in the folder `root`: each folder in it is a room."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rooms = {folder.name for folder in root.iterdir() if folder.is_dir() and folder.name != "__pycache__"}
        self._reads: dict[str, _SourceFile] = {}
        name = re.escape(root.name).encode()
        self._named = re.compile(name + rb"\s*\.\s*(\w+)")
        itself = name + rb"(?!\s*\.)"
        self._unreadable = (  # two patterns, each with a word to begin with: a search for one of them takes ten times as long
            re.compile(rb"import(?:lib|__|[^\n]*(?:\\\n|" + itself + rb"))"),
            re.compile(rb"from\s+(?:\.|\\\n|" + itself + rb"|[\w. \t]*\\\n)"),
        )

    def room_of(self, file: str) -> str | None:
        """Return the room of the file; None: it lies in no room."""
        try:
            parts = Path(file).resolve().relative_to(self.root.resolve()).parts
        except ValueError:
            return None
        return parts[0] if len(parts) > 1 else None

    def needed_by(self, room: str) -> set[str]:
        """Return the room, and all rooms that it imports, directly or not."""
        needed = {TOP, room}
        waiting = [TOP, room]
        while waiting:
            read = self._read(waiting.pop())
            further = (self.rooms & read.named if read.readable else self.rooms) - needed
            needed |= further
            waiting += further
        return needed - {TOP}

    def digest(self, room: str | None) -> bytes:
        """Return the digest of all sources from which kernels of the room may be compiled. None: of all rooms."""
        needed = self.rooms if room is None else self.needed_by(room)
        return hashlib.sha256(b"".join(self._read(one).digest for one in sorted({TOP, *needed}))).digest()

    def _read(self, room: str) -> _SourceFile:
        if room not in self._reads:
            folder = self.root / room
            whole, named, readable = hashlib.sha256(), set[str](), True
            for file in sorted(folder.glob("[!.]*.py") if room == TOP else folder.rglob("[!.]*.py")):  # an editor's lock begins with a dot
                text = file.read_bytes()
                whole.update(f"{file.relative_to(self.root)} {len(text)}\n".encode())
                whole.update(text)
                named.update(name.decode() for name in self._named.findall(text))
                readable = readable and not any(pattern.search(text) for pattern in self._unreadable)
            self._reads[room] = _SourceFile(whole.digest(), named, readable)
        return self._reads[room]
