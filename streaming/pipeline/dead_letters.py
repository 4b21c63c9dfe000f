"""Bad records, set aside in a topic."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from streaming.config import Kafka
from streaming.kafka_client import meaning, quiet, read_on, reader_of, refused_settings, settings_of
from streaming.patience import Stopped
from streaming.pipeline.decode import BadRecord

_DELIVERY_MS = 30_000
_LOOK_SECONDS = 0.5
_STOP_SECONDS = 5  # for a broker that is there
_Position = tuple[str, int, int]  # topic, partition, offset
_Headers = list[tuple[str, bytes | None]]


class DeadLetters:
    """Writes bad records to a topic: key, value and headers as they were; where they came from and what is wrong in headers of ours."""

    def __init__(self, kafka: Kafka, topic: str, stop: threading.Event) -> None:
        self._kafka, self._topic, self._stop = kafka, topic, stop
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None  # after a failure there is another one

    def write(self, records: Sequence[BadRecord]) -> None:
        """Returns when the broker has them all. Raises KafkaUnavailable, StreamError when it refuses one, Stopped."""
        headers = self._headers_of({(record.topic, record.partition, record.offset) for record in records})
        if self._producer is None:
            self._producer = self._new_producer()
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)

        for record in records:
            whole: list[tuple[str, str | bytes | None]] = [
                *headers.get((record.topic, record.partition, record.offset), ()),
                ("livejoin.topic", record.topic.encode()),
                ("livejoin.partition", str(record.partition).encode()),
                ("livejoin.offset", str(record.offset).encode()),
                ("livejoin.error", record.error.encode()),
            ]
            while True:
                try:
                    self._producer.produce(self._topic, key=record.key, value=record.value, headers=whole, on_delivery=on_delivery)
                    break
                except BufferError:  # a full queue: let it drain
                    self._producer.poll(_LOOK_SECONDS)
                    if self._stop.is_set():
                        raise Stopped from None
                except KafkaException as failure:  # too large for this client
                    failures.append(failure.args[0])
                    break
        while self._producer.flush(_LOOK_SECONDS):
            if self._stop.is_set() and self._producer.flush(_STOP_SECONDS):
                raise Stopped
        for error in failures:
            self._producer = None
            raise meaning(error, f"the dead-letter topic {self._topic} rejects a record")

    def _headers_of(self, wanted: set[_Position]) -> dict[_Position, _Headers]:
        """By place, of those that have any and are still there, read again: Spark brings none, as all but dead letters can do without.

        Reads each partition from the first of its places to the last: about 150,000 records/s.
        """
        if self._consumer is None:
            # Where retention was quicker there is nothing to be had.
            self._consumer = reader_of(self._kafka, "livejoin.headers", {"auto.offset.reset": "latest"})
        starts: dict[tuple[str, int], int] = {}
        for topic, partition, offset in wanted:
            starts[topic, partition] = min(offset, starts.get((topic, partition), offset))
        found: dict[_Position, _Headers] = {}
        with closing(read_on(self._consumer, starts, self._stop)) as messages:
            for message in messages:
                position = (message.topic() or "", message.partition() or 0, message.offset() or 0)
                if position in wanted:
                    wanted.remove(position)
                    if headers := message.headers():
                        found[position] = cast(_Headers, headers)
                    if not wanted:
                        break
        return found

    def _new_producer(self) -> Producer:
        settings = {"log_level": 0, "message.timeout.ms": _DELIVERY_MS, **settings_of(self._kafka), "enable.idempotence": True}
        try:
            return Producer(settings, logger=quiet)
        except KafkaException as error:
            raise refused_settings(error) from error
