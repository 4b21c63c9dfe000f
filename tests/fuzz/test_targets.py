"""Mutated inputs for everything that reads external data (the targets): each is accepted or refused in the intended way, soon, and without
growth of memory. A failure shows the input; pass it to the target to reproduce the failure."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import time
import zlib
from importlib.util import find_spec
from pathlib import Path
from random import Random

import psutil
import pytest
from hypothesis import given, settings

from tests.datasets import ROOT
from tests.fuzz.mutations import STEPS, WORDS, Step, drawn, mutated
from tests.fuzz.targets import TARGETS

SOAK_COUNT = 60_000
LONGEST = 10.0  # seconds of processor time for one input; it takes milliseconds, and a slow algorithm minutes
GROWTH = 200 << 20  # bytes by which this process may grow in the soak after its first tenth


class Failed(AssertionError):
    """A target raised; the input is in the message."""


def feed(name: str, data: bytes) -> None:
    begun = time.process_time()
    try:
        TARGETS[name].feed(data)
    except Exception as error:
        raise Failed(f"{name}: {type(error).__name__}: {error}; the input was {data!r}") from error
    assert time.process_time() - begun < LONGEST, f"{name}: {time.process_time() - begun:.1f} s for {data!r}"


def spoilt(name: str, steps: list[Step]) -> bytes:
    target = TARGETS[name]
    return mutated(target.samples[steps[0].other % len(target.samples)], steps, target.samples, (*WORDS, *target.words))


@pytest.mark.parametrize("name", TARGETS)
def test_samples_are_accepted(name: str) -> None:
    for sample in TARGETS[name].samples:
        feed(name, sample)


@pytest.mark.parametrize("name", TARGETS)
def test_spoilt(name: str) -> None:
    chance = Random(zlib.crc32(name.encode()))
    for _ in range(TARGETS[name].count):
        feed(name, spoilt(name, drawn(chance)))


@pytest.mark.parametrize("name", TARGETS)
def test_spoilt_and_shrunk(name: str) -> None:
    """Fewer inputs, but Hypothesis finds the smallest one that fails."""

    @settings(max_examples=20)
    @given(STEPS)
    def try_one(steps: list[Step]) -> None:
        feed(name, spoilt(name, steps))

    try_one()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.skipif(find_spec("atheris") is None, reason="Atheris is not installed (pip install atheris; Linux on x86-64 only)")
@pytest.mark.parametrize("name", TARGETS)
def test_guided_by_coverage(name: str, tmp_path: Path) -> None:
    """For a minute per target."""
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(tmp_path / "inputs"), "-max_total_time=60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stderr[-10_000:]


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", TARGETS)
def test_spoilt_for_long(name: str) -> None:
    """LIVEJOIN_FUZZ inputs (60,000) that have never been tried."""
    seed, count = int.from_bytes(os.urandom(4)), int(os.environ.get("LIVEJOIN_FUZZ") or SOAK_COUNT)
    print(f"seed {seed}")
    faulthandler.dump_traceback_later(120, repeat=True)
    chance, process, early = Random(seed), psutil.Process(), 0
    try:
        for number in range(count):
            feed(name, spoilt(name, drawn(chance)))
            if number == count // 10:
                early = process.memory_info().rss
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert process.memory_info().rss - early < GROWTH
