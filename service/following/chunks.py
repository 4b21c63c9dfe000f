"""Chunks of changes for followers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from service.errors import Problem

CHUNK_ROWS = 1 << 14
CHUNK_BYTES = 16 << 20


class Chunk(NamedTuple):
    """`rows`: keys (columns alias.column) and rows, equally long, of one op and version. A `progress` completes what came before, with a
    token. An `error` is the last chunk; its token (None before the first progress of a snapshot) marks what was sent completely."""

    kind: str  # "rows" | "progress" | "error"
    version: int
    op: str = ""  # "insert" | "delete" of rows
    keys: pa.RecordBatch | None = None
    rows: pa.RecordBatch | None = None
    token: str | None = None
    problem: Problem | None = None


def cut_up(version: int, op: str, keys: pa.RecordBatch, rows: pa.RecordBatch) -> Iterator[Chunk]:
    """Split into chunks of a bounded number of rows and about a maximum number of bytes, without copying."""
    count = keys.num_rows
    step = max(1, min(CHUNK_ROWS, CHUNK_BYTES * count // max(1, rows.nbytes)))
    for start in range(0, count, step):
        yield Chunk("rows", version, op, keys.slice(start, step), rows.slice(start, step))
