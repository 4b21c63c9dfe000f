"""Where the time of the writer's turns goes at n rows, in one process: the longest single call of each task, by scenario, in processor time
of the thread, which does not depend on other processes.

    python -m tests.benchmarks.service_turns [rows]

Nothing is stored: the figures show a developer which task to divide next.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from service.durability.log import Log
from service.engine.housekeeping import Housekeeping
from service.engine.queued import Job
from service.engine.state import State
from service.engine.writer import Writer
from service.following.feeds import Feed
from service.instance import Instance
from service.reading.cursors import open_rows
from service.tables.indexes import SharedIndexes
from service.tables.store import Domain, Table
from service.views.live_view import LiveView
from structures.rows.key_table import KeyTable
from structures.rows.rows import Rows
from tests.service.running import DEFINITION, batch, opened

WATCHED: tuple[tuple[Any, str], ...] = (
    (Writer, "_commit"), (Job, "do"), (Housekeeping, "piece"), (State, "judge"), (State, "apply"), (State, "to_reclaim"),
    (Log, "append"), (Log, "commit"), (Log, "checkpoint_if_due"), (Feed, "housekeep"), (LiveView, "reclaim"),
    (LiveView, "apply"), (SharedIndexes, "reclaim"), (SharedIndexes, "apply"), (Table, "reclaim"), (Domain, "reclaim"),
    (Table, "delete"), (Table, "enter"), (Rows, "free"), (Rows, "tidy"), (KeyTable, "make_room"),
)  # fmt: skip
PAIR = {"from": {"a": "a", "b": "b"}, "join": [{"overlaps": ["a.x", "b.x"]}], "select": ["a.id as i", "b.id as j", "a.tag as t"]}
KEYED = {
    "from": {"a": "a", "b": "b"},
    "join": [{"overlaps": ["a.x", "b.x"]}, {"equal": ["a.tag", "b.tag"]}],
    "select": ["a.id as i", "b.id as j"],
    "changes": False,
}
longest: dict[str, tuple[float, int]] = {}  # seconds of the longest call, number of calls


def watch() -> None:
    for owner, name in WATCHED:
        label = f"{owner.__name__.rpartition('.')[2]}.{name}"
        setattr(owner, name, _timed(label, getattr(owner, name)))


def _timed(label: str, work: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    def timed(*args: Any) -> Any:
        started = time.thread_time()
        try:
            return work(*args)
        finally:
            seconds = time.thread_time() - started
            most, count = longest.get(label, (0.0, 0))
            longest[label] = max(most, seconds), count + 1

    return timed


@contextmanager
def scenario(name: str) -> Iterator[None]:
    longest.clear()
    started = time.perf_counter()
    yield
    print(f"\n{name}: {time.perf_counter() - started:.1f} s")
    for label, (seconds, count) in sorted(longest.items(), key=lambda item: -item[1][0]):
        if seconds > 5e-4:
            print(f"  {label:28} {1e3 * seconds:8.1f} ms  {count:6} calls")


def rows(first: int, count: int, n: int, mark: str = "") -> pa.RecordBatch:
    ids = np.arange(first, first + count)
    starts = ids * 7919 % n * 10
    texts = [f"tag {id % 1000}{mark}" for id in ids.tolist()]
    columns = [pa.array(ids), pa.array(starts), pa.array(starts + 5), pa.array(texts, pa.utf8())]
    return pa.RecordBatch.from_arrays(columns, schema=DEFINITION.arrow_schema())


def singles(engine: Instance, count: int, n: int) -> None:
    """Single changes to a relation that no view uses: their time is the waiting time of an unrelated client."""
    for i in range(count):
        engine.apply(batch(("upsert", "other", rows(i, 1, n))))


def run(engine: Instance, n: int) -> None:
    half = n // 2
    for name in ("a", "b", "other"):
        engine.put_relation(name, DEFINITION)
    for name, view in (("pairs", PAIR), ("keyed", KEYED)):
        engine.put_view(name, view, wait=60)
    with scenario("load, batches of 20,000"):
        for first in range(0, half, 20_000):
            engine.apply(batch(("upsert", "a", rows(first, 20_000, n)), ("upsert", "b", rows(first, 20_000, n))))
    with scenario("singles at rest"):
        time.sleep(1.5)
        singles(engine, 1000, n)
    with scenario("replaced under a pin, batches of 1,000"):
        reader = open_rows(engine.readers, "pairs")
        for first in range(0, half // 2, 1000):
            engine.apply(batch(("upsert", "a", rows(first, 1000, n, " and more of it"))))
    with scenario("the pin leaves"):
        reader.close()
        singles(engine, 2000, n)
    with scenario("truncate of b"):
        empty = pa.RecordBatch.from_pylist([{}], schema=DEFINITION.arrow_schema())
        engine.apply(batch(("truncate", "b", empty)))
        singles(engine, 2000, n)
    with scenario("b loaded again, batches of 1,000"):
        for first in range(0, half, 1000):
            engine.apply(batch(("upsert", "b", rows(first, 1000, n))))
    with scenario("one batch of half of the rows"):
        engine.apply(batch(("upsert", "b", rows(0, half, n, " again"))))
    with scenario("views dropped"):
        for name in ("pairs", "keyed"):
            engine.drop_view(name)
        singles(engine, 2000, n)
    with scenario("relation dropped"):
        engine.drop_relation("a")
        singles(engine, 2000, n)


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    watch()
    with tempfile.TemporaryDirectory() as folder:
        engine = opened(Path(folder), synchronous="normal")
        try:
            run(engine, n)
        finally:
            engine.close()


if __name__ == "__main__":
    main()
