"""Single changes that a caller applies itself and that turn out to be large: the writer's thread publishes them."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest

from service.engine.state import Receipt, Unpublished
from service.engine.writer import _MOST_ROWS
from service.errors import Problem
from service.following.feeds import Feed
from service.following.subscriptions import Subscription
from service.instance import Instance
from service.reading.cursors import open_rows
from service.views.collecting import Collector
from service.views.deltas import Delta
from service.views.turning import FEW
from service.wire.batch import Batch
from tests.service.engine.test_at_once import in_turn, ready, single, starts
from tests.service.running import PAIR, batch, check, ids, of_ops, opened, rows_of, running


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has much else to do changes nothing."""
    monkeypatch.setattr("service.engine.writer._SHORT", 1e9)
    monkeypatch.setattr("service.engine.writer._TICK", 1e6)
    monkeypatch.setattr("service.engine.housekeeping._RATE", 1e9)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, synchronous="normal")
    ready(engine)
    yield engine
    engine.close()


class Watched:
    """Which threads have gathered how many rows of which sign for the feeds, and how many rows were told to a caller's thread at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gathered: list[tuple[str, int, int]] = []
        delta = Collector.delta

        def noted(collector: Collector, *given: Any) -> Delta | None:
            made = delta(collector, *given)
            deletes = sum(made.deletes) if made is not None else 0
            self.gathered.append((threading.current_thread().name, deletes, made.rows - deletes if made is not None else 0))
            return made

        monkeypatch.setattr(Collector, "delta", noted)

    def take(self) -> list[tuple[str, int, int]]:
        taken, self.gathered = self.gathered, []
        return taken


def settled(engine: Instance, feed: Feed, published: int) -> None:
    def pieces() -> None:
        while feed.housekeep(published, True):
            pass

    engine.at_rest(pieces)


def left(engine: Instance, sent: Batch) -> Receipt:
    """The answer to a change that was applied here and turned out to be large, once the thread has published it."""
    ready(engine)
    made, answers = engine.apply_at_once(sent), []
    assert isinstance(made, Unpublished)
    assert engine.apply_at_once(single(0)) is None, "it still has the turn"
    done = threading.Event()
    made.leave(lambda answer: (answers.append(answer), done.set()))  # type: ignore[func-returns-value]
    assert done.wait(60)
    ready(engine)
    (answer,) = answers
    assert isinstance(answer, Receipt)
    return answer


def test_a_large_delta_is_gathered_by_the_thread(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """One change with 900,000 partners held the event loop for 0.3 s."""
    many = 3 * _MOST_ROWS
    in_turn(engine, batch(("upsert", "b", rows_of(0, many))))
    feed = cast(Feed, engine.view("v").feed)
    follower = feed.subscribe()
    watched, me = Watched(monkeypatch), threading.current_thread().name
    assert left(engine, single(1)) == Receipt(2, 1, 0, 0, [], False)
    assert watched.take() == [("writer", 0, many)] and engine.published.number == 2
    assert left(engine, single(1, 500)).version == 3
    assert watched.take() == [("writer", 0, 0)], "the rows of the view are what they were"
    assert isinstance(engine.apply_at_once(single(1, 500, "other")), Receipt), "nor does the view look at them"
    assert left(engine, single(1, 10_000)).version == 5
    assert watched.take()[-1] == ("writer", many, 0)
    settled(engine, feed, 5)
    assert left(engine, single(1)).version == 6 and left(engine, of_ops("a", ("delete", 1))).version == 7
    watched.take()
    settled(engine, feed, 7)
    assert isinstance(engine.apply_at_once(single(2, 10_000)), Receipt) and watched.take() in ([], [(me, 0, 0)])
    sums: dict[tuple[int, str], int] = {}
    for chunk in follower.next(0.0):
        if chunk.rows is not None:
            sums[chunk.version, chunk.op] = sums.get((chunk.version, chunk.op), 0) + chunk.rows.num_rows
    assert sums == {(2, "insert"): many, (5, "delete"): many, (6, "insert"): many, (7, "delete"): many}
    check(engine)


_STRICT = {
    "pair": "FROM a p JOIN b q ON overlaps(p.x, q.x)",
    "keyed": "FROM a p JOIN b q ON p.tag = q.tag AND overlaps(p.x, q.x)",
    "of itself, once": "FROM a p JOIN a q ON overlaps(p.x, q.x) AND p.id < q.id",
    "of itself": "FROM a p JOIN a q ON overlaps(p.x, q.x) AND p.id <> q.id",
    "clique": "FROM a p JOIN a q ON overlaps(p.x, q.x) JOIN a r ON overlaps(p.x, r.x) AND overlaps(q.x, r.x)",
    "path with one relation twice": "FROM a p JOIN b q ON overlaps(p.x, q.x) JOIN a r ON overlaps(q.x, r.x)",
    "star": "FROM a p JOIN b q ON p.tag = q.tag JOIN b r ON p.tag = r.tag",
}
_TURNED = {  # a row of b makes rows of a others
    "left": "FROM a p LEFT JOIN b q ON overlaps(p.x, q.x)",
    "left, keyed": "FROM a p LEFT JOIN b q ON p.tag = q.tag",
    "semi": "FROM a p SEMI JOIN b o ON overlaps(p.x, o.x)",
    "anti": "FROM a p WHERE NOT EXISTS (SELECT 1 FROM b o WHERE o.tag = p.tag AND overlaps(p.x, o.x))",
}
_AS_OF = {
    "as of": "FROM a p ASOF LEFT JOIN b q ON p.tag = q.tag AND q.s <= p.s",
    "as of, with a condition on others": "FROM a p ASOF JOIN b q ON q.s < p.s WHERE p.tag = 'x'",
    "as of itself": "FROM a p ASOF JOIN a q ON p.tag = q.tag AND q.s < p.s",
    "as of itself, what follows": "FROM a p ASOF LEFT JOIN a q ON q.s > p.s",
}


def add_up(follower: Subscription, rows: Counter[tuple[Any, ...]]) -> None:
    """What there is to follow, into the rows that the view has had before."""
    for chunk in chain.from_iterable(iter(partial(follower.next, 0.0), [])):
        if chunk.rows is not None:
            for row in chunk.rows.to_pylist():
                rows[tuple(row.values())] += 1 if chunk.op == "insert" else -1


@pytest.mark.parametrize("name", [*_STRICT, *_TURNED, *_AS_OF])
def test_what_is_gathered_later_is_what_has_changed(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.writer._MOST_ROWS", 1)
    monkeypatch.setattr("service.views.live_view.FEW", 0)
    source = (_STRICT | _TURNED | _AS_OF)[name]
    aliases = [alias for alias in "pqr" if f" {alias} " in source + " "]
    columns = ", ".join(f"{alias}.id AS {alias}id, {alias}.e AS {alias}e" for alias in aliases)
    engine = running(tmp_path, {"sql": f"SELECT {columns} {source}"}, synchronous="normal")
    first = rows_of(0, 6, 600, tag="x") if name in _AS_OF else rows_of(0, 3, tag="x")
    in_turn(engine, batch(("upsert", "a", first), ("upsert", "b", rows_of(0, 3, tag="x"))))
    prompt = [relation for relation in "ab" if engine.view("v").is_prompt(relation)]
    assert prompt == (["a"] if name in _TURNED else ["a", "b"])
    chance, rows, large = random.Random(name), Counter[tuple[Any, ...]](), 0
    follower = cast(Feed, engine.view("v").feed).subscribe(snapshot=True)
    for step in range(30):
        relation, id_ = chance.choice("ab"), chance.randrange(6)
        sent = of_ops(relation, ("delete", id_))
        if chance.random() < 0.7:
            changed = rows_of(id_, 1, chance.choice((0, 500, 5000)), tag=chance.choice("xxy"))
            sent = batch(("upsert", relation, changed))
        receipt = engine.apply_at_once(sent)
        if isinstance(receipt, Unpublished):
            large += 1
            receipt.leave(lambda answer: None)
        elif receipt is None:
            assert relation == "b" and name in _TURNED
            engine.apply(sent)
        ready(engine)
        add_up(follower, rows)
        assert rows == Counter(ids(open_rows(engine.readers, "v"))), step
    assert large > 3 or name in ("semi", "anti") or (large and name in _AS_OF)  # where a row is in one row
    check(engine)
    engine.close()


def test_a_shutdown_finds_what_is_left(tmp_path: Path) -> None:
    engine = running(tmp_path, synchronous="normal")
    in_turn(engine, batch(("upsert", "b", rows_of(0, 2 * _MOST_ROWS))))
    made = engine.apply_at_once(single(1))
    assert isinstance(made, Unpublished) and engine.published.number == 1
    engine.close()
    assert engine.published.number == 2
    answers: list[Receipt | Problem] = []
    made.leave(answers.append)
    assert answers == [Receipt(2, 1, 0, 0, [], False)]
    engine = opened(tmp_path)
    assert starts(engine) == {1: 0}
    engine.close()


def test_a_change_of_many_views_is_left_to_the_thread(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.writer._MOST_VIEWS", 2)
    for name in ("w", "x"):
        assert isinstance(engine.apply_at_once(single(1)), Receipt)
        filtered = {"sql": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON overlaps(a.x, b.x) WHERE a.tag = 'yes'"}
        engine.put_view(name, filtered if name == "x" else PAIR, wait=60)
        ready(engine)
    assert isinstance(engine.apply_at_once(single(2)), Receipt), "the filter of one excludes it"
    before = engine.published.number
    assert engine.apply_at_once(single(2, tag="yes")) is None and engine.published.number == before
    assert in_turn(engine, single(2, tag="yes")).version == before + 1


@pytest.mark.parametrize(
    "source",
    [
        "FROM a p LEFT JOIN b q ON p.id = q.s",
        "FROM a p FULL JOIN b q ON p.id = q.s",
        "FROM a p WHERE NOT EXISTS (SELECT 1 FROM b q WHERE q.s = p.id)",
        "FROM a p SEMI JOIN b q ON p.id = q.s",
    ],
)
def test_a_partner_is_followed_behind_a_view_with_many_rows(tmp_path: Path, source: str) -> None:
    """Seen: where another view had used up the rows that are told at once, those that a partner turned were never told."""
    pairs = "SELECT q.id AS i, r.id AS j FROM b q JOIN b r ON overlaps(q.x, r.x) AND q.id < r.id"
    engine = running(tmp_path, {"sql": pairs}, synchronous="normal")
    engine.put_view("w", {"sql": f"SELECT p.id AS i {source}"}, wait=60)
    in_turn(engine, batch(("upsert", "a", rows_of(77, 1)), ("upsert", "b", rows_of(1000, 1500, 3))))
    ready(engine)
    follower, rows = cast(Feed, engine.view("w").feed).subscribe(snapshot=True), Counter[tuple[Any, ...]]()
    later = 0
    for sent in (batch(("upsert", "b", rows_of(5, 1, 77))), of_ops("b", ("delete", 5))):
        receipt = engine.apply_at_once(sent)
        if isinstance(receipt, Unpublished):
            later += 1
            receipt.leave(lambda answer: None)
        elif receipt is None:
            engine.apply(sent)
        ready(engine)
        add_up(follower, rows)
        reader = open_rows(engine.readers, "w")
        parts = iter(partial(reader.read, 1000), None)
        assert +rows == Counter(tuple(row.values()) for part in parts for row in part.to_pylist()) and min(rows.values(), default=0) >= 0
        reader.close()
    assert later, "the first view has more rows than are told at once"
    engine.close()


@pytest.mark.parametrize(
    ("sql", "prompt"),
    [
        ("SELECT p.id AS id, COUNT(*) AS n FROM a p JOIN b q ON overlaps(p.x, q.x) GROUP BY p.id", "a"),
        ("SELECT p.id AS id, COUNT(*) AS n FROM a p JOIN b q ON p.id = q.s AND overlaps(p.x, q.x) GROUP BY p.id", "ab"),
        ("SELECT COUNT(*) AS n FROM a p JOIN b q ON overlaps(p.x, q.x)", "ab"),
        ("SELECT p.id, q.id FROM a p FULL JOIN b q ON overlaps(p.x, q.x)", ""),
        ("SELECT p.id, q.id FROM a p FULL JOIN b q ON p.id = q.id", "ab"),
        ("SELECT p.id, q.id FROM a p FULL JOIN b q ON p.id = q.s", "b"),
        ("SELECT p.id, q.id FROM a p LEFT JOIN a q ON p.e = q.s", "b"),
        ("SELECT p.id, q.id FROM a p LEFT JOIN b q ON p.id = q.s", "ab"),
        ("SELECT p.id FROM a p WHERE NOT EXISTS (SELECT 1 FROM b q WHERE q.s = p.id AND overlaps(p.x, q.x))", "ab"),
        ("SELECT p.id, q.id FROM a p ASOF JOIN a q ON q.s <= p.e", "ab"),
        ("SELECT p.id, q.id FROM a p ASOF JOIN b q ON q.s <= p.e WHERE q.tag = 'x'", "a"),
        ("SELECT p.id, q.id FROM a p ASOF JOIN b q ON p.id = q.id AND q.s <= p.e WHERE q.tag = 'x'", "ab"),
        ("SELECT p.id, gaps(p.x, q.x) AS free FROM a p LEFT JOIN b q ON overlaps(p.x, q.x)", ""),
        ("SELECT p.id FROM a p LEFT JOIN b q ON overlaps(p.x, q.x) AND p.s < q.e", ""),
    ],
)
def test_who_turns_many_others_is_left_to_the_thread(tmp_path: Path, sql: str, prompt: str) -> None:
    """Whose whole key is joined is one; of others there are few as long as their relation has no more rows."""
    engine = running(tmp_path, {"sql": sql}, synchronous="normal")
    in_turn(engine, batch(("upsert", "a", rows_of(0, FEW + 1)), ("upsert", "b", rows_of(0, FEW + 1))))
    view = engine.view("v")
    settled(engine, cast(Feed, view.feed), 1)
    assert [relation for relation in "ab" if view.is_prompt(relation)] == list(prompt)
    in_turn(engine, batch(("delete", "a", rows_of(0, 1)), ("delete", "b", rows_of(0, 1))))
    settled(engine, cast(Feed, view.feed), 2)
    promised = view.view.plan.guarantee == "strict" and view.view.plan.shape != "outer"
    assert [relation for relation in "ab" if view.is_prompt(relation)] == (["a", "b"] if promised else [])
    engine.close()


@pytest.mark.parametrize(
    "source", ["FROM a p LEFT JOIN b q ON p.id = q.s", "FROM a p SEMI JOIN b q ON p.id = q.s", "FROM a p ASOF JOIN b q ON q.s <= p.s"]
)
def test_a_prompt_change_takes_as_many_steps_among_many_rows(tmp_path: Path, source: str) -> None:
    """One of a partner: those of its structure, and those of the row that it turns; what is told of more is read later."""
    steps = dict[int, float]()
    for many in (200, 20_000):
        engine = running(tmp_path / str(many), {"sql": f"SELECT p.id AS id {source}"}, synchronous="normal")
        in_turn(engine, batch(("upsert", "a", rows_of(0, many)), ("upsert", "b", rows_of(0, many))))
        view = engine.view("v")
        before = view.join.update_steps
        for start in (7, 11, 7):
            receipt = engine.apply_at_once(batch(("upsert", "b", rows_of(many, 1, start))))
            assert receipt is not None
            steps[many] = view.join.update_steps - before
            if isinstance(receipt, Unpublished):
                receipt.leave(lambda answer: None)
            ready(engine)
        check(engine)
        engine.close()
    assert steps[20_000] <= 4 * steps[200] + 100, steps
