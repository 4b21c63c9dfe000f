"""A disk that fails during a backup, a restoration or a repair, and backups with one flipped bit: completed results are intact,
incomplete ones are reported, and the data folder has lost nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.end_to_end import talk
from tests.faults import patches
from tests.faults.disk import read_in, write_out
from tests.faults.shim import FaultyDisk, FaultyServer
from tests.faults.sound import Lost
from tests.faults.test_disks import (
    COUNT,
    Contents,
    Steady,
    begun,
    damaged,
    disk,
    failing_link,
    failing_read,
    failing_rename,
    failing_sync,
    failing_write,
    flipped,
    full,
    no_links,
    prepared,
    read_only,
    short_writes,
)
from tests.histories.seeds import NEW, seeds
from tests.server_process import NotStarted

assert begun and disk  # the fixtures: a folder with two snapshots and a log, and a disk
EACH, SOAK_EACH = 1, COUNT // 50  # cases of each fault and each tool
FLIPPED, SOAK_FLIPPED = 8, COUNT // 5  # bits, in backups and in old folders
Fault = Callable[[FaultyDisk, Random], None]
FAULTS = [full, read_only, failing_sync, failing_write, short_writes, failing_read, failing_rename, failing_link, no_links]
HARMLESS = [short_writes, no_links]  # the code that meets them can do without
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
each_seed = pytest.mark.parametrize("seed", seeds(1))


def cases(seed: int) -> range:
    return range(EACH if seed < NEW else SOAK_EACH)


def arm(disk: FaultyDisk, fault: Fault, chance: Random) -> None:
    fault(disk, chance)
    if fault is failing_sync:  # there are few of them
        disk.faults.fail_sync = disk.faults.syncs + chance.randrange(1, 16)
    elif fault is failing_read:
        disk.faults.fail_read = disk.faults.reads + chance.randrange(1, 80)


def command(disk: FaultyDisk, status: int, *arguments: str | Path) -> str:
    """Run a command on a disk without faults; return its output."""
    found, emitted = disk.run(patches.small, *arguments)
    assert found == status and "Traceback" not in emitted, emitted
    return emitted


def backup_of(server: FaultyServer, target: Path) -> str:
    """Make a backup. Return "done", "failed", "refused", or "ended" if the service has ended."""
    client = server.client()
    try:
        if client.post("/v1/backup", json={"target": str(target)}).status_code != 202:
            return "refused"
        while (emitted := talk.ok(client.get("/v1/backup")))["state"] == "running":
            time.sleep(0.01)
    except httpx.TransportError:
        assert server.wait() == 1, server.output()
        return "ended"
    return str(emitted["state"])


@each_seed
@each_fault
def test_a_backup(begun: tuple[Contents, Steady], disk: FaultyDisk, fault: Fault, seed: int) -> None:
    chance = Random(f"{seed} {fault.__name__}")
    for number in cases(seed):
        steady = prepared(disk, begun)
        print(f"{fault.__name__} {seed} {number}")
        back_up(disk, steady, fault, chance)


def back_up(disk: FaultyDisk, steady: Steady, fault: Fault, chance: Random, *bugs: patches.Patch) -> None:
    """Make a backup during a fault. A completed backup is intact after a power cut; an incomplete one leaves nothing, and the service
    continues, unless it has ended because a sync of the data folder failed, too."""
    target = disk.root / "backup"
    with disk.server(patches.small, *bugs) as server:
        steady.require_sound(server.client())
        arm(disk, fault, chance)
        state = backup_of(server, target)
        print(state)
        assert state == "done" if fault in HARMLESS else state != "done" if fault is read_only else True
        assert state in ("done", "ended") or not target.exists()
        assert "Traceback" not in server.output()
    disk.cut_power(None)
    if state == "done":
        assert command(disk, 0, "check", target).splitlines()[-1].startswith("verdict    sound")
    elif target.exists():
        command(disk, 1, "restore", target, disk.root / "restored")
    with disk.server(patches.small) as server:
        steady.require_sound(server.client())
        talk.ok(steady.send(server.client()))


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory, begun: tuple[Contents, Steady]) -> tuple[Contents, Steady]:
    """A backup, and its contents."""
    disk = FaultyDisk(tmp_path_factory.mktemp("backed-up") / "x")
    steady = prepared(disk, begun)
    with disk.server(patches.small) as server:
        steady.require_sound(server.client())
        assert backup_of(server, disk.root / "backup") == "done"
    return {name: data for name, data in read_in(disk.root).items() if name.startswith("backup")}, steady


def restored_on(disk: FaultyDisk, steady: Steady) -> bool:
    """Return whether a service starts on the restored folder, with everything; otherwise, the folder is as if it were new."""
    server = disk.server(patches.small)
    server.data = disk.root / "restored"
    try:
        with server:
            if talk.ok(server.client().get("/v1/status"))["version"] == 0:
                assert talk.ok(server.client().get("/v1/relations"))["relations"] == []
                return False
            steady.require_sound(server.client())
            return True
    except NotStarted as error:
        assert error.status == 1 and "Traceback" not in error.errors, error.errors
        return False


@each_seed
@each_fault
def test_a_restoration(backed_up: tuple[Contents, Steady], disk: FaultyDisk, fault: Fault, seed: int) -> None:
    chance = Random(f"{seed} {fault.__name__}")
    for number in cases(seed):
        print(f"{fault.__name__} {seed} {number}")
        restore(disk, backed_up, fault, chance)


def restore(disk: FaultyDisk, backed_up: tuple[Contents, Steady], fault: Fault, chance: Random, bug: patches.Patch = patches.small) -> None:
    """A completed restoration is intact after a power cut."""
    write_out(backed_up[0], disk.root)
    disk.restart()
    arm(disk, fault, chance)
    status, emitted = disk.run(bug, "restore", disk.root / "backup", disk.root / "restored")
    print(emitted)
    assert status in (0, 1) and "Traceback" not in emitted, emitted
    assert status == 0 if fault in HARMLESS else status == 1 if fault is read_only else True
    disk.cut_power(None)
    if status == 0 or (disk.root / "restored").exists():
        assert restored_on(disk, backed_up[1].copy()) or status == 1


def test_a_restoration_on_a_disk_that_is_too_small(backed_up: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    """Wherever the disk becomes full: while files are copied, or in the database."""
    needed = sum(len(data) for data in backed_up[0].values() if data)
    for part in range(8):
        write_out(backed_up[0], disk.root)
        disk.restart()
        disk.faults.room = needed * part // 8
        emitted = command(disk, 1, "restore", disk.root / "backup", disk.root / "restored")
        assert emitted.startswith(f"livejoin: the data folder {disk.root / 'restored'} could not be written (") and emitted.count("\n") == 1
        assert emitted.endswith("): remove its contents, free disk space, and restore again\n"), emitted


@each_seed
def test_a_flipped_bit_in_a_backup(backed_up: tuple[Contents, Steady], disk: FaultyDisk, seed: int) -> None:
    refused = 0
    for what, contents in damaged(backed_up[0], Random(seed), FLIPPED if seed < NEW else SOAK_FLIPPED):
        print(seed, what)
        write_out(contents, disk.root)
        disk.restart()
        status, emitted = disk.run(patches.small, "restore", disk.root / "backup", disk.root / "restored")
        if status == 0:
            assert restored_on(disk, backed_up[1].copy())
        else:
            refused += 1
            assert status == 1 and "Traceback" not in emitted and str(disk.root / "backup") in emitted, emitted
    assert refused > 3


@each_seed
@each_fault
def test_a_repair(begun: tuple[Contents, Steady], disk: FaultyDisk, fault: Fault, seed: int) -> None:
    chance = Random(f"{seed} {fault.__name__}")
    for number in cases(seed):
        print(f"{fault.__name__} {seed} {number}")
        mend(disk, prepared(disk, begun), fault, chance)


def mend(disk: FaultyDisk, steady: Steady, fault: Fault, chance: Random, bug: patches.Patch = patches.small) -> None:
    """Repair a folder whose log has lost a version: what the repair keeps is there in the end, whatever happens, and batches that are sent
    again are accepted."""
    lost = lose_a_version(disk.data)
    disk.restart()
    arm(disk, fault, chance)
    status, emitted = disk.run(bug, "repair", disk.data, "--yes")
    print(emitted)
    assert status in (0, 1) and "Traceback" not in emitted, emitted
    assert status == 0 if fault in HARMLESS else status == 1 if fault is read_only else True
    disk.cut_power(None)
    if status == 1:
        command(disk, 0, "repair", disk.data, "--yes")
    assert f"version {lost - 1}" in command(disk, 0, "check", disk.data, "--views", "none").splitlines()[-1]
    steady.known = lost - 1
    with disk.server(patches.small) as server:
        steady.require_sound(server.client())
        assert steady.known == lost - 1
        talk.ok(steady.send(server.client()))
        assert steady.known == lost


def test_a_read_only_disk_says_what_to_do(begun: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    prepared(disk, begun)
    command(disk, 0, "token", "create", "old", "--scope", "admin", "--data", disk.data)
    disk.faults.read_only = 1
    remedy = "free disk space, or make the folder writable"
    assert command(disk, 1, "repair", disk.data, "--yes").endswith(f"(Read-only file system): {remedy}\n")
    for action in (["create", "x", "--scope", "admin"], ["revoke", "old"], ["disable"]):
        emitted = command(disk, 1, "token", *action, "--data", disk.data)
        assert emitted.startswith(f"livejoin: the tokens in {disk.data} could not be written (Read-only file system): "), emitted
        assert emitted.count("\n") == 1 and remedy in emitted and "livejoin token list" in emitted
    assert "old" in command(disk, 0, "token", "list", "--data", disk.data)


def lose_a_version(data: Path) -> int:
    """Remove the version before the last."""
    with sqlite3.connect(data / "livejoin.db", isolation_level=None) as db:
        ((lost,),) = db.execute("SELECT max(version) - 1 FROM log").fetchall()
        db.execute("DELETE FROM log WHERE version = ?", (lost,))
    db.close()
    return int(lost)


# bugs that are planted in the tools: each is found


def found(plant: Callable[[], None]) -> None:
    """Check that some step of a test fails."""
    with pytest.raises((AssertionError, Lost, NotStarted)) as caught:
        plant()
    print(caught.value)


def test_a_backup_that_is_not_synced_is_found(begun: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    found(lambda: back_up(disk, prepared(disk, begun), short_writes, Random(1), patches.no_sync_of_backups))


def test_a_backup_that_is_not_removed_is_found(begun: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    found(lambda: back_up(disk, prepared(disk, begun), failing_link, Random(1), patches.backups_not_removed))


def test_a_restoration_that_is_not_synced_is_found(backed_up: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    found(lambda: restore(disk, backed_up, short_writes, Random(1), patches.no_sync_of_restorations))


def test_a_restoration_that_does_not_verify_is_found(backed_up: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    """A bit in the rows of a relation is flipped in the backup."""
    contents = dict(backed_up[0])
    name = max(name for name in contents if name.endswith(".arrow") and "view-" not in name)
    data = contents[name]
    assert data
    contents[name] = flipped(data, Random(3))
    found(lambda: restore(disk, (contents, backed_up[1]), short_writes, Random(1), patches.backups_not_verified))


def test_epochs_that_a_repair_does_not_set_back_are_found(begun: tuple[Contents, Steady], disk: FaultyDisk) -> None:
    found(lambda: mend(disk, prepared(disk, begun), short_writes, Random(1), patches.epochs_not_set_back))
