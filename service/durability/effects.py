"""The effects of a batch on the rows of each relation, and their encoding in the log.

    payload := relation*
    relation := header (relation id, flags, length of deletes, length of inserts), deletes, inserts, ages
    deletes, inserts := an Arrow IPC record-batch message, or (flag 2) physical values as JSON, a list per row, bytes as a text with a
                        character for each; padded to 8 bytes; empty if there are no rows
    ages := (flag 4) their number, uint64, and a uint16 for each deleted and then each inserted row, padded to 8 bytes

Single changes that were applied together are separate versions, but share one payload, that of the last one: the age of a row is the number
of versions by which its change precedes that one.

The schemas are not in the payload: the catalogue has them, by the relation's id, with the number of columns of each version (its shapes):
definitions are only ever extended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from livejoin.wire.batch import RowBlock

_HEADER = struct.Struct("<iIQQ")
_COUNT = struct.Struct("<Q")
_TRUNCATE, _JSON, _AGES = 1, 2, 4
_PADDING = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")


class Effect(NamedTuple):
    """The resolved effect of one batch on one relation, in this order: truncate, deletes, inserts."""

    relation_id: int
    truncate: bool
    deletes: RowBlock  # key columns only, in the order of the key
    inserts: RowBlock  # all columns
    ages: npt.NDArray[np.integer[Any]] | None = None  # of the deletes, then of the inserts; None: all 0


def encode_effects(effects: Iterable[Effect]) -> bytes:
    """Return the log's payload for `effects`. Cost: one copy of the rows."""
    parts: list[bytes | pa.Buffer] = []
    for effect in effects:
        as_json = _fits_json(effect.deletes) and _fits_json(effect.inserts)
        flags = (_TRUNCATE if effect.truncate else 0) | (_JSON if as_json else 0) | (_AGES if effect.ages is not None else 0)
        deletes, inserts = _written(effect.deletes, as_json), _written(effect.inserts, as_json)
        size0, size1 = len(deletes), len(inserts)
        parts += _HEADER.pack(effect.relation_id, flags, size0, size1), deletes, _PADDING[size0 & 7], inserts, _PADDING[size1 & 7]
        if effect.ages is not None:
            ages = effect.ages.astype("<u2").tobytes()
            parts += _COUNT.pack(len(effect.ages)), ages, _PADDING[len(ages) & 7]
    return b"".join(parts)


def _fits_json(rows: RowBlock) -> bool:
    """Return whether the rows are none, or few whose values JSON preserves: it has no numbers that are not finite."""
    if rows.values is None:
        return bool(rows.num_rows == 0)
    for row in rows.values:
        for value in row:
            if type(value) is float and not isfinite(value):
                return False
    return True


def _written(rows: RowBlock, as_json: bool) -> bytes | pa.Buffer:
    if rows.num_rows == 0:
        return b""
    return orjson.dumps(rows.values, lambda value: value.decode("latin-1")) if as_json else rows.arrow.serialize()


class Form(NamedTuple):
    """The form of rows: their schema, as a struct, and the positions of their bytes columns."""

    schema: pa.Schema
    struct: pa.StructType
    binary: Sequence[int]

    @classmethod
    def of(cls, schema: pa.Schema) -> Form:
        return cls(schema, pa.struct(schema), [position for position, type_ in enumerate(schema.types) if pa.types.is_binary(type_)])


class EffectsShape(NamedTuple):
    """The forms of a relation's rows and of its keys: creating them takes longer than reading a row."""

    rows: Form
    keys: Form

    @classmethod
    def of(cls, rows: pa.Schema, key: Sequence[str]) -> EffectsShape:
        return cls(Form.of(rows), Form.of(pa.schema([rows.field(name) for name in key])))


def decode_effects(payload: bytes, shapes: Mapping[int, EffectsShape]) -> list[Effect]:
    """Return the effects in a payload, as zero-copy views on it. Relations that `shapes` lacks (dropped since) are omitted."""
    effects = []
    at = 0
    while at < len(payload):
        relation_id, flags, size0, size1 = _HEADER.unpack_from(payload, at)
        deletes_at = at + _HEADER.size
        inserts_at = deletes_at + size0 + (-size0 & 7)
        at = inserts_at + size1 + (-size1 & 7)
        ages = None
        if flags & _AGES:
            (count,) = _COUNT.unpack_from(payload, at)
            ages = np.frombuffer(payload, "<u2", count, at + _COUNT.size)
            at += _COUNT.size + 2 * count + (-2 * count & 7)
        shape = shapes.get(relation_id)
        if shape is None:
            continue
        as_json = bool(flags & _JSON)
        deletes = _read(payload, deletes_at, size0, shape.keys, as_json)
        inserts = _read(payload, inserts_at, size1, shape.rows, as_json)
        effects.append(Effect(relation_id, bool(flags & _TRUNCATE), deletes, inserts, ages))
    return effects


def _read(payload: bytes, at: int, size: int, form: Form, as_json: bool) -> RowBlock:
    if size == 0:
        return RowBlock.few([], form.struct)
    if as_json:
        rows = orjson.loads(payload[at : at + size])
        for position in form.binary:
            for row in rows:
                row[position] = None if row[position] is None else row[position].encode("latin-1")
        return RowBlock.few([tuple(row) for row in rows], form.struct)
    return RowBlock(pa.ipc.read_record_batch(pa.py_buffer(payload).slice(at, size), form.schema))
