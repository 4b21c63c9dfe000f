"""The verdict on a folder: nothing is called sound that is not, and nothing damaged that is."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from service.backups.repairing import plan
from service.checking.inspection import inspect
from service.durability.checksums import checksum
from service.durability.database import FORMAT, WrongFormat
from service.durability.folder import DATABASE
from service.durability.snapshots import snapshot_paths
from tests.service.backups.test_repairing import damaged_at, filled


def test_a_batch_between_the_two_snapshots(tmp_path: Path) -> None:
    """It costs nothing as long as the newest snapshot is whole; the older one would need it."""
    filled(tmp_path)
    assert (inspect(tmp_path).problems, inspect(tmp_path).spared) == ([], [])
    damaged_at(tmp_path, 13)
    report = inspect(tmp_path)
    assert report.problems == [] and report.recoverable == report.last_version == 30
    (spared,) = report.spared
    assert spared.what == "wrong checksum of version 13" and "the snapshot of version 20 has everything" in spared.remedy


def test_a_kill_while_an_old_snapshot_is_removed(tmp_path: Path) -> None:
    """What is left of it is no damage."""
    filled(tmp_path)
    program = f"""
import os, shutil, signal
from pathlib import Path
from service.durability import snapshots
from tests.service.durability.test_snapshots import write

def half(path, **_):
    if not Path(path).exists():
        return
    next(iter(sorted(Path(path).iterdir()))).unlink()
    os.kill(os.getpid(), signal.SIGKILL)

for version in (29, 30):
    if version == 30:
        snapshots.shutil.rmtree = half
    write(Path({str(tmp_path)!r}), version)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == -signal.SIGKILL
    finished, unfinished = snapshot_paths(tmp_path)
    assert [path.name for path in (*finished, *unfinished)] == ["29", "30", "20.tmp"]
    report = inspect(tmp_path)
    assert (report.problems, report.spared) == ([], []) and plan(tmp_path).dropped == []


def test_a_snapshot_from_which_the_log_does_not_go_on(tmp_path: Path) -> None:
    """What an earlier release has left of one."""
    filled(tmp_path)
    shutil.copytree(tmp_path / "snapshots" / "10", tmp_path / "snapshots" / "9")
    (tmp_path / "snapshots" / "9" / "manifest.json").unlink()
    report = inspect(tmp_path)
    assert (report.problems, report.spared) == ([], []) and plan(tmp_path).dropped == []


def test_a_newer_format_is_no_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = ?, crc = ? WHERE name = 'format'", (FORMAT + 1, checksum("format", FORMAT + 1)))
    with pytest.raises(WrongFormat, match=f"has format {FORMAT + 1}, and this version of livejoin reads format {FORMAT} only"):
        inspect(tmp_path)
