"""Pairs without a key, a million intervals with 2 and with 20 partners: load, changes, reading, memory."""

from __future__ import annotations

import math

from tests.benchmarks.data import Workload, uniform
from tests.benchmarks.figures import Figure, Rival, Scale, sampled
from tests.benchmarks.measured_tree import FULL, QUICK, Measured, Note, measure
from tests.benchmarks.rivals_of_trees import Rivals, measure_rivals

TITLE = "The structure: pairs, 1,000,000 intervals in total"


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(1_000_000, 2_000)
    effort = QUICK if scale.quick else FULL
    figures = []
    for partners, rows_aim in ((2, 35e6), (20, 130e6)):
        workload = uniform(n, partners)
        measured = measure(workload, effort, note)
        # The speed of Python's trees hardly depends on the number of partners, so they are measured once.
        rivals = measure_rivals(workload, effort, note, rows=measured.rows, python=partners == 2)
        figures += figures_of(workload, measured, rivals, rows_aim=rows_aim)
    return figures


def figures_of(
    workload: Workload, measured: Measured, rivals: Rivals, *, rows_aim: float | None = None, singles_aim: float | None = 500e3,
    batches_aim: float | None = 600e3, load_aim: float | None = 6e6, first_aim: float | None = 100.0, bytes_aim: float | None = 40.0,
) -> list[Figure]:  # fmt: skip
    """Return the figures of one workload. `first_aim`: in microseconds."""
    n = len(workload.entries.key)
    about = {"intervals": n, "rows": measured.rows, "partners": measured.partners}
    name = f"{n:,} intervals, {workload.name}"
    first = [1e6 * value for value in measured.first]
    for rival in rivals.first:
        rival.value *= 1e6

    def rate(what: str, samples: list[float], unit: str, aim: float | None, rivals: list[Rival]) -> Figure:
        return sampled(f"{name}: {what}", samples, unit, aim=aim, rivals=rivals, parameters=about)

    def size(what: str, value: float) -> Figure:
        return Figure(f"{name}: bytes an interval, {what}", value, "B", bytes_aim, True, rivals.bytes, about)

    gap = f"{measured.gap / math.log2(n):.1f} log2 n"
    return [
        rate("load", measured.load, "intervals/s", load_aim, rivals.load),
        rate("single changes, each its own version, with deltas, in a kernel", measured.singles, "changes/s", singles_aim, rivals.singles),
        rate("single changes, one Python call each", measured.calls, "changes/s", None, rivals.singles),
        rate(f"batches of {measured.batch:,} with deltas", measured.batches, "changes/s", batches_aim, rivals.batches),
        rate("whole view", measured.whole, "rows/s", rows_aim, rivals.whole),
        sampled(f"{name}: first 512 rows", first, "µs", aim=first_aim, less=True, rivals=rivals.first, parameters=about),
        size("loaded", measured.bytes_loaded),
        size("after the changes", measured.bytes_changed),
        Figure(f"{name}: largest gap between two rows", measured.gap, "steps", less=True, parameters=about, note=gap),
    ]
