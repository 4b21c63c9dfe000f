"""An out topic, read back: its identity, its last token, and the rows that it contains.

Only committed records are read, up to the current end. Transactions of earlier producers must have ended
(`Transactions` ensures this), else their records, and those after them, would not be visible.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from streaming.config import Kafka, OutSection
from streaming.errors import StreamError
from streaming.kafka_client import (
    FoundTopic,
    admin_of,
    converting_errors,
    find_topics,
    meaning,
    missing_topics,
    read_on,
    reader_of,
    settings_of_topic,
)  # fmt: skip

_ANSWER_SECONDS = 10.0
_TAIL = 64  # offsets before the end in which the last token is looked for first; a transaction takes two of them
_POSITION = struct.Struct("<iq8s")  # partition, offset, digest of the row
Position = bytes


class Token(NamedTuple):
    """What the token's topic says: up to where the out topic holds the changes of which view. `topic`: the out topic's id, which
    another topic of its name would not have."""

    view: str
    version: int
    token: str
    topic: str
    partitions: int

    def to_json(self) -> bytes:
        return orjson.dumps(self._asdict())


class OwnTopic:
    """The out topic and its token's topic, to be closed by the caller. Any method raises KafkaUnavailable, StreamError, Stopped."""

    def __init__(self, kafka: Kafka, out: OutSection, stop: threading.Event) -> None:
        self._kafka, self._out, self._stop = kafka, out, stop
        self._topic, self.token_topic = out.topic, out.token_topic
        self._consumer = reader_of(kafka, f"livejoin.{out.topic}", {"auto.offset.reset": "error"})
        self._admin = admin_of(kafka)

    def close(self) -> None:
        self._consumer.close()

    def identity(self) -> FoundTopic:
        """The out topic's id and how many partitions it has. One round to the broker, 3 ms."""
        found = find_topics(self._admin, [self._topic], _ANSWER_SECONDS)
        if self._topic not in found:
            raise missing_topics(self._kafka, [self._topic])
        return found[self._topic]

    def make_token_topic(self) -> None:
        """Makes the small compacted topic for the token, if it is not there."""
        if find_topics(self._admin, [self.token_topic], _ANSWER_SECONDS):
            return
        new = NewTopic(self.token_topic, 1, -1, config={"cleanup.policy": "compact"})
        try:
            self._admin.create_topics([new], request_timeout=_ANSWER_SECONDS)[self.token_topic].result()
        except KafkaException as error:
            failure = error.args[0]
            if failure.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            refused = meaning(failure, f"the topic {self.token_topic}, which holds the token of {self._topic}, cannot be created")
            if isinstance(refused, StreamError):
                refused = StreamError(f"{refused}; or create it yourself, with one partition and cleanup.policy=compact")
            raise refused from error

    def last_token(self) -> Token | None:
        """The last token; None when there is none yet. The search starts at the end, so a topic that is not compacted yet costs no more."""
        low, end = self._bounds(self.token_topic, 0)
        reach = _TAIL
        while True:
            start = max(low, end - reach)
            found = [message for message in self._read(self.token_topic, {0: start}) if message.value() is not None]
            if found:
                return self._token(found[-1])
            if start == low:
                return None
            reach *= 8

    def _token(self, message: Message) -> Token:
        try:
            token = Token(**orjson.loads(message.value() or b""))
        except (orjson.JSONDecodeError, TypeError) as error:
            raise StreamError(
                f"the topic {self.token_topic} contains a record that is not a token (offset {message.offset()}): delete the topic; "
                f"{self._topic} is then read back"
            ) from error
        return token

    def is_empty(self) -> bool:
        """Whether no record was ever written to the topic."""
        return all(self._bounds(self._topic, partition)[1] == 0 for partition in range(self.identity().partitions))

    def states(self) -> dict[bytes, Position]:
        """The rows that the topic contains: digest of the key → position of its last record, with a digest of the row.

        Reads the whole topic (about 150,000 records/s) and takes about 200 bytes per row. StreamError when its beginning is missing.
        """
        starts = self._starts()
        states: dict[bytes, Position] = {}
        for message in self._read(self._topic, starts):
            row = self.row(message)
            if row is None:
                states.pop(digest(message.key() or b""), None)
            else:
                states[digest(message.key() or b"")] = position(message, row)
        return states

    def records_of(self, states: dict[bytes, Position]) -> Iterator[tuple[bytes, bytes]]:
        """Key and row of each of these states, read again from the topic."""
        starts: dict[int, int] = {}
        for partition, offset, _ in map(_POSITION.unpack, states.values()):
            starts[partition] = min(offset, starts.get(partition, offset))
        left = len(states)
        for message in self._read(self._topic, starts):
            key = message.key() or b""
            row = self.row(message)
            if row is not None and states.get(digest(key)) == position(message, row):
                yield key, row
                left -= 1
                if left == 0:
                    return
        if left:
            raise StreamError(f"{left} records of the topic {self._topic} were deleted while being read: find out what deletes them")

    def row(self, message: Message) -> bytes | None:
        """The row that exists after this record, as compact JSON; None if it is deleted. StreamError for a foreign record."""
        value = message.value()
        if value is None:
            return None
        try:
            record = orjson.loads(value)
            op, after = record["op"], record["after"]
            if op in ("r", "c") and message.key() is not None:
                return orjson.dumps(after)
            if op == "d":
                return None
        except (orjson.JSONDecodeError, KeyError, TypeError):
            pass
        raise StreamError(
            f"the topic {self._topic} contains a record that is not a change of a view (partition {message.partition()}, "
            f"offset {message.offset()}): use a separate topic for the view {self._out.view}"
        )

    def _starts(self) -> dict[int, int]:
        """The first offset of each partition. StreamError when earlier records are lost: then the rows of the topic are unknown."""
        starts = {partition: self._bounds(self._topic, partition)[0] for partition in range(self.identity().partitions)}
        cut = [partition for partition, low in starts.items() if low > 0]
        # Compaction alone keeps the last record of each key.
        if cut and self._cleanup_policy() != "compact":
            raise StreamError(
                f"the topic {self._topic} no longer has its first records (partition {cut[0]} begins at offset {starts[cut[0]]}), "
                "so the rows that its readers have are unknown: delete it, recreate it with cleanup.policy=compact (or retention.ms=-1 "
                "and retention.bytes=-1), and start again; it then starts with every row"
            )
        return starts

    def _cleanup_policy(self) -> str:
        with self._admin.converting_errors(f"the settings of the topic {self._topic} cannot be read"):
            return settings_of_topic(self._admin, self._topic, _ANSWER_SECONDS)["cleanup.policy"]

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first existing offset and the one after the last committed one."""
        with converting_errors(f"the topic {topic} cannot be read"):
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), _ANSWER_SECONDS, cached=False)
        return low, high

    def _read(self, topic: str, starts: dict[int, int]) -> Iterator[Message]:
        """The committed records from these offsets by partition to the end; within a partition in order."""
        return read_on(self._consumer, {(topic, partition): offset for partition, offset in starts.items()}, self._stop)


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


def row_digest(row: bytes) -> bytes:
    return blake2b(row, digest_size=8).digest()


def same_row(position: Position, row: bytes) -> bool:
    """Whether the row at this place of the topic is this one."""
    return bool(_POSITION.unpack(position)[2] == row_digest(row))


def position(message: Message, row: bytes) -> Position:
    return _POSITION.pack(message.partition() or 0, message.offset() or 0, row_digest(row))
