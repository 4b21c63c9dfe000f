"""The writer of a clique's tree: changes in tree order, each with its delta.

Each change sees the tree as the changes before it left it: a delete reports the rows of the interval, then takes it out; an insert
reports its rows, then puts it in. So each row of the delta falls to exactly one change (docs/design/versions.md, *Applying a batch*).

Costs: a change O(t log n + t L) besides its delta. Source: docs/design/ij-heap.md (*Self-joins*).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.clique.state import DONE, MODE
from structures.clique.walk import start_window, walk
from structures.core.arena import ROOT
from structures.core.kernel import kernel
from structures.multiway.changes import ACTIVE, AT, MISSING
from structures.multiway.layout import ARRAYS
from structures.multiway.tree import cut, put

_EVER = 2**62  # steps: a delta is interrupted by its rows alone


@kernel(
    "int64(" + ARRAYS + ", int64[::1], int64[::1], int32[:,::1], int64[::1], int64, uint8[::1], int32[::1], int64[::1], int64[::1],"
    " int32[::1], int64[::1], int32[::1], int64, boolean)"
)
def run_changes(
    M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, Z: Any, H: Any, I: Any, N: Any, sign: int, sets: Any, keys: Any, lefts: Any,  # noqa: E741
    rights: Any, slots: Any, order: Any, out: Any, stride: int, deltas: bool,
) -> int:  # fmt: skip
    """Apply entries `order[N[AT]:]` (deletes if sign < 0) until all are done, out is full (member i at stride * i), or Z[FULL]; the rows
    written.

    N[MISSING] counts deletes of entries that were not there (nothing is done for them).
    """
    n = 0
    while N[AT] < len(order):
        e = order[N[AT]]
        key, left, right, slot = np.int64(keys[e]), lefts[e], rights[e], np.int64(slots[e])
        if deltas:
            if N[ACTIVE] == 0:
                start_window(M, W, T, Z, C[ROOT], key, left, right, slot, sign < 0, right)
                N[ACTIVE] = 1
            n = walk(M, W, T, Z, H, I, out, stride, n, stride, _EVER)
            if Z[MODE] != DONE:
                return n
            N[ACTIVE] = 0
        if sign > 0:
            put(M, W, C, Q, T, X, 0, key, left, right, slot)
        elif not cut(M, W, C, Q, T, X, 0, key, left, slot):
            N[MISSING] += 1
        N[AT] += 1
    return n
