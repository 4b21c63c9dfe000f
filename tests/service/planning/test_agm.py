"""The AGM bound: known exponents, cheapest covers against all corners of the polytope, joins that reach it, and what `explain` shows."""

from __future__ import annotations

import random
from itertools import combinations, product

import numpy as np
import pytest

from service.planning.acyclicity import variables
from service.planning.agm import cheapest_cover, edges_of_rows
from service.planning.hypergraph import hypergraph
from service.planning.natural import natural_json
from service.views.parse import parse_view
from tests.service.definitions import RELATIONS, relation, sql
from tests.service.planning.test_acyclicity import drawn, edges

EDGES = {"e": relation("src:int64, dst:int64, note:string", {}, key="src,dst"), "v": relation("id:int64, kind:string", {})}
TRIANGLE = "SELECT x.src FROM e x, e y, e z WHERE x.dst = y.src AND y.dst = z.src AND z.dst = x.src"


@pytest.mark.parametrize(
    ("words", "exponent"),
    [
        (("ab",), 1), (("ab", "bc"), 2), (("ab", "bc", "ca"), 1.5), (("ab", "bc", "cd", "da"), 2), (("ab", "ac", "ad"), 3),
        (("abc", "bcd", "cda", "dab"), 4 / 3), (("ab", "bc", "ca", "abc"), 1), (("ab", "bc", "cd", "de", "ea"), 2.5), (("a", "ab", "b"), 1),
    ],
)  # fmt: skip
def test_known_exponents(words: tuple[str, ...], exponent: float) -> None:
    assert cheapest_cover(edges(*words), [1.0] * len(words)).cost == pytest.approx(exponent)


@pytest.mark.parametrize("seed", range(3))
def test_a_cheapest_cover_is_the_best_corner(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        given = drawn(rng, 4, 4)
        costs = [rng.choice((0.0, 1.0, 2.5, 10.0)) for _ in given]
        found = cheapest_cover(given, costs)
        rows = [[float(v in edge) for edge in given] for v in variables(given)]
        assert all(np.dot(row, found.weights) > 1 - 1e-9 for row in rows) and min(found.weights) >= 0
        assert found.cost == pytest.approx(np.dot(costs, found.weights)) == pytest.approx(_best_corner(rows, costs)), (given, costs)


def _best_corner(rows: list[list[float]], costs: list[float]) -> float:
    """A linear function is least at a corner: where as many of the inequalities are equations as there are weights."""
    count = len(costs)
    above = np.array([*rows, *np.eye(count)])
    least = np.array([1.0] * len(rows) + [0.0] * count)
    best = np.inf
    for chosen in combinations(range(len(above)), count):
        some = list(chosen)
        if abs(np.linalg.det(above[some])) > 1e-9:
            corner = np.linalg.solve(above[some], least[some])
            if (above @ corner > least - 1e-9).all():
                best = min(best, float(np.dot(costs, corner)))
    return best


class Counts:
    """What `Counts` knows, all of it made up."""

    def __init__(self, *rows: float) -> None:
        self._rows = rows

    def rows(self, position: int) -> float:
        return self._rows[position]


def test_what_explain_shows_of_a_triangle() -> None:
    query = parse_view("v", {"sql": TRIANGLE}, EDGES).query
    shown = natural_json(query, EDGES, Counts(100, 100, 100))
    assert shown == {
        "class": "cyclic, 3 variables, treewidth 2",
        "variables": {"x.dst": ["x.dst", "y.src"], "x.src": ["x.src", "z.dst"], "y.dst": ["y.dst", "z.src"]},
        "elimination_order": None,
        "join_tree": None,
        "agm": {"exponent": 1.5, "rows": 1000.0, "cover": {"x": 0.5, "y": 0.5, "z": 0.5}},
    }
    without = natural_json(query, EDGES, None)
    assert without is not None and "rows" not in without["agm"]
    few = natural_json(query, EDGES, Counts(100, 1, 100))
    assert few is not None and few["agm"]["rows"] == 100.0 and few["agm"]["cover"] == {"x": 0.0, "y": 1.0, "z": 1.0} | few["agm"]["cover"]
    none = natural_json(query, EDGES, Counts(100, 0, 100))
    assert none is not None and none["agm"]["rows"] == 0.0


def test_the_bound_is_reached() -> None:
    """A triangle over a full square of 10 x 10: 100 rows each, 1,000 in all."""
    pairs = set(product(range(10), repeat=2))
    assert sum((c, a) in pairs for a, b in pairs for d, c in pairs if d == b) == 100**1.5


def test_an_acyclic_one() -> None:
    text = "SELECT x.src FROM v f, e x, e y, v t WHERE f.id = x.src AND x.dst = y.src AND y.dst = t.id"
    shown = natural_json(parse_view("v", {"sql": text}, EDGES).query, EDGES, Counts(5, 1000, 1000, 7))
    assert shown is not None
    assert shown["class"] == "acyclic, beta-acyclic, 3 variables, treewidth 1"
    assert shown["join_tree"] == [
        {"aliases": ["f", "x"], "by": ["f.id"]}, {"aliases": ["x", "y"], "by": ["x.dst"]}, {"aliases": ["y", "t"], "by": ["y.dst"]}
    ]  # fmt: skip
    assert sorted(shown["elimination_order"]) == ["f.id", "x.dst", "y.dst"]
    # Five airports and all links after, or all links before and seven airports: 5 n or n 7.
    assert shown["agm"]["exponent"] == 2 and shown["agm"]["rows"] == pytest.approx(5000.0, rel=1e-3)


def test_rows_are_told_apart_by_their_keys() -> None:
    """Of two relations joined on what is no key every pair of rows may be a row; a key bounds them by the other relation."""
    query = parse_view("v", {"sql": "SELECT b.id FROM bookings b JOIN maintenance m ON b.room = m.room"}, RELATIONS).query
    assert [len(edge) for edge in edges_of_rows(query, hypergraph(query), RELATIONS)] == [2, 2]
    shown = natural_json(query, RELATIONS, Counts(30, 40))
    assert shown is not None and shown["agm"] == {"exponent": 2.0, "rows": 1200.0, "cover": {"b": 1.0, "m": 1.0}}
    query = parse_view("v", {"sql": "SELECT x.src FROM e x JOIN v ON x.dst = v.id"}, EDGES).query
    shown = natural_json(query, EDGES, Counts(30, 40))
    assert shown is not None and shown["agm"] == {"exponent": 1.0, "rows": 30.0, "cover": {"x": 1.0, "v": 0.0}}


def test_only_natural_joins_have_one() -> None:
    for text in ("overlaps(b.stay, m.slot)", "b.room = m.room AND b.floor < m.floor", "b.room = m.room AND b.room <> m.room"):
        assert natural_json(sql(f"SELECT b.id FROM bookings b JOIN maintenance m ON {text}").query, RELATIONS, None) is None
    assert natural_json(sql("SELECT id FROM bookings").query, RELATIONS, None) is None
    product_ = natural_json(sql("SELECT b.id FROM bookings b CROSS JOIN maintenance m").query, RELATIONS, Counts(30, 40))
    assert product_ is not None and product_["agm"]["rows"] == 1200.0 and product_["join_tree"] is None
