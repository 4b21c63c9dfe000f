"""A backup that does not succeed: a target whose disk fills up or fails, a snapshot that is damaged or goes meanwhile, the end of the
service."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.backups import making
from service.backups.assembling import assemble
from service.backups.manifest import chain_of, read_backup, verify
from service.checking.inspection import inspect
from service.durability.files import Look, digest
from service.durability.log import Log
from service.errors import Problem
from service.instance import Instance
from tests.service.running import batch, opened, rows_of, running
from tests.waiting import HeldCall


def ended(engine: Instance) -> dict[str, Any]:
    assert engine.backups._thread is not None
    engine.backups._thread.join()
    return engine.backups.state()


def restored(target: Path, folder: Path) -> int:
    """The rows of `a` in what is restored, which is sound."""
    chain = chain_of(read_backup(target))
    verify(chain)
    assemble(chain, folder, forks=True)
    found = inspect(folder)
    assert not found.problems and not found.spared
    with closing(opened(folder)) as engine:
        return engine.relations["a"].table.rows


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    """A snapshot of 1,000 rows, with recent changes of a view, and ten rows behind it."""
    with closing(running(tmp_path / "data")) as first:
        first.apply(batch(("upsert", "a", rows_of(0, 1000)), ("upsert", "b", rows_of(0, 1))))
    with closing(opened(tmp_path / "data")) as engine:
        engine.apply(batch(("upsert", "a", rows_of(1000, 10))))
        yield engine


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "new"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no file system in which no folder can be made")
def test_a_target_that_cannot_be_made_is_no_full_disk(engine: Instance) -> None:
    with pytest.raises(Problem, match=r"bad-parameter: target: the folder cannot be used \("):
        engine.backups.start(Path("/proc/livejoin"), None)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="a file system of our own needs root")
def test_a_full_disk_of_the_target_is_told_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "livejoin-test", str(mount)], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with closing(running(tmp_path / "data", {})) as engine:
            engine.apply(batch(("upsert", "a", rows_of(0, 50_000))))
            with pytest.raises(Problem, match="no room for a backup"):
                engine.backups.start(mount / "backup", None)
            assert not any(mount.iterdir())
            monkeypatch.setattr(making, "_SPARE", -(1 << 40))  # another has taken the room meanwhile
            engine.backups.start(mount / "backup", None)
            state = ended(engine)
            assert state["state"] == "failed" and "full" in state["problem"], state
            assert not any(mount.iterdir()), "what was written has been removed"
            filler = mount / "filler"
            with open(filler, "wb", buffering=0) as file, pytest.raises(OSError):
                while True:
                    file.write(bytes(4096))
            with pytest.raises(Problem) as caught:
                engine.backups.start(mount / "backup", None)
            assert caught.value.type == "disk-full" and [*mount.iterdir()] == [filler]
            assert engine.apply(batch(("upsert", "a", rows_of(50_000, 10)))).version == 2
            engine.backups.start(tmp_path / "backup", None)
            assert ended(engine)["version"] == 2
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the name of an open file is found in /proc")
@pytest.mark.parametrize("is_new", [True, False])
def test_a_sync_of_the_target_that_fails(engine: Instance, target: Path, is_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backup fails with it, and nothing is synced again; nothing is left of it, and the service goes on."""
    fsync = os.fsync
    monkeypatch.setattr(making, "link", lambda path, copy: False)  # as on another disk
    if not is_new:
        target.mkdir()
    for number in range(1, 40):
        synced: list[str] = []

        def failing(file: int, synced: list[str] = synced, number: int = number) -> None:
            path = os.readlink(f"/proc/self/fd/{file}")
            if path.startswith(str(target.parent)):
                synced.append(path)
                if len(synced) == number:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            fsync(file)

        monkeypatch.setattr(os, "fsync", failing)
        try:
            engine.backups.start(target, None)
        except Problem as problem:
            assert problem.type == "bad-parameter" and "fsync failed: Input/output error" in problem.detail
            problems = True
        else:
            state = ended(engine)
            problems = state["state"] == "failed"
            assert not problems or "fsync failed: Input/output error; what was written of it has been removed" in state["problem"], state
        assert engine.apply(batch(("upsert", "b", rows_of(number, 1)))).version > number
        if not problems:
            assert number > 8 and len(synced) == number - 1
            return
        assert len(synced) == number, synced
        assert [*target.parent.rglob("*")] == ([] if is_new else [target])
    raise AssertionError("there is no end of syncs")


def test_a_table_that_goes_while_it_is_copied(
    engine: Instance, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an older generation, when a newer one takes its place."""
    read, lost = making.read_snapshot, list[Path]()

    def losing(path: Path) -> Any:
        found = read(path)
        if not lost:
            lost.append(path / next(iter(found.tables.values())).file)
            lost[0].unlink()
        return found

    monkeypatch.setattr(making, "read_snapshot", losing)
    engine.backups.start(target, None)
    assert ended(engine)["state"] == "done" and lost
    assert restored(target, tmp_path / "restored") == 1010


def test_a_snapshot_that_comes_while_those_before_go(
    engine: Instance, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of snapshots is not that of before: the newer one is taken."""
    read, first = making.read_snapshot, list[str]()

    def moving(path: Path) -> Any:
        if not first:
            first.append(path.name)
            newer = engine.snapshots
            newer.write()
            for table in path.glob("[0-9]*.arrow"):
                table.unlink()
        return read(path)

    monkeypatch.setattr(making, "read_snapshot", moving)
    engine.backups.start(target, None)
    assert ended(engine)["state"] == "done"
    (taken,) = (target / "snapshots").iterdir()
    assert int(taken.name) > int(first[0])
    assert restored(target, tmp_path / "restored") == 1010


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("pattern", ["[0-9]*.arrow", "view-*.arrow"])
def test_a_damaged_file_is_not_copied(
    engine: Instance, target: Path, tmp_path: Path, pattern: str, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a relation's nor that of a view's recent changes: the log has all."""
    if not links:
        monkeypatch.setattr(making, "link", lambda path, copy: False)
    for path in (tmp_path / "data").glob(f"snapshots/*/{pattern}"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    engine.backups.start(target, None)
    assert ended(engine)["state"] == "done" and not any((target / "snapshots").iterdir())
    assert restored(target, tmp_path / "restored") == 1010


def test_the_log_keeps_its_room(engine: Instance, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the disk of the data folder, what is free is looked at while the backup is written."""
    monkeypatch.setattr(Log, "free_bytes", property(lambda self: 10 << 20))
    engine.backups.start(target, None)
    state = ended(engine)
    assert state["state"] == "failed" and "10 MiB left, which the log may need; what was written" in state["problem"], state
    assert not target.exists()


def forever(look: Look) -> None:
    while True:
        look(0)
        time.sleep(0.001)


def in_sql(db: sqlite3.Connection) -> None:
    db.execute("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n").fetchall()


@pytest.mark.parametrize("what", ["digest", "copy_file", "copy_log"])
def test_the_service_ends_meanwhile(engine: Instance, target: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the backup is doing, it is broken off and leaves nothing; the end is a clean one."""
    slow: dict[str, Callable[..., Any]] = {
        "digest": lambda path, look: (reached.set(), forever(look)),
        "copy_file": lambda source, copy, look: (reached.set(), forever(look)),
        "copy_log": lambda reading, db, *more, **named: (reached.set(), in_sql(db)),
    }
    reached = threading.Event()
    monkeypatch.setattr(making, "link", lambda path, copy: False)
    monkeypatch.setattr(making, what, slow[what])
    engine.backups.start(target, None)
    assert reached.wait(60)
    assert engine.close()
    state = engine.backups.state()
    assert state["state"] == "failed" and "the service was stopped before the backup was complete" in state["problem"], state
    assert not target.exists()
    with pytest.raises(Problem, match="shutting down"):
        engine.backups.start(target, None)


def test_an_end_that_a_backup_holds_up(engine: Instance, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a while, and is no clean one then: what is written of the backup says that it is unfinished."""
    stubborn = HeldCall(digest)
    monkeypatch.setattr(making, "digest", stubborn)
    monkeypatch.setattr(making, "_PATIENCE", 0.1)
    engine.backups.start(target, None)
    assert stubborn.begun.wait(60)
    assert not engine.close()
    with pytest.raises(Exception, match="unfinished"):
        read_backup(target)
    stubborn.go.set()
    ended(engine)


def test_targets_that_the_system_refuses(engine: Instance, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Problem, match="File name too long") as caught:
        engine.backups.start(target.with_name("x" * 300), None)
    assert caught.value.type == "bad-parameter"

    def forbidden(self: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_dir", forbidden)  # as of a folder in one that only its owner may search
        with pytest.raises(Problem, match="Permission denied") as caught:
            engine.backups.start(target, None)
    assert caught.value.type == "bad-parameter" and str(tmp_path) not in caught.value.detail
    assert making._size_of(tmp_path / "a snapshot that is gone") == 0
    assert [*target.parent.iterdir()] == []


def test_the_one_before(engine: Instance, target: Path) -> None:
    """Who has begun a backup is told how it ended, also when another one was begun since."""
    first = engine.backups.start(target, None)
    ended(engine)
    second = engine.backups.start(target.with_name("second"), None)
    assert second["id"] != first["id"] and second["previous"]["id"] == first["id"] and second["previous"]["state"] == "done"
    assert ended(engine)["previous"] == second["previous"] and "previous" not in second["previous"]
    assert read_backup(target).id == first["id"]
