"""A batch of a source waits for those before it that are prepared beside the writer: else it would make them duplicates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from livejoin.wire.batch import Batch
from service.engine import truncates
from service.engine.outcomes import Receipt
from service.engine.rewrites import Rewrites
from service.engine.under_way import PendingSources
from service.errors import Problem
from service.instance import Instance
from tests.service.running import PAIR, batch, of_ops, parts, rows_of, running
from tests.waiting import HeldCall

Key = tuple[str, int, str | None]  # source, epoch and run


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, {}, synchronous="normal")
    parts(engine).writer._pace = 0.0  # single changes are applied at once, if they may be
    yield engine
    engine.close()


def late_rewrites(monkeypatch: pytest.MonkeyPatch) -> HeldCall:
    """Rewrites wait, once their rows are to be found."""
    held = HeldCall(Rewrites._submit)
    monkeypatch.setattr(Rewrites, "_submit", lambda *given: held(*given))
    return held


@pytest.mark.parametrize("how", ["replace", "delete", "commit"])
def test_a_later_batch_waits_for_a_rewrite_of_its_source(engine: Instance, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    late, rows = late_rewrites(monkeypatch), batch(("upsert", "a", rows_of(0, 5)))
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
    version = engine.published.number
    late, answer = late_rewrites(monkeypatch), Future[Receipt | Problem]()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(engine.replace, "a", batch(("upsert", "a", rows_of(0, 5)), source="s", epoch=1))
        assert late.begun.wait(60)
        engine.submit(of_ops("b", ("upsert", 7), source="s", epoch=2), answer.set_result)
        second = threads.submit(engine.replace, "b", batch(("upsert", "b", rows_of(0, 3)), source="s", epoch=3))
        while len(engine.under_way._entries) < 3:
            time.sleep(0.001)
        engine.close()
        emitted = answer.result(60), second.exception(60)
        late.go.set()
        assert isinstance(first.exception(60), Problem)
    assert [isinstance(one, Problem) and one.type for one in emitted] == ["recovering", "recovering"]
    assert engine.published.number == version


def test_sources_do_not_wait_for_each_other() -> None:
    under_way, begun = PendingSources(lambda source, writes: False), list[int]()
    owners = [("s", 1), ("t", 1), (None, None), (None, None), ("s", 2), ("s", 3)]
    batches = [of_ops("a", ("upsert", 1), source=source, epoch=epoch) for source, epoch in owners]
    for number, one in enumerate(batches):
        under_way.begin(one, partial(begun.append, number))
    assert begun == [0, 1, 2, 3] and under_way.waiting == 6
    assert [under_way.holds(Batch([], 0, 0, [], 0, source, 9)) for source in ("s", "u", None)] == [True, False, False]
    for ended, then in ((1, []), (5, []), (0, [4]), (4, []), (0, []), (2, []), (3, [])):
        begun.clear()
        under_way.end(batches[ended])
        assert begun == then
    assert under_way.waiting == 0 and not under_way.holds(batches[0])


def test_no_batch_waits_for_a_greater_epoch_of_its_run() -> None:
    """It would become a duplicate of that. Those of different runs begin in the order in which they came."""
    under_way, begun = PendingSources(lambda source, writes: False), list[int]()
    numbers = [("r", 5), ("q", 1), ("r", 7), ("r", 6), ("r", 3), ("r", 6)]
    batches = [Batch([], 0, 0, [], 0, "s", epoch, run) for run, epoch in numbers]
    assert not under_way.holds(batches[0])
    for number, one in enumerate(batches):
        assert under_way.holds(one) == (number not in (0, 4))
        under_way.begin(one, partial(begun.append, number))
    assert begun == [0, 4]
    for ended, then in ((4, []), (0, [1]), (1, [3]), (3, [5]), (5, [2]), (2, [])):
        begun.clear()
        under_way.end(batches[ended])
        assert begun == then
    assert not under_way.holds(batches[2])


def test_one_that_is_expected_holds_back_later_ones_of_its_run() -> None:
    under_way, begun = PendingSources(lambda source, writes: False), list[int]()
    with under_way.expecting({"source": "s", "epoch": 5, "run": "r"}, None):
        owners = [("s", 6, "r"), ("s", 5, "r"), ("s", 4, "r"), ("t", 6, "r"), ("u", 6, None)]
        for number, one in enumerate(batches := [Batch([], 0, 0, [], 0, *owner) for owner in owners]):
            assert under_way.holds(one) == (number == 0)
            under_way.begin(one, partial(begun.append, number))
        assert begun == [1, 2, 3, 4]
        for one in batches[1:]:
            under_way.end(one)
        assert begun == [1, 2, 3, 4]
    assert begun == [1, 2, 3, 4, 0]


def test_a_batch_that_waits_for_a_rewrite_holds_up_no_truncate_of_another_source(
    engine: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(truncates, "_WORTH", 1)
    engine.put_view("v", PAIR, wait=60)
    engine.apply(batch(("upsert", "a", rows_of(0, 5)), ("upsert", "b", rows_of(0, 5))))
    late, answer = late_rewrites(monkeypatch), Future[Receipt | Problem]()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(engine.replace, "a", batch(("upsert", "a", rows_of(0, 5)), source="s", epoch=1))
        assert late.begun.wait(60)
        engine.submit(of_ops("b", ("truncate", 0), ("upsert", 7), source="s", epoch=2), answer.set_result)
        assert engine.apply(of_ops("b", ("truncate", 0), ("upsert", 8), source="t", epoch=1)).version == 2
        assert not answer.done()
        late.go.set()
        assert first.result(60).version == 3
        receipt = answer.result(60)
    assert isinstance(receipt, Receipt) and receipt.version == 4 and not receipt.duplicate


def test_many_that_wait_are_queued_one_after_another(engine: Instance) -> None:
    """More than calls may be nested. Each is answered once, and in order."""
    batches = [of_ops("a", ("upsert", epoch), source="s", epoch=epoch) for epoch in range(1, 1001)]
    answers: list[Receipt | Problem] = []
    engine.under_way.begin(batches[0])
    for one in batches[1:]:
        engine.submit(one, answers.append)
    assert not answers
    engine.under_way.end(batches[0])
    engine.apply(of_ops("a", ("upsert", 0)))  # behind them
    assert [isinstance(one, Receipt) and one[0] for one in answers] == [*range(1, 1000)]
    assert engine.waiting == 0


@pytest.mark.parametrize("seed", range(100))
def test_in_any_order_each_begins_once_and_behind_smaller_epochs(seed: int) -> None:
    random, under_way = Random(seed), PendingSources(lambda source, writes: False)
    live: list[Batch] = []
    begun: list[Batch] = []
    expected: list[tuple[Key, Any]] = []
    in_force: dict[Key, Any] = {}  # of those with the same fields, the last

    def fields() -> Key:
        return random.choice("st"), random.randrange(6), random.choice(["r", None])

    def go(given: Batch) -> None:
        others = [(one.source, one.epoch, one.run) for one in live] + [*in_force]
        assert not [epoch for source, epoch, run in others if (source, run) == (given.source, given.run) and epoch < given.epoch]
        begun.append(given)

    def end(given: Batch) -> None:
        live[:] = [one for one in live if one is not given]
        under_way.end(given)

    def ready() -> list[Batch]:
        return [one for one in live if any(one is other for other in begun)]

    def end_one(number: int) -> None:
        key, context = expected.pop(number)
        if in_force.get(key) is context:
            del in_force[key]
        context.__exit__(None, None, None)

    for _ in range(60):
        what = random.random()
        if what < 0.4:
            live.append(Batch([], 0, 0, [], 0, *fields()))
            under_way.begin(live[-1], partial(go, live[-1]))
        elif what < 0.6:
            key = fields()
            context = in_force[key] = under_way.expecting(dict(zip(("source", "epoch", "run"), key, strict=True)), None)
            context.__enter__()
            expected.append((key, context))
        elif what < 0.8 and expected:
            end_one(random.randrange(len(expected)))
        elif what >= 0.8 and ready():
            end(random.choice(ready()))
    while expected:
        end_one(-1)
    while live:
        assert ready(), "they wait for each other"
        end(ready()[0])
    assert len({id(one) for one in begun}) == len(begun) and under_way.waiting == 0
