"""What bodies become is bounded before it is made: bombs of each format, and how much memory they take."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from livejoin.wire.budget import UNBOUNDED, Budget
from livejoin.wire.decode import decode_changes, decode_relation_changes
from livejoin.wire.errors import MalformedBody, TooLarge
from livejoin.wire.parquet.decode import _PIECE
from livejoin.wire.schema import parse_relation

MIB = 1 << 20
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
DEFINITION = parse_relation(
    {"columns": [{"name": "id", "type": "int64"}, {"name": "text", "type": "string", "nullable": True}], "key": ["id"]}
)


class Bounded(Budget):
    """As a request's: so many rows and bytes."""

    def __init__(self, limit: int = 8 * MIB, rows: int = 100_000) -> None:
        self.limit, self.rows, self.taken = limit, rows, 0

    def take(self, size: int) -> None:
        assert size >= 0
        self.taken += size
        if self.taken > self.limit:
            raise TooLarge("too much", self.limit)


def arrow(table: pa.Table, codec: str | None = None) -> bytes:
    sink = io.BytesIO()
    table = table.replace_schema_metadata({"livejoin.relation": "r"})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def rows_of(texts: pa.Array) -> pa.Table:
    return pa.table({"id": np.arange(len(texts)), "text": texts})


LENGTH = MIB // 4
LONG = "x" * LENGTH


def plain() -> pa.Array:
    return pa.array([LONG] * 60)


def many() -> pa.Array:
    return pa.array([LONG] * 300)


def repeated() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(300, np.int32)), [LONG])


def two() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["x" * 16 * MIB, ""])


def with_ops(ops: pa.Array) -> pa.Table:
    return rows_of(pa.nulls(300, pa.utf8())).append_column("_op", ops)


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "arrow, lz4": (ARROW, lambda: arrow(rows_of(plain()), "lz4")),
    "arrow, zstd": (ARROW, lambda: arrow(rows_of(plain()), "zstd")),
    "arrow, dictionary": (ARROW, lambda: arrow(rows_of(repeated()))),
    "arrow, compressed dictionary": (ARROW, lambda: arrow(rows_of(two()), "zstd")),
    "arrow, ops": (ARROW, lambda: arrow(with_ops(repeated()))),
    "parquet, snappy": (PARQUET, lambda: parquet(rows_of(plain()), use_dictionary=False)),
    "parquet, zstd": (PARQUET, lambda: parquet(rows_of(plain()), use_dictionary=False, compression="zstd")),
    "parquet, data pages 2": (
        PARQUET,
        lambda: parquet(rows_of(plain()), use_dictionary=False, compression="gzip", data_page_version="2.0"),
    ),
    "parquet, dictionary": (PARQUET, lambda: parquet(rows_of(many()))),
    "parquet, dictionary without compression": (PARQUET, lambda: parquet(rows_of(many()), compression="none")),
    "parquet, ops": (PARQUET, lambda: parquet(with_ops(many()))),
    "parquet, prefixes": (
        PARQUET,
        lambda: parquet(rows_of(many()), use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"}, compression="none"),
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_body_that_becomes_large(name: str) -> None:
    kind, made = BOMBS[name]
    body = made()
    assert len(body) < MIB
    room = Bounded()
    peak = _peak_of(lambda: decode_relation_changes(kind, body, "r", lambda name: DEFINITION, room))
    piece = _PIECE if "prefixes" in name else 0  # read before its size is known
    assert room.taken > room.limit and peak < 2 * room.limit + piece
    if "ops" not in name:
        assert decode_relation_changes(kind, body, "r", lambda name: DEFINITION).sent >= 2, "it is not refused for anything else"


_POOLS: list[pa.MemoryPool] = []  # buffers may live as long as an exception that has met them, and need their pool


def _peak_of(work: Any, refusal: type[Exception] = TooLarge, said: str | None = None) -> int:
    """Arrow's memory at its most while the work refuses."""
    proxy = pa.proxy_memory_pool(pa.system_memory_pool())
    _POOLS.append(proxy)
    before = pa.default_memory_pool()
    pa.set_memory_pool(proxy)
    try:
        with pytest.raises(refusal, match=said):
            work()
        return int(proxy.max_memory() or 0)
    finally:
        pa.set_memory_pool(before)


def test_views_that_share_their_text() -> None:
    """Arrow writes a view's text once for all that share it."""
    view = struct.pack("<i4sii", LENGTH, b"xxxx", 0, 0)
    body = arrow(rows_of(pa.Array.from_buffers(pa.string_view(), 300, [None, pa.py_buffer(view * 300), pa.py_buffer(LONG.encode())])))
    assert len(body) < MIB
    assert _peak_of(lambda: decode_relation_changes(ARROW, body, "r", lambda name: DEFINITION, Bounded())) < 16 * MIB
    few = arrow(rows_of(pa.array(["a", "b" * 50, None], pa.string_view())))
    batch = decode_relation_changes(ARROW, few, "r", lambda name: DEFINITION, Bounded())
    assert batch.changes[0].rows.arrow.column("text").to_pylist() == ["a", "b" * 50, None]


def test_columns_that_share_their_bytes() -> None:
    """Each is counted: whatever joins record batches copies each."""
    names = [f"c{number}" for number in range(100)]
    batch = pa.RecordBatch.from_arrays([pa.array([LONG]), *[pa.array(["x"])] * 99], names=names)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    body = bytearray(sink.getvalue())
    # Where a message says that a column's text, behind its validity and its offsets, is.
    position = struct.pack("<qq", 8, LENGTH)
    assert body.count(position) == 2
    for at in (body.index(position), body.rindex(position)):
        both = body[at - 16 : at + 16]
        for column in range(1, 100):
            body[at - 16 + 48 * column : at + 16 + 48 * column] = both
    columns = [{"name": "id", "type": "int64"}, *[{"name": name, "type": "string"} for name in names]]
    wide = parse_relation({"columns": columns, "key": ["id"]})
    for definition in (DEFINITION, wide):
        assert _peak_of(lambda: decode_relation_changes(ARROW, bytes(body), "r", lambda name: definition, Bounded())) < MIB  # noqa: B023


def test_sizes_that_a_footer_says_are_not_believed() -> None:
    """The page's own header has the size that the decoder will make room for."""
    body = parquet(rows_of(plain()), use_dictionary=False, compression="zstd")
    metadata = pq.ParquetFile(pa.BufferReader(body)).metadata
    size = metadata.row_group(0).column(1).total_uncompressed_size
    assert size > 14 * MIB
    said, forged = _zigzag(size), _zigzag(100)
    # As long as before, so that all offsets hold.
    forged = forged[:-1] + bytes([forged[-1] | 0x80]) + b"\x80" * (len(said) - len(forged) - 1) + b"\x00"
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    assert body.count(said, start) >= 1
    body = body[:start] + body[start:].replace(said, forged)
    assert pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0).column(1).total_uncompressed_size == 100
    assert _peak_of(lambda: decode_relation_changes(PARQUET, body, "r", lambda name: DEFINITION, Bounded())) < 16 * MIB


def _zigzag(number: int) -> bytes:
    return _varint(number << 1)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_good_files_pass(kind: str) -> None:
    texts = pa.array([f"text {i % 1000}" for i in range(20_000)])
    for table in (rows_of(texts), rows_of(texts.dictionary_encode()), rows_of(texts.cast(pa.large_utf8())), rows_of(texts)[:0]):
        bodies = (
            [arrow(table), arrow(table, "lz4"), arrow(table, "zstd")]
            if kind == "arrow"
            else [
                parquet(table, compression=codec, data_page_version=version, use_dictionary=dictionary, row_group_size=8_000)
                for codec in ("none", "zstd")
                for version in ("1.0", "2.0")
                for dictionary in (True, False)
            ]
        )
        for body in bodies:
            batch = decode_relation_changes(ARROW if kind == "arrow" else PARQUET, body, "r", lambda name: DEFINITION, Bounded())
            assert batch.sent == len(table) and not batch.errors
            if batch.sent:
                assert batch.changes[0].rows.arrow.column("text").to_pylist() == texts.to_pylist()


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd"])
def test_lengths_in_deltas_pass(encoding: str, version: str, codec: str) -> None:
    texts = pa.array([None if number % 3 == 0 else "x" * (number % 71) + str(number) for number in range(3000)])
    for column in (texts, texts.drop_null(), texts[:1], texts[1:2], texts[:0]):
        body = parquet(
            rows_of(column), use_dictionary=False, column_encoding={"text": encoding}, data_page_version=version, compression=codec,
            data_page_size=4000,
        )  # fmt: skip
        batch = decode_relation_changes(PARQUET, body, "r", lambda name: DEFINITION, Bounded())
        assert [text for part in batch.changes for text in part.rows.arrow.column("text").to_pylist()] == column.to_pylist()


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_more_lengths_than_values(encoding: str) -> None:
    """Arrow makes room for as many lengths as the page says that there are, and a few bytes may say so of any number."""
    texts = rows_of(pa.array(["a" * 40]))
    body = parquet(texts, use_dictionary=False, column_encoding={"text": encoding}, compression="none", write_statistics=False)
    start = pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0).column(1).data_page_offset
    position = body.index(b"\x80\x01\x04\x01", start)  # blocks of 128 in four parts, one value
    for count in (2, 3, 100_000_000):
        # Blocks of 2**30 numbers, all of them the same.
        lying = b"\x80\x80\x80\x80\x04\x04" + _varint(count) + bytes(12)
        forged = body[:position] + lying + body[position + len(lying) :]
        decode = partial(decode_relation_changes, PARQUET, forged, "r", lambda name: DEFINITION, Bounded())
        assert _peak_of(decode, MalformedBody, "lengths of the texts") < MIB


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def test_prefixes_pass_in_pieces() -> None:
    texts = pa.array([f"a long common beginning {i}" for i in range(20_000)])
    body = parquet(rows_of(texts), use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
    batch = decode_relation_changes(PARQUET, body, "r", lambda name: DEFINITION, Bounded())
    assert batch.changes[0].rows.arrow.column("text").to_pylist() == texts.to_pylist()


ROWS: dict[str, Any] = {
    "application/jsonl": lambda n: b"".join(b'{"id":%d}\n' % i for i in range(n)),
    "text/csv": lambda n: b"id\n" + b"".join(b"%d\n" % i for i in range(n)),
    ARROW: lambda n: arrow(pa.table({"id": np.arange(n)})),
    PARQUET: lambda n: parquet(pa.table({"id": np.arange(n)})),
    "application/vnd.debezium+jsonl": lambda n: b"".join(b'{"op":"c","after":{"id":%d}}\n' % i for i in range(n)),
}


@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_a_batch(kind: str) -> None:
    assert decode_relation_changes(kind, ROWS[kind](100), "r", lambda name: DEFINITION, Bounded(rows=100)).sent == 100
    with pytest.raises(TooLarge) as caught:
        decode_relation_changes(kind, ROWS[kind](101), "r", lambda name: DEFINITION, Bounded(rows=100))
    assert caught.value.limit == 100 and "100 rows" in caught.value.detail


def test_rows_of_a_batch_of_any_relations() -> None:
    lines = b"".join(b'{"relation":"r","row":{"id":%d}}\n' % i for i in range(101))
    bodies = {
        "application/jsonl": lines,
        "application/json": b'{"changes":[' + lines.strip().replace(b"\n", b",") + b"]}",
        ARROW: arrow(pa.table({"id": np.arange(60)})) + arrow(pa.table({"id": np.arange(41)})),
    }
    for kind, body in bodies.items():
        assert decode_changes(kind, body, lambda name: DEFINITION, Bounded(rows=101)).sent == 101
        with pytest.raises(TooLarge):
            decode_changes(kind, body, lambda name: DEFINITION, Bounded(rows=100))


def test_rows_that_take_no_bytes() -> None:
    """A column of nulls has a length and nothing else."""
    body = arrow(pa.table({"id": pa.nulls(10**9)}))
    assert len(body) < 1000
    with pytest.raises(TooLarge):
        decode_relation_changes(ARROW, body, "r", lambda name: DEFINITION, Bounded())


def test_columns_that_a_body_leaves_out_are_counted() -> None:
    columns = [{"name": f"c{i}", "type": "int64", "nullable": i > 0} for i in range(1000)]
    wide = parse_relation({"columns": columns, "key": ["c0"]})
    for kind, body in (("text/csv", b"c0\n" + b"1\n" * 5000), ("application/jsonl", b'{"c0":1}\n' * 5000)):
        with pytest.raises(TooLarge):
            decode_relation_changes(kind, body, "r", lambda name: wide, Bounded())


@pytest.mark.parametrize("body", [b'{"changes":[' + b"[]," * MIB + b"[]]}", b'{"changes":[' + b"1," * 2 * MIB + b"1]}", b"\n" * 4 * MIB])
def test_texts_of_many_small_values(body: bytes) -> None:
    kind = "application/jsonl" if body.startswith(b"\n") else "application/json"
    with pytest.raises(TooLarge):
        decode_changes(kind, body, lambda name: DEFINITION, Bounded())


def test_of_many_strange_columns_the_first_is_named() -> None:
    names = [f"strange{i}" for i in range(3000)]
    body = (",".join(["id", *names]) + "\n").encode() + b"1" + b"," * 3000 + b"\n"
    batch = decode_relation_changes("text/csv", body, "r", lambda name: DEFINITION, UNBOUNDED)
    assert batch.errors[0].column == "strange0"


@pytest.mark.parametrize("damage", [b"\xff" * 40, b"\x00" * 40, b"\x1c" * 40])
def test_damaged_pages_are_malformed(damage: bytes) -> None:
    body = bytearray(parquet(rows_of(pa.array(["a", "b"])), compression="none"))
    body[4:44] = damage
    with pytest.raises(MalformedBody):
        decode_relation_changes(PARQUET, bytes(body), "r", lambda name: DEFINITION, Bounded())
    with pytest.raises(MalformedBody):
        decode_relation_changes(PARQUET, b"PAR1" + struct.pack("<I", 2**31) + b"PAR1", "r", lambda name: DEFINITION, Bounded())
