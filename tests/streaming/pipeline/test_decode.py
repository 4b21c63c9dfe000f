"""Decoding a topic: every shape of record, in order, and the whole against each record alone."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any, Literal

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from livejoin.wire.batch import OP_NAMES
from livejoin.wire.schema import RelationDefinition, parse_relation
from streaming.config import Topic
from streaming.pipeline import decode as decode_module
from streaming.pipeline.columns import GONE, Columns
from streaming.pipeline.decode import BadRecord, DecodedTopic, Decoder, KeyPlaces, decode_topic, decoder_for, in_order
from tests.datasets import debezium, definition, expected, samples
from tests.relations import declared

ROOMS = parse_relation(declared("id:int64, room:string?, starts:timestamp, ends:timestamp?, price:float64?", stay="starts ends"))
Record = tuple[bytes | None, bytes | None]


def as_bytes(data: Any) -> bytes | None:
    return data if data is None or isinstance(data, bytes) else orjson.dumps(data)


def table(records: Sequence[tuple[Any, Any]], partitions: Sequence[int] | None = None, chunk: int = 7) -> pa.Table:
    """(key, value) as Spark hands them over, in chunks; offsets count from 0 in each partition."""
    partitions = partitions or [0] * len(records)
    seen: dict[int, int] = {}
    offsets = []
    for partition in partitions:
        offsets.append(seen.get(partition, 0))
        seen[partition] = offsets[-1] + 1
    columns = {
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "key": pa.array([as_bytes(key) for key, _ in records], pa.binary()),
        "value": pa.array([as_bytes(value) for _, value in records], pa.binary()),
    }
    return pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=chunk), pa.table(columns).schema)


def decode(
    records: pa.Table, relation: RelationDefinition = ROOMS, form: Literal["debezium", "json"] = "debezium", most_bad: int = 10**6
) -> DecodedTopic:
    return decode_topic(decoder_of(form, relation), "t", in_order(records), most_bad)


def decoder_of(form: Literal["debezium", "json"], relation: RelationDefinition = ROOMS) -> Decoder:
    return decoder_for(Topic(name="t", relation="rooms", format=form), relation)


def emitted(decoded: DecodedTopic) -> list[tuple[str, tuple[Any, ...]]]:
    """The changes as (op, values); timestamps as numbers, for Python has no year 10000."""
    changes: list[tuple[str, tuple[Any, ...]]] = []
    for part in decoded.changes:
        columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in part.rows.arrow.columns]
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        changes += zip((OP_NAMES[op] for op in part.ops.tolist()), rows, strict=True)
    return changes


def ids(decoded: DecodedTopic) -> list[tuple[str, Any]]:
    return [(op, values[0]) for op, values in emitted(decoded)]


def row(number: Any, **more: Any) -> dict[str, Any]:
    return {"id": number, "room": "A", "starts": 1_000, "ends": None, "price": 1.5, **more}


def envelope(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    source = {"connector": "postgresql", "snapshot": "false", "db": "pms", "table": "rooms", "lsn": 7, "xmin": None}
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1}


def schema_of(ends: str) -> dict[str, Any]:
    """An envelope's schema, `ends` of this semantic type."""
    fields = [
        {"type": "int64", "field": "id"},
        {"type": "int64", "field": "ends", "name": ends},
        {"type": "bytes", "field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    ]
    return {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": field} for field in ("before", "after")]}


SCHEMAS = [schema_of(f"io.debezium.time.{name}") for name in ("MicroTimestamp", "Timestamp", "Time", "NanoTimestamp")]
KEY_SCHEMA = {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}


# -- the whole is what each record is alone

VALUES = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**63 - 1, 2**63, 2**70, -(2**63), 1.0, 1.5, float("nan"), "NaN", "x", "AJY=", "A+g=", True, None, [], {}]),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01", "__debezium_unavailable_value"]),
)
ROWS = st.one_of(
    st.builds(row, st.integers(0, 5)),
    st.dictionaries(st.sampled_from([*ROOMS.to_json()["key"], "room", "starts", "ends", "price", "added"]), VALUES),
    st.builds(lambda more: row(1, **more), st.dictionaries(st.sampled_from(["room", "starts", "ends", "price"]), VALUES, max_size=2)),
    VALUES,
)
ENVELOPES = st.one_of(
    st.builds(envelope, st.sampled_from(["c", "r", "u"]), st.none(), ROWS),
    st.builds(envelope, st.just("d"), ROWS),
    st.builds(envelope, st.sampled_from(["t", "m", "x", "", None, 1, [], {}])),
    st.sampled_from([{"ts_ms": 1}, {"status": "END", "id": "1", "event_count": 2, "data_collections": []}, {"op": "c"}, row(1)]),
    VALUES,
)
PAYLOADS = st.one_of(
    ENVELOPES,
    st.builds(lambda schema, payload: {"schema": schema, "payload": payload}, st.sampled_from([*SCHEMAS, {}, None, 1]), ENVELOPES),
)
TEXTS = st.builds(
    lambda payload, compact: json.dumps(payload, **({"separators": (",", ":")} if compact else {"indent": 1})).encode(),
    PAYLOADS,
    st.booleans(),
)
DAMAGED = st.builds(lambda text, at, put: text[:at] + put + text[at:], TEXTS, st.integers(-3, 3), st.sampled_from([b"}", b",", b"1", b" "]))
RAW = st.one_of(
    st.none(),
    st.sampled_from(
        [b"", b" ", b"null", b"1,2", b"{}],[{}", b"[1", b"2]", b"}", b"\x00\x00\x00\x00\x01x", b"\xff", b'{"op":"d","op":"c","after":{}}']
    ),
    TEXTS,
    TEXTS,
    TEXTS,
    DAMAGED,
)
KEYS = st.one_of(
    st.none(),
    st.builds(lambda key: orjson.dumps({"id": key}), st.integers(0, 5)),
    st.builds(lambda key: orjson.dumps({"schema": KEY_SCHEMA, "payload": {"id": key}}), st.integers(0, 5)),
    st.sampled_from(
        [b"7", b'"A"', b"", b"\xff", b"[]", b'{"id":null}', b'{"schema":{"type":"int64"},"payload":7}', b'{"schema":1,"payload":{}}']
    ),
)


def against_each_alone(records: list[Record], piece: int, form: Literal["debezium", "json"]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streaming.pipeline.decode._PIECE", piece)
        whole = decode(table(records), form=form)
    changes: list[tuple[str, tuple[Any, ...]]] = []
    bad: list[BadRecord] = []
    index, skipped, decoder = [], 0, decoder_of(form)
    for offset, record in enumerate(records):
        alone = decode_topic(decoder, "t", table([record]), 10**6)
        assert len(emitted(alone)) + len(alone.bad) + alone.skipped == 1
        changes += emitted(alone)
        index += [offset] * len(emitted(alone))
        bad += [one._replace(offset=offset) for one in alone.bad]
        skipped += alone.skipped
    assert str(emitted(whole)) == str(changes)  # as text: NaN is no NaN's equal
    assert [position for part in whole.changes for position in part.index.tolist()] == index
    assert [bare(one) for one in whole.bad] == [bare(one) for one in bad]
    assert whole.skipped == skipped


def bare(one: BadRecord) -> BadRecord:
    """Without what was probably meant, which is told of the first unknown name alone."""
    return one._replace(reason=re.sub("(no such column);.*", r"\1", one.reason))


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(KEYS, RAW), max_size=40), st.sampled_from([1, 3, 16, 1024]))
def test_a_topic_is_what_its_records_are_alone(records: list[Record], piece: int) -> None:
    against_each_alone(records, piece, "debezium")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            KEYS,
            st.one_of(
                RAW,
                st.builds(
                    lambda row, op: json.dumps(row | {"_op": op} if isinstance(row, dict) else row).encode(),
                    ROWS,
                    st.sampled_from(["insert", "upsert", "delete", "truncate", None, "x", 1, []]),
                ),
            ),
        ),
        max_size=40,
    ),
    st.sampled_from([1, 3, 16, 1024]),
)
@example([(None, orjson.dumps(row(1, starts=2**62)))], 1)  # later than Python's datetime
def test_a_topic_of_plain_rows_is_what_its_records_are_alone(records: list[Record], piece: int) -> None:
    against_each_alone(records, piece, "json")


# -- shapes


def test_every_op_bare_and_wrapped() -> None:
    sent = [
        ({"id": 1}, envelope("r", after=row(1))),
        ({"id": 2}, envelope("c", after=row(2))),
        ({"id": 2}, envelope("u", before={"id": 2}, after=row(2, room="B"))),
        ({"id": 2}, envelope("u", before=None, after=row(2, room="C"))),
        ({"id": 2}, envelope("d", before={"id": 2, "room": "", "starts": 0})),
        ({"id": 3}, envelope("d")),
        ({"id": 2}, None),
        (None, envelope("m")),
        (None, envelope("t")),
    ]
    want = [("upsert", 1), *[("upsert", 2)] * 3, ("delete", 2), ("delete", 3), ("delete", 2), ("truncate", None)]
    decoded = decode(table(sent))
    assert (ids(decoded), decoded.bad, decoded.skipped) == (want, [], 1)
    schema = SCHEMAS[0] | {"fields": [{**field, "fields": field["fields"][:2]} for field in SCHEMAS[0]["fields"]]}
    wrapped = [(key and {"schema": KEY_SCHEMA, "payload": key}, value and {"schema": schema, "payload": value}) for key, value in sent]
    again = decode(table(wrapped))
    assert (emitted(again), again.bad, again.skipped) == (emitted(decoded), [], 1)


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"schema": {"type": "struct"}, "payload": value}])
def test_what_is_no_change_of_a_row_is_skipped_or_named(wrap: Any) -> None:
    begin = {"status": "BEGIN", "id": "571:53195829", "ts_ms": 1, "event_count": None, "data_collections": None}
    collections = [{"data_collection": "s1.a", "event_count": 1}]
    passed = [begin, {**begin, "status": "END", "event_count": 1, "data_collections": collections}, {"ts_ms": 1}]
    decoded = decode(table([(None, wrap(value)) for value in passed]))
    assert (emitted(decoded), decoded.bad, decoded.skipped) == ([], [], 3)
    ddl = {
        "source": {"server": "x"},
        "ts_ms": 1,
        "databaseName": "inventory",
        "schemaName": None,
        "ddl": "ALTER TABLE …",
        "tableChanges": [],
    }
    named = {
        "ExtractNewRecordState": row(1),
        '"op" is missing': {**row(1), "__deleted": "false"},
        "remove the topic of schema changes": ddl,
        "MongoDB": envelope("c", after='{"_id": {"$oid": "1"}}'),
        '"after" is null': envelope("u"),
        "expected one of Debezium's": envelope("z", after=row(1)),
        "no-key": envelope("d", before={"room": "A"}),
        "the value is a list, not an object": [1],
        "not a Debezium envelope": {"status": "BEGIN", "id": 1},
    }
    decoded = decode(table([(None, wrap(value)) for value in named.values()]))
    assert (emitted(decoded), decoded.skipped) == ([], 0)
    for says, bad in zip(named, decoded.bad, strict=True):
        assert says in bad.error


def test_avro_is_named() -> None:
    for form in ("debezium", "json"):
        (bad,) = decode(table([(None, b"\x00\x00\x00\x00\x07\x02\x06abc")]), form=form).bad  # type: ignore[arg-type]
        assert "not JSON" in bad.error and "configure the connector to write JSON" in bad.error


def test_the_samples_of_the_documents() -> None:
    """All of customers in one topic, wrapped and bare by turns; those with numbers as texts are named."""
    customers = parse_relation(
        {
            "columns": [
                {"name": "id", "type": "int64"},
                *({"name": name, "type": "string", "nullable": True} for name in ("first_name", "last_name", "email")),
            ],
            "key": ["id"],
        }
    )
    sent = [sample["message"] for sample in samples()]
    payloads = [message.get("payload", message) for message in sent]
    decoded = decode(table([(None, message) for message in sent]), customers)
    want = []
    for payload in payloads:
        after, before = payload.get("after") or {}, payload.get("before") or {}
        if payload["op"] == "d":
            want.append(("delete", before["id"]))
        elif payload["op"] == "t":
            want.append(("truncate", None))
        elif payload["op"] != "m" and "id" in after:
            want.append(("upsert", after["id"]))
    assert ids(decoded) == want
    assert decoded.skipped == sum(payload["op"] == "m" for payload in payloads) == 2
    assert [bad.error for bad in decoded.bad] == ["id: missing"] * 3  # of a table (pk, aa)


@pytest.mark.parametrize("variant", ["cdc", "cdc_default_identity", "cdc_redelivered"])
def test_a_whole_log_leaves_the_rows_that_it_should(variant: str) -> None:
    """The congress log by topics, its records shuffled as no broker would: (partition, offset) alone tells the order."""
    log = debezium(variant)
    live = expected("congress", variant)["checkpoints"][-1]["live"]
    for topic in {record["topic"] for record in log}:
        own = [record for record in log if record["topic"] == topic]
        records = pa.table(
            {
                "partition": pa.array([record["partition"] for record in own], pa.int32()),
                "offset": pa.array(range(len(own)), pa.int64()),
                "key": pa.array([as_bytes(record["key"]) for record in own], pa.binary()),
                "value": pa.array([as_bytes(record["value"]) for record in own], pa.binary()),
            }
        )
        order = list(range(len(own)))
        random.Random(variant + topic).shuffle(order)
        name = topic.rpartition(".")[2]
        decoded = decode(records.take(order), parse_relation(definition("congress", name)))
        assert decoded.bad == [] and decoded.skipped == sum(record["value"] is None for record in own)
        left = set()
        for op, number in ids(decoded):
            (left.discard if op == "delete" else left.add)(number)
        assert len(left) == live[name]


def test_plain_rows() -> None:
    sent = [
        (None, row(1) | {"_op": "insert"}),
        (None, row(2)),
        (None, {"_op": "delete", "id": 1}),
        (b"k", None),
        (None, b"null"),
        (None, {"_op": "truncate"}),
        (None, row(3) | {"_op": "drop"}),
        (None, row(4) | {"extra": 1}),
        (None, b"[]"),
    ]
    decoded = decode(table(sent), form="json")
    assert ids(decoded) == [("upsert", 1), ("upsert", 2), ("delete", 1), ("truncate", None)]
    assert decoded.skipped == 2
    assert [(bad.offset, bad.column) for bad in decoded.bad] == [(6, "_op"), (7, "extra"), (8, None)]


# -- order


def test_changes_come_by_partition_and_offset() -> None:
    partitions = [2, 0, 1, 0, 2, 1, 0]
    sent = [({"id": number}, envelope("c", after=row(number))) for number in range(len(partitions))]
    records = table(sent, partitions)
    want = [("upsert", number) for number in (1, 3, 6, 2, 5, 0, 4)]
    assert ids(decode(records)) == want
    assert ids(decode(records.take([6, 5, 4, 3, 2, 1, 0]))) == want
    assert ids(decode(records.take([1, 3, 6, 2, 5, 0, 4]))) == want


def test_nothing_is_compacted() -> None:
    ops = ["c", "d", "d", "c", "u", "d"]
    sent = [({"id": 1}, envelope(op, before=row(1), after=None if op == "d" else row(1))) for op in ops]
    assert [op for op, _ in ids(decode(table(sent)))] == ["delete" if op == "d" else "upsert" for op in ops]


def test_bad_records_are_named_where_they_lie() -> None:
    """Over several pieces, more of them than one batch lists."""
    count = 3_000
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    sent: list[tuple[Any, Any]] = []
    for number in range(count):
        value = envelope("c", after=row(number if chance.random() < 0.5 else "x"))
        sent.append((b"k%d" % number, value))
    partitions = sorted(chance.choices(range(3), k=count))
    records = table(sent, partitions)
    wrong = [at for at, (_, value) in enumerate(sent) if value["after"]["id"] == "x"]
    decoded = decode(records)
    assert [number for _, number in ids(decoded)] == [at for at in range(count) if at not in set(wrong)]
    assert decoded.bad == [
        BadRecord("t", partitions[at], records["offset"][at].as_py(), *map(as_bytes, sent[at]), "id", decoded.bad[0].reason) for at in wrong
    ]
    assert decoded.bad[0].error == 'id: got the text "x", expected a 64-bit integer'
    for most in (0, 5, 150):
        few = decode(records, most_bad=most).bad
        assert most < len(few) < len(wrong) and few == decoded.bad[: len(few)]


def test_no_records() -> None:
    assert decode(table([])) == DecodedTopic([], [], 0)
    assert decode(table([(None, None)])) == DecodedTopic([], [], 1)


# -- keys in two partitions


@pytest.mark.parametrize("strict", [False, True])
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sets(st.sampled_from(["room", "price"])), st.sampled_from("ccccd")), max_size=40),
    st.integers(1, 8),
    st.integers(1, 9),
)
@settings(max_examples=200)
def test_columns_that_go(strict: bool, sent: list[tuple[int, set[str], str]], piece: int, size: int) -> None:
    """Against one row after another: by partition, over any pieces and batches."""
    watched: dict[int, frozenset[str]] = {}
    known: Columns = {}
    sent = sorted(sent, key=lambda one: one[0])
    for start in range(0, len(sent), size):
        batch = sent[start : start + size]
        gone: set[str] = set()
        bad: list[int] = []
        for number, (partition, names, op) in enumerate(batch):
            if op == "d":
                continue
            have = frozenset({*names, "ends"})
            lost = watched.get(partition, frozenset()) - have
            gone |= lost
            if strict and lost:
                bad.append(number)
            if strict:
                have |= watched.get(partition, frozenset())
            watched[partition] = have
        whole = {"room": "A", "price": 1.5, "ends": None}
        records = []
        for number, (_, names, op) in enumerate(batch):
            after = {"id": number, "starts": 0, **{name: whole[name] for name in (*names, "ends")}}
            records.append(({"id": number}, envelope("d") if op == "d" else envelope("c", None, after)))
        numbers = [number for number, _ in enumerate(batch)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decode_module, "_PIECE", piece)
            given_records = table(records, [partition for partition, _, _ in batch])
            decoded = decode_topic(decoder_of("debezium"), "t", given_records, 100, known, strict)
        known = decoded.columns
        assert decoded.gone == gone and known == {str(number): sorted(names) for number, names in watched.items()}
        assert [int(json.loads(one.key or b"")["id"]) for one in decoded.bad] == bad
        assert sorted({*numbers} - {*bad}) == sorted(number for _, number in ids(decoded))
        assert all(one.reason == GONE for one in decoded.bad)


def placed(*positions: tuple[Any, int]) -> pa.Table:
    return table([(key, None) for key, _ in positions], [partition for _, partition in positions])


def test_a_key_in_two_partitions_of_one_batch_is_noticed() -> None:
    assert KeyPlaces().is_disordered(placed((b"a", 0), (b"b", 1), (b"a", 1)))
    assert not KeyPlaces().is_disordered(placed((b"a", 0), (b"b", 1), (b"a", 0), (None, 0), (None, 1)))
    assert not KeyPlaces().is_disordered(placed())
    assert not KeyPlaces().is_disordered(placed((b"a", 0), (b"", 1)))  # Python's hash of it is 0


def test_a_key_that_moves_between_batches_is_noticed() -> None:
    positions = KeyPlaces()
    assert not positions.is_disordered(placed((b"a", 0), (b"b", 1)))
    assert not positions.is_disordered(placed((b"a", 0), (None, 1)))
    slot = hash(b"b") % KeyPlaces._SLOTS  # hashes differ between processes: none of the others may take its place
    others = [key for key in map(b"%d".__mod__, range(1_000)) if hash(key) % KeyPlaces._SLOTS != slot]
    assert not positions.is_disordered(placed(*((key, number % 5) for number, key in enumerate(others))))
    assert positions.is_disordered(placed((b"b", 0)))
    assert not positions.is_disordered(placed((b"b", 0)))


def test_partitions_that_come_one_by_one() -> None:
    positions = KeyPlaces()
    assert not positions.is_disordered(placed((b"a", 3)))
    assert not positions.is_disordered(placed((b"a", 4)))  # what was before the second partition is not remembered
    assert positions.is_disordered(placed((b"a", 3)))


# -- what has no order


def test_changes_without_a_key_and_truncates_are_told() -> None:
    keyed, keyless = ({"id": 1}, envelope("c", after=row(1))), (None, envelope("c", after=row(2)))
    truncate, message, bad = (None, envelope("t")), (None, envelope("m")), (None, b"not json")
    for records, want in (
        ([keyed, message, bad, ({"id": 1}, None)], (False, False)),
        ([keyed, keyless], (True, False)),
        ([keyed, truncate], (False, True)),
        ([keyless] + [keyed] * 1500 + [truncate], (True, True)),
        ([keyed] * 1500 + [keyless], (True, False)),
    ):
        decoded = decode(table(records))
        assert (decoded.keyless, decoded.truncates) == want


@pytest.mark.parametrize(
    ("of_topic", "of_column", "hour"), [(None, None, None), (None, "Asia/Tokyo", 5), ("Europe/Berlin", "Asia/Tokyo", 12)]
)
def test_the_zone_of_a_topic_goes_before_that_of_a_column(of_topic: str | None, of_column: str | None, hour: int | None) -> None:
    relation = ROOMS.in_zone(of_column) if of_column else ROOMS
    topic = Topic(name="t", relation="rooms", format="json", zone=of_topic)
    times = ["2026-07-01T14:00:00", "2026-10-25T02:30:00"]
    records = table([(b"k", {"id": n, "starts": text}) for n, text in enumerate(times)])
    decoded = decode_topic(decoder_for(topic, relation), "t", records, 10)
    if hour is None:
        assert len(decoded.bad) == 2 and "without an offset" in decoded.bad[0].error
        return
    assert not decoded.bad and decoded.unclear == (of_topic is not None)
    assert decoded.changes[0].rows.arrow["starts"][0].as_py().hour == hour
