"""The ways to send changes to the service: by REST, or as Debezium records through Kafka and Spark."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import orjson

import livejoin
from livejoin.wire.log_lines import message_of
from service.demo.history import RELATIONS, Change

HOST = "127.0.0.1"
HOME = Path(__file__).resolve().parents[2]  # where `service` and `streaming` can be imported from
PREFIX = "congress.public."  # of the topics, as Debezium names them
GRACE = 15.0  # seconds for a child to end by itself


class Children:
    """The child processes of the demo, each with its log in the folder. Stopped in reverse order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        self._start: Any = import_module("streaming.children").start

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a child. Call this in the main thread: on Linux, a child ends with the thread that started it."""
        log = self.log(name).open("wb")
        process: subprocess.Popen[bytes] = self._start(command, HOME, log)
        self._running.append((process, log))
        return process

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def last_words(self, name: str) -> str:
        """Return the last line that a child has written, except those of `make`."""
        lines = [line for line in self.log(name).read_text(errors="replace").splitlines() if line.strip() and not line.startswith("make")]
        return message_of(lines[-1].strip()).removeprefix("livejoin: ") if lines else "no output"

    def close(self) -> None:
        """Send SIGTERM, then SIGKILL if necessary."""
        for process, log in reversed(self._running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            log.close()
        self._running.clear()


class Rest:
    """Sends all due changes in one batch, by POST /v1/changes."""

    name = "REST"

    def __init__(self, client: livejoin.Client) -> None:
        self._client = client
        self._batches = 0

    def send(self, changes: Sequence[Change]) -> None:
        body = orjson.dumps({"changes": [change.to_rest() for change in changes]})
        self._batches += 1
        self._client.post_changes(body, "application/json", "history", self._batches)


class Records:
    """Sends changes as Debezium records, with one topic per relation."""

    def __init__(self, brokers: str) -> None:
        self._kafka, self._admin = import_module("confluent_kafka"), import_module("confluent_kafka.admin")
        self._settings = {"bootstrap.servers": brokers, "log_level": 0}
        self._position = 0
        self._producer: Any = None

    def topics(self) -> set[str] | None:
        """Return the names of all topics; None while no broker answers."""
        try:
            found = self._admin.AdminClient(self._settings).list_topics(timeout=0.2)
        except self._kafka.KafkaException:
            return None
        return set(found.topics) if found.brokers else None

    def open(self) -> None:
        """Create the topics; the broker must be available."""
        client = self._admin.AdminClient(self._settings)  # it must outlive the futures
        topics = [self._admin.NewTopic(PREFIX + relation, num_partitions=1, replication_factor=1) for relation in RELATIONS]
        for made in client.create_topics(topics).values():
            made.result(10)
        self._producer = self._kafka.Producer(self._settings | {"enable.idempotence": True, "linger.ms": 5})

    def send(self, changes: Sequence[Change]) -> None:
        """Return when the broker has accepted all of them. Raises RoadClosed if it does not."""
        for change in changes:
            self._position += 1
            key, value = change.to_debezium(self._position)
            self._producer.produce(PREFIX + change.relation, value, key)
        if self._producer.flush(20):
            raise RoadClosed("Kafka does not accept the records")


class Kafka:
    """A broker and `livejoin stream` as children; `step` brings them up without waiting, `send` needs `open`.

    prepare: a command that installs them first. It runs at the lowest priority: meanwhile, the user waits for the service to compile
    kernels.
    """

    name = "Kafka and Spark"

    def __init__(self, children: Children, folder: Path, url: str, prepare: Sequence[str] = ()) -> None:
        self._children, self._folder, self._url = children, folder, url
        self.address = f"{HOST}:{free_port()}"
        self.stage = "Kafka and Spark are being installed"
        self.open = False
        self._preparing = children.start("packages", ["nice", "-n", "19", *prepare]) if prepare else None
        self._records: Records | None = None
        self._broker: subprocess.Popen[bytes] | None = None
        self._stream: subprocess.Popen[bytes] | None = None

    def send(self, changes: Sequence[Change]) -> None:
        """Like `Records.send`."""
        assert self._records is not None
        self._records.send(changes)

    def _start_broker(self) -> tuple[Records, subprocess.Popen[bytes]]:
        settings = [f"KAFKA_PORT={self.address.rpartition(':')[2]}", f"KAFKA_DATA={self._folder / 'kafka'}"]
        broker = self._children.start("kafka", ["env", *settings, sys.executable, "-m", "streaming.kafka_broker"])
        self.stage = "Kafka is starting"
        return Records(self.address), broker

    @staticmethod
    def missing(is_prepared: bool = False) -> str | None:
        """Return why Kafka cannot be used on this machine; None if it can. `is_prepared`: its packages will be installed."""
        if not is_prepared and (lacking := not_installed("confluent_kafka", "pyspark")):
            return lacking
        try:
            import_module("streaming.java").find_java()
        except Exception as error:
            return str(error)
        return None

    def step(self) -> None:
        """Take one step of the startup. Raises RoadClosed if a child has ended."""
        if self._preparing is not None:
            if (status := self._preparing.poll()) is None:
                return
            self._preparing = None
            invalidate_caches()
            if status or Kafka.missing():
                raise RoadClosed(f"Kafka and Spark could not be installed: {self._children.last_words('packages')}")
        if self._broker is None or self._records is None:
            self._records, self._broker = self._start_broker()
        if self._broker.poll() is not None:
            raise RoadClosed(f"Kafka ended: {self._children.last_words('kafka')}")
        if self._stream is not None:
            if self._stream.poll() is not None:
                raise RoadClosed(f"livejoin stream ended: {self._children.last_words('stream')}")
            return
        if self._records.topics() is None:
            return
        self._records.open()
        config = self._folder / "stream.toml"
        config.write_text(stream_toml(self._url, self.address, self._folder / "checkpoint"))
        self._stream = self._children.start("stream", [sys.executable, "-m", "service.cli", "stream", "--config", str(config)])
        self.stage = "Spark is starting"
        self.open = True


class RoadClosed(Exception):
    """Kafka or Spark has failed; the text says why."""


def stream_toml(url: str, brokers: str, checkpoint: Path) -> str:
    """Return the configuration file for `livejoin stream`."""
    head = f"""\
[service]
url = "{url}"

[kafka]
brokers = "{brokers}"

[stream]
name = "congress"
checkpoint = "{checkpoint}"
"""
    topics = [f'\n[[topic]]\nname = "{PREFIX}{relation}"\nrelation = "{relation}"\nformat = "debezium"\n' for relation in RELATIONS]
    return head + "".join(topics)


def not_installed(*modules: str) -> str | None:
    """Return the first of these modules that is missing, and what installs it."""
    missing = next((module for module in modules if find_spec(module) is None), None)
    return missing and f"{missing} is not installed (pip install ./client '.[stream]')"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
