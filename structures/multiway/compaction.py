"""Compaction, as in `ordered/compaction.py`: here leaf by leaf; and the leaves of a subtree of a few levels are rewritten as fewer, if
these suffice.

Costs: a step O(log n) besides the copies, at most of a path and of the leaves of such a subtree.
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import FIRST_PLACE, INNER, LEAF, ROOT
from structures.core.blocks import Writing, drop
from structures.core.compaction import earn, end_compaction, is_behind, may_compact
from structures.core.control import CREDIT, LISTED, SWEPT, VERSION, class_at
from structures.core.entries import Entry
from structures.core.kernel import kernel, wide
from structures.multiway import layout
from structures.multiway.layout import FILLED, MOST_LEVELS, TOGETHER, MultiwayNodes, allocate_block, class_of, height_of, moved, start_of
from structures.multiway.leaves import AT, append_run, count_of, first_run
from structures.multiway.summary import CUT, summarise
from structures.multiway.topology import INNER_WORDS_, LEAF_WORDS_, MOST, SETS
from structures.multiway.tree import LEAF_FILL, build_above, climb, descend


@kernel
def move_path(nodes: MultiwayNodes, writing: Writing, leaf: int) -> None:
    """Copy the nodes of the path in C[PATH:], which ends with the leaf, that lie in chunks to be emptied; nodes above a copy belong to this
    version afterwards."""
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


# --- filling leaves


@kernel
def begun_subtree(W: Any, C: Any) -> int:
    """The place in C[PATH:] of the node of FILLED levels on the path, if the leaf is the first one below it; otherwise 0."""
    d, first = layout.PATH, wide(0)
    while C[d] != 0:
        if height_of(W, C[d]) == FILLED:
            first = wide(d)
        if height_of(W, C[d]) <= FILLED and C[d + 1] != 0:
            return wide(0)
        d += 2
    return first


@kernel
def find_leaves(nodes: MultiwayNodes, writing: Writing, top: int, drops: bool) -> int:
    """Write the leaves below a node of FILLED levels into C[OLD:]. Returns their number. `drops`: whether to drop the nodes above them."""
    M, W, C = nodes.M, nodes.W, writing.C
    C[layout.WAY] = top
    n, leaves = 1, 0
    while n > 0:
        n -= 1
        o = C[layout.WAY + n]
        if height_of(W, o) == 0:
            C[layout.OLD + leaves] = o
            leaves += 1
            continue
        C[layout.WAY + n], C[layout.WAY + n + 1] = M[o + layout.CHILD + 1], M[o + layout.CHILD]
        n += 2
        if drops:
            drop(M, writing, o, INNER)
    return leaves


@kernel
def find_ends(nodes: MultiwayNodes, C: Any, scratch: Any, c: int, some: int) -> None:
    """Find where, in the runs of old leaf number c, the next `some` of its remaining entries end."""
    W, t, o, at = nodes.W, nodes.table[SETS], C[layout.OLD + c], MOST * c
    left = wide(0)
    for s in range(t):
        scratch[AT + s] = C[layout.BEGINS + at + s]
        left += start_of(W, o, s + 1) - scratch[AT + s]
    for _ in range(some if some < left else 0):
        scratch[AT + first_run(nodes, scratch, o)] += 1
    for s in range(t):
        C[layout.ENDS + at + s] = start_of(W, o, s + 1) if some == left else scratch[AT + s]


@kernel
def written_leaf(nodes: MultiwayNodes, C: Any, scratch: Any, leaves: int, low: int, high: int) -> int:
    """Write a leaf with entries number low to high - 1 of the leaves at C[OLD:]; the entries before are written."""
    W, start = nodes.W, wide(0)
    for c in range(leaves):
        count = count_of(nodes, C[layout.OLD + c])
        find_ends(nodes, C, scratch, c, max(0, min(high - start, count) - max(low - start, 0)))
        start += count
    new, n = allocate_block(nodes, C, LEAF), 0
    W[2 * new + layout.STARTS] = 0
    for s in range(nodes.table[SETS]):
        for c in range(leaves):
            at = MOST * c + s
            n = append_run(nodes, C[layout.OLD + c], C[layout.BEGINS + at], C[layout.ENDS + at], new, n)
            C[layout.BEGINS + at] = C[layout.ENDS + at]
        W[2 * new + layout.STARTS + s + 1] = n
    summarise(nodes, scratch, new)
    return new


@kernel
def fill_leaves(nodes: MultiwayNodes, writing: Writing, scratch: Any, d: int, fewer: int) -> None:
    """Rewrite the leaves below the node at C[d] of the path as `fewer` leaves, at most one level lower: a larger difference could not be
    balanced."""
    M, W, C = nodes.M, nodes.W, writing.C
    leaves, total = find_leaves(nodes, writing, C[d], True), wide(0)
    for c in range(leaves):
        o = C[layout.OLD + c]
        total += count_of(nodes, o)
        for s in range(nodes.table[SETS]):
            C[layout.BEGINS + MOST * c + s] = start_of(W, o, s)
    for b in range(fewer):
        C[layout.NEW + b] = written_leaf(nodes, C, scratch, leaves, total * b // fewer, total * (b + 1) // fewer)
    for c in range(leaves):
        drop(M, writing, C[layout.OLD + c], LEAF)
    top = build_above(nodes, C, scratch, C[layout.NEW : layout.NEW + TOGETHER], fewer)
    C[d] = 0
    climb(nodes, writing, scratch, top, 0, 0, Entry(wide(0), wide(0), wide(0), wide(0), wide(0)), CUT)


# --- all leaves, one after another


@kernel
def go_on_after(nodes: MultiwayNodes, C: Any, end: int) -> bool:
    """Let the next step begin after the subtrees of the path's nodes before place `end`. Returns whether that was the last."""
    M, W, last = nodes.M, nodes.W, True
    C[layout.AFTER], C[layout.AFTER + 1], C[layout.AFTER + 2] = FIRST_PLACE
    for d in range(layout.PATH, end, 2):
        if C[d + 1] == 0:  # the lowest separator above the leaf is that of the next one
            o, last = C[d], False
            C[layout.AFTER], C[layout.AFTER + 1] = W[2 * o + layout.SEPARATOR_KEY], M[o + layout.SEPARATOR_LEFT]
            C[layout.AFTER + 2] = M[o + layout.SEPARATOR_CODE]
    return last


@kernel
def compact_next(nodes: MultiwayNodes, writing: Writing, scratch: Any) -> bool:
    """Process the next leaf, or leaves, and the path to it. Returns whether it was the last."""
    W, C = nodes.W, writing.C
    if C[layout.AFTER] == FIRST_PLACE[0]:
        for cls in range(2):
            C[layout.LISTED_BEFORE + cls] = C[class_at(cls) + LISTED]
    leaf = descend(nodes, C, C[layout.AFTER], C[layout.AFTER + 1], C[layout.AFTER + 2])
    d = begun_subtree(W, C)
    if d != 0:
        leaves, total = find_leaves(nodes, writing, C[d], False), wide(0)
        for c in range(leaves):
            total += count_of(nodes, C[layout.OLD + c])
        fewer = max(TOGETHER // 4 + 1, -(-total // LEAF_FILL))
        if fewer < leaves:
            C[CREDIT] -= leaves
            last = go_on_after(nodes, C, d)
            fill_leaves(nodes, writing, scratch, d, fewer)
            return last
    C[CREDIT] -= 1
    found, d = is_behind(C, leaf, LEAF), layout.PATH
    while C[d] != 0:
        found = found or is_behind(C, C[d], class_of(W, C[d]))
        d += 2
    last = go_on_after(nodes, C, d)
    if found:
        move_path(nodes, writing, leaf)
    return last


@kernel("void(MultiwayNodes, Writing, int64[::1], int64, int64)")
def compact(nodes: MultiwayNodes, writing: Writing, scratch: Any, leaves: int, spare: int) -> None:
    """Visit `leaves` more leaves, writing as the current version; `scratch`: of a summary; `spare`: words promised to other changes. O(L) a
    leaf, and O(log n) for the path to its neighbours."""
    table, C = nodes.table, writing.C
    if not earn(C, leaves):
        return
    words = TOGETHER * table[LEAF_WORDS_] + (TOGETHER + 3 * MOST_LEVELS) * table[INNER_WORDS_]  # a path, and the two nodes beside it
    while may_compact(C, words + spare):
        if compact_next(nodes, writing, scratch):
            end_compaction(C)
            for cls in range(2):  # blocks freed meanwhile, as pins have gone, are still to be processed
                C[class_at(cls) + SWEPT] = min(C[class_at(cls) + SWEPT], C[layout.LISTED_BEFORE + cls])
