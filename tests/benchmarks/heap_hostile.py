"""A path of 3 over adversarial data, compared with even data of the same size."""

from __future__ import annotations

from tests.benchmarks.figures import Figure, Scale, middle
from tests.benchmarks.heap_data import even, hostile, path
from tests.benchmarks.measured_heap import QUICK, SMALL, Aims, Measured, figures_of, measure
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.rivals_of_heaps import measure_rivals

TITLE = "The IJ-heap: a path of 3 over nested, two-level, comb-like and heavy-tailed data, and data with few rows"
REPORTED = Aims(first=None, bytes=None)


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(100_000, 2_000)
    effort = QUICK if scale.quick else SMALL
    topology = path(3)
    plain = measure(topology, even(3, n, 2), effort, note)
    figures = []
    for workload in hostile(3, n, 2):
        measured = measure(topology, workload, effort, note)
        rivals = measure_rivals(topology, workload, measured, note, reads=1)
        figures += figures_of(f"path of 3, {n:,} intervals, {workload.name}", measured, REPORTED, rivals)
        figures += factors(workload.name, plain, measured)
    return figures


def factors(name: str, plain: Measured, measured: Measured) -> list[Figure]:
    """How many times slower than on even data. A change costs more the more rows it has, while a row then costs less, so the rows per
    change are noted."""
    rows = f"{measured.delta:.1f} rows a change, even data {plain.delta:.1f}"
    return [
        Figure(f"{name}: {what}, times slower than even data", middle(before) / middle(now), "times", less=True, note=rows)
        for what, before, now in (
            ("single changes with deltas", plain.singles, measured.singles),
            ("batches with deltas", plain.batches, measured.batches),
            ("batches without deltas", plain.updates, measured.updates),
            ("rows of the whole view", plain.whole, measured.whole),
        )
    ]
