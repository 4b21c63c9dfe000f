"""Changes of a Delta and of an Iceberg table into relations of a service, as docs/how-to/beside-spark.md says, whose blocks this runs.

    python lake_job.py URL FOLDER PAGE
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import livejoin

PACKAGES = "io.delta:delta-spark_2.13:4.0.0,org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"
COLUMNS = "id BIGINT, room STRING, starts BIGINT, ends BIGINT"


def session(folder: Path) -> SparkSession:
    extensions = "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    settings = {
        "spark.jars.packages": PACKAGES,
        "spark.sql.extensions": extensions,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def expect(lj: livejoin.Client, expected: set[tuple[Any, ...]]) -> None:
    found = {(row["id"], row["room"], row["starts"], row["ends"]) for row in lj.relation("bookings").rows()}
    assert found == expected, found ^ expected


def main(url: str, folder: Path, page: Path) -> None:
    spark = session(folder)
    delta, stream, overwrite, changelog = blocks(page)
    with livejoin.connect(url) as lj:
        columns = {"id": "int64", "room": "string", "starts": "int64", "ends": {"type": "int64", "nullable": True}}
        lj.relation("bookings").create(columns, "id", {"stay": ("starts", "ends")})
        given: dict[str, Any] = {"spark": spark, "path": str(folder / "delta"), "checkpoint": str(folder / "checkpoint")}
        table = f"delta.`{given['path']}`"
        spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
        spark.sql(f"INSERT INTO {table} VALUES (1, 'A', 0, 9), (2, 'B', 0, NULL), (3, 'C', 5, 6)")
        spark.sql(f"UPDATE {table} SET room = 'Z' WHERE id = 2")
        exec(delta, given)
        given["query"].processAllAvailable()
        expect(lj, {(1, "A", 0, 9), (2, "Z", 0, None), (3, "C", 5, 6)})
        spark.sql(f"DELETE FROM {table} WHERE id = 1")
        spark.sql(f"INSERT INTO {table} VALUES (1, 'D', 7, 8)")
        spark.sql(f"MERGE INTO {table} t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
        given["query"].processAllAvailable()
        given["query"].stop()
        expect(lj, {(1, "D", 7, 8), (2, "Z", 0, None)})

        exec(stream, given)
        assert given["bookings"].columns == ["id", "room", "starts", "ends", "_op", "_seq"]

        spark.sql(f"CREATE TABLE lake.db.bookings ({COLUMNS}) USING iceberg TBLPROPERTIES ('format-version' = '2')")
        spark.sql("INSERT INTO lake.db.bookings VALUES (1, 'A', 0, 9), (2, 'B', 0, NULL)")
        exec(overwrite, given)
        expect(lj, {(1, "A", 0, 9), (2, "B", 0, None)})
        newest = "SELECT snapshot_id FROM lake.db.bookings.snapshots ORDER BY committed_at DESC LIMIT 1"
        given["last"] = spark.sql(newest).first()[0]
        spark.sql("UPDATE lake.db.bookings SET room = 'Y' WHERE id = 1")
        spark.sql("DELETE FROM lake.db.bookings WHERE id = 2")
        spark.sql("INSERT INTO lake.db.bookings VALUES (5, 'E', 1, 2)")
        given["newest"] = spark.sql(newest).first()[0]
        exec(changelog, given)
        expect(lj, {(1, "Y", 0, 9), (5, "E", 1, 2)})
    spark.stop()
    print("done")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
