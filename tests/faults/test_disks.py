"""A disk that is full, read-only or failing, and a folder with one flipped bit or a torn page: the fault is reported or harmless, and never
causes silent errors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.end_to_end import talk
from tests.faults import patches
from tests.faults.disk import read_in, write_out
from tests.faults.shim import FaultyDisk, FaultyServer
from tests.faults.sound import Lost, require_sound
from tests.histories import batches
from tests.histories.clients import define
from tests.histories.history import Write
from tests.histories.model import State, drawn
from tests.histories.seeds import NEW, seeds
from tests.server_process import NotStarted

READS = 6
EACH = 1  # cases of each fault while the service runs; also the number of flipped bits and torn pages
COUNT = int(os.environ.get("LIVEJOIN_FAULTS") or 2000)  # of the soak, while the service runs or starts; of others in proportion
Contents = dict[str, bytes | None]


class Steady:
    """A client that sends one batch after the other, and their effects. A version without an answer is known, but not required."""

    def __init__(self, states: list[State] | None = None) -> None:
        self.states = states or [State()]
        self.writes: dict[int, Write] = {}
        self.known = 0

    def send(self, client: httpx.Client) -> httpx.Response:
        """Send the next batch. After an httpx.TransportError or a 500, its outcome is unknown."""
        version = self.known + 1
        changes = drawn(Random(version))
        self.states[version:] = [self.states[self.known].after(changes)]
        self.writes[version] = Write("steady", version, changes, version, False, 0, 0)
        answer = batches.send(client, changes, "steady", version)
        if answer.status_code == 200:
            assert answer.json()["version"] == version
            self.known = version
        return answer

    def require_sound(self, client: httpx.Client) -> None:
        self.known = require_sound(client, self.states, self.writes, self.known)

    def copy(self) -> Steady:
        twin = Steady([*self.states])
        twin.writes, twin.known = dict(self.writes), self.known
        return twin


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Contents, Steady]:
    """Two snapshots, a log after them, left by kill -9, and access tokens; and their contents."""
    disk, steady = FaultyDisk(tmp_path_factory.mktemp("begun") / "x"), Steady()
    with disk.server(patches.small) as server:
        define(server.client())
        while len(there := snapshots(disk.data)) < 2 or steady.known < max(int(path.name) for path in there) + 15:
            talk.ok(steady.send(server.client()))
    disk.begin_token_mode()
    return read_in(disk.root), steady


def snapshots(data: Path) -> list[Path]:
    return [path for path in data.glob("snapshots/*") if not path.suffix]


@pytest.fixture
def disk(tmp_path: Path, begun: tuple[Contents, Steady]) -> FaultyDisk:
    return FaultyDisk(tmp_path / "disk")


def prepared(disk: FaultyDisk, begun: tuple[Contents, Steady]) -> Steady:
    write_out(begun[0], disk.root)
    disk.restart()
    return begun[1].copy()


# while it runs


def full(disk: FaultyDisk, chance: Random) -> None:
    disk.faults.room = chance.choice((0, chance.randrange(20_000), chance.randrange(200_000)))


def read_only(disk: FaultyDisk, chance: Random) -> None:
    disk.faults.read_only = 1


def failing_sync(disk: FaultyDisk, chance: Random) -> None:
    disk.faults.fail_sync = disk.faults.syncs + chance.randrange(1, 60)


def failing_write(disk: FaultyDisk, chance: Random) -> None:
    disk.faults.fail_write = disk.faults.writes + chance.randrange(1, 300)


def short_writes(disk: FaultyDisk, chance: Random) -> None:
    disk.faults.short_every = chance.randrange(1, 5)


def failing_read(disk: FaultyDisk, chance: Random) -> None:
    disk.faults.fail_read = disk.faults.reads + chance.randrange(1, 200)


def failing_rename(disk: FaultyDisk, chance: Random) -> None:
    """The rename of snapshots and of other files that are replaced atomically: there are few."""
    disk.faults.fail_rename = disk.faults.renames + 1


def failing_link(disk: FaultyDisk, chance: Random) -> None:
    disk.faults.fail_link = disk.faults.links + chance.randrange(1, 4)


def no_links(disk: FaultyDisk, chance: Random) -> None:
    """A file system without hard links."""
    disk.faults.fail_link = -1


FAULTS = [full, read_only, failing_sync, failing_write, short_writes, failing_read, failing_rename]
SOAK_EACH = -(-COUNT // (len(FAULTS) + 1))  # with reads that fail at the start


def strike(server: FaultyServer, steady: Steady) -> list[int]:
    """Send batches until the service ends, or for some time. Return the statuses of the answers."""
    statuses = []
    client = server.client()
    for _ in range(40):
        try:
            statuses.append(steady.send(client).status_code)
        except httpx.TransportError:
            break
        if statuses[-1] not in (200, 503):
            break
    return statuses


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_while_it_runs(
    begun: tuple[Contents, Steady], disk: FaultyDisk, fault: Callable[[FaultyDisk, Random], None], seed: int
) -> None:
    """Acknowledged batches are kept in every case, even if the power is cut immediately afterwards."""
    chance = Random(f"{seed} {fault.__name__}")
    for number in range(EACH if seed < NEW else SOAK_EACH):
        print(f"{fault.__name__} {seed} {number}")
        steady = prepared(disk, begun)
        with disk.server(patches.small) as server:
            steady.require_sound(server.client())
            fault(disk, chance)
            statuses = strike(server, steady)
            validate(fault, disk, server, steady, statuses)
        disk.cut_power(None)
        with disk.server(patches.small) as server:
            steady.require_sound(server.client())
            talk.ok(steady.send(server.client()))
            assert "Traceback" not in server.output()


def validate(
    fault: Callable[[FaultyDisk, Random], None], disk: FaultyDisk, server: FaultyServer, steady: Steady, statuses: list[int]
) -> None:
    """Check how the service reports the fault."""
    if fault is short_writes:
        assert set(statuses) == {200}
    elif fault is full and disk.faults.room >= 0 and 503 in statuses:
        disk.faults.room = -1  # disk space was freed: the service continues by itself
        assert steady.send(server.client()).status_code == 200
        steady.require_sound(server.client())
    elif fault is failing_sync and disk.faults.syncs >= disk.faults.fail_sync:
        assert server.wait() == 1, server.output()
    elif fault in (failing_write, read_only, failing_read, failing_rename) and any(status != 200 for status in statuses):
        assert statuses.count(503) == len([status for status in statuses if status != 200]) or server.wait() == 1, server.output()


def test_a_fault_at_the_start(begun: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    """Each sync of a start fails once: the start ends with status 1 and reports it, or did not need the sync; the next start has
    everything."""
    number = 0
    while number < 30:
        number += 1
        steady = prepared(disk, begun)
        disk.faults.fail_sync = number
        try:
            disk.server(patches.small).start().close()
        except NotStarted as error:
            assert error.status == 1 and "Traceback" not in error.errors, error.errors
        reached = disk.faults.syncs >= number
        disk.cut_power(None)
        with disk.server(patches.small) as server:
            steady.require_sound(server.client())
        if not reached:
            return


def ended_by_a_sync(disk: FaultyDisk, server: FaultyServer, steady: Steady, chance: Random) -> None:
    """The disk does not have what the system has cached."""
    disk.faults.fail_sync = disk.faults.syncs + chance.randrange(1, 4)
    strike(server, steady)
    assert server.wait() == 1, server.output()


def killed_in_a_commit(disk: FaultyDisk, server: FaultyServer, steady: Steady, chance: Random) -> None:
    """The contents of SQLite's WAL may not be synced."""
    disk.faults.kill_at = disk.faults.operations + chance.randrange(1, 20)
    strike(server, steady)
    assert server.wait() == -9, server.output()


@pytest.mark.parametrize("end", [ended_by_a_sync, killed_in_a_commit])
def test_what_a_start_serves_is_on_the_disk(
    begun: tuple[Contents, Steady], disk: FaultyDisk, end: Callable[[FaultyDisk, FaultyServer, Steady, Random], None]
) -> None:
    """Even if the previous process has left data that it could not sync, and then a sync of the start fails, and then the power."""
    for number in range(3):
        steady = prepared(disk, begun)
        with disk.server(patches.small) as server:
            end(disk, server, steady, Random(number))
        disk.faults.kill_at = 0
        disk.faults.fail_sync = disk.faults.syncs + number % 3  # 0: none
        try:
            with disk.server(patches.small) as server:
                steady.require_sound(server.client())
        except NotStarted as error:
            assert error.status == 1 and "Traceback" not in error.errors, error.errors
        except httpx.TransportError:
            assert server.wait() == 1, server.output()
        print(end.__name__, number, steady.known)
        disk.cut_power(None)
        with disk.server(patches.small) as server:
            steady.require_sound(server.client())


@pytest.mark.parametrize("seed", seeds(1))
def test_a_read_that_fails_at_the_start(begun: tuple[Contents, Steady], disk: FaultyDisk, seed: int) -> None:
    """The start ends with status 1 and reports it, or continues without the data; nothing is lost."""
    chance, ended = Random(seed), 0
    for number in range(READS if seed < NEW else SOAK_EACH):
        steady = prepared(disk, begun)
        disk.faults.fail_read = chance.randrange(1, 400 if number % 2 else 20)
        print(seed, disk.faults.fail_read)
        try:
            with disk.server(patches.small) as server:
                try:
                    steady.require_sound(server.client())
                except httpx.TransportError:  # other work has met it
                    assert server.wait() == 1, server.output()
        except NotStarted as error:
            ended += 1
            assert error.status == 1 and "Traceback" not in error.errors, error.errors
            assert str(disk.data) in error.errors.splitlines()[-1], error.errors
        disk.faults.fail_read = 0
        with disk.server(patches.small) as server:
            steady.require_sound(server.client())
    assert ended


# while the service is stopped


def flipped(data: bytes, chance: Random) -> bytes:
    position = chance.randrange(8 * len(data))
    changed = bytearray(data)
    changed[position // 8] ^= 1 << position % 8
    return bytes(changed)


def torn(data: bytes, chance: Random) -> bytes:
    """The last page is incomplete, or its end was never written."""
    size = chance.randrange(1, min(4096, len(data)) + 1)
    return data[:-size] if chance.random() < 0.5 else data[:-size] + bytes(size)


def damaged(contents: Contents, chance: Random, count: int) -> Iterator[tuple[str, Contents]]:
    """One file at a time, each at least once."""
    names = sorted(name for name, data in contents.items() if data)
    for number in range(max(count, len(names))):
        name = names[number % len(names)]
        data = contents[name]
        assert data
        how = chance.choice((flipped, flipped, torn))
        yield f"{how.__name__} {name}", {**contents, name: how(data, chance)}


@pytest.mark.parametrize("seed", seeds(1))
def test_damage_of_any_file(begun: tuple[Contents, Steady], disk: FaultyDisk, seed: int) -> None:
    """The start names a file and ends with status 1, or everything that was acknowledged is present."""
    chance, refused = Random(seed), 0
    for what, contents in damaged(begun[0], chance, EACH if seed < NEW else COUNT // 2):
        print(seed, what)
        steady = begun[1].copy()
        write_out(contents, disk.root)
        disk.restart()
        try:
            with disk.server(patches.small) as server:
                steady.require_sound(server.client())
        except NotStarted as error:
            refused += 1
            assert error.status == 1 and "Traceback" not in error.errors, error.errors
            assert str(disk.data) in error.errors.splitlines()[-1], error.errors
    assert refused


# bugs that are planted in the service: each is found


def test_a_checksum_left_out_is_found(begun: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    chance = Random(0)
    tables = [Path(name) for name in begun[0] if name.endswith(".arrow") and "view-" not in name]
    newest = max(int(path.parent.name) for path in tables if path.parent.name.isdigit())  # a start reads no other
    names = [str(path) for path in tables if path.parent.name == str(newest)]
    with pytest.raises((Lost, UnicodeDecodeError)):  # a damaged text may be no text any more
        for number in range(40):
            name = names[number % len(names)]
            write_out({**begun[0], name: flipped(begun[0][name] or b"", chance)}, disk.root)
            disk.restart()
            crash = httpx.TransportError  # Arrow itself may fail on damaged data
            with contextlib.suppress(NotStarted, crash), disk.server(patches.small, patches.checksums_ignored) as server:
                begun[1].copy().require_sound(server.client())


def test_an_error_ignored_is_found(begun: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    """The service continues after a sync that has failed."""
    with pytest.raises((Lost, NotStarted, AssertionError)):
        for number in range(1, 20):
            steady = prepared(disk, begun)
            with disk.server(patches.small, patches.errors_of_the_disk_ignored) as server:
                disk.faults.fail_sync = disk.faults.syncs + number
                strike(server, steady)
            disk.cut_power(None)
            with disk.server(patches.small) as server:
                steady.require_sound(server.client())
