"""`livejoin stream --check`: says of each thing whether it is well, and leaves everything as it was."""

from __future__ import annotations

import argparse
import json
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from livejoin.wire.log_lines import message_of
from livejoin.wire.schema import parse_relation
from streaming.checking import check as check_module
from streaming.checking.check import check
from streaming.cli import command
from streaming.config import read_config
from streaming.kafka_broker import Broker
from streaming.kafka_client import Admin
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.streaming.out_job import OutJob
from tests.streaming.stream_job import Jobs, StreamJob, Topics
from tests.streaming.test_job import STAYS, create

PAIRS = "SELECT a.id AS a, b.id AS b FROM stays a JOIN stays b ON a.room = b.room AND overlaps(a.stay, b.stay) AND a.id < b.id"
Lines = list[tuple[str, str, str]]  # word, subject, text


@pytest.fixture
def name() -> str:
    """A name of this test's own, for its topics."""
    return f"check-{secrets.token_hex(4)}"


@pytest.fixture
def look(capsys: pytest.CaptureFixture[str]) -> Callable[[StreamJob], tuple[int, Lines]]:
    """Checks a job's file: the status, the lines."""

    def look(job: StreamJob) -> tuple[int, Lines]:
        capsys.readouterr()
        status = check(job.path)
        lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
        return status, [(word, subject, text) for word, subject, text in lines]

    return look


def add_out(job: StreamJob, view: str, topic: str) -> StreamJob:
    with job.path.open("a") as file:
        file.write(f'\n[[out]]\nview = "{view}"\ntopic = "{topic}"\n')
    return job


def make_out_topic(broker: Broker, name: str, **settings: str) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = Admin({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result(30)


def state_of(broker: Broker, server: ServerProcess, folder: Path) -> Any:
    """All that a check could change."""
    admin = Admin({"bootstrap.servers": broker.address})
    topics = sorted(set(admin.list_topics(timeout=30).topics) - {"__consumer_offsets"})  # the broker's own, made when a consumer asks
    groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid]
    status = server.client().get("/v1/status").json()
    rows = {name: relation["rows"] for name, relation in status["relations"].items()}
    return topics, groups, status["version"], rows, sorted(map(str, folder.rglob("*")))


def emitted(lines: Lines, subject: str, start: str = "") -> tuple[str, str]:
    """The word and the text of the one line on this."""
    ((word, text),) = [(word, text) for word, about, text in lines if about == subject and text.startswith(start)]
    return word, text


def test_all_is_well(server: ServerProcess, broker: Broker, topics: Topics, name: str, tmp_path: Path, look: Any) -> None:
    talk.define(server.client(), "stays", STAYS)
    talk.view(server.client(), "pairs", PAIRS)
    rows, dead, out = f"{name}.rows", f"{name}.dead", f"{name}.out"
    topics.make(name, partitions=3)
    topics.make(rows, dead)
    make_out_topic(broker, out, cleanup_policy="compact")
    topics.put(name, [create(number) for number in range(250)], partition=0)
    topics.put(name, [create(number) for number in range(250, 290)] + [({"id": 250}, None)], partition=2)
    topics.put(rows, [(None, {"id": 1, "room": "A", "starts": 1})])
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(rows, b"nonsense")
    producer.flush(60)
    producer.abort_transaction(60)
    job = StreamJob(tmp_path, server.url, broker.address, [(name, "stays"), (rows, "stays", "json")], dead_letters=dead)
    before = state_of(broker, server, tmp_path)
    status, lines = look(add_out(job, "pairs", out))
    assert state_of(broker, server, tmp_path) == before
    assert status == 0 and {word for word, _, _ in lines} == {"ok"}, lines
    assert emitted(lines, "records", f"{name}:")[1].endswith("of the last 141: 141 good, 0 skipped, 0 bad")
    assert emitted(lines, "records", rows)[1].endswith("of the last 1: 1 good, 0 skipped, 0 bad; null in all records: ends")
    assert emitted(lines, "topic", f"{name}:")[1].endswith("3 partitions, 291 offsets")
    assert "will be created" in emitted(lines, "out", f"{out}.livejoin")[1]
    assert emitted(lines, "source") == ("ok", f"{job.name}: new to the service")


def test_each_fault_is_told(server: ServerProcess, broker: Broker, topics: Topics, name: str, tmp_path: Path, look: Any) -> None:
    """All of them in one run: no fault hides another."""
    talk.define(server.client(), "stays", STAYS)
    talk.view(server.client(), "unfollowed", {"sql": PAIRS, "changes": False})  # type: ignore[dict-item]
    moved, orphan, out = f"{name}.moved", f"{name}.orphan", f"{name}.out"
    topics.make(name, orphan)
    topics.make(moved, partitions=2)
    make_out_topic(broker, out, retention_ms="60000")
    topics.put(name, [create(1), create(2, starts="soon"), create(3), (b"key", b"not json")])
    topics.put(moved, [create(1)], partition=0)
    topics.put(moved, [create(1)], partition=1)
    feeds = [(name, "stays"), (moved, "stays"), (orphan, "nobody"), (f"{name}.gone", "stays")]
    (tmp_path / "file").touch()
    stream = {"dead_letters": f"{name}.dead", "checkpoint": str(tmp_path / "file" / "checkpoint")}
    job = StreamJob(tmp_path, server.url, broker.address, feeds, **stream)
    add_out(job, "unfollowed", out)
    add_out(job, "missing", f"{name}.nowhere")
    status, lines = look(job)
    assert status == 1
    word, text = emitted(lines, "records", f"{name}:")
    assert word == "bad" and "2 good, 0 skipped, 2 bad; the first: partition 0, offset 1: starts: " in text
    assert emitted(lines, "records", moved)[0] == "bad" and "more than one partition" in emitted(lines, "records", moved)[1]
    assert emitted(lines, "records", orphan) == ("--", f"{orphan}: not checked without the relation nobody")
    assert emitted(lines, "records", f"{name}.gone") == ("--", f"{name}.gone: not checked without the topic")
    for missing in (f"{name}.gone", f"{name}.dead", f"{name}.nowhere"):
        assert emitted(lines, "topic", missing) == ("bad", f"{missing}: does not exist: create it")
    word, text = emitted(lines, "out", f"{out}:")
    assert word == "bad" and "retention.ms = 60000" in text and "cleanup.policy" in text
    assert emitted(lines, "relation", "nobody")[0] == "bad"
    assert emitted(lines, "view", "unfollowed")[0] == "bad" and '"changes": false' in emitted(lines, "view", "unfollowed")[1]
    assert emitted(lines, "view", "missing")[0] == "bad"
    assert emitted(lines, "checkpoint")[0] == "bad"
    assert emitted(lines, "relation", "stays")[0] == emitted(lines, "java")[0] == emitted(lines, "jars")[0] == "ok"


def test_nobody_is_there(tmp_path: Path, look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It doesn't wait, goes on with what is here, and fetches nothing."""
    jars = tmp_path / "jars"
    monkeypatch.setenv("LIVEJOIN_JARS", str(jars))
    job = add_out(StreamJob(tmp_path, "http://127.0.0.1:1", "127.0.0.1:1", [("t", "r")]), "v", "o")
    status, lines = look(job)
    assert status == 1
    words = [(word, subject) for word, subject, _ in lines]
    assert words == [
        ("ok", "file"),
        ("bad", "broker"),
        ("--", "topic"),
        ("bad", "service"),
        ("--", "relation"),
        ("--", "records"),
        ("ok", "checkpoint"),
        ("ok", "java"),
        ("bad", "jars"),
    ]
    assert not jars.exists()


def test_a_mistake_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = StreamJob(tmp_path, "http://127.0.0.1:1", "127.0.0.1:1", [("t", "r")], trigger="soon")
    assert command(argparse.Namespace(check=job.path, config=None)) == 2
    said = capsys.readouterr()
    assert said.out == "" and "stream.trigger" in said.err


def test_the_checkpoint(server: ServerProcess, broker: Broker, topics: Topics, name: str, tmp_path: Path, look: Any, job_of: Jobs) -> None:
    """One that a real job has made: it goes on; under another name, with other topics, on another service it does not."""
    talk.define(server.client(), "stays", STAYS)
    topics.make(name, f"{name}.more")
    topics.put(name, [create(1), create(2)])
    there = (server.url, broker.address, [(name, "stays")])
    with job_of(server.url, (name, "stays"), name=name, trigger="available-now") as job:
        assert job.end() == 0
    status, lines = look(job)
    assert status == 0
    assert "continues after batch 0" in emitted(lines, "checkpoint")[1] and "from this checkpoint" in emitted(lines, "source")[1]

    status, lines = look(StreamJob(tmp_path / "new", *there, name=name))
    assert status == 1 and emitted(lines, "source")[0] == "bad" and "reset = true" in emitted(lines, "source")[1]
    status, lines = look(StreamJob(tmp_path / "new", *there, name=name, reset=True))
    assert status == 0 and "take over" in emitted(lines, "source")[1]

    old = str(tmp_path / "checkpoint")
    more = [(f"{name}.more", "stays")]
    status, lines = look(StreamJob(tmp_path / "other", server.url, broker.address, more, name=name, checkpoint=old))
    assert status == 1 and f"reads the topic {name}, which is not in the file" in emitted(lines, "checkpoint")[1]
    with ServerProcess(tmp_path / "empty") as empty:
        talk.define(empty.client(), "stays", STAYS)
        status, lines = look(StreamJob(tmp_path / "other", empty.url, broker.address, [(name, "stays")], name=name, checkpoint=old))
        assert status == 1 and "knows none of them" in emitted(lines, "source")[1]

    topics.put(name, [create(3)])
    admin = Admin({"bootstrap.servers": broker.address})
    (cut,) = admin.delete_records([TopicPartition(name, 0, 3)]).values()
    cut.result(30)
    status, lines = look(job)
    assert status == 1 and "lost unread records (it begins at 3, the next offset is 2)" in emitted(lines, "checkpoint")[1]
    topics.remove(name)
    topics.make(name)
    status, lines = look(job)
    assert status == 1 and emitted(lines, "checkpoint")[0] == "bad" and "recreated" in emitted(lines, "checkpoint")[1]
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps("?"))
    status, lines = look(job)
    assert status == 1 and "cannot be read" in emitted(lines, "checkpoint")[1]


def test_records_that_do_not_come(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None of a topic that has some is not "ok"."""
    columns = {"partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(), "value": pa.binary()}
    monkeypatch.setattr(check_module, "last_records", lambda *arguments: pa.schema(columns.items()).empty_table())
    config = read_config(StreamJob(tmp_path, "http://127.0.0.1:1", "127.0.0.1:1", [("t", "stays")]).path)
    for ends, word in (({0: (0, 5), 1: (0, 0)}, "--"), ({0: (3, 3)}, "ok")):
        check_module._check_records(
            check_module.Report(), config, config.topics[0], check_module.TopicState("id", ends), parse_relation(STAYS)
        )
        assert capsys.readouterr().out.split()[0] == word


class Stranger(BaseHTTPRequestHandler):
    """A server that is not livejoin and has something for everybody."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")

    def log_message(self, *arguments: object) -> None:
        pass


def test_another_server_at_the_address(broker: Broker, topics: Topics, name: str, tmp_path: Path, look: Any) -> None:
    topics.make(name, f"{name}-out")
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            job = StreamJob(tmp_path / "in", url, broker.address, [(name, "stays")])
            status, lines = look(job)
            assert status == 1 and emitted(lines, "service") == ("bad", f"the server at {url} is not livejoin: check service.url")
            out = OutJob(tmp_path / "out", url, broker.address, "pairs", f"{name}-out")
            for each in (job, out):
                with each:
                    assert each.end() == 1
                assert message_of(each.said.splitlines()[-1]) == f"the server at {url} is not livejoin: check service.url"
        finally:
            server.shutdown()
            thread.join()
