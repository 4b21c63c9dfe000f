"""/livez and /readyz of a service whose writer is busy, stuck, or has failed. In this process, with a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api.context import Context
from service.engine import writer
from service.instance import Instance
from service.settings import Settings
from tests.service.api.asking import ask, is_problem
from tests.service.running import HeldWriter, batch, rows_of, running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, {})
    yield engine
    engine.close()


@pytest.fixture
def context(engine: Instance, tmp_path: Path) -> Context:
    context = Context(Settings(data=tmp_path))
    context.open(engine)
    return context


def test_a_busy_writer_delays_neither(engine: Instance, context: Context) -> None:
    """Nor /metrics: all are answered while it holds its turn, with a batch behind it."""
    held = HeldWriter(engine)
    held.submit(batch(("upsert", "a", rows_of(1, 10))))
    for path in ("/livez", "/readyz", "/metrics"):
        assert ask("GET", path, context).status_code == 200
    assert held.answers == []
    busy = [line for line in ask("GET", "/metrics", context).text.splitlines() if line.startswith("livejoin_writer_busy_seconds ")]
    assert float(busy[0].split()[1]) > 0
    held.release()


def test_a_stuck_writer_is_told(engine: Instance, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldWriter(engine)
    monkeypatch.setattr(writer, "_STUCK", -1.0)  # any work at all is too long
    for path in ("/livez", "/readyz"):
        answer = ask("GET", path, context)
        assert is_problem(answer, "internal")["request_id"] == answer.headers["x-request-id"]
    monkeypatch.undo()
    held.release()
    assert ask("GET", "/livez", context).status_code == 200


def test_a_writer_that_has_died_is_told(engine: Instance, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "state", "failed")
    is_problem(ask("GET", "/livez", context), "internal")
    is_problem(ask("GET", "/readyz", context), "internal")


def test_a_start_whose_views_are_being_built(engine: Instance, context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Relations are served; the service is ready when its views are live, or, if so set, before."""
    monkeypatch.setattr(engine, "state", "recovering")
    context.report("building the views", 0.25)
    emitted = is_problem(ask("GET", "/readyz", context), "recovering")
    assert (emitted["stage"], emitted["progress"]) == ("building the views", 0.25)
    assert ask("GET", "/livez", context).status_code == ask("GET", "/v1/relations/a", context).status_code == 200
    assert ask("GET", "/v1/status", context).json()["state"] == "recovering"
    context.settings = Settings(data=tmp_path, ready="relations")
    assert ask("GET", "/readyz", context).status_code == 200


def test_at_the_end(context: Context) -> None:
    context.closing = True
    assert ask("GET", "/livez", context).status_code == 200
    assert "shutting down" in is_problem(ask("GET", "/readyz", context), "recovering")["detail"]


def test_a_disk_in_figures(engine: Instance, context: Context) -> None:
    """The log grows with what is applied; a snapshot takes it in, and has a version, an age and a size from then on."""

    def figures() -> dict[str, float]:
        lines = [line.rpartition(" ") for line in ask("GET", "/metrics", context).text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    empty = figures()
    assert empty["livejoin_log_bytes"] == 0 and "livejoin_snapshot_version" not in empty
    assert empty["livejoin_disk_bytes"] >= empty["livejoin_disk_free_bytes"] > 0
    engine.apply(batch(("upsert", "a", rows_of(1, 5000))))
    grown = figures()
    assert grown["livejoin_log_bytes"] > 5000 and grown['livejoin_folder_bytes{part="log"}'] > empty['livejoin_folder_bytes{part="log"}']
    engine.snapshots.write()
    kept = figures()
    assert kept["livejoin_log_bytes"] == 0 and kept["livejoin_snapshot_version"] == 1 and kept["livejoin_snapshot_age_seconds"] >= 0
    assert 5000 < kept["livejoin_snapshot_bytes"] == kept['livejoin_folder_bytes{part="snapshots"}']
    assert kept["livejoin_snapshot_failures_total"] == 0


def test_a_snapshot_that_fails_is_counted(engine: Instance, context: Context, tmp_path: Path) -> None:
    engine.apply(batch(("upsert", "a", rows_of(1, 5))))
    (tmp_path / "snapshots").write_text("in its place")
    engine.snapshots.write()
    assert "livejoin_snapshot_failures_total 1.0" in ask("GET", "/metrics", context).text
    (tmp_path / "snapshots").unlink()


def test_how_far_a_follower_is_behind(tmp_path: Path) -> None:
    """Counted from the last version that it has taken whole; nothing while nothing has changed its view."""
    engine = running(tmp_path / "other")
    feed = engine.views["v"].feed
    assert feed is not None and feed.lag == 0
    early, late = feed.subscribe(), feed.subscribe()  # type: ignore[attr-defined]
    engine.apply(batch(("upsert", "a", rows_of(1, 1))))
    assert feed.lag == 0, "the version has not changed the view"
    engine.apply(batch(("upsert", "b", rows_of(1, 1))))
    engine.apply(batch(("upsert", "b", rows_of(2, 1))))
    assert feed.lag == 3
    early.next()
    assert feed.lag == 3
    late.next()
    assert feed.lag == 0
    engine.apply(batch(("upsert", "b", rows_of(3, 1))))
    assert feed.lag == 1
    early.close()
    late.close()
    assert feed.lag == 0
    engine.close()
