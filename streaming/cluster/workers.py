"""What a Python worker of Spark does once, and what it knows of its task."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


@cache
def freeze_modules() -> None:
    """Call it before the worker has any cell. Spark collects cycles after each task, and a worker after it has dropped cells; neither is
    to look at some 300,000 objects of imported modules, which took 80 ms."""
    gc.freeze()


def query_and_epoch() -> tuple[str, int | None]:
    """Of the task: the id of the query, or nothing, and its micro-batch. Spark tells them to jobs that the thread of the query starts: over
    Connect, those of `foreachBatch` are started by others."""
    context = TaskContext.get()
    if context is None:
        return "", None
    epoch = context.getLocalProperty("streaming.sql.batchId")
    return context.getLocalProperty("sql.streaming.queryId") or "", None if epoch is None else int(epoch)
