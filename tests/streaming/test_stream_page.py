"""deploy/stream.md and deploy/stream.toml are true: keys, defaults, metrics, the script for dead letters."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

from confluent_kafka import Producer

from streaming.config import Kafka, OutSection, Stream, read_config, reference
from streaming.kafka_broker import Broker
from streaming.metrics import Metrics
from streaming.pipeline.dead_letters import DeadLetters
from streaming.pipeline.decode import BadRecord
from tests.server_process import ROOT
from tests.streaming.stream_job import Topics

FILE = ROOT / "deploy" / "stream.toml"
PAGE = (ROOT / "deploy" / "stream.md").read_text()


def test_the_example_is_a_file() -> None:
    assert len(read_config(FILE).topics) == 2


def test_the_example_shows_the_defaults(tmp_path: Path) -> None:
    """What is commented out stands at its default: with it and without, the file says the same."""
    spelled = re.sub(r"^# ([a-z_]+ = \S.*)$", r"\1", FILE.read_text(), flags=re.MULTILINE)
    (tmp_path / "stream.toml").write_text(spelled)
    assert read_config(tmp_path / "stream.toml") == read_config(FILE)
    given = tomllib.loads(spelled)
    assert set(given["stream"]) == set(Stream.model_fields) and set(given["out"][0]) == set(OutSection.model_fields)


def test_the_table_of_keys_is_the_declaration() -> None:
    assert reference() in PAGE.partition("## The file")[2].partition("\n## ")[0]


def test_every_metric_is_on_the_page() -> None:
    metrics = {family.name + ("_total" if family.type == "counter" else "") for family in Metrics().registry.collect()}
    assert set(re.findall(r"^\| `(livejoin_stream_\w+)`", PAGE, re.MULTILINE)) == metrics


def test_the_script_for_dead_letters(broker: Broker, topics: Topics, tmp_path: Path) -> None:
    """It shows each once, sends them back byte for byte, and does so once."""
    topic = f"letters-{secrets.token_hex(4)}"
    dead = f"{topic}.dead"
    topics.make(topic, partitions=2)
    topics.make(dead)
    keyed = BadRecord(topic, 1, 7, b"\x00key", b'{"id": 1}', "starts", "is not there")
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"no JSON", b"k", 0, headers=[("trace", b"\xff"), ("none", None)])
    assert producer.flush(30) == 0
    letters = [keyed, BadRecord(topic, 0, 9, None, b"", None, "no JSON"), BadRecord(topic, 0, 0, b"k", b"no JSON", None, "no JSON")]
    DeadLetters(Kafka.model_validate({"brokers": broker.address}), dead, threading.Event()).write([*letters, keyed])
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "letters.py").write_text(script)

    def replay() -> list[str]:
        command = [sys.executable, str(tmp_path / "letters.py"), broker.address, dead, "replay"]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()

    assert replay() == [f"{topic} 1 7 starts: is not there b'{{\"id\": 1}}'", f"{topic} 0 9 no JSON b''", f"{topic} 0 0 no JSON b'no JSON'"]
    assert replay() == []
    back = {(message.partition(), message.key(), message.value(), str(message.headers())) for message in topics.read(topic, 4)}
    headers = str([("trace", b"\xff"), ("none", None)])
    assert back == {(1, keyed.key, keyed.value, "None"), (0, None, b"", "None"), (0, b"k", b"no JSON", headers)}
