"""Paths and cliques of 3, a million intervals with about 2 partners: load, changes, reading and memory, compared with DuckDB and with
look-ups in Python."""

from __future__ import annotations

from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.heap_data import clique, even, path
from tests.benchmarks.heap_rivals import LookUps
from tests.benchmarks.measured_heap import FULL, QUICK, Aims, figures_of, measure
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.rivals_of_heaps import measure_rivals

TITLE = "The IJ-heap: a path and a clique of 3, 1,000,000 intervals in total"
PATH = Aims(load=1.5e6, singles=60e3, batches=100e3, whole=30e6)
CLIQUE = Aims(singles=100e3, batches=150e3, whole=8e6)


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(1_000_000, 3_000)
    effort = QUICK if scale.quick else FULL
    workload = even(3, n, 2)
    look_ups = LookUps(3, workload.entries)
    note("intervaltree is loaded")
    figures = []
    for name, topology, aims in (("path of 3", path(3), PATH), ("clique of 3", clique(3), CLIQUE)):
        measured = measure(topology, workload, effort, note)
        rivals = measure_rivals(topology, workload, measured, note, look_ups=look_ups, calls=effort.calls)
        figures += figures_of(f"{name}, {n:,} intervals, {workload.name}", measured, aims, rivals)
    return figures
