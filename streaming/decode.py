"""Kafka records of one topic → judged changes of one relation, and the records that are no good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.wire.batch import INSERT, UPSERT, Batch, Changes
from service.wire.debezium import DebeziumDecoder
from service.wire.errors import RowError
from service.wire.json import JsonDecoder
from service.wire.schema import RelationDefinition
from streaming.config import Topic

Bytes = Sequence[bytes | None]


class Decoder(Protocol):
    """Of one relation: keys and values of records in order → their changes; errors and `index` by position."""

    def decode(self, keys: Bytes, values: Bytes) -> Batch: ...


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


class Decoded(NamedTuple):
    """What became of the records of one topic."""

    changes: list[Changes]
    bad: list[BadRecord]


def decoder_for(topic: Topic, definition: RelationDefinition) -> Decoder:
    """The decoder of a topic's format."""
    if topic.format == "json":
        return JsonDecoder(topic.relation, definition)
    return DebeziumDecoder(topic.relation, definition)


def decode_topic(decoder: Decoder, topic: str, records: pa.Table, most_bad: int) -> Decoded:
    """Decodes `records` (partition, offset, key, value) in the order of (partition, offset).

    Lists the bad records: all, or more than `most_bad` of them. An insert becomes an upsert: a topic may say things twice.
    """
    ordered = records.sort_by([("partition", "ascending"), ("offset", "ascending")])
    keys: list[bytes | None] = ordered["key"].to_pylist()
    values: list[bytes | None] = ordered["value"].to_pylist()
    batch = decoder.decode(keys, values)
    for changes in batch.changes:
        changes.ops = np.where(changes.ops == INSERT, np.uint8(UPSERT), changes.ops)
    bad = []
    for error in _all_errors(decoder, batch, keys, values, most_bad):
        at = error.index
        partition, offset = ordered["partition"][at].as_py(), ordered["offset"][at].as_py()
        bad.append(BadRecord(topic, partition, offset, keys[at], values[at], error.column, error.reason))
    return Decoded(batch.changes, bad)


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


def keys_in_two_partitions(records: pa.Table) -> bool:
    """Whether a Kafka key of these records is in more than one partition; then Kafka gives its changes no order."""
    if pc.count_distinct(records["partition"]).as_py() < 2:
        return False
    keyed = records.filter(pc.is_valid(records["key"])).group_by("key").aggregate([("partition", "count_distinct")])
    most = pc.max(keyed["partition_count_distinct"]).as_py()
    return most is not None and most > 1
