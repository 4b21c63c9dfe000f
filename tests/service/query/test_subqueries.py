"""EXISTS, NOT EXISTS, LEFT, RIGHT and FULL JOIN: the same query in SQL and JSON, what WHERE makes of them, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from service.query.subqueries import WORDS
from service.views.parse import parse_view
from tests.service.definitions import RELATIONS, refused, sql

M = {"from": {"m": "maintenance"}, "join": [{"equal": ["m.room", "b.room"]}, {"overlaps": ["m.slot", "b.stay"]}]}
ON = "m.room = b.room AND overlaps(m.slot, b.stay)"
B: dict[str, Any] = {"from": {"b": "bookings"}, "select": ["b.id"]}
LEFT = f"SELECT b.id FROM bookings b LEFT JOIN maintenance m ON {ON}"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (LEFT, B | {"left": [M]}),
        (LEFT.replace("LEFT", "FULL"), B | {"full": M}),
        (f"SELECT b.id FROM bookings b WHERE EXISTS (SELECT 1 FROM maintenance m WHERE {ON})", B | {"exists": [M]}),
        (f"SELECT b.id FROM bookings b SEMI JOIN maintenance m ON {ON}", B | {"exists": [M]}),
        (f"SELECT b.id FROM bookings b WHERE NOT EXISTS (SELECT m.id FROM maintenance m WHERE {ON})", B | {"not_exists": [M]}),
        (f"SELECT b.id FROM bookings b ANTI JOIN maintenance m ON {ON}", B | {"not_exists": [M]}),
        (f"{LEFT} WHERE m.id IS NULL", B | {"not_exists": [M]}),
        ("SELECT b.id FROM bookings b WHERE b.room IN (SELECT m.room FROM maintenance m WHERE m.code = 4)",
            B | {"exists": [{"from": {"m": "maintenance"}, "join": [{"equal": ["b.room", "m.room"]}],
                             "where": [{"column": "m.code", "op": "=", "value": 4}]}]}),
        ("SELECT b.id FROM bookings b WHERE b.room IN (SELECT DISTINCT m.room FROM maintenance m)",
            B | {"exists": [{"from": {"m": "maintenance"}, "join": [{"equal": ["b.room", "m.room"]}]}]}),
        ("SELECT b.id FROM bookings b LEFT JOIN maintenance m USING (room) WHERE m.floor IS NULL",
            B | {"not_exists": [{"from": {"m": "maintenance"}, "join": [{"equal": ["m.room", "b.room"]}]}]}),
    ],
)  # fmt: skip
def test_sql_and_json_are_one_query(text: str, data: dict[str, Any]) -> None:
    assert sql(text).query == parse_view("v", data, RELATIONS).query


def test_right_is_left_mirrored() -> None:
    left = sql(f"SELECT b.id AS i, m.id AS j FROM bookings b LEFT JOIN maintenance m ON {ON}").query
    right = sql(f"SELECT b.id AS i, m.id AS j FROM maintenance m RIGHT JOIN bookings b ON {ON}").query
    assert left.subqueries == right.subqueries and left.core.aliases == right.core.aliases == (("b", "bookings"),)
    assert [alias for alias, _ in right.aliases] == ["m", "b"], "SELECT * has the columns in the order of FROM"
    assert right.optional == {"m"} and sql(LEFT.replace("LEFT", "FULL")).query.optional == {"b", "m"}


@pytest.mark.parametrize(
    ("join", "where", "kinds", "core"),
    [
        ("LEFT", "m.code > 3", [], "bm"),
        ("LEFT", "m.code IN (1, 2) AND b.floor = 1", [], "bm"),
        ("LEFT", "b.floor = 1", ["optional"], "b"),
        ("LEFT", "m.since IS NOT NULL", [], "bm"),
        ("FULL", "b.floor = 1", ["optional"], "b"),
        ("FULL", "m.code > 3", ["optional"], "m"),
        ("FULL", "m.code > 3 AND b.floor = 1", [], "bm"),
        ("FULL", "m.id IS NULL", ["absent"], "b"),
    ],
)
def test_what_where_makes_of_an_outer_join(join: str, where: str, kinds: list[str], core: str) -> None:
    query = sql(f"{LEFT.replace('LEFT', join)} WHERE {where}").query
    assert [subquery.kind for subquery in query.subqueries] == kinds
    assert "".join(alias for alias, _ in query.core.aliases) == core


def test_an_alias_in_exists_hides_the_one_outside() -> None:
    """Seen: the LEFT JOIN became an inner one."""
    exists = "EXISTS (SELECT 1 FROM shifts m WHERE m.room = b.room)"
    kinds = [part.kind for part in sql(f"{LEFT} WHERE {exists}").query.subqueries]
    assert kinds == [part.kind for part in sql(f"{LEFT} WHERE {exists.replace('m.', 's.').replace(' m ', ' s ')}").query.subqueries]
    assert kinds == ["optional", "exists"]


def test_an_inner_join_behind_makes_an_outer_one_inner() -> None:
    query = sql(f"{LEFT} JOIN shifts s ON s.room = m.room").query
    assert not query.subqueries and len(query.aliases) == 3
    chain = sql(f"{LEFT} LEFT JOIN shifts s ON s.room = m.room").query
    assert [(subquery.kind, subquery.on) for subquery in chain.subqueries] == [("optional", "b"), ("optional", "m")]
    assert not sql(f"{LEFT} LEFT JOIN shifts s ON s.room = m.room WHERE s.nr = 1").query.subqueries


def test_an_alias_that_is_used_twice() -> None:
    subquery = {"from": {"b": "maintenance"}, "join": [{"equal": ["b.room", "b.room"]}]}
    assert "used twice" in str(refused(B | {"left": [subquery]}).detail)
    assert set(WORDS) == {"exists", "absent", "optional", "full", "gaps", "coverage"}
