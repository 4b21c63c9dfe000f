"""Real changes through a real broker and real Spark into the real service: every checkpoint, and through kill -9."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from streaming.kafka_broker import Broker
from tests import datasets
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.streaming.stream_job import StreamJob, Topics


class Congress:
    """The relations and views of one Debezium log, its topics, and the job between them."""

    def __init__(self, client: httpx.Client, topics: Topics, log: str) -> None:
        self.client = client
        self.expected = datasets.expected("congress", log)
        # Topics of this test only: the broker is shared.
        mark = secrets.token_hex(4)
        self.records = [{**record, "topic": f"{mark}.{record['topic']}"} for record in datasets.debezium(log)]
        self.relations = {topic: topic.rsplit(".", 1)[1] for topic in sorted({record["topic"] for record in self.records})}
        topics.make(*self.relations)
        for relation in self.relations.values():
            talk.define(client, relation, datasets.definition("congress", relation))
        self.views = [view for view in datasets.queries("congress") if view["name"] in self.expected["views"]]
        self.followers = {}
        for view in self.views:
            talk.view(client, view["name"], view["sql"])
            self.followers[view["name"]] = talk.Follower(client, view["name"], view["result_columns"])

    def check(self, checkpoint: dict[str, Any]) -> None:
        """Views as read and as followed are what the checkpoint says."""
        for view in self.views:
            answer = checkpoint["views"][view["name"]]
            rows = talk.read(self.client, view["name"], talk.ARROW, view["result_columns"])
            assert (len(rows), datasets.checksum(rows)) == (answer["rows"], answer["checksum"])
            follower = self.followers[view["name"]]
            talk.ok_poll(follower)
            assert (len(follower.rows), follower.checksum) == (answer["rows"], answer["checksum"])

    def version(self) -> int:
        version: int = talk.ok(self.client.get("/v1/status"))["version"]
        return version


@pytest.fixture
def congress(server: ServerProcess, topics: Topics, request: pytest.FixtureRequest) -> Iterator[Congress]:
    yield Congress(server.client(), topics, request.param)


@pytest.mark.parametrize("congress", ["cdc", "cdc_default_identity", "cdc_redelivered"], indirect=True)
def test_every_checkpoint(congress: Congress, server: ServerProcess, broker: Broker, topics: Topics, tmp_path: Path) -> None:
    sent = 0
    with StreamJob(tmp_path / "job", server.url, broker.address, list(congress.relations.items())) as job:
        for checkpoint in congress.expected["checkpoints"]:
            topics.put_all(congress.records[sent : checkpoint["after_records"]])
            sent = checkpoint["after_records"]
            job.wait_for_records(sent)
            congress.check(checkpoint)
        assert job.stop() == 0


def kills(congress: Congress, job: StreamJob, dice: random.Random, count: int) -> None:
    """kill -9 of the driver, the JVM or both, at random moments, `count` times; then lets the job finish."""
    for _ in range(count):
        target = dice.choice(["driver", "JVM", "both"])
        done, pause = len(job.batches) + dice.randrange(4), dice.random() * 0.3
        print(f"kill {target} after {done} batches and {pause:.3f} s more")
        with job:
            job.wait_for_batches(done)
            time.sleep(pause)  # a moment within a batch
            jvm = job.jvm()
            if jvm and target != "driver":
                jvm.kill()
            if not jvm or target != "JVM":
                job.process.kill()
            job.end()
            if jvm:
                jvm.wait(60)
    with job:
        job.wait_for_records(len(congress.records))
        assert job.stop() == 0


def check_kills(congress: Congress, server: ServerProcess, broker: Broker, topics: Topics, folder: Path, count: int, size: int) -> None:
    """Kills `count` times while batches of `size` records run: at most three a kill, so that some are left."""
    seed = int(os.environ.get("LIVEJOIN_SEED") or random.randrange(2**32))
    print(f"LIVEJOIN_SEED={seed}")
    topics.put_all(congress.records)
    job = StreamJob(folder, server.url, broker.address, list(congress.relations.items()), max_offsets=size)
    kills(congress, job, random.Random(seed), count)
    congress.check(congress.expected["checkpoints"][-1])
    # Once each: a batch that was applied again would have made a version more.
    assert congress.version() == len(job.batches) == max(job.batches) + 1


@pytest.mark.parametrize("congress", ["cdc"], indirect=True)
def test_killed_at_random_moments(congress: Congress, server: ServerProcess, broker: Broker, topics: Topics, tmp_path: Path) -> None:
    check_kills(congress, server, broker, topics, tmp_path / "job", count=3, size=200)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("congress", ["cdc"], indirect=True)
def test_killed_for_long(congress: Congress, server: ServerProcess, broker: Broker, topics: Topics, tmp_path: Path) -> None:
    check_kills(congress, server, broker, topics, tmp_path / "job", count=40, size=20)
