"""Acyclic natural joins by TreeTracker over shared indexes: the engine's twin, sharing, look-ups, counters, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, UPSERT
from service.access.access_token import EVERYONE
from service.api.views import _explain as explained
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.joins.reading_join import TreeTrackerJoin
from service.views.parse import parse_view
from tests.service.definitions import refused
from tests.service.engine.test_engine import prepared, read_all, run
from tests.service.running import check, look, parts
from tests.service.twin import DEFINITIONS, TwinView, to_batch
from tests.service.views.joins.test_qdag_join import view
from tests.service.views.joins.test_view_tree_join import HIERARCHICAL, U, a, b, compare_two

TRACKED = {"algorithm": "tree-tracker"}
PATH = [("x.room", "y.room"), ("y.floor", "z.floor")]
ABA, ABBA = {"x": "a", "y": "b", "z": "a"}, {"x": "a", "y": "b", "z": "b", "w": "a"}
ACYCLIC = {
    "path": view(ABA, PATH, **TRACKED),
    "filtered": view(ABA, PATH, U, **TRACKED),
    "chain": view(ABBA, [("x.room", "y.room"), ("y.floor", "z.nr"), ("z.floor", "w.floor")], **TRACKED),
    "itself": view({"x": "b", "y": "b", "z": "b"}, [("x.floor", "y.nr"), ("y.floor", "z.nr")], **TRACKED),
    "star": view(ABBA, [("x.room", "y.room"), ("x.floor", "z.floor"), ("x.id", "w.floor")], **TRACKED),
    "composite": view(ABA, [("x.room", "y.room"), ("x.floor", "y.floor"), ("y.nr", "z.id")], **TRACKED),
    "twice": view(ABA, [("x.id", "y.nr"), ("x.floor", "y.nr"), ("y.note", "z.room")], **TRACKED),
    "hierarchical": view({"x": "a", "y": "b", "z": "b"}, [("x.floor", "y.floor"), ("x.floor", "z.floor")], **TRACKED),
    "silent": view(ABA, PATH, changes=False, **TRACKED),
}
FOLLOWED = {name: one for name, one in ACYCLIC.items() if name != "silent"}


def product(**algorithm: str) -> dict[str, TwinView]:
    """The product of two joins by this algorithm."""
    aliases = {"x": "a", "y": "b", "z": "b", "w": "a"}
    join = [{"equal": ["x.room", "y.room"]}, {"equal": ["z.floor", "w.floor"]}, {"cross": ["y", "z"]}]
    select = ["x.id as i", "y.nr as n", "z.nr as m", "w.id as j"]
    return {
        "product": TwinView(
            [*aliases.items()],
            {"from": aliases, "select": select, "join": join, **algorithm},
            lambda x, y, z, w: x["room"] is not None and x["room"] == y["room"] and z["floor"] is not None and z["floor"] == w["floor"],
            lambda x, y, z, w: {"i": x["id"], "n": y["nr"], "m": z["nr"], "j": w["id"]},
            [],
        ),
    }


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_small_batches(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 1200 + seed, 25, lambda source: source.random.randrange(5), 8, FOLLOWED)


def test_large_batches(tmp_path: Path) -> None:
    run(tmp_path, 1210, 10, lambda source: source.random.randrange(30), 9, FOLLOWED)


def test_products(tmp_path: Path) -> None:
    """Parts have indexes of their own: a product goes through each batch twice."""
    run(tmp_path, 1220, 15, lambda source: source.random.randrange(6), 7, product(**TRACKED))


def test_it_is_offered_and_never_taken_unasked() -> None:
    for name, one in ACYCLIC.items():
        found = parse_view(name, one.definition, DEFINITIONS)
        assert (found.plan.algorithm, found.plan.guarantee) == ("tree-tracker", "best-effort"), name
        assert "acyclic" in found.plan.cls and "Theorem 5.7" in str(found.plan.theorem)
        assert "tree-tracker" not in [parse_view(name, one.definition | {"algorithm": "auto"}, DEFINITIONS).plan.algorithm]
        assert {"qdag", "nested-loop"} <= {other.algorithm for other in alternatives(found.query, DEFINITIONS)}
    plan = parse_view("path", ACYCLIC["path"].definition, DEFINITIONS).plan
    assert plan.bounds["space"] == "O(n) per index; there are 4" and "2 · (r + dangling rows met) look-ups" in plan.bounds["delay"]
    assert plan.notes[-1].endswith(": x (room), y (room, floor), y (floor, room), z (floor)")


@pytest.mark.parametrize(
    ("aliases", "conditions", "why"),
    [
        (ABA, [*({"equal": list(pair)} for pair in PATH), {"equal": ["z.id", "x.id"]}], "cyclic"),
        (ABA, [*({"equal": list(pair)} for pair in PATH), {"less": ["x.id", "z.id"]}], "x.id < z.id"),
        (ABA, [{"overlaps": ["x.stay", "y.slot"]}, {"equal": ["y.floor", "z.floor"]}], "overlaps(x.stay, y.slot)"),
        ({"x": "a"}, [], "selects from one relation"),
    ],
)
def test_what_it_is_not_for(aliases: dict[str, str], conditions: list[dict[str, Any]], why: str) -> None:
    definition = {"from": aliases, "join": conditions, "select": ["x.id as i"]}
    assert parse_view("v", definition, DEFINITIONS).plan.algorithm != "tree-tracker"
    problem = refused(definition | TRACKED, DEFINITIONS)
    assert problem.type == "infeasible-view" and problem.extensions["theorem"].startswith("tree-tracker supports acyclic natural joins")
    assert why in problem.detail


def test_it_shares_indexes_with_view_trees(tmp_path: Path) -> None:
    """A pair by either wants the same two; a path wants one more order of the one in the middle."""
    engine = prepared(tmp_path, {"pair": HIERARCHICAL["pair"]})
    rows = [("a", UPSERT, a(i, floor=i % 3)) for i in range(40)] + [("b", UPSERT, b(i, room="AB"[i % 2])) for i in range(20)]
    engine.apply(to_batch(rows))
    indexes = parts(engine).state.indexes
    assert len(indexes._kept) == 2
    engine.put_view("tracked", HIERARCHICAL["pair"].definition | TRACKED, wait=60)
    assert len(indexes._kept) == 2
    engine.put_view("path", ACYCLIC["path"].definition, wait=60)
    assert len(indexes._kept) == 2 + 3, "y by room and floor, and by floor and room; z by floor"
    compare_two(engine, "pair", "tracked")
    engine.drop_view("pair")
    engine.apply(to_batch([("a", DELETE, {"id": 3}), ("b", UPSERT, b(1000))]))
    check(engine)
    for name in ("tracked", "path"):
        engine.drop_view(name)
    look(engine)
    assert indexes.structure.live_bytes == indexes._texts.keys == indexes.structure.retired_bytes == 0
    engine.close()


@pytest.mark.parametrize("equal", [[("x.room", "y.room"), ("x.floor", "y.floor")], [("x.floor", "y.floor"), ("x.room", "y.room")]])
def test_another_view_reads_more_of_one_of_its_indexes(tmp_path: Path, equal: list[tuple[str, str]]) -> None:
    """A changed note matters to a view that has one of the two indexes of y: both have the change in the same form."""
    noted = view({"x": "a", "y": "b"}, equal).definition | {"select": ["x.id as i", "y.nr as n", "y.note as note"]}
    engine = prepared(tmp_path, {"path": ACYCLIC["path"]})
    engine.put_view("noted", noted, wait=60)
    engine.apply(to_batch([("a", UPSERT, a(i)) for i in range(3)] + [("b", UPSERT, b(7))]))
    feed = engine.views["path"].feed
    assert feed is not None
    for changes in (
        [("b", UPSERT, b(7, note="changed")), ("a", DELETE, {"id": 1})],
        [("a", UPSERT, a(1)), ("b", UPSERT, b(7, note="again"))],
        [("b", UPSERT, b(7)), ("a", DELETE, {"id": 0}), ("a", UPSERT, a(5))],
    ):
        before, rows = engine.published.number, read_all(open_rows(engine.readers, "path"))
        engine.apply(to_batch(changes))
        for chunk in feed.changes(before):  # type: ignore[attr-defined]
            found = Counter(tuple(row.values()) for row in chunk.rows.to_pylist()) if chunk.rows is not None else Counter()
            (rows.update if chunk.op == "insert" else rows.subtract)(found)
        assert +rows == read_all(open_rows(engine.readers, "path")) and min(rows.values()) >= 0
    check(engine)
    engine.close()


def test_what_explain_tells_of_a_live_one(tmp_path: Path) -> None:
    """Of n rows of x that want one group of n dangling rows of y: nested loops look at n² of them, TreeTracker looks up each once."""
    n = 40
    definition = ACYCLIC["path"].definition
    engine = prepared(tmp_path, {"path": ACYCLIC["path"]})
    engine.put_view("loops", definition | {"algorithm": "nested-loop"}, wait=60)
    rows = [("a", UPSERT, a(i, floor=-1)) for i in range(n)] + [("b", UPSERT, b(i, floor=i)) for i in range(n)]
    rows += [("a", UPSERT, a(i, room=None, floor=2000 + i)) for i in range(n, 2 * n)]  # which make z the larger
    engine.apply(to_batch(rows))
    for name in ("path", "loops"):
        assert read_all(open_rows(engine.readers, name)) == Counter()
    emitted = explained(engine, EVERYONE, definition)
    assert emitted["plan"]["algorithm"] == "tree-tracker"
    assert emitted["natural"]["class"] == "acyclic, beta-acyclic, 2 variables, treewidth 1"
    measured = emitted["measured"]["path"]
    assert measured["counters"] == {"lookups": 2 * n, "removed": 2 * n, "no_goods": n, "forgotten": 0}
    assert measured["rows_read"] == 0 and measured["dead_ends"] == 2 * n and measured["delay_steps"]["max"] == 0
    loops = engine.views["loops"].statistics()
    assert loops["counters"] == {} and loops["dead_ends"] > measured["dead_ends"]
    assert isinstance(engine.views["path"].join, TreeTrackerJoin)
    engine.apply(to_batch([("a", UPSERT, a(1000, floor=7))]))
    assert read_all(open_rows(engine.readers, "path")) == Counter({(i, 7, 1000): 1 for i in (*range(n), 1000)})
    again = engine.views["path"].statistics()["counters"]
    assert again["removed"] == 2 * n + n - 1 and again["lookups"] <= 2 * n + 2 * (n + 1 + n - 1)
    engine.close()
