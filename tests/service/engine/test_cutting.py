"""The log is cut behind two snapshots, whatever else reads it, and a snapshot does not depend on that."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import Batch
from service.durability.log import Log
from service.errors import Problem
from service.instance import Instance
from tests.service.engine.test_generations import snapshots
from tests.service.running import batch, look, opened, parts, rows_of, running


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """Each change is worth a snapshot."""
    monkeypatch.setattr("service.engine.snapshotting._LOG_WORTH", 1)
    monkeypatch.setattr("service.engine.snapshotting._LOG_SHARE", 0.0)
    monkeypatch.setattr("service.engine.housekeeping._RATE", 1e9)
    engine = running(tmp_path)
    yield engine
    engine.close()


def considered(engine: Instance) -> None:
    engine.at_rest(engine.snapshots.consider)
    engine.snapshots.wait()


def change(engine: Instance) -> None:
    engine.apply(batch(("upsert", "a", rows_of(0, 10))))


def test_a_long_backup_stops_no_snapshots(engine: Instance, tmp_path: Path) -> None:
    with parts(engine).log.keeping() as forgotten:
        for _ in range(4):
            change(engine)
            considered(engine)
            assert parts(engine).log.forgotten == forgotten == 0 and not engine.snapshots.under_way
        assert snapshots(tmp_path) == ["3", "4"] and engine.snapshots.failures == 0 and engine.snapshots.log_bytes == 0
        considered(engine)
        assert parts(engine).log.forgotten == 0
    considered(engine)
    assert parts(engine).log.forgotten == 3 and snapshots(tmp_path) == ["3", "4"], "what was left goes afterwards, without another snapshot"


def test_a_log_that_cannot_be_cut(
    engine: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The snapshot is whole, and counts; the cut is tried again."""

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Log, "forget", fail)
        for _ in range(2):
            engine.snapshots._not_before = 0.0
            change(engine)
            considered(engine)
    assert "the log could not be truncated" in caplog.text and "no snapshot could be written" not in caplog.text
    assert snapshots(tmp_path) == ["1", "2"] and engine.snapshots.failures == 0 and engine.snapshots.log_bytes == 0
    considered(engine)
    assert parts(engine).log.forgotten == 0, "not at once: trying takes room on a disk that has little"
    engine.snapshots._not_before = 0.0
    considered(engine)
    assert parts(engine).log.forgotten == 1


def test_a_start_goes_on_with_a_cut(engine: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Log, "forget", lambda *_: None)
        for _ in range(2):
            change(engine)
            considered(engine)
        engine.close()
    engine = opened(tmp_path)
    assert parts(engine).log.forgotten == 0
    considered(engine)
    assert parts(engine).log.forgotten == 1
    engine.close()


def test_who_keeps_batches_is_told_what_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the commit that removes some, and whatever comes after it."""
    emitted: list[tuple[int, int]] = []

    def look() -> None:
        with log.keeping() as forgotten, log.reading() as db:
            emitted.append((forgotten, db.execute("SELECT min(version) FROM log").fetchone()[0]))

    engine = running(tmp_path)
    for _ in range(5):
        change(engine)
    log = parts(engine).log
    watcher = threading.Thread(target=look)
    transaction = Log._transaction

    @contextmanager
    def paused(self: Log) -> Iterator[Any]:
        with transaction(self) as db:
            yield db
        if watcher.ident is None:
            watcher.start()
            watcher.join(0.2)  # it would be through by now, if it could

    with monkeypatch.context() as patch:
        patch.setattr(Log, "_transaction", paused)
        log.forget(3)
    watcher.join()
    assert emitted == [(3, 4)]
    engine.close()


def test_a_pin_on_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is slow but the disk: `--pin-idle` is about readers."""
    caplog.set_level(logging.INFO)
    engine = running(tmp_path, pin_idle=0.01)
    change(engine)
    sync = os.fsync

    def slowly(file: int) -> None:
        time.sleep(0.03)
        look(engine)
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr("service.durability.folder.os.fsync", slowly)
        patch.setattr("service.durability.snapshots._SYNC_BYTES", 1)
        engine.snapshots.write()
    assert snapshots(tmp_path) == ["1"] and "--pin-bytes" not in caplog.text
    engine.close()


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="a file system of our own needs root")
def test_a_disk_that_others_fill(tmp_path: Path) -> None:
    """Under synchronous=normal, with single changes only: the change is refused, and the next one taken when there is room."""
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "livejoin-test", str(mount)], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        engine = running(mount / "data", synchronous="normal")
        first = engine.apply(single(1))
        assert first.version == 1
        with open(mount / "filling", "wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            except OSError:
                pass
        with pytest.raises(Problem) as caught:
            engine.apply(single(2))
        assert caught.value.type == "disk-full" and engine.state == "ready"
        (mount / "filling").unlink()
        assert engine.apply(single(3)).version == 2
        assert engine.close()
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def single(id_: int, start: int = 0, tag: str | None = None, **fields: Any) -> Batch:
    """A single upsert."""
    return batch(("upsert", "a", rows_of(id_, 1, start, tag=tag)), **fields)
