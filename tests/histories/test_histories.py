"""Writers, readers at snapshots, followers with broken connections, and restarts in between: all answers are consistent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.faults import patches
from tests.faults.patches import Patch
from tests.histories.checker import anomalies
from tests.histories.life import lived
from tests.histories.seeds import NEW, seeds
from tests.server_process import NotStarted

RUNS = 5
SECONDS = float(os.environ.get("LIVEJOIN_HISTORIES") or 3600)


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_history(tmp_path: Path, seed: int) -> None:
    assert anomalies(lived(tmp_path / "data", seed)) == []


@pytest.mark.parametrize("seed", seeds(0))
def test_histories_for_long(tmp_path: Path, seed: int) -> None:
    """LIVEJOIN_HISTORIES seconds (an hour) of runs, each with its own seed."""
    end = time.monotonic() + SECONDS
    assert seed >= NEW
    while time.monotonic() < end:
        seed += 1
        print("seed", seed, flush=True)
        folder = tmp_path / str(seed)
        assert anomalies(lived(folder, seed, starts=5, steps=40)) == []


# bugs that are planted in the service: each is found


BUGS = [patches.a_row_not_replayed, patches.a_feed_loses_versions, patches.duplicates_applied, patches.stale_readings,
        pytest.param(patches.a_rewriting_of_the_past, marks=pytest.mark.soak), patches.an_extension_not_on_disk]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_found(tmp_path: Path, bug: Patch) -> None:
    for seed in range(12):
        try:
            wrong = anomalies(lived(tmp_path / f"data{seed}", seed, bug))
        except AssertionError as error:  # a client noticed it immediately
            wrong = [str(error)]
        except NotStarted as error:  # the bug may cause this, too, but the histories should show it
            print(error)
            continue
        if wrong:
            print(wrong[0])
            return
    pytest.fail("twelve histories are right, in spite of the bug")
