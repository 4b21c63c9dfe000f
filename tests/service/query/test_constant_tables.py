"""VALUES and generate_series as relations: their columns, types and rows are PostgreSQL's; of dates, generate_series has dates."""

from __future__ import annotations

from typing import Any

import pytest

from livejoin.wire.grammar import DAY
from service.query.sql.composition.constant_tables import ConstantTable
from service.views.parse import parse_view
from tests.service import postgres
from tests.service.definitions import RELATIONS


def tables_in(source: str) -> list[ConstantTable]:
    return [*parse_view("v", {"sql": f"SELECT b.id FROM bookings b CROSS JOIN {source}"}, RELATIONS).constants.values()]


def table_in(source: str) -> ConstantTable:
    (found,) = tables_in(source)
    return found


VALUES = [
    ("(1), (-2)", "int64", [(1,), (-2,)]),
    ("(1), (1.25), (NULL)", "decimal(18,2)", None),
    ("(1), (1e3)", "float64", [(1.0,), (1000.0,)]),
    ("('a'), (NULL), ('')", "string", [("a",), (None,), ("",)]),
    ("(1), ('2')", "int64", [(1,), (2,)]),
    ("(true), (NULL)", "bool", [(True,), (None,)]),
    ("(date '2026-01-02'), ('1970-01-03')", "date", [(20455,), (2,)]),
    ("(date '1970-01-02'), (timestamptz '1970-01-01 00:00:01')", "timestamp", [(DAY,), (1_000_000,)]),
    ("(CAST(NULL AS text)), (NULL)", "string", [(None,), (None,)]),
    ("('12:00'::time), (time '00:00:01')", "time", [(12 * 3_600_000_000,), (1_000_000,)]),
    ("(CAST(2 AS float8))", "float64", [(2.0,)]),
    ("(CAST('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' AS uuid))", "uuid", None),
]


@pytest.mark.parametrize(("rows", "kind", "expected"), VALUES)
def test_types(rows: str, kind: str, expected: list[tuple[Any, ...]] | None) -> None:
    found = table_in(f"(VALUES {rows}) AS t(x)")
    assert found.definition.column("x").kind == kind
    assert found.definition.column("x").nullable == ("NULL" in rows)
    assert expected is None or [row[:1] for row in found.rows] == expected


@pytest.mark.parametrize(
    ("source", "columns", "key"),
    [
        ("(VALUES (1, 'a'), (2, 'a')) AS t(n, word)", "n word", "n"),
        ("(VALUES (1, 'a'), (1, 'b')) AS t(n, word)", "n word", "word"),
        ("(VALUES (1, NULL), (1, 'b')) AS t(n, word)", "n word row.number", "row.number"),
        ("(VALUES (1, 2), (3, 4)) AS t(n)", "n column2", "n"),
        ("(VALUES (1, 2))", "column1 column2", "column1"),
        ("((VALUES (1))) AS t(N)", "n", "n"),
        ('(VALUES (1)) AS t("N")', "N", "N"),
        ("generate_series(1, 2)", "generate_series", "generate_series"),
        ("generate_series(1, 2) AS n", "n", "n"),
        ("generate_series(1, 2) n", "n", "n"),
        ("generate_series(1, 2) AS g(n)", "n", "n"),
        ("generate_series(2, 1) AS n", "n", "n"),
        ("(SELECT generate_series(1, 2) AS n) AS t", "generate_series", "generate_series"),
    ],
)
def test_names(source: str, columns: str, key: str) -> None:
    definition = table_in(source).definition
    assert [column.name for column in definition.columns] == columns.split() and definition.key == [key]


SERIES = [
    ("1, 5", [1, 2, 3, 4, 5]),
    ("5, 1, -2", [5, 3, 1]),
    ("1, 2, '5'", [1]),
    ("-1, -1", [-1]),
    ("9223372036854775806, 9223372036854775807", [2**63 - 2, 2**63 - 1]),
    ("date '1970-01-01', date '1970-01-03', interval '1 day'", [0, 1, 2]),
    ("date '1970-01-03', date '1970-01-01', interval '-1 day'", [2, 1, 0]),
    ("'1970-01-01'::date, '1970-01-20', '1 week'", [0, 7, 14]),
    ("date '1970-01-31', date '1970-04-30', interval '1 month'", [30, 58, 86, 117]),
    ("date '1970-01-01', date '1970-01-02', interval '12 hours'", [0, DAY // 2, DAY]),
    ("timestamptz '1970-01-01 00:00:01', date '1970-01-02', 2 * interval '6 hours'", [1_000_000, DAY // 2 + 1_000_000]),
    ("timestamp '1970-01-01 10:00', timestamp '1970-03-01', interval '1 month 1 day'", [10 * DAY // 24, 32 * DAY + 10 * DAY // 24]),
]


@pytest.mark.parametrize(("arguments", "expected"), SERIES)
def test_series(arguments: str, expected: list[int]) -> None:
    assert [row[0] for row in table_in(f"generate_series({arguments}) AS n").rows] == expected


@pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed")
def test_postgres_has_the_same_series() -> None:
    moments = [arguments for arguments, _ in SERIES if "'1970" in arguments]
    script = [f"SELECT extract(epoch FROM n::timestamptz)::bigint FROM generate_series({arguments}) AS n;" for arguments in moments]
    for arguments, statement in zip(moments, script, strict=True):
        table = table_in(f"generate_series({arguments}) AS n")
        unit = DAY if table.definition.column("n").kind == "date" else 1
        assert [[str(row[0] * unit // 1_000_000)] for row in table.rows] == postgres.answers([statement]), arguments


def test_equal_tables_are_one() -> None:
    assert len(tables_in("(VALUES (1), (2)) AS t(n) CROSS JOIN generate_series(1, 2) AS u(n)")) == 1
    assert len(tables_in("(VALUES (1), (2)) AS t(n) CROSS JOIN (VALUES (1), (2)) AS u(m)")) == 2
