"""Bookings and maintenance by room: the same structure with an equality key."""

from __future__ import annotations

from tests.benchmarks.data import ROOMS, keyed, uniform
from tests.benchmarks.figures import Figure, Scale, middle
from tests.benchmarks.measured_tree import FULL, QUICK, Note, measure
from tests.benchmarks.rivals_of_trees import measure_rivals
from tests.benchmarks.structure_pairs import figures_of

TITLE = "The structure: bookings and maintenance of 50,000 rooms, 1,000,000 intervals in total"
FACTOR = 1.5


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(1_000_000, 20_000)
    effort = QUICK if scale.quick else FULL
    plain = measure(uniform(n, 2), effort, note)
    workload = keyed(n, 2, scale.size(ROOMS, 1_000))
    measured = measure(workload, effort, note)
    rivals = measure_rivals(workload, effort, note, rows=measured.rows, keyed=True)
    figures = figures_of(
        workload, measured, rivals, singles_aim=500e3 / FACTOR, batches_aim=None, load_aim=None, first_aim=None, bytes_aim=64.0
    )
    return [*figures, slower_by("single changes in a kernel, against pairs without a key", plain.singles, measured.singles)]


def slower_by(name: str, plain: list[float], samples: list[float]) -> Figure:
    """How many times slower than pairs without a key in the same run."""
    return Figure(f"{name}: times slower", middle(plain) / middle(samples), "times", FACTOR, True)
