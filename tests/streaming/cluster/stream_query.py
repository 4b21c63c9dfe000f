"""A view over streams of files, in a Spark with two threads, or as its master says; as a process, one that is killed and started again.

    python -m tests.streaming.cluster.stream_query FOLDER    runs until FOLDER/end is there, and all files are read
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from streaming.cluster.changes import Kind
from streaming.cluster.frames import Table
from streaming.cluster.streams import live_join
from streaming.spark import prepare_own
from tests.streaming.cluster.churn import KEYS, SCHEMAS
from tests.streaming.cluster.test_batch import SPANS

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATES = {
    PROVIDER: ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # RocksDB's store casts to this class; a Java process that had another session keeps the class that it had there.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "spark.hadoop.fs.file.impl.disable.cache": "true",
}
_NOT_WITH_ROCKSDB = "spark.sql.streaming.checkpointFileManagerClass"
_FIELDS = {"ordered": {"_op": pa.utf8(), "_seq": pa.int64()}, "images": {"_op": pa.utf8()}, "inserts": {}}


def settings() -> dict[str, str]:
    return {key: value for key, value in (prepare_own() | _STATES).items() if key != _NOT_WITH_ROCKSDB}


def session(more: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    return SparkSession.builder.appName("streams").config(map=settings() | dict(more)).getOrCreate()


def changes_of(
    spark: SparkSession, folder: Path, sql: str, names: list[str], kind: Kind, width: int | None, layout: str | None = None
) -> DataFrame:  # fmt: skip
    tables = {}
    for one in names:
        fields = [*((field.name, field.type) for field in SCHEMAS[one]), *_FIELDS[kind].items()]
        schema = ", ".join(f"{name} {'string' if type_ == pa.utf8() else 'long'}" for name, type_ in fields)
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / one))
        tables[one] = Table(frame, [KEYS[one]], SPANS[one])
    return live_join(sql, tables, width=width, layout=layout, before_images=kind == "images")


def write(folder: Path, name: str, kind: Kind, number: int, rows: list[Mapping[str, Any]]) -> None:
    """A file for the stream, which appears whole."""
    schema = pa.schema([*SCHEMAS[name], *_FIELDS[kind].items()])
    hidden = folder / name / f".{number}"
    pq.write_table(pa.Table.from_pylist(rows, schema), hidden)
    os.rename(hidden, folder / name / f"{number}.parquet")


def emitted(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """By epoch, what the sink of the process has kept."""
    return {int(path.stem): json.loads(path.read_text()) for path in (folder / "out").glob("*.json")}


def _sink(folder: Path) -> Callable[[DataFrame, int], None]:
    def keep(frame: DataFrame, epoch: int) -> None:
        rows = sorted(frame.toArrow().to_pylist(), key=lambda row: (row["_op"] != "delete", str(row)))
        path = folder / "out" / f"{epoch}.json"
        if path.exists() and json.loads(path.read_text()) != rows:
            (folder / "differs").write_text(f"epoch {epoch}: {path.read_text()} and then {rows}")
        path.with_suffix(".new").write_text(json.dumps(rows))
        path.with_suffix(".new").rename(path)

    return keep


def main(folder: Path) -> None:
    given = json.loads((folder / "view.json").read_text())
    changes = changes_of(session({"spark.master": given["master"]}), folder, **given["view"])
    query = changes.writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(_sink(folder)).start()
    while not (folder / "end").exists() and query.isActive:
        time.sleep(0.2)
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
