"""The compiled loops of the benchmarks of the IJ-heap and of cliques: single changes without Python between them."""

from __future__ import annotations

from typing import Any

from structures.clique.changes import run_changes as run_clique_changes
from structures.core.arena import VERSION, reclaim
from structures.core.kernel import kernel
from structures.ij_heap.changes import run_changes
from structures.multiway.changes import AT
from structures.multiway.layout import ARRAYS
from tests.benchmarks.kernels import RECLAIM_EVERY


@kernel(
    "int64(" + ARRAYS + ", int64[::1], int32[::1], int64[::1], int64[::1], uint8[::1], int32[::1], int64[::1], int64[::1], int32[::1],"
    " int64[::1], int32[::1], int64, int64[::1], boolean)"
)
def heap_singles(
    M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, Z: Any, ZW: Any, N: Any, signs: Any, sets: Any, keys: Any, lefts: Any, rights: Any,
    slots: Any, places: Any, out: Any, stride: int, pins: Any, deltas: bool,
) -> int:  # fmt: skip
    """Each entry a version of its own, `run_changes` of one; its delta (if asked for) is written and passed over. `places`: 0, 1, 2 …
    The rows gained."""
    rows = 0
    for i in range(len(signs)):
        C[VERSION] += 1
        N[AT] = 0
        while N[AT] == 0:
            place = places[i : i + 1]
            n = run_changes(M, W, C, Q, T, X, Z, ZW, N, signs[i], sets, keys, lefts, rights, slots, place, out, stride, deltas)
            rows += signs[i] * n
        if i % RECLAIM_EVERY == 0:
            reclaim(M, C, Q, C[VERSION], pins, False)
    return rows


@kernel(
    "int64(" + ARRAYS + ", int64[::1], int64[::1], int32[:,::1], int64[::1], int64[::1], uint8[::1], int32[::1], int64[::1], int64[::1],"
    " int32[::1], int64[::1], int32[::1], int64, int64[::1])"
)
def clique_singles(
    M: Any, W: Any, C: Any, Q: Any, T: Any, X: Any, Z: Any, H: Any, I: Any, N: Any, signs: Any, sets: Any, keys: Any, lefts: Any,  # noqa: E741
    rights: Any, slots: Any, places: Any, out: Any, stride: int, pins: Any,
) -> int:  # fmt: skip
    """The same in a tree of cliques, with deltas; H and I have room for all that covers a start."""
    rows = 0
    for i in range(len(signs)):
        C[VERSION] += 1
        N[AT] = 0
        while N[AT] == 0:
            place = places[i : i + 1]
            n = run_clique_changes(M, W, C, Q, T, X, Z, H, I, N, signs[i], sets, keys, lefts, rights, slots, place, out, stride, True)
            rows += signs[i] * n
        if i % RECLAIM_EVERY == 0:
            reclaim(M, C, Q, C[VERSION], pins, False)
    return rows
