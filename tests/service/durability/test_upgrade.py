"""A folder of format 1 becomes one of this format; the old one stays, whatever happens on the way."""
from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.durability import database, upgrade
from service.durability.checksums import checksum
from service.durability.database import WrongFormat
from service.durability.failpoints import UPGRADE_STEPS
from service.durability.folder import BACKUP, DATABASE, LOCK, MARK, Damaged, FolderInUse, FolderLock
from service.durability.log import Log
from service.durability.snapshots import read_snapshot, snapshot_paths
from service.durability.upgrade import CannotUpgrade
from tests.kept import archive
from tests.kept.archive import unpack
from tests.server_process import ROOT, ServerProcess

KEPT = ROOT / "tests" / "kept" / "format_1"
BESIDE, INSIDE = "beside", "inside"


def contents(folder: Path) -> dict[str, bytes]:
    """All but the file of the lock."""
    found = archive.contents(folder)
    found.pop(LOCK, None)
    return found


def old_folder(at: Path, place: str = BESIDE, name: str = "killed") -> Path:
    """A folder of format 1, whose upgrade will be beside it or inside."""
    folder = unpack(KEPT / f"{name}.tar.gz", at / "data")
    (folder / "livejoin.tokens.lock").write_text("whatever else is ours")
    if place == INSIDE:
        (folder / "notes.txt").write_text("somebody else's")
    return folder


def kept_of(folder: Path, place: str) -> Path:
    return folder.with_name("data.format1") if place == BESIDE else folder / "livejoin.format1"


def own(of: dict[str, bytes]) -> dict[str, bytes]:
    """What is of a format, of the contents of a folder."""
    return {name: data for name, data in of.items() if name.startswith((DATABASE, MARK, "snapshots"))}


def read(log: Log) -> tuple[Any, ...]:
    snapshot = read_snapshot(snapshot_paths(log._path.parent)[0][-1])
    rows = {id_: [rows.serialize().to_pybytes() for rows in snapshot.batches(id_)] for id_ in snapshot.tables}
    catalog = [record[:3] for record in log.catalog()[0]], [(view.name, view.definition) for view in log.catalog()[1]]
    runs = {name: (source.run, source.epoch) for name, source in log.sources().items()}
    return log.folder_id, log.secret, log.last_version, log.next_relation_id, catalog, runs, list(log.replay(snapshot.version)), rows


def read_old(folder: Path) -> tuple[Any, ...]:
    """The same of a folder of format 1, as the code of then would read it: through a copy."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    copied = copy.with_name("upgraded")
    copied.mkdir()
    upgrade.upgraded_copy(copy, copied, shutil.copy2)
    log = Log(copied)
    found = read(log)
    log.close()
    shutil.rmtree(copy)
    shutil.rmtree(copied)
    return found


@pytest.mark.parametrize("place", [BESIDE, INSIDE])
@pytest.mark.parametrize("name", ["clean", "killed"])
def test_everything_is_there(name: str, place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = old_folder(tmp_path, place, name)
    before = contents(folder)
    copy = folder.with_name("sqlite")
    shutil.copytree(folder, copy)
    with contextlib.closing(sqlite3.connect(copy / DATABASE)) as db:
        meta = dict(db.execute("SELECT name, value FROM meta").fetchall())
        relations = db.execute("SELECT id, name FROM relations ORDER BY id").fetchall()
        views = [name for (name,) in db.execute("SELECT name FROM views ORDER BY place")]
        sources = {source: (run, epoch) for source, run, epoch in db.execute("SELECT source, run, epoch FROM sources")}
        rows = db.execute("SELECT version, source, run, epoch, payload FROM log WHERE version > ? ORDER BY version", (meta["forgotten"],))
        batches = rows.fetchall()
    with caplog.at_level(logging.INFO):
        upgrade.upgrade(folder)
    kept = kept_of(folder, place)
    assert str(kept) in caplog.text and "upgraded to format 2" in caplog.text
    assert contents(kept) == (before if place == BESIDE else own(before)), "the old folder stays as it was"
    log = Log(folder)
    assert (log.folder_id, log.secret, log.next_relation_id) == (meta["folder_id"], meta["secret"], meta["next_relation_id"])
    assert [(relation.id, relation.name) for relation in log.catalog()[0]] == relations
    assert all(shapes == [(0, len(definition["columns"]))] for _, _, definition, shapes in log.catalog()[0])
    assert [view.name for view in log.catalog()[1]] == views and len({view.id for view in log.catalog()[1]}) == len(views)
    assert {name: source[:2] for name, source in log.sources().items()} == sources and sources
    assert [row[:5] for row in log.replay(meta["forgotten"])] == batches and batches
    assert log.timelines == [(1, 0)] and log.timeline == 1
    log.close()
    assert (folder / "livejoin.tokens.lock").read_text() == "whatever else is ours"
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("livejoin.[dm]*")), "the secret is nobody else's"
    upgrade.upgrade(folder)
    Log(folder).close()


def killed(folder: Path, step: str) -> bool:
    """Whether an upgrade was killed at the step: it has not reached it otherwise."""
    program = f"from pathlib import Path; from service.durability.upgrade import upgrade; upgrade(Path({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"LIVEJOIN_FAILPOINT": step}, check=False)
    assert done.returncode in (-signal.SIGKILL, 0)
    return done.returncode != 0


@pytest.mark.parametrize("place", [BESIDE, INSIDE])
@pytest.mark.parametrize("step", [f"{step}:{n}" for step in UPGRADE_STEPS for n in (1, 2, 3, 4, 5, 6) if n == 1 or "switch" in step])
def test_killed_at_a_step(step: str, place: str, tmp_path: Path) -> None:
    folder = old_folder(tmp_path, place)
    before, expected = own(contents(folder)), read_old(folder)
    assert killed(folder, step) == (place == INSIDE or step[-1] == "1")
    upgrade.upgrade(folder)
    log = Log(folder)
    assert read(log) == expected
    log.close()
    kept = contents(kept_of(folder, place))
    assert own(kept) == before, "the old folder is whole"
    left = {path.name for path in tmp_path.iterdir()} | {path.name for path in folder.iterdir()}
    assert not {name for name in left if "upgrade" in name or name.endswith((".tmp", ".copy"))}


@pytest.mark.parametrize("what", ["an empty folder", "a folder in use"])
def test_a_folder_that_was_made_in_between(what: str, tmp_path: Path) -> None:
    """Of the name that the upgrade, killed between its renames, has left free, as by the script that starts the service."""
    folder = old_folder(tmp_path)
    expected = read_old(folder)
    assert killed(folder, "in-upgrade-switch") and not folder.exists()
    if what == "an empty folder":
        folder.mkdir()
    else:
        Log(folder).close()
        with pytest.raises(CannotUpgrade, match=r"interrupted: the data are in .*data\.upgrade.*move that away and start again"):
            upgrade.upgrade(folder)
        folder.rename(tmp_path / "away")
    upgrade.upgrade(folder)
    log = Log(folder)
    assert read(log) == expected
    log.close()
    assert not (folder / "livejoin.copy").exists() and not folder.with_name("data.upgrade").exists()


def test_begun_inside_and_done_beside(tmp_path: Path) -> None:
    """Of what made the first attempt work inside the folder, nothing is left at the second."""
    folder = old_folder(tmp_path, INSIDE)
    expected = read_old(folder)
    assert killed(folder, "in-upgrade") and (folder / "livejoin.upgrade.tmp").is_dir()
    (folder / "notes.txt").unlink()
    upgrade.upgrade(folder)
    log = Log(folder)
    assert read(log) == expected
    log.close()
    assert {path.name for path in tmp_path.iterdir()} == {"data", "data.format1"}
    assert not (folder / "livejoin.upgrade.tmp").exists()


def test_a_folder_of_others_beside_it_is_not_removed(tmp_path: Path) -> None:
    """Even if it is a data folder too."""
    folder, other = old_folder(tmp_path), tmp_path / "data.upgrade"
    Log(other).close()
    before = contents(folder), contents(other)
    with pytest.raises(CannotUpgrade, match=r"data\.upgrade.*which livejoin has not made: move that away"):
        upgrade.upgrade(folder)
    assert (contents(folder), contents(other)) == before
    other.rename(tmp_path / "away")
    upgrade.upgrade(folder)
    Log(folder).close()


def test_a_backup_is_not_touched(tmp_path: Path) -> None:
    folder = old_folder(tmp_path)
    (folder / BACKUP).write_text("{}")
    before = archive.contents(folder)
    with pytest.raises(Damaged, match="this is a backup.*livejoin restore"):
        upgrade.upgrade(folder)
    assert archive.contents(folder) == before


def test_a_folder_that_cannot_be_renamed_after_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a mount point of the same file system, which nothing shows but the attempt."""
    folder = old_folder(tmp_path)
    before = own(contents(folder))
    rename = Path.rename

    def busy(self: Path, target: Path) -> Path:
        if self == folder:
            raise OSError(16, "Device or resource busy")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", busy)
    upgrade.upgrade(folder)
    assert own(contents(folder / "livejoin.format1")) == before and not folder.with_name("data.upgrade").exists()
    Log(folder).close()


def test_the_working_directory_of_a_process_is_not_moved_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = old_folder(tmp_path)
    monkeypatch.chdir(folder)
    upgrade.upgrade(Path())
    assert (folder / "livejoin.format1").is_dir()
    Log(Path()).close()


def test_refused_before_anything_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = old_folder(tmp_path)
    before = contents(folder)
    folder.with_name("data.format1").mkdir()
    with pytest.raises(CannotUpgrade, match=r"data\.format1.*already.*move that away"):
        upgrade.upgrade(folder)
    folder.with_name("data.format1").rmdir()
    monkeypatch.setattr(upgrade, "_SPARE", 1 << 60)
    with pytest.raises(CannotUpgrade, match="no room for the copy"):
        upgrade.upgrade(folder)
    lock = FolderLock(folder)
    with pytest.raises(FolderInUse):
        upgrade.upgrade(folder)
    lock.release()
    with pytest.raises(WrongFormat, match="written by format 1; this is 2.*livejoin serve"):
        Log(folder)
    assert contents(folder) == before and [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_disk_that_gets_full_on_the_way(tmp_path: Path) -> None:
    """A limit on file sizes stands for it."""
    folder = old_folder(tmp_path)
    before = contents(folder)
    program = f"""
import resource, signal
from pathlib import Path
from service.durability.upgrade import CannotUpgrade, upgrade
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    upgrade(Path({str(folder)!r}))
except CannotUpgrade as error:
    assert "no room" in str(error), error
else:
    raise AssertionError("it fitted")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert contents(folder) == before and [path.name for path in tmp_path.iterdir()] == ["data"]
    upgrade.upgrade(folder)


@pytest.mark.parametrize("what", ["snapshot", "log", "mark"])
def test_damage_is_named_and_nothing_changed(what: str, tmp_path: Path) -> None:
    folder = old_folder(tmp_path, name="clean")
    path = {"snapshot": next(folder.glob("snapshots/*/*.arrow")), "log": folder / DATABASE, "mark": folder / MARK}[what]
    data = path.read_bytes()
    at = data.index(b'":[[') if what == "log" and b'":[[' in data else len(data) - 10
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    before = contents(folder)
    with pytest.raises(Damaged) as caught:
        upgrade.upgrade(folder)
    assert caught.value.where == path and contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_newer_folder_is_refused_by_name_before_anything_else(tmp_path: Path) -> None:
    Log(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = 5, crc = ? WHERE name = 'format'", (checksum("format", 5),))
        db.execute("UPDATE meta SET crc = 0 WHERE name <> 'format'")
        db.execute("DROP TABLE views")
    (tmp_path / MARK).write_bytes(b"of a form that nobody knows yet")
    before = contents(tmp_path)
    for start in (upgrade.upgrade, Log):
        with pytest.raises(WrongFormat, match="written by format 5; this is 2: a newer version of livejoin.*use that version"):
            start(tmp_path)
    assert contents(tmp_path) == before


def test_a_damaged_format_number_is_not_taken_for_another_version(tmp_path: Path) -> None:
    Log(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = 3 WHERE name = 'format'")
    with pytest.raises(Damaged, match="wrong checksum of the entry 'format'"):
        Log(tmp_path)


def test_a_new_folder_needs_none(tmp_path: Path) -> None:
    upgrade.upgrade(tmp_path / "not there")
    assert not (tmp_path / "not there").exists()
    upgrade.upgrade(tmp_path)
    assert not list(tmp_path.iterdir())
    assert database.format_of(tmp_path) is None


def test_serve_upgrades_and_says_so(tmp_path: Path) -> None:
    folder = old_folder(tmp_path)
    (folder / "livejoin.tokens.lock").unlink()
    with ServerProcess(folder) as server:
        assert server.client().get("/v1/status").json()["version"] > 100
        assert server.stop() == 0
    assert folder.with_name("data.format1").is_dir()
