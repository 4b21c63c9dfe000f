"""Views are rebuilt before a batch truncates their relations; what it comes to, and what others write meanwhile, is as if they were not."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from service.engine import build as build_module
from service.engine import truncates
from service.engine.build import Build, BuildCancelled, LargeLane
from service.engine.outcomes import Receipt
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_rows
from service.tables import backlog
from service.views import differences
from tests.service.engine.emptying import Meanwhile, apply_unprepared, left_nothing, rows_left, truncate_meanwhile, truncating
from tests.service.engine.test_builds import BOXES, VIEWS, agrees, filled, rows_like, some_changes
from tests.service.engine.test_renewals import keeping
from tests.service.running import ORDER, HeldWriter, check, parts
from tests.service.views.test_random_sql import Added
from tests.waiting import HeldCall

SELF = {"from": {"a": "a", "b": "a"}, "join": [{"overlaps": ["a.x", "b.x"]}, {"less": ["a.id", "b.id"]}]}
FILTERED = VIEWS["pairs"] | {"where": [{"column": "a.tag", "op": "=", "value": "none has it"}]}
GROUPS = {"group": ["b.s as s"], "aggregate": [{"count": "*", "as": "n"}, {"sum": "a.t", "as": "sum"}, {"min": "a.u", "as": "least"}]}
MORE = {
    "self": SELF, "filtered": FILTERED, "list": {"from": {"a": "a"}}, "unfollowed": VIEWS["pairs"] | {"changes": False},
    "groups": VIEWS["keyed"] | GROUPS,
    "groups by text": {
        "sql": "SELECT a.tag AS t, count(DISTINCT b.tag) AS n, max(b.t) AS m FROM a JOIN b ON a.s = b.s GROUP BY a.tag HAVING count(*) > 1"
    },
    "one group": {"sql": "SELECT count(DISTINCT b.s) AS n, sum(a.t) AS t FROM a JOIN b ON overlaps(a.x, b.x)"},
    "groups of rows": {"sql": "SELECT a.tag AS t, count(*) AS n, avg(a.s) AS s FROM a WHERE a.s > 3 GROUP BY a.tag"},
    "groups of numbers": {"sql": "SELECT a.s AS s, count(*) AS n, sum(a.t) AS t FROM a GROUP BY a.s HAVING count(*) < 9"},
    "distinct": {"sql": "SELECT DISTINCT a.s AS s, b.tag AS t FROM a JOIN b ON overlaps(a.x, b.x)"},
    "unfollowed groups": VIEWS["pairs"] | GROUPS | {"changes": False},
    "left": {"sql": "SELECT a.id AS i, b.t AS j FROM a LEFT JOIN b ON overlaps(a.x, b.x)"},
    "right": {"sql": "SELECT a.id AS i, b.t AS j FROM a RIGHT JOIN b ON a.tag = b.tag AND overlaps(a.x, b.x)"},
    "left by key": {"sql": "SELECT a.id AS i, b.id AS j FROM a LEFT JOIN b ON a.tag = b.tag AND b.t < 30 WHERE a.u > 4"},
    "left itself": {"sql": "SELECT x.id AS i, y.id AS j FROM a x LEFT JOIN a y ON overlaps(x.x, y.y)"},
    "unfollowed left": {"sql": "SELECT a.id AS i, b.id AS j FROM a LEFT JOIN b ON overlaps(a.x, b.x)", "changes": False},
    "left of two": {"sql": "SELECT a.id AS i, b.id AS j, c.id AS k FROM a JOIN b ON a.tag = b.tag LEFT JOIN a c ON overlaps(b.x, c.x)"},
    "exists": {"sql": "SELECT a.id AS i, a.t AS t FROM a WHERE EXISTS (SELECT 1 FROM b WHERE overlaps(a.x, b.x))"},
    "absent": {"sql": "SELECT a.id AS i, a.t AS t FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.tag = a.tag)"},
    "latest": {"sql": "SELECT DISTINCT ON (a.tag) a.tag AS t, a.id AS i, a.t AS s FROM a ORDER BY a.tag, a.s DESC"},
    "as of": {"sql": "SELECT a.id AS i, b.id AS j, b.t AS t FROM a ASOF JOIN b ON a.tag = b.tag AND b.s <= a.s WHERE b.u > 5"},
    "as of or null": {"sql": "SELECT a.id AS i, b.id AS j, b.t AS t FROM a ASOF LEFT JOIN b ON a.tag = b.tag AND b.s <= a.s"},
    "gaps": {"sql": "SELECT a.id AS i, gaps(a.x, b.x) AS free FROM a LEFT JOIN b ON overlaps(a.x, b.x)"},
    "coverage": {"sql": "SELECT a.id AS i, coverage(a.x, b.x) AS busy FROM a JOIN b ON overlaps(a.x, b.x)"},
    "full": {"sql": "SELECT a.id AS i, b.t AS j FROM a FULL JOIN b ON overlaps(a.x, b.x)"},
    "left on boxes": {"sql": "SELECT a.id AS i, b.t AS j FROM a LEFT JOIN b ON overlaps(a.x, b.x) AND overlaps(a.y, b.y)"},
    "groups of left": {"sql": "SELECT a.tag AS t, max(b.t) AS m FROM a LEFT JOIN b ON overlaps(a.x, b.x) GROUP BY a.tag"},
    "groups of full": {
        "sql": "SELECT b.tag AS t, count(DISTINCT a.tag) AS n, min(a.u) AS m, max(a.s) AS l, sum(b.t) AS s "
        "FROM a FULL JOIN b ON overlaps(a.x, b.x) GROUP BY b.tag HAVING count(*) > 1"
    },
    "unfollowed groups of left": {
        "sql": "SELECT a.s AS g, count(b.id) AS n FROM a LEFT JOIN b ON a.tag = b.tag GROUP BY a.s", "changes": False
    },
    "left of three": {"sql": "SELECT a.id AS i, b.id AS j, c.id AS k FROM a LEFT JOIN b ON overlaps(a.x, b.x) LEFT JOIN b c ON c.id = b.s"},
    "two absent": {
        "sql": "SELECT a.id AS i, c.id AS j FROM a JOIN a c ON a.s = c.t WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.tag = a.tag)"
    },
    "absent intervals": {"sql": "SELECT a.id AS i FROM a WHERE a.s < 30 AND NOT EXISTS (SELECT 1 FROM b WHERE overlaps(a.x, b.x))"},
    "unfollowed absent": {"sql": "SELECT a.id AS i FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.tag = a.tag)", "changes": False},
    "gaps by key": {"sql": "SELECT a.id AS i, gaps(a.x, b.x) AS free FROM a LEFT JOIN b ON a.tag = b.tag AND overlaps(a.x, b.x)"},
    "full by key": {"sql": "SELECT a.id AS i, a.t AS s, b.id AS j FROM a FULL JOIN b ON a.tag = b.tag AND overlaps(a.x, b.x) AND b.t < 30"},
    "full by equality": {"sql": "SELECT a.id AS i, b.id AS j FROM a FULL JOIN b ON a.s = b.t"},
    "absent in a triangle": {
        "sql": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.s = b.s JOIN a c ON b.tag = c.tag AND c.u = a.u "
        "WHERE NOT EXISTS (SELECT 1 FROM b d WHERE d.u = a.u)", "algorithm": "lqdag",
    },
    "groups of absent": {
        "sql": "SELECT a.tag AS t, count(*) AS n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.s = a.s) GROUP BY a.tag"
    },
    "coverage of groups": {"sql": "SELECT a.tag AS t, coverage(a.x) AS busy FROM a GROUP BY a.tag"},
    "coverage of many groups": {"sql": "SELECT a.u AS t, coverage(a.x) AS busy FROM a WHERE a.s > 3 GROUP BY a.u"},
    "unfollowed coverage": {"sql": "SELECT a.u AS t, coverage(a.x) AS busy FROM a GROUP BY a.u", "changes": False},
    "groups of two and left": {
        "sql": "SELECT a.tag AS t, count(*) AS n FROM a JOIN a c ON a.tag = c.tag LEFT JOIN b ON b.s = c.s GROUP BY a.tag"
    },
    "counted": {"sql": "SELECT count(*) AS n, sum(a.t) AS t FROM a JOIN b ON a.tag = b.tag"},
    "counted on one key": {"sql": "SELECT a.tag AS g, count(*) AS n, sum(b.t) AS t FROM a JOIN b ON a.tag = b.tag GROUP BY a.tag"},
    "counted partners": {
        "sql": "SELECT a.s AS g, count(*) AS n, sum(b.t) AS t FROM a JOIN b ON a.s = b.s AND overlaps(a.x, b.x) GROUP BY a.s"
    },
    "counted pairs": {"sql": "SELECT count(*) AS n, sum(b.t) AS t FROM a JOIN b ON overlaps(a.x, b.x)"},
    "counted among themselves": {
        "sql": "SELECT x.tag AS g, count(*) AS n FROM a x JOIN a y ON x.tag = y.tag AND overlaps(x.x, y.x) GROUP BY x.tag"
    },
    "counted once": {"sql": "SELECT count(*) AS n FROM a x JOIN a y ON overlaps(x.x, y.x) AND x.id < y.id"},
    "visited": {"sql": "SELECT a.id AS g, count(*) AS n, sum(b.t) AS t FROM a JOIN b ON overlaps(a.x, b.x) WHERE b.u > 4 GROUP BY a.id"},
    "unfollowed counted": {"sql": "SELECT a.s AS g, count(*) AS n FROM a JOIN b ON a.s = b.t GROUP BY a.s", "changes": False},
    "union": {"sql": "SELECT a.tag AS t, a.s AS s FROM a UNION SELECT b.tag AS t, b.t AS s FROM b"},
    "except": {"sql": "SELECT a.tag AS t, a.s AS s FROM a EXCEPT SELECT b.tag AS t, b.t AS s FROM b"},
    "union of joins": {
        "sql": "SELECT a.tag AS t, b.s AS s FROM a JOIN b ON a.s = b.s UNION SELECT a.tag AS t, a.u AS s FROM a "
        "WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.tag = a.tag) EXCEPT SELECT b.tag AS t, b.u AS s FROM b"
    },
    "unfollowed union": {"sql": "SELECT a.tag AS t FROM a UNION SELECT b.tag AS t FROM b", "changes": False},
    "union all": {
        "sql": "SELECT a.id AS i, 'a' AS of FROM a UNION ALL SELECT a.s, b.tag FROM a LEFT JOIN b ON a.s = b.t "
        "UNION ALL SELECT x.id, 'b' FROM b x JOIN a y ON overlaps(x.x, y.x)"
    },
    "one group of left": {"sql": "SELECT count(DISTINCT b.tag) AS n, count(*) AS m FROM a LEFT JOIN b ON a.s = b.s"},
}  # fmt: skip
PREPARED = [*VIEWS, *MORE]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncates, "_WORTH", 1)
    monkeypatch.setattr(build_module, "_FIRST_LAST", 0)
    monkeypatch.setattr(build_module, "_MOST_LAST", 0)
    monkeypatch.setattr(backlog, "_PIECE", 7)
    monkeypatch.setattr(differences, "_CHUNK", 16)
    monkeypatch.setattr(differences, "_COMPARED", 20)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PREPARED)
def test_what_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int) -> None:
    assert truncate_meanwhile(tmp_path, monkeypatch, name, {**VIEWS, **MORE}[name], seed, ("a", "b", "ab", "ba")).rounds > 0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    yield from keeping(tmp_path, VIEWS["pairs"])


def test_nobody_else_waits(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch has its turn when it is prepared; a change that comes later is applied before."""
    rng, versions = random.Random(2), []
    Meanwhile(monkeypatch, lambda: versions.append(apply_unprepared(engine, some_changes(rng, 9))))
    assert engine.apply(truncating(rng, "b")).version == versions[-1] + 1 > versions[0] + 1


def test_a_small_relation_is_not_worth_it(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile = Meanwhile(monkeypatch, lambda: None)
    monkeypatch.setattr(truncates, "_WORTH", 51)
    engine.apply(truncating(random.Random(3), "b"))
    assert meanwhile.built == 0
    agrees(engine, "v")


@pytest.mark.parametrize("step", ["make_room", "load", "catch_up"])
def test_a_build_that_fails(engine: Instance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str) -> None:
    """The batch is applied as ever, and nothing is left of the build."""

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    meanwhile = Meanwhile(monkeypatch, lambda: apply_unprepared(engine, some_changes(random.Random(6), 9)))
    monkeypatch.setattr(Build, step, fail)
    added = Added(engine, "v")
    engine.apply(truncating(random.Random(7), "a"))
    assert "could not be rebuilt for a truncate" in caplog.text and meanwhile.placed == 0
    agrees(engine, "v")
    check(engine)
    added.catch_up()
    left_nothing(engine)


def test_a_view_that_goes_meanwhile(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.put_view("w", VIEWS["keyed"], wait=60)
    deleted: list[str] = []

    def drop() -> None:
        if not deleted:
            engine.drop_view("v")
            deleted.append("v")

    meanwhile = Meanwhile(monkeypatch, drop)
    engine.apply(truncating(random.Random(8), "a"))
    assert deleted and meanwhile.placed == 1
    agrees(engine, "w")
    left_nothing(engine)


def test_a_view_that_fails_meanwhile(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is applied, and the other views follow it."""
    rng = random.Random(10)
    engine.put_view("w", VIEWS["keyed"] | {"group": ["a.id as i"], "aggregate": [{"min": "b.u", "as": "least"}], "groups": 60}, wait=60)

    def more_groups() -> None:
        if meanwhile.built < 2 or engine.views["w"].state == "failed":
            return  # the view is not prepared yet
        ids = list(range(100, 200))
        rows = RowBlock(rows_like(rng, ids))
        apply_unprepared(engine, Batch([Changes("a", BOXES, np.full(100, ORDER["upsert"], np.uint8), rows, np.array(ids))], 100, 0, [], 0))

    meanwhile = Meanwhile(monkeypatch, more_groups)
    engine.apply(truncating(rng, "a"))
    assert engine.views["w"].state == "failed" and meanwhile.placed == 1
    agrees(engine, "v")
    left_nothing(engine)


def test_the_only_group_meets_having_without_rows(engine: Instance) -> None:
    engine.put_view("few", {"sql": "SELECT count(*) AS n FROM a HAVING count(*) < 5"}, wait=60)
    added = Added(engine, "few")
    assert rows_left(open_rows(engine.readers, "few")) == []
    engine.apply(truncating(random.Random(11), "a", most=0))
    assert rows_left(open_rows(engine.readers, "few")) == ["{'n': 0}"]
    added.catch_up()
    assert len(added.rows) == 1
    check(engine)


def test_a_relation_that_goes_meanwhile(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = engine.relations["a"].definition

    def another() -> None:
        if "v" in engine.views:
            engine.drop_view("v")
            engine.drop_relation("a")
            engine.put_relation("a", definition)

    Meanwhile(monkeypatch, another)
    engine.apply(truncating(random.Random(9), "a"))
    left_nothing(engine)
    check(engine)


def stopped_preparations(monkeypatch: pytest.MonkeyPatch) -> HeldCall:
    held = HeldCall(lambda: None)
    Meanwhile(monkeypatch, held)
    return held


def of_source(batch: Batch, epoch: int) -> Batch:
    batch.source, batch.epoch = "s", epoch
    return batch


def one_row(rng: random.Random, name: str) -> Batch:
    rows = RowBlock(rows_like(rng, [70]))
    return Batch([Changes(name, BOXES, np.array([ORDER["upsert"]], np.uint8), rows, np.arange(1))], 1, 0, [], 0)


def test_a_later_batch_of_its_source_waits(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the truncate would be taken for a duplicate, and its changes be lost. One that is sent twice is applied once."""
    stopped, answers = stopped_preparations(monkeypatch), [Future[Receipt | Problem]() for _ in range(4)]
    rng = random.Random(12)
    batches = [truncating(rng, "a"), truncating(rng, "a"), one_row(rng, "a"), some_changes(rng, 9)]
    for epoch, given, answer in zip((1, 1, 2, 3), batches, answers, strict=True):
        engine.submit(of_source(given, epoch), answer.set_result)
        assert stopped.begun.wait(60)
    assert engine.waiting == 4 and not any(answer.done() for answer in answers)
    assert engine.apply(one_row(rng, "b")).version == 3, "nobody else waits"
    stopped.go.set()
    receipts = [answer.result(60) for answer in answers]
    emitted = [isinstance(one, Receipt) and (one.version, one.duplicate) for one in receipts]
    assert [emitted[0], *emitted[2:]] == [(4, False), (5, False), (6, False)]
    assert emitted[1] in [(version, True) for version in (4, 5, 6)], "a duplicate is told the newest version"
    agrees(engine, "v")
    left_nothing(engine)
    assert engine.waiting == 0


def test_no_more_wait_than_may(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, answers = stopped_preparations(monkeypatch), list[Receipt | Problem]()
    monkeypatch.setattr(parts(engine).writer, "_max_waiting", 2)
    for _ in range(2):
        engine.submit(truncating(random.Random(13), "b"), answers.append)
        assert stopped.begun.wait(60)
    with pytest.raises(Problem, match="already waiting"):
        engine.submit(truncating(random.Random(13), "b"), answers.append)
    apply_unprepared(engine, some_changes(random.Random(14), 9))
    stopped.go.set()
    left_nothing(engine)
    assert len(answers) == 2 and all(isinstance(answer, Receipt) for answer in answers)


def test_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a preparation is told that the service ends, and nothing of it is applied."""
    engine = filled(tmp_path, random.Random(1))
    engine.put_view("v", VIEWS["pairs"], wait=60)
    stopped = stopped_preparations(monkeypatch)
    answers: list[Any] = []
    for _ in range(2):
        engine.submit(truncating(random.Random(3), "b"), answers.append)
    assert stopped.begun.wait(60)
    version = engine.published.number
    engine.close()
    stopped.go.set()
    parts(engine).truncates._thread.shutdown(wait=True)
    assert [answer.type for answer in answers] == ["recovering"] * 2 and engine.published.number == version
    with pytest.raises(Problem):
        engine.submit(truncating(random.Random(3), "b"), answers.append)


def answers_of_the_end(engine: Instance, begun: threading.Event, go: threading.Event) -> list[str]:
    """Submit a truncate, and close the engine between `begun` and `go`; the types of the problems that are answered."""
    answers: list[Any] = []
    engine.submit(truncating(random.Random(3), "b"), answers.append)
    assert begun.wait(60)
    engine.close()
    go.set()
    parts(engine).truncates._thread.shutdown(wait=True)
    return [answer.type for answer in answers]


def test_the_end_in_the_midst_of_a_build(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service does not wait until it is done."""
    go, begun, load = threading.Event(), threading.Event(), Build.load
    ended = list[str]()

    def load_late(build: Build, version: int, progress: Callable[[float], None]) -> None:
        begun.set()
        assert go.wait(60)
        try:
            load(build, version, progress)
        except BuildCancelled:
            ended.append("recovering")
            raise

    monkeypatch.setattr(Build, "load", load_late)
    assert answers_of_the_end(engine, begun, go) == ended == ["recovering"]


def test_a_batch_of_its_source_that_still_waits_comes_first(engine: Instance) -> None:
    """Else it would be taken for a duplicate."""
    rng, answers = random.Random(8), [Future[Receipt | Problem]() for _ in range(2)]
    held = HeldWriter(engine)
    for epoch, given, answer in zip((1, 2), (some_changes(rng, 9), truncating(rng, "b")), answers, strict=True):
        engine.submit(of_source(given, epoch), answer.set_result)
    held.release()
    first, second = (answer.result(60) for answer in answers)
    assert isinstance(first, Receipt) and isinstance(second, Receipt) and not first.duplicate and first.version < second.version
    agrees(engine, "v")


def test_large_batches_wait_for_one_that_is_outrun(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for any build; if it is outrun even so, the rows are deleted one by one."""
    closed, close_for = set[str | None](), LargeLane.close_for

    def noted(lane: LargeLane, builds: Any) -> bool:
        found = close_for(lane, builds)
        closed.add(lane.closed_for)
        return found

    def outrun() -> None:
        for number in range(9):
            apply_unprepared(engine, one_row(random.Random(number), "a"))

    monkeypatch.setattr(build_module, "_MOST_CLOSED", 0.0)
    monkeypatch.setattr(build_module, "_LEAST_OPEN", 0.0)
    monkeypatch.setattr(LargeLane, "close_for", noted)
    meanwhile = Meanwhile(monkeypatch, outrun, 99)
    engine.apply(truncating(random.Random(9), "b"))
    assert closed == {None, "v"} and meanwhile.rounds >= 4 and meanwhile.placed == 0
    agrees(engine, "v")
    left_nothing(engine)


def test_a_relation_without_views_waits_for_no_build(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.put_relation("other", BOXES)
    stopped = stopped_preparations(monkeypatch)
    first: Future[Receipt | Problem] = Future()
    engine.submit(truncating(random.Random(2), "b"), first.set_result)
    assert stopped.begun.wait(60)
    for op, count in (("upsert", 20), ("truncate", 1)):
        rows = RowBlock(rows_like(random.Random(3), [*range(count)]))
        engine.apply(Batch([Changes("other", BOXES, np.full(count, ORDER[op], np.uint8), rows, np.arange(count))], count, 0, [], 0))
    assert not first.done() and engine.relations["other"].table.rows == 0
    stopped.go.set()
    assert isinstance(first.result(60), Receipt)
