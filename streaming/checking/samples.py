"""The last records of topics, read without side effects: no group is joined, no offset is committed."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import closing, suppress

import pyarrow as pa
from confluent_kafka import Message
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from streaming.config import Kafka
from streaming.kafka_client import Admin, offsets_of, read_on, reader_of
from streaming.patience import Stopped

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
    starts = {(topic, number): max(first, end - each) for number, (first, end) in ends.items() if first < end}
    messages, size, over = list[Message](), 0, threading.Event()
    timer = threading.Timer(_SECONDS, over.set)
    timer.daemon = True
    timer.start()
    if starts:
        with closing(reader_of(kafka, "livejoin-check", {"queued.max.messages.kbytes": 1 << 14})) as consumer, suppress(Stopped):
            for message in read_on(consumer, starts, over):
                messages.append(message)
                size += len(message.key() or b"") + len(message.value() or b"")
                if len(messages) == _MOST or size >= _MOST_BYTES:
                    break
    timer.cancel()
    columns = {
        "partition": pa.array([message.partition() for message in messages], pa.int32()),
        "offset": pa.array([message.offset() for message in messages], pa.int64()),
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
    }
    return pa.table(columns)
