"""A disk that fails under a backup, a restoration, a repair or an upgrade, and backups and old folders with one flipped bit: what was
finished is whole, what was not says so, and the data folder has lost nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.end_to_end import talk
from tests.faults import patches
from tests.faults.disk import read_in, write_out
from tests.faults.shim import FaultyDisk, FaultyServer
from tests.faults.test_disks import (
    Contents,
    Steady,
    begun,
    damaged,
    disk,
    failing_sync,
    failing_write,
    full,
    prepared,
    read_only,
    short_writes,
)
from tests.histories.seeds import NEW, seeds
from tests.kept.archive import unpack
from tests.server_process import ROOT, NotStarted

assert begun and disk  # the fixtures: a folder of 120 versions and more, and a disk
EACH, SOAK_EACH = 1, 40  # cases of each fault and each tool
FLIPPED, SOAK_FLIPPED = 8, 400  # bits, in backups and in old folders
Fault = Callable[[FaultyDisk, Random], None]
FAULTS = [full, read_only, failing_sync, failing_write, short_writes]
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
each_seed = pytest.mark.parametrize("seed", seeds(1))


def cases(seed: int) -> range:
    return range(EACH if seed < NEW else SOAK_EACH)


def arm(disk: FaultyDisk, fault: Fault, chance: Random) -> None:
    fault(disk, chance)
    if fault is failing_sync:  # there are few of them
        disk.faults.fail_sync = disk.faults.syncs + chance.randrange(1, 16)


def command(disk: FaultyDisk, status: int, *arguments: str | Path) -> str:
    """Run a command on a disk without faults; what it says."""
    found, told = disk.run(patches.small, *arguments)
    assert found == status and "Traceback" not in told, told
    return told


def backup_of(server: FaultyServer, target: Path) -> str:
    """Make a backup; "done", "failed", "refused", or "ended" if the service has."""
    client = server.client()
    try:
        if client.post("/v1/backup", json={"target": str(target)}).status_code != 202:
            return "refused"
        while (told := talk.ok(client.get("/v1/backup")))["state"] == "running":
            time.sleep(0.01)
    except httpx.TransportError:
        assert server.wait() == 1, server.output()
        return "ended"
    return str(told["state"])


@each_seed
@each_fault
def test_a_backup(begun: tuple[Contents, Steady], disk: FaultyDisk, fault: Fault, seed: int) -> None:
    chance, target = Random(f"{seed} {fault.__name__}"), disk.root / "backup"
    for number in cases(seed):
        steady = prepared(disk, begun)
        with disk.server(patches.small) as server:
            steady.require_sound(server.client())
            arm(disk, fault, chance)
            state = backup_of(server, target)
            print(f"{fault.__name__} {seed} {number}: {state}")
            assert state == "done" if fault is short_writes else state != "done" if fault is read_only else True
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
    """A backup alone, and what is in it."""
    disk = FaultyDisk(tmp_path_factory.mktemp("backed-up") / "x")
    steady = prepared(disk, begun)
    with disk.server(patches.small) as server:
        steady.require_sound(server.client())
        assert backup_of(server, disk.root / "backup") == "done"
    return {name: data for name, data in read_in(disk.root).items() if name.startswith("backup")}, steady


def restored_on(disk: FaultyDisk, steady: Steady) -> bool:
    """Whether a service starts on the restored folder, which then has everything, or is as good as new."""
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
        write_out(backed_up[0], disk.root)
        disk.restart()
        arm(disk, fault, chance)
        status, told = disk.run(patches.small, "restore", disk.root / "backup", disk.root / "restored")
        print(f"{fault.__name__} {seed} {number}: {told}")
        assert status in (0, 1) and "Traceback" not in told, told
        assert status == 0 if fault is short_writes else status == 1 if fault is read_only else True
        disk.cut_power(None)
        if status == 0 or (disk.root / "restored").exists():
            assert restored_on(disk, backed_up[1].copy()) or status == 1


@each_seed
def test_a_flipped_bit_in_a_backup(backed_up: tuple[Contents, Steady], disk: FaultyDisk, seed: int) -> None:
    refused = 0
    for what, contents in damaged(backed_up[0], Random(seed), FLIPPED if seed < NEW else SOAK_FLIPPED):
        print(seed, what)
        write_out(contents, disk.root)
        disk.restart()
        status, told = disk.run(patches.small, "restore", disk.root / "backup", disk.root / "restored")
        if status == 0:
            assert restored_on(disk, backed_up[1].copy())
        else:
            refused += 1
            assert status == 1 and "Traceback" not in told and str(disk.root / "backup") in told, told
    assert refused > 3


@each_seed
@each_fault
def test_a_repair(begun: tuple[Contents, Steady], disk: FaultyDisk, fault: Fault, seed: int) -> None:
    """Of a folder whose log has lost a version: what it keeps is there in the end, whatever happens."""
    chance = Random(f"{seed} {fault.__name__}")
    for number in cases(seed):
        steady = prepared(disk, begun)
        lost = lose_a_version(disk.data)
        disk.restart()
        arm(disk, fault, chance)
        status, told = disk.run(patches.small, "repair", disk.data, "--yes")
        print(f"{fault.__name__} {seed} {number}: {told}")
        assert status in (0, 1) and "Traceback" not in told, told
        assert status == 0 if fault is short_writes else status == 1 if fault is read_only else True
        disk.cut_power(None)
        if status == 1:
            command(disk, 0, "repair", disk.data, "--yes")
        assert f"version {lost - 1}" in command(disk, 0, "check", disk.data, "--views", "none").splitlines()[-1]
        steady.known = lost - 1
        with disk.server(patches.small) as server:
            steady.require_sound(server.client())
            assert steady.known == lost - 1


def lose_a_version(data: Path) -> int:
    """One before the last."""
    with sqlite3.connect(data / "livejoin.db", isolation_level=None) as db:
        ((lost,),) = db.execute("SELECT max(version) - 1 FROM log").fetchall()
        db.execute("DELETE FROM log WHERE version = ?", (lost,))
    db.close()
    return int(lost)


# a folder of format 1


def told_by(server: FaultyServer) -> dict[str, Any]:
    """The version, and the rows of all relations."""
    client = server.client()
    found: dict[str, Any] = {"version": talk.ok(client.get("/v1/status"))["version"]}
    for one in talk.ok(client.get("/v1/relations"))["relations"]:
        answer = client.get(f"/v1/relations/{one['name']}/rows")
        talk.ok_status(answer)
        found[one["name"]] = sorted(answer.text.splitlines())
    return found


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> tuple[Contents, dict[str, Any]]:
    """The kept folder, and what a service on it says."""
    disk = FaultyDisk(tmp_path_factory.mktemp("old") / "x")
    unpack(ROOT / "tests" / "kept" / "format_1" / "killed.tar.gz", disk.data)
    contents = read_in(disk.root)
    disk.restart()
    with disk.server(patches.another_boot) as server:
        return contents, told_by(server)


@each_seed
@each_fault
def test_an_upgrade(old: tuple[Contents, dict[str, Any]], disk: FaultyDisk, fault: Fault, seed: int) -> None:
    """It is done, or begun again by the next start; the folder of before stays."""
    chance = Random(f"{seed} {fault.__name__}")
    for number in cases(seed):
        write_out(old[0], disk.root)
        disk.restart()
        arm(disk, fault, chance)
        try:
            with disk.server(patches.another_boot) as server:
                assert told_by(server) == old[1]
                outcome = "started"
        except NotStarted as error:
            assert error.status == 1 and "Traceback" not in error.errors and fault is not short_writes, error.errors
            outcome = error.errors
        except httpx.TransportError:  # a sync has failed since
            outcome = "ended"
        print(f"{fault.__name__} {seed} {number}: {outcome}")
        disk.cut_power(None)
        with disk.server(patches.another_boot) as server:
            assert told_by(server) == old[1]
        assert (disk.root / "data.format1").exists()


@each_seed
def test_a_flipped_bit_in_a_folder_of_format_1(old: tuple[Contents, dict[str, Any]], disk: FaultyDisk, seed: int) -> None:
    """Named, or harmless."""
    refused = 0
    for what, contents in damaged(old[0], Random(seed), FLIPPED if seed < NEW else SOAK_FLIPPED):
        print(seed, what)
        write_out(contents, disk.root)
        disk.restart()
        try:
            with disk.server(patches.another_boot) as server:
                assert told_by(server) == old[1]
        except NotStarted as error:
            refused += 1
            assert error.status == 1 and "Traceback" not in error.errors and str(disk.data) in error.errors, error.errors
    assert refused > 3
