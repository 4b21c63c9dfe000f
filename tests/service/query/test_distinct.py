"""SELECT DISTINCT of whole keys is planned as EXISTS; of anything else, as groups."""

from __future__ import annotations

import pytest

from service.views.parse import parse_view
from tests.service.definitions import RELATIONS, sql

B, M, S = "bookings b", "JOIN maintenance m ON b.room = m.room", "JOIN shifts s ON s.room = m.room"


@pytest.mark.parametrize(
    ("text", "aliases", "parts"),
    [
        (f"SELECT DISTINCT b.room, b.id FROM {B}", "b", []),
        (f"SELECT DISTINCT b.id FROM {B} {M}", "b", ["bm"]),
        (f"SELECT DISTINCT m.id FROM {B} {M}", "m", ["mb"]),
        (f"SELECT DISTINCT b.id FROM {B} {M} {S}", "b", ["bms"]),
        (f"SELECT DISTINCT b.id, m.id AS j FROM {B} {M} {S}", "bm", ["ms"]),
        (f"SELECT DISTINCT m.id FROM {B} {M} {S} AND s.nr > 3", "m", ["mb", "ms"]),
        (f"SELECT DISTINCT m.id, s.room, s.nr FROM {B} {M} {S}", "ms", ["mb"]),
        (f"SELECT DISTINCT b.id, m.id AS j FROM {B} CROSS JOIN maintenance m", "bm", []),
    ],
)
def test_as_exists(text: str, aliases: str, parts: list[str]) -> None:
    view = sql(text)
    assert view.query.distinct and view.query.groups is None and view.plan.core is None
    assert "".join(alias for alias, _ in view.query.aliases) == aliases
    assert ["".join(alias for alias, _ in part.join.aliases) for part in view.query.subqueries] == parts
    assert view.plan.cls.startswith("distinct rows of: ") and "no groups are stored" in view.plan.notes[-1]
    assert all(part.kind == "exists" and not part.join.outputs for part in view.query.subqueries)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT DISTINCT b.room FROM {B}",
        "SELECT DISTINCT s.nr FROM shifts s",
        f"SELECT DISTINCT b.id, m.room FROM {B} {M}",
        f"SELECT DISTINCT b.id, s.room, s.nr FROM {B} {M} {S}",
        f"SELECT DISTINCT b.id FROM {B} CROSS JOIN maintenance m",
        f"SELECT DISTINCT b.id, duration(b.stay) AS d FROM {B}",
        f"SELECT DISTINCT b.id FROM {B} LEFT {M}",
        f"SELECT b.id, COUNT(*) AS n FROM {B} {M} GROUP BY b.id",
    ],
)
def test_as_groups(text: str) -> None:
    view = sql(text)
    assert view.query.groups is not None and not view.query.distinct and view.plan.shape == "groups"


def test_it_is_another_view_than_its_rows_alone() -> None:
    distinct, alone = sql(f"SELECT DISTINCT b.id FROM {B}"), sql(f"SELECT b.id FROM {B}")
    assert distinct.query != alone.query
    assert distinct.query == parse_view("v", {"from": {"b": "bookings"}, "select": ["b.id"], "distinct": True}, RELATIONS).query
