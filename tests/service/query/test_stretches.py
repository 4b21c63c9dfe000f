"""`gaps(…)` and `coverage(…)`: the same query in SQL and JSON, what is shown, plans, refusals."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from service.planning.planner import alternatives
from service.tables.projection import Projection
from service.views.parse import parse_view
from tests.service.definitions import RELATIONS, refused, relation, sql

FROM = "FROM bookings b LEFT JOIN maintenance m ON m.room = b.room AND overlaps(b.stay, m.slot)"
INNER = FROM.replace("LEFT ", "")
GAPS = f"SELECT b.id, gaps(b.stay, m.slot) AS free {FROM}"
COVERAGE = f"SELECT b.id, coverage(b.stay, m.slot) AS busy {INNER}"
JOIN: list[Any] = [{"equal": ["m.room", "b.room"]}, {"overlaps": ["m.slot", "b.stay"]}]
B: dict[str, Any] = {"from": {"b": "bookings"}}
BOTH = {"from": {"b": "bookings", "m": "maintenance"}, "join": JOIN}
CODE = {"column": "m.code", "op": "=", "value": 4}
VIP = {"column": "b.vip", "op": "=", "value": True}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (GAPS, B | {"left": [{"from": {"m": "maintenance"}, "join": JOIN}],
            "select": ["b.id", {"gaps": ["b.stay", "m.slot"], "as": "free"}]}),
        (f"{GAPS} AND m.code = 4 WHERE b.vip", B | {"left": [{"from": {"m": "maintenance"}, "join": JOIN, "where": [CODE]}],
            "where": [VIP], "select": ["b.id", {"gaps": ["b.stay", "m.slot"], "as": "free"}]}),
        (COVERAGE, BOTH | {"select": ["b.id", {"coverage": ["b.stay", "m.slot"], "as": "busy"}]}),
        (f"{COVERAGE} WHERE m.code = 4 AND b.vip", BOTH | {"where": [CODE, VIP],
            "select": ["b.id", {"coverage": ["b.stay", "m.slot"], "as": "busy"}]}),
        (GAPS.replace("overlaps(b.stay, m.slot)", "b.checkin < m.e AND m.s < b.checkout"),
            B | {"left": [{"from": {"m": "maintenance"}, "join": JOIN}], "select": ["b.id", {"gaps": ["b.stay", "m.slot"], "as": "free"}]}),
    ],
)  # fmt: skip
def test_sql_and_json_are_one_query(text: str, data: dict[str, Any]) -> None:
    assert sql(text).query == parse_view("v", data, RELATIONS).query


def test_conditions_on_stretches() -> None:
    where = "duration(gaps(b.stay, m.slot)) >= INTERVAL '1 hour' AND (b.vip OR lower(gaps(b.stay, m.slot)) > b.checkin)"
    found = sql(f"{GAPS} WHERE {where} AND b.floor > 1")
    assert found.query.stretches is not None and list(map(str, found.query.filters)) == ["b.floor > 1"]
    assert list(map(str, found.query.stretches.conditions)) == [
        "(((stretch).end - (stretch).start) >= 3600000000)", "(b.vip OR ((stretch).start > b.checkin))"
    ]  # fmt: skip
    assert found.plan.guarantee == "best-effort" and found.plan.notes[-1] == "stretches that WHERE excludes are found first"
    data = B | {"left": [{"from": {"m": "maintenance"}, "join": JOIN}], "select": ["b.id", {"gaps": ["b.stay", "m.slot"], "as": "free"}]}
    data["where"] = [{"expression": one} for one in where.split(" AND ")] + [{"column": "b.floor", "op": ">", "value": 1}]
    assert parse_view("v", data, RELATIONS).query == found.query


BY_ROOM = "SELECT b.room, coverage(b.stay) AS busy FROM bookings b GROUP BY b.room"
KEYED: dict[str, Any] = {"from": {"b": "bookings"}, "select": [{"coverage": ["b.stay"], "as": "busy"}]}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (BY_ROOM, KEYED | {"group": ["b.room"]}),
        (BY_ROOM.replace("GROUP", "WHERE b.vip GROUP"), KEYED | {"group": ["b.room"], "where": [VIP]}),
        (f"{BY_ROOM} HAVING b.room = 'A'", KEYED | {"group": ["b.room"], "where": [{"column": "b.room", "op": "=", "value": "A"}]}),
        ("SELECT coverage(b.stay) AS busy FROM bookings b", KEYED),
        ("SELECT date_trunc('month', checkin) AS m, coverage(b.stay) AS busy FROM bookings b GROUP BY m",
            KEYED | {"group": [{"trunc": "month", "of": "b.checkin", "as": "m"}]}),
    ],
)  # fmt: skip
def test_coverage_of_groups_in_sql_and_json(text: str, data: dict[str, Any]) -> None:
    assert sql(text).query == parse_view("v", data, RELATIONS).query


def test_plans_of_groups() -> None:
    view = sql(BY_ROOM, guarantee="strict")
    plan = view.plan.to_json()
    assert (plan["class"], plan["algorithm"], plan["guarantee"]) == ("coverage by room, 1-D, 1 relation", "event-tree", "strict")
    assert plan["notes"] == [] and alternatives(view.query, RELATIONS) == []
    assert sql("SELECT coverage(b.stay) AS busy FROM bookings b").plan.cls == "coverage, 1-D, 1 relation"
    found = refused({"sql": BY_ROOM, "algorithm": "interval-tree"})
    assert found.type == "infeasible-view" and 'only event-tree supports coverage(…); write "algorithm"' in str(found.detail)


def test_coverage_of_groups_stands_alone_in_select() -> None:
    found = refused(KEYED | {"group": ["b.room"], "select": ["b.room", {"coverage": ["b.stay"], "as": "busy"}]})
    assert found.type == "bad-definition" and 'the columns of "group" precede it' in str(found.detail)


def test_having_takes_no_end_of_a_stretch() -> None:
    found = refused(KEYED | {"group": ["b.room"], "having": [{"column": "busy_start", "op": ">", "value": "2026-01-01T00:00:00Z"}]})
    assert found.type == "bad-definition" and 'having.0.column: the groups have no column "busy_start"' in str(found.detail)


def test_what_is_shown() -> None:
    view = sql(GAPS)
    assert view.query.aliases == (("b", "bookings"),) and [one.kind for one in view.query.subqueries] == ["gaps"]
    schema = Projection(view.query, RELATIONS).schema
    assert schema.names == ["id", "free_start", "free_end"] and schema.field("free_end").type == pa.timestamp("us", "UTC")
    plain = sql(GAPS.replace(" AS free", "").replace("b.stay", "b.open").replace("m.slot", "m.shut")).query
    assert [one.name for one in plain.outputs] == ["id", "gaps_start", "gaps_end"]


def test_plans() -> None:
    for text, of, null in ((GAPS, "gaps", "is one gap"), (COVERAGE, "coverage", "has no stretch")):
        view = sql(text)
        plan = view.plan.to_json()
        assert (plan["class"], plan["algorithm"], plan["guarantee"]) == (f"{of}, 1-D, 2 relations, keyed", "event-tree", "delay")
        assert any(null in note for note in plan["notes"]) and "stretch with rows within a changed partner" in plan["bounds"]["update"]
        assert alternatives(view.query, RELATIONS) == []
    assert sql(GAPS.replace("m.room = b.room AND ", "")).plan.cls == "gaps, 1-D, 2 relations"
    assert sql(GAPS, algorithm="event-tree", guarantee="delay").plan.algorithm == "event-tree"


def test_a_null_point_is_no_row() -> None:
    query = sql("SELECT m.id, gaps(m.moment, b.stay) AS free FROM maintenance m LEFT JOIN bookings b ON overlaps(m.moment, b.stay)").query
    assert query.filters == ()
    nullable = {**RELATIONS, "visits": relation("id:int64, since:timestamp?", {"seen": {"at": "since"}})}
    text = "SELECT v.id, gaps(v.seen, b.stay) AS free FROM visits v LEFT JOIN bookings b ON overlaps(v.seen, b.stay)"
    assert [str(one) for one in sql(text, nullable).query.filters] == ["v.since IS NOT NULL"]
