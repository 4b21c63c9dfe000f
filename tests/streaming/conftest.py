"""One broker for all tests of the road: each makes topics of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streaming.kafka_broker import Broker
from tests.streaming.stream_job import Topics


@pytest.fixture(scope="session")
def broker(quick_java: None) -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def topics(broker: Broker) -> Topics:
    return Topics(broker)
