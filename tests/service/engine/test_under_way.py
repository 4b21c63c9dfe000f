"""A batch of a source waits for those before it that are prepared beside the writer: else it would make them duplicates."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.engine.queued import UnderWay
from service.engine.rewrites import Rewrites
from service.engine.state import Receipt
from service.errors import Problem
from service.instance import Instance
from service.wire.batch import Batch
from tests.service.running import batch, of_ops, rows_of, running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, {}, synchronous="normal")
    engine._writer._pace = 0.0  # single changes are applied at once, if they may be
    yield engine
    engine.close()


class Late:
    """Rewrites wait until `go`, once their rows are to be found; `begun`: one does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.begun, submit = threading.Event(), threading.Event(), Rewrites._submit

        def submit_late(rewrites: Rewrites, given: Batch, make: Any) -> Receipt:
            self.begun.set()
            assert self.go.wait(60)
            return submit(rewrites, given, make)

        monkeypatch.setattr(Rewrites, "_submit", submit_late)


@pytest.mark.parametrize("how", ["replace", "delete", "commit"])
def test_a_later_batch_waits_for_a_rewrite_of_its_source(engine: Instance, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    late, rows = Late(monkeypatch), batch(("upsert", "a", rows_of(0, 5)))
    engine.stage("a", "night", None, batch(("upsert", "a", rows_of(0, 5))))
    rewrite = {
        "replace": partial(engine.replace, "a", rows), "delete": partial(engine.delete, "a", Batch([], 0, 0, [], 0), lambda relation: []),
        "commit": partial(engine.commit_stage, "a", "night", Batch([], 0, 0, [], 0)),
    }[how]  # fmt: skip
    given = next(one for one in (*rewrite.args,) if isinstance(one, Batch))
    given.source, given.epoch = "s", 1
    later, answer = of_ops("b", ("upsert", 7), source="s", epoch=2), Future[Receipt | Problem]()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(rewrite)
        assert late.begun.wait(60)
        assert engine.apply_at_once(later) is None
        engine.submit(later, answer.set_result)
        last = threads.submit(engine.replace, "b", batch(("upsert", "b", rows_of(0, 3)), source="s", epoch=3))
        assert engine.apply(of_ops("b", ("upsert", 8))).version == 1, "nobody else waits"
        assert not answer.done() and not last.done()
        late.go.set()
        receipts = [first.result(60), answer.result(60), last.result(60)]
    assert [isinstance(one, Receipt) and (one.version, one.duplicate) for one in receipts] == [(2, False), (3, False), (4, False)]
    assert engine.waiting == 0


def test_the_end(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits is told that the service stops, and nothing of it is applied."""
    late, answer = Late(monkeypatch), Future[Receipt | Problem]()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(engine.replace, "a", batch(("upsert", "a", rows_of(0, 5)), source="s", epoch=1))
        assert late.begun.wait(60)
        engine.submit(of_ops("b", ("upsert", 7), source="s", epoch=2), answer.set_result)
        second = threads.submit(engine.replace, "b", batch(("upsert", "b", rows_of(0, 3)), source="s", epoch=3))
        while engine.waiting < 3:
            pass
        engine.close()
        told = answer.result(60), second.exception(60)
        late.go.set()
        assert isinstance(first.exception(60), Problem)
    assert [isinstance(one, Problem) and one.type for one in told] == ["recovering", "recovering"]


def test_sources_do_not_wait_for_each_other() -> None:
    under_way = UnderWay()
    batches = [of_ops("a", ("upsert", 1), **owner) for owner in ({"source": "s", "epoch": 1}, {"source": "t", "epoch": 1}, {}, {})]
    for one in batches:
        under_way.begin(one)
    for one in batches:
        under_way.wait(one)
    assert under_way.holds("s") and not under_way.holds("u") and not under_way.holds(None)
    for one in batches:
        under_way.end(one)
    assert under_way.count == 0
