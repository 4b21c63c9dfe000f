"""A backup whose disk fills up."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from service.backups import making
from service.errors import Problem
from tests.service.running import batch, rows_of, running


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
            assert engine.backups._thread is not None
            engine.backups._thread.join()
            state = engine.backups.state()
            assert state["state"] == "failed" and "full" in state["problem"], state
            assert not any(mount.iterdir()), "what was written has been removed"
            assert engine.apply(batch(("upsert", "a", rows_of(50_000, 10)))).version == 2
            engine.backups.start(tmp_path / "backup", None)
            engine.backups._thread.join()
            assert engine.backups.state()["version"] == 2
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)
