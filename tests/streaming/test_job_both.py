"""A job with topics and outs: side by side, ended together."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from streaming import cli
from streaming.config import read_config
from streaming.kafka_broker import Broker, free_port
from streaming.metrics import Metrics
from streaming.patience import Patience
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.streaming.out_job import Believer
from tests.streaming.stream_job import LIMIT, Jobs, StreamJob, Topics
from tests.streaming.test_job import STAYS, create

PAIRS = "SELECT a.id AS one, b.id AS other FROM stays a JOIN stays b ON a.room = b.room AND overlaps(a.stay, b.stay) WHERE a.id < b.id"


@pytest.fixture
def names(shared_server: ServerProcess, topics: Topics) -> Iterator[tuple[str, str]]:
    """A topic in and one out, and the view between them."""
    mark = secrets.token_hex(4)
    topics.make(f"in-{mark}", f"out-{mark}")
    client = shared_server.client()
    talk.define(client, "stays", STAYS)
    talk.view(client, "pairs", PAIRS)
    yield f"in-{mark}", f"out-{mark}"
    talk.drop(client, ["pairs"], ["stays"])


def with_out(job: StreamJob, view: str, out: str) -> StreamJob:
    with job.path.open("a") as file:
        file.write(f'\n[[out]]\nview = "{view}"\ntopic = "{out}"\n')
    return job


def test_in_and_out(shared_server: ServerProcess, broker: Broker, topics: Topics, names: tuple[str, str], job_of: Jobs) -> None:
    topic, out = names
    port = free_port()
    job = with_out(job_of(shared_server.url, (topic, "stays")), "pairs", out)
    job.arguments = ["--metrics-port", str(port)]
    topics.put(topic, [create(number) for number in range(4)])
    with job:
        Believer(broker.address, out).believe_until([{"one": one, "other": other} for other in range(4) for one in range(other)])
        job.wait_for_records(4)
        wanted = [f'livejoin_stream_records_total{{topic="{topic}"}} 4.0', f'livejoin_stream_published_records_total{{topic="{out}"}} 6.0']
        wanted += [f'livejoin_stream_lag_offsets{{partition="0",topic="{topic}"}} 0.0']
        end = time.monotonic() + LIMIT
        while missing := [line for line in wanted if line not in httpx.get(f"http://127.0.0.1:{port}/metrics").text.splitlines()]:
            assert time.monotonic() < end, missing
        assert job.stop() == 0


def test_what_there_is_now_is_published_before_the_end(
    shared_server: ServerProcess, broker: Broker, topics: Topics, names: tuple[str, str], job_of: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topics are done with their last batch before an out has so much as begun."""
    topic, out = names
    outs = [out, f"{out}-2"]
    topics.make(outs[1])
    job = with_out(job_of(shared_server.url, (topic, "stays")), "pairs", out)
    with job.path.open("a") as file:
        file.write(f'[[out]]\nview = "pairs"\ntopic = "{outs[1]}"\n')
    there = shared_server.client()
    rows = iter(range(100))

    def bring(*arguments: object) -> None:
        changes = [{"op": "upsert", "row": {"id": number, "room": "A", "starts": 0, "ends": 10}} for number in islice(rows, 50)]
        talk.ok(talk.send(there, [{"relation": "stays", **change} for change in changes]))

    monkeypatch.setattr(cli, "run_stream", bring)
    believers = [Believer(broker.address, each) for each in outs]
    for count in (50, 100):  # first every row, then changes
        cli._run(read_config(job.path), threading.Event(), Metrics())
        pairs = [{"one": one, "other": other} for other in range(count) for one in range(other)]
        for believer in believers:
            believer.believe_until(pairs)
    for believer in believers:
        believer.close()


def test_topics_without_records(
    shared_server: ServerProcess, broker: Broker, names: tuple[str, str], job_of: Jobs
) -> None:
    """Spark's first batch is empty, and the service records it: the view is published, and its rows are from elsewhere."""
    topic, out = names
    rows = [{"id": number, "room": "A", "starts": 0, "ends": 10} for number in range(2)]
    talk.ok(talk.send(shared_server.client(), [{"relation": "stays", "op": "upsert", "row": row} for row in rows]))
    with with_out(job_of(shared_server.url, (topic, "stays"), start="latest"), "pairs", out) as job:
        believer = Believer(broker.address, out)
        believer.believe_until([{"one": 0, "other": 1}])
        believer.close()
        sources = talk.ok(shared_server.client().get("/v1/sources"))["sources"]
        assert [(one["epoch"], one["relations"]) for one in sources if one["name"] == job.name] == [(0, ["stays"])]
        assert job.stop() == 0


def test_an_out_that_fails_ends_the_topics(shared_server: ServerProcess, names: tuple[str, str], job_of: Jobs) -> None:
    topic, out = names
    with with_out(job_of(shared_server.url, (topic, "stays")), "nobody", out) as job:
        assert job.end() == 1
    assert "nobody" in job.said.splitlines()[-1]


def test_a_second_job_beside_the_good_one(
    shared_server: ServerProcess, broker: Broker, topics: Topics, names: tuple[str, str], job_of: Jobs, tmp_path: Path
) -> None:
    """On its checkpoint and on another one it is refused before it touches anything; with `reset` it takes over. Seen: each fenced the good
    job, and then nothing was published."""
    topic, out = names
    topics.put(topic, [create(0), create(1)])
    believer = Believer(broker.address, out)

    def published(count: int) -> None:
        believer.believe_until([{"one": one, "other": other} for other in range(count) for one in range(other)])

    def other(folder: str, **keys: Any) -> StreamJob:
        job = StreamJob(tmp_path / folder, shared_server.url, broker.address, [(topic, "stays")], name=topic, **keys)
        return with_out(job, "pairs", out)

    with with_out(job_of(shared_server.url, (topic, "stays"), folder="good", name=topic), "pairs", out) as good:
        published(2)
        for job, reason in (
            (other("same", checkpoint=str(tmp_path / "good" / "checkpoint")), "is in use by another job"),
            (other("other"), "the service knows the source"),
        ):
            with job:
                assert job.end() == 1
            assert reason in job.said and "SparkContext" not in job.said
        topics.put(topic, [create(2)])
        published(3)
        with other("reset", reset=True) as job:
            job.wait_for("continues after version")
            topics.put(topic, [create(3)])
            assert good.end() == 1
            assert "another checkpoint has taken over" in good.said or "another job has started to publish" in good.said
            published(4)
            with other("reset again", checkpoint=str(tmp_path / "good" / "checkpoint"), reset=True) as former:
                assert former.end() == 1
            assert "another checkpoint has taken over" in former.said
            topics.put(topic, [create(4)])
            published(5)
            assert job.stop() == 0
    believer.close()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        job = StreamJob(tmp_path, "http://127.0.0.1:1", "127.0.0.1:1", [("t", "r")])
        job.arguments = ["--metrics-port", str(other.getsockname()[1])]
        with job:
            assert job.end() == 1
    assert "choose another --metrics-port" in job.said


def test_a_long_wait_is_told_seldom(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of tries, on a clock that is set forward by each wait."""
    now = 0.0

    class Clock:
        def wait(self, seconds: float) -> bool:
            nonlocal now
            now += seconds
            return False

    monkeypatch.setattr(time, "monotonic", lambda: now)
    metrics = Metrics()
    patience = Patience(Clock(), metrics, "service")  # type: ignore[arg-type]
    while now < 3600:
        patience.wait("away")
    assert 60 <= len(caplog.messages) <= 75
    tries = metrics.registry.get_sample_value("livejoin_stream_waits_total", {"at": "service"})
    assert tries is not None and 720 <= tries <= 740
