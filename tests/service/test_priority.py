"""How many processors a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service import priority
from service.priority import processors
from service.reading.ahead import Walkers


def grouped(folder: Path, group: str, monkeypatch: pytest.MonkeyPatch, **quotas: str) -> None:
    """The process is in this group; `quotas`: of the groups from the outermost on, "none" for one without the file."""
    (folder / "own").write_text(f"1:cpu:/elsewhere\n0::{group}\n")
    monkeypatch.setattr(priority, "_GROUPS", folder / "own")
    monkeypatch.setattr(priority, "_QUOTAS", folder / "fs")
    monkeypatch.setattr(os, "sched_getaffinity", lambda of: set(range(12)), raising=False)
    place = folder / "fs"
    for quota in quotas.values():
        place.mkdir()
        (place / "cpu.max").write_text(quota + "\n")
        place /= "inner"


@pytest.mark.parametrize(
    ("group", "outer", "inner", "found"),
    [
        ("/", "max 100000", "100000 100000", 12),
        ("/", "250000 100000", "max 100000", 2),
        ("/inner", "max 100000", "300000 100000", 3),
        ("/inner", "200000 100000", "300000 100000", 2),
        ("/inner", "5000 100000", "max 100000", 1),
        ("/inner", "2400000 100000", "max 100000", 12),
        ("/inner", "none", "400000 100000", 4),
        ("/missing/as/well", "400000 100000", "100000 100000", 4),
    ],
)
def test_of_those_it_may_run_on_and_its_quotas_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, outer: str, inner: str, found: int
) -> None:
    grouped(tmp_path, group, monkeypatch, outer=outer, inner=inner)
    assert processors() == found
    walkers = Walkers()
    assert walkers._pool._max_workers == max(1, found // 2)
    walkers.shutdown(True, True)


def test_without_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "_GROUPS", tmp_path / "missing")
    monkeypatch.setattr(os, "sched_getaffinity", lambda of: {1, 5, 7}, raising=False)
    assert processors() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert processors() == (os.cpu_count() or 1)
