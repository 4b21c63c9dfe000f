"""The names of readings, in a file of the data folder: none is used twice, also after a restart, so that whoever agrees on a reading by its
name never continues at another version.

    livejoin.readings    for each a line feed and the name; what a crash has cut off is no name that was used
"""

from __future__ import annotations

import threading
from pathlib import Path

from service.durability.folder import is_full, private, sync, sync_path
from service.errors import Problem

_MOST = 100_000  # names that are kept at least


class ReadingNames:
    """`lock`: for those who look for a reading before they begin it."""

    def __init__(self, folder: Path) -> None:
        self.lock = threading.Lock()
        self._path = folder / "livejoin.readings"
        self._used: dict[str, None] | None = None  # the oldest first

    def use(self, name: str) -> None:
        """The name is on disk on return. Call it with the lock. Problems: `snapshot-expired` (it was used before), `disk-full`."""
        if self._used is None:
            self._used = dict.fromkeys(self._path.read_text().split("\n")) if self._path.exists() else {}
        if name in self._used:
            raise Problem("snapshot-expired", f"the reading {name} has ended")
        try:
            is_new = not self._path.exists()
            if len(self._used) >= 2 * _MOST:
                self._used = dict.fromkeys(list(self._used)[-_MOST:])
                shorter = self._path.with_suffix(".unfinished")
                shorter.unlink(missing_ok=True)
                _append(shorter, "\n".join(self._used))
                shorter.replace(self._path)
                is_new = True
            _append(self._path, f"\n{name}")
            if is_new:
                sync_path(self._path.parent)
        except OSError as error:
            if is_full(error):
                raise Problem("disk-full", "the disk of the data folder has no room for the name of the reading") from error
            raise
        self._used[name] = None


def _append(path: Path, text: str) -> None:
    with open(path, "a", opener=private) as file:
        file.write(text)
        file.flush()
        sync(file.fileno(), path)
