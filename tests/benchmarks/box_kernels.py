"""The compiled loop of the boxes' benchmarks: single changes without Python between them."""

from __future__ import annotations

from typing import Any

from structures.box.changes import AT, MISSING, Changes, run_box_changes
from structures.core.blocks import VERSION, Nodes, Writing, reclaim
from structures.core.kernel import kernel
from tests.benchmarks.kernels import RECLAIM_EVERY


@kernel("int64(Nodes, Writing, int64[::1], Changes, int64[::1], int64[:,:,::1], int32[:,::1], int64[::1])")
def box_singles(nodes: Nodes, writing: Writing, signs: Any, changes: Changes, X: Any, boxes: Any, out: Any, pins: Any) -> int:
    """Each box a version of its own, `run_box_changes` of one, with its delta, which is written and passed over. `changes.order`: 0, 1, 2 …
    The rows gained."""
    C = writing.C
    sets, keys, lefts, rights, slots, order = changes
    rows = 0
    for i in range(len(signs)):
        C[VERSION] += 1
        X[AT] = 0
        one = Changes(sets, keys, lefts, rights, slots, order[i : i + 1])
        while X[AT] == 0:
            n = run_box_changes(nodes, writing, signs[i], one, X, boxes, out, True)
            rows += signs[i] * n
        if X[MISSING] != 0:
            return rows
        if i % RECLAIM_EVERY == 0:
            reclaim(nodes.M, writing, C[VERSION], pins)
    return rows
