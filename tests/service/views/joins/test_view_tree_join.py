"""Hierarchical natural joins by view trees over shared indexes: the engine's twin, sharing, failures, and what is left behind."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, UPSERT
from service.access.access_token import EVERYONE
from service.api.views import _explain as explained
from service.errors import Problem
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.joins.reading_join import ViewTreeJoin
from service.views.parse import parse_view
from tests.service.engine.test_engine import prepared, read_all, run
from tests.service.running import check, look, opened, parts
from tests.service.twin import DEFINITIONS, Row, Twin, TwinView, to_batch
from tests.service.views.joins.test_qdag_join import view
from tests.waiting import until

AB, AA, ABB = {"x": "a", "y": "b"}, {"x": "a", "y": "a"}, {"x": "a", "y": "b", "z": "b"}
U = [{"column": "x.tag", "op": "=", "value": "u"}]
HIERARCHICAL = {
    "pair": view(AB, [("x.room", "y.room")]),
    "composite": view(AB, [("x.room", "y.room"), ("x.floor", "y.floor")]),
    "filtered": view(AB, [("x.room", "y.room"), ("x.floor", "y.floor")], U),
    "twice": view(AB, [("x.id", "y.nr"), ("x.floor", "y.nr")]),
    "texts_twice": view({"x": "b", "y": "a"}, [("x.room", "y.room"), ("x.note", "y.room")]),
    "itself": view(AA, [("x.floor", "y.floor")], U),
    "crossed": view(AA, [("x.floor", "y.id")]),
    "star": view(ABB, [("x.floor", "y.floor"), ("x.floor", "z.floor")]),
    "two_levels": view({"x": "a", "y": "b", "z": "b"}, [("x.floor", "y.floor"), ("x.floor", "z.floor"), ("x.room", "y.room")]),
    "three_levels": view(
        {"x": "a", "y": "b", "z": "b", "w": "a"},
        [("x.floor", "y.floor"), ("x.floor", "z.floor"), ("x.floor", "w.floor"), ("x.room", "y.room"), ("x.room", "z.room"),
         ("x.id", "y.nr")],
    ),
    "silent": view(AB, [("x.room", "y.room")], changes=False),
}  # fmt: skip
FOLLOWED = {name: one for name, one in HIERARCHICAL.items() if name != "silent"}
PRODUCTS = {
    "product": TwinView(
        [("x", "a"), ("y", "b"), ("z", "b")],
        {"from": ABB, "join": [{"equal": ["x.room", "y.room"]}, {"cross": ["y", "z"]}], "select": ["x.id as i", "y.nr as n", "z.nr as m"],
         "where": [{"column": "z.note", "op": "=", "value": "n"}]},
        lambda x, y, z: x["room"] is not None and x["room"] == y["room"] and z["note"] == "n",
        lambda x, y, z: {"i": x["id"], "n": y["nr"], "m": z["nr"]},
        [],
    ),
    "of_one_relation": TwinView(
        [("x", "a"), ("y", "a"), ("z", "a"), ("w", "a")],
        {"from": {"x": "a", "y": "a", "z": "a", "w": "a"},
         "join": [{"equal": ["x.id", "y.id"]}, {"equal": ["z.floor", "w.floor"]}, {"cross": ["y", "z"]}],
         "select": ["x.tag as t", "w.tag as s"]},
        lambda x, y, z, w: x["id"] == y["id"] and z["floor"] is not None and z["floor"] == w["floor"],
        lambda x, y, z, w: {"t": x["tag"], "s": w["tag"]},
        [],
    ),
}  # fmt: skip


def a(number: int, **more: Any) -> Row:
    return {"id": number, "room": "A", "floor": 1, "starts": 5, "ends": None, "tag": "u", "weight": None} | more


def b(number: int, **more: Any) -> Row:
    return {"nr": number, "site": "N", "room": "A", "floor": 1, "starts": None, "ends": None, "note": None} | more


def test_auto_takes_a_view_tree() -> None:
    for name, one in HIERARCHICAL.items():
        found = parse_view(name, one.definition, DEFINITIONS)
        assert (found.plan.algorithm, found.plan.guarantee) == ("view-tree", "strict"), name
        assert "acyclic, hierarchical" in found.plan.cls and "Berkholz" in str(found.plan.theorem)
        others = [other.algorithm for other in alternatives(found.query, DEFINITIONS)]
        assert others[:4] == ["join-tree", "qdag", "nested-loop", "tree-tracker"]
    assert parse_view("v", PRODUCTS["product"].definition, DEFINITIONS).plan.parts[0].plan.algorithm == "view-tree"


@pytest.mark.parametrize("seed", range(3))
def test_small_batches(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 1100 + seed, 30, lambda source: source.random.randrange(5), 9, FOLLOWED)


def test_large_batches(tmp_path: Path) -> None:
    run(tmp_path, 1110, 15, lambda source: source.random.randrange(40), 14, FOLLOWED)


@pytest.mark.parametrize("seed", range(2))
def test_products(tmp_path: Path, seed: int) -> None:
    """Parts have indexes of their own: a product goes through each batch twice."""
    run(tmp_path, 1120 + seed, 20, lambda source: source.random.randrange(8), 8, PRODUCTS)


def test_one_index_for_all_that_want_the_same(tmp_path: Path) -> None:
    """Two views and a third alias share; another filter, order or equality is another index; the last to go takes it along."""
    engine = prepared(tmp_path, {"pair": HIERARCHICAL["pair"], "silent": HIERARCHICAL["silent"]})
    indexes = parts(engine).state.indexes
    rows = [("a", UPSERT, a(i, floor=i % 3)) for i in range(40)] + [("b", UPSERT, b(i, room="AB"[i % 2])) for i in range(20)]
    engine.apply(to_batch(rows))
    assert len(indexes._kept) == 2
    alone = engine.views["pair"].statistics()["bytes"]
    for name, kept in (("itself", 4), ("crossed", 5), ("composite", 7), ("filtered", 8)):
        assert engine.put_view(name, HIERARCHICAL[name].definition, wait=60)[1] == "created"
        assert len(indexes._kept) == kept, name
    engine.put_view("again", HIERARCHICAL["pair"].definition | {"changes": {"retain_rows": 7}}, wait=60)
    assert len(indexes._kept) == 8 and engine.views["again"].statistics()["bytes"] < alone
    compare_two(engine, "pair", "again")
    before = indexes.structure.live_bytes
    for name in ("pair", "silent", "itself", "crossed", "composite", "filtered"):
        engine.drop_view(name)
    engine.apply(to_batch([("a", UPSERT, a(1000)), ("a", DELETE, {"id": 3}), ("b", UPSERT, b(1000))]))
    look(engine)
    assert len(indexes._kept) == 2 and not indexes._leaving and indexes.structure.live_bytes < before
    assert open_count(engine, "again") == 40 * 11
    engine.drop_view("again")
    look(engine)
    assert indexes.structure.live_bytes == indexes._texts.keys == indexes.structure.retired_bytes == 0
    engine.close()


def rows_of(engine: Instance, name: str) -> Counter[tuple[Any, ...]]:
    reader = open_rows(engine.readers, name)
    found = read_all(reader)
    reader.close()
    return found


def compare_two(engine: Instance, one: str, other: str) -> None:
    assert rows_of(engine, one) == rows_of(engine, other) != Counter()


def open_count(engine: Instance, name: str) -> int:
    return sum(rows_of(engine, name).values())


@pytest.mark.parametrize("first", [1, 4])
def test_a_reader_of_a_dropped_view_reads_on(tmp_path: Path, first: int) -> None:
    """Though another view is built at the same version, after the look at what may go."""
    engine = prepared(tmp_path, {"pair": HIERARCHICAL["pair"]})
    engine.apply(to_batch([("a", UPSERT, a(i)) for i in range(60)] + [("b", UPSERT, b(i)) for i in range(9)]))
    older = open_rows(engine.readers, "pair")
    for step in range(1, first):
        engine.apply(to_batch([("a", UPSERT, a(step))]))
    reader = open_rows(engine.readers, "pair")
    assert reader.read(10) is not None
    engine.drop_view("pair")
    look(engine)
    engine.put_view("other", HIERARCHICAL["composite"].definition, wait=60)
    look(engine)
    for step in range(5):
        engine.apply(to_batch([("a", UPSERT, a(i, room="B", floor=step)) for i in range(60)]))
        look(engine)
    assert not parts(engine).state.indexes._leaving
    assert sum(read_all(reader).values()) == 60 * 9 - 10
    assert sum(read_all(older).values()) == 60 * 9
    engine.close()


def test_a_view_that_fails_leaves_the_others_their_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = prepared(tmp_path, {"pair": HIERARCHICAL["pair"], "silent": HIERARCHICAL["silent"], "composite": HIERARCHICAL["composite"]})
    engine.apply(to_batch([("a", UPSERT, a(1)), ("b", UPSERT, b(1))]))

    def fail(*_: Any) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(engine.views["pair"].join, "apply", fail)
    monkeypatch.setattr(engine.views["composite"].join, "apply", fail)
    engine.apply(to_batch([("a", UPSERT, a(2))]))
    assert {name: one.state for name, one in engine.views.items()} == {"pair": "failed", "silent": "live", "composite": "failed"}
    engine.apply(to_batch([("b", UPSERT, b(2))]))
    assert open_count(engine, "silent") == 4
    look(engine)
    assert len(parts(engine).state.indexes._kept) == 2
    check(engine)
    engine.close()


def test_indexes_that_fail_are_their_views_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with the indexes fails all views over those that a batch changes, and no other."""
    engine = prepared(tmp_path, {"pair": HIERARCHICAL["pair"], "itself": HIERARCHICAL["crossed"]})
    engine.put_view("list", {"from": {"x": "b"}}, wait=60)
    structure = parts(engine).state.indexes.structure

    def fail(*_: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(structure, "apply", fail)
    engine.apply(to_batch([("b", UPSERT, b(1))]))
    monkeypatch.undo()
    assert {name: one.state for name, one in engine.views.items()} == {"pair": "failed", "itself": "live", "list": "live"}
    engine.apply(to_batch([("a", UPSERT, a(1)), ("b", UPSERT, b(2))]))
    assert open_count(engine, "itself") == 1 and open_count(engine, "list") == 2
    assert engine.versions.published.number == 2
    engine.close()


def test_no_room_is_said_before_anything_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = prepared(tmp_path, {"pair": HIERARCHICAL["pair"]})

    def full(*_: Any) -> None:
        raise MemoryError("planted")

    monkeypatch.setattr(parts(engine).state.indexes.structure, "require", full)
    with pytest.raises(Problem) as caught:
        engine.apply(to_batch([("a", UPSERT, a(1))]))
    assert caught.value.type == "no-room" and engine.published.number == 0
    monkeypatch.undo()
    engine.apply(to_batch([("a", UPSERT, a(1)), ("b", UPSERT, b(1))]))
    assert open_count(engine, "pair") == 1
    engine.close()


def test_a_look_up_by_the_join_key(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {name: HIERARCHICAL[name] for name in ("two_levels", "twice", "texts_twice")})
    rows = [("b", b(i, site=site, floor=i % 2, note="A")) for i in range(4) for site in ("N", "S")] + [("a", a(1)), ("a", a(2, room="B"))]
    engine.apply(to_batch([(name, UPSERT, row) for name, row in rows]))
    found = read_all(open_rows(engine.readers, "two_levels", point=("x", {"room": "A", "floor": "1"})))
    assert found == Counter(dict.fromkeys([(1, i, j) for i in (1, 3) for j in (1, 3)], 4))
    assert read_all(open_rows(engine.readers, "two_levels", point=("z", {"floor": "1"}))) == found
    for point in (("x", {"room": "B", "floor": "1"}), ("x", {"room": "never seen", "floor": "1"}), ("z", {"floor": "7"})):
        assert read_all(open_rows(engine.readers, "two_levels", point=point)) == Counter(), point
    assert read_all(open_rows(engine.readers, "twice", point=("x", {"id": "1", "floor": "1"}))) == Counter({(1, 1): 2})
    assert read_all(open_rows(engine.readers, "twice", point=("x", {"id": "2", "floor": "1"}))) == Counter()
    assert sum(read_all(open_rows(engine.readers, "texts_twice", point=("x", {"room": "A", "note": "A"}))).values()) == 8
    assert read_all(open_rows(engine.readers, "texts_twice", point=("x", {"room": "A", "note": "B"}))) == Counter()
    engine.close()


def test_floats_are_joined_by_value(tmp_path: Path) -> None:
    """-0.0 is 0.0, and NaN is NaN, as in all joins."""
    engine = prepared(tmp_path, {})
    same = {"from": {"x": "a", "y": "a"}, "join": [{"equal": ["x.weight", "y.weight"]}], "select": ["x.id as i", "y.id as j"]}
    for name, algorithm in (("v", "view-tree"), ("w", "nested-loop")):
        engine.put_view(name, same | {"algorithm": algorithm}, wait=60)
    weights = [0.0, -0.0, math.nan, -math.nan, 1.5, -1.5, math.inf, -math.inf, None, None]
    engine.apply(to_batch([("a", UPSERT, a(i, weight=weight)) for i, weight in enumerate(weights)]))
    compare_two(engine, "v", "w")
    assert open_count(engine, "v") == 4 + 4 + 4
    engine.close()


def test_what_explain_tells_of_a_live_one(tmp_path: Path) -> None:
    """The bound by the rows that there are, filters and all; and what the view has met."""
    engine = prepared(tmp_path, {"two_levels": HIERARCHICAL["two_levels"]})
    rows = [("a", UPSERT, a(i, floor=i % 5, tag="uv"[i % 2])) for i in range(20)] + [("b", UPSERT, b(i, floor=i % 5)) for i in range(10)]
    engine.apply(to_batch(rows))
    assert open_count(engine, "two_levels") == 20 * 2 * 2
    emitted = explained(engine, EVERYONE, HIERARCHICAL["two_levels"].definition)
    assert emitted["plan"]["algorithm"] == "view-tree" and emitted["natural"]["class"] == "acyclic, hierarchical, 2 variables, treewidth 1"
    assert emitted["natural"]["agm"] == {"exponent": 3.0, "rows": 2000.0, "cover": {"x": 1.0, "y": 1.0, "z": 1.0}}
    measured = emitted["measured"]["two_levels"]
    assert measured["rows_read"] == 80 and measured["dead_ends"] == 0 and measured["delay_steps"]["max"] < 20
    assert measured["flips_per_update"] == (5 + 5) / 30  # each floor comes to life, and with its room
    filtered = explained(engine, EVERYONE, HIERARCHICAL["two_levels"].definition | {"where": U})
    assert filtered["natural"]["agm"]["rows"] == 1000.0 and "measured" not in filtered
    engine.close()


def test_a_view_of_nothing_needs_no_index(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {})
    engine.put_view("v", {"sql": "SELECT x.id FROM a x JOIN b y ON x.room = y.room WHERE x.tag = NULL"}, wait=60)
    engine.apply(to_batch([("a", UPSERT, a(1)), ("b", UPSERT, b(1))]))
    assert isinstance(engine.views["v"].join, ViewTreeJoin) and not parts(engine).state.indexes._kept
    assert open_count(engine, "v") == 0 and read_all(open_rows(engine.readers, "v", point=("x", {"id": "1"}))) == Counter()
    check(engine)
    engine.close()


def test_a_start_builds_them_anew(tmp_path: Path) -> None:
    engine = prepared(tmp_path, FOLLOWED)
    twin = Twin(FOLLOWED)
    changes = [("a", UPSERT, a(i, floor=i % 4, room="ABC"[i % 3])) for i in range(12)]
    changes += [("b", UPSERT, b(i, floor=i % 3)) for i in range(9)]
    twin.apply(changes, "reject")
    engine.apply(to_batch(changes))
    kept = len(parts(engine).state.indexes._kept)
    engine.close()
    engine = opened(tmp_path)
    until(lambda: len(parts(engine).state.indexes._kept) >= kept)  # replayed alone, they are built anew with what they share
    assert len(parts(engine).state.indexes._kept) == kept
    for name in FOLLOWED:
        assert read_all(open_rows(engine.readers, name)) == Counter(twin.history[twin.version][name].values()), name
    check(engine)
    engine.close()
