"""Two generations of snapshots: one that is damaged loses nothing, and what they cost is bounded."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.durability.folder import MARK, DamagedFolder, SyncFailed
from service.errors import Problem
from service.reading.cursors import open_relation_rows, open_rows
from tests.service.running import batch, ids, look, opened, parts, rows_of, running


def snapshots(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "snapshots").iterdir())


def with_two(folder: Path) -> list[tuple[Any, ...]]:
    """A folder with snapshots of the versions 2 and 4, and two versions behind; the rows of its relation `a`."""
    engine = running(folder)
    for n in range(6):
        engine.apply(batch(("upsert", "a", rows_of(3 * n, 4)), ("upsert", "b", rows_of(n, 2))))
        if n in (1, 3):
            engine.snapshots.write()
    found = ids(open_relation_rows(engine.readers, "a"))
    engine.snapshots.finish = lambda: None  # type: ignore[method-assign]
    assert engine.close()
    return found


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])


@pytest.mark.parametrize("file", ["0.arrow", "1.arrow", "manifest.json"])
def test_a_flipped_byte_in_the_newest_loses_nothing(file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = with_two(tmp_path)
    assert snapshots(tmp_path) == ["2", "4"]
    flip(tmp_path / "snapshots" / "4" / file)
    engine = opened(tmp_path)
    assert "snapshot 4 is damaged" in caplog.text and file in caplog.text and "Nothing is lost: that of version 2" in caplog.text
    assert ids(open_relation_rows(engine.readers, "a")) == expected and engine.published.number == 6
    assert ids(open_rows(engine.readers, "v"))
    assert snapshots(tmp_path) == ["2", "4.damaged"], "the evidence stays, and does not count"
    engine.apply(batch(("upsert", "a", rows_of(50, 1))))
    assert engine.close()
    assert snapshots(tmp_path) == ["2", "7"], "the next one has another sound one before it"
    engine = opened(tmp_path)
    assert engine.published.number == 7
    engine.close()


def test_without_another_one_the_damage_is_named(tmp_path: Path) -> None:
    with_two(tmp_path)
    for version in ("2", "4"):
        flip(tmp_path / "snapshots" / version / "0.arrow")
    with pytest.raises(DamagedFolder) as caught:
        opened(tmp_path)
    assert caught.value.where == tmp_path / "snapshots" / "4" / "0.arrow" and snapshots(tmp_path) == ["2", "4"]


def test_the_log_from_its_beginning_stands_for_the_other_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = running(tmp_path)
    for n in range(3):
        engine.apply(batch(("upsert", "a", rows_of(3 * n, 4))))
    expected = ids(open_relation_rows(engine.readers, "a"))
    engine.close()
    assert snapshots(tmp_path) == ["3"]
    flip(tmp_path / "snapshots" / "3" / "0.arrow")
    engine = opened(tmp_path)
    assert ids(open_relation_rows(engine.readers, "a")) == expected and "that of version 0 and the log" in caplog.text
    engine.close()


def test_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the log since the last one exceeds half of it, and a least size; a start knows both."""
    monkeypatch.setattr("service.engine.snapshotting._LOG_WORTH", 20_000)
    monkeypatch.setattr("service.engine.housekeeping._RATE", 1e9)
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 20_000))))

    def considered() -> bool:
        before = engine.snapshots._version
        engine.at_rest(engine.snapshots.consider)
        engine.snapshots.wait()
        return engine.snapshots._version > before

    assert considered() and engine.snapshots.log_bytes == 0
    size = engine.snapshots._bytes
    assert size > 200_000
    engine.apply(batch(("upsert", "a", rows_of(0, 2_000))))
    assert 20_000 < engine.snapshots.log_bytes < size / 2 and not considered()
    log_bytes = engine.snapshots.log_bytes
    monkeypatch.setattr(engine.snapshots, "finish", lambda: None)
    engine.close()
    engine = opened(tmp_path)
    assert engine.snapshots.log_bytes == log_bytes and engine.snapshots._bytes == size and not considered()
    engine.apply(batch(("upsert", "a", rows_of(0, 15_000))))
    assert considered()
    engine.close()


def test_the_pin_counts_and_may_be_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Between two pieces, like that of any reader; after two such attempts it is kept, as a log without end is worse."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("service.engine.snapshotting.PIECE_ROWS", 100)
    engine = running(tmp_path, pin_bytes=1)
    engine.apply(batch(("upsert", "a", rows_of(0, 1000))))
    scan, calls = type(engine.relations["a"].table).scan, []

    def changed_meanwhile(table: Any, version: int, start: int, limit: int) -> Any:
        calls.append(start)
        if len(calls) == 4:
            engine.apply(batch(("upsert", "a", rows_of(0, 500, len(calls)))))
            look(engine)  # the second look gives up what exceeds the bound
            look(engine)
        return scan(table, version, start, limit)

    monkeypatch.setattr(type(engine.relations["a"].table), "scan", changed_meanwhile)
    for _ in range(2):
        calls.clear()
        engine.snapshots.write()
        assert len(calls) == 4 and snapshots(tmp_path) == []
    calls.clear()
    engine.snapshots.write()
    assert len(calls) > 4 and len(snapshots(tmp_path)) == 1 and engine.snapshots.failures == 2
    assert caplog.text.count("--pin-bytes") == 2
    monkeypatch.undo()
    engine.close()


def test_a_stop_does_not_wait_for_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.snapshotting._AT_THE_END", 0.3)
    monkeypatch.setattr("service.engine.snapshotting.PIECE_ROWS", 10)
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 1000))))
    take = type(engine.relations["a"].table).take_pieces

    def slowly(*arguments: Any) -> Iterator[Any]:
        time.sleep(0.05)
        yield from take(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(type(engine.relations["a"].table), "take_pieces", slowly)
        started = time.monotonic()
        assert engine.close(), "nothing is lost, so it is a clean end"
        assert time.monotonic() - started < 4, "all of it takes five seconds"
    assert snapshots(tmp_path) == []
    engine = opened(tmp_path)
    assert len(ids(open_relation_rows(engine.readers, "a"))) == 1000
    engine.close()


def test_not_into_the_room_that_the_log_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 10))))
    with monkeypatch.context() as patch:
        patch.setattr("service.engine.snapshotting.LEFT", 1 << 60)
        engine.snapshots.write()
    assert "MiB left" in caplog.text and engine.snapshots.failures == 1
    assert engine.close() and snapshots(tmp_path) == ["1"]


def test_free_pages_go_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer at a time, the more there are: SQLite looks through its list of them for each."""
    engine = running(tmp_path)
    pauses: list[int] = []  # how many pages there are when the thread that gives them back has done a step

    def ask(pragma: str) -> int:
        with parts(engine).log._guard:  # the writer uses the same connection
            return int(parts(engine).log._db.execute(f"PRAGMA {pragma}").fetchone()[0])

    def pause(seconds: float) -> None:
        pauses.append(ask("page_count"))

    for n in range(30):
        engine.apply(batch(("upsert", "a", rows_of(n * 10_000, 10_000))))
    engine.snapshots.write()
    engine.apply(batch(("upsert", "a", rows_of(0, 1))))
    ask("wal_checkpoint(TRUNCATE)")
    before = (tmp_path / "livejoin.db").stat().st_size
    monkeypatch.setattr("service.engine.snapshotting._LOG_WORTH", 1 << 20)
    monkeypatch.setattr("service.engine.snapshotting._LOG_SHARE", 0.0)
    monkeypatch.setattr("service.durability.log._GIVEN_LOOKS", looks := 4000)
    monkeypatch.setattr("service.durability.log.time", SimpleNamespace(**vars(time) | {"sleep": pause}))
    engine.snapshots.write()
    ask("wal_checkpoint(TRUNCATE)")
    after = (tmp_path / "livejoin.db").stat().st_size
    monkeypatch.undo()
    assert before > 5 << 20 and after < 2 << 20
    spare = (1 << 20) >> 12
    given = [(one, one - other) for one, other in pairwise(pauses) if other < one]
    assert all(size <= max(1, looks // spare) for _, size in given) and any(size > 1 for _, size in given)
    assert all(size <= 4 for _, size in given[:10]), "the list is long at first"
    engine.apply(batch(("upsert", "a", rows_of(0, 1))))
    assert engine.close()
    engine = opened(tmp_path)
    assert len(ids(open_relation_rows(engine.readers, "a"))) == 300_000
    engine.close()


def failing(monkeypatch: pytest.MonkeyPatch, of: str) -> list[str]:
    """From now on an fsync of a file whose path ends so fails. Gives what was synced."""
    fsync, seen = os.fsync, []

    def fail(file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        seen.append(path)
        if path.endswith(of):
            raise OSError(errno.EIO, "Input/output error")
        fsync(file)

    monkeypatch.setattr("service.durability.folder.os.fsync", fail)
    return seen


@pytest.mark.parametrize("of", [".arrow", "manifest.json", ".tmp", "snapshots"])
def test_an_fsync_of_a_snapshot_that_fails_ends_the_service(of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 10))))
    ends: list[BaseException] = []
    engine.on_failure = ends.append
    seen = failing(monkeypatch, of)
    engine.snapshots.write()
    parts(engine).writer._thread.join(60)
    assert engine.state == "failed" and isinstance(ends[0], SyncFailed)
    with pytest.raises(Problem, match="has failed"):
        engine.apply(batch(("upsert", "a", rows_of(0, 1))))
    count = len(seen)
    assert not engine.close(), "not a clean end"
    assert len(seen) == count, "nothing is synced after that"


def test_an_fsync_that_fails_at_the_end_is_no_clean_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 10))))
    failing(monkeypatch, MARK)
    assert not engine.close() and not engine.close()
