"""What a lost transaction means, and a broker that takes no records, without a broker."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import KafkaError

from streaming.config import Kafka
from streaming.errors import StreamError
from streaming.kafka_client import KafkaUnavailable
from streaming.metrics import Metrics
from streaming.patience import Stopped
from streaming.publishing.transactions import Transactions


class Pauses(threading.Event):
    """A stop that notes the pauses, lets none of them pass, and comes after so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._most = most

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0)
        return len(self.seconds) >= self._most


class FullProducer:
    """Its broker takes nothing."""

    def begin_transaction(self) -> None:
        pass

    def produce(self, *record: object) -> None:
        raise BufferError

    def poll(self, seconds: float) -> None:
        pass


def transactions(stop: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Transactions:
    monkeypatch.setattr(Transactions, "_call", lambda *arguments: None)
    made = Transactions(Kafka.model_validate({"brokers": "127.0.0.1:1"}), "t", stop, Metrics())
    made._producer = FullProducer()  # type: ignore[assignment]
    return made


def test_another_job_or_a_transaction_that_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's word is the same."""
    lost = transactions(threading.Event(), monkeypatch)
    fenced = KafkaError(KafkaError._FENCED, "fenced", True)
    with pytest.raises(StreamError, match="another job has started to publish to the topic t"):
        lost._fail(fenced)
    lost._began = time.monotonic() - 901
    with pytest.raises(KafkaUnavailable, match="took longer than 900 s: raise transaction.max.timeout.ms"):
        lost._fail(fenced)


def test_pauses_grow_while_the_broker_takes_no_records(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stop = Pauses(1000)
    full = transactions(stop, monkeypatch)
    with pytest.raises(Stopped):
        full.put("t", b"k", b"v")
    short = [seconds for seconds in stop.seconds if seconds == 0.05]
    assert len(short) == 100 and stop.seconds[100:107] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5] and set(stop.seconds[107:]) == {5}
    assert len(caplog.messages) == 8
