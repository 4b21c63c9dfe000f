"""Mistakes in SQL: what is wrong is told in words, at the word where it begins, with what was probably meant."""

from __future__ import annotations

import pytest

from tests.service.definitions import refused, sql
from tests.service.duck import connected

JOINED = "SELECT b.id FROM bookings b JOIN maintenance m ON b.room = m.room"


@pytest.mark.parametrize(
    ("text", "says", "column"),
    [
        ("SELEC * FROM bookings", "a query begins with SELECT, not with 'SELEC'", 1),
        ("hello world", "a query begins with SELECT, not with 'hello'", 1),
        ("EXPLAIN SELECT * FROM bookings", "a query begins with SELECT, not with 'EXPLAIN'", 1),
        ("SELECT * FORM bookings", "'FORM' is not expected here: did you mean FROM?", 10),
        ("SELECT DISTINT b.room FROM bookings b", "'DISTINT' is not expected here: did you mean DISTINCT?", 8),
        ("SELECT b.id FROM bookings b JION maintenance m ON b.room = m.room", "'JION' is not expected here: did you mean JOIN?", 29),
        ("SELECT b.id FROM bookings b LEFT JON maintenance m ON TRUE", "'JON' is not expected here: did you mean JOIN?", 34),
        (f"{JOINED} AN b.id = 1", "'AN' is not expected here: did you mean AND?", 67),
        (f"{JOINED} WEHRE b.id = 1", "'WEHRE' is not expected here: did you mean WHERE?", 67),
        ("SELECT room, count(*) AS n FROM bookings GRUP BY room", "'GRUP' is not expected here: did you mean GROUP?", 42),
        ("SELECT room FROM bookings GROUP room", "BY is missing after 'GROUP'", 27),
        ("SELECT b.id FROM bookings b LEFT maintenance m ON TRUE", "JOIN is missing after 'LEFT'", 29),
        ("SELECT b.id m.id FROM bookings b", "a comma, an operator or FROM is missing before 'm'", 13),
        ("SELECT b.id FROM bookings b JOIN maintenance m b.room = m.room", "ON or USING is missing before 'b'", 48),
        ("SELECT id FROM bookings b c", "a comma, JOIN, WHERE or GROUP BY is missing before 'c'", 27),
        (f"{JOINED} b.id = 1", "an operator such as AND is missing before 'b'", 67),
        (f"{JOINED} AND", "a name, a value or a condition is missing after 'AND'", 67),
        (f"{JOINED} AND AND b.id = 1", "a name, a value or a condition is missing before 'AND'", 71),
        ("SELECT b.id FROM bookings b WHERE = 5", "a name, a value or a condition is missing before '='", 35),
        ("SELECT b.id FROM bookings b WHERE (b.id = 1", "a ) is missing after '1'", 43),
        ("SELECT b.id FROM bookings b WHERE b.id = 1)", "')' has no matching (: add one before it, or remove it", 43),
        ("SELECT b.id FROM bookings b ON b.id = 1", "'ON' is not expected here", 29),
        ("SELECT b.id, FROM bookings b", "a name or a value is missing before 'FROM'", 14),
        ("SELECT , b.id FROM bookings b", "a name or a value is missing before ','", 8),
        ("SELECT b.id,, b.room FROM bookings b", "a name or a value is missing before ','", 13),
        ("SELECT b.id FROM bookings b WHERE b.id IN (1, )", "a name or a value is missing before ')'", 47),
        ("SELECT room, count(*) AS n FROM bookings GROUP BY room,", "a name or a value is missing after ','", 55),
        ("SELECT b.id FROM bookings b, WHERE b.id = 1", "a name or a value is missing before 'WHERE'", 30),
        ("SELECT b.id FROM bookings b WHERE (b.id = )", "a name, a value or a condition is missing before ')'", 43),
        ("SELECT b.id FROM", "expected table name after 'FROM'", 13),
    ],
)
def test_what_is_wrong_with_the_syntax(text: str, says: str, column: int) -> None:
    """It is told where it begins to be wrong, which is often before the word at which the parser gives up."""
    problem = refused(text)
    assert (problem.type, problem.detail) == ("bad-query", f"{says} (line 1, column {column})")
    assert problem.extensions["position"] == {"line": 1, "column": column}


@pytest.mark.parametrize(
    ("text", "type_", "says", "column"),
    [
        ("SELECT id FROM booking", "unknown-relation", "no relation or view booking; did you mean bookings?", 16),
        ("SELECT b.idd FROM bookings b", "unknown-column", "no column idd; did you mean id?", 10),
        ("SELECT b.id FROM bookings b WHERE overlaps(b.sty, b.open)", "unknown-column", "no interval sty; did you mean stay?", 46),
        ("SELECT bookings.id FROM bookings b", "unknown-column", "no alias bookings; here bookings is called b", 8),
        ('SELECT id FROM bookings WHERE guest = "Ada"', "unknown-column", "(a string is written in single quotes)", 39),
        ("SELECT b.id FROM bookings b WHERE overlap(b.stay, b.open)", "unsupported-query", "did you mean overlaps(…)?", 35),
        ("SELECT room, cuont(*) AS n FROM bookings GROUP BY room", "unsupported-query", "did you mean count(…)?", 14),
        ("SELECT * FROM bookings LIMIT 5", "unsupported-query", "write ORDER BY before it, or", 30),
        ("SELECT id FROM bookings WHERE room IN 'a', 'new'", "bad-query", "values behind IN are written in parentheses: IN ('a', 'b')", 39),
        ("SELECT room, count(*) FROM bookings WHERE count(*) > 3 GROUP BY 1", "unsupported-query", "in HAVING", 43),
        (f"{JOINED} WHERE 1 < b.id < 9", "bad-query", "1 < b.id < 9 compares a comparison", 73),
        ("SELECT b.id FROM bookings b WHERE lower(stay) = 'a'", "unknown-column", "or name its ends, checkin and checkout", 35),
        ("SELECT b.* EXCLUDE id() FROM bookings b", "bad-query", "EXCLUDE takes names of columns, not ID()", 20),
    ],
)
def test_names_that_are_nearly_there(text: str, type_: str, says: str, column: int) -> None:
    problem = refused(text)
    assert problem.type == type_ and says in problem.detail
    assert problem.extensions["position"] == {"line": 1, "column": column}


def test_joins_without_from() -> None:
    assert "a SELECT without FROM" in refused("SELECT b.id ANTI JOIN maintenance m ON b.room = m.room").detail


def test_a_product_with_an_outer_join_that_is_attached_to_nothing() -> None:
    text = "SELECT s.nr FROM bookings b LEFT JOIN maintenance m ON m.room = m.room CROSS JOIN shifts s"
    assert sql(text).query.cross == (("b", "s"),)


@pytest.mark.parametrize("join", ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT OUTER JOIN", "SEMI JOIN", "ANTI JOIN"])
def test_a_forgotten_on(join: str) -> None:
    """A condition in WHERE would make it an inner join."""
    where = "" if "I JOIN" in join else " WHERE m.room = b.room"
    problem = refused(f"SELECT b.id FROM bookings b {join} maintenance m{where}")
    assert problem.type == "bad-query" and f"ON is missing after {join.replace(' OUTER', '')} maintenance" in problem.detail


@pytest.mark.parametrize(("join", "condition"), [("CROSS", "ON b.room = m.room"), ("CROSS", "USING (room)"), ("NATURAL", "ON b.id = m.id")])
def test_joins_that_take_no_condition(join: str, condition: str) -> None:
    problem = refused(f"SELECT b.id FROM bookings b {join} JOIN maintenance m {condition}")
    assert problem.type == "bad-query" and f"{join} JOIN takes no {condition.split()[0]}" in problem.detail


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("(b.room, b.id) = ('a', 5)", "column by column, joined by AND"),
        ("(b.room, b.id) <> ('a', 5)", "joined by OR"),
        ("(b.room, b.id) < ('a', 5)", "a < 1 OR (a = 1 AND b < 2)"),
        ("(b.room, b.id) IN (('a', 5), ('b', 6))", "a = 1 AND b = 2 for each"),
        ("b.checkin > '01.03.2026'", "expected a timestamp such as 2026-01-31 12:00, in UTC unless it has an offset"),
        ("daterange(b.checkin, b.checkout) @> date '2026-01-01'", "write tstzrange(b.checkin, b.checkout)"),
    ],
)
def test_what_to_write_in_a_condition(where: str, says: str) -> None:
    assert says in refused(f"SELECT b.id FROM bookings b WHERE {where}").detail


@pytest.mark.parametrize("period", ["(b.checkin, b.checkout)", "b.stay"])
def test_the_advice_on_an_overlap_with_constants_is_accepted(period: str) -> None:
    problem = refused(f"SELECT b.id FROM bookings b WHERE {period} OVERLAPS (date '2026-03-01', date '2026-04-01')")
    advice = "tstzrange(b.checkin, b.checkout) && tstzrange('2026-03-01', '2026-04-01')"
    assert problem.detail.endswith(f": write {advice}")
    assert len(sql(f"SELECT b.id FROM bookings b WHERE {advice}").query.filters) == 2


@pytest.mark.parametrize(
    ("condition", "advice"),
    [
        ("b.room = 'a' AND b.id = 5", "(b.room, b.id) = ('a', 5)"),
        ("b.room < 'a' OR (b.room = 'a' AND b.id < 5)", "(b.room, b.id) < ('a', 5)"),
    ],
)
def test_rows_are_compared_as_the_advice_says(condition: str, advice: str) -> None:
    """DuckDB compares rows; the condition is accepted here."""
    sql(f"SELECT b.id FROM bookings b WHERE {condition}")
    values = "SELECT * FROM (VALUES ('a', 4), ('a', 5), ('b', 1), ('A', 9)) b(room, id)"
    with connected() as connection:
        found = [connection.sql(f"SELECT ({one}) FROM ({values}) b").fetchall() for one in (condition, advice)]
    assert found[0] == found[1]
