"""Changes that tests make to a server before it starts, in its process alone: small limits, so that a little data has the effects of much
data, and bugs, which a test harness must find."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

from service.backups import assembling, making, repairing
from service.commands import restore
from service.durability import database, files, folder, log, snapshots
from service.engine import housekeeping, recovery, snapshotting, writer
from service.engine.state import State
from service.engine.versions import Pins
from service.following.feeds import Feed
from service.tables import rewriting


def replace(where: Any, name: str, value: object) -> None:
    assert hasattr(where, name), f"{where.__name__} has no {name} any more"
    setattr(where, name, value)


Patch = Callable[[], None]  # a function of a module, to be called in the server


def apply(*patches: Patch) -> None:
    for patch in patches:
        patch()


def small() -> None:
    """Housekeeping runs all the time, snapshots are written after some kilobytes of log, checkpoints after some commits, and the log is
    truncated in steps of a few batches; each start appears to follow a reboot of the machine."""
    replace(snapshotting, "_LOG_WORTH", 8 << 10)
    replace(snapshotting, "_LOG_SHARE", 1.0)
    replace(snapshotting, "PIECE_ROWS", 8)
    replace(housekeeping, "_RATE", 0.05)
    replace(writer, "_TICK", 0.05)
    replace(log, "_WAL_BYTES", 64 << 10)
    replace(log, "_FORGET_ROWS", 16)
    replace(log, "_GIVEN_PAGES", 4)
    replace(database, "LARGEST", 1 << 10)
    another_boot()


def another_boot() -> None:
    boot = os.urandom(16)
    replace(folder, "_boot_id", lambda: boot)


# bugs


def no_sync_of_folders() -> None:
    """The name of a new snapshot is not synced before the log is truncated."""
    replace(snapshots, "sync_path", lambda path: None)


def a_row_not_replayed() -> None:
    decode, rows = recovery.decode_effects, count()

    def all_but_some(*row: Any) -> Any:
        return decode(*row) if next(rows) % 5 else []

    replace(recovery, "decode_effects", all_but_some)


def a_feed_loses_versions() -> None:
    append = Feed.append

    def without_some(self: Feed, delta: Any) -> None:
        if delta.version % 7:
            append(self, delta)

    replace(Feed, "append", without_some)


def duplicates_applied() -> None:
    replace(State, "is_duplicate", lambda self, batch: False)


def stale_readings() -> None:
    """Occasionally, a reader gets an older version."""
    pin = Pins.pin
    kept: list[Any] = []
    calls = count()

    def sometimes_old(self: Pins, number: int | None = None) -> Any:
        call = next(calls)
        if number is None and call % 3 == 0 and kept and self.is_held(kept[0]):
            return self.again(kept[0])
        if call % 20 == 1:
            kept[:] = [pin(self)]
        return pin(self, number)

    replace(Pins, "pin", sometimes_old)


def a_rewriting_of_the_past() -> None:
    """Changes made while a replacement was compared are not considered; the comparison takes long enough for changes to occur."""
    init = rewriting.Rewrite.__init__

    def slow(self: rewriting.Rewrite, *given: Any) -> None:
        init(self, *given)
        time.sleep(0.02)

    replace(rewriting.Rewrite, "__init__", slow)
    replace(rewriting.Rewrite, "_since", lambda self, version: rewriting.Net(self.target, rewriting.NO_SLOTS, rewriting.NO_SLOTS))


def an_extension_not_on_disk() -> None:
    replace(log.Log, "change_relation", lambda self, name, definition: 0)


class _Fits(int):
    """A checksum that equals any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def checksums_ignored() -> None:
    """The checksums of snapshots."""
    replace(snapshots, "zlib", SimpleNamespace(crc32=lambda *_: _Fits(0)))


def errors_of_the_disk_ignored() -> None:
    """A commit that has failed is treated as successful."""
    commit = log.Log.commit

    def ignoring(self: log.Log) -> None:
        with contextlib.suppress(sqlite3.Error):
            commit(self)

    replace(log.Log, "commit", ignoring)


def no_sync_of_backups() -> None:
    replace(files, "sync", lambda file, path: None)
    replace(making, "sync_path", lambda path: None)


def backups_not_removed() -> None:
    replace(making, "_remove", lambda target, is_new: True)


def backups_not_verified() -> None:
    small()
    replace(restore, "verify", lambda chain: None)
    replace(snapshots, "zlib", SimpleNamespace(crc32=lambda *_: _Fits(0)))


def no_sync_of_restorations() -> None:
    small()
    replace(files, "sync", lambda file, path: None)
    replace(assembling, "sync_path", lambda path: None)


def epochs_not_set_back() -> None:
    small()
    replace(repairing, "_set_back", lambda found, rows: None)
