"""Whose a checkpoint is: the stream's name, its topics' ids and its relations, in a file of ours beside Spark's.

By its offsets, a topic that was deleted and recreated looks like one that has grown: only its id differs. A
relation that was registered again lacks what was applied to the old one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from livejoin.wire.schema import parse_relation
from streaming.connection import AppliedBatch
from streaming.errors import StreamError
from streaming.failures import AFRESH, in_use, made_anew, registered_anew
from streaming.metrics import Partition
from streaming.pipeline.checkpoint import IDENTITY, METADATA, UnreadableCheckpoint, run_in
from streaming.pipeline.checkpoint_files import CheckpointFiles, LocalFiles
from streaming.pipeline.columns import Columns

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of a broker older than ids


class Identity(NamedTuple):
    """The stream's name, the ids of topics, the definitions of relations as JSON; `posted`: the service has taken a batch of it;
    `columns`: by topic."""

    stream: str
    topics: Mapping[str, str]
    relations: Mapping[str, Any]
    posted: bool = False
    columns: Mapping[str, Columns] = {}


class Claim:
    """A checkpoint that belongs to the job. `run`: the query's id, unless none has begun; `reached`: the next offset of each partition,
    `done`: the last completed batch, as far as known."""

    def __init__(
        self, files: CheckpointFiles, identity: Identity, reached: Mapping[Partition, int], run: str | None, done: int | None
    ) -> None:
        self.reached, self.run, self.done = reached, run, done
        self._files = files
        self._identity = identity

    @property
    def posted(self) -> bool:
        return self._identity.posted

    def lacks(self, run: str, epoch: int, applied: AppliedBatch | None) -> bool:
        """Whether the service, whose last batch of the source this is, lacks one before batch `epoch`. Another run's is another matter."""
        return self.posted and epoch > 0 and (applied is None or (applied.run == run and applied.epoch < epoch - 1))

    @property
    def columns(self) -> Mapping[str, Columns]:
        return self._identity.columns

    def note_posted(self, run: str, columns: Mapping[str, Columns] | None = None) -> None:
        """Remembers that the service has taken a batch, and the columns of topics after it. Writes only what is new; raises StreamError
        when it cannot."""
        self.run = run
        now = self._identity._replace(posted=True, columns=self.columns if columns is None else columns)
        if now != self._identity:
            self._identity = now
            with _converting_errors(self._files):
                self._files.write(IDENTITY, json.dumps(self._identity._asdict()))


@contextmanager
def held(files: LocalFiles | None) -> Iterator[None]:
    """Holds a checkpoint on this machine against a second job. Raises StreamError."""
    with ExitStack() as stack:
        with _converting_errors(files):
            if files is not None:
                stack.enter_context(files.held())
        yield


def claim(files: CheckpointFiles, now: Identity) -> Claim:
    """Compares with the identity that the checkpoint was started with, and records it there. Raises StreamError if they differ.

    A topic added to the file is accepted: Spark reads it from its beginning.
    """
    with _converting_errors(files):
        state, before = files.state(), read_identity(files)
        if before is not None:
            compare(before, now, files)
        now = now._replace(posted=before.posted if before else state is not None and state.batch is not None)
        now = now._replace(columns=before.columns if before else {})
        if before != now:
            files.write(IDENTITY, json.dumps(now._asdict()))
        offsets = state.offsets if state else {}
        reached = {(topic, number): offset for topic, ends in offsets.items() for number, offset in ends.items()}
        metadata = files.read(METADATA)
        return Claim(files, now, reached, run_in(metadata) if metadata else None, state.batch if state else None)


@contextmanager
def _converting_errors(files: CheckpointFiles | None) -> Iterator[None]:
    """Converts errors of the checkpoint to one sentence."""
    try:
        yield
    except UnreadableCheckpoint as error:
        raise StreamError(f"the checkpoint {files} cannot be used: {error}; use another folder, or {AFRESH}") from error
    except BlockingIOError as error:
        raise StreamError(in_use(str(files))) from error
    except OSError as error:
        raise StreamError(f"the checkpoint {files} cannot be written ({error.strerror}): use a writable folder") from error


def read_identity(files: CheckpointFiles) -> Identity | None:
    """None for a new checkpoint. Raises StreamError when it cannot be read, OSError."""
    text = files.read(IDENTITY)
    if text is None:
        return None
    try:
        data = json.loads(text)
        columns = dict(data.get("columns", {}))
        return Identity(str(data["stream"]), dict(data["topics"]), dict(data["relations"]), bool(data["posted"]), columns)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StreamError(
            f"{files}/{IDENTITY} is damaged ({type(error).__name__}: {error}): delete it to continue; topics and relations recreated "
            "since the last start are then not detected"
        ) from error


def compare(before: Identity, now: Identity, position: object) -> None:
    """Raises StreamError when records could be missed or applied twice. `position`: the name of the checkpoint."""
    if before.stream != now.stream:
        raise StreamError(f'the checkpoint {position} belongs to the stream "{before.stream}": use another folder for "{now.stream}"')
    for topic, known in before.topics.items():
        if topic not in now.topics:
            raise StreamError(f"the checkpoint {position} reads the topic {topic}, which is not in the file: add it again, or {AFRESH}")
        if differs(known, now.topics[topic]):
            raise StreamError(made_anew(topic))
    for relation, definition in before.relations.items():
        if not _extends(now.relations.get(relation, definition), definition):
            raise StreamError(registered_anew(relation))


def _extends(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a definition is the former one, or that with more columns or intervals."""
    return now == before or parse_relation(now).extends(parse_relation(before))


def differs(known: str, now: str) -> bool:
    """Whether two ids are of two topics."""
    return known != now and _NO_ID not in (known, now)
