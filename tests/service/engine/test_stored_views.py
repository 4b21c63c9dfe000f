"""Stored views: random graphs of views, compared with DuckDB after each batch, as is what followers were sent, through truncates, runs of
single changes, and starts at which others write."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from livejoin.wire.batch import Batch
from service.engine import cascade, truncates
from service.engine.outcomes import Receipt
from service.errors import Problem
from service.instance import Instance
from service.views import live_view, stored
from service.views.joins.reading_join import ReadingJoin
from tests.service.engine.test_replays import Gate, Restarted
from tests.service.random_graphs import RELATIONS, Graph, Rows
from tests.service.running import batch, check, keep_house, of_ops, opened, parts, rows_of, running
from tests.service.twin import values
from tests.service.views.test_random_sql import Added
from tests.service.views.test_random_sql import rows_of as all_rows_of


@pytest.fixture(autouse=True)
def memory_returns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Engines are freed, with the address space of their structures: a thousand graphs need more than there is."""
    monkeypatch.setattr(gc, "freeze", lambda: None)
    yield
    gc.collect()


REFUSED = ("unsupported-query", "infeasible-view", "bad-query")


def drawn(engine: Instance, graph: Graph, count: int) -> Counter[str]:
    """Register so many views; return what was said of others."""
    said = Counter[str]()
    while len(graph.texts) < count:
        text, node = graph.draw()
        try:
            engine.put_view(node.name, {"sql": text}, wait=60)
        except Problem as problem:
            assert problem.type in REFUSED, (problem, text)
            said[str(problem.detail)] += 1
            continue
        graph.add(text, node)
    return said


def compare(engine: Instance, graph: Graph, rows: Rows, added: dict[str, Added]) -> None:
    other = rows.in_duckdb(graph.texts)
    for name, text in graph.texts.items():
        view = engine.views[name]
        assert view.state == "live", (text, view.problem)
        ours = [values(row) for row in all_rows_of(engine, name)]
        theirs = [values(dict(enumerate(row))) for row in other.execute(f"SELECT * FROM {name}").fetchall()]
        assert Counter(ours) == Counter(theirs), text
        if name in added:
            added[name].catch_up()
            assert Counter(added[name].rows.values()) == Counter(ours), text
    other.close()


def submit(engine: Instance, batches: list[Batch]) -> None:
    """Submit batches that wait together."""
    answers, all_there = list[Any](), threading.Semaphore(0)

    def answered(answer: Receipt | Problem) -> None:
        answers.append(answer)
        all_there.release()

    for one in batches:
        engine.submit(one, answered)
    for _ in batches:
        assert all_there.acquire(timeout=60)
    assert all(isinstance(answer, Receipt) for answer in answers), answers


def check_tables(engine: Instance) -> None:
    """The table of each stored view has the rows of its structures."""

    def look() -> None:
        for one in parts(engine).state.stored.values():
            one.join.check()
            one.relation.table.check()
            cursor, found = one.join.rows(one.join.root, None), Counter[Any]()
            while not cursor.done:
                slots = cursor.fill(100)
                if len(slots[0]):
                    found.update(map(values, one._rows(slots).to_pylist()))
            stored = one.relation.table.take(one.relation.schema.names, one.relation.table.scan(1 << 60, 0, 1 << 20)[0])
            assert found == Counter(map(values, stored.to_pylist())), one.view.definition

    engine.at_rest(look)


def test_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view that reads them fails, and only it; a start tries again."""
    monkeypatch.setattr(stored, "_MOST", 3)
    engine = running(tmp_path, {})
    text = {"sql": "SELECT x.tag, b.id FROM (SELECT tag, count(*) AS n FROM a GROUP BY tag) x JOIN b ON b.id = x.n"}
    engine.put_view("few", text, wait=60)
    engine.put_view("other", {"sql": "SELECT a.id FROM a WHERE a.id > 1"}, wait=60)
    for tag in range(5):
        engine.apply(batch(("upsert", "a", rows_of(tag, 1, tag=str(tag)))))
    assert engine.views["few"].state == "failed" and "too many to be stored" in str(engine.views["few"].problem)
    assert engine.views["other"].state == "live"
    engine.apply(of_ops("a", ("delete", 0), ("delete", 1)))
    engine.close()
    engine = opened(tmp_path)
    assert engine.views["few"].state == "live"
    engine.close()


CASES = [*((seed, 9) for seed in range(30)), *(pytest.param(seed, 14, marks=pytest.mark.soak) for seed in range(1000))]


@pytest.mark.parametrize(("seed", "count"), CASES)
def test_duckdb_confirms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int) -> None:
    print("seed", seed)
    rng, gate = random.Random(seed), Gate(monkeypatch)
    monkeypatch.setattr(truncates, "_WORTH", 4)
    engine, graph, rows = opened(tmp_path), Graph(rng), Rows(rng)
    for name, definition in RELATIONS.items():
        engine.put_relation(name, definition)
    for _ in range(6):
        engine.apply(rows.batch(False))
    print(drawn(engine, graph, count))
    assert parts(engine).state.stored
    added = {name: Added(engine, name) for name in graph.texts}
    restarted = Restarted(tmp_path, gate)
    for step in range(12):
        if step % 4 == 1:
            submit(engine, [rows.batch(True) for _ in range(rng.randrange(2, 20))])
        else:
            engine.apply(rows.batch(rng.random() < 0.5, truncates=rng.random() < 0.1))
        compare(engine, graph, rows, added)
        check_tables(engine)
        if step % 4 == 3:
            tokens = {name: one.subscription.idle_progress().token for name, one in added.items()}
            engine = restarted.begin(engine, rng.random() < 0.5)
            for _ in range(rng.randrange(3)):  # while nothing is live
                engine.apply(rows.batch(rng.random() < 0.5))
            restarted.end()
            for name, one in added.items():
                one.subscribe(engine, tokens[name])
            compare(engine, graph, rows, added)
        keep_house(engine)
    check(engine)
    for name in reversed(graph.texts):
        engine.drop_view(name)
    assert not parts(engine).state.stored and not engine.views
    engine.close()


def test_indexes_of_its_own_are_no_reason_to_rebuild_it(tmp_path: Path) -> None:
    """A view that reads stored rows never shares indexes: once it was rebuilt every second, as after a replay."""
    engine = running(tmp_path, {})
    grouped = "(SELECT s, count(*) AS n FROM a GROUP BY s)"
    engine.put_view("v", {"sql": f"SELECT a.id, g.n FROM a JOIN {grouped} g ON g.s = a.s"}, wait=60)
    engine.put_view("w", {"sql": f"SELECT g.n, count(*) AS m FROM a JOIN {grouped} g ON g.s = a.s GROUP BY g.n"}, wait=60)
    for restarted in (False, True):
        if restarted:
            engine.close()
            engine = opened(tmp_path)
            engine.put_view("v", {"sql": engine.views["v"].view.definition["sql"]}, wait=60)
            engine.put_view("w", {"sql": engine.views["w"].view.definition["sql"]}, wait=60)
        engine.apply(batch(("upsert", "a", rows_of(0, 4))))
        assert isinstance(engine.views["v"].join, ReadingJoin)
        assert not [one.name for one in parts(engine).state.maintained if one.is_outgrown(engine.published.number)]
    engine.close()


def test_the_cost_of_a_changed_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that ticks whenever it is read: to follow a version takes a second, and to store what follows from it another one."""
    engine = running(tmp_path, {})
    engine.put_view("v", {"sql": "SELECT a.id, g.n FROM a JOIN (SELECT s, count(*) AS n FROM a GROUP BY s) g ON g.s = a.s"}, wait=60)
    engine.put_view("w", {"sql": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON overlaps(a.x, b.x)"}, wait=60)
    (group,) = parts(engine).state.stored.values()
    ticks = count()
    for module in (live_view, cascade):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    engine.apply(batch(("insert", "a", rows_of(0, 4))))
    assert engine.views["v"].costs == {"a": 1 / 5, group.name: 1 / 5}, "four rows, and that of their group"
    assert group.costs == {"a": (1 + 1) / 4}
    assert engine.views["w"].costs == {"a": 1 / 4, "b": None}
    engine.apply(batch(("insert", "a", rows_of(4, 1)), ("insert", "b", rows_of(0, 3))))
    assert engine.views["w"].costs == {"a": (1 + 1 / 4) / 5, "b": (3 / 4) / 3}
    engine.close()
