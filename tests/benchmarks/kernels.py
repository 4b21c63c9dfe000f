"""Compiled loops of the benchmarks: single changes with no Python between them, and the sweep that serves as a rival."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import HEIGHT, ROOT
from structures.core.blocks import ALL_BLOCKS, Nodes, WriteState, reclaim
from structures.core.control import VERSION
from structures.core.encoding import NEG_INF
from structures.core.entries import Entries
from structures.core.kernel import kernel
from structures.core.runs import RunChanges
from structures.ordered.search import DEPTH, NOTHING_BEFORE, Bounds, search_fill, search_start
from structures.ordered.tree import cut, expect, put

RECLAIM_EVERY = 4  # versions: a service reclaims after a group of batches, not after each batch


@kernel
def one_of(changes: RunChanges, i: int, d: int) -> RunChanges:
    """Return change number i alone, with entries in d dimensions; `changes.order`: 0."""
    sets, keys, lefts, rights, slots = changes.entries
    ends = slice(i * d, (i + 1) * d)
    one = Entries(sets[i : i + 1], keys[i : i + 1], lefts[ends], rights[ends], slots[i : i + 1])
    return RunChanges(changes.signs[i : i + 1], one, changes.order, changes.done)


@kernel("int64(Nodes, WriteState, int64[::1], Entries, int64[::1], int32[::1], int32[::1], int64[::1])")
def single_changes(nodes: Nodes, writing: WriteState, signs: Any, entries: Entries, Z: Any, out0: Any, out1: Any, pins: Any) -> int:
    """Apply each entry as a version of its own, as `run_changes` does; its delta is written and ignored. Return the rows gained."""
    C = writing.C
    sets, keys, lefts, rights, slots = entries
    rows = 0
    ends = lefts[:0]
    for i in range(len(signs)):
        C[VERSION] += 1
        s = np.int64(sets[i])
        expect(nodes, C, keys[i], lefts[i], 2 * slots[i] + s, 0)
        search_start(Z, C[ROOT], C[HEIGHT], 1 - s, keys[i], Bounds(NEG_INF, NOTHING_BEFORE, rights[i], lefts[i]))
        while Z[DEPTH] > 0:
            n = search_fill(nodes, Z, out0, 0, ends)
            for j in range(n):
                out1[j] = slots[i]
            rows += signs[i] * n
        if signs[i] > 0:
            put(nodes, writing, s, keys[i], lefts[i], rights[i], slots[i])
        else:
            cut(nodes, writing, s, keys[i], lefts[i], slots[i])
        if i % RECLAIM_EVERY == 0:
            reclaim(nodes.M, writing, C[VERSION], pins, ALL_BLOCKS)
    return rows


@kernel("int64(int64[::1], int64[::1], int32[::1], int64[::1], int64[::1], int32[::1], int32[::1], int32[::1], int64[::1])")
def sweep(left0: Any, right0: Any, slot0: Any, left1: Any, right1: Any, slot1: Any, out0: Any, out1: Any, Z: Any) -> int:
    """Forward sweep over two sets, each sorted by left. Fills `out` from the position Z on, and returns the number of rows written: less
    than len(out) at the end. Z, initially three zeros: the position in each set, and how far the scan for the earlier of the two has
    come."""
    n = 0
    while Z[0] < len(left0) and Z[1] < len(left1):
        i, j = Z[0], Z[1]
        if left0[i] <= left1[j]:
            e, right, slot = max(j, Z[2]), right0[i], slot0[i]
            while e < len(left1) and left1[e] <= right:
                if n == len(out0):
                    Z[2] = e
                    return n
                out0[n], out1[n] = slot, slot1[e]
                n += 1
                e += 1
            Z[0] = i + 1
        else:
            e, right, slot = max(i, Z[2]), right1[j], slot1[j]
            while e < len(left0) and left0[e] <= right:
                if n == len(out0):
                    Z[2] = e
                    return n
                out0[n], out1[n] = slot0[e], slot
                n += 1
                e += 1
            Z[1] = j + 1
        Z[2] = 0
    return n
