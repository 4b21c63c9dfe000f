"""The compiled loop of the benchmarks of boxes: single changes with no Python between them."""

from __future__ import annotations

from typing import Any

from structures.box.layout import DIMENSIONS
from structures.box.runs import run_changes
from structures.core.blocks import ALL_BLOCKS, Nodes, WriteState, reclaim
from structures.core.control import VERSION
from structures.core.entries import RowBuffer
from structures.core.kernel import kernel
from structures.core.runs import AT, MISSING, RunChanges
from tests.benchmarks.kernels import RECLAIM_EVERY, one_of


@kernel("int64(Nodes, WriteState, int64[::1], int64[:,:,::1], RowBuffer, RunChanges, int64[::1])")
def box_singles(nodes: Nodes, writing: WriteState, state: Any, boxes: Any, emitted: RowBuffer, changes: RunChanges, pins: Any) -> int:
    """Apply each box as a version of its own, a `run_changes` of one; its delta is written and ignored. `changes.order`: 0. Return the rows
    gained."""
    C = writing.C
    rows = 0
    for i in range(len(changes.signs)):
        C[VERSION] += 1
        state[AT] = 0
        one = one_of(changes, i, C[DIMENSIONS])
        while state[AT] == 0:
            n = run_changes(nodes, writing, state, boxes, emitted, one, True)
            rows += changes.signs[i] * n
        if state[MISSING] != 0:
            return rows
        if i % RECLAIM_EVERY == 0:
            reclaim(nodes.M, writing, C[VERSION], pins, ALL_BLOCKS)
    return rows
