"""Natural joins with NOT EXISTS over quadtrees: the engine's twin with drawn views, the paper's instances, nulls, plans, refusals."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, UPSERT
from service.access.access_token import EVERYONE
from service.api.views import _explain as explained
from service.checking.comparison import agrees, table_of
from service.checking.recomputation import recompute, total
from service.errors import Problem
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests.service.definitions import refused
from tests.service.engine.test_engine import prepared, read_all, run
from tests.service.running import check, opened
from tests.service.twin import DEFINITIONS, Row, Source, TwinView, _equal, to_batch
from tests.service.views.joins.test_qdag_join import view
from tests.service.views.joins.test_view_tree_join import a, b

Group = tuple[dict[str, str], list[tuple[str, str]]]
COLUMNS = {
    "whole": {"a": ["id", "floor", "floor"], "b": ["nr", "floor", "floor"]},
    "text": {"a": ["room", "room", "tag"], "b": ["room", "room", "note"]},
}


class Without(TwinView):
    """A natural join, less what goes with rows of all aliases of a group."""

    def __init__(self, joined: TwinView, groups: Sequence[Group]) -> None:
        parts = [{"from": aliases, "join": [{"equal": list(pair)} for pair in pairs]} for aliases, pairs in groups]
        super().__init__(joined.aliases, joined.definition | {"not_exists": parts, "algorithm": "lqdag"}, joined.on, joined.select, [])
        self._groups = [
            (aliases, [tuple(tuple(ref.split(".")) for ref in pair) for pair in pairs]) for aliases, pairs in groups
        ]

    def combinations(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[Row, ...]]:
        found = super().combinations(relations)
        for aliases, pairs in self._groups:
            parts = [list(relations[name].values()) for name in aliases.values()]
            found = [rows for rows in found if not self._deleted(rows, aliases, parts, pairs)]
        return found

    def _deleted(self, rows: tuple[Row, ...], aliases: dict[str, str], parts: list[list[Row]], pairs: list[Any]) -> bool:
        known = {alias: row for (alias, _), row in zip(self.aliases, rows, strict=True)}
        for some in product(*parts):
            named = known | dict(zip(aliases, some, strict=True))
            if all(_equal(named[x][c], named[y][d]) for (x, c), (y, d) in pairs):
                return True
        return False


def drawn(rng: random.Random) -> Without:
    """One to three relations, and one or two groups of one or two."""

    def pair(x: tuple[str, str], y: tuple[str, str]) -> tuple[str, str]:
        kind = COLUMNS[rng.choice(("whole", "whole", "text"))]
        return f"{x[0]}.{rng.choice(kind[x[1]])}", f"{y[0]}.{rng.choice(kind[y[1]])}"

    while True:
        outer = [(f"x{i}", rng.choice("ab")) for i in range(rng.randrange(1, 4))]
        pairs = [pair(outer[rng.randrange(i)], outer[i]) for i in range(1, len(outer))]
        if len(outer) > 1 and rng.random() < 0.5:
            pairs.append(pair(*rng.sample(outer, 2)))
        groups: list[Group] = []
        for number in range(rng.choice((1, 1, 2))):
            inner = [(f"n{number}{i}", rng.choice("ab")) for i in range(rng.choice((1, 1, 2)))]
            conditions = [pair(rng.choice(outer), one) for one in inner for _ in range(rng.choice((1, 2, 2)))]
            if len(inner) > 1 and rng.random() < 0.3:
                conditions.append((conditions[0][1], conditions[-1][1]))
            groups.append((dict(inner), conditions))
        found = Without(view(dict(outer), pairs), groups)
        try:
            parse_view("v", found.definition, DEFINITIONS)
        except Problem as problem:
            assert problem.type in ("unsupported-query", "infeasible-view"), (found.definition, problem)
        else:
            return found


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40))])
def test_random_views(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    views: dict[str, TwinView] = {f"v{i}": drawn(rng) for i in range(6)}
    run(tmp_path, 1300 + seed, 12, lambda source: source.random.randrange((5, 25)[seed % 2]), 6, views)


X, XY = {"x": "a"}, {"x": "a", "y": "b"}
TRIANGLE = view({"x": "b", "y": "b", "z": "b"}, [("x.floor", "y.nr"), ("y.floor", "z.nr"), ("z.floor", "x.nr")])
VIEWS: dict[str, TwinView] = {
    "of_itself": Without(view(X, []), [({"n": "a"}, [("n.id", "x.id")])]),
    "nulls": Without(view(X, []), [({"n": "b"}, [("n.room", "x.room"), ("n.floor", "x.floor")])]),
    "joined": Without(view(XY, [("x.id", "y.nr")]), [({"n": "b"}, [("n.floor", "x.floor"), ("n.note", "y.note")])]),
    "both": Without(view(X, []), [({"n": "b", "m": "a"}, [("n.floor", "x.floor"), ("m.room", "x.room"), ("m.floor", "n.floor")])]),
    "diagonal": Without(view(XY, [("x.room", "y.room")]), [({"n": "b"}, [("n.nr", "x.id"), ("n.nr", "y.floor")])]),
    "triangles": Without(TRIANGLE, [({"n": "a"}, [("n.id", "x.nr"), ("n.floor", "y.nr")])]),
}


def test_views(tmp_path: Path) -> None:
    run(tmp_path, 1350, 25, lambda source: source.random.randrange(9), 7, VIEWS)


def test_a_row_that_is_null_only_where_groups_compare_stays(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {"nulls": VIEWS["nulls"]})
    rows = [a(1, room=None, floor=None), a(2, room="A", floor=None), a(3, room=None, floor=1), a(4, room="A", floor=1)]
    engine.apply(to_batch([("a", UPSERT, row) for row in rows]))
    assert read_all(open_rows(engine.readers, "nulls")) == Counter({(i,): 1 for i in range(1, 5)})
    engine.apply(to_batch([("b", UPSERT, b(1, room=None, floor=1)), ("b", UPSERT, b(2, room="A", floor=1))]))
    assert read_all(open_rows(engine.readers, "nulls")) == Counter({(i,): 1 for i in range(1, 4)})
    check(engine)
    engine.apply(to_batch([("a", DELETE, {"id": i}) for i in range(1, 5)] + [("b", DELETE, {"site": "N", "nr": 2})]))
    assert read_all(open_rows(engine.readers, "nulls")) == Counter()
    check(engine)
    engine.close()


def test_what_explain_tells_of_a_live_one(tmp_path: Path) -> None:
    definition = VIEWS["triangles"].definition
    engine = prepared(tmp_path, {"triangles": VIEWS["triangles"], "nulls": VIEWS["nulls"]})
    edges = [(i, j) for i in range(3) for j in range(3) if i != j]
    rows = [("b", UPSERT, b(i, site=str(j), floor=j)) for i, j in edges] + [("a", UPSERT, a(0, floor=1))]
    engine.apply(to_batch(rows))
    assert set(read_all(open_rows(engine.readers, "triangles"))) == {(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)}
    emitted = explained(engine, EVERYONE, definition)
    plan = emitted["plan"]
    assert (plan["algorithm"], plan["guarantee"], emitted["alternatives"]) == ("lqdag", "best-effort", [])
    assert plan["class"] == "natural join, 3 relations, cyclic, 3 variables, treewidth 2, with NOT EXISTS"
    assert plan["notes"][0].startswith("NOT EXISTS (a AS n): excludes rows")
    assert emitted["natural"]["class"] == "cyclic, 3 variables, treewidth 2"
    assert emitted["measured"]["triangles"]["counters"]["excluded"] == 1
    assert explained(engine, EVERYONE, VIEWS["nulls"].definition)["plan"]["class"] == "selection, 1 relation, with NOT EXISTS"
    engine.close()


def test_brute_force_agrees(tmp_path: Path) -> None:
    """That of `livejoin check`; a group that it passed over would be noticed in each view but one."""
    engine, source = prepared(tmp_path, VIEWS), Source(3, 30)
    engine.apply(to_batch([(name, UPSERT, source.row(name)) for name in "ab" for _ in range(60)]))
    tables = {name: table_of(engine, name) for name in engine.relations}
    for name, live in engine.views.items():
        assert agrees(engine, name, tables, print), name
        whole, left = (
            total(recompute(query, live.definitions, tables)).rows for query in (replace(live.view.query, absent=()), live.view.query)
        )
        assert whole > left or name == "triangles", name
    engine.close()


def test_relations_of_a_group_are_in_use(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {"nulls": VIEWS["nulls"]})
    with pytest.raises(Problem) as caught:
        engine.drop_relation("b")
    assert caught.value.type == "relation-in-use" and caught.value.extensions["views"] == ["nulls"]
    engine.close()


def test_a_relation_of_a_group_that_nothing_meets_is_in_use(tmp_path: Path) -> None:
    """Nothing is kept of the group, but the definition is read again at the next start. Without the relation the folder did not open."""
    part = {"from": {"n": "b"}, "join": [{"equal": ["n.nr", "x.id"]}], "where": [{"column": "n.nr", "op": "=", "value": None}]}
    engine = prepared(tmp_path, {})
    assert engine.put_view("v", {"from": X, "select": ["x.id"], "not_exists": [part]}, wait=60)[1] == "created"
    with pytest.raises(Problem) as caught:
        engine.drop_relation("b")
    assert caught.value.type == "relation-in-use" and caught.value.extensions["views"] == ["v"]
    engine.close()
    opened(tmp_path).close()


def test_it_is_the_only_one_and_for_not_exists_alone() -> None:
    query = parse_view("v", VIEWS["triangles"].definition | {"algorithm": "lqdag"}, DEFINITIONS).query
    assert alternatives(query, DEFINITIONS) == []
    assert parse_view("v", TRIANGLE.definition, DEFINITIONS).plan.algorithm == "qdag"
    problem = refused(TRIANGLE.definition | {"algorithm": "lqdag"}, DEFINITIONS)
    assert problem.type == "infeasible-view" and "lqdag supports natural joins with NOT EXISTS" in problem.detail
    assert '"qdag"' in problem.detail


PART = {"from": {"n": "b"}, "join": [{"equal": ["n.room", "x.room"]}]}
BOTH = {"from": {"n": "b"}, "join": [{"equal": ["n.room", "x.room"]}, {"equal": ["n.floor", "y.floor"]}]}
SEVEN = {"from": {f"n{i}": "b" for i in range(8)}, "join": [{"equal": [f"n{i}.room", "x.room"]} for i in range(8)]}


@pytest.mark.parametrize(
    ("part", "more", "why"),
    [
        (PART | {"where": [{"column": "x.tag", "op": "=", "value": "u"}]}, {}, "the filter on x.tag in NOT EXISTS is not supported"),
        (BOTH, {"from": XY, "join": [{"cross": ["x", "y"]}]}, "it has a product (CROSS JOIN)"),
        (SEVEN, {}, "it has 9 relations"),
        (PART | {"join": [{"equal": ["n.room", "x.floor"]}]}, {}, "string and int64"),
    ],
)  # fmt: skip
def test_what_is_refused(part: dict[str, Any], more: dict[str, Any], why: str) -> None:
    problem = refused({"from": X, "select": ["x.id"], "not_exists": [part]} | more, DEFINITIONS)
    assert problem.type == "unsupported-query" and why in problem.detail


@pytest.mark.parametrize(
    ("part", "more"),
    [
        ({"from": {"n": "b", "m": "b"}, "join": [*PART["join"], {"equal": ["n.floor", "m.floor"]}]}, {}),
        (PART, {"from": XY, "join": [{"overlaps": ["x.stay", "y.slot"]}]}),
        (PART | {"join": []}, {}),
    ],
)  # fmt: skip
def test_what_it_cannot_keep_is_kept_otherwise(part: dict[str, Any], more: dict[str, Any]) -> None:
    definition = {"from": X, "select": ["x.id"], "not_exists": [part]} | more
    assert parse_view("v", definition, DEFINITIONS).plan.shape in ("outer", "join_tree", "product")
    assert refused(definition | {"algorithm": "lqdag"}, DEFINITIONS).type == "infeasible-view"


def test_beside_a_stored_join() -> None:
    """NOT EXISTS over both sides of an overlap: the pairs that overlap are stored, and it is a natural join with these."""
    definition = {"from": XY, "join": [{"overlaps": ["x.stay", "y.slot"]}], "select": ["x.id"], "not_exists": [BOTH]}
    for algorithm, kept in (("auto", "match-tree"), ("lqdag", "lqdag")):
        view = parse_view("v", definition | {"algorithm": algorithm}, DEFINITIONS)
        assert view.plan.algorithm == kept and len(view.stored) == 1


def test_other_algorithms_and_promises_are_refused() -> None:
    definition = VIEWS["triangles"].definition
    for name in ("qdag", "nested-loop", "minesweeper"):
        problem = refused(definition | {"algorithm": name}, DEFINITIONS)
        assert problem.type == "infeasible-view" and "with NOT EXISTS" in problem.detail and '"lqdag"' in problem.detail
    problem = refused(definition | {"guarantee": "delay"}, DEFINITIONS)
    assert problem.type == "infeasible-view" and "NOT EXISTS" in problem.extensions["theorem"]
