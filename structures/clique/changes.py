"""Writer of a clique tree: apply changes in tree order, each with its delta.

Each change sees the tree as left by the changes before it: a delete reports the rows of the interval, then removes it; an insert reports
its rows, then adds it. So exactly one change reports each row of the delta (docs/design/versions.md, *Applying a batch*).

Costs: a change O(t log n + t L) besides its delta. Source: docs/design/ij-heap.md (*Self-joins*).
"""

from __future__ import annotations

from typing import Any

from structures.clique.state import DONE, MODE, CliqueWalk
from structures.clique.walk import Window, start_window, walk
from structures.core.arena import ROOT
from structures.core.blocks import WriteState
from structures.core.entries import RowBuffer, entry_of
from structures.core.kernel import kernel
from structures.core.runs import AT, BEGUN, REFUSED, RunChanges, end_change, has_delta, refuses
from structures.multiway.layout import MultiwayNodes
from structures.multiway.topology import SETS
from structures.multiway.tree import cut, put

_EVER = 2**62  # steps: only the number of its rows interrupts a delta


@kernel("int64(MultiwayNodes, WriteState, int64[::1], CliqueWalk, int64[::1], RowBuffer, RunChanges, boolean)")
def run_changes(
    nodes: MultiwayNodes,
    writing: WriteState,
    scratch: Any,
    walking: CliqueWalk,
    state: Any,
    emitted: RowBuffer,
    changes: RunChanges,
    deltas: bool,
) -> int:
    """Apply the changes from state[AT] on until all are done, there is no room for more rows, or Z[FULL] is set. Returns the number of rows
    reported.

    state[MISSING] counts deletes of entries that were not there, which have no effect. REFUSED: an entry is invalid, and nothing was done.
    O(t log n + t**2 log n) a change of t members, besides the rows.
    """
    C, Z = writing.C, walking.Z
    signs, entries, order, done = changes
    n = 0
    if refuses(state, entries, nodes.table[SETS]):
        return REFUSED
    while state[AT] < len(order):
        e = order[state[AT]]
        entry = entry_of(entries, e)
        if deltas and has_delta(signs[e]):
            if state[BEGUN] == 0:
                start_window(nodes, walking, C[ROOT], Window(entry.key, entry.left, entry.right), entry.slot, signs[e] < 0, entry.right)
                state[BEGUN] = 1
            n = walk(nodes, walking, emitted, n, emitted.stride, _EVER)
            if Z[MODE] != DONE:
                return n
        if signs[e] > 0:
            put(nodes, writing, scratch, entry)
            missing = False
        else:
            missing = not cut(nodes, writing, scratch, entry.set, entry.key, entry.left, entry.slot)
        end_change(state, done, n, missing)
    return n
