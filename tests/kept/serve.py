"""`livejoin serve` for the writing of a kept folder: the real service, but as if after another start of a machine, and in small portions.

KEPT_LOG_WORTH is the length of the log, in bytes, from which a running service writes a snapshot.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

from service.cli import main
from service.durability import folder
from service.engine import snapshotting

BOOT = bytes.fromhex("6b657074666f6c6465726b657074666f")  # of no machine
PIECE_ROWS = 16  # of a snapshot: several record batches a file


def _replace(module: ModuleType, name: str, value: object) -> None:
    assert hasattr(module, name), f"{module.__name__} has no {name} any more"
    setattr(module, name, value)


if __name__ == "__main__":
    _replace(folder, "_boot_id", lambda: BOOT)
    _replace(snapshotting, "PIECE_ROWS", PIECE_ROWS)
    if worth := os.environ.get("KEPT_LOG_WORTH"):
        _replace(snapshotting, "_LOG_WORTH", int(worth))
    sys.exit(main())
