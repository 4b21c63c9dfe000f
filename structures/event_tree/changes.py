"""Writing kernels: insert events into the tree and remove them. Costs: O(B + F log n) each; `build` O(n).

An insert or a removal updates the numbers and sums of all nodes on the path; the other fields of a child (`reshape`) are recomputed from
the leaf up as long as they change, or the depth of the child does: inserting or removing the START and the END of a short interval together
leaves it unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.btree.nodes import Helper, Helpers, Kind, halving, making_room, moving, shifting
from structures.btree.paths import building, climbing
from structures.core.arena import B, F
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import kernel, wide
from structures.event_tree.layout import (
    AT,
    CHILD,
    DEEPENS,
    END,
    EVENTS,
    HEIGHT,
    INNER_FIELDS,
    INNER_LEAST,
    LEAF_LEAST,
    LOW32,
    NAME,
    ON,
    PLAIN,
    ROOT,
    ROW,
    START,
    START_HIGH,
    STARTS,
    TAKEN,
    VALUE,
    WEIGHT_FIELDS,
    WEIGHTS,
    Tree,
    descend,
    drop_inner,
    drop_leaf,
    inner_size,
    is_before,
    key_of,
    leaf_size,
    move_children,
    move_events,
    name_of,
    new_inner,
    new_leaf,
    position_for,
    rank_of,
    resize_inner,
    resize_leaf,
)
from structures.event_tree.summary import precedes, refresh, reshape

LEAF_FILL = max(1, B * 7 // 8)
ROOMY = min(B - B // 4, B - 2)  # most events of a leaf that takes events from a full neighbour, so that both have room
INNER_FILL = F - 1 if F > 3 else F


@kernel
def separate(tree: Tree, o: int, c: int, child: int, leaf: bool) -> None:
    N, of = tree.inners, tree.leaves if leaf else tree.inners
    N[o, NAME, c], N[o, AT, c] = of[child, NAME, 0], of[child, AT, 0]


@kernel
def inherit(tree: Tree, o: int, c: int, child: int) -> None:
    N = tree.inners
    N[child, NAME, 0], N[child, AT, 0] = N[o, NAME, c], N[o, AT, c]


@kernel
def set_child(tree: Tree, o: int, c: int, child: int) -> None:
    tree.inners[o, CHILD, c] = child


@kernel
def note(tree: Tree, o: int, c: int, child: int, leaf: bool) -> bool:
    return tree.control[PLAIN] == 0 and (reshape(tree, o, c, leaf) or tree.control[DEEPENS] != 0)


@kernel
def refresh_child(tree: Tree, o: int, c: int, child: int, leaf: bool) -> None:
    set_child(tree, o, c, child)
    refresh(tree, o, c, leaf)


@kernel
def plant(tree: Tree, root: int, by: int, differs: bool) -> None:
    tree.control[ROOT] = root
    tree.control[HEIGHT] += by


def limits(most: int, least: int) -> tuple[Helper, Helper]:
    return kernel(lambda tree: most), kernel(lambda tree: least)


_LEAF = Kind(new_leaf, drop_leaf, leaf_size, *limits(B, LEAF_LEAST), *moving(leaf_size, resize_leaf, move_events))
_INNER = Kind(new_inner, drop_inner, inner_size, *limits(F, INNER_LEAST), *moving(inner_size, resize_inner, move_children))
open_event, close_event = shifting(leaf_size, resize_leaf, move_events)
open_child, close_child = shifting(inner_size, resize_inner, move_children)
_HELPERS = Helpers(
    leaf=_LEAF,
    inner=_INNER,
    height=kernel(lambda tree: tree.control[HEIGHT]),
    step=kernel(lambda tree, d: (tree.path[d, ON], tree.path[d, TAKEN])),
    child=kernel(lambda tree, o, c: tree.inners[o, CHILD, c]),
    own=kernel(lambda tree, o, leaf: o),
    above=new_inner,
    open=open_child,
    close=close_child,
    separate=separate,
    inherit=inherit,
    position=set_child,
    note=note,
    refresh=refresh_child,
    plant=plant,
)
climb, halve = climbing(_HELPERS), halving(_LEAF)
make_room = making_room(_HELPERS, kernel(lambda tree, above, o: tree.leaf_size[o] <= ROOMY))
_, build_levels = building(_HELPERS)


@kernel
def end_position(key: int, right: int) -> tuple[int, int]:
    """The place of the END of an interval: the next place after its right end, which may be one of the next key."""
    if right == POS_INF:
        return key + 1, NEG_INF
    return key, right + 1


@kernel
def put_ends(tree: Tree, key: int, left: int, right: int, slot: int) -> None:
    """Insert the START and the END of an interval, with the weights in `given`; if both belong to one leaf, with one pass up."""
    start = name_of(key, START, slot)
    end_key, at = end_position(key, right)
    end = name_of(end_key, END, slot)
    o = descend(tree, start, left)
    if tree.leaf_size[o] <= B - 2 and belongs(tree, end, at):
        enter(tree, o, start, left, 0)
        enter(tree, o, end, at, 0)
        tree.control[DEEPENS] = 0
        climb(tree, o, 0, True)
    else:
        put(tree, start, left, 0)
        put(tree, end, at, 0)


@kernel
def cut_ends(tree: Tree, key: int, left: int, right: int, slot: int) -> bool:
    """Remove the START and the END of an interval; False if they were not there."""
    start = name_of(key, START, slot)
    end_key, at = end_position(key, right)
    end = name_of(end_key, END, slot)
    o = descend(tree, start, left)
    p, q = find(tree, o, start, left), find(tree, o, end, at)
    if p >= 0 and q >= 0:
        leave(tree, o, q)  # the later event first
        leave(tree, o, p)
        tree.control[DEEPENS] = 0
        climb(tree, o, 0, True)
        return True
    found = cut(tree, start, left)
    return cut(tree, end, at) and found


@kernel
def belongs(tree: Tree, name: int, at: int) -> bool:
    """Whether an event that follows another belongs to the leaf at the end of that one's path."""
    path = tree.path
    for level in range(tree.control[HEIGHT] - 1, -1, -1):
        o, c = path[level, ON], path[level, TAKEN] + 1
        if c < tree.inner_size[o]:
            return is_before(name, at, tree.inners[o, NAME, c], tree.inners[o, AT, c])
    return True


@kernel
def find(tree: Tree, o: int, name: int, at: int) -> int:
    """The place of an event in leaf o; -1 if it is not there."""
    L, p = tree.leaves, position_for(tree, o, name, at)
    return p if p < tree.leaf_size[o] and L[o, NAME, p] == name and L[o, AT, p] == at else -1


@kernel
def enter(tree: Tree, o: int, name: int, at: int, value: int) -> None:
    """Insert an event into a leaf that has room, at the end of the path. The nodes above are still to be updated, except for numbers and
    sums. `value`: of a row; the others have weights."""
    L, p, rank = tree.leaves, position_for(tree, o, name, at), rank_of(name)
    open_event(tree, o, p)
    L[o, NAME, p], L[o, AT, p], L[o, VALUE, p] = name, at, value
    if rank != ROW:
        for w in range(tree.control[WEIGHTS]):
            L[o, VALUE + w, p] = tree.given[rank, w]
        add_above(tree, o, p, 1)
    tree.control[EVENTS] += 1


@kernel
def leave(tree: Tree, o: int, p: int) -> None:
    """Remove the event at place p of the leaf at the end of the path. The nodes above are still to be updated, except for numbers and
    sums."""
    if rank_of(tree.leaves[o, NAME, p]) != ROW:
        add_above(tree, o, p, -1)
    close_event(tree, o, p)
    tree.control[EVENTS] -= 1


@kernel
def add_above(tree: Tree, o: int, p: int, sign: int) -> None:
    """Add a START or an END, at place p of leaf o, to the sums along the path, or subtract it."""
    N, path, rank = tree.inners, tree.path, rank_of(tree.leaves[o, NAME, p])
    for level in range(tree.control[HEIGHT]):
        N[path[level, ON], STARTS + rank, path[level, TAKEN]] += sign
    for w in range(tree.control[WEIGHTS]):
        value, field = tree.leaves[o, VALUE + w, p], INNER_FIELDS + WEIGHT_FIELDS * w + 2 * rank
        low, high = sign * (value & LOW32), sign * (value >> 32)
        for level in range(tree.control[HEIGHT]):
            N[path[level, ON], field, path[level, TAKEN]] += low
            N[path[level, ON], field + START_HIGH, path[level, TAKEN]] += high


@kernel
def put(tree: Tree, name: int, at: int, value: int) -> None:
    """Insert an event that is not there."""
    put_into(tree, descend(tree, name, at), name, at, value)


@kernel
def put_into(tree: Tree, o: int, name: int, at: int, value: int) -> None:
    """Insert an event that is not there and belongs to leaf o, at the end of the path."""
    is_row = rank_of(name) == ROW
    if tree.leaf_size[o] == B and make_room(tree):
        o = descend(tree, name, at)
    into, right = o, wide(0)
    if tree.leaf_size[o] == B:
        right, into, _ = halve(tree, o, position_for(tree, o, name, at))
    enter(tree, into, name, at, value)
    if right != 0 or not is_row or may_fit(tree, into, position_for(tree, into, name, at)):
        tree.control[DEEPENS] = not is_row
        climb(tree, o, right, True)


@kernel
def may_fit(tree: Tree, o: int, p: int) -> bool:
    """Whether the row at place p of a leaf ends before the next START or END, or the leaf has none after it; otherwise the summary does not
    depend on the row."""
    L = tree.leaves
    for i in range(p + 1, tree.leaf_size[o]):
        if rank_of(L[o, NAME, i]) != ROW:
            return precedes(key_of(L[o, NAME, p]), L[o, VALUE, p], key_of(L[o, NAME, i]), L[o, AT, i])
    return True


@kernel
def cut(tree: Tree, name: int, at: int) -> bool:
    """Remove an event; False, and nothing done, if it is not there."""
    o = descend(tree, name, at)
    p = find(tree, o, name, at)
    if p < 0:
        return False
    take(tree, o, p)
    return True


@kernel
def take(tree: Tree, o: int, p: int) -> None:
    """Remove the event at place p of leaf o, at the end of the path."""
    is_row = rank_of(tree.leaves[o, NAME, p]) == ROW
    matters = not is_row or may_fit(tree, o, p)
    leave(tree, o, p)
    if matters or tree.leaf_size[o] < LEAF_LEAST:
        tree.control[DEEPENS] = not is_row
        climb(tree, o, 0, True)


# --- bulk build


@kernel("void(Tree)")
def make_empty(tree: Tree) -> None:
    """Make the tree empty, whatever its content. O(1)."""
    tree.control[:WEIGHTS] = 0
    tree.control[ROOT] = new_leaf(tree, 0)


@kernel("void(Tree, int64[::1], int64[::1], int64[:,::1])", allocates=True)
def build(tree: Tree, names: Any, ats: Any, values: Any) -> None:
    """Build the tree of these events, which are in order, and replace the previous content. values: int64[n, k], of each event. O(n)."""
    L = tree.leaves
    make_empty(tree)
    n = len(names)
    level = np.empty(max(1, -(-n // LEAF_FILL)), np.int64)
    for b in range(len(level)):
        o = tree.control[ROOT] if b == 0 else new_leaf(tree, 0)
        low, high = n * b // len(level), n * (b + 1) // len(level)
        for i in range(low, high):
            L[o, NAME, i - low], L[o, AT, i - low] = names[i], ats[i]
            for v in range(values.shape[1]):
                L[o, VALUE + v, i - low] = values[i, v]
        tree.leaf_size[o] = high - low
        level[b] = o
    tree.control[EVENTS] = n
    build_levels(tree, level, INNER_FILL)
