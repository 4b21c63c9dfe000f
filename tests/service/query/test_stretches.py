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


@pytest.mark.parametrize(
    ("text", "problem", "says"),
    [
        (BY_ROOM.replace("AS busy", "AS busy, COUNT(*) AS n"), "unsupported-query", "coverage(b.stay) with aggregates, or with HAVING on"),
        (f"{BY_ROOM} HAVING COUNT(*) > 2", "unsupported-query", "coverage(b.stay) with aggregates, or with HAVING on them"),
        (BY_ROOM.replace("AS busy", "AS busy, coverage(b.open) AS other"), "unsupported-query", "coverage(…) twice in a view"),
        (f"{BY_ROOM} HAVING busy_start > '2026-01-01'", "unknown-column", "busy_start"),
        (f"{BY_ROOM} HAVING date_trunc('month', checkin) > '2026-01-01'", "bad-query", "is not in GROUP BY"),
        (BY_ROOM.replace("SELECT b.room,", "SELECT DISTINCT"), "unsupported-query", "select room, too"),
        ("SELECT DISTINCT coverage(b.stay) AS busy FROM bookings b", "unsupported-query", "coverage(…) with groups or DISTINCT"),
        (f"{BY_ROOM} UNION {BY_ROOM}", "unsupported-query", "in UNION or EXCEPT"),
        (BY_ROOM.replace("GROUP", "JOIN maintenance m ON m.room = b.room GROUP"), "unsupported-query",
            "coverage(b.stay) of a join is not supported: group the rows of one relation, or write coverage(x, y)"),
        (BY_ROOM.replace("GROUP", "WHERE EXISTS (SELECT 1 FROM maintenance m WHERE m.room = b.room) GROUP"), "unsupported-query",
            "coverage(b.stay) of a join"),
        (BY_ROOM.replace("AS busy", 'AS "Busy"'), "bad-definition", "'Busy' cannot name coverage(b.stay): use a name that matches"),
        (BY_ROOM.replace("AS busy", "AS b"), "bad-definition", "and is no alias"),
        (BY_ROOM.replace("b.room,", "b.room AS busy,"), "bad-definition", "busy names coverage(b.stay) and a column by which its rows are"),
        (BY_ROOM.replace("b.room, ", "b.room, b.guest, "), "bad-query", "b.guest must be in GROUP BY"),
        (BY_ROOM.replace("b.stay", "b.nothing"), "unknown-column", "nothing"),
        (BY_ROOM.replace("coverage", "gaps"), "unsupported-query", "gaps(…) with groups or DISTINCT"),
    ],
)  # fmt: skip
def test_refusals_of_groups(text: str, problem: str, says: str) -> None:
    found = refused(text)
    assert found.type == problem and says in str(found.detail), found.detail


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


@pytest.mark.parametrize(
    ("text", "problem", "says"),
    [
        (GAPS.replace("LEFT ", ""), "unsupported-query",
            "gaps(b.stay, m.slot) without LEFT JOIN of m is not supported: write FROM bookings b LEFT JOIN maintenance m ON … "),
        (COVERAGE.replace("JOIN", "LEFT JOIN"), "unsupported-query",
            "coverage(b.stay, m.slot) with an outer join is not supported: write FROM"),
        (GAPS.replace("gaps(b.stay, m.slot)", "gaps(m.slot, b.stay)"), "unsupported-query", "without LEFT JOIN of b"),
        (GAPS.replace("gaps(b.stay, m.slot)", "gaps(b.stay)"), "unsupported-query",
            "gaps takes two intervals, as in gaps(s.hours, b.stay)"),
        (GAPS.replace("gaps(b.stay, m.slot)", "gaps()"), "unsupported-query", "gaps takes intervals, as in gaps("),
        (GAPS.replace("gaps(b.stay, m.slot)", "gaps(b.open, m.slot)"), "unsupported-query", "name the intervals that overlap in ON"),
        (f"{GAPS} AND b.floor < m.floor", "unsupported-query",
            "gaps(b.stay, …) with b.floor < m.floor is not supported: its LEFT JOIN has"),
        (f"{GAPS} AND overlaps(b.moment, m.moment)", "unsupported-query",
            "its LEFT JOIN has overlaps of the two intervals, and perhaps equal"),
        (f"{COVERAGE} AND b.id <> m.id", "unsupported-query", "coverage(b.stay, …) with b.id <> m.id is not supported: its JOIN has"),
        (GAPS.replace(" AND overlaps(b.stay, m.slot)", ""), "unsupported-query", "gaps(b.stay, …) without overlaps is not supported"),
        (f"{GAPS} WHERE m.code = 4", "unsupported-query", "m.code in WHERE with gaps(b.stay, m.slot) is not supported: no row has m"),
        (f"{GAPS} AND b.vip", "unsupported-query", "the filter on b.vip in gaps(…)"),
        ("SELECT x.id, coverage(x.stay, y.stay) AS c FROM bookings x ASOF JOIN bookings y ON x.room = y.room AND y.id <= x.id",
            "unsupported-query", "coverage(x.stay, y.stay) over ASOF JOIN is not supported: coverage takes the intervals of all partners"),
        (GAPS.replace("b.id,", "b.id, m.id,"), "unsupported-query",
            "m.id beside gaps(b.stay, m.slot) is not supported: a row has b and one"),
        (COVERAGE.replace("b.id,", "duration(b.stay, m.slot) AS d,"), "unsupported-query", "m.slot beside coverage(b.stay, m.slot)"),
        (GAPS.replace(" AS free", ", gaps(b.stay, m.slot) AS other"), "unsupported-query", "gaps(…) and coverage(…) twice in a view"),
        (GAPS.replace("AS free", 'AS "Free"'), "bad-definition", "'Free' cannot name gaps(b.stay, m.slot): use a name that matches"),
        (GAPS.replace("AS free", "AS m"), "bad-definition", "'m' cannot name gaps(b.stay, m.slot)"),
        (GAPS.replace("AS free", "AS row"), "bad-definition", "and is no alias, nor group or row"),
        (GAPS.replace("b.id,", "b.id AS free_end,"), "bad-query", "the view has two columns named free_end"),
        (f"{GAPS} GROUP BY b.id", "unsupported-query",
            "gaps(…) with groups or DISTINCT is not supported: define a view of gaps(…), and group"),
        (GAPS.replace("b.id,", "COUNT(*) AS n,"), "unsupported-query", "gaps(…) with groups or DISTINCT"),
        (GAPS.replace("SELECT", "SELECT DISTINCT"), "unsupported-query", "gaps(…) with groups or DISTINCT"),
        (f"{GAPS} WHERE EXISTS (SELECT 1 FROM shifts s WHERE s.nr = b.id)", "unsupported-query", "define a view for the rest"),
        (f"{GAPS} LEFT JOIN shifts s ON s.nr = b.id", "unsupported-query", "gaps(b.stay, m.slot) over other relations than these two"),
        (f"{GAPS} UNION SELECT b.id FROM bookings b", "unsupported-query", "gaps(…) in UNION or EXCEPT"),
        (f"{GAPS} AND overlaps(b.digits, m.slot)", "unknown-column", "digits"),
    ],
)  # fmt: skip
def test_refusals(text: str, problem: str, says: str) -> None:
    found = refused(text)
    assert found.type == problem and says in str(found.detail), found.detail


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"algorithm": "match-tree"}, 'only event-tree supports gaps(…); write "algorithm": "event-tree" or "auto"'),
        ({"guarantee": "strict"}, 'the guarantee "strict" cannot be given to gaps(…), only "delay": a change of a partner visits'),
    ],
)
def test_what_cannot_be_promised(options: dict[str, str], says: str) -> None:
    found = refused({"sql": GAPS, **options})
    assert found.type == "infeasible-view" and says in str(found.detail)


@pytest.mark.parametrize(
    ("select", "says"),
    [
        ({"gaps": ["b.stay"]}, "gaps"),
        ({"gaps": ["b.stay", "m.slot"], "coverage": ["b.stay", "m.slot"]}, "an entry of select"),
        ({"gaps": ["b.stay", "m.slot"], "as": "a b"}, "cannot name"),
        ({"gaps": "b.stay"}, 'a list of two intervals, as {"gaps": ["s.hours", "b.stay"], "as": "free"}'),
    ],
)
def test_json_is_checked(select: dict[str, Any], says: str) -> None:
    found = refused(B | {"left": [{"from": {"m": "maintenance"}, "join": JOIN}], "select": [select]})
    assert found.type == "bad-definition" and says in str(found.detail), found.detail
