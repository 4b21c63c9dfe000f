"""Temporary copies for checking: of a data folder, to recover from; of one of format 1, in the current format; and of what a backup would
restore. Snapshots are linked, nothing is written to the original, and its lock is held meanwhile."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.access.store import TOKENS
from service.backups.assembling import assemble
from service.backups.manifest import Backup, chain_of, read_backup, verify
from service.durability import database
from service.durability.folder import LOCK, SNAPSHOTS, Damaged, FolderLock
from service.durability.upgrade import upgraded_copy


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """Yield a copy of a data folder. Raises FolderInUse, OSError."""
    with _locked(folder), _temporary() as copy:
        for path in folder.iterdir():
            if path.is_file() and path.name != LOCK:
                shutil.copy2(path, copy / path.name)
        for path in sorted((folder / SNAPSHOTS).glob("*/*")):
            target = copy / SNAPSHOTS / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.resolve())
        yield copy


def is_of_format_1(folder: Path) -> bool:
    """Return whether a folder needs an upgrade; False if its format cannot be read."""
    try:
        return database.format_of(folder) == 1
    except Damaged:
        return False


@contextmanager
def upgraded(folder: Path) -> Iterator[Path]:
    """Yield an upgraded copy of a folder of format 1. Raises FolderInUse, Damaged, OSError."""
    with _locked(folder), _temporary() as copy:
        upgraded_copy(folder, copy, lambda source, target: target.symlink_to(source.resolve()))
        if (folder / TOKENS).exists():
            shutil.copy2(folder / TOKENS, copy / TOKENS)
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
def _locked(folder: Path) -> Iterator[None]:
    lock = FolderLock(folder, read_only=True)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="livejoin-check-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
