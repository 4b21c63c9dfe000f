"""A path of 3 with 50 partners, compared with 2: updates should not be slower, and deltas should be limited only by the rows that they
write."""

from __future__ import annotations

from tests.benchmarks.figures import Figure, Scale, middle
from tests.benchmarks.heap_data import even, path
from tests.benchmarks.measured_heap import NO_AIMS, QUICK, SMALL, figures_of, measure
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.rivals_of_heaps import measure_rivals

TITLE = "The IJ-heap: a path of 3 with 50 partners"


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(50_000, 3_000)
    effort = QUICK if scale.quick else SMALL
    topology = path(3)
    sparse = measure(topology, even(3, n, 2), effort, note)
    workload = even(3, n, 50)
    dense = measure(topology, workload, effort, note)
    rivals = measure_rivals(topology, workload, dense, note, reads=1)
    name = f"path of 3, {n:,} intervals"
    return [
        *figures_of(f"{name}, {workload.name}", dense, NO_AIMS, rivals),
        Figure(f"{name}: updates without deltas, times slower than with 2 partners", middle(sparse.updates) / middle(dense.updates),
               "times", 1.0, True),
        Figure(f"{name}, {workload.name}: rows of deltas, in batches", middle(dense.written), "rows/s",
               note=f"{dense.delta:,.0f} rows a change; the whole view: {middle(dense.whole) / 1e6:.0f} M rows/s"),
    ]  # fmt: skip
