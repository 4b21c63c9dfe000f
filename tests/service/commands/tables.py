"""Files of tables, for the tests of `livejoin load`."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq


def write(path: Path, table: pa.Table) -> None:
    """Write a table in the format that the name's endings tell."""
    kind = path.name.partition(".")[2].removesuffix(".gz")
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind in ("arrow", "arrows"):
        with (pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream)(path, table.schema) as writer:
            writer.write_table(table)
    else:
        rows = [
            [orjson.loads(orjson.dumps(value)) for value in row]
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
        ]
        text = io.StringIO()
        if kind == "csv":
            csv.writer(text).writerows([table.column_names, *rows])
        else:
            text.writelines(orjson.dumps(dict(zip(table.column_names, row, strict=True))).decode() + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.getvalue().encode()) if path.suffix == ".gz" else text.getvalue().encode())
