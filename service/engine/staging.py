"""Replacements sent in parts: the rows of each part are stored in a file, until they are committed as one version.

    stages/7.arrow    one part: an Arrow IPC stream of its valid rows, another one of the keys of its bad rows

Everything else about a stage is in memory: a restart discards all stages and removes their files, so nothing is synced. A stage is also
discarded an hour after its last part.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import MAX_ERRORS, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.errors import RowError
from livejoin.wire.schema import RelationDefinition
from service.durability.files import free_bytes
from service.durability.folder import FOLDER_MODE, discard, private, reason
from service.engine.refusals import refuse_bad
from service.errors import Problem
from service.tables.evolution import validated_again
from service.tables.relations import Relation

FOLDER = "stages"
_FORGOTTEN_AFTER = 3600.0  # seconds without another part
_MOST = 64  # stages at a time, except the only one of a relation: others cannot prevent that
_ROOM = 16 << 20  # bytes left free on the disk, for the log


class StagedPart(NamedTuple):
    """One part after validation. `sent`: its rows, including bad ones; `errors`: the first bad ones; `on_error`: the sender's choice."""

    path: Path
    definition: RelationDefinition
    rows: int
    sent: int
    errors: list[RowError]
    error_count: int
    on_error: str


class Stage:
    """`parts` by number; `used`: time of the last one."""

    def __init__(self) -> None:
        self.used = 0.0
        self.parts: dict[int, StagedPart] = {}

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts.values())


class Stages:
    """The stages of the service, by relation and name. Any thread."""

    def __init__(self, data: Path, most_rows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._data, self._folder, self._most_rows, self._clock = data, data / FOLDER, most_rows, clock
        self._lock = threading.Lock()
        self._stages: dict[tuple[int, str], Stage] = {}
        self._numbers = itertools.count(1)
        self.close()

    def put(self, relation: Relation, name: str, number: int | None, batch: Batch) -> tuple[int, Stage]:
        """Add a part, or replace the one with its number; return the number (None: the next one) and the stage.

        Problems `body-too-large` (too many rows), `too-many`, `disk-full`. Cost: writing its bytes.
        """
        definition = batch.changes[0].definition if batch.changes else relation.definition
        rows = sum(len(changes.ops) for changes in batch.changes)
        with self._lock:
            self._validate(relation, name, number, rows)
        path = self._write(batch)
        part = StagedPart(path, definition, rows, batch.sent, batch.errors, batch.error_count, batch.on_error)
        try:
            with self._lock:
                number = self._validate(relation, name, number, rows)
                stage = self._stages.setdefault((relation.id, name), Stage())
                former, stage.parts[number], stage.used = stage.parts.get(number), part, self._clock()
        except Problem:
            discard(path)
            raise
        if former is not None:
            discard(former.path)
        return number, stage

    @contextlib.contextmanager
    def taken(self, relation: Relation, name: str, batch: Batch, parts: Collection[int] | None = None) -> Iterator[None]:
        """Give `batch` the changes of these parts (None: all), in order of their numbers; they are removed, but restored if the context
        fails.

        `relation` as it is now, while its definition cannot change. Rows that an extension of it has made bad are skipped if their part was
        sent with `on_error=skip`. Problems `not-found`, `bad-rows` (of other parts). The rows are read from the files as they are used.
        """
        with self._lock:
            self._discard_expired()
            stage = self._stages.get((relation.id, name), _NO_STAGE)
            numbers = sorted(stage.parts if parts is None else set(parts))
            if stage is _NO_STAGE or not stage.parts.keys() >= set(numbers):
                part = "" if stage is _NO_STAGE else f"part {min(set(numbers) - stage.parts.keys())} of "
                said = "it was committed, or dropped an hour after its last part or at a restart; send its parts again"
                raise Problem("not-found", f"{relation.name} has no {part}stage {name!r}: {said}")
            taken = {number: stage.parts.pop(number) for number in numbers}
            if not stage.parts:
                del self._stages[relation.id, name]
        try:
            _gather(relation, taken.values(), batch)
            yield
        except BaseException:
            with self._lock:
                kept = self._stages.setdefault((relation.id, name), stage)
                lost = taken.keys() if kept is not stage else taken.keys() & stage.parts.keys()  # sent again, or another stage begun
                stage.parts.update((number, part) for number, part in taken.items() if number not in lost)
            _remove([taken[number] for number in lost])
            raise
        _remove(taken.values())

    def drop_all(self, relation: Relation) -> None:
        """Discard all stages of a relation that is dropped."""
        with self._lock:
            dropped = [self._stages.pop(key) for key in list(self._stages) if key[0] == relation.id]
        for stage in dropped:
            _remove(stage.parts.values())

    def sweep(self) -> None:
        """Discard expired stages."""
        with self._lock:
            self._discard_expired()

    def close(self) -> None:
        """Discard all stages, and the files that an earlier process has left."""
        with self._lock:
            self._stages.clear()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _validate(self, relation: Relation, name: str, number: int | None, rows: int) -> int:
        """Validate the part against the limits, and return its number. Raises as `put`."""
        self._discard_expired()
        stage = self._stages.get((relation.id, name))
        if stage is None:
            if len(self._stages) >= _MOST and any(id_ == relation.id for id_, _ in self._stages):
                raise Problem("too-many", f"there are already {_MOST} stages: commit them, or wait until one of them is dropped")
            stage = Stage()
        number = max(stage.parts, default=-1) + 1 if number is None else number
        former = stage.parts.get(number)
        rows += stage.rows - (former.rows if former is not None else 0)
        if rows > self._most_rows:
            said = f"with this part, the stage {name!r} has more than {self._most_rows} rows (--max-relation-rows); the part was not kept"
            raise Problem("body-too-large", said, limit=self._most_rows)
        return number

    def _write(self, batch: Batch) -> Path:
        if free_bytes(self._data) < batch.bytes + _ROOM:
            raise Problem("disk-full", "the disk of the data folder has no room for this part; it was not kept")
        path = self._folder / f"{next(self._numbers)}.arrow"
        try:
            self._folder.mkdir(FOLDER_MODE, exist_ok=True)
            with open(path, "wb", opener=private) as file:
                for batches in ([changes.rows.arrow for changes in batch.changes], batch.bad_keys):
                    with pa.ipc.new_stream(file, batches[0].schema if batches else pa.schema([])) as stream:
                        for rows in batches:
                            stream.write_batch(rows)
        except OSError as error:
            discard(path)
            said = f"the disk of the data folder does not accept this part ({reason(error)}); it was not kept"
            raise Problem("disk-full", said) from error
        return path

    def _discard_expired(self) -> None:
        """Discard expired stages."""
        limit = self._clock() - _FORGOTTEN_AFTER
        for key, stage in list(self._stages.items()):
            if stage.used < limit:
                del self._stages[key]
                _remove(stage.parts.values())


_NO_STAGE = Stage()


def _remove(parts: Iterable[StagedPart]) -> None:
    for part in parts:
        discard(part.path)


def _gather(relation: Relation, parts: Iterable[StagedPart], batch: Batch) -> None:
    """Give the batch the changes of all parts, under the present definition. Problem `bad-rows`."""
    refused, count = list[RowError](), 0
    batch.changes, batch.on_error = [], "skip"  # bad rows in other parts are refused here
    for part in parts:
        one = validated_again(_read(relation, part, batch.sent), {relation.name: relation.definition})
        if part.on_error == "reject":
            refused, count = (refused + one.errors)[:MAX_ERRORS], count + one.error_count
        batch.changes += one.changes
        batch.bad_keys += one.bad_keys
        batch.errors = (batch.errors + one.errors)[:MAX_ERRORS]
        batch.error_count += one.error_count
        batch.sent += one.sent
    refuse_bad(batch, refused, count)


def _read(relation: Relation, part: StagedPart, before: int) -> Batch:
    """Read a part as it was validated. `before`: the number of rows in the parts before it."""
    source = pa.memory_map(str(part.path))
    rows, keys = (list(pa.ipc.open_stream(source)) for _ in range(2))  # one stream after the other
    changes = []
    for one in rows:
        ops, index = np.full(one.num_rows, UPSERT, np.uint8), np.arange(one.num_rows, dtype=np.int64) + before
        changes.append(Changes(relation.name, part.definition, ops, RowBlock(one), index))
    errors = [error._replace(index=error.index + before) for error in part.errors]
    return Batch(changes, part.sent, 0, errors, part.error_count, bad_keys=[one for one in keys if one.num_rows])
