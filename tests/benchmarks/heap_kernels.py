"""The compiled loops of the benchmarks of the IJ-heap and of cliques: single changes with no Python between them."""

from __future__ import annotations

from typing import Any

from structures.clique.changes import run_changes as run_clique_changes
from structures.clique.state import CliqueWalk as CliqueWalking
from structures.core.blocks import ALL_BLOCKS, WriteState, reclaim
from structures.core.control import VERSION
from structures.core.entries import RowBuffer
from structures.core.kernel import kernel
from structures.core.runs import AT, RunChanges
from structures.ij_heap.changes import run_changes
from structures.ij_heap.goals import HeapWalk
from structures.multiway.layout import MultiwayNodes
from tests.benchmarks.kernels import RECLAIM_EVERY, one_of


@kernel("int64(MultiwayNodes, WriteState, HeapWalk, int64[::1], RunChanges, RowBuffer, int64[::1], boolean)")
def heap_singles(
    nodes: MultiwayNodes, writing: WriteState, walking: HeapWalk, N: Any, changes: RunChanges, emitted: RowBuffer, pins: Any, deltas: bool
) -> int:
    """Apply each entry as a version of its own, a `run_changes` of one; its delta, if requested, is written and ignored. `changes.order`:
    0. Return the rows gained."""
    C = writing.C
    rows = 0
    signs = changes.signs
    for i in range(len(signs)):
        C[VERSION] += 1
        N[AT] = 0
        while N[AT] == 0:
            n = run_changes(nodes, writing, walking, N, emitted, one_of(changes, i, 1), deltas)
            rows += signs[i] * n
        if i % RECLAIM_EVERY == 0:
            reclaim(nodes.M, writing, C[VERSION], pins, ALL_BLOCKS)
    return rows


@kernel("int64(MultiwayNodes, WriteState, int64[::1], CliqueWalking, int64[::1], RunChanges, RowBuffer, int64[::1])")
def clique_singles(
    nodes: MultiwayNodes, writing: WriteState, X: Any, walking: CliqueWalking, N: Any, changes: RunChanges, emitted: RowBuffer, pins: Any
) -> int:
    """The same in a tree of cliques, with deltas; `walking` has room for all intervals that cover a start."""
    C = writing.C
    rows = 0
    signs = changes.signs
    for i in range(len(signs)):
        C[VERSION] += 1
        N[AT] = 0
        while N[AT] == 0:
            n = run_clique_changes(nodes, writing, X, walking, N, emitted, one_of(changes, i, 1), True)
            rows += signs[i] * n
        if i % RECLAIM_EVERY == 0:
            reclaim(nodes.M, writing, C[VERSION], pins, ALL_BLOCKS)
    return rows
