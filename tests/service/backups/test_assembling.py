"""A data folder from backups: not from those of another format, whose tables are other ones."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from service.backups.assembling import assemble
from service.backups.manifest import chain_of, read_backup
from service.durability.checksums import checksum
from service.durability.folder import DamagedFolder
from tests.service.running import batch, rows_of, running


def test_a_backup_of_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    with closing(running(tmp_path / "data", {})) as engine:
        engine.apply(batch(("upsert", "a", rows_of(0, 10))))
        engine.backups.start(tmp_path / "backup", None)
        assert engine.backups._thread is not None
        engine.backups._thread.join()
    chain = chain_of(read_backup(tmp_path / "backup"))
    with closing(sqlite3.connect(tmp_path / "backup" / "livejoin.db", isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = 4, crc = ? WHERE name = 'format'", (checksum("format", 4),))
    with pytest.raises(DamagedFolder, match="a backup of a data folder of format 4; this is 3.*the version of livejoin that made it"):
        assemble(chain, tmp_path / "restored", forks=True)
    assert not (tmp_path / "restored").exists()
