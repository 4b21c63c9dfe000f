"""The rows of a cell as blobs: each is an Arrow record batch without its schema, which both sides know.

Spark moves one blob for some thousand rows; a separate row would cost it several microseconds on the way through Python. Batches are first
combined (`gathered`), and so are the contents of blobs (`as_one`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from streaming.cluster.layout import Numbers, RoutedRows

SCHEMA = pa.schema([pa.field("cell", pa.int32(), False), pa.field("role", pa.int32(), False), pa.field("rows", pa.binary(), False)])

MOST_ROWS = 1 << 17
MOST_BYTES = 1 << 26  # a row may be copied for many cells

ASKS = -1
QUESTION = {"cell": 0, "role": ASKS, "rows": b""}
"""In place of a blob: whether the states are of this plan. It goes to the cell that has the label 0, which is one of any layout."""


def here(coordinate: int) -> str:
    """The column that tells whether a row starts in the cell."""
    return f"_here{coordinate}"


def packed(role: int, rows: pa.RecordBatch, routed: RoutedRows) -> pa.RecordBatch:
    """One blob for each cell that gets any of the rows, with columns `here` for the coordinates that have them."""
    order = np.argsort(routed.cells, kind="stable")
    copies = rows.take(pa.array(routed.rows[order]))
    for coordinate, mask in enumerate(routed.here):
        if mask is not None:
            copies = copies.append_column(here(coordinate), pa.array(mask[order]))
    return _cut(role, copies, routed.cells[order])


def packed_by(role: int, rows: pa.RecordBatch, positions: Numbers) -> pa.RecordBatch:
    """One blob for each place that gets any of the rows."""
    order = np.argsort(positions, kind="stable")
    return _cut(role, rows.take(pa.array(order)), positions[order])


def _cut(role: int, rows: pa.RecordBatch, positions: Numbers) -> pa.RecordBatch:
    """`positions`: ascending."""
    starts = np.flatnonzero(np.concatenate(([True], positions[1:] != positions[:-1]))) if len(positions) else np.empty(0, np.int64)
    ends = np.append(starts[1:], len(positions))
    blobs = [rows.slice(start, end - start).serialize().to_pybytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    columns = [pa.array(positions[starts], pa.int32()), pa.array(np.full(len(blobs), role), pa.int32()), pa.array(blobs, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def unpacked(batches: Iterable[pa.RecordBatch], schemas: list[pa.Schema]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """(cell, role, rows) of each blob; `schemas` by role."""
    for batch in batches:
        for cell, role, blob in zip(*(batch.column(at) for at in range(3)), strict=True):
            own = pa.py_buffer(blob.as_py())  # a copy: in the batch it may begin at an odd address
            yield cell.as_py(), role.as_py(), pa.ipc.read_record_batch(own, schemas[role.as_py()])


class TooMuchAtOnce(ValueError):
    """More than fits in a record batch."""

    def __init__(self) -> None:
        said = "rows that are processed together have more than 2 GiB of text or bytes in one column"
        ways = "limit how much the sources read at once (maxFilesPerTrigger, maxOffsetsPerTrigger, maxRows), or use more partitions"
        super().__init__(f"{said}: {ways}")


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in portions of about MOST_ROWS, or of MOST_BYTES if that is less; a larger batch stays one portion. No portion is
    empty."""
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and (rows >= MOST_ROWS or size + batch.nbytes > MOST_BYTES):
            yield as_one(waiting, waiting[0].schema)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield as_one(waiting, waiting[0].schema)


def as_one(batches: Sequence[pa.RecordBatch], form: pa.Schema) -> pa.RecordBatch:
    """Raises TooMuchAtOnce."""
    return one_of(pa.Table.from_batches(batches, form))


def one_of(table: pa.Table) -> pa.RecordBatch:
    """Like `as_one`, for a table."""
    found = table.combine_chunks().to_batches()  # several, where a column is longer than its offsets reach
    if len(found) > 1:
        raise TooMuchAtOnce
    return found[0] if found else pa.RecordBatch.from_arrays([pa.array([], one.type) for one in table.schema], schema=table.schema)
