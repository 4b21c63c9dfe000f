"""What a batch did to the rows of each relation, and its bytes in the log.

    payload := relation*
    relation := header (relation id, flags, length of deletes, length of inserts), deletes, inserts, ages
    deletes, inserts := an Arrow IPC record-batch message, or (flag 2) physical values as JSON, a list a row, bytes as a text of as many
                        characters; padded to 8 bytes; nothing when there are no rows
    ages := (flag 4) their number, uint64, and uint16 of each deleted and then of each inserted row, padded to 8 bytes

Single changes that were applied together are versions of their own, but have one payload, that of the last of them: the age of a row is how
many versions before that one it was changed.

The schemas are not in the payload: the catalogue has them, and the definition of an id never changes.
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

from service.wire.batch import RowBlock

_HEADER = struct.Struct("<iIQQ")
_COUNT = struct.Struct("<Q")
_TRUNCATE, _JSON, _AGES = 1, 2, 4
_PADDING = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")


class Effect(NamedTuple):
    """The resolved effect of one batch on one relation, in this order: truncate, deletes, inserts."""

    relation_id: int
    truncate: bool
    deletes: RowBlock  # key columns only, in the order of the key
    inserts: RowBlock  # whole rows
    ages: npt.NDArray[np.integer[Any]] | None = None  # of the deletes, then of the inserts; None: all are 0


def encode_effects(effects: Iterable[Effect]) -> bytes:
    """The log's payload for `effects`. Cost: one copy of the rows."""
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
    """No rows, or few, of values that come back as they are: JSON knows no number that is not finite."""
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
    return orjson.dumps(rows.values, _characters) if as_json else rows.arrow.serialize()


def _characters(value: bytes) -> str:
    return value.decode("latin-1")


def decode_effects(payload: bytes, schemas: Mapping[int, pa.Schema], keys: Mapping[int, Sequence[str]]) -> list[Effect]:
    """The effects of a payload, by zero-copy views on it. Relations that `schemas` lacks (dropped since) are left out."""
    buffer = pa.py_buffer(payload)
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
        schema = schemas.get(relation_id)
        if schema is None:
            continue
        key_schema = pa.schema([schema.field(name) for name in keys[relation_id]])
        effects.append(
            Effect(
                relation_id,
                bool(flags & _TRUNCATE),
                _read(buffer, deletes_at, size0, key_schema, bool(flags & _JSON)),
                _read(buffer, inserts_at, size1, schema, bool(flags & _JSON)),
                ages,
            )
        )
    return effects


def _read(buffer: pa.Buffer, at: int, size: int, schema: pa.Schema, as_json: bool) -> RowBlock:
    if size == 0:
        return RowBlock.few([], pa.struct(schema))
    if as_json:
        rows = orjson.loads(memoryview(buffer.slice(at, size)))
        for place in (place for place, type_ in enumerate(schema.types) if pa.types.is_binary(type_)):
            for row in rows:
                row[place] = None if row[place] is None else row[place].encode("latin-1")
        return RowBlock.few([tuple(row) for row in rows], pa.struct(schema))
    return RowBlock(pa.ipc.read_record_batch(buffer.slice(at, size), schema))
