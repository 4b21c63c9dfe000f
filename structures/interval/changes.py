"""Writer of the interval tree: apply changes in a given order (preferably the tree's), each with its delta.

Each change sees the tree as left by the changes before it: a delete reports the partners of the interval, then removes it; an insert
reports its partners, then adds it. So each row of the delta is reported by exactly one change, and deletes before inserts give a delta with
deletes first (docs/design/versions.md, *Applying a batch*).

Costs: a change O(log n) besides its delta; many changes without deltas share the way to a leaf (`ordered/open_leaf.py`). Source: Tao and
Yi, Theorem 1; docs/design/ij-heap.md (*Update*).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import COUNT, HEIGHT, KIND, ROOT
from structures.core.blocks import Nodes, WriteState
from structures.core.encoding import NEG_INF
from structures.core.entries import RowBuffer, entry_of, prefetch_entry
from structures.core.kernel import kernel, wide
from structures.core.runs import AT, BEGUN, REFUSED, RUN_WORDS, RunChanges, end_change, has_delta, refuses
from structures.ordered.open_leaf import CLOSED, are_dense, change_near, close_leaf
from structures.ordered.search import DEPTH, NOTHING_BEFORE, Bounds, search_fill, search_start
from structures.ordered.summary import LIST, PAIR, SELF
from structures.ordered.tree import cut, expect, put

EMITTED = 0  # a sign, besides those of `core/entries`: report the partners of an interval, in the tree or not, and change nothing
ENTRIES_AHEAD = 16  # changes between prefetching an entry and using it
AHEAD = 2  # changes between prefetching a leaf and using it, and between prefetching the path to it and using that


@kernel("int64(Nodes, WriteState, int64[::1], RowBuffer, RunChanges, boolean)")
def run_changes(nodes: Nodes, writing: WriteState, state: Any, emitted: RowBuffer, changes: RunChanges, deltas: bool) -> int:
    """Apply the changes from state[AT] on until all are done or there is no room for more rows. Returns the number of rows reported (of
    kind LIST: entries).

    state: of the run, then of the search. state[MISSING] counts deletes of entries that were not there, which have no effect. REFUSED: an
    entry is invalid, and nothing was done. O(log n) a change, and O(1) a row where rows abound.
    """
    C, search = writing.C, state[RUN_WORDS:]
    signs, entries, order, done = changes
    sets, keys, lefts, rights, slots = entries
    out0, out1 = emitted.out[: emitted.stride], emitted.out[emitted.stride :]
    n, kind = 0, C[KIND]
    if refuses(state, entries, 2 if kind == PAIR else 1):
        return REFUSED
    if not deltas and are_dense(len(order), C[COUNT] + C[COUNT + 1]):
        change_many(nodes, writing, state, changes)
        return 0
    ends = lefts[:0]
    while state[AT] < len(order):
        e = order[state[AT]]
        s, key, left, right, slot = wide(sets[e]), keys[e], lefts[e], rights[e], slots[e]
        if state[BEGUN] == 0:
            if state[AT] + 2 * AHEAD < len(order):
                a = order[state[AT] + 2 * AHEAD]
                expect(nodes, C, keys[a], lefts[a], 2 * slots[a] + sets[a], 1)
            a = order[min(state[AT] + AHEAD, len(order) - 1)]  # a change that stands alone prefetches its own
            expect(nodes, C, keys[a], lefts[a], 2 * slots[a] + sets[a], 0)
        if deltas and (has_delta(signs[e]) or signs[e] == EMITTED):
            if kind == LIST:
                if n == emitted.stride:
                    return n
                out0[n] = slot
                n += 1
            else:
                if state[BEGUN] == 0:
                    bounds = Bounds(NEG_INF, NOTHING_BEFORE, right, left)
                    search_start(search, C[ROOT], C[HEIGHT], 0 if kind == SELF else 1 - s, key, bounds)
                    state[BEGUN] = 1
                own = out0 if s == 0 else out1
                other = out1 if s == 0 else out0
                m = search_fill(nodes, search, other, n, ends)
                if kind == SELF:
                    m = without(other, n, m, slot)
                for j in range(n, m):
                    own[j] = slot
                n = m
                if search[DEPTH] > 0:
                    return n
        missing = False
        if signs[e] > 0:
            put(nodes, writing, s, key, left, right, slot)
        elif signs[e] < 0:
            missing = not cut(nodes, writing, s, key, left, slot)
        end_change(state, done, n, missing)
    return n


@kernel
def change_many(nodes: Nodes, writing: WriteState, state: Any, changes: RunChanges) -> None:
    """Apply the changes from state[AT] on, without their deltas."""
    signs, entries, order, done = changes
    opened = CLOSED
    while state[AT] < len(order):
        e = order[state[AT]]
        prefetch_entry(entries, order[min(state[AT] + ENTRIES_AHEAD, len(order) - 1)], 1)
        possible = True
        if signs[e] != EMITTED:
            opened, possible = change_near(nodes, writing, opened, signs[e] > 0, entry_of(entries, e))
        end_change(state, done, 0, not possible)
    close_leaf(nodes, writing, opened)


@kernel
def without(slots: Any, lo: int, hi: int, slot: int) -> int:
    """Remove `slot` from slots[lo:hi], as an interval is not its own partner. Returns the new end."""
    n = lo
    for i in range(lo, hi):
        slots[n] = slots[i]
        n += slots[i] != slot
    return n
