"""Record batches put together: into portions that later steps can copy, and into one, of which Arrow bounds the bytes of a column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

MOST_ROWS = 1 << 17
MOST_BYTES = 1 << 26  # a row may be copied for many cells


class TooMuchAtOnce(ValueError):
    """More than a record batch can have."""

    def __init__(self) -> None:
        said = "rows that are handled together have more than 2 GiB of text or bytes in one column"
        ways = "let the sources read less at once (maxFilesPerTrigger, maxOffsetsPerTrigger, maxRows), or give more partitions"
        super().__init__(f"{said}: {ways}")


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in portions of about MOST_ROWS, or of MOST_BYTES if that is less; of one batch, if it is larger. None is empty."""
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if waiting and size + batch.nbytes > MOST_BYTES:
            yield as_one(waiting, waiting[0].schema)
            waiting, rows, size = [], 0, 0
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= MOST_ROWS:
            yield as_one(waiting, waiting[0].schema)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield as_one(waiting, waiting[0].schema)


def as_one(batches: Sequence[pa.RecordBatch], form: pa.Schema) -> pa.RecordBatch:
    """Raises TooMuchAtOnce."""
    return one_of(pa.Table.from_batches(batches, form))


def one_of(table: pa.Table) -> pa.RecordBatch:
    """As `as_one`, of a table."""
    found = table.combine_chunks().to_batches()  # several, where a column is longer than its offsets reach
    if len(found) > 1:
        raise TooMuchAtOnce
    return found[0] if found else pa.RecordBatch.from_arrays([pa.array([], one.type) for one in table.schema], schema=table.schema)
