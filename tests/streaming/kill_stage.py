"""A stage for kills: a broker, a service and a job that can each be killed and started again where they were, and a feeder."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import time
from collections.abc import Set
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from streaming.kafka_broker import Broker
from streaming.kafka_client import quiet
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.streaming.history import COLUMNS, TABLES, VIEWS, History
from tests.streaming.stream_job import StreamJob, Topics

PARTS = ("driver", "JVM", "service", "broker")
STEPS = ("before-append", "after-append", "after-commit", "before-publish")  # those of service.failpoints that each batch passes
DEAD = "dead"
PARTITIONS = 3


class Kill(NamedTuple):
    """Who dies, and when: after `batches` more and `pause` seconds, or when the service has killed itself at `step`."""

    parts: frozenset[str]
    batches: int
    pause: float
    step: str | None

    @classmethod
    def random(cls, parts: Set[str], dice: random.Random) -> Kill:
        step = f"{dice.choice(STEPS)}:{dice.randint(1, 3)}" if "service" in parts and dice.random() < 0.5 else None
        return cls(frozenset(parts), dice.randrange(4), dice.random() * 0.3, step)


class Stage:
    """`with Stage(folder, seed) as stage:` starts all; `strike` kills, `revive` starts what is dead, `check` proves exactly once.

    A batch has at most `size` records.
    """

    def __init__(self, folder: Path, seed: int, size: int = 40) -> None:
        self.dice = random.Random(seed)
        self.history = History(self.dice, PARTITIONS)
        self.size = size
        self.fed = 0
        self.broker = Broker(folder / "kafka", lasting_port())
        self._data = folder / "data"
        self._port = lasting_port()
        self.server = self._service()
        topics = [(relation, relation) for relation in TABLES]
        url, brokers = self.server.url, self.broker.address
        self.job = StreamJob(folder / "job", url, brokers, topics, max_offsets=size, dead_letters=DEAD)
        # Kafka's order within a partition, through the broker's deaths too, is what the truth rests on.
        self._producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 5}, logger=quiet)

    def _service(self, step: str | None = None) -> ServerProcess:
        return ServerProcess(self._data, port=self._port, environment={"LIVEJOIN_FAILPOINT": step} if step else None)

    def __enter__(self) -> Stage:
        try:
            self.broker.start()
            topics = Topics(self.broker)
            topics.make(*TABLES, partitions=PARTITIONS)
            topics.make(DEAD)
            client = self.server.start().client()
            for name, table in TABLES.items():
                talk.define(client, name, table.definition)
            for name, sql in VIEWS.items():
                talk.view(client, name, sql)
            self.job.start()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.job.__exit__(kind, error, trace)
        self.server.__exit__(kind, error, trace)
        self.broker.close()

    def feed(self, count: int) -> None:
        """Hands so many records to the producer, which holds them while the broker is dead."""
        for record in self.history.tell(count):
            self._producer.produce(record.relation, record.value, record.key, record.partition)
            self._producer.poll(0)
            self.fed += 1

    def strike(self, kill: Kill) -> None:
        """Feeds, lets the job work, and kills -9 at the moment; all must be up before."""
        print(kill)
        if kill.step:
            self.server.close()
            self.server = self._service(kill.step).start()
        done = len(self.job.batches)
        self.feed((kill.batches + 4) * self.size)
        if kill.step:
            self.server.wait(600)
        else:
            self.job.wait_for_batches(done + kill.batches)
            time.sleep(kill.pause)  # a moment within a batch
        self._kill(kill.parts)

    def _kill(self, parts: Set[str]) -> None:
        for part in self.dice.sample(PARTS, len(PARTS)):
            if part not in parts:
                continue
            if part == "driver":
                self.job.process.kill()
            elif part == "JVM":
                if jvm := self.job.jvm():
                    jvm.kill()
                else:  # the job was only just starting
                    self.job.process.kill()
            elif part == "service":
                self.server.kill()
            else:
                self.broker.kill()

    def revive(self, parts: Set[str]) -> None:
        """Starts what is dead, in any order. A driver that has lost only its JVM must end by itself; the job is not waited for."""
        others = self.dice.sample(["service", "broker", "job"], 3)
        if "driver" not in parts:
            others.sort(key="job".__eq__)  # it may be waiting for the others
        for part in others:
            if part == "broker" and self.broker.process is None:
                self.broker.start()
            elif part == "service" and self.server.process.poll() is not None:
                self.server.close()
                self.server = self._service().start(wait=False)
            elif part == "job" and parts & {"driver", "JVM"}:
                assert self.job.end() != 0
                self.job.start()
        self.server.wait_ready()

    def check(self) -> None:
        """Everything fed is consumed; relations and views are the truth; each batch made one version; each bad record is set aside."""
        assert self._producer.flush(60) == 0
        self.job.wait_for_records(self.fed)
        client = self.server.client()
        for relation, rows in self.history.rows.items():
            answer = client.get(f"/v1/relations/{relation}/rows", headers={"Accept": talk.JSONL})
            there = [json.loads(line) for line in answer.content.splitlines()]
            assert sorted(there, key=itemgetter("id")) == sorted(rows.values(), key=itemgetter("id"))
        for view in VIEWS:
            pairs = talk.read(client, view, talk.ARROW, COLUMNS)
            truth = self.history.pairs(view)
            assert len(pairs) == talk.count(client, view) == len(truth)
            assert set(pairs) == truth
        assert talk.ok(client.get("/v1/status"))["version"] == len(self._posted())
        letters = whole(self.broker.address, DEAD)
        assert {letter.value() for letter in letters} == self.history.bad
        assert len({_origin(letter) for letter in letters}) == self.history.bad_told

    def _posted(self) -> set[int]:
        """The ids of the batches that the service had changes of."""
        return {int(epoch) for epoch in re.findall(r"^livejoin: batch (\d+): .*\bversion \d", self.job.said, re.MULTILINE)}


def _origin(letter: Message) -> tuple[bytes, ...]:
    """Which record a dead letter was; the headers tell repeats apart."""
    head = dict(letter.headers())
    return tuple(head[f"livejoin.{name}"] for name in ("topic", "partition", "offset"))


def whole(brokers: str, topic: str) -> list[Message]:
    """All committed records of a topic, in order of partition and offset."""
    settings = {"bootstrap.servers": brokers, "group.id": "whole", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer(settings, logger=quiet)
    messages: list[Message] = []
    for partition in sorted(consumer.list_topics(topic, timeout=60).topics[topic].partitions):
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(60)
            assert message is not None, "the broker does not answer"
            if message.error() is None:
                messages.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                break
    consumer.close()
    return messages


def lasting_port() -> int:
    """A free port that nobody is given for an outgoing connection while its owner is dead."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def seed() -> int:
    """LIVEJOIN_SEED, or a random one, printed."""
    number = int(os.environ.get("LIVEJOIN_SEED") or random.SystemRandom().randrange(2**32))
    print(f"LIVEJOIN_SEED={number}")
    return number
