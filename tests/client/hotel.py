"""Bookings, jobs, and their clashes, by the client."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import livejoin
from tests.server_process import ServerProcess

COLUMNS = {"id": "int64", "room": "string", "s": "int64", "e": {"type": "int64", "nullable": True}}
STAY = {"stay": ("s", "e")}


def row(number: int, room: str = "A", start: int = 0, end: int | None = 10) -> dict[str, Any]:
    return {"id": number, "room": room, "s": start, "e": end}


class Hotel:
    """Two relations and the view of their clashes, with names that end in `suffix`."""

    def __init__(self, lj: livejoin.Client, suffix: str = "") -> None:
        self.lj = lj
        self.bookings = lj.relation(f"bookings{suffix}").create(COLUMNS, "id", STAY)
        self.jobs = lj.relation(f"jobs{suffix}").create(COLUMNS, ["id"], STAY)
        on = f"FROM {self.bookings.name} b JOIN {self.jobs.name} m ON b.room = m.room AND overlaps(b.stay, m.stay)"
        self.sql = f"SELECT b.id AS booking, m.id AS job {on}"
        self.clashes = lj.view(f"clashes{suffix}", self.sql)


def pairs(rows: Iterable[dict[str, Any]]) -> set[tuple[int, int]]:
    return {(row["booking"], row["job"]) for row in rows}


class Copy:
    """What a follower knows: applies whole versions, and checks that each follows the one before."""

    def __init__(self) -> None:
        self.rows: set[tuple[int, int]] = set()
        self.versions: list[int] = []

    def apply(self, version: livejoin.Version) -> None:
        changes = list(version.changes)
        assert len(changes) == version.size
        assert not self.versions or version.version > self.versions[-1], "a version came twice"
        self.versions.append(version.version)
        if version.snapshot:
            self.rows.clear()
        for change in changes:
            pair = (change.row["booking"], change.row["job"])
            assert (pair in self.rows) == (change.op == "delete"), "a change was lost or came twice"
            assert change.key == {"b": {"id": pair[0]}, "m": {"id": pair[1]}}
            self.rows ^= {pair}


@contextmanager
def restarted(server: ServerProcess) -> Iterator[None]:
    """Killed before the body, started again while it runs."""
    server.kill()
    thread = threading.Thread(target=server.start)
    thread.start()
    try:
        yield
    finally:
        thread.join()
