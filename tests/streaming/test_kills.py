"""Exactly once: whatever is killed at whatever moment, at the end everything is there and nothing is there twice."""

from __future__ import annotations

from pathlib import Path

from tests.streaming.kill_stage import PARTS, Kill, Stage, seed

KINDS = [{"driver"}, {"JVM"}, {"service"}, {"broker"}, {"service", "broker"}, set(PARTS)]


def test_killed_in_every_way(tmp_path: Path) -> None:
    with Stage(tmp_path, seed()) as stage:
        for parts in stage.dice.sample(KINDS, len(KINDS)):
            stage.strike(Kill.random(parts, stage.dice))
            stage.revive(parts)
        stage.check()
        assert stage.job.stop() == 0
