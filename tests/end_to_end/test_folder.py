"""Problems with the data folder: damaged, in use by another service, on a full disk, or not writable."""
from __future__ import annotations

import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.end_to_end import talk
from tests.forked import finished
from tests.server_process import ROOT, NotStarted, ServerProcess

DEFINITION = {
    "columns": [{"name": name, "type": kind} for name, kind in (("id", "int64"), ("text", "string"), ("a", "int64"), ("b", "int64"))],
    "key": ["id"],
    "intervals": {"span": {"start": "a", "end": "b"}},
}
SQL = "SELECT x.id AS x_id, y.id AS y_id FROM items x JOIN items y ON overlaps(x.span, y.span) AND x.id < y.id"


def item(number: int, text: str = "some words to find again") -> dict[str, object]:
    return {"relation": "items", "op": "upsert", "row": {"id": number, "text": text, "a": number, "b": number + 2}}


def fill(client: httpx.Client, first: int, last: int) -> None:
    for number in range(first, last + 1):
        talk.ok(talk.send(client, [item(number)], source="s", epoch=number))


def expect(client: httpx.Client, last: int) -> None:
    assert talk.ok(client.get("/v1/relations/items"))["rows"] == last
    rows = talk.read(client, "neighbours", talk.JSONL, ["x_id", "y_id"])
    assert sorted(rows) == [(number, number + 1) for number in range(1, last)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with snapshots of versions 10 and 20, a log that begins at the first of them, and ten later batches, left by kill -9."""
    folder = tmp_path_factory.mktemp("folder") / "data"
    with ServerProcess(folder) as server:
        client = server.client()
        talk.define(client, "items", DEFINITION)
        talk.view(client, "neighbours", SQL)
        fill(client, 1, 10)
        assert server.stop() == 0
    with ServerProcess(folder) as server:
        fill(server.client(), 11, 20)
        assert server.stop() == 0
    with ServerProcess(folder) as server:
        client = server.client()
        expect(client, 20)
        fill(client, 21, 30)
        expect(client, 30)
    return folder


def copy(folder: Path, to: Path) -> Path:
    subprocess.run(["cp", "-r", str(folder), str(to)], check=True)
    return to


def livejoin_check(folder: Path, status: int) -> str:
    """Run `livejoin check`; return its output."""
    found, emitted = finished(["check", str(folder)])
    assert found == status and "Traceback" not in emitted, emitted
    return emitted


def flip(path: Path, text: bytes) -> None:
    data = path.read_bytes()
    at = data.rindex(text)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def flip_row_in_the_log(folder: Path) -> Path:
    flip(folder / "livejoin.db-wal", b"some words to find again")
    return folder / "livejoin.db"


def files_of_snapshots(folder: Path) -> list[Path]:
    """Return the files of both generations, the newest last."""
    found = sorted((folder / "snapshots").glob("*/[0-9]*.arrow"), key=lambda path: int(path.parent.name))
    assert len(found) == 2
    return found


def flip_row_in_the_snapshot(folder: Path) -> Path:
    for path in files_of_snapshots(folder):
        flip(path, b"some words to find again")
    return path


def tear_the_log(folder: Path) -> Path:
    path = folder / "livejoin.db-wal"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return folder / "livejoin.db"


def tear_the_database(folder: Path) -> Path:
    path = folder / "livejoin.db"
    path.write_bytes(path.read_bytes()[:5000])
    (folder / "livejoin.db-wal").unlink()
    return path


def lose_the_database(folder: Path) -> Path:
    (folder / "livejoin.db").unlink()
    return folder / "livejoin.db"


def lose_the_snapshot(folder: Path) -> Path:
    subprocess.run(["rm", "-r", str(folder / "snapshots")], check=True)
    return folder / "livejoin.db"


def tear_the_snapshot(folder: Path) -> Path:
    for path in files_of_snapshots(folder):
        path.write_bytes(path.read_bytes()[:-100])
    return path


def lose_a_version(folder: Path) -> Path:
    db = sqlite3.connect(folder / "livejoin.db", isolation_level=None)
    db.execute("DELETE FROM log WHERE version = 25")
    db.close()
    return folder / "livejoin.db"


DAMAGES = [
    flip_row_in_the_log, flip_row_in_the_snapshot, tear_the_log, tear_the_database, lose_the_database, lose_the_snapshot, tear_the_snapshot,
    lose_a_version,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_folder_is_refused_by_name(folder: Path, tmp_path: Path, damage: Callable[[Path], Path]) -> None:
    """No wrong row is ever served: the server ends with status 1 and one line that names the file and what to do."""
    damaged = copy(folder, tmp_path / "data")
    where = damage(damaged)
    before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file() and path.name != "livejoin.lock"}
    if damage not in (flip_row_in_the_log, tear_the_log):  # an intact log may be moved from the WAL into the database
        before = {path: data for path, data in before.items() if "livejoin.db" not in path.name}
    with pytest.raises(NotStarted) as caught, ServerProcess(damaged):
        pass
    assert caught.value.status == 1
    emitted = [line for line in caught.value.errors.splitlines() if str(where) in line]
    assert len(emitted) == 1 and "livejoin" in emitted[0], caught.value.errors
    assert "Traceback" not in caught.value.errors
    assert all(path.exists() and path.read_bytes() == data for path, data in before.items()), "what can be kept is kept"
    emitted = livejoin_check(damaged, 1)
    assert str(where) in emitted and emitted.splitlines()[-1].startswith("verdict    damaged: ")


def test_damage_that_loses_nothing(folder: Path, tmp_path: Path) -> None:
    """One snapshot is damaged, but the other one and the log have everything: the verdict says so before and after a start."""
    data = copy(folder, tmp_path / "data")
    (path,) = data.glob("snapshots/20/[0-9]*.arrow")
    path.write_bytes(path.read_bytes()[:-100])
    emitted = livejoin_check(data, 1)
    every = "everything can be recovered: version 30; 1 view confirmed"
    assert f" in {path}: everything is there without this snapshot" in emitted
    assert emitted.splitlines()[-1].startswith(f"verdict    damaged, but no version is lost: {every}; the service can start"), emitted
    with ServerProcess(data) as server:
        expect(server.client(), 30)
    emitted = livejoin_check(data, 0)
    assert "set aside  20.damaged (found damaged when the service started" in emitted
    assert emitted.splitlines()[-1] == f"verdict    sound: {every}"
    path = next(data.glob("snapshots/10/view-*.arrow"))
    path.write_bytes(path.read_bytes()[:-1])
    emitted = livejoin_check(data, 1)
    assert f"{path}: the tokens of this view's followers are lost" in emitted
    assert emitted.splitlines()[-1].startswith("verdict    damaged, but no version is lost: ")


def test_an_unfinished_snapshot_never_counted(folder: Path, tmp_path: Path) -> None:
    data = copy(folder, tmp_path / "data")
    unfinished = data / "snapshots" / "29.tmp"
    unfinished.mkdir()
    (unfinished / "1.arrow").write_bytes(b"half of a fi")
    with ServerProcess(data) as server:
        expect(server.client(), 30)
        assert not unfinished.exists()


def test_check_of_a_whole_folder(folder: Path, tmp_path: Path) -> None:
    data = copy(folder, tmp_path / "data")
    whole = "everything can be recovered: version 30"
    every, none = "1 view confirmed", "no view was recomputed"
    for views, confirmed in (((), every), (("--views", "neighbours"), every), (("--views", "none"), none)):
        status, emitted = finished(["check", str(data), *views])
        assert status == 0 and emitted.splitlines()[-1] == f"verdict    sound: {whole}; {confirmed}", emitted
    assert finished(["check", str(data), "--views", "neighbors"])[0] == 2
    with ServerProcess(data) as server:
        expect(server.client(), 30)


def test_a_backup_as_the_page_says(folder: Path, tmp_path: Path) -> None:
    """Back up a running service with the commands of docs/operations.md."""
    section = (ROOT / "docs" / "operations.md").read_text().partition("\n## Backup\n")[2].partition("\n## ")[0]
    (commands,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with ServerProcess(copy(folder, tmp_path / "data")) as server:
        environment["LIVEJOIN_URL"] = server.url
        done = subprocess.run(["bash", "-ec", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "checksums  ok" in done.stdout, done.stderr
    with ServerProcess(tmp_path / "restored-data") as server:
        expect(server.client(), 30)


def test_two_servers_on_one_folder(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as first:
        talk.define(first.client(), "items", DEFINITION)
        with pytest.raises(NotStarted) as caught, ServerProcess(tmp_path / "data"):
            pass
        assert caught.value.status == 1
        assert str(first.process.pid) in caught.value.errors and "Traceback" not in caught.value.errors
        assert str(first.process.pid) in livejoin_check(first.data, 1)
        fill_one = talk.ok(talk.send(first.client(), [item(1)]))
        assert fill_one["version"] == 1, "the first is not disturbed"


def _small_files() -> None:
    """A limit on file sizes simulates a full disk; unlike a small file system, it needs no privileges."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))


def test_a_full_disk(tmp_path: Path) -> None:
    """Everything acknowledged before remains; the batch that does not fit gets a clear problem and is not applied in part."""
    with ServerProcess(tmp_path / "data", before=_small_files) as server:
        client = server.client()
        talk.define(client, "items", DEFINITION)
        talk.view(client, "neighbours", SQL)
        fill(client, 1, 10)
        large = [item(number, "x" * 1000) for number in range(11, 6000)]
        answer = talk.send(client, large, source="s", epoch=11)
        talk.problem(answer, 503, "disk-full")
        _still_whole(server)
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        expect(client, 10)
        done = talk.ok(talk.send(client, large, source="s", epoch=11))
        assert not done["duplicate"] and done["applied"] == len(large)


def _still_whole(server: ServerProcess) -> None:
    """The service either continues with what it had, or ends in an orderly way: no client reads anything else."""
    try:
        expect(server.client(), 10)
    except (httpx.TransportError, AssertionError) as error:
        if isinstance(error, AssertionError) and "the service is shutting down" not in str(error):
            raise
        assert server.wait() == 1


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="a file system of our own needs root")
def test_a_full_file_system(tmp_path: Path) -> None:
    """The same on a small file system, in separate namespaces."""
    mount = tmp_path / "small"
    mount.mkdir()
    probe = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "livejoin-test", str(mount)], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with ServerProcess(mount / "data", environment={"TMPDIR": str(tmp_path)}, log=tmp_path / "log") as server:
            client = server.client()
            talk.define(client, "items", DEFINITION)
            talk.view(client, "neighbours", SQL)
            fill(client, 1, 10)
            large = [item(number, "x" * 1000) for number in range(11, 6000)]
            talk.problem(talk.send(client, large, source="s", epoch=11), 503, "disk-full")
            _still_whole(server)
        subprocess.run(["mount", "-o", "remount,size=64m", str(mount)], check=True)
        with ServerProcess(mount / "data", log=tmp_path / "log") as server:
            client = server.client()
            expect(client, 10)
            assert not talk.ok(talk.send(client, large, source="s", epoch=11))["duplicate"]
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A file in place of the folder, and a folder in which no file can be created: one line, status 1."""
    (tmp_path / "file").write_text("not a folder")
    for data in (tmp_path / "file", Path("/proc/livejoin-data")):
        with pytest.raises(NotStarted) as caught:
            ServerProcess(data, log=tmp_path / "log").start()
        assert caught.value.status == 1 and "Traceback" not in caught.value.errors and str(data) in caught.value.errors


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="a file system of our own needs root")
def test_a_read_only_disk(folder: Path, tmp_path: Path) -> None:
    data = copy(folder, tmp_path / "data")
    if subprocess.run(["mount", "--bind", str(data), str(data)], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(data)], check=True)
        with pytest.raises(NotStarted) as caught:
            ServerProcess(data, log=tmp_path / "log").start()
        assert caught.value.status == 1 and "Traceback" not in caught.value.errors and "ead-only" in caught.value.errors
        livejoin_check(data, 0)
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)
    with ServerProcess(data) as server:
        expect(server.client(), 30)
