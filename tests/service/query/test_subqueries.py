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
FIVE = "".join(f" LEFT JOIN maintenance m{i} ON m{i}.room = b.room AND m{i}.id <> b.id" for i in range(5))


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


def test_an_inner_join_behind_makes_an_outer_one_inner() -> None:
    query = sql(f"{LEFT} JOIN shifts s ON s.room = m.room").query
    assert not query.subqueries and len(query.aliases) == 3
    chain = sql(f"{LEFT} LEFT JOIN shifts s ON s.room = m.room").query
    assert [(subquery.kind, subquery.on) for subquery in chain.subqueries] == [("optional", "b"), ("optional", "m")]
    assert not sql(f"{LEFT} LEFT JOIN shifts s ON s.room = m.room WHERE s.nr = 1").query.subqueries


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT b.id FROM bookings b WHERE b.id NOT IN (SELECT m.id FROM maintenance m)", "write NOT EXISTS"),
        (f"{LEFT} AND m.id = s.nr".replace("LEFT", "JOIN shifts s ON b.room = s.room LEFT"), "compared with b and s"),
        (f"{LEFT} AND b.floor = 3", "one on b alone in WHERE also removes rows that"),
        (f"{LEFT} WHERE m.since IS NULL", "for the rows without m, take a column of m that is never null"),
        (f"SELECT * FROM bookings b LEFT JOIN maintenance m ON {ON} WHERE m.id IS NULL", "m.id is null in each of them"),
        (f"SELECT b.id, m.code FROM bookings b LEFT JOIN maintenance m ON {ON} WHERE m.id IS NULL", "m.code is null in each of them"),
        (f"{LEFT} WHERE m.since IS NULL OR b.checkin < m.since", "with nulls as unbounded"),
        (f"{LEFT} WHERE m.id > 3 IS NOT TRUE", "one with JOIN instead, for the rows that have m, and one with NOT EXISTS"),
        ("SELECT b.id FROM bookings b WHERE b.id IN (SELECT max(m.id) FROM maintenance m WHERE m.room = b.room)", "with GROUP BY"),
        ("SELECT b.id FROM bookings b WHERE EXISTS (SELECT max(id) FROM maintenance m WHERE m.room = b.room)", "even where no row matches"),
        ("SELECT b.id FROM bookings b WHERE b.id IN (SELECT DISTINCT ON (m.room) m.id FROM maintenance m)", "DISTINCT in IN"),
        (LEFT.replace("LEFT", "JOIN shifts s ON b.room = s.room FULL"), "two relations is not supported: define a view with LEFT JOIN"),
        (f"SELECT b.id, m.id FROM bookings b SEMI JOIN maintenance m ON {ON}", "m.id: m cannot be used here: the right side of SEMI JOIN"),
        (f"{LEFT} AND EXISTS (SELECT 1 FROM shifts s WHERE s.room = m.room)", "EXISTS within LEFT JOIN"),
        ("SELECT b.id FROM bookings b WHERE EXISTS (SELECT 1 FROM shifts s LEFT JOIN maintenance m ON s.room = m.room WHERE s.nr = b.id)",
            "LEFT JOIN in EXISTS"),
        ("SELECT b.id FROM bookings b WHERE (b.id, b.room) IN (SELECT m.id FROM maintenance m)", "IN compares 2 columns with 1"),
        (f"{LEFT} UNION SELECT id FROM bookings", "LEFT JOIN in UNION or EXCEPT"),
        ("SELECT b.id FROM bookings b LEFT JOIN maintenance m ON m.room = b.room RIGHT JOIN shifts s ON s.room = b.room", "begin with s"),
        (f"SELECT b.id FROM bookings b{FIVE}", "at most 16"),
        ("SELECT b.id FROM bookings b LEFT JOIN maintenance m ON b.floor = 3", "one on b alone in WHERE also removes rows that"),
        (f"{LEFT} WHERE EXISTS (SELECT 1 FROM shifts s WHERE s.room = b.room AND s.nr = m.code)", "register a view for each"),
        (f"{LEFT} WHERE NOT EXISTS (SELECT 1 FROM shifts s WHERE s.room = b.room AND s.nr < m.code)", "register a view for each"),
        ("SELECT b.id FROM bookings b WHERE EXISTS (SELECT 1 FROM maintenance m WHERE m.code = 3)", "compared with nothing outside of it"),
        (f"{LEFT.replace('LEFT', 'FULL')} WHERE m.since IS NULL", "for the rows without m, take a column of m that is never null"),
        ("SELECT b.id FROM bookings b WHERE EXISTS (SELECT 1 FROM maintenance m WHERE m.room = b.room AND EXISTS "
            "(SELECT 1 FROM shifts s WHERE s.room = m.room))", "a single level of EXISTS"),
        ("SELECT b.id FROM bookings b WHERE b.room || 'x' IN (SELECT m.room FROM maintenance m)", "write columns before IN"),
        ("SELECT b.id FROM bookings b WHERE b.room IN (SELECT b.room FROM maintenance b)", "rename one of the two"),
        ("SELECT b.id FROM bookings b LEFT JOIN maintenance m ON m.room = b.floor", "the types differ"),
    ],
)  # fmt: skip
def test_refusals(text: str, words: str) -> None:
    problem = refused(text)
    assert words in str(problem.detail), problem.detail
    assert problem.type in ("unsupported-query", "bad-query", "unknown-column")


def test_an_alias_that_is_used_twice() -> None:
    subquery = {"from": {"b": "maintenance"}, "join": [{"equal": ["b.room", "b.room"]}]}
    assert "used twice" in str(refused(B | {"left": [subquery]}).detail)
    assert set(WORDS) == {"exists", "absent", "optional", "full", "gaps", "coverage"}
