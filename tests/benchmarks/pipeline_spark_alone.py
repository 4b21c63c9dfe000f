"""The rival of the whole pipeline: the same view in Spark alone, as far as Spark can express it. `python -m … BROKERS OFFSETS`.

Creates only, because a stream join supports neither updates nor deletes. Without a watermark, its state keeps all rows indefinitely, as
livejoin does. Prints one line of JSON per micro-batch: its `records` and `seconds`; and, since the start, `processor` seconds and `rows` of
the view.
"""

from __future__ import annotations

import json
import sys
import tempfile

import psutil
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
    """Read the existing records, `offsets` records per micro-batch, and end."""
    spark = start_spark("alone")
    for relation in RELATIONS:
        _rows(spark, relation, brokers, offsets // 2).createOrReplaceTempView(relation)
    ends: list[tuple[int, float]] = []  # of each micro-batch

    def process(frame: DataFrame, epoch: int) -> None:
        rows = frame.count()
        ends.append((rows + (ends[-1][0] if ends else 0), _processor()))

    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as checkpoint:
        writer = spark.sql(_JOIN).writeStream.foreachBatch(process).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        for progress, (rows, processor) in zip(query.recentProgress, ends, strict=True):
            about = {"records": progress.numInputRows, "seconds": progress.batchDuration / 1000}
            print(json.dumps(about | {"processor": processor, "rows": rows}), flush=True)
    spark.stop()


def _processor() -> float:
    """Processor time of this process and its JVM so far."""
    here = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (here, *here.children()))


def _rows(spark: SparkSession, relation: str, brokers: str, offsets: int) -> DataFrame:
    """The rows that the records of a relation create."""
    options = {"kafka.bootstrap.servers": brokers, "subscribe": TOPICS[relation], "maxOffsetsPerTrigger": str(offsets)}
    records = spark.readStream.format("kafka").options(startingOffsets="earliest", **options).load()
    form = f"struct<after: {_ROW.format(text=TEXTS[relation])}, op: string>"
    parsed = records.selectExpr(f"from_json(cast(value AS string), '{form}') AS record")
    return parsed.where("record.op = 'c'").select("record.after.*")


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
