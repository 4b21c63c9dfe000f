"""WITH and subqueries in FROM: the view is that of the statement without them, and what cannot be merged is refused at its place."""

from __future__ import annotations

from typing import Any

import pytest

from service.views.parse import parse_view
from tests.service.definitions import RELATIONS, refused, sql

SAME = [
    (
        "SELECT x.id, d FROM (SELECT id, room, price * 2 AS d FROM bookings WHERE floor > 3) AS x JOIN maintenance m ON m.room = x.room",
        "SELECT x.id, x.price * 2 AS d FROM bookings x JOIN maintenance m ON m.room = x.room WHERE x.floor > 3",
    ),
    (
        "WITH low AS (SELECT * FROM bookings b WHERE b.floor < 3) SELECT low.*, m.code FROM low JOIN maintenance m ON low.room = m.room",
        "SELECT low.*, m.code FROM bookings low JOIN maintenance m ON low.room = m.room WHERE low.floor < 3",
    ),
    (
        "WITH a AS (SELECT id, room FROM bookings WHERE floor > 1), b (i, r) AS (SELECT id, room FROM a WHERE id < 9) "
        "SELECT one.i AS x, two.i AS y FROM b one JOIN b two ON one.r = two.r",
        "SELECT one.id AS x, two.id AS y FROM bookings one JOIN bookings two ON one.room = two.room "
        "WHERE one.floor > 1 AND one.id < 9 AND two.floor > 1 AND two.id < 9",
    ),
    (
        "SELECT m.id, x.id AS b FROM (SELECT id, checkin AS ci, checkout AS co FROM bookings) x JOIN maintenance m ON x.ci < "
        "m.e AND m.s < x.co",
        "SELECT m.id, x.id AS b FROM bookings x JOIN maintenance m ON overlaps(x.stay, m.slot)",
    ),
    (
        "SELECT m.id, x.id AS b FROM (SELECT id, checkin, checkout AS co FROM bookings) x JOIN maintenance m ON overlaps(stay, m.slot)",
        "SELECT m.id, x.id AS b FROM bookings x JOIN maintenance m ON overlaps(x.stay, m.slot)",
    ),
    (  # the condition of the part that may be missing belongs to ON, and its expressions are null without it
        "SELECT m.id, x.p FROM maintenance m LEFT JOIN (SELECT room, coalesce(price, 0) AS p FROM bookings WHERE floor = 2) x USING (room)",
        "SELECT m.id, CASE WHEN x.id IS NOT NULL THEN coalesce(x.price, 0) END AS p "
        "FROM maintenance m LEFT JOIN bookings x ON m.room = x.room AND x.floor = 2",
    ),
    (
        "SELECT x.id FROM (SELECT id, room FROM bookings WHERE floor = 2) x CROSS JOIN maintenance m",
        "SELECT x.id FROM bookings x CROSS JOIN maintenance m WHERE x.floor = 2",
    ),
    (
        "SELECT m.id FROM maintenance m WHERE EXISTS (SELECT 1 FROM (SELECT room AS r FROM bookings) x WHERE x.r = room)",
        "SELECT m.id FROM maintenance m WHERE EXISTS (SELECT 1 FROM bookings x WHERE x.room = m.room)",
    ),
    (
        "WITH busy AS (SELECT room FROM bookings WHERE floor = 1) SELECT id FROM maintenance WHERE room IN (SELECT room FROM busy)",
        "SELECT id FROM maintenance WHERE room IN (SELECT busy.room FROM bookings busy WHERE busy.floor = 1)",
    ),
    (
        "SELECT id, clash FROM (SELECT b.id, m.id AS clash, m.n FROM bookings b JOIN maintenance m ON overlaps(b.stay, "
        "m.slot)) t WHERE n > 3",
        "SELECT b.id, m.id AS clash FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.slot) WHERE m.n > 3",
    ),
    (
        "SELECT room, count(*) FROM (SELECT b.room, m.n FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.slot)) t GROUP BY room",
        "SELECT b.room, count(*) FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.slot) GROUP BY b.room",
    ),
    (
        "SELECT r, n * 2 AS n FROM (SELECT room AS r, count(*) AS n FROM bookings GROUP BY r) t WHERE n > 3 AND r <> 'x'",
        "SELECT room AS r, count(*) * 2 AS n FROM bookings t GROUP BY room HAVING count(*) > 3 AND room <> 'x'",
    ),
    (
        "SELECT room, guest FROM (SELECT room, guest, row_number() OVER (PARTITION BY room ORDER BY id) AS n FROM bookings "
        "WHERE floor = 1) t WHERE room <> 'x' AND n <= 3",
        "SELECT room, guest FROM bookings t WHERE room <> 'x' AND floor = 1 "
        "QUALIFY row_number() OVER (PARTITION BY room ORDER BY id) <= 3",
    ),
    (
        "SELECT a, f FROM (SELECT DISTINCT room AS a, floor AS f FROM bookings) t WHERE f > 1",
        "SELECT DISTINCT room AS a, floor AS f FROM bookings t WHERE floor > 1",
    ),
    ("SELECT DISTINCT room FROM (SELECT room, id FROM bookings) t", "SELECT DISTINCT room FROM bookings t"),
    (
        "SELECT guest FROM (SELECT DISTINCT ON (room) room, guest FROM bookings ORDER BY 1, id DESC) t",
        "SELECT DISTINCT ON (room) guest FROM bookings t ORDER BY room, id DESC",
    ),
    (
        "SELECT floor + 1 AS f, count(*) FROM (SELECT floor FROM bookings) t GROUP BY 1",
        "SELECT floor + 1 AS f, count(*) FROM bookings t GROUP BY f",
    ),
    (
        "SELECT room FROM (SELECT room FROM bookings WHERE floor = 1) x UNION (SELECT room FROM (SELECT * FROM maintenance) y)",
        "SELECT room FROM bookings x WHERE floor = 1 UNION SELECT room FROM maintenance y",
    ),
    ("WITH bookings AS (SELECT id, room FROM bookings) SELECT * FROM bookings", "SELECT id, room FROM bookings"),
    (
        "SELECT * FROM (SELECT room FROM bookings) x NATURAL JOIN (SELECT room, n FROM maintenance) y",
        "SELECT x.room, y.n FROM bookings x JOIN maintenance y USING (room)",
    ),
    (
        "SELECT b.id, s.nr FROM (bookings b JOIN maintenance m ON m.room = b.room) JOIN (shifts s) ON s.room = b.room",
        "SELECT b.id, s.nr FROM bookings b JOIN maintenance m ON m.room = b.room JOIN shifts s ON s.room = b.room",
    ),
    (
        "SELECT b.id, s.nr FROM bookings b JOIN ((SELECT id, room FROM maintenance) m JOIN shifts s ON s.room = m.room) ON m.room = b.room",
        "SELECT b.id, s.nr FROM bookings b CROSS JOIN maintenance m JOIN shifts s ON s.room = m.room AND m.room = b.room",
    ),
    ("SELECT * FROM (SELECT * FROM (SELECT id, room FROM bookings ORDER BY id) a) b", "SELECT id, room FROM bookings b"),
    (
        "SELECT id, LAG(floor) OVER (PARTITION BY room ORDER BY id) AS f, LEAD(floor + 1, 1, id) OVER (PARTITION BY room ORDER BY id DESC) "
        "FROM (SELECT * FROM bookings) b WHERE room <> 'x'",
        "SELECT b.id, lag.floor AS f, CASE WHEN lag.id IS NULL THEN b.id ELSE lag.floor + 1 END AS lead FROM bookings b "
        "ASOF LEFT JOIN bookings lag ON b.room IS NOT DISTINCT FROM lag.room AND lag.id < b.id WHERE b.room <> 'x'",
    ),
    (
        "SELECT room, floor FROM bookings WHERE id > 2 INTERSECT SELECT DISTINCT room, nr FROM shifts INTERSECT SELECT * FROM "
        "(SELECT room, floor FROM bookings WHERE id < 9) x ORDER BY floor",
        "SELECT DISTINCT room, floor FROM bookings WHERE id > 2 "
        "AND EXISTS (SELECT 1 FROM shifts WHERE shifts.room IS NOT DISTINCT FROM bookings.room AND nr IS NOT DISTINCT FROM bookings.floor) "
        "AND EXISTS (SELECT 1 FROM bookings x WHERE x.id < 9 AND x.room IS NOT DISTINCT FROM bookings.room "
        "AND x.floor IS NOT DISTINCT FROM bookings.floor)",
    ),
    (
        "SELECT b.room, m.id FROM bookings b JOIN maintenance m ON b.floor = m.floor "
        "INTERSECT SELECT m.room, b.nr FROM maintenance m, shifts b",
        "SELECT DISTINCT b.room, m.id FROM bookings b JOIN maintenance m ON b.floor = m.floor, maintenance m_2, shifts b_2 "
        "WHERE b.room IS NOT DISTINCT FROM m_2.room AND m.id IS NOT DISTINCT FROM b_2.nr",
    ),
]  # fmt: skip
JOINED = "JOIN maintenance m ON m.room = x.room"
REFUSED = [
    ("SELECT floor FROM (SELECT room FROM bookings) x", "no relation of the view has a column floor", "floor"),
    ("SELECT x.floor FROM (SELECT room FROM bookings) x", "x has no column floor", "floor FROM"),
    ("SELECT m.id FROM (SELECT room, n AS k FROM maintenance) x JOIN maintenance m ON m.n = x.n", "x has no column n", "n"),
    ("SELECT count(*) FROM (SELECT room FROM bookings) x GROUP BY floor", "no relation of the view has a column floor", "floor"),
    ("SELECT room FROM (SELECT room FROM bookings) x NATURAL JOIN (SELECT roam FROM maintenance) y", "column roam", "roam"),
    ("WITH RECURSIVE w AS (SELECT room FROM bookings) SELECT room FROM w", "WITH RECURSIVE", "w AS"),
    (
        "WITH w AS (SELECT room FROM bookings), w AS (SELECT room FROM bookings) SELECT room FROM w",
        "WITH names w twice",
        "w AS (SELECT room FROM bookings) SELECT",
    ),
    ("WITH w (a, b) AS (SELECT room FROM bookings) SELECT a FROM w", "2 names for 1 columns", "w"),
    ("WITH w AS (SELECT nope(room) AS a FROM bookings) SELECT id FROM bookings", "the expression NOPE(bookings.room)", "nope(room)"),
    ("SELECT id, n FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM bookings) x", "ROW_NUMBER in any other form", "id, n"),
    (
        "SELECT x.id FROM (SELECT id, room FROM bookings) x, (SELECT id FROM maintenance) x",
        "alias x is used twice",
        "id FROM maintenance) x",
    ),
]  # fmt: skip


STORED = [
    (
        "SELECT id FROM (SELECT id, floor, row_number() OVER (ORDER BY id) AS n FROM bookings) x WHERE n < 3 AND floor = 1",
        ["id"], "strict",
    ),
    (
        "SELECT x.id FROM (SELECT id, room, row_number() OVER (PARTITION BY room ORDER BY floor) AS n FROM bookings) x "
        f"{JOINED} WHERE x.n <= 2",
        ["id"], "strict",
    ),
    (f"SELECT x.n FROM (SELECT room, count(*) AS n FROM bookings GROUP BY room) x {JOINED}", ["room"], "strict"),
    (f"SELECT m.id FROM (SELECT b.room FROM bookings b JOIN shifts s ON s.room = b.room) x {JOINED}", ["b.id", "s.room", "s.nr"], "delay"),
    ("SELECT x.room FROM (SELECT room FROM bookings UNION SELECT room FROM maintenance) x", ["room"], "best-effort"),
    ("SELECT max(n) FROM (SELECT room, count(*) AS n FROM bookings GROUP BY room) x", ["room"], "strict"),
    ("SELECT max(n) FROM (SELECT count(*) AS n FROM bookings) x", ["group."], "strict"),
    ("SELECT room FROM (SELECT DISTINCT room, floor FROM bookings) x", ["room", "floor"], "strict"),
    (
        "SELECT * FROM (SELECT room, floor FROM bookings WHERE id > 2) x FULL JOIN maintenance m ON m.room = x.room",
        ["bookings.id"], "strict",
    ),
    (
        "SELECT x.a FROM (SELECT b.room AS a FROM bookings b JOIN shifts s ON s.room = b.room) x WHERE EXISTS (SELECT 1 FROM "
        "maintenance b WHERE b.room = x.a)",
        ["b.id", "s.room", "s.nr"], "delay",
    ),
    (
        "SELECT b.id FROM bookings b WHERE EXISTS (SELECT 1 FROM (SELECT room FROM shifts GROUP BY room) x WHERE x.room = b.room)",
        ["room"], "strict",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key", "guarantee"), STORED)
def test_stored(text: str, key: list[str], guarantee: str) -> None:
    view = sql(text)
    ((name, stored),) = view.stored.items()
    assert name in dict(view.query.whole.aliases).values() and name not in view.relations
    assert stored.shown.key == key
    assert view.plan.guarantee == guarantee


def test_equal_queries_are_stored_once() -> None:
    one = "SELECT room, count(*) AS n FROM bookings GROUP BY room"
    first, second = (sql(f"SELECT x.n, m.id FROM {query} x {JOINED}") for query in (f"({one})", f"({one.replace('count', 'COUNT')})"))
    assert first.stored.keys() == second.stored.keys()
    twice = sql(f"WITH w AS ({one}) SELECT x.n FROM w x JOIN w y ON x.n < y.n")
    assert twice.stored.keys() == first.stored.keys()


@pytest.mark.parametrize(("text", "same"), SAME)
def test_written_out(text: str, same: str) -> None:
    assert sql(text).stated == sql(same).stated


IN_JSON: list[tuple[dict[str, Any], str]] = [
    (
        {
            "from": {
                "x": {"from": {"b": "bookings"}, "where": [{"expression": "b.floor > 1"}], "select": ["b.room as a", "b.id"]},
                "m": "maintenance",
            },
            "join": [{"equal": ["x.a", "m.room"]}],
            "select": ["x.id", "m.id as job"],
        },
        "SELECT x.id, m.id AS job FROM (SELECT b.room AS a, b.id FROM bookings b WHERE b.floor > 1) x, maintenance m WHERE x.a = m.room",
    ),
    (
        {
            "with": {
                "w": {"from": {"b": "bookings"}, "group": ["b.room"], "aggregate": [{"count": "*", "as": "n"}]},
                "v": {"from": {"w": "w"}, "where": [{"column": "w.n", "op": ">", "value": 1}]},
            },
            "from": {"v": "v"}, "join": [], "left": [{"from": {"s": "shifts"}, "join": [{"equal": ["s.room", "v.room"]}]}],
            "select": ["v.n", "s.nr"],
        },
        "WITH w AS (SELECT b.room, count(*) AS n FROM bookings b GROUP BY b.room), v AS (SELECT * FROM w WHERE w.n > 1) "
        "SELECT v.n, s.nr FROM v LEFT JOIN shifts s ON s.room = v.room",
    ),
    (
        {
            "intersect": [{"from": {"b": "bookings"}, "select": ["b.room"]}, {"from": {"w": "w"}, "select": ["w.room"]}],
            "with": {"w": {"from": {"m": "maintenance"}, "distinct": True, "select": ["m.room"]}},
        },
        "WITH w AS (SELECT DISTINCT m.room FROM maintenance m) "
        "SELECT b.room FROM bookings b INTERSECT SELECT w.room FROM w",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "same"), IN_JSON)
def test_in_json(definition: dict[str, Any], same: str) -> None:
    assert parse_view("v", definition, RELATIONS).stated == sql(same).stated


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SELECT room FROM bookings UNION SELECT DISTINCT room FROM maintenance", 0),
        ("SELECT b.room, 'a' AS kind FROM bookings b UNION ALL SELECT m.room, 'b' FROM maintenance m JOIN shifts s ON s.room = m.room", 0),
        ("SELECT b.room FROM bookings b JOIN shifts s ON s.room = b.room UNION SELECT m.room FROM maintenance m", 0),
        ("SELECT b.room FROM bookings b JOIN shifts s ON s.nr = b.id UNION SELECT m.room FROM maintenance m", 1),
        ("SELECT b.room FROM bookings b LEFT JOIN shifts s ON s.room = b.room EXCEPT SELECT 'x' FROM maintenance m", 2),
        ("SELECT room, count(*) AS n FROM bookings GROUP BY room UNION ALL SELECT room, 0 FROM maintenance", 1),
        ("SELECT room FROM bookings UNION ALL (SELECT room FROM maintenance EXCEPT SELECT room FROM shifts)", 1),
        ("SELECT room FROM bookings INTERSECT (SELECT room FROM maintenance UNION ALL SELECT room FROM shifts)", 1),
        ("SELECT room FROM bookings UNION SELECT room FROM maintenance INTERSECT SELECT room FROM shifts", 1),
        ("SELECT room FROM bookings EXCEPT (SELECT room FROM maintenance EXCEPT SELECT room FROM shifts)", 1),
    ],
)
def test_sides_of_set_operations_are_stored_if_they_must_be(text: str, count: int) -> None:
    assert len(sql(text).stored) == count


def test_the_rows_of_which_lag_takes_one_may_be_stored() -> None:
    view = sql("SELECT id, LAG(guest) OVER (PARTITION BY room ORDER BY id) FROM bookings WHERE floor > 1 AND room = 'x'")
    ((name, stored),) = view.stored.items()
    assert [str(one) for one in stored.view.query.filters] == ["bookings.floor > 1", "bookings.room = 'x'"] and not view.query.filters
    assert view.query.aliases == (("bookings", name), ("lag", name)) and view.query.as_of is not None
    assert not sql("SELECT id, LAG(guest) OVER (PARTITION BY room ORDER BY id) FROM bookings WHERE room = 'x'").stored


@pytest.mark.parametrize(("text", "said", "at"), REFUSED)
def test_refused(text: str, said: str, at: str) -> None:
    problem = refused(text)
    assert said in str(problem.detail)
    position = problem.extensions["position"]
    assert position["line"] == 1 and text[position["column"] - 1 :].startswith(at), text[position["column"] - 1 :]


def test_a_join_that_an_outer_join_leaves_out() -> None:
    text = "SELECT b.id, s.nr FROM bookings b LEFT JOIN (maintenance m JOIN shifts s ON s.room = m.room) ON m.room = b.room AND m.floor > 1"
    (part,) = sql(text).query.subqueries
    assert part.kind == "optional" and [alias for alias, _ in part.join.aliases] == ["b", "m", "s"]
    assert [str(one) for one in part.join.filters] == ["m.floor > 1"] and len(part.join.equal) == 2


def test_growth() -> None:
    text = f"SELECT id FROM (SELECT id, {' + '.join(['floor'] * 90)} AS c FROM bookings) x WHERE {' AND '.join(['c > 1'] * 500)}"
    assert len(sql(text).stored) == 1
    many = " UNION ".join([f"SELECT id FROM ({text}) y"] * 40)
    assert "a query that is so large" in str(refused(many).detail)
