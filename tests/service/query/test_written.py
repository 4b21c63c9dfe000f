"""Conditions in notes: SQL that means the same when it is read again."""

from __future__ import annotations

import pytest

from service.query.written import written
from tests.service.definitions import refused, relation, sql

T = {"t": relation(
    "id:int64, i:int64?, f:float64?, s:string?, b:bool?, w:timestamp?, d:date?, h:time?, y:bytes?, u:uuid?, p:decimal(9,2)?", {}
)}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        "i = -3", "i IN (1, 2)", "f < 2.5", "f >= 1e300", "s <> 'it''s'", "s IN ('a', '')", "s LIKE 'a\\_%'", "s NOT LIKE '_'", "b = TRUE",
        "w > '2026-03-12 08:00:00.5+02'", "w IN ('2026-03-12', '1900-01-01')", "d <= '0001-02-03'", "h < '08:00:00.25'", "y = '\\x00ff'",
        "u = '3f2504e0-4f89-41d3-9a0c-0305e82c3301'", "p > -12.3", "p IN (0.05, 7)", "i IS NULL", "s IS NOT NULL",
        "w = '2026-03-12' AND i < 3",
    ],
)  # fmt: skip
def test_it_is_read_as_the_same_condition(case: str) -> None:
    (condition,) = sql(f"SELECT t.id FROM t WHERE ({case}) OR id > 5", T).query.filters
    text = written(condition, lambda ref: T["t"].column(ref.column))
    assert sql(f"SELECT t.id FROM t WHERE {text}", T).query.filters == (condition,), text


def test_notes_show_constants_as_they_are_written() -> None:
    query = "SELECT id FROM bookings b WHERE tstzrange(checkin, until) && tstzrange('2026-03-12', '2026-03-13')"
    assert [one for one in sql(query).plan.notes if "satisfy" in one] == [
        "rows of b satisfy (b.until > '2026-03-12T00:00:00Z' OR b.until IS NULL)"
    ], "checkin is never null"
    query = "SELECT b.id FROM bookings b LEFT JOIN maintenance m ON m.id = b.id WHERE m.s < '2026-03-12' OR greatest(m.n, 1) = 1"
    assert "(m.s < '2026-03-12T00:00:00Z' OR (greatest(m.n, 1) = 1)) after an outer join" in refused(query).detail
