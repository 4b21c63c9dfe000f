"""Expressions in views, in process: the processor time that a view takes a changed row, beside a view of a plain column.

Each view has an engine of its own. Their changes alternate, because the speed of the machine differs from minute to minute.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.instance import Instance
from service.settings import Settings
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.relations import declared

TITLE = "The service: expressions in views, in process"
ROUNDS, VALUES = 15, 1000
RELATION = parse_relation(declared("id:int64, g:int64, a:int64, b:int64, c:int64"))
FILTERS = "SELECT id, g FROM r WHERE a * 2 > b", "SELECT id, g FROM r WHERE a > 500"
SUMS = "SELECT g, SUM(a * b) AS s FROM r GROUP BY g", "SELECT g, SUM(c) AS s FROM r GROUP BY g"


def run(scale: Scale, note: Note) -> list[Figure]:
    batch = scale.size(10_000, 200)
    found = []
    for name, views, size, aim in (
        ("a filter by an expression", FILTERS, batch, 2.0),
        ("SUM(a * b) by 1,000 groups", SUMS, batch, None),
        ("SUM(a * b) by 1,000 groups", SUMS, 1, None),
    ):
        mine, plain = (spent for spent in in_turns(scale, views, size))
        batches = "single changes" if size == 1 else f"batches of {size:,}"
        note(f"{name}, {batches}: {middle(mine):.2f} µs a row, {middle(plain):.2f} of a plain column")
        about = {"rows": scale.size(100_000, 1_000)}
        rivals = [Rival("a plain column", middle(plain))]
        found.append(sampled(f"{name}: {batches}, a row", mine, "µs", aim=aim, less=True, rivals=rivals, parameters=about))
        if aim is None:
            times = [one / other for one, other in zip(mine, plain, strict=True)]
            found.append(sampled(f"{name}: {batches}, in times of SUM(c)", times, "times", aim=1.5, less=True, parameters=about))
    return found


def in_turns(scale: Scale, views: tuple[str, str], size: int) -> tuple[list[float], list[float]]:
    """Return for both views the processor time of each round, in microseconds a changed row."""
    rng, rows, repeats = np.random.default_rng(7), scale.size(100_000, 1_000), scale.size(200 if size == 1 else 3, 2)
    spent: tuple[list[float], list[float]] = [], []
    with ExitStack() as stack:
        engines = [stack.enter_context(engine_with(sql, drawn(rng, np.arange(rows)))) for sql in views]
        for _ in range(ROUNDS):
            for (engine, seconds), times in zip(engines, spent, strict=True):
                seconds.clear()
                for _ in range(repeats):
                    engine.apply(drawn(rng, rng.choice(rows, size, replace=False)))
                times.append(1e6 * middle(seconds) / size)
    return spent


@contextmanager
def engine_with(sql: str, rows: Batch) -> Iterator[tuple[Instance, list[float]]]:
    """Open an engine with these rows and this view; the list gets the seconds of processor time of each batch that the view follows."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Instance(Path(folder), Settings(data=Path(folder)))
        engine.recover()
        engine.put_relation("r", RELATION)
        engine.apply(rows)
        engine.put_view("v", {"sql": sql}, wait=60)
        view, seconds = engine.views["v"], list[float]()
        follow = view.apply

        def measured(*given: object) -> object:
            began = time.thread_time()
            try:
                return follow(*given)
            finally:
                seconds.append(time.thread_time() - began)

        view.apply = measured  # type: ignore[method-assign, assignment]
        try:
            yield engine, seconds
        finally:
            engine.close()


def drawn(rng: np.random.Generator, ids: np.ndarray) -> Batch:
    n = len(ids)
    columns = [pa.array(ids), *(pa.array(rng.integers(0, VALUES, n)) for _ in range(4))]
    rows = pa.RecordBatch.from_arrays(columns, schema=RELATION.arrow_schema())
    return Batch([Changes("r", RELATION, np.full(n, UPSERT, np.uint8), RowBlock(rows), np.arange(n))], n, 0, [], 0)
