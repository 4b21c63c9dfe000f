"""Rows as the bytes of a file. The same rows give the same bytes, whatever chunks they come in: clients read the parts of a file
separately."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from livejoin.wire.rows import Pieces
from service.api.http import formats, media
from service.api.http.formats import Format

GROUP_ROWS, GROUP_BYTES = 65_536, 16 << 20  # upper bounds of a row group of Parquet, or an Arrow batch

KINDS = {"parquet": media.PARQUET, "arrow": media.ARROW, "csv": media.CSV, "jsonl": media.JSONL}


def make(suffix: str, version: int, schema: pa.Schema) -> Format:
    if suffix == "parquet":
        return RowGroups(Parquet(schema), schema)
    made = formats.make(KINDS[suffix], version, schema)
    return RowGroups(made, schema) if suffix == "arrow" else made


class RowGroups(Format):
    """Wraps another format, and passes it the rows in groups that depend on the rows alone. Memory: one group."""

    def __init__(self, inner: Format, schema: pa.Schema) -> None:
        self._inner, self._groups = inner, _Groups(schema)

    def head(self) -> bytes:
        return self._inner.head()

    def chunk(self, rows: pa.RecordBatch) -> Pieces:
        return [piece for group in self._groups.add(rows) for piece in self._inner.chunk(group)]

    def end(self, following: str | None) -> bytes:
        rest = [piece for group in self._groups.rest() for piece in self._inner.chunk(group)]
        return b"".join([*rest, self._inner.end(following)])


class Parquet(Format):
    """Parquet, with one row group per chunk."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Sink()
        self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, "w"), schema)

    def head(self) -> bytes:
        return self._sink.take()

    def chunk(self, rows: pa.RecordBatch) -> Pieces:
        self._writer.write_batch(rows, row_group_size=rows.num_rows)
        return [self._sink.take()]

    def end(self, following: str | None) -> bytes:
        self._writer.close()
        return self._sink.take()


class _Sink:
    """A write-only file whose bytes are removed as they arrive."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


class _Groups:
    """Collects rows until the next one would exceed a group. A row larger than a group forms one by itself."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._texts = [index for index, field in enumerate(schema) if _is_text(field.type)]
        self._width = sum(1 + field.type.bit_width // 8 for field in schema if not _is_text(field.type))  # approximately
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the groups that these rows complete. Columns that have become nullable since have no nulls at this version."""
        rows = pa.RecordBatch.from_arrays(rows.columns, schema=self._schema)
        ends = np.cumsum(self._sizes(rows))
        start = begun = 0
        while start < rows.num_rows:
            fitting = int(np.searchsorted(ends, begun + GROUP_BYTES - self._bytes, side="right")) - start
            taken = min(GROUP_ROWS - self._rows, max(fitting, 0 if self._rows else 1))
            if taken > 0:
                part = rows.slice(start, taken)
                self._held.append(part)
                start += part.num_rows
                self._rows += part.num_rows
                self._bytes += int(ends[start - 1]) - begun
                begun = int(ends[start - 1])
            if start < rows.num_rows:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected rows, if any."""
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        if held:
            yield pa.concat_batches(held)

    def _sizes(self, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        sizes = np.full(rows.num_rows, self._width, np.int64)
        for number in self._texts:
            sizes += pc.fill_null(pc.binary_length(rows.column(number)), 0).to_numpy(zero_copy_only=False)
        return sizes


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
