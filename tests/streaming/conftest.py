"""One broker for all tests of the pipeline; each test creates its own topics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.kafka_broker import Broker
from tests.streaming.shared_spark import SharedSpark
from tests.streaming.stream_job import Jobs, StreamJob, Topics

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def packages() -> Iterator[None]:
    """A process starts one JVM, in its first module that uses Spark; its Python finds the data source on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(ROOT / "client"))))
        yield


@pytest.fixture(scope="session")
def broker(quick_java: None) -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def topics(broker: Broker) -> Topics:
    return Topics(broker)


@pytest.fixture(scope="session")
def shared_spark(quick_java: None) -> Iterator[SharedSpark]:
    """For one job at a time. Tests that check the end of Java itself start their own Spark."""
    with SharedSpark() as spark:
        yield spark


@pytest.fixture
def job_of(broker: Broker, shared_spark: SharedSpark, tmp_path: Path) -> Jobs:
    """`job_of(url, topics, …)` returns a job on the broker and in the Spark of all tests, in the test's folder or in one within it."""

    def make(url: str, *topics: tuple[str, ...], folder: str = ".", **keys: Any) -> StreamJob:
        return StreamJob(tmp_path / folder, url, broker.address, topics, spark=shared_spark, **keys)

    return make
