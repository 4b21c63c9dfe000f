"""Join trees: which views they keep, random ones against a naive twin at every version, no dead ends, and the data sets' trees."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livejoin.wire.batch import DELETE, INSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests import datasets
from tests.service.definitions import RELATIONS, refused, sql
from tests.service.engine.test_engine import prepared, read_all, run
from tests.service.running import check, opened
from tests.service.twin import _INF, Row, Source, Twin, TwinView, _equal, _meet, _not_null, _slot, _stay, to_batch, values

_SPANS = {"a": ("stay", _stay), "b": ("slot", _slot)}


class RandomTree(TwinView):
    """A view of 3 to 5 aliases whose conditions are drawn, with some equalities said twice; its twin binds an alias at a time."""

    def __init__(self, rng: random.Random) -> None:
        count = rng.randrange(3, 6)
        aliases = [(f"t{position}", rng.choice("ab")) for position in range(count)]
        self.tests: list[list[Any]] = [[] for _ in aliases]
        self.kept: dict[int, Any] = {}
        self.overlapping: set[int] = set()
        conditions: list[dict[str, Any]] = []
        for position in range(1, count):
            conditions += self._edge(rng, aliases, rng.randrange(position), position)
        where = []
        if rng.random() < 0.5:
            position = rng.randrange(count)
            column, value = ("tag", "v") if aliases[position][1] == "a" else ("note", "n")
            where.append({"column": f"t{position}.{column}", "op": "=", "value": value})
            self.kept[position] = lambda row: row[column] == value
        names = [f"t{position}.{'tag' if name == 'a' else 'note'} as c{position}" for position, (_, name) in enumerate(aliases)]
        definition = {"from": dict(aliases), "join": conditions, "where": where, "select": names, "algorithm": "join-tree"}
        ends = [
            _SPANS[name][1] if position in self.overlapping else lambda row: (-_INF, _INF) for position, (_, name) in enumerate(aliases)
        ]
        super().__init__(
            aliases, definition, lambda *rows: True,
            lambda *rows: {f"c{i}": row["tag" if "tag" in row else "note"] for i, row in enumerate(rows)},
            ends if self.overlapping else [],
        )  # fmt: skip

    def _edge(self, rng: random.Random, aliases: list[tuple[str, str]], near: int, far: int) -> list[dict[str, Any]]:
        (x, p), (y, q) = aliases[near], aliases[far]
        found: list[dict[str, Any]] = []
        meet = rng.choice(("none", "overlap", "overlap", "within", "floors", "later"))
        columns = rng.choice((["room"], ["floor"], ["room", "floor"], *([] if meet == "none" else [[], []])))
        for column in columns:
            found += [{"equal": [f"{x}.{column}", f"{y}.{column}"]}] * rng.randrange(1, 3)
            self.tests[far].append((near, lambda one, other, column=column: _equal(one[column], other[column])))
        if meet == "overlap":
            self.overlapping |= {near, far}
            found.append({"overlaps": [f"{x}.{_SPANS[p][0]}", f"{y}.{_SPANS[q][0]}"]})
            self.tests[far].append((near, lambda one, other: _meet(_SPANS[p][1](one), _SPANS[q][1](other))))
        elif meet == "within":
            found.append({"within": [f"{x}.starts", f"{y}.starts"], "distance": 4})
            self.tests[far].append((near, lambda one, other: _near(one["starts"], other["starts"])))
        elif meet == "floors":
            found.append({"at_most": [f"{x}.floor", f"{y}.floor"]})
            self.tests[far].append((near, lambda one, other: _not_null(one["floor"], other["floor"]) and one["floor"] <= other["floor"]))
        elif meet == "later":
            found.append({"less": [f"{y}.ends", f"{x}.starts"]})
            self.tests[far].append((near, lambda one, other: _not_null(other["ends"], one["starts"]) and other["ends"] < one["starts"]))
        return found

    def combinations(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[Row, ...]]:
        bound: list[tuple[Row, ...]] = [()]
        for position, (_, name) in enumerate(self.aliases):
            rows = [row for row in relations[name].values() if position not in self.kept or self.kept[position](row)]
            tests = self.tests[position]
            bound = [(*some, row) for some in bound for row in rows if all(test(some[near], row) for near, test in tests)]
        return bound


def _near(x: int | None, y: int | None) -> bool:
    return x is not None and y is not None and abs(x - y) <= 4


@pytest.mark.parametrize("seed", range(3))
def test_random_trees(tmp_path: Path, seed: int) -> None:
    """By the engine's twin: every version, followers, look-ups, windows, held readers, restarts."""
    rng = random.Random(1000 + seed)
    views = {f"tree{number}": RandomTree(rng) for number in range(4)}
    print({name: view.definition["join"] for name, view in views.items()})
    run(tmp_path, 400 + seed, 25, lambda source: source.random.randrange(8), 7, dict(views))


def test_invariants_after_every_version(tmp_path: Path) -> None:
    """Liveness recomputed after each batch; look-ups by key and by join key of an old version, while the masks have gone on."""
    rng = random.Random(77)
    print("seed 77")
    views = {f"tree{number}": RandomTree(rng) for number in range(6)}
    source, twin = Source(77, 8), Twin(dict(views))
    engine = prepared(tmp_path, dict(views))
    held: list[tuple[Any, Any]] = []
    for epoch in range(40):
        changes = source.changes(rng.randrange(1, 7), twin.relations)
        if twin.apply(changes, "skip") is not None:
            engine.apply(to_batch(changes, source="s", epoch=epoch, on_error="skip"))
        check(engine)
        for reader, expected in held:
            assert read_all(reader) == expected
        held = [_held(engine, twin, source, name) for name in views]
    for reader, expected in held:
        assert read_all(reader) == expected
    engine.close()


def _held(engine: Instance, twin: Twin, source: Source, name: str) -> tuple[Any, Any]:
    """A look-up by an alias's key or its columns set equal, not read yet, and its rows."""
    view = twin.views[name]
    position = source.random.randrange(len(view.aliases))
    alias, relation = view.aliases[position]
    equal = engine.views[name].inputs[position].equal
    key = source.key(relation)
    if equal and source.random.random() < 0.6:
        key = {column: {"room": "A", "floor": 1}[column] for column in equal}
    mine = [rows for rows in view.combinations(twin.relations) if all(rows[position][column] == key[column] for column in key)]
    reader = open_rows(engine.readers, name, point=(alias, {column: str(value) for column, value in key.items()}))
    return reader, Counter(values(view.select(*rows)) for rows in mine)


PATH = {
    "from": {"x": "a", "y": "b", "z": "a"},
    "join": [{"equal": ["x.room", "y.room"]}, {"equal": ["y.floor", "z.floor"]}, {"overlaps": ["y.slot", "z.stay"]}],
    "select": ["x.id as i", "y.nr as n", "z.id as j"],
}


def test_no_dead_ends(tmp_path: Path) -> None:
    """All but one of y's rows have partners in x and none in z; 60 rows of x have such partners only. By look-ups alone all are met."""
    gaps = {}
    for algorithm in ("join-tree", "nested-loop"):
        view = TwinView([("x", "a"), ("y", "b"), ("z", "a")], PATH | {"algorithm": algorithm}, lambda *rows: True, lambda *rows: {}, [])
        engine = prepared(tmp_path / algorithm, {"path": view})
        changes: list[tuple[str, int, Row]] = [("a", INSERT, _a(i, "A" if i < 40 else "C", None)) for i in range(100)]
        changes += [("b", INSERT, _b(i, "A" if i < 40 else "C", 1)) for i in range(80)] + [("b", INSERT, _b(80, "A", 2))]
        changes += [("a", INSERT, _a(1000, None, 2))]
        engine.apply(to_batch(changes))
        join = engine.views["path"].join
        for cursor in (join.rows(join.root, None), join.partners(join.root, 2, np.array([100], np.int32), None)):
            rows = 0
            while not cursor.done:
                rows += len(cursor.fill(1)[0])
            assert rows == 40
            gaps.setdefault(algorithm, []).append((cursor.counts.largest_gap, cursor.counts.steps))
        # Of x, one of the 60: forty partners in y, none of them live.
        cursor = join.partners(join.root, 0, np.array([90], np.int32), None)
        while not cursor.done:
            assert len(cursor.fill(1)[0]) == 0
        gaps[algorithm].append((0, cursor.counts.steps))
        engine.close()
    for gap, looked in gaps["join-tree"]:
        assert gap <= looked <= 2 * 40, gaps  # a leaf is looked through at once
    assert gaps["join-tree"][2][1] == 0
    assert gaps["nested-loop"][0][0] > 80 and gaps["nested-loop"][0][1] > 4000 and gaps["nested-loop"][2][1] >= 40, gaps


def test_a_row_without_rows_of_the_view_is_not_followed(tmp_path: Path) -> None:
    """It comes and is_deleted: its forty partners are dead, and a change costs its look-up, not a look at them."""
    view = TwinView([("x", "a"), ("y", "b"), ("z", "a")], PATH | {"algorithm": "join-tree"}, lambda *rows: True, lambda *rows: {}, [])
    engine = prepared(tmp_path, {"path": view})
    engine.apply(to_batch([("b", INSERT, _b(i, "A", 1)) for i in range(40)] + [("a", INSERT, _a(2, "A", None))]))
    join = engine.views["path"].join
    before = join.update_steps
    engine.apply(to_batch([("a", INSERT, _a(1, "A", None))]))
    engine.apply(to_batch([("a", DELETE, {"id": 1})]))
    assert join.update_steps - before <= 6
    engine.close()


def _a(number: int, room: str | None, floor: int | None) -> Row:
    return {"id": number, "room": room, "floor": floor, "starts": 0, "ends": 10, "tag": "u", "weight": None}


def _b(number: int, room: str, floor: int) -> Row:
    return {"nr": number, "site": "N", "room": room, "floor": floor, "starts": 5, "ends": 6, "note": None}


@pytest.mark.parametrize(
    ("join", "edges"),
    [
        ("a.room = b.room AND b.floor = c.floor", {(0, 1), (1, 2)}),
        ("a.room = b.room AND b.room = c.room AND a.room = c.room", {(0, 1), (0, 2)}),
        ("a.room = b.room AND b.room = c.room AND b.floor = c.floor", {(0, 1), (1, 2)}),
        ("a.room = b.room AND a.room = c.room AND overlaps(b.slot, c.slot)", {(0, 1), (1, 2)}),
        ("overlaps(a.stay, b.slot) AND abs(b.s - c.s) <= INTERVAL '1 hour' AND a.room = b.room", {(0, 1), (1, 2)}),
        ("overlaps(a.open, b.slot) AND overlaps(a.moment, c.slot) AND a.id = c.id", {(0, 1), (0, 2)}),
        ("a.room = b.room AND b.code < c.code", {(0, 1), (1, 2)}),
        ("a.room = b.room AND b.floor = c.floor AND a.id = c.id", None),
        ("overlaps(a.stay, b.slot) AND overlaps(b.slot, c.slot) AND overlaps(a.stay, c.slot)", None),
        ("overlaps(a.stay, b.slot) AND a.floor < b.floor AND b.room = c.room", None),
        ("a.room = b.room AND b.room < c.room AND b.id = c.id", None),
        ("a.room = b.room AND b.id = c.id AND a.id <> c.code", None),
    ],
)
def test_which_trees(join: str, edges: set[tuple[int, int]] | None) -> None:
    view = sql(f"SELECT a.id FROM bookings a, maintenance b, maintenance c WHERE {join}")
    plans = {plan.algorithm: plan for plan in [view.plan, *alternatives(view.query, RELATIONS)]}
    if edges is None:
        assert "join-tree" not in plans
        problem = refused({"sql": f"SELECT a.id FROM bookings a, maintenance b, maintenance c WHERE {join}", "algorithm": "join-tree"})
        assert problem.type == "infeasible-view" and "tree" in problem.detail
        return
    plan = plans["join-tree"]
    assert {(edge.near, edge.far) for edge in plan.tree[::2]} == edges
    assert plan.tree[1::2] == tuple(edge.back for edge in plan.tree[::2])
    assert plan.guarantee == "delay" and plan.notes and plan.bounds["delay"] == "O(log n)"


def test_promises() -> None:
    text = "SELECT a.id FROM bookings a JOIN maintenance b ON a.room = b.room JOIN maintenance c ON b.floor = c.floor"
    plan = sql(text, guarantee="delay").plan
    cls = "natural join, 3 relations, acyclic, beta-acyclic, 2 variables, treewidth 1"
    assert (plan.cls, plan.algorithm, plan.guarantee) == (cls, "join-tree", "delay")
    assert plan.theorem is not None and "Yannakakis" in plan.theorem
    problem = refused({"sql": text, "guarantee": "strict"})
    assert problem.type == "infeasible-view" and "partners" in problem.detail
    pair = sql("SELECT a.id FROM bookings a JOIN maintenance b ON a.room = b.room", guarantee="strict").plan
    assert (pair.cls, pair.algorithm) == ("natural join, 2 relations, acyclic, hierarchical, 1 variable, treewidth 0", "view-tree")


TREES = [("congress", "chain"), ("congress", "delegation"), ("outages", "infra_stock_same_station"), ("genome_chr1", "three_path"),
         ("genome_chr1", "four_star"), ("genome_chr1", "five_path")]  # fmt: skip


@pytest.mark.parametrize(("name", "view"), TREES)
def test_data_sets(tmp_path: Path, name: str, view: str) -> None:
    """The known answers: half the rows before the view is made, half after, then a third gone and back."""
    about = datasets.view(name, view)
    engine = opened(tmp_path)
    tables = list(dict.fromkeys(entry["table"] for entry in about["join"]["from"]))
    definitions = {table: parse_relation(datasets.definition(name, table)) for table in tables}
    for table, definition in definitions.items():
        engine.put_relation(table, definition)
    assert parse_view("v", {"sql": about["sql"], "algorithm": "join-tree"}, definitions).plan.tree

    def send(op: int, some: slice) -> None:
        for table, definition in definitions.items():
            rows = datasets.table(name, table).combine_chunks().cast(definition.arrow_schema()).to_batches()[0]
            rows = rows.take(np.arange(rows.num_rows)[some])
            changes = Changes(table, definition, np.full(len(rows), op, np.uint8), RowBlock(rows), np.arange(len(rows)))
            engine.apply(Batch([changes], len(rows), 0, [], 0))

    send(INSERT, slice(0, None, 2))
    engine.put_view("v", {"sql": about["sql"], "algorithm": "join-tree"}, wait=60)
    for op, some in ((INSERT, slice(1, None, 2)), (DELETE, slice(1, None, 3)), (INSERT, slice(1, None, 3))):
        send(op, some)
    rows: list[tuple[Any, ...]] = []
    reader = open_rows(engine.readers, "v")
    while (batch := reader.read(4096)) is not None:
        rows += [tuple(row[column] for column in about["result_columns"]) for row in batch.to_pylist()]
    reader.close()
    assert (len(rows), datasets.checksum(rows)) == (about["rows"], about["checksum"])
    check(engine)
    engine.close()
