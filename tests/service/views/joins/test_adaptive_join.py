"""Natural joins by intersect and bow-tie over shared indexes: the engine's twin, sharing, look-ups, counters, and what is refused."""

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
from service.views.joins.reading_join import BowTieJoin, IntersectJoin
from service.views.parse import parse_view
from tests.service.definitions import refused
from tests.service.engine.test_engine import prepared, read_all, run
from tests.service.running import check, look, parts
from tests.service.twin import DEFINITIONS, TwinView, to_batch
from tests.service.views.joins.test_qdag_join import view
from tests.service.views.joins.test_view_tree_join import HIERARCHICAL, U, a, b, compare_two

SECT, TIE = {"algorithm": "intersect"}, {"algorithm": "bow-tie"}
AB, ABB, BAB = {"x": "a", "y": "b"}, {"x": "a", "y": "b", "z": "b"}, {"x": "b", "y": "a", "z": "b"}
CHAINS = {
    "pair": view(AB, [("x.room", "y.room")], **SECT),
    "filtered": view(AB, [("x.room", "y.room"), ("x.floor", "y.floor")], U, **SECT),
    "two_levels": view(ABB, [("x.room", "y.room"), ("x.room", "z.room"), ("x.floor", "z.floor")], **SECT),
    "three": view({"x": "b", "y": "b", "z": "a"}, [("x.floor", "y.floor"), ("y.floor", "z.id")], **SECT),
    "twice": view(AB, [("x.id", "y.nr"), ("x.floor", "y.nr")], **SECT),
}
TIES = {
    "tie": view(ABB, [("x.floor", "y.floor"), ("x.room", "z.room")], **TIE),
    "far": view(BAB, [("x.nr", "y.id"), ("y.floor", "z.floor")], U[:0], **TIE),
    "itself": view({"x": "b", "y": "b", "z": "b"}, [("x.nr", "y.floor"), ("y.nr", "z.floor")], **TIE),
    "texts": view({"x": "b", "y": "b", "z": "a"}, [("x.note", "y.room"), ("y.floor", "z.floor")], **TIE),
    "filtered_tie": view({"x": "a", "y": "b", "z": "a"}, [("x.floor", "y.floor"), ("y.room", "z.room")], U, **TIE),
}
ADAPTIVE = {**CHAINS, **TIES}
SILENT = {"silent": view(ABB, [("x.floor", "y.floor"), ("x.room", "z.room")], changes=False, **TIE)}
PRODUCTS = {
    "product": TwinView(
        [("x", "a"), ("y", "b"), ("z", "b"), ("w", "a"), ("v", "b")],
        {"from": {"x": "a", "y": "b", "z": "b", "w": "a", "v": "b"},
         "select": ["x.id as i", "y.nr as n", "z.nr as m", "w.id as j", "v.nr as o"],
         "join": [{"equal": ["x.room", "y.room"]}, {"equal": ["x.room", "z.room"]}, {"equal": ["w.floor", "v.floor"]},
                  {"cross": ["y", "v"]}], **SECT},
        lambda x, y, z, w, v: x["room"] is not None and x["room"] == y["room"] == z["room"] and w["floor"] is not None
        and w["floor"] == v["floor"],
        lambda x, y, z, w, v: {"i": x["id"], "n": y["nr"], "m": z["nr"], "j": w["id"], "o": v["nr"]},
        [],
    ),
}  # fmt: skip


def test_small_batches(tmp_path: Path) -> None:
    run(tmp_path, 1300, 20, lambda source: source.random.randrange(5), 8, ADAPTIVE)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_many_batches(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 1310 + seed, 40, lambda source: source.random.randrange(30), 9, ADAPTIVE)


def test_products(tmp_path: Path) -> None:
    """Parts have indexes of their own: a product goes through each batch twice."""
    run(tmp_path, 1321, 8, lambda source: source.random.randrange(5), 6, PRODUCTS)


def test_they_are_offered_and_never_taken_unasked() -> None:
    for name, one in {**ADAPTIVE, **SILENT}.items():
        found = parse_view(name, one.definition, DEFINITIONS)
        algorithm = one.definition["algorithm"]
        assert (found.plan.algorithm, found.plan.guarantee) == (algorithm, "best-effort"), name
        assert "acyclic" in found.plan.cls and "Instance Optimal" in str(found.plan.theorem)
        assert parse_view(name, one.definition | {"algorithm": "auto"}, DEFINITIONS).plan.algorithm != algorithm
        assert "nested-loop" in [other.algorithm for other in alternatives(found.query, DEFINITIONS)]
    plan = parse_view("two_levels", CHAINS["two_levels"].definition, DEFINITIONS).plan
    assert "O(3 D + Z) look-ups" in plan.bounds["delay"] and plan.notes[-1].endswith(": x (room, floor), y (room), z (room, floor)")
    plan = parse_view("tie", TIES["tie"].definition, DEFINITIONS).plan
    assert "40 bytes per row of x" in plan.bounds["space"] and "values of y and of z in which x has values" in plan.notes[-3]


@pytest.mark.parametrize(
    ("algorithm", "aliases", "conditions", "why"),
    [
        (SECT, ABB, [{"equal": ["x.room", "y.room"]}, {"equal": ["x.floor", "z.floor"]}], "acyclic, beta-acyclic"),
        (SECT, AB, [{"equal": ["x.room", "y.room"]}, {"less": ["x.id", "y.nr"]}], "x.id < y.nr"),
        (SECT, {"x": "a"}, [], "selects from one relation"),
        (TIE, AB, [{"equal": ["x.room", "y.room"]}, {"equal": ["x.floor", "y.floor"]}], "joins 2 relations"),
        (TIE, ABB, [{"equal": ["x.room", "y.room"]}, {"equal": ["x.id", "y.nr"]}, {"equal": ["x.floor", "z.floor"]}], "on equality only"),
        (TIE, ABB, [{"equal": ["x.room", "y.room"]}, {"equal": ["x.room", "z.room"]}], "hierarchical"),
    ],
)
def test_what_they_are_not_for(algorithm: dict[str, str], aliases: dict[str, str], conditions: list[dict[str, Any]], why: str) -> None:
    definition = {"from": aliases, "join": conditions, "select": ["x.id as i"]}
    problem = refused(definition | algorithm, DEFINITIONS)
    (name,) = algorithm.values()
    assert problem.type == "infeasible-view" and problem.extensions["theorem"].startswith(f"{name} supports natural joins")
    assert why in problem.detail


def test_they_share_indexes_with_view_trees(tmp_path: Path) -> None:
    """A pair by either wants the same two; a bow-tie has a tree of its own, which goes with it."""
    engine = prepared(tmp_path, {"pair": HIERARCHICAL["pair"]})
    rows = [("a", UPSERT, a(i, floor=i % 3)) for i in range(40)] + [("b", UPSERT, b(i, room="AB"[i % 2], floor=500 * i)) for i in range(20)]
    engine.apply(to_batch(rows))
    indexes = parts(engine).state.indexes
    engine.put_view("sect", HIERARCHICAL["pair"].definition | SECT, wait=60)
    assert len(indexes._kept) == 2
    compare_two(engine, "pair", "sect")
    engine.put_view("tie", TIES["filtered_tie"].definition, wait=60)
    join = engine.views["tie"].join
    assert isinstance(join, BowTieJoin) and join._reader is not None
    assert join.bytes > join._reader.own_bytes > 0, "floors to 9,500 have inner levels"
    engine.drop_view("pair")
    engine.apply(to_batch([("a", DELETE, {"id": 3}), ("b", UPSERT, b(1000, floor=10**15))]))
    check(engine)
    for name in ("sect", "tie"):
        engine.drop_view(name)
    look(engine)
    assert indexes.structure.live_bytes == indexes._texts.keys == indexes.structure.retired_bytes == 0
    engine.close()


def test_a_look_up_by_the_join_key(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {"two_levels": CHAINS["two_levels"], "tie": TIES["tie"]})
    rows = [("b", b(i, site=site, floor=i % 2)) for i in range(4) for site in ("N", "S")] + [("a", a(1)), ("a", a(2, room="B"))]
    engine.apply(to_batch([(name, UPSERT, row) for name, row in rows]))
    whole = read_all(open_rows(engine.readers, "two_levels"))
    assert whole == Counter({(1, i, j): 4 for i in range(4) for j in (1, 3)})
    assert read_all(open_rows(engine.readers, "two_levels", point=("y", {"room": "A"}))) == whole
    assert read_all(open_rows(engine.readers, "two_levels", point=("z", {"room": "A", "floor": "1"}))) == whole
    tie = read_all(open_rows(engine.readers, "tie"))
    assert tie == Counter({(1, i, j): 4 for i in (1, 3) for j in range(4)})
    for point in (("x", {"room": "A", "floor": "1"}), ("y", {"floor": "1"}), ("z", {"room": "A"})):
        assert read_all(open_rows(engine.readers, "tie", point=point)) == tie, point
    for name, point in (("tie", ("z", {"room": "B"})), ("tie", ("y", {"floor": "0"})), ("two_levels", ("z", {"room": "A", "floor": "0"}))):
        assert read_all(open_rows(engine.readers, name, point=point)) == Counter(), point
    engine.close()


def test_what_explain_tells_of_live_ones(tmp_path: Path) -> None:
    """Two relations whose numbers lie apart: three look-ups; and all floors of x lie in one hole of y."""
    n = 40
    pair = view(AB, [("x.id", "y.nr")], **SECT)
    tie = view({"x": "a", "y": "b", "z": "b"}, [("x.floor", "y.floor"), ("x.id", "z.nr")], **TIE)
    engine = prepared(tmp_path, {"pair": pair, "tie": tie})
    rows = [("a", UPSERT, a(i, floor=10 + i)) for i in range(n)] + [("b", UPSERT, b(n + i, floor=100 * (i % 2))) for i in range(n)]
    engine.apply(to_batch(rows))
    for name in ("pair", "tie"):
        assert read_all(open_rows(engine.readers, name)) == Counter()
    emitted = explained(engine, EVERYONE, pair.definition)
    assert emitted["plan"]["algorithm"] == "intersect" and emitted["natural"]["class"] == "acyclic, hierarchical, 1 variable, treewidth 0"
    measured = emitted["measured"]["pair"]
    assert measured["counters"] == {"lookups": 3, "probes": 2, "outputs": 0} and measured["dead_ends"] == 2
    assert isinstance(engine.views["pair"].join, IntersectJoin)
    engine.apply(to_batch([("b", UPSERT, b(7, floor=0))]))
    assert read_all(open_rows(engine.readers, "tie")) == Counter()
    counted = explained(engine, EVERYONE, tie.definition)["measured"]["tie"]["counters"]
    assert counted["outputs"] == counted["forgotten"] == 0 and 1 <= counted["probes"] <= 3 and counted["ranges"] <= 1 < counted["lookups"]
    engine.close()
