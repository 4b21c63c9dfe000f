"""Compaction of the trees of a join tree, one after another: `ordered/compaction.py`."""

from __future__ import annotations

from structures.core.arena import TREE
from structures.core.blocks import Nodes, Writing
from structures.core.compaction import earn, end_compaction, may_compact
from structures.core.control import CREDIT
from structures.core.kernel import kernel
from structures.join_tree.layout import Tables, lay_down, take_up
from structures.ordered.compaction import STEP_WORDS, compact_next


@kernel("void(Nodes, Writing, Tables, int64, int64)")
def compact(nodes: Nodes, writing: Writing, tables: Tables, leaves: int, spare: int) -> None:
    """Visit about `leaves` more leaves, writing as the current version; `spare`: words promised to other changes. O(1) a leaf, and O(log n)
    for the path to its neighbours."""
    C, T = writing.C, tables.T
    if not earn(C, leaves):
        return
    while may_compact(C, STEP_WORDS + spare):
        take_up(C, T, C[TREE])
        looked, last = compact_next(nodes, writing)
        C[CREDIT] -= looked
        lay_down(C, T, C[TREE])
        if last:
            C[TREE] += 1
            if C[TREE] == len(T):
                C[TREE] = 0
                end_compaction(C)
