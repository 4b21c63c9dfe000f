"""The last records of topics, read without side effects: no group is joined, no offset is committed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from streaming.config import Kafka
from streaming.kafka_client import Admin, meaning, offsets_of, quiet, settings_of

_EACH = 100  # records of a partition
_MOST = 10_000  # records of a topic
_MOST_BYTES = 32 << 20
_SECONDS = 10.0  # for one topic

Ends = dict[int, tuple[int, int]]  # partition → first offset that is there, offset after the last committed record


def ends_of(admin: Admin, topic: str, partitions: Iterable[int], seconds: float) -> Ends:
    """The offsets of each of these partitions. Raises KafkaUnavailable, StreamError."""
    asked = [(topic, number) for number in partitions]
    firsts = offsets_of(admin, asked, OffsetSpec.earliest(), seconds)  # type: ignore[no-untyped-call]
    lasts = offsets_of(admin, asked, OffsetSpec.latest(), seconds)  # type: ignore[no-untyped-call]
    return {number: (firsts[topic, number], lasts[topic, number]) for _, number in asked}


def last_records(kafka: Kafka, topic: str, ends: Ends) -> pa.Table:
    """The last hundred records of each partition (partition, offset, key, value), fewer where there are many partitions.

    Committed ones only. Stops after 32 MiB or 10 s. Raises KafkaUnavailable, StreamError.
    """
    each = min(_EACH, max(1, _MOST // len(ends)))
    start = {number: max(first, end - each) for number, (first, end) in ends.items() if first < end}
    messages: list[Message] = []
    if start:
        settings = {"log_level": 0, **settings_of(kafka), "group.id": "livejoin-check", "enable.auto.commit": False}
        reading = {"isolation.level": "read_committed", "enable.partition.eof": True, "queued.max.messages.kbytes": 1 << 14}
        with closing(Consumer({**settings, **reading}, logger=quiet)) as consumer:
            consumer.assign([TopicPartition(topic, number, offset) for number, offset in start.items()])
            messages = _read(consumer, set(start))
    columns = {
        "partition": pa.array([message.partition() for message in messages], pa.int32()),
        "offset": pa.array([message.offset() for message in messages], pa.int64()),
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
    }
    return pa.table(columns)


def _read(consumer: Consumer, open_partitions: set[int]) -> list[Message]:
    """To the end of each partition, or to a bound."""
    messages: list[Message] = []
    size, until = 0, time.monotonic() + _SECONDS
    while open_partitions and len(messages) < _MOST and size < _MOST_BYTES and (left := until - time.monotonic()) > 0:
        message = consumer.poll(left)
        if message is None:
            continue
        error = message.error()
        if error is None:
            messages.append(message)
            size += len(message.key() or b"") + len(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            open_partitions.discard(message.partition())
        elif message.topic() is not None:  # others concern a connection, and recover or end in a time-out
            raise meaning(error, f"the topic {message.topic()} cannot be read")
    return messages
