"""Changes as Arrow IPC streams and as Parquet: columns are converted to the relation's types if nothing is lost.

A column whose type cannot be read is a malformed body; a value that does not fit (a number of 64 unsigned bits, nanoseconds
that are not a whole microsecond) makes its row bad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from service.wire.batch import RELATION_METADATA, Batch, concatenated
from service.wire.columns import mask_of
from service.wire.errors import MalformedBody
from service.wire.json import Definitions
from service.wire.judge import Findings, Judged, assemble
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


def decode_arrow(body: bytes, definitions: Definitions) -> Batch:
    """The body of `POST /v1/changes`: concatenated IPC streams, each with its relation in the schema metadata."""
    parts: dict[str, list[Judged]] = {}
    sent = 0
    for number, table in enumerate(_streams(body), 1):
        name = (table.schema.metadata or {}).get(RELATION_METADATA)
        if name is None:
            raise MalformedBody(f"stream {number} does not name its relation: add the schema metadata {RELATION_METADATA.decode()}")
        relation = name.decode(errors="replace")
        rules = definitions(relation).rules
        parts.setdefault(relation, []).append(_judge(rules, relation, table, sent))
        sent += table.num_rows
    return assemble(sent, 0, [_joined(judged) for judged in parts.values()])


def decode_relation_arrow(body: bytes, relation: str, definitions: Definitions) -> Batch:
    """One relation's changes as IPC streams; their metadata are ignored."""
    rules = definitions(relation).rules
    parts: list[Judged] = []
    sent = 0
    for table in _streams(body):
        parts.append(_judge(rules, relation, table, sent))
        sent += table.num_rows
    return assemble(sent, 0, [_joined(parts)] if parts else [])


def decode_parquet(body: bytes, relation: str, definitions: Definitions) -> Batch:
    """One relation's changes as a Parquet file."""
    rules = definitions(relation).rules
    try:
        table = pq.read_table(pa.BufferReader(body))
        _validate(table)
    except (pa.ArrowException, OSError) as error:
        raise MalformedBody(f"the body is not Parquet: {error}") from None
    return assemble(table.num_rows, 0, [_judge(rules, relation, _one_batch(table), 0)])


def _streams(body: bytes) -> Iterator[pa.RecordBatch]:
    """Each stream's rows as one record batch."""
    source = pa.BufferReader(body)
    while source.tell() < len(body):
        start = source.tell()
        try:
            with pa.ipc.open_stream(source, options=_OPTIONS) as reader:
                table = reader.read_all()
            _validate(table)
            whole = _one_batch(table)
        except (pa.ArrowException, OSError) as error:
            raise MalformedBody(f"invalid Arrow IPC stream at byte {start}: {error}") from None
        yield whole


def _validate(table: pa.Table) -> None:
    """External data is validated completely: a wrong offset would be an invalid memory access. Raises ArrowInvalid."""
    try:
        table.schema.names  # noqa: B018
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("a column's name is not UTF-8") from None
    table.validate(full=True)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if batches:
        raise pa.ArrowInvalid("more than 2 GiB of text in one column")
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)


def _judge(rules: RowRules, relation: str, table: pa.RecordBatch, first: int) -> Judged:
    def convert(ordinal: int, array: pa.Array, findings: Findings) -> pa.Array:
        return _canonical(rules, ordinal, array, findings)

    try:
        return judge_table(rules, relation, table, first, convert)
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
    if not _READABLE[column.type](array.type):
        naive = pa.types.is_timestamp(array.type) and column.type == "timestamp"
        why = " (without a time zone)" if naive else ""
        raise MalformedBody(f"the column {column.name!r} is {array.type}{why}; it must be convertible to {wanted}")
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
