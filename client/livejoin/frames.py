"""Frames: pandas, polars and results of DuckDB as Arrow batches, and Arrow tables as frames."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas
    import polars

_EXACT = 2.0**53  # beyond it a float may have been another integer
_UNNAMED_INDEX = "__index_level_"


class ArrowStream(Protocol):
    """Everything that hands out Arrow data: tables, batches and readers of pyarrow, frames of polars and pandas, relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowReader(Protocol):
    """What DuckDB's `execute` returns."""

    def to_arrow_reader(self) -> object: ...


def record_batches(rows: Any) -> Iterator[pa.RecordBatch] | None:
    """Arrow data batch by batch, of one schema, without dictionaries; None: it is not Arrow data.

    Of a pandas frame, an index without a name is left out, and integers that pandas has made floats because some are missing are integers.
    """
    if isinstance(rows, list):
        return None
    if type(rows).__module__.partition(".")[0] == "pandas":
        is_named = any(name is not None for name in rows.index.names)
        batches: list[pa.RecordBatch] = _of_pandas(pa.Table.from_pandas(rows, preserve_index=is_named)).to_batches()
        return iter(batches)
    if hasattr(rows, "__arrow_c_stream__"):  # isinstance takes 10 µs to look for it
        reader = pa.RecordBatchReader.from_stream(rows)
    elif hasattr(rows, "to_arrow_reader"):
        reader = rows.to_arrow_reader()
    else:
        return None
    return (_decoded(batch) for batch in reader)


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Categories as their values."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    columns = [_values(column) if pa.types.is_dictionary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _values(column: pa.DictionaryArray) -> pa.Array:
    values = column.dictionary
    if pa.types.is_string_view(values.type):  # as of polars, which Arrow cannot decode
        column = pa.DictionaryArray.from_arrays(column.indices, values.cast(pa.large_utf8()))
    return column.dictionary_decode()


def _of_pandas(table: pa.Table) -> pa.Table:
    names = [name for name in table.column_names if not name.startswith(_UNNAMED_INDEX)]
    columns = [_of_series(table[name].combine_chunks()) for name in names]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, names=names)])


def _of_series(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return _values(column)
    if not pa.types.is_floating(column.type) or not column.null_count:
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column))
    is_whole = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), _EXACT))
    return column.cast(pa.int64()) if pc.all(is_whole).as_py() else column


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    """Integers with nulls are of pandas's type Int64: as floats they might be others."""
    pandas = _imported("pandas")
    has_gaps = any(pa.types.is_int64(column.type) and column.null_count for column in table.columns)
    return table.to_pandas(types_mapper={pa.int64(): pandas.Int64Dtype()}.get if has_gaps else None)


def to_polars(table: pa.Table) -> polars.DataFrame:
    frame: polars.DataFrame = _imported("polars").from_arrow(table)
    return frame


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"to_{name} needs {name}: install it, or livejoin-client[{name}]", name=name) from error
