"""Subqueries in expressions, and nested ones, as joins with stored queries."""

from __future__ import annotations

import pytest

from tests.service.definitions import sql

STORED = [
    ("SELECT id FROM bookings b WHERE floor > (SELECT avg(n) FROM maintenance)", ["SELECT AVG(maintenance.n) AS a0 FROM maintenance"]),
    (
        "SELECT id, (SELECT count(*) FROM maintenance m WHERE m.room = b.room) AS c FROM bookings b",
        ["SELECT m.room AS k0, COUNT(*) AS a0 FROM maintenance AS m GROUP BY m.room"],
    ),
    (
        "SELECT room FROM bookings GROUP BY room HAVING count(*) > (SELECT count(*) FROM shifts)",
        [
            "SELECT bookings.room AS c0, COUNT(*) AS c1 FROM bookings GROUP BY bookings.room",
            "SELECT COUNT(*) AS a0 FROM shifts",
        ],
    ),
    (
        "SELECT id FROM bookings b WHERE EXISTS (SELECT 1 FROM maintenance m WHERE m.room = b.room AND m.id IN (SELECT nr FROM shifts))",
        ["SELECT m.room AS k0 FROM maintenance AS m WHERE m.id IN (SELECT shifts.nr AS nr FROM shifts)"],
    ),
    (
        "SELECT id FROM bookings b WHERE room IN (SELECT room FROM shifts GROUP BY room HAVING count(*) > 1)",
        ["SELECT shifts.room AS c0 FROM shifts GROUP BY shifts.room HAVING COUNT(*) > 1"],
    ),
]


@pytest.mark.parametrize(("text", "stored"), STORED)
def test_what_is_stored(text: str, stored: list[str]) -> None:
    view = sql(text)
    assert [one.view.definition["sql"] for one in view.stored.values()] == stored


@pytest.mark.parametrize(("value", "kinds"), [("max(m.n)", []), ("max(m.n) + 1", []), ("coalesce(max(m.n), 0)", ["optional"])])
def test_a_comparison_that_rejects_null_joins(value: str, kinds: list[str]) -> None:
    """Rows for which the subquery finds nothing are excluded, so that no outer join is needed."""
    of = f"(SELECT {value} FROM maintenance m WHERE m.room = b.room)"
    assert [part.kind for part in sql(f"SELECT id, {of} AS v FROM bookings b").query.subqueries] == ["optional"]
    assert [part.kind for part in sql(f"SELECT id FROM bookings b WHERE 1 < {of}").query.subqueries] == []
    assert [part.kind for part in sql(f"SELECT id FROM bookings b WHERE -1 < {of}").query.subqueries] == kinds
