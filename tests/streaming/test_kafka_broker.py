"""The broker of `make kafka` and of the tests, for real."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from streaming.errors import StreamError
from streaming.kafka_broker import Broker, free_port
from streaming.kafka_client import Admin

pytestmark = pytest.mark.usefixtures("quick_java")


def topics(broker: Broker) -> set[str]:
    return set(Admin({"bootstrap.servers": broker.address}).list_topics(timeout=10).topics)


def make_topic(broker: Broker, name: str) -> None:
    admin = Admin({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, 1)])[name].result(30)


def test_records_survive_a_stop_and_a_kill(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        make_topic(broker, "kept")
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce("kept", b"1")
        assert producer.flush(30) == 0
        broker.stop()
        broker.start()
        assert "kept" in topics(broker)
        broker.kill()
        broker.start()
        assert "kept" in topics(broker)
    assert (tmp_path / "kafka").exists()


def test_a_taken_port_is_said() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(StreamError, match=f"port {port} on 127.0.0.1 is in use"), Broker(port=port):
            pass


def test_a_folder_in_use_is_said_and_its_own_goes_with_it() -> None:
    with Broker() as first:
        assert first.data.exists()
        with pytest.raises(StreamError, match="is in use by another broker"), Broker(first.data):
            pass
    assert not first.data.exists()


def test_in_the_foreground(tmp_path: Path) -> None:
    """By options or variables, ended by each signal; then the folder and the port are free again."""
    port = free_port()
    variables = {"KAFKA_PORT": str(port), "KAFKA_DATA": str(tmp_path / "data")}
    options = ["--port", str(port), "--data", str(tmp_path / "data")]
    for number, given, more in ((signal.SIGINT, [], variables), (signal.SIGTERM, options, {"KAFKA_PORT": "1"})):
        command = [sys.executable, "-m", "streaming.kafka_broker", *given]
        with subprocess.Popen(command, env={**os.environ, **more}, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert f"127.0.0.1:{port}" in process.stdout.readline()
            process.send_signal(number)
            assert process.wait(60) == 0
    with Broker(tmp_path / "data", port):
        pass


def test_a_bad_port_is_wrong_use() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streaming.kafka_broker"], env={**os.environ, "KAFKA_PORT": "x"}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "KAFKA_PORT" in done.stderr


def test_help_and_wrong_use() -> None:
    def emitted(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "streaming.kafka_broker", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    status, text = emitted("--help")
    assert status == 0 and text.startswith("usage: python -m streaming.kafka_broker [-h] [--port N] [--data DIR]")
    assert all(word in text for word in ("Ctrl-C", "Java 17", "(KAFKA_PORT; default: 9092)", "KAFKA_DATA", "Not for production"))
    for wrong, what in ((["--port", "0"], "--port (KAFKA_PORT) is '0'"), (["here"], "unrecognized arguments: here")):
        status, text = emitted(*wrong)
        assert status == 2 and what in text


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel ends a child with its parent")
def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from streaming.kafka_broker import Broker\n"
    code += "b = Broker(Path(sys.argv[1])); b.start(); print(b.process.pid, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        fd = os.pidfd_open(child)
        process.kill()


    assert select.select([fd], [], [], 60)[0]  # readable when the child has ended
    os.close(fd)
