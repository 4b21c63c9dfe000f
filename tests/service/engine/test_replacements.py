"""Views that get another definition: with those that read them, in one version of their own."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_rows
from service.reading.held import begin_reading
from tests.service.engine.test_replays import Gate, Restarted
from tests.service.engine.test_stored_views import REFUSED, check_tables, compare, drawn
from tests.service.random_graphs import RELATIONS, Graph, Node, Rows
from tests.service.running import batch, check, ids, keep_house, kill, look, of_ops, opened, parts, rows_of, running
from tests.service.views.test_random_sql import Added
from tests.waiting import until

JOINED = "SELECT a.id AS i, b.id AS j FROM a JOIN b ON overlaps(a.x, b.x)"
GROUPS = "SELECT v.i, count(*) AS n FROM v GROUP BY v.i"


def replaced(engine: Instance, name: str, text: str, **options: Any) -> None:
    assert engine.put_view(name, {"sql": text, **options}, wait=60, replace=True)[1] == "replaced"


def shown(engine: Instance, name: str) -> list[tuple[Any, ...]]:
    return ids(open_rows(engine.readers, name))


def wait_for_snapshot(engine: Instance) -> None:
    until(lambda: look(engine) or all(engine.snapshots._version >= view.since for view in engine.views.values()))


def filled(folder: Path) -> Instance:
    engine = running(folder, {})
    engine.put_view("v", {"sql": JOINED}, wait=60)
    engine.put_view("w", {"sql": GROUPS}, wait=60)
    engine.apply(batch(("insert", "a", rows_of(0, 4)), ("insert", "b", rows_of(0, 3))))
    return engine


def test_followers_get_the_difference(tmp_path: Path) -> None:
    """Of the view, and of one that reads it, in one version; changes meanwhile and later are not lost."""
    engine = filled(tmp_path)
    added = {name: Added(engine, name) for name in ("v", "w")}
    for one in added.values():
        one.catch_up()
    before = engine.published.number
    replaced(engine, "v", f"{JOINED} WHERE a.id > 1")
    assert engine.published.number == before + 1
    assert added["v"].catch_up() == 6 and added["w"].catch_up() == 2
    assert shown(engine, "v") == sorted(added["v"].rows.values()) == [(i, j) for i in (2, 3) for j in range(3)]
    assert shown(engine, "w") == sorted(added["w"].rows.values()) == [(2, 3), (3, 3)]
    engine.apply(of_ops("b", ("delete", 0)))
    replaced(engine, "v", JOINED)
    for name, one in added.items():
        one.catch_up()
        assert shown(engine, name) == sorted(one.rows.values())
    assert shown(engine, "w") == [(i, 2) for i in range(4)]
    assert engine.views["v"].view.definition == {"sql": JOINED}
    check(engine)
    engine.close()


def test_soon_after_another(tmp_path: Path) -> None:
    """The difference is read at once, not when the writer looks after feeds, which is once a second."""
    engine = filled(tmp_path)
    began = time.monotonic()
    for least in range(20):
        replaced(engine, "v", f"{JOINED} WHERE a.id > {least}")
    assert time.monotonic() - began < 10
    engine.close()


def test_the_same_definition_changes_nothing(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    before = engine.published.number
    assert engine.put_view("v", {"sql": f"{JOINED}  -- again"}, replace=True)[1] == "same"
    assert engine.published.number == before
    assert engine.put_view("new", {"sql": "SELECT a.id FROM a"}, wait=60, replace=True)[1] == "created"
    engine.close()


def test_earlier_versions_have_the_former_definition(tmp_path: Path) -> None:
    """Cursors, readings in parts, and versions that they hold."""
    engine = filled(tmp_path)
    reader = open_rows(engine.readers, "v")
    first = reader.read(5)
    assert first is not None
    cursor, version, held = reader.token(), reader.version, begin_reading(engine.readers, engine.views["v"], 2, 60, None, "a test")[1]
    replaced(engine, "v", "SELECT a.id AS i, a.tag AS tag FROM a")
    engine.apply(of_ops("a", ("delete", 0), ("delete", 1)))
    keep_house(engine)
    rest = ids(open_rows(engine.readers, "v", cursor=cursor))
    every = [(i, j) for i in range(4) for j in range(3)]
    assert sorted([*(tuple(row.values()) for row in first.to_pylist()), *rest]) == every
    assert ids(open_rows(engine.readers, "v", version=version)) == every
    assert sorted(row for one in held for row in ids(open_rows(engine.readers, "v", cursor=one))) == every
    assert [row[0] for row in shown(engine, "v")] == [2, 3]
    reader.close()
    engine.close()


def test_other_columns(tmp_path: Path) -> None:
    """Followers are told to start again; those of a view whose columns stay are not."""
    engine = filled(tmp_path)
    follower, other = Added(engine, "v"), Added(engine, "w")
    follower.catch_up()
    other.catch_up()
    token = follower.subscription.idle_progress().token
    replaced(engine, "v", "SELECT a.id AS i, a.tag AS tag FROM a WHERE a.id < 3")
    (chunk,) = follower.subscription.next()
    assert chunk.problem is not None and chunk.problem.type == "token-expired"
    assert "has replaced the definition of the view v" in chunk.problem.detail
    with pytest.raises(Problem, match="no longer kept"):
        follower.subscribe(engine, token)
    again = Added(engine, "v")
    again.catch_up()
    assert sorted(again.rows.values()) == shown(engine, "v") == [(i, None) for i in range(3)]
    other.catch_up()
    assert sorted(other.rows.values()) == [(i, 1) for i in range(3)]
    engine.close()


def test_followers_end_once_the_new_definition_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that starts again at once gets a snapshot of the new definition, and what comes after it."""
    engine = filled(tmp_path)
    feed, again = engine.views["v"].feed, list[Added]()
    assert feed is not None
    monkeypatch.setattr(feed, "close", lambda problem: again.append(Added(engine, "v")))
    replaced(engine, "v", "SELECT a.id AS i, a.tag AS tag FROM a WHERE a.id < 3")
    engine.apply(of_ops("a", ("delete", 0)))
    again[0].catch_up()
    assert sorted(again[0].rows.values()) == shown(engine, "v") == [(1, None), (2, None)]
    engine.close()


def test_more_columns(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    follower = Added(engine, "v")
    follower.catch_up()
    replaced(engine, "v", JOINED.replace(" FROM", ", a.tag AS tag FROM"))
    (chunk,) = follower.subscription.next()
    assert chunk.problem is not None and chunk.problem.type == "token-expired"
    engine.close()


def test_a_definition_that_is_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its stored query is built: another one is built for the next definition. The same request again waits for the first."""
    engine, gate = filled(tmp_path), Gate(monkeypatch)
    gate.open.clear()
    text = "SELECT g.s AS i, g.n AS j FROM (SELECT a.s AS s, count(*) AS n FROM a GROUP BY a.s) g JOIN b ON b.id = g.n WHERE g.n > {}"
    engine.put_view("v", {"sql": text.format(9)}, wait=0.1, replace=True)
    first = parts(engine).state.stored
    engine.put_view("v", {"sql": text.format(0)}, wait=0.1, replace=True)
    assert first.keys() == parts(engine).state.stored.keys() and first != parts(engine).state.stored
    found = engine.replacements.of("v")
    assert found is not None and engine.registrations.replace("v", {"sql": text.format(0)}).result()[1] is found.future
    gate.open.set()
    assert found.future.result(60) is None
    engine.apply(of_ops("a", ("delete", 0)))
    (view,) = parts(engine).state.stored.values()
    assert view.relation.table.rows == 1
    check_tables(engine)
    engine.close()


def test_columns_that_may_be_null(tmp_path: Path) -> None:
    """Whoever has planned with columns that are never null must start again, also if all have the same names and types."""
    engine = filled(tmp_path)
    follower = Added(engine, "v")
    follower.catch_up()
    replaced(engine, "v", JOINED.replace("JOIN", "LEFT JOIN"))
    (chunk,) = follower.subscription.next()
    assert chunk.problem is not None and chunk.problem.type == "token-expired"
    again = Added(engine, "v")
    again.catch_up()
    replaced(engine, "v", JOINED)
    again.catch_up()
    assert sorted(again.rows.values()) == shown(engine, "v")
    engine.close()


@pytest.mark.parametrize("kills", [True, False])
def test_restarts(tmp_path: Path, kills: bool) -> None:
    """Tokens from before it never mean the new definition, and are valid once there is a snapshot, as there soon is; those after it are."""
    engine = filled(tmp_path)
    added = Added(engine, "w")
    added.catch_up()
    before = added.subscription.idle_progress().token
    replaced(engine, "v", f"{JOINED} WHERE a.id > 1")
    added.catch_up()
    engine.apply(of_ops("b", ("delete", 0)))
    added.catch_up()
    after = added.subscription.idle_progress().token
    engine.apply(of_ops("b", ("delete", 1)))
    if not kills:
        wait_for_snapshot(engine)
    kill(engine)
    engine = opened(tmp_path)
    assert engine.views["v"].view.definition == {"sql": f"{JOINED} WHERE a.id > 1"}
    assert shown(engine, "w") == [(2, 1), (3, 1)]
    added.subscribe(engine, after)
    added.catch_up()
    assert sorted(added.rows.values()) == shown(engine, "w")
    if kills:
        with pytest.raises(Problem, match="no longer kept"):
            added.subscribe(engine, before)
    else:
        added.rows = {(i,): (i, 3) for i in range(4)}
        added.subscribe(engine, before)
        added.catch_up()
        assert sorted(added.rows.values()) == shown(engine, "w")
    engine.close()


def test_refused(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    engine.put_view("x", {"sql": "SELECT w.n FROM w"}, wait=60)
    before = engine.published
    for text, said in (
        ("SELECT x.n AS i FROM x", "a view that reads itself: v reads x reads w reads v is not supported"),
        ("SELECT v.i FROM v", "a view that reads itself: v reads v is not supported"),
        ("SELECT a.id AS k FROM a", "the view w, which reads it, would be refused"),
    ):
        with pytest.raises(Problem) as caught:
            engine.put_view("v", {"sql": text}, replace=True)
        assert caught.value.type == "unsupported-query" and said in caught.value.detail, caught.value.detail
    assert engine.published is before and engine.views["v"].view.definition == {"sql": JOINED}
    assert not parts(engine).state.incoming
    engine.close()


def test_a_build_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former views stay, and say why."""
    engine = filled(tmp_path)
    monkeypatch.setattr("service.views.stored._MOST", 1)
    text = "SELECT g.s AS i, g.n AS j FROM (SELECT a.id AS s, count(*) AS n FROM a GROUP BY a.id) g JOIN b ON b.id = g.n"
    with pytest.raises(Problem, match="too many to be stored"):
        engine.put_view("v", {"sql": text}, wait=60, replace=True)
    found = engine.replacements.of("v")
    assert found is not None and found.problem is not None
    state = parts(engine).state
    assert not state.incoming and not state.stored and engine.views["v"].view.definition == {"sql": JOINED}
    engine.apply(of_ops("b", ("delete", 0)))
    assert len(shown(engine, "v")) == 8
    replaced(engine, "v", f"{JOINED} WHERE a.id > 1")
    assert engine.replacements.of("v") is None
    engine.close()


def test_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the new views are built, the former ones are read, and what they need cannot be dropped; it can be cancelled."""
    engine, gate = filled(tmp_path), Gate(monkeypatch)
    engine.put_view("other", {"sql": "SELECT b.id FROM b"}, wait=60)
    gate.open.clear()
    _, state = engine.put_view("v", {"sql": f"{JOINED} WHERE a.id > 1"}, wait=0.1, replace=True)
    assert state == "building" and (found := engine.replacements.of("w")) is not None and found.problem is None
    engine.apply(of_ops("a", ("delete", 0)))
    assert len(shown(engine, "v")) == 9
    with pytest.raises(Problem, match="the view v is read by w: drop this view first"):
        engine.drop_view("v")
    for refused in (
        lambda: engine.put_view("other", {"sql": "SELECT b.id AS i FROM b"}, replace=True),
        lambda: engine.put_view("y", {"sql": "SELECT v.i FROM v"}),
    ):
        with pytest.raises(Problem, match="the view v is being replaced"):
            refused()
    assert engine.put_view("v", {"sql": JOINED}, replace=True)[1] == "same"
    assert engine.replacements.of("w") is None and not parts(engine).state.incoming
    engine.put_view("v", {"sql": "SELECT b.id AS i FROM b"}, wait=0.1, replace=True)
    engine.put_view("v", {"sql": f"{JOINED} WHERE a.id > 2"}, wait=0.1, replace=True)
    gate.open.set()
    found = engine.replacements.of("v")
    if found is not None:
        assert found.future.result(60) is None
    assert shown(engine, "v") == [(3, j) for j in range(3)] and shown(engine, "w") == [(3, 3)]
    engine.close()


def test_drops_cancel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, gate = filled(tmp_path), Gate(monkeypatch)
    gate.open.clear()
    engine.put_view("v", {"sql": "SELECT b.id AS i FROM b"}, wait=0.1, replace=True)
    with pytest.raises(Problem, match="the relation b is used by v"):
        engine.drop_relation("b")
    engine.drop_view("w")
    assert not parts(engine).state.incoming
    engine.drop_view("v")
    gate.open.set()
    engine.drop_relation("b")
    assert not engine.views
    engine.close()


def another(graph: Graph, node: Node) -> str:
    """Another text for a view, with its columns."""
    rng, before = graph.random, graph.nodes[: graph.nodes.index(node)]
    if rng.random() < 0.5:
        return f"SELECT * FROM ({graph.texts[node.name]}) q WHERE q.{node.numbers[0]} > {rng.randrange(3)}"
    x = rng.choice([one for one in before if one.texts or not node.texts])
    columns = [f"x.{rng.choice(x.numbers)} AS {one}" for one in node.numbers] + [f"x.{rng.choice(x.texts)} AS {one}" for one in node.texts]
    return f"SELECT {', '.join(columns)} FROM {x.name} x WHERE {graph._condition(x, 'x')}"


CASES = [(0, 9), (1, 9), *(pytest.param(seed, 12, marks=pytest.mark.soak) for seed in range(200))]


@pytest.mark.parametrize(("seed", "count"), CASES)
def test_duckdb_confirms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int) -> None:
    """Random graphs, of which views are replaced while batches come, over restarts and kills."""
    print("seed", seed)
    rng, gate = random.Random(seed), Gate(monkeypatch)
    engine, graph, rows = opened(tmp_path), Graph(rng), Rows(rng)
    for name, definition in RELATIONS.items():
        engine.put_relation(name, definition)
    for _ in range(4):
        engine.apply(rows.batch(False))
    drawn(engine, graph, count)
    added = {name: Added(engine, name) for name in graph.texts}
    restarted, said = Restarted(tmp_path, gate), Counter[str]()
    for step in range(16):
        node = rng.choice(graph.nodes[len(RELATIONS) :])
        text, apply = another(graph, node), threading.Thread(target=engine.apply, args=(rows.batch(rng.random() < 0.5),))
        for one in added.values():
            one.catch_up()
        apply.start()
        try:
            done = engine.put_view(node.name, {"sql": text}, wait=60, replace=True)[1]
            graph.texts[node.name] = text
            said[done] += 1
        except Problem as problem:
            assert problem.type in REFUSED, (problem, text)
            said["refused"] += 1
        apply.join()
        for name, one in added.items():
            chunks = one.subscription.next()
            if chunks and chunks[-1].problem is not None:
                assert chunks[-1].problem.type == "token-expired"
                added[name] = Added(engine, name)
                said["restarted"] += 1
            else:
                one.take(chunks)
        compare(engine, graph, rows, added)
        check_tables(engine)
        if step % 4 == 3:
            tokens = {name: one.subscription.idle_progress().token for name, one in added.items()}
            engine = restarted.begin(engine, rng.random() < 0.5)
            restarted.end()
            for name, one in added.items():
                one.subscribe(engine, tokens[name])
            compare(engine, graph, rows, added)
        keep_house(engine)
    print(said)
    assert said["replaced"]
    check(engine)
    engine.close()
