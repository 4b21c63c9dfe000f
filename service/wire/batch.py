"""A batch of changes: what every decoder gives, and how it travels on as Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.wire.errors import RowError
from service.wire.schema import OP_COLUMN, RelationDefinition

INSERT, UPSERT, DELETE, TRUNCATE = 0, 1, 2, 3
OP_NAMES = ("insert", "upsert", "delete", "truncate")
OPS = {name: code for code, name in enumerate(OP_NAMES)}

RELATION_METADATA = b"livejoin.relation"
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
MAX_ERRORS = 100


@dataclass(slots=True)
class Changes:
    """Changes of one relation, in order, judged for form: good rows only.

    `rows` has exactly the relation's columns in canonical types; deletes are null outside the key, truncates everywhere.
    """

    relation: str
    definition: RelationDefinition  # which it was judged by: the relation may be another by the time they are applied
    ops: npt.NDArray[np.uint8]
    rows: pa.RecordBatch
    index: npt.NDArray[np.int64]  # position in the batch as sent


@dataclass(slots=True)
class Batch:
    """One body. `errors` are the first 100 bad rows by index; `ignored` counts Debezium's `m` and tombstones."""

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

    @property
    def bytes(self) -> int:
        """Of the rows in memory; buffers are counted whole."""
        return sum(changes.rows.get_total_buffer_size() for changes in self.changes)


def batch_to_arrow(batch: Batch) -> bytes:
    """The good rows as a body for `POST /v1/changes`: one IPC stream a relation, each with a text column `_op`."""
    names = pa.array(OP_NAMES, pa.utf8())
    parts: list[bytes] = []
    for changes in batch.changes:
        rows = changes.rows.append_column(OP_COLUMN, names.take(pa.array(changes.ops)))
        rows = rows.replace_schema_metadata({RELATION_METADATA: changes.relation.encode()})
        parts += (rows.schema.serialize().to_pybytes(), rows.serialize().to_pybytes(), END_OF_STREAM)
    return b"".join(parts)
