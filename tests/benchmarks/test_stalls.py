"""The benchmark of waits: each scenario happens while changes are sent, and one that fails does not hide the others."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks import stalls
from tests.benchmarks.__main__ import main
from tests.benchmarks.figures import Scale
from tests.benchmarks.marks import compiled


@compiled
def test_stalls() -> None:
    p999, longest, *others = stalls.run(Scale(quick=True), lambda line: None)
    assert (p999.aim, longest.aim) == (15.0, 60.0) and 0 < p999.value <= longest.value == max(figure.value for figure in others)
    assert len(others) == len(stalls.SCENARIOS) and all(figure.parameters["changes"] > 0 for figure in others)


@compiled
def test_a_scenario_that_fails_ends_with_an_error_and_the_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = stalls.INTERVALS._replace(sql="SELECT a.id FROM a JOIN nothing ON a.id = nothing.id")
    monkeypatch.setattr(stalls, "SCENARIOS", {"broken": partial(stalls.built, broken), "nothing": stalls.nothing})
    assert main(["stalls", "--quick", "--results", str(tmp_path / "results")]) == 1
    kept = json.loads((tmp_path / "results" / "stalls.json").read_text())
    assert [figure["name"] for figure in kept["figures"]][2:] == ["4,000 rows, nothing: the longest"]
