"""A backup, as its manifest describes it.

    TARGET/
      backup.json        written last: what is in the backup, with sizes and SHA-256; before that it says that the backup is unfinished
      livejoin.db        catalogue, sources, and the log after `log_after` up to `version`
      livejoin.tokens    the access tokens (as digests), if the folder is in token mode
      snapshots/1042/    a snapshot, as in a data folder; for an incremental backup, only the files that no earlier backup contains

An incremental backup (`since`) names the previous one by its id. Together they are a chain; a backup without `since` begins one. The
earlier ones are looked for where they were made, and next to the backup, under any name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from service.durability.files import digest
from service.durability.folder import BACKUP, DamagedFolder, sync_path
from service.durability.manifests import read_manifest, write_manifest

FORMAT = 2  # of the manifest
_ANOTHER = "use another backup"


@dataclass(frozen=True)
class StoredFile:
    """`path`: in a data folder. The backup with the id `held_by` has the content; an earlier one perhaps under another name."""

    path: str
    bytes: int
    sha256: str
    held_by: str


@dataclass(frozen=True)
class PreviousBackup:
    """The previous backup of the same data folder, and where it was."""

    id: str
    version: int
    folder: str


@dataclass(frozen=True)
class Backup:
    """A complete backup of the data folder `folder_id` at `version`. `snapshot`: the version of its snapshot; None: it uses that of the
    chain."""

    id: str
    made: str
    folder_id: str
    timelines: list[list[int]]
    version: int
    log_after: int
    snapshot: int | None
    since: PreviousBackup | None
    files: list[StoredFile]
    folder: Path = field(default_factory=Path)

    @property
    def bytes(self) -> int:
        """The bytes of the files in its own folder."""
        return sum(file.bytes for file in self.files if file.held_by == self.id)


def begin(folder: Path) -> None:
    """Mark the backup in this folder as unfinished. On disk on return."""
    _write(folder, {"unfinished": True})


def finish(backup: Backup) -> None:
    """Write the manifest, once the files are on disk. On disk on return."""
    values = asdict(backup)
    del values["folder"]
    _write(backup.folder, values)


def _write(folder: Path, values: dict[str, Any]) -> None:
    unfinished = folder / f"{BACKUP}.unfinished"
    write_manifest(unfinished, FORMAT, values)
    unfinished.replace(folder / BACKUP)
    sync_path(folder)


def read_backup(folder: Path) -> Backup:
    """Return the backup in this folder, without reading its files. Raises Damaged; FileNotFoundError: there is none."""
    path = folder / BACKUP
    try:
        manifest = read_manifest(path, FORMAT, _ANOTHER)
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} is not a backup of livejoin: there is no {BACKUP} in it") from None
    if manifest.get("unfinished"):
        raise DamagedFolder("an unfinished backup", path, "remove this folder and make the backup again")
    since = manifest.pop("since")
    files = [StoredFile(**file) for file in manifest.pop("files")]
    return Backup(**manifest, since=None if since is None else PreviousBackup(**since), files=files, folder=folder)


def chain_of(backup: Backup) -> list[Backup]:
    """Return the chain of backups that ends with this one, in order. Raises Damaged if one of them is missing."""
    found = [backup]
    while (since := found[0].since) is not None:
        positions = [Path(since.folder), *sorted(found[0].folder.absolute().parent.glob("*/"))]
        earlier = next((one for position in positions if (one := _with_id(position, since.id)) is not None), None)
        if earlier is None:
            where = found[0].folder / BACKUP
            remedy = f"put the backup of version {since.version} that was made in {since.folder} back there, or beside this one"
            raise DamagedFolder(f"the earlier backup {since.id} is missing", where, remedy)
        found.insert(0, earlier)
    return found


def _with_id(folder: Path, id_: str) -> Backup | None:
    try:
        found = read_backup(folder)
    except (OSError, DamagedFolder):
        return None
    return found if found.id == id_ else None


def verify(chain: list[Backup]) -> None:
    """Compare every file of these backups with its size and checksum. Raises Damaged. Cost: everything is read once."""
    for backup in chain:
        for file in backup.files:
            if file.held_by == backup.id:
                path = backup.folder / file.path
                if not path.exists():
                    raise DamagedFolder("the file is missing", path, _ANOTHER)
                found = digest(path)
                if (found.bytes, found.sha256) != (file.bytes, file.sha256):
                    raise DamagedFolder("wrong checksum", path, _ANOTHER)


def position_of(file: StoredFile, chain: list[Backup]) -> Path:
    """Return the path of a file of a backup. Raises Damaged."""
    for backup in chain:
        if backup.id == file.held_by:
            return next(backup.folder / own.path for own in backup.files if own.held_by == backup.id and own.sha256 == file.sha256)
    raise DamagedFolder(f"the backup {file.held_by}, which holds {file.path}, is missing", chain[-1].folder / BACKUP, _ANOTHER)
