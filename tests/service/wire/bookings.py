"""The relation that most tests of the wire talk about, and how to call the decoders."""

from __future__ import annotations

from typing import Any

from livejoin.wire.batch import OP_NAMES, Batch
from livejoin.wire.decode import decode_changes, decode_relation_changes
from livejoin.wire.errors import UnknownRelation
from livejoin.wire.schema import RelationDefinition, parse_relation
from tests.relations import bookings, declared

BOOKINGS = parse_relation(bookings("note:string?"))
VALUES = parse_relation(declared("k:float64, day:date, x:float64?, ok:bool?", "k, day"))
NAMES = {"bookings": BOOKINGS, "values": VALUES}


def definitions(name: str) -> RelationDefinition:
    if name not in NAMES:
        raise UnknownRelation(name)
    return NAMES[name]


def changes(media_type: str, body: bytes) -> Batch:
    return decode_changes(media_type, body, definitions)


def relation_changes(media_type: str, body: bytes, relation: str = "bookings") -> Batch:
    return decode_relation_changes(media_type, body, relation, definitions)


def rows(batch: Batch) -> list[tuple[str, str, tuple[Any, ...]]]:
    """All good changes as (relation, op, values)."""
    return [
        (part.relation, OP_NAMES[op], tuple(row.values()))
        for part in batch.changes
        for op, row in zip(part.ops.tolist(), part.rows.arrow.to_pylist(), strict=True)
    ]


def faults(batch: Batch) -> list[tuple[int, str | None]]:
    return [(error.index, error.column) for error in batch.errors]
