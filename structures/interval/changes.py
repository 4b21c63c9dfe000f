"""The writer of the interval tree: changes in a given order (best the tree's), each with its delta.

Each change sees the tree as the changes before it left it: a delete reports the partners of the interval,
then takes it out; an insert reports its partners, then puts it in. So each row of the delta falls to exactly
one change, and deletes before inserts give a delta with deletes first (docs/design/versions.md, *Applying a batch*).

Costs: a change O(log n) besides its delta. Source: Tao and Yi, Theorem 1; docs/design/ij-heap.md (*Update*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import HEIGHT, KIND, ROOT
from structures.core.blocks import Nodes, Writing
from structures.core.encoding import NEG_INF
from structures.core.entries import DELETE, INSERT, Entries, first_refused
from structures.core.kernel import arrays, kernel, wide
from structures.ordered.search import DEPTH, NOTHING_BEFORE, SEARCH_WORDS, Bounds, search_fill, search_start
from structures.ordered.summary import LIST, PAIR, SELF
from structures.ordered.tree import cut, expect, put

AT, ACTIVE, MISSING = SEARCH_WORDS, SEARCH_WORDS + 1, SEARCH_WORDS + 2
CHANGES_WORDS = SEARCH_WORDS + 3
REFUSED = -1
AHEAD = 2  # changes between asking for a leaf and using it, and between asking for the path to it and using that


@arrays("int8[::1]", Entries, "int64[::1]")
class Changes(NamedTuple):
    """The entries `order[Z[AT]:]` are still to be applied. signs: DELETE or INSERT with a delta, LEAVE or ENTER without one."""

    signs: np.ndarray
    entries: Entries
    order: np.ndarray


@arrays("int32[::1]", "int32[::1]", "int64[::1]")
class Told(NamedTuple):
    """Where rows go, by set; done[i], unless empty: the rows written when order[i] was done."""

    out0: np.ndarray
    out1: np.ndarray
    done: np.ndarray


@kernel("int64(Nodes, Writing, Changes, int64[::1], Told, boolean)")
def run_changes(nodes: Nodes, writing: Writing, changes: Changes, Z: Any, told: Told, deltas: bool) -> int:
    """Apply the changes from Z[AT] on until all are done or out is full; the rows written.

    Z[MISSING] counts deletes of entries that were not there (nothing is done for them). REFUSED: nothing was done, as an entry is none.
    """
    C = writing.C
    signs, entries, order = changes
    sets, keys, lefts, rights, slots = entries
    out0, out1, done = told.out0, told.out1, told.done
    n, kind = 0, C[KIND]
    if Z[AT] == 0 and Z[ACTIVE] == 0 and first_refused(entries, 2 if kind == PAIR else 1) >= 0:
        return REFUSED
    deltas = deltas and kind != LIST
    ends = lefts[:0]
    while Z[AT] < len(order):
        e = order[Z[AT]]
        s, key, left, right, slot = wide(sets[e]), keys[e], lefts[e], rights[e], slots[e]
        sign = signs[e]
        if Z[ACTIVE] == 0:
            if Z[AT] + 2 * AHEAD < len(order):
                a = order[Z[AT] + 2 * AHEAD]
                expect(nodes, C, keys[a], lefts[a], 2 * slots[a] + sets[a], 1)
            a = order[min(Z[AT] + AHEAD, len(order) - 1)]  # a change that stands alone asks for its own
            expect(nodes, C, keys[a], lefts[a], 2 * slots[a] + sets[a], 0)
        if deltas and (sign == DELETE or sign == INSERT):
            if Z[ACTIVE] == 0:
                search_start(Z, C[ROOT], C[HEIGHT], 0 if kind == SELF else 1 - s, key, Bounds(NEG_INF, NOTHING_BEFORE, right, left))
                Z[ACTIVE] = 1
            own = out0 if s == 0 else out1
            other = out1 if s == 0 else out0
            m = search_fill(nodes, Z, other, n, ends)
            if kind == SELF:
                m = without(other, n, m, slot)
            for j in range(n, m):
                own[j] = slot
            n = m
            if Z[DEPTH] > 0:
                return n
            Z[ACTIVE] = 0
        if sign > 0:
            put(nodes, writing, s, key, left, right, slot)
        elif not cut(nodes, writing, s, key, left, slot):
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
