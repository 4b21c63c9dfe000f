"""Views with groups against naive twins: every version, followers, look-ups, held readers, runs of single changes, restarts."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.rows import encode_rows
from livejoin.wire.schema import parse_relation
from service.checking.recomputation import beside, recompute, total
from service.instance import Instance
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests.service.engine.test_engine import prepared, run
from tests.service.grouped import GroupedView, truncated
from tests.service.running import check, opened
from tests.service.twin import DEFINITIONS, KEYS, MANY, VIEWS, Source, Twin, TwinView, to_batch
from tests.service.views.test_random_sql import Added

_X = {"from": {"x": "a"}}
_ALL = TwinView([("x", "a")], _X, lambda x: True, lambda x: x, [])
_SOME = TwinView([("x", "a")], _X | {"where": [{"column": "x.tag", "op": "!=", "value": "w"}]}, lambda x: x["tag"] != "w", lambda x: x, [])
_COMPUTED = TwinView([("x", "a")], {}, lambda x: True, lambda x: x, [])


def _of(alias: int, column: str) -> Any:
    return lambda *rows: rows[alias][column]


def _aggregate(*named: tuple[str, str]) -> list[dict[str, str]]:
    return [{function: of, "as": f"{function}_{index}"} for index, (function, of) in enumerate(named)]


def _hour(*rows: Any) -> int:
    return truncated("hour", rows[0]["starts"])


SINGLE = {
    "by_room": GroupedView(
        _ALL,
        {
            "group": ["x.room as room"],
            "aggregate": _aggregate(
                ("count", "*"), ("count", "x.floor"), ("sum", "x.floor"), ("avg", "x.floor"), ("sum", "x.weight"), ("avg", "x.weight"),
                ("min", "x.weight"), ("max", "x.ends"), ("count_distinct", "x.tag"), ("count_distinct", "x.weight"),
            ),
        },
        [_of(0, "room")],
        [
            ("count", None), ("count", _of(0, "floor")), ("sum", _of(0, "floor")), ("avg", _of(0, "floor")), ("sum", _of(0, "weight")),
            ("avg", _of(0, "weight")), ("min", _of(0, "weight")), ("max", _of(0, "ends")), ("count_distinct", _of(0, "tag")),
            ("count_distinct", _of(0, "weight")),
        ],
    ),
    "all": GroupedView(
        _SOME, {"aggregate": _aggregate(("count", "*"), ("sum", "x.weight"), ("min", "x.floor"))}, [],
        [("count", None), ("sum", _of(0, "weight")), ("min", _of(0, "floor"))],
    ),
    "by_weight": GroupedView(
        _ALL, {"group": ["x.weight as w", "x.floor as f"], "aggregate": _aggregate(("max", "x.id"))}, [_of(0, "weight"), _of(0, "floor")],
        [("max", _of(0, "id"))],
    ),
    "having": GroupedView(
        _ALL,
        {"group": ["x.tag as t"], "aggregate": _aggregate(("count", "*"), ("sum", "x.id")), "having": [
            {"column": "count_0", "op": ">", "value": 2}, {"column": "t", "op": "!=", "value": "v"}]},
        [_of(0, "tag")], [("count", None), ("sum", _of(0, "id"))],
        lambda row: row[1] > 2 and row[0] != "v",
    ),
    "of_numbers": GroupedView(
        _ALL,
        {"group": ["x.floor as f"], "aggregate": _aggregate(("count", "*"), ("sum", "x.floor"), ("max", "x.id")), "having": [
            {"column": "count_0", "op": "!=", "value": 3}, {"column": "sum_1", "op": "<=", "value": 8},
            {"column": "max_2", "op": ">=", "value": 2}]},
        [_of(0, "floor")], [("count", None), ("sum", _of(0, "floor")), ("max", _of(0, "id"))],
        lambda row: row[1] != 3 and row[2] is not None and row[2] <= 8 and row[3] >= 2,
    ),
    "none_left": GroupedView(
        _ALL, {"aggregate": _aggregate(("count", "*")), "having": [{"column": "count_0", "op": ">", "value": 3}]}, [], [("count", None)],
        lambda row: row[0] > 3,
    ),
    "hourly": GroupedView(
        _ALL, {"group": [{"trunc": "hour", "of": "x.starts", "as": "h"}], "aggregate": _aggregate(("count", "*"))}, [_hour],
        [("count", None)],
    ),
    "computed": GroupedView(  # by one call, with words and nulls that it is given
        _COMPUTED,
        {"sql": "SELECT x.floor % 2 AS p, date_trunc('hour', x.starts + INTERVAL '40' MINUTE) AS h, SUM(x.id * x.floor) AS s, "
            "MAX(x.weight * -2) AS m, COUNT(x.floor / x.id) AS c, AVG(CASE WHEN x.floor > 1 THEN x.id ELSE x.floor END) AS a FROM a x "
            "GROUP BY x.floor % 2, date_trunc('hour', x.starts + INTERVAL '40' MINUTE)"},
        [lambda x: None if x["floor"] is None else x["floor"] % 2, lambda x: truncated("hour", x["starts"] + 40 * 60_000_000)],
        [
            ("sum", lambda x: None if x["floor"] is None else x["id"] * x["floor"]),
            ("max", lambda x: None if x["weight"] is None else x["weight"] * -2),
            ("count", lambda x: x["floor"] if x["id"] else None),
            ("avg", lambda x: x["id"] if x["floor"] is not None and x["floor"] > 1 else x["floor"]),
        ],
    ),
    "spread": GroupedView(
        _ALL,
        {
            "group": ["x.room as room"],
            "aggregate": _aggregate(
                ("var_pop", "x.floor"), ("stddev_samp", "x.floor"), ("var_samp", "x.weight"), ("stddev_pop", "x.weight"), ("min", "x.tag"),
                ("max", "x.tag"),
            ),
        },
        [_of(0, "room")],
        [
            ("var_pop", _of(0, "floor")), ("stddev_samp", _of(0, "floor")), ("var_samp", _of(0, "weight")),
            ("stddev_pop", _of(0, "weight")), ("min", _of(0, "tag")), ("max", _of(0, "tag")),
        ],
    ),
    "distinct": GroupedView(_ALL, {"select": ["x.room as r", "x.tag as t"], "distinct": True}, [_of(0, "room"), _of(0, "tag")], []),
    "whole": GroupedView(_SOME, {"select": ["x.weight as w", "x.id as i"], "distinct": True}, [_of(0, "weight"), _of(0, "id")], []),
}  # fmt: skip


def _grouped(name: str, view: TwinView) -> GroupedView:
    """A join, grouped by a column of its first alias."""
    alias = view.aliases[0][0]
    column, number = ("tag", "id") if view.aliases[0][1] == "a" else ("note", "nr")
    return GroupedView(
        view,
        {
            "group": [f"{alias}.{column} as g"],
            "aggregate": _aggregate(("count", "*"), ("sum", f"{alias}.{number}"), ("max", f"{alias}.{number}")),
        },
        [_of(0, column)], [("count", None), ("sum", _of(0, number)), ("max", _of(0, number))],
    )  # fmt: skip


def _distinct(view: TwinView, aliases: int) -> GroupedView:
    """A join's different rows of its first aliases, each with the whole key: planned as EXISTS, where the others hang on one of these."""
    columns = [(at, column) for at, (_, name) in enumerate(view.aliases[:aliases]) for column in (*KEYS[name], "room")]
    select = [f"{view.aliases[at][0]}.{column} as c{index}" for index, (at, column) in enumerate(columns)]
    return GroupedView(view, {"select": select, "distinct": True}, [_of(at, column) for at, column in columns], [])


JOINS = {name: _grouped(name, view) for name, view in (VIEWS | MANY).items()}
PARTNERED = {
    f"{name}_{aliases}": _distinct(view, aliases)
    for name, view in (VIEWS | MANY).items() for aliases in (1, 2) if 1 < aliases + 1 <= len(view.aliases)
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_groups_of_one_relation(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 400 + seed, 50, lambda source: source.random.randrange(5), 12, SINGLE)


def test_large_batches(tmp_path: Path) -> None:
    run(tmp_path, 450, 20, lambda source: source.random.randrange(60), 40, SINGLE)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_groups_of_joins(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 500 + seed, 30, lambda source: source.random.randrange(8), 9, JOINS)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_rows_that_are_distinct_by_their_keys(tmp_path: Path, seed: int) -> None:
    planned = {name: parse_view("v", view.definition, DEFINITIONS) for name, view in PARTNERED.items()}
    alone = [name for name, view in planned.items() if view.query.distinct]
    assert len(alone) > 12 and all(planned[name].plan.core is None for name in alone)
    run(tmp_path, 550 + seed, 20, lambda source: source.random.randrange(8), 8, PARTNERED)


HIDDEN = {  # HAVING reads aggregates that followers do not see
    "by one call": ("SELECT x.floor AS f, max(x.id) AS m FROM a x GROUP BY x.floor HAVING count(*) > 1 AND sum(x.floor) > 0", None),
    "by steps": ("SELECT x.room AS r, min(x.floor) AS m FROM a x GROUP BY x.room HAVING avg(x.weight) >= 0 OR max(x.weight) IS NULL", None),
    "by an expression": ("SELECT x.tag AS t, count(*) / 4 AS c, sum(x.id) > 20 AS m FROM a x GROUP BY x.tag", None),
    "of numbers by an expression": ("SELECT x.floor + 1 AS t, count(*) / 4 AS c FROM a x GROUP BY x.floor", None),
    "the only one": ("SELECT max(x.floor) AS m FROM a x HAVING count(*) <> 1 AND sum(x.id) > 0", None),
    "of a join": (
        "SELECT x.tag AS t, max(y.floor) AS f FROM a x JOIN b y ON x.room = y.room GROUP BY x.tag HAVING count(*) <> 3", "view-tree",
    ),
    "counted": (
        "SELECT x.room AS r, count(*) AS n FROM a x JOIN b y ON x.room = y.room AND overlaps(x.stay, y.slot) "
        "GROUP BY x.room HAVING sum(x.id) <> 7", "event-tree",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_followers_are_not_told_of_changes_that_they_do_not_see(tmp_path: Path, name: str) -> None:
    """No change deletes a row and inserts the same one; a group's row comes and goes as HAVING says."""
    sql, algorithm = HIDDEN[name]
    source, twin, engine = Source(7, 12), Twin({}), prepared(tmp_path, {})
    view, _ = engine.put_view("v", {"sql": sql, "algorithm": algorithm or "auto"}, wait=60)
    assert algorithm is None or view.view.plan.algorithm == algorithm
    added, emitted, changes = Added(engine, "v"), 0, 0
    assert "HAVING" not in sql or np.count_nonzero(view.shown.succession.shown == 0) > 1, "the code, and what HAVING alone reads"
    for size in [1] * 60 + [9] * 20:
        given = source.changes(size, twin.relations)
        twin.apply(given, "skip")
        engine.apply(to_batch(given, on_error="skip"))
        before = dict(added.rows)
        emitted += added.catch_up()
        changed = before.items() ^ added.rows.items()
        assert emitted - changes == len(changed), "what is told is what has changed"
        changes = emitted
        compare_with_brute_force(engine)
        check(engine)
    assert emitted > 5
    engine.close()


def test_recomputed_groups_are_those_of_the_view(tmp_path: Path) -> None:
    source, twin = Source(3, 12), Twin({})
    engine = prepared(tmp_path, SINGLE | JOINS | PARTNERED)
    for _ in range(6):
        changes = source.changes(25, twin.relations)
        twin.apply(changes, "skip")
        engine.apply(to_batch(changes, on_error="skip"))
        compare_with_brute_force(engine)
        check(engine)
    engine.close()


def compare_with_brute_force(engine: Instance) -> None:
    """What `livejoin check` does."""
    tables = {name: whole(engine, name) for name in engine.relations}
    for name, view in engine.views.items():
        emitted = total(beside(*part) for part in iter(partial(open_rows(engine.readers, name).read_with_keys, 1000), None))
        assert emitted == total(recompute(view.view.query, view.definitions, tables)), name


def whole(engine: Instance, name: str) -> pa.RecordBatch:
    relation = engine.relations[name]
    slots = relation.table.scan(engine.published.number, 0, 1 << 20)[0]
    return relation.table.take(relation.schema.names, slots)


MONEY = parse_relation(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "room", "type": "string", "nullable": True},
            {"name": "price", "type": "decimal", "precision": 18, "scale": 2, "nullable": True},
            {"name": "rate", "type": "decimal", "precision": 4, "scale": 3},
        ],
        "key": ["id"],
    }
)


def priced(rows: list[tuple[str, int, str | None, int | None, int]]) -> Batch:
    """(op, id, room, digits of the price, digits of the rate)"""
    schema = MONEY.arrow_schema()
    given = pa.RecordBatch.from_pylist([dict(zip(schema.names, row[1:], strict=True)) for row in rows], schema=schema)
    ops = np.array([UPSERT if op == "upsert" else DELETE for op, *_ in rows], np.uint8)
    return Batch([Changes("money", MONEY, ops, RowBlock(given), np.arange(len(rows)))], len(rows), 0, [], 0)


def test_decimals(tmp_path: Path) -> None:
    """Sums are exact to 38 digits, averages to the last bit; all by brute force, too."""
    engine = opened(tmp_path)
    engine.put_relation("money", MONEY)
    sql = (
        "SELECT room, SUM(price) AS s, AVG(price) AS a, MIN(price) AS f, MAX(rate) AS l, COUNT(DISTINCT rate) AS d FROM money GROUP BY room"
    )
    assert engine.put_view("v", {"sql": sql}, wait=60)[1] == "created"
    assert engine.put_view("h", {"sql": f"{sql} HAVING SUM(price) > 100.05"}, wait=60)[1] == "created"
    computed = (
        "SELECT id % 3 AS r, SUM(price * id) AS s, AVG(price * id) AS a, MIN(price * id) AS f, MAX(room || 'é') AS l, VAR_POP(price) AS v, "
        "STDDEV(price) AS d, COUNT(DISTINCT price * id) AS n FROM money GROUP BY 1"
    )
    assert engine.put_view("c", {"sql": computed}, wait=60)[1] == "created"
    assert engine.put_view("w", {"sql": "SELECT price * id AS p, COUNT(*) AS n FROM money GROUP BY 1 HAVING price * id > 5"}, wait=60)
    assert engine.put_view("r", {"sql": "SELECT rate AS rate, COUNT(*) AS n FROM money GROUP BY rate"}, wait=60)[1] == "created"
    most = 10**18 - 1
    engine.apply(priced([("upsert", i, "A", most, 1000 + i) for i in range(20)]))
    engine.apply(priced([("upsert", 100, "B", 10005, 5), ("upsert", 101, None, None, 5), ("upsert", 102, "C", 10006, 5)]))
    compare_with_brute_force(engine)
    rows = {row["room"]: row for row in open_rows(engine.readers, "v").read(100).to_pylist()}  # type: ignore[union-attr]
    assert rows["A"]["s"] == Decimal(20 * most) / 100 and rows["A"]["d"] == 20 and rows["A"]["l"] == Decimal("1.019")
    assert rows["A"]["a"] == 20 * most / (20 * 100) and rows[None]["s"] is None and rows["B"]["s"] == Decimal("100.05")
    texts = encode_rows("application/jsonl", open_rows(engine.readers, "v").read(100)).decode()  # type: ignore[arg-type]
    assert '"s":"199999999999999999.80"' in texts and '"s":"100.05"' in texts
    kept = {row["room"] for row in open_rows(engine.readers, "h").read(100).to_pylist()}  # type: ignore[union-attr]
    assert kept == {"A", "C"}
    found = open_rows(engine.readers, "r", point=("group", {"rate": "0.005"})).read(10)
    assert found is not None and found.to_pylist() == [{"rate": Decimal("0.005"), "n": 3}]
    engine.apply(priced([("delete", i, None, None, 0) for i in range(19)] + [("upsert", 100, "B", -most, 5)]))
    compare_with_brute_force(engine)
    check(engine)
    engine.close()
