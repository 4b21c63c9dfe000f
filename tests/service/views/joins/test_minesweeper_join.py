"""Natural joins by Minesweeper over shared indexes, under either name: the engine's twin, look-ups, counters, what is kept, and what is
refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, UPSERT
from service.access.access_token import EVERYONE
from service.api.views import _explain as explained
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.joins.reading_join import MinesweeperJoin
from service.views.parse import parse_view
from tests.service.definitions import refused
from tests.service.engine.test_engine import prepared, read_all, run
from tests.service.running import check
from tests.service.twin import DEFINITIONS, TwinView, to_batch
from tests.service.views.joins.test_qdag_join import BBB, EDGES, view
from tests.service.views.joins.test_tree_tracker_join import ABA, ABBA, ACYCLIC, PATH, product
from tests.service.views.joins.test_view_tree_join import U, a, b

MINED, ELIMINATED = {"algorithm": "minesweeper"}, {"algorithm": "elimination"}
BETA = {
    "path": view(ABA, PATH, **MINED),
    "filtered": view(ABA, PATH, U, **ELIMINATED),
    "chain": view(ABBA, [("x.room", "y.room"), ("y.floor", "z.nr"), ("z.floor", "w.floor")], **ELIMINATED),
    "composite": view(ABA, [("x.room", "y.room"), ("x.floor", "y.floor"), ("y.nr", "z.id")], **MINED),
    "twice": view(ABA, [("x.id", "y.nr"), ("x.floor", "y.nr"), ("y.note", "z.room")], **ELIMINATED),
    "mutual": view({"x": "b", "y": "b"}, [("x.floor", "y.nr"), ("y.floor", "x.nr")], **MINED),
    "silent": view(ABA, PATH, changes=False, **MINED),
}
OTHERS = {
    "edges": view(BBB, EDGES, **MINED),
    "triangle": view({"x": "a", "y": "b", "z": "b"}, [("x.room", "y.room"), ("y.floor", "z.floor"), ("x.id", "z.nr")], **MINED),
    "alpha": view(  # AB, BC, AC, ABC: acyclic, but its part is not
        {"x": "b", "y": "b", "z": "b", "w": "a"},
        [("x.nr", "w.id"), ("x.floor", "w.floor"), ("y.floor", "w.floor"), ("y.room", "w.room"), ("z.nr", "w.id"), ("z.room", "w.room")],
        **MINED,
    ),
}  # fmt: skip
FOLLOWED = {name: one for name, one in (BETA | OTHERS).items() if name != "silent"}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_small_batches(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 1300 + seed, 20, lambda source: source.random.randrange(5), 8, FOLLOWED)


def test_large_batches(tmp_path: Path) -> None:
    run(tmp_path, 1310, 8, lambda source: source.random.randrange(30), 9, FOLLOWED)


def test_products(tmp_path: Path) -> None:
    """Parts have indexes of their own: a product goes through each batch twice."""
    run(tmp_path, 1320, 10, lambda source: source.random.randrange(6), 7, product(**MINED))


def test_it_is_offered_and_never_taken_unasked() -> None:
    for name, one in (BETA | OTHERS).items():
        found = parse_view(name, one.definition, DEFINITIONS)
        assert (found.plan.algorithm, found.plan.guarantee) == (one.definition["algorithm"], "best-effort"), name
        assert parse_view(name, one.definition | {"algorithm": "auto"}, DEFINITIONS).plan.algorithm not in ("minesweeper", "elimination")
        both = {found.plan.algorithm, *(other.algorithm for other in alternatives(found.query, DEFINITIONS))}
        assert ("elimination" in both) == (name in BETA) and "minesweeper" in both, name
    plan = parse_view("path", BETA["path"].definition, DEFINITIONS).plan
    assert plan.theorem is not None and "Theorem 2.7" in plan.theorem and "O((C + r) log n)" in plan.bounds["delay"]
    assert plan.notes[-2] == "variables are searched in this order, the reverse of a nested elimination order: y.floor, x.room"
    assert plan.notes[-1].endswith(": x (room), y (floor, room), y (room, floor), z (floor)")
    nested = parse_view("chain", BETA["chain"].definition, DEFINITIONS).plan
    assert nested.theorem is not None and "Theorem 3.7" in nested.theorem
    plan = parse_view("alpha", OTHERS["alpha"].definition, DEFINITIONS).plan
    assert "O((C^3 + r) log n)" in plan.bounds["delay"] and "this order, of width 2" in plan.notes[-2]
    plan = parse_view("triangle", OTHERS["triangle"].definition, DEFINITIONS).plan
    assert plan.theorem is not None and "Theorem 5.4" in plan.theorem and "C^0.5" in plan.bounds["delay"]


@pytest.mark.parametrize(
    ("aliases", "conditions", "why"),
    [
        (ABA, [*({"equal": list(pair)} for pair in PATH), {"less": ["x.id", "z.id"]}], "x.id < z.id"),
        (ABA, [{"overlaps": ["x.stay", "y.slot"]}, {"equal": ["y.floor", "z.floor"]}], "overlaps(x.stay, y.slot)"),
        ({"x": "a"}, [], "selects from one relation"),
    ],
)
@pytest.mark.parametrize("algorithm", ["minesweeper", "elimination"])
def test_what_it_is_not_for(aliases: dict[str, str], conditions: list[dict[str, Any]], why: str, algorithm: str) -> None:
    problem = refused({"from": aliases, "join": conditions, "select": ["x.id as i"], "algorithm": algorithm}, DEFINITIONS)
    assert problem.type == "infeasible-view" and "natural joins" in problem.extensions["theorem"] and why in problem.detail


def test_elimination_wants_a_nested_order() -> None:
    for name in OTHERS:
        problem = refused(OTHERS[name].definition | ELIMINATED, DEFINITIONS)
        assert problem.type == "infeasible-view" and problem.extensions["theorem"].startswith("elimination supports beta-acyclic")
        assert '"minesweeper"' in problem.detail


@pytest.mark.parametrize("views", [ACYCLIC, BETA], ids=["tree-tracker", "minesweeper"])
def test_a_look_up_by_the_join_key(tmp_path: Path, views: Mapping[str, TwinView]) -> None:
    engine = prepared(tmp_path, {name: views[name] for name in ("path", "twice")})
    rows = [("b", b(i, site=site, floor=i % 2, note="A")) for i in range(4) for site in ("N", "S")] + [("a", a(1)), ("a", a(2, room="B"))]
    engine.apply(to_batch([(name, UPSERT, row) for name, row in rows]))
    found = read_all(open_rows(engine.readers, "path", point=("y", {"room": "A", "floor": "1"})))
    assert found == Counter({(1, i, j): 2 for i in (1, 3) for j in (1, 2)}) == read_all(open_rows(engine.readers, "path"))
    assert read_all(open_rows(engine.readers, "path", point=("x", {"room": "A"}))) == found
    for point in (("x", {"room": "B"}), ("y", {"room": "A", "floor": "0"}), ("z", {"floor": "7"}), ("x", {"room": "never seen"})):
        assert read_all(open_rows(engine.readers, "path", point=point)) == Counter(), point
    assert read_all(open_rows(engine.readers, "twice", point=("x", {"id": "1", "floor": "1"}))) == Counter({(1, 1, 1): 2})
    engine.close()


def test_what_explain_tells_of_a_live_one(tmp_path: Path) -> None:
    """n floors of z that no row of y has are one gap: a few probes find it, a second reading needs none, and it outlives a delete."""
    n = 60
    definition = BETA["path"].definition
    engine = prepared(tmp_path, {"path": BETA["path"], "triangle": OTHERS["triangle"]})
    rows = [("a", UPSERT, a(i, floor=i)) for i in range(n)] + [("b", UPSERT, b(i, floor=1000 + i)) for i in range(n)]
    engine.apply(to_batch(rows))
    assert read_all(open_rows(engine.readers, "path")) == Counter()
    emitted = explained(engine, EVERYONE, definition)
    assert emitted["plan"]["algorithm"] == "minesweeper"
    assert emitted["natural"]["class"] == "acyclic, beta-acyclic, 2 variables, treewidth 1"
    measured = emitted["measured"]["path"]
    counters = measured["counters"]
    assert set(counters) == {"probes", "outputs", "lookups", "constraints", "resets", "forgotten"}
    assert 0 < counters["probes"] <= 3 and counters["outputs"] == 0 and measured["dead_ends"] == counters["probes"]
    assert counters["lookups"] <= 5 * counters["probes"] and measured["rows_read"] == 0
    engine.apply(to_batch([("a", DELETE, {"id": 3})]))
    assert read_all(open_rows(engine.readers, "path")) == Counter()
    assert engine.views["path"].statistics()["counters"]["probes"] == counters["probes"]
    engine.apply(to_batch([("a", UPSERT, a(500, floor=1007))]))
    assert read_all(open_rows(engine.readers, "path")) == Counter({(i, 7, 500): 1 for i in (*(i for i in range(n) if i != 3), 500)})
    assert read_all(open_rows(engine.readers, "triangle")).total() == n - 1
    counters = engine.views["triangle"].statistics()["counters"]
    measured = explained(engine, EVERYONE, definition)["measured"]["path"]["counters"]
    assert counters["outputs"] == n - 1 <= counters["pairs"] and "pairs" not in measured
    join = engine.views["path"].join
    assert isinstance(join, MinesweeperJoin) and join.bytes > 0
    check(engine)
    engine.close()
