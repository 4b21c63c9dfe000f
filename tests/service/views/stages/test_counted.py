"""Counted groups against naive twins, and beside the same views by rows: every version, followers, look-ups, runs of single changes,
restarts; edges of int64, lengths, hostile changes; what is planned, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import RelationDefinition, parse_relation
from service.errors import Problem
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests.service.engine.test_engine import run
from tests.service.grouped import GroupedView
from tests.service.running import check, opened
from tests.service.twin import DEFINITIONS, VIEWS, TwinView
from tests.service.views.stages.test_groups import compare_with_brute_force

COUNTED, BY_ROWS = {"algorithm": "event-tree"}, {"algorithm": "interval-tree"}


def _of(alias: int, column: str) -> Any:
    return lambda *rows: rows[alias][column]


def _grouped(name: str, group: list[str], aggregates: list[tuple[str, str]], **more: Any) -> GroupedView:
    """A join of x and y; aggregates: (function, column or *)."""
    wanted = [(function, None if of == "*" else _of("xyz".index(of[0]), of[2:])) for function, of in aggregates]
    emitted = [{function: of, "as": f"c{index}"} for index, (function, of) in enumerate(aggregates)]
    columns = [_of("xyz".index(of[0]), of[2:]) for of in group]
    definition = {"group": [f"{of} as {of[2:]}" for of in group], "aggregate": emitted}
    having = more.pop("having", None)
    return GroupedView(_STAR if name == "star" else VIEWS[name], definition | more, columns, wanted, having or (lambda row: True))


_BOTH = [
    ("count", "*"), ("count", "x.floor"), ("count", "y.note"), ("sum", "x.floor"), ("avg", "x.id"), ("sum", "y.nr"), ("avg", "y.floor"),
    ("count", "x.tag"),
]  # fmt: skip
_ITSELF = [("count", "*"), ("sum", "x.floor"), ("avg", "y.id"), ("count", "y.room"), ("sum", "y.floor"), ("count", "x.weight")]
TWINS = {
    "by_key": _grouped("clashes", ["x.room", "y.floor"], _BOTH),
    "by_floor": _grouped("clashes", ["x.floor"], _BOTH),
    "by_other_room": _grouped("clashes", ["y.room"], [("count", "*")]),
    "whole": _grouped("clashes", [], _BOTH),
    "filtered": _grouped("tags", [], _BOTH),
    "both": _grouped("both", [], _ITSELF),
    "apart": _grouped("apart", [], _ITSELF),
    "once": _grouped("once", ["x.room"], [("count", "*")]),
    "having": _grouped(
        "clashes", ["x.room"], [("count", "*"), ("sum", "y.nr")], having=lambda row: row[1] > 1,
    ),
}  # fmt: skip
_STAR = TwinView(
    [("x", "a"), ("y", "b"), ("z", "a")],
    {"from": {"x": "a", "y": "b", "z": "a"}, "join": [{"equal": ["x.room", "y.room"]}, {"equal": ["y.room", "z.room"]}],
     "where": [{"column": "z.tag", "op": "!=", "value": "w"}]},
    lambda x, y, z: x["room"] is not None and x["room"] == y["room"] == z["room"] and z["tag"] != "w",
    lambda x, y, z: x,
    [],
)  # fmt: skip
_PRODUCTS = [("count", "*"), ("sum", "x.floor"), ("avg", "y.nr"), ("count", "z.weight"), ("sum", "z.id"), ("count", "y.note")]
STARS = {
    "star": _grouped("star", ["y.room"], _PRODUCTS),
    "star_whole": _grouped("star", [], _PRODUCTS),
    "star_having": _grouped("star", ["z.room"], [("count", "*")], having=lambda row: row[1] > 20),
}
STARS["star_having"].definition["having"] = [{"column": "c0", "op": ">", "value": 20}]
VISITS = {
    "visits": _grouped("clashes", ["x.id"], [("count", "*")]),
    "visits_sums": _grouped("clashes", ["x.id", "x.tag"], [*_BOTH, ("avg", "x.floor")]),
    "visits_other": _grouped("clashes", ["y.nr", "y.site", "x.room"], _BOTH),
    "visits_unkeyed": _grouped("tags", ["x.id", "x.weight"], [("count", "*"), ("sum", "y.nr")], having=lambda row: row[2] > 1),
    "visits_itself": _grouped("both", ["y.id"], [("count", "*"), ("sum", "x.id"), ("sum", "y.id")]),
}
VISITS["visits_unkeyed"].definition["having"] = [{"column": "c0", "op": ">", "value": 1}]
TWINS["having"].definition["having"] = [{"column": "c0", "op": ">", "value": 1}]


def _named(view: GroupedView, option: dict[str, str]) -> GroupedView:
    return GroupedView(view, view.definition | option, view.group, view.aggregates, view.having)


def test_all_of_them_are_counted() -> None:
    for name, view in (TWINS | STARS).items():
        plan = parse_view("v", view.definition, DEFINITIONS).plan
        assert (plan.algorithm, plan.guarantee, plan.bounds["update"]) == ("event-tree", "strict", "O(log n)"), name


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_counted_is_by_rows(tmp_path: Path, seed: int) -> None:
    by_rows = {f"{name}_by_rows": _named(TWINS[name], BY_ROWS) for name in ("by_key", "apart", "having")}
    assert {parse_view("v", view.definition, DEFINITIONS).plan.shape for view in by_rows.values()} == {"groups"}
    run(tmp_path, 900 + seed, 40, lambda source: source.random.randrange(8), 10, TWINS | by_rows)


def test_what_visits_promise() -> None:
    plans = {name: parse_view("v", view.definition, DEFINITIONS).plan for name, view in VISITS.items()}
    assert {plan.shape for plan in plans.values()} == {"visits"}
    assert {name: plan.guarantee for name, plan in plans.items()} == {"visits": "strict"} | dict.fromkeys([*VISITS][1:], "delay")
    assert plans["visits"].bounds["update"] == "O(log n) for a row of x; for a row of y O(log n), and O(log n) per group of its partners"
    assert "a change of x visits the partners of its row, and changes the group of each" in plans["visits_other"].notes
    for name, says in (("visits_sums", "may be left unchanged"), ("visits_unkeyed", "with HAVING there is no strict guarantee")):
        assert says in plans[name].notes[-1]
        with pytest.raises(Problem) as caught:
            parse_view("v", VISITS[name].definition | {"guarantee": "strict"}, DEFINITIONS)
        assert caught.value.type == "infeasible-view" and says in str(caught.value.detail)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_visits_are_by_rows(tmp_path: Path, seed: int) -> None:
    by_rows = {"visits_by_rows": _named(VISITS["visits_sums"], BY_ROWS)}
    run(tmp_path, 970 + seed, 30, lambda source: source.random.randrange(8), 10, VISITS | by_rows)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_products_are_by_rows(tmp_path: Path, seed: int) -> None:
    by_rows = {"star_by_rows": _named(STARS["star"], {"algorithm": "view-tree"})}
    assert parse_view("v", by_rows["star_by_rows"].definition, DEFINITIONS).plan.shape == "groups"
    run(tmp_path, 950 + seed, 30, lambda source: source.random.randrange(8), 8, STARS | by_rows)


def _relation(bounds: str) -> RelationDefinition:
    names = {
        "id": "int64",
        "k": "int64",
        "g": "float64",
        "d": "date",
        "s": "date",
        "e": "date",
        "p": "timestamp",
        "q": "timestamp",
        "v": "int64",
        "lo": "int64",
        "hi": "int64",
        "since": "timestamp",
        "until": "timestamp",
    }
    columns: list[dict[str, Any]] = [{"name": name, "type": kind, "nullable": name in "kgqv"} for name, kind in names.items()]
    columns.append({"name": "price", "type": "decimal", "precision": 18, "scale": 2})
    intervals = {
        "i": {"start": "s", "end": "e", "bounds": bounds},
        "t": {"start": "p", "end": "q", "bounds": "[)"},
        "n": {"start": "lo", "end": "hi", "bounds": bounds},
        "f": {"at": "price"},
        "z": {"start": "since", "end": "until", "bounds": "()"},
    }
    return parse_relation({"columns": columns, "key": ["id"], "intervals": intervals})


HALVES = {"l": _relation("[)"), "r": _relation("[]")}
EDGES = (0, 1, -1, 2**62, -(2**62), 2**63 - 1, -(2**63), None)
ENDS = (-(2**63) + 1, -(2**63) + 2, -(2**62), -2, -1, 0, 1, 7, 2**62, 2**63 - 5, 2**63 - 4)
_JOIN = "FROM l a JOIN r b ON a.k = b.k AND a.g = b.g AND a.d = b.d AND overlaps(a.i, b.i)"
_ALL = (
    "COUNT(*) AS n, SUM(a.v) AS av, SUM(b.v) AS bv, AVG(b.v) AS m, COUNT(a.v) AS c, SUM(a.price) AS ap, AVG(b.price) AS bp, "
    "SUM(duration(a.i, b.i)) AS both, AVG(duration(b.i, a.i)) AS mean, SUM(duration(a.i)) AS own, SUM(duration(b.t)) AS t, "
    "COUNT(duration(a.t)) AS u"
)
_OF_STAR = "COUNT(*) AS n, SUM(a.v) AS av, SUM(b.v) AS bv, AVG(c.v) AS m, COUNT(b.g) AS g, SUM(c.price) AS p, SUM(duration(c.t)) AS t"
OF_HALVES = {
    "by_all": f"SELECT a.k AS k, b.g AS g, a.d AS d, {_ALL} {_JOIN} GROUP BY a.k, b.g, a.d",
    "by_month": f"SELECT date_trunc('month', b.d) AS m, b.k AS k, {_ALL.replace('AS m,', 'AS mean_v,')} {_JOIN} GROUP BY m, b.k",
    "by_k": f"SELECT b.k AS k, {_ALL} FROM l a JOIN r b ON a.k = b.k AND overlaps(a.i, b.i) GROUP BY b.k",
    "in_all": f"SELECT {_ALL} FROM l a JOIN r b ON overlaps(a.i, b.i) WHERE a.v IS NOT NULL",
    "open_ends": "SELECT a.k AS k, COUNT(*) AS n, SUM(a.v) AS v FROM l a JOIN r b ON a.k = b.k AND overlaps(a.t, b.t) GROUP BY a.k",
    "near": "SELECT COUNT(*) AS n, SUM(b.v) AS v FROM l a JOIN r b ON abs(a.v - b.v) <= 3",
    "rays": "SELECT a.k AS k, COUNT(*) AS n, SUM(b.v) AS v FROM l a JOIN r b ON a.k = b.k AND a.s < b.s GROUP BY a.k",
    "itself": "SELECT a.k AS k, COUNT(*) AS n, SUM(a.v) AS v, AVG(b.v) AS m FROM l a JOIN l b ON a.k = b.k AND overlaps(a.t, b.t) "
    "AND a.id <> b.id GROUP BY a.k HAVING COUNT(*) > 2",
    "numbers": "SELECT a.k AS k, SUM(duration(a.n, b.n)) AS s, AVG(duration(b.n, a.n)) AS m, COUNT(duration(a.n, b.n)) AS c, COUNT(*) AS n "
    "FROM l a JOIN r b ON a.k = b.k AND overlaps(a.n, b.n) GROUP BY a.k",
    "numbers_by_row": "SELECT a.id AS id, SUM(duration(a.n, b.n)) AS s, AVG(duration(b.n, a.n)) AS m, COUNT(duration(b.n, a.n)) AS c "
    "FROM l a JOIN r b ON overlaps(a.n, b.n) GROUP BY a.id",
    "times": "SELECT SUM(duration(a.z, b.z)) AS s, COUNT(duration(a.z, b.z)) AS c FROM l a JOIN r b ON overlaps(a.z, b.z)",
    "itself_in_common": "SELECT a.k AS k, SUM(duration(a.i, b.i)) AS d, AVG(duration(b.i, a.i)) AS m FROM r a JOIN r b ON a.k = b.k AND "
    "overlaps(a.i, b.i) AND a.id <> b.id GROUP BY a.k",
    "numbers_itself": "SELECT SUM(duration(a.n, b.n)) AS d, COUNT(duration(a.n, b.n)) AS c FROM r a JOIN r b ON overlaps(a.n, b.n) AND "
    "a.id <> b.id",
    "pairs": "SELECT COUNT(*) AS n FROM l a JOIN l b ON overlaps(a.t, b.t) AND a.id < b.id",
    "star": f"SELECT b.k AS k, {_OF_STAR} FROM l a JOIN r b ON a.k = b.k JOIN l c ON b.k = c.k GROUP BY b.k",
    "two_keys": "SELECT a.d AS d, b.g AS g, COUNT(*) AS n, SUM(a.price) AS p, AVG(b.v) AS m FROM l a JOIN r b ON a.d = b.d "
    "AND a.g = b.g WHERE a.v <> 1 GROUP BY a.d, b.g",
    "part_of_key": "SELECT date_trunc('year', a.d) AS y, COUNT(*) AS n, SUM(b.v) AS v FROM l a JOIN r b ON a.d = b.d "
    "AND a.k = b.k GROUP BY y",
    "four": "SELECT COUNT(*) AS n, SUM(a.v) AS v FROM l a, r b, l c, r d WHERE a.d = b.d AND b.d = c.d AND c.d = d.d",
    "by_row": f"SELECT a.id AS id, a.v AS w, {_ALL} {_JOIN} GROUP BY a.id, a.v",
    "by_other_row": f"SELECT b.id AS id, {_ALL} FROM l a JOIN r b ON overlaps(a.i, b.i) GROUP BY b.id",
    "nothing": "SELECT COUNT(*) AS n, SUM(a.v) AS v FROM l a JOIN r b ON overlaps(a.i, b.i) WHERE a.k = NULL",
}  # fmt: skip


def _batch(rng: np.random.Generator, count: int, keys: int) -> Batch:
    """Upserts and deletes of both relations."""
    changes = []
    for name, definition in HALVES.items():
        rows = []
        for _ in range(count):
            start, micros, end = int(rng.integers(0, 90)), int(rng.integers(0, 50)), int(rng.integers(1, 20))
            lo, hi, since, until = (ENDS[at] for at in rng.integers(0, len(ENDS), 4))
            lo, hi, since, until = min(lo, hi), max(lo, hi) + 1, min(since, until), max(since, until) + 2  # none is empty
            k, g = rng.choice([None, 0, 1, 1]), rng.choice(np.array([None, 0.0, -0.0, 1.5, 1.5], object))
            rows.append(
                {"id": int(rng.integers(0, keys)), "k": k, "g": g, "d": int(rng.integers(0, 3)) * 20, "s": start, "e": start + end,
                 "p": micros, "q": None if rng.random() < 0.3 else micros + end, "v": EDGES[rng.integers(0, len(EDGES))],
                 "lo": lo, "hi": hi, "since": since, "until": until, "price": int(rng.integers(-10**17, 10**17))}
            )  # fmt: skip
        schema = definition.arrow_schema()
        columns = [_column([row[field.name] for row in rows], field.type) for field in schema]
        ops = np.where(rng.random(count) < 0.3, DELETE, UPSERT).astype(np.uint8)
        changes.append(Changes(name, definition, ops, RowBlock(pa.RecordBatch.from_arrays(columns, schema=schema)), np.arange(count)))
    return Batch(changes, 2 * count, 0, [], 0)


def _column(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_date(type_):
        return pa.array(values, pa.int32()).view(type_)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).view(type_)
    return pa.array(values, type_)


def _registered(folder: Path, views: dict[str, str]) -> Instance:
    engine = opened(folder)
    for name, definition in HALVES.items():
        engine.put_relation(name, definition)
    for name, sql in views.items():
        assert engine.put_view(name, {"sql": sql, **COUNTED}, wait=120)[1] == "created", engine.views[name].problem
    return engine


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_values_lengths_and_keys(tmp_path: Path, seed: int) -> None:
    """Edges of int64, decimals, lengths, keys of several columns, null, -0.0; over a restart."""
    print("seed", seed)
    rng, engine = np.random.default_rng(seed), _registered(tmp_path, OF_HALVES)
    for step in range(14):
        engine.apply(_batch(rng, int(rng.integers(1, 25)), 25))
        compare_with_brute_force(engine)
        check(engine)
        if step == 8:
            engine.close()
            engine = opened(tmp_path)
            compare_with_brute_force(engine)
    statistics = engine.views["by_all"].statistics()
    assert statistics["intervals"] > 0 and statistics["bytes"] > 0
    engine.close()


def test_sums_out_of_range_are_null_and_come_back(tmp_path: Path) -> None:
    engine = _registered(tmp_path, {"v": OF_HALVES["by_k"]})
    rng = np.random.default_rng(7)
    beyond = set()
    for _ in range(12):
        engine.apply(_batch(rng, 20, 20))
        compare_with_brute_force(engine)
        beyond.add(engine.views["v"].statistics()["sums_out_of_range"])
    assert max(beyond) > 0
    engine.close()


_AB = "FROM l a JOIN r b ON a.k = b.k AND overlaps(a.i, b.i)"
_AT = _AB.replace(".i", ".t")
_ROWS = 'write "algorithm": "auto"'


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (f"SELECT a.k AS k, MIN(b.v) AS v {_AB} GROUP BY a.k", "MIN of b.v requires visiting rows; without it, groups could be counted"),
        (f"SELECT a.k AS k, COUNT(DISTINCT b.v) AS v {_AB} GROUP BY a.k", "COUNT(DISTINCT) of b.v requires visiting rows"),
        (f"SELECT a.k AS k, SUM(b.g) AS v {_AB} GROUP BY a.k", "SUM of b.g, a float64, requires visiting rows"),
        (f"SELECT a.k AS k, SUM(duration(a.t, b.t)) AS v {_AT} GROUP BY a.k", "of duration(a.t, b.t), whose end a.q may be null, requires"),
        (
            f"SELECT a.k AS k, COUNT(duration(a.f, b.f)) AS v {_AB.replace('.i', '.f')} GROUP BY a.k",
            "COUNT of duration(a.f, b.f), whose ends are decimal(18,2) (not int64, date or timestamp), requires visiting rows",
        ),
        (f"SELECT a.v AS v, COUNT(*) AS n {_AB} GROUP BY a.v", "v is not a column of the join key; only groups by columns of the join key"),
        ("SELECT SUM(a.v) AS v FROM l a JOIN l b ON overlaps(a.i, b.i) AND a.id < b.id", "each pair once, only COUNT(*) can be counted"),
    ],
)  # fmt: skip
def test_what_goes_by_rows(sql: str, says: str) -> None:
    view = parse_view("v", {"sql": sql}, HALVES)
    assert view.plan.shape == "groups" and view.plan.guarantee == "delay"
    assert any(says in note for note in view.plan.notes), view.plan.notes
    for option in (COUNTED, {"guarantee": "strict"}):
        with pytest.raises(Problem) as caught:
            parse_view("v", {"sql": sql, **option}, HALVES)
        assert caught.value.type == "infeasible-view" and says in str(caught.value.detail)
        assert option != COUNTED or _ROWS in str(caught.value.detail)


def test_only_groups_are_counted() -> None:
    for sql in ("SELECT a.id FROM l a", f"SELECT a.id {_AB}", "SELECT COUNT(*) AS n FROM l a"):
        with pytest.raises(Problem) as caught:
            parse_view("v", {"sql": sql, **COUNTED}, HALVES)
        assert caught.value.type == "infeasible-view" and "event-tree supports COUNT, SUM and AVG of whole numbers" in str(
            caught.value.detail
        )


def test_what_explain_says() -> None:
    sql = f"SELECT a.k AS k, COUNT(*) AS n {_AB} GROUP BY a.k"
    view = parse_view("v", {"sql": sql}, HALVES)
    emitted = view.plan.to_json()
    assert emitted["class"] == "groups by the join key of: interval join, 1-D, 2 relations, keyed"
    assert (emitted["algorithm"], emitted["theorem"], emitted["guarantee"]) == ("event-tree", None, "strict")
    assert emitted["bounds"] == {"space": "O(n) and O(groups)", "update": "O(log n)", "delay": "O(log n)"}
    assert "the partners of a changed row are counted, not visited; a restart reads no row of the join" in emitted["notes"]
    others = {one.algorithm: one.guarantee for one in alternatives(view.query, HALVES)}
    assert others["interval-tree"] == "delay" and "event-tree" not in others
    named = parse_view("v", {"sql": sql, **BY_ROWS}, HALVES)
    assert named.plan.algorithm == "interval-tree" and "event-tree" in {one.algorithm for one in alternatives(named.query, HALVES)}


def test_too_many_groups(tmp_path: Path) -> None:
    """Keys without rows of the join are none."""
    engine = _registered(tmp_path, {})
    definition = {"sql": OF_HALVES["by_all"], "groups": 2, **COUNTED}
    assert engine.put_view("v", definition, wait=120)[1] == "created"
    rng = np.random.default_rng(1)
    while engine.views["v"].state == "live":
        engine.apply(_batch(rng, 20, 40))
    assert engine.views["v"].problem is not None and engine.views["v"].problem.type == "too-many-groups"
    engine.close()


def test_partners_of_a_group_are_not_visited(tmp_path: Path) -> None:
    """One row meets all of the other input: what is looked at does not grow with them."""
    engine = _registered(
        tmp_path, {"v": "SELECT a.d AS d, COUNT(*) AS n, SUM(b.v) AS v FROM l a JOIN r b ON a.d = b.d AND overlaps(a.i, b.i) GROUP BY a.d"}
    )
    looked = []
    for n in (200, 6_000):
        engine.apply(_days("r", range(n), (10, 20)))
        for op in (UPSERT, DELETE, UPSERT, DELETE):
            before = engine.views["v"].join.update_steps
            engine.apply(_days("l", range(1), (0, 100), op))
            looked.append(engine.views["v"].join.update_steps - before)
    assert max(looked) <= 16
    engine.apply(_days("l", range(1), (0, 100)))
    assert open_rows(engine.readers, "v").read(10).to_pylist()[0]["n"] == 6_000  # type: ignore[union-attr]
    check(engine)
    engine.close()


def _days(name: str, ids: range, days: tuple[int, int], op: int = UPSERT) -> Batch:
    """Rows of one key over the same days."""
    definition, n = HALVES[name], len(ids)
    values = {"id": list(ids), "d": [0] * n, "s": [days[0]] * n, "e": [days[1]] * n, "p": [0] * n, "v": [1] * n, "price": [0] * n}
    values |= {"lo": [0] * n, "hi": [9] * n, "since": [0] * n, "until": [9] * n}
    schema = definition.arrow_schema()
    columns = [_column(values.get(field.name, [None] * n), field.type) for field in schema]
    block = RowBlock(pa.RecordBatch.from_arrays(columns, schema=schema))
    return Batch([Changes(name, definition, np.full(n, op, np.uint8), block, np.arange(n))], n, 0, [], 0)
