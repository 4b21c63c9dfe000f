"""Two relations and a view in a real service, and what a real Spark reads and writes of them by `format("livejoin")`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession

import livejoin
from tests.server_process import ServerProcess

COLUMNS = {"id": "int64", "room": "string", "s": "int64", "e": {"type": "int64", "nullable": True}}
COLUMNS_DDL = "id LONG, room STRING, s LONG, e LONG"
STAY = {"stay": ("s", "e")}
SQL = "SELECT b.id AS booking, m.id AS job FROM {0} b JOIN {1} m ON b.room = m.room AND overlaps(b.stay, m.stay)"
Pair = tuple[int, int]


class Hotel:
    """Two relations and the view of their clashes, of one test, and what Spark reads and writes of them."""

    def __init__(self, spark: SparkSession, service: ServerProcess, lj: livejoin.Client, name: str, folder: Path, **options: Any) -> None:
        self.spark, self.service, self.lj, self.folder = spark, service, lj, folder
        self.bookings = lj.relation(f"{name}_b").create(COLUMNS, "id", STAY)
        self.jobs = lj.relation(f"{name}_m").create(COLUMNS, "id", STAY)
        self.view = lj.view(f"{name}_v", SQL.format(self.bookings.name, self.jobs.name), **options)
        self.found: Counter[Pair] = Counter()  # by the query, batch by batch
        self.batches: list[int] = []  # how many rows of changes each had
        self.failing = False

    def book(self, *numbers: int) -> None:
        self.bookings.upsert([{"id": number, "room": "A", "s": 0, "e": 10} for number in numbers])

    def work(self, *numbers: int) -> None:
        self.jobs.upsert([{"id": number, "room": "A", "s": 5, "e": None} for number in numbers])

    @property
    def clashes(self) -> Counter[Pair]:
        return Counter((row["booking"], row["job"]) for row in self.view.rows())

    def batch(self, **options: Any) -> DataFrame:
        reader = self.spark.read.format("livejoin").option("url", self.service.url).option("view", self.view.name)
        return reader.options(**options).load()

    def follow(self, **options: Any) -> None:
        """Read the changes that there are by a query on the checkpoint of this test, which takes them into account."""
        stream = self.spark.readStream.format("livejoin").option("url", self.service.url).option("view", self.view.name)
        changes = stream.option("changes", True).options(**options).load()

        def take(batch: DataFrame, epoch: int) -> None:
            rows = batch.collect()
            if self.failing:
                raise ValueError("the sink has failed")
            self.batches.append(len(rows))
            for row in rows:
                assert (row["b.id"], row["m.id"]) == (row["booking"], row["job"]) and row["_version"] > 0
                self.found[row["booking"], row["job"]] += 1 if row["_op"] == "insert" else -1

        writer = changes.writeStream.foreachBatch(take).option("checkpointLocation", str(self.folder / "read"))
        writer.trigger(availableNow=True).start().awaitTermination(120)

    def write(self, url: str | None = None, **options: Any) -> None:
        """Write the files of the folder `in`, one a batch, into the bookings."""
        files = self.spark.readStream.schema("_op STRING, id LONG, room STRING, s LONG, e LONG").option("maxFilesPerTrigger", 1)
        writer = files.json(str(self.folder / "in")).writeStream.format("livejoin").option("url", url or self.service.url)
        writer = writer.option("relation", self.bookings.name).option("checkpointLocation", str(self.folder / "write"))
        writer.options(**{"source": self.bookings.name} | options).trigger(availableNow=True).start().awaitTermination(120)

    def put(self, name: str, *numbers: int, op: str = "insert", room: str = '"A"') -> None:
        """A file of bookings; an insert of one that is there would be refused."""
        (self.folder / "in").mkdir(exist_ok=True)
        lines = [f'{{"_op": "{op}", "id": {number}, "room": {room}, "s": 0, "e": 10}}\n' for number in numbers]
        (self.folder / "in" / f"{name}.json").write_text("".join(lines))

    @property
    def version(self) -> int:
        answer = httpx.get(f"{self.service.url}/v1/relations/{self.bookings.name}/rows", params={"limit": 0})
        return int(answer.headers["Livejoin-Version"])

    def save(self, rows: DataFrame, mode: str = "append", **options: Any) -> None:
        """Write the rows into the bookings, in batch."""
        writer = rows.write.format("livejoin").options(url=self.service.url, relation=self.bookings.name, **options)
        writer.mode(mode).save()

    @property
    def booked(self) -> list[int]:
        return sorted(row["id"] for row in self.bookings.rows())


Made = Callable[..., Hotel]


def failed(error: pytest.ExceptionInfo[Any]) -> str:
    return str(error.value)
