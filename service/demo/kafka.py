"""The demo's changes as Debezium records through Kafka and Spark, and the processes that it starts for them and for the service."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from livejoin.wire.log_lines import message_of
from service.demo.history import PREFIX, RELATIONS, Change

HOST = "127.0.0.1"
HOME = Path(__file__).resolve().parents[2]  # where `service` and `streaming` can be imported from
TICK = 0.2  # seconds between two looks at what is awaited
PATIENCE = 300.0  # seconds for the service to start (compiling), and without any change that arrives through Kafka and Spark
_GRACE = 15.0  # seconds for a child to end by itself


class RoadClosed(Exception):
    """Kafka or Spark has failed; the text says why."""


class Children:
    """The child processes of the demo, each with its log in the folder. Stopped in reverse order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a child. Call this in the main thread: on Linux, a child ends with the thread that started it."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running.append(import_module("streaming.children").start(command, HOME, log))
        return self._running[-1]

    def last_words(self, name: str) -> str:
        """Return the last line that a child has written, except those of `make`."""
        lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip() and not line.startswith("make")]
        return message_of(said[-1]).removeprefix("livejoin: ") if said else "no output"

    def close(self) -> None:
        """Send SIGTERM, then SIGKILL if necessary."""
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)  # does nothing if it has ended
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Records:
    """Sends changes as Debezium records, with one topic per relation."""

    def __init__(self, brokers: str) -> None:
        self._kafka, self._admin = import_module("confluent_kafka"), import_module("confluent_kafka.admin")
        self._settings = {"bootstrap.servers": brokers, "log_level": 0}
        self.sent = 0
        self._producer: Any = None

    def topics(self) -> set[str] | None:
        """Return the names of all topics; None while no broker answers."""
        try:
            found = self._admin.AdminClient(self._settings).list_topics(timeout=TICK)
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
        errors = list[Any]()
        for change in changes:
            self.sent += 1
            key, value = change.to_debezium(self.sent)
            self._producer.produce(PREFIX + change.relation, value, key, on_delivery=lambda error, _: errors.append(error))
        if self._producer.flush(20) or any(error is not None for error in errors):
            raise RoadClosed("Kafka does not accept the records")


class Kafka:
    """A broker and `livejoin stream` as children. Each step of `stages` checks them and describes how far they are; it raises RoadClosed if
    one has ended, or if changes are on their way and none arrives for PATIENCE. `records` takes changes once the broker is there; `arrived`
    counts those that the service has, by the last batch that Spark has committed.

    prepare: a command that installs them first. It runs at the lowest priority: meanwhile, the user waits for the service to compile
    kernels.
    """

    def __init__(self, children: Children, url: str, prepare: Sequence[str]) -> None:
        self._children, self._url, self._prepare = children, url, prepare
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.records: Records | None = None
        self.arrived = 0
        self.stages = self._stages()

    def close(self) -> None:
        """End both: what they still have is older than what will be sent by REST."""
        for process in self._running.values():
            process.kill()

    def _stages(self) -> Iterator[str]:
        start, last_words, folder, port = self._children.start, self._children.last_words, self._children.folder, free_port()
        if self._prepare:
            preparing = start("packages", "nice", "-n", "19", *self._prepare)
            while preparing.poll() is None:
                yield "Kafka and Spark are being installed …"
            invalidate_caches()
            if preparing.returncode or missing():
                raise RoadClosed(f"Kafka and Spark could not be installed: {last_words('packages')}")
        settings = f"KAFKA_PORT={port}", f"KAFKA_DATA={folder / 'kafka'}"
        self._running["Kafka"] = start("Kafka", "env", *settings, sys.executable, "-m", "streaming.kafka_broker")
        records, since, read = Records(f"{HOST}:{port}"), time.monotonic(), import_module("streaming.pipeline.checkpoint").read_checkpoint
        while True:
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise RoadClosed(f"{name} ended: {last_words(name)}")
            if self.records is None and records.topics() is not None:
                records.open()
                config = folder / "stream.toml"
                config.write_text(stream_toml(self._url, f"{HOST}:{port}", folder / "checkpoint"))
                command = sys.executable, "-m", "service.cli", "stream", "--config", str(config)
                self._running["livejoin stream"], self.records = start("livejoin stream", *command), records
            before = self.arrived
            if (folder / "checkpoint" / "metadata").exists():  # before, it is not a checkpoint yet
                self.arrived = sum(sum(ends.values()) for ends in read(folder / "checkpoint").offsets.values())
            if self.arrived != before or self.arrived == records.sent:
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                late = f"{self.arrived:,} of {records.sent:,} changes have arrived through Kafka and Spark, none for {PATIENCE:.0f} s"
                raise RoadClosed(f"{late}; the stream said: {last_words('livejoin stream')}")
            yield "through Kafka and Spark" if self.arrived else f"{'Spark' if self.records else 'Kafka'} is starting …"


def missing(is_prepared: bool = False) -> str | None:
    """Return why Kafka cannot be used on this machine; None if it can. `is_prepared`: its packages will be installed."""
    if not is_prepared and (lacking := not_installed("confluent_kafka", "pyspark")):
        return lacking
    try:
        import_module("streaming.java").find_java()
    except Exception as error:
        return str(error)
    return None


def not_installed(*modules: str) -> str | None:
    """Return the first of these modules that is missing, and what installs it."""
    lacking = next((module for module in modules if find_spec(module) is None), None)
    return lacking and f"{lacking} is not installed (pip install ./client '.[kafka]')"


def stream_toml(url: str, brokers: str, checkpoint: Path) -> str:
    """Return the configuration file for `livejoin stream`."""
    topics = [f'\n[[topic]]\nname = "{PREFIX}{relation}"\nrelation = "{relation}"\nformat = "debezium"\n' for relation in RELATIONS]
    return f"""\
[service]
url = "{url}"

[kafka]
brokers = "{brokers}"

[stream]
name = "congress"
checkpoint = "{checkpoint}"
{"".join(topics)}"""


def free_port(port: int = 0) -> int:
    """Return this port, or any free one; 0 if it is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return 0
        return int(probe.getsockname()[1])
