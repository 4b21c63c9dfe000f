"""`BoxTree` against its naive twin, and what it promises about steps and memory, by counting."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from structures.kernel import JIT
from tests.structures.box_machine import BoxMachine


def test_against_the_twin() -> None:
    examples = 40 if JIT else 12
    checks = settings(
        max_examples=examples, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    run_state_machine_as_test(BoxMachine, settings=checks)
