"""The log: what was committed comes back, in order and whole, or the damage is named."""
from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.durability import database
from service.durability import log as log_module
from service.durability.database import LogRow
from service.durability.folder import DATABASE, LOCK, MARK, DamagedFolder, FolderInUse
from service.durability.log import Log

DEFINITION: dict[str, Any] = {"columns": [{"name": "id", "type": "int64"}], "key": ["id"], "intervals": {}}


def fill(log: Log, versions: range, payload: Callable[[int], bytes] = lambda v: b"payload %d" % v) -> None:
    for version in versions:
        log.append([LogRow(version, "pms", "run-1", version * 10, payload(version))])
        log.commit()


def runs(log: Log) -> dict[str, tuple[str | None, int]]:
    """Run and epoch of each source."""
    return {name: (source.run, source.epoch) for name, source in log.sources().items()}


def die(folder: Path, code: str, **environment: str) -> int:
    """Run `code` on the log of `folder` in a process of its own; its exit status."""
    start = "import os, sys; from pathlib import Path; from service.durability.log import Log"
    start += "; from service.durability.database import LogRow"
    start += f"; log = Log(Path({str(folder)!r}), 'normal')"
    program = f"{start}\n{code}\nos._exit(0)"
    return subprocess.run([sys.executable, "-c", program], env=os.environ | environment, check=False).returncode


@pytest.mark.parametrize("synchronous", ["full", "normal"])
def test_what_is_committed_comes_back(tmp_path: Path, synchronous: str) -> None:
    log = Log(tmp_path / "new" / "folder", synchronous)  # type: ignore[arg-type]
    assert log.last_version == 0 and log.sources() == {} and list(log.replay(0)) == []
    log.append([LogRow(1, "a", None, -5, b"one")])
    log.append([LogRow(2, None, None, None, b"")])
    log.append([LogRow(3, "a", "r2", 7, b"three")])
    log.commit()
    identity = log.folder_id, log.secret
    log.close()
    log = Log(tmp_path / "new" / "folder")
    assert (log.folder_id, log.secret) == identity and len(log.secret) == 32
    assert log.last_version == 3 and log.bytes == 8
    assert runs(log) == {"a": ("r2", 7)}
    assert list(log.replay(1)) == [LogRow(2, None, None, None, b""), LogRow(3, "a", "r2", 7, b"three")]
    log.close()


def test_uncommitted_batches_are_gone(tmp_path: Path) -> None:
    log = Log(tmp_path)
    fill(log, range(1, 3))
    log.append([LogRow(3, "pms", "run-1", 30, b"lost")])
    assert log.last_version == 3
    log.close()
    log = Log(tmp_path)
    assert log.last_version == 2 and runs(log) == {"pms": ("run-1", 20)}
    log.close()


def test_versions_follow_one_another(tmp_path: Path) -> None:
    log = Log(tmp_path)
    with pytest.raises(ValueError):
        log.append([LogRow(2, None, None, None, b"")])
    log.append([LogRow(1, None, None, None, b"")])
    with pytest.raises(ValueError):
        log.append([LogRow(1, None, None, None, b"")])
    log.commit()
    log.close()


def test_catalog(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.put_relation(log.next_relation_id, "b", DEFINITION)
    first = log.next_relation_id
    log.put_relation(first, "a", DEFINITION)
    log.put_view("z", {"from": {"y": "a", "x": "b"}}, "{}")
    log.put_view("v", {"sql": "SELECT"}, "{}")
    log.drop_view("z")
    log.put_view("z", {"from": {"y": "a", "x": "b"}}, "{}")
    log.drop_relation("a")
    log.close()
    log = Log(tmp_path)
    relations, views = log.catalog()
    assert relations == [(first - 1, "b", DEFINITION, [(0, 1)])]
    assert [view.name for view in views] == ["v", "z"] and list(views[1].definition["from"]) == ["y", "x"]
    assert log.next_relation_id == first + 1, "the id of a dropped relation must not come back: old log rows name it"
    with pytest.raises(ValueError):
        log.put_relation(first, "a", DEFINITION)
    log.append([LogRow(1, None, None, None, b"")])
    with pytest.raises(RuntimeError):
        log.put_view("w", {}, "{}")
    log.commit()
    log.close()


def test_a_relation_changes(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.put_relation(0, "a", DEFINITION)
    fill(log, range(1, 4))
    wider = DEFINITION | {"columns": [*DEFINITION["columns"], {"name": "room", "type": "string", "nullable": True}]}
    log.change_relation("a", wider)
    log.change_relation("a", wider | {"intervals": {"x": {"at": "id"}}})
    log.close()
    log = Log(tmp_path)
    assert log.catalog()[0] == [(0, "a", wider | {"intervals": {"x": {"at": "id"}}}, [(0, 1), (3, 2)])]
    log.close()


def test_sources_have_a_receipt_and_can_be_forgotten(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append([LogRow(1, "pms", "r", 5, b"", b"first"), LogRow(2, "pms", "r", 6, b"", b"second"), LogRow(3, "crm", None, 1, b"")])
    log.commit()
    before = time.time_ns() // 1000
    log.append([LogRow(4, "pms", "r", 7, b"", b"third", frozenset({"b", "a"}))])
    log.commit()
    log.close()
    log = Log(tmp_path)
    sources = log.sources()
    assert sources["pms"]._replace(time=0) == ("r", 7, 4, 0, b"third", {"a", "b"})
    assert sources["crm"]._replace(time=0) == (None, 1, 3, 0, None, set())
    pms, crm = sources["pms"].time, sources["crm"].time
    assert pms is not None and crm is not None and pms >= before >= crm > 0
    log.forget_source("pms")
    log.close()
    log = Log(tmp_path)
    assert list(log.sources()) == ["crm"]
    log.close()


def test_failed_catalog_change_leaves_no_trace(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.put_view("v", {}, "{}")
    with pytest.raises(sqlite3.IntegrityError):
        log.put_view("v", {}, "{}")
    fill(log, range(1, 3))
    log.close()
    log = Log(tmp_path)
    assert log.last_version == 2 and [view.name for view in log.catalog()[1]] == ["v"]
    log.close()


def test_forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_FORGET_ROWS", 3)
    monkeypatch.setattr(database, "LARGEST", 8)
    log = Log(tmp_path)
    fill(log, range(1, 21), lambda v: bytes(range(v)))
    assert log.bytes == sum(range(1, 21))
    log.forget(17)
    assert log.bytes == 18 + 19 + 20
    assert [(row.version, row.payload) for row in log.replay(17)] == [(v, bytes(range(v))) for v in (18, 19, 20)]
    with pytest.raises(DamagedFolder, match="versions 17 to 17 are neither"):
        list(log.replay(16))
    with pytest.raises(DamagedFolder, match="before the snapshot's version 21"):
        list(log.replay(21))
    log.forget(99)
    log.close()
    log = Log(tmp_path)
    assert log.last_version == 20 and log.bytes == 0 and runs(log) == {"pms": ("run-1", 200)}
    assert list(log.replay(20)) == []
    fill(log, range(21, 22))
    log.close()


def test_large_payloads_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LARGEST", 10)
    log = Log(tmp_path)
    payloads = [bytes(range(n)) for n in (9, 10, 11, 20, 21, 35)]
    fill(log, range(1, 7), lambda v: payloads[v - 1])
    size = log.bytes
    log.close()
    log = Log(tmp_path)
    assert [row.payload for row in log.replay(0)] == payloads
    assert log.bytes == size == sum(map(len, payloads))
    log.close()


class _Malloc(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="asks glibc")
def test_no_statement_keeps_what_it_wrote(tmp_path: Path) -> None:
    """Seen: SQLite kept 4 MB of the last batch of a load, and as much for each number of batches that had shared a commit."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _Malloc

    def allocated() -> int:
        found = ask()
        return int(found.uordblks + found.hblkhd)

    log, payload = Log(tmp_path, "normal"), bytes(3 << 20)
    large = bytes(2 * database.LARGEST)  # the last part fills a row
    fill(log, range(1, 2))
    before, version = allocated(), 2
    for rows, source, some in ((1, None, payload), (2, None, payload), (3, "pms", payload), (1, None, large)):
        log.append([LogRow(version + k, source, None, version + k if source else None, some) for k in range(rows)])
        log.commit()
        version += rows
    assert allocated() - before < len(payload) / 2
    log.close()
    log = Log(tmp_path)
    assert [len(row.payload) for row in log.replay(1)] == [len(payload)] * 6 + [len(large)]
    assert log.last_version == version - 1 == 8
    log.close()


def test_a_checkpoint_is_due_by_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sources and registrations too: SQLite's own log grew to five times its bound."""
    monkeypatch.setattr(log_module, "_WAL_BYTES", 128 << 10)
    log, wal = Log(tmp_path, "normal"), tmp_path / f"{DATABASE}-wal"
    wide: dict[str, Any] = {**DEFINITION, "columns": [{"name": f"a long name {number}", "type": "int64"} for number in range(200)]}
    steps: dict[str, Callable[[int], object]] = {
        "batches": lambda i: (log.append([LogRow(log.last_version + 1, None, None, None, b"x")]), log.commit()),
        "sources": lambda i: (log.append([LogRow(log.last_version + 1, f"s{i}", None, i, b"x")]), log.commit()),
        "relations": lambda i: log.put_relation(log.next_relation_id, f"r{i}", DEFINITION),
        "wide relations": lambda i: log.put_relation(log.next_relation_id, f"w{i}", wide),
        "changes": lambda i: log.change_relation(f"w{i}", {**wide, "key": [f"a long name {i}"]}),
        "views": lambda i: log.put_view(f"v{i}", DEFINITION, "q" * 600),
        "drops": lambda i: log.drop_view(f"v{i}"),
    }
    for name, step in steps.items():
        log.checkpoint_if_due()
        before = largest = wal.stat().st_size
        for number in range(50):
            step(number)
            largest = max(largest, wal.stat().st_size)
            log.checkpoint_if_due()
        assert largest <= max(before, 160 << 10), name
    log.close()


def test_second_owner_is_refused(tmp_path: Path) -> None:
    log = Log(tmp_path)
    with pytest.raises(FolderInUse, match=rf"is in use by process {os.getpid()}"):
        Log(tmp_path)
    assert die(tmp_path, "") == 1
    log.close()
    assert die(tmp_path, "") == 0


def test_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    assert die(tmp_path, "log.append([LogRow(1, 's', None, 1, b'x')]); log.commit(); os.kill(os.getpid(), 9)") == -signal.SIGKILL
    log = Log(tmp_path)
    assert [row.payload for row in log.replay(0)] == [b"x"]
    log.close()


@pytest.mark.parametrize(("step", "survives"), [("before-append:5", 4), ("after-append:5", 4), ("after-commit:5", 5)])
def test_killed_at_a_step(tmp_path: Path, step: str, survives: int) -> None:
    code = "for v in range(1, 9): log.append([LogRow(v, 's', 'r', v, b'%d' % v)]); log.commit()"
    assert die(tmp_path, code, LIVEJOIN_FAILPOINT=step) == -signal.SIGKILL
    log = Log(tmp_path)
    assert [row.payload for row in log.replay(0)] == [b"%d" % v for v in range(1, survives + 1)]
    assert runs(log) == {"s": ("r", survives)}
    log.close()


def test_killed_in_log_cleaning(tmp_path: Path) -> None:
    fill_and_forget = "for v in range(1, 9): log.append([LogRow(v, 's', 'r', v, b'%d' % v)]); log.commit()\nlog.forget(7)"
    code = f"import service.durability.log as m; m._FORGET_ROWS = 2\n{fill_and_forget}"
    assert die(tmp_path, code, LIVEJOIN_FAILPOINT="in-log-cleaning:2") == -signal.SIGKILL
    log = Log(tmp_path)
    assert [row.version for row in log.replay(7)] == [8] and runs(log) == {"s": ("r", 8)}
    log.forget(7)
    assert [row.version for row in log.replay(7)] == [8]
    log.close()


def test_unknown_failpoint_is_refused(tmp_path: Path) -> None:
    assert die(tmp_path, "", LIVEJOIN_FAILPOINT="after-lunch") == 1


def test_cut_off_making_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    log = Log(tmp_path)
    fill(log, range(1, 3))
    log.close()


def damaged(folder: Path) -> DamagedFolder:
    """The damage that a start and a whole replay meet."""
    with pytest.raises(DamagedFolder) as caught:
        log = Log(folder)
        try:
            list(log.replay(0))
        finally:
            log.close()
    return caught.value


def test_flipped_byte_in_a_payload(tmp_path: Path) -> None:
    log = Log(tmp_path)
    fill(log, range(1, 9), lambda v: b"payload-%d" % v * 50)
    log.close()
    path = tmp_path / DATABASE
    data = bytearray(path.read_bytes())
    at = data.find(b"payload-5")
    data[at + 100] ^= 1
    path.write_bytes(data)
    error = damaged(tmp_path)
    assert "version 5" in error.what and error.where == path and "livejoin check" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("text", [b"SOURCE-NAME", b"RUN-NAME"])
def test_flipped_byte_in_a_source(tmp_path: Path, text: bytes) -> None:
    log = Log(tmp_path)
    log.append([LogRow(1, "SOURCE-NAME", "RUN-NAME", 1, b"")])
    log.commit()
    log.close()
    path = tmp_path / DATABASE
    path.write_bytes(path.read_bytes().replace(text, text[:-1] + b"\xff"))
    assert "wrong checksum" in damaged(tmp_path).what


def test_missing_version(tmp_path: Path) -> None:
    log = Log(tmp_path)
    fill(log, range(1, 9))
    log.close()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute("DELETE FROM log WHERE version = 4")
    assert "version 4 is missing" in damaged(tmp_path).what
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute("DELETE FROM log WHERE version > 2")
    assert "ends at version 2, but version 8 was committed" in damaged(tmp_path).what


def test_a_large_payload_in_one_row_as_former_versions_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path)
    fill(log, range(1, 4), lambda v: bytes(range(35)))
    log.close()
    monkeypatch.setattr(database, "LARGEST", 10)
    log = Log(tmp_path)
    assert [row.payload for row in log.replay(0)] == 3 * [bytes(range(35))]
    log.close()


def test_missing_rest_of_a_large_payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LARGEST", 10)
    log = Log(tmp_path)
    fill(log, range(1, 4), lambda v: b"abcdefghijklmnopqrstuvwxyz")
    log.close()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute("DELETE FROM log_rest WHERE version = 2 AND part = 1")
    assert "wrong checksum of version 2" in damaged(tmp_path).what


def test_missing_database(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.close()
    (tmp_path / DATABASE).unlink()
    assert "missing" in damaged(tmp_path).what
    (tmp_path / MARK).unlink()
    (tmp_path / "snapshots" / "7").mkdir(parents=True)
    assert "missing" in damaged(tmp_path).what


def test_torn_database(tmp_path: Path) -> None:
    log = Log(tmp_path)
    fill(log, range(1, 50), lambda v: b"x" * 1000)
    log.close()
    path = tmp_path / DATABASE
    whole = path.read_bytes()
    for keep in (0, 10, 4096, 5000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        assert damaged(tmp_path).where == path, keep
    path.write_bytes(whole)
    log = Log(tmp_path)
    assert len(list(log.replay(0))) == 49
    log.close()


def test_damaged_wal_is_not_taken_for_an_unfinished_one(tmp_path: Path) -> None:
    assert die(tmp_path, "for v in range(1, 30): log.append([LogRow(v, 's', None, v, b'x' * 100)]); log.commit()") == 0
    wal = tmp_path / f"{DATABASE}-wal"
    whole = wal.read_bytes()
    assert len(whole) > 29 * 4096
    flipped = whole[:50_000] + bytes([whole[50_000] ^ 1]) + whole[50_001:]
    for data in (b"", b"x" + whole[1:], whole[: len(whole) // 2], flipped, whole[:-4000]):
        wal.write_bytes(data)
        error = damaged(tmp_path)
        assert "but version 29 was committed" in error.what and MARK in error.remedy
        assert wal.read_bytes() == data, "the evidence stays"
    wal.write_bytes(whole)
    log = Log(tmp_path)
    assert log.last_version == 29
    log.close()


def test_lost_catalog_change_in_the_wal(tmp_path: Path) -> None:
    assert die(tmp_path, "log.put_relation(1, 'r', {'columns': []}); log.put_view('v', {}, '{}')") == 0
    wal = tmp_path / f"{DATABASE}-wal"
    wal.write_bytes(wal.read_bytes()[:-4000])
    assert "catalogue" in damaged(tmp_path).what


def test_power_cut_under_normal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert die(tmp_path, "for v in range(1, 30): log.append([LogRow(v, 's', None, v, b'x' * 100)]); log.commit()") == 0
    wal = tmp_path / f"{DATABASE}-wal"
    wal.write_bytes(wal.read_bytes()[:50_000])
    monkeypatch.setattr("service.durability.folder._boot_id", lambda: b"another start...")
    log = Log(tmp_path, "normal")
    assert 0 < log.last_version < 29 and len(list(log.replay(0))) == log.last_version
    assert runs(log) == {"s": (None, log.last_version)}
    first, (number, begun) = log.timelines
    assert first == (1, 0) and number > 1 and begun == log.last_version, "the numbers of the lost versions come again in another timeline"
    log.close()
    monkeypatch.setattr("service.durability.folder._boot_id", lambda: b"a third start...")
    log = Log(tmp_path, "normal")
    assert log.timelines == [first, (number, begun)], "a clean end is not a power cut"
    log.close()


def test_damaged_mark(tmp_path: Path) -> None:
    log = Log(tmp_path)
    fill(log, range(1, 3))
    log.close()
    mark = tmp_path / MARK
    data = bytearray(mark.read_bytes())
    data[9] ^= 1
    mark.write_bytes(data)
    assert "remove this file" in damaged(tmp_path).remedy
    mark.unlink()
    Log(tmp_path).close()


def test_any_flipped_byte_is_found_or_harmless(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    log = Log(tmp_path)
    log.put_relation(1, "r", DEFINITION)
    log.put_view("v", {"sql": "SELECT 1"}, "{}")
    fill(log, range(1, 40), lambda v: bytes([v]) * 300)
    expected = list(log.replay(0)), log.sources(), log.catalog(), log.folder_id, log.secret
    log.close()
    path = tmp_path / DATABASE
    whole = path.read_bytes()
    found = 0
    for number in range(150):
        at = chance.randrange(len(whole)) if number >= 20 else number  # the header's too
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1:])
        try:
            log = Log(tmp_path)
            try:
                assert (list(log.replay(0)), log.sources(), log.catalog(), log.folder_id, log.secret) == expected, f"byte {at}"
            finally:
                log.close()
        except DamagedFolder:
            found += 1
    assert found > 15


def test_a_full_disk_takes_back_what_was_appended(tmp_path: Path) -> None:
    log = Log(tmp_path)
    fill(log, range(1, 3))
    log._db.execute(f"PRAGMA max_page_count = {log._db.execute('PRAGMA page_count').fetchone()[0] + 2}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        log.append([LogRow(3, "pms", "run-1", 30, bytes(1 << 20))])
        log.commit()
    assert log.last_version == 2
    log._db.execute("PRAGMA max_page_count = 1000000")
    fill(log, range(3, 5))
    log.close()
    log = Log(tmp_path)
    assert [row.version for row in log.replay(0)] == [1, 2, 3, 4]
    log.close()


def test_no_traces_of_people_but_the_owner(tmp_path: Path) -> None:
    Log(tmp_path).close()
    assert {path.name for path in tmp_path.iterdir()} == {DATABASE, LOCK, MARK}
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir()), "the secret is nobody else's"
