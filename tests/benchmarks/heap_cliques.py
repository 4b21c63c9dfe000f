"""Cliques of one relation, `a.id < b.id AND b.id < c.id` with all intervals overlapping: load, changes, reading, steps and dead ends,
compared with DuckDB."""

from __future__ import annotations

import time

import numpy as np

from structures.clique.state import STEPS, new_walk
from structures.clique.tree import CliqueTree
from structures.core.entries import Entries, RowBuffer
from structures.core.runs import MISSING
from structures.core.runs import RunChanges as EachChange
from tests.benchmarks.data import Workload
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.heap_data import clique, even, nearly
from tests.benchmarks.heap_kernels import clique_singles
from tests.benchmarks.measured_heap import FULL, QUICK, SMALL, Aims, Singles, figures_of, measure_joined
from tests.benchmarks.measured_tree import CHUNK, NO_PINS, Changes, Effort, Note
from tests.benchmarks.rivals_of_heaps import measure_rivals

TITLE = "Cliques of one relation: 3 and 5 aliases, each combination once"
AIMS = Aims(singles=100e3, batches=150e3, whole=8e6, bytes=60.0)  # the aims of the IJ-heap's clique, which has an entry per alias
_ROOM = 1 << 16  # more than the intervals that cover any start here


def run(scale: Scale, note: Note) -> list[Figure]:
    n, few = scale.size(1_000_000, 3_000), scale.size(100_000, 1_000)
    figures = []
    for t, workload in ((3, even(1, n, 4)), (5, even(1, few, 8)), (3, nearly(3, few))):
        effort = QUICK if scale.quick else FULL if len(workload.entries.key) == n else SMALL
        figures += _figures(t, workload, effort, note)
    return figures


def _figures(t: int, workload: Workload, effort: Effort, note: Note) -> list[Figure]:
    measured = measure_joined(lambda: CliqueTree(t), t, many_singles, workload, effort, note)
    rivals = measure_rivals(clique(t), workload, measured, note, reads=1, one_set=True)
    return figures_of(f"clique of {t}, {measured.n:,} intervals, {workload.name}", measured, AIMS, rivals)


def many_singles(tree: CliqueTree, changes: Changes, count: int) -> Singles:
    """Apply as many versions as changes, inside one kernel: delete, insert, delete, insert …"""
    deletes, inserts = changes.take(count)
    total = 2 * len(deletes.key)
    mixed = [np.stack((a, b), 1).reshape(-1) for a, b in zip(deletes, inserts, strict=True)]
    signs = np.tile(np.array([-1, 1], np.int8), total // 2)
    tree.arena.require(total)
    state = np.zeros(3, np.int64)
    walking = new_walk()._replace(H=np.empty(_ROOM, np.int64), J=np.empty((3, _ROOM), np.int32))
    emitted = RowBuffer(np.empty(tree.members * CHUNK, np.int32), CHUNK)
    each = EachChange(signs, Entries(*mixed), np.zeros(1, np.int64), np.empty(0, np.int64))
    start = time.perf_counter()
    gained = clique_singles(*tree._arrays, walking, state, each, emitted, NO_PINS)
    elapsed = time.perf_counter() - start
    assert state[MISSING] == 0, "an interval to delete was not there"
    return Singles(total / elapsed, int(gained), walking.Z[STEPS] / total, 0.0)
