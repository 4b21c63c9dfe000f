"""The benchmarks of waits: each scenario happens, and times in which a processor stood still are subtracted correctly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import service_registrations, stalls, standstill
from tests.benchmarks.__main__ import main
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.marks import compiled
from tests.benchmarks.served import beside


def _may_have_real_time_priority() -> bool:
    code = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


@compiled
def test_stalls() -> None:
    """Each action happens while changes are sent, otherwise the scenario fails; and all figures have an aim, except those of actions that
    are a single turn, and p99.9 where changes wait behind batches throughout."""
    figures = stalls.run(Scale(quick=True), lambda line: None)
    waits = [figure for figure in figures if not figure.name.endswith(stalls.RUNNING)]
    running = [figure for figure in figures if figure.name.endswith(stalls.RUNNING)]
    assert len(waits) == 2 * len(stalls.SCENARIOS) and {figure.unit for figure in figures} == {"ms"}
    assert len(running) == (len(stalls.SCENARIOS) if _may_have_real_time_priority() else 0)
    assert all(0 < p999.value <= longest.value for p999, longest in zip(waits[::2], waits[1::2], strict=True))
    aims = [(None if one.is_turn or one.is_busy else 10.0, None if one.is_turn else 50.0) for one in stalls.SCENARIOS]
    assert [figure.aim for figure in waits] == [aim for both in aims for aim in both]
    assert all(one.aim == longest.aim and 0 < one.value <= longest.value for one, longest in zip(running, waits[1::2], strict=False))


def test_standstills_are_watched_if_the_system_permits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with beside("standstill") as stood_still:
        assert isinstance(stood_still(), list if _may_have_real_time_priority() else type(None))

    def refuse(*given: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert standstill.real_time_processors() == []


def test_time_without_standstills() -> None:
    spans = [(1.0, 2.0), (1.5, 2.5), (1.7, 1.8), (4.0, 5.0)]  # of two processors
    starts, seconds = np.array([0.0, 0.5, 1.2, 2.2, 3.0, 0.0, 4.5, 6.0]), np.array([0.9, 1.0, 1.0, 1.0, 1.5, 6.0, 0.25, 1.0])
    found = standstill.without_standstills(spans, starts, seconds)
    assert found.tolist() == pytest.approx([0.9, 0.5, 0.0, 0.7, 1.0, 3.5, 0.0, 1.0])
    assert standstill.without_standstills([], starts, seconds).tolist() == seconds.tolist()


@compiled
def test_a_scenario_that_fails_ends_with_an_error_and_the_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = stalls.INTERVALS._replace(sql="SELECT a.id FROM a JOIN nothing ON a.id = nothing.id")
    scenarios = [stalls.Scenario("broken", partial(stalls.registered, broken)), stalls.Scenario("nothing", stalls.nothing)]
    monkeypatch.setattr(stalls, "SCENARIOS", scenarios)
    assert main(["stalls", "--quick", "--results", str(tmp_path / "results")]) == 1
    kept = json.loads((tmp_path / "results" / "stalls.json").read_text())
    assert [figure["name"] for figure in kept["figures"]] == [
        "4,000 rows, nothing: p99.9",
        "4,000 rows, nothing: the longest",
        *([f"4,000 rows, nothing: {stalls.RUNNING}"] if _may_have_real_time_priority() else []),
    ]


@pytest.mark.soak
def test_many_registrations() -> None:
    found = service_registrations.run(Scale(quick=True), lambda line: None)
    figures = [figure for figure in found if not figure.name.endswith(stalls.RUNNING)]
    assert [figure.aim for figure in figures] == [10.0, 50.0, 1.0, 4, 4, None, 2.0, 1.0, 1.0]
    assert len(figures[2].samples) == 8 and len(figures[6].samples) == 41 and len(figures[7].samples) == 5


def test_of_several_runs_p999_is_the_median_and_the_longest_the_longest() -> None:
    def run(**values: float) -> list[Figure]:
        return [Figure(f"10 rows, nothing: {name}", value, "ms") for name, value in values.items()]

    runs = [run(**{"p99.9": p999, stalls.LONGEST: longest}) for p999, longest in [(3.0, 5.0), (9.0, 9.5), (2.0, 30.0)]]
    runs[1] += run(**{stalls.RUNNING: 4.0})
    found = stalls.of_runs(runs)
    assert [(figure.name.rpartition(": ")[2], figure.value) for figure in found] == [
        ("p99.9", 3.0), (stalls.LONGEST, 30.0), (stalls.RUNNING, 4.0)
    ]  # fmt: skip
    assert found[0].parameters["runs"] == [2.0, 3.0, 9.0]
