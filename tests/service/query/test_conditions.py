"""Conditions on the rows of one alias: which stay filters, numbers of any precision, nulls, both forms, and what is refused."""

from __future__ import annotations

import operator
import random
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.query.conditions import ColumnRef, Filter, Holds
from service.query.definition import read_where
from service.query.model import Query
from service.tables.masks import select_mask
from service.views.parse import parse_view
from tests.service.definitions import RELATIONS, refused, sql
from tests.service.random_functions import T, drawn
from tests.service.random_sql import DEFINITIONS
from tests.service.random_terms import Terms

OUTER = "SELECT b.id FROM bookings b LEFT JOIN maintenance m ON b.room = m.room WHERE "


def where(condition: str) -> Query:
    return sql(f"SELECT b.id FROM bookings b WHERE {condition}").query


@pytest.mark.parametrize(
    "condition", ["b.floor > 10", "10 < b.floor", "NOT b.floor <= 10", "(b.floor) > 10.0", "b.floor > 10.5", "b.floor > 10::numeric"]
)
def test_a_column_beside_a_constant_is_a_filter(condition: str) -> None:
    assert where(condition).filters == (Filter(ColumnRef("b", "floor"), ">", 10),)


@pytest.mark.parametrize(
    ("condition", "filters"),
    [
        ("b.floor IN (1, 2.5, 3)", ["b.floor IN (1, 3)"]),
        ("b.floor IN (1, 2.5, 1)", ["b.floor = 1"]),
        ("b.floor BETWEEN 1 AND b.id", ["(b.floor <= b.id)", "b.floor >= 1"]),
        ("b.guest IS NOT DISTINCT FROM 'x' AND b.vip", ["b.guest = 'x'", "b.vip = True"]),
        ("COALESCE(b.until, 'infinity') > '1970-01-01'", ["(b.until > 0 OR b.until IS NULL)"]),
        ("COALESCE(b.until, 'infinity') < '1970-01-01'", ["b.until < 0"]),
        ("b.floor = 1 OR b.floor * 2 > b.id", ["(b.floor = 1 OR ((b.floor * 2) > b.id))"]),
        ("NOT (b.vip OR b.floor + 1 < b.id)", ["((b.floor + 1) >= b.id)", "b.vip = False"]),
        ("b.floor = 1 AND b.vip OR b.floor = 1 AND (b.id = 2)", ["(b.id = 2 OR b.vip = True)", "b.floor = 1"]),
        ("b.vip AND b.floor = 1 OR b.floor = 1", ["b.floor = 1"]),
        ("NOT ((b.vip OR NOT b.floor = 1) AND (b.id = 2 OR NOT b.floor = 1))", ["(b.id != 2 OR b.vip = False)", "b.floor = 1"]),
        ("b.floor > 1.5::double precision", ["(CAST(b.floor AS float64) > CAST(1.5 AS float64))"]),
        ("b.floor IN (1.5::double precision)", ["((CAST(b.floor AS float64) = CAST(1.5 AS float64)))"]),
        ("b.price > 1.005::decimal(4, 2)", ["(b.price > CAST(CAST(1.005 AS decimal(4,2)) AS float64))"]),  # it is 1.01
        ("b.guest IS NOT DISTINCT FROM NULL::text", ["b.guest IS NULL"]),
        ("CAST(NULL AS text) IS DISTINCT FROM b.guest", ["b.guest IS NOT NULL"]),
        ("b.guest ILIKE 'a!%' ESCAPE '!'", ["(b.guest ILIKE 'a\\\\%')"]),
    ],
)  # fmt: skip
def test_conditions(condition: str, filters: list[str]) -> None:
    assert sorted(map(str, where(condition).filters)) == filters


_COMPARED = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_EDGES = ["0.5", "-0.005", "1.005", "2.00", "1e3", "1.5e-3", "9223372036854775807", "9223372036854775807.5"]
_EDGES += ["1e300", "-1e300", "1e-300", "-1e-99"]


def test_numbers_of_any_precision_are_compared_exactly() -> None:
    rng, big = random.Random(7), 2**63 - 1
    columns = [
        {"name": "id", "type": "int64"}, {"name": "n", "type": "int64", "nullable": True},
        {"name": "d", "type": "decimal", "precision": 12, "scale": 2, "nullable": True},
    ]  # fmt: skip
    relations = {"t": parse_relation({"columns": columns, "key": ["id"]})}
    values = {"n": [None, -big - 1, big, *range(-4, 5), 1000], "d": [None, -(10**12) + 1, 10**12 - 1, *range(-4, 5), 100, 101, 200]}
    for text in [*_EDGES, *(f"{rng.randrange(-400, 400) / 100}" for _ in range(20)), *map(str, range(-3, 4))]:
        for (column, given), (op, compare) in product(values.items(), _COMPARED.items()):
            rows = pa.RecordBatch.from_pydict({column: pa.array(given, pa.int64())})
            query = sql(f"SELECT id FROM t WHERE {column} {op} {text}", relations).query
            found = np.zeros(len(given), np.bool_) if query.never else select_mask(query.filters, rows)
            unit = 100 if column == "d" else 1
            assert found.tolist() == [value is not None and compare(Fraction(value, unit), Fraction(text)) for value in given], (op, text)


def test_what_rejects_nulls() -> None:
    """Decided exactly for the usual forms; never wrongly for any."""
    for condition, rejects in [
        ("lower(b.guest) = 'x'", True), ("coalesce(b.guest, '') <> ''", True), ("coalesce(b.guest, '') = ''", False),
        ("coalesce(b.price, 0) * 2 > 1", False), ("coalesce(b.price, 0) > 1.5", True), ("NOT coalesce(b.vip, FALSE)", False),
        ("CASE WHEN b.vip THEN b.floor > 1 ELSE b.floor < 1 END", True), ("(b.floor > 3) IS NOT TRUE", False),
        ("b.guest IS DISTINCT FROM b.room", True), ("b.guest IS NOT DISTINCT FROM b.room", False), ("b.floor = b.id", True),
    ]:  # fmt: skip
        (one,) = where(condition).filters
        assert isinstance(one, Holds) and one.rejects_null == rejects, condition
    rng = random.Random(5)
    relations = {"l": DEFINITIONS["l"], "t": T}
    nulls = {name: pa.RecordBatch.from_pylist([{}], schema=one.arrow_schema()) for name, one in relations.items()}
    seen = Counter[bool]()
    for number in range(400):
        name, condition = ("l", Terms(rng, ["x"]).condition()) if number % 2 else ("t", drawn(rng, "bool", 2).sql)
        try:
            query = sql(f"SELECT x.id FROM {name} x WHERE {condition}", relations).query
        except Problem as problem:
            assert problem.type in ("unsupported-query", "bad-query"), condition
            continue
        for one in query.filters:
            met = bool(select_mask([one], nulls[name])[0])
            assert not (met and one.rejects_null), condition
            seen[met or one.rejects_null] += 1
    assert seen[True] > 3 * seen[False], seen


def test_after_an_outer_join() -> None:
    inner = sql(OUTER + "m.n * 2 > m.code").query
    assert not inner.subqueries and inner == sql(OUTER.replace("LEFT ", "") + "m.n * 2 > m.code").query
    assert "which rows without m may meet" in str(refused(OUTER + "greatest(m.n, 1) = 1").detail)
    for condition in ("coalesce(m.n, 0) = 0", "(m.n > m.code) IS NOT TRUE", "m.since IS NULL"):
        (after,) = sql(OUTER + condition).query.outer_filters
        assert after.alias == "m" and not after.rejects_null
    kept = sql(OUTER.replace(" WHERE ", " AND m.n * 2 > m.code WHERE ") + "b.floor * 2 > b.id").query
    (part,) = kept.subqueries
    assert [one.alias for one in part.filters] == ["m"] and [one.alias for one in kept.filters] == ["b"]


def test_filters_by_expression_follow_equalities() -> None:
    view = sql("SELECT b.id, m.id FROM bookings b JOIN maintenance m ON b.room = m.room WHERE lower(b.room) = 'x'")
    assert sorted(map(str, view.query.filters)) == ["(lower(b.room) = 'x')", "(lower(m.room) = 'x')"]


def test_is_not_distinct_from_is_an_equality_beside_a_column_without_nulls() -> None:
    inner = "SELECT b.id FROM bookings b JOIN maintenance m ON "
    outer = "SELECT b.id FROM bookings b LEFT JOIN maintenance m ON b.room = m.room "
    exists = "SELECT b.id FROM bookings b WHERE NOT EXISTS (SELECT 1 FROM maintenance m WHERE TRUE AND "
    for text, condition, same in [
        (inner, "m.s IS NOT DISTINCT FROM b.until", "m.s = b.until"), (exists, "NOT b.until IS DISTINCT FROM m.s)", "m.s = b.until)"),
        (inner, "b.room = m.room AND b.floor IS DISTINCT FROM m.floor", "b.room = m.room AND b.floor <> m.floor"),
        (outer, "WHERE b.floor IS NOT DISTINCT FROM m.floor", "WHERE b.floor = m.floor"),
    ]:  # fmt: skip
        assert sql(text + condition).query == sql(text + same).query


def test_both_forms_are_the_same_view() -> None:
    condition = "b.price * b.floor > 100 AND (b.vip OR lower(b.guest) = 'x')"
    json = {"from": {"b": "bookings"}, "where": [{"expression": condition}], "select": ["b.id"]}
    assert parse_view("v", json, RELATIONS).query == where(condition)
    inner = {"from": {"m": "maintenance"}, "join": [{"equal": ["m.room", "b.room"]}], "where": [{"expression": "m.n > m.code"}]}
    view = parse_view("v", {"from": {"b": "bookings"}, "exists": [inner], "select": ["b.id"]}, RELATIONS)
    assert view.query == where("EXISTS (SELECT 1 FROM maintenance m WHERE m.room = b.room AND m.n > m.code)")
    (one,) = read_where("bookings", RELATIONS["bookings"], [{"not": {"expression": "price * bookings.floor > 100"}}], 1)
    assert str(one) == "((bookings.price * CAST(bookings.floor AS float64)) <= 100.0)"
