"""Exactly once through LIVEJOIN_KILLS kills (60) of anything with anything, at any moment."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

import pytest

from tests.streaming.hotel import Hotel
from tests.streaming.kill_stage import PARTS, Kill, dice

pytestmark = [pytest.mark.soak, pytest.mark.timeout(6 * 3600)]

KINDS = [set(parts) for count in range(1, len(PARTS) + 1) for parts in combinations(PARTS, count)]
COUNT = int(os.environ.get("LIVEJOIN_KILLS") or 60)
# Spark gives up a broker within seconds, so that queries are started anew too; with Kafka's own limits it outwaits these kills.
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
