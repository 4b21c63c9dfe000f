"""Cells that a stream keeps: Spark's state has the log of each cell, and a worker's memory the cell itself.

The cell in memory belongs to the state that Spark provides iff both have the same nonce, and it is used only by the plan that made it. Each
step draws a new nonce, so that the cell of an attempt that failed, or that another attempt overtook, is never used; then the log is
replayed. Recovery works in the same way.

A state belongs to one plan. Each micro-batch checks this in one place (`packing.QUESTION`), whatever cells it changes, because another plan
might send the question to cells that have no state yet.
"""

from __future__ import annotations

import errno
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, TimerValues

from service.errors import Problem
from streaming.cluster.cells_batch import BadRows
from streaming.cluster.cells_stream import OpenedCell, StreamPlan
from streaming.cluster.packing import ASKS, QUESTION
from streaming.cluster.resolver import Bucket, ResolverPlan
from streaming.cluster.state_log import Extent, LoggedCell
from streaming.cluster.workers import States, freeze_modules, query_and_epoch

FORMAT = 1  # of states: of marks, of blobs, and of how rows are divided by a layout
_KEPT_FOR = 60.0  # seconds without a task, after which Spark ends a worker, too
_ENDED_AFTER = 600.0  # seconds after which another query may have ended


class AnotherPlan(ValueError):
    """The state belongs to another view, or to other cells."""

    def __init__(self, kept: str, plan: str) -> None:
        said = "the checkpoint belongs to a different view or layout: start with a new checkpoint, or give the layout of the checkpoint"
        super().__init__(f"{said}\nthe checkpoint's plan: {kept}\nthe query's plan: {plan}")


class AnotherFormat(ValueError):
    """The state was written by a version of livejoin with another format of states."""

    def __init__(self, kept: object) -> None:
        said = f"the states of the checkpoint have format {kept}, but this version of livejoin reads format {FORMAT}"
        super().__init__(f"{said}: continue with the version that wrote them, or start with a new checkpoint")


class CellTooLarge(MemoryError):
    """A cell does not fit in the memory or the address space of its worker."""

    def __init__(self, stage: str, label: int, error: Exception) -> None:
        said = f"the cell {label} of {stage} does not fit in the memory of its worker ({error})"
        ways = "increase spark.executor.memoryOverhead, or divide the rows into more cells with reshard; status shows the rows of each"
        super().__init__(f"{said}: {ways}")


class Mark(NamedTuple):
    """What the state records about a cell: its nonce, the extent of its log, its number of rows, their bytes in memory, the changes of its
    views that it has found and those of them that it has reported as their home, deletes of rows that did not exist, and how often it was
    replayed."""

    nonce: str = ""
    first: int = 0
    next: int = 0
    logged: int = 0
    rows: int = 0
    bytes: int = 0
    candidates: int = 0
    emitted: int = 0
    ignored: int = 0
    rebuilds: int = 0

    @property
    def extent(self) -> Extent:
        return Extent(self.first, self.next, self.logged)


Plan = StreamPlan | ResolverPlan
OpenedCells = OpenedCell | Bucket


def plan_in(text: str) -> Any:
    """The output of a plan's `to_json`, from the text in a state. Raises AnotherFormat."""
    kept = json.loads(text)
    if kept.get("format") != FORMAT:
        raise AnotherFormat(kept.get("format", 0))
    return kept["plan"]


class _HeldCell(NamedTuple):
    """`epoch`, `since`: when it was last used."""

    plan: Plan
    nonce: str
    epoch: int | None
    since: float
    opened: OpenedCells
    logged: LoggedCell


HELD: dict[tuple[str, str, int], _HeldCell] = {}
"""By query, stage and label."""


class Keeper:
    """The rows of each key are blobs of changes (`packing.SCHEMA`), which its cell applies as one step."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._text = json.dumps({"format": FORMAT, "plan": plan.to_json()})

    def begin(self, states: States) -> None:
        """Of a task."""
        self._blobs, self._mark, self._kept_plan = _Blobs(states.log), states.mark, states.plan

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]:
        position, given = _position(self._plan, key), [(row["role"], pa.py_buffer(row["rows"])) for row in rows]
        blobs = [one for one in given if one[0] != ASKS]
        if len(blobs) < len(given):
            self._require_own()
            if not self._plan.is_last:
                yield Row(**QUESTION)
        if not blobs:
            return
        ways = "add _seq to replace the earlier row, or use before_images and send the earlier row as a delete"
        with self._errors_named(position, f"a row of {' or '.join(self._plan.unordered)} has a key that exists already: {ways}"):
            opened, logged, mark = self._open(position)
            stepped = logged.step(opened.changes(blobs), self._blobs)
        emitted = mark.emitted + sum(len(keys) for delta in stepped.deltas.values() for keys, _ in (*delta.deletes, *delta.inserts))
        candidates, ignored = mark.candidates + stepped.candidates, mark.ignored + stepped.ignored
        self._keep(position, opened, logged, mark._replace(candidates=candidates, emitted=emitted, ignored=ignored))
        with self._errors_named(position):
            for batch in opened.emitted(stepped.deltas):
                for one in batch.to_pylist():
                    yield Row(**one)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        """A blob of rows of a state that begins with them; nothing is emitted."""
        if initialState["role"] == ASKS:
            self._require_own()
            return
        position, role = _position(self._plan, key), initialState["role"]
        ways = "they were in different cells, but share one in this layout: use another, or read the streams again without one of the rows"
        with self._errors_named(position, f"two rows of {self._plan.relation(role)} have the same key: {ways}"):
            opened, logged, mark = self._open(position)
            for rows in opened.changes([(role, pa.py_buffer(initialState["rows"]))]):
                logged.load(rows.relation, rows.rows.arrow, self._blobs)
        self._keep(position, opened, logged, mark)

    @contextmanager
    def _errors_named(self, position: tuple[str, str, int], twice: str | None = None) -> Iterator[None]:
        """`twice`: what is wrong where a key comes twice."""
        try:
            yield
        except Problem as problem:
            if problem.type == "no-room":
                raise CellTooLarge(*position[1:], problem) from problem
            if problem.type != "bad-rows" or twice is None:
                raise
            raise BadRows(twice) from problem
        except (MemoryError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOMEM:
                raise
            raise CellTooLarge(*position[1:], error) from error

    def _keep(self, position: tuple[str, str, int], opened: OpenedCells, logged: LoggedCell, mark: Mark) -> None:
        nonce, (first, following, in_log) = uuid4().hex, logged.extent
        mark = mark._replace(nonce=nonce, first=first, next=following, logged=in_log, rows=logged.cell.live, bytes=logged.cell.held)
        self._mark.update(tuple(mark))
        HELD[position] = _HeldCell(self._plan, nonce, query_and_epoch()[1], monotonic(), opened, logged)

    def _require_own(self) -> None:
        """The state is of this plan from now on. Raises AnotherPlan, AnotherFormat."""
        kept = self._kept_plan.get()
        if kept is None:
            self._kept_plan.update((self._text,))
        elif plan_in(kept[0]) != plan_in(self._text):  # in another order they are alike
            raise AnotherPlan(kept[0], self._text)

    def _open(self, position: tuple[str, str, int]) -> tuple[OpenedCells, LoggedCell, Mark]:
        freeze_modules()
        _release_unused(*query_and_epoch())
        held, state = HELD.pop(position, None), self._mark.get()
        if state is None:
            self._require_own()
            opened = self._plan.opened()
            return opened, LoggedCell(opened.cell), Mark()
        mark = Mark(*state)
        if held is not None and held.nonce == mark.nonce and held.plan == self._plan:
            return held.opened, held.logged, mark
        self._require_own()
        if held is not None:
            held = None
            gc.collect()
        opened = self._plan.opened()
        return opened, LoggedCell.replayed(opened.cell, mark.extent, self._blobs), mark._replace(rebuilds=mark.rebuilds + 1)


def _release_unused(query: str, epoch: int | None) -> None:
    """Release cells that have not been used for long: those of a partition that has moved away, which neither this micro-batch nor the one
    before has used, and those of a query that has ended."""
    now = monotonic()

    def is_unused(position: tuple[str, str, int], held: _HeldCell) -> bool:
        if position[0] != query:
            return held.since < now - _ENDED_AFTER
        return held.since < now - _KEPT_FOR and (epoch is None or held.epoch is None or held.epoch < epoch - 1)

    if unused := [position for position, held in HELD.items() if is_unused(position, held)]:
        for position in unused:
            del HELD[position]
        gc.collect()  # cells have cycles, and each reserves address space


def _position(plan: Plan, key: Any) -> tuple[str, str, int]:
    return query_and_epoch()[0], plan.stage, int(key[0])


class _Blobs:
    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, number: int) -> bytes:
        found = self._state.getValue((number,))
        if found is None:
            raise KeyError(f"the state has no blob {number} of a cell")
        return bytes(found[0])

    def put(self, number: int, blob: bytes) -> None:
        self._state.updateValue((number,), (blob,))

    def remove(self, number: int) -> None:
        self._state.removeKey((number,))
