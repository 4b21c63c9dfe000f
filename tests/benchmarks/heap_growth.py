"""How the IJ-heap's cost grows with n: steps of an update, of a delta and of a row, and the largest delay, each with its fitted
exponent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.ij_heap.heap import IJHeap, Topology
from tests.benchmarks.data import Workload
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.growth import figures_of, plot_of
from tests.benchmarks.heap_data import clique, even, heavy_tails, path
from tests.benchmarks.measured_heap import many_singles, whole_view
from tests.benchmarks.measured_tree import Changes, Note

TITLE = "The IJ-heap: how cost grows, n from 10^3 to 10^6 (10^7 with --large)"
KINDS = {"update": "steps of an update", "delta": "steps of a delta", "row": "steps per row", "delay": "largest gap between two rows"}
FITTED = ("update", "delta", "delay")
LOOKED_AT = 400  # intervals whose rows are read one by one to measure the delay


class Cost(NamedTuple):
    """In steps. `update`: nodes on the path, and nodes read for their summaries; `delta`: additional steps for the delta of a change;
    `delay`: the maximum between two rows, before the first, or after the last, in the whole view and in look-ups."""

    n: int
    update: float
    delta: float
    row: float
    delay: int
    rate: float


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = [300, 1_000, 3_000] if scale.quick else [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
    sizes += [10_000_000] if scale.large and not scale.quick else []
    figures = []
    for name, topology, make in (("path of 3", path(3), even), ("clique of 3", clique(3), even), ("path of 4", path(4), even),
                                 ("path of 3, heavy tails", path(3), heavy_tails)):  # fmt: skip
        costs = [cost(topology, make(topology.t, n, 2), scale) for n in sizes]
        note(f"{name}: delays {[one.delay for one in costs]}")
        figures += figures_of(name, costs, KINDS, FITTED, "intervals")
    return figures


def cost(topology: Topology, workload: Workload, scale: Scale) -> Cost:
    n = len(workload.entries.key)
    heap = IJHeap(topology)
    root = heap.bulk_load(1, workload.entries)
    reading = whole_view(heap, root)
    delay = reading.gap
    rng = np.random.default_rng(13)
    for position in rng.choice(n, min(scale.size(LOOKED_AT, 20), n), replace=False).tolist():
        cursor = heap.partners(root, workload.entries.take(slice(position, position + 1)))
        rows = 0
        while not cursor.done:
            rows += cursor.fill(1 << 16).shape[1]
        delay = max(delay, cursor.largest_gap if rows else cursor.steps)
    changes = Changes(workload)
    count = min(scale.size(20_000, 200), n // 2)
    # Without deltas, all reads are for summaries.
    update = root.height + 1 + many_singles(heap, changes, count, deltas=False).asked
    singles = many_singles(heap, changes, count)
    return Cost(n, update, singles.steps, reading.steps / max(reading.rows, 1), delay, singles.rate)


def plot(figures: list[Figure]) -> str:
    """Plot steps of updates and delays against n, as SVG."""
    return plot_of("The IJ-heap: how cost grows", figures, FITTED, "intervals")
