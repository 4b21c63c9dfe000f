"""Mistakes in SQL: what is wrong is told in words, at the word where it begins, with what was probably meant."""

from __future__ import annotations

import pytest

from tests.service.definitions import refused, sql
from tests.service.duck import connected


def test_joins_without_from() -> None:
    assert "a SELECT without FROM" in refused("SELECT b.id ANTI JOIN maintenance m ON b.room = m.room").detail


def test_a_product_with_an_outer_join_that_is_attached_to_nothing() -> None:
    text = "SELECT s.nr FROM bookings b LEFT JOIN maintenance m ON m.room = m.room CROSS JOIN shifts s"
    assert sql(text).query.cross == (("b", "s"),)


@pytest.mark.parametrize("join", ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT OUTER JOIN", "SEMI JOIN", "ANTI JOIN"])
def test_a_forgotten_on(join: str) -> None:
    """A condition in WHERE would make it an inner join."""
    where = "" if "I JOIN" in join else " WHERE m.room = b.room"
    problem = refused(f"SELECT b.id FROM bookings b {join} maintenance m{where}")
    assert problem.type == "bad-query" and f"ON is missing after {join.replace(' OUTER', '')} maintenance" in problem.detail


@pytest.mark.parametrize(("join", "condition"), [("CROSS", "ON b.room = m.room"), ("CROSS", "USING (room)"), ("NATURAL", "ON b.id = m.id")])
def test_joins_that_take_no_condition(join: str, condition: str) -> None:
    problem = refused(f"SELECT b.id FROM bookings b {join} JOIN maintenance m {condition}")
    assert problem.type == "bad-query" and f"{join} JOIN takes no {condition.split()[0]}" in problem.detail


@pytest.mark.parametrize("period", ["(b.checkin, b.checkout)", "b.stay"])
def test_the_advice_on_an_overlap_with_constants_is_accepted(period: str) -> None:
    problem = refused(f"SELECT b.id FROM bookings b WHERE {period} OVERLAPS (date '2026-03-01', date '2026-04-01')")
    advice = "tstzrange(b.checkin, b.checkout) && tstzrange('2026-03-01', '2026-04-01')"
    assert problem.detail.endswith(f": write {advice}")
    assert len(sql(f"SELECT b.id FROM bookings b WHERE {advice}").query.filters) == 2


@pytest.mark.parametrize(
    ("condition", "advice"),
    [
        ("b.room = 'a' AND b.id = 5", "(b.room, b.id) = ('a', 5)"),
        ("b.room < 'a' OR (b.room = 'a' AND b.id < 5)", "(b.room, b.id) < ('a', 5)"),
    ],
)
def test_rows_are_compared_as_the_advice_says(condition: str, advice: str) -> None:
    """DuckDB compares rows; the condition is accepted here."""
    sql(f"SELECT b.id FROM bookings b WHERE {condition}")
    values = "SELECT * FROM (VALUES ('a', 4), ('a', 5), ('b', 1), ('A', 9)) b(room, id)"
    with connected() as connection:
        found = [connection.sql(f"SELECT ({one}) FROM ({values}) b").fetchall() for one in (condition, advice)]
    assert found[0] == found[1]
