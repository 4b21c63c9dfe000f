"""`IJHeap` against its naive twin, and what it promises about steps and memory, by counting."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from structures.kernel import JIT
from tests.structures.ij_machine import IJMachine


def test_against_the_twin() -> None:
    examples = 60 if JIT else 25
    checks = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    run_state_machine_as_test(IJMachine, settings=checks)
