"""What a checkpoint folder of Spark's says, read without Spark.

    metadata      {"id": "<the query's id>"}
    offsets/7     a head, the batch's settings, then for the one source of ours {"<topic>": {"<partition>": <offset>}}
    commits/7     batch 7 is done: what comes next begins at its offsets
    livejoin.json ours: whose the checkpoint is (streaming.identity)
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

IDENTITY, IDENTITY_DRAFT = "livejoin.json", "livejoin.json.draft"
_NOT_SPARKS = {IDENTITY, IDENTITY_DRAFT, "lost+found"}
Offsets = dict[str, dict[int, int]]  # by topic and partition


class UnreadableCheckpoint(Exception):
    """It is not as Spark writes it."""


class Checkpoint(NamedTuple):
    """The query's id, the last batch that is done (None: none yet), and where each partition goes on after it."""

    run: str
    batch: int | None
    offsets: Offsets


def local_folder(address: str) -> Path | None:
    """The folder that Spark takes the address for; None for one that is not on this machine's disk (`s3a://…`)."""
    scheme, rest = re.fullmatch(r"(?:([a-zA-Z][a-zA-Z0-9+.-]*):)?(.*)", address, re.DOTALL).groups()  # type: ignore[union-attr]
    if scheme not in (None, "file"):
        return None
    return Path(re.sub(r"^//[^/]*", "", rest)) if scheme else Path(address)


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """What is there; None when no query has begun on the folder. Raises UnreadableCheckpoint."""
    try:
        if not (folder / "metadata").exists():
            if folder.exists() and any(path.name not in _NOT_SPARKS for path in folder.iterdir()):
                raise UnreadableCheckpoint("it holds files, but no checkpoint of Spark's")
            return None
        run = json.loads((folder / "metadata").read_text())["id"]
        done = _last_number(folder / "commits")
        offsets: Offsets = {}
        if done is not None:
            source = json.loads((folder / "offsets" / str(done)).read_text().splitlines()[2])
            offsets = {topic: {int(partition): offset for partition, offset in ends.items()} for topic, ends in source.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UnreadableCheckpoint(f"it cannot be read ({type(error).__name__}: {error})") from error
    return Checkpoint(str(run), done, offsets)


def is_writable(folder: Path) -> bool:
    """Whether this user may write to the folder, or make it."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _last_number(folder: Path) -> int | None:
    numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
    return max(numbers, default=None)
