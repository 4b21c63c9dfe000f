"""Distances of floats: all ways to write one and all algorithms, over the values at which floats differ from numbers.

By brute force with one rule: `y BETWEEN x - c AND x + c`, as floats are added, where NaN equals itself and is the greatest.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT
from service.checking.comparison import agrees
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.service.definitions import relation
from tests.service.duck import connected
from tests.service.running import ids, opened
from tests.service.twin import to_batch

MOST, LEAST = 1.7976931348623157e308, 5e-324
NEGATIVE_NAN = float(np.array([-1], np.int64).view(np.float64)[0])
VALUES = (None, math.nan, NEGATIVE_NAN, math.inf, -math.inf, 0.0, -0.0, MOST, -MOST, MOST / 2, LEAST, -LEAST, 1.0, 1.5)
DISTANCES = (0.0, LEAST, 0.5, MOST)
DEFINITIONS = {name: relation("id:int64, k:int64, f:float64?", {}) for name in ("a", "b")}

Row = tuple[int, float | None]
Condition = Callable[[float | None, float | None], bool]


def at_most(x: float, y: float) -> bool:
    return math.isnan(y) or x <= y


def near(distance: float, x: float | None, y: float | None) -> bool:
    return x is not None and y is not None and at_most(x - distance, y) and at_most(y, x + distance)


def mirrored(distance: float, x: float | None, y: float | None) -> bool:
    return near(distance, y, x)


def conditions(distance: float) -> list[tuple[str | list[str], Condition]]:
    """In SQL, over a and b; in JSON, the two columns."""
    straight, turned = partial(near, distance), partial(mirrored, distance)
    return [
        (f"b.f BETWEEN a.f - {distance} AND a.f + {distance}", straight),
        (f"a.f BETWEEN b.f - {distance} AND b.f + {distance}", turned),
        (f"abs(a.f - b.f) <= {distance}", straight),
        (f"{distance} >= abs(b.f - a.f)", turned),
        (["a.f", "b.f"], straight),
        (["b.f", "a.f"], turned),
        *([("a.f <= b.f AND a.f >= b.f", straight)] if distance == 0 else []),
    ]


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "join": (
        "SELECT a.id, b.id FROM a JOIN b ON {on} AND a.k = b.k",
        {"from": {"a": "a", "b": "b"}, "join": ["on", {"equal": ["a.k", "b.k"]}], "select": ["a.id", "b.id"]},
    ),
    "boxes": (
        f"SELECT a.id, b.id FROM a JOIN b ON {{on}} AND b.f BETWEEN a.f - {MOST} AND a.f + {MOST}",
        {"from": {"a": "a", "b": "b"}, "join": ["on", {"within": ["a.f", "b.f"], "distance": MOST}], "select": ["a.id", "b.id"]},
    ),
    "left": (
        "SELECT a.id, b.id FROM a LEFT JOIN b ON {on}",
        {"from": {"a": "a"}, "left": [{"from": {"b": "b"}, "join": ["on"]}], "select": ["a.id", "b.id"]},
    ),
    "exists": (
        "SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {on})",
        {"from": {"a": "a"}, "exists": [{"from": {"b": "b"}, "join": ["on"]}], "select": ["a.id"]},
    ),
    "groups": (
        "SELECT a.id, COUNT(*) AS n FROM a JOIN b ON {on} GROUP BY a.id",
        {"from": {"a": "a", "b": "b"}, "join": ["on"], "group": ["a.id"], "aggregate": [{"count": "*", "as": "n"}]},
    ),
}


def definition(form: str, condition: str | list[str], distance: float) -> dict[str, Any]:
    text, tree = FORMS[form]
    if isinstance(condition, str):
        return {"sql": text.replace("{on}", condition)}
    on = json.dumps({"within": condition, "distance": distance})
    return dict(json.loads(json.dumps(tree).replace('"on"', on)))


def expected(form: str, meets: Condition, left: list[Row], right: list[Row]) -> Counter[tuple[int | None, ...]]:
    pairs = {x: [y for y, g in right if meets(f, g)] for x, f in left}
    if form == "boxes":
        pairs = {x: [y for y in found if near(MOST, dict(left)[x], dict(right)[y])] for x, found in pairs.items()}
    if form == "exists":
        return Counter((x,) for x, found in pairs.items() if found)
    if form == "groups":
        return Counter((x, len(found)) for x, found in pairs.items() if found)
    return Counter((x, y) for x, found in pairs.items() for y in found or ([None] if form == "left" else []))


def batch_of(*changes: tuple[str, int, Row]) -> Any:
    emitted = [(name, op, {"id": row[0]} if op == DELETE else {"id": row[0], "k": 0, "f": row[1]}) for name, op, row in changes]
    return to_batch(emitted, DEFINITIONS)


@pytest.fixture
def engine(tmp_path: Path) -> Instance:
    engine = opened(tmp_path)
    for name, one in DEFINITIONS.items():
        engine.put_relation(name, one)
    return engine


@pytest.mark.parametrize("form", FORMS)
def test_the_rule(engine: Instance, form: str) -> None:
    """Built over all rows; then each of them goes, and comes back."""
    left, right = list(enumerate(VALUES)), list(enumerate(VALUES, 100))
    engine.apply(batch_of(*(("a", UPSERT, row) for row in left), *(("b", UPSERT, row) for row in right)))
    views = dict[str, Condition]()
    for distance in DISTANCES:
        for condition, meets in conditions(distance):
            emitted = definition(form, condition, distance)
            others = alternatives(parse_view("v", emitted, DEFINITIONS).query, DEFINITIONS)
            for algorithm in ["auto", *(one.algorithm for one in others if distance == LEAST)]:
                name = f"v{len(views)}"
                assert engine.put_view(name, emitted | {"algorithm": algorithm}, wait=60)[1] == "created", engine.views[name].problem
                views[name] = meets

    def compare(left: list[Row], right: list[Row]) -> None:
        for name, meets in views.items():
            found = Counter(ids(open_rows(engine.readers, name)))
            assert found == expected(form, meets, left, right), (name, engine.views[name].view.definition)

    compare(left, right)
    tables: dict[str, pa.RecordBatch] = {}
    assert all(agrees(engine, name, tables, print) for name in views)
    for row, other in zip(left[1:], right[1:], strict=True):
        engine.apply(batch_of(("a", DELETE, row)))
        compare([one for one in left if one != row], right)
        engine.apply(batch_of(("a", UPSERT, row), ("b", DELETE, other)))
        compare(left, [one for one in right if one != other])
        engine.apply(batch_of(("b", UPSERT, other)))
    compare(left, right)
    engine.close()


def test_a_server_says_nothing_of_it(tmp_path: Path) -> None:
    """ServerProcess fails with the first RuntimeWarning in the output."""
    columns = [{"name": "id", "type": "int64"}, {"name": "f", "type": "float64"}]
    far = f"SELECT x.id AS id, y.id AS near, x.f - y.f AS d FROM a x JOIN a y ON abs(x.f - y.f) <= {MOST}"
    rows = [{"id": 1, "f": MOST}, {"id": 2, "f": "-Infinity"}, {"id": 3, "f": "NaN"}]
    with ServerProcess(tmp_path) as server:
        client = server.client()
        talk.define(client, "a", {"columns": columns, "key": ["id"]})
        talk.view(client, "far", far)
        changes = [{"relation": "a", "op": "upsert", "row": row} for row in rows]
        talk.ok(client.post("/v1/changes", json={"changes": changes}))
        found = map(json.loads, client.get("/v1/views/far/rows").text.splitlines())
        assert sorted((row["id"], row["near"], row["d"]) for row in found) == [(1, 1, 0.0), (2, 2, "NaN"), (3, 3, "NaN")]


def test_the_rule_is_that_of_sql() -> None:
    """DuckDB, too, has NaN as the greatest float; where the sum of two numbers is too large, it is an infinity in both."""
    values = [value for value in VALUES if value is not None]
    with connected() as connection:
        for (x, y), c in product(product(values, values), DISTANCES):
            text = "SELECT $1::double BETWEEN $2::double - $3::double AND $2::double + $3::double"
            found = connection.execute(text, [y, x, c]).fetchone()
            assert found == (near(c, x, y),), (x, y, c)
