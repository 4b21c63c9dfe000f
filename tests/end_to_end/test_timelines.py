"""Losing versions begins a new timeline, however they were lost: a token of a lost version never continues with what replaced it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.end_to_end import talk
from tests.end_to_end.test_backups import CHANGES, backup, livejoin, token_of
from tests.end_to_end.test_folder import DEFINITION, SQL, copy, expect, fill, folder, item, tear_the_log
from tests.faults import patches
from tests.faults.shim import FaultyDisk
from tests.server_process import NotStarted, ServerProcess

assert folder  # the fixture: a snapshot of version 20, and ten batches behind it


def require_expired(client: httpx.Client, token: str) -> None:
    talk.problem(client.get(CHANGES, params={"since": token, "wait": 0}), 410, "token-expired")


def test_a_mark_that_was_removed(folder: Path, tmp_path: Path) -> None:
    """The mark is removed as the message suggests, to continue without the lost versions: backups and tokens that include them are not
    valid in the new timeline."""
    data = copy(folder, tmp_path / "data")
    with ServerProcess(data) as server:
        lost = token_of(server.client())
        backup(server, tmp_path / "backup")
    tear_the_log(data)
    with pytest.raises(NotStarted) as caught, ServerProcess(data):
        pass
    assert f"remove {data / 'livejoin.mark'}" in caught.value.errors
    (data / "livejoin.mark").unlink()
    with ServerProcess(data) as server:
        client = server.client()
        status = talk.ok(client.get("/v1/status"))
        assert status["timeline"] > 1 and 20 <= status["version"] < 30
        expect(client, status["version"])
        require_expired(client, lost)
        fill(client, status["version"] + 1, 33)
        require_expired(client, lost)
        emitted = backup(server, tmp_path / "later", "--since", tmp_path / "backup", status=1)
        assert "has versions that are no longer part of the data folder" in emitted


def test_two_restorations_of_one_backup(folder: Path, tmp_path: Path) -> None:
    """Their histories differ from then on, so a token of one is not valid for the other."""
    with ServerProcess(copy(folder, tmp_path / "data")) as server:
        backup(server, tmp_path / "backup")
    tokens = []
    for name in ("first", "second"):
        livejoin(0, "restore", tmp_path / "backup", tmp_path / name)
        with ServerProcess(tmp_path / name) as server:
            fill(server.client(), 31, 33)
            tokens.append(token_of(server.client()))
            if name == "second":
                require_expired(server.client(), tokens[0])


@pytest.mark.parametrize("before", ["normal", "full"])
def test_a_power_cut_under_normal(tmp_path: Path, before: str) -> None:
    """After a start on a folder whose mark said that everything was on disk."""
    disk = FaultyDisk(tmp_path / "disk")
    normal, boot = {"LIVEJOIN_SYNCHRONOUS": "normal"}, patches.another_boot
    with disk.server(boot, environment={"LIVEJOIN_SYNCHRONOUS": before}) as server:
        client = server.client()
        talk.define(client, "items", DEFINITION)
        talk.view(client, "neighbours", SQL)
        fill(client, 1, 5)
        assert before == "full" or server.stop() == 0
    with disk.server(boot, environment=normal) as server:
        fill(server.client(), 6, 29)
        lost = token_of(server.client())
    disk.cut_power(None)
    with disk.server(boot, environment=normal) as server:
        client = server.client()
        status = talk.ok(client.get("/v1/status"))
        assert 5 <= status["version"] < 29 and status["timeline"] > 1, status
        for number in range(status["version"] + 1, 30):
            talk.ok(talk.send(client, [item(100 + number)]))
        require_expired(client, lost)
