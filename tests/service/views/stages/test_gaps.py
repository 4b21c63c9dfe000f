"""Views with gaps and coverage against naive twins: every version, followers, look-ups, windows, held readers, runs, restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.engine.test_engine import prepared, run
from tests.service.running import check
from tests.service.stretched import BY_KEY, VIEWS
from tests.service.twin import Source, Twin, to_batch
from tests.service.views.stages.test_groups import compare_with_brute_force


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_small_batches(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 600 + seed, 40, lambda source: source.random.randrange(5), 12, VIEWS)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_large_batches(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 650 + seed, 15, lambda source: source.random.randrange(60), 40, VIEWS)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_what_keys_cover(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 680 + seed, 40, lambda source: source.random.choice((1, 4, 40)), 20, BY_KEY)


def test_recomputed_stretches_are_those_of_the_view(tmp_path: Path) -> None:
    source, twin = Source(7, 25), Twin({})
    engine = prepared(tmp_path, VIEWS | BY_KEY)
    for _ in range(8):
        changes = source.changes(30, twin.relations)
        twin.apply(changes, "skip")
        engine.apply(to_batch(changes, on_error="skip"))
        compare_with_brute_force(engine)
    check(engine)
    engine.close()
