"""What must not grow: memory during a long stream of changes to the same number of rows; work and output while a component is unavailable
for long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from tests.streaming.hotel import Hotel
from tests.streaming.kill_stage import dice

pytestmark = [pytest.mark.soak, pytest.mark.timeout(6 * 3600)]

MIB = 1 << 20
RECORDS = int(os.environ.get("LIVEJOIN_RECORDS") or 1_000_000)
ROUNDS = 40
_AWAY = 120  # seconds


def test_memory_stays(tmp_path: Path) -> None:
    """The second half of a long stream needs no more memory than the first, except for variations of the allocator; the JVM stays within
    its limit."""
    with Hotel(tmp_path, dice(), size=2000, retain_rows=10_000) as hotel:
        sizes: dict[str, list[int]] = {"driver": [], "JVM": [], "service": []}
        for number in range(1, ROUNDS + 1):
            hotel.feed(RECORDS // ROUNDS)
            hotel.stage.settle()
            processes = {**_job(hotel), "service": psutil.Process(hotel.stage.server.process.pid)}
            for name, process in processes.items():
                sizes[name].append(process.memory_info().rss)
            print(f"round {number}:", ", ".join(f"{name} {sizes[name][-1] // MIB} MiB" for name in sizes))
        hotel.check()
        for name in ("driver", "service"):
            rss = sizes[name]
            assert max(rss[ROUNDS // 2 :]) < 1.1 * max(rss[: ROUNDS // 2]) + 50 * MIB, name
        assert max(sizes["JVM"]) < 1536 * MIB  # a JVM uses its whole heap, here 1 GiB, before it collects garbage


def test_the_service_is_away_for_long(tmp_path: Path) -> None:
    with Hotel(tmp_path, dice()) as hotel:
        hotel.feed(1000)
        hotel.stage.settle()
        hotel.stage.server.kill()
        hotel.feed(1000)
        _idle(hotel)
        hotel.stage.revive({"service"})
        hotel.check()


def test_the_broker_is_away_for_long(tmp_path: Path) -> None:
    """For two minutes, then until Spark gives up, about four minutes with Kafka's own limits, and for two more minutes."""
    with Hotel(tmp_path, dice()) as hotel:
        hotel.feed(1000)
        hotel.stage.settle()
        hotel.stage.broker.kill()
        hotel.feed(1000)
        _idle(hotel)
        while "Kafka is unavailable" not in hotel.stage.job.said:
            assert hotel.stage.job.process.poll() is None
            time.sleep(1)
        _idle(hotel)
        hotel.stage.revive({"broker"})
        hotel.check()


def _job(hotel: Hotel) -> dict[str, psutil.Process]:
    jvm = hotel.stage.job.jvm()
    assert jvm is not None
    return {"driver": psutil.Process(hotel.stage.job.process.pid), "JVM": jvm}


def _idle(hotel: Hotel) -> None:
    """Let two minutes of unavailability pass, in which the job does little work and prints little."""
    job, parts = hotel.stage.job, list(_job(hotel).values())
    before, said = sum(sum(part.cpu_times()[:2]) for part in parts), len(job.said.splitlines())
    time.sleep(_AWAY)
    cpu = sum(sum(part.cpu_times()[:2]) for part in parts) - before
    lines = job.said.splitlines()[said:]
    print(f"{cpu:.1f} s of work, {len(lines)} lines")
    assert cpu < 0.1 * _AWAY
    assert len(lines) < 50, lines
