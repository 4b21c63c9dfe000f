"""Natural joins over quadtrees: the engine's twin with cyclic views, look-ups, plans."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from livejoin.wire.batch import UPSERT
from service.planning.hypergraph import hypergraph
from service.reading.cursors import open_rows
from service.views.joins.qdag_join import QdagJoin
from service.views.parse import parse_view
from structures.quadtree.trees import QuadTrees
from tests.service.definitions import RELATIONS, refused, sql
from tests.service.engine.test_builds import ended
from tests.service.engine.test_engine import prepared, read_all, run
from tests.service.running import check, parts
from tests.service.twin import DEFINITIONS, TwinView, _equal, to_batch


def view(aliases: dict[str, str], equal: list[tuple[str, str]], where: list[dict[str, Any]] | None = None, **options: Any) -> TwinView:
    """A natural join: pairs of columns that are equal; of each alias its key is selected."""
    names = list(aliases)
    pairs = [tuple((names.index(alias), column) for alias, column in (ref.split(".") for ref in pair)) for pair in equal]
    kept = [(names.index(one["column"].split(".")[0]), one["column"].split(".")[1], one["value"]) for one in where or []]

    def holds(*rows: dict[str, Any]) -> bool:
        return all(_equal(rows[i][x], rows[j][y]) for (i, x), (j, y) in pairs) and all(rows[i][c] == value for i, c, value in kept)

    keys = ["id" if name == "a" else "nr" for name in aliases.values()]
    return TwinView(
        list(aliases.items()),
        {"from": aliases, "join": [{"equal": list(pair)} for pair in equal], "where": where or [],
         "select": [f"{alias}.{key} as k{i}" for i, (alias, key) in enumerate(zip(names, keys, strict=True))]} | options,
        holds,
        lambda *rows: {f"k{i}": row[key] for i, (row, key) in enumerate(zip(rows, keys, strict=True))},
        [],
    )  # fmt: skip


QDAG = {"algorithm": "qdag"}
BBB = {"x": "b", "y": "b", "z": "b"}
EDGES = [("x.floor", "y.nr"), ("y.floor", "z.nr"), ("z.floor", "x.nr")]
CYCLIC = {
    "edges": view(BBB, EDGES),  # by qdag, without being asked
    "edges_by_loops": view(BBB, EDGES, algorithm="nested-loop"),
    "south": view(BBB, EDGES, [{"column": "y.site", "op": "=", "value": "S"}]),
    "triangle": view({"x": "a", "y": "b", "z": "b"}, [("x.room", "y.room"), ("y.floor", "z.floor"), ("x.id", "z.nr")]),
    "composite": view(
        {"x": "a", "y": "b", "z": "b"}, [("x.room", "y.room"), ("x.floor", "y.floor"), ("y.note", "z.note"), ("z.nr", "x.id")],
        [{"column": "x.tag", "op": "=", "value": "u"}],
    ),
    "silent": view(BBB, EDGES, changes=False),
    "twice": view({"x": "a", "y": "b"}, [("x.id", "y.nr"), ("x.floor", "y.nr")], **QDAG),
    "mutual": view({"x": "b", "y": "b"}, [("x.floor", "y.nr"), ("y.floor", "x.nr")], **QDAG),
    "star": view({"x": "a", "y": "b", "z": "b"}, [("x.room", "y.room"), ("x.floor", "z.floor")], **QDAG),
}  # fmt: skip
FOLLOWED = {name: one for name, one in CYCLIC.items() if name != "silent"}
FOUR = {"x": "a", "y": "b", "z": "a", "w": "b"}
CYCLE4 = [("x.room", "y.room"), ("y.floor", "z.floor"), ("z.id", "w.nr"), ("w.floor", "x.floor")]
CYCLES = {"cycle": view(FOUR, CYCLE4), "cycle_by_loops": view(FOUR, CYCLE4, algorithm="nested-loop")}


@pytest.mark.parametrize("seed", range(3))
def test_small_batches(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 400 + seed, 30, lambda source: source.random.randrange(5), 9, FOLLOWED)


def test_large_batches(tmp_path: Path) -> None:
    run(tmp_path, 410, 15, lambda source: source.random.randrange(40), 14, FOLLOWED)


@pytest.mark.parametrize("seed", range(2))
def test_cycles_of_four(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 420 + seed, 20, lambda source: source.random.randrange(6), 7, CYCLES)


def test_a_view_is_rebuilt_once_its_trees_are_outgrown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.views.joins.quadtree_join.QuadTrees", partial(QuadTrees, least=1))
    monkeypatch.setattr("structures.quadtree.trees._MUCH", 300)
    engine = prepared(tmp_path, {"edges": CYCLIC["edges"]})
    row = {"site": "N", "room": None, "starts": None, "ends": None, "note": None}
    rows = [{"nr": i, "floor": (i + 1) % 100} | row for i in range(100)]
    engine.apply(to_batch([("b", UPSERT, one) for one in rows]))
    former = engine.views["edges"].join
    engine.apply(to_batch([("b", UPSERT, one | {"floor": 0}) for one in rows]))
    check(engine)
    engine.at_rest(parts(engine).builds.renew)
    ended(engine)
    join = cast(QdagJoin, engine.views["edges"].join)
    assert join is not former and all(root.base != 0 for root in join.trees.roots)
    engine.apply(to_batch([("b", UPSERT, one) for one in rows[:50]]))
    check(engine)
    engine.close()


def test_without_followers(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {name: CYCLIC[name] for name in ("edges", "silent")})
    rows = [{"nr": i, "site": "N", "room": None, "floor": (i + 1) % 3, "starts": None, "ends": None, "note": None} for i in range(3)]
    engine.apply(to_batch([("b", UPSERT, row) for row in rows]))
    engine.apply(to_batch([("b", UPSERT, rows[0] | {"site": "S"}), ("b", UPSERT, rows[1] | {"room": "A"})]))
    assert read_all(open_rows(engine.readers, "silent")) == read_all(open_rows(engine.readers, "edges")) != Counter()
    check(engine)
    engine.close()


def test_a_look_up_by_the_join_key(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {name: CYCLIC[name] for name in ("edges", "composite", "twice")})
    b = {"room": "A", "starts": None, "ends": None, "note": "n"}
    rows = [("b", {"nr": i, "site": site, "floor": (i + 1) % 3} | b) for i in range(3) for site in ("N", "S")]
    rows += [("a", {"id": 1, "room": "A", "floor": 1, "starts": 0, "ends": None, "tag": "u", "weight": None})]
    engine.apply(to_batch([(name, UPSERT, row) for name, row in rows]))
    assert read_all(open_rows(engine.readers, "edges", point=("y", {"nr": "1", "floor": "2"}))) == Counter({(0, 1, 2): 8})
    assert read_all(open_rows(engine.readers, "edges", point=("y", {"nr": "1", "floor": "1"}))) == Counter()
    assert read_all(open_rows(engine.readers, "edges", point=("y", {"nr": "7", "floor": "1"}))) == Counter()
    found = read_all(open_rows(engine.readers, "composite", point=("x", {"id": "1", "room": "A", "floor": "1"})))
    assert found == read_all(open_rows(engine.readers, "composite")) != Counter()
    assert read_all(open_rows(engine.readers, "twice", point=("x", {"id": "1", "floor": "1"}))) == Counter({(1, 1): 2})
    assert read_all(open_rows(engine.readers, "twice", point=("x", {"id": "1", "floor": "2"}))) == Counter()
    engine.close()


def test_what_is_cyclic() -> None:
    for name, cyclic in (("edges", True), ("triangle", True), ("composite", True), ("twice", False), ("mutual", False), ("star", False)):
        found = parse_view(name, CYCLIC[name].definition, DEFINITIONS)
        assert hypergraph(found.query).acyclic != cyclic, name
        assert found.plan.algorithm == "qdag"
        assert found.plan.cls.endswith(f"relations, {hypergraph(found.query).words}")
    assert hypergraph(parse_view("composite", CYCLIC["composite"].definition, DEFINITIONS).query).dimension == 3


def test_what_is_refused() -> None:
    joined = "SELECT b.id FROM bookings b JOIN maintenance m ON b.room = m.room"
    for more in (" AND overlaps(b.stay, m.slot)", " AND b.floor < m.floor", " AND b.floor <> m.floor"):
        problem = refused({"sql": joined + more} | QDAG)
        assert problem.type == "infeasible-view" and "natural joins" in problem.detail, more
    assert sql(joined, **QDAG).plan.algorithm == "qdag"
    product = "SELECT b.id FROM bookings b CROSS JOIN maintenance m"
    assert refused({"sql": product} | QDAG).type == "infeasible-view"


def test_too_many_variables() -> None:
    """A cycle of seven is kept by indexes."""
    names = "abcdefg"
    columns = [("id", "floor")[i % 2] for i in range(6)]
    pairs = [[f"{names[i]}.{column}", f"{names[i + 1]}.{column}"] for i, column in enumerate(columns)]
    seven = {"from": dict.fromkeys(names, "maintenance"), "join": [{"equal": pair} for pair in [*pairs, ["g.m", "a.m"]]]}
    assert parse_view("v", seven, RELATIONS).plan.algorithm == "nested-loop"
    assert refused(seven | QDAG).type == "infeasible-view"
