"""The contents of a Spark checkpoint folder, read without Spark.

    metadata      {"id": "<the query's id>"}
    offsets/7     a head, the batch's settings, then for the one source of ours {"<topic>": {"<partition>": <offset>}}
    commits/7     batch 7 is done: the next one starts at its offsets
    livejoin.json ours: the owner of the checkpoint (streaming.pipeline.identity)
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

IDENTITY = "livejoin.json"
METADATA = "metadata"
_NOT_SPARKS = {IDENTITY, "lost+found"}
Offsets = dict[str, dict[int, int]]  # by topic and partition


class UnreadableCheckpoint(Exception):
    """The folder is not a valid Spark checkpoint."""


class Checkpoint(NamedTuple):
    """The query's id, the last completed batch (None: none yet), and the next offset of each partition."""

    run: str
    batch: int | None
    offsets: Offsets


def local_folder(address: str) -> Path | None:
    """The folder at this address; None for one that is not on this machine's disk (`s3a://…`). A plain path is a folder of this machine."""
    scheme, rest = re.fullmatch(r"(?:([a-zA-Z][a-zA-Z0-9+.-]*):)?(.*)", address, re.DOTALL).groups()  # type: ignore[union-attr]
    if scheme not in (None, "file"):
        return None
    return Path(re.sub(r"^//[^/]*", "", rest)) if scheme else Path(address)


def spark_address(address: str) -> str:
    """The address for Spark, which would take a plain path for one on the cluster's file system."""
    folder = local_folder(address)
    return address if folder is None else f"file:{folder.absolute()}"


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint; None if no query has started on the folder. Raises UnreadableCheckpoint."""
    try:
        if not (folder / METADATA).exists():
            # Names with a dot are temporary files; they and empty folders remain after a kill before the first rename.
            if any(path.is_file() and not path.name.startswith(".") and path.name not in _NOT_SPARKS for path in folder.rglob("*")):
                raise UnreadableCheckpoint("it contains files, but no Spark checkpoint")
            return None
        run = run_in((folder / METADATA).read_text())
        done = _last_number(folder / "commits")
        offsets: Offsets = {}
        if done is not None:
            source = json.loads((folder / "offsets" / str(done)).read_text().splitlines()[2])
            offsets = {topic: {int(partition): offset for partition, offset in ends.items()} for topic, ends in source.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UnreadableCheckpoint(f"it cannot be read ({type(error).__name__}: {error})") from error
    return Checkpoint(run, done, offsets)


def run_in(metadata: str) -> str:
    """The query's id, in Spark's file. Raises UnreadableCheckpoint."""
    try:
        return str(json.loads(metadata)["id"])
    except (ValueError, LookupError, TypeError) as error:
        raise UnreadableCheckpoint(f"it cannot be read ({type(error).__name__}: {error})") from error


def is_writable(folder: Path) -> bool:
    """Whether this user may write to the folder, or make it."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _last_number(folder: Path) -> int | None:
    return max([int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else [], default=None)
