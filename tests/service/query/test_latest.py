"""DISTINCT ON, QUALIFY and `latest`: what they mean, and what is refused with what to write."""

from __future__ import annotations

from typing import Any

import pytest

from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.query.conditions import ColumnRef, Term
from service.query.model import AsOf, Latest, Query
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
NEWEST = Latest((ref("room"),), ref("at"), True, 1, True)
OVER = "QUALIFY ROW_NUMBER() OVER (PARTITION BY r.room ORDER BY"


@pytest.mark.parametrize(
    ("sql", "latest"),
    [
        ("DISTINCT ON (r.room) r.nr FROM readings r ORDER BY r.room, r.at DESC", NEWEST),
        ("DISTINCT ON (room) nr FROM readings r ORDER BY room DESC, at DESC, sensor DESC, r.nr DESC", NEWEST),
        ("DISTINCT ON (r.room, r.sensor) nr FROM readings r ORDER BY sensor, room, at, nr DESC",
            Latest((ref("room"), ref("sensor")), ref("at"), False, 1)),
        ("DISTINCT ON (r.room) nr FROM readings r ORDER BY r.room, r.value DESC NULLS LAST", Latest((ref("room"),), ref("value"), True, 1)),
        ("DISTINCT ON (r.room) nr FROM readings r ORDER BY r.room, r.value", Latest((ref("room"),), ref("value"), False, 1)),
        (f"nr FROM readings r {OVER} at DESC) = 1", NEWEST),
        (f"nr FROM readings r {OVER} at DESC, sensor DESC) <= 3", Latest((ref("room"),), ref("at"), True, 3, True)),
        (f"nr FROM readings r {OVER} at DESC NULLS LAST) < 3", Latest((ref("room"),), ref("at"), True, 2)),
        ("DISTINCT ON (room) nr FROM readings r ORDER BY room, value DESC", Latest((ref("room"),), ref("value"), True, 1, True)),
        ("DISTINCT ON (1) room AS value, nr FROM readings r ORDER BY value, 2", Latest((ref("room"),), ref("nr"), False, 1)),
        ("DISTINCT ON (lower(room)) nr FROM readings r ORDER BY lower(r.room), nr % 10 NULLS FIRST",
            Latest((LOWER,), REST, False, 1, True)),
        ("lower(room) AS room, nr % 10 AS rest FROM readings r QUALIFY ROW_NUMBER() OVER (PARTITION BY room ORDER BY rest) = 1",
            Latest((ref("room"),), REST, False, 1)),
        ("nr FROM readings r QUALIFY 5 >= ROW_NUMBER() OVER (ORDER BY nr DESC, sensor DESC)", Latest((), ref("nr"), True, 5)),
        ("nr FROM readings r ORDER BY nr DESC, sensor DESC LIMIT 5", Latest((), ref("nr"), True, 5)),
        ("nr % 10 AS n FROM readings r ORDER BY n FETCH FIRST 10000 ROWS ONLY", Latest((), REST, False, 10_000)),
        ("nr FROM (SELECT nr, value FROM readings ORDER BY 2 LIMIT 3) r", Latest((), ref("value"), False, 3)),
    ],
)  # fmt: skip
def test_sql(sql: str, latest: Latest) -> None:
    assert query({"sql": f"SELECT {sql}"}).latest == latest


def test_json_is_the_same_view() -> None:
    definition = {"from": {"r": "readings"}, "select": ["r.nr as nr"], "latest": {"by": ["r.room"], "order": "r.at", "descending": True}}
    assert query(definition) == query({"sql": f"SELECT r.nr AS nr FROM readings r {OVER} at DESC NULLS LAST) = 1"})
    assert query(definition | {"latest": {"by": ["r.room", "r.room"], "order": "r.value", "rows": 2}}).latest == Latest(
        (ref("room"),), ref("value"), False, 2
    )
    latest = {"by": [{"expression": "lower(r.room)"}], "order": {"expression": "r.nr % 10"}}
    assert query(definition | {"latest": latest}).latest == Latest((LOWER,), REST, False, 1)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("DISTINCT ON (room) nr FROM readings", "DISTINCT ON (readings.room) without an ORDER BY that begins with its columns"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room", "write ORDER BY readings.room, and the column whose first value is taken"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY at DESC, room", "write ORDER BY readings.room, and the column"),
        ("DISTINCT ON (lower(room)) nr FROM readings ORDER BY room, at", "DISTINCT ON (lower(readings.room)) without an ORDER BY that"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, at + INTERVAL '1 h', -nr DESC", "leave out what follows (readings.at + 36"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, lower(room)", "the latest rows by the order of lower(readings.room) (string)"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, CAST(nr AS decimal(20, 1))", "cast it to a decimal of up to 18 digits"),
        (f"nr FROM readings r {OVER} count(*)) = 1", "the expression COUNT(*) is not supported"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, at DESC, nr DESC", "or write readings.sensor DESC, readings.nr DESC"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, at DESC, sensor", "leave out what follows readings.at"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, at DESC, value", "equal ones by the primary key, greatest first"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, sensor", "the order of readings.sensor (string) is not"),
        ("DISTINCT ON (note) nr FROM readings ORDER BY note, at", "the latest rows by readings.note, which is json"),
        ("DISTINCT ON (r.room) r.nr FROM readings r JOIN others o ON r.nr = o.nr ORDER BY r.room, r.at", "of a join of r and o is not"),
        ("DISTINCT ON (room) nr FROM readings r WHERE EXISTS (SELECT 1 FROM others o WHERE o.nr = r.nr) ORDER BY room, at",
            "with EXISTS or NOT EXISTS is not supported: they are of one relation"),
        ("DISTINCT ON (room) nr FROM readings r WHERE NOT EXISTS (SELECT 1 FROM others o WHERE o.nr = r.nr) ORDER BY room, at",
            "with EXISTS or NOT EXISTS is not supported"),
        ("DISTINCT ON (r.room) r.nr FROM readings r LEFT JOIN others o ON r.nr = o.nr ORDER BY r.room, r.at", "of a join of r and o"),
        ("DISTINCT ON (room) room, COUNT(*) AS n FROM readings GROUP BY room ORDER BY room", "DISTINCT ON with GROUP BY or aggregates"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, at LIMIT 3", "DISTINCT ON with LIMIT is not supported"),
        (f"DISTINCT room FROM readings r {OVER} at) = 1", "DISTINCT with QUALIFY is not supported: write one of them"),
        (f"COUNT(*) AS n FROM readings r {OVER} at) = 1", "QUALIFY with GROUP BY or aggregates"),
        (f"nr FROM readings r {OVER} at) = 2", "the first 1 to 10000 rows of each key can be chosen"),
        (f"nr FROM readings r {OVER} at) < 1", "the first 1 to 10000 rows of each key can be chosen"),
        (f"nr FROM readings r {OVER} at) <= 10001", "the first 1 to 10000 rows of each key can be chosen"),
        (f"nr FROM readings r {OVER} at) <= nr", "<= n, a whole number"),
        (f"nr FROM readings r {OVER} at) > 3", "in QUALIFY is not supported: write QUALIFY ROW_NUMBER()"),
        (f"nr FROM readings r {OVER} at) <= 3 AND nr > 4", "in QUALIFY is not supported: write QUALIFY ROW_NUMBER()"),
        (f"nr FROM readings r {OVER.replace('ROW_NUMBER', 'RANK')} at) <= 3", "of window functions there is ROW_NUMBER"),
        ("nr FROM readings r QUALIFY ROW_NUMBER() OVER (PARTITION BY room) <= 3", "without ORDER BY is not supported: write QUALIFY"),
        ("nr FROM readings r QUALIFY ROW_NUMBER() OVER w <= 3 WINDOW w AS (ORDER BY at)", "WINDOW is not supported"),
        ("nr FROM readings r QUALIFY ROW_NUMBER() OVER w <= 3", "a named window or a frame"),
        (f"nr FROM readings r {OVER} at ROWS 3 PRECEDING) <= 3", "a named window or a frame"),
        ("ROW_NUMBER() OVER (ORDER BY at) AS n FROM readings", "write QUALIFY ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n"),
        ("nr FROM readings ORDER BY at LIMIT 0", "LIMIT 0 is not supported: write LIMIT n, for 1 to 10000 rows"),
        ("nr FROM readings ORDER BY at LIMIT 1 + 1", "LIMIT 1 + 1 is not supported"),
        ("nr FROM readings ORDER BY at FETCH FIRST 3 ROWS WITH TIES", "WITH TIES is not supported"),
        ("nr FROM readings ORDER BY at LIMIT 3 OFFSET 2", "OFFSET is not supported"),
        ("r.nr FROM readings r JOIN others o ON r.nr = o.nr ORDER BY r.at LIMIT 3", "first rows of a join with ?order=column desc&limit=n"),
        ("room, count(*) FROM readings GROUP BY room ORDER BY 2 LIMIT 3", "LIMIT with GROUP BY or aggregates"),
        ("DISTINCT room FROM readings ORDER BY 1 LIMIT 3", "DISTINCT with LIMIT"),
        (f"nr FROM readings r {OVER} at) <= 1 UNION SELECT nr FROM others", "DISTINCT ON or QUALIFY in UNION or EXCEPT"),
        (f"nr FROM others o WHERE EXISTS (SELECT 1 FROM readings r WHERE r.nr = o.nr {OVER} at) = 1)", "QUALIFY in EXISTS"),
    ],
)  # fmt: skip
def test_what_is_not_supported(sql: str, says: str) -> None:
    with pytest.raises(Problem) as caught:
        query({"sql": f"SELECT {sql}"})
    assert caught.value.type == "unsupported-query" and says in str(caught.value.detail), caught.value.detail


LATEST = {"by": ["r.room"], "order": "r.at"}


@pytest.mark.parametrize(
    ("more", "kind", "says"),
    [
        ({"latest": LATEST, "group": ["r.room"], "select": []}, "unsupported-query", "QUALIFY with GROUP BY or aggregates"),
        ({"latest": LATEST, "distinct": True}, "unsupported-query", "DISTINCT with QUALIFY"),
        ({"latest": LATEST | {"rows": 0}}, "bad-definition", "latest.rows"),
        ({"latest": LATEST | {"rows": 10_001}}, "bad-definition", "latest.rows"),
        ({"latest": {"by": ["r.room"]}}, "bad-definition", "latest.order"),
        ({"latest": LATEST | {"nulls": "first"}}, "bad-definition", "latest has no field nulls; its fields are by, order"),
        ({"latest": LATEST | {"by": ["room"]}}, "bad-definition", '"room" has no alias'),
        ({"latest": LATEST | {"by": ["r.rom"]}}, "unknown-column", "did you mean room?"),
        ({"latest": LATEST | {"order": "r.room"}}, "unsupported-query", "order by a number or a time"),
        ({"latest": LATEST | {"order": {"expression": "count(*)"}}}, "unsupported-query", 'write aggregates in "aggregate"'),
        ({"from": {"r": "readings", "o": "others"}, "join": [{"equal": ["r.nr", "o.nr"]}], "latest": LATEST}, "unsupported-query", "r "),
    ],
)
def test_what_is_refused_in_json(more: dict[str, Any], kind: str, says: str) -> None:
    definition: dict[str, Any] = {"from": {"r": "readings"}, "select": ["r.nr as nr"]} | more
    if "group" in definition:
        del definition["select"]
    with pytest.raises(Problem) as caught:
        query(definition)
    assert caught.value.type == kind and says in str(caught.value.detail), caught.value.detail


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


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("JOIN others b ON a.room = b.room", "the ON of this ASOF JOIN is not supported: it has equalities, and one comparison of a time"),
        ("JOIN others b ON b.at <= a.at AND b.nr <= a.nr", "it has equalities, and one comparison of a time"),
        ("JOIN others b ON b.at <= a.at AND b.room <> a.room", "it has equalities, and one comparison of a time"),
        ("JOIN others b ON b.at <= a.at AND b.nr > 3", "a filter in the ON of ASOF JOIN is not supported: write it in WHERE"),
        ("JOIN others b USING (room, at)", "ASOF JOIN without ON is not supported: write a ASOF [LEFT] JOIN b ON a.k"),
        ("RIGHT JOIN others b ON b.at <= a.at", "ASOF RIGHT JOIN is not supported: write a ASOF [LEFT] JOIN b"),
        ("LEFT ANTI JOIN others b ON b.at <= a.at", "ASOF LEFT ANTI JOIN is not supported"),
        ("JOIN others b ON b.at <= b.at", "a filter in the ON of ASOF JOIN is not supported: write it in WHERE"),
        ("JOIN others b ON b.room <= a.room", "an ASOF JOIN by b.room (string) is not supported: compare numbers or times"),
        ("JOIN others b ON b.nr <= a.at", "int64 and timestamp"),
        ("JOIN others b ON b.nr + a.nr <= a.nr", "over b and a"),
        ("JOIN others b ON abs(b.nr) <= a.nr", "compare two columns of one type"),
        ("JOIN others b ON b.value <= a.value", 'b.value, which may be NaN, is not supported: declare {"at": "value"}'),
        ("JOIN others b ON b.at <= a.at JOIN others c ON c.nr = a.nr", "an ASOF JOIN with other joins is not supported"),
        ("JOIN others b ON b.at <= a.at ASOF JOIN others c ON c.at <= a.at", "an ASOF JOIN with other joins is not supported"),
        ("JOIN others b ON b.at <= a.at WHERE b.nr + a.nr", "NOT of int64 is not supported"),
        ("JOIN others b ON b.at <= a.at WHERE EXISTS (SELECT 1 FROM others c WHERE c.nr = a.nr)", "an ASOF JOIN with EXISTS,"),
        ("JOIN others b ON b.at <= a.at WHERE NOT EXISTS (SELECT 1 FROM others c WHERE c.nr = a.nr)", "an ASOF JOIN with EXISTS,"),
        ("JOIN others b ON b.at <= a.at UNION SELECT nr AS i, at AS j FROM others", "ASOF JOIN in UNION or EXCEPT"),
        ("JOIN others b ON b.at <= a.at QUALIFY ROW_NUMBER() OVER (PARTITION BY a.room ORDER BY a.at) = 1", "of a join of a and b"),
    ],
)  # fmt: skip
def test_what_as_of_does_not_take(sql: str, says: str) -> None:
    with pytest.raises(Problem) as caught:
        as_of(sql)
    assert caught.value.type == "unsupported-query" and says in str(caught.value.detail), caught.value.detail


_POSITIVE = {"column": "b.nr", "op": ">", "value": 1}
_AS_OF = {"as_of": ["b.at", "<=", "a.at"]}


@pytest.mark.parametrize(
    ("more", "kind", "says"),
    [
        ({"join": [{"as_of": ["b.at", "<=", "a.at"]}, _AS_OF]}, "bad-definition", '"as_of" can be used only once in join'),
        ({"join": [{"as_of": ["b.at", "=", "a.at"]}]}, "bad-definition", 'join.0.as_of: "=" is not a comparison'),
        ({"join": [{"as_of": ["b.at", "a.at"]}]}, "bad-definition", '"as_of" is a list of three, as {"as_of": ["b.at", "<=", "a.at"]}'),
        ({"join": [{"as_of": ["b.when", "<=", "a.at"]}]}, "unknown-column", "when"),
        ({"join": [_AS_OF, {"within": ["a.at", "b.at"], "distance": 5}]}, "unsupported-query", "it has equalities, and one comparison"),
        ({"from": {"a": "readings"}, "left": [{"from": {"b": "others"}, "join": [{"as_of": ["a.at", ">=", "b.at"]}]}]}, "bad-definition",
            'left.0.join: the first column of "as_of" must be of the relation in "from"'),
        ({"from": {"a": "readings"}, "left": [{"from": {"b": "others"}, "join": [_AS_OF], "where": [_POSITIVE]}]},
            "unsupported-query", "a filter in the ON of ASOF LEFT JOIN is not supported: write it in WHERE"),
        ({"from": {"a": "readings"}, "left": [{"from": {"b": "others"}, "join": [_AS_OF, {"not_equal": ["a.nr", "b.nr"]}]}]},
            "unsupported-query", "the ON of this ASOF LEFT JOIN is not supported: it has equalities, and one comparison"),
        ({"from": {"a": "readings"}, "exists": [{"from": {"b": "others"}, "join": [_AS_OF]}], "select": ["a.nr as i"]}, "unsupported-query",
            "an ASOF JOIN with EXISTS, NOT EXISTS or an outer join"),
    ],
)  # fmt: skip
def test_what_as_of_does_not_take_in_json(more: dict[str, Any], kind: str, says: str) -> None:
    definition: dict[str, Any] = {"from": {"a": "readings", "b": "others"}, "select": ["a.nr as i", "b.nr as j"]} | more
    with pytest.raises(Problem) as caught:
        query(definition)
    assert caught.value.type == kind and says in str(caught.value.detail), caught.value.detail
