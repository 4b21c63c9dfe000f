"""Manifests of snapshots and backups: a JSON object with `format`, and `crc`, the CRC-32 of the rest (`json_checksum`).
The checksum covers the values in the document, not its bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from service.durability.checksums import json_checksum
from service.durability.folder import DamagedFolder, private, sync


def write_manifest(path: Path, format: int, values: dict[str, Any]) -> None:
    """Write a manifest, which is on disk on return, except for its name. Raises SyncFailed, OSError."""
    manifest = {"format": format, **values}
    with open(path, "w", opener=private) as file:
        json.dump(manifest | {"crc": json_checksum(manifest)}, file, indent=1)
        file.flush()
        sync(file.fileno(), path)


def read_manifest(path: Path, format: int, remedy: str = "") -> dict[str, Any]:
    """Return the content of a manifest of this format. Raises Damaged with the remedy, OSError."""
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
        crc = manifest.pop("crc")
        is_sound = crc == json_checksum(manifest)
    except (ValueError, KeyError, AttributeError, TypeError):
        raise DamagedFolder("not a manifest", path, remedy) from None
    if not is_sound:
        raise DamagedFolder("wrong checksum", path, remedy)
    found = manifest.pop("format")
    if found != format:
        what = f"a manifest of format {found}; this is {format}"
        raise DamagedFolder(what, path, "use the version of livejoin that wrote it")
    return manifest
