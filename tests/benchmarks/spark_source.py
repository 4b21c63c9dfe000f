"""Views read by Spark: one row by its key, and all rows, compared with a Python data source that has its rows in memory, with the service
alone, and with a download as a file. A local Spark with two threads; the medians of actions that were run in turns."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

import httpx
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import livejoin
from streaming.spark import prepare_own
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.served import serving

TITLE = "Spark: views read by format(\"livejoin\")"
PARTS, BATCH = 8, 41_000
COLUMNS = "id LONG, room LONG, s LONG, e LONG"


class InMemory(DataSource):
    """A source of as many rows as its option says, in batches as large as a service's."""

    @classmethod
    def name(cls) -> str:
        return "in_memory"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> InMemoryReader:
        return InMemoryReader(int(self.options["rows"]), int(self.options["parts"]))


class InMemoryReader(DataSourceReader):
    def __init__(self, rows: int, parts: int) -> None:
        self._rows, self._parts = rows, parts

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // self._parts) for _ in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for start in range(0, partition.value, BATCH):
            ids = np.arange(start, min(start + BATCH, partition.value))
            yield pa.RecordBatch.from_arrays([pa.array(ids)] * 4, ["id", "room", "s", "e"])


def run(scale: Scale, note: Note) -> list[Figure]:
    rows, turns = scale.size(1_000_000, 2_000), scale.size(7, 1)
    with patch.dict(os.environ, PYSPARK_PYTHON=sys.executable), serving(scale) as server, livejoin.connect(server.url) as lj:
        builder = SparkSession.builder.appName("spark_source").master("local[2]")
        for name, value in prepare_own().items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            spark.dataSource.register(InMemory)
            relation = lj.relation("r").create(dict.fromkeys(("id", "room", "s", "e"), "int64"), "id", {"stay": ("s", "e")})
            ids = np.arange(rows)
            relation.upsert(pa.table({"id": ids, "room": ids % 1000, "s": ids, "e": ids + 5}))
            view = lj.view("v", "SELECT id, room, s, e FROM r")
            return list(_figures(spark, view, server.url, rows, turns, note))
        finally:
            spark.stop()


def _figures(spark: SparkSession, view: livejoin.View, url: str, rows: int, turns: int, note: Note) -> Iterator[Figure]:

    def read(**options: object) -> DataFrame:
        return spark.read.format("livejoin").options(url=url, view="v", **options).load()

    memory, sought = spark.read.format("in_memory"), f"id = {rows // 2}"
    by_key = _in_turns(turns, {
        "spark": lambda: read(where=sought).collect(),
        "service": lambda: list(view.rows(where=sought)),
        "memory": lambda: memory.options(rows=1, parts=1).load().collect(),
    })  # fmt: skip
    both = middle(by_key["service"]) + middle(by_key["memory"])
    note(f"one row: {middle(by_key['spark']):.3f} s, {both:.3f} s by the service and by an empty source")
    rival = Rival("the service, and a Python source of one row", both, "the sum of both")
    yield sampled(f"{rows:,} rows: one by its key, `where`", by_key["spark"], "s", aim=2 * both, less=True, rivals=[rival])
    with tempfile.TemporaryDirectory() as folder:

        def downloaded() -> DataFrame:
            path = Path(folder) / "rows.parquet"
            with httpx.stream("GET", f"{url}/v1/views/v/rows.parquet", timeout=300) as answer, path.open("wb") as file:
                for block in answer.iter_bytes():
                    file.write(block)
            return spark.read.parquet(str(path))

        whole = _in_turns(turns, {
            "spark": lambda: _drained(read(parts=PARTS)),
            "memory": lambda: _drained(memory.options(rows=rows, parts=PARTS).load()),
            "file": lambda: _drained(downloaded()),
        })  # fmt: skip
    note(f"all rows: {', '.join(f'{name} {middle(taken):.2f} s' for name, taken in whole.items())}")
    rivals = [
        Rival("rows.parquet, downloaded and read", middle(whole["file"])),
        Rival("a Python source in memory", middle(whole["memory"]), "what Spark itself takes"),
    ]
    yield sampled(f"{rows:,} rows × 4 columns, {PARTS} parts", whole["spark"], "s", aim=1.5 * rivals[0].value, less=True, rivals=rivals)


def _drained(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _in_turns(turns: int, work: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """The seconds of each, after one run that is not timed."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(turns + 1):
        for name, one in work.items():
            elapsed = seconds(one)
            if turn:
                taken[name].append(elapsed)
    return taken
