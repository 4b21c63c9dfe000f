"""Views of the latest rows against naive twins: every version, followers, look-ups, held readers, runs of single changes, restarts."""

from __future__ import annotations

from collections import Counter
from datetime import date, time
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import UPSERT
from livejoin.wire.schema import RelationPatch, parse_relation
from service.errors import Problem
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests.service.engine.test_engine import prepared, read_all, run
from tests.service.latest import LatestView, OrderedView
from tests.service.running import check, opened
from tests.service.twin import DEFINITIONS, Source, Twin, to_batch, values
from tests.service.views.stages.test_groups import compare_with_brute_force

LATEST = {
    "newest": LatestView(
        "a", ["room"], "starts", True, 1, {"where": [{"column": "x.tag", "op": "!=", "value": "w"}]}, lambda row: row["tag"] != "w"
    ),
    "heaviest": LatestView("a", ["room", "floor"], "weight", True, 3),
    "lightest": LatestView("a", ["weight"], "weight", False, 2),
    "oldest": LatestView("b", ["note"], "starts", False, 2),
    "last": LatestView("b", [], "floor", True, 5),
    "highest": LatestView("a", ["tag"], "id", True, 1),
    "many": LatestView("b", ["site"], "floor", False, 100),
    "fullest": OrderedView("a", ["room"], ["tag DESC LAST", "weight ASC FIRST", "floor DESC FIRST"], 2),
    "noted": OrderedView("b", [], ["note ASC LAST", "floor DESC LAST", "room ASC FIRST"], 4),
    "deepest": OrderedView("a", ["tag"], ["floor ASC FIRST", "weight DESC LAST", "id ASC LAST"], 3),
    "crowded": OrderedView("b", ["floor"], ["starts DESC LAST", "room DESC FIRST", "ends ASC LAST", "note DESC FIRST", "nr ASC LAST"], 3),
    "never": LatestView("a", ["room"], "starts", True, 1, {"where": [{"column": "x.tag", "op": "=", "value": None}]}, lambda row: False),
}


def test_what_is_promised() -> None:
    """Strict where what is left of the primary key is made of numbers."""
    plans = {name: parse_view("v", view.definition, DEFINITIONS).plan for name, view in LATEST.items()}
    assert {name: plan.guarantee for name, plan in plans.items()} == {
        name: "delay" if name in ("oldest", "last", "fullest", "noted", "crowded") else "strict" for name in LATEST
    }
    assert plans["newest"].cls == "latest row of each x.room by x.starts, 1 relation" and plans["newest"].algorithm == "interval-tree"
    assert plans["last"].cls == "top 5 rows by x.floor, 1 relation"
    assert plans["deepest"].cls == "top 3 rows of each x.tag by x.floor, x.weight, x.id, 1 relation"
    assert {"rows whose x.floor is null come first", "rows whose x.weight is null come last"} <= {*plans["deepest"].notes}
    assert any("rows that tie in the first numbers and bytes of the order" in note for note in plans["oldest"].notes)
    with pytest.raises(Problem, match="only \"delay\".*the primary key .site, nr. are not made of a few numbers") as caught:
        parse_view("v", LATEST["oldest"].definition | {"guarantee": "strict"}, DEFINITIONS)
    assert caught.value.type == "infeasible-view" and "rows that tie" in caught.value.extensions["theorem"]
    with pytest.raises(Problem, match="write \"algorithm\": \"interval-tree\""):
        parse_view("v", LATEST["oldest"].definition | {"algorithm": "qdag"}, DEFINITIONS)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_latest_rows(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 600 + seed, 50, lambda source: source.random.randrange(5), 12, LATEST)


def test_large_batches(tmp_path: Path) -> None:
    run(tmp_path, 650, 20, lambda source: source.random.randrange(60), 40, LATEST)


def test_recomputed_rows_and_look_ups_are_those_of_the_view(tmp_path: Path) -> None:
    """Look-ups are by the columns of `by`, or some of them; at a version that is held, too."""
    source, twin = Source(5, 12), Twin(LATEST)
    engine = prepared(tmp_path, LATEST)
    for _ in range(8):
        changes = source.changes(20, twin.relations)
        twin.apply(changes, "skip")
        engine.apply(to_batch(changes, on_error="skip"))
        compare_with_brute_force(engine)
        check(engine)
        for name, columns in (("newest", ["room"]), ("heaviest", ["room", "floor"]), ("heaviest", ["floor"]), ("oldest", ["note"])):
            view = LATEST[name]
            rows = [row for (row,) in view.combinations(twin.relations)]
            for wanted in [*rows[:3], {"room": "nowhere", "floor": 77, "note": "nothing"}]:
                if all(wanted[column] is not None for column in columns):
                    mine = [row for row in rows if all(row[column] == wanted[column] for column in columns)]
                    found = read_all(open_rows(engine.readers, name, point=("x", {column: str(wanted[column]) for column in columns})))
                    assert found == Counter(values(view.select(row)) for row in mine), (name, wanted)
    engine.close()


def test_named_windows(tmp_path: Path) -> None:
    """Of the rows that are left, those that meet a window."""
    source, twin = Source(6, 30), Twin(LATEST)
    engine = prepared(tmp_path, LATEST)
    changes = source.changes(60, twin.relations)
    twin.apply(changes, "skip")
    engine.apply(to_batch(changes, on_error="skip"))
    view = LATEST["newest"]
    met = [row for (row,) in view.combinations(twin.relations) if row["starts"] <= 40 and (row["ends"] is None or row["ends"] > 20)]
    window: Any = {"x.stay": ("1970-01-01T00:00:00.000020Z", "1970-01-01T00:00:00.000040Z")}
    assert met and read_all(open_rows(engine.readers, "newest", window=window)) == Counter(values(view.select(row)) for row in met)
    engine.close()


_ORDERED = {"i": "int64", "f": "float64", "m": "timestamp", "d": "date", "h": "time", "p": "decimal"}
_EXTREMES: dict[str, Any] = {"i": 2**63 - 1, "f": float("nan"), "m": 2**63 - 1, "d": date.max, "h": time(23, 59, 59, 999999), "p": 10**17}


def test_nulls_that_a_column_comes_to_have_stand_where_postgresql_has_them(tmp_path: Path) -> None:
    """First with DESC, last otherwise, unless the text says else; before all values that there are, and after a restart too."""
    digits = {"precision": 18, "scale": 0}
    columns = [{"name": name, "type": kind} | (digits if kind == "decimal" else {}) for name, kind in _ORDERED.items()]
    definition = parse_relation({"columns": [{"name": "id", "type": "int64"}, *columns], "key": ["id"]})
    engine = opened(tmp_path)
    engine.put_relation("r", definition)
    ways = {"DESC": 0, "ASC": 9, "DESC NULLS LAST": 9, "ASC NULLS FIRST": 0}
    for name in _ORDERED:
        for index, way in enumerate(ways):
            sql = f"SELECT id AS id FROM r QUALIFY ROW_NUMBER() OVER (ORDER BY {name} {way}) <= 1"
            assert engine.put_view(f"{name}{index}", {"sql": sql}, wait=60)[1] == "created"
    engine.apply(to_batch([("r", UPSERT, {"id": 1} | _EXTREMES)], {"r": definition}))
    engine.patch_relation("r", RelationPatch.model_validate({"nullable": list(_ORDERED)}))
    engine.apply(to_batch([("r", UPSERT, {"id": 2} | dict.fromkeys(_ORDERED))], {"r": engine.relations["r"].definition}))
    for _ in range(2):
        for name in _ORDERED:
            for index, position in enumerate(ways.values()):
                assert read_all(open_rows(engine.readers, f"{name}{index}")) == Counter([(1 if position else 2,)]), (name, index)
        compare_with_brute_force(engine)
        check(engine)
        engine.close()
        engine = opened(tmp_path)
    engine.close()
