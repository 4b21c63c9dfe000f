"""Bad records, set aside in a topic."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.config import Kafka
from streaming.kafka_client import meaning, quiet, refused_settings, settings_of
from streaming.patience import Stopped
from streaming.pipeline.decode import BadRecord
from streaming.pipeline.headers import HeaderReader

_DELIVERY_MS = 30_000
_LOOK_SECONDS = 0.5
_STOP_SECONDS = 5  # for a broker that is there


class DeadLetters:
    """Writes bad records to a topic: key, value and headers as they were; where they came from and what is wrong in headers of ours."""

    def __init__(self, kafka: Kafka, topic: str, stop: threading.Event) -> None:
        self._kafka, self._topic, self._stop = kafka, topic, stop
        self._headers = HeaderReader(kafka, stop)
        self._producer: Producer | None = None  # after a failure there is another one

    def write(self, records: Sequence[BadRecord]) -> None:
        """Returns when the broker has them all. Raises KafkaUnavailable, StreamError when it refuses one, Stopped."""
        headers = self._headers.headers_of((record.topic, record.partition, record.offset) for record in records)
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

    def _new_producer(self) -> Producer:
        settings = {"log_level": 0, "message.timeout.ms": _DELIVERY_MS, **settings_of(self._kafka), "enable.idempotence": True}
        try:
            return Producer(settings, logger=quiet)
        except KafkaException as error:
            raise refused_settings(error) from error
