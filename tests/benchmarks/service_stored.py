"""Stored views, in process: the processor time of the writer for a change, with views over a view, and the bytes of a stored row.

The first view joins 50,000 bookings with as many jobs on rooms and overlap: as groups by room, or as it is. Each further level reads the
one before: a join with 1,000 rooms, then groups of it. What a level adds is the difference from the time with one level fewer; the first
one also has the first view maintained once more, for its reader.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.instance import Instance
from service.settings import Settings
from tests.benchmarks.figures import Figure, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.relations import declared

TITLE = "The service: stored views, in process"
_ROUNDS, _ROOMS, _SPAN = 15, 1000, 1_000_000
_RELATIONS = {
    "bookings": parse_relation(declared("id:int64, room:int64, s:int64, e:int64", stay="s e [)")),
    "jobs": parse_relation(declared("id:int64, room:int64, s:int64, e:int64", slot="s e [)")),
    "rooms": parse_relation(declared("id:int64, hotel:int64")),
}
_OVERLAP = "FROM bookings b JOIN jobs m ON b.room = m.room AND overlaps(b.stay, m.slot)"
_VIEWS = {
    "groups": (
        f"SELECT b.room AS room, count(*) AS n {_OVERLAP} GROUP BY b.room",
        "SELECT r.hotel AS hotel, x.room AS room, x.n AS n FROM v0 x JOIN rooms r ON r.id = x.room",
        "SELECT y.hotel AS hotel, sum(y.n) AS t FROM v1 y GROUP BY y.hotel",
    ),
    "a join": (
        f"SELECT b.id AS booking, m.id AS job, b.room AS room {_OVERLAP}",
        "SELECT r.hotel AS hotel, x.booking AS booking, x.job AS job FROM v0 x JOIN rooms r ON r.id = x.room",
        "SELECT y.hotel AS hotel, count(*) AS t FROM v1 y GROUP BY y.hotel",
    ),
}


def run(scale: Scale, note: Note) -> list[Figure]:
    found, rows, batch = list[Figure](), scale.size(50_000, 500), scale.size(2_000, 20)
    about = {"rows": rows}
    for name, views in _VIEWS.items():
        spent, size = [_spent(views[: levels + 1], rows, batch, scale) for levels in range(3)], 0.0
        size = spent[-1][2]
        for words, position, aim in (("single changes", 0, 400.0), (f"batches of {batch:,}", 1, 1.0)):
            for level in (1, 2):
                added = [after - before for after, before in zip(spent[level][position], spent[level - 1][position], strict=True)]
                note(f"{name}, level {level}, {words}: {middle(added):.2f} µs a change more")
                what = f"level {level} over {name}: {words}, a change"
                found.append(sampled(what, added, "µs", aim=aim, less=True, parameters=about))
        note(f"{name}: {size:.0f} bytes a stored row")
        found.append(sampled(f"{name}: a stored row", [size], "bytes", aim=130, less=True, parameters=about))
    return found


def _spent(views: tuple[str, ...], rows: int, batch: int, scale: Scale) -> tuple[list[float], list[float], float]:
    """Return the processor time of each round, in microseconds a change, of single changes and of batches; and bytes a stored row."""
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        engine = Instance(Path(folder), Settings(data=Path(folder)))
        engine.recover()
        try:
            for name, definition in _RELATIONS.items():
                engine.put_relation(name, definition)
                engine.apply(_drawn(rng, name, np.arange(_ROOMS if name == "rooms" else rows)))
            for level, text in enumerate(views):
                engine.put_view(f"v{level}", {"sql": text}, wait=60)
            seconds, apply = list[float](), engine._state.apply

            def measured(outcome: object) -> object:
                began = time.thread_time()
                try:
                    return apply(outcome)  # type: ignore[arg-type]
                finally:
                    seconds.append(time.thread_time() - began)

            engine._state.apply = measured  # type: ignore[method-assign, assignment]
            singles, batches = list[float](), list[float]()
            for _ in range(_ROUNDS):
                for size, repeats, times in ((1, scale.size(60, 2), singles), (batch, 2, batches)):
                    seconds.clear()
                    for _ in range(repeats):
                        engine.apply(_drawn(rng, "bookings", rng.choice(rows, size, replace=False)))
                    times.append(1e6 * middle(seconds) / size)
            tables = [one.relation.table for one in engine.stored_for(engine.views.values())]
            return singles, batches, sum(one.bytes for one in tables) / max(1, sum(one.rows for one in tables))
        finally:
            engine.close()


def _drawn(rng: np.random.Generator, name: str, ids: np.ndarray) -> Batch:
    n = len(ids)
    starts = rng.integers(0, _SPAN, n)
    columns = {"id": ids, "room": rng.integers(0, _ROOMS, n), "s": starts, "e": starts + rng.integers(1, 20_000, n), "hotel": ids % 50}
    schema = _RELATIONS[name].arrow_schema()
    rows = pa.RecordBatch.from_arrays([pa.array(columns[one]) for one in schema.names], schema=schema)
    return Batch([Changes(name, _RELATIONS[name], np.full(n, UPSERT, np.uint8), RowBlock(rows), np.arange(n))], n, 0, [], 0)
