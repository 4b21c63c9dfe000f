from __future__ import annotations

import datetime as dt
import io
import struct
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from livejoin.wire.batch import batch_to_arrow
from livejoin.wire.errors import MalformedBody, UnknownRelation
from tests.service.wire.bookings import BOOKINGS, changes, faults, relation_changes, rows

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
STAMP = pa.timestamp("us", "UTC")
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def table(**columns: Any) -> pa.Table:
    given = {"id": pa.array([1, 2]), "room": pa.array(["A", "B"]), "starts": pa.array([NOON, NOON], STAMP), **columns}
    return pa.table({name: column for name, column in given.items() if column is not None})


def stream(rows_of: pa.Table, relation: str | None = "bookings") -> bytes:
    rows_of = rows_of.replace_schema_metadata({"livejoin.relation": relation} if relation else None)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows_of.schema) as writer:
        writer.write_table(rows_of, max_chunksize=1)
    return sink.getvalue()


def parquet(rows_of: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows_of, sink)
    return sink.getvalue()


@pytest.mark.parametrize("name", ["id", "room", "_op", "unused"])
def test_a_column_that_appears_twice(name: str) -> None:
    more = [pa.array(["upsert", "upsert"])] * 2
    names = [*table().column_names, name, *([] if name in table().column_names else [name])]
    twice = pa.Table.from_arrays([*table().columns, *more[: len(names) - 3]], names=names)
    for kind, body in ((ARROW, stream(twice)), (PARQUET, parquet(twice))):
        with pytest.raises(MalformedBody, match=f"the column '{name}' appears twice"):
            relation_changes(kind, body)


def test_streams_one_after_the_other_keep_their_order() -> None:
    day = pa.table({"k": [1.0], "day": pa.array([dt.date(2026, 1, 1)])})
    body = stream(table()) + stream(day, "values") + stream(table(id=pa.array([3, None]), _op=pa.array(["delete", "insert"])))
    batch = changes(ARROW, body)
    assert [(part.relation, part.index.tolist(), part.ops.tolist()) for part in batch.changes] == [
        ("bookings", [0, 1, 3], [1, 1, 2]),
        ("values", [2], [1]),
    ]
    assert batch.changes[0].rows.arrow.column("id").to_pylist() == [1, 2, 3]
    assert batch.changes[0].rows.arrow.column("room").to_pylist() == ["A", "B", None]
    assert (batch.sent, faults(batch)) == (5, [(4, "id")])


@pytest.mark.parametrize(
    "column",
    [
        {"id": pa.array([1, 2], pa.int32())},
        {"id": pa.array([1, 2], pa.uint64())},
        {"id": pa.array([1, 2], pa.int8()).dictionary_encode()},
        {"room": pa.array(["A", "B"], pa.large_utf8())},
        {"room": pa.array(["A", "B"], pa.string_view())},
        {"room": pa.array(["A", "B"]).dictionary_encode()},
        {"starts": pa.array([NOON, NOON], pa.timestamp("s", "UTC"))},
        {"starts": pa.array([NOON, NOON], pa.timestamp("ns", "Europe/Paris"))},
        {"starts": pa.array([NOON, NOON], STAMP).cast(pa.timestamp("us", "Nobody/Knows"))},
        {"note": pa.nulls(2)},
        {"note": pa.array([None, None], pa.large_utf8()), "ends": pa.nulls(2)},
        {"_op": pa.array(["upsert", None]).dictionary_encode()},
        {"_op": pa.nulls(2)},
    ],
    ids=lambda column: " ".join(f"{name} {array.type}" for name, array in column.items()),
)
def test_types_that_lose_nothing(column: dict[str, pa.Array]) -> None:
    expected = [("bookings", "upsert", (1, "A", NOON, None, None)), ("bookings", "upsert", (2, "B", NOON, None, None))]
    batch = changes(ARROW, stream(table(**column)))
    assert rows(batch) == expected
    assert batch.changes[0].rows.arrow.schema == BOOKINGS.arrow_schema()
    if "string_view" not in str(column):
        assert rows(relation_changes(PARQUET, parquet(table(**column)))) == expected
    deletes = changes(ARROW, stream(table(**{**column, "_op": pa.array(["delete", "upsert"])})))
    assert rows(deletes) == [("bookings", "delete", (1, None, None, None, None)), expected[1]]


@pytest.mark.parametrize(
    ("name", "array", "says"),
    [
        ("id", pa.array([1.0, 2.0]), "double"),
        ("id", pa.array(["1", "2"]), "string"),
        ("room", pa.array([1, 2]), "int64"),
        ("room", pa.array([b"A", b"B"]), "binary"),
        ("starts", pa.array([1, 2], pa.timestamp("us")), "without a time zone"),
        ("starts", pa.array([1, 2]), "int64"),
        ("starts", pa.array([1, 2], pa.date32()), "date32"),
        ("_op", pa.array([1, 2]), "text"),
        ("_op", pa.array([[1], [2]]), "text"),
    ],
)
def test_types_that_cannot_be_read_are_a_malformed_body(name: str, array: pa.Array, says: str) -> None:
    for post in (lambda t: changes(ARROW, stream(t)), lambda t: relation_changes(PARQUET, parquet(t))):
        with pytest.raises(MalformedBody) as fault:
            post(table(**{name: array}))
        assert repr(name) in fault.value.detail
        assert says in fault.value.detail


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("id", pa.array([1, 2**63], pa.uint64())),
        ("starts", pa.array([1_000, 1_001], pa.timestamp("ns", "UTC"))),
        ("starts", pa.array([1, 2**62], pa.timestamp("s", "UTC"))),
        ("starts", pa.array([1, None], STAMP)),
        ("id", pa.array([1, None])),
        ("colour", None),
    ],
)
def test_values_that_do_not_fit_make_their_row_bad(name: str, array: pa.Array | None) -> None:
    if array is None:
        assert faults(changes(ARROW, stream(table(colour=pa.array([1, 2]))))) == [(0, "colour"), (1, "colour")]
        return
    batch = changes(ARROW, stream(table(**{name: array})))
    assert faults(batch) == [(1, name)]
    assert len(rows(batch)) == 1
    unread = changes(ARROW, stream(table(**{name: array}, _op=pa.array(["upsert", "truncate"]))))
    assert faults(unread) == []


def test_dates_and_floats() -> None:
    day = pa.array([86_400_000, -86_400_000], pa.date64())
    values = pa.table({"k": pa.array([1, 2**53 + 1]), "day": day, "x": pa.array([1.5, 2], pa.float16())})
    assert rows(changes(ARROW, stream(values, "values"))) == [
        ("values", "upsert", (1.0, dt.date(1970, 1, 2), 1.5, None)),
        ("values", "upsert", (2.0**53, dt.date(1969, 12, 31), 2.0, None)),
    ]


def test_a_missing_column() -> None:
    assert faults(changes(ARROW, stream(table(room=None)))) == [(0, "room"), (1, "room")]
    assert changes(ARROW, stream(table(room=None))).errors[0].reason == "missing"
    only_key = pa.table({"id": [1, 2], "_op": ["delete", "delete"]})
    assert [op for _, op, _ in rows(changes(ARROW, stream(only_key)))] == ["delete", "delete"]
    assert faults(changes(ARROW, stream(pa.table({"_op": ["delete", "truncate"]})))) == [(0, "id")]


def test_malformed_bodies() -> None:
    good = stream(table())
    for body in (b"garbage", good[:-60], good[:100], good + b"garbage after", parquet(table()), stream(table(), None)):
        with pytest.raises(MalformedBody):
            changes(ARROW, body)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([1])], names=["id", "id"])
    with pytest.raises(MalformedBody, match="twice"):
        changes(ARROW, stream(twice))
    for body in (b"", b"PAR1", good, parquet(table())[:-10]):
        with pytest.raises(MalformedBody):
            relation_changes(PARQUET, body)
    with pytest.raises(UnknownRelation):
        changes(ARROW, good + stream(table(), "rooms"))


def test_a_footer_that_contradicts_itself_is_refused() -> None:
    """Statistics of a nullable column, which the schema says is none: Arrow's own accessors of column chunks end the process."""
    rows = pa.table({"id": [1, 2], "ends": pa.array([None, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))})
    optional, required = (repetition + b"\x18\x04ends" for repetition in (b"%\x02", b"%\x00"))
    body = parquet(rows)
    assert body.count(optional) == 1
    with pytest.raises(MalformedBody, match="histogram"):
        relation_changes(PARQUET, body.replace(optional, required))
    at = body.rindex(b"\x19\x18\x04ends")  # the path of its chunk, before what follows from the footer
    with pytest.raises(MalformedBody):
        relation_changes(PARQUET, body[:at] + b"\xf9" + body[at + 1 :])


def test_what_comes_from_outside_is_validated_in_full() -> None:
    body = stream(table(room=pa.array(["wwww", "zzzz"])))
    assert body.count(b"wwww") == 1
    with pytest.raises(MalformedBody, match="UTF8"):
        changes(ARROW, body.replace(b"wwww", b"\xff\xff\xff\xff"))
    offsets = bytes(4) + (4).to_bytes(4, "little") + b"wwww"
    assert body.count(offsets) == 1
    with pytest.raises(MalformedBody):
        changes(ARROW, body.replace(offsets, bytes(4) + (10**6).to_bytes(4, "little") + offsets[8:]))


@pytest.mark.parametrize("junk", [(-(2**31), 0), (2**31 - 1, 2**31 - 1), (40, 2**30), (5, 0)])
def test_views_of_nulls_that_point_anywhere(junk: tuple[int, int]) -> None:
    """Arrow's validation passes over them, and its casts follow them: the process would end."""
    texts = ["short", None, "longer than twelve bytes"]
    validity, views, *data = pa.array(texts, pa.string_view()).buffers()
    forged = bytearray(views.to_pybytes())
    struct.pack_into("<iiii", forged, 16, junk[0], 0, 0, junk[1])
    array = pa.Array.from_buffers(pa.string_view(), 3, [validity, pa.py_buffer(bytes(forged)), *data])
    array.validate(full=True)
    for ops in (None, pa.array(["upsert", "delete", "upsert"])):
        columns = {"id": pa.array([1, 2, 3]), "starts": pa.array([NOON] * 3, STAMP), "note": array, "room": pa.array(["A"] * 3)}
        body = stream(pa.table(columns if ops is None else columns | {"_op": ops}))
        assert [row[2][-1] for row in rows(relation_changes(ARROW, body))] == texts
    for column in (array, pa.DictionaryArray.from_arrays(pa.array([0, None, 2], pa.int8()), array)):
        with pytest.raises(MalformedBody) if column is not array else nullcontext():
            relation_changes(ARROW, stream(table(id=pa.array([1, 2, 3]), starts=pa.array([NOON] * 3, STAMP), room=column)))
    assert relation_changes(ARROW, stream(pa.table(columns).slice(0, 0))).sent == 0


def test_a_type_that_python_does_not_know() -> None:
    """Arrow's intervals of months."""
    body = stream(table(room=pa.array([(1, 2, 3), None], pa.month_day_nano_interval())))
    unit = struct.pack("<h", 2)  # of the interval in the schema's message
    schema_size = int.from_bytes(body[4:8], "little")
    forged = [body[:at] + bytes(2) + body[at + 2 :] for at in range(8, schema_size + 8) if body[at : at + 2] == unit]
    for changed in forged:
        with pytest.raises(MalformedBody):
            relation_changes(ARROW, changed)


def test_no_rows() -> None:
    assert changes(ARROW, b"").sent == 0
    assert changes(ARROW, stream(table().slice(0, 0))).changes == []
    assert relation_changes(PARQUET, parquet(table().slice(0, 0))).sent == 0


def test_what_a_relation_stream_says_of_itself_is_not_looked_at() -> None:
    assert len(rows(relation_changes(ARROW, stream(table(), "rooms") + stream(table(), None)))) == 4


def test_a_batch_travels_on_as_arrow() -> None:
    lines = [
        b'{"relation": "bookings", "op": "insert", "row": {"id": 1, "room": "A", "starts": 0, "note": ""}}',
        b'{"relation": "values", "op": "truncate"}',
        b'{"relation": "bookings", "op": "delete", "key": {"id": 2}}',
        b'{"relation": "values", "row": {"k": 1, "day": "2026-01-01", "x": "Infinity", "ok": false}}',
    ]
    batch = changes("application/jsonl", b"\n".join(lines))
    assert rows(changes(ARROW, batch_to_arrow(batch))) == rows(batch)
    assert len(rows(batch)) == 4
    sliced = changes("application/jsonl", b"\n".join(lines[:1] + [b'{"relation": "bookings", "row": {}}'] + lines[2:]))
    assert rows(changes(ARROW, batch_to_arrow(sliced))) == rows(sliced)


@pytest.mark.parametrize("names", [["insert", "upsert", "delete", "truncate"], ["delete", "upsert"], ["upsert", "delete", "nonsense"]])
def test_ops_over_any_dictionary(names: list[str]) -> None:
    """The codes of a dictionary are ours only if the whole dictionary is."""
    rows_of = table(id=pa.array([1, 2, 3]), room=pa.array(["A", "B", "C"]), starts=pa.array([NOON] * 3, STAMP))
    for ops in (["upsert", "delete", None], ["upsert", "delete", "upsert"]):
        indices = pa.array([None if op is None else names.index(op) for op in ops], pa.int8())
        coded = rows_of.append_column("_op", pa.DictionaryArray.from_arrays(indices, pa.array(names)))
        assert rows(changes(ARROW, stream(coded))) == rows(changes(ARROW, stream(rows_of.append_column("_op", pa.array(ops)))))
    if "nonsense" in names:
        coded = rows_of.append_column("_op", pa.array(["upsert", "nonsense", "delete"]).dictionary_encode())
        assert faults(changes(ARROW, stream(coded))) == [(1, "_op")]


def _parquet(rows_of: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows_of, sink, store_schema=False)
    return sink.getvalue()


def test_names_that_are_not_text() -> None:
    """Of a column, and of a time zone: Arrow's own validation does not look at them."""
    for kind, body in ((ARROW, stream(table(sone=pa.array([1, 2])))), (PARQUET, _parquet(table(sone=pa.array([1, 2]))))):
        with pytest.raises(MalformedBody, match="name is not UTF-8"):
            relation_changes(kind, body.replace(b"sone", b"\xff\xfene"))
    zoned = stream(table(starts=pa.array([NOON, NOON], pa.timestamp("us", "Europe/Berlin"))))
    with pytest.raises(MalformedBody, match="cannot be read"):
        relation_changes(ARROW, zoned.replace(b"Europe/Berlin", b"\xff\xfe\xfe\xfepe/Berlin"))


def test_nothing_is_unpickled() -> None:
    """An extension type of old versions of Arrow, which unpickled what the stream brought."""
    pickled = b"cposix\nsystem\n(S'touch livejoin-was-here'\ntR."
    field = pa.field("room", pa.utf8(), metadata={"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled})
    rows_of = pa.Table.from_arrays([pa.array([1]), pa.array(["A"]), pa.array([NOON], STAMP)], schema=pa.schema(
        [pa.field("id", pa.int64()), field, pa.field("starts", STAMP)]
    ))  # fmt: skip
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows_of.schema) as writer:
        writer.write_table(rows_of)
    assert pickled in sink.getvalue()
    try:
        assert rows(relation_changes(ARROW, sink.getvalue())) == [("bookings", "upsert", (1, "A", NOON, None, None))]
    except MalformedBody:
        pass  # refusing it is as good
    assert not Path("livejoin-was-here").exists()
