"""A data folder of another format is refused by its number, whatever else is in it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from service.durability.checksums import checksum
from service.durability.database import FORMAT, WrongFormat, refuse_other
from service.durability.folder import DATABASE, LOCK, MARK, DamagedFolder
from service.durability.log import Log
from tests.server_process import NotStarted, ServerProcess


@pytest.mark.parametrize("number, crc", [(1, 0x1F4383F8), *((other, checksum("format", other)) for other in (2, FORMAT + 1, 70))])
def test_a_folder_of_another_format_is_refused_by_its_number(tmp_path: Path, number: int, crc: int) -> None:
    """Before anything else is read, and it is left as it is."""
    Log(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute("UPDATE meta SET crc = 0")
        db.execute("UPDATE meta SET value = ?, crc = ? WHERE name = 'format'", (number, crc))
        db.execute("DROP TABLE views")
    (tmp_path / MARK).write_bytes(b"of another form")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != LOCK}
    for start in (refuse_other, Log):
        with pytest.raises(WrongFormat, match=f"has format {number}, and .* reads format {FORMAT} only.*start the version that wrote it"):
            start(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != LOCK} == before


def test_a_service_leaves_it_alone(tmp_path: Path) -> None:
    """The admin token of its file, too, is not written to the folder."""
    folder, secret = tmp_path / "data", tmp_path / "secret"
    Log(folder).close()
    with contextlib.closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = 2, crc = ? WHERE name = 'format'", (checksum("format", 2),))
    secret.write_text("lj_" + "x" * 40)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(NotStarted) as caught, ServerProcess(folder, arguments=["--admin-token-file", str(secret)]):
        pass
    assert caught.value.status == 1 and "has format 2" in caught.value.errors and "Traceback" not in caught.value.errors
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_damaged_format_number_is_not_taken_for_another_version(tmp_path: Path) -> None:
    Log(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = 1 WHERE name = 'format'")
    with pytest.raises(DamagedFolder, match="wrong checksum of the entry 'format'"):
        Log(tmp_path)
