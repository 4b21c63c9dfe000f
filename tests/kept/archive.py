"""A data folder as one file: the same bytes for the same folder, independent of the machine."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path


def pack(folder: Path, archive: Path) -> None:
    """Write all files of `folder` to `archive`, a tar.gz, in the order of their names, without times and owners."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.mode = 0o755 if path.is_dir() else 0o644
            if path.is_dir():
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
            else:
                content = path.read_bytes()
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    with open(archive, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(data.getvalue())


def unpack(archive: Path, folder: Path) -> Path:
    """Create `folder`, which must not exist."""
    folder.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file by its path in the folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
