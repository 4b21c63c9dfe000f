"""Backup, restore and repair as an operator uses them: with the commands, on a real service that continues to write."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from livejoin.commands import backup as command
from service.backups import making
from tests.end_to_end import talk
from tests.end_to_end.test_folder import DEFINITION, SQL, fill, item
from tests.forked import finished
from tests.server_process import NotStarted, ServerProcess


def livejoin(status: int, *arguments: str | Path, **environment: str) -> str:
    found, emitted = finished([str(argument) for argument in arguments], environment)
    assert found == status and "Traceback" not in emitted, emitted
    return emitted


def backup(server: ServerProcess, target: Path | str, *more: str | Path, status: int = 0) -> str:
    return livejoin(status, "backup", target, *more, "--url", server.url)


def rows_of(client: httpx.Client) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    items = [json.loads(line) for line in client.get("/v1/relations/items/rows").text.splitlines()]
    return sorted((row["id"], row["a"]) for row in items), sorted(talk.read(client, "neighbours", talk.JSONL, ["x_id", "y_id"]))


def expect(client: httpx.Client, last: int) -> None:
    rows, pairs = rows_of(client)
    assert [id_ for id_, _ in rows] == list(range(1, last + 1))
    assert pairs == [(number, number + 1) for number in range(1, last)]


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a snapshot of version 20, and ten later batches."""
    with ServerProcess(tmp_path / "data") as server:
        talk.define(server.client(), "items", DEFINITION)
        talk.view(server.client(), "neighbours", SQL)
        fill(server.client(), 1, 20)
        assert server.stop() == 0
        server.start()
        fill(server.client(), 21, 30)
        yield server


CHANGES, ROWS = "/v1/views/neighbours/changes", "/v1/views/neighbours/rows"


def token_of(client: httpx.Client) -> str:
    """Return a token of the newest version."""
    return str(json.loads(client.get(CHANGES, params={"wait": 0}).text.splitlines()[-1])["token"])


def test_a_backup_and_its_restoration(server: ServerProcess, tmp_path: Path) -> None:
    client = server.client()
    assert talk.ok(client.get("/v1/backup")) == {"state": "none"}
    kept = token_of(client)
    emitted = backup(server, tmp_path / "backup")
    assert emitted.startswith("backup     ") and "version 30" in emitted and emitted.count("\n") == 1
    state = talk.ok(client.get("/v1/backup"))
    assert state["id"] == json.loads((tmp_path / "backup" / "backup.json").read_text())["id"]
    assert state["state"] == "done" and state["version"] == 30 and state["progress"] == 1.0
    fill(client, 31, 35)
    expect(client, 35)
    lost = token_of(client)
    cursor = talk.ok(client.get(ROWS, params={"limit": 1}, headers={"Accept": talk.JSON}))["next"]
    assert modes(tmp_path / "backup") == {0o600} and (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
    assert "verdict    sound" in livejoin(0, "check", tmp_path / "backup").splitlines()[-1]
    emitted = livejoin(0, "restore", tmp_path / "backup", tmp_path / "restored")
    for line in (f"restored   {tmp_path / 'restored'}, version 30", "relation   items", "view       neighbours", "source     s, epoch 30"):
        assert line in emitted, emitted
    before = talk.ok(client.get("/v1/status"))["timeline"]
    assert server.stop() == 0
    with ServerProcess(tmp_path / "restored") as restored:
        status = talk.ok(restored.client().get("/v1/status"))
        assert before == 1 and status["timeline"] > 1 and status["version"] == 30
        expect(restored.client(), 30)
        follow = {"since": kept, "wait": 0}
        assert talk.ok_status(restored.client().get(CHANGES, params=follow)) is None
        for last in (33, 36):  # also when versions with these numbers exist again
            talk.problem(restored.client().get(CHANGES, params={"since": lost, "wait": 0}), 410, "token-expired")
            fill(restored.client(), last - 2, last)
        talk.problem(restored.client().get(ROWS, params={"cursor": cursor}), 410, "snapshot-expired")
        emitted = restored.client().get(CHANGES, params=follow).text.splitlines()
        assert {json.loads(line)["version"] for line in emitted} == set(range(31, 37)), "each version, from the fork on"
        expect(restored.client(), 36)
        assert restored.stop() == 0
    assert livejoin(0, "check", tmp_path / "restored").splitlines()[-1].startswith("verdict    sound")
    livejoin(0, "check", tmp_path / "backup")  # it contains nothing of the restored folder


def test_a_chain(server: ServerProcess, tmp_path: Path) -> None:
    """Two increments after a full backup: one with only the log, and one with the changed files too, after a restart has written a
    snapshot."""
    client, position = server.client(), tmp_path / "backups"
    talk.define(client, "fixed", DEFINITION)
    many = [{"relation": "fixed", "op": "upsert", "row": {"id": n, "text": "x" * 500, "a": 0, "b": 1}} for n in range(2000)]
    talk.ok(talk.send(client, many))
    assert server.stop() == 0
    server.start()
    position.mkdir()
    client = server.client()
    backup(server, position / "monday")
    fill(client, 31, 40)
    backup(server, position / "tuesday", "--since", position / "monday")
    fill(client, 41, 45)
    assert server.stop() == 0
    server.start()
    client = server.client()
    fill(client, 46, 50)
    backup(server, position / "wednesday", "--since", position / "tuesday")
    sizes = [
        sum(path.stat().st_size for path in (position / day).rglob("*") if path.is_file()) for day in ("monday", "tuesday", "wednesday")
    ]
    assert max(sizes[1:]) < sizes[0] / 4, sizes  # unchanged files are not copied again
    assert not any((position / "tuesday" / "snapshots").iterdir())
    for day, last in (("monday", 30), ("tuesday", 40), ("wednesday", 50)):
        assert "2 views" not in livejoin(0, "check", position / day)
        livejoin(0, "restore", position / day, tmp_path / day)
        with ServerProcess(tmp_path / day) as restored:
            expect(restored.client(), last)
            assert talk.ok(restored.client().get("/v1/relations/fixed"))["rows"] == 2000
    (position / "monday").rename(position / "the first one")  # the backup is found by its id
    livejoin(0, "restore", position / "wednesday", tmp_path / "again")
    (position / "tuesday").rename(tmp_path / "elsewhere")
    emitted = livejoin(1, "restore", position / "wednesday", tmp_path / "not")
    assert str(position / "tuesday") in emitted and not (tmp_path / "not").exists()


def test_what_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    client = server.client()
    backup(server, tmp_path / "whole")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for target, words in (
        ("relative/path", "absolute"), (tmp_path / "there", "empty"), (tmp_path / "there" / "file", "empty"), (tmp_path / "whole", "empty"),
        (server.data / "inside", "outside"), (server.data, "outside"), (tmp_path / "no" / "such", "does not exist"),
    ):  # fmt: skip
        problem = talk.problem(client.post("/v1/backup", json={"target": str(target)}), 400, "bad-parameter")
        assert words in problem["detail"], problem
        assert words in backup(server, Path(target), status=1)
    for body in ({}, {"target": 1}, {"target": ""}, {"target": "/x", "to": 1}, {"target": "/a\0b"}, {"target": "/x", "since": 3}):
        talk.problem(client.post("/v1/backup", json=body), 400, "bad-parameter")
    for since in (tmp_path / "there", tmp_path / "nothing", "whole"):
        problem = talk.problem(client.post("/v1/backup", json={"target": str(tmp_path / "new"), "since": str(since)}), 400, "bad-parameter")
        assert "since" in problem["detail"]
    with ServerProcess(tmp_path / "other") as other:
        answer = other.client().post("/v1/backup", json={"target": str(tmp_path / "new"), "since": str(tmp_path / "whole")})
        assert "another data folder" in talk.problem(answer, 400, "bad-parameter")["detail"]
    for folder in (tmp_path / "there", server.data, tmp_path / "no" / "such"):  # a failure, as of a backup into such a folder
        livejoin(1, "restore", tmp_path / "whole", folder)
    livejoin(1, "restore", tmp_path / "there", tmp_path / "new")
    assert sorted(path for path in tmp_path.rglob("*") if "other" not in str(path)) == before
    with pytest.raises(NotStarted) as caught, ServerProcess(tmp_path / "whole"):
        pass
    assert "livejoin restore" in caught.value.errors


@pytest.mark.parametrize("path", ["{}/monday/", "{}//monday", "{}/./monday/."])
def test_a_path_written_otherwise(server: ServerProcess, tmp_path: Path, path: str) -> None:
    assert "version 30" in backup(server, path.format(tmp_path))
    assert (tmp_path / "monday" / "backup.json").exists()


def test_a_backup_is_not_written_to(server: ServerProcess, tmp_path: Path) -> None:
    """A backup is given as the data folder to each command."""
    copied, secret = tmp_path / "backup", tmp_path / "secret"
    livejoin(0, "token", "create", "boss", "--scope", "admin", "--data", server.data)
    emitted = livejoin(0, "token", "create", "other", "--scope", "admin", "--data", server.data)
    secret.write_text("lj_" + "x" * 40)
    livejoin(0, "backup", copied, "--url", server.url, LIVEJOIN_TOKEN=next(word for word in emitted.split() if word.startswith("lj_")))
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with pytest.raises(NotStarted) as caught, ServerProcess(copied, arguments=["--admin-token-file", str(secret)]):
        pass
    assert "this is a backup" in caught.value.errors and "livejoin restore" in caught.value.errors
    for words in (
        ["token", "create", "third", "--scope", "read", "--data"], ["token", "revoke", "boss", "--data"], ["token", "disable", "--data"],
        ["repair", "--yes"],
    ):  # fmt: skip
        assert "this is a backup" in livejoin(1, *words, copied)
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
    livejoin(0, "restore", copied, tmp_path / "restored")


def slowly() -> None:
    """In the server: computing a checksum takes until the service ends."""

    def forever(path: Path, look: Callable[[int], None]) -> None:
        while True:
            look(0)
            time.sleep(0.01)

    vars(making)["digest"] = forever


def test_a_stop_meanwhile(tmp_path: Path) -> None:
    """The stop is clean and without delay; nothing is left of the backup."""
    with ServerProcess(tmp_path / "data", before=slowly) as server:
        client = server.client()
        talk.define(client, "items", DEFINITION)
        fill(client, 1, 10)
        assert client.post("/v1/backup", json={"target": str(tmp_path / "backup")}).status_code == 202
        assert talk.ok(client.get("/v1/backup"))["state"] == "running"
        assert server.stop() == 0
        assert "was stopped before the backup was complete" in server.output()
    assert not (tmp_path / "backup").exists()
    assert livejoin(0, "check", tmp_path / "data").splitlines()[-1].startswith("verdict    sound")


def test_what_the_service_tells_of_another_one() -> None:
    mine = {"id": "1", "state": "done"}
    assert command._of("1", {**mine, "previous": {"id": "0", "state": "done"}})["state"] == "done"
    assert command._of("1", {"id": "2", "state": "running", "previous": mine}) == mine
    assert "restarted" in command._of("1", {"state": "none"})["problem"]
    assert "livejoin check" in command._of("1", {"id": "3", "state": "done", "previous": {"id": "2", "state": "done"}})["problem"]


def test_damaged_and_unfinished_backups_are_refused(server: ServerProcess, tmp_path: Path) -> None:
    backup(server, tmp_path / "whole")
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file()]
    assert len(files) >= 4
    for number, file in enumerate(files):
        copy = tmp_path / f"copy {number}"
        shutil.copytree(tmp_path / "whole", copy)
        data = bytearray((copy / file).read_bytes())
        data[len(data) // 2] ^= 1
        (copy / file).write_bytes(data)
        for words in (["restore", copy, tmp_path / "new"], ["check", copy]):
            assert str(copy / file) in livejoin(1, *words), file
    assert not (tmp_path / "new").exists()


def test_a_kill_in_the_middle(tmp_path: Path) -> None:
    """The data folder is intact, and the partial backup is marked as unfinished. The same holds for a restoration."""
    with ServerProcess(tmp_path / "data", environment={"LIVEJOIN_FAILPOINT": "in-backup"}) as server:
        client = server.client()
        talk.define(client, "items", DEFINITION)
        talk.view(client, "neighbours", SQL)
        fill(client, 1, 10)
        client.post("/v1/backup", json={"target": str(tmp_path / "backup")})
        assert server.wait() < 0
    with ServerProcess(tmp_path / "data") as server:
        expect(server.client(), 10)
        assert "unfinished" in livejoin(1, "restore", tmp_path / "backup", tmp_path / "restored")
        assert "unfinished" in livejoin(1, "check", tmp_path / "backup")
        backup(server, tmp_path / "second")
        assert server.stop() == 0
        server.start()
        backup(server, tmp_path / "third")
    status, _ = finished(
        ["restore", str(tmp_path / "third"), str(tmp_path / "restored")], {"LIVEJOIN_FAILPOINT": "in-restore"}
    )
    assert status < 0
    with pytest.raises(NotStarted), ServerProcess(tmp_path / "restored"):
        pass


def test_while_batches_come(server: ServerProcess, tmp_path: Path) -> None:
    """Each backup has exactly one version: everything that was acknowledged before it began, and no partial batch."""
    stop, sent = threading.Event(), [30]

    def write() -> None:
        client = server.client()
        while not stop.is_set():
            first = sent[0] + 1
            rows = [item(number) for number in range(first, first + 50)]
            talk.ok(talk.send(client, rows, source="s", epoch=first))
            sent[0] += 50

    writer = threading.Thread(target=write)
    writer.start()
    try:
        least = []
        for number in range(3):
            least.append(sent[0])
            more = [] if number == 0 else ["--since", tmp_path / f"backup {number - 1}"]
            backup(server, tmp_path / f"backup {number}", *more)
    finally:
        stop.set()
        writer.join()
    for number in range(3):
        livejoin(0, "restore", tmp_path / f"backup {number}", tmp_path / f"restored {number}")
        with ServerProcess(tmp_path / f"restored {number}") as restored:
            last = talk.ok(restored.client().get("/v1/relations/items"))["rows"]
            assert last >= least[number] and (last - 30) % 50 == 0
            expect(restored.client(), last)
            again = talk.ok(talk.send(restored.client(), [item(1)], source="s", epoch=last - 49))
            assert again["duplicate"], "the epochs are those of the version"


def test_in_token_mode(server: ServerProcess, tmp_path: Path) -> None:
    """The restored folder is in token mode too, with the same tokens; only an admin may make a backup."""
    texts = {}
    for name, scope in (("boss", "admin"), ("etl", "write")):
        emitted = livejoin(0, "token", "create", name, "--scope", scope, "--data", server.data)
        texts[name] = next(word for word in emitted.split() if word.startswith("lj_"))
    asked = {name: {"Authorization": f"Bearer {text}"} for name, text in texts.items()}
    client = server.client()
    talk.problem(client.get("/v1/backup"), 401, "unauthorized")
    talk.problem(client.get("/v1/backup", headers=asked["etl"]), 403, "forbidden")
    body = {"target": str(tmp_path / "backup")}
    talk.problem(client.post("/v1/backup", json=body, headers=asked["etl"]), 403, "forbidden")
    livejoin(0, "backup", tmp_path / "backup", "--url", server.url, LIVEJOIN_TOKEN=texts["boss"])
    assert "backup" in (server.data / "livejoin.audit").read_text()
    assert texts["boss"] not in "".join(path.read_text(errors="replace") for path in (tmp_path / "backup").rglob("*") if path.is_file())
    livejoin(0, "restore", tmp_path / "backup", tmp_path / "restored")
    with ServerProcess(tmp_path / "restored") as restored:
        talk.problem(restored.client().get("/v1/status"), 401, "unauthorized")
        talk.ok(restored.client().get("/v1/status", headers=asked["etl"]))


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="a file system of our own needs root")
def test_the_disk_of_the_target_fills_up(server: ServerProcess, tmp_path: Path) -> None:
    """The backup is refused before anything is written, or fails afterwards; the service continues in either case."""
    import subprocess

    client, mount = server.client(), tmp_path / "small"
    mount.mkdir()
    many = [item(number, "x" * 1000) for number in range(31, 6000)]
    talk.ok(talk.send(client, many))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "livejoin-test", str(mount)], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        (mount / "filler").write_bytes(bytes(30 << 20))
        talk.problem(client.post("/v1/backup", json={"target": str(mount / "backup")}), 503, "disk-full")
        assert not (mount / "backup").exists()
        expect(client, 5999)
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_damaged_snapshot_is_left_out(server: ServerProcess, tmp_path: Path) -> None:
    """Damage is not copied silently: the log has the rows, as far back as the older generation."""
    snapshot = max((server.data / "snapshots").glob("*/[0-9]*.arrow"), key=lambda path: int(path.parent.name))
    data = snapshot.read_bytes()
    with open(snapshot, "r+b") as file:
        file.seek(data.rindex(b"some words to find again"))
        file.write(b"S")
    backup(server, tmp_path / "backup")
    assert not list((tmp_path / "backup").glob(f"snapshots/{snapshot.parent.name}/*"))
    assert "is left out of the backup" in server.output()
    livejoin(0, "restore", tmp_path / "backup", tmp_path / "restored")
    with ServerProcess(tmp_path / "restored") as restored:
        expect(restored.client(), 30)
