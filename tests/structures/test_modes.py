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
    "tests/service/test_store_twin.py",
    "tests/service/test_store.py",
]
# (module, function, what it is replaced by): each is a mistake that one could make.
CANARIES = [
    ("structures.ordered_tree", "own_leaf", "lambda M, W, C, Q, o: o"),
    ("structures.ordered_tree", "own_inner", "lambda M, W, C, Q, o: o"),
    ("structures.summary", "leaf_live", "lambda M, W, o, kind: False"),
    ("structures.summary", "_across", "lambda M, W, o, n, s, t: False"),
    ("structures.ordered_tree", "leaf_summary_without", "lambda M, W, C, o, s, key, right: None"),
    ("structures.arena", "pinned", "lambda pins, born, retired: False"),
    ("structures.interval_walk", "wholly_before", "lambda M, W, o, c, k, v, code: True"),
    ("structures.interval_walk", "runs_across", "lambda M, W, Z, target, t, own, other, n: n"),
    ("structures.interval_changes", "without", "lambda slots, lo, hi, slot: hi"),
    ("structures.leaves", "merged_prefix", "lambda M, W, o, m: min(m, W[2 * o + 2])"),
]
CANARY = """
import importlib, sys
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.structures.interval_machine import IntervalMachine
setattr(importlib.import_module({module!r}), {name!r}, {bug})
checks = settings(
    max_examples=200, stateful_step_count=20, deadline=None, derandomize=True, database=None, report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate),
)
try:
    run_state_machine_as_test(IntervalMachine, settings=checks)
except Exception as noticed:
    print("noticed", type(noticed).__name__)
    sys.exit(0)
sys.exit("nobody noticed")
"""


def run(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    small = "not tens_of_thousands and not delay and not pin"
    done = run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", small, *SUITES], MODES[mode])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("canary", CANARIES, ids=[f"{c[0].split('.')[1]}.{c[1]}" for c in CANARIES])
def test_canary(canary: tuple[str, str, str]) -> None:
    module, name, bug = canary
    code = CANARY.format(module=module, name=name, bug=bug)
    done = run(["-c", code], MODES["jit-off-3-4"])
    assert done.returncode == 0, done.stdout + done.stderr
