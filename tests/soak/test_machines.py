"""The structures' state machines with examples that CI has never tried: new seeds each time, tiny blocks, no JIT."""

from __future__ import annotations

import random
import time

import pytest

from tests.structures.modes import STRUCTURES
from tests.structures.processes import TINY_MODES, run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SECONDS = 600.0  # per state machine


@pytest.mark.parametrize("mode", TINY_MODES)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_machine(structure: str, mode: str) -> None:
    machine, end = STRUCTURES[structure].machine, time.monotonic() + SECONDS / 2
    while time.monotonic() < end:
        number, steps = random.randrange(2**32), random.choice((12, 25, 40))
        print(f"seed {number}, {steps} steps", flush=True)
        round_ = f"drive({machine!r}, {number}, max_examples=50, stateful_step_count={steps})"
        done = run(["-c", f"from tests.structures.canaries import drive; {round_}"], mode)
        assert done.returncode == 0, done.stdout + done.stderr
