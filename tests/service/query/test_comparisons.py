"""Comparisons between relations of values of several types, at the ends of their ranges, against exact arithmetic; and what is refused."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.grammar import INT64_MAX, INT64_MIN
from livejoin.wire.kinds import digits_of
from tests.service.definitions import evaluate, refused, relation, sql

VALUES: dict[str, list[Any]] = {
    "int64": [INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2, 2**53, 2**53 + 1, 2**53 + 2, INT64_MAX - 1, INT64_MAX, None],
    "float64": [-math.inf, float(INT64_MIN), -1.5, -0.0, 0.0, 1.0, 1.5, float(2**53), float(2**53 + 2), 2.0**63, math.inf, math.nan, None],
    "decimal(18,0)": [1 - 10**18, -1, 0, 1, 2**53, 2**53 + 1, 10**18 - 1, None],
    "decimal(18,1)": [1 - 10**18, -15, -10, -1, 0, 5, 10, 11, 10**18 - 1, None],
    "decimal(18,18)": [1 - 10**18, -1, 0, 1, 5 * 10**17, 10**18 - 1, None],
    "decimal(9,3)": [1 - 10**9, -1500, -1000, -999, 0, 500, 1000, 1001, 1050, 1100, 10**9 - 1, None],
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def exact(value: Any, kind: str) -> Any:
    digits = digits_of(kind)
    return Fraction(value, 10 ** digits[1]) if digits is not None else value


def as_float(value: Any, kind: str) -> tuple[bool, float]:
    """A float that Python orders as SQL does: NaN is the greatest."""
    digits = digits_of(kind)
    given = float(value) if digits is None else float(Decimal(value).scaleb(-digits[1]))
    return (True, 0.0) if math.isnan(given) else (False, given)


def met(op: str, x: Any, kind: str, y: Any, its: str) -> bool:
    if x is None or y is None:
        return False
    convert = as_float if "float64" in (kind, its) else exact
    return OPERATORS[op](convert(x, kind), convert(y, its))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("its", VALUES)
def test_numbers(kind: str, its: str) -> None:
    relations = {name: relation(f"id:int64, v:{one}?", {}) for name, one in (("l", kind), ("r", its))}
    tables = {
        name: pa.RecordBatch.from_pydict({"id": range(len(VALUES[one])), "v": VALUES[one]}, schema=relations[name].arrow_schema())
        for name, one in (("l", kind), ("r", its))
    }
    for op in OPERATORS:
        found = evaluate(sql(f"SELECT x.id, y.id AS other FROM l x JOIN r y ON x.v {op} y.v", relations), relations, tables)
        wanted = [
            (i, j) for i, x in enumerate(VALUES[kind]) for j, y in enumerate(VALUES[its]) if met(op, x, kind, y, its)
        ]
        assert sorted(found) == wanted, op


_COLUMNS = "id:int64, n:int64?, m:int64, f:float64, d:decimal(10,2), e:decimal(10,1), w:decimal(18,6), t:string?, o:json"
RELATIONS = {name: relation(_COLUMNS, {}) for name in "lr"}


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("x.n IS DISTINCT FROM y.n", "both sides must be declared without nulls"),
        ("x.d <> y.e AND x.m = y.m", "cast one side, so that both have as many digits after the point"),
        ("x.w * x.w < y.d", "it may have more than 18 digits: cast it to a decimal of fewer"),
        ("x.w * x.w = y.w * y.w", "up to 18 digits"),
        ("x.t = y.m", "use the same type for all: write CAST"),
        ("x.m + y.m = 3", "a join without a condition between x and y"),
        ("x.o = y.o", "which is json"),
        ("(x.f IS NULL OR x.f < y.f)", "takes int64, decimal, timestamp or date"),
    ],
)
def test_what_is_refused(condition: str, words: str) -> None:
    assert words in str(refused(f"SELECT x.id, y.id AS other FROM l x JOIN r y ON {condition}", RELATIONS).detail)


@pytest.mark.parametrize(
    "condition",
    [
        "coalesce(y.n, 0) = x.m",
        "x.n IS NOT DISTINCT FROM y.n",
        "int8range(y.n + 1, 9) @> x.m",
    ],
)
def test_what_nulls_may_meet_is_refused_after_an_outer_join(condition: str) -> None:
    said = str(refused(f"SELECT x.id FROM l x LEFT JOIN r y ON x.m = y.m WHERE {condition}", RELATIONS).detail)
    assert "which rows without y may meet" in said or "over x and y" in said
    three = f"SELECT x.id FROM l x LEFT JOIN r y ON x.m = y.m LEFT JOIN l z ON {condition.replace('x.', 'z.')}"
    assert "which rows without y may meet" in str(refused(three, RELATIONS).detail) or "over" in said
