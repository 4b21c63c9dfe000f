"""SQL definitions: every spelling that is taken means what its plain form means, and every refusal says what to write instead."""

from __future__ import annotations

import operator
from datetime import date

import pyarrow as pa
import pytest

from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.query.conditions import ColumnRef, Filter, IntervalRef
from service.query.sql.text import check_length
from service.views.parse import parse_view
from tests.service.definitions import RELATIONS, evaluate, on, refused, relation, sql

STAY_SLOT = on("overlaps(b.stay, m.slot)")


@pytest.mark.parametrize(
    "conditions",
    [
        "OVERLAPS(b.stay, m.slot)",
        "overlaps(m.slot, b.stay)",
        "b.stay OVERLAPS m.slot",
        "m.slot overlaps (b.stay)",
        "overlaps(stay, slot)",
        "(b.checkin, b.checkout) OVERLAPS (m.s, m.e)",
        "b.checkin < m.e AND m.s < b.checkout",
        "m.s < b.checkout AND m.e > b.checkin",
        "(b.checkout > m.s) AND ((b.checkin < m.e))",
        "NOT (b.checkin >= m.e OR m.s >= b.checkout)",
        "NOT (b.checkin >= m.e) AND NOT m.s >= b.checkout",
        "overlaps(b.stay, m.slot) AND overlaps(m.slot, b.stay)",
        "overlaps(b.stay, m.slot) AND b.checkin < m.e AND m.s < b.checkout",
        "overlaps(b.stay, m.slot) AND TRUE AND 1 = 1",
        'B.Checkin < M.E AND m."s" < "b".checkout',
    ],
)
def test_one_overlap_many_spellings(conditions: str) -> None:
    assert on(conditions) == STAY_SLOT


def test_comma_join_where_and_using() -> None:
    plain = on("overlaps(b.stay, m.slot) AND b.room = m.room")
    start = "SELECT b.id, m.id FROM bookings b"
    assert sql(f"{start}, maintenance AS m WHERE m.room = b.room AND b.checkin < m.e AND m.s < b.checkout;").query == plain
    assert sql(f"{start} JOIN maintenance m USING (room) WHERE stay OVERLAPS slot").query == plain
    assert sql(f"{start} CROSS JOIN maintenance m WHERE overlaps(b.stay, m.slot) AND b.room = m.room").query == plain
    assert sql(f"{start} INNER JOIN maintenance m ON b.room = m.room WHERE overlaps(b.stay, m.slot) -- that is all").query == plain
    assert plain.equal == ((ColumnRef("b", "room"), ColumnRef("m", "room")),)


def test_a_column_of_using_needs_no_alias() -> None:
    start = "FROM bookings b JOIN maintenance m USING (room, floor)"
    assert sql(f"SELECT room {start} WHERE floor = 3").query.outputs[0].column == ColumnRef("b", "room")
    three = sql(f"SELECT room {start} JOIN shifts s USING (room)").query
    assert [(str(x), str(y)) for x, y in three.equal] == [("b.floor", "m.floor"), ("b.room", "m.room"), ("b.room", "s.room")]
    assert "id is ambiguous" in refused(f"SELECT id {start}").detail
    apart = refused("SELECT b.id FROM bookings b JOIN maintenance m ON b.floor = m.floor JOIN shifts s USING (room)")
    assert apart.type == "bad-query" and "write ON s.room = b.room" in apart.detail


def test_what_has_no_fixed_length() -> None:
    for length in ("1 month", "2 years", "1 month 3 days", "1 quarter"):
        problem = refused(f"SELECT b.id FROM bookings b JOIN maintenance m ON abs(b.checkin - m.s) <= INTERVAL '{length}'")
        assert problem.type == "bad-query" and "no fixed length" in problem.detail and "INTERVAL '30 days'" in problem.detail


def test_the_intersection_of_two_types() -> None:
    text = "SELECT intersection(b.stay, m.digits) FROM bookings b JOIN maintenance m ON b.room = m.room"
    assert "types differ, timestamp and int64" in refused(text).detail


def test_composite_key_is_sorted_and_said_once() -> None:
    query = on("m.floor = b.floor AND b.room = m.room AND b.floor = m.floor AND overlaps(b.stay, m.slot)")
    assert [(str(x), str(y)) for x, y in query.equal] == [("b.floor", "m.floor"), ("b.room", "m.room")]


@pytest.mark.parametrize(
    ("conditions", "interval", "compared"),
    [
        ("b.checkin < m.e AND m.s < b.until", "open", True),
        ("b.checkin < m.e AND (b.until IS NULL OR m.s < b.until)", "open", False),
        ("b.checkin < m.e AND (m.s < b.until OR b.until IS NULL)", "open", False),
        ("b.checkin < m.e AND NOT (b.until IS NOT NULL AND b.until <= m.s)", "open", False),
        ("b.checkin < m.e AND m.s < COALESCE(b.until, 'infinity')", "open", False),
        ("COALESCE(b.until, 'infinity'::timestamptz) > m.s AND b.checkin < m.e", "open", False),
        ("b.checkin < m.e AND m.s < COALESCE(b.checkout, 'infinity')", "stay", False),
        ("overlaps(b.open, m.slot)", "open", False),
    ],
)
def test_null_ends(conditions: str, interval: str, compared: bool) -> None:
    """A plain comparison matches no null end, OR IS NULL and COALESCE take it as unbounded."""
    query = on(conditions)
    assert query.overlaps == ((IntervalRef("b", interval), IntervalRef("m", "slot")),)
    assert query.filters == ((Filter(ColumnRef("b", "until"), "not_null", None),) if compared else ())


def test_null_on_both_sides_of_a_comparison() -> None:
    """m.since and b.until may both be null: guarding only one of them is neither SQL's rule nor an overlap."""
    closed = on("b.checkin <= m.e AND COALESCE(m.since, '-infinity') < b.checkout")
    assert closed.overlaps[0][1].interval == "shut" and closed.filters == ()
    both = "b.checkin < m.e AND (b.until IS NULL OR m.since IS NULL OR m.since < b.until)"
    relations = {**RELATIONS, "maintenance": RELATIONS["maintenance"].model_copy(update={"intervals": {}})}
    apart = sql(f"SELECT b.id FROM bookings b JOIN maintenance m ON {both}", relations).query
    assert not apart.overlaps and (len(apart.less), len(apart.at_most)) == (1, 1)
    one = sql("SELECT b.id FROM bookings b JOIN maintenance m ON b.checkin < m.e AND (b.until IS NULL OR m.since < b.until)").query
    assert [str(condition) for condition in one.across] == ["((b.until IS NULL) OR (m.since < b.until))"] and not one.overlaps


ACROSS = {
    "b.floor = 1 OR m.floor = 1": "((b.floor = 1) OR (m.floor = 1))",
    "NOT (b.floor = 1 AND m.floor = 1)": "not(((b.floor = 1) AND (m.floor = 1)))",
    "CASE WHEN b.vip THEN m.n > 1 ELSE b.floor > 1 END": "case(b.vip, (m.n > 1), (b.floor > 1))",
    "b.floor + m.floor > 7": "((b.floor + m.floor) > 7)",
}


@pytest.mark.parametrize(("text", "said"), ACROSS.items())
def test_conditions_over_several_aliases(text: str, said: str) -> None:
    found = sql(f"SELECT b.id FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.slot) AND ({text})")
    assert [str(one) for one in found.query.across] == [said]
    assert found.plan.algorithm == "interval-tree" and found.plan.guarantee == "best-effort"
    assert any(f"{said} is checked row by row" in note for note in found.plan.notes)
    same = sql(f"SELECT b.id FROM bookings b, maintenance m WHERE ({text}) AND overlaps(b.stay, m.slot)")
    assert same.stated == found.stated


@pytest.mark.parametrize(("first", "second"), [("<", "<"), ("<=", "<"), ("<", "<="), ("<=", "<=")])
@pytest.mark.parametrize(("x", "y"), [("[)", "[]"), ("[]", "[]"), ("()", "()"), ("()", "[)"), ("at", "[]")])
def test_null_as_unbounded(x: str, y: str, first: str, second: str) -> None:
    """It means what it says, whether or not the strictness is that of the intervals' bounds."""
    left = {"at": "s"} if x == "at" else {"start": "s", "end": "e", "bounds": x}
    intervals = {"l": {"i": left}, "r": {"i": {"start": "s", "end": "e", "bounds": y}}}
    relations = {name: relation("id:int64, s:date, e:date?", own) for name, own in intervals.items()}
    end = "s" if x == "at" else "e"
    ends = [(date(2026, 1, start), None if stop is None else date(2026, 1, stop)) for start in (1, 2, 4) for stop in (None, 5, 7)]
    rows = [{"id": number, "s": start, "e": stop} for number, (start, stop) in enumerate([*ends, (date(2026, 1, 5), None)])]
    tables = {name: pa.RecordBatch.from_pylist(rows, schema=relations[name].arrow_schema()) for name in "lr"}
    condition = f"a.s {first} COALESCE(b.e, 'infinity') AND (a.{end} IS NULL OR b.s {second} a.{end})"
    text = f"SELECT a.id AS x, b.id AS y FROM l a JOIN r b ON {condition}"
    less = {"<": operator.lt, "<=": operator.le}
    wanted = [
        (a["id"], b["id"]) for a in rows for b in rows
        if (b["e"] is None or less[first](a["s"], b["e"])) and (a[end] is None or less[second](b["s"], a[end]))
    ]  # fmt: skip
    assert sorted(evaluate(sql(text, relations), relations, tables)) == wanted


def test_points_and_between() -> None:
    point = on("overlaps(b.stay, m.moment)")
    assert on("m.at >= b.checkin AND m.at < b.checkout") == point
    closed = on("overlaps(b.moment, m.shut)")
    between = on("b.checkin BETWEEN m.since AND m.e")
    assert between.overlaps == closed.overlaps
    assert between.filters == (Filter(ColumnRef("m", "since"), "not_null", None),)
    other = on("m.at BETWEEN b.checkin AND b.checkout")  # of a half-open interval: two comparisons
    assert not other.overlaps and [str(one) for one in other.comparisons] == ["b.checkin <= m.at", "m.at <= b.checkout"]


@pytest.mark.parametrize(
    ("condition", "column", "op", "value"),
    [
        ("b.room = 'A'", "room", "=", "A"),
        ("'A' <> b.room", "room", "!=", "A"),
        ("5 < b.floor", "floor", ">", 5),
        ("NOT b.floor >= -5", "floor", "<", -5),
        ("b.floor <= '7'", "floor", "<=", 7),
        ("b.floor IN (3, 1, NULL, 3)", "floor", "in", (1, 3)),
        ("b.price > 1", "price", ">", 1.0),
        ("b.price >= 1.5e3", "price", ">=", 1500.0),
        ("b.price = 'Infinity'", "price", "=", float("inf")),
        ("b.guest IS NULL", "guest", "is_null", None),
        ("NOT b.guest IS NULL", "guest", "not_null", None),
        ("b.guest IS NOT NULL", "guest", "not_null", None),
        ("b.vip", "vip", "=", True),
        ("NOT b.vip", "vip", "=", False),
        ("b.vip IS TRUE", "vip", "=", True),
        ("b.vip = 'f'", "vip", "=", False),
        ("b.day = DATE '1970-01-11'", "day", "=", 10),
        ("b.day > '1970-01-11'::date", "day", ">", 10),
        ("\"startDate\" < CAST('1970-01-11' AS date)", "startDate", "<", 10),
        ("b.checkin < DATE '1970-01-02'", "checkin", "<", 86_400_000_000),
        ("b.checkin < '1970-01-01 00:00:01'", "checkin", "<", 1_000_000),
        ("b.checkin = TIMESTAMPTZ '1970-01-01 02:00:00.5+02'", "checkin", "=", 500_000),
        ("b.checkin = TIMESTAMP '1970-01-01T00:00:00Z'", "checkin", "=", 0),
        ('b."some col" = 3::bigint', "some col", "=", 3),
    ],
)
def test_filters(condition: str, column: str, op: str, value: object) -> None:
    query = sql(f"SELECT id FROM bookings b WHERE {condition}").query
    assert query.filters == (Filter(ColumnRef("b", column), op, value),) and not query.never


def test_filters_that_are_two() -> None:
    assert [(f.op, f.value) for f in sql("SELECT id FROM bookings WHERE floor BETWEEN 1 AND 3").query.filters] == [("<=", 3), (">=", 1)]
    assert [(f.op, f.value) for f in sql("SELECT id FROM bookings WHERE floor NOT IN (1, 3)").query.filters] == [("!=", 1), ("!=", 3)]


@pytest.mark.parametrize(
    "condition",
    [
        "guest = NULL",
        "guest <> NULL",
        "NULL",
        "FALSE",
        "NOT TRUE",
        "floor IN (NULL)",
        "floor NOT IN (1, NULL)",
        "NULL = NULL",
        "floor > NULL::bigint",
    ],
)
def test_conditions_that_nothing_meets(condition: str) -> None:
    view = sql(f"SELECT id FROM bookings WHERE {condition}")
    assert view.query.never and "never true" in view.plan.notes[0]


def test_select() -> None:
    names = [o.name for o in sql('SELECT *, b.id AS booking, guest g, "some col" AS "Some Col" FROM bookings b').query.outputs]
    assert names == [c.name for c in RELATIONS["bookings"].columns] + ["booking", "g", "Some Col"]
    assert [o.name for o in sql("SELECT b.* EXCLUDE (b.room, guest), b.room AS r FROM bookings b").query.outputs] == [
        *(c.name for c in RELATIONS["bookings"].columns if c.name not in ("room", "guest")), "r",
    ]  # fmt: skip
    both = [o.name for o in sql("SELECT * EXCLUDE (id) FROM bookings b JOIN maintenance m USING (room)").query.outputs]
    assert "room" in both and not {"id", "id_1", "room_1"} & set(both), "a name without alias is that of each relation"
    columns = "m.*, intersection(b.stay, m.slot) AS clash, duration(stay, slot), intersection(slot)"
    view = sql(f"SELECT {columns} FROM bookings b, maintenance m WHERE stay OVERLAPS slot")
    assert [o.name for o in view.query.outputs][-5:] == ["clash_start", "clash_end", "duration", "intersection_start", "intersection_end"]


JOIN = "SELECT b.id FROM bookings b JOIN maintenance m ON "


def test_deep_and_long_queries_are_refused() -> None:
    assert refused("SELECT id FROM bookings WHERE " + "(" * 3000 + "vip" + ")" * 3000).type == "bad-query"
    check_length("ä" * 100, 200)
    with pytest.raises(Problem) as caught:
        check_length("ä" * 100, 199)
    assert caught.value.type == "bad-query" and "200 bytes" in caught.value.detail
    many = " AND ".join(f"floor <> {i}" for i in range(2000))
    assert len(sql(f"SELECT id FROM bookings WHERE {many}").query.filters) == 2000


@pytest.mark.parametrize("spoilt", ["JOIN maintenance " * 40, "JOIN maintenance " * 40 + "WHERE ("])
def test_joins_without_conditions(spoilt: str) -> None:
    """The parser would try 2^40 ways to read them."""
    problem = refused(f"SELECT 1 FROM bookings {spoilt}")
    assert problem.type == "bad-query" and "after each JOIN" in problem.detail


def test_duplicate_names_of_columns() -> None:
    problem = refused("SELECT id AS x,\n room AS x FROM bookings")
    assert problem.type == "bad-query" and "named x" in problem.detail
    assert problem.extensions["position"] == {"line": 2, "column": 2}


@pytest.mark.parametrize("name", ["a.b", "_op", 'a""b', "x" * 64])
def test_names_that_no_column_has(name: str) -> None:
    problem = refused(f'SELECT id, room AS "{name}" FROM bookings')
    assert problem.type == "bad-query" and "not a valid column name" in problem.detail
    assert problem.extensions["position"] == {"line": 1, "column": 20}


@pytest.mark.parametrize("text", ["INSERT INTO x VALUES (1)", "DELETE FROM x", "CREATE TABLE x (a int)", "SELECT id INTO x FROM bookings"])
def test_statements_that_are_no_view(text: str) -> None:
    assert refused(text).type == "unsupported-query"


def test_a_point_between_the_ends_of_an_interval() -> None:
    query = on("b.until BETWEEN m.s AND m.e")
    assert [str(one) for one in query.comparisons] == ["b.until <= m.e", "m.s <= b.until"] and not query.overlaps
    assert query.filters == (Filter(ColumnRef("b", "until"), "not_null", None),)


@pytest.mark.parametrize(
    ("condition", "distance"),
    [
        ("abs(b.checkin - m.s) <= INTERVAL '90 minutes'", 5_400_000_000),
        ("INTERVAL '1' DAY >= abs(b.checkin - m.s)", 86_400_000_000),
        ("m.s BETWEEN b.checkin - INTERVAL '2 hours' AND b.checkin + INTERVAL '2 hours'", 7_200_000_000),
        ("b.checkin BETWEEN m.s - 5 AND m.s + 5", 5),
        ("m.s - b.checkin BETWEEN -'2 hours'::interval AND 2 * INTERVAL '1 hour'", 7_200_000_000),
        ("abs(b.floor - m.floor) <= 2", 2),
        ("abs(b.day - m.day) <= INTERVAL '2 days'", None),
    ],
)
def test_distances(condition: str, distance: int | None) -> None:
    if distance is None:
        assert refused(JOIN + condition).type == "unknown-column"
        return
    assert [(one.op, one.plus) for one in on(condition).shifted] == [("<=", -distance)] * 2


@pytest.mark.parametrize(
    ("text", "equal", "filters"),
    [
        ("SELECT 1 FROM maintenance m WHERE m.room = b.room AND m.id = 3", [("b.room", "m.room")], [("m.id", "=", 3)]),
        ("SELECT * FROM maintenance AS m WHERE code = b.floor", [("b.floor", "m.code")], []),
        ("SELECT m.id FROM maintenance m JOIN maintenance n ON n.id = m.id WHERE b.id = n.id", [("b.id", "n.id"), ("m.id", "n.id")], []),
    ],
)
def test_not_exists(text: str, equal: list[tuple[str, str]], filters: list[tuple[str, str, object]]) -> None:
    """Names are those within it first, then those around it; an alias that is used twice gets another name. Equal groups are one, in
    whatever order they come."""
    query = sql(f"SELECT b.id FROM bookings b WHERE NOT EXISTS ({text}) AND NOT (EXISTS ({text}))").query
    (group,) = query.absent
    assert [tuple(map(str, pair)) for pair in group.equal] == equal
    assert [(str(ref), op, value) for ref, op, value in group.filters] == filters
    assert len(query.whole.aliases) == 1 + len(group.aliases) and query.equal == ()
    other = "SELECT 1 FROM maintenance m WHERE m.id = b.id AND m.floor = b.floor"
    one, two = (
        sql(f"SELECT b.id FROM bookings b WHERE NOT EXISTS ({x}) AND NOT EXISTS ({y})").query for x, y in ((text, other), (other, text))
    )
    first, second = one.absent
    assert one == two and {alias for alias, _ in first.aliases}.isdisjoint(alias for alias, _ in second.aliases)


def test_an_alias_within_not_exists_hides_the_one_around_it() -> None:
    text = "SELECT b.id FROM bookings b JOIN shifts s ON b.room = s.room WHERE NOT EXISTS (SELECT 1 FROM maintenance b WHERE b.id = s.nr)"
    (group,) = sql(text).query.absent
    assert group.aliases == (("b_2", "maintenance"),) and [tuple(map(str, pair)) for pair in group.equal] == [("s.nr", "b_2.id")]


def test_not_exists_that_nothing_meets_is_none() -> None:
    one = sql("SELECT id FROM bookings WHERE NOT EXISTS (SELECT 1 FROM maintenance m WHERE m.room = bookings.room AND m.id = NULL)")
    assert one.query.absent == () and one.plan.algorithm == "interval-tree"


def test_products_and_what_needs_none() -> None:
    text = "SELECT b.id FROM bookings b CROSS JOIN maintenance m"
    assert sql(text).query.cross == (("b", "m"),)
    needless = sql(f"{text} WHERE overlaps(b.stay, m.slot)").query
    assert needless == sql(f"{JOIN} overlaps(b.stay, m.slot)").query and needless.cross == ()


def test_a_definition_comes_back_as_given() -> None:
    given = {"sql": "SELECT id FROM bookings", "changes": False}
    view = parse_view("v", given, RELATIONS)
    assert view.definition == given and view.definition is not given and view.query.retain is None


def test_intervals_over_the_same_columns_are_one_overlap() -> None:
    columns = [{"name": name, "type": "int64"} for name in ("id", "s", "e")]
    same = {"start": "s", "end": "e", "bounds": "[]"}
    relations = {"r": parse_relation({"columns": columns, "key": ["id"], "intervals": {"iv": same, "iv2": same}})}
    select = "SELECT intersection(a.iv2, b.iv2) FROM r a JOIN r b ON a.s <= b.e AND b.s <= a.e"
    for conditions in (select, f"{select} AND overlaps(a.iv2, b.iv2)", f"{select} AND overlaps(b.iv2, a.iv)"):
        assert [str(x) + str(y) for x, y in sql(conditions, relations).query.overlaps] == ["a.ivb.iv"]
