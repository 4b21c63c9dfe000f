"""`livejoin repair`: after asking, drops the damaged parts of a data folder, and what follows the last good batch, and keeps the rest."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from livejoin.terminal import Failure, Parser, say
from service.backups.repairing import finish, plan, repair
from service.durability.folder import DATABASE, DamagedFolder, FolderInUse, FolderLock, reason, refuse_backup

_DESCRIPTION = """Remove damaged data from a data folder, after listing it and asking for confirmation, and keep everything up to the last
good batch. What is removed is moved to a separate folder. The repaired folder begins a new timeline. No service may be using it."""


def main(arguments: list[str]) -> int:
    parser = Parser("repair", _DESCRIPTION)
    parser.add_argument("folder", metavar="DIR", type=Path, help="the data folder")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation; required without a terminal")
    args = parser.parse_args(arguments)
    folder: Path = args.folder
    try:
        refuse_backup(folder)
    except DamagedFolder as error:
        raise Failure(str(error)) from error
    if not (folder / DATABASE).exists():
        raise Failure(f"{folder} cannot be repaired: there is no {DATABASE} in it; restore it from a backup")
    try:
        with FolderLock(folder):
            return _repaired(folder, args.yes)
    except FolderInUse as error:
        raise Failure(str(error)) from error
    except DamagedFolder as error:
        raise Failure(f"{folder} cannot be repaired: {error}") from error
    except (OSError, sqlite3.Error) as error:
        raise Failure(f"{folder} was not repaired ({reason(error)}): free disk space, or make the folder writable") from error


def _repaired(folder: Path, yes: bool) -> int:
    if finish(folder):
        print(f"finished   a repair of {folder} that was interrupted")
    found = plan(folder)
    if not found.dropped:
        print(f"{folder} is undamaged at version {found.version}: there is nothing to repair")
        return 0
    for one in found.dropped:
        print(f"drop       {one}", flush=True)
    print(f"keep       version {found.version}, and everything else", flush=True)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("nothing was changed: use --yes to drop these parts, or run the command in a terminal", 2)
        print("Drop this? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            say("nothing was changed")
            return 1
    aside, timelines = repair(found)
    print(f"repaired   {folder}, version {found.version}, timeline {timelines[-1][0]}")
    print(f"dropped    moved to {aside}; remove it when it is no longer needed")
    if found.rows:
        print("next       each source must resend what was dropped; the streaming job detects this before its first post")
    return 0
