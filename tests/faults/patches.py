"""What tests change in a server before it starts, in its process alone: small measures, so that little data does all that much data does,
and bugs, which a harness must find."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import Any

from service.durability import database, folder, log, snapshots
from service.engine import housekeeping, recovery, snapshotting, writer
from service.engine.state import State
from service.engine.versions import Pins
from service.following.feeds import Feed


def replace(where: Any, name: str, value: object) -> None:
    assert hasattr(where, name), f"{where.__name__} has no {name} any more"
    setattr(where, name, value)


Patch = Callable[[], None]  # a function of a module, to be called in the server


def apply(*patches: Patch) -> None:
    for patch in patches:
        patch()


def small() -> None:
    """Housekeeping all the time, snapshots after some kilobytes of log, checkpoints after some commits, the log cut in steps of a few
    batches; each start is that of another boot of the machine."""
    replace(snapshotting, "_LOG_WORTH", 8 << 10)
    replace(snapshotting, "_LOG_FACTOR", 1)
    replace(snapshotting, "PIECE_ROWS", 8)
    replace(housekeeping, "_RATE", 0.05)
    replace(writer, "_TICK", 0.05)
    replace(log, "_WAL_BYTES", 64 << 10)
    replace(log, "_FORGET_ROWS", 16)
    replace(database, "LARGEST", 1 << 10)
    another_boot()


def another_boot() -> None:
    boot = os.urandom(16)
    replace(folder, "_boot_id", lambda: boot)


# bugs


def no_sync_of_folders() -> None:
    """The name of a new snapshot is not synced before the log is cut."""
    replace(snapshots, "sync_path", lambda path: None)


def a_row_not_replayed() -> None:
    replay = recovery._replay

    def without_some(relation: Any, version: int, effect: Any) -> None:
        if version % 5:
            replay(relation, version, effect)

    replace(recovery, "_replay", without_some)


def a_feed_loses_versions() -> None:
    append = Feed.append

    def without_some(self: Feed, delta: Any) -> None:
        if delta.version % 7:
            append(self, delta)

    replace(Feed, "append", without_some)


def duplicates_applied() -> None:
    replace(State, "is_duplicate", lambda self, batch: False)


def stale_readings() -> None:
    """Now and then a reader gets a version of a while ago."""
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
