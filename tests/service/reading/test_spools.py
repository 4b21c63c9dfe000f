"""Files of rows on disk: how long they are kept, and how many."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from service.engine.versions import Pins
from service.errors import Problem
from service.reading.holdings import Holdings
from service.reading.spools import FOLDER, Spool, Spools, TooLong
from tests.modes_of_files import exposed
from tests.service.running import Clock


def written(spools: Spools, what: str, tag: str, data: bytes, *readers: str) -> Spool:
    with spools.draft(what, tag, 7, False) as draft:
        for start in range(0, len(data), 10):
            draft.write(data[start : start + 10])
        return draft.keep(readers)


def files(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob("*"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def holdings(clock: Clock) -> Holdings:
    return Holdings(Pins(), clock)


@pytest.fixture
def spools(holdings: Holdings, tmp_path: Path) -> Spools:
    return Spools(holdings, tmp_path, 1000, 60.0)


def test_parts(spools: Spools, tmp_path: Path) -> None:
    spool = written(spools, "a", "1", b"0123456789abcdef")
    assert (spool.size, spool.version, spool.empty) == (16, 7, False)
    assert spools.read(spool, 3, 4) == b"3456" and spools.read(spool, 10, 100) == b"abcdef"
    assert spools.find("a", ("0", "1")) is spool and spools.find("a", ("2",)) is None and spools.find("b", ("1",)) is None
    assert exposed(tmp_path / FOLDER) == []


def test_kept_as_long_as_it_is_read(holdings: Holdings, spools: Spools, clock: Clock, tmp_path: Path) -> None:
    spool = written(spools, "a", "1", b"x" * 100)
    for _ in range(5):
        clock.now += 59
        holdings.sweep()
        assert spools.read(spool, 0, 1) == b"x"
    clock.now += 61
    holdings.sweep()
    with pytest.raises(Problem, match="snapshot-expired: version 7 is no longer kept"):
        spools.read(spool, 0, 1)
    assert spools.find("a", ("1",)) is None and files(tmp_path) == [] and (holdings.count(Spool), spools.bytes) == (0, 0)


def test_all_together_are_bounded(spools: Spools, clock: Clock, tmp_path: Path) -> None:
    written(spools, "a", "1", b"x" * 600)
    clock.now += 10
    with pytest.raises(Problem, match="take the 1000 bytes that they may") as refused, spools.draft("b", "1", 7, False) as draft:
        draft.write(b"x" * 300)
        draft.write(b"x" * 300)
    assert refused.value.type == "too-busy" and 50 <= int(refused.value.headers["Retry-After"]) <= 52
    assert spools.bytes == 600 and len(files(tmp_path)) == 1, "what was written of it is gone"
    clock.now += 51
    written(spools, "b", "1", b"x" * 600)
    assert spools.find("a", ("1",)) is None and spools.bytes == 600


def test_one_that_is_too_long_is_remembered(holdings: Holdings, spools: Spools, clock: Clock, tmp_path: Path) -> None:
    with spools.draft("a", "1", 7, False) as draft:
        draft.write(b"x" * 600)
        with pytest.raises(TooLong):
            draft.write(b"x" * 600)
        spool = draft.is_too_long(())
    assert spool.size is None and spools.find("a", ("1",)) is spool and files(tmp_path) == [] and spools.bytes == 0
    clock.now += 61
    holdings.sweep()
    assert spools.find("a", ("1",)) is None and spools.bytes == 0


def test_the_number_is_bounded(spools: Spools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.reading.spools._MOST", 3)
    for number in range(3):
        written(spools, "a", f"{number}", b"x")
    with pytest.raises(Problem, match="there are already 3 files"):
        spools.draft("a", "3", 7, False)


def test_two_at_once_are_one(spools: Spools, tmp_path: Path) -> None:
    with spools.draft("a", "1", 7, False) as first, spools.draft("a", "1", 7, False) as second:
        first.write(b"same")
        second.write(b"same")
        kept = first.keep(())
        assert second.keep(()) is kept
    assert len(files(tmp_path)) == 1 and spools.read(kept, 0, 9) == b"same" and (spools.bytes, spools.written) == (4, 1)


def test_a_reader_goes_on_where_it_was(spools: Spools, clock: Clock) -> None:
    first = written(spools, "a", "1", b"x", "port 1", "client")
    second = written(spools, "a", "2", b"x", "port 2", "client")
    assert spools.last("a", ("port 1", "client"), False) is first, "as the same connection"
    assert spools.last("a", ("port 2", "client"), False) is second
    assert spools.last("a", ("port 3", "client"), False) is second, "else as the same client"
    assert spools.last("a", ("port 1", "other"), False) is first and spools.last("a", ("other two",), False) is None


def test_a_reader_that_begins_after_a_moment_begins_anew(spools: Spools, clock: Clock) -> None:
    spool = written(spools, "a", "1", b"x", "client")
    clock.now += 1
    assert spools.last("a", ("client",), True) is spool
    clock.now += 3
    assert spools.last("a", ("client",), True) is None and spools.last("a", ("client",), False) is spool


def test_the_readers_are_bounded(spools: Spools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.reading.holdings._MOST_KEYS", 5)
    spool = written(spools, "a", "1", b"x")
    for number in range(20):
        spools.find("a", ("1",), (f"port {number}",))
    assert [key[2] for key in spool.keys] == ["1", *(f"port {number}" for number in range(15, 20))]  # type: ignore[index]
    assert spools.last("a", ("port 14",), False) is None and spools.last("a", ("port 15",), False) is spool


def test_a_start_removes_what_was_left(tmp_path: Path, spools: Spools) -> None:
    written(spools, "a", "1", b"x")
    Spools(Holdings(Pins()), tmp_path, 1000, 60.0)
    assert not (tmp_path / FOLDER).exists()


class _Broken:
    """A file on a disk that has just become full, or read-only."""

    def __init__(self, file: IO[bytes], error: int) -> None:
        self.close, self._error = file.close, error

    def write(self, data: object) -> int:
        raise OSError(self._error, os.strerror(self._error))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_breaks(spools: Spools, tmp_path: Path, error: int) -> None:
    said = f"disk-full: the disk of the data folder does not take the file \\({os.strerror(error)}\\): read it whole"
    with pytest.raises(Problem, match=said), spools.draft("a", "1", 7, False) as draft:
        draft._file = _Broken(draft._file, error)
        draft.write(b"x")
    assert files(tmp_path) == [] and spools.bytes == 0


def test_a_disk_that_takes_no_file(spools: Spools, tmp_path: Path) -> None:
    """It was an internal error."""
    (tmp_path / FOLDER).write_bytes(b"in the way")
    with pytest.raises(Problem, match="disk-full: the disk of the data folder does not take the file"):
        spools.draft("a", "1", 7, False)
    (tmp_path / FOLDER).unlink()
    assert spools.read(written(spools, "a", "1", b"abc"), 1, 9) == b"bc"


def test_a_file_that_a_broken_disk_does_not_let_go(spools: Spools, clock: Clock, tmp_path: Path) -> None:
    """It is forgotten all the same, and what it took counted: others take its place."""
    path = written(spools, "a", "1", b"x" * 600).path
    assert path is not None
    path.unlink()
    path.mkdir()  # which is deleted in another way
    clock.now += 61
    written(spools, "b", "1", b"x" * 600)
    assert spools.find("a", ("1",)) is None and spools.bytes == 600


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: os.truncate(path, 5)], ids=["gone", "shorter"])
def test_a_file_that_a_broken_disk_does_not_give(
    holdings: Holdings, spools: Spools, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """It is forgotten, and made anew by the next who asks: it was an internal error, each time, or no end of nothing."""
    spool = written(spools, "a", "1", b"0123456789", "client")
    assert spool.path is not None
    damage(spool.path)
    with pytest.raises(Problem, match="disk-full: the disk of the data folder does not give the file \\(.*\\): read it whole"):
        spools.read(spool, 3, 4)
    assert spools.find("a", ("1",)) is None and spools.last("a", ("client",), False) is None
    assert files(tmp_path) == [] and (holdings.count(Spool), spools.bytes) == (0, 0)
    with pytest.raises(Problem, match="snapshot-expired"):
        spools.read(spool, 3, 4)
    assert spools.read(written(spools, "a", "1", b"0123456789"), 3, 4) == b"3456"
