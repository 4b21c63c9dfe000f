"""Common intervals and lengths: by counting points, in all bounds; exact at the edges of each type."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.schema import RelationDefinition
from service.tables.projection import Projection
from service.views.parse import parse_view
from tests.service.definitions import relation

BOUNDS = ("[)", "[]", "(]", "()")
TEXT = "SELECT intersection(x.i, y.i) AS c, duration(x.i, y.i) AS d, y.id FROM l x, r y WHERE overlaps(x.i, y.i)"


def pair(type_: str, left: str, right: str) -> dict[str, RelationDefinition]:
    columns = f"id:int64, s:{type_}?, e:{type_}?"
    return {name: relation(columns, {"i": {"start": "s", "end": "e", "bounds": b}}) for name, b in (("l", left), ("r", right))}


def common(definitions: dict[str, RelationDefinition], left: list[tuple[Any, Any]], right: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """The computed columns of rows that lie side by side."""
    query = parse_view("v", {"sql": TEXT}, definitions).query
    parts = {}
    for alias, name, ends in (("x", "l", left), ("y", "r", right)):
        rows = [{"id": i - 1, "s": s, "e": e} for i, (s, e) in enumerate([*ends[:1], *ends])]
        parts[alias] = pa.RecordBatch.from_pylist(rows, schema=definitions[name].arrow_schema()).slice(1)  # an offset that counts
    projection = Projection(query, definitions)
    result = projection.rows(parts)
    assert result.schema == projection.schema
    result.validate(full=True)
    return result.to_pylist()


def points(ends: tuple[int, int], bounds: str) -> set[int]:
    return set(range(ends[0] + (bounds[0] == "("), ends[1] + (bounds[1] == "]")))


@pytest.mark.parametrize("left", BOUNDS)
@pytest.mark.parametrize("right", BOUNDS)
def test_whole_numbers_by_counting(left: str, right: str) -> None:
    every = [(s, e) for s, e in itertools.product(range(-3, 4), repeat=2)]
    cases = [(a, b) for a in every for b in every if points(a, left) & points(b, right)]
    results = common(pair("int64", left, right), [a for a, _ in cases], [b for _, b in cases])
    assert len(results) == len(cases) > 100
    for (a, b), row in zip(cases, results, strict=True):
        assert points((row["c_start"], row["c_end"]), left) == points(a, left) & points(b, right)
        assert row["d"] == row["c_end"] - row["c_start"]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_unbounded_sides_are_null(bounds: str) -> None:
    rows = common(
        pair("int64", bounds, bounds), [(None, None), (None, 5), (3, None), (None, None)], [(None, None), (3, None), (None, 5), (3, 5)]
    )
    assert [(r["c_start"], r["c_end"], r["d"]) for r in rows] == [(None, None, None), (3, 5, 2), (3, 5, 2), (3, 5, 2)]


def test_times() -> None:
    day, noon = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 12, tzinfo=UTC)
    [row] = common(pair("timestamp", "[)", "[]"), [(day, None)], [(noon, datetime(2026, 1, 2, tzinfo=UTC))])
    assert row == {"c_start": noon, "c_end": datetime(2026, 1, 2, 0, 0, 0, 1, tzinfo=UTC), "d": 43_200_000_001, "id": 0}
    [row] = common(pair("date", "[]", "[)"), [(date(2026, 1, 1), date(2026, 3, 1))], [(date(2026, 2, 1), date(2026, 2, 3))])
    assert row == {"c_start": date(2026, 2, 1), "c_end": date(2026, 2, 2), "d": 1, "id": 0}


def test_floats_go_to_their_neighbours() -> None:
    [one, two] = common(pair("float64", "[)", "[]"), [(-0.0, 2.5), (-1.0, 9.0)], [(-7.5, 1.5), (-7.0, -0.0)])
    assert (one["c_start"], one["c_end"]) == (0.0, math.nextafter(1.5, math.inf)) and one["d"] == one["c_end"]
    assert (two["c_start"], two["c_end"]) == (-1.0, 5e-324)
    [row] = common(pair("float64", "[]", "(]"), [(0.0, 2.0)], [(1.0, 3.0)])
    assert (row["c_start"], row["c_end"]) == (math.nextafter(1.0, 2.0), 2.0)


def test_edges_of_the_types() -> None:
    low, high = -(2**63) + 1, 2**63 - 2
    [row] = common(pair("int64", "[)", "[]"), [(low, None)], [(low, high)])
    assert (row["c_start"], row["c_end"], row["d"]) == (low, high + 1, None)  # longer than int64 holds
    last = pa.scalar(2**31 - 1, pa.date32())
    definitions = pair("date", "[)", "[]")
    parts = {
        alias: pa.record_batch({"id": pa.array([0]), "s": pa.array([0], pa.date32()), "e": pa.array([end], pa.date32())})
        for alias, end in (("x", None), ("y", last.value))
    }
    result = Projection(parse_view("v", {"sql": TEXT}, definitions).query, definitions).rows(parts)
    assert result.column("c_end")[0].value == 2**31 - 1 and result.column("d")[0].as_py() == 2**31


def test_three_to_none_and_passed_columns() -> None:
    definitions = pair("int64", "[)", "[)")
    assert common(definitions, [], []) == []
    view = parse_view("v", {"sql": "SELECT duration(i) AS d, intersection(i) AS c, e FROM l"}, definitions)
    part = pa.record_batch({"s": pa.array([1, None]), "e": pa.array([4, 5])})
    assert Projection(view.query, definitions).rows({"l": part}).to_pylist() == [
        {"d": 3, "c_start": 1, "c_end": 4, "e": 4},
        {"d": None, "c_start": None, "c_end": 5, "e": 5},
    ]


@pytest.mark.parametrize(("type_", "arrow"), [("int64", pa.int64()), ("date", pa.date32()), ("float64", pa.float64())])
def test_a_common_interval_has_its_endpoints_type(type_: str, arrow: pa.DataType) -> None:
    definitions = pair(type_, "[)", "[)")
    assert Projection(parse_view("v", {"sql": TEXT}, definitions).query, definitions).schema.field("c_start").type == arrow
