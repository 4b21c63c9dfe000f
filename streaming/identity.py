"""Whose a checkpoint is: the stream's name and its topics' ids, in a file of ours beside Spark's.

A topic that was deleted and made anew under its name looks, by its offsets, like one that has grown: only its id tells.
Kept in a folder on this machine's disk only; elsewhere (`s3a://…`) ids are compared as long as the job runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from streaming.checkpoint import IDENTITY, IDENTITY_DRAFT, UnreadableCheckpoint, local_folder, read_checkpoint
from streaming.errors import StreamError
from streaming.failures import AFRESH, made_anew
from streaming.metrics import Partition

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of a broker older than ids


class Identity(NamedTuple):
    """The stream's name, and by topic its id."""

    stream: str
    topics: Mapping[str, str]


def claim(checkpoint: str, now: Identity) -> dict[Partition, int]:
    """Compares with what the checkpoint was begun with, and writes it down there. Raises StreamError where they differ.

    A topic that the file has beside those of before joins: Spark reads it from its beginning. Returns where each partition
    goes on, as far as it can be seen.
    """
    folder = local_folder(checkpoint)
    if folder is None:
        return {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = read_checkpoint(folder)
        before = read_identity(folder)
        if before is not None:
            compare(before, now, folder)
        if before != now:
            draft = folder / IDENTITY_DRAFT
            draft.write_text(json.dumps(now._asdict()))
            os.replace(draft, folder / IDENTITY)
        offsets = found.offsets if found else {}
        return {(topic, partition): offset for topic, ends in offsets.items() for partition, offset in ends.items()}
    except UnreadableCheckpoint as error:
        raise StreamError(f"the checkpoint {folder} is no good: {error}; name another folder, or {AFRESH}") from error
    except OSError as error:
        raise StreamError(f"the checkpoint {folder} cannot be written ({error.strerror}): name one that this user may write") from error


def read_identity(folder: Path) -> Identity | None:
    """None for a new checkpoint, and for one of a livejoin that kept no such file. Raises UnreadableCheckpoint."""
    path = folder / IDENTITY
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text())
        return Identity(str(data["stream"]), dict(data["topics"]))
    except (ValueError, LookupError, TypeError) as error:
        raise UnreadableCheckpoint(f"{IDENTITY} in it cannot be read ({type(error).__name__}: {error})") from error


def compare(before: Identity, now: Identity, folder: Path) -> None:
    """Raises StreamError when records may be missed or applied twice."""
    if before.stream != now.stream:
        raise StreamError(f'the checkpoint {folder} is of the stream "{before.stream}": give "{now.stream}" a folder of its own')
    for topic, known in before.topics.items():
        if topic not in now.topics:
            raise StreamError(f"the checkpoint {folder} reads the topic {topic}, which the file does not name: put it back, or {AFRESH}")
        if differs(known, now.topics[topic]):
            raise StreamError(made_anew(topic))


def differs(known: str, now: str) -> bool:
    """Whether two ids are of two topics."""
    return known != now and _NO_ID not in (known, now)
