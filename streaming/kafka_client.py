"""The job's use of confluent-kafka: whether the broker and the topics exist."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from streaming.config import Kafka
from streaming.errors import StreamError
from streaming.metrics import Metrics, Partition
from streaming.patience import Patience, Stopped

_ANSWER_SECONDS = 5
_SILENT_SECONDS = 20.0
_AT_ONCE = 4096
# librdkafka logs lost connections here; everything that matters is raised as an exception too.
quiet = logging.getLogger("livejoin.kafka.quiet")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False


_ALLOW = "grant the user in [kafka] this permission"
_CREDENTIALS = "check the user, password and mechanism in [kafka]"
_NEWER = "the broker is too old for livejoin: upgrade it"
# Errors that a retry does not fix, and what to do.
_REMEDIES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _ALLOW,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _ALLOW,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _ALLOW,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant the user in [kafka] permission to write in transactions",
    KafkaError.SASL_AUTHENTICATION_FAILED: _CREDENTIALS,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: _CREDENTIALS,
    KafkaError._AUTHENTICATION: _CREDENTIALS,
    KafkaError.MSG_SIZE_TOO_LARGE: 'raise "message.max.bytes" in [kafka.librdkafka] and max.message.bytes of the topic, '
    "to somewhat more than the size of the record",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "the broker does not allow transactions this long: "
    'set "transaction.timeout.ms" in [kafka.librdkafka] to its transaction.max.timeout.ms',
    KafkaError.POLICY_VIOLATION: "rejected by a policy of the broker: see the broker's log",
    KafkaError.INVALID_RECORD: "the broker rejected the record: see its log (a compacted topic requires keys)",
    KafkaError.INVALID_CONFIG: "see the broker's log",
    KafkaError.UNSUPPORTED_VERSION: _NEWER,
    KafkaError._UNSUPPORTED_FEATURE: _NEWER,
}


class KafkaUnavailable(Exception):
    """The broker does not answer, or is not ready: a retry may help."""


def meaning(error: KafkaError, what: str) -> KafkaUnavailable | StreamError:
    """The exception for a failure: if a retry does not help, a StreamError with `what` (why): what to do; else a KafkaUnavailable."""
    remedy = _REMEDIES.get(error.code())
    return StreamError(f"{what} ({error.str()}): {remedy}") if remedy else KafkaUnavailable(error.str())


@contextmanager
def converting_errors(what: str) -> Iterator[None]:
    """Converts a KafkaException of the block (`meaning`)."""
    try:
        yield
    except KafkaException as error:
        raise meaning(error.args[0], what) from error


def refused_settings(error: KafkaException) -> StreamError:
    """The message for settings that librdkafka rejects."""
    return StreamError(f"the Kafka client rejects the settings in [kafka]: {error.args[0].str()}")


class Admin(AdminClient):
    """An AdminClient that prints nothing of its own."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._trouble: deque[KafkaError] = deque(maxlen=2)
        ours: dict[str, Any] = {"log_level": 0, **settings, "error_cb": self._trouble.append}
        super().__init__(ours, logger=quiet)

    @contextmanager
    def converting_errors(self, what: str) -> Iterator[None]:
        """Converts a KafkaException of the block (`meaning`). A wrong password shows only in the last connection errors."""
        try:
            yield
        except KafkaException as error:
            failure = error.args[0]
            if failure.code() == KafkaError._TIMED_OUT:
                self.poll(0)
                failure = next((each for each in self._trouble if each.code() == KafkaError._AUTHENTICATION), failure)
            raise meaning(failure, what) from error
        else:
            self.poll(0)
            self._trouble.clear()  # it is over


def admin_of(kafka: Kafka) -> Admin:
    """An AdminClient for the file's brokers. Raises StreamError for settings that it rejects."""
    try:
        return Admin(settings_of(kafka))
    except KafkaException as error:
        raise refused_settings(error) from error


def settings_of(kafka: Kafka) -> dict[str, str]:
    """The settings of [kafka] for librdkafka."""
    return {**kafka.librdkafka, "bootstrap.servers": kafka.brokers}


class FoundTopic(NamedTuple):
    """A topic's id, which changes when the topic is recreated, and its number of partitions."""

    id: str
    partitions: int


def find_topics(admin: Admin, topics: Collection[str], seconds: float = _ANSWER_SECONDS) -> dict[str, FoundTopic]:
    """The topics that the broker has. Raises KafkaUnavailable when it does not answer within `seconds`, StreamError when it refuses.

    One round to the broker, 3 ms.
    """
    found = {}
    for topic, answer in admin.describe_topics(TopicCollection(list(topics)), request_timeout=seconds).items():
        with admin.converting_errors(f"the topic {topic} cannot be described"):
            try:
                description = answer.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            else:
                found[topic] = FoundTopic(str(description.topic_id), len(description.partitions))
    return found


def offsets_of(admin: Admin, at: Collection[Partition], which: OffsetSpec, seconds: float) -> dict[Partition, int]:
    """The offset of each of these partitions: earliest, or latest (after what is committed). Raises KafkaUnavailable, StreamError."""
    asked = {TopicPartition(*partition): which for partition in at}
    with admin.converting_errors("the offsets of the topics cannot be read"):
        answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=seconds)
        return {(partition.topic, partition.partition): answer.result().offset for partition, answer in answers.items()}


def settings_of_topic(admin: Admin, topic: str, seconds: float) -> dict[str, str]:
    """By name. Raises KafkaException."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource], request_timeout=seconds)[resource].result()
    return {entry.name: str(entry.value) for entry in entries.values()}


def missing_topics(kafka: Kafka, topics: Collection[str]) -> StreamError:
    """The message for topics that do not exist."""
    return StreamError(f"Kafka at {kafka.brokers} has no topic {', '.join(topics)}: create it, then start again")


def wait_for_topics(kafka: Kafka, topics: Collection[str], stop: threading.Event, metrics: Metrics) -> dict[str, FoundTopic]:
    """The topics, when the broker answers; waits for the broker, raises StreamError for a missing topic or a refusal, Stopped.

    Spark waits for an unavailable broker silently and forever, hence this check first.
    """
    admin = admin_of(kafka)
    patience = Patience(stop, metrics, "kafka")
    while True:
        try:
            found = find_topics(admin, topics)
        except KafkaUnavailable as away:
            patience.wait(f"Kafka at {kafka.brokers} does not answer ({away})")
            continue
        if missing := [topic for topic in topics if topic not in found]:
            raise missing_topics(kafka, missing)
        return found


def reader_of(kafka: Kafka, group: str, more: Mapping[str, Any]) -> Consumer:
    """A consumer of committed records at assigned positions. `group` is required by librdkafka; nobody joins it."""
    ours = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": "read_committed", **more}
    try:
        return Consumer({"log_level": 0, **settings_of(kafka), **ours}, logger=quiet)
    except KafkaException as error:
        raise refused_settings(error) from error


def read_on(consumer: Consumer, starts: Mapping[Partition, int], stop: threading.Event) -> Generator[Message, None, None]:
    """The committed records from these offsets to the end; within a partition in order.

    Raises KafkaUnavailable, StreamError, Stopped.
    """
    consumer.assign([TopicPartition(*at, offset or OFFSET_BEGINNING) for at, offset in starts.items()])
    left = set(starts)
    until = time.monotonic() + _SILENT_SECONDS
    try:
        while left:
            if stop.is_set():
                raise Stopped
            messages = consumer.consume(_AT_ONCE, 0.2)
            if messages:
                until = time.monotonic() + _SILENT_SECONDS
            elif time.monotonic() > until:
                topics = ", ".join(sorted({topic for topic, _ in left}))
                raise KafkaUnavailable(f"no records received from {topics} for {_SILENT_SECONDS:g} s")
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard((message.topic() or "", message.partition() or 0))
                elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # without joining a group, no permission for it is needed
                    raise meaning(error, f"the topic {message.topic() or next(iter(left))[0]} cannot be read")
    finally:
        consumer.unassign()
