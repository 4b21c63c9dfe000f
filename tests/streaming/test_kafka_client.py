"""What Kafka's errors mean to the job: wait, or end with what to do."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.errors import StreamError
from streaming.kafka_client import KafkaUnavailable, converting_errors, meaning

REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user in",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the user in",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the user in",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "write in transactions",
    KafkaError.SASL_AUTHENTICATION_FAILED: "user, password",
    KafkaError._AUTHENTICATION: "user, password",
    KafkaError.MSG_SIZE_TOO_LARGE: "message.max.bytes",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "transaction.timeout.ms",
    KafkaError.POLICY_VIOLATION: "broker's log",
}
AWAY = [
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.BROKER_NOT_AVAILABLE,
]


@pytest.mark.parametrize("code", REFUSED)
def test_a_refusal_ends_the_job(code: int) -> None:
    failure = meaning(KafkaError(code), "the topic t cannot be read")
    assert isinstance(failure, StreamError) and "\n" not in str(failure)
    assert str(failure).startswith("the topic t cannot be read (") and REFUSED[code] in str(failure)


@pytest.mark.parametrize("code", AWAY)
def test_an_absence_is_waited_out(code: int) -> None:
    with pytest.raises(KafkaUnavailable) as away, converting_errors("the topic t cannot be read"):
        raise KafkaException(KafkaError(code))
    assert str(away.value) == KafkaError(code).str()
