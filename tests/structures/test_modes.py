"""The structures' tests again in other modes, each in a process of its own: without the JIT and with tiny
blocks, so that every edge is met; compiled with bounds checks; and with planted bugs (canaries), which prove
that the state machine would notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODES = {
    "jit-off-2-3": {"LIVEJOIN_JIT": "off", "LIVEJOIN_LEAF": "2", "LIVEJOIN_FANOUT": "3"},
    "jit-off-3-4": {"LIVEJOIN_JIT": "off", "LIVEJOIN_LEAF": "3", "LIVEJOIN_FANOUT": "4"},
    "bounds-checks-4": {"NUMBA_BOUNDSCHECK": "1", "LIVEJOIN_LEAF": "4", "LIVEJOIN_FANOUT": "4"},
}
SUITES = [
    "tests/structures/test_interval_tree.py",
    "tests/structures/test_encoding.py",
    "tests/structures/test_rows.py",
    "tests/service/tables/test_store_twin.py",
    "tests/service/tables/test_store.py",
]
# (module, function, what it is replaced by): each is a mistake that one could make.
CANARIES = [
    ("structures.ordered.tree", "own_leaf", "lambda M, W, C, Q, o: o"),
    ("structures.ordered.tree", "own_inner", "lambda M, W, C, Q, o: o"),
    ("structures.ordered.summary", "leaf_live", "lambda M, W, o, kind: False"),
    ("structures.ordered.summary", "_across", "lambda M, W, o, n, s, t: False"),
    ("structures.ordered.tree", "leaf_summary_without", "lambda M, W, C, o, s, key, right: None"),
    ("structures.core.arena", "pinned", "lambda pins, born, retired: False"),
    ("structures.interval.walk", "wholly_before", "lambda M, W, o, c, k, v, code: True"),
    ("structures.interval.walk", "runs_across", "lambda M, W, Z, target, t, own, other, n: n"),
    ("structures.interval.changes", "without", "lambda slots, lo, hi, slot: hi"),
    ("structures.ordered.leaves", "merged_prefix", "lambda M, W, o, m: min(m, W[2 * o + 2])"),
]
CANARY = """
import importlib, sys
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.structures.{of} import {machine}
setattr(importlib.import_module({module!r}), {name!r}, {bug})
checks = settings(
    max_examples=2000, stateful_step_count=20, deadline=None, derandomize=True, database=None, report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate),
)
try:
    run_state_machine_as_test({machine}, settings=checks)
except Exception as noticed:
    print("noticed", type(noticed).__name__)
    sys.exit(0)
sys.exit("nobody noticed")
"""


def run(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )


def passes(mode: str, small: str, *suites: str) -> None:
    """These suites, of them what `small` selects, in this mode."""
    done = run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", small, *suites], MODES[mode])
    assert done.returncode == 0, done.stdout + done.stderr


def is_noticed(canary: tuple[str, str, str], machine: str) -> None:
    """By the state machine `machine`, module and class in one."""
    module, name, bug = canary
    of, cls = machine.split(".")
    done = run(["-c", CANARY.format(module=module, name=name, bug=bug, of=of, machine=cls)], MODES["jit-off-3-4"])
    assert done.returncode == 0, done.stdout + done.stderr


def names(canaries: list[tuple[str, str, str]]) -> list[str]:
    return [f"{module.split('.')[1]}.{name}" for module, name, _ in canaries]


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    passes(mode, "not tens_of_thousands and not delay and not pin", *SUITES)


@pytest.mark.parametrize("canary", CANARIES, ids=names(CANARIES))
def test_canary(canary: tuple[str, str, str]) -> None:
    is_noticed(canary, "interval_machine.IntervalMachine")
