"""Batches that truncate relations, and what happens while they are prepared."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from service.engine.state import Receipt
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import RowReader, open_relation_rows, open_rows
from service.views.emptied import Emptied
from service.wire.batch import Batch, Changes, RowBlock
from tests.service.engine.test_builds import BOXES, ended, rows_like
from tests.service.running import ORDER
from tests.service.twin import values
from tests.service.views.test_random_sql import Added


def truncating(rng: random.Random, *names: str, most: int = 12) -> Batch:
    """Truncates of these relations, and up to so many rows behind each."""
    parts, sent = [], 0
    for name in names:
        given = [rng.randrange(80) for _ in range(rng.randrange(most + 1))]
        ops = np.array([ORDER["truncate"]] + [ORDER["upsert"]] * len(given), np.uint8)
        rows = RowBlock(pa.concat_batches([rows_like(rng, [0]), rows_like(rng, given)]))
        parts.append(Changes(name, BOXES, ops, rows, np.arange(sent, sent + len(ops))))
        sent += len(ops)
    return Batch(parts, sent, 0, [], 0)


def also_changing(engine: Instance, rng: random.Random, given: Batch) -> Batch:
    """The batch, with new values of some columns, or the same ones, in rows of the relations that it does not truncate."""
    for name in {"a", "b"} - {changes.relation for changes in given.changes}:
        with closing(open_relation_rows(engine.readers, name)) as reader:
            rows = reader.read(1000)
        some = rng.sample(rows.to_pylist(), min(rng.randrange(9), rows.num_rows)) if rows is not None else []
        for row in some:
            if rng.random() < 0.6:
                row["u"] = row["t"] + 1 + rng.randrange(6)
            if rng.random() < 0.3:
                row["tag"] = rng.choice(["p", "q", None])
        if some:
            ops, at = np.full(len(some), ORDER["upsert"], np.uint8), np.arange(given.sent, given.sent + len(some))
            block = RowBlock(pa.RecordBatch.from_pylist(some, schema=BOXES.arrow_schema()))
            given.changes = [*given.changes, Changes(name, BOXES, ops, block, at)]
            given.sent += len(some)
    return given


class Meanwhile:
    """What happens while a batch is prepared: `then` after each step of it, and what the steps were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
        self.built, self.rounds, self.placed = 0, 0, 0
        build, go_on, place = Emptied.build, Emptied.go_on, Emptied.put_in_place

        def built(one: Emptied, report: Callable[[float], None]) -> None:
            build(one, report)
            self.built += 1
            then()

        def gone_on(one: Emptied, is_last: bool) -> None:
            go_on(one, is_last)
            self.rounds += 1
            then()

        def placed(one: Emptied) -> None:
            place(one)
            self.placed += 1

        monkeypatch.setattr(Emptied, "build", built)
        monkeypatch.setattr(Emptied, "go_on", gone_on)
        monkeypatch.setattr(Emptied, "put_in_place", placed)


def rows_left(reader: RowReader) -> list[str]:
    with closing(reader):
        return sorted(str(row) for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist())


def add_up(engine: Instance, added: Added) -> None:
    """The changes of the view come to its rows."""
    added.catch_up()
    with closing(open_rows(engine.readers, "v")) as reader:
        rows = [values(row) for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist()]
    assert Counter(added.rows.values()) == Counter(rows)


def apply_unprepared(engine: Instance, given: Batch) -> int:
    """Its version. It does not wait for one that is being prepared."""
    answer: Future[Receipt | Problem] = Future()
    engine._writer.submit(given, answer.set_result)
    receipt = answer.result(60)
    assert isinstance(receipt, Receipt), receipt
    return receipt.version


def left_nothing(engine: Instance) -> None:
    engine._truncates._thread.submit(lambda: None).result()  # behind what it does after the answer
    ended(engine)  # what shares nothing with others is built anew
    assert engine._state.backlogs == [] and len(engine.versions) == 0
