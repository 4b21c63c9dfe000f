"""DISTINCT ON, QUALIFY and `latest`: what they mean, and what is refused with what to write."""

from __future__ import annotations

from typing import Any

import pytest

from livejoin.wire.schema import parse_relation
from service.query.conditions import ColumnRef, Term
from service.query.model import AsOf, Latest, Ordering, Query
from service.views.parse import parse_view

READINGS = parse_relation(
    {
        "columns": [
            {"name": "sensor", "type": "string"},
            {"name": "nr", "type": "int64"},
            {"name": "room", "type": "string", "nullable": True},
            {"name": "at", "type": "timestamp"},
            {"name": "value", "type": "float64", "nullable": True},
            {"name": "note", "type": "json", "nullable": True},
        ],
        "key": ["sensor", "nr"],
    }
)
RELATIONS = {"readings": READINGS, "others": READINGS}


def query(definition: dict[str, Any]) -> Query:
    return parse_view("v", definition, RELATIONS).query


def of(sql: str) -> Query:
    return query({"sql": f"SELECT r.sensor, r.nr FROM readings r {sql}"})


def ref(name: str) -> ColumnRef:
    return ColumnRef("r", name)


LOWER = Term("lower", "string", (Term("column", "string", (), ref("room")),))
REST = Term("%", "int64", (Term("column", "int64", (), ref("nr")), Term("constant", "int64", (), 10)))
NEWEST = Latest((ref("room"),), (Ordering(ref("at"), True, True),), 1)
OVER = "QUALIFY ROW_NUMBER() OVER (PARTITION BY r.room ORDER BY"


@pytest.mark.parametrize(
    ("sql", "latest"),
    [
        ("DISTINCT ON (r.room) r.nr FROM readings r ORDER BY r.room, r.at DESC", NEWEST),
        ("DISTINCT ON (room) nr FROM readings r ORDER BY room DESC, at DESC, sensor DESC, r.nr DESC", NEWEST),
        ("DISTINCT ON (r.room, r.sensor) nr FROM readings r ORDER BY sensor, room, at, nr DESC",
            Latest((ref("room"), ref("sensor")), (Ordering(ref("at")),), 1)),
        ("DISTINCT ON (r.room) nr FROM readings r ORDER BY r.room, r.value DESC NULLS LAST",
            Latest((ref("room"),), (Ordering(ref("value"), True),), 1)),
        ("DISTINCT ON (r.room) nr FROM readings r ORDER BY r.room, r.value", Latest((ref("room"),), (Ordering(ref("value")),), 1)),
        (f"nr FROM readings r {OVER} at DESC) = 1", NEWEST),
        (f"nr FROM readings r {OVER} at DESC, sensor DESC) <= 3", Latest((ref("room"),), (Ordering(ref("at"), True, True),), 3)),
        (f"nr FROM readings r {OVER} at DESC NULLS LAST) < 3", Latest((ref("room"),), (Ordering(ref("at"), True),), 2)),
        ("DISTINCT ON (room) nr FROM readings r ORDER BY room, value DESC",
            Latest((ref("room"),), (Ordering(ref("value"), True, True),), 1)),
        ("DISTINCT ON (1) room AS value, nr FROM readings r ORDER BY value, 2", Latest((ref("room"),), (Ordering(ref("nr")),), 1)),
        ("DISTINCT ON (lower(room)) nr FROM readings r ORDER BY lower(r.room), nr % 10 NULLS FIRST",
            Latest((LOWER,), (Ordering(REST, False, True),), 1)),
        ("lower(room) AS room, nr % 10 AS rest FROM readings r QUALIFY ROW_NUMBER() OVER (PARTITION BY room ORDER BY rest) = 1",
            Latest((ref("room"),), (Ordering(REST),), 1)),
        ("DISTINCT ON (room) nr FROM readings r ORDER BY room, value DESC NULLS LAST, at NULLS FIRST, value, room, sensor DESC",
            Latest((ref("room"),), (Ordering(ref("value"), True), Ordering(ref("at"), False, True)), 1)),
        (f"nr FROM readings r {OVER} at DESC, nr DESC, lower(room), sensor DESC) = 1",
            Latest((ref("room"),), (*NEWEST.order, Ordering(ref("nr"), True), Ordering(LOWER)), 1)),
        (f"nr FROM readings r {OVER} room, 1, 'x' || 'y') = 1", Latest((ref("room"),), (Ordering(ref("sensor"), True),), 1)),
        ("sensor AS s, nr FROM readings r ORDER BY value DESC, s DESC, nr LIMIT 3",
            Latest((), (Ordering(ref("value"), True, True), Ordering(ref("sensor"), True), Ordering(ref("nr"))), 3)),
        ("nr FROM readings r QUALIFY 5 >= ROW_NUMBER() OVER (ORDER BY nr DESC, sensor DESC)", Latest((), (Ordering(ref("nr"), True),), 5)),
        ("nr FROM readings r ORDER BY nr DESC, sensor DESC LIMIT 5", Latest((), (Ordering(ref("nr"), True),), 5)),
        ("nr % 10 AS n FROM readings r ORDER BY n FETCH FIRST 10000 ROWS ONLY", Latest((), (Ordering(REST),), 10_000)),
        ("nr FROM (SELECT nr, value FROM readings ORDER BY 2 LIMIT 3) r", Latest((), (Ordering(ref("value")),), 3)),
    ],
)  # fmt: skip
def test_sql(sql: str, latest: Latest) -> None:
    assert query({"sql": f"SELECT {sql}"}).latest == latest


def test_json_is_the_same_view() -> None:
    definition = {"from": {"r": "readings"}, "select": ["r.nr as nr"], "latest": {"by": ["r.room"], "order": "r.at", "descending": True}}
    assert query(definition) == query({"sql": f"SELECT r.nr AS nr FROM readings r {OVER} at DESC NULLS LAST) = 1"})
    wanted = Latest((ref("room"),), (Ordering(ref("value")),), 2)
    assert query(definition | {"latest": {"by": ["r.room", "r.room"], "order": "r.value", "rows": 2}}).latest == wanted
    latest = {"by": [{"expression": "lower(r.room)"}], "order": {"expression": "r.nr % 10"}}
    assert query(definition | {"latest": latest}).latest == Latest((LOWER,), (Ordering(REST),), 1)
    order = {"expression": "r.value DESC, r.at ASC, r.nr % 10 NULLS LAST"}
    by_sql = f"SELECT r.nr AS nr FROM readings r {OVER} value DESC, at, r.nr % 10 DESC NULLS LAST) <= 2"
    assert query(definition | {"latest": {"by": ["r.room"], "order": order, "descending": True, "rows": 2}}) == query({"sql": by_sql})


def as_of(sql: str, **more: Any) -> Query:
    return query({"sql": f"SELECT a.nr AS i, b.nr AS j FROM readings a ASOF {sql}", **more})


A, B = (lambda name: ColumnRef("a", name)), (lambda name: ColumnRef("b", name))


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("JOIN others b ON a.room = b.room AND b.at <= a.at", AsOf(B("at"), "<=", A("at"), False)),
        ("INNER JOIN others b ON a.at > b.at AND b.room = a.room", AsOf(B("at"), "<", A("at"), False)),
        ("LEFT JOIN others b ON a.room = b.room AND b.at >= a.at", AsOf(B("at"), ">=", A("at"), True)),
        ("LEFT OUTER JOIN others b ON a.room = b.room AND a.nr < b.nr WHERE a.room IS NULL", AsOf(B("nr"), ">", A("nr"), True)),
        ("LEFT JOIN others b ON a.room = b.room AND b.at >= a.at WHERE b.value > 1", AsOf(B("at"), ">=", A("at"), False)),
        ("LEFT JOIN others b ON a.room = b.room AND b.at >= a.at WHERE b.room IS NOT NULL", AsOf(B("at"), ">=", A("at"), False)),
    ],
)  # fmt: skip
def test_as_of(sql: str, wanted: AsOf) -> None:
    found = as_of(sql)
    assert found.as_of == wanted and found.equal == ((A("room"), B("room")),)
    assert found.optional == ({"b"} if wanted.optional else set())


def test_conditions_on_the_rows_of_an_as_of_join() -> None:
    """In WHERE they restrict the rows that are found; none of them is a key of the join."""
    found = as_of("LEFT JOIN others b ON b.at <= a.at WHERE a.room = b.room AND NOT (b.nr > a.nr AND b.value > 1) AND a.nr > 1")
    assert found.equal == () and found.optional == {"b"} and list(map(str, found.filters)) == ["a.nr > 1"] and found.as_of is not None
    assert list(map(str, found.as_of.conditions)) == ["(a.room = b.room)", "not(((b.nr > a.nr) AND (b.value > 1.0)))"]
    one, other = (as_of(f"LEFT JOIN others b ON b.at <= a.at WHERE {where}").as_of for where in ("b.room IS NULL", "coalesce(b.nr, 2) = 2"))
    assert one is not None and list(map(str, one.conditions)) == ["b.room IS NULL"]
    assert other is not None and other.optional and list(map(str, other.conditions)) == ["(coalesce(b.nr, 2) = 2)"]
    json = {"from": {"a": "readings", "b": "others"}, "join": [{"as_of": ["b.at", "<=", "a.at"]}], "select": ["a.nr as i", "b.nr as j"]}
    json["where"] = [{"expression": "a.nr < b.nr"}]
    assert query(json) == as_of("JOIN others b ON b.at <= a.at WHERE a.nr < b.nr") and not query(json).filters


def test_as_of_in_json_is_the_same_view() -> None:
    join = [{"equal": ["a.room", "b.room"]}, {"as_of": ["b.at", "<=", "a.at"]}]
    select = ["a.nr as i", "b.nr as j"]
    inner = {"from": {"a": "readings", "b": "others"}, "join": join, "select": select}
    assert query(inner) == as_of("JOIN others b ON a.room = b.room AND b.at <= a.at")
    left = {"from": {"a": "readings"}, "left": [{"from": {"b": "others"}, "join": join}], "select": select}
    assert query(left) == as_of("LEFT JOIN others b ON a.room = b.room AND b.at <= a.at")
