"""The manifest of a backup: read as it was written, under every format that there was; else refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.backups.manifest import Backup, StoredFile, begin, finish, read_backup
from service.durability.checksums import json_checksum
from service.durability.folder import BACKUP, DamagedFolder

ID = "5f0c1d2e3a4b5c6d"
FILE = StoredFile("livejoin.db", 12288, "0" * 64, ID)
VALUES: dict[str, Any] = {
    "format": 2, "id": ID, "made": "2026-01-05T03:00:00Z", "folder_id": "f", "timelines": [[1, 0]], "version": 30, "log_after": 20,
    "snapshot": 20, "since": None, "files": [vars(FILE)],
}  # fmt: skip
FIRST = VALUES | {"crc": json_checksum(VALUES)}


def backup(folder: Path) -> Backup:
    return Backup(ID, "2026-01-05T03:00:00Z", "f", [[1, 0]], 30, 20, 20, None, [FILE], folder)


def put(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / BACKUP).write_text(json.dumps(manifest, indent=1))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    finish(backup(tmp_path))
    assert read_backup(tmp_path) == backup(tmp_path)
    manifest = json.loads((tmp_path / BACKUP).read_text())
    crc = manifest.pop("crc")
    assert manifest["format"] == 2 and crc == json_checksum(manifest)
    (tmp_path / BACKUP).write_text(json.dumps({"crc": crc, **dict(reversed(manifest.items()))}))
    assert read_backup(tmp_path) == backup(tmp_path), "however it is written"


@pytest.mark.parametrize(
    "manifest, what",
    [
        (FIRST | {"version": 31}, "wrong checksum"),
        (FIRST | {"format": 1}, "wrong checksum"),
        (FIRST | {"format": 2, "version": 2**70}, "wrong checksum"),
        (FIRST | {"format": 2, "version": 1.5}, "wrong checksum"),
        ({"format": 3, "crc": json_checksum({"format": 3})}, "a manifest of format 3; this is 2"),
        ({"format": 1}, "not a manifest"),
    ],
)
def test_refused(tmp_path: Path, manifest: dict[str, Any], what: str) -> None:
    put(tmp_path, manifest)
    with pytest.raises(DamagedFolder, match=what):
        read_backup(tmp_path)


def test_an_unfinished_one(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(DamagedFolder, match="an unfinished backup"):
        read_backup(tmp_path)
