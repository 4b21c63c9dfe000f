"""The rows of a view of streams, read from the states of its cells: the logs of an epoch are replayed, each in a cell, and enumerated.

Nothing is stored for this, and the query may be running. An epoch is available as long as Spark keeps its states
(`spark.sql.streaming.minBatchesToRetain`).
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from streaming.cluster.cells_stream import StreamPlan
from streaming.cluster.checkpoint import not_kept
from streaming.cluster.keeping import plan_in
from streaming.cluster.workers import freeze_modules

_STAGES = ("cells", "keys")


def snapshot(spark: SparkSession, checkpoint: str, epoch: int | None = None) -> DataFrame:
    """The rows of the view after an epoch, by default the last. Raises ValueError (no checkpoint of a view, or of another format; an epoch
    that is not kept).

    Cost: that of a batch over the rows in the cells; a task needs memory for one cell.
    """
    plan, logs = logs_of_cells(spark, checkpoint, epoch)
    opened = plan.opened()
    schema = opened.cell.schema(opened.views[0])
    return logs.mapInArrow(partial(_rows, json.dumps(plan.to_json())), from_arrow_schema(schema))


def logs_of_cells(spark: SparkSession, checkpoint: str, epoch: int | None) -> tuple[StreamPlan, DataFrame]:
    """The plan of the states, and the blobs of their logs, for `by_cell`. Raises like `snapshot`."""
    operator = _operators(spark, checkpoint, epoch)["cells"]
    kept = _state(spark, checkpoint, operator, "cells_plan", epoch).first()
    if kept is None:
        raise ValueError(f"the states of {checkpoint} are empty: no row has been read yet")
    logs = _state(spark, checkpoint, operator, "cells_log", epoch)
    blobs = logs.select(
        F.col("key.cell").alias("cell"), F.col("user_map_key.number").alias("number"), F.col("user_map_value.blob").alias("blob")
    )
    return StreamPlan.of_json(plan_in(kept["value"]["plan"])), blobs.repartition("cell").sortWithinPartitions("cell", "number")


def by_cell(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[bytes]]]:
    """In a worker: the label of each cell, and the blobs of its log. Release what was made of the previous cell, because it has cycles."""
    freeze_modules()
    blobs = ((cell.as_py(), blob.as_py()) for batch in batches for cell, blob in zip(batch.column(0), batch.column(2), strict=True))
    for label, own in groupby(blobs, key=lambda one: one[0]):
        yield label, (blob for _, blob in own)
        gc.collect()  # else a task has the memory of several cells, and their address space


def status(checkpoint: str) -> DataFrame:
    """The states of a query over streams, as of its last epoch; for each cell of the join (`stage` is cells) and each bucket of keys
    (keys): the partition, rows, bytes in memory, rows of its log, changes of the view that it has found (candidates) and those of them that
    it has reported as their home (`emitted`), deletes of rows that did not exist, and how often it was rebuilt from the log. Candidates,
    emitted, ignored and rebuilds count from the beginning of the checkpoint; the rest is current. Raises ValueError."""
    spark = SparkSession.active()
    found = [
        _state(spark, checkpoint, operator, f"{stage}_mark", None).select(
            F.lit(stage).alias("stage"), F.col("key.cell").alias("cell"), F.col("partition_id").alias("partition"),
            *(F.col(f"value.{name}").alias(name) for name in ("rows", "bytes", "logged", "candidates", "emitted", "ignored", "rebuilds")),
        )
        for stage, operator in _operators(spark, checkpoint).items()
    ]  # fmt: skip
    return found[0] if len(found) == 1 else found[0].unionAll(found[1])


def _operators(spark: SparkSession, checkpoint: str, epoch: int | None = None) -> dict[str, int]:
    """By stage, the number of the operator that has its states. Raises ValueError, also for an epoch that is not kept."""
    _ = spark.streams.active  # without it, the sources of states fail in a session that has not streamed
    names = "operatorId", "operatorProperties", "minBatchId", "maxBatchId"
    rows = spark.read.format("state-metadata").load(checkpoint).select(*names).distinct().collect()
    found = by_stage(checkpoint, [(row[0], row[1]) for row in rows])
    first, last = min(row[2] for row in rows), max(row[3] for row in rows)
    if epoch is not None and not first <= epoch <= last:
        raise not_kept(checkpoint, epoch, first, last)
    return found


def by_stage(checkpoint: str, operators: Iterable[tuple[int, str | None]]) -> dict[str, int]:
    """Of the operators of a query, given by their numbers and properties, those of a join. Raises ValueError."""
    found = dict[str, int]()
    for number, properties in operators:
        names = {one["stateName"] for one in json.loads(properties or "{}").get("stateVariables", [])}
        for stage in _STAGES:
            if f"{stage}_log" not in names:
                continue
            if found.setdefault(stage, number) != number:
                said = f"{checkpoint} belongs to a query with several live_joins, whose states cannot be distinguished"
                raise ValueError(f"{said}: give each its own query and checkpoint")
    if "cells" not in found:
        raise ValueError(f"{checkpoint} is not a checkpoint of live_join")
    return found


def _state(spark: SparkSession, checkpoint: str, operator: int, name: str, epoch: int | None) -> DataFrame:
    options: dict[str, Any] = {"operatorId": operator, "stateVarName": name}
    if epoch is not None:
        options["batchId"] = epoch
    return spark.read.format("statestore").options(**options).load(checkpoint)


def _rows(plan: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _, blobs in by_cell(batches):
        yield from _rows_of_cell(plan, blobs)


def _rows_of_cell(plan: str, blobs: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    opened = StreamPlan.of_json(json.loads(plan)).opened()
    for blob in blobs:
        opened.cell.replay(blob)
    for view in opened.views:
        yield from opened.cell.rows(view)
