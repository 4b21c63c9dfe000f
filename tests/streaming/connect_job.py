"""The data source and the joins over Spark Connect: a process that starts its server, and prints what it found as JSON.

    python -m tests.streaming.connect_job PART URL FOLDER    `source`, of a service that has the relation a and the view v, or `joins`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_livejoin import Table, explain, live_join, overlap_join, snapshot, status, stream_layout
from streaming.cluster import batch
from tests.streaming.cluster.stream_query import settings

SQL = "SELECT a.id AS x, b.id AS y FROM a JOIN b ON a.room = b.room AND overlaps(a.stay, b.stay)"
STAYS = "id LONG, room STRING, s LONG, e LONG"


class Job:
    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark, self.url, self.folder = spark, url, folder

    def pairs(self, frame: DataFrame) -> list[list[int]]:
        return sorted(map(list, frame.select("x", "y").collect()))

    def run(self, frame: DataFrame, name: str) -> list[dict[str, Any]]:
        """Return everything that a stream has now, by a query with the checkpoint of this name."""
        query = frame.writeStream.format("parquet").option("path", str(self.folder / name / "out"))
        query = query.option("checkpointLocation", self.checkpoint(name)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        return [row.asDict() for row in self.spark.read.parquet(str(self.folder / name / "out")).collect()]

    def checkpoint(self, name: str) -> str:
        return str(self.folder / name / "checkpoint")

    def view(self) -> DataFrame:
        return self.spark.read.format("livejoin").options(url=self.url, view="v", parts=3).load()

    def written_and_read(self) -> dict[str, Any]:
        """Rows of the view; how writing a stream and a frame changes it; the view afterwards."""
        before = self.pairs(self.view())
        changes = self.spark.readStream.format("livejoin").options(url=self.url, view="v", changes=True).load()
        assert self.run(changes, "follow") == []
        (self.folder / "in").mkdir()
        (self.folder / "in" / "0.json").write_text('{"_op": "delete", "id": 0}\n{"_op": "upsert", "id": 99, "room": "A", "s": 0, "e": 9}\n')
        rows = self.spark.readStream.schema(f"_op STRING, {STAYS}").json(str(self.folder / "in"))
        writer = rows.writeStream.format("livejoin").options(url=self.url, relation="a", source="connect")
        query = writer.option("checkpointLocation", self.checkpoint("write")).trigger(availableNow=True).start()
        query.awaitTermination(120)
        frame = self.spark.createDataFrame([(98, "A", 0, 9)], STAYS)
        frame.write.format("livejoin").options(url=self.url, relation="a").mode("append").save()
        emitted = sorted([row["_op"], row["x"], row["y"]] for row in self.run(changes, "follow"))
        return {"before": before, "emitted": emitted, "after": self.pairs(self.view())}

    def joined(self) -> dict[str, Any]:
        """The join of the same rows on the cluster: of DataFrames, and of streams."""
        rows = [(number, "AB"[number % 2], 7 * number % 100, 7 * number % 100 + number % 9 + 1) for number in range(300)]
        frame = self.spark.createDataFrame(rows, STAYS)
        of_pairs = overlap_join(
            frame.withColumnRenamed("id", "x"), frame.withColumnsRenamed({"id": "y", "s": "t", "e": "u"}), ("s", "e"), ("t", "u"), ["room"]
        )
        batch._COMPARED = 0  # as of many rows
        lonely = overlap_join(frame, frame.where("id < 100"), ("s", "e"), ("s", "e"), "room", how="anti")
        stay = {"stay": ("s", "e")}
        frame.write.parquet(str(self.folder / "stays"))
        stream = self.spark.readStream.schema(STAYS).parquet(str(self.folder / "stays"))
        frames = {name: Table(frame, ["id"], stay) for name in "ab"}
        changes = live_join(SQL, {name: Table(stream, ["id"], stay) for name in "ab"}, layout=stream_layout(SQL, frames, 8))
        emitted = self.run(changes, "join")
        assert {row["_op"] for row in emitted} == {"insert"}
        kept = snapshot(self.spark, self.checkpoint("join"))
        return {
            "rows": rows,
            "overlap_join": self.pairs(of_pairs),
            "anti": sorted(row["id"] for row in lonely.collect()),
            "live_join": self.pairs(live_join(SQL, frames)),
            "explain": explain(SQL, frames),
            "stream": sorted([row["x"], row["y"]] for row in emitted),
            "snapshot": self.pairs(kept),
            "status": [row.asDict() for row in status(self.checkpoint("join")).collect()],
        }


def main(part: str, url: str, folder: Path) -> None:
    remote = {name: value for name, value in settings().items() if name != "spark.master"}
    spark = SparkSession.builder.appName("connect").remote("local[2]").config(map=remote).getOrCreate()
    job = Job(spark, url, folder)
    print(json.dumps({"session": type(spark).__module__, **(job.written_and_read() if part == "source" else job.joined())}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
