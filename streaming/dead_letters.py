"""Bad records, set aside in a topic."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.config import Kafka
from streaming.decode import BadRecord
from streaming.errors import StreamError
from streaming.kafka_client import KafkaAway, quiet, settings_of
from streaming.patience import Stopped

_DELIVERY_MS = 30_000
_LOOK_SECONDS = 0.5
_STOP_SECONDS = 5  # for a broker that is there
_TOO_LARGE = ': raise "message.max.bytes" in [kafka.librdkafka] and max.message.bytes of the topic, by some more than what it came from has'


class DeadLetters:
    """Writes bad records to a topic: key and value as they were, where they came from and what is wrong in the headers."""

    def __init__(self, kafka: Kafka, topic: str, stop: threading.Event) -> None:
        self._stop = stop
        self._topic = topic
        self._producer = Producer(
            {"log_level": 0, "message.timeout.ms": _DELIVERY_MS, **settings_of(kafka), "enable.idempotence": True}, logger=quiet
        )

    def write(self, records: Sequence[BadRecord]) -> None:
        """Returns when the broker has them all. Raises KafkaAway, StreamError when it refuses one, Stopped."""
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)

        for record in records:
            headers: list[tuple[str, str | bytes | None]] = [
                ("livejoin.topic", record.topic.encode()),
                ("livejoin.partition", str(record.partition).encode()),
                ("livejoin.offset", str(record.offset).encode()),
                ("livejoin.error", record.error.encode()),
            ]
            while True:
                try:
                    self._producer.produce(self._topic, key=record.key, value=record.value, headers=headers, on_delivery=on_delivery)
                    break
                except BufferError:  # a full queue: let it drain
                    self._producer.poll(1)
                except KafkaException as failure:  # too large for this client
                    failures.append(failure.args[0])
                    break
        while self._producer.flush(_LOOK_SECONDS):
            if self._stop.is_set() and self._producer.flush(_STOP_SECONDS):
                raise Stopped
        for error in failures:
            if error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN) or error.retriable():
                raise KafkaAway(error.str())
            remedy = _TOO_LARGE if error.code() == KafkaError.MSG_SIZE_TOO_LARGE else ""
            raise StreamError(f"the dead letters' topic {self._topic} refuses a record: {error.str()}{remedy}")
