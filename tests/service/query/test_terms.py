"""Expressions in SELECT: random ones against DuckDB, edges by hand, types and nulls, both forms, and what is refused."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.kinds import sent_batch
from livejoin.wire.schema import RelationDefinition, parse_relation
from service.tables.projection import Projection
from service.views.parse import View, parse_view
from tests.service.definitions import evaluate
from tests.service.duck import connected

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
T: RelationDefinition = parse_relation(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "i", "type": "int64"},
            {"name": "k", "type": "int64", "nullable": True},
            {"name": "f", "type": "float64", "nullable": True},
            {"name": "c", "type": "decimal", "precision": 12, "scale": 2, "nullable": True},
            {"name": "t", "type": "string", "nullable": True},
            {"name": "b", "type": "bool", "nullable": True},
            {"name": "w", "type": "timestamp", "nullable": True},
            {"name": "d", "type": "date", "nullable": True},
            {"name": "j", "type": "string", "nullable": True},
            {"name": "doc", "type": "json", "nullable": True},
        ],
        "key": ["id"],
    }
)
DEFINITIONS = {"t": T}
DOCS = ['{"a": 1, "b": [true, null, "x"]}', '{"a": "é\\n", "c": {"d": 7}}', "[1, 2]", "{}", '{"b": []}', '"a"', "no json", None]


def rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    return [
        {
            "id": number,
            "i": rng.choice((0, 1, -1, 7, -7, 3, INT64_MAX, INT64_MIN, 2**32, -(2**31) - 1)),
            "k": maybe(rng.randrange(-5, 6)),
            "f": maybe(rng.choice((0.5, -2.5, 3.0, 1e300, -1e-300, 0.1))),
            "c": maybe(rng.choice((0, 1, -1, 1250, -99, 10**12 - 1))),
            "t": maybe(rng.choice(("", "a", "Ab", "ÉÑ", "x y", "12"))),
            "b": maybe(rng.random() < 0.5),
            "w": maybe(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=rng.randrange(-9000, 9000), microseconds=rng.randrange(3))),
            "d": maybe(date(2026, 1, 1) + timedelta(days=rng.randrange(-400, 400))),
            "j": rng.choice(DOCS),
            "doc": rng.choice([doc for doc in DOCS if doc != "no json"]),
        }
        for number in range(count)
    ]


def view_of(expression: str) -> View:
    return parse_view("v", {"sql": f"SELECT id, {expression} AS x FROM t"}, DEFINITIONS)


def ours(expression: str, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return evaluate(view_of(expression), DEFINITIONS, {"t": batch})


def theirs(expression: str, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    with connected() as connection:
        connection.register("t", pa.Table.from_batches([sent_batch(batch, T.sent_schema())]))
        found = connection.sql(f"SELECT id, {expression} AS x FROM t ORDER BY id").to_arrow_table().to_pylist()
    return [tuple(row.values()) for row in found]


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else repr(value + 0.0)
    if isinstance(value, Decimal):
        return Decimal(value).normalize()
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def compare(expression: str, elsewhere: str, batch: pa.RecordBatch) -> None:
    mine, other = ours(expression, batch), theirs(elsewhere, batch)
    assert len(mine) == len(other) == batch.num_rows
    for x, y, row in zip(mine, other, batch.to_pylist(), strict=True):
        assert plain(x[1]) == plain(y[1]), f"{expression} of {row}: {x[1]!r}, not {y[1]!r} ({elsewhere})"


class Drawn:
    """Pairs of an expression and what DuckDB calls it, by kind."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def of(self, kind: str, depth: int) -> tuple[str, str]:
        if depth == 0:
            column = {"int": ("i", "k"), "float": ("f",), "decimal": ("c",), "text": ("t",), "bool": ("b",), "time": ("w",), "day": ("d",)}
            constant = {
                "int": ("3", "-2", "0"), "float": ("1.5::double precision", "f"), "decimal": ("2.25::decimal(5,2)", "c"),
                "text": ("'q'", "''"),
                "bool": ("TRUE", "FALSE"), "time": ("TIMESTAMPTZ '2026-02-03 04:05:06Z'",), "day": ("DATE '2026-02-28'",),
            }  # fmt: skip
            chosen = self.rng.choice(column[kind] if self.rng.random() < 0.7 else constant[kind])
            return chosen, chosen
        return getattr(self, f"_{kind}")(depth - 1)

    def _both(self, kind: str, depth: int) -> tuple[tuple[str, str], tuple[str, str]]:
        return self.of(kind, depth), self.of(kind, self.rng.randrange(depth + 1))

    def _common(self, kind: str, depth: int) -> tuple[str, str]:
        (a, x), (b, y) = self._both(kind, depth)
        if self.rng.random() < 0.5:
            return f"coalesce({a}, {b})", f"coalesce({x}, {y})"
        c, z = self.of("bool", depth)
        return f"CASE WHEN {c} THEN {a} ELSE {b} END", f"CASE WHEN {z} THEN {x} ELSE {y} END"

    def _int(self, depth: int) -> tuple[str, str]:
        if self.rng.random() < 0.25:
            return self._common("int", depth)
        if self.rng.random() < 0.1:
            (a, x), (b, y) = self._both("day", depth)
            return f"({a} - {b})", f"({x} - {y})"
        op = self.rng.choice("+-*/%")
        (a, x), (b, y) = self._both("int", depth)
        if op in "/%":  # DuckDB stops at the one quotient that is outside
            return f"({a} {op} {b})", f"CASE WHEN ({y}) = 0 OR (({x}) = {INT64_MIN} AND ({y}) = -1 AND '{op}' = '/') THEN NULL " + (
                f"WHEN ({y}) = -1 THEN {'0' if op == '%' else f'TRY(-({x}))'} ELSE TRY(({x}) {'//' if op == '/' else op} ({y})) END"
            )
        return f"({a} {op} {b})", f"TRY(({x})::bigint {op} ({y})::bigint)"

    def _float(self, depth: int) -> tuple[str, str]:
        if self.rng.random() < 0.25:
            return self._common("float", depth)
        op = self.rng.choice("+-*/")
        (a, x), (b, y) = self.of("float", depth), self.of(self.rng.choice(("float", "int")), depth)
        if op == "/":
            return f"({a} / {b})", f"CASE WHEN ({y}) = 0 THEN NULL ELSE ({x}) / ({y})::double END"
        return f"({a} {op} {b})", f"(({x}) {op} ({y})::double)"

    def _decimal(self, depth: int) -> tuple[str, str]:
        """Shallow: each step takes digits."""
        if depth or self.rng.random() < 0.3:
            return self._common("decimal", 0)
        op = self.rng.choice("+-*")
        (a, x), (b, y) = self._both("decimal", 0)
        return f"({a} {op} {b})", f"({x} {op} {y})"

    def _text(self, depth: int) -> tuple[str, str]:
        kind = self.rng.randrange(4)
        if kind == 0:
            return self._common("text", depth)
        if kind == 1:
            a, x = self.of("text", depth)
            function = self.rng.choice(("lower", "upper"))
            return f"{function}({a})", f"{function}({x})"
        if kind == 2:
            a, x = self.of("int", depth)
            return f"({a})::text", f"({x})::text"
        (a, x), (b, y) = self._both("text", depth)
        return f"({a} || {b})", f"({x} || {y})"

    def _time(self, depth: int) -> tuple[str, str]:
        if self.rng.random() < 0.3:
            return self._common("time", depth)
        a, x = self.of("time", depth)
        if self.rng.random() < 0.5:
            unit = self.rng.choice(("hour", "day", "week", "month", "quarter", "year"))
            return f"date_trunc('{unit}', {a})", f"date_trunc('{unit}', {x})"
        op, length = self.rng.choice("+-"), self.rng.choice(("90 minutes", "2 days", "1 week"))
        return f"({a} {op} INTERVAL '{length}')", f"({x} {op} INTERVAL '{length}')"

    def _day(self, depth: int) -> tuple[str, str]:
        if self.rng.random() < 0.5:
            return self._common("day", depth)
        a, x = self.of("day", depth)
        if self.rng.random() < 0.5:
            return f"({a} + 40)", f"({x} + 40)"
        return f"date_trunc('month', {a})", f"date_trunc('month', {x})::date"

    def _bool(self, depth: int) -> tuple[str, str]:
        kind = self.rng.randrange(5)
        if kind == 0:
            (a, x), (b, y) = self._both("bool", depth)
            op = self.rng.choice(("AND", "OR"))
            return f"({a} {op} {b})", f"({x} {op} {y})"
        if kind == 1:
            a, x = self.of("bool", depth)
            return f"(NOT {a})", f"(NOT {x})"
        of = self.rng.choice(("int", "float", "text", "time", "day"))
        (a, x), (b, y) = self._both(of, depth)
        if kind == 2:
            test = self.rng.choice(("IS NULL", "IS NOT NULL"))
            return f"({a} {test})", f"({x} {test})"
        if kind == 3:
            return f"({a} BETWEEN {b} AND {a})", f"({x} BETWEEN {y} AND {x})"
        op = self.rng.choice(("=", "<>", "<", "<=", ">", ">="))
        return f"({a} {op} {b})", f"({x} {op} {y})"


@pytest.mark.parametrize("seed", range(120))
def test_against_duckdb(seed: int) -> None:
    rng = random.Random(seed)
    batch = pa.RecordBatch.from_pylist(rows(rng, 60), schema=T.arrow_schema())
    kind = rng.choice(("int", "float", "decimal", "text", "bool", "time", "day"))
    mine, other = Drawn(rng).of(kind, rng.choice((1, 2, 3)))
    print(f"seed {seed}: {mine}")
    compare(mine, other, batch)


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ("t::bigint", "TRY_CAST(t AS bigint)"),
        ("t::double precision", "TRY_CAST(t AS double)"),
        ("f::bigint", "TRY_CAST(f AS bigint)"),
        ("(f * 7)::bigint", "TRY(CAST(f * 7 AS bigint))"),
        ("c::double precision", "c::double"),
        ("c::text", "c::text"),
        ("d::text", "d::text"),
        ("w::date", "w::date"),
        ("d::timestamptz", "d::timestamptz"),
        ("b::text", "b::text"),
        ("b::bigint", "b::bigint"),
        ("k::decimal(4, 1)", "k::decimal(4, 1)"),
        ("c::decimal(6, 1)", "TRY_CAST(c AS decimal(6, 1))"),
        ("c * k", "c * k::decimal(19, 0)"),
        ("c + 1.005", "c + 1.005"),
        ("c > 1", "c > 1"),
        ("k = 1.0", "k = 1.0"),
        ("k > f", "k::double > f"),
        ("coalesce(k, f)", "coalesce(k::double, f)"),
        ("coalesce(k, c, 0)", "coalesce(k::decimal(38, 2), c, 0)"),
        ("CASE t WHEN 'a' THEN 1 WHEN 'Ab' THEN k END", "CASE t WHEN 'a' THEN 1 WHEN 'Ab' THEN k END"),
        ("k IN (1, 2, NULL)", "k IN (1, 2, NULL)"),
        ("b IS NOT TRUE", "b IS NOT TRUE"),
        ("NOT t LIKE '%b'", "NOT t LIKE '%b'"),
        ("t NOT LIKE 'a_'", "t NOT LIKE 'a_'"),
        ("f % 0.3", "CASE WHEN f IS NULL THEN NULL ELSE f % 0.3::double END"),
        ("doc ->> 'a'", "doc::json ->> 'a'"),
        ("doc -> 'b' ->> 2", "doc::json -> 'b' ->> 2"),
        ("doc -> 'b'", "CASE WHEN (doc::json -> 'b')::text = 'null' THEN NULL ELSE (doc::json -> 'b')::text END"),
        ("doc ->> 'c'", "doc::json ->> 'c'"),
        ("doc -> 'c' ->> 'd' || '!'", "(doc::json -> 'c' ->> 'd') || '!'"),
        ("j ->> 'a'", "CASE WHEN json_valid(j) THEN j::json ->> 'a' END"),
        ("(w - INTERVAL '1 day') < w", "(w - INTERVAL '1 day') < w"),
        (
            "CASE WHEN w > '2026-01-01' THEN w ELSE '2020-02-02' END",
            "CASE WHEN w > '2026-01-01 00:00:00Z' THEN w ELSE '2020-02-02 00:00:00Z'::timestamptz END",
        ),
    ],
)
def test_spellings_against_duckdb(mine: str, other: str) -> None:
    batch = pa.RecordBatch.from_pylist(rows(random.Random(5), 80), schema=T.arrow_schema())
    compare(mine, other, batch)


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("i + k", [(INT64_MAX, 1), (INT64_MIN, -1), (INT64_MAX, 0)], [None, None, INT64_MAX]),
        ("i - k", [(INT64_MIN, 1), (INT64_MAX, -1), (INT64_MIN, 0)], [None, None, INT64_MIN]),
        ("i * k", [(INT64_MIN, -1), (INT64_MAX, 2), (-1, INT64_MIN), (0, INT64_MIN), (2**32, 2**31)], [None, None, None, 0, None]),
        ("i / k", [(INT64_MIN, -1), (7, 0), (-7, 2), (7, -2), (INT64_MIN, 1)], [None, None, -3, -3, INT64_MIN]),
        ("i % k", [(INT64_MIN, -1), (7, 0), (-7, 2), (7, -2), (INT64_MIN, 10)], [0, None, -1, 1, -8]),
        ("-i", [(INT64_MIN, 0), (INT64_MAX, 0)], [None, -INT64_MAX]),
        ("i - -2", [(1, 0)], [3]),
    ],
)
def test_edges_of_int64(expression: str, values: list[tuple[int, int]], expected: list[int | None]) -> None:
    given = [dict.fromkeys(T.arrow_schema().names) | {"id": at, "i": i, "k": k} for at, (i, k) in enumerate(values)]
    batch = pa.RecordBatch.from_pylist(given, schema=T.arrow_schema())
    assert [row[1] for row in ours(expression, batch)] == expected


@pytest.mark.parametrize("expression", ["c * c * c * c", "c * c - c * c * c * c", "-(c * c * c) * 100.00"])
def test_decimals_of_more_than_38_digits_are_null(expression: str) -> None:
    given = [Decimal(text) for text in ("1.25", "-0.01", "-9999999999.99", "3162277.66", "31622776.60", "31622776.61", "1000000.00")]
    rows = [dict.fromkeys(T.arrow_schema().names) | {"id": at, "i": 0, "c": int(c * 100)} for at, c in enumerate(given)]
    found = [row[1] for row in ours(expression, pa.RecordBatch.from_pylist(rows, schema=T.arrow_schema()))]
    exact = [Fraction(eval(expression.replace("100.00", "100"), {"c": Fraction(c)})) for c in given]
    type_ = Projection(view_of(expression).query, DEFINITIONS).schema.field("x").type
    assert type_.precision == 38
    expected = [one if abs(one) < 10 ** (38 - type_.scale) else None for one in exact]
    assert [None if one is None else Fraction(one) for one in found] == expected
    assert {one is None for one in found} == {True, False}


def test_numbers_in_json_are_as_they_stand() -> None:
    doc = '{"a": 18446744073709551616, "b": {"c": [1.10, 1E2, -0], "d": "1.50"}, "e": 1e400, "deep": ' + "[" * 500 + "1.0" + "]" * 500 + "}"
    expected = {
        "doc ->> 'a'": "18446744073709551616", "doc -> 'b' ->> 'c'": "[1.10,1E2,-0]", "doc -> 'b' -> 'c' ->> 1": "1E2",
        "doc ->> 'e'": "1e400", "doc -> 'b'": '{"c":[1.10,1E2,-0],"d":"1.50"}', "doc -> 'b' ->> 'd'": "1.50",
        "doc ->> 'deep'": "[" * 500 + "1.0" + "]" * 500,
        "(doc -> 'b' -> 'c' ->> 0)::decimal(4, 2)": Decimal("1.10"), "(doc ->> 'a')::bigint": None,
    }  # fmt: skip
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(T.arrow_schema().names) | {"id": 0, "i": 0, "doc": doc}], schema=T.arrow_schema())
    assert {expression: ours(expression, batch)[0][1] for expression in expected} == expected


def test_texts_beyond_the_longest_are_null() -> None:
    text = "ab" * (4 << 20)
    given = [dict.fromkeys(T.arrow_schema().names) | {"id": at, "i": 0, "t": t} for at, t in enumerate((text, "x", None))]
    batch = pa.RecordBatch.from_pylist(given, schema=T.arrow_schema())
    assert [row[1] for row in ours("t || t || t", batch)] == [None, "xxx", None]
    assert [len(row[1] or "") for row in ours("t || t", batch)] == [16 << 20, 2, 0]


@pytest.mark.parametrize(
    ("expression", "type_", "nullable"),
    [
        ("i + 1", pa.int64(), True),
        ("f + 1", pa.float64(), True),
        ("coalesce(f, 0) * 2", pa.float64(), False),
        ("c * 2", pa.decimal128(14, 2), True),
        ("coalesce(c, 0)", pa.decimal128(12, 2), False),
        ("c + k", pa.decimal128(22, 2), True),
        ("coalesce(c, 0) * coalesce(c, 0)", pa.decimal128(25, 4), False),
        ("coalesce(c, 0) * coalesce(c, 0) * coalesce(c, 0)", pa.decimal128(38, 6), False),
        ("coalesce(c, 0) * coalesce(c, 0) * coalesce(c, 0) + 1", pa.decimal128(38, 6), True),
        ("coalesce(t, 'x')", pa.utf8(), False),
        ("lower(coalesce(t, 'x'))", pa.utf8(), False),
        ("t || 'x'", pa.utf8(), True),
        ("t IS NULL", pa.bool_(), False),
        ("i > 3", pa.bool_(), False),
        ("k > 3", pa.bool_(), True),
        ("CASE WHEN k > 1 THEN 1 ELSE 2 END", pa.int64(), False),
        ("CASE WHEN k > 1 THEN 1 END", pa.int64(), True),
        ("date_trunc('day', w)", pa.timestamp("us", "UTC"), True),
        ("i::double precision", pa.float64(), False),
        ("i::decimal(19, 0)", pa.decimal128(19, 0), False),
        ("i::decimal(18, 0)", pa.decimal128(18, 0), True),
        ("t::bigint", pa.int64(), True),
        ("d::text", pa.utf8(), True),
        ("1", pa.int64(), False),
    ],
)
def test_types_and_nulls(expression: str, type_: pa.DataType, nullable: bool) -> None:
    assert Projection(view_of(expression).query, DEFINITIONS).schema.field("x") == pa.field("x", type_, nullable)


def test_both_forms_are_one_view() -> None:
    text = "coalesce(t.c, 0) * 2 + t.k"
    form = {"from": {"t": "t"}, "select": ["t.id", {"expression": text, "as": "x"}]}
    assert parse_view("v", form, DEFINITIONS).query == view_of(text).query
    spaced = {"from": {"t": "t"}, "select": ["t.id", {"expression": "(COALESCE(c, 0)*2)\n + k", "as": "x"}]}
    assert parse_view("v", spaced, DEFINITIONS).query == view_of(text).query
    assert view_of("t.k + 1").query != view_of("t.k + 2").query
