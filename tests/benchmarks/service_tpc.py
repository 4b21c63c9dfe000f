"""TPC-H, the Star Schema Benchmark and Nexmark as views of one service, over HTTP, durable when answered: orders with their lines that
come and go, and events that come, beside DuckDB, which has the same rows and runs the queries again after each batch."""

from __future__ import annotations

from functools import partial
from random import Random

from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.served import serving
from tests.service.tpc.compared import BENCHMARKS, Compared, body_of, queries, sayable

TITLE = "The service: TPC-H, the Star Schema Benchmark and Nexmark as views"
_NAMES = {"tpch": "TPC-H", "ssb": "SSB", "nexmark": "Nexmark"}


def run(scale: Scale, note: Note) -> list[Figure]:
    found = list[Figure]()
    for name, called in _NAMES.items():
        with serving(scale) as service:
            data = BENCHMARKS[name](queries(name)[0], 0.001 if scale.quick else 0.1, Random(1))
            compared = Compared(service.client(600), data, sayable(name))
            compared.load()
            for view in compared.views:
                compared.register(view)
            rows = sum(map(len, data.rows.values()))
            note(f"{called}: {len(compared.views)} views over {rows:,} rows")
            for size, repeats in ((scale.size(1_000, 20), scale.size(5, 1)), (1, scale.size(20, 2))):
                found.append(measured(f"{called}, {len(compared.views)} views", compared, size, repeats, rows))
                note(f"{size:,}: {found[-1].value:,.0f} changes/s, DuckDB {found[-1].rivals[0].value:,.0f}")
            compared.compare()
    return found


def measured(of: str, compared: Compared, size: int, repeats: int, rows: int) -> Figure:
    """Changed rows a second, in batches of so many orders or events."""
    mine, others = list[float](), list[float]()
    for _ in range(repeats):
        batch = compared.data.refresh(size, usual=True)
        body = body_of(batch)
        mine.append(len(batch) / seconds(partial(compared.send, body)))
        others.append(len(batch) / seconds(partial(_again, compared, batch)))
    what = "one order or event at a time" if size == 1 else f"batches of {size:,} orders or events"
    rivals = [Rival("DuckDB runs the queries again", middle(others))]
    return sampled(f"{of}: {what}", mine, "changes/s", rivals=rivals, parameters={"rows": rows})


def _again(compared: Compared, batch: list[dict[str, object]]) -> None:
    compared.mirror.apply(batch)
    for sql in compared.views.values():
        compared.mirror.answer(sql)
