"""The rival of the whole pipeline: the same view in Spark alone, as far as Spark can express it. `python -m … BROKERS OFFSETS`.

Only creates: a join of streams takes no updates and no deletes. Without a watermark its state keeps all rows for ever, as ours does.
Prints a line of JSON a micro-batch that had records: `records`, `seconds`; and at the end the `rows` of the view.
"""

from __future__ import annotations

import json
import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession

from streaming.spark import start_spark
from tests.benchmarks.pipeline_records import RELATIONS, TEXTS
from tests.benchmarks.pipeline_stage import TOPICS

_ROW = "struct<id: bigint, room: string, {text}: string, starts: bigint, ends: bigint>"
_JOIN = (
    "SELECT b.id AS booking, m.id AS work, b.guest, m.task FROM bookings b "
    "JOIN maintenance m ON b.room = m.room AND b.starts < m.ends AND m.starts < b.ends"
)


def run(brokers: str, offsets: int) -> None:
    """Reads what is there, `offsets` records a micro-batch, and ends."""
    spark = start_spark("alone")
    for relation in RELATIONS:
        _rows(spark, relation, brokers, offsets // 2).createOrReplaceTempView(relation)
    counted: list[int] = []
    writer = spark.sql(_JOIN).writeStream.foreachBatch(lambda frame, epoch: counted.append(frame.count()))
    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        for progress in query.recentProgress:
            if progress.numInputRows:
                print(json.dumps({"records": progress.numInputRows, "seconds": progress.batchDuration / 1000}))
    print(json.dumps({"rows": sum(counted)}), flush=True)
    spark.stop()


def _rows(spark: SparkSession, relation: str, brokers: str, offsets: int) -> DataFrame:
    """The rows that the records of a relation create."""
    options = {"kafka.bootstrap.servers": brokers, "subscribe": TOPICS[relation], "maxOffsetsPerTrigger": str(offsets)}
    records = spark.readStream.format("kafka").options(startingOffsets="earliest", **options).load()
    form = f"struct<after: {_ROW.format(text=TEXTS[relation])}, op: string>"
    parsed = records.selectExpr(f"from_json(cast(value AS string), '{form}') AS record")
    return parsed.where("record.op = 'c'").select("record.after.*")


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
