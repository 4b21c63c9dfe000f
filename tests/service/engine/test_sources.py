"""A source belongs to who may write to every relation that it has written: judged in the writer's order, and kept."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import Batch
from service.engine.outcomes import Receipt
from service.errors import Problem
from service.instance import Instance
from tests.service.running import HeldWriter, of_ops, opened, running
from tests.waiting import until

A, B, BOTH = frozenset({"a"}), frozenset({"b"}), frozenset({"a", "b"})
EVERYTHING = None


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, {}, synchronous="normal")
    yield engine
    engine.close()


def empty(source: str, epoch: int, writes: frozenset[str] | None, run: str | None = None) -> Batch:
    return Batch([], 0, 0, [], 0, source, epoch, run, writes=writes)


def of(relation: str, id_: int, source: str, epoch: int, writes: frozenset[str] | None, **more: Any) -> Batch:
    return of_ops(relation, ("upsert", id_), source=source, epoch=epoch, writes=writes, **more)


def forbidden(send: Callable[[], object]) -> None:
    with pytest.raises(Problem) as caught:
        send()
    assert caught.value.type == "forbidden" and "'pay'" in caught.value.detail and "secret" not in caught.value.detail


@pytest.mark.parametrize("seed", range(3))
def test_whoever_may_write_what_it_has_written(tmp_path: Path, seed: int) -> None:
    """Random batches of random rights, across drops and restarts, against a model."""
    rng, engine = random.Random(seed), running(tmp_path, {}, synchronous="normal")
    written, epochs = dict[str, set[str]](), dict[str, int]()
    for step in range(150):
        name, writes = rng.choice(("pay", "crm", "x")), rng.choice((A, B, BOTH, EVERYTHING))
        relations = [one for one in ("a", "b") if (writes is None or one in writes) and rng.random() < 0.6]
        one = Batch([], 0, 0, [], 0, name, step, writes=writes)
        for relation in relations:
            part = of(relation, step, name, step, writes)
            one.changes, one.sent = one.changes + part.changes, one.sent + 1
        one.epoch = epoch = rng.choice((step, step - 5))
        known = written.get(name)
        if known is not None and writes is not None and not known <= writes:
            with pytest.raises(Problem, match="has written relations"):
                engine.apply(one)
        else:
            receipt = engine.apply(one)
            assert receipt.duplicate == (known is not None and epoch <= epochs[name])
            if not receipt.duplicate and (relations or known is not None):
                written[name] = (known or set()) | set(relations)
                epochs[name] = epoch
        if rng.random() < 0.1:
            engine.drop_relation("a")  # its name still counts: who creates it again has no right on the source that they did not have
            engine.put_relation("a", engine.relations["b"].definition)
        if rng.random() < 0.1:
            engine.close()
            engine = opened(tmp_path, synchronous="normal")
        assert {name: source.written for name, source in engine.sources().items()} == written
    engine.close()


def test_an_empty_batch_under_a_new_name_records_nothing(engine: Instance) -> None:
    version = engine.published.number
    receipt = engine.apply(empty("pay", 4611686018427387904, A, "R7"))
    assert receipt == Receipt(version, 0, 0, 0, [], False, receipt.timeline) and engine.published.number == version
    assert engine.sources() == {}
    assert not engine.apply(of("b", 1, "pay", 1, B)).duplicate
    forbidden(partial(engine.apply, empty("pay", 2, A)))
    assert engine.apply(empty("pay", 2, B)).version == version + 2, "the owner's empty batches count"
    assert engine.apply(of("b", 1, "pay", 2, B)).duplicate


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("second", ["b", None])
def test_two_tokens_at_once_are_judged_in_the_order_of_the_writer(engine: Instance, rows: int, second: str | None) -> None:
    """Both batches wait, neither name is known yet; others wait between them, which are applied together with them."""
    held = HeldWriter(engine)
    first = of_ops("a", *(("upsert", id_) for id_ in range(rows)), source="pay", epoch=1, writes=A)
    held.submit(first)
    for id_ in range(3):
        held.submit(of("b", id_ + 100, f"other{id_}", 1, B))
    held.submit(empty("pay", 9, B) if second is None else of(second, 7, "pay", 9, B))
    held.submit(of("a", 90, "pay", 2, A))
    answers = held.release()
    until(lambda: len(answers) == 6)
    refused = [answer for answer in answers if isinstance(answer, Problem)]
    assert [problem.type for problem in refused] == ["forbidden"]
    assert engine.sources()["pay"].epoch == 2 and engine.relations["a"].table.rows == rows + 1


def test_the_runs_and_the_first_answer_are_not_told_to_others(engine: Instance) -> None:
    engine.apply(of("b", 1, "pay", 5, BOTH, run="secret"))
    engine.stage("a", "night", None, of_ops("a", ("upsert", 3)))
    ways = [
        engine.apply, engine.repeated, partial(engine.replace, "a"), partial(engine.commit_stage, "a", "night"),
        partial(engine.delete, "a", filters=lambda _: []),
    ]  # fmt: skip
    runs = [(None, False), *itertools.product(("secret", "other"), (False, True))]
    for epoch, (run, reset), way in itertools.product((4, 5, 6), runs, ways):
        forbidden(partial(way, of("a", 1, "pay", epoch, A, run=run, reset=reset)))
    assert engine.apply(of("b", 1, "pay", 5, B, run="secret")).first is not None
    assert engine.relations["a"].table.rows == 0


def test_the_answer_to_a_batch_goes_with_its_relation(tmp_path: Path) -> None:
    """It may have values of the dropped rows, and a new relation may have the name."""
    engine = running(tmp_path, {})
    engine.apply(of("a", 1, "pay", 5, A))
    engine.apply(of("b", 1, "crm", 5, B))
    engine.drop_relation("a")
    for _ in range(2):
        again = [engine.apply(of("b", 1, name, 5, None)) for name in ("pay", "crm")]
        assert [(receipt.duplicate, receipt.first is None) for receipt in again] == [(True, True), (True, False)]
        engine.close()
        engine = opened(tmp_path)
    forbidden(partial(engine.apply, of("b", 1, "pay", 6, B)))
    engine.close()


@pytest.mark.parametrize("known", [True, False])
def test_a_slow_body_of_another_token_holds_up_nobody(engine: Instance, known: bool) -> None:
    """Nor does one with the same numbers take the place of the owner's, whose later batches would pass it."""
    under_way, epoch = engine.under_way, itertools.count(1)
    if known:
        engine.apply(of("b", 0, "pay", next(epoch), B))
    fields = {"source": "pay", "run": None, "epoch": -5}
    with under_way.expecting(fields, A):
        assert not under_way.holds(of("b", 1, "pay", 9, B)) and under_way.holds(of("a", 1, "pay", 9, A))
        mine, late = {"source": "pay", "run": None, "epoch": 7}, of("b", 2, "pay", 8, B)
        with under_way.expecting(mine, B), under_way.expecting(mine, A):
            assert under_way.holds(late)
            answer = submitted(engine, late)
            with under_way.expecting(mine, B):  # sent again: the first connection was lost
                pass
            assert not answer.result(60).duplicate


def submitted(engine: Instance, batch: Batch) -> Future[Any]:
    answer: Future[Any] = Future()
    engine.submit(batch, answer.set_result)
    return answer


def test_a_rewrite_of_another_token_holds_up_nobody(engine: Instance) -> None:
    engine.apply(of("b", 0, "pay", 1, B))
    other = empty("pay", 2, A)
    engine.under_way.begin(other)
    assert not submitted(engine, of_ops("b", ("truncate", 0), source="pay", epoch=3, writes=B)).result(30).duplicate
    engine.under_way.end(other)
