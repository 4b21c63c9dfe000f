"""The compiled loop of the boxes' benchmarks: single changes without Python between them."""

from __future__ import annotations

from typing import Any

from structures.box.changes import AT, MISSING, run_box_changes
from structures.box.layout import BOX_ARRAYS, reclaim_blocks
from structures.core.arena import VERSION, reclaim
from structures.core.kernel import kernel
from tests.benchmarks.kernels import RECLAIM_EVERY


@kernel(
    "int64(" + BOX_ARRAYS + ", int64[::1], uint8[::1], int32[::1], int64[:,::1], int64[:,::1], int32[::1], int64[::1], int64[::1],"
    " int64[:,:,::1], int32[:,::1], int64[::1])"
)
def box_singles(
    M: Any, W: Any, C: Any, Q: Any, R: Any, signs: Any, sets: Any, keys: Any, lefts: Any, rights: Any, slots: Any, places: Any,
    X: Any, boxes: Any, out: Any, pins: Any,
) -> int:  # fmt: skip
    """Each box a version of its own, `run_box_changes` of one, with its delta, which is written and passed over. `places`: 0, 1, 2 …
    The rows gained."""
    rows = 0
    for i in range(len(signs)):
        C[VERSION] += 1
        X[AT] = 0
        while X[AT] == 0:
            place = places[i : i + 1]
            n = run_box_changes(M, W, C, Q, R, signs[i], sets, keys, lefts, rights, slots, place, X, boxes, out, True)
            rows += signs[i] * n
        if X[MISSING] != 0:
            return rows
        if i % RECLAIM_EVERY == 0:
            reclaim(M, C, Q, C[VERSION], pins, False)
            reclaim_blocks(M, C, R, C[VERSION], pins, False)
    return rows
