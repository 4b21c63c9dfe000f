"""The environment of the pipeline's benchmarks: a real broker with two topics, and a service with their relations and the view."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
from confluent_kafka import Producer

from streaming.kafka_broker import Broker
from streaming.kafka_client import quiet
from tests.benchmarks.pipeline_records import RELATIONS, SQL, VIEW, Record, definition
from tests.server_process import ServerProcess
from tests.streaming.stream_job import StreamJob, Topics

TOPICS = {relation: f"hotel.public.{relation}" for relation in RELATIONS}
_FLUSH_SECONDS = 120


class Processors(NamedTuple):
    """Seconds of processor time so far."""

    driver: float
    jvm: float
    service: float
    broker: float

    def since(self, earlier: Processors) -> Processors:
        return Processors(*(now - then for now, then in zip(self, earlier, strict=True)))


class Stage:
    """A broker and a service; `folder` is for the job's files."""

    def __init__(self, folder: Path, broker: Broker, server: ServerProcess) -> None:
        self.broker, self.server = broker, server
        self._folder = folder

    def produce(self, records: Iterable[Record]) -> None:
        """Write records to their topics; return when the broker has acknowledged them."""
        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 50, "batch.size": 1_000_000}, logger=quiet)
        for record in records:
            while True:
                try:
                    producer.produce(TOPICS[record.relation], record.value, record.key)
                    break
                except BufferError:  # the queue is full: let it drain
                    producer.poll(1)
        assert producer.flush(_FLUSH_SECONDS) == 0

    def job(self, **stream: object) -> StreamJob:
        """`livejoin stream` over both topics, not started."""
        topics = [(topic, relation) for relation, topic in TOPICS.items()]
        return StreamJob(self._folder, self.server.url, self.broker.address, topics, **stream)

    def processors(self, job: StreamJob) -> Processors:
        """Processor time of each part of the pipeline since its start."""
        jvm = job.jvm()
        assert jvm is not None and self.broker.process is not None
        pids = job.process.pid, jvm.pid, self.server.process.pid, self.broker.process.pid
        return Processors(*(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids))


@contextmanager
def stage(partitions: int = 1) -> Iterator[Stage]:
    """A broker and a service, each in a new temporary folder."""
    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as folder, Broker() as broker:
        Topics(broker).make(*TOPICS.values(), partitions=partitions)
        with serving_view(Path(folder)) as server:
            yield Stage(Path(folder) / "job", broker, server)


@contextmanager
def serving_view(folder: Path) -> Iterator[ServerProcess]:
    """A service with the relations and the view, which are empty."""
    with ServerProcess(folder / "data", fresh=True) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        for relation in RELATIONS:
            client.put(f"/v1/relations/{relation}", json=definition(relation)).raise_for_status()
        client.put(f"/v1/views/{VIEW}", json={"sql": SQL}).raise_for_status()
        yield server


def view_count(server: ServerProcess) -> int:
    """The rows of the view."""
    answer = httpx.get(f"{server.url}/v1/views/{VIEW}/count", timeout=600)
    return int(answer.raise_for_status().json()["count"])
