"""The writer of the IJ-heap: changes in tree order, each with its delta.

Each change sees the tree as the changes before it left it: a delete reports the rows of the interval, then takes it out; an insert
reports its rows, then puts it in. So each row of the delta falls to exactly one change (docs/design/versions.md, *Applying a batch*). The
rows of an interval of set i are the product of the components of the topology without i: no copies (the paper's Appendix B keeps t of
them).

Costs: a change polylog(n) besides its delta. Source: docs/design/ij-heap.md (*Delta of one insert or delete*; *Touch rule*).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import NEG_INF, POS_INF, ROOT
from structures.core.kernel import kernel
from structures.ij_heap.walk import DEPTH, start_partners, walk
from structures.multiway.changes import ACTIVE, AT, MISSING
from structures.multiway.layout import ARRAYS
from structures.multiway.tree import cut, put

_EVER = 2**62  # steps: a delta is interrupted by its rows alone


@kernel(
    "int64(" + ARRAYS + ", int64[::1], int32[::1], int64[::1], int64, uint8[::1], int32[::1], int64[::1], int64[::1], int32[::1],"
    " int64[::1], int32[::1], int64, boolean)"
)
def run_changes(
    M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, Z: Any, ZW: Any, N: Any, sign: int, sets: Any, keys: Any, lefts: Any, rights: Any,
    slots: Any, order: Any, out: Any, stride: int, deltas: bool,
) -> int:  # fmt: skip
    """Apply entries `order[N[AT]:]` (deletes if sign < 0) until all are done or out is full (alias i at stride * i); the rows written.

    N[MISSING] counts deletes of entries that were not there (nothing is done for them).
    """
    n = 0
    while N[AT] < len(order):
        e = order[N[AT]]
        s, key, left, right, slot = np.int64(sets[e]), np.int64(keys[e]), lefts[e], rights[e], np.int64(slots[e])
        if deltas:
            if N[ACTIVE] == 0:
                start_partners(M, W, T, Z, ZW, X, C[ROOT], s, key, left, right, slot, NEG_INF, POS_INF)
                N[ACTIVE] = 1
            n = walk(M, W, T, Z, ZW, X, out, stride, n, stride, _EVER)
            if Z[DEPTH] > 0:
                return n
            N[ACTIVE] = 0
        if sign > 0:
            put(M, W, C, Q, T, X, s, key, left, right, slot)
        elif not cut(M, W, C, Q, T, X, s, key, left, slot):
            N[MISSING] += 1
        N[AT] += 1
    return n
