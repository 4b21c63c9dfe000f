"""The rivals of the IJ-heap for one topology and workload, as its subjects report them."""

from __future__ import annotations

from structures.ij_heap.heap import Topology
from tests.benchmarks.data import Workload
from tests.benchmarks.figures import Rival, middle, seconds
from tests.benchmarks.heap_rivals import PATIENCE, DuckDbOfMany, LookUps
from tests.benchmarks.measured_heap import Measured, Rivals
from tests.benchmarks.measured_tree import Changes, Note
from tests.benchmarks.rivals_of_trees import BY_HAND

PAIR_BY_PAIR = "pair by pair in Python"


def measure_rivals(
    topology: Topology, workload: Workload, measured: Measured, note: Note, *, reads: int = 3, look_ups: LookUps | None = None,
    calls: int = 0, one_set: bool = False,
) -> Rivals:  # fmt: skip
    """Measure DuckDB with the same intervals and changes (`one_set`: as in `DuckDbOfMany`); with `look_ups`, which has the intervals, also
    `calls` changes pair by pair (undone afterwards)."""
    duckdb = DuckDbOfMany(topology, workload.entries, one_set=one_set)
    found = Rivals([], [], [], [])
    _read(duckdb, measured, found, reads)
    changes = Changes(workload)
    for batch, times, rivals, what in ((measured.batch, min(reads, 2), found.batches, ""), (2, 5, found.singles, ", two at a time")):
        spent = _spent(duckdb, changes, batch, times)
        given_up = "" if spent else f"; upper bound: interrupted after {PATIENCE:.0f} s"
        rivals.append(Rival("DuckDB", batch / middle(spent or [PATIENCE]), BY_HAND + what + given_up))
    duckdb.close()
    note(f"DuckDB {found.whole[0].value / 1e6:.1f} M rows/s, {found.batches[0].value / 1e3:.1f} k/s in batches")
    if look_ups is not None:
        deletes, inserts = changes.take(calls)
        elapsed = seconds(lambda: (look_ups.change(topology, -1, deletes), look_ups.change(topology, 1, inserts)))
        found.singles.append(Rival("intervaltree", 2 * len(deletes.key) / elapsed, PAIR_BY_PAIR))
        look_ups.change(topology, -1, inserts)
        look_ups.change(topology, 1, deletes)
        note(f"intervaltree {found.singles[-1].value / 1e3:.1f} k/s")
    return found


def _spent(duckdb: DuckDbOfMany, changes: Changes, batch: int, times: int) -> list[float]:
    """Seconds of each of these batches, or of those before the first that was interrupted."""
    spent: list[float] = []
    while len(spent) < times and (done := duckdb.change(*changes.take(batch))) is not None:
        spent.append(done[0])
    return spent


def _read(duckdb: DuckDbOfMany, measured: Measured, found: Rivals, reads: int) -> None:
    """Run the query again. Return rows a second and the time; an upper bound of the rate if the query took too long."""
    rows = measured.reading.rows
    whole = duckdb.read()
    if whole is None:
        found.whole.append(Rival("DuckDB", rows / PATIENCE, f"upper bound: the query was interrupted after {PATIENCE:.0f} s"))
        return
    readings = [whole, *(one for _ in range(reads - 1) if (one := duckdb.read()) is not None)]
    assert all(one.rows == rows for one in readings), f"DuckDB found {whole.rows} rows, we {rows}"
    elapsed = middle([one.all for one in readings])
    found.whole.append(Rival("DuckDB", rows / elapsed, f"runs the query again, {1e3 * elapsed:.0f} ms"))
    found.first.append(Rival("DuckDB", 1e6 * middle([one.first for one in readings])))
