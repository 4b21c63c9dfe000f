"""A batch of changes: the result of every decoder, and its encoding as Arrow.

A few rows are tuples: in Arrow, a single change would take 2.4 times as long to decode and to apply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.errors import RowError
from livejoin.wire.kinds import sent_batch
from livejoin.wire.schema import OP_COLUMN, RelationDefinition

INSERT, UPSERT, DELETE, TRUNCATE = 0, 1, 2, 3
OP_NAMES = ("insert", "upsert", "delete", "truncate")
OPS = {name: code for code, name in enumerate(OP_NAMES)}
OP_DICTIONARY = pa.array(OP_NAMES, pa.utf8())  # of a column of ops in Arrow: its indices are the codes
_TEXTS = str, bytes

RELATION_METADATA = b"livejoin.relation"
MAX_ERRORS = 100


class RowBlock:
    """Rows with the same columns: an Arrow record batch or, if they are few, tuples of physical Python values, because calls into Arrow
    take longer than the work on a single row.

    values, struct   the tuples and their type; None if the rows came as a record batch
    """

    __slots__ = ("values", "struct", "num_rows", "_batch", "_bytes")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.values: list[tuple[Any, ...]] | None = None
        self.struct: pa.StructType = None
        self._batch, self.num_rows, self._bytes = batch, batch.num_rows, -1

    @classmethod
    def few(cls, values: list[tuple[Any, ...]], struct: pa.StructType) -> RowBlock:
        """Return a block of tuples of physical values in the order of the struct's fields."""
        block = cls.__new__(cls)
        block.values, block.struct, block._batch, block.num_rows, block._bytes = values, struct, None, len(values), -1
        return block

    @property
    def arrow(self) -> pa.RecordBatch:
        """The rows as a record batch, converted once."""
        if self._batch is None:
            self._batch = pa.RecordBatch.from_struct_array(pa.array(self.values, self.struct))
        return self._batch

    @property
    def bytes(self) -> int:
        """Bytes of the values, at least; Arrow buffers are counted as a whole. Computed once."""
        if self._bytes < 0:
            self._bytes = self._count()
        return self._bytes

    def _count(self) -> int:
        if self.values is None:
            return int(self.arrow.get_total_buffer_size())
        size = 0
        for row in self.values:
            for value in row:
                size += 4 * len(value) if type(value) in _TEXTS else 16
        return size


class PreparedChanges(Protocol):
    """What a relation prepares for changes before they are applied."""

    @property
    def bytes(self) -> int: ...


class Changes:
    """Changes of one relation, in order, validated: it contains only valid rows.

    relation, definition    used for validation: the relation may have been replaced when they are applied
    ops, index              uint8[n]; int64[n], position in the batch as sent
    rows                    exactly the relation's columns in canonical types; deletes are null outside the key, truncates everywhere
    prepared                by the relation, or None
    """

    __slots__ = ("relation", "definition", "ops", "index", "rows", "prepared")

    def __init__(
        self, relation: str, definition: RelationDefinition, ops: npt.NDArray[np.uint8], rows: RowBlock, index: npt.NDArray[np.int64]
    ) -> None:
        self.relation, self.definition = relation, definition
        self.ops, self.rows, self.index = ops, rows, index
        self.prepared: PreparedChanges | None = None

    @property
    def bytes(self) -> int:
        return self.rows.bytes


def concatenated(parts: Sequence[Changes]) -> Changes:
    """Concatenate changes of one relation that were validated by one definition; at least one part."""
    first = parts[0]
    if len(parts) == 1:
        return first
    few = [part.rows.values for part in parts if part.rows.values is not None]
    if len(few) < len(parts):
        rows = RowBlock(pa.concat_batches([part.rows.arrow for part in parts]))
    else:
        rows = RowBlock.few([row for values in few for row in values], first.rows.struct)
    ops, index = (np.concatenate(columns) for columns in zip(*((part.ops, part.index) for part in parts), strict=True))
    return Changes(first.relation, first.definition, ops, rows, index)


@dataclass(slots=True)
class Batch:
    """One body. `errors` are the first 100 bad rows by index; `ignored` counts what is no change of a row, such as Debezium's `m`. `turn`:
    seconds that the writer took until the batch, and others applied with it, were on disk. `bad_keys`: of the bad rows with readable keys.
    `unclear`: the number of local times that do not exist, or exist twice, and were read with the offset before the change. `rebuilt`:
    builds of views for the batch (`engine.truncates`). `named`: the relations that it names, also those of which all changes are bad.
    `writes`: the relations that its sender may write to; None: all. `lacking`: of Debezium's records, for each nullable column, the
    positions of the upserts without it."""

    changes: list[Changes]
    sent: int
    ignored: int
    errors: list[RowError]
    error_count: int
    source: str | None = None
    epoch: int | None = None
    run: str | None = None
    reset: bool = False
    on_error: str = "reject"
    turn: float | None = None
    bad_keys: list[pa.RecordBatch] = field(default_factory=list)
    unclear: int = 0
    rebuilt: Sequence[Any] = ()
    named: Collection[str] = ()
    writes: frozenset[str] | None = None
    lacking: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum([changes.bytes for changes in self.changes])

    @property
    def prepared_bytes(self) -> int:
        """Bytes that relations have prepared for the changes, in addition to the changes."""
        return sum([changes.prepared.bytes for changes in self.changes if changes.prepared is not None])

    def drop_prepared(self) -> None:
        """Drop it; it is prepared again in the writer's turn."""
        for changes in self.changes:
            changes.prepared = None

    def release(self) -> None:
        """Release the rows once nobody reads them any more, whoever still holds the batch."""
        self.changes = []


def batch_to_arrow(batch: Batch) -> bytes:
    """Encode the good rows as a body for `POST /v1/changes`: one IPC stream per relation, each with a column `_op` over `OP_DICTIONARY`."""
    body = pa.BufferOutputStream()
    for changes in batch.changes:
        rows = sent_batch(changes.rows.arrow, changes.definition.sent_schema())
        rows = rows.append_column(OP_COLUMN, pa.DictionaryArray.from_arrays(changes.ops, OP_DICTIONARY))
        rows = rows.replace_schema_metadata({RELATION_METADATA: changes.relation.encode()})
        with pa.ipc.new_stream(body, rows.schema) as stream:
            stream.write_batch(rows)
    return bytes(body.getvalue())
