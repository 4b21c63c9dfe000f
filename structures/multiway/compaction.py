"""Compaction, as in `ordered/compaction.py`: here leaf by leaf. Costs: a step O(log n) besides the copies, at most of a path."""

from __future__ import annotations

from structures.core.arena import FIRST_PLACE, LEAF, ROOT
from structures.core.blocks import Writing
from structures.core.compaction import earn, end_compaction, is_behind, may_compact
from structures.core.control import CREDIT, VERSION
from structures.core.kernel import kernel
from structures.multiway import layout
from structures.multiway.layout import MOST_LEVELS, MultiwayNodes, class_of, moved
from structures.multiway.topology import INNER_WORDS_, LEAF_WORDS_
from structures.multiway.tree import descend


@kernel
def move_path(nodes: MultiwayNodes, writing: Writing, leaf: int) -> None:
    """Copy what is to be moved of the path in C[PATH:], which ends with the leaf; what is above a copy belongs to this version."""
    M, C = nodes.M, writing.C
    d, above, o = layout.PATH, 0, C[layout.PATH]
    while True:
        end = o == 0
        if end:
            o = leaf
        if is_behind(C, o, class_of(nodes.W, o)) or (not end and M[o] != C[VERSION]):
            o = moved(nodes, writing, o)
            if above == 0:
                C[ROOT] = o
            else:
                M[above + layout.CHILD + C[d - 1]] = o
        if end:
            return
        above, d = o, d + 2
        o = C[d]


@kernel
def compact_next(nodes: MultiwayNodes, writing: Writing) -> bool:
    """The next leaf, and the path to it; whether it was the last."""
    M, W, C = nodes.M, nodes.W, writing.C
    leaf = descend(nodes, C, C[layout.AFTER], C[layout.AFTER + 1], C[layout.AFTER + 2])
    C[layout.AFTER], C[layout.AFTER + 1], C[layout.AFTER + 2] = FIRST_PLACE
    C[CREDIT] -= 1
    found, last, d = is_behind(C, leaf, LEAF), True, layout.PATH
    while C[d] != 0:
        o = C[d]
        found = found or is_behind(C, o, class_of(W, o))
        if C[d + 1] == 0:  # the lowest separator above the leaf is the next one's
            last = False
            C[layout.AFTER], C[layout.AFTER + 1] = W[2 * o + layout.SEPARATOR_KEY], M[o + layout.SEPARATOR_LEFT]
            C[layout.AFTER + 2] = M[o + layout.SEPARATOR_CODE]
        d += 2
    if found:
        move_path(nodes, writing, leaf)
    return last


@kernel("void(MultiwayNodes, Writing, int64, int64)")
def compact(nodes: MultiwayNodes, writing: Writing, leaves: int, spare: int) -> None:
    """Look at so many more leaves, writing as the current version; `spare`: words that other changes were promised. O(L) a leaf, and O(log
    n) for the way to its neighbours."""
    table, C = nodes.table, writing.C
    if not earn(C, leaves):
        return
    while may_compact(C, table[LEAF_WORDS_] + MOST_LEVELS * table[INNER_WORDS_] + spare):
        if compact_next(nodes, writing):
            end_compaction(C)
