"""Topologies of 4 and 5 sets: the cost of their changes and rows, with steps."""

from __future__ import annotations

from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.heap_data import clique, cycle, even, path, star
from tests.benchmarks.measured_heap import QUICK, SMALL, Aims, figures_of, measure
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.rivals_of_heaps import measure_rivals

TITLE = "The IJ-heap: paths of 4 and 5, star, cycle and clique of 4"
NAMED = {"path of 4": path(4), "path of 5": path(5), "star of 4": star(4), "cycle of 4": cycle(4), "clique of 4": clique(4)}
REPORTED = Aims(first=None, bytes=None)


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(100_000, 1_000)
    effort = QUICK if scale.quick else SMALL
    figures = []
    for name, topology in NAMED.items():
        note(name)
        workload = even(topology.t, n, 2)
        measured = measure(topology, workload, effort, note)
        rivals = measure_rivals(topology, workload, measured, note, reads=1)
        figures += figures_of(f"{name}, {n:,} intervals, {workload.name}", measured, REPORTED, rivals)
    return figures
