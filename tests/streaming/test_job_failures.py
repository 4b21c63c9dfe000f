"""What the job says, or goes on with, when its topics, its checkpoint or its relations are no longer what they were.

In this process, on one Spark session for all: a start of Spark takes longer than all that is tested here.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from streaming import topic_watch
from streaming.config import read_config
from streaming.errors import StreamError
from streaming.failures import AFRESH
from streaming.kafka_broker import Broker
from streaming.kafka_client import quiet_admin
from streaming.metrics import Metrics
from streaming.query import run_stream
from streaming.spark import start_spark
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.streaming.stream_job import LIMIT, StreamJob, Topics
from tests.streaming.test_job import STAYS, create, ids


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_spark("tests")
    yield session
    session.stop()


class Stage:
    """A service with the relation `stays`, and topics that feed it."""

    def __init__(self, folder: Path, server: ServerProcess, broker: Broker, spark: SparkSession) -> None:
        self.folder, self.server, self.broker, self.spark = folder, server, broker, spark
        self.admin = quiet_admin({"bootstrap.servers": broker.address})
        self.checkpoint = folder / "job" / "checkpoint"
        self.metrics = Metrics()
        talk.define(server.client(), "stays", STAYS)

    def topic(self, *numbers: int) -> str:
        """A new topic with a row of each number."""
        name = f"stays-{secrets.token_hex(4)}"
        Topics(self.broker).make(name)
        self.put(name, *numbers)
        return name

    def put(self, topic: str, *numbers: int, partition: int = 0) -> None:
        # A producer of its own each time: it is to know the partitions that there are now.
        Topics(self.broker).put(topic, [create(number) for number in numbers], partition)

    def drop_before(self, topic: str, offset: int) -> None:
        """As retention does."""
        for future in self.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result(30)

    def run(self, *topics: str, stop: threading.Event | None = None, **stream: Any) -> None:
        """Runs the job to its end."""
        keys = {"trigger": "available-now", "checkpoint": str(self.checkpoint), **stream}
        job = StreamJob(self.folder / "job", self.server.url, self.broker.address, [(topic, "stays") for topic in topics], **keys)
        config = read_config(job.path)
        assert config.stream is not None
        run_stream(config, config.stream, contextlib.nullcontext(self.spark), stop or threading.Event(), self.metrics)

    def fails(self, *topics: str, **stream: Any) -> str:
        with pytest.raises(StreamError) as failure:
            self.run(*topics, **stream)
        said = str(failure.value)
        assert "\n" not in said
        return said

    def fails_after(self, topic: str, change: Callable[[], None]) -> str:
        """What it says after a change under a running job."""
        before = self.done()
        said: list[str] = []
        stop = threading.Event()
        job = threading.Thread(target=lambda: said.append(self.fails(topic, stop=stop, trigger="0 seconds")))
        job.start()
        try:
            while self.done() == before and job.is_alive():
                job.join(0.05)
            change()
            job.join(LIMIT)
        finally:
            stop.set()
            job.join()
        return said[0]

    def done(self) -> float:
        return self.metrics.registry.get_sample_value("livejoin_stream_batches_total") or 0

    def ids(self) -> list[int]:
        return ids(self.server)


@pytest.fixture
def stage(tmp_path: Path, server: ServerProcess, broker: Broker, spark: SparkSession) -> Stage:
    return Stage(tmp_path, server, broker, spark)


def test_records_that_retention_took(stage: Stage) -> None:
    topic = stage.topic(1, 2)
    stage.run(topic)
    stage.put(topic, 3, 4, 5)
    stage.drop_before(topic, 4)
    said = stage.fails(topic)
    assert "no longer has records" in said and f"{topic}-0" in said and AFRESH in said
    assert stage.ids() == [1, 2]


def test_topics_and_partitions_that_join_and_leave(stage: Stage) -> None:
    topic = stage.topic(1)
    stage.run(topic, start="latest")
    assert stage.ids() == []
    stage.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    while len(stage.admin.list_topics(timeout=30).topics[topic].partitions) < 2:
        pass
    stage.put(topic, 2, partition=1)
    stage.run(topic, start="latest")
    assert stage.ids() == [2]  # what joins is read from its beginning
    other = stage.topic(3)
    stage.run(topic, other, start="latest")
    assert stage.ids() == [2, 3]
    assert f"reads the topic {other}, which the file does not name" in stage.fails(topic)
    cut = stage.topic(4, 5)
    stage.drop_before(cut, 1)
    assert f"Added partition {cut}-0 starts from 1 instead of 0" in stage.fails(topic, other, cut)
    assert stage.ids() == [2, 3]


def test_a_topic_made_anew_with_more_records(stage: Stage) -> None:
    """By its offsets it is one that has grown."""
    topics = Topics(stage.broker)
    topic = stage.topic(1)
    stage.run(topic)
    topics.remove(topic)
    topics.make(topic)
    stage.put(topic, 2, 3, 4)
    assert f"the topic {topic} was deleted and made anew" in stage.fails(topic)
    assert stage.ids() == [1]


def test_a_topic_made_anew_under_way(stage: Stage) -> None:
    topics = Topics(stage.broker)
    topic = stage.topic(1)

    def change() -> None:
        topics.remove(topic)
        topics.make(topic)
        stage.put(topic, 2, 3, 4)

    said = stage.fails_after(topic, change)
    assert "deleted" in said and AFRESH in said
    assert stage.ids() == [1]


def test_no_batch_of_a_topic_made_anew_is_applied(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch's own looks come too late."""
    monkeypatch.setattr(topic_watch, "_LOOK_SECONDS", 30.0)
    topics = Topics(stage.broker)
    topic = stage.topic(1, 2)

    def change() -> None:
        topics.remove(topic)
        topics.make(topic)
        stage.put(topic, *range(10, 30))

    said = stage.fails_after(topic, change)
    assert "deleted" in said and AFRESH in said
    assert stage.ids() == [1, 2]


def test_a_relation_dropped_under_way(stage: Stage) -> None:
    topic = stage.topic(1)

    def change() -> None:
        talk.drop(stage.server.client(), relations=["stays"])
        stage.put(topic, 2)

    assert "has no relation stays" in stage.fails_after(topic, change)


def test_a_relation_registered_anew_under_way(stage: Stage) -> None:
    """It has another column that may be null, so nothing is refused."""
    topic = stage.topic(1)
    definition = {**STAYS, "columns": [*STAYS["columns"], {"name": "guest", "type": "string", "nullable": True}]}

    def change() -> None:
        talk.drop(stage.server.client(), relations=["stays"])
        talk.define(stage.server.client(), "stays", definition)
        stage.put(topic, 2)

    assert "the relation stays was registered anew" in stage.fails_after(topic, change)


def test_two_jobs_on_one_checkpoint(stage: Stage) -> None:
    topic = stage.topic(1)

    def change() -> None:
        offsets = stage.checkpoint / "offsets"
        (offsets / "1").write_text((offsets / "0").read_text())  # the other job's next batch
        stage.put(topic, 2)

    assert "another job runs on the checkpoint" in stage.fails_after(topic, change)
    assert stage.ids() == [1]


def test_checkpoints_that_are_no_good(stage: Stage) -> None:
    topic = stage.topic(1)
    stage.run(topic)
    assert 'is of the stream "test": give "other" a folder of its own' in stage.fails(topic, name="other")
    stage.put(topic, 2)
    pending = stage.checkpoint / "offsets" / "1"
    pending.write_text("")
    assert f"the checkpoint {stage.checkpoint} is damaged" in stage.fails(topic)
    pending.unlink()
    (stage.checkpoint / "metadata").write_text("{")
    assert f"the checkpoint {stage.checkpoint} is no good" in stage.fails(topic)
    mine = stage.folder / "mine"
    mine.mkdir()
    (mine / "letters").write_text("")
    assert "no checkpoint of Spark's" in stage.fails(topic, checkpoint=str(mine))
    assert "cannot be written" in stage.fails(topic, checkpoint=str(mine / "letters"))
    assert stage.ids() == [1]


def test_what_prometheus_is_told(stage: Stage) -> None:
    topic = stage.topic(1, 2)
    Topics(stage.broker).put(topic, [({"id": 2}, None), ({"id": 9}, {"before": {"id": 9}, "after": None, "op": "d"})])
    dead = stage.topic()
    Topics(stage.broker).put(topic, [create(3, starts="soon")])
    stage.run(topic, dead_letters=dead)

    def value(name: str, **labels: str) -> float | None:
        return stage.metrics.registry.get_sample_value(f"livejoin_stream_{name}", labels)

    assert value("records_total", topic=topic) == 5
    assert value("changes_total", topic=topic) == 3
    assert value("passed_over_total", topic=topic) == 1
    assert value("dead_letters_total", topic=topic) == 1
    assert value("ignored_deletes_total") == 1
    assert value("batches_total") == 1
    assert value("duplicate_batches_total") == 0
    assert value("version") == 1
    assert value("lag_records", topic=topic, partition="0") == 0
    assert all(value("batch_seconds_count", part=part) == 1 for part in ("fetch", "decode", "dead_letters", "post"))
    # The batch again, as after a kill before Spark's commit.
    (stage.checkpoint / "commits" / "0").unlink()
    stage.run(topic, dead_letters=dead)
    assert value("duplicate_batches_total") == 1
    assert json.loads((stage.checkpoint / "livejoin.json").read_text())["stream"] == "test"
