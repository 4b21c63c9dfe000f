"""`livejoin repair`: damaged parts are named and dropped after a confirmation; the rest is served again."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end import talk
from tests.end_to_end.test_backups import CHANGES, token_of
from tests.end_to_end.test_folder import (
    copy,
    expect,
    fill,
    flip,
    flip_row_in_the_log,
    folder,
    lose_a_version,
    lose_the_database,
    lose_the_snapshot,
    tear_the_database,
    tear_the_log,
)
from tests.forked import finished
from tests.server_process import ROOT, NotStarted, ServerProcess

assert folder  # the fixture: a snapshot of version 20, and ten batches behind it


def livejoin(status: int, *arguments: str | Path) -> str:
    found, emitted = finished([str(argument) for argument in arguments])
    assert found == status and "Traceback" not in emitted, emitted
    return emitted


def sources(server: ServerProcess) -> dict[str, int]:
    return {one["name"]: one["epoch"] for one in talk.ok(server.client().get("/v1/sources"))["sources"]}


@contextmanager
def repaired(data: Path, *words: str) -> Iterator[ServerProcess]:
    before = {path.relative_to(data): path.read_bytes() for path in data.rglob("*") if path.is_file()}
    emitted = livejoin(0, "repair", data, "--yes")
    assert all(word in emitted for word in words), emitted
    assert ("each source must resend" in emitted) == ("drop       version" in emitted), "only what was dropped"
    (aside,) = data.glob("damaged-*")
    assert all((aside / name).read_bytes() == before[Path(name)] for name in os.listdir(aside) if (aside / name).is_file())
    assert livejoin(0, "check", data).splitlines()[-1].startswith("verdict    sound")
    assert "nothing to repair" in livejoin(0, "repair", data)
    with ServerProcess(data) as server:
        assert talk.ok(server.client().get("/v1/status"))["timeline"] > 1
        yield server


@pytest.mark.parametrize("damage", [flip_row_in_the_log, tear_the_log])
def test_a_damaged_end_of_the_log(folder: Path, tmp_path: Path, damage: Callable[[Path], Path]) -> None:
    data = copy(folder, tmp_path / "data")
    damage(data)
    with repaired(data, "drop       version") as server:
        last = talk.ok(server.client().get("/v1/status"))["version"]
        assert 20 <= last < 30
        expect(server.client(), last)
        if last > 20:
            assert sources(server) == {"s": last}
        fill(server.client(), last + 1, 33)  # what was dropped is sent again, and is no duplicate
        expect(server.client(), 33)


def test_a_gap(folder: Path, tmp_path: Path) -> None:
    """Tokens of versions that are kept stay valid, those of dropped versions expire permanently."""
    data = copy(folder, tmp_path / "data")
    with ServerProcess(data) as server:
        follow = server.client().get(CHANGES, params={"snapshot": "true", "wait": 0})
        lost = json.loads(follow.text.splitlines()[-1])["token"]
    lose_a_version(data)
    words = "versions 25 to 30, the last 6 batches: version 25 is missing", "of the source 's', what came after epoch 24"
    with repaired(data, *words) as server:
        expect(server.client(), 24)
        assert sources(server) == {"s": 24}
        kept = token_of(server.client())
        talk.problem(server.client().get(CHANGES, params={"since": lost, "wait": 0}), 410, "token-expired")
        answer = talk.ok(talk.send(server.client(), [], source="s", epoch=25))
        assert not answer["duplicate"]
        fill(server.client(), 26, 31)
        talk.problem(server.client().get(CHANGES, params={"since": lost, "wait": 0}), 410, "token-expired")
        talk.ok_status(server.client().get(CHANGES, params={"since": kept, "wait": 0}))


def test_damage_of_the_catalogue(folder: Path, tmp_path: Path) -> None:
    """Only the view and the sealing key are dropped."""
    data = copy(folder, tmp_path / "data")
    db = sqlite3.connect(data / "livejoin.db", isolation_level=None)
    db.execute("UPDATE views SET definition = replace(definition, 'SELECT', 'SELECt')")
    db.execute("UPDATE meta SET value = zeroblob(32) WHERE name = 'secret'")
    db.close()
    with repaired(data, "the view 'neighbours'", "all tokens of followers") as server:
        assert talk.ok(server.client().get("/v1/views"))["views"] == []
        assert talk.ok(server.client().get("/v1/relations/items"))["rows"] == 30


def test_damaged_tokens_leave_the_service_closed(folder: Path, tmp_path: Path) -> None:
    data = copy(folder, tmp_path / "data")
    livejoin(0, "token", "create", "boss", "--scope", "admin", "--data", data)
    flip(data / "livejoin.tokens", b"boss")
    emitted = livejoin(0, "repair", data, "--yes")
    assert "access tokens" in emitted
    with ServerProcess(data) as server:
        talk.problem(server.client().get("/v1/status"), 401, "unauthorized")


@pytest.mark.parametrize("damage", [lose_the_database, lose_the_snapshot, tear_the_database])
def test_what_cannot_be_repaired(folder: Path, tmp_path: Path, damage: Callable[[Path], Path]) -> None:
    data = copy(folder, tmp_path / "data")
    damage(data)
    before = sorted(path for path in data.rglob("*") if path.name != "livejoin.lock")
    emitted = livejoin(1, "repair", data, "--yes")
    assert "cannot be repaired" in emitted and "restore" in emitted
    assert sorted(path for path in data.rglob("*") if path.name != "livejoin.lock") == before


def test_it_asks_first(folder: Path, tmp_path: Path) -> None:
    data = copy(folder, tmp_path / "data")
    lose_a_version(data)
    before = sorted(data.rglob("*"))
    assert "--yes" in livejoin(2, "repair", data)
    for answer, status in ((b"\n", 1), (b"no\n", 1), (b"y\n", 0)):
        assert sorted(data.rglob("*")) == before
        master, terminal = pty.openpty()
        command = [sys.executable, "-m", "service.cli", "repair", str(data)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        os.write(master, answer)
        emitted = process.communicate(timeout=60)[0].decode()
        os.close(terminal)
        os.close(master)
        assert process.returncode == status and "Drop this? [y/N]" in emitted, emitted
    assert "nothing to repair" in livejoin(0, "repair", data)


def test_killed_in_the_middle(folder: Path, tmp_path: Path) -> None:
    """When repeated, the repair keeps what it would have kept; until then, no service starts on the partial result. At least one version is
    in the WAL of SQLite's database, which is the first thing to be removed."""
    finished_ones = 0
    for number in range(1, 20):
        data = copy(folder, tmp_path / str(number))
        lose_a_version(data)
        flip(data / "snapshots" / "10" / "manifest.json", b"version")
        status, emitted = finished(["repair", str(data), "--yes"], {"LIVEJOIN_FAILPOINT": f"in-repair:{number}"})
        if status == 0:
            break
        assert status == -9, emitted
        with pytest.raises(NotStarted) as caught, ServerProcess(data):
            pass
        if (data / "repaired").exists():
            assert "an interrupted repair" in caught.value.errors and "livejoin repair" in caught.value.errors
            assert "an interrupted repair" in livejoin(1, "check", data)
        emitted = livejoin(0, "repair", data, "--yes")
        finished_ones += "finished   a repair" in emitted
        assert livejoin(0, "check", data).splitlines()[-1].startswith("verdict    sound: everything can be recovered: version 24")
        with ServerProcess(data) as server:
            expect(server.client(), 24)
            assert talk.ok(server.client().get("/v1/status"))["timeline"] > 1 and sources(server) == {"s": 24}
    assert number > 4 and finished_ones == 3, (number, finished_ones)
