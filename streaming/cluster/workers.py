"""What a Python worker of Spark does once, what it knows of its task, and how Spark runs a stage that keeps cells.

Modules that import the code of cells, which takes more than a second, are not imported here.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol

from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle, TimerValues, ValueState
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

_LONG = ("first", "next", "logged", "rows", "bytes", "candidates", "emitted", "ignored", "rebuilds")
_MARK = StructType([StructField("nonce", StringType()), *(StructField(name, LongType()) for name in _LONG)])
_NUMBER, _BLOB = StructType([StructField("number", LongType())]), StructType([StructField("blob", BinaryType())])
_PLAN = StructType([StructField("plan", StringType())])


@cache
def freeze_modules() -> None:
    """Call this before the worker has any cell. Spark collects cycles after each task, and a worker after it has released cells; neither
    should examine some 300,000 objects of imported modules, which took 80 ms."""
    gc.freeze()


def query_and_epoch() -> tuple[str, int | None]:
    """Of the task: the id of the query, or nothing, and its micro-batch. Spark sets them for jobs that the thread of the query starts: over
    Connect, other threads start the jobs of `foreachBatch`."""
    context = TaskContext.get()
    if context is None:
        return "", None
    epoch = context.getLocalProperty("streaming.sql.batchId")
    return context.getLocalProperty("sql.streaming.queryId") or "", None if epoch is None else int(epoch)


class States(NamedTuple):
    """For each key: the log of its cell, the mark of the cell (`keeping.Mark`), and its plan."""

    log: MapState
    mark: ValueState
    plan: ValueState

    @classmethod
    def of(cls, handle: StatefulProcessorHandle, stage: str) -> States:
        mark, plan = handle.getValueState(f"{stage}_mark", _MARK), handle.getValueState(f"{stage}_plan", _PLAN)
        return cls(handle.getMapState(f"{stage}_log", _NUMBER, _BLOB), mark, plan)


class CellKeeper(Protocol):
    """`keeping.Keeper`."""

    def begin(self, states: States) -> None: ...

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]: ...

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None: ...


class Processor(StatefulProcessor):  # type: ignore[misc]
    """A keeper, unpickled when there are rows. At each start of a query Spark starts a process for each stage only to request its states:
    if it imported the code of cells, each would take a second and a half longer."""

    def __init__(self, stage: str, keeper: CellKeeper) -> None:
        self._stage, self._pickled = stage, pickle.dumps(keeper)
        self._keeper: CellKeeper | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._states = States.of(handle, self._stage)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]:
        return self._begun().handleInputRows(key, rows, timerValues)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        self._begun().handleInitialState(key, initialState, timerValues)

    def _begun(self) -> CellKeeper:
        if self._keeper is None:
            self._keeper = pickle.loads(self._pickled)  # noqa: S301 - a part of this object, which Spark has unpickled
            self._keeper.begin(self._states)
        return self._keeper
