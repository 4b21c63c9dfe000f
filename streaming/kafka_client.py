"""confluent-kafka's side of the job: is the broker there, are the topics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streaming.config import Kafka
from streaming.errors import StreamError
from streaming.metrics import Metrics
from streaming.patience import Patience

_ANSWER_SECONDS = 5
# librdkafka's own lines about lost connections: what matters comes as an exception too.
quiet = logging.getLogger("livejoin.kafka.quiet")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False


class KafkaAway(Exception):
    """The broker does not answer."""


def quiet_admin(settings: dict[str, str]) -> AdminClient:
    """An AdminClient that prints nothing of its own."""
    return AdminClient({"log_level": 0, **settings}, logger=quiet)


def admin_of(kafka: Kafka) -> AdminClient:
    """An AdminClient for the file's brokers. Raises StreamError for settings that it refuses."""
    try:
        return quiet_admin(settings_of(kafka))
    except KafkaException as error:
        raise StreamError(f"Kafka's client refuses the settings in [kafka]: {error.args[0].str()}") from error


def settings_of(kafka: Kafka) -> dict[str, str]:
    """The settings of [kafka] as librdkafka takes them."""
    return {**kafka.librdkafka, "bootstrap.servers": kafka.brokers}


class FoundTopic(NamedTuple):
    """A topic's id, which one made anew under its name does not have, and how many partitions it has."""

    id: str
    partitions: int


def find_topics(admin: AdminClient, topics: Collection[str], seconds: float) -> dict[str, FoundTopic]:
    """Those that the broker has. Raises KafkaException when it does not answer within `seconds`. One round to the broker, 3 ms."""
    found = {}
    for topic, answer in admin.describe_topics(TopicCollection(list(topics)), request_timeout=seconds).items():
        try:
            description = answer.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        else:
            found[topic] = FoundTopic(str(description.topic_id), len(description.partitions))
    return found


def wait_for_topics(kafka: Kafka, topics: Collection[str], stop: threading.Event, metrics: Metrics) -> dict[str, FoundTopic]:
    """The topics, when the broker answers; waits for the broker, raises StreamError for a missing topic.

    Spark asked for a broker that is away stays silent for ever, hence this first.
    """
    admin = admin_of(kafka)
    patience = Patience(stop, metrics, "kafka")
    while True:
        try:
            found = find_topics(admin, topics, _ANSWER_SECONDS)
        except KafkaException as error:
            patience.wait(f"Kafka at {kafka.brokers} does not answer ({error.args[0].str()})")
            continue
        missing = [topic for topic in topics if topic not in found]
        if missing:
            raise StreamError(f"Kafka at {kafka.brokers} has no topic {', '.join(missing)}: create it, then start again")
        return found
