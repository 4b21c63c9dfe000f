"""Truncates of large relations without views: only memory is allocated before their turn."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from service.engine import truncates
from service.engine.state import Receipt
from service.errors import Problem
from service.instance import Instance
from service.views.emptied import Emptied
from tests.service.engine.emptying import truncating
from tests.service.engine.test_builds import BOXES, VIEWS, rows_like
from tests.service.engine.test_renewals import keeping
from tests.service.running import ORDER, HeldWriter


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncates, "_WORTH", 1)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    yield from keeping(tmp_path, VIEWS["pairs"])


def test_a_large_relation_without_views(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that is filled in the turn is allocated before it, and nothing else happens."""
    engine.drop_view("v")
    touched, given = list[object](), list[object]()
    monkeypatch.setattr(truncates, "touch_lives", touched.append)
    monkeypatch.setattr(truncates, "allocate", lambda relation, changes: given.append(relation))
    engine.apply(truncating(random.Random(3), "b", most=0))
    assert touched == [engine.relations["b"].table.store] and given == [engine.relations["b"]]
    assert engine.relations["b"].table.rows == 0 < engine.relations["a"].table.rows


def test_new_memory_is_allocated_for_one_truncate_at_a_time(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 150 truncates that waited had 16 bytes a row each, and others were told that the service was busy."""
    engine.drop_view("v")
    given = list[str]()
    monkeypatch.setattr(truncates, "allocate", lambda relation, changes: given.append(relation.name))
    engine.put_relation("other", BOXES)
    engine.apply(others(random.Random(1), "upsert", 20))
    answers = [Future[Receipt | Problem]() for _ in range(3)]
    held = HeldWriter(engine)
    for answer in answers:
        engine.submit(others(random.Random(2), "truncate", 1), answer.set_result)
    while engine._writer.waiting < len(answers):
        threading.Event().wait(0.001)
    assert given == ["other"]
    held.release()
    assert all(isinstance(answer.result(60), Receipt) for answer in answers)
    engine.apply(others(random.Random(3), "upsert", 20))
    engine.apply(others(random.Random(4), "truncate", 1))
    assert given == ["other"] * 2


def test_a_relation_without_views_does_not_wait_for_a_preparation(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.put_relation("other", BOXES)
    engine.apply(others(random.Random(1), "upsert", 20))
    begun, go, build = threading.Event(), threading.Event(), Emptied.build

    def wait(one: Emptied, report: Callable[[float], None]) -> None:
        begun.set()
        assert go.wait(60)
        build(one, report)

    monkeypatch.setattr(Emptied, "build", wait)
    first: Future[Receipt | Problem] = Future()
    engine.submit(truncating(random.Random(2), "b"), first.set_result)
    assert begun.wait(60)
    assert isinstance(engine.apply(others(random.Random(3), "truncate", 1)), Receipt) and not first.done()
    assert engine.relations["other"].table.rows == 0
    go.set()
    assert isinstance(first.result(60), Receipt)


def others(rng: random.Random, op: str, count: int) -> Batch:
    ops, rows = np.full(count, ORDER[op], np.uint8), RowBlock(rows_like(rng, [*range(count)]))
    return Batch([Changes("other", BOXES, ops, rows, np.arange(count))], count, 0, [], 0)
