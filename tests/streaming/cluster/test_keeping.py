"""A cell in a worker's memory is used iff it is of the state that Spark gives."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import psutil
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import Row

from service.engine.headless import ViewChange
from streaming.cluster import keeping
from streaming.cluster.cells_batch import BadRows
from streaming.cluster.cells_stream import OpenedCell, StreamPlan
from streaming.cluster.changes import Source, send
from streaming.cluster.keeping import AnotherFormat, AnotherPlan, CellTooLarge, Keeper
from streaming.cluster.netting import UnknownEpoch
from streaming.cluster.packing import QUESTION, SCHEMA
from streaming.cluster.state_log import LoggedCell
from streaming.cluster.workers import Processor, States
from tests.server_process import ROOT
from tests.streaming.cluster.churn import DEFINITIONS
from tests.streaming.cluster.local import Local, prepared
from tests.streaming.cluster.test_stages import of_view


class Value:
    """As Spark's states, over a dictionary."""

    def __init__(self, store: dict[Any, Any], name: str) -> None:
        self._store, self._name = store, name

    def get(self) -> Any:
        return self._store.get(self._name)

    def update(self, value: Any) -> None:
        self._store[self._name] = value


class Map(Value):
    def getValue(self, key: Any) -> Any:
        return self._store.get((self._name, key))

    def updateValue(self, key: Any, value: Any) -> None:
        self._store[self._name, key] = value

    def removeKey(self, key: Any) -> None:
        del self._store[self._name, key]


class Handle:
    def __init__(self, store: dict[Any, Any]) -> None:
        self._store = store

    def getValueState(self, name: str, schema: Any) -> Value:
        return Value(self._store, name)

    def getMapState(self, name: str, key: Any, value: Any) -> Map:
        return Map(self._store, name)


class Task:
    """Attempts of a cell's steps, each over a copy of the state that was committed last."""

    def __init__(self, local: Local) -> None:
        self.local, self.committed = local, dict[Any, Any]()

    def attempt(self, *rows: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[Any, Any]]:
        keeper, state = self._keeper()
        (source,) = self.local.sources
        return [row.asDict() for row in keeper.handleInputRows((7,), iter(_blobs(source, rows)), None)], state

    def begun(self, *rows: dict[str, Any]) -> dict[Any, Any]:
        """The state that begins with rows more."""
        keeper, state = self._keeper()
        (source,) = self.local.sources
        for one in _blobs(source._replace(kind="inserts", resolved=False), rows):
            keeper.handleInitialState((7,), one, None)
        return state

    def _keeper(self) -> tuple[Keeper, dict[Any, Any]]:
        keeper, state = Keeper(self.local.plan), copy.deepcopy(self.committed)
        keeper.begin(States.of(cast(Any, Handle(state)), self.local.plan.stage))
        return keeper, state


def _blobs(source: Source, rows: Sequence[dict[str, Any]]) -> list[Row]:
    return [Row(**row) for batch in send(source, [prepared(source, rows)]) for row in batch.to_pylist()]


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[Task]:
    monkeypatch.setattr(keeping, "HELD", {})
    yield Task(Local("SELECT x.id AS id, x.room AS room FROM a x", {"a": DEFINITIONS["a"]}, {"a": "ordered"}, 1))
    gc.unfreeze()


def of(*ids: int, room: str | None = "A") -> list[dict[str, Any]]:
    return [{"id": one, "room": room, "starts": 1, "ends": 2, "_op": "upsert", "_seq": 1} for one in ids]


def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each replay from now on."""
    found, replayed = list[int](), LoggedCell.replayed

    def counted(*arguments: Any) -> LoggedCell:
        found.append(1)
        return replayed(*arguments)

    monkeypatch.setattr(LoggedCell, "replayed", counted)
    return found


def test_attempts_that_fail_leave_nothing_behind(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    made = replays(monkeypatch)
    _, task.committed = task.attempt(*of(1, 2))
    _, task.committed = task.attempt(*of(3))
    assert not made, "the cell in memory is of the state"
    task.attempt(*of(4))
    emitted, state = task.attempt(*of(3, room="B"), {"id": 4, "_op": "delete", "_seq": 9})
    assert len(made) == 1 and state["cells_mark"][-2:] == (1, 1), "row 4 is of an attempt that failed"
    task.committed = state
    again, _ = task.attempt(*of(5))
    assert len(made) == 1 and len(again) == 1 and emitted != again


def test_only_cells_that_are_let_go_are_collected(task: Task) -> None:
    """After a start each cell waited for a collection, a tenth of a second, in which there was nothing to collect."""
    _, task.committed = task.attempt(*of(1))
    keeping.HELD.clear()
    collections = list[int]()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collections.append(info["generation"])

    gc.collect()
    gc.disable()
    gc.callbacks.append(note)
    try:
        task.attempt(*of(2))
        assert not collections
        task.attempt(*of(3))
        assert collections == [2], "that of an attempt that failed"
    finally:
        gc.callbacks.remove(note)
        gc.enable()


def test_a_forged_nonce_is_not_believed(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    _, task.committed = task.attempt(*of(1))
    ((position, held),) = keeping.HELD.items()
    keeping.HELD[position] = held._replace(nonce="another")
    made = replays(monkeypatch)
    _, task.committed = task.attempt(*of(2))
    assert made and len(keeping.HELD) == 1
    keeping.HELD[position] = keeping.HELD[position]._replace(since=-1e9)
    task.attempt(*of(3))
    assert len(made) == 2, "what nobody has used for long is let go"


def test_a_state_of_another_plan_is_refused(task: Task) -> None:
    _, task.committed = task.attempt(*of(1))
    kept = json.loads(task.committed["cells_plan"][0])
    task.committed["cells_plan"] = (json.dumps(dict(reversed(kept.items()))),)
    keeping.HELD.clear()
    task.attempt(*of(2))  # in another order it is the same
    task.committed["cells_plan"] = (json.dumps({**kept, "format": 0}),)
    keeping.HELD.clear()
    with pytest.raises(AnotherFormat, match="the states of the checkpoint have format 0, but this version of livejoin reads format 1"):
        task.attempt(*of(2))
    task.committed["cells_plan"] = (json.dumps({**kept, "plan": {**kept["plan"], "view": {"sql": "SELECT"}}}),)
    keeping.HELD.clear()
    with pytest.raises(AnotherPlan, match="belongs to a different view or layout"):
        task.attempt(*of(2))
    del task.committed["cells_mark"]
    with pytest.raises(AnotherPlan, match="belongs to a different view or layout"):
        task.attempt()  # asked for the plan alone, of a cell that has had no row


@pytest.mark.parametrize("begin", ["attempt", "begun"])
def test_a_cell_without_rows_knows_its_plan(begin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the cells behind the buckets of keys are asked as well."""
    monkeypatch.setattr(keeping, "HELD", {})
    local = Local("SELECT x.id FROM a x JOIN b y ON x.room = y.room", DEFINITIONS, {"a": "ordered", "b": "ordered"}, 2)
    for plan, passed in ((local.plan, []), (local.resolver, [QUESTION])):
        assert plan is not None
        keeper, state = Keeper(plan), dict[Any, Any]()
        keeper.begin(States.of(cast(Any, Handle(state)), plan.stage))
        asked = [Row(**row) for row in next(send(local.sources[0], [])).to_pylist()]
        if begin == "begun":
            for one in asked:
                keeper.handleInitialState((0,), one, cast(Any, None))
        else:
            assert [row.asDict() for row in keeper.handleInputRows((0,), iter(asked), cast(Any, None))] == passed
        assert list(state) == [f"{plan.stage}_plan"] and not keeping.HELD


def test_what_asks_for_the_states_alone_imports_nothing_of_cells(task: Task, tmp_path: Path) -> None:
    """Spark begins a process for each stage that does, at each start of a query."""
    plan = task.local.plan
    processor = Processor(plan.stage, Keeper(plan))
    (tmp_path / "processor").write_bytes(pickle.dumps(processor))
    code = """if True:
        import pickle, sys
        from unittest.mock import Mock
        handle = Mock()
        pickle.load(open(sys.argv[1], "rb")).init(handle)
        print(*sorted(one.args[0] for one in handle.method_calls), {"numba", "pyarrow", "service"} & {*sys.modules} or "light")
    """
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "processor"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["cells_log", "cells_mark", "cells_plan", "light"], done.stderr
    state = dict[Any, Any]()
    processor.init(cast(Any, Handle(state)))
    (source,) = task.local.sources
    emitted = processor.handleInputRows((7,), iter(_blobs(source, of(1))), cast(Any, None))
    assert [row.asDict() for row in emitted] == task.attempt(*of(1))[0] and "cells_mark" in state


def test_cells_that_have_moved_away_leave_the_memory_of_a_worker(task: Task) -> None:
    """Also where the cells that are used are all found in memory. Those of a star have cycles: without a collection they stay."""
    _, task.committed = task.attempt(*of(1))
    ((position, held),) = keeping.HELD.items()
    star, churn = of_view("star", "ordered")
    star.step(churn.epoch(30))
    for number, (opened, logged, _) in enumerate(star.kept.values()):
        keeping.HELD["another", "cells", number] = held._replace(since=-1e9, opened=opened, logged=logged)
    star.kept.clear()
    del opened, logged, held
    gc.disable()
    try:
        before = psutil.Process().memory_info().vms
        task.attempt(*of(2))
        assert list(keeping.HELD) == [position] and psutil.Process().memory_info().vms < before - (1 << 40), "a cell reserves address space"
    finally:
        gc.enable()


def test_a_cell_in_memory_is_used_by_the_plan_that_made_it(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that begins again within a minute finds the cells of the former one, whose nonce is that of the state."""
    _, task.committed = task.attempt(*of(1))
    ((position, held),) = keeping.HELD.items()
    keeping.HELD[position] = held._replace(plan=cast(StreamPlan, held.plan)._replace(parts=7))
    made = replays(monkeypatch)
    _, task.committed = task.attempt(*of(2))
    assert len(made) == 1, "it would send what it tells to seven parts"


def in_epoch(monkeypatch: pytest.MonkeyPatch, epoch: int | None, now: float, query: str = "q") -> None:
    """What Spark and the clock tell from now on."""
    emitted = {"sql.streaming.queryId": query} | ({} if epoch is None else {"streaming.sql.batchId": str(epoch)})
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext(localProperties=emitted)  # that of the process from now on
    monkeypatch.setattr(keeping, "monotonic", lambda: now)


def test_micro_batches_that_take_long_keep_their_cells(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were replayed in each one if it took more than a minute. Those of another query stay for ten."""
    made = replays(monkeypatch)
    for epoch in range(4):
        in_epoch(monkeypatch, epoch, 1000.0 * epoch)
        _, task.committed = task.attempt(*of(epoch))
    in_epoch(monkeypatch, 3, 3900.0)
    _, task.committed = task.attempt(*of(9))
    assert not made
    own = keeping.HELD["q", "cells", 7]
    in_epoch(monkeypatch, 7, 4400.0, "another")
    task.attempt(*of(10))
    assert keeping.HELD["q", "cells", 7] is own
    in_epoch(monkeypatch, 8, 4600.0, "another")
    task.attempt(*of(10))
    assert list(keeping.HELD) == [("another", "cells", 7)], "the query has ended"


def test_cells_that_two_micro_batches_did_not_use_are_let_go_after_a_minute(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    in_epoch(monkeypatch, 0, 0.0)
    task.attempt(*of(1))
    moved = keeping.HELD["q", "cells", 8] = keeping.HELD["q", "cells", 7]
    for epoch, now, is_kept in ((1, 50.0, True), (2, 59.0, True), (2, 61.0, False)):
        in_epoch(monkeypatch, epoch, now)
        task.attempt(*of(1))
        assert (keeping.HELD.get(("q", "cells", 8)) is moved) == is_kept, now


def test_a_job_that_does_not_know_its_micro_batch_is_refused(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of foreachBatch over Connect: all their epochs were told as 0. The job of a query tells its own."""
    emitted, _ = task.attempt(*of(1, 2))
    blobs, netting = [pa.RecordBatch.from_pylist(emitted, SCHEMA)], task.local.netting
    in_epoch(monkeypatch, None, 0.0)
    with pytest.raises(UnknownEpoch, match=r"let the query itself write them \(writeStream.format\), or use Spark Classic"):
        list(netting.run(blobs))
    in_epoch(monkeypatch, 5, 0.0)
    assert [row["_epoch"] for batch in netting.run(blobs) for row in batch.to_pylist()] == [5, 5]


def test_a_state_without_a_blob_is_noticed(task: Task) -> None:
    _, task.committed = task.attempt(*of(1))
    keeping.HELD.clear()
    del task.committed["cells_log", (0,)]
    with pytest.raises(KeyError, match="no blob 0 of a cell"):
        task.attempt(*of(2))


def test_a_cell_without_room_is_named(task: Task) -> None:
    """Of another query, so that a cell is opened; the limit leaves the process what it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (1 << 30), hard))
    try:
        with pytest.raises(
            CellTooLarge, match="the cell 7 of cells does not fit .* spark.executor.memoryOverhead, or divide .* with reshard"
        ):
            task.attempt(*of(1))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_a_cell_without_room_for_what_it_tells_is_named(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: OpenedCell, deltas: dict[str, ViewChange]) -> Iterator[pa.RecordBatch]:
        raise pa.lib.ArrowMemoryError("malloc of size 64 failed")
        yield

    monkeypatch.setattr(OpenedCell, "emitted", full)
    with pytest.raises(CellTooLarge, match="the cell 7 of cells does not fit .*malloc of size 64"):
        task.attempt(*of(1))


def test_rows_that_a_state_begins_with_are_those_of_its_log(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step is of what comes after them."""
    for rows in (of(1, 2), of(3)):
        task.committed = task.begun(*rows)
    made = replays(monkeypatch)
    emitted, task.committed = task.attempt(*of(4))
    assert not made and len(emitted) == 1
    keeping.HELD.clear()
    emitted, state = task.attempt(*of(3, room="B"))
    assert made and len(emitted) == 2 and state["cells_mark"][4] == 4, "row 3 goes and comes"
    with pytest.raises(BadRows, match="two rows of a have the same key: they were in different cells"):
        task.begun(*of(4))


def test_a_row_whose_key_is_there_is_refused_by_the_name_of_its_table(task: Task) -> None:
    task.local = Local("SELECT x.id AS id FROM a x", {"a": DEFINITIONS["a"]}, {"a": "inserts"}, 1)
    _, task.committed = task.attempt(*of(1))
    with pytest.raises(BadRows, match="a row of a has a key that exists already: add _seq"):
        task.attempt(*of(1))


def test_the_rows_of_a_step_are_told_as_blobs(task: Task) -> None:
    emitted, _ = task.attempt(*of(1, 2))
    form = task.local.plan.opened().form
    rows = [row for one in emitted for row in pa.ipc.read_record_batch(pa.py_buffer(one["rows"]), form).to_pylist()]
    assert sorted(row["id"] for row in rows) == [1, 2]
