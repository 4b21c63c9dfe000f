"""The data source `livejoin`: what Spark asks it for, and which class does that.

Nothing of the client is imported before it is needed, because Spark imports this module whenever it looks for data sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from livejoin.datasource.errors import DataSourceError

if TYPE_CHECKING:
    from livejoin.datasource.options import Options
    from livejoin.datasource.readers import BatchReader, StreamReader
    from livejoin.datasource.sink import BatchWriter, StreamWriter

_CHOSEN = ("where", "columns", "overlaps")
_BATCH = ("view", "relation", *_CHOSEN, "version", "parts", "hold", "timeType", "changes")
_STREAM = ("view", *_CHOSEN, "changes", "maxRows", "snapshot", "timeType")


class LivejoinSource(DataSource):
    """The class behind `format("livejoin")`; the options are in docs/how-to/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "livejoin"

    def schema(self) -> StructType:
        """Of the rows of the view or relation; with the option `changes`, of the view's changes."""
        from livejoin.datasource.options import is_of_new_table
        from livejoin.datasource.readers import schema_of
        from livejoin.datasource.sink import BATCH, STREAM

        is_table = is_of_new_table(self.options)
        options = self._options("for reading", *dict.fromkeys((*_BATCH, *_STREAM, *((*BATCH, *STREAM) if is_table else ()))))
        columns = schema_of(options)
        return options.kept_in(columns) if is_table else columns

    def reader(self, schema: StructType) -> BatchReader:
        from livejoin.datasource.readers import BatchReader

        options = self._options("for reading rows", *_BATCH, columns=schema)
        if options.is_on("changes"):
            raise DataSourceError("changes can only be read as a stream, with spark.readStream; to read rows, omit the option 'changes'")
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        from livejoin.datasource.readers import StreamReader

        options = self._options("for reading a stream", *_STREAM, columns=schema)
        if not options.is_on("changes"):
            raise DataSourceError("a stream reads changes: set the option 'changes' to true, which adds the columns that describe them")
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from livejoin.datasource.sink import BATCH, BatchWriter

        return BatchWriter(self._options("for writing", *BATCH, columns=schema, writes=True), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from livejoin.datasource.sink import STREAM, StreamWriter

        return StreamWriter(self._options("for writing a stream", *STREAM, columns=schema, writes=True), overwrite)

    def _options(self, what: str, *known: str, columns: StructType | None = None, writes: bool = False) -> Options:
        from livejoin.datasource.options import Options
        from livejoin.datasource.versions import LACKING

        options = Options(self.options, what, known, columns, writes)
        for name, version in LACKING.items():
            if options.optional(name) not in (None, "false"):
                raise DataSourceError(f"the option {name!r} requires PySpark {version} or newer")
        return options
