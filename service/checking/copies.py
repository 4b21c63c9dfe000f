"""Temporary copies for checking: of a data folder, to recover from, and of what a backup would restore. Snapshots are linked, nothing is
written to the original, and its lock is held meanwhile."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.backups.assembling import assemble
from service.backups.manifest import Backup, chain_of, read_backup, verify
from service.durability.folder import LOCK, SNAPSHOTS, FolderLock


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """Yield a copy of a data folder. Raises FolderInUse, OSError."""
    with FolderLock(folder, read_only=True), _temporary() as copy:
        for path in folder.iterdir():
            if path.is_file() and path.name != LOCK:
                shutil.copy2(path, copy / path.name)
        for path in sorted((folder / SNAPSHOTS).glob("*/*")):
            target = copy / SNAPSHOTS / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.resolve())
        yield copy


@contextmanager
def assembled(folder: Path) -> Iterator[tuple[Path, list[Backup]]]:
    """Yield the data folder that a backup contains, without a new timeline, and the chain of backups, all verified. Raises Damaged,
    OSError."""
    chain = chain_of(read_backup(folder))
    verify(chain)
    with _temporary() as copy:
        assemble(chain, copy, forks=False, links=True)
        yield copy, chain


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="livejoin-check-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
