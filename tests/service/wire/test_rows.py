from __future__ import annotations

import csv
import io
import math
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livejoin.wire import rows as wire_rows
from livejoin.wire.errors import UnsupportedMediaType
from livejoin.wire.grammar import INT64_MAX, INT64_MIN, parse_date, parse_timestamp
from livejoin.wire.kinds import KEPT_TYPES
from livejoin.wire.rows import ArrowRows, csv_header, encode_rows, joined

TYPES = ("int64", "float64", "timestamp", "date", "string", "bool")
SCHEMA = pa.schema([*((kind, KEPT_TYPES[kind]) for kind in TYPES), ('a "b", é', pa.utf8())])
TEXTS = st.text(max_size=6) | st.sampled_from(["", "null", 'quo"te', "a,b", "two\r\nlines", "\\", "\x00\x1f", "\x7f", "é€😀", "NaN"])
VALUES = st.tuples(
    st.integers(INT64_MIN, INT64_MAX) | st.none(),
    st.floats() | st.none(),
    st.integers(INT64_MIN, INT64_MAX) | st.integers(0, 2**31).map(lambda s: s * 1_000_000) | st.none(),
    st.integers(-(2**31), 2**31 - 1) | st.none(),
    TEXTS | st.none(),
    st.booleans() | st.none(),
    TEXTS,
)


def record_batch(values: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True)) or [()] * len(SCHEMA)
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def back(value: Any, kind: str) -> Any:
    """A JSON value → the physical one."""
    if value is None:
        return None
    if kind == "float64":
        return float(value)
    return {"timestamp": parse_timestamp, "date": parse_date}.get(kind, lambda same: same)(value)


def same(left: list[Any], right: list[Any]) -> bool:
    """Equal, NaN as itself."""
    nan = [x if not (isinstance(x, float) and math.isnan(x)) else "nan" for row in left for x in row]
    return nan == [x if not (isinstance(x, float) and math.isnan(x)) else "nan" for row in right for x in row]


@given(st.lists(VALUES, max_size=5), st.integers(0, 2))
@settings(deadline=None, max_examples=100)
def test_rows_come_back(values: list[tuple[Any, ...]], start: int) -> None:
    batch, values = record_batch(values).slice(start), values[start:]
    kinds = [*TYPES, "string"]

    def read(rows: list[dict[str, Any]]) -> list[Any]:
        assert all(list(row) == SCHEMA.names for row in rows)
        return [[back(value, kind) for value, kind in zip(row.values(), kinds, strict=True)] for row in rows]

    lines = encode_rows("application/jsonl", batch)
    assert lines.count(b"\n") == len(values)
    assert same(read([orjson.loads(line) for line in lines.split(b"\n")[:-1]]), values)
    events = encode_rows("text/event-stream", batch).split(b"\n\n")[:-1]
    assert all(event.startswith(b"event: row\ndata: ") for event in events)
    assert same(read([orjson.loads(event.removeprefix(b"event: row\ndata: ")) for event in events]), values)


@given(st.lists(VALUES, max_size=5))
@settings(deadline=None, max_examples=100)
def test_csv_comes_back(values: list[tuple[Any, ...]]) -> None:
    text = (csv_header(SCHEMA) + encode_rows("text/csv", record_batch(values))).decode()
    head, *lines = csv.reader(io.StringIO(text, newline=""))
    assert head == SCHEMA.names
    read: list[Any] = []
    for line in lines:
        number, real, stamp, day, word, truth, last = line
        read.append(
            [
                int(number) if number else None,
                float(real) if real else None,
                parse_timestamp(stamp) if stamp else None,
                parse_date(day) if day else None,
                word,
                {"true": True, "false": False, "": None}[truth],
                last,
            ]
        )
    assert same(read, [[*row[:4], row[4] or "", *row[5:]] for row in values])


def test_how_values_look() -> None:
    one = record_batch([(1, 1.5, 1_767_268_800_000_000, 20454, 'a"', True, "")])
    assert encode_rows("application/jsonl", one) == (
        b'{"int64":1,"float64":1.5,"timestamp":"2026-01-01T12:00:00Z","date":"2026-01-01",'
        b'"string":"a\\"","bool":true,"a \\"b\\", \xc3\xa9":""}\n'
    )
    assert encode_rows("text/csv", one) == b'1,1.5,2026-01-01T12:00:00Z,2026-01-01,"a""",true,""\n'
    assert csv_header(SCHEMA) == b'int64,float64,timestamp,date,string,bool,"a ""b"", \xc3\xa9"\n'
    none = record_batch([(None, math.nan, 1_767_268_800_000_001, None, None, None, "x")])
    assert encode_rows("text/csv", none) == b",NaN,2026-01-01T12:00:00.000001Z,,,,x\n"
    assert b'"float64":"-Infinity"' in encode_rows("application/jsonl", record_batch([(0, -math.inf, 0, 0, "", False, "")]))
    assert encode_rows("text/csv", record_batch([(0, math.inf, 0, 0, "a,b", False, "l\n")])) == (
        b'0,Infinity,1970-01-01T00:00:00Z,1970-01-01,"a,b",false,"l\n"\n'
    )


def test_minus_zero_is_no_whole_number() -> None:
    """JSON readers take `-0` for the whole number 0."""
    batch = pa.RecordBatch.from_pydict({"x": pa.array([0.0, -0.0, None, -1.0])})
    assert encode_rows("application/jsonl", batch) == b'{"x":0}\n{"x":-0.0}\n{"x":null}\n{"x":-1}\n'
    assert encode_rows("text/csv", batch.slice(1, 2)) == b"-0.0\n\n"


def test_large_batches_are_written_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = record_batch([(i, i / 2, i, i, f"t{i}", True, "") for i in range(100)])
    whole = encode_rows("application/jsonl", batch)
    monkeypatch.setattr(wire_rows, "_MAX_BYTES", 100)
    assert encode_rows("application/jsonl", batch) == whole


def test_no_rows_and_no_columns() -> None:
    assert encode_rows("application/jsonl", record_batch([])) == b""
    with pytest.raises(UnsupportedMediaType):
        encode_rows("application/xml", record_batch([]))


def test_an_arrow_stream_in_pieces_is_whole_only_at_its_end() -> None:
    first = record_batch([(1, 1.0, 1, 1, "a", True, "b")])
    second = record_batch([(2, None, None, None, None, None, "c"), (3, 0.0, 0, 0, "", False, "")]).slice(1)
    rows = ArrowRows(SCHEMA)
    pieces = [b"".join(rows.chunk(batch)) for batch in (first, second)]
    with pa.ipc.open_stream(pieces[0]) as reader:
        assert reader.read_next_batch().equals(first)  # the first chunk can be read alone
    assert not b"".join(pieces).endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    with pa.ipc.open_stream(b"".join(pieces) + rows.end()) as reader:
        assert reader.schema == SCHEMA
        assert reader.read_all().to_batches() == [first, second]
    with pa.ipc.open_stream(ArrowRows(SCHEMA).end()) as reader:
        assert reader.read_all().num_rows == 0


def test_batches_of_one_row_are_few_pieces() -> None:
    """Seen: 16,384 versions of one row were 212,996 pieces, which held the event loop for 70 ms."""
    rows = ArrowRows(SCHEMA)
    batches = [record_batch([(number, 1.0, 1, 1, "a", True, "b")]) for number in range(500)]
    pieces = [piece for batch in batches for piece in rows.chunk(batch)]
    assert len(pieces) < 550 and len(joined(pieces)) == 1 and b"".join(joined(pieces)) == b"".join(pieces)
    with pa.ipc.open_stream(b"".join(pieces) + rows.end()) as reader:
        assert reader.read_all().to_batches() == batches


def test_only_small_pieces_are_joined() -> None:
    large = bytes(1 << 17)
    found = joined([b"a", b"", b"b", large, large, b"c", memoryview(b"d")])
    assert found == [b"ab", large, large, b"cd"] and found[1] is large
    assert joined([]) == joined([b""]) == []


def test_the_columns_of_an_arrow_stream_are_not_copied() -> None:
    values = np.arange(1000)
    batch = pa.RecordBatch.from_arrays([pa.array(values)], schema=pa.schema([pa.field("x", pa.int64(), False)]))
    rows = ArrowRows(batch.schema)
    found = [piece for piece in rows.chunk(batch) if len(piece) == values.nbytes]
    assert [np.frombuffer(piece, np.int64).ctypes.data for piece in found] == [batch.column(0).buffers()[1].address]


def test_what_came_to_be_nullable_is_sent_with_the_schema_of_the_stream() -> None:
    batch = record_batch([(1, 1.0, 1, 1, "a", True, "b")])
    before = pa.schema([field.with_nullable(False) for field in SCHEMA])
    rows = ArrowRows(before)
    with pa.ipc.open_stream(b"".join(rows.chunk(batch)) + rows.end()) as reader:
        assert reader.schema == before and reader.read_all().to_pylist() == batch.to_pylist()
