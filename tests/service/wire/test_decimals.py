"""Decimals: exact in every format, refused where they would have to be rounded."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livejoin.wire.batch import Batch, batch_to_arrow
from livejoin.wire.decode import decode_changes, decode_relation_changes
from livejoin.wire.errors import MalformedBody
from livejoin.wire.grammar import JSON_READERS, decimal_texts
from livejoin.wire.kinds import KEPT_TYPES, SENT_TYPES, digits_of, kept, sent
from livejoin.wire.rows import encode_rows
from livejoin.wire.schema import parse_relation
from tests.relations import declared

PRICES = parse_relation(declared("id:int64, price:decimal(12,2)?"))
JSONL, CSV = "application/jsonl", "text/csv"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
MOST = 10**18 - 1


def read(media_type: str, body: bytes) -> Batch:
    return decode_relation_changes(media_type, body, "prices", lambda name: PRICES)


def prices(batch: Batch) -> list[int | None]:
    assert not batch.errors
    return [price for one in batch.changes for price in one.rows.arrow.column("price").to_pylist()]


def table(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"id": range(len(values)), "price": pa.array(values, kind)})


def stream(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("value", "digits"),
    [
        ('"12.50"', 1250), ("12.5", 1250), ("12", 1200), ("-0.01", -1), ('"+3"', 300), ('"1e3"', 100000), ("0", 0), ('"-0.00"', 0),
        ('"12.500000"', 1250), ("9999999999.99", 999999999999), ('".5"', 50), ("1e2", 10000), ("null", None), ("1e-999", 0), ("0.1", 10),
    ],
)  # fmt: skip
def test_json(value: str, digits: int | None) -> None:
    assert prices(read(JSONL, b'{"id": 1, "price": %b}' % value.encode())) == [digits]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('"12.501"', "finer than its scale"), ("0.001", "finer than its scale"), ('"1e-999999999"', "finer than its scale"),
        ("10000000000", "out of range"), ('"1e999999999"', "out of range"), ('"-10000000000.00"', "out of range"),
        ("1234567890.1234567", "send it as text"), ('"NaN"', "expected a decimal of at most 10 digits"), ('""', "expected"),
        ('"1e9223372036854775808"', "out of range"),
        ('"12,50"', "expected"), ("true", "expected"), ("[1]", "expected"), ('"0.%s1"' % ("0" * 80), "expected"),
    ],
)  # fmt: skip
def test_nothing_is_rounded(value: str, why: str) -> None:
    for rows in (b'{"id": 1, "price": %b}', b'{"id": 0, "price": "1.00"}\n' * 20 + b'{"id": 1, "price": %b}'):
        batch = read(JSONL, rows % value.encode())
        assert batch.error_count == 1
        assert batch.errors[0].column == "price" and why in batch.errors[0].reason


def test_csv() -> None:
    assert prices(read(CSV, b"id,price\n1,12.50\n2,\n3,-7\n4,1e1\n")) == [1250, None, -700, 1000]
    assert prices(read(CSV, b"id,price\n1,12.50\n2,\n3,-7\n")) == [1250, None, -700]
    assert [error.index for error in read(CSV, b"id,price\n1,0.001\n2,x\n3,1\n").errors] == [0, 1]


@pytest.mark.parametrize("media_type", [ARROW, PARQUET])
def test_arrow_and_parquet(media_type: str) -> None:
    body = stream if media_type == ARROW else parquet
    values = [Decimal("12.50"), None, Decimal("-0.01")]
    for kind in (pa.decimal128(12, 2), pa.decimal128(38, 2), pa.decimal128(30, 10), pa.decimal256(60, 3)):
        assert prices(read(media_type, body(table(values, kind)))) == [1250, None, -1]
    assert prices(read(media_type, body(table([3, None, -4], pa.int64())))) == [300, None, -400]
    for wrong in (table([1.5], pa.float64()), table(["1.5"], pa.utf8())):
        with pytest.raises(MalformedBody, match="price"):
            read(media_type, body(wrong))
    bad = read(media_type, body(table([Decimal("0.001"), Decimal("1.00"), Decimal(10**11)], pa.decimal128(30, 3))))
    assert [error.index for error in bad.errors] == [0, 2]
    assert "0.001" in bad.errors[0].reason


def test_a_hundred_thousand_of_a_parquet_file() -> None:
    """As float64, some would be off by a unit in the last place."""
    digits = [n * 9_876_543_211 % 10**12 for n in range(100_000)]
    rows = table([Decimal(n).scaleb(-2) for n in digits], pa.decimal128(12, 2))
    assert prices(read(PARQUET, parquet(rows))) == digits


@given(st.integers(1, 18).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))), st.data())
def test_back_and_forth(digits: tuple[int, int], data: st.DataObject) -> None:
    """Texts, Arrow and what is kept, of any precision and scale; sliced."""
    precision, scale = digits
    kind = f"decimal({precision},{scale})"
    most = 10**precision - 1
    numbers = data.draw(st.lists(st.none() | st.integers(-most, most) | st.sampled_from([most, -most, 0]), min_size=2, max_size=9))
    expected = [None if n is None else Decimal(n).scaleb(-scale) for n in numbers][1:]
    column = sent(pa.array(numbers, KEPT_TYPES[kind])[1:], SENT_TYPES[kind])
    column.validate(full=True)
    assert column.to_pylist() == expected
    assert kept(column).to_pylist() == numbers[1:]
    texts = decimal_texts(column).to_pylist()
    assert texts == [None if value is None else f"{value:.{scale}f}" for value in expected]
    assert [None if text is None else JSON_READERS[kind](text) for text in texts] == numbers[1:]


def test_rows() -> None:
    column = pa.array([Decimal("12.50"), None, Decimal("-0.05")], pa.decimal128(12, 2))
    rows = pa.RecordBatch.from_arrays([column], ["price"])
    assert encode_rows(JSONL, rows) == b'{"price":"12.50"}\n{"price":null}\n{"price":"-0.05"}\n'
    assert encode_rows(CSV, rows) == b"12.50\n\n-0.05\n"
    assert decimal_texts(pa.array([Decimal("0.00000001")], pa.decimal128(18, 8))).to_pylist() == ["0.00000001"]
    assert decimal_texts(pa.array([Decimal(-MOST)], pa.decimal128(18, 0))).to_pylist() == [str(-MOST)]


def test_the_job_sends_what_it_has_read() -> None:
    batch = read(JSONL, b'{"id": 1, "price": "12.50"}')
    assert prices(decode_changes(ARROW, batch_to_arrow(batch), lambda name: PRICES)) == [1250]


def test_an_interval_of_prices_that_is_empty_is_shown_with_its_points() -> None:
    column = {"type": "decimal", "precision": 5, "scale": 2}
    bands = parse_relation({
        "columns": [{"name": "id", "type": "int64"}, {"name": "low", **column}, {"name": "high", **column}], "key": ["id"],
        "intervals": {"band": {"start": "low", "end": "high"}},
    })  # fmt: skip
    body = orjson.dumps({"id": 1, "low": "12.50", "high": "12.50"})
    batch = decode_relation_changes(JSONL, body, "bands", lambda name: bands)
    assert batch.errors[0].reason == "the interval band is empty: [12.50, 12.50)"


def test_kinds() -> None:
    assert digits_of("decimal(12,2)") == (12, 2) and digits_of("int64") is None
    with pytest.raises(KeyError):
        KEPT_TYPES["decimal"]
    assert PRICES.to_json()["columns"][1] == {"name": "price", "type": "decimal", "nullable": True, "precision": 12, "scale": 2}
    assert PRICES.to_json()["columns"][0] == {"name": "id", "type": "int64", "nullable": False}
