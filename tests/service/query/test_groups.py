"""Groups in definitions: SQL and JSON give the same, and what is not supported says what to write."""

from __future__ import annotations

from typing import Any

import pytest

from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.query.model import Query
from service.views.parse import parse_view
from tests.service.definitions import refused, sql

BOOKINGS = parse_relation(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "room", "type": "string"},
            {"name": "price", "type": "float64", "nullable": True},
            {"name": "guests", "type": "int64"},
            {"name": "starts", "type": "timestamp"},
            {"name": "ends", "type": "timestamp", "nullable": True},
            {"name": "made", "type": "date"},
        ],
        "key": ["id"],
        "intervals": {"stay": {"start": "starts", "end": "ends"}},
    }
)
FROM = {"from": {"b": "bookings"}}


def query(definition: dict[str, Any]) -> Query:
    return parse_view("v", definition, {"bookings": BOOKINGS}).query


@pytest.mark.parametrize(
    ("sql", "json"),
    [
        (
            "SELECT b.room AS room, date_trunc('month', b.starts) AS month, SUM(b.price) AS revenue, COUNT(*) AS n FROM bookings b "
            "GROUP BY b.room, month HAVING SUM(price) > 10 AND b.room <> 'x'",
            {
                "group": ["b.room as room", {"trunc": "month", "of": "b.starts", "as": "month"}],
                "aggregate": [{"sum": "b.price", "as": "revenue"}, {"count": "*", "as": "n"}],
                "having": [{"column": "revenue", "op": ">", "value": 10}, {"column": "room", "op": "!=", "value": "x"}],
            },
        ),
        ("SELECT DISTINCT room, guests FROM bookings b", {"select": ["b.room", "b.guests"], "distinct": True}),
        ("SELECT COUNT(*) AS n FROM bookings b", {"aggregate": [{"count": "*", "as": "n"}]}),
        (
            "SELECT bool_and(guests > 1) AS a, bool_or(guests > 1) AS o, stddev(price) AS d, var_pop(guests) AS v FROM bookings b",
            {
                "aggregate": [
                    {"min": {"expression": "b.guests > 1"}, "as": "a"}, {"max": {"expression": "b.guests > 1"}, "as": "o"},
                    {"stddev_samp": "b.price", "as": "d"}, {"var_pop": "b.guests", "as": "v"},
                ]
            },
        ),
        ("SELECT every(guests > 1) FILTER (WHERE room = 'x') AS a FROM bookings b", None),
        ("SELECT SUM(duration(stay)) FILTER (WHERE guests > 1) AS s FROM bookings b", None),
        (
            "SELECT lower(b.room) AS r, SUM(guests * 2) FILTER (WHERE guests > 1 AND room <> 'x') AS s, COUNT(*) + SUM(guests * 2) AS m "
            "FROM bookings b GROUP BY lower(room) HAVING SUM(guests) > 2 * COUNT(*)",
            {
                "having": [{"expression": "SUM(b.guests) > 2 * COUNT(*)"}],
                "group": [{"expression": "lower(b.room)", "as": "r"}],
                "aggregate": [
                    {
                        "sum": {"expression": "b.guests * 2"}, "as": "s",
                        "filter": [{"column": "b.guests", "op": ">", "value": 1}, {"column": "b.room", "op": "!=", "value": "x"}],
                    },
                    {"expression": "COUNT(*) + SUM(b.guests * 2)", "as": "m"},
                ],
            },
        ),
        ("SELECT COUNT(1) AS n FROM bookings b", {"aggregate": [{"count": "*", "as": "n"}]}),
        (
            "SELECT room, COUNT(DISTINCT guests) AS d, AVG(guests) AS a, MIN(ends) AS f, MAX(ends) AS l, COUNT(price) AS c FROM bookings b "
            "GROUP BY 1",
            {
                "group": ["b.room"],
                "aggregate": [
                    {"count_distinct": "b.guests", "as": "d"}, {"avg": "b.guests", "as": "a"}, {"min": "b.ends", "as": "f"},
                    {"max": "b.ends", "as": "l"}, {"count": "b.price", "as": "c"},
                ],
            },
        ),
        (
            "SELECT SUM(duration(stay)) AS s FROM bookings b HAVING SUM(duration(stay)) IS NOT NULL AND COUNT(*) BETWEEN 1 AND 9",
            None,
        ),
        (
            "SELECT date_trunc('week', made) AS w, COUNT(*) AS n FROM bookings b GROUP BY date_trunc('week', made) HAVING NOT COUNT(*) < 3",
            {
                "group": [{"trunc": "week", "of": "b.made", "as": "w"}], "aggregate": [{"count": "*", "as": "n"}],
                "having": [{"column": "n", "op": ">=", "value": 3}],
            },
        ),
        (
            "SELECT COUNT(*) AS n FROM bookings b HAVING COUNT(*) NOT IN (1, 2)",
            {"aggregate": [{"count": "*", "as": "n"}], "having": [{"column": "n", "op": "!=", "value": value} for value in (1, 2)]},
        ),
        (
            "SELECT room, COUNT(*) AS n, SUM(price) AS s FROM bookings b GROUP BY room "
            "HAVING (room = 'a' OR COUNT(*) > 3 AND SUM(price) < 9) AND NOT (COUNT(*) = 7 OR SUM(price) IN (1, 2))",
            {
                "group": ["b.room"], "aggregate": [{"count": "*", "as": "n"}, {"sum": "b.price", "as": "s"}],
                "having": [
                    {"or": [
                        {"and": [{"column": "n", "op": ">", "value": 3}, {"column": "s", "op": "<", "value": 9}]},
                        {"column": "room", "op": "=", "value": "a"},
                    ]},
                    {"not": {"or": [{"column": "n", "op": "=", "value": 7}, {"column": "s", "op": "in", "value": [2, 1]}]}},
                ],
            },
        ),
        (
            "SELECT room, COUNT(*) AS n FROM bookings b GROUP BY room "
            "HAVING room = 'a' OR (COUNT(*) = 1 OR NOT (COUNT(*) > 3 AND room = 'b'))",
            {
                "group": ["b.room"], "aggregate": [{"count": "*", "as": "n"}],
                "having": [
                    {"or": [
                        {"column": "n", "op": "<=", "value": 3}, {"column": "room", "op": "!=", "value": "b"},
                        {"column": "n", "op": "=", "value": 1}, {"column": "room", "op": "=", "value": "a"},
                    ]},
                ],
            },
        ),
        (
            "SELECT COUNT(*) AS n FROM bookings b HAVING COUNT(*) NOT BETWEEN 1 AND 2",
            {
                "aggregate": [{"count": "*", "as": "n"}],
                "having": [{"or": [{"column": "n", "op": "<", "value": 1}, {"column": "n", "op": ">", "value": 2}]}],
            },
        ),
        (
            "SELECT COUNT(*) AS n FROM bookings b HAVING COUNT(*) IN (NULL) OR COUNT(*) > 1",
            {"aggregate": [{"count": "*", "as": "n"}], "having": [{"column": "n", "op": ">", "value": 1}]},
        ),
        (
            "SELECT COUNT(*) AS n FROM bookings b HAVING COUNT(*) < NULL OR COUNT(*) NOT IN (NULL, 1)",
            {"aggregate": [{"count": "*", "as": "n"}], "having": [{"column": "n", "op": "in", "value": [None]}]},
        ),
        (
            "SELECT SUM(duration(stay)) AS s FROM bookings b",
            {"aggregate": [{"sum": {"duration": ["b.stay"]}, "as": "s"}]},
        ),
    ],
)  # fmt: skip
def test_sql_and_json_are_the_same(sql: str, json: dict[str, Any] | None) -> None:
    found = query({"sql": sql})
    assert found.groups is not None
    if json is not None:
        assert found == query(FROM | json)


@pytest.mark.parametrize(
    ("short", "grouped"),
    [
        ("b.id, b.room, COUNT(c.id) AS n {} GROUP BY b.id", "b.id, b.room, COUNT(c.id) AS n {} GROUP BY b.id, b.room"),
        ("b.room, lower(b.room) || b.guests AS l, COUNT(*) AS n {} GROUP BY b.id",
         "b.room, lower(b.room) || b.guests AS l, COUNT(*) AS n {} GROUP BY b.id, b.room, b.guests"),
        ("b.*, COUNT(*) AS n {} GROUP BY b.id", "b.*, COUNT(*) AS n {} GROUP BY b.id, b.room, b.price, b.guests, b.starts, b.ends, b.made"),
        ("b.id, COUNT(*) AS n {} GROUP BY b.id HAVING b.guests > 1 OR COUNT(*) > 3",
         "b.id, COUNT(*) AS n {} GROUP BY b.id, b.guests HAVING b.guests > 1 OR COUNT(*) > 3"),
        ("duration(b.stay) * 2 AS d, date_trunc('minute', b.starts) AS m, COUNT(*) AS n {} GROUP BY b.id",
         "duration(b.stay) * 2 AS d, date_trunc('minute', b.starts) AS m, COUNT(*) AS n {} GROUP BY b.id, duration(b.stay), b.starts"),
        ("DISTINCT b.room, COUNT(*) AS n {} GROUP BY b.room", "b.room, COUNT(*) AS n {} GROUP BY b.room"),
        ("DISTINCT COUNT(*) AS n {}", "COUNT(*) AS n {}"),
    ],
)  # fmt: skip
def test_groups_by_a_key_and_distinct_groups(short: str, grouped: str) -> None:
    """With the whole key of a relation in GROUP BY, its other columns are as if they were there; DISTINCT of different rows is nothing."""
    joined = "FROM bookings b LEFT JOIN bookings c ON b.room = c.room AND overlaps(b.stay, c.stay)"
    one, other = (query({"sql": f"SELECT {text}".format(joined)}) for text in (short, grouped))
    assert one == other and one.groups is not None


@pytest.mark.parametrize(
    ("having", "same"),
    [
        ("COUNT(*) > 1.5", "COUNT(*) > 1"),
        ("COUNT(*) IN (1.5, 2.0)", "COUNT(*) = 2"),
        ("COUNT(*) <> 1e30", "COUNT(*) IS NOT NULL"),
        ("SUM(exact) >= 100000000000000000000.001", "SUM(exact) > 100000000000000000000"),
        ("SUM(exact) < 1e36", "SUM(exact) IS NOT NULL"),
        ("SUM(exact) > 1e36", "SUM(exact) IN (NULL)"),
        ("guests > 1.5", "guests > 1"),
    ],
)
def test_having_takes_numbers_of_any_precision(having: str, same: str) -> None:
    columns = [
        {"name": "id", "type": "int64"}, {"name": "guests", "type": "int64"},
        {"name": "exact", "type": "decimal", "precision": 12, "scale": 2},
    ]  # fmt: skip
    relations = {"t": parse_relation({"columns": columns, "key": ["id"]})}
    one, other = (
        parse_view("v", {"sql": f"SELECT guests FROM t GROUP BY guests HAVING {text}"}, relations).query for text in (having, same)
    )
    assert one == other and one.groups is not None


def test_a_shorter_unit_than_an_hour_is_an_expression() -> None:
    found = query({"sql": "SELECT date_trunc('minute', starts) AS m, COUNT(*) FROM bookings GROUP BY m HAVING m > '2026-01-01'"})
    assert found.groups is not None and found.groups.columns[0].trunc is None and found.outputs[0].term is not None


@pytest.mark.parametrize(
    "definition",
    [
        {"sql": "SELECT id, room FROM bookings"},
        {"sql": "SELECT room FROM bookings UNION SELECT room FROM bookings"},
        {"sql": "SELECT DISTINCT ON (room) * FROM bookings ORDER BY room, id"},
        FROM | {"select": ["b.id"]},
    ],
)
def test_the_most_groups_of_a_view_without_groups(definition: dict[str, Any]) -> None:
    """The option is refused, though with the default's value; a folder may have a view of a time in which it was not."""
    with pytest.raises(Problem, match='the option "groups" limits the groups of a view, and this view has no groups') as caught:
        query(definition | {"groups": 10_000_000})
    assert caught.value.type == "bad-definition"
    view = parse_view("v", definition | {"groups": 5}, {"bookings": BOOKINGS}, kept=True)
    assert view.query == query(definition)


def test_the_most_groups_of_distinct_rows() -> None:
    """Also where the rows are distinct by themselves, so that no groups are kept."""
    grouping = query({"sql": "SELECT DISTINCT room FROM bookings", "groups": 5}).groups
    assert grouping is not None and grouping.most == 5
    assert query({"sql": "SELECT DISTINCT id, room FROM bookings", "groups": 5}).groups is None


@pytest.mark.parametrize(
    ("sql", "cls", "guarantee"),
    [
        ("SELECT COUNT(*) AS n FROM bookings", "one group of: selection, 1 relation", "strict"),
        ("SELECT DISTINCT room FROM bookings", "distinct rows of: selection, 1 relation", "strict"),
        ("SELECT a.room AS r, COUNT(*) AS n FROM bookings a JOIN bookings b ON a.room = b.room AND overlaps(a.stay, b.stay) GROUP BY r",
         "groups by the join key of: interval join, 1-D, 2 relations, keyed", "strict"),
        ("SELECT a.room AS r, MIN(b.id) AS n FROM bookings a JOIN bookings b ON a.room = b.room AND overlaps(a.stay, b.stay) GROUP BY r",
         "groups by the join key of: interval join, 1-D, 2 relations, keyed", "delay"),
        ("SELECT a.id AS i, COUNT(*) AS n FROM bookings a, bookings b, bookings c WHERE overlaps(a.stay, b.stay) "
         "AND overlaps(b.stay, c.stay) GROUP BY i", "groups by i of: interval join, 1-D, 3 relations, path", "best-effort"),
    ],
)  # fmt: skip
def test_plans(sql: str, cls: str, guarantee: str) -> None:
    plan = parse_view("v", {"sql": sql}, {"bookings": BOOKINGS}).plan
    assert (plan.cls, plan.guarantee) == (cls, guarantee)


def test_a_promise_that_groups_cannot_give() -> None:
    sql = "SELECT MIN(b.id) AS n FROM bookings a JOIN bookings b ON overlaps(a.stay, b.stay)"
    with pytest.raises(Problem) as caught:
        parse_view("v", {"sql": sql, "guarantee": "strict"}, {"bookings": BOOKINGS})
    assert caught.value.type == "infeasible-view" and "a change costs as much as the rows of the join" in str(caught.value.detail)
    assert "MIN of b.id requires visiting rows; without it, groups could be counted" in str(caught.value.detail)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("max({0}) > INTERVAL '5 days'", "max({0}) > 432000000000"),
        ("min({0}) FILTER (WHERE vip) + INTERVAL '1 hour' > sum({0})", "min({0}) FILTER (WHERE vip) + 3600000000 > sum({0})"),
        ("avg({0}) > max({0}) - INTERVAL '1 hour'", "avg({0}) > max({0}) - 3600000000"),
        ("sum({0}) > max({0}) + INTERVAL '1 day'", "sum({0}) > max({0}) + 86400000000"),
    ],
)
def test_aggregates_of_differences_are_compared_with_intervals(text: str, micros: str) -> None:
    """As beside the differences themselves, an interval is a number of microseconds."""

    def having(condition: str) -> list[str]:
        view = f"SELECT room, count(*) AS n FROM bookings b GROUP BY room HAVING {condition.format('(checkout - checkin)')}"
        groups = sql(view).query.groups
        assert groups is not None
        return [str(one).strip("()") for one in groups.having]

    assert having(text) == having(micros)


def test_intervals_beside_other_aggregates() -> None:
    for aggregate in ("max(floor)", "count(checkout - checkin)"):
        text = f"SELECT room, count(*) AS n FROM bookings b GROUP BY room HAVING {aggregate} > INTERVAL '5 days'"
        assert "add an INTERVAL, which is a constant, to a time" in refused(text).detail


@pytest.mark.parametrize(
    ("quotient", "kind"),
    [
        ("SUM(b.id) / COUNT(*)", "float64"), ("(SUM(b.id) + 1) / 2", "float64"), ("7 / SUM(b.id)", "float64"), ("COUNT(*) / 2", "int64"),
        ("coalesce(SUM(b.id) FILTER (WHERE b.id > 1), 0) / 2", "float64"), ("SUM(b.id)::bigint / COUNT(*)", "int64"),
    ],
)  # fmt: skip
def test_a_quotient_of_a_sum_has_a_fraction(quotient: str, kind: str) -> None:
    """As in PostgreSQL, where the sum of bigint is numeric."""
    groups = query({"sql": f"SELECT {quotient} AS x FROM bookings b"}).groups
    assert groups is not None and groups.outputs[0].term is not None and groups.outputs[0].term.kind == kind
