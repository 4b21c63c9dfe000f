"""The space used by a data folder and free on its disk, for monitoring. Nothing is locked: files may come and go meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from service.durability.folder import DATABASE, SNAPSHOTS
from service.durability.snapshots import snapshot_paths


class Usage(NamedTuple):
    """Sizes in bytes. Of the last snapshot: its version, its time (seconds since 1970) and its size; None if there is none."""

    log: int  # including SQLite's WAL
    snapshots: int
    other: int
    disk: int
    free: int  # for users other than root
    snapshot: tuple[int, float, int] | None


def usage(folder: Path) -> Usage:
    """Return the usage. Cost: the status of each file, a few and one for each relation. Raises OSError for a disk that does not respond."""
    log = snapshots = other = 0
    for path, size in _files(folder):
        if path.is_relative_to(folder / SNAPSHOTS):
            snapshots += size
        elif path.name.startswith(DATABASE):
            log += size
        else:
            other += size
    disk = os.statvfs(folder)
    return Usage(log, snapshots, other, disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize, _last_snapshot(folder))


class RecentUsage:
    """The usage of a folder for frequent queries: at most `seconds` old. Used by one thread at a time."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._found: Usage | None = None
        self._until = 0.0

    def get(self) -> Usage:
        """Return the usage; raises as `usage`."""
        now = time.monotonic()
        if self._found is None or now >= self._until:
            self._found = usage(self._folder)
            self._until = now + self._seconds
        return self._found


def _last_snapshot(folder: Path) -> tuple[int, float, int] | None:
    for path in reversed(snapshot_paths(folder)[0]):
        try:
            written = path.stat().st_mtime
        except FileNotFoundError:  # a newer one has just replaced it
            continue
        return int(path.name), written, sum(size for _, size in _files(path))
    return None


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for position, _, names in os.walk(folder):
        for name in names:
            path = Path(position, name)
            try:
                yield path, path.stat().st_size
            except FileNotFoundError:
                continue
