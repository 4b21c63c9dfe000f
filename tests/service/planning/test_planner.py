"""Classes, promises, and why a promise cannot be given."""

from __future__ import annotations

from typing import Any

import pytest

from livejoin.wire.schema import parse_relation
from service.planning.planner import BUILT, alternatives
from service.query.conditions import ColumnRef
from service.query.model import ALGORITHMS, Comparison
from service.views.parse import View, parse_view
from tests.service.definitions import RELATIONS, refused, sql


def itself(conditions: str, relation: str = "shifts", **options: Any) -> View:
    return sql(f"SELECT a.room FROM {relation} a JOIN {relation} b ON {conditions}", **options)


def test_the_plan_of_the_example() -> None:
    view = sql("SELECT b.id FROM bookings b JOIN maintenance m ON b.room = m.room AND overlaps(b.stay, m.slot)")
    assert view.plan.to_json() == {
        "class": "interval join, 1-D, 2 relations, keyed",
        "algorithm": "interval-tree",
        "theorem": "Tao and Yi, Theorem 1",
        "guarantee": "strict",
        "bounds": {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"},
        "order": ["b", "m"],
        "notes": [],
    }
    assert view.plan.shape == "pair" and not view.plan.residual
    assert [one.algorithm for one in alternatives(view.query, RELATIONS)] == ["ij-heap", "join-tree", "nested-loop"]


def test_without_a_key_and_of_one_relation() -> None:
    assert sql("SELECT b.id FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.slot)").plan.cls == "interval join, 1-D, 2 relations"
    plan = sql("SELECT id FROM bookings", guarantee="strict").plan
    assert (plan.cls, plan.shape, plan.guarantee, plan.theorem) == ("selection, 1 relation", "list", "strict", None)


@pytest.mark.parametrize(
    ("conditions", "shape", "guarantee"),
    [
        ("overlaps(a.span, b.span)", "pair", "strict"),
        ("overlaps(a.span, b.span) AND a.room = b.room", "pair", "strict"),
        ("overlaps(a.span, b.span) AND a.room = b.room AND a.nr < b.nr", "self_less", "strict"),
        ("overlaps(a.span, b.span) AND a.room = b.room AND a.nr > b.nr", "self_less", "strict"),
        ("overlaps(a.span, b.span) AND a.nr < b.nr", "pair", "strict"),  # a comparison of numbers is a dimension
        ("overlaps(a.span, b.span) AND a.tag < b.tag", "pair", "strict"),
        ("overlaps(a.span, b.span) AND a.room < b.room", "self_less", "best-effort"),
        ("overlaps(a.span, b.span) AND a.room = b.room AND a.nr <> b.nr", "self_not_equal", "strict"),
        ("overlaps(a.span, b.span) AND a.nr <> b.nr", "pair", "best-effort"),
        ("overlaps(a.span, b.span) AND a.room = b.room AND a.nr < b.nr AND a.nr <> b.nr", "self_less", "strict"),
        ("overlaps(a.span, b.span) AND a.room = b.room AND a.nr < b.nr AND a.tag <> b.tag", "pair", "best-effort"),
        ("overlaps(a.span, b.span) AND a.room = b.room AND a.nr < b.nr AND a.s > 3", "pair", "strict"),
        ("overlaps(a.span, b.span) AND a.room = b.room AND a.nr < b.nr AND a.s > 3 AND b.s > 3", "self_less", "strict"),
        ("overlaps(a.span, b.span) AND a.s = b.nr AND a.nr = b.s AND a.room < b.room", "pair", "best-effort"),
        # a.s < b.e keeps null ends out of b alone: the aliases differ.
        ("a.room = b.room AND a.s < b.e AND b.s < COALESCE(a.e, 'infinity') AND a.nr < b.nr", "pair", "strict"),
    ],
)
def test_self_joins(conditions: str, shape: str, guarantee: str) -> None:
    plan = itself(conditions).plan
    assert (plan.shape, plan.guarantee) == (shape, guarantee)
    notes = [note for note in plan.notes if "excluded, as by SQL" not in note]  # of null ends
    assert bool(notes) == (guarantee != "strict")
    assert bool(plan.residual) == (shape == "pair" and guarantee != "strict")


def test_two_intervals_of_one_relation_are_a_pair() -> None:
    text = "overlaps(a.stay, b.moment) AND a.id < b.id"
    plan = itself(text, "bookings", algorithm="interval-tree").plan
    assert plan.shape == "pair" and plan.residual == (Comparison(ColumnRef("a", "id"), "<", ColumnRef("b", "id")),)
    boxes = itself(text, "bookings").plan
    assert (boxes.algorithm, boxes.guarantee, boxes.theorem) == ("box-tree", "strict", "Tao and Yi, Theorem 2")
    assert itself("overlaps(a.stay, b.stay) AND a.id <> b.id", "bookings").plan.shape == "self_not_equal"


def test_nullable_columns_of_comparisons() -> None:
    query = itself("overlaps(a.span, b.span) AND a.tag < b.tag").query
    assert [(f.column, f.op) for f in query.filters] == [(ColumnRef("a", "tag"), "not_null"), (ColumnRef("b", "tag"), "not_null")]


@pytest.mark.parametrize("guarantee", ["strict", "delay"])
def test_a_promise_that_cannot_be_given(guarantee: str) -> None:
    text = "SELECT a.nr FROM shifts a JOIN shifts b ON overlaps(a.span, b.span) AND a.room < b.room"
    problem = refused({"sql": text, "guarantee": guarantee})
    assert problem.type == "infeasible-view" and "room" in problem.detail
    assert "Theorem 1" in problem.extensions["theorem"] and "a.room < b.room" in problem.extensions["theorem"]
    assert sql(text, guarantee="best-effort").plan.guarantee == "best-effort"


MINED = ("minesweeper", "elimination")
CLASSES = {
    "selection": ("SELECT id FROM bookings", {"interval-tree"}),
    "overlap": (
        "SELECT b.id FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.slot)",
        {"interval-tree", "ij-heap", "join-tree", "nested-loop"},
    ),
    "boxes": (
        "SELECT b.id FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.slot) AND b.floor < m.floor",
        {"interval-tree", "ij-heap", "box-tree", "nested-loop"},
    ),
    "texts": ("SELECT b.id FROM bookings b JOIN maintenance m ON b.room < m.room AND b.id = m.id", {"nested-loop"}),
    "pair": (
        "SELECT b.id FROM bookings b JOIN maintenance m ON b.room = m.room",
        {"view-tree", "join-tree", "qdag", "nested-loop", "tree-tracker", "intersect", *MINED},
    ),
    "star": (
        "SELECT a.id FROM bookings a, maintenance b, maintenance c WHERE a.id = b.id AND b.id = c.id",
        {"view-tree", "join-tree", "qdag", "nested-loop", "tree-tracker", "intersect", *MINED},
    ),
    "two levels": (
        "SELECT a.id FROM bookings a, maintenance b, maintenance c WHERE a.id = b.id AND a.id = c.id AND a.floor = b.floor",
        {"view-tree", "join-tree", "qdag", "nested-loop", "tree-tracker", "intersect", *MINED},
    ),
    "bow-tie": (
        "SELECT a.id FROM bookings a, maintenance b, bookings c WHERE a.id = b.id AND b.code = c.id",
        {"join-tree", "qdag", "nested-loop", "tree-tracker", "bow-tie", *MINED},
    ),
    "path": (
        "SELECT a.id FROM bookings a, maintenance b, maintenance c, bookings d WHERE a.id = b.id AND b.code = c.code AND c.id = d.id",
        {"join-tree", "qdag", "nested-loop", "tree-tracker", *MINED},
    ),
    "triangle": (
        "SELECT a.id FROM maintenance a, maintenance b, maintenance c WHERE a.id = b.code AND b.id = c.code AND c.id = a.code",
        {"qdag", "nested-loop", "minesweeper"},
    ),
    "product": ("SELECT b.id FROM bookings b CROSS JOIN maintenance m", {"interval-tree", "nested-loop"}),
    "product of joins": (
        "SELECT a.id FROM bookings a JOIN maintenance b USING (id) CROSS JOIN bookings c JOIN maintenance d ON c.id = d.m",
        {"view-tree", "join-tree", "qdag", "nested-loop", "tree-tracker", "intersect", *MINED},
    ),
}  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", CLASSES)
def test_which_algorithm_is_for_what(kind: str, algorithm: str) -> None:
    """Correct, or refused with the reason."""
    text, built = CLASSES[kind]
    plain = sql(text)
    assert {plain.plan.algorithm, *(one.algorithm for one in alternatives(plain.query, RELATIONS))} == built
    if algorithm in built:
        assert sql(text, algorithm=algorithm).plan.algorithm == algorithm
        return
    problem = refused({"sql": text, "algorithm": algorithm})
    assert all(f'"{one}"' in problem.detail for one in built)
    assert problem.type == "infeasible-view" and problem.detail.startswith(problem.extensions["theorem"])
    assert f"{algorithm} supports {BUILT[algorithm].words}, but " in problem.detail and "this view " in problem.detail


def test_the_reason_is_what_the_view_is() -> None:
    def reason(kind: str, algorithm: str) -> str:
        return refused({"sql": CLASSES[kind][0], "algorithm": algorithm}).detail

    assert "selects from one relation" in reason("selection", "qdag")
    assert "joins 2 relations on overlaps(b.stay, m.slot), b.floor < m.floor" in reason("boxes", "join-tree")
    assert "joins 2 relations on equality, b.room < m.room" in reason("texts", "qdag")
    assert "on equality only (cyclic, 3 variables, treewidth 2)" in reason("triangle", "join-tree")
    assert "nested or disjoint" in reason("bow-tie", "view-tree")
    assert "(acyclic, beta-acyclic, 2 variables, treewidth 1)" in reason("bow-tie", "view-tree")
    assert "one of any two relations has all variables of the other" in reason("path", "intersect")
    assert "R(X), S(X, Y), T(Y)" in reason("path", "bow-tie")
    assert "joins 2 relations with a product" in reason("product", "view-tree")


def test_a_refused_promise_says_what_to_write() -> None:
    text = "SELECT b.id FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.slot)"
    problem = refused({"sql": text, "algorithm": "nested-loop", "guarantee": "strict"})
    assert 'by nested-loop, only "best-effort"' in problem.detail
    assert '"algorithm": "interval-tree"' in problem.detail and problem.detail.endswith('or "guarantee": "best-effort"')
    problem = refused({"sql": CLASSES["path"][0], "guarantee": "strict"})
    assert problem.detail.endswith('write "guarantee": "delay"') and "Berkholz" in problem.extensions["theorem"]
    assert "it does not apply to self-joins" in problem.extensions["theorem"]
    different = "SELECT b.id FROM bookings b JOIN maintenance m ON b.id = m.id JOIN shifts s ON m.n = s.nr"
    assert "with itself" not in refused({"sql": different, "guarantee": "strict"}).extensions["theorem"]
    problem = refused({"sql": CLASSES["triangle"][0], "guarantee": "delay"})
    assert problem.detail.endswith('write "guarantee": "best-effort"') and "Berkholz" in problem.extensions["theorem"]
    assert "cycle" in problem.detail and "AGM" not in problem.detail


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("texts", "join by comparisons, 2 relations, keyed"),
        ("product", "product, 2 relations"),
        ("star", "natural join, 3 relations, acyclic, hierarchical, 1 variable, treewidth 0"),
        ("bow-tie", "natural join, 3 relations, acyclic, beta-acyclic, 2 variables, treewidth 1"),
        ("triangle", "natural join, 3 relations, cyclic, 3 variables, treewidth 2"),
        ("product of joins", "natural join, 4 relations, acyclic, hierarchical, 2 variables, treewidth 0, with a product"),
    ],
)
def test_classes_in_words(kind: str, cls: str) -> None:
    assert sql(CLASSES[kind][0], algorithm="nested-loop").plan.cls == cls


def test_open_starts_against_open_ends_are_noted() -> None:
    relations = {"r": RELATIONS["shifts"], "o": RELATIONS["shifts"].model_validate(
        {**RELATIONS["shifts"].to_json(), "intervals": {"span": {"start": "s", "end": "e", "bounds": "()"}}})}  # fmt: skip
    assert "value of their type" in sql("SELECT r.nr FROM r JOIN o ON overlaps(r.span, o.span)", relations).plan.notes[0]


BOXES = """SELECT a.nr FROM shifts a, shifts b, shifts c WHERE overlaps(a.span, b.span) AND overlaps(b.span, c.span)
    AND a.tag <= b.tag AND b.tag <= c.tag"""


def test_three_relations_of_boxes_are_never_strict() -> None:
    plan = sql(BOXES).plan
    assert plan.guarantee == "best-effort" and "Theorem 3" in plan.notes[-1]
    assert all("Theorem 3" in one.notes[-1] for one in alternatives(sql(BOXES).query, RELATIONS))
    problem = refused({"sql": BOXES, "guarantee": "strict"})
    assert problem.type == "infeasible-view" and "Theorem 3" in problem.extensions["theorem"]


@pytest.mark.parametrize(
    ("conditions", "cls", "algorithm", "guarantee"),
    [
        ("overlaps(a.span, b.span) AND overlaps(b.span, c.span)", "interval join, 1-D, 3 relations, path", "ij-heap", "strict"),
        (
            "overlaps(a.span, b.span) AND overlaps(b.span, c.span) AND a.room = b.room AND b.room = c.room AND overlaps(a.span, c.span)",
            "interval join, 1-D, 3 relations, clique, keyed", "ij-heap", "strict",
        ),
        ("overlaps(a.span, b.span) AND overlaps(b.span, c.span) AND a.room = b.room", None, "join-tree", "delay"),
        ("a.room = b.room AND b.tag = c.tag", None, "join-tree", "delay"),
        ("a.tag < b.tag AND b.tag < c.tag", "interval join, 1-D, 3 relations, path", "ij-heap", "strict"),
        ("a.nr < b.nr AND b.nr <= c.nr", "interval join, 1-D, 3 relations, path", "ij-heap", "strict"),
        ("a.nr < b.nr AND b.nr <= c.nr AND a.nr < c.nr", "interval join, 1-D, 3 relations, clique", "ij-heap", "strict"),
        ("abs(a.nr - b.nr) <= 5 AND abs(b.nr - c.nr) < 7", "interval join, 1-D, 3 relations, path", "ij-heap", "strict"),
        ("a.nr < b.nr AND a.nr <= c.nr AND a.room = b.room AND a.room = c.room", None, "ij-heap", "strict"),
        ("a.nr < b.nr AND overlaps(b.span, c.span)", None, "join-tree", "delay"),
        ("a.nr < b.nr AND a.nr >= c.nr AND b.nr + 3 < c.nr", None, "nested-loop", "best-effort"),
        (
            "a.room = b.room AND b.tag = c.tag AND a.nr = c.nr",
            "natural join, 3 relations, cyclic, 3 variables, treewidth 2", "qdag", "best-effort",
        ),
        ("overlaps(a.span, b.span) AND overlaps(b.span, c.span) AND a.nr <> c.nr", None, "ij-heap", "best-effort"),
    ],
)  # fmt: skip
def test_three_relations(conditions: str, cls: str | None, algorithm: str, guarantee: str) -> None:
    plan = sql(f"SELECT a.nr FROM shifts a, shifts b, shifts c WHERE {conditions}").plan
    assert (plan.algorithm, plan.guarantee) == (algorithm, guarantee)
    assert cls is None or plan.cls == cls


def test_a_clique_over_two_intervals_is_no_clique_of_one() -> None:
    """Found by a breaker: one of the intervals was forgotten."""
    rooms = parse_relation(
        {
            "columns": [{"name": name, "type": "int64"} for name in ("id", "s", "e", "u", "v")],
            "key": ["id"],
            "intervals": {"i": {"start": "s", "end": "e"}, "k": {"start": "u", "end": "v"}},
        }
    )
    clique = "overlaps(x.i, y.i) AND overlaps(y.i, z.i) AND overlaps(x.i, z.i) AND x.id < y.id AND y.id < z.id"
    text = f"SELECT x.id FROM rooms x, rooms y, rooms z WHERE {clique}"
    assert parse_view("v", {"sql": text}, {"rooms": rooms}).plan.shape == "clique_less"
    mixed = parse_view("v", {"sql": f"{text} AND overlaps(x.k, y.k)"}, {"rooms": rooms})
    assert mixed.plan.shape != "clique_less"
    assert "interval-tree" not in [one.algorithm for one in alternatives(mixed.query, {"rooms": rooms})]


@pytest.mark.parametrize("guarantee", ["delay", "strict"])
def test_a_promise_about_a_union_with_not_exists(guarantee: str) -> None:
    first = "SELECT b.room FROM bookings b WHERE NOT EXISTS (SELECT 1 FROM shifts s WHERE s.room = b.room)"
    problem = refused({"sql": f"{first} UNION SELECT m.room FROM maintenance m", "guarantee": guarantee})
    assert problem.type == "infeasible-view" and "supports UNION and NOT EXISTS" in problem.extensions["theorem"]
