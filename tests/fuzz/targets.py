"""Everything that reads external data, as functions of bytes in this process. A target returns if it accepted the input, or refused it in
the intended way; any exception that it raises is a bug. Accepted input must be readable by everything that uses the decoder's result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import orjson

from livejoin.wire.batch import Batch, batch_to_arrow
from livejoin.wire.debezium import DebeziumDecoder
from livejoin.wire.decode import decode_changes, decode_relation_changes
from livejoin.wire.errors import UnknownRelation, WireError
from livejoin.wire.json import JsonDecoder
from livejoin.wire.rows import encode_rows
from livejoin.wire.schema import RelationDefinition, parse_relation
from service.api.changes import BatchParameters
from service.api.followers import FollowParameters
from service.api.http import media, origin, parameters
from service.api.http.bodies import parse_json
from service.api.problems import problem_of
from service.api.rows import ViewRowsParameters, filters
from service.errors import Problem
from service.query.literals import BadLiteral, difference, from_number, from_text, number_from, read_interval, value_of
from service.reading.tokens import ForgedToken, Signer
from service.views.parse import parse_view
from streaming.config import BadConfig, read_config
from tests.fuzz import samples


class Target(NamedTuple):
    """`feed(data)` takes one input; `samples` are valid inputs, `words` are inserted, `count` is the number of inputs that `make test`
    tries."""

    feed: Callable[[bytes], None]
    samples: Sequence[bytes]
    words: Sequence[bytes] = ()
    count: int = 250


def _definition(name: str) -> RelationDefinition:
    if name not in samples.RELATIONS:
        raise UnknownRelation(name)
    return samples.RELATIONS[name]


def _emitted(error: Problem | WireError) -> None:
    """Check that a refusal can be sent."""
    orjson.dumps((error if isinstance(error, Problem) else problem_of(error)).to_json())


def _sound(batch: Batch) -> None:
    """Check that the rows read are counted, that errors in them can be reported, and that its good rows are valid for everything that reads
    them."""
    good = sum(len(changes.ops) for changes in batch.changes)
    assert good + batch.ignored + batch.error_count == batch.sent, batch
    assert len(batch.errors) == min(batch.error_count, 100), batch
    orjson.dumps([error._asdict() for error in batch.errors])
    again = decode_changes(media.ARROW, batch_to_arrow(batch), _definition)
    assert again.error_count == 0 and again.sent == good, (batch, again)
    for changes, copy in zip(batch.changes, again.changes, strict=True):
        assert changes.rows.arrow.schema == copy.rows.arrow.schema == _definition(changes.relation).arrow_schema()
        for kind in (media.JSONL, media.CSV):
            assert encode_rows(kind, changes.rows.arrow) == encode_rows(kind, copy.rows.arrow)


def _changes(kind: str) -> Callable[[bytes], None]:
    def feed(data: bytes) -> None:
        try:
            batch = decode_changes(kind, data, _definition)
        except WireError as error:
            _emitted(error)
        else:
            _sound(batch)

    return feed


def _relation_changes(kind: str) -> Callable[[bytes], None]:
    def feed(data: bytes) -> None:
        try:
            batch = decode_relation_changes(kind, data, "bookings", _definition)
        except WireError as error:
            _emitted(error)
        else:
            _sound(batch)

    return feed


def _records(data: bytes) -> None:
    """Records of Kafka: a key and a value on each line. No record raises."""
    lines = data.split(b"\n")
    keys, values = [line or None for line in lines[::2]], [line or None for line in lines[1::2]]
    keys = keys[: len(values)]
    for decoder in (DebeziumDecoder("bookings", samples.RELATIONS["bookings"]), JsonDecoder("rooms", samples.RELATIONS["rooms"])):
        decoder.decode(keys, values)
        _sound(decoder.decode(keys, values))  # schemas are cached


def _relation(data: bytes) -> None:
    try:
        definition = parse_relation(parse_json(data))
    except (Problem, WireError) as error:
        _emitted(error)
    else:
        assert parse_relation(orjson.loads(orjson.dumps(definition.to_json()))).to_json() == definition.to_json()


def _view(data: bytes) -> None:
    try:
        view = parse_view("v", parse_json(data), samples.RELATIONS)
    except (Problem, WireError) as error:
        _emitted(error)
    else:
        orjson.dumps(view.plan.to_json())
        assert parse_view("v", orjson.loads(orjson.dumps(view.definition)), samples.RELATIONS).query == view.query


def _sql(data: bytes) -> None:
    _view(orjson.dumps({"sql": data.decode(errors="replace")}))


def _query(data: bytes) -> None:
    for known in (ViewRowsParameters, BatchParameters, FollowParameters):
        try:
            values = parameters.read(data, known)
            if isinstance(values, ViewRowsParameters):
                filters(values)
        except Problem as problem:
            _emitted(problem)


KINDS = (
    "int64", "float64", "decimal(12,2)", "decimal(18,18)", "timestamp", "date", "string", "bool", "uuid", "time", "json", "bytes",
)  # fmt: skip
_NO_NUMBERS = ("string", "bool", "float64", "uuid", "json", "bytes")


def _literal(data: bytes) -> None:
    text = data.decode(errors="replace")
    for kind in KINDS:
        for number, interval in ((text, "0 s"), ("0", text)):
            try:
                difference(kind, number_from(number), read_interval(interval)[1])
            except BadLiteral as error:
                orjson.dumps(str(error))
        for read in (from_text, value_of, from_number):
            try:
                value = read(kind, text)
            except BadLiteral as error:
                orjson.dumps(str(error))
            else:
                assert kind in _NO_NUMBERS or -(2**63) <= value < 2**63, (kind, value)


def _headers(data: bytes) -> None:
    for name in (b"accept", b"content-type", b"content-encoding", b"host", b"origin"):
        headers = [(b"host", b"localhost"), (b"content-type", b"text/csv"), (name, data)]
        for check in (
            origin.check,
            lambda given: media.content_type(given, (media.JSON, media.CSV)),
            lambda given: media.negotiate(given.get(b"accept", b"").decode("latin-1"), (media.JSON, media.CSV)),
        ):
            try:
                check(media.fields_of(headers))
            except Problem as problem:
                _emitted(problem)


_SIGNER = Signer("folder", b"s" * 32)
_TOKENS = [_SIGNER.seal("cursor", 42, "view", 7, "x" * 20).encode(), _SIGNER.seal("token", 1, 2).encode()]


def _token(data: bytes) -> None:
    """Only tokens that were issued are valid, in any of the spellings of base64."""
    text = data.decode("latin-1")
    for kind in ("cursor", "token"):
        try:
            fields = _SIGNER.open(kind, text)
        except ForgedToken:
            continue
        assert _SIGNER.seal(kind, *fields).encode() in _TOKENS


def _stream_file(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        try:
            config = read_config(Path(file.name))
        except BadConfig as error:
            assert "\n" not in str(error), error
            str(error).encode()
        else:
            assert config.topics or config.outs


_RECORDS = [b'{"id":1}\n%b\n{"schema":null,"payload":{"id":2}}\n%b' % pair for pair in pairwise(samples.DEBEZIUM[1:])]
_COLUMNS = [
    b"id",
    b"room",
    b"starts",
    b"ends",
    b"price",
    b"day",
    b"paid",
    b"guest",
    b"wake",
    b"wishes",
    b"scan",
    b"livejoin.relation",
    b"bookings",
    b"rooms",
]
_WORDS_OF_SQL = b"""
    SELECT FROM WHERE JOIN ON USING AND OR NOT IN IS NULL TRUE BETWEEN overlaps( intersection( duration( COALESCE( CAST(
    ::int ::date EXISTS CASE WHEN THEN END UNION EXCEPT INTERVAL DATE TIMESTAMP LATERAL VALUES ARRAY[ ROW( b.id r.room
    b.stay r b * . :: @ # $1 ? ~ || -> ->> OVER( FILTER( WITHIN GROUP( TABLESAMPLE PIVOT( QUALIFY ASOF FETCH EXPLAIN CREATE
    INSERT DROP $$ E'\\ U&' B'1' X'f' LIKE ESCAPE COLLATE AT TIME ZONE EXTRACT( TRIM( POSITION( SUBSTRING( OVERLAY(
    JSON_OBJECT( XMLTABLE( MATCH_RECOGNIZE( := => IGNORE NULLS ONLY INHERITS WITH RECURSIVE
""".split()

TARGETS: dict[str, Target] = {
    "json": Target(_changes(media.JSON), samples.JSON, _COLUMNS),
    "jsonl": Target(_changes(media.JSONL), samples.JSONL, _COLUMNS),
    "named-arrow": Target(_changes(media.ARROW), samples.NAMED_ARROW, _COLUMNS),
    "rows": Target(_relation_changes(media.JSONL), samples.ROWS_JSONL, _COLUMNS),
    "csv": Target(_relation_changes(media.CSV), samples.CSV, _COLUMNS),
    "arrow": Target(_relation_changes(media.ARROW), samples.ARROW, _COLUMNS),
    "parquet": Target(_relation_changes(media.PARQUET), samples.PARQUET, _COLUMNS),
    "debezium": Target(_relation_changes(media.DEBEZIUM), samples.DEBEZIUM, [*_COLUMNS, b"op", b"payload", b"schema", b"scale"]),
    "records": Target(_records, _RECORDS, [*_COLUMNS, b"op", b"payload", b"schema", b"scale"]),
    "relation": Target(_relation, samples.RELATION, _COLUMNS, 1000),
    "view": Target(_view, samples.VIEW, _COLUMNS, 400),
    "sql": Target(_sql, samples.SQL, _WORDS_OF_SQL),
    "query": Target(_query, samples.QUERY, _COLUMNS, 1000),
    "literal": Target(_literal, samples.LITERALS, count=1000),
    "headers": Target(_headers, samples.HEADERS, count=1000),
    "token": Target(_token, _TOKENS, count=2000),
    "stream-file": Target(_stream_file, samples.STREAM),
}
