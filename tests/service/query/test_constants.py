"""Constants in conditions, with casts, NaN and infinities: which rows meet them, as PostgreSQL says where it is installed."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from service.views.parse import parse_view
from tests.service import postgres
from tests.service.definitions import evaluate, refused, relation, sql

T = {"t": relation("id:int64, n:int64, f:float64?, d:decimal(10,2), s:string, w:timestamp, day:date, j:string", {})}
ROWS: list[tuple[Any, ...]] = [
    (1, 2, None, 101, "x", datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), '{"a": 1.005}'),
    (2, -2, math.nan, 100, "straße", datetime(2026, 1, 1, 10, tzinfo=UTC), date(2026, 1, 2), '{"a": "1.005"}'),
    (3, 1, math.inf, 200, "ẞ", datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), '{"a": 1}'),
    (4, 0, 0.1, 0, "2", datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), "{}"),
    (5, 7, 1.0, 160, "ß", datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), '{"a": "1.2345e2"}'),
    (6, -1, -math.inf, -200, "STRAßE", datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 3), '{"a": null}'),
]
MET = {
    "n = 1.6::bigint": [1],
    "n = -1.5::bigint": [2],
    "n < -1.5::bigint": [],
    "n = (1.6)::int": [1],
    "n = 2.5::float8::bigint": [1],
    "n = 1.6::smallint": [1],
    "n IN (1.6::bigint, 7)": [1, 5],
    "n BETWEEN 0.5::bigint AND 1.6::bigint": [1, 3],
    "n <> 1.6::numeric::bigint": [2, 3, 4, 5, 6],
    "n + 0 = 1.6::bigint": [1],
    "n > 'NaN'::float8": [],
    "n < 'infinity'::float8": [1, 2, 3, 4, 5, 6],
    "n = -1.5::float8": [],
    "n = 1e0::bigint": [3],
    "f = 'NaN'::float8": [2],
    "f = 'NaN'": [2],
    "f >= 'NaN'": [2],
    "f > 'nan'": [],
    "f < 'NaN'::float8": [3, 4, 5, 6],
    "f <> 'NaN'": [3, 4, 5, 6],
    "NOT (f = 'NaN')": [3, 4, 5, 6],
    "f IN ('NaN', 1)": [2, 5],
    "f NOT IN ('nan', 1)": [3, 4, 6],
    "f BETWEEN 1 AND 'NaN'": [2, 3, 5],
    "f IS DISTINCT FROM 'NaN'": [1, 3, 4, 5, 6],
    "f IS NOT DISTINCT FROM 'NaN'": [2],
    "coalesce(f, 'NaN') = 'NaN'": [1, 2],
    "f + 0 = 'NaN'::float8": [2],
    "f = 'infinity'::float8": [3],
    "f = -'Infinity'::float8": [6],
    "f < 'inf'::float8": [4, 5, 6],
    "f = 0.1::numeric": [4],
    "f = 0.1::float8": [4],
    "d = 1.6::bigint": [3],
    "d = 1.6::bigint - 0.40": [5],
    "d = 1.005::numeric(10,2)": [1],
    "d = '1.005'::numeric(10,2)": [1],
    "d = 1.6::float8": [5],
    "d = 1.005::float8::numeric(10,2)": [1],
    "d > 1.6::numeric(10,0)": [],
    "s = 2::text": [4],
    "s = 'x'::varchar": [1],
    "n::text = '2'": [1],
    "upper(s) = 'STRAßE'": [2, 6],
    "upper(s) = upper('ẞ')": [3],
    "upper(s) = 'ß'": [5],
    "day = '2026-01-01T00:00'::timestamp": [1, 3, 4, 5],
    "day < '2026-01-02T10:00'::timestamp": [1, 2, 3, 4, 5],
    "w = '2026-01-01'::date": [1, 3, 4, 5, 6],
    "(j ->> 'a')::numeric(12,2) = 1.01": [1, 2],
    "(j ->> 'a')::numeric(12,2) = 1.005": [],
    "(j ->> 'a')::numeric(12,1) = 123.5": [5],
    "trunc((j ->> 'a')::float8) = 1": [1, 2, 3],
}
REFUSED = {
    "f = 0.1::real": "a cast to REAL",
    "f = n::real": "a cast to REAL",
    "s = 'abc'::char": "a cast to CHAR",
    "s::name = 'x'": "a cast to NAME",
    "s = 'abc'::varchar(2)": "a cast to VARCHAR(2)",
    "n = '1.6'::bigint": "expected a 64-bit integer",
    "n = 'NaN'": "expected a 64-bit integer",
    "f = '1e400'::float8": "1e400",
}


def met(condition: str) -> list[int]:
    schema = T["t"].arrow_schema()
    batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in ROWS], schema=schema)
    return [one for (one,) in evaluate(sql(f"SELECT id FROM t WHERE {condition}", T), T, {"t": batch})]


@pytest.mark.parametrize(("condition", "ids"), MET.items())
def test_rows(condition: str, ids: list[int]) -> None:
    assert met(condition) == ids
    again = sql(f"SELECT id FROM t WHERE {condition}", T)
    assert again.stated == sql(f"SELECT id FROM t WHERE {condition}", T).stated, "the same view, NaN too"


@pytest.mark.parametrize(("condition", "said"), REFUSED.items())
def test_what_is_refused(condition: str, said: str) -> None:
    problem = refused(f"SELECT id FROM t WHERE {condition}", T)
    assert said in problem.detail and "position" in problem.extensions


def test_nan_in_json() -> None:
    json = parse_view("v", {"from": {"t": "t"}, "where": [{"column": "t.f", "op": "=", "value": "NaN"}]}, T)
    assert json.query.filters == sql("SELECT * FROM t WHERE f = 'NaN'", T).query.filters


@pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed")
def test_postgresql_agrees() -> None:
    def text(value: Any) -> str:
        return "NULL" if value is None else f"'{value}'"

    values = ["(" + ", ".join(text(one if at != 3 else one / 100) for at, one in enumerate(row)) + ")" for row in ROWS]
    script = ["CREATE TEMP TABLE t (id bigint, n bigint, f float8, d numeric(10, 2), s text, w timestamptz, day date, j json);"]
    script.append(f"INSERT INTO t VALUES {', '.join(values)};")
    ids = (f"array_to_string(array(SELECT id FROM t WHERE {condition} ORDER BY id), ' ')" for condition in MET)
    (row,) = postgres.answers([*script, f"SELECT {', '.join(ids)};"])
    found = [[int(one) for one in (some or "").split()] for some in row]
    assert dict(zip(MET, found, strict=True)) == MET
