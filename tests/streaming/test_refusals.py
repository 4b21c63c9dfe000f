"""A broker that knows its users: what it refuses ends the job with what to do, where an absence would be waited out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from streaming.config import Kafka, OutSection
from streaming.errors import StreamError
from streaming.kafka_broker import Broker, free_port
from streaming.kafka_client import wait_for_topics
from streaming.metrics import Metrics
from streaming.publishing.own_topic import OwnTopic
from streaming.publishing.transactions import Transactions
from tests.streaming.stream_job import Topics

_MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_PLAINTEXT"
_MORE = f"""
listener.security.protocol.map={_MAP}
sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_guest="right";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


class GuardedBroker(Broker):
    """Its second listener lets in `guest`, who may do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.guarded = f"127.0.0.1:{free_port()}"

    def _write_properties(self) -> None:
        super()._write_properties()
        path = self.data / "server.properties"
        more = f",SECURE://{self.guarded}"
        lines = [line + more if "listeners=" in line else line for line in path.read_text().splitlines()]
        path.write_text("\n".join(lines) + _MORE)


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedBroker]:
    with GuardedBroker() as broker:
        Topics(broker).make("t")
        yield broker


def guest(broker: GuardedBroker, password: str = "right") -> Kafka:
    sasl = {"sasl.mechanism": "PLAIN", "sasl.username": "guest", "sasl.password": password}
    return Kafka.model_validate({"brokers": broker.guarded, "security.protocol": "SASL_PLAINTEXT", "librdkafka": sasl})


def test_a_wrong_password(guarded: GuardedBroker) -> None:
    with pytest.raises(StreamError, match="Invalid username or password.*check the user, password and mechanism in"):
        wait_for_topics(guest(guarded, "wrong"), ["t"], threading.Event(), Metrics())


def test_a_right_that_is_lacking(guarded: GuardedBroker) -> None:
    kafka, stop, metrics, out = guest(guarded), threading.Event(), Metrics(), OutSection(view="v", topic="t")
    with pytest.raises(StreamError, match="the topic t cannot be described .*Topic authorization failed.*grant the user in"):
        wait_for_topics(kafka, ["t"], stop, metrics)
    with pytest.raises(StreamError, match="cannot be published to .*: (allow|grant)"):
        Transactions(kafka, "t", stop, metrics)
    with closing(OwnTopic(kafka, out, stop)) as own, pytest.raises(StreamError, match="Topic authorization failed.*grant the user in"):
        own.identity()
