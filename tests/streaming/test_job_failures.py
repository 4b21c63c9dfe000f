"""What the job says, or goes on with, when its topics, its checkpoint or its relations are no longer what they were.

In this process, on one Spark session for all: a start of Spark takes longer than all that is tested here.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from streaming.config import read_config
from streaming.errors import StreamError
from streaming.failures import AFRESH
from streaming.kafka_broker import Broker
from streaming.kafka_client import Admin, FoundTopic
from streaming.metrics import Metrics
from streaming.pipeline import pipeline, topic_watch
from streaming.pipeline.query import run_stream
from streaming.pipeline.topic_watch import TopicWatch
from streaming.spark import start_spark
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.streaming.stream_job import LIMIT, StreamJob, Topics
from tests.streaming.test_job import STAYS, create, ids


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all, too: each test's job has a name of its own."""
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_spark("tests")
    yield session
    session.stop()


class RunningJob(threading.Thread):
    """A job in a thread."""

    def wait_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT
        while not condition():
            assert self.is_alive() and time.monotonic() < end
            self.join(0.05)


class Stage:
    """A service with the relation `stays`, empty, and topics that feed it."""

    def __init__(self, folder: Path, server: ServerProcess, broker: Broker, spark: SparkSession) -> None:
        self.folder, self.server, self.broker, self.spark = folder, server, broker, spark
        self.admin = Admin({"bootstrap.servers": broker.address})
        self.checkpoint = folder / "job" / "checkpoint"
        self.metrics = Metrics()
        self.client = server.client()
        if self.client.get("/v1/relations/stays").status_code == 200:
            talk.drop(self.client, relations=["stays"])
        talk.define(self.client, "stays", STAYS)

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
        self.name = job.name
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

    @contextlib.contextmanager
    def running(self, topic: str) -> Iterator[RunningJob]:
        """The job under way, its first batch done."""
        before, stop = self.done(), threading.Event()
        job = RunningJob(target=lambda: self.run(topic, stop=stop, trigger="0 seconds"))
        job.start()
        try:
            job.wait_until(lambda: self.done() > before)
            yield job
        finally:
            stop.set()
            job.join()

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
    assert "no longer has the next records" in said and f"{topic}-0" in said and AFRESH in said
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
    assert f"reads the topic {other}, which is not in the file" in stage.fails(topic)
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
    assert f"the topic {topic} was deleted and recreated" in stage.fails(topic)
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
        talk.drop(stage.client, relations=["stays"])
        stage.put(topic, 2)

    assert "has no relation stays" in stage.fails_after(topic, change)


def test_a_relation_registered_anew_under_way(stage: Stage) -> None:
    """A column cannot be null any more, and none is, so nothing is refused."""
    topic = stage.topic(1)
    *columns, ends = STAYS["columns"]
    definition = {**STAYS, "columns": [*columns, {**ends, "nullable": False}]}

    def change() -> None:
        talk.drop(stage.client, relations=["stays"])
        talk.define(stage.client, "stays", definition)
        stage.put(topic, 2)

    assert "the relation stays was registered again" in stage.fails_after(topic, change)
    assert "the relation stays was registered again" in stage.fails(topic)  # it is not forgotten


def test_a_relation_that_is_extended_under_way(stage: Stage) -> None:
    """The job goes on, and takes the new column from then on, after a start too."""
    topic, patch = stage.topic(1), {"add_columns": [{"name": "guest", "type": "string", "nullable": True}]}

    def put(number: int) -> None:
        after = {"id": number, "room": "A", "starts": 0, "ends": 5, "guest": f"G{number}"}
        Topics(stage.broker).put(topic, [({"id": number}, {"op": "c", "before": None, "after": after})])

    with stage.running(topic) as job:
        talk.ok(stage.client.patch("/v1/relations/stays", json=patch))
        put(2)
        job.wait_until(lambda: stage.ids() == [1, 2])
        put(3)
        job.wait_until(lambda: stage.ids() == [1, 2, 3])
    put(4)
    stage.run(topic)
    rows = stage.client.get("/v1/relations/stays/rows", headers={"Accept": "application/json"}).json()["rows"]
    guests = {row["id"]: row["guest"] for row in rows}
    assert guests.pop(2) in (None, "G2"), "read before or after the job has heard of the column"
    assert guests == {1: None, 3: "G3", 4: "G4"}


def test_reset_acts_once(stage: Stage) -> None:
    """An old job beside a newer one does not take the name back."""
    newer = str(stage.folder / "newer")
    topic = stage.topic(1)
    stage.run(topic, reset=True)
    stage.run(topic, reset=True, checkpoint=newer)
    stage.put(topic, 2)
    assert "another checkpoint has taken over" in stage.fails(topic, reset=True)
    stage.run(topic, reset=True, checkpoint=newer)
    assert stage.ids() == [1, 2]


def test_reset_waits_for_the_first_change(stage: Stage) -> None:
    """Batches without any do not use it up."""
    stage.run(stage.topic(1))
    topic = stage.topic()
    Topics(stage.broker).put(topic, [(None, None)])
    newer = str(stage.folder / "newer")
    stage.run(topic, reset=True, checkpoint=newer)
    assert stage.done() == 2
    stage.put(topic, 2)
    stage.run(topic, reset=True, checkpoint=newer)
    assert stage.ids() == [1, 2]


def test_a_start_that_was_killed_early(stage: Stage) -> None:
    stage.checkpoint.mkdir(parents=True)
    (stage.checkpoint / ".metadata.5b1c.tmp").write_text('{"i')
    stage.run(stage.topic(1))
    assert stage.ids() == [1]


def test_a_checkpoint_that_only_spark_can_reach(stage: Stage) -> None:
    """Elsewhere than on this machine, as far as the job knows: topics are known by their ids there too."""
    there = stage.folder / "there"
    there.mkdir()
    stage.spark.sparkContext._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.else.link./where", there.as_uri())
    address = "viewfs://else/where/checkpoint"
    topic = stage.topic(1)
    stage.run(topic, checkpoint=address)
    assert json.loads((there / "checkpoint" / "livejoin.json").read_text())["posted"]
    stage.put(topic, 2)
    stage.run(topic, checkpoint=address)
    assert stage.ids() == [1, 2]
    topics = Topics(stage.broker)
    topics.remove(topic)
    topics.make(topic)
    stage.put(topic, 3, 4, 5)
    assert f"the topic {topic} was deleted and recreated" in stage.fails(topic, checkpoint=address)
    assert stage.ids() == [1, 2]
    assert 'scheme "nowhere"' in stage.fails(topic, checkpoint="nowhere://at/all")


def test_a_plain_path_beside_another_file_system(stage: Stage) -> None:
    """As on a cluster whose default is HDFS: the checkpoint is the folder in which we look."""
    settings = stage.spark.sparkContext._jsc.hadoopConfiguration()
    usual = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", "viewfs://nobody/")
    try:
        stage.run(stage.topic(1))
    finally:
        settings.set("fs.defaultFS", usual)
    assert stage.ids() == [1] and (stage.checkpoint / "metadata").exists()


def test_a_batch_too_large_for_the_service(tmp_path: Path, broker: Broker, spark: SparkSession) -> None:
    with ServerProcess(tmp_path / "data", environment={"LIVEJOIN_MAX_BODY": "4096"}) as server:
        stage = Stage(tmp_path, server, broker, spark)
        topic = stage.topic(*range(300))
        said = stage.fails(topic)
        assert "too large for the service" in said and "--max-body" in said
        do_as_told(stage, topic, said, max_offsets=30)
        assert stage.ids() == list(range(300))


def test_a_batch_too_large_for_spark(stage: Stage) -> None:
    topic = stage.topic()
    wide = [create(number)[1] for number in range(4)]
    for value in wide:
        value["after"]["room"] = "A" * 400_000
    Topics(stage.broker).put(topic, [({"id": number}, value) for number, value in enumerate(wide)])
    settings = stage.spark.sparkContext._jsc.sc().conf()
    usual = settings.get("spark.driver.maxResultSize")
    settings.set("spark.driver.maxResultSize", "1m")
    try:
        said = stage.fails(topic)
        assert "too large for Spark's driver" in said and "more memory" in said
        do_as_told(stage, topic, said, max_offsets=1)
    finally:
        settings.set("spark.driver.maxResultSize", usual)
    assert stage.ids() == [0, 1, 2, 3]


def do_as_told(stage: Stage, topic: str, said: str, max_offsets: int) -> None:
    """Lowers max_offsets alone, which does not help, and then deletes the file in which the batch is planned."""
    offsets = stage.checkpoint / "offsets"
    assert f"lower max_offsets in [stream] and delete the newest file in {offsets}" in said
    assert stage.fails(topic, max_offsets=max_offsets) == said
    newest = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    newest.unlink()
    stage.run(topic, max_offsets=max_offsets)


def test_what_has_no_order_is_told_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    def warnings() -> list[str]:
        emitted = [record.getMessage() for record in caplog.records if record.name == "livejoin.pipeline" and record.levelname == "WARNING"]
        caplog.clear()
        return emitted

    truncate = (None, {"before": None, "after": None, "op": "t", "source": {}})
    keyless = [(None, create(7)[1]), (None, create(8)[1])]
    one, two = stage.topic(1), f"{stage.topic()}-2"
    topics = Topics(stage.broker)
    topics.make(two, partitions=2)
    topics.put(one, [truncate, create(2), *keyless])
    stage.run(one)
    assert stage.ids() == [2, 7, 8] and warnings() == []
    topics.put(two, [create(3), truncate, create(4), *keyless, *keyless])
    stage.run(one, two, max_offsets=1)
    lines = sorted(warnings())
    assert len(lines) == 2
    assert f"topic {two} has records without a key in several partitions" in lines[1]
    assert f"topic {two} has a truncate, but the changes of its relation come from several partitions" in lines[0]
    topics.put(one, [truncate])
    stage.run(one, two)
    assert f"topic {one} has a truncate, but the changes of its relation come from several topics" in warnings()[0]


def test_a_partition_added_under_way_is_told(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    def emitted() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    topic = stage.topic(1)
    with stage.running(topic) as job:
        stage.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        job.wait_until(lambda: bool(emitted()))
        stage.put(topic, 2, partition=1)
        job.wait_until(lambda: stage.ids() == [1, 2])
    (line,) = emitted()
    assert f"topic {topic} now has 2 partitions" in line


def test_dead_letters_keep_their_headers(stage: Stage) -> None:
    topic, dead = stage.topic(1), stage.topic()
    headers = [("trace", b"1"), ("empty", None), ("trace", b"\xff")]
    producer = Producer({"bootstrap.servers": stage.broker.address})
    producer.produce(topic, b"not json", b"key", headers=headers)
    producer.produce(topic, b"nor this")
    assert producer.flush(30) == 0
    stage.put(topic, 2)
    stage.run(topic, dead_letters=dead)
    assert stage.ids() == [1, 2]
    first, second = (letter.headers() or [] for letter in Topics(stage.broker).read(dead, 2))
    assert first[:3] == headers
    assert [name for name, _ in first[3:]] == ["livejoin.topic", "livejoin.partition", "livejoin.offset", "livejoin.error"]
    assert dict(first)["livejoin.offset"] == b"1"
    assert len(second) == 4


def test_how_far_behind_is_told_where_it_is_known() -> None:
    known = {"t": FoundTopic("id", 3), "u": FoundTopic("id", 1)}
    watch = TopicWatch(Admin({"bootstrap.servers": "127.0.0.1:1"}), known, {("t", 0): 5, ("t", 1): 7, ("t", 2): 7}, Metrics())
    watch._ends = {("t", 0): 9, ("t", 1): 7, ("t", 2): 1007, ("u", 0): 10**9}  # of u nothing was read yet, and it may begin anywhere
    assert watch.behind() == {("t", 0): 4, ("t", 1): 0, ("t", 2): 1000}
    assert pipeline.lag(watch.behind()) == ", 1004 behind (t/2 1000, t/0 4)"
    assert pipeline.lag({("t", 1): 0}) == pipeline.lag({}) == ""
    assert pipeline.lag({("t", number): number + 1 for number in range(5)}) == ", 15 behind (t/4 5, t/3 4, t/2 3, …)"


def test_two_jobs_on_one_checkpoint(stage: Stage) -> None:
    topic = stage.topic(1)

    def change() -> None:
        offsets = stage.checkpoint / "offsets"
        (offsets / "1").write_text((offsets / "0").read_text())  # the other job's next batch
        stage.put(topic, 2)

    assert "in use by another job" in stage.fails_after(topic, change)
    assert stage.ids() == [1]


def test_checkpoints_that_are_no_good(stage: Stage) -> None:
    topic = stage.topic(1)
    stage.run(topic)
    assert f'belongs to the stream "{stage.name}": use another folder for "other"' in stage.fails(topic, name="other")
    stage.put(topic, 2)
    pending = stage.checkpoint / "offsets" / "1"
    pending.write_text("")
    assert f"the checkpoint {stage.checkpoint} is damaged" in stage.fails(topic)
    pending.unlink()
    (stage.checkpoint / "metadata").write_text("{")
    assert f"the checkpoint {stage.checkpoint} cannot be used" in stage.fails(topic)
    mine = stage.folder / "mine"
    mine.mkdir()
    (mine / "letters").write_text("")
    assert "no Spark checkpoint" in stage.fails(topic, checkpoint=str(mine))
    assert "cannot be written" in stage.fails(topic, checkpoint=str(mine / "letters"))
    assert stage.ids() == [1]


def test_what_prometheus_is_told(stage: Stage) -> None:
    topic = stage.topic(1, 2)
    unknown = {"before": {"id": 9}, "after": None, "op": "d"}
    Topics(stage.broker).put(topic, [({"id": 2}, None), ({"id": 9}, unknown), ({"id": 9}, None)])
    dead = stage.topic()
    Topics(stage.broker).put(topic, [create(3, starts="soon")])
    before = talk.ok(stage.client.get("/v1/status"))["version"]
    stage.run(topic, dead_letters=dead)

    def value(name: str, **labels: str) -> float | None:
        return stage.metrics.registry.get_sample_value(f"livejoin_stream_{name}", labels)

    assert value("records_total", topic=topic) == 6
    assert value("changes_total", topic=topic) == 4
    assert value("skipped_records_total", topic=topic) == 1
    assert value("dead_letters_total", topic=topic) == 1
    assert value("ignored_deletes_total") == 1
    assert value("batches_total") == 1
    assert value("duplicate_batches_total") == 0
    assert value("version") == before + 1
    assert value("lag_offsets", topic=topic, partition="0") == 0
    assert all(value("batch_seconds_count", part=part) == 1 for part in ("fetch", "sort", "decode", "dead_letters", "post"))
    # The batch again, as after a kill before Spark's commit.
    (stage.checkpoint / "commits" / "0").unlink()
    stage.run(topic, dead_letters=dead)
    assert value("duplicate_batches_total") == 1
    assert json.loads((stage.checkpoint / "livejoin.json").read_text())["stream"] == stage.name
