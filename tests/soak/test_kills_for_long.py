"""Exactly once despite LIVEJOIN_KILLS kills (60) of random components in random ways at random moments."""

from __future__ import annotations

import os
import time
from itertools import combinations
from pathlib import Path

import pytest

from tests.streaming.hotel import Hotel
from tests.streaming.kill_stage import PARTS, Kill, dice

pytestmark = [pytest.mark.soak, pytest.mark.timeout(6 * 3600)]

KINDS = [set(parts) for count in range(1, len(PARTS) + 1) for parts in combinations(PARTS, count)]
COUNT = int(os.environ.get("LIVEJOIN_KILLS") or 60)
# Spark gives up on a broker within seconds, so that queries are restarted, too; with Kafka's own limits it would survive these kills.
IMPATIENT = {"request.timeout.ms": 1000, "default.api.timeout.ms": 1000}


@pytest.mark.parametrize("java", [{}, IMPATIENT], ids=["patient", "impatient"])
def test_killed_for_long(tmp_path: Path, java: dict[str, int]) -> None:
    chance = dice()
    with Hotel(tmp_path, chance, java=java) as hotel:
        for number in range(1, COUNT // 2 + 1):
            hotel.suffer(Kill.at_random(chance.choice(KINDS), chance))
            if number % 10 == 0:
                hotel.check()
        hotel.check()
        hotel.end()


def test_latest_is_where_the_job_first_stood(tmp_path: Path) -> None:
    """Once Spark has recorded where a new checkpoint begins, start = "latest" skips nothing, even if the job is killed before its first
    batch.

    Until then, for a few seconds of the first start, no beginning is recorded: a killed job begins at the latest offset of its next start.
    """
    with Hotel(tmp_path, dice(), start="latest") as hotel:
        job = hotel.stage.job
        noted = job.path.parent / "checkpoint" / "sources" / "0" / "0"
        while not noted.exists():
            assert job.process.poll() is None, job.said
            time.sleep(0.01)
        job.process.kill()
        hotel.feed(200)
        hotel.stage.revive({"driver"})
        hotel.check()
        hotel.end()
