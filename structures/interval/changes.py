"""The writer of the interval tree: changes in a given order (best the tree's), each with its delta.

Each change sees the tree as the changes before it left it: a delete reports the partners of the interval,
then takes it out; an insert reports its partners, then puts it in. So each row of the delta falls to exactly
one change, and deletes before inserts give a delta with deletes first (docs/design/versions.md, *Applying a batch*).

Costs: a change O(log n) besides its delta. Source: Tao and Yi, Theorem 1; docs/design/ij-heap.md (*Update*).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import ARRAYS, HEIGHT, KIND, NEG_INF, ROOT
from structures.core.entries import DELETE, INSERT
from structures.core.kernel import kernel
from structures.ordered.search import DEPTH, SEARCH_WORDS, search_fill, search_start
from structures.ordered.summary import LIST, SELF
from structures.ordered.tree import cut, expect, put

AT, ACTIVE, MISSING = SEARCH_WORDS, SEARCH_WORDS + 1, SEARCH_WORDS + 2
CHANGES_WORDS = SEARCH_WORDS + 3
AHEAD = 2  # changes between asking for a leaf and using it, and between asking for the path to it and using that


@kernel(
    "int64(" + ARRAYS + ", int8[::1], uint8[::1], int32[::1], int64[::1], int64[::1], int32[::1], int64[::1], int64[::1],"
    " int32[::1], int32[::1], int64[::1], boolean)"
)
def run_changes(
    M: Any, W: Any, C: Any, Q: Any, signs: Any, sets: Any, keys: Any, lefts: Any, rights: Any, slots: Any, order: Any, Z: Any,
    out0: Any, out1: Any, done: Any, deltas: bool,
) -> int:  # fmt: skip
    """Apply entries `order[Z[AT]:]` until all are done or out is full; the rows written.

    signs: DELETE or INSERT with a delta, LEAVE or ENTER without one. done[i], unless empty: the rows written when order[i] was done.
    Z[MISSING] counts deletes of entries that were not there (nothing is done for them).
    """
    n = 0
    kind = C[KIND]
    deltas = deltas and kind != LIST
    ends = lefts[:0]
    while Z[AT] < len(order):
        e = order[Z[AT]]
        s, key, left, right, slot = np.int64(sets[e]), keys[e], lefts[e], rights[e], slots[e]
        sign = signs[e]
        if Z[ACTIVE] == 0:
            if Z[AT] + 2 * AHEAD < len(order):
                a = order[Z[AT] + 2 * AHEAD]
                expect(M, W, C, keys[a], lefts[a], 2 * slots[a] + sets[a], 1)
            a = order[min(Z[AT] + AHEAD, len(order) - 1)]  # a change that stands alone asks for its own
            expect(M, W, C, keys[a], lefts[a], 2 * slots[a] + sets[a], 0)
        if deltas and (sign == DELETE or sign == INSERT):
            if Z[ACTIVE] == 0:
                search_start(Z, C[ROOT], C[HEIGHT], 0 if kind == SELF else 1 - s, key, NEG_INF, -1, right, left)
                Z[ACTIVE] = 1
            own = out0 if s == 0 else out1
            other = out1 if s == 0 else out0
            m = search_fill(M, W, Z, other, n, ends)
            if kind == SELF:
                m = without(other, n, m, slot)
            for j in range(n, m):
                own[j] = slot
            n = m
            if Z[DEPTH] > 0:
                return n
            Z[ACTIVE] = 0
        if sign > 0:
            put(M, W, C, Q, s, key, left, right, slot)
        elif not cut(M, W, C, Q, s, key, left, slot):
            Z[MISSING] += 1
        if len(done) > 0:
            done[Z[AT]] = n
        Z[AT] += 1
    return n


@kernel
def without(slots: Any, lo: int, hi: int, slot: int) -> int:
    """Take `slot` out of slots[lo:hi] (an interval is no partner of itself); the new end."""
    n = lo
    for i in range(lo, hi):
        slots[n] = slots[i]
        n += slots[i] != slot
    return n
