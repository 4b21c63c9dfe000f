"""What a repair keeps: all that is sound, also where only another part of the folder is damaged."""

from __future__ import annotations

import contextlib
import errno
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from service.backups.repairing import plan, repair
from service.checking.inspection import inspect
from service.durability.database import LogRow
from service.durability.folder import DATABASE, DamagedFolder
from service.durability.log import Log
from service.durability.snapshots import snapshot_paths
from service.reading.cursors import open_relation_rows
from tests.service.durability.test_snapshots import write
from tests.service.engine.test_generations import flip, with_two
from tests.service.running import ids, opened


def damaged_at(folder: Path, *versions: int) -> None:
    """One byte of these batches."""
    with contextlib.closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as db:
        for version in versions:
            assert db.execute("UPDATE log SET payload = payload || x'00' WHERE version = ?", (version,)).rowcount == 1


def filled(folder: Path) -> None:
    """Snapshots of the versions 10 and 20, the log from 11 to 30; of the source `t` epoch 15 at version 15, and 26 at 26."""
    log = Log(folder)
    for version in range(1, 31):
        source = {15: "t", 26: "t", 12: "u"}.get(version, "s")
        log.append([LogRow(version, source, "r", version, b"payload %d" % version, None, frozenset({f"of_{source}"}))])
        log.commit()
        if version in (10, 20):
            write(folder, version)
    log.forget(10)
    log.close()


def sources(log: Log) -> dict[str, tuple[int, int | None]]:
    assert all(source.written == {f"of_{name}"} for name, source in log.sources().items())
    return {name: (source.epoch, source.version) for name, source in log.sources().items()}


def repaired(folder: Path) -> list[str]:
    """What was dropped; afterwards the folder is sound."""
    found = plan(folder)
    assert found.dropped
    repair(found)
    report = inspect(folder)
    assert (report.problems, report.spared) == ([], []) and plan(folder).dropped == []
    return found.dropped


def test_epochs_of_before_the_newest_snapshot(tmp_path: Path) -> None:
    filled(tmp_path)
    damaged_at(tmp_path, 25)
    dropped = repaired(tmp_path)
    assert "of the source 't', what came after epoch 15 (up to 26)" in dropped and not any("not known" in line for line in dropped)
    log = Log(tmp_path)
    assert log.last_version == 24 and sources(log) == {"s": (24, 24), "t": (15, 15), "u": (12, 12)}
    log.close()


def test_an_epoch_that_is_not_in_the_log_any_more(tmp_path: Path) -> None:
    filled(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute("DELETE FROM log WHERE version <= 15")  # as if the older snapshot were of version 15
    damaged_at(tmp_path, 26)
    assert "the source 't': which epochs before 26 it has sent is no longer known" in plan(tmp_path).dropped


def test_both_generations_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A snapshot that is damaged after the repair loses nothing either."""
    with_two(tmp_path)
    damaged_at(tmp_path, 6)
    repaired(tmp_path)
    (newest,) = [path for path in snapshot_paths(tmp_path)[0] if path.name == "4"]
    flip(newest / "0.arrow")
    engine = opened(tmp_path)
    assert engine.published.number == 5 and len(ids(open_relation_rows(engine.readers, "a"))) == 3 * 4 + 4
    assert "Nothing is lost: that of version 2" in caplog.text
    engine.close()


def test_snapshots_in_the_place_of_others(tmp_path: Path) -> None:
    """A copy of the older one in the place of the newer one is left out; two that have changed places are named, and nothing is touched."""
    for case in ("copied", "swapped"):
        folder = tmp_path / case
        rows = with_two(folder)
        older, newer = (folder / "snapshots" / name for name in ("2", "4"))
        if case == "copied":
            shutil.rmtree(newer)
            shutil.copytree(older, newer)
            assert repaired(folder) == ["the snapshot of version 4: the manifest is of version 2 in manifest.json"]
            engine = opened(folder)
            assert engine.published.number == 6 and ids(open_relation_rows(engine.readers, "a")) == rows
            engine.close()
        else:
            older.rename(folder / "older")
            newer.rename(older)
            (folder / "older").rename(newer)
            assert "the manifest is of version" in str(inspect(folder).problems + inspect(folder).spared)
            with pytest.raises(DamagedFolder, match="neither in the log nor in a whole snapshot"):
                plan(folder)
            with pytest.raises(DamagedFolder, match="the manifest is of version"):
                opened(folder)


def test_damage_that_only_the_older_snapshot_stands_on(tmp_path: Path) -> None:
    filled(tmp_path)
    damaged_at(tmp_path, 13, 14)
    (dropped,) = repaired(tmp_path)
    assert dropped == "version 13 of the log, and 1 more, which the snapshot of version 20 has: wrong checksum of version 13"
    log = Log(tmp_path)
    assert log.last_version == 30 and log.forgotten == 14 and [row.version for row in log.replay(14)] == [*range(15, 31)]
    assert sources(log) == {"s": (30, 30), "t": (26, 26), "u": (12, 12)}
    log.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_recent_changes_of_a_view(tmp_path: Path, is_there: bool) -> None:
    with_two(tmp_path)
    (path,) = tmp_path.glob("snapshots/4/view-*.arrow")
    flip(path) if is_there else path.unlink()
    assert inspect(tmp_path).spared[0].where == path
    (dropped,) = repaired(tmp_path)
    assert path.name in dropped and "its followers start again" in dropped and not path.exists()
    engine = opened(tmp_path)
    assert engine.published.number == 6
    engine.close()


def without_links(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, "no links here")

    monkeypatch.setattr("service.durability.files.os.link", refuse)


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    damaged_at(tmp_path, 25)
    before = (tmp_path / DATABASE).read_bytes()
    without_links(monkeypatch, errno.EPERM)
    repaired(tmp_path)
    (aside,) = tmp_path.glob("damaged-*")
    assert (aside / DATABASE).read_bytes() == before and (aside / DATABASE).stat().st_mode & 0o777 == 0o600


def test_a_disk_that_is_full_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of the repair, and the folder is as it was."""
    filled(tmp_path)
    damaged_at(tmp_path, 25)
    found, before = plan(tmp_path), {path: path.stat().st_size for path in tmp_path.rglob("*")}
    with monkeypatch.context() as patch:
        without_links(patch, errno.ENOSPC)
        with pytest.raises(OSError, match="no links here"):
            repair(found)
    assert {path: path.stat().st_size for path in tmp_path.rglob("*")} == before
    repaired(tmp_path)


def test_without_any_snapshot(tmp_path: Path) -> None:
    filled(tmp_path)
    for version in (10, 20):
        flip(tmp_path / "snapshots" / str(version) / "manifest.json")
    with pytest.raises(DamagedFolder, match="versions 1 to 10 are neither in the log nor in a whole snapshot"):
        plan(tmp_path)
