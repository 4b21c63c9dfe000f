"""The first rows in an order, against DuckDB's ORDER BY … LIMIT."""

from __future__ import annotations

import random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from service.reading.first_rows import FirstRows, OrderKey, parse_order

SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("n", pa.int64()), ("f", pa.float64()), ("t", pa.utf8()), ("b", pa.bool_()), ("d", pa.date32()),
        ("w", pa.timestamp("us", "UTC")), ("h", pa.time64("us")), ("m", pa.decimal128(12, 2)), ("y", pa.binary()), ("some col", pa.int64()),
        ("desc", pa.int64()),
    ]
)  # fmt: skip


def table(rng: random.Random, rows: int) -> pa.Table:
    def of(field: pa.Field, at: int) -> object:
        if field.name == "id":
            return at
        if rng.random() < 0.2:
            return None
        return {
            "f": rng.choice([float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.5]), "t": rng.choice(["", "a", "B", "é", "z"]),
            "b": rng.random() < 0.5, "y": rng.choice([b"", b"\0", b"\xff"]), "m": rng.randrange(-3, 4), "d": rng.randrange(-4, 4),
        }.get(field.name, rng.randrange(4))  # fmt: skip

    def column(field: pa.Field) -> pa.Array:
        values = pa.array([of(field, at) for at in range(rows)])
        through = {"d": pa.int32(), "m": pa.decimal128(25, 0)}.get(field.name)
        return (values if through is None else values.cast(through)).cast(field.type)

    return pa.table([column(field) for field in SCHEMA], schema=SCHEMA)


@pytest.mark.parametrize("seed", range(40))
def test_as_duckdb_orders_them(seed: int) -> None:
    rng = random.Random(seed)
    rows, database = table(rng, 300), duckdb.connect()
    database.execute("SET TimeZone = 'UTC'; SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
    database.register("rows", rows)
    items = []
    for name in rng.sample(SCHEMA.names[1:], rng.choice((1, 2, 3))):
        items.append(f'"{name}"{rng.choice(("", " asc", " DESC", " desc"))}{rng.choice(("", "", " nulls first", " NULLS LAST"))}')
    order, count = ",".join([*items, "id"]), rng.choice((1, 7, 50, 299, 300, 5000))
    first = FirstRows(parse_order(order, SCHEMA), count)
    start = 0
    while start < rows.num_rows:
        size = rng.choice((1, 3, 40, 200))
        part = rows.select(first.columns).slice(start, size).combine_chunks()
        first.add((np.arange(start, start + part.num_rows, dtype=np.int32),), pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in part.columns], schema=part.schema))  # fmt: skip
        start += size
    found = first.slots()
    wanted = database.sql(f"SELECT id FROM rows ORDER BY {order} LIMIT {count}").fetchall()
    assert found is not None and found[0].tolist() == [id for (id,) in wanted] and first.added == 300


def test_equal_rows_stay_as_they_came() -> None:
    first = FirstRows([OrderKey("n", True, True)], 3)
    for start in (0, 4):
        first.add((np.arange(start, start + 4),), pa.record_batch({"n": pa.array([1, 2, 1, 2])}))
    found = first.slots()
    assert found is not None and found[0].tolist() == [1, 3, 5]


def test_no_rows() -> None:
    assert FirstRows(parse_order("id", SCHEMA), 3).slots() is None


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("n", [("n", False, False)]),
        ("n desc", [("n", True, True)]),
        (" n  DESC  nulls last , id asc NULLS FIRST ", [("n", True, False), ("id", False, True)]),
        ('"some col",some col desc', [("some col", False, False), ("some col", True, True)]),
        ('"desc" desc', [("desc", True, True)]),
        ("desc", [("desc", False, False)]),
    ],
)
def test_orders(text: str, keys: list[tuple[str, bool, bool]]) -> None:
    assert parse_order(text, SCHEMA) == keys
