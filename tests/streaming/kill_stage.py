"""A stage for kills: a broker, a service and a job, each of which can be killed with SIGKILL and started again where it was."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Sequence, Set
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from streaming.kafka_broker import Broker, free_port
from streaming.kafka_client import quiet
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.streaming.stream_job import StreamJob, Topics, as_bytes

PARTS = ("driver", "JVM", "service", "broker")
_STEPS = ("before-append", "after-append", "after-commit", "before-publish")  # of durability.failpoints, those that each batch passes


class Kill(NamedTuple):
    """What is killed, and when: after `batches` more and `pause` seconds, or when the service has killed itself at `step`."""

    parts: frozenset[str]
    batches: int
    pause: float
    step: str | None

    @classmethod
    def at_random(cls, parts: Set[str], dice: random.Random, fewest: int = 0) -> Kill:
        """`fewest` batches: 0 includes a job that is still starting."""
        step = f"{dice.choice(_STEPS)}:{dice.randint(1, 3)}" if "service" in parts and dice.random() < 0.5 else None
        return cls(frozenset(parts), dice.randint(fewest, 3), dice.random() * 0.3, step)

    def __str__(self) -> str:
        when = f"at {self.step}" if self.step else f"after {self.batches} batches and {self.pause:.3f} s more"
        return f"kill {', '.join(sorted(self.parts))} {when}"


class Stage:
    """`with Stage(…) as stage:` starts broker and service; topics, relations and views come next, then `stage.start_job()`.

    topics, java, outs, stream: as StreamJob has them.
    """

    def __init__(self, folder: Path, dice: random.Random, topics: Sequence[tuple[str, ...]], **stream: Any) -> None:
        self._dice = dice
        self.broker = Broker(folder / "kafka", free_port())
        self._data = folder / "data"
        self._port = free_port()
        self.server = self._service()
        self.job = StreamJob(folder / "job", self.server.url, self.broker.address, topics, **stream)
        # Idempotent: Kafka's order within a partition is what the truth rests on, through the broker's deaths too; it never gives up.
        settings = {"enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 5}
        self._producer = Producer({"bootstrap.servers": self.broker.address, **settings}, logger=quiet)
        self.fed = 0  # records

    def _service(self, step: str | None = None) -> ServerProcess:
        return ServerProcess(self._data, port=self._port, environment={"LIVEJOIN_FAILPOINT": step} if step else None)

    def __enter__(self) -> Stage:
        with ExitStack() as exits:
            exits.callback(self.broker.close)
            self.broker.start()
            exits.push(lambda *error: self.server.__exit__(*error))
            self.server.start()
            self.topics = Topics(self.broker)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._exits.__exit__(kind, error, trace)

    def start_job(self) -> None:
        self._exits.enter_context(self.job)

    def put(self, topic: str, partition: int, key: Any, value: Any) -> None:
        """Pass a record to the producer, which holds it while the broker is down."""
        while True:
            try:
                self._producer.produce(topic, as_bytes(value), as_bytes(key), partition)
                break
            except BufferError:
                self._producer.poll(1)
        self._producer.poll(0)
        self.fed += 1

    def strike(self, kill: Kill, feed: Callable[[], None]) -> None:
        """Feeds, lets the job work, and kills -9 at the moment. All must be up, and `feed` give more than `kill.batches` batches."""
        print(kill)
        if kill.step:
            self.server.close()
            self.server = self._service(kill.step).start()
        done = len(self.job.batches)
        feed()
        if kill.step:
            self.server.wait(600)
        else:
            self.job.wait_for_batches(done + kill.batches)
            time.sleep(kill.pause)  # a moment within a batch
        jvm = self.job.jvm()
        for part in self._dice.sample(sorted(kill.parts), len(kill.parts)):
            self._kill(part, jvm)

    def _kill(self, part: str, jvm: psutil.Process | None) -> None:
        if part == "service":
            self.server.kill()
        elif part == "broker":
            self.broker.kill()
        elif part == "JVM" and jvm:
            jvm.kill()
        else:  # also for a JVM that has not been started yet
            self.job.process.kill()

    def revive(self, parts: Set[str]) -> None:
        """Start everything that was killed, in any order, without waiting for the job. A driver that has lost only its JVM must end by
        itself."""
        dead = self._dice.sample(sorted(parts), len(parts))
        if "driver" not in parts:
            dead.sort(key="JVM".__eq__)  # what the driver may be waiting for comes first
        if {"driver", "JVM"} <= parts:
            dead.remove("JVM")
        for part in dead:
            if part == "broker":
                self.broker.start()
            elif part == "service":
                self.server.close()
                self.server = self._service().start(wait=False)
            else:
                assert self.job.end() != 0
                self.job.start()
        self.server.wait_ready()

    def settle(self) -> None:
        """Return when the job has consumed everything that was fed; check that a batch was repeated unchanged, and that the service applied
        each batch once."""
        assert self._producer.flush(60) == 0
        self.job.wait_for_records(self.fed)
        assert len(set(re.findall(r" livejoin\.pipeline: batch (\d+): (\d+) records", self.job.said))) == len(self.job.batches)
        posted = set(re.findall(r" livejoin\.pipeline: batch (\d+): .*\bversion \d", self.job.said))
        assert talk.ok(self.server.client().get("/v1/status"))["version"] == len(posted)

    def whole(self, topic: str) -> list[Message]:
        """Return all committed records of a topic, in the order of partition and offset."""
        settings = {"group.id": "whole", "enable.partition.eof": True, "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": self.broker.address, **settings}, logger=quiet)
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


def dice() -> random.Random:
    """Return a random generator, with LIVEJOIN_SEED or a random seed, which is printed."""
    seed = int(os.environ.get("LIVEJOIN_SEED") or random.SystemRandom().randrange(2**32))
    print(f"LIVEJOIN_SEED={seed}")
    return random.Random(seed)
