"""Exactly once: whatever is killed at whatever moment, at the end everything is there and nothing is there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.streaming.hotel import Hotel
from tests.streaming.kill_stage import PARTS, Kill, dice

KINDS = [{"driver"}, {"JVM"}, {"service"}, {"broker"}, {"service", "broker"}]
# The batch is on the service's disk, and nobody is left who knows.
WORST = Kill(frozenset(PARTS), 0, 0, "after-commit:2")


@pytest.mark.usefixtures("quick_java")
def test_killed_in_every_way(tmp_path: Path) -> None:
    chance = dice()
    kills = [Kill.at_random(parts, chance, fewest=1) for parts in KINDS[:4] + KINDS]  # the soak has many more
    with Hotel(tmp_path, chance) as hotel:
        for kill in chance.sample([*kills, WORST], len(kills) + 1):
            hotel.suffer(kill)
        hotel.check()
        assert ", a duplicate" in hotel.stage.job.said
        hotel.end()
