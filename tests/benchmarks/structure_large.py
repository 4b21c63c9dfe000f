"""The same with ten million intervals: rates should fall only by the logarithm."""

from __future__ import annotations

from tests.benchmarks.data import uniform
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.measured_tree import FEW, QUICK, Note, measure
from tests.benchmarks.rivals_of_trees import measure_rivals
from tests.benchmarks.structure_pairs import figures_of

TITLE = "The structure: pairs, 10,000,000 intervals in total"
LOGARITHM = 7 / 6  # log 10^7 / log 10^6


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(10_000_000, 20_000)
    effort = QUICK if scale.quick else FEW
    figures = []
    for partners, rows_aim in ((2, 35e6), (20, 130e6)):
        workload = uniform(n, partners)
        measured = measure(workload, effort, note, loads=2)
        # intervaltree would take 6 GB and ten minutes.
        rivals = measure_rivals(workload, effort, note, rows=measured.rows, python=False)
        figures += figures_of(
            workload, measured, rivals, rows_aim=rows_aim / LOGARITHM, singles_aim=500e3 / LOGARITHM, batches_aim=600e3 / LOGARITHM,
            load_aim=6e6 / LOGARITHM, first_aim=100.0 * LOGARITHM,
        )  # fmt: skip
    return figures
