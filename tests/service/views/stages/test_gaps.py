"""Views with gaps and coverage against naive twins: every version, followers, look-ups, windows, held readers, runs, restarts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from service.reading.cursors import open_rows
from service.views.live_view import LiveView
from tests.service.engine.test_engine import prepared, run
from tests.service.running import batch, check, ids, rows_of, running
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


@pytest.mark.parametrize("sql", ["gaps(p.x, q.x) AS free FROM a p LEFT JOIN", "coverage(p.x, q.x) AS free FROM a p JOIN"])
def test_a_version_with_too_many_stretches_is_not_kept(tmp_path: Path, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what its other changes tell; the rows are right, and the versions behind it are told."""
    monkeypatch.setattr("service.views.deltas._FLOOR", 10)
    emitted = []
    apply = LiveView.apply
    monkeypatch.setattr(LiveView, "apply", lambda *given: emitted.append(apply(*given)) or emitted[-1])
    many = 70_000  # more than the structure tells at once
    view = {"sql": f"SELECT p.id AS id, {sql} b q ON overlaps(p.x, q.x)", "changes": {"retain_rows": 10}}
    engine = running(tmp_path, view)
    engine.apply(batch(("upsert", "a", rows_of(0, many))))
    engine.apply(batch(("upsert", "a", rows_of(many, 1, 5000))))
    feed = engine.views["v"].feed
    assert feed is not None
    follower = feed.subscribe(None, snapshot=False)
    both = pa.concat_batches([rows_of(0, 1, 10, 20), rows_of(1, 1, 5010, 20)])
    engine.apply(batch(("upsert", "b", both)))
    engine.apply(batch(("upsert", "b", rows_of(2, 1, 5050, 20))))
    assert [(delta.cut, delta.versions) for delta in emitted[2:]] == [(3, []), (-1, [4])]
    (problem,) = [chunk.problem for chunk in follower.next() if chunk.problem]
    assert problem.type == "delta-too-large"
    rows, covered = ids(open_rows(engine.readers, "v")), [(10, 30)] if "coverage" in sql else [(0, 9), (31, 1000)]
    assert rows[: len(covered)] == [(0, *one) for one in covered] and len(rows) == many * len(covered) + (2 if "coverage" in sql else 3)
    check(engine)
    engine.close()
