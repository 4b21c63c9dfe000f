"""Every source of rows against the naive twin: the same good rows, the same bad rows, the same column to blame."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livejoin.wire.batch import OP_NAMES, Batch
from livejoin.wire.debezium import DebeziumDecoder
from livejoin.wire.decode import decode_changes, decode_relation_changes
from livejoin.wire.grammar import timestamp_text
from livejoin.wire.kinds import KEPT_TYPES
from livejoin.wire.schema import RelationDefinition, parse_relation
from tests.service.wire import twin

MIN, MAX = -(2**63), 2**63 - 1
INTS = st.sampled_from([MIN, MIN + 1, MIN + 2, MIN + 3, -1, 0, 1, 2, 3, MAX - 3, MAX - 2, MAX - 1, MAX]) | st.integers(-3, 3)
FLOATS = st.sampled_from([-1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.7976931348623157e308, "NaN", "Infinity", "-Infinity"])
DATES = st.sampled_from(["0001-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"])
STAMPS = st.sampled_from(["2026-01-01T12:00:00Z", "2026-01-01 12:00:00.5+02:00", "1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z"])
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "int64": INTS,
    "float64": FLOATS | st.integers(-2, 2),
    "timestamp": STAMPS | INTS,
    "date": DATES,
    "string": st.sampled_from(["", "a", 'quo"te', "two\nlines", "é,\\"]),
    "bool": st.booleans(),
}
STRANGE = st.sampled_from(
    [True, 1.5, MAX + 1, "x", "2026-02-30", "2026-01-01", "2026-01-01T12:00:00", "2026-13-01T00:00:00Z", "", [1], {"a": 1}, "NaN", 0]
)
OPS = st.sampled_from(["upsert", "insert", "upsert", "delete", "truncate"])


@st.composite
def definitions(draw: st.DrawFn) -> RelationDefinition:
    kinds = draw(st.lists(st.sampled_from(sorted(GOOD)), min_size=1, max_size=4))
    end_type = draw(st.sampled_from(["int64", "float64", "timestamp", "date"]))
    columns = [{"name": f"c{at}", "type": kind, "nullable": at > 0 and draw(st.booleans())} for at, kind in enumerate(kinds)]
    columns += [{"name": name, "type": end_type, "nullable": draw(st.booleans())} for name in ("s", "e")]
    bounds = draw(st.sampled_from(["[)", "[]", "(]", "()"]))
    intervals: dict[str, Any] = {"i": {"start": "s", "end": "e", "bounds": bounds}}
    if draw(st.booleans()):
        intervals["p"] = {"at": "s"}
    return parse_relation({"columns": columns, "key": ["c0"], "intervals": intervals})


@st.composite
def changes(draw: st.DrawFn, definition: RelationDefinition, strange: bool) -> list[tuple[str, dict[str, Any]]]:
    """Changes as (op, row). `strange`: any JSON value anywhere, absent and unknown columns."""
    result = []
    for _ in range(draw(st.sampled_from([1, 2, 8, 9, 12]))):
        row: dict[str, Any] = {}
        for column in definition.columns:
            value = GOOD[column.type]
            if column.nullable or strange:
                value = value | st.none()
            row[column.name] = draw(value | STRANGE if strange else value)
            if strange and draw(st.integers(0, 15)) == 0:
                del row[column.name]
        if strange and draw(st.integers(0, 15)) == 0:
            row["unknown"] = 1
        result.append((draw(OPS), row))
    return result


def expected(definition: RelationDefinition, sent: list[tuple[str, dict[str, Any]]]) -> tuple[list[Any], list[tuple[int, str]]]:
    good, bad = [], []
    for index, (op, row) in enumerate(sent):
        try:
            good.append((index, op, twin.validate(definition, op, row)))
        except twin.Bad as fault:
            bad.append((index, fault.args[0]))
    return good, bad


def physical(batch: Batch) -> list[Any]:
    """The good rows as (index, op, physical values)."""
    result = []
    for part in batch.changes:
        part.rows.arrow.validate(full=True)
        columns = []
        for column in part.rows.arrow.columns:
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            elif pa.types.is_date32(column.type):
                column = column.cast(pa.int32())
            columns.append(column.to_pylist())
        for at, (index, op) in enumerate(zip(part.index.tolist(), part.ops.tolist(), strict=True)):
            result.append((index, OP_NAMES[op], [column[at] for column in columns]))
    return result


def same(left: Any, right: Any) -> bool:
    """Equal to the bit: NaN is NaN, and -0.0 is not 0.0."""
    return repr(left) == repr(right)


def check(batch: Batch, definition: RelationDefinition, sent: list[tuple[str, dict[str, Any]]]) -> None:
    good, bad = expected(definition, sent)
    assert [(error.index, error.column) for error in batch.errors] == bad
    assert all(error.reason for error in batch.errors)
    assert batch.error_count == len(bad)
    assert batch.sent == len(sent)
    assert same(physical(batch), good)
    for part in batch.changes:
        assert part.rows.arrow.schema == definition.arrow_schema()


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_json(data: st.DataObject) -> None:
    definition = data.draw(definitions())
    sent = data.draw(changes(definition, strange=True))
    body = orjson.dumps({"changes": [{"relation": "r", "op": op, "row": row} for op, row in sent]})
    check(decode_changes("application/json", body, lambda name: definition), definition, sent)
    lines = b"\n".join(orjson.dumps({**row, "_op": op}) for op, row in sent)
    check(decode_relation_changes("application/jsonl", lines, "r", lambda name: definition), definition, sent)


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_debezium(data: st.DataObject) -> None:
    definition = data.draw(definitions())
    sent = data.draw(changes(definition, strange=True))
    names = [column.name for column in definition.columns]
    records, rows = [], []
    for op, row in sent:
        row = {name: row[name] for name in names if name in row}
        if any(column.type == "date" and type(row.get(column.name)) is int for column in definition.columns):
            row = {}  # Debezium's dates may be numbers; the twin's may not
        if op == "delete" and row.get("c0") is None:
            op = "upsert"
        rows.append((op, row))
        code = {"upsert": "u", "insert": "c", "delete": "d", "truncate": "t"}[op]
        before_or_after = {"before": row if code == "d" else None, "after": row if code in "uc" else None, "op": code}
        records.append(orjson.dumps(before_or_after))
    rows = [("upsert" if op == "insert" else op, row) for op, row in rows]
    check(DebeziumDecoder("r", definition).decode([None] * len(records), records), definition, rows)


def arrow_table(definition: RelationDefinition, sent: list[tuple[str, dict[str, Any]]]) -> pa.RecordBatch:
    arrays = [pa.array([op for op, _ in sent], pa.utf8())]
    for column in definition.columns:
        values = [row[column.name] for _, row in sent]
        readable = [None if value is None else twin.read(column.type, value) for value in values]
        arrays.append(pa.array(readable, KEPT_TYPES[column.type]))
    return pa.RecordBatch.from_arrays(arrays, names=["_op", *(column.name for column in definition.columns)])


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_arrow(data: st.DataObject) -> None:
    definition = data.draw(definitions())
    sent = data.draw(changes(definition, strange=False))
    sink = io.BytesIO()
    cut = data.draw(st.integers(0, len(sent)))
    for part in (sent[:cut], sent[cut:]):
        table = arrow_table(definition, part).replace_schema_metadata({"livejoin.relation": "r"})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_batch(table)
    check(decode_changes("application/vnd.apache.arrow.stream", sink.getvalue(), lambda name: definition), definition, sent)


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_csv(data: st.DataObject) -> None:
    definition = data.draw(definitions())
    sent = data.draw(changes(definition, strange=False))
    nullable_texts = [column.name for column in definition.columns if column.type == "string" and column.nullable]
    for _, row in sent:
        for name in nullable_texts:
            row[name] = row[name] or None  # Python's writer does not quote the empty text: it reads as null
    text = io.StringIO()
    writer = csv.writer(text)
    names = [column.name for column in definition.columns]
    writer.writerow([*names, "_op"])
    for op, row in sent:
        fields = [str(row[name]).lower() if isinstance(row[name], bool) else row[name] for name in names]
        times = [column.type == "timestamp" and isinstance(row[column.name], int) for column in definition.columns]
        fields = [timestamp_text(field) if is_time else field for field, is_time in zip(fields, times, strict=True)]
        writer.writerow([*fields, "" if op == "upsert" else op])
    check(decode_relation_changes("text/csv", text.getvalue().encode(), "r", lambda name: definition), definition, sent)


def test_of_many_bad_rows_the_first_hundred_are_listed() -> None:
    definition = parse_relation({"columns": [{"name": "id", "type": "int64"}, {"name": "t", "type": "string"}], "key": ["id"]})
    ids = np.arange(1000)
    rows = [{"id": int(i), "t": None if i % 2 else "x"} if i % 3 else {"id": "x", "t": None} for i in ids]
    rows[5] = {"id": 1, "t": "x", "more": 1}
    body = b"\n".join(map(orjson.dumps, rows))
    batch = decode_relation_changes("application/jsonl", body, "r", lambda name: definition)
    bad = [i for i in range(1000) if i == 5 or i % 3 == 0 or i % 2 == 1]
    assert batch.error_count == len(bad)
    assert [error.index for error in batch.errors] == bad[:100]
    assert batch.changes[0].index.tolist() == sorted(set(range(1000)) - set(bad))
    assert {error.index: error.column for error in batch.errors}[5] == "more"


@pytest.mark.parametrize("bounds", ["[)", "[]", "(]", "()"])
@pytest.mark.parametrize("kind", ["int64", "float64", "timestamp"])
@pytest.mark.parametrize("op", ["upsert", "delete"])
def test_every_pair_of_endpoints_at_the_edges(bounds: str, kind: str, op: str) -> None:
    """Endpoints that are the key, too: a delete by them is not judged as an interval."""
    near = [-2, -1, 0, 1, 2]
    if kind == "float64":
        ends = [-5e-324 * 2, -5e-324, -0.0, 0.0, 5e-324, 5e-324 * 2, 1.0, 1.7976931348623157e308, -1.7976931348623157e308]
    else:
        ends = [MIN + n for n in range(5)] + near + [MAX - n for n in range(5)]
    keyed = op == "delete"
    definition = parse_relation(
        {
            "columns": [{"name": "id", "type": "int64"}, *({"name": name, "type": kind, "nullable": not keyed} for name in "se")],
            "key": ["s", "e"] if keyed else ["id"],
            "intervals": {"i": {"start": "s", "end": "e", "bounds": bounds}},
        }
    )
    open_too = ends if keyed else [*ends, None]
    sent = [(op, {"id": 1, "s": start, "e": end}) for start in open_too for end in open_too]
    good, bad = expected(definition, sent)
    assert bool(bad) == (op == "upsert")
    body = b"\n".join(orjson.dumps({**row, "_op": op}) for op, row in sent)
    batch = decode_relation_changes("application/jsonl", body, "r", lambda name: definition)
    assert same(physical(batch), good)
    assert [(error.index, error.column) for error in batch.errors] == bad[:100]
    for change in sent:  # one by one: judged without NumPy
        line = orjson.dumps({**change[1], "_op": op})
        check(decode_relation_changes("application/jsonl", line, "r", lambda name: definition), definition, [change])
