"""The structures' state machines with examples that CI never tried: other seeds each time, tiny blocks, no JIT."""

from __future__ import annotations

import random
import time

import pytest

from tests.structures.test_modes import MODES, run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SECONDS = 600.0  # a machine
MACHINES = [
    "box_machine.BoxMachine",
    "clique_machine.CliqueMachine",
    "ij_machine.IJMachine",
    "index_machine.IndexMachine",
    "interval_machine.IntervalMachine",
    "join_machine.JoinMachine",
    "qdag_machine.QdagMachine",
    "view_machine.ViewMachine",
]
ROUND = """
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.structures.{of} import {machine}
checks = settings(
    max_examples=50, stateful_step_count={steps}, deadline=None, database=None, report_multiple_bugs=False, print_blob=True,
    suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate),
)
run_state_machine_as_test(seed({number})({machine}), settings=checks)
"""


@pytest.mark.parametrize("mode", ["jit-off-2-3", "jit-off-3-4"])
@pytest.mark.parametrize("machine", MACHINES)
def test_machine(machine: str, mode: str) -> None:
    of, cls = machine.split(".")
    end = time.monotonic() + SECONDS / 2
    while time.monotonic() < end:
        number, steps = random.randrange(2**32), random.choice((12, 25, 40))
        print(f"seed {number}, {steps} steps", flush=True)
        done = run(["-c", ROUND.format(of=of, machine=cls, number=number, steps=steps)], MODES[mode])
        assert done.returncode == 0, done.stdout + done.stderr
