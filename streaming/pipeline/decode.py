"""Kafka records of one topic → validated changes of one relation, and the records that are no good.

Order. Within a topic records are taken by (partition, offset): Kafka gives a key's changes an order only within a
partition, so a key, byte for byte, must live in one (`KeyPlaces` notices where it does not). Topics that feed one relation are taken
in the order of the file, each whole within a batch: keys that they share have no other order.

Nothing is compacted: the service keeps the last change of a key within a batch by itself, and it counts deletes of
unknown rows, which a job that dropped what came before could only make wrong.

Cost: 2 to 3 µs of CPU a record with 6 columns, without schemas or with, most of it in orjson. It goes a piece at a time: the
objects of a piece die young, in the processor's cache and before Python's collector walks them (a whole batch at once
takes half as long again).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.batch import INSERT, TRUNCATE, UPSERT, Batch, Changes, RowBlock, concatenated
from livejoin.wire.debezium import DebeziumDecoder
from livejoin.wire.errors import RowError
from livejoin.wire.json import JsonDecoder
from livejoin.wire.schema import RelationDefinition
from streaming.config import Topic
from streaming.pipeline.columns import GONE, Columns, ColumnsWatch

Bytes = Sequence[bytes | None]
Decoder = JsonDecoder | DebeziumDecoder  # of one relation: keys and values of records in order → changes; errors and `index` by position

_PIECE = 1024  # records
_NO_COLUMNS: Columns = {}


class BadRecord(NamedTuple):
    """A record that cannot be a change."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    column: str | None
    reason: str

    @property
    def error(self) -> str:
        return f"{self.column}: {self.reason}" if self.column else self.reason


class DecodedTopic(NamedTuple):
    """What became of the records of one topic: changes (none, or one part of one relation) and bad records, in order.

    `skipped` counts what is no change and no fault: messages, transaction markers, heartbeats, tombstones after their delete or
    without a key. `keyless`: whether there are changes of rows whose record has no key; `truncates`: whether there are truncates.
    `unclear` counts times as in `Batch`. `columns`: of each partition after these records; `gone`: those that it had before.
    """

    changes: list[Changes]
    bad: list[BadRecord]
    skipped: int
    keyless: bool = False
    truncates: bool = False
    unclear: int = 0
    columns: Columns = _NO_COLUMNS
    gone: frozenset[str] = frozenset()


def decoder_for(topic: Topic, definition: RelationDefinition) -> Decoder:
    """The decoder of a topic's format. The zone of the topic goes before those of the columns."""
    if topic.zone is not None:
        definition = definition.in_zone(topic.zone)
    if topic.format == "json":
        return JsonDecoder(topic.relation, definition)
    return DebeziumDecoder(topic.relation, definition)


def decode_topic(
    decoder: Decoder, topic: str, records: pa.Table, most_bad: int, columns: Columns = _NO_COLUMNS, strict: bool = False
) -> DecodedTopic:
    """Decodes `records` (partition, offset, key, value), which are `in_order`. columns: as far as known; strict: a row that lacks one of
    them is a bad record.

    Lists the bad records: all of them, or more than `most_bad`; then it has ended early, and the changes are not all there.
    An insert becomes an upsert: a topic may say things twice.
    """
    parts: list[Changes] = []
    bad: list[BadRecord] = []
    skipped = unclear = 0
    keyless = truncates = False
    watch, gone = ColumnsWatch(columns, strict), set[str]()
    for start in range(0, records.num_rows, _PIECE):
        piece = records.slice(start, _PIECE)
        keys: list[bytes | None] = piece["key"].to_pylist()
        values: list[bytes | None] = piece["value"].to_pylist()
        batch = decoder.decode(keys, values)
        skipped += batch.ignored
        unclear += batch.unclear
        for changes in batch.changes:
            is_truncate = changes.ops == TRUNCATE
            truncates |= bool(is_truncate.any())
            if piece["key"].null_count:
                keyless |= any(keys[at] is None for at in changes.index[~is_truncate].tolist())
        errors = _all_errors(decoder, batch, keys, values, most_bad)
        if batch.lacking and batch.changes:
            (changes,) = batch.changes
            upserts = changes.index[changes.ops == UPSERT]
            late = watch.gone(upserts, piece["partition"].to_numpy()[upserts], batch.lacking)
            gone.update(name for _, name in late)
            if strict and late:
                errors = sorted(errors + [RowError(at, name, GONE) for at, name in dict(late).items()], key=lambda error: error.index)
                batch.changes = _without(changes, [*dict(late)])
        for changes in batch.changes:
            changes.index += start
            parts.append(changes)
        for error in errors:
            at = error.index
            partition, offset = piece["partition"][at].as_py(), piece["offset"][at].as_py()
            bad.append(BadRecord(topic, partition, offset, keys[at], values[at], error.column, error.reason))
        if len(bad) > most_bad:
            break
    return DecodedTopic(_joined(parts), bad, skipped, keyless, truncates, unclear, watch.columns, frozenset(gone))


def in_order(records: pa.Table) -> pa.Table:
    """By (partition, offset); Spark mostly hands them over so, and sorting would copy all the bytes."""
    partitions, offsets = records["partition"].to_numpy(), records["offset"].to_numpy()
    step = np.diff(partitions)
    if ((step > 0) | ((step == 0) & (np.diff(offsets) > 0))).all():
        return records
    return records.sort_by([("partition", "ascending"), ("offset", "ascending")])


def _without(changes: Changes, rows: Sequence[int]) -> list[Changes]:
    """The changes but those of these rows: none, or one part."""
    kept = ~np.isin(changes.index, rows)
    block = RowBlock(changes.rows.arrow.filter(pa.array(kept)))
    return [Changes(changes.relation, changes.definition, changes.ops[kept], block, changes.index[kept])] if kept.any() else []


def _joined(parts: list[Changes]) -> list[Changes]:
    """The parts of one relation as one."""
    if not parts:
        return []
    changes = concatenated(parts)
    changes.ops = np.where(changes.ops == INSERT, UPSERT, changes.ops)
    return [changes]


def _all_errors(decoder: Decoder, batch: Batch, keys: Bytes, values: Bytes, most: int) -> list[RowError]:
    """One error for each bad record, by position; ends beyond `most`. A Batch lists the first hundred: decode the rest again."""
    errors: dict[int, RowError] = {}
    start = 0
    while True:
        for error in batch.errors:
            errors.setdefault(start + error.index, error._replace(index=start + error.index))
        if batch.error_count <= len(batch.errors) or len(errors) > most:
            return list(errors.values())
        start = max(errors) + 1
        batch = decoder.decode(keys[start:], values[start:])


class KeyPlaces:
    """Where the keys of a topic were seen last: notices a key in two partitions, to which Kafka gives no order.

    It remembers hashes of the last keys, up to 262,144 of them (a place each, 3 MiB), over all batches since records of a
    second partition came; a key whose place another took in between may go unnoticed. Costs nothing while there is one
    partition, then 0.2 µs a record.
    """

    _SLOTS = 2**18

    def __init__(self) -> None:
        self._partition: int | None = None  # the only one so far
        self._hashes: npt.NDArray[np.int64] | None = None
        self._positions = np.full(0, -1, np.int32)

    def is_disordered(self, records: pa.Table) -> bool:
        """Whether a key of `records` (partition, key) is, or was seen before, in another partition too. Null keys are not looked at."""
        if self._hashes is None:
            partitions = pc.unique(records["partition"]).to_pylist()
            if len({*partitions, self._partition} - {None}) < 2:
                self._partition = next(iter(partitions), self._partition)
                return False
            self._hashes, self._positions = np.zeros(self._SLOTS, np.int64), np.full(self._SLOTS, -1, np.int32)
        if records["key"].null_count:
            records = records.filter(pc.is_valid(records["key"]))
        hashes = np.fromiter(map(hash, records["key"].to_pylist()), np.int64, records.num_rows)
        positions = records["partition"].to_numpy().astype(np.int32, copy=False)
        slots = hashes & (self._SLOTS - 1)
        moved = self._moved(slots, hashes, positions)
        self._hashes[slots], self._positions[slots] = hashes, positions  # of one slot the last stays
        return moved or self._moved(slots, hashes, positions)

    def _moved(self, slots: npt.NDArray[np.int64], hashes: npt.NDArray[np.int64], positions: npt.NDArray[np.int32]) -> bool:
        assert self._hashes is not None
        known = (self._hashes[slots] == hashes) & (self._positions[slots] >= 0)
        return bool((known & (self._positions[slots] != positions)).any())
