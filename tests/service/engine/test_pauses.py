"""Pauses of the writer, so that builds can catch up."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace

import pytest

from service.engine.state import Receipt
from service.errors import Problem
from service.instance import Instance
from tests.service.engine.test_builds import Held, state
from tests.service.running import of_ops


def test_the_writer_pauses_for_the_slower_of_two_builds(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for both, one after the other; for what is new to them alone."""
    held, waited = Held(monkeypatch), {0.25: 0.0, 0.5: 0.0}

    def wait(pause: float, seconds: float) -> None:
        waited[pause] += seconds

    for name in ("v", "w"):
        held.put(engine, name)
    for build, pause in zip(engine._builds._running(), (0.25, 0.5), strict=True):
        build.pause = pause
        monkeypatch.setattr(build.asks, "wait", partial(wait, pause))
    clock = SimpleNamespace(monotonic=lambda: sum(waited.values()), perf_counter=time.perf_counter)
    monkeypatch.setattr("service.engine.builds.time", clock)
    engine.apply(of_ops("a", ("upsert", 1)))
    engine.at_rest(lambda: None)
    assert waited == {0.25: 0.0, 0.5: pytest.approx(0.5)}
    for build in engine._builds._running():
        build.pause = 0.0
    monkeypatch.undo()
    held.go.set()
    assert state(engine, "v") == "live"


def test_small_batches_do_not_wait_for_builds(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a single change waited for 20 to 30 ms while the writer paused after a batch."""
    monkeypatch.setattr("service.engine.builds._LONGEST_PAUSE", 3600.0)
    (held := Held(monkeypatch)).put(engine, "v")
    engine._builds._running()[0].pause = 3600.0

    def put(first: int, changes: int, source: str, epoch: int) -> Future[Receipt | Problem]:
        answer = Future[Receipt | Problem]()
        engine.submit(of_ops("a", *(("upsert", first + n) for n in range(changes)), source=source, epoch=epoch), answer.set_result)
        return answer

    put(0, 20, "s", 1).result(60)
    large, behind_it = put(100, 20, "s", 2), put(200, 1, "s", 3)
    for epoch in range(1, 4):
        receipt = put(300 + epoch, 1, "t", epoch).result(60)
        assert isinstance(receipt, Receipt) and receipt.version == 1 + epoch
    assert not large.done() and not behind_it.done()
    held.go.set()
    assert [receipt.version for future in (large, behind_it) if isinstance(receipt := future.result(60), Receipt)] == [5, 6]
    assert state(engine, "v") == "live"


def test_the_writer_does_not_pause_for_a_build_that_waits_for_it(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.builds._LONGEST_PAUSE", 3600.0)
    (held := Held(monkeypatch)).put(engine, "v")
    engine._builds._running()[0].pause = 3600.0
    engine.apply(of_ops("a", ("upsert", 1)))
    held.go.set()
    assert state(engine, "v") == "live"
