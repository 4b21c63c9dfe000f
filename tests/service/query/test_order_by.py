"""ORDER BY at the end of a definition: accepted, without effect, and noted."""

from __future__ import annotations

import pytest

from service.views.parse import ORDERED
from tests.service.definitions import refused, sql


@pytest.mark.parametrize(
    ("plain", "order"),
    [
        ("SELECT id, price * 2 AS twice FROM bookings", "ORDER BY twice DESC, guest NULLS FIRST, 1, id + 1"),
        ("SELECT room, COUNT(*) FROM bookings GROUP BY room", "ORDER BY count DESC, COUNT(*), room"),
        ("SELECT DISTINCT room FROM bookings", "ORDER BY room"),
        ("SELECT id FROM bookings QUALIFY ROW_NUMBER() OVER (PARTITION BY room ORDER BY price) <= 2", "ORDER BY id"),
        ("SELECT room FROM bookings UNION SELECT room FROM maintenance", "ORDER BY room"),
        ("(SELECT id FROM bookings)", "ORDER BY 1"),
        ("SELECT b.id, nr FROM bookings b, shifts s WHERE b.id = s.nr EXCEPT SELECT id, id FROM maintenance", "ORDER BY nr, ID DESC, 2"),
    ],
)
def test_order_by_has_no_effect_and_a_note(plain: str, order: str) -> None:
    ordered = sql(f"{plain} {order}")
    assert ordered.stated == sql(plain).stated
    assert ordered.plan.notes == (*sql(plain).plan.notes, ORDERED)


def test_order_by_names_what_is_there() -> None:
    problem = refused("SELECT id FROM bookings ORDER BY nope")
    assert problem.type == "unknown-column" and problem.extensions["position"] == {"line": 1, "column": 34}
    for text, wrong in (
        ("SELECT id, room FROM bookings ORDER BY 3", "3"),
        ("SELECT * FROM shifts ORDER BY 5, 6, 0", "6"),
        ("SELECT room FROM bookings GROUP BY room ORDER BY 1, 2", "2"),
        ("SELECT id FROM bookings UNION SELECT nr FROM shifts ORDER BY nr", "nr"),
        ("SELECT id FROM bookings UNION SELECT nr FROM shifts ORDER BY id, 2", "2"),
        ("SELECT id FROM bookings b EXCEPT SELECT nr FROM shifts ORDER BY b.id", "b.id"),
        ("SELECT id FROM bookings UNION SELECT nr FROM shifts ORDER BY id + 1", "id + 1"),
        ("(SELECT id FROM bookings) UNION (SELECT nr FROM shifts ORDER BY ss)", "ss)"),
        ("(SELECT id FROM bookings UNION SELECT nr FROM shifts ORDER BY id, rn) UNION SELECT id FROM maintenance", "rn)"),
    ):
        problem = refused(text)
        column = problem.extensions["position"]["column"] - 1
        assert text[column:].startswith(wrong) and problem.status == 422, text
    assert ORDERED not in sql("SELECT DISTINCT ON (room) id FROM bookings ORDER BY room, price").plan.notes
    assert "ORDER BY in EXISTS is not supported" in refused(
        "SELECT id FROM bookings b WHERE EXISTS (SELECT 1 FROM maintenance m WHERE m.room = b.room ORDER BY m.id)"
    ).detail
