"""Changes as Arrow IPC streams: columns (those of Parquet too) are converted to the relation's types if nothing is lost.

A column whose type cannot be converted makes a malformed body; a value that does not fit (an unsigned 64-bit number, nanoseconds that are
not a whole microsecond) makes its row bad.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from livejoin.wire.batch import RELATION_METADATA, Batch, concatenated
from livejoin.wire.budget import UNBOUNDED, Budget, is_bytes, is_view, take_arrow_stream, without_junk
from livejoin.wire.columns import checked, mask_of
from livejoin.wire.errors import MalformedBody
from livejoin.wire.json import Definitions
from livejoin.wire.kinds import SENT_TYPES, ByKind, kept
from livejoin.wire.schema import OP_COLUMN, RowRules
from livejoin.wire.table import is_text, refuse_twice, validate_table
from livejoin.wire.validate import Findings, ValidatedRows, assemble
from livejoin.wire.values.local_times import local_times
from livejoin.wire.values.texts import storage_of, uuids_of_bytes, without_extension

_OPTIONS = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
_UUID = pa.binary(16)
_READABLE: ByKind[Callable[[pa.DataType], bool]] = ByKind(
    {
        "int64": pa.types.is_integer,
        "float64": lambda kind: bool(pa.types.is_floating(kind) or pa.types.is_integer(kind)),
        "timestamp": pa.types.is_timestamp,
        "date": pa.types.is_date,
        "string": is_text,
        "bool": pa.types.is_boolean,
        "uuid": lambda kind: is_text(kind) or kind == _UUID,
        "time": lambda kind: bool(pa.types.is_time(kind) or is_text(kind)),
        "json": is_text,
        "bytes": is_bytes,
    },
    lambda precision, scale: lambda kind: bool(pa.types.is_decimal(kind) or pa.types.is_integer(kind)),
)


def decode_arrow(body: bytes, definitions: Definitions, room: Budget = UNBOUNDED) -> Batch:
    """Decode the body of `POST /v1/changes`: concatenated IPC streams, each with its relation in the schema metadata."""

    def named(number: int, schema: pa.Schema) -> str:
        name: bytes | None = (schema.metadata or {}).get(RELATION_METADATA)
        if name is None:
            raise MalformedBody(f"stream {number} does not name its relation: add the schema metadata {RELATION_METADATA.decode()}")
        return name.decode(errors="replace")

    return _decode(body, named, definitions, room)


def decode_relation_arrow(body: bytes, relation: str, definitions: Definitions, room: Budget = UNBOUNDED, plain: bool = False) -> Batch:
    """Decode one relation's changes as IPC streams; their metadata are ignored. `plain`: as in `validate_table`."""
    definitions(relation)
    return _decode(body, lambda number, schema: relation, definitions, room, plain)


def _decode(
    body: bytes, relation_of: Callable[[int, pa.Schema], str], definitions: Definitions, room: Budget, plain: bool = False
) -> Batch:
    """`relation_of` receives the number of a stream, from 1, and its schema."""
    parts: dict[str, list[ValidatedRows]] = {}
    source = pa.BufferReader(body)
    sent = rows = number = 0
    while (start := source.tell()) < len(body):
        number += 1
        try:
            rows = take_arrow_stream(source, rows, room)
            source.seek(start)
            with pa.ipc.open_stream(source, options=_OPTIONS) as reader:
                relation = relation_of(number, reader.schema)
                rules = definitions(relation).rules
                known, stranger = known_columns(rules, reader.schema)
                table = reader.read_all().select(known)
            # External data is validated completely: a wrong offset would be an invalid memory access.
            table.validate(full=True)
            batch = one_batch(table, stranger)
        except (pa.ArrowException, OSError) as error:
            raise MalformedBody(f"invalid Arrow IPC stream at byte {start}: {error}") from None
        parts.setdefault(relation, []).append(validate_record_batch(rules, relation, batch, sent, room, plain))
        sent += batch.num_rows
    return assemble(sent, 0, [_joined(validated) for validated in parts.values()])


def known_columns(rules: RowRules, schema: pa.Schema) -> tuple[list[str], str | None]:
    """Return the names of the relation's columns in an external schema, and `_op`; and the first that is not a column of the relation, if
    any. MalformedBody for a name that is not text or appears twice, and for a type that cannot be converted to the column's."""
    try:
        names: list[str] = schema.names
    except UnicodeDecodeError:
        raise MalformedBody("a column's name is not UTF-8") from None
    refuse_twice(names)
    known = [name for name in names if name in rules.name_set or name == OP_COLUMN]
    for name in known:
        try:
            kind = storage_of(schema.field(name).type)
            if name != OP_COLUMN:
                check_readable(rules, rules.ordinal[name], kind)
            elif not (pa.types.is_null(kind) or is_text(kind)):
                raise MalformedBody(f"the column {OP_COLUMN!r} is {kind}, not text")
        except UnicodeDecodeError:
            raise MalformedBody(f"the column {name!r} cannot be read: the name of its time zone is not UTF-8") from None
    return known, next((name for name in names if name not in rules.name_set and name != OP_COLUMN), None)


def one_batch(table: pa.Table, stranger: str | None) -> pa.RecordBatch:
    """Return the rows of a table as one record batch, with the unknown column `stranger`, if any, as nulls: its name suffices to reject
    them."""
    batches = table.combine_chunks().to_batches() if table.num_columns else []
    if len(batches) > 1:
        raise pa.ArrowInvalid("more than 2 GiB of text in one column")
    columns = batches[0].columns if batches else [pa.array([], field.type) for field in table.schema]
    columns = [without_junk(column)[0] if is_view(column.type) else without_extension(column) for column in columns]
    if stranger is None:
        return pa.RecordBatch.from_arrays(columns, names=table.column_names)
    return pa.RecordBatch.from_arrays([*columns, pa.nulls(table.num_rows)], names=[*table.column_names, stranger])


def validate_record_batch(
    rules: RowRules, relation: str, table: pa.RecordBatch, first: int, room: Budget, plain: bool = False
) -> ValidatedRows:
    def convert(ordinal: int, array: pa.Array, findings: Findings) -> pa.Array:
        return _canonical(rules, ordinal, array, findings)

    try:
        return validate_table(rules, relation, table, first, convert, room, plain)
    except (pa.ArrowException, UnicodeDecodeError) as error:  # also from the name of a time zone
        raise MalformedBody(f"the rows for {relation} cannot be read: {error}") from None


def _canonical(rules: RowRules, ordinal: int, array: pa.Array, findings: Findings) -> pa.Array:
    column = rules.columns[ordinal]
    wanted = SENT_TYPES[column.kind]
    if array.type == wanted and column.type not in ("uuid", "json"):
        return kept(array)
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_null(array.type):
        return kept(pa.nulls(len(array), wanted))
    check_readable(rules, ordinal, array.type)
    if column.type in ("uuid", "json") or is_text(array.type) and column.type == "time":
        return checked(rules, ordinal, uuids_of_bytes(array) if array.type == _UUID else array.cast(pa.utf8()), findings)
    if column.type == "float64":
        return array.cast(wanted, safe=False)  # an integer beyond 2**53 becomes the nearest float64, as in JSON
    if column.scale is not None and pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(38, column.scale))  # Arrow requires room for all digits of the type
    zone = column.zone if column.type == "timestamp" and array.type.tz is None else None
    if zone is not None:
        wanted = pa.timestamp("us")
    bad: list[int] = []
    try:
        parts = [array.cast(wanted)]
    except pa.ArrowInvalid:
        parts, bad = _cast_all_but_bad(array, wanted, 0)
    if zone is not None:
        localized = local_times(zone).column(pa.concat_arrays(parts))
        parts, bad = [localized.micros], sorted({*bad, *localized.bad})
        findings.unclear += localized.unclear
    if not bad:
        return kept(pa.concat_arrays(parts))
    findings.add(
        ordinal,
        mask_of(bad, len(array)),
        column.name,
        lambda row: f"the value {_number(array, row)} of type {array.type} does not fit, expected {wanted}",
    )
    return kept(pa.concat_arrays(parts))


def check_readable(rules: RowRules, ordinal: int, kind: pa.DataType) -> None:
    """Raise MalformedBody for a column whose type cannot be converted to the relation's."""
    column = rules.columns[ordinal]
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_null(plain):
        return
    if not _READABLE[column.kind](plain):
        raise MalformedBody(f"the column {column.name!r} is {plain}; it must be convertible to {SENT_TYPES[column.kind]}")
    if column.type == "timestamp" and plain.tz is None and column.zone is None:
        raise MalformedBody(
            f"the column {column.name!r} is {plain}, without a time zone; it must be convertible to {SENT_TYPES[column.kind]}, or the "
            'column of the relation must have a "zone" in which the times are local'
        )


def _number(array: pa.Array, row: int) -> str:
    """Return a value as its physical number: its time zone may be unknown."""
    one = array[row : row + 1]
    plain = pa.types.is_integer(one.type) or pa.types.is_decimal(one.type)
    return str((one if plain else one.view(pa.int64()))[0])


def _cast_all_but_bad(array: pa.Array, wanted: pa.DataType, first: int) -> tuple[list[pa.Array], list[int]]:
    """Cast by halves: values that cannot be cast become null and are listed. O(b log n) casts for b bad values."""
    try:
        return [array.cast(wanted)], []
    except pa.ArrowInvalid:
        if len(array) == 1:
            return [pa.nulls(1, wanted)], [first]
    half = len(array) // 2
    parts, bad = _cast_all_but_bad(array[:half], wanted, first)
    more_parts, more_bad = _cast_all_but_bad(array[half:], wanted, first + half)
    return parts + more_parts, bad + more_bad


def _joined(parts: list[ValidatedRows]) -> ValidatedRows:
    """Join the changes of several streams for one relation, in order."""
    if len(parts) == 1:
        return parts[0]
    return ValidatedRows(
        concatenated([part.changes for part in parts]),
        [error for part in parts for error in part.errors],
        sum(part.error_count for part in parts),
        tuple(keys for part in parts for keys in part.bad_keys),
        sum(part.unclear for part in parts),
    )
