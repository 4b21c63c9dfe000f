"""Writer of the IJ-heap: apply changes in tree order, each with its delta.

Each change sees the tree as left by the changes before it: a delete reports the rows of the interval, then removes it; an insert reports
its rows, then adds it. So exactly one change reports each row of the delta (docs/design/versions.md, *Applying a batch*). The rows of an
interval of set i are the product of the components of the topology without i: no copies (the paper's Appendix B keeps t of them).

Costs: a change polylog(n) besides its delta. Source: docs/design/ij-heap.md (*Delta of one insert or delete*; *Touch rule*).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import ROOT
from structures.core.blocks import WriteState
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import RowBuffer, entry_of
from structures.core.kernel import kernel
from structures.core.runs import AT, BEGUN, REFUSED, RunChanges, end_change, has_delta, refuses
from structures.ij_heap.goals import DEPTH, HeapWalk
from structures.ij_heap.walk import start_partners, walk
from structures.multiway.layout import MultiwayNodes
from structures.multiway.topology import SETS
from structures.multiway.tree import cut, put

_EVER = 2**62  # steps: only the number of its rows interrupts a delta


@kernel("int64(MultiwayNodes, WriteState, HeapWalk, int64[::1], RowBuffer, RunChanges, boolean)")
def run_changes(
    nodes: MultiwayNodes, writing: WriteState, walking: HeapWalk, state: Any, emitted: RowBuffer, changes: RunChanges, deltas: bool
) -> int:
    """Apply the changes from state[AT] on until all are done or there is no room for more rows. Returns the number of rows reported.

    state[MISSING] counts deletes of entries that were not there, which have no effect. REFUSED: an entry is invalid, and nothing was done.
    O(polylog(n)) a change, besides the rows.
    """
    C, reading, scratch = writing.C, walking.state, walking.scratch
    signs, entries, order, done = changes
    n = 0
    if refuses(state, entries, nodes.table[SETS]):
        return REFUSED
    while state[AT] < len(order):
        e = order[state[AT]]
        entry = entry_of(entries, e)
        if deltas and has_delta(signs[e]):
            if state[BEGUN] == 0:
                start_partners(nodes, walking, C[ROOT], entry, NEG_INF, POS_INF)
                state[BEGUN] = 1
            n = walk(nodes, walking, emitted, n, emitted.stride, _EVER)
            if reading[DEPTH] > 0:
                return n
        if signs[e] > 0:
            put(nodes, writing, scratch, entry)
            missing = False
        else:
            missing = not cut(nodes, writing, scratch, entry.set, entry.key, entry.left, entry.slot)
        end_change(state, done, n, missing)
    return n
