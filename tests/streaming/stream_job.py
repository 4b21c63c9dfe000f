"""A real `livejoin stream` in a separate process, and topics of a real broker that feed it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import NewTopic

from streaming.kafka_broker import Broker
from streaming.kafka_client import Admin, quiet
from tests.forked import Forked
from tests.streaming.shared_spark import SharedSpark

LIMIT = 180.0  # seconds that any step may take


class Topics:
    """Operations of tests on a broker."""

    def __init__(self, broker: Broker) -> None:
        self._settings = {"bootstrap.servers": broker.address}
        self._admin = Admin(self._settings)
        self._producer = Producer(self._settings, logger=quiet)

    def make(self, *names: str, partitions: int = 1) -> None:
        """Create a topic; return when the broker knows the leader of each partition."""
        for future in self._admin.create_topics([NewTopic(name, partitions) for name in names]).values():
            future.result(30)
        while True:
            known = self._admin.list_topics(timeout=30).topics
            if all(name in known and all(part.leader >= 0 for part in known[name].partitions.values()) for name in names):
                return

    def remove(self, name: str) -> None:
        """Delete a topic; return when the broker no longer lists it."""
        self._admin.delete_topics([name])[name].result(30)
        while name in self._admin.list_topics(timeout=30).topics:
            pass

    def put(self, topic: str, records: Iterable[tuple[Any, Any]], partition: int = 0) -> None:
        """Send records as (key, value): bytes unchanged, None as null, everything else as JSON."""
        for key, value in records:
            self._producer.produce(topic, as_bytes(value), as_bytes(key), partition)
        assert self._producer.flush(60) == 0

    def read(self, topic: str, count: int) -> list[Message]:
        """The first `count` committed records of a topic."""
        consumer = Consumer({**self._settings, "group.id": f"test-{topic}", "auto.offset.reset": "earliest"}, logger=quiet)
        consumer.subscribe([topic])
        messages: list[Message] = []
        try:
            while len(messages) < count:
                message = consumer.poll(LIMIT)
                assert message is not None and message.error() is None
                messages.append(message)
        finally:
            consumer.close()
        return messages


def as_bytes(data: Any) -> bytes | None:
    return data if data is None or isinstance(data, bytes) else json.dumps(data).encode()


class StreamJob:
    """The command on a file of its own in `folder`. `with StreamJob(…) as job:` starts it and kills it at the end.

    topics: (topic, relation) or (topic, relation, format); java: keys of [kafka.java]; spark: where it runs, else in a Spark of its
    own; other keywords go into [stream].
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        brokers: str,
        topics: Sequence[tuple[str, ...]],
        java: dict[str, Any] | None = None,
        spark: SharedSpark | None = None,
        **stream: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = f"test-{zlib.crc32(bytes(folder)):08x}"  # unlike others that share the service
        keys = {"name": self.name, "checkpoint": str(folder / "checkpoint"), "trigger": "0 seconds", **stream}
        lines = ["[service]", f"url = {json.dumps(url)}", "[kafka]", f"brokers = {json.dumps(brokers)}", "[kafka.java]"]
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in (java or {}).items()] + ["[stream]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        for name, relation, *form in topics:
            lines += ["[[topic]]", f"name = {json.dumps(name)}", f"relation = {json.dumps(relation)}"]
            lines += [f"format = {json.dumps(form[0] if form else 'debezium')}"]
        self.path = folder / "stream.toml"
        self.path.write_text("\n".join(lines))
        self._folder = folder
        self._spark = spark
        self.arguments: list[str] = []  # of the command, beside the file
        self._process: Forked | subprocess.Popen[str] | None = None
        self._said: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self.batches: dict[int, int] = {}  # records of each batch that was done, by its id

    def start(self) -> StreamJob:
        environment: Mapping[str, str] = os.environ
        if self._spark:
            self._spark.clear()
            environment = {**environment, **self._spark.environment}
        self._ended = False
        self._process = Forked(["stream", "--config", str(self.path), *self.arguments], environment)
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        return self

    def _listen(self, process: Forked | subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            with self._news:
                self._said.append(line.rstrip())
                if found := re.search(r" livejoin\.pipeline: batch (\d+): (\d+) records", line):
                    self.batches[int(found[1])] = int(found[2])
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    @property
    def said(self) -> str:
        return "\n".join(self._said)

    @property
    def process(self) -> Forked | subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def wait_for_records(self, count: int) -> None:
        """Wait until completed batches have this number of records in total, including those of former starts."""
        self._wait(lambda: sum(self.batches.values()) >= count)
        assert sum(self.batches.values()) == count

    def wait_for_batches(self, count: int) -> None:
        """Wait until this number of batches is completed, including those of former starts, or the job has ended."""
        with self._news:
            assert self._news.wait_for(lambda: self._ended or len(self.batches) >= count, LIMIT), self.said

    def wait_for(self, words: str) -> None:
        """Wait until the job has printed this."""
        self._wait(lambda: any(words in line for line in self._said))

    def _wait(self, condition: Any) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self._ended or condition(), LIMIT), f"nothing came of it:\n{self.said}"
            assert condition(), f"it ended with status {self.process.wait()}:\n{self.said}"

    def end(self) -> int:
        """Wait until it has ended; return its status."""
        status = self.process.wait(LIMIT)
        with self._news:
            assert self._news.wait_for(lambda: self._ended, LIMIT)
        return status

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.end()

    def jvm(self) -> psutil.Process | None:
        """Spark's process."""
        children: list[psutil.Process] = psutil.Process(self.process.pid).children()
        return next((child for child in children if child.name() == "java"), None)

    def __enter__(self) -> StreamJob:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        if error is not None:
            print(f"--- the job said:\n{self.said}")
        if self._spark:
            self._spark.clear()
            if error is not None:
                print(f"--- Spark said:\n{self._spark.said()[-4000:]}")


Jobs = Callable[..., StreamJob]  # the fixture `job_of`
