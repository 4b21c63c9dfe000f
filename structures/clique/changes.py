"""The writer of a clique's tree: changes in tree order, each with its delta.

Each change sees the tree as the changes before it left it: a delete reports the rows of the interval, then takes it out; an insert
reports its rows, then puts it in. So each row of the delta falls to exactly one change (docs/design/versions.md, *Applying a batch*).

Costs: a change O(t log n + t L) besides its delta. Source: docs/design/ij-heap.md (*Self-joins*).
"""

from __future__ import annotations

from typing import Any

from structures.clique.state import DONE, MODE, Walking
from structures.clique.walk import Window, start_window, walk
from structures.core.arena import ROOT
from structures.core.blocks import Writing
from structures.core.entries import Told, entry_of, first_refused
from structures.core.kernel import kernel
from structures.multiway.changes import ACTIVE, AT, MISSING, REFUSED, Changes
from structures.multiway.layout import MultiwayNodes
from structures.multiway.topology import SETS
from structures.multiway.tree import cut, put

_EVER = 2**62  # steps: a delta is interrupted by its rows alone


@kernel("int64(MultiwayNodes, Writing, int64[::1], Walking, int64[::1], Changes, Told, boolean)")
def run_changes(
    nodes: MultiwayNodes, writing: Writing, X: Any, walking: Walking, N: Any, changes: Changes, told: Told, deltas: bool
) -> int:
    """Apply the changes from N[AT] on until all are done, there is no room for more rows, or Z[FULL]; the rows written.

    N[MISSING] counts deletes of entries that were not there (nothing is done for them). REFUSED: nothing was done, as an entry is none.
    """
    C, Z, entries, order = writing.C, walking.Z, changes.entries, changes.order
    n = 0
    if N[AT] == 0 and N[ACTIVE] == 0 and first_refused(entries, nodes.T[SETS]) >= 0:
        return REFUSED
    while N[AT] < len(order):
        entry = entry_of(entries, order[N[AT]])
        if deltas:
            if N[ACTIVE] == 0:
                start_window(nodes, walking, C[ROOT], Window(entry.key, entry.left, entry.right), entry.slot, changes.sign < 0, entry.right)
                N[ACTIVE] = 1
            n = walk(nodes, walking, told, n, told.stride, _EVER)
            if Z[MODE] != DONE:
                return n
            N[ACTIVE] = 0
        if changes.sign > 0:
            put(nodes, writing, X, entry)
        elif not cut(nodes, writing, X, entry.set, entry.key, entry.left, entry.slot):
            N[MISSING] += 1
        N[AT] += 1
    return n
