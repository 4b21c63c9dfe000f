"""confluent-kafka's side of the job: is the broker there, are the topics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from confluent_kafka import KafkaException
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


def settings_of(kafka: Kafka) -> dict[str, str]:
    """The settings of [kafka] as librdkafka takes them."""
    return {**kafka.librdkafka, "bootstrap.servers": kafka.brokers}


def wait_for_topics(kafka: Kafka, topics: Iterable[str], stop: threading.Event, metrics: Metrics) -> None:
    """Returns when the broker answers and has the topics; waits for the broker, raises StreamError for a missing topic.

    Spark asked for a broker that is away stays silent for ever, hence this first.
    """
    try:
        admin = quiet_admin(settings_of(kafka))
    except KafkaException as error:
        raise StreamError(f"Kafka's client refuses the settings in [kafka]: {error.args[0].str()}") from error
    patience = Patience(stop, metrics, "kafka")
    while True:
        try:
            there = admin.list_topics(timeout=_ANSWER_SECONDS).topics
        except KafkaException as error:
            patience.wait(f"Kafka at {kafka.brokers} does not answer ({error.args[0].str()})")
            continue
        missing = [topic for topic in topics if topic not in there]
        if missing:
            raise StreamError(f"Kafka at {kafka.brokers} has no topic {', '.join(missing)}: create it, then start again")
        return
