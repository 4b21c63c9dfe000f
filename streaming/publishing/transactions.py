"""Records to Kafka in transactions: a `read_committed` reader sees each transaction completely or not at all.

    init_transactions aborts what an earlier producer of the same id left open, and fences it: only one can continue.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.config import Kafka
from streaming.errors import StreamError
from streaming.kafka_client import KafkaUnavailable, meaning, quiet, refused_settings, settings_of
from streaming.metrics import Metrics
from streaming.patience import Patience, Stopped

# The default maximum of a broker (transaction.max.timeout.ms): tens of millions of records.
_LONGEST_MS = 900_000
_BY_KEY = -1  # the partitioner decides
_QUEUE_KBYTES = 64 << 10  # records that wait for the broker
_ANSWER_SECONDS = 2.0
_ROOM_SECONDS = 0.05
_EMITTED_AFTER = 100  # times without room: about 5 s
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Transactions:
    """The transactional producer of one out topic, for one thread, to be closed by the caller.

    Starts in about 0.1 s and waits for an unavailable broker (Stopped). Any method raises KafkaUnavailable when the transaction is
    lost: nothing of it becomes visible, and a new producer may repeat it; StreamError when that would not help.
    """

    def __init__(self, kafka: Kafka, topic: str, stop: threading.Event, metrics: Metrics) -> None:
        self._kafka, self._topic, self._stop, self._metrics = kafka, topic, stop, metrics
        self._failure: KafkaError | None = None  # the first record that was not taken
        self.records = 0  # of the open transaction
        light = {"transaction.timeout.ms": _LONGEST_MS, "queue.buffering.max.kbytes": _QUEUE_KBYTES, "log_level": 0}
        ours = {"transactional.id": f"livejoin.{topic}", "delivery.report.only.error": True, "on_delivery": self._on_failure}
        try:
            self._producer = Producer({**light, **settings_of(kafka), **ours}, logger=quiet)
        except KafkaException as error:
            raise refused_settings(error) from error
        self._longest = float(kafka.librdkafka.get("transaction.timeout.ms", _LONGEST_MS)) / 1000
        self._open = False
        self._began = time.monotonic()
        self._call(self._producer.init_transactions)

    def close(self) -> None:
        """Aborts an open transaction: readers need not wait for its time-out. If the broker is unavailable, the next start aborts it."""
        if self._open:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(_ANSWER_SECONDS)

    def put(self, topic: str, key: bytes, value: bytes | None, partition: int = _BY_KEY) -> None:
        """Adds a record to the transaction, which begins with the first one. Waits while 64 MiB of records are still to be sent."""
        full, patience = 0, Patience(self._stop, self._metrics, "kafka")
        while True:
            try:
                if not self._open:
                    self._producer.begin_transaction()
                    self._open, self._began = True, time.monotonic()
                self._producer.produce(topic, value, key, partition)
                break
            except BufferError:
                self._producer.poll(0)
                full += 1
                if full > _EMITTED_AFTER:
                    patience.wait(f"Kafka at {self._kafka.brokers} does not accept records")
                elif self._stop.wait(_ROOM_SECONDS):
                    raise Stopped from None
            except KafkaException as error:
                self._fail(error.args[0])
        self.records += 1

    def commit(self) -> None:
        """Returns when the transaction is committed. About 3 ms; waits for an unavailable broker."""
        self._call(self._producer.commit_transaction)
        self._open = False
        self.records = 0

    def abort(self) -> None:
        """Discards the records since the last commit."""
        if self._open:
            self._call(self._producer.abort_transaction)
            self._open = False
            self.records = 0

    def _call(self, step: Callable[[float], None]) -> None:
        """Runs a step that can be repeated if it timed out."""
        patience = Patience(self._stop, self._metrics, "kafka")
        while True:
            try:
                return step(_ANSWER_SECONDS)
            except KafkaException as error:
                failure = error.args[0]
                if not failure.retriable():
                    self._fail(failure)
                patience.wait(f"Kafka at {self._kafka.brokers} does not answer ({failure.str()})")

    def _fail(self, failure: KafkaError) -> None:
        """Raises the exception for the failure. Aborts first, so that another job that took over is detected, and not fenced in turn."""
        if self._open and not failure.fatal():
            self._open = False
            self._call(self._producer.abort_transaction)
        if failure.fatal() and failure.code() in _FENCED:
            # A broker that aborts a transaction because of its time-out reports the same.
            if time.monotonic() - self._began >= self._longest:
                limits = 'transaction.max.timeout.ms of the broker and "transaction.timeout.ms" in [kafka.librdkafka]'
                raise KafkaUnavailable(f"a transaction took longer than {self._longest:g} s: raise {limits}")
            raise StreamError(f"another job has started to publish to the topic {self._topic}: run only one")
        causes = [cause for cause in (self._failure, failure) if cause is not None]
        meant = [meaning(cause, f"the topic {self._topic} cannot be published to") for cause in causes]
        raise next((each for each in meant if isinstance(each, StreamError)), meant[0])

    def _on_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._failure = error
