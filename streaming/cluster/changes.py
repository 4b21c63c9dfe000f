"""Changes of relations on their way to where rows are kept: validated, and packed as blobs.

A blob of changes has the columns of the relation, then ORDER and OP, which no relation has (their names have a dot), and flags as in a
packed blob of rows. ORDER gives the order of the changes of a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import count
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.arrow import validate_record_batch
from livejoin.wire.batch import DELETE, INSERT, OP_DICTIONARY, TRUNCATE, UPSERT, Changes, RowBlock
from livejoin.wire.budget import UNBOUNDED
from livejoin.wire.schema import OP_COLUMN, RelationDefinition, parse_relation
from service.tables.endpoints import endpoints
from streaming.cluster.cells_batch import BadRows
from streaming.cluster.frames import TIE, hashed
from streaming.cluster.layout import CoordinateValues, Layout, Member, Numbers
from streaming.cluster.netting import net
from streaming.cluster.packing import QUESTION, SCHEMA, as_one, gathered, packed, packed_by

SEQ_COLUMN = "_seq"
ORDER, OP = "livejoin.order", "livejoin.op"

Kind = Literal["inserts", "ordered", "images"]
"""How the changes of a stream are to be understood: rows that are new; upserts and deletes in the order of `_seq`; rows that come and rows
that go, whole, in any order."""


class Source(NamedTuple):
    """A relation's stream, as plain data. `members`: of its roles, one role after another. `resolved`: changes are sent to the buckets of
    their keys, not to cells."""

    relation: str
    number: int
    definition: str
    kind: Kind
    members: tuple[Member | None, ...]
    layout: str
    resolved: bool


def send(source: Source, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The blobs (in SCHEMA) of a frame's prepared rows, and the question which plan the states belong to. Raises BadRows."""
    yield pa.RecordBatch.from_pylist([QUESTION], SCHEMA)
    definition, layout = parse_relation(json.loads(source.definition)), Layout.of_json(source.layout)
    for batch in gathered(batches):
        yield from _sent(source, definition, layout, batch)


def _sent(source: Source, definition: RelationDefinition, layout: Layout, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows, ops, order = _validated(source, definition, batch)
    for name in (*hashes(source.members), TIE):
        rows = rows.append_column(name, batch.column(name))
    if not source.resolved:
        yield from route(layout, source.relation, definition, rows, ops, order)
        return
    buckets = labels(layout.cells)[rows.column(TIE).to_numpy() % layout.cells]
    yield packed_by(source.number, _ordered(rows, ops, order), buckets)


def _validated(
    source: Source, definition: RelationDefinition, batch: pa.RecordBatch
) -> tuple[pa.RecordBatch, npt.NDArray[np.uint8], Numbers]:
    names = definition.rules.names
    ordered = source.kind == "ordered"
    read = [*names, OP_COLUMN] if ordered and OP_COLUMN in batch.schema.names else names
    validated = validate_record_batch(definition.rules, source.relation, batch.select(read), 0, UNBOUNDED)
    if validated.error_count:
        error = validated.errors[0]
        raise BadRows(f"{validated.error_count} changes of {source.relation} are invalid; the first, in {error.column}: {error.reason}")
    rows = validated.changes.rows.arrow
    if source.kind == "inserts":
        return rows, np.full(len(rows), INSERT, np.uint8), np.zeros(len(rows), np.int64)
    ops = validated.changes.ops if ordered else _ops(source, batch.column(OP_COLUMN))
    if (ops == TRUNCATE).any():
        raise BadRows(f"a change of {source.relation} is a truncate, which streams of a cluster do not support: delete the rows one by one")
    ops = np.where(ops == DELETE, DELETE, UPSERT if ordered else INSERT).astype(np.uint8)
    if not ordered:
        return rows, ops, np.where(ops == DELETE, 0, 1)
    order = batch.column(SEQ_COLUMN)
    if order.null_count:
        raise BadRows(f"{order.null_count} changes of {source.relation} have no {SEQ_COLUMN}: it must grow with each change of a key")
    return rows, ops, order.to_numpy()


def _ops(source: Source, given: pa.Array) -> npt.NDArray[np.uint8]:
    codes = pc.index_in(given, OP_DICTIONARY)
    unknown = pc.and_(codes.is_null(), given.is_valid())
    if pc.any(unknown).as_py():
        first = given.filter(unknown)[0].as_py()
        raise BadRows(f"a change of {source.relation} has the {OP_COLUMN} {first!r}; expected insert, upsert or delete")
    found: npt.NDArray[np.uint8] = codes.fill_null(UPSERT).to_numpy().astype(np.uint8)
    return found


def hashes(members: Sequence[Member | None]) -> list[str]:
    """The columns that a frame has after the relation's, for these members."""
    return [hashed(index) for index, member in enumerate(members) if member is not None]


def route(
    layout: Layout, relation: str, definition: RelationDefinition, rows: pa.RecordBatch, ops: npt.NDArray[np.uint8], order: Numbers
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Blobs for cells, for each role of the relation. `rows`: with the hashes of all its roles, and TIE."""
    ties, changed = rows.column(TIE).to_numpy(), _ordered(rows.select(definition.rules.names), ops, order)
    first = 0
    for index, role in enumerate(layout.roles):
        if role.relation != relation:
            continue
        given = list[CoordinateValues | None]()
        for position, member in enumerate(role.members, first):
            if member is None:
                given.append(None)
                continue
            ends = () if member.interval is None else endpoints(rows, definition.intervals[member.interval])
            given.append(CoordinateValues(rows.column(hashed(position)).to_numpy(), *ends))
        first += len(role.members)
        blobs = packed(index, changed, layout.route(role, ties, given))
        cells = pa.array(labels(layout.cells)[blobs.column(0).to_numpy()], pa.int32())
        yield pa.RecordBatch.from_arrays([cells, *blobs.columns[1:]], schema=SCHEMA)


def _ordered(rows: pa.RecordBatch, ops: npt.NDArray[np.uint8], order: Numbers) -> pa.RecordBatch:
    return rows.append_column(ORDER, pa.array(order, pa.int64())).append_column(OP, pa.array(ops))


def form(rows: pa.Schema, flags: Sequence[str] = ()) -> pa.Schema:
    """The schema of the blobs of changes of such rows."""
    return pa.schema([*rows, pa.field(ORDER, pa.int64()), pa.field(OP, pa.uint8()), *(pa.field(flag, pa.bool_()) for flag in flags)])


def taken(name: str, definition: RelationDefinition, blobs: Sequence[pa.RecordBatch], images: bool) -> Changes:
    """Changes in the form in which a cell applies them. `images`: equal rows that are deleted and inserted cancel out. Raises
    TooMuchAtOnce."""
    changed = as_one(blobs, blobs[0].schema)
    rows, ops = changed.select(definition.rules.names), changed.column(OP).to_numpy()
    if images:
        deleted, inserted = net(*(rows.filter(pa.array(mask)) for mask in (ops == DELETE, ops != DELETE)))
        rows, ops = as_one([deleted, inserted], deleted.schema), np.repeat(
            np.array([DELETE, INSERT], np.uint8), [len(deleted), len(inserted)]
        )
    else:
        order = np.argsort(changed.column(ORDER).to_numpy(), kind="stable")
        rows, ops = rows.take(pa.array(order)), ops[order]
    return Changes(name, definition, ops, RowBlock(rows), np.arange(len(ops)))


@cache
def labels(cells: int) -> npt.NDArray[np.int32]:
    """int32[cells]: the numbers by which Spark identifies cells. Spark's hash of a label is the cell modulo their number, so that each
    partition gets equally many, for any number of partitions that divides theirs."""
    found: dict[int, int] = {}
    for label in count():
        found.setdefault(_spark_hash(label) % cells, label)
        if len(found) == cells:
            return np.array([found[cell] for cell in range(cells)], np.int32)
    raise AssertionError


def _spark_hash(value: int) -> int:
    """Of an int column: Murmur3_x86_32.hashInt with the seed 42, as org.apache.spark.sql.catalyst.expressions.Murmur3Hash; signed."""
    mask = 0xFFFFFFFF

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> (32 - by)) & mask

    mixed = rotated(value * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (rotated(42 ^ mixed, 13) * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
