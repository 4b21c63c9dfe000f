"""DISTINCT ON, QUALIFY and `latest`: what they mean, and what is refused with what to write."""

from __future__ import annotations

from typing import Any

import pytest

from service.errors import Problem
from service.query.model import ColumnRef, Latest, Query
from service.views.parse import parse_view
from service.wire.schema import parse_relation

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


NEWEST = Latest((ref("room"),), ref("at"), True, 1)
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
        (f"nr FROM readings r {OVER} at DESC, sensor DESC) <= 3", Latest((ref("room"),), ref("at"), True, 3)),
        (f"nr FROM readings r {OVER} at DESC) < 3", Latest((ref("room"),), ref("at"), True, 2)),
        ("nr FROM readings r QUALIFY 5 >= ROW_NUMBER() OVER (ORDER BY nr DESC, sensor DESC)", Latest((), ref("nr"), True, 5)),
    ],
)  # fmt: skip
def test_sql(sql: str, latest: Latest) -> None:
    assert query({"sql": f"SELECT {sql}"}).latest == latest


def test_json_is_the_same_view() -> None:
    definition = {"from": {"r": "readings"}, "select": ["r.nr as nr"], "latest": {"by": ["r.room"], "order": "r.at", "descending": True}}
    assert query(definition) == query({"sql": f"SELECT r.nr AS nr FROM readings r {OVER} at DESC) = 1"})
    assert query(definition | {"latest": {"by": ["r.room", "r.room"], "order": "r.value", "rows": 2}}).latest == Latest(
        (ref("room"),), ref("value"), False, 2
    )


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("DISTINCT ON (room) nr FROM readings", "DISTINCT ON (readings.room) without an ORDER BY that begins with its columns"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room", "write ORDER BY readings.room, and the column whose first value is taken"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY at DESC, room", "write ORDER BY readings.room, and the column"),
        ("DISTINCT ON (lower(room)) nr FROM readings ORDER BY lower(room), at", "the expression LOWER(room) in DISTINCT ON"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, -nr", "the expression -nr in ORDER BY is not supported: name columns"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, value DESC", "write readings.value DESC NULLS LAST"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, value NULLS FIRST", "write readings.value NULLS LAST"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, at DESC, nr DESC", "or write readings.sensor DESC, readings.nr DESC"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, at DESC, sensor", "leave out what follows readings.at"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, at DESC, value", "of equal ones the greatest primary key is first"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, sensor", "the order of readings.sensor, a string is not"),
        ("DISTINCT ON (note) nr FROM readings ORDER BY note, at", "the latest rows by readings.note, which is json"),
        ("DISTINCT ON (r.room) r.nr FROM readings r JOIN others o ON r.nr = o.nr ORDER BY r.room, r.at", "of a join of r and o is not"),
        ("DISTINCT ON (room) nr FROM readings r WHERE EXISTS (SELECT 1 FROM others o WHERE o.nr = r.nr) ORDER BY room, at",
            "with EXISTS or NOT EXISTS is not supported: they are of one relation"),
        ("DISTINCT ON (room) nr FROM readings r WHERE NOT EXISTS (SELECT 1 FROM others o WHERE o.nr = r.nr) ORDER BY room, at",
            "with EXISTS or NOT EXISTS is not supported"),
        ("DISTINCT ON (r.room) r.nr FROM readings r LEFT JOIN others o ON r.nr = o.nr ORDER BY r.room, r.at", "of a join of r and o"),
        ("DISTINCT ON (room) room, COUNT(*) AS n FROM readings GROUP BY room ORDER BY room", "DISTINCT ON with GROUP BY or aggregates"),
        ("DISTINCT ON (room) nr FROM readings ORDER BY room, at LIMIT 3", "LIMIT is not supported: a view has all rows"),
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
        ("nr FROM readings ORDER BY nr", "DISTINCT ON (k) … ORDER BY k, t has one of each k"),
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
        ({"latest": LATEST, "group": ["r.room"], "select": []}, "bad-definition", '"latest" does not go with groups or "distinct"'),
        ({"latest": LATEST, "distinct": True}, "bad-definition", '"latest" does not go with groups or "distinct"'),
        ({"latest": LATEST | {"rows": 0}}, "bad-definition", "latest.rows"),
        ({"latest": LATEST | {"rows": 10_001}}, "bad-definition", "latest.rows"),
        ({"latest": {"by": ["r.room"]}}, "bad-definition", "latest.order"),
        ({"latest": LATEST | {"nulls": "first"}}, "bad-definition", "latest has no field nulls; its fields are by, order"),
        ({"latest": LATEST | {"by": ["room"]}}, "bad-definition", '"room" has no alias'),
        ({"latest": LATEST | {"by": ["r.rom"]}}, "unknown-column", "did you mean room?"),
        ({"latest": LATEST | {"order": "r.room"}}, "unsupported-query", "order by a number or a time"),
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
