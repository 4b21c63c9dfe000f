"""A view's changes in a topic: what the records are, and how the publisher goes on after each kind of trouble."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType

from streaming.config import Kafka, OutSection, read_config
from streaming.connection import Service
from streaming.kafka_broker import Broker
from streaming.kafka_client import Admin, FoundTopic, KafkaUnavailable, quiet
from streaming.metrics import Metrics
from streaming.publishing import own_topic, publisher
from streaming.publishing.feed import ChangesLost
from streaming.publishing.own_topic import OwnTopic
from streaming.publishing.publisher import Publisher
from streaming.publishing.transactions import Transactions
from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess
from tests.streaming.out_job import Believer, OutJob, rows_of
from tests.streaming.stream_job import Topics

NUMBERS = count()
LEFT = declared("id:int64, from:int64, to:int64", span="from to")
SQL = 'SELECT a.id AS one, b.id AS two, a."from" AS since FROM {a} a JOIN {b} b ON overlaps(a.span, b.span)'


class Stage:
    """Relations and a view of one test's own at a service, and a topic."""

    def __init__(self, broker: Broker, server: ServerProcess, topics: Topics, folder: Path, partitions: int = 1, **definition: Any) -> None:
        number = next(NUMBERS)
        self.a, self.b, self.view = f"left{number}", f"right{number}", f"met{number}"
        self.topic = f"met-{secrets.token_hex(4)}"
        self.broker, self.server, self.folder = broker, server, folder
        self.definition = {"sql": SQL.format(a=self.a, b=self.b), **definition}
        self.client = server.client()
        topics.make(self.topic, partitions=partitions)
        self.define()

    def define(self) -> None:
        self.client = self.server.client()
        for name in (self.a, self.b):
            talk.define(self.client, name, LEFT)
        talk.view(self.client, self.view, self.definition)

    def post(self, *changes: dict[str, Any]) -> None:
        talk.ok(talk.send(self.client, changes))

    def left(self, id: int, since: int, to: int) -> dict[str, Any]:
        return {"relation": self.a, "op": "upsert", "row": {"id": id, "from": since, "to": to}}

    def right(self, id: int, since: int, to: int) -> dict[str, Any]:
        return {"relation": self.b, "op": "upsert", "row": {"id": id, "from": since, "to": to}}

    def deleted(self, id: int) -> dict[str, Any]:
        return {"relation": self.a, "op": "delete", "key": {"id": id}}

    def job(self, **out: Any) -> OutJob:
        view, topic = out.pop("view", self.view), out.pop("topic", self.topic)
        return OutJob(self.folder, self.server.url, self.broker.address, view, topic, **out)

    @property
    def rows(self) -> list[Any]:
        return rows_of(self.client, self.view)


@pytest.fixture
def stage(broker: Broker, shared_server: ServerProcess, topics: Topics, tmp_path: Path) -> Stage:
    return Stage(broker, shared_server, topics, tmp_path)


@pytest.fixture
def believers(broker: Broker) -> Iterator[Any]:
    made = []

    def make(topic: str) -> Believer:
        made.append(Believer(broker.address, topic))
        return made[-1]

    yield make
    for believer in made:
        believer.close()


def refused(job: OutJob) -> str:
    """What the job says that ends by itself with status 1."""
    with job:
        assert job.end() == 1
    last: str = job.said.split("\n")[-1]
    return last


def test_every_row_then_each_change(stage: Stage, believers: Any) -> None:
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9), stage.left(2, 6, 9))
    reader = believers(stage.topic)
    with stage.job(tombstones=True) as job:
        reader.believe_until(stage.rows)
        version = json.loads(stage.client.get(f"/v1/views/{stage.view}").text)["version"]
        stage.post(stage.left(3, 1, 2))
        stage.post(stage.left(1, 4, 9), stage.deleted(2))
        reader.believe_until(stage.rows)
        assert job.stop() == 0
    one, two = b'{"a":{"id":1},"b":{"id":7}}', b'{"a":{"id":2},"b":{"id":7}}'
    assert sorted(reader.messages[:2], key=str) == [
        (one, {"op": "r", "version": version, "before": None, "after": {"one": 1, "two": 7, "since": 5}}),
        (two, {"op": "r", "version": version, "before": None, "after": {"one": 2, "two": 7, "since": 6}}),
    ]
    assert reader.messages[2][1] == {"op": "c", "version": version + 1, "before": None, "after": {"one": 3, "two": 7, "since": 1}}
    last = reader.messages[3:]
    changed = [record for key, record in last if key == one]
    assert changed == [  # of one key, in one version: away, then the new row
        {"op": "d", "version": version + 2, "before": {"one": 1, "two": 7, "since": 5}, "after": None},
        None,
        {"op": "c", "version": version + 2, "before": None, "after": {"one": 1, "two": 7, "since": 4}},
    ]
    assert [record and record["op"] for key, record in last if key == two] == ["d", None]

    stage.post(stage.left(4, 1, 2), stage.left(1, 4, 5))
    with job:
        reader.believe_until(stage.rows)
        assert job.stop() == 0
    reader.read_to_end()
    assert reader.counts["r"] == 2 and "expired" not in job.said


def test_values_are_as_compact_as_they_are(stage: Stage, topics: Topics) -> None:
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9))
    with stage.job():
        (message,) = topics.read(stage.topic, 1)
    value = b'{"op":"r","version":%d,"before":null,"after":{"one":1,"two":7,"since":5}}' % json.loads(message.value() or b"")["version"]
    assert message.value() == value


def test_from_now_on(stage: Stage, topics: Topics, believers: Any) -> None:
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9))
    reader = believers(stage.topic)
    with stage.job(snapshot=False) as job:
        job.wait_for("starts after version")
        assert job.stop() == 0
    stage.post(stage.left(2, 6, 9))  # from now on means from the first start on
    with job:
        reader.believe_until([row for row in stage.rows if row["one"] == 2])
        stage.post(stage.deleted(2), stage.left(3, 6, 9))
        reader.believe_until([row for row in stage.rows if row["one"] == 3])
    assert reader.counts == {"r": 0, "c": 2, "d": 1, "null": 0}
    # Its token is lost, and with it since when: the topic gets all that it lacks.
    topics.remove(f"{stage.topic}.livejoin")
    with job:
        reader.believe_until(stage.rows)
        job.wait_for("of 1 rows, 0 were deleted and 0 changed; 1 were added")
        assert job.stop() == 0
    # So it does when the token has expired.
    drop_and_define(stage)
    stage.post(stage.left(4, 6, 9))
    with job:
        reader.believe_until(stage.rows)
    reader.read_to_end()
    assert reader.counts == {"r": 2, "c": 2, "d": 1, "null": 0}


def test_a_service_that_started_again(broker: Broker, server: ServerProcess, topics: Topics, believers: Any, tmp_path: Path) -> None:
    """Its token survives that, so the topic gets what has changed since. Of a view that is registered again, the topic is compared with the
    view, in every partition."""
    stage = Stage(broker, server, topics, tmp_path / "job", partitions=3)
    stage.post(stage.right(7, 0, 1000), *(stage.left(id, id, id + 5) for id in range(1, 61)))
    reader = believers(stage.topic)
    with stage.job(tombstones=True) as job:
        reader.believe_until(stage.rows)
        server.kill()
        server.start()
        stage.client = server.client()
        stage.post(stage.left(99, 1, 5))
        reader.believe_until(stage.rows)
        job.process.kill()
    stage.post(*map(stage.deleted, range(1, 11)), *(stage.left(id, id + 1, id + 5) for id in range(11, 31)), stage.left(100, 1, 5))
    server.kill()
    server.start()
    stage.client = server.client()
    with job:
        reader.believe_until(stage.rows)
        stage.post(stage.left(1, 1, 5))
        reader.believe_until(stage.rows)
        assert "expired" not in job.said
    reader.read_to_end()
    assert reader.counts == {"r": 60, "c": 1 + 21 + 1, "d": 30, "null": 30}

    stage.post(*map(stage.deleted, range(11, 21)), *(stage.left(id, id, id + 5) for id in range(21, 26)), stage.left(101, 1, 5))
    drop_and_define(stage)
    with job:
        job.wait_for("of 53 rows, 10 were deleted and 5 changed; 1 were added")
        reader.believe_until(stage.rows)
    reader.read_to_end()
    assert reader.counts == {"r": 60 + 6, "c": 23, "d": 30 + 15, "null": 30 + 15}
    assert reader.partitions == {0, 1, 2}

    with ServerProcess(tmp_path / "another") as other:  # another data folder, whose tokens and versions are others
        stage.server = other
        stage.define()
        stage.post(stage.right(7, 0, 1000), stage.left(1, 1, 5), stage.left(2, 2, 5))
        with stage.job() as job:
            job.wait_for("of 44 rows, 43 were deleted and 0 changed; 1 were added")
            reader.believe_until(stage.rows)


def test_a_version_too_large_to_follow(
    broker: Broker, shared_server: ServerProcess, topics: Topics, believers: Any, tmp_path: Path
) -> None:
    """Larger than the bound of its feed, and than the records that wait for the broker."""
    stage = Stage(broker, shared_server, topics, tmp_path, changes={"retain_rows": 1000, "retain_bytes": 1 << 20})
    stage.post(stage.right(7, 0, 1_000_000), stage.left(1, 1, 5))
    reader = believers(stage.topic)
    with stage.job() as job:
        reader.believe_until(stage.rows)
        stage.post(stage.left(2, 2, 9), *(stage.left(id, id, id + 5) for id in range(3, 110_000)))
        job.wait_for("of 1 rows, 0 were deleted and 0 changed; 109998 were added")
        reader.believe_until(stage.rows)
        stage.post(stage.deleted(1))
        reader.believe_until(stage.rows)


def test_a_topic_that_was_cut(stage: Stage, believers: Any) -> None:
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9), stage.left(2, 6, 9))
    reader = believers(stage.topic)
    with stage.job() as job:
        reader.believe_until(stage.rows)
        stage.post(stage.left(1, 4, 9), stage.left(2, 4, 9))
        reader.believe_until(stage.rows)
    admin = Admin({"bootstrap.servers": stage.broker.address})
    cut = TopicPartition(stage.topic, 0, 2)
    admin.delete_records([cut])[cut].result(30)
    stage.post(stage.deleted(1))
    with job:  # its token still serves: it need not look back
        reader.believe_until(stage.rows)
        drop_and_define(stage)
        assert job.end() == 1
    assert "register it" in job.said.split("\n")[-1]
    said = refused(job)
    assert "no longer has its first records (partition 0 begins at offset 2)" in said and "cleanup.policy=compact" in said

    resource = ConfigResource(ResourceType.TOPIC, stage.topic)
    compact = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(compact)
    admin.incremental_alter_configs([resource])[resource].result(30)
    with job:  # as compaction would leave it: of each key the last record is there
        job.wait_for("of 1 rows, 0 were deleted and 0 changed; 0 were added")


def drop_and_define(stage: Stage) -> None:
    """The same view anew: its former tokens are bad."""
    talk.drop(stage.client, [stage.view])
    talk.view(stage.client, stage.view, stage.definition)


def test_a_job_that_is_refused_does_not_take_over(stage: Stage, believers: Any, tmp_path: Path) -> None:
    """Seen: it fenced the one that published, and was refused itself; then nothing was published."""
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9))
    reader = believers(stage.topic)
    talk.view(stage.client, f"{stage.view}_too", stage.definition)
    with stage.job() as job:
        reader.believe_until(stage.rows)
        for view, reason in (("nobody", "has no view nobody"), (f"{stage.view}_too", f"has the changes of the view {stage.view}")):
            assert reason in refused(OutJob(tmp_path / view, stage.server.url, stage.broker.address, view, stage.topic))
        stage.post(stage.left(2, 5, 9))
        reader.believe_until(stage.rows)
        assert job.stop() == 0


def test_the_second_job_takes_over(stage: Stage, believers: Any, tmp_path: Path) -> None:
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9))
    reader = believers(stage.topic)
    with stage.job() as zombie:
        reader.believe_until(stage.rows)
        with OutJob(tmp_path / "other", stage.server.url, stage.broker.address, stage.view, stage.topic) as job:
            stage.post(stage.left(2, 5, 9))
            reader.believe_until(stage.rows)
            job.wait_for("continues after version")
            stage.post(stage.left(3, 5, 9))
            assert zombie.end() == 1
            assert f"another job has started to publish to the topic {stage.topic}" in zombie.said
            reader.believe_until(stage.rows)
            stage.post(stage.left(4, 5, 9))
            reader.believe_until(stage.rows)


def test_a_topic_made_anew(stage: Stage, topics: Topics, believers: Any) -> None:
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9))
    with stage.job() as job:
        job.wait_for("holds the view")
    topics.remove(stage.topic)
    assert f"has no topic {stage.topic}: create it" in refused(job)
    topics.make(stage.topic)
    with job:
        job.wait_for("was recreated")
        believers(stage.topic).believe_until(stage.rows)

    admin = Admin({"bootstrap.servers": stage.broker.address})
    admin.create_partitions([NewPartitions(stage.topic, 2)])[stage.topic].result(30)
    assert "had 1 partitions and now has 2" in refused(job)


def test_a_topic_made_anew_under_way(stage: Stage, topics: Topics, believers: Any) -> None:
    """The next change finds another topic, which begins with every row."""
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9))
    with stage.job() as job:
        job.wait_for("holds the view")
        topics.remove(stage.topic)
        topics.make(stage.topic)
        stage.post(stage.left(2, 5, 9))
        job.wait_for("was recreated: starting with every row")
        believers(stage.topic).believe_until(stage.rows)


def test_rows_and_token_are_one_transaction(stage: Stage, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that dies just before it commits leaves neither; the next one leaves both."""
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9))
    tokens = f"{stage.topic}.livejoin"

    def die(self: Transactions) -> None:
        assert self.records == 2 and self._producer.flush(30) == 0
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(Transactions, "commit", die)
        publish(stage)
    for topic in (stage.topic, tokens):
        assert (len(held(stage, topic, "read_uncommitted")), len(held(stage, topic, "read_committed"))) == (1, 0)
    enough = threading.Event()
    enough.set()
    publish(stage, enough)
    for topic in (stage.topic, tokens):
        assert len(held(stage, topic, "read_committed")) == 1


def publish(stage: Stage, enough: threading.Event | None = None) -> None:
    """Publishes in this process."""
    config, stop, metrics = read_config(stage.job().path), threading.Event(), Metrics()
    with contextlib.closing(Service(config.service.url, stop, metrics)) as service:
        Publisher(config.kafka, service, config.outs[0], stop, enough or threading.Event(), metrics).run()


def held(stage: Stage, topic: str, isolation: str) -> list[Message]:
    """What a reader finds in the topic's one partition."""
    settings = {"group.id": "held", "enable.partition.eof": True, "isolation.level": isolation}
    consumer = Consumer({"bootstrap.servers": stage.broker.address, **settings}, logger=quiet)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        messages.append(message)
    consumer.close()
    assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
    return messages


def test_changes_that_expire_before_they_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a view whose every version is larger than it keeps: the topic is compared again and again, with pauses that grow."""
    pauses: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0)
            return len(pauses) == 8

    class Topic:
        def __init__(self, *arguments: object) -> None:
            pass

        def close(self) -> None:
            pass

        def identity(self) -> FoundTopic:
            return FoundTopic("id", 1)

        def make_token_topic(self) -> None:
            pass

        def abort(self) -> None:
            pass

    def compare(self: Publisher) -> None:
        self._since = "token"

    def lose(self: Publisher, since: str) -> bool:
        raise ChangesLost("the version is too large")

    monkeypatch.setattr(publisher, "wait_for_topics", lambda *arguments: None)
    monkeypatch.setattr(publisher, "Transactions", Topic)
    monkeypatch.setattr(publisher, "OwnTopic", Topic)
    monkeypatch.setattr(Publisher, "_resume", compare)
    monkeypatch.setattr(Publisher, "_compare", compare)
    monkeypatch.setattr(Publisher, "_follow", lose)
    kafka, out = Kafka.model_validate({"brokers": "127.0.0.1:1"}), OutSection(view="v", topic="t")
    Publisher(kafka, Service("http://127.0.0.1:1", Stop(), Metrics()), out, Stop(), threading.Event(), Metrics()).run()
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]


def test_a_broker_that_is_away_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked of it."""
    monkeypatch.setattr(own_topic, "_ANSWER_SECONDS", 0.5)
    kafka = Kafka.model_validate({"brokers": "127.0.0.1:1"})
    with contextlib.closing(OwnTopic(kafka, OutSection(view="v", topic="t"), threading.Event())) as own:
        for ask in (own.identity, own.make_token_topic, own.last_token, own.states, own.is_empty, own._cleanup_policy):
            with pytest.raises(KafkaUnavailable):
                ask()


def test_what_cannot_be_published(stage: Stage, topics: Topics) -> None:
    assert "has no view nothing: register it (PUT /v1/views/nothing)" in refused(stage.job(view="nothing"))
    talk.view(stage.client, f"{stage.view}q", {**stage.definition, "changes": False})
    assert "does not keep changes" in refused(stage.job(view=f"{stage.view}q"))

    topics.put(stage.topic, [({"id": 1}, {"before": None, "after": None, "op": "u"})])
    said = refused(stage.job())
    assert "is not a change of a view (partition 0, offset 0)" in said and "use a separate topic" in said
    topics.put(f"{stage.topic}.livejoin", [(b"k", {"what": "is this"})])
    said = refused(stage.job())
    assert "a record that is not a token (offset 0)" in said and "delete the topic" in said

    topics.make(own := f"{stage.topic}-own")
    stage.post(stage.right(7, 0, 100), stage.left(1, 5, 9))
    with stage.job(topic=own) as job:
        job.wait_for("holds the view")
        talk.drop(stage.client, [stage.view])
        assert job.end() == 1
    assert f"has no view {stage.view}: register it" in job.said
    other = f"{stage.view}o"
    talk.view(stage.client, other, stage.definition)
    said = refused(stage.job(view=other, topic=own))
    assert f"has the changes of the view {stage.view}: use a separate topic for the view {other}" in said
