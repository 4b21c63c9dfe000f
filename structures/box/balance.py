"""Balance of box trees: rotate a node, or drop its subtree and rebuild it from its records; and build the tree of a node from its points
when the first spanner arrives.

Where no rotation is possible (`rotation.py`), the subtree is rebuilt. With more endpoints than `most_at_once`, this would take too long for
a change: the subtree stays unbalanced, and the changes below several such nodes are counted (UNEVEN), so that the owner of the structure
can build another one beside it in time. Until then, paths from the root become longer. To slow this down, a long path has larger subtrees
at its end rebuilt, and a path that is too long has as many endpoints rebuilt as necessary.

Costs: of a rebuild, O(w log w) for w endpoints below with the last dimension next, times O(log w) for each dimension more; each amortised
over as many changes below that node. Source: Tao and Yi, section 4.2 and partial rebuilding (section 2.3.2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.box import layout
from structures.box.build import BoxList, build_trees, sorted_positions
from structures.box.layout import (
    BEHIND,
    BOTH_HERE,
    ENDS,
    FIRST,
    LEFT_HERE,
    RIGHT_HERE,
    TAG,
    before,
    child_of,
    child_towards,
    clear_holder,
    goes_right,
    holder,
    narrow,
    records_of,
    root_of,
    whole_slab,
)
from structures.box.records import Box, code_of, key_of, tag_of
from structures.box.rotation import heavier, rotated, unbalanced
from structures.core.blocks import Nodes, WriteState, drop
from structures.core.kernel import kernel
from structures.ordered.whole import drop_flat

ALL_BOXES, OF_EITHER = -1, 2  # arguments of `gather`, in place of a set


@kernel(allocates=True)
def drop_nodes(nodes: Nodes, writing: WriteState, level: int, node: int) -> None:
    """Drop a node with its records and trees, and everything below it."""
    W, C = nodes.W, writing.C
    # Each node on a path leaves at most three others waiting, and the nodes of a tree lie above those of the tree that it hangs on.
    stack = np.empty((4 * layout.DEEPEST * layout.MOST_DIMENSIONS, 2), np.int64)
    stack[0, 0], stack[0, 1] = level, node
    n = 1
    while n > 0:
        n -= 1
        k, o = stack[n, 0], stack[n, 1]
        for i in range(2):
            h = holder(o, i)
            if W[h + layout.STATE] & layout.ACTIVE != 0:
                if k + 2 == C[layout.DIMENSIONS]:
                    drop_flat(nodes, writing, root_of(W, h), W[h + layout.HEIGHT_])
                else:
                    stack[n, 0], stack[n, 1] = k + 1, root_of(W, h)
                    n += 1
        if W[2 * o + layout.FLAGS] & layout.LEAF_NODE != 0:
            drop(nodes.M, writing, records_of(W, o), layout.RECORD_LEVELS + k)
        else:
            for c in range(2):
                stack[n, 0], stack[n, 1] = k, child_of(W, o, c)
                n += 1
        drop(nodes.M, writing, o, layout.NODE)


@kernel
def drop_tree(nodes: Nodes, writing: WriteState, level: int, h: int) -> None:
    """Drop the tree of the level in holder h, which becomes inactive."""
    W, C = nodes.W, writing.C
    if level + 1 == C[layout.DIMENSIONS]:
        drop_flat(nodes, writing, root_of(W, h), W[h + layout.HEIGHT_])
    else:
        drop_nodes(nodes, writing, level, root_of(W, h))
    clear_holder(W, h)


@kernel(allocates=True)
def gather(nodes: Nodes, C: Any, level: int, top: int, points: int, slab: Any) -> tuple[Any, Any, Any, Any, Any, int]:
    """Collect the boxes with an end below node `top`, each once, as members (see `build_trees`), `here`, and the number of boxes. `slab`:
    of `top`, int64[SLAB_WORDS], used only for ALL_BOXES. points: ALL_BOXES, or the set (OF_EITHER: both) whose boxes with their left end
    here are collected."""
    M, W = nodes.M, nodes.W
    d, n = C[layout.DIMENSIONS], 0
    most = W[2 * top + layout.WEIGHT]
    LO, HI, TAGS = np.empty(most * d, np.int64), np.empty(most * d, np.int64), np.empty(most, np.int64)
    refs, here = np.empty(most, np.int64), np.empty(most, np.uint8)
    stack = np.empty(2 * layout.DEEPEST, np.int64)  # each node on the path leaves one waiting
    stack[0] = top
    depth = 1
    while depth > 0:
        depth -= 1
        o = stack[depth]
        if W[2 * o + layout.FLAGS] & layout.LEAF_NODE == 0:
            stack[depth], stack[depth + 1] = child_of(W, o, 1), child_of(W, o, 0)
            depth += 2
            continue
        r = records_of(W, o)
        for p in range(W[2 * r + layout.COUNT]):
            tag = M[r + TAG + p]
            code, key, at = code_of(tag), key_of(tag), r + ENDS + p
            if points >= 0:
                take = tag & LEFT_HERE != 0 and (points == OF_EITHER or points == (code & 1))
            elif tag & LEFT_HERE != 0:
                take = True
                ends_here = before(key, M[at + layout.ROOM], layout.RIGHT_TIE + code, slab[BEHIND], slab[BEHIND + 1], slab[BEHIND + 2])
                here[n] = BOTH_HERE if ends_here else LEFT_HERE
            else:
                take = before(key, M[at], code, slab[FIRST], slab[FIRST + 1], slab[FIRST + 2])
                here[n] = RIGHT_HERE
            if take:
                for j in range(level, d):
                    LO[n * d + j], HI[n * d + j] = M[at], M[at + layout.ROOM]
                    at += 2 * layout.ROOM
                TAGS[n], refs[n] = tag, 2 * n + (code & 1)
                n += 1
    return LO, HI, TAGS, refs, here, n


@kernel(allocates=True)
def activate(nodes: Nodes, writing: WriteState, level: int, node: int, i: int, box: Box) -> None:
    """Build tree i of a node from its points and its first spanner, a member of that tree."""
    C, s = writing.C, box.set
    is_self = level == 0 and C[layout.SELF_] != 0
    slab = np.zeros(0, np.int64)
    LO, HI, TAGS, refs, here, n = gather(nodes, C, level, node, OF_EITHER if is_self else 1 - s, slab)
    d = C[layout.DIMENSIONS]
    lows, highs = np.empty((n + 1) * d, np.int64), np.empty((n + 1) * d, np.int64)
    tags, members = np.empty(n + 1, np.int64), np.arange(n + 1)
    lows[: n * d], highs[: n * d], tags[:n] = LO[: n * d], HI[: n * d], TAGS[:n]
    lows[n * d :], highs[n * d :], tags[n] = box.lo, box.hi, tag_of(box.key, box.slot, s, BOTH_HERE)
    for j in range(n + 1):
        members[j] = 2 * j + (s if j == n else 1 - s)
    if level + 2 == d:
        lefts, codes = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
        for j in range(n + 1):
            lefts[j], codes[j] = lows[j * d + d - 1], (code_of(tags[j]) & ~1) | (members[j] & 1)
        members = members[sorted_positions(np.zeros(n + 1, np.int64), lefts, codes)]
    build_trees(nodes, writing, level + 1, holder(node, i), 0, BoxList(members, lows, highs, tags), np.full(n + 1, BOTH_HERE, np.uint8))


@kernel(allocates=True)
def rebuild(nodes: Nodes, writing: WriteState, level: int, top: int, slab: Any) -> None:
    """Rebuild what is below own node `top`, balanced; the node and its trees stay."""
    W, C = nodes.W, writing.C
    LO, HI, TAGS, refs, here, n = gather(nodes, C, level, top, ALL_BOXES, slab)
    if W[2 * top + layout.FLAGS] & layout.LEAF_NODE != 0:
        drop(nodes.M, writing, records_of(W, top), layout.RECORD_LEVELS + level)
    else:
        for c in range(2):
            drop_nodes(nodes, writing, level, child_of(W, top, c))
    build_trees(nodes, writing, level, 0, top, BoxList(refs[:n], LO, HI, TAGS), here[:n])


@kernel(allocates=True)
def sunk(nodes: Nodes, writing: WriteState, level: int, o: int, slab: Any) -> bool:
    """Balance own node o, which is too large to be rebuilt, by rotations: its light child sinks until it is beside one of about its weight,
    or below a node that can be rebuilt. Returns whether o is balanced; a node below it may not be, where no rotation is possible."""
    M, W = nodes.M, nodes.W
    c = heavier(W, o)
    if not rotated(nodes, writing, level, o, slab):
        return False
    part = slab.copy()
    while True:
        narrow(M, o, 1 - c, part)
        o = child_of(W, o, 1 - c)
        if not unbalanced(W, o):
            return True
        if not rotated(nodes, writing, level, o, part):
            if W[2 * o + layout.WEIGHT] <= layout.most_at_once(writing.C, level):
                rebuild(nodes, writing, level, o, part)
            return True


@kernel
def most_on_long_way(nodes: Nodes, C: Any, level: int, top: int, large: int, key: int, value: int, tie: int) -> int:
    """The most endpoints below an unbalanced node that is rebuilt now on the path from `top` to a place, which has more than LARGE_DEEP
    nodes that are too large."""
    M, W = nodes.M, nodes.W
    most, o = layout.LARGE_MORE * layout.most_at_once(C, level), top
    if large > layout.LARGE_DEEPEST:
        for _ in range(large - layout.LARGE_REBUILT):
            if unbalanced(W, o):
                most = W[2 * o + layout.WEIGHT]
            o = child_of(W, o, 1 if goes_right(M, o, key, value, tie) else 0)
    return most


@kernel(allocates=True)
def repair(nodes: Nodes, writing: WriteState, level: int, h: int, key: int, value: int, tie: int) -> None:
    """Balance the nodes on the path to a place in the tree of holder h by rotations, and rebuild below the topmost one (N2) that remains
    unbalanced and may be rebuilt within a change: larger nodes if the path is long; if it is too long, below the lowest node that makes it
    shorter by several nodes. Counts a change below several larger unbalanced nodes in UNEVEN."""
    W, C = nodes.W, writing.C
    if C[layout.FULL] != 0:
        return
    top, small, large, uneven, has_sunk = root_of(W, h), layout.most_at_once(C, level), 0, 0, False
    o, slab = top, whole_slab()
    while W[2 * o + layout.WEIGHT] > small:
        large += 1
        if unbalanced(W, o):
            if not has_sunk and sunk(nodes, writing, level, o, slab):
                has_sunk = True  # once: the copies of nodes have room in SPARE
            else:
                uneven += 1
        o = child_towards(nodes, o, slab, key, value, tie)
    if uneven > layout.FEW_UNEVEN:
        C[layout.UNEVEN] = C[layout.UNEVEN] + 1 if large <= layout.LARGE_DEEP else layout.TOO_UNEVEN
    most = small
    if large > layout.LARGE_DEEP:
        most = most_on_long_way(nodes, C, level, top, large, key, value, tie)
        o, slab = top, whole_slab()
    while True:
        weight = W[2 * o + layout.WEIGHT]
        if unbalanced(W, o) and weight <= most and not (weight <= small and rotated(nodes, writing, level, o, slab)):
            break
        if W[2 * o + layout.FLAGS] & layout.LEAF_NODE != 0:
            return
        o = child_towards(nodes, o, slab, key, value, tie)
    if C[layout.FULL] == 0:
        rebuild(nodes, writing, level, o, slab)
