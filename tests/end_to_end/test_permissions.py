"""Only the owner can access the data folder, whatever the umask, also if an older version has written it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end import talk
from tests.end_to_end.bookings import EVERYTHING
from tests.modes_of_files import exposed
from tests.server_process import ServerProcess


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_a_new_folder(tmp_path: Path, umask: int) -> None:
    """While the service runs, with a log and its WAL; after a clean end, with a snapshot; and after another start."""
    server = ServerProcess(tmp_path / "above" / "data", before=partial(os.umask, umask), log=tmp_path / "log")
    for life in range(2):
        with server:
            client = server.client()
            talk.define(client, "things", EVERYTHING)
            talk.ok(talk.send(client, [{"relation": "things", "row": {"k": life}}]))
            assert (server.data / "livejoin.db-wal").exists() and (server.data / "snapshots").exists() == bool(life)
            assert exposed(server.data) == []
            assert server.stop() == 0
        assert list(server.data.glob("snapshots/*/*.arrow")) and exposed(server.data) == []


def test_an_older_folder(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        talk.define(server.client(), "things", EVERYTHING)
        talk.ok(talk.send(server.client(), [{"relation": "things", "row": {"k": 1}}]))
        assert server.stop() == 0
    folder = server.data
    (folder / "notes.txt").write_text("what livejoin did not write is not its to change")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with ServerProcess(folder):
        assert exposed(folder) == ["notes.txt: 644"]


def test_a_folder_that_everybody_shares_stays_open(tmp_path: Path) -> None:
    """`--data /tmp`, used by root, must not lock out all other users."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o1777)
    with ServerProcess(folder):
        assert exposed(folder) == [".: 777"]
