"""A real Kafka broker on this machine, for the tests, the demo and `make kafka`.

One node in KRaft mode (broker and controller in one process) on the loopback address, run with Java from the locked archives.

    python -m streaming.kafka_broker [--port N] [--data DIR]     in the foreground
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from confluent_kafka import KafkaException

from streaming import children
from streaming.errors import StreamError
from streaming.jars import jars
from streaming.java import find_java
from streaming.kafka_client import Admin

HOST = "127.0.0.1"
_PORTS = range(15_000, 30_000)  # below those of outgoing connections, on Linux and elsewhere
_START_SECONDS = 60
_STOP_SECONDS = 20
# Small and quick to start; the broker logs to broker.log.
_JVM = (
    "-Xms128m -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -XX:MaxDirectMemorySize=256m "
    "-Djava.net.preferIPv4Stack=true -Dorg.slf4j.simpleLogger.logFile=System.err -Dorg.slf4j.simpleLogger.defaultLogLevel=warn "
    "-Dorg.slf4j.simpleLogger.showDateTime=true"
).split()
# One node, so no replication. With the short time-outs a restart takes seconds (12 s with Kafka's defaults).
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
controlled.shutdown.max.retries=1
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=2
num.io.threads=2
"""


class Broker:
    """A broker process. `with Broker() as broker:` starts it and waits until it answers at `broker.address`.

    data: its folder, kept; without one a temporary folder, removed by `close`.
    port: its port; by default a free one, which stays the same across restarts.
    Start it from the main thread: the process ends with the thread that started it. Starts in about 3 s, stops in 0.5 s.
    """

    def __init__(self, data: Path | None = None, port: int | None = None) -> None:
        self._own_folder = data is None
        self.data = Path(tempfile.mkdtemp(prefix="livejoin-kafka-")) if data is None else data.absolute()
        self.port = free_port() if port is None else port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Broker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the process and returns when it answers. Raises StreamError: no Java, port taken, folder in use, broken start."""
        java, classpath = str(find_java()), os.pathsep.join(map(str, jars("broker")))
        if not _is_free(self.port):
            raise StreamError(f"port {self.port} on {HOST} is in use: use another --port (KAFKA_PORT), or stop the program that uses it")
        self._make_folder()
        log = self.data / "broker.log"
        with self._lock() as lock, log.open("wb") as output:
            self._write_properties()
            command = [java, *_JVM, "-cp", classpath]
            if not (self.data / "logs" / "meta.properties").exists():
                # An id that begins with "-" would be read as an option.
                node_id = "k" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()[1:22]
                format_it = [*command, "kafka.tools.StorageTool", "format", "-t", node_id, "-c", "server.properties"]
                children.start(format_it, self.data, output).wait()
            self.process = children.start([*command, "kafka.Kafka", "server.properties"], self.data, output, keep=[lock.fileno()])
        self._wait_until_ready(log)

    def _make_folder(self) -> None:
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            (self.data / "lock").touch()
        except OSError as error:
            raise StreamError(f"the broker's data folder {self.data} cannot be written: {error.strerror}") from error

    def _lock(self) -> IO[bytes]:
        """Locks the folder. The broker inherits the open file, so the lock lasts as long as the broker, even if this process ends.

        Kafka has a lock of its own, but reads its logs before it looks.
        """
        lock = (self.data / "lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise StreamError(f"the data folder {self.data} is in use by another broker: use another --data (KAFKA_DATA)") from None
        return lock

    def _write_properties(self) -> None:
        while (controller := free_port()) == self.port:
            pass
        text = _PROPERTIES.format(host=HOST, port=self.port, controller=controller, logs=self.data / "logs")
        (self.data / "server.properties").write_text(text)

    def _wait_until_ready(self, log: Path) -> None:
        assert self.process is not None
        client = Admin({"bootstrap.servers": self.address})
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise StreamError(f"the Kafka broker stopped during startup: {_reason(log)}")
            try:
                if client.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                continue
        self.stop()
        raise StreamError(f"the Kafka broker did not answer at {self.address} within {_START_SECONDS} s: {_reason(log)}")

    def stop(self) -> None:
        """Ends the process in order (its data stays); nothing when it does not run."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self) -> None:
        """Ends the process as kill -9 does (its data stays)."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """Stops it and removes the folder that it made for itself."""
        self.stop()
        if self._own_folder:
            shutil.rmtree(self.data, ignore_errors=True)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that the kernel does not use for outgoing connections until its owner listens, which takes Java seconds."""
    while not _is_free(port := secrets.choice(_PORTS)):
        pass
    return port


def _reason(log: Path) -> str:
    """The last error in the broker's log, else its last line."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip() and not line.startswith(("\tat ", "    at "))]
    errors = [line for line in lines if "ERROR" in line or "Exception" in line]
    return (errors or lines or ["no output"])[-1].strip() + f" (full log: {log})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m streaming.kafka_broker",
        description=f"Run one Kafka broker on {HOST}, for development and tests, until Ctrl-C or SIGTERM. It prints its address when it is "
        "ready. Needs Java 17 or newer; Kafka is downloaded at the first start (python -m streaming.jars). Topics are not created "
        "automatically.",
        epilog="Not for production: one node without replication, passwords or TLS.",
        allow_abbrev=False,
    )
    port, data = os.environ.get("KAFKA_PORT") or "9092", os.environ.get("KAFKA_DATA") or None
    parser.add_argument("--port", default=port, metavar="N", help="the port to listen on (KAFKA_PORT; default: 9092)")
    help = "the folder for its records, which is kept (KAFKA_DATA; default: a temporary folder, which is deleted)"
    parser.add_argument("--data", default=data, metavar="DIR", help=help)
    return parser


def main() -> int:
    """Runs a broker in the foreground until SIGINT or SIGTERM; status 0 then, 1 for a failure, 2 for wrong use."""
    arguments = _parser().parse_args()
    text, folder = arguments.port, arguments.data
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        print(f"livejoin: --port (KAFKA_PORT) is {text!r}: use a number from 1 to 65535", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    broker = Broker(Path(folder) if folder else None, int(text))
    try:
        broker.start()
        print(f"Kafka listens at {broker.address}, with data in {broker.data}; press Ctrl-C to stop", flush=True)
        assert broker.process is not None
        status = broker.process.wait()
        print(f"livejoin: the Kafka broker stopped with status {status}: {_reason(broker.data / 'broker.log')}", file=sys.stderr)
        return 1
    except StreamError as error:
        print(f"livejoin: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        broker.close()


if __name__ == "__main__":
    sys.exit(main())
