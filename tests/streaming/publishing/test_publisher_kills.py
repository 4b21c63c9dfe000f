"""Publisher, service and broker killed -9 at random moments, alone and together, while the view changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streaming.kafka_broker import Broker
from tests.server_process import ServerProcess
from tests.streaming.kill_stage import dice
from tests.streaming.out_job import Believer
from tests.streaming.publishing.test_publisher import Stage
from tests.streaming.stream_job import Topics

PARTS = ("publisher", "service", "broker")
IDS = 40


def change(stage: Stage, chance: random.Random, versions: int) -> None:
    """So many versions, each of some rows that come, go, or change (as often without effect on the view)."""
    for _ in range(versions):
        changes = []
        for id in chance.sample(range(IDS), chance.randint(1, 10)):
            since = chance.randrange(10 * IDS)
            changes.append(stage.deleted(id) if chance.random() < 0.4 else stage.left(id, since, since + chance.randint(1, 60)))
        stage.post(*changes)


@pytest.mark.usefixtures("quick_java")
@pytest.mark.parametrize("rounds", [len(PARTS), pytest.param(4 * len(PARTS), marks=pytest.mark.soak)])
def test_killed_in_every_way(tmp_path: Path, rounds: int) -> None:
    chance = dice()
    with Broker() as broker, ServerProcess(tmp_path / "data") as server:
        # A small feed: some absences are too long for it, so that tokens expire without a restart too.
        kept = {"retain_rows": 500, "retain_bytes": 1 << 20}
        stage = Stage(broker, server, Topics(broker), tmp_path / "job", partitions=2, changes=kept)
        stage.post(*(stage.right(id, 10 * id, 10 * id + 15) for id in range(IDS)))
        reader = Believer(broker.address, stage.topic)
        with stage.job(tombstones=True) as job:
            for number in range(rounds):
                victims = {PARTS[number]} if number < len(PARTS) else set(chance.sample(PARTS, chance.randint(1, len(PARTS))))
                print("kill", *victims)
                change(stage, chance, chance.randint(1, 60))
                if "publisher" in victims:
                    job.process.kill()
                if "service" in victims:
                    server.kill()
                if "broker" in victims:
                    broker.kill()
                if "service" not in victims:
                    change(stage, chance, chance.randint(0, 30))
                if "broker" in victims:
                    broker.start()
                if "service" in victims:
                    server.start()
                    stage.client = server.client()
                if "publisher" in victims:
                    job.end()
                    job.start()
                if chance.random() < 0.5:
                    reader.believe_until(stage.rows)
            change(stage, chance, 20)
            reader.believe_until(stage.rows)
            assert job.stop() == 0
        reader.read_to_end()
        reader.believe_until(stage.rows)
        reader.close()
