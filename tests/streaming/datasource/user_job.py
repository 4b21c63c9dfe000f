"""A job of a user of the data source, on any version of PySpark: it imports PySpark and the client alone, and fails if anything is wrong.
The service has none of its relations yet.

    spark-submit user_job.py URL FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession

import livejoin

KINDS = ("int64", "float64", "timestamp", "date", "time", "string", "bool", "bytes", "uuid", "json")
ROW = {
    "id": 1, "int64": -(2**63), "float64": 0.1, "timestamp": "2026-03-29T01:30:00.123456Z", "date": "1969-12-31", "string": "é",
    "bool": True, "bytes": "AP8=", "uuid": "0f8fad5b-d9cb-469f-a165-70867728950e", "json": '{"a": 1}', "decimal": "-1234567890.12",
    "time": "23:59:59.999999",
}  # fmt: skip
VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
LIMIT = 120  # seconds for a query


def refused(action: Any, *said: str) -> None:
    try:
        action()
    except Exception as error:
        assert all(part in str(error) for part in said), error
    else:
        raise AssertionError(f"not refused: {said}")


class UserJob:
    def __init__(self, spark: SparkSession, url: str, lj: livejoin.Client, folder: Path) -> None:
        self.spark, self.url, self.lj, self.folder = spark, url, lj, folder
        self.batches: list[list[tuple[str, int]]] = []  # the changes of the view s that were read
        self.failing = False
        self.stays = lj.relation("stays").create({"id": "int64", "room": "string", "s": "int64", "e": "int64"}, "id", {"stay": ("s", "e")})
        self.view = lj.view("s", "SELECT id, room FROM stays")

    def put(self, *ids: int) -> None:
        self.stays.upsert([{"id": number, "room": "A", "s": number, "e": number + 9} for number in ids])

    @property
    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.view.rows())

    @property
    def found(self) -> list[int]:
        """The rows of the view s by the changes that were read."""
        rows: Counter[int] = Counter()
        for op, number in (change for batch in self.batches for change in batch):
            rows[number] += 1 if op == "insert" else -1
        assert set(rows.values()) <= {0, 1}
        return sorted(rows.elements())

    def read(self, **options: Any) -> DataFrame:
        return self.spark.read.format("livejoin").options(url=self.url, **{"view": "s"} | options).load()

    def write(self, rows: DataFrame, **options: Any) -> None:
        rows.write.format("livejoin").options(url=self.url, **options).mode("append").save()

    def check_types(self) -> None:
        """Of all types, extremes and nulls: what is written by Spark is what it has read."""
        columns: dict[str, Any] = {kind: {"type": kind, "nullable": True} for kind in KINDS}
        columns |= {"decimal": {"type": "decimal", "precision": 12, "scale": 2, "nullable": True}, "id": "int64"}
        one, other = (self.lj.relation(name).create(columns, "id") for name in ("types", "types_again"))
        one.upsert([ROW, {"id": 2, "time": "08:30:00"}, {"id": 3}])
        self.lj.view("t", "SELECT * FROM types")
        for times in (False, True):
            other.truncate()
            if times and VERSION < (4, 1):
                refused(lambda: self.read(view="t", timeType=True), "the option 'timeType' requires PySpark 4.1 or newer")
                return
            self.spark.conf.set("spark.sql.timeType.enabled", times)
            frame = self.read(view="t", parts=3, timeType=times)
            renamed = frame.select(*[frame[f"`{name}`"].alias(name.rpartition(".")[2]) for name in frame.columns])
            types = dict(renamed.dtypes)
            assert [types[name] for name in ("decimal", "timestamp", "date")] == ["decimal(12,2)", "timestamp", "date"]
            assert types["time"] == ("time(6)" if times else "string")
            self.write(renamed, relation="types_again")
            written, read = (sorted(relation.rows(), key=lambda row: row["id"]) for relation in (other, one))
            assert written == read and len(written) == 3, (written, read)

    def check_batch(self) -> list[str]:
        """Return where the tasks ran."""
        rows = self.spark.range(1000).selectExpr("id", "'A' AS room", "id AS s", "id + 1 AS e").repartition(4)
        self.write(rows, relation="stays")
        frame = self.read(parts=8)
        assert frame.rdd.getNumPartitions() == 8 and frame.count() == 1000
        self.write(self.spark.range(990).selectExpr("id", "'delete' AS _op"), relation="stays")
        assert frame.count() == 10 and self.ids == list(range(990, 1000)), "each action reads the newest version"
        assert frame.alias("a").join(self.read(parts=2).alias("b"), "id").count() == 10
        for name, what in (("shown", "view 's'"), ("stored", "relation 'stays'")):
            self.spark.sql(f"CREATE TABLE {name} USING livejoin OPTIONS (url '{self.url}', {what})")
        self.spark.sql(f"INSERT INTO stored WITH (url '{self.url}', relation 'stays') SELECT 1, 'B', 0, 9")
        assert self.spark.sql("SELECT * FROM shown WHERE room = 'B'").count() == 1
        for name in ("shown", "stored"):
            self.spark.sql(f"DROP TABLE {name}")

        def placed(rows: Iterator[Row]) -> Iterator[str]:
            list(rows)
            time.sleep(0.5)  # so that one executor is not quick enough for all
            yield f"{Path.cwd().name} {sys.executable}"

        return sorted(set(frame.rdd.mapPartitions(placed).collect()))

    def follow(self, waiting: bool = False, **options: Any) -> None:
        """Read the changes that there are, or, `waiting`, those that come until all rows of the view were found."""
        stream = self.spark.readStream.format("livejoin").options(url=self.url, view="s", changes=True, snapshot=True)

        def take(batch: DataFrame, epoch: int) -> None:
            rows = sorted((row["_op"], row["id"]) for row in batch.collect())
            if self.failing:
                raise ValueError("the sink has failed")
            assert rows and self.batches[epoch : epoch + 1] in ([], [rows]), "a batch that is run again has the same rows"
            self.batches[epoch:] = [rows]

        writer = stream.options(**options).load().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(self.folder / "read"))
        if not waiting:
            writer.trigger(availableNow=True).start().awaitTermination(LIMIT)
            return
        query, end = writer.start(), time.monotonic() + LIMIT
        for number in range(2001, 2004):
            self.put(number)
            while self.found != self.ids:
                assert query.exception() is None and time.monotonic() < end, self.batches
                time.sleep(0.1)
        query.stop()

    def check_changes(self) -> None:
        """Each change once, over restarts, and after a first batch that failed."""
        before = self.ids
        self.failing = True
        refused(self.follow, "the sink has failed")
        self.failing = False
        self.put(1001)
        self.stays.delete([{"id": 990}])
        self.follow()
        assert len(self.batches[0]) == len(before), "the first batch is read again as it was"
        self.follow()
        assert len(self.batches) == 2 and self.found == self.ids
        self.follow()
        assert len(self.batches) == 2, "nothing new, no batch"
        self.follow(waiting=True)
        self.put(1002)
        self.stays.delete([{"id": 991}])
        self.spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", True)  # for sources that cannot end by themselves
        self.follow()
        assert self.found == self.ids
        if VERSION < (4, 2):
            refused(lambda: self.follow(maxRows=1), "the option 'maxRows' requires PySpark 4.2 or newer")
        else:
            self.put(3001, 3002)
            self.put(3003)
            self.follow(maxRows=1)
            assert [len(batch) for batch in self.batches[-2:]] == [2, 1], "a version is never divided"

    def check_stream(self) -> None:
        """Each file once, as a batch of the service."""
        source = self.folder / "in"
        source.mkdir()
        files = self.spark.readStream.schema("_op STRING, id LONG, room STRING, s LONG, e LONG").json(str(source))

        def write(**options: Any) -> None:
            writer = files.writeStream.format("livejoin").option("checkpointLocation", str(self.folder / "write"))
            writer = writer.options(url=self.url, relation="stays", source="files", **options)
            writer.trigger(availableNow=True).start().awaitTermination(LIMIT)

        for number, op in enumerate(("insert", "delete")):
            (source / f"{number}.json").write_text(json.dumps({"_op": op, "id": 5000, "room": "C", "s": 0, "e": 9}) + "\n")
            write()
            (known,) = [one for one in self.lj.sources() if one["name"] == "files"]
            assert known["epoch"] == number and (5000 in self.ids) == (op == "insert")
        (source / "2.json").write_text('{"id": 5001, "s": 0, "e": 9}\n')
        refused(write, "room of row 0")
        write(on_error="skip")
        assert 5001 not in self.ids

    def check_errors(self) -> None:
        refused(lambda: self.read(vue="s"), "unknown option 'vue'")
        refused(lambda: self.read(view="nowhere"), "the view nowhere: there is no view")
        refused(lambda: self.read(version=1).collect(), "the option 'version' needs a version that")
        rows = self.spark.range(1).selectExpr("id", "CAST(NULL AS STRING) AS room", "id AS s", "id AS e")
        refused(lambda: self.write(rows, relation="stays"), "room of row 0")


def main(url: str, folder: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    with livejoin.connect(url, patience=60) as lj:
        job = UserJob(spark, url, lj, folder)
        job.check_types()
        places = job.check_batch()
        job.check_changes()
        job.check_stream()
        job.check_errors()
    spark.stop()
    print(json.dumps({"version": pyspark.__version__, "places": places}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
