"""Snapshots: whole or not at all, and never silently wrong."""
from __future__ import annotations

import errno
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from livejoin.wire.batch import RowBlock
from service.checking.inspection import inspect
from service.durability.checksums import json_checksum
from service.durability.database import LogRow
from service.durability.effects import Effect, encode_effects
from service.durability.folder import DATABASE, MARK, DamagedFolder, FolderInUse
from service.durability.log import Log
from service.durability.snapshots import Snapshot, read_snapshot, remove_unfinished, snapshot_paths, write_snapshot

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.utf8()), pa.field("at", pa.timestamp("us", "UTC"))])


def batch(start: int, stop: int) -> pa.RecordBatch:
    data = [{"id": i, "name": f"name {i}" if i % 2 else None, "at": i} for i in range(start, stop)]
    return pa.RecordBatch.from_pylist(data, schema=SCHEMA)


def write(folder: Path, version: int, rows: int = 10) -> None:
    write_snapshot(folder, version, [(1, SCHEMA, iter([batch(0, rows), batch(rows, 2 * rows)])), (7, SCHEMA, iter([]))])


def newest_snapshot(folder: Path) -> Snapshot | None:
    finished = snapshot_paths(folder)[0]
    return read_snapshot(finished[-1]) if finished else None


def ids(folder: Path, relation_id: int = 1) -> list[int]:
    snapshot = newest_snapshot(folder)
    assert snapshot is not None
    return [row["id"] for part in snapshot.batches(relation_id) for row in part.to_pylist()]


def test_rows_come_back(tmp_path: Path) -> None:
    assert newest_snapshot(tmp_path) is None
    write(tmp_path, 5)
    snapshot = newest_snapshot(tmp_path)
    assert snapshot is not None and snapshot.version == 5 and set(snapshot.tables) == {1, 7}
    assert pa.Table.from_batches(snapshot.batches(1)) == pa.Table.from_batches([batch(0, 20)])
    assert list(snapshot.batches(7)) == [] and list(snapshot.batches(8)) == []


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "snapshots").iterdir())


def test_two_generations_are_kept(tmp_path: Path) -> None:
    for version in (9, 10, 100):
        write(tmp_path, version, version)
    assert names(tmp_path) == ["10", "100"]
    assert ids(tmp_path) == list(range(200))


def test_the_same_version_again(tmp_path: Path) -> None:
    write(tmp_path, 5)
    write(tmp_path, 5, 3)
    assert ids(tmp_path) == list(range(20)), "a version's rows never change"


def test_no_relations(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 0, [])
    snapshot = newest_snapshot(tmp_path)
    assert snapshot is not None and snapshot.version == 0


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left"), RuntimeError("a reader failed"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_one(tmp_path: Path, failure: BaseException) -> None:
    write(tmp_path, 5)

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(0, 1000)
        raise failure

    with pytest.raises(type(failure)) as caught:
        write_snapshot(tmp_path, 6, [(1, SCHEMA, rows())])
    assert caught.value is failure
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["5"]
    assert ids(tmp_path) == list(range(20))


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk: it fails in the middle of a write all the same."""
    write(tmp_path, 5)
    program = f"""
import errno, resource, signal
from pathlib import Path
from tests.service.durability.test_snapshots import write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    write(Path({str(tmp_path)!r}), 6, 5000)
except OSError as error:
    assert error.errno == errno.EFBIG, error
else:
    raise AssertionError("it fitted")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["5"]
    assert ids(tmp_path) == list(range(20))


@pytest.mark.parametrize(("step", "version"), [("in-snapshot", 5), ("in-snapshot:2", 5), ("after-snapshot", 6)])
def test_killed_in_the_middle(tmp_path: Path, step: str, version: int) -> None:
    write(tmp_path, 5)
    program = f"from pathlib import Path; from tests.service.durability.test_snapshots import write; write(Path({str(tmp_path)!r}), 6, 30)"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"LIVEJOIN_FAILPOINT": step}, check=False)
    assert done.returncode == -signal.SIGKILL
    snapshot = newest_snapshot(tmp_path)
    assert snapshot is not None and snapshot.version == version
    remove_unfinished(tmp_path)
    assert not list((tmp_path / "snapshots").glob("*.tmp"))
    write(tmp_path, 7)
    assert names(tmp_path) == [str(version), "7"]


def test_what_is_read_back_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the snapshot counts, and before an older one goes."""
    for version in (5, 6):
        write(tmp_path, version)
    fsync = os.fsync

    def spoil(file: int) -> None:
        fsync(file)
        path = Path(f"/proc/self/fd/{file}").resolve()
        if path.name == "1.arrow":
            data = path.read_bytes()
            path.write_bytes(data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])

    monkeypatch.setattr("service.durability.folder.os.fsync", spoil)
    with pytest.raises(DamagedFolder, match="read back differently"):
        write(tmp_path, 7)
    assert names(tmp_path) == ["5", "6"]


def damage(folder: Path) -> DamagedFolder:
    with pytest.raises(DamagedFolder) as caught:
        ids(folder)
    return caught.value


def test_flipped_bytes_in_a_table(tmp_path: Path) -> None:
    write(tmp_path, 5)
    path = tmp_path / "snapshots" / "5" / "1.arrow"
    whole = path.read_bytes()
    for at in range(0, len(whole), 37):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:])
        error = damage(tmp_path)
        assert error.where == path and "checksum" in error.what


def test_flipped_bytes_in_the_manifest(tmp_path: Path) -> None:
    write(tmp_path, 5)
    path = tmp_path / "snapshots" / "5" / "manifest.json"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        try:
            assert ids(tmp_path) == list(range(20)), f"byte {at}"  # white space became other white space
        except DamagedFolder as error:
            assert error.where == path


def test_a_manifest_of_another_format(tmp_path: Path) -> None:
    """It is refused by its number."""
    write(tmp_path, 5)
    path = tmp_path / "snapshots" / "5" / "manifest.json"
    manifest = json.loads(path.read_text())
    crc = manifest.pop("crc")
    assert manifest["format"] == 3 and crc == json_checksum(manifest)
    for number in (2, 4):
        other = manifest | {"format": number}
        path.write_text(json.dumps(other | {"crc": json_checksum(other)}))
        assert f"format {number}; this is 3" in damage(tmp_path).what
    for text in ("[1]", "{}", '{"crc": 1, "format": "\\ud800"}', "1"):
        path.write_text(text)
        assert damage(tmp_path).what in ("not a manifest", "wrong checksum")


def test_torn_and_missing_files(tmp_path: Path) -> None:
    write(tmp_path, 5)
    for name in ("1.arrow", "7.arrow", "manifest.json"):
        path = tmp_path / "snapshots" / "5" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        assert damage(tmp_path).where == path
        path.unlink()
        error = damage(tmp_path)
        assert error.where == path and "missing" in error.what
        path.write_bytes(whole)
    assert ids(tmp_path) == list(range(20))


# inspect


def folder_with_snapshot(folder: Path) -> None:
    """Snapshot at 5, log from 6 to 9, one relation and one view."""
    log = Log(folder)
    log.put_relation(1, "stays", {"columns": []})
    log.put_view("clashes", {"sql": ""}, "{}")
    for version in range(1, 10):
        effect = Effect(1, False, RowBlock(batch(0, 0).select(["id"])), RowBlock(batch(version, version + 1)))
        log.append([LogRow(version, "pms", "r", version, encode_effects([effect]))])
        log.commit()
        if version == 5:
            write(folder, 5)
            log.forget(5)
    log.close()


def test_inspect_a_sound_folder(tmp_path: Path) -> None:
    folder_with_snapshot(tmp_path)
    (tmp_path / "snapshots" / "8.tmp").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    report = inspect(tmp_path)
    assert report.problems == [] and report.keep == "everything can be recovered: version 9"
    assert report.relations == [(1, "stays")] and report.views == ["clashes"] and report.sources == {"pms": ("r", 9)}
    assert report.log == (6, 9) and report.last_version == report.recoverable == 9
    assert [(found.version, found.rows) for found in report.snapshots] == [(5, {1: 20, 7: 0})]
    assert [path.name for path in report.unfinished] == ["8.tmp"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_inspect_after_a_kill_reads_the_wal_and_leaves_it(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from service.durability.database import LogRow
from service.durability.log import Log
log = Log(Path({str(tmp_path)!r}))
for v in range(1, 4): log.append([LogRow(v, None, None, None, b"")]); log.commit()
os._exit(0)"""
    subprocess.run([sys.executable, "-c", program], check=True)
    wal = (tmp_path / f"{DATABASE}-wal").read_bytes()
    assert wal and inspect(tmp_path).log == (1, 3)
    assert (tmp_path / f"{DATABASE}-wal").read_bytes() == wal


def test_inspect_names_what_can_be_kept(tmp_path: Path) -> None:
    folder_with_snapshot(tmp_path)
    database = tmp_path / DATABASE
    whole = database.read_bytes()

    at = whole.rfind(b"pms", 0, whole.rfind(b"name 7"))
    database.write_bytes(whole[:at] + b"x" + whole[at + 1:])
    report = inspect(tmp_path)
    assert [problem.where for problem in report.problems] == [database]
    assert report.recoverable == 6 and report.log == (6, 6) and "version 6 of 9 can be recovered" in report.keep

    database.write_bytes(whole[:5000])
    report = inspect(tmp_path)
    assert report.recoverable == 5 and report.log is None and report.relations == []

    database.write_bytes(whole)
    manifest = tmp_path / "snapshots" / "5" / "manifest.json"
    data = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps(data | {"version": 4}))
    report = inspect(tmp_path)
    assert [problem.where for problem in report.problems] == [manifest, database]
    assert report.recoverable is None and report.relations == [(1, "stays")] and "no version can be recovered" in report.keep


def test_inspect_with_a_log_behind_its_mark(tmp_path: Path) -> None:
    folder_with_snapshot(tmp_path)
    mark = (tmp_path / MARK).read_bytes()
    log = Log(tmp_path)
    log.append([LogRow(10, None, None, None, b"")])
    log.commit()
    log.close()
    ahead = (tmp_path / MARK).read_bytes()
    (tmp_path / MARK).write_bytes(mark)
    assert inspect(tmp_path).problems == []
    database = tmp_path / DATABASE
    db = sqlite3.connect(database, isolation_level=None)
    db.execute("DELETE FROM log WHERE version = 10")
    db.close()
    (tmp_path / MARK).write_bytes(ahead)
    report = inspect(tmp_path)
    assert len(report.problems) == 1 and "version 10 was committed" in report.problems[0].what
    assert report.recoverable == 9


def test_inspect_refuses_what_it_must(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a data folder"):
        inspect(tmp_path)
    log = Log(tmp_path)
    with pytest.raises(FolderInUse):
        inspect(tmp_path)
    log.close()
    assert inspect(tmp_path).keep == "everything can be recovered: version 0"


def unreadable(monkeypatch: pytest.MonkeyPatch, of: str, skip: int = 0) -> None:
    """From now on, files whose names end so cannot be read, but for the first reads."""
    read = io.open
    left = [skip]

    def fail(file: object, *more: object, **others: object) -> object:
        if str(file).endswith(of):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.EIO, "Input/output error", str(file))
        return read(file, *more, **others)  # type: ignore[call-overload]

    monkeypatch.setattr("io.open", fail)
    monkeypatch.setattr("builtins.open", fail)


@pytest.mark.parametrize("name", ["1.arrow", "manifest.json"])
def test_what_the_disk_cannot_read_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write(tmp_path, 5)
    unreadable(monkeypatch, name)
    error = damage(tmp_path)
    assert error.where == tmp_path / "snapshots" / "5" / name and error.what == "cannot be read (Input/output error)"


def test_a_file_that_is_cut_off_while_it_is_read(tmp_path: Path) -> None:
    """A mapping of it would end the process by a signal."""
    write(tmp_path, 5, 50_000)
    snapshot = newest_snapshot(tmp_path)
    assert snapshot is not None
    path = tmp_path / "snapshots" / "5" / "1.arrow"
    rows = snapshot.batches(1)
    next(rows)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DamagedFolder) as caught:
        list(rows)
    assert caught.value.where == path and "cannot be read" in caught.value.what
