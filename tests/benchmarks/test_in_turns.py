"""Comparing the figures of two commits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import in_turns


def test_two_commits_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ratios are those of consecutive runs; figures that only one commit has are omitted."""
    values = {"before": [(100.0, 10.0), (50.0, 5.0), (80.0, 9.0)], "after": [(110.0, 20.0), (55.0, 10.0), (70.0, 9.0)]}
    for input, runs in values.items():
        for number, (rate, seconds) in enumerate(runs, 1):
            figures = [("rate", rate, False), ("seconds", seconds, True), (f"only {input}", 1.0, False), ("nothing", 0.0, False)]
            emitted = [{"name": name, "value": value, "unit": "", "less": less} for name, value, less in figures]
            folder = tmp_path / f"{input}-some-{number}"
            folder.mkdir()
            (folder / "some.json").write_text(json.dumps({"revision": input, "figures": emitted}))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "in_turns_before.json").write_text(json.dumps({"before": "before", "subjects": {"other": {}}}))
    monkeypatch.setattr(in_turns, "HERE", tmp_path)
    monkeypatch.setattr(in_turns, "run", None)  # nothing is measured again
    assert in_turns.main([str(tmp_path), "some", "--runs", str(tmp_path)]) == 0
    kept = json.loads((tmp_path / "results" / "in_turns_before.json").read_text())
    assert kept["subjects"]["other"] == {} and kept["subjects"]["some"]["after"] == "after"
    assert {one["name"]: one["ratios"] for one in kept["subjects"]["some"]["figures"]} == {
        "rate": [1.1, 1.1, 0.875], "seconds": [0.5, 0.5, 1.0],
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "some: 0.742 times as good, 2 figures" in said and "worse by 10 %: seconds" in said and "worse by 10 %: rate" not in said
