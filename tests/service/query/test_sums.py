"""Comparisons of sums: how they may be written, what each means, and how it is planned."""

from __future__ import annotations

from typing import Any

import pytest

from service.planning.planner import plan
from service.query.model import Query
from service.views.parse import parse_view
from tests.service.definitions import refused, relation

HOUR = 3_600_000_000
_COLUMNS = "id:int64, k:int64, n:int64, d:date, c:decimal(10,2), x:float64, y:float64?, at:timestamp?, s:timestamp, e:timestamp, t:time"
R = {
    name: relation(_COLUMNS.replace("c:decimal(10,2), ", ""), {"i": {"start": "s", "end": "e"}, "z": {"start": "x", "end": "y"}})
    for name in ("a", "b")
}


def on(condition: str, form: str = "SELECT a.id FROM a JOIN b ON {}") -> Query:
    return parse_view("v", {"sql": form.format(condition)}, R).query


def words(query: Query) -> list[str]:
    return [str(one) for one in query.comparisons]


@pytest.mark.parametrize(
    ("texts", "meaning"),
    [
        (
            ["b.at BETWEEN a.s AND a.s + INTERVAL '4' HOUR", "a.s <= b.at AND b.at - a.s <= '4 hours'",
             "a.s <= b.at AND b.at - INTERVAL '4 hours' <= a.s", "b.at >= a.s AND NOT b.at > 4 * INTERVAL '1 hour' + a.s",
             "a.s <= b.at AND a.s - b.at >= -'4 hours'::interval", "a.s <= b.at AND b.at <= (a.s + 2 * (INTERVAL '04:00' / 2))"],
            ["a.s <= b.at", f"b.at <= a.s + {4 * HOUR}"],
        ),
        (["a.n + 5 < b.n", "a.n < b.n - 5", "5 < b.n - a.n", "a.n + 2 + 3 < b.n", "-5 > a.n - b.n"], ["a.n + 5 < b.n"]),
        (["a.n + 0.5 < b.n", "a.n + 1 <= b.n", "a.n + 0.01 <= b.n", "2 * 0.25 < b.n - a.n"], ["a.n + 1 <= b.n"]),
        (["a.d + 1 = b.d", "b.d - INTERVAL '1 day' = a.d", "1 = b.d - a.d"], ["a.d + 1 <= b.d", "b.d <= a.d + 1"]),
        (["a.d + INTERVAL '36 hours' <= b.d", "a.d + 2 <= b.d"], ["a.d + 2 <= b.d"]),
        (["abs(a.n - b.n) < 5", "5 > abs(b.n - a.n)", "a.n - b.n < 5 AND b.n - a.n < 5"], ["b.n < a.n + 5", "a.n < b.n + 5"]),
        (["a.x + 1.5 < b.x", "b.x > a.x + 1.5", "1.5 < b.x - a.x"], None),
        (["abs(a.x - b.x) <= 0.5", "b.x BETWEEN a.x - 0.5 AND a.x + 0.5"], ["a.x - 0.5 <= b.x", "b.x <= a.x + 0.5"]),
        (["a.n + 7 < b.n + 2"], ["a.n + 5 < b.n"]),
        (["a.x + 1 < b.x - 2"], ["a.x + 1.0 < b.x - 2.0"]),
    ],
)  # fmt: skip
def test_spellings(texts: list[str], meaning: list[str] | None) -> None:
    queries = [on(text) for text in texts]
    if meaning is None:  # of floats, the difference is the sum of the other column
        assert [words(query) for query in queries] == [["a.x + 1.5 < b.x"], ["a.x + 1.5 < b.x"], ["a.x < b.x - 1.5"]]
        return
    assert {*words(queries[0])} == {*meaning}
    assert len({*queries}) == 1, [words(query) for query in queries]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"less": [{"column": "a.s", "plus": "-PT1H"}, "b.e"]}, "a.s - INTERVAL '1 hour' < b.e"),
        ({"at_most": ["a.n", {"column": "b.n", "plus": 2.5}]}, "a.n <= b.n + 2.5"),
        ({"less": [{"column": "a.x", "plus": 1}, {"column": "b.x", "plus": -2}]}, "a.x + 1 < b.x - 2"),
        ({"within": ["a.at", "b.s"], "distance": "P1D"}, "abs(a.at - b.s) <= INTERVAL '1 day'"),
    ],
)
def test_json(entry: dict[str, Any], text: str) -> None:
    made = parse_view("v", {"from": {"a": "a", "b": "b"}, "join": [entry], "select": ["a.id as id"]}, R).query
    assert made == on(text, "SELECT a.id AS id FROM a JOIN b ON {}")


def test_a_sum_is_no_condition_of_an_as_of_join() -> None:
    problem = refused("SELECT a.id FROM a ASOF JOIN b ON a.k = b.k AND b.at <= a.at - INTERVAL '1 hour'", R)
    assert "store the sum in a column" in str(problem.detail)


def test_an_overlap_stays_one() -> None:
    """Of plain ends, beside a comparison of sums of them."""
    query = on("a.s < b.e AND b.s < a.e AND a.s + INTERVAL '1 hour' < b.e")
    assert query.overlaps == on("overlaps(a.i, b.i)").overlaps and len(query.shifted) == 1


_HOUR, _DAY = "INTERVAL '1 hour'", "INTERVAL '1 day'"


@pytest.mark.parametrize(
    ("condition", "dimensions"),
    [
        (f"b.at BETWEEN a.s AND a.s + {_HOUR}", 1),
        (f"b.at BETWEEN a.e - {_DAY} AND a.s + {_HOUR}", 1),  # perhaps empty
        (f"a.s - {_HOUR} < b.e AND b.s < a.e + {_HOUR}", 1),
        (f"a.s + {_HOUR} < b.e AND b.s < a.e + {_HOUR}", 1),
        (f"a.s < b.e AND b.s < a.e + {_HOUR}", 1),
        (f"a.s + {_HOUR} < b.e AND b.s < a.e - {_HOUR}", 2),
        (f"a.s - {_HOUR} < b.at AND b.s < a.e + {_HOUR}", 2),  # the ends of no declared interval
        ("abs(a.x - b.y) < 1", 1),
        ("a.x - 1 <= b.y AND b.x <= a.y + 1", 1),
        ("a.x - 1 < b.y AND b.x < a.y + 1", 2),  # rounding may leave no float between the ends
        ("a.n + 5 < b.n", 1),
        ("b.at BETWEEN a.s AND a.e", 1),
        ("b.at - a.s BETWEEN '0 hours' AND '4 hours'", 1),
        ("a.s <= b.at AND b.s <= a.at", 2),
        (f"a.n + 5 < b.n AND b.at < a.at + {_HOUR}", 2),
        (f"b.at BETWEEN a.s AND a.s + {_HOUR} AND a.n + 5 < b.n", 2),
    ],
)
def test_dimensions(condition: str, dimensions: int) -> None:
    made = plan(on(condition), R)
    assert made.guarantee == "strict" and made.algorithm == ("interval-tree" if dimensions == 1 else "box-tree")
    for form in ("SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {})", "SELECT a.id, b.id AS other FROM a FULL JOIN b ON {}"):
        other = plan(on(condition, form), R)
        assert (other.algorithm == "match-tree") == (dimensions == 1)
        assert other.guarantee == ("delay" if dimensions == 2 and "EXISTS" in form else "strict")
