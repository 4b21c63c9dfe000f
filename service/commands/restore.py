"""`livejoin restore`: creates a data folder from a backup, which is verified first."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from livejoin.terminal import Failure, Parser
from service.access.store import read_tokens
from service.backups.assembling import assemble
from service.backups.manifest import Backup, chain_of, read_backup, verify
from service.durability import database
from service.durability.folder import DATABASE, DamagedFolder, FolderLock, reason

_DESCRIPTION = """Verify a backup and create a data folder from it. The earlier backups that an incremental one depends on are found
where they were made, or next to the backup. The restored folder begins a new timeline."""


def main(arguments: list[str]) -> int:
    parser = Parser("restore", _DESCRIPTION)
    parser.add_argument("backup", metavar="BACKUP", type=Path, help="the folder of the backup")
    parser.add_argument("folder", metavar="DIR", type=Path, help="the data folder to create: a new or empty folder")
    args = parser.parse_args(arguments)
    folder: Path = args.folder
    _require_empty(folder)
    try:
        chain = chain_of(read_backup(args.backup))
        verify(chain)
        timelines = assemble(chain, folder, forks=True)
        print("\n".join(_summary(folder, chain, timelines)))
    except FileNotFoundError as error:
        raise Failure(str(error) if error.filename is None else f"{args.backup}: {error.strerror}: {error.filename}") from error
    except DamagedFolder as error:
        raise Failure(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        where = f"the data folder {folder} could not be written ({reason(error)})"
        raise Failure(f"{where}: remove its contents, free disk space, and restore again") from error
    return 0


def _require_empty(folder: Path) -> None:
    if not folder.absolute().parent.is_dir():
        raise Failure(f"{folder} cannot be created: create its parent folder first")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Failure(f"{folder} exists and is not an empty folder: a restore never overwrites anything; choose a new folder")


def _summary(folder: Path, chain: list[Backup], timelines: database.Timelines) -> list[str]:
    """Return what was restored, one item per line, and what to do next."""
    with FolderLock(folder):
        with database.open_read_only(folder / DATABASE) as db:
            relations, views = database.read_catalog(db)
            sources = database.read_sources(db)
        tokens = read_tokens(folder)
    last = chain[-1]
    lines = [f"restored   {folder}, version {last.version}, as of {last.made}", f"timeline   {timelines[-1][0]}"]
    lines += [f"relation   {record.name}" for record in relations]
    lines += [f"view       {record.name}" for record in views]
    for name, source in sorted(sources.items()):
        lines.append(f"source     {name}, epoch {source.epoch}" + (f", run {source.run}" if source.run else ""))
    if tokens is not None:
        lines.append(f"tokens     {len(tokens)}; those revoked since the backup are valid again: revoke them again")
    if sources:
        lines.append(
            "next       each source must resend what came after its epoch; the streaming job detects this before its first post, "
            "and says what to do"
        )
    return lines
