"""Data for which no bucket width is right: clusters, and a heavy tail of lengths."""

from __future__ import annotations

from tests.benchmarks.data import crowded, heavy_tailed, uniform
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.measured_tree import FULL, QUICK, Note, measure
from tests.benchmarks.rivals_of_trees import measure_rivals
from tests.benchmarks.structure_keyed import FACTOR, slower_by
from tests.benchmarks.structure_pairs import figures_of

TITLE = "The structure: adversarial data, 1,000,000 intervals in total"


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(1_000_000, 20_000)
    effort = QUICK if scale.quick else FULL
    plain = measure(uniform(n, 2), effort, note)
    figures = []
    for workload in (crowded(n, 2), heavy_tailed(n, 2)):
        measured = measure(workload, effort, note)
        rivals = measure_rivals(workload, effort, note, rows=measured.rows, python=False)
        figures += figures_of(
            workload, measured, rivals, rows_aim=35e6 / FACTOR, singles_aim=500e3 / FACTOR, batches_aim=600e3 / FACTOR,
            load_aim=6e6 / FACTOR, first_aim=100.0 * FACTOR, bytes_aim=40.0 * FACTOR,
        )  # fmt: skip
        for what in ("load", "singles", "batches", "whole"):
            figures.append(slower_by(f"{workload.name}: {what}, against even data", getattr(plain, what), getattr(measured, what)))
    return figures
