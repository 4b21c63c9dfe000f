"""What may not grow: memory over a long stream of changes to as many rows, work and words while something is away for long."""

from __future__ import annotations

import os
import re
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


def test_memory_stays(tmp_path: Path) -> None:
    """The second half of a long stream needs no more than the first, but for what an allocator keeps by chance."""
    with Hotel(tmp_path, dice(), size=2000, retain_rows=10_000) as hotel:
        sizes: dict[str, list[int]] = {"driver": [], "JVM": [], "service": []}
        for number in range(1, ROUNDS + 1):
            hotel.feed(RECORDS // ROUNDS)
            hotel.stage.settle()
            for name, process in _processes(hotel).items():
                sizes[name].append(process.memory_info().rss)
            print(f"round {number}:", ", ".join(f"{name} {sizes[name][-1] // MIB} MiB" for name in sizes))
        hotel.check()
        for name, rss in sizes.items():
            assert max(rss[ROUNDS // 2 :]) < 1.1 * max(rss[: ROUNDS // 2]) + 50 * MIB, name


def test_the_service_is_away_for_long(tmp_path: Path) -> None:
    with Hotel(tmp_path, dice()) as hotel:
        hotel.feed(1000)
        hotel.stage.settle()
        hotel.stage.server.kill()
        hotel.feed(1000)
        _idles(hotel)
        hotel.stage.revive({"service"})
        hotel.check()


def test_the_broker_is_away_for_long(tmp_path: Path) -> None:
    """Longer than Spark bears with Kafka's own limits: about four minutes."""
    with Hotel(tmp_path, dice()) as hotel:
        hotel.feed(1000)
        hotel.stage.settle()
        hotel.stage.broker.kill()
        hotel.feed(1000)
        _idles(hotel)
        hotel.stage.job.wait_for("Kafka went away")
        hotel.stage.revive({"broker"})
        hotel.check()


def _processes(hotel: Hotel) -> dict[str, psutil.Process]:
    jvm = hotel.stage.job.jvm()
    assert jvm is not None
    driver, service = (psutil.Process(process.pid) for process in (hotel.stage.job.process, hotel.stage.server.process))
    return {"driver": driver, "JVM": jvm, "service": service}


def _idles(hotel: Hotel) -> None:
    """Returns when the job has waited until it tells so once a minute only, and a minute more; it neither works nor talks much."""
    job, parts = hotel.stage.job, [process for name, process in _processes(hotel).items() if name != "service"]
    began, said = time.monotonic(), len(job.said.splitlines())
    before = sum(sum(process.cpu_times()[:2]) for process in parts)
    while not re.search(r"told once a minute from now on\n(.*\n)*.*trying again in", job.said):
        assert time.monotonic() < began + 900, job.said
        time.sleep(1)
    seconds, lines = time.monotonic() - began, len(job.said.splitlines()) - said
    cpu = sum(sum(process.cpu_times()[:2]) for process in parts) - before
    print(f"{seconds:.0f} s away: {cpu:.1f} s of work, {lines} lines")
    assert cpu < 0.1 * seconds
    assert lines < 40
