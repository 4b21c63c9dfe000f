"""While the rows that a truncate changes are listed for the last time, changes of the view's relations wait, and nothing else does."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from service.engine import truncates
from service.engine.state import Receipt
from service.errors import Problem
from service.instance import Instance
from service.views import emptied
from service.views.emptied import Emptied
from tests.service.engine.emptying import Meanwhile, add_up, apply_unprepared, left_nothing, truncating
from tests.service.engine.test_builds import BOXES, agrees, filled, rows_like, some_changes
from tests.service.running import ORDER
from tests.service.views.test_random_sql import Added
from tests.waiting import until

ABSENT = {"sql": "SELECT a.id AS i, a.t AS t FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.tag = a.tag)"}
SORTS = {
    "absent": ABSENT,
    "gaps": {"sql": "SELECT a.id AS i, gaps(a.x, b.x) AS free FROM a LEFT JOIN b ON overlaps(a.x, b.x)"},
    "union": {"sql": "SELECT a.tag AS t, a.s AS s FROM a UNION SELECT b.tag AS t, b.t AS s FROM b"},
    "exists": {"sql": "SELECT a.id AS i FROM a WHERE EXISTS (SELECT 1 FROM b WHERE overlaps(a.x, b.x))"},
}
FOLLOWING = {
    "pairs": {"sql": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON overlaps(a.x, b.x)"},
    "groups": {
        "sql": "SELECT a.s AS s, a.tag AS t, count(*) AS n, count(DISTINCT a.tag) AS m, sum(a.u) AS u FROM a "
        "WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.s = a.s) GROUP BY a.s, a.tag HAVING count(*) < 9"
    },
    "one group": {"sql": "SELECT count(DISTINCT a.tag) AS n, count(b.id) AS t, min(a.u) AS u FROM a LEFT JOIN b ON a.s = b.s"},
}


class LastRound:
    """Holds the last round of a preparation from `begun` to `go`. It has something to list: others have written before."""

    def __init__(self, engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.lists = 0  # read after the first ones
        build, go_on, read = Emptied.build, Emptied.go_on, Emptied._list

        def built(one: Emptied, report: Any) -> None:
            build(one, report)
            self.lists = 0
            apply_unprepared(engine, some_changes(random.Random(4), 9))

        def gone_on(one: Emptied, is_last: bool) -> None:
            assert is_last
            self.begun.set()
            assert self.go.wait(60)
            go_on(one, is_last)

        def listed(one: Emptied) -> None:
            self.lists += 1
            read(one)

        monkeypatch.setattr(Emptied, "build", built)
        monkeypatch.setattr(Emptied, "go_on", gone_on)
        monkeypatch.setattr(Emptied, "_list", listed)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    monkeypatch.setattr(truncates, "_WORTH", 1)
    engine = filled(tmp_path, random.Random(1))
    engine.put_relation("other", BOXES)
    yield engine
    engine.close()


def upsert(relation: str, number: int, **fields: Any) -> Batch:
    """One row."""
    rows = RowBlock(rows_like(random.Random(number), [number]))
    return Batch([Changes(relation, BOXES, np.full(1, ORDER["upsert"], np.uint8), rows, np.arange(1))], 1, 0, [], 0, **fields)


def submit(engine: Instance, batch: Batch) -> Future[Receipt | Problem]:
    answer: Future[Receipt | Problem] = Future()
    engine.submit(batch, answer.set_result)
    return answer


def version_of(answer: Future[Receipt | Problem]) -> int:
    receipt = answer.result(60)
    assert isinstance(receipt, Receipt) and not receipt.duplicate, receipt
    return receipt.version


@pytest.mark.parametrize("name", SORTS)
def test_only_changes_of_the_same_relations_wait(engine: Instance, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Also those of their sources that come later, which would make them duplicates."""
    engine.put_view("v", SORTS[name], wait=60)
    added, last = Added(engine, "v"), LastRound(engine, monkeypatch)
    truncate = submit(engine, truncating(random.Random(2), "b"))
    assert last.begun.wait(60)
    waiting = [submit(engine, upsert("a", 200)), submit(engine, upsert("b", 201, source="s", epoch=1))]
    behind = submit(engine, upsert("other", 202, source="s", epoch=2))
    passed = [version_of(submit(engine, upsert("other", 204, source="t", epoch=1)))]
    for number in range(205, 210):
        passed.append(engine.apply(upsert("other", number)).version)
    with ThreadPoolExecutor(1) as threads:
        replaced = threads.submit(engine.replace, "a", upsert("a", 210))
        until(lambda: len(engine._truncates._door._waiters) > 0)  # type: ignore[attr-defined]
        assert not any(answer.done() for answer in (truncate, behind, replaced, *waiting))
        last.go.set()
    first = version_of(truncate)
    assert max(passed) < first < min(replaced.result().version, *map(version_of, waiting))
    assert version_of(waiting[1]) < version_of(behind)
    assert last.lists == 1
    agrees(engine, "v")
    add_up(engine, added)
    left_nothing(engine)


def test_a_list_that_is_out_of_date_is_read_in_the_turn(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.put_view("v", ABSENT, wait=60)
    added, meanwhile = Added(engine, "v"), Meanwhile(monkeypatch, lambda: apply_unprepared(engine, some_changes(random.Random(5), 20)))
    engine.apply(truncating(random.Random(3), "b"))
    assert (meanwhile.rounds, meanwhile.placed) == (1, 1)
    agrees(engine, "v")
    add_up(engine, added)
    left_nothing(engine)


@pytest.mark.parametrize("name", SORTS | FOLLOWING)
def test_changes_after_the_last_round_that_come_to_nothing(engine: Instance, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    engine.put_view("v", (SORTS | FOLLOWING)[name], wait=60)
    added = Added(engine, "v")

    def come_and_go() -> None:
        for op in ("upsert", "delete"):
            given = upsert("a", 300)
            given.changes[0].ops[:] = ORDER[op]
            apply_unprepared(engine, given)

    meanwhile = Meanwhile(monkeypatch, come_and_go)
    engine.apply(truncating(random.Random(3), "b"))
    assert meanwhile.placed == 1
    agrees(engine, "v")
    add_up(engine, added)
    left_nothing(engine)


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("most", [0, 1 << 14])
def test_what_follows_changes_holds_up_nobody(engine: Instance, monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    """Unless more changes are left after all rounds than there may be."""
    engine.put_view("v", FOLLOWING[name], wait=60)
    monkeypatch.setattr(emptied, "_MOST_BEHIND", most)
    monkeypatch.setattr(truncates, "_FEW", 0)
    closed, go_on = list[bool](), Emptied.go_on

    def gone_on(one: Emptied, is_last: bool) -> None:
        closed.append(is_last or engine._truncates.is_closed(upsert("a", 1)))
        go_on(one, is_last)

    monkeypatch.setattr(Emptied, "go_on", gone_on)
    Meanwhile(monkeypatch, lambda: apply_unprepared(engine, some_changes(random.Random(6), 9)))
    engine.apply(truncating(random.Random(3), "b"))
    assert closed and any(closed) == (most == 0)
    agrees(engine, "v")
    left_nothing(engine)


def test_what_waits_is_refused_once_the_service_ends(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.put_view("v", ABSENT, wait=60)
    last = LastRound(engine, monkeypatch)
    answers = [submit(engine, truncating(random.Random(2), "b"))]
    assert last.begun.wait(60)
    answers.append(submit(engine, upsert("a", 200)))
    version = engine.published.number
    engine.refuse_waiting()
    last.go.set()
    for answer in answers:
        problem = answer.result(60)
        assert isinstance(problem, Problem) and problem.type == "recovering"
    assert engine.published.number == version


def test_a_last_round_that_fails(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits goes on all the same."""
    engine.put_view("v", ABSENT, wait=60)
    last, gone_on = LastRound(engine, monkeypatch), Emptied.go_on

    def fail(one: Emptied, is_last: bool) -> None:
        gone_on(one, is_last)
        raise MemoryError("no room")

    monkeypatch.setattr(Emptied, "go_on", fail)
    truncate = submit(engine, truncating(random.Random(2), "b"))
    assert last.begun.wait(60)
    later = submit(engine, upsert("a", 200))
    last.go.set()
    assert {version_of(truncate), version_of(later)} == {4, 5}, "a small batch may pass one that is not prepared"
    agrees(engine, "v")
    left_nothing(engine)
