"""Changes as Arrow IPC streams: columns (those of Parquet, too) are converted to the relation's types if nothing is lost.

A column whose type cannot be read is a malformed body; a value that does not fit (a number of 64 unsigned bits, nanoseconds
that are not a whole microsecond) makes its row bad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from service.wire.batch import RELATION_METADATA, Batch, concatenated
from service.wire.columns import mask_of
from service.wire.errors import MalformedBody
from service.wire.json import Definitions
from service.wire.judge import Findings, Judged, assemble
from service.wire.room import UNBOUNDED, Room, take_arrow_stream
from service.wire.schema import ARROW_TYPES, RowRules
from service.wire.table import is_text, judge_table

_OPTIONS = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)


def _is_timestamp_with_zone(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


_READABLE: dict[str, Callable[[pa.DataType], bool]] = {
    "int64": pa.types.is_integer,
    "float64": lambda kind: bool(pa.types.is_floating(kind) or pa.types.is_integer(kind)),
    "timestamp": _is_timestamp_with_zone,
    "date": pa.types.is_date,
    "string": is_text,
    "bool": pa.types.is_boolean,
}


def decode_arrow(body: bytes, definitions: Definitions, room: Room = UNBOUNDED) -> Batch:
    """The body of `POST /v1/changes`: concatenated IPC streams, each with its relation in the schema metadata."""
    parts: dict[str, list[Judged]] = {}
    sent = 0
    for number, table in enumerate(_streams(body, room), 1):
        name = (table.schema.metadata or {}).get(RELATION_METADATA)
        if name is None:
            raise MalformedBody(f"stream {number} does not name its relation: add the schema metadata {RELATION_METADATA.decode()}")
        relation = name.decode(errors="replace")
        rules = definitions(relation).rules
        parts.setdefault(relation, []).append(judge_record_batch(rules, relation, table, sent, room))
        sent += table.num_rows
    return assemble(sent, 0, [_joined(judged) for judged in parts.values()])


def decode_relation_arrow(body: bytes, relation: str, definitions: Definitions, room: Room = UNBOUNDED) -> Batch:
    """One relation's changes as IPC streams; their metadata are ignored."""
    rules = definitions(relation).rules
    parts: list[Judged] = []
    sent = 0
    for table in _streams(body, room):
        parts.append(judge_record_batch(rules, relation, table, sent, room))
        sent += table.num_rows
    return assemble(sent, 0, [_joined(parts)] if parts else [])


def _streams(body: bytes, room: Room) -> Iterator[pa.RecordBatch]:
    """Each stream's rows as one record batch."""
    source = pa.BufferReader(body)
    rows = 0
    while source.tell() < len(body):
        start = source.tell()
        try:
            rows = take_arrow_stream(source, rows, room)
            source.seek(start)
            with pa.ipc.open_stream(source, options=_OPTIONS) as reader:
                table = reader.read_all()
            validate(table)
            whole = one_batch(table)
        except (pa.ArrowException, OSError) as error:
            raise MalformedBody(f"invalid Arrow IPC stream at byte {start}: {error}") from None
        yield whole


def validate(table: pa.Table) -> None:
    """External data is validated completely: a wrong offset would be an invalid memory access. Raises ArrowInvalid."""
    try:
        table.schema.names  # noqa: B018
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("a column's name is not UTF-8") from None
    table.validate(full=True)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if batches:
        raise pa.ArrowInvalid("more than 2 GiB of text in one column")
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)


def judge_record_batch(rules: RowRules, relation: str, table: pa.RecordBatch, first: int, room: Room) -> Judged:
    def convert(ordinal: int, array: pa.Array, findings: Findings) -> pa.Array:
        return _canonical(rules, ordinal, array, findings)

    try:
        return judge_table(rules, relation, table, first, convert, room)
    except (pa.ArrowException, UnicodeDecodeError) as error:  # also of the name of a time zone
        raise MalformedBody(f"the rows for {relation} cannot be read: {error}") from None


def _canonical(rules: RowRules, ordinal: int, array: pa.Array, findings: Findings) -> pa.Array:
    column = rules.columns[ordinal]
    wanted = ARROW_TYPES[column.type]
    if array.type == wanted:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    check_readable(rules, ordinal, array.type)
    if column.type == "float64":
        return array.cast(wanted, safe=False)  # a whole number beyond 2**53 becomes the nearest float64, as in JSON
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid:
        parts, bad = _cast_all_but_bad(array, wanted, 0)
    findings.add(
        ordinal,
        mask_of(bad, len(array)),
        column.name,
        lambda row: f"the value {_number(array, row)} of type {array.type} does not fit, expected {wanted}",
    )
    return pa.concat_arrays(parts)


def check_readable(rules: RowRules, ordinal: int, kind: pa.DataType) -> None:
    """MalformedBody for a column whose type has no values of the relation's type."""
    column = rules.columns[ordinal]
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not pa.types.is_null(plain) and not _READABLE[column.type](plain):
        naive = pa.types.is_timestamp(plain) and column.type == "timestamp"
        why = " (without a time zone)" if naive else ""
        raise MalformedBody(f"the column {column.name!r} is {plain}{why}; it must be convertible to {ARROW_TYPES[column.type]}")


def _number(array: pa.Array, row: int) -> str:
    """The physical number of a value, whose time zone may be unknown."""
    one = array[row : row + 1]
    return str((one if pa.types.is_integer(one.type) else one.view(pa.int64()))[0])


def _cast_all_but_bad(array: pa.Array, wanted: pa.DataType, first: int) -> tuple[list[pa.Array], list[int]]:
    """Casts by halves: values that cannot be cast become null and are listed. O(b log n) casts for b bad values."""
    try:
        return [array.cast(wanted)], []
    except pa.ArrowInvalid:
        if len(array) == 1:
            return [pa.nulls(1, wanted)], [first]
    half = len(array) // 2
    parts, bad = _cast_all_but_bad(array[:half], wanted, first)
    more_parts, more_bad = _cast_all_but_bad(array[half:], wanted, first + half)
    return parts + more_parts, bad + more_bad


def _joined(parts: list[Judged]) -> Judged:
    """The changes of several streams for one relation, in order."""
    if len(parts) == 1:
        return parts[0]
    return Judged(
        concatenated([part.changes for part in parts]),
        [error for part in parts for error in part.errors],
        sum(part.error_count for part in parts),
    )
