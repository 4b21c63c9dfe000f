"""A batch of changes: the result of every decoder, and its form as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.wire.errors import RowError
from service.wire.schema import OP_COLUMN, RelationDefinition

INSERT, UPSERT, DELETE, TRUNCATE = 0, 1, 2, 3
OP_NAMES = ("insert", "upsert", "delete", "truncate")
OPS = {name: code for code, name in enumerate(OP_NAMES)}
ONE_OP = tuple(np.array([code], np.uint8) for code in OPS.values())  # of a single change, not written to
ONE_INDEX = np.zeros(1, np.int64)

RELATION_METADATA = b"livejoin.relation"
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
MAX_ERRORS = 100


class FewRows:
    """Rows as physical Python values, with the size interface of a `pa.RecordBatch`: calls into Arrow take longer than the work on one row.
    Several of them are combined into one array (`rows_together`)."""

    __slots__ = ("values", "struct", "num_rows")

    def __init__(self, values: list[tuple[Any, ...]], struct: pa.StructType) -> None:
        self.values, self.struct, self.num_rows = values, struct, len(values)

    def to_arrow(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_struct_array(pa.array(self.values, self.struct))

    def get_total_buffer_size(self) -> int:
        """At least the bytes of the values."""
        size = 0
        for row in self.values:
            for value in row:
                size += 4 * len(value) if type(value) is str else 16
        return size


class Changes:
    """Changes of one relation, in order, validated: valid rows only.

    relation, definition    used for validation: the relation may have been replaced by the time they are applied
    ops, index              uint8[n]; int64[n], position in the batch as sent
    rows                    exactly the relation's columns in canonical types; deletes are null outside the key, truncates everywhere
    """

    __slots__ = ("relation", "definition", "ops", "index", "_rows")

    def __init__(
        self, relation: str, definition: RelationDefinition, ops: npt.NDArray[np.uint8], rows: pa.RecordBatch | FewRows,
        index: npt.NDArray[np.int64],
    ) -> None:  # fmt: skip
        self.relation, self.definition = relation, definition
        self.ops, self.index = ops, index
        self._rows = rows

    @property
    def rows(self) -> pa.RecordBatch:
        if isinstance(self._rows, FewRows):
            self._rows = self._rows.to_arrow()
        return self._rows

    @property
    def rows_as_sent(self) -> pa.RecordBatch | FewRows:
        """The rows in their current form."""
        return self._rows

    @property
    def bytes(self) -> int:
        """The size of the rows in memory; buffers are counted in full."""
        return int(self._rows.get_total_buffer_size())


def rows_together(parts: Sequence[Changes]) -> pa.RecordBatch:
    """The rows of several changes of one relation (with one definition), concatenated."""
    few = [part._rows for part in parts if isinstance(part._rows, FewRows)]
    if len(few) < len(parts):
        return pa.concat_batches([part.rows for part in parts])
    return FewRows([row for rows in few for row in rows.values], few[0].struct).to_arrow()


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
        return sum([changes.bytes for changes in self.changes])


def batch_to_arrow(batch: Batch) -> bytes:
    """The valid rows as a body for `POST /v1/changes`: one IPC stream per relation, each with a text column `_op`."""
    names = pa.array(OP_NAMES, pa.utf8())
    parts: list[bytes] = []
    for changes in batch.changes:
        rows = changes.rows.append_column(OP_COLUMN, names.take(pa.array(changes.ops)))
        rows = rows.replace_schema_metadata({RELATION_METADATA: changes.relation.encode()})
        parts += (rows.schema.serialize().to_pybytes(), rows.serialize().to_pybytes(), END_OF_STREAM)
    return b"".join(parts)
