"""A power cut at any moment, simulated from the journal of one run: everything acknowledged or read is present; no row is wrong; epochs
continue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.end_to_end import talk
from tests.faults import patches
from tests.faults.disk import Disk, Record, read_in, records, write_out
from tests.faults.patches import Patch
from tests.faults.shim import FaultyDisk
from tests.faults.sound import Lost, require_columns, require_sound
from tests.histories.checker import anomalies, states_of
from tests.histories.clients import Clients
from tests.histories.history import Write
from tests.histories.model import State
from tests.histories.seeds import NEW, seeds
from tests.server_process import NotStarted

CUTS, SOAK_CUTS = 4, 300  # cuts per run; the other crashes are in test_crash.py
_RARE = "CMRUDLT"


class Run(NamedTuple):
    """One run of the service: its clients, its journal, the initial disk, and the effects of its batches, by version."""

    clients: Clients
    journal: list[Record]
    start: dict[str, bytes | None]
    root: Path
    states: list[State]
    writes: dict[int, Write]


def recorded(path: Path, seed: int, *bugs: Patch, environment: dict[str, str] | None = None, steps: int = 40) -> Run:
    """Two services on one disk, the first one killed; the journal has the newest version that any client knew at each moment."""
    disk = FaultyDisk(path)
    clients = Clients(seed)
    clients.history.emitted = disk.note
    start = read_in(disk.root)
    for _ in range(2):
        with disk.server(patches.small, *bugs, environment=environment) as server:
            client = server.client()
            clients.start(client)
            clients.work(server.url, steps)
            clients.settle(client)
    found = list(records(disk.journal))
    writes = {event.version: event for event in clients.history.events if isinstance(event, Write)}
    states = states_of(clients.history.events)
    for record in found:
        disk.disk.follow(record)
    assert disk.disk.contents() == read_in(disk.root), "something was written past the shim"
    return Run(clients, found, start, disk.root, states, writes)


def moments(run: Run, chance: Random, count: int) -> list[int]:
    """Return the numbers of records before which the power is cut: half of them anywhere, half of them where names change."""
    rare = [i + chance.randrange(-1, 3) for i, record in enumerate(run.journal) if record.kind in _RARE]
    positions = [chance.randrange(len(run.journal) + 1) if chance.random() < 0.5 else chance.choice(rare) for _ in range(count)]
    return sorted(min(max(position, 0), len(run.journal)) for position in positions)


def cuts(run: Run, chance: Random, count: int) -> Iterator[tuple[int, dict[str, bytes | None], int, set[str]]]:
    """Yield (number of the record, the contents left, the newest version that any client knew, the columns that clients knew)."""
    write_out(run.start, run.root)
    disk, known, columns, at = Disk(run.root), 0, set[str](), 0
    for position in moments(run, chance, count):
        for record in run.journal[at:position]:
            disk.follow(record)
            if record.kind == "A" and record.first.isdigit():
                known = max(known, int(record.first))
            elif record.kind == "A":
                columns.add(record.first.decode())
        at = position
        yield position, disk.cut(None if chance.random() < 0.3 else chance), known, {*columns}


def suffer(run: Run, path: Path, chance: Random, count: int, environment: dict[str, str] | None = None) -> None:
    """Simulate this number of power cuts; after a third of them, another one while the service recovers."""
    disk = FaultyDisk(path)
    for position, left, known, columns in cuts(run, chance, count):
        write_out(left, disk.root)
        disk.restart()
        twice = chance.randrange(1, 60) if chance.random() < 0.3 else 0
        print(f"power cut before record {position} of {len(run.journal)}, version {known} known, again at operation {twice}")
        if twice:
            disk.faults.kill_at = twice
            try:
                disk.server(patches.small, environment=environment).start().close()
            except NotStarted as error:
                if error.status != -9:
                    raise Lost(error.errors) from None
            disk.cut_power(chance)
        try:
            with disk.server(patches.small, environment=environment) as server:
                client = server.client()
                version = require_sound(client, run.states, run.writes, known)
                require_columns(client, columns)
                if version:
                    change = {"relation": "stays", "op": "upsert", "row": {"id": 1, "room": "A", "a": 1, "b": 2, "tag": "u"}}
                    assert talk.ok(talk.send(client, [change]))["version"] == version + 1
        except NotStarted as error:
            raise Lost(error.errors) from None


@pytest.mark.parametrize("seed", seeds(1))
def test_a_power_cut_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    run = recorded(tmp_path / "run", seed)
    suffer(run, tmp_path / "cut", Random(seed), SOAK_CUTS if seed >= NEW else CUTS)


def test_the_run_is_right(tmp_path: Path) -> None:
    """The history of the recorded run, including the kill, is correct."""
    assert anomalies(recorded(tmp_path / "run", 5, steps=25).clients.history.events) == []


def found_by(tmp_path: Path, bugs: Sequence[Patch], environment: dict[str, str] | None = None) -> str:
    """Return the errors that the harness finds in a service with these bugs."""
    run = recorded(tmp_path / "run", 1, *bugs, environment=environment)
    with pytest.raises(Lost) as caught:
        for count in (12, 40):  # usually, a dozen are enough
            suffer(run, tmp_path / f"cut{count}", Random(1), count)
    return str(caught.value)


def test_a_sync_left_out_is_found(tmp_path: Path) -> None:
    """Commits without a sync: acknowledged batches are lost."""
    assert found_by(tmp_path, [], {"LIVEJOIN_SYNCHRONOUS": "normal"})


def test_a_name_that_is_not_synced_is_found(tmp_path: Path) -> None:
    assert found_by(tmp_path, [patches.no_sync_of_folders])


def test_a_creation_that_was_interrupted_is_begun_anew(tmp_path: Path) -> None:
    """The service is killed while it creates the database: while there is a rollback journal, and before the mark is written."""
    first, second = FaultyDisk(tmp_path / "first"), FaultyDisk(tmp_path / "second")
    with first.server():
        pass
    found = list(records(first.journal))
    write_out({}, first.root)
    disk = Disk(first.root)
    tried = set()
    for record in found:
        disk.follow(record)
        left = disk.contents()
        names = frozenset(left)
        if "data/livejoin.db" in left and "data/livejoin.mark" not in left and (names, record.kind) not in tried:
            tried.add((names, record.kind))
            write_out(left, second.root)
            second.restart()
            with second.server() as server:
                assert talk.ok(server.client().get("/v1/status"))["version"] == 0
    assert any("data/livejoin.db-journal" in names for names, _ in tried)
