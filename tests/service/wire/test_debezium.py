from __future__ import annotations

import base64
import datetime as dt
import gzip
from typing import Any

import orjson
import pytest

from livejoin.wire.batch import OP_NAMES, Batch
from livejoin.wire.debezium import DebeziumDecoder, decode_debezium
from livejoin.wire.errors import MalformedBody
from livejoin.wire.schema import RelationDefinition, parse_relation
from tests.datasets import definition, folder
from tests.relations import declared
from tests.service.wire.bookings import faults, rows

T = parse_relation(declared("id:int64, at:timestamp?, day:date?, name:string?, price:float64?"))
ROW = {"id": 1, "at": None, "day": None, "name": "x", "price": None}
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
MICROS = 1_767_268_800_000_000


def both(*sent: tuple[Any, Any], relation: RelationDefinition = T) -> Batch:
    """(key, value) as records and as lines, which must say the same."""
    keys = [None if key is None else orjson.dumps(key) for key, _ in sent]
    by_record = DebeziumDecoder("t", relation).decode(keys, [None if value is None else orjson.dumps(value) for _, value in sent])
    lines = b"\n".join(orjson.dumps(value if key is None else {"key": key, "value": value}) for key, value in sent)
    by_line = decode_debezium(lines, "t", lambda name: relation)
    assert str(rows(by_line)) == str(rows(by_record))
    assert (by_line.errors, by_line.error_count) == (by_record.errors, by_record.error_count)
    assert (by_line.sent, by_line.ignored) == (by_record.sent, by_record.ignored) == (len(sent), by_record.ignored)
    assert len(rows(by_line)) + by_line.ignored + by_line.error_count == len(sent)
    return by_line


def envelope(op: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"table": "t"}, "op": op, "ts_ms": 1, **more}


def test_ops() -> None:
    batch = both(
        (None, envelope("c", after=ROW)),
        (None, envelope("r", after={**ROW, "id": 2})),
        (None, envelope("u", before={**ROW, "id": 9}, after={**ROW, "id": 3})),
        (None, envelope("d", before={**ROW, "id": 4, "at": "made up", "day": "made up"})),
        (None, None),
        (None, envelope("m", message={"prefix": "p", "content": "Ymfy"})),
        (None, envelope("t")),
        ({"id": 5}, None),
    )
    want = [("upsert", 1), ("upsert", 2), ("upsert", 3), ("delete", 4), ("truncate", None), ("delete", 5)]
    assert [(op, row[0]) for _, op, row in rows(batch)] == want
    assert (batch.ignored, batch.errors) == (2, [])
    assert batch.changes[0].index.tolist() == [0, 1, 2, 3, 6, 7]


def _keyed(identifier: Any, form: str) -> Any:
    """A Kafka key in one of its forms; those of the last line cannot be read."""
    wrapping = {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}
    return {
        "bare": {"id": identifier},
        "wrapped": {"schema": wrapping, "payload": {"id": identifier}},
        "without its schema": {"schema": None, "payload": {"id": identifier}},
        "wider": {"tenant": 7, "id": identifier},
        "none": None, "scalar": identifier, "wrapped scalar": {"schema": {"type": "int32"}, "payload": identifier}, "null": {"id": None},
    }[form]  # fmt: skip


_FORMS = ["bare", "wrapped", "without its schema", "wider", "none", "scalar", "wrapped scalar", "null"]


@pytest.mark.parametrize("form", _FORMS)
def test_a_tombstone_deletes_by_its_key(form: str) -> None:
    """Whichever records the log still has of the row, bare or wrapped; directly after its delete it is ignored."""
    readable = _FORMS.index(form) < 4
    for wrap in (lambda value: value, lambda value: {"schema": {}, "payload": value}):
        insert, delete, null = (wrap(value) for value in (envelope("c", after=ROW), envelope("d", before={"id": 1}), None))
        for tombstone in (None, null):
            deleted = [("delete", 1)] if readable else []
            for before, after, skipped in (
                ([], [], 0),
                ([insert], [], 0),
                ([delete], [], 1),
                ([insert, delete], [], 1),
                ([], [insert], 0),
                ([], [delete], 0),
                ([delete], [insert, delete], 1),
                ([delete, envelope("m")], [], 1),
                ([delete, insert], [], 0),
                ([delete, envelope("t")], [], 0),
            ):
                sent = [*before, tombstone, *after]
                batch = both(*((_keyed(1, form), value) for value in sent))
                others = [
                    [(op, row[0]) for _, op, row in rows(both(*((_keyed(1, form), value) for value in part)))] for part in (before, after)
                ]
                assert [(op, row[0]) for _, op, row in rows(batch)] == [*others[0], *([] if skipped else deleted), *others[1]]
                assert batch.ignored == (skipped or not readable) + sum(value == envelope("m") for value in sent)


def test_a_tombstone_after_the_delete_of_another_row() -> None:
    batch = both((_keyed(1, "bare"), envelope("d")), (_keyed(2, "bare"), None), (_keyed(1, "bare"), None))
    assert ([row[0] for _, _, row in rows(batch)], batch.ignored) == ([1, 2, 1], 0)
    decoder = DebeziumDecoder("t", T)
    delete, key = orjson.dumps(envelope("d")), orjson.dumps(_keyed(1, "wrapped"))
    assert len(rows(decoder.decode([key], [delete]))) == 1
    assert (decoder.decode([key], [None]).ignored, decoder.decode([None], [orjson.dumps(envelope("t"))]).ignored) == (1, 0)
    assert [row[0] for _, _, row in rows(decoder.decode([key], [None]))] == [1]  # the delete is not the last change any more


@pytest.mark.parametrize("depth", [100, 400, 990])
def test_tombstones_with_keys_that_cannot_be_compared(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    line = b'{"key":{"id":%b},"value":{"op":"d","before":{"id":1}}}\n{"key":{"id":%b},"value":null}' % (deep, deep)
    assert decode_debezium(line, "t", lambda name: T).error_count > 0


def test_the_kafka_key_wins_in_a_delete() -> None:
    batch = both(
        ({"id": 1}, envelope("d", before={"id": 7})),
        ({"id": 1}, envelope("d")),
        ({"schema": {"type": "struct", "fields": []}, "payload": {"id": 2}}, envelope("d", before={"id": 7})),
        ({"other": 1}, envelope("d", before={"id": 3})),
        ("text", envelope("d", before={"id": 4})),
        (None, envelope("d", before={"id": 5})),
        ({"id": 9}, envelope("u", after=ROW)),
    )
    assert [(op, row[0]) for _, op, row in rows(batch)] == [("delete", i) for i in (1, 1, 2, 3, 4, 5)] + [("upsert", 1)]


@pytest.mark.parametrize(
    ("key", "before"), [(None, None), (None, {}), (None, {"id": None}), ({"other": 1}, None), ("x", 3), ({"id": None}, {"name": "x"})]
)
def test_a_delete_without_a_key(key: Any, before: Any) -> None:
    batch = both((None, envelope("c", after=ROW)), (key, envelope("d", before=before)))
    assert batch.errors == [(1, None, "no-key")]


def test_a_key_that_is_not_json() -> None:
    values = [orjson.dumps(envelope("d", before={"id": 3})), orjson.dumps(envelope("d"))]
    batch = DebeziumDecoder("t", T).decode([b"\x00\xff", b"\x00\xff"], values)
    assert [row[0] for _, _, row in rows(batch)] == [3]
    assert batch.errors == [(1, None, "no-key")]


def test_columns_that_the_relation_lacks_are_passed_over_and_absent_ones_null() -> None:
    batch = both((None, envelope("c", after={"id": 1, "name": "x", "added": [1]})), (None, envelope("c", after={"name": "x"})))
    assert rows(batch) == [("t", "upsert", (1, None, None, "x", None))]
    assert batch.errors == [(1, "id", "missing")]


def test_without_schemas_numbers_are_microseconds_and_days() -> None:
    batch = both(
        (None, envelope("c", after={"id": 1, "at": MICROS, "day": 20454})),
        (None, envelope("c", after={"id": 2, "at": "2026-01-01T12:00:00Z", "day": "2026-01-01"})),
    )
    assert [row[1:3] for _, _, row in rows(batch)] == [(NOON, dt.date(2026, 1, 1))] * 2


def wrapped(at: Any, at_type: str | None, day: Any = None, day_type: str | None = None, **more: Any) -> dict[str, Any]:
    fields = [
        {"type": "int32", "field": "id"},
        {"type": "int64", "field": "at", **({"name": at_type} if at_type else {})},
        {"type": "int32", "field": "day", **({"name": day_type} if day_type else {})},
        {"type": "bytes", "field": "price", "name": "org.apache.kafka.connect.data.Decimal"},
    ]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": field} for field in ("before", "after")]}
    return {"schema": schema, "payload": envelope("c", after={"id": 1, "at": at, "day": day, **more})}


@pytest.mark.parametrize(
    ("value", "semantic"),
    [
        (MICROS // 1000, "io.debezium.time.Timestamp"),
        (MICROS, "io.debezium.time.MicroTimestamp"),
        (MICROS * 1000, "io.debezium.time.NanoTimestamp"),
        (MICROS // 1000, "org.apache.kafka.connect.data.Timestamp"),
        ("2026-01-01T12:00:00Z", "io.debezium.time.ZonedTimestamp"),
        ("2026-01-01T12:00:00.000000000Z", "io.debezium.time.IsoTimestamp"),
        (MICROS, None),
        (MICROS, "who.knows"),
    ],
)
def test_semantic_types_of_timestamps(value: Any, semantic: str | None) -> None:
    batch = both((None, wrapped(value, semantic)), *[(None, wrapped(None, semantic))] * 10)
    assert rows(batch)[0][2][1] == NOON
    assert rows(batch)[1][2][1] is None


@pytest.mark.parametrize(
    ("value", "semantic"),
    [
        (20454, "io.debezium.time.Date"),
        (20454, "org.apache.kafka.connect.data.Date"),
        (20454, None),
        (20454 * 86_400_000, "io.debezium.time.Timestamp"),
        ("2026-01-01Z", "io.debezium.time.IsoDate"),
        ("2026-01-01T00:00:00Z", "io.debezium.time.IsoTimestamp"),
        ("2026-01-01", None),
    ],
)
def test_semantic_types_of_dates(value: Any, semantic: str | None) -> None:
    assert rows(both((None, wrapped(None, None, value, semantic))))[0][2][2] == dt.date(2026, 1, 1)


def test_a_date_in_a_timestamp_column() -> None:
    assert rows(both((None, wrapped(20454, "io.debezium.time.Date"))))[0][2][1] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_schemas_may_change_from_record_to_record() -> None:
    batch = both(
        (None, wrapped(MICROS // 1000, "io.debezium.time.Timestamp")),
        (None, wrapped(MICROS, "io.debezium.time.MicroTimestamp")),
        (None, envelope("c", after={"id": 1, "at": MICROS})),
        (None, wrapped(MICROS // 1000, "io.debezium.time.Timestamp")),
    )
    assert [row[1] for _, _, row in rows(batch)] == [NOON] * 4


def test_more_versions_of_a_schema_than_are_remembered() -> None:
    decoder = DebeziumDecoder("t", T)
    records = []
    for version in range(40):
        record = wrapped(MICROS // 1000, "io.debezium.time.Timestamp")
        record["schema"]["version"] = version
        records.append(orjson.dumps(record))
    batch = decoder.decode([None] * 80, records + records)
    assert [row[1] for _, _, row in rows(batch)] == [NOON] * 80


def test_a_known_wrapping_is_no_licence_for_garbage() -> None:
    good = orjson.dumps(wrapped(MICROS // 1000, "io.debezium.time.Timestamp"))
    cut = good.index(b'"payload":') + len(b'"payload":')
    values = [good, good[:-1], good + b"}", good[:cut] + b"null}", good[:cut] + b"1},}", good[:-1] + b',"more":1}', good[:-1] + b"]"]
    batch = DebeziumDecoder("t", T).decode([None] * len(values), values)
    assert batch.changes[0].index.tolist() == [0, 5]
    assert [row[1] for _, _, row in rows(batch)] == [NOON] * 2
    assert faults(batch) == [(1, None), (2, None), (4, None), (6, None)]
    assert batch.ignored == 1


def test_semantics_of_keys_are_the_keys_own() -> None:
    relation = parse_relation({"columns": [{"name": "at", "type": "timestamp"}], "key": ["at"]})
    fields = [{"type": "int64", "field": "at", "name": "io.debezium.time.Timestamp"}]
    key = {"schema": {"type": "struct", "fields": fields}, "payload": {"at": MICROS // 1000}}
    batch = both((key, envelope("d")), (None, envelope("d", before={"at": MICROS})), relation=relation)
    assert rows(batch) == [("t", "delete", (NOON,))] * 2


@pytest.mark.parametrize(
    ("value", "column", "says"),
    [
        (wrapped(1_001, "io.debezium.time.NanoTimestamp"), "at", "not a whole number of microseconds"),
        (wrapped(None, None, 1, "io.debezium.time.Timestamp"), "day", "not midnight"),
        (wrapped(None, None, 2**40, "io.debezium.time.Date"), "day", "out of range"),
        (wrapped(2**62, "io.debezium.time.Timestamp"), "at", "expected a timestamp"),
        (wrapped(None, None, price="A+g="), "price", "decimal.handling.mode"),
        (envelope("c", after={**ROW, "price": "A+g="}), "price", "expected a number"),
        (envelope("u", after={**ROW, "name": "__debezium_unavailable_value"}), "name", "REPLICA IDENTITY FULL"),
        (envelope("c", after={**ROW, "id": "1"}), "id", "expected a 64-bit integer"),
        (envelope("c"), None, '"after" is null'),
        (envelope("x", after=ROW), "op", "expected one of Debezium's"),
        (envelope("m")["source"], None, "not a Debezium envelope"),
        (ROW, None, "not a Debezium envelope"),
    ],
)
def test_bad_records(value: Any, column: str | None, says: str) -> None:
    for around in (1, 20):
        batch = both(*[(None, envelope("c", after=ROW))] * around, (None, value))
        assert faults(batch) == [(around, column)]
        assert says in batch.errors[0].reason


def test_a_decimal_as_a_number_is_one() -> None:
    assert rows(both((None, wrapped(None, None, price=1.5))))[0][2][4] == 1.5


NUMBERS = parse_relation(declared("id:int64, x:float64?, n:int64?, s:string?, ok:bool?"))
DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"


def decimals(values: dict[str, Any], scale: str | None, semantic: str = DECIMAL) -> dict[str, Any]:
    """A wrapped row of NUMBERS whose fields but the key are decimals."""
    parameters = {} if scale is None else {"parameters": {"scale": scale, "connect.decimal.precision": "10"}}
    fields = [
        {"type": "int64", "field": "id"},
        *({"type": "bytes", "field": name, "name": semantic, **parameters} for name in ("x", "n", "s", "ok")),
    ]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
    return {"schema": schema, "payload": envelope("c", after={"id": 1, **values})}


def encoded(unscaled: int) -> str:
    """As Java's BigInteger.toByteArray has it, in base64."""
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


@pytest.mark.parametrize(
    ("unscaled", "scale", "x", "s"),
    [
        (12345, "2", 123.45, "123.45"),
        (-1, "1", -0.1, "-0.1"),
        (0, "0", 0.0, "0"),
        (127, "0", 127.0, "127"),
        (-128, "0", -128.0, "-128"),
        (5, "-3", 5000.0, "5000"),
        (10**30 + 1, "30", 1.0, "1.000000000000000000000000000001"),
    ],
)
def test_decimals_are_read_from_their_bytes(unscaled: int, scale: str, x: float, s: str) -> None:
    """The first is the example of Connect's own documents; each also with a scale beside the value."""
    value = encoded(unscaled)
    variable = {"scale": int(scale), "value": value}
    for one in (decimals({"x": value, "s": value}, scale), decimals({"x": variable, "s": variable}, None, VARIABLE)):
        for around in (0, 20):
            batch = both(*[(None, decimals({}, scale))] * around, (None, one), relation=NUMBERS)
            assert rows(batch)[-1][2] == (1, x, None, s, None)


def test_truth_values_of_mysql() -> None:
    """BOOLEAN and TINYINT(1) are numbers there; only 0 and 1 are truth values."""
    for around in (0, 20):
        sent = [True, False, 1, 0, None, 2, -1, 1.0, "1", "true", []]
        good = [(None, envelope("c", after={"id": 1, "ok": False}))] * around
        batch = both(*good, *((None, envelope("c", after={"id": 1, "ok": value})) for value in sent), relation=NUMBERS)
        assert [row[4] for _, _, row in rows(batch)][around:] == [True, False, True, False, None]
        assert faults(batch) == [(around + at, "ok") for at in range(5, len(sent))]
        assert "got 2, expected true or false" in batch.errors[0].reason


def test_decimals_in_whole_numbers() -> None:
    sent = [(encoded(12300), "2"), (encoded(-7), "0"), (5.0, "2"), (5, "2"), (encoded(2**63), "0"), (encoded(12345), "2"), (5.5, "2")]
    batch = both(*((None, decimals({"n": value}, scale)) for value, scale in sent), relation=NUMBERS)
    assert [row[2] for _, _, row in rows(batch)] == [123, -7, 5, 5]
    assert faults(batch) == [(4, "n"), (5, "n"), (6, "n")]
    assert "got 123.45, expected a 64-bit integer" in batch.errors[1].reason


@pytest.mark.parametrize(
    ("values", "scale", "says"),
    [
        ({"x": "AQ=="}, None, "decimal.handling.mode"),
        ({"x": "AQ=="}, "1000000", "decimal.handling.mode"),
        ({"x": "AQ=="}, "much", "decimal.handling.mode"),
        ({"x": "no base64"}, "2", "decimal.handling.mode"),
        ({"x": ""}, "2", "decimal.handling.mode"),
        ({"x": "A" * 2_000}, "2", "decimal.handling.mode"),
        ({"x": {"scale": 2}}, "2", "expected a number"),
        ({"x": {"scale": 10**6, "value": "AQ=="}}, None, "decimal.handling.mode"),
        ({"x": {"scale": -400, "value": "AQ=="}}, None, "got 1e+400, which float64 cannot hold"),
        ({"x": []}, "2", "expected a number"),
        ({"ok": "AQ=="}, "0", "expected a bool"),
    ],
)
def test_decimals_that_are_none(values: dict[str, Any], scale: str | None, says: str) -> None:
    batch = both((None, decimals(values, scale)), relation=NUMBERS)
    assert says in batch.errors[0].reason


@pytest.mark.parametrize("name", ["Time", "MicroTime", "NanoTime", "Year", "MicroDuration", "ZonedTime"])
def test_a_time_of_day_is_no_timestamp_and_no_date(name: str) -> None:
    semantic = f"io.debezium.time.{name}"
    for around in (0, 20):
        nulls = [(None, wrapped(None, semantic, None, semantic))] * around
        batch = both(*nulls, (None, wrapped(1, semantic)), (None, wrapped(None, None, 1, semantic)))
        assert faults(batch) == [(around, "at"), (around + 1, "day")]
        assert f"got a {semantic}, expected a timestamp" in batch.errors[0].reason


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"fields": 1},
        {"fields": [1, {}, {"field": ["before"]}, {"field": "after"}]},
        {"fields": [{"field": "after", "fields": [{"field": ["id"], "name": "x"}, {"field": "at", "name": 3}, {"name": "x"}]}]},
        {"fields": [{"field": "after", "fields": [{"field": "price", "name": DECIMAL, "parameters": [1]}]}]},
        {"fields": [{"field": "after", "fields": {"field": "id"}}]},
    ],
)
def test_schemas_that_say_nothing(schema: Any) -> None:
    value = {"schema": schema, "payload": envelope("c", after={**ROW, "at": MICROS})}
    assert [row[1] for _, _, row in rows(both((None, value), (None, value)))] == [NOON] * 2


def test_columns_called_schema_and_payload() -> None:
    relation = parse_relation(
        {"columns": [{"name": "schema", "type": "string"}, {"name": "payload", "type": "int64"}], "key": ["schema", "payload"]}
    )
    key = {"schema": "a", "payload": 7}
    batch = both((key, envelope("d")), (None, envelope("c", after=key)), relation=relation)
    assert [(op, row) for _, op, row in rows(batch)] == [("delete", ("a", 7)), ("upsert", ("a", 7))]


@pytest.mark.parametrize("simple", [7, "7", [7], {"schema": {"type": "int32"}, "payload": 7}])
def test_a_key_that_is_no_struct_does_not_name_its_column(simple: Any) -> None:
    batch = both((simple, envelope("d", before={"id": 1})), (simple, envelope("d")))
    assert [(op, row[0]) for _, op, row in rows(batch)] == [("delete", 1)]
    assert batch.errors == [(1, None, "no-key")]


def test_a_wrapping_is_remembered_only_where_it_is_one() -> None:
    """Found by Hypothesis: a `schema` that is no object wraps nothing, for the second record either."""
    value = orjson.dumps({"schema": 1, "payload": envelope("c", after=ROW)})
    assert faults(DebeziumDecoder("t", T).decode([None] * 3, [value] * 3)) == [(0, None), (1, None), (2, None)]


@pytest.mark.parametrize(("value", "says"), [(b"{", "not JSON"), (b"[]", "a list"), (b"\xff", "not JSON"), (b"", "not JSON")])
def test_values_that_are_no_json_are_bad_records_but_malformed_lines(value: bytes, says: str) -> None:
    good = orjson.dumps(envelope("c", after=ROW))
    batch = DebeziumDecoder("t", T).decode([None, None], [good, value])
    assert faults(batch) == [(1, None)]
    assert says in batch.errors[0].reason
    if value:
        with pytest.raises(MalformedBody) as fault:
            decode_debezium(good + b"\n" + value, "t", lambda name: T)
        assert fault.value.line == 2


def test_the_samples_of_the_documents() -> None:
    """Each printed message is read as its row says; messages without a table are read as one of (pk, aa)."""
    lines = gzip.decompress((folder("debezium_samples") / "samples.jsonl.gz").read_bytes()).splitlines()
    seen = set()
    for sample in map(orjson.loads, lines):
        message, expect = sample["message"], sample["expect"]
        payload = message["payload"] if expect["has_schema"] else message
        struct = payload.get("after") or payload.get("before") or {}
        names = list(struct) or ["id"]
        kinds = {name: "int64" if type(value) is int else "string" for name, value in struct.items()}
        columns = [{"name": name, "type": kinds.get(name, "int64")} for name in names]
        relation = parse_relation({"columns": columns, "key": names[:1]})
        batch = both((None, message), relation=relation)
        seen.add(expect["op"])
        if expect["op"] == "m":
            assert (batch.ignored, rows(batch)) == (1, [])
            continue
        ((_, op, row),) = rows(batch)
        if expect["op"] == "t":
            assert (op, set(row)) == ("truncate", {None})
        elif expect["op"] == "d":
            assert (op, row[0]) == ("delete", payload["before"][names[0]])
        else:
            assert (op, row) == ("upsert", tuple(payload["after"].values()))
    assert seen == {"c", "u", "d", "t", "m", "r"}


@pytest.mark.parametrize("variant", ["cdc", "cdc_default_identity", "cdc_redelivered"])
def test_a_whole_stream_leaves_the_rows_that_it_should(variant: str) -> None:
    """The congress stream, applied by key: as many rows live as the data set says."""
    expect = orjson.loads((folder("congress") / "cdc.expected.json").read_bytes())
    records = list(map(orjson.loads, gzip.decompress((folder("congress") / f"{variant}.jsonl.gz").read_bytes()).splitlines()))
    by_table: dict[str, list[Any]] = {}
    for record in records:
        by_table.setdefault(record["topic"].rpartition(".")[2], []).append(record)
    for table, own in by_table.items():
        batch = decode_debezium(b"\n".join(map(orjson.dumps, own)), table, lambda name: parse_relation(definition("congress", name)))
        assert batch.errors == []
        assert batch.ignored == sum(record["value"] is None for record in own)  # each tombstone comes right after its delete
        live: dict[int, Any] = {}
        for part in batch.changes:
            for op, row in zip(part.ops.tolist(), part.rows.arrow.to_pylist(), strict=True):
                if OP_NAMES[op] == "delete":
                    live.pop(row["id"], None)
                else:
                    live[row["id"]] = row
        assert len(live) == expect["checkpoints"][-1]["live"][table]


def test_a_schema_nested_too_deeply_to_be_compared() -> None:
    """No record raises."""
    deep = b"[" * 1015 + b"]" * 1015
    record = b'{"schema":{"fields":%b},"payload":{"op":"c","after":{"id":1}}}' % deep
    assert len(rows(DebeziumDecoder("t", T).decode([None, None], [record, record]))) == 2
