"""Batches that were prepared before the writer's turn: they come to what they would have come to without."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch
from livejoin.wire.schema import parse_relation
from service.api.changes import decode_and_prepare
from service.api.http.admission import FREE, Bodies, BodyBudget
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_relation_rows
from service.settings import Settings
from tests.service.running import DEFINITION, batch, check, of_ops, opened, rows_of

N = 3000
MIB = 1 << 20
PAIR = {"from": {"a": "a", "b": "b"}, "join": [{"overlaps": ["a.x", "b.x"]}], "select": ["a.id as i", "b.id as j"]}


def prepared(engine: Instance, given: Batch) -> Batch:
    engine.prepare(given)
    assert all(changes.prepared is not None for changes in given.changes) and given.prepared_bytes > 0
    return given


def tags(engine: Instance, relation: str) -> dict[int, str | None]:
    with closing(open_relation_rows(engine.readers, relation)) as reader:
        rows = reader.read(10 * N)
    return {} if rows is None else dict(zip(rows["id"].to_pylist(), rows["tag"].to_pylist(), strict=True))


@pytest.fixture
def engine(tmp_path: Path) -> Instance:
    engine = opened(tmp_path, synchronous="normal")
    for name in ("a", "b"):
        engine.put_relation(name, DEFINITION)
    return engine


def test_others_write_between(engine: Instance) -> None:
    engine.put_view("pairs", PAIR, wait=60)
    engine.apply(batch(("upsert", "a", rows_of(0, 10)), ("upsert", "b", rows_of(0, 3))))
    twice = pa.concat_batches([rows_of(0, N, tag="old"), rows_of(N - 5, 5, tag="new")])
    late = prepared(engine, batch(("upsert", "a", twice)))
    deleted = batch(("delete", "b", rows_of(0, N)))
    engine.apply(of_ops("b", ("delete", 1), ("upsert", 7)))
    engine.apply(of_ops("a", ("delete", 5), ("truncate", 0), ("upsert", N + 1)))
    assert engine.apply(late).applied == N + 5
    assert tags(engine, "a") == {i: "new" if N - 5 <= i < N else "old" for i in range(N)} | {N + 1: None}
    assert engine.apply(prepared(engine, deleted)).ignored == N - 3
    check(engine)
    engine.close()


def test_an_insert_is_judged_when_it_is_applied(engine: Instance) -> None:
    late = prepared(engine, batch(("insert", "a", rows_of(0, N))))
    engine.apply(of_ops("a", ("upsert", 17)))
    with pytest.raises(Problem) as refused:
        engine.apply(late)
    assert [error["index"] for error in refused.value.to_json()["errors"]] == [17] and len(tags(engine, "a")) == 1
    engine.close()


def test_the_relation_is_another_by_then(engine: Instance) -> None:
    late, later = (prepared(engine, batch(("upsert", "a", rows_of(0, N)))) for _ in range(2))
    engine.apply(of_ops("a", ("upsert", N + 1)))
    engine.drop_relation("a")
    engine.put_relation("a", DEFINITION)
    assert engine.apply(late).applied == N and len(tags(engine, "a")) == N
    engine.drop_relation("a")
    engine.put_relation("a", parse_relation({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}))
    with pytest.raises(Problem, match="created again with another definition"):
        engine.apply(later)
    engine.prepare(later)  # of a relation that is no longer what it was validated for
    engine.close()


def test_a_truncate_in_the_midst(engine: Instance) -> None:
    rows = pa.concat_batches([rows_of(0, N, tag="before"), rows_of(0, 1), rows_of(5, N, tag="after")])
    given = batch(("upsert", "a", rows))
    given.changes[0].ops[N] = 3
    given.changes[0].ops[N + 1 : N + 6] = DELETE, UPSERT, UPSERT, UPSERT, DELETE
    engine.apply(of_ops("a", ("upsert", N + 1), ("upsert", 2 * N)))
    engine.apply(prepared(engine, given))
    assert set(tags(engine, "a")) == set(np.arange(5, N + 5).tolist()) - {5, 9} and set(tags(engine, "a").values()) == {"after"}
    check(engine)
    engine.close()


def test_what_is_prepared_is_counted_among_the_bodies(engine: Instance) -> None:
    given = of_ops("a", *[("upsert", i) for i in range(N)])
    bodies = Bodies(Settings())
    budget = BodyBudget(bodies, MIB)
    assert decode_and_prepare(engine, lambda: given, budget) is given
    assert bodies.held == given.prepared_bytes > FREE
    budget.free()
    engine.close()


def test_what_is_prepared_is_dropped_where_bodies_leave_no_room(engine: Instance) -> None:
    given = of_ops("a", *[("upsert", i) for i in range(N)])
    bodies = Bodies(Settings(max_body_memory=MIB))
    other, budget = BodyBudget(bodies, MIB), BodyBudget(bodies, MIB)
    other.expect(MIB - FREE)
    decode_and_prepare(engine, lambda: given, budget)
    assert bodies.held == MIB - FREE and given.prepared_bytes == 0
    assert engine.apply(given).applied == N
    engine.close()


def test_few_changes_are_not_prepared(engine: Instance) -> None:
    given = of_ops("a", ("upsert", 1), ("upsert", 2))
    engine.prepare(given)
    assert given.changes[0].prepared is None and given.prepared_bytes == 0
    engine.close()


def test_rows_are_let_go_before_the_client_is_told(engine: Instance) -> None:
    """By then the room of its body is another's."""
    given, left, emitted = prepared(engine, batch(("upsert", "a", rows_of(0, N)))), list[int](), threading.Event()

    def done(answer: object) -> None:
        left.append(len(given.changes))
        emitted.set()

    engine.submit(given, done)
    assert emitted.wait(60) and left == [0] and len(tags(engine, "a")) == N
    engine.close()
