"""Writing kernels: insert events into the tree and remove them. Costs: O(B + F log n) each; `build` O(n).

An insert or a removal updates the numbers and sums of all nodes on the path; the other fields of a child (`reshape`) are recomputed from
the leaf up as long as they change, or the depth of the child does: inserting or removing the START and the END of a short interval together
leaves it unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import B, F
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import kernel, wide
from structures.event_tree.layout import (
    AT,
    CHILD,
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
    close_event,
    descend,
    free_inner,
    free_leaf,
    is_before,
    key_of,
    move_children,
    move_events,
    name_of,
    new_inner,
    new_leaf,
    open_event,
    place_for,
    rank_of,
)
from structures.event_tree.summary import precedes, refresh, reshape

LEAF_FILL = max(1, B * 7 // 8)
ROOMY = min(B - B // 4, B - 2)  # most events of a leaf that takes events from a full neighbour, so that both have room
INNER_FILL = F - 1 if F > 3 else F


@kernel
def end_place(key: int, right: int) -> tuple[int, int]:
    """The place of the END of an interval: the next place after its right end, which may be one of the next key."""
    if right == POS_INF:
        return key + 1, NEG_INF
    return key, right + 1


@kernel
def put_ends(tree: Tree, key: int, left: int, right: int, slot: int) -> None:
    """Insert the START and the END of an interval, with the weights in `given`; if both belong to one leaf, with one pass up."""
    start = name_of(key, START, slot)
    end_key, at = end_place(key, right)
    end = name_of(end_key, END, slot)
    o = descend(tree, start, left)
    if tree.leaf_size[o] <= B - 2 and belongs(tree, end, at):
        enter(tree, o, start, left, 0)
        enter(tree, o, end, at, 0)
        climb(tree, 0, False)
    else:
        put(tree, start, left, 0)
        put(tree, end, at, 0)


@kernel
def cut_ends(tree: Tree, key: int, left: int, right: int, slot: int) -> bool:
    """Remove the START and the END of an interval; False if they were not there."""
    start = name_of(key, START, slot)
    end_key, at = end_place(key, right)
    end = name_of(end_key, END, slot)
    o = descend(tree, start, left)
    p, q = find(tree, o, start, left), find(tree, o, end, at)
    if p >= 0 and q >= 0:
        leave(tree, o, q)  # the later event first
        leave(tree, o, p)
        climb_thin(tree, False)
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
    L, p = tree.leaves, place_for(tree, o, name, at)
    return p if p < tree.leaf_size[o] and L[o, NAME, p] == name and L[o, AT, p] == at else -1


@kernel
def enter(tree: Tree, o: int, name: int, at: int, value: int) -> None:
    """Insert an event into a leaf that has room, at the end of the path. The nodes above are still to be updated, except for numbers and
    sums. `value`: of a row; the others have weights."""
    L, p, rank = tree.leaves, place_for(tree, o, name, at), rank_of(name)
    open_event(tree, o, p)
    L[o, NAME, p], L[o, AT, p], L[o, VALUE, p] = name, at, value
    if rank != ROW:
        for w in range(tree.control[WEIGHTS]):
            L[o, VALUE + w, p] = tree.given[rank, w]
        add_above(tree, o, p, 1)
    tree.leaf_size[o] += 1
    tree.control[EVENTS] += 1


@kernel
def leave(tree: Tree, o: int, p: int) -> None:
    """Remove the event at place p of the leaf at the end of the path. The nodes above are still to be updated, except for numbers and
    sums."""
    if rank_of(tree.leaves[o, NAME, p]) != ROW:
        add_above(tree, o, p, -1)
    close_event(tree, o, p)
    tree.leaf_size[o] -= 1
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
    L, is_row = tree.leaves, rank_of(name) == ROW
    if tree.leaf_size[o] == B and make_room(tree):
        o = descend(tree, name, at)
    into, right = o, 0
    if tree.leaf_size[o] == B:
        half = B - B // 2
        right = new_leaf(tree)
        move_events(tree, o, half, B, right, 0)
        tree.leaf_size[o], tree.leaf_size[right] = half, B - half
        if not is_before(name, at, L[right, NAME, 0], L[right, AT, 0]):
            into = right
    enter(tree, into, name, at, value)
    if right != 0 or not is_row or may_fit(tree, into, place_for(tree, into, name, at)):
        climb(tree, right, not is_row)


@kernel
def make_room(tree: Tree) -> bool:
    """Even out the full leaf at the end of the path with a neighbour below the same node that is ROOMY, if there is one. Without this,
    leaves of random changes are less than two thirds full."""
    level = tree.control[HEIGHT] - 1
    if level < 0:
        return False
    above, c = tree.path[level, ON], tree.path[level, TAKEN]
    for a in range(max(c - 1, 0), min(c + 1, tree.inner_size[above] - 1)):
        beside = tree.inners[above, CHILD, a if a < c else c + 1]
        if tree.leaf_size[beside] <= ROOMY:
            level_out(tree, above, a, True)
            return True
    return False


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
def insert_child(tree: Tree, o: int, c: int, child: int, leaf: bool) -> None:
    """Insert a child, whose separator is its first event or child, into an inner node that has room."""
    N, L = tree.inners, tree.leaves
    move_children(tree, o, c, tree.inner_size[o], o, c + 1)
    N[o, CHILD, c] = child
    if leaf:
        N[o, NAME, c], N[o, AT, c] = L[child, NAME, 0], L[child, AT, 0]
    else:
        N[o, NAME, c], N[o, AT, c] = N[child, NAME, 0], N[child, AT, 0]
    tree.inner_size[o] += 1
    refresh(tree, o, c, leaf)


@kernel
def climb(tree: Tree, right: int, deepens: bool) -> None:
    """Update the path after a change of its leaf. `right`: the new leaf after it, or 0. `deepens`: whether its starts less ends have
    changed."""
    control, path, leaf = tree.control, tree.path, True
    for level in range(control[HEIGHT] - 1, -1, -1):
        o, c = path[level, ON], path[level, TAKEN]
        if right == 0:
            if control[PLAIN] != 0 or not (reshape(tree, o, c, leaf) or deepens):
                return
        else:
            refresh(tree, o, c, leaf)
            into, place, new = o, c + 1, 0
            if tree.inner_size[o] == F:
                half = (F + 1) // 2
                cut_at = half - 1 if place < half else half
                new = new_inner(tree)
                move_children(tree, o, cut_at, F, new, 0)
                tree.inner_size[o], tree.inner_size[new] = cut_at, F - cut_at
                if place >= half:
                    into, place = new, place - cut_at
            insert_child(tree, into, place, right, leaf)
            right = new
        leaf = False
    if right != 0:
        root = new_inner(tree)
        insert_child(tree, root, 0, control[ROOT], leaf)
        insert_child(tree, root, 1, right, leaf)
        control[ROOT] = root
        control[HEIGHT] += 1


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
    if matters or is_thin(tree, o, True):
        climb_thin(tree, not is_row)


@kernel
def climb_thin(tree: Tree, deepens: bool) -> None:
    """Update the path after a removal from its leaf. `deepens`: whether its starts less ends have changed."""
    control, path, leaf = tree.control, tree.path, True
    for level in range(control[HEIGHT] - 1, -1, -1):
        o, c = path[level, ON], path[level, TAKEN]
        if is_thin(tree, tree.inners[o, CHILD, c], leaf):
            level_out(tree, o, c - 1 if c > 0 else 0, leaf)
        elif control[PLAIN] != 0 or not (reshape(tree, o, c, leaf) or deepens):
            return
        leaf = False
    while control[HEIGHT] > 0 and tree.inner_size[control[ROOT]] == 1:
        o = control[ROOT]
        control[ROOT] = tree.inners[o, CHILD, 0]
        control[HEIGHT] -= 1
        free_inner(tree, o)


@kernel
def is_thin(tree: Tree, o: int, leaf: bool) -> bool:
    return tree.leaf_size[o] < LEAF_LEAST if leaf else tree.inner_size[o] < INNER_LEAST


@kernel
def level_out(tree: Tree, o: int, a: int, leaf: bool) -> None:
    """Merge children a and a + 1 of inner node o, one of which is thin, or divide their contents evenly."""
    N = tree.inners
    x, y = N[o, CHILD, a], N[o, CHILD, a + 1]
    if leaf:
        together = level_leaves(tree, x, y)
    else:  # the separator of a first child is not maintained
        N[y, NAME, 0], N[y, AT, 0] = N[o, NAME, a + 1], N[o, AT, a + 1]
        together = level_inners(tree, x, y)
    if together:
        move_children(tree, o, a + 2, tree.inner_size[o], o, a + 1)
        tree.inner_size[o] -= 1
    else:
        if leaf:
            N[o, NAME, a + 1], N[o, AT, a + 1] = tree.leaves[y, NAME, 0], tree.leaves[y, AT, 0]
        else:
            N[o, NAME, a + 1], N[o, AT, a + 1] = N[y, NAME, 0], N[y, AT, 0]
        refresh(tree, o, a + 1, leaf)
    refresh(tree, o, a, leaf)


@kernel
def level_leaves(tree: Tree, x: int, y: int) -> bool:
    """Merge two leaves, or even them out. Returns whether they are one now: then y is free."""
    first, second = tree.leaf_size[x], tree.leaf_size[y]
    if first + second <= B:
        move_events(tree, y, 0, second, x, first)
        tree.leaf_size[x] = first + second
        free_leaf(tree, y)
        return True
    half = (first + second) // 2
    if first < half:
        move_events(tree, y, 0, half - first, x, first)
        move_events(tree, y, half - first, second, y, 0)
    else:
        move_events(tree, y, 0, second, y, first - half)
        move_events(tree, x, half, first, y, 0)
    tree.leaf_size[x], tree.leaf_size[y] = half, first + second - half
    return False


@kernel
def level_inners(tree: Tree, x: int, y: int) -> bool:
    """As `level_leaves`, for inner nodes."""
    first, second = tree.inner_size[x], tree.inner_size[y]
    if first + second <= F:
        move_children(tree, y, 0, second, x, first)
        tree.inner_size[x] = first + second
        free_inner(tree, y)
        return True
    half = (first + second) // 2
    if first < half:
        move_children(tree, y, 0, half - first, x, first)
        move_children(tree, y, half - first, second, y, 0)
    else:
        move_children(tree, y, 0, second, y, first - half)
        move_children(tree, x, half, first, y, 0)
    tree.inner_size[x], tree.inner_size[y] = half, first + second - half
    return False


# --- bulk build


@kernel("void(Tree)")
def make_empty(tree: Tree) -> None:
    """Make the tree empty, whatever its content. O(1)."""
    tree.control[:WEIGHTS] = 0
    tree.control[ROOT] = new_leaf(tree)


@kernel("void(Tree, int64[::1], int64[::1], int64[:,::1])", allocates=True)
def build(tree: Tree, names: Any, ats: Any, values: Any) -> None:
    """Build the tree of these events, which are in order, and replace the previous content. values: int64[n, k], of each event. O(n)."""
    L = tree.leaves
    make_empty(tree)
    n = len(names)
    level = np.empty(max(1, -(-n // LEAF_FILL)), np.int64)
    for b in range(len(level)):
        o = tree.control[ROOT] if b == 0 else new_leaf(tree)
        low, high = n * b // len(level), n * (b + 1) // len(level)
        for i in range(low, high):
            L[o, NAME, i - low], L[o, AT, i - low] = names[i], ats[i]
            for v in range(values.shape[1]):
                L[o, VALUE + v, i - low] = values[i, v]
        tree.leaf_size[o] = high - low
        level[b] = o
    tree.control[EVENTS] = n
    leaf = True
    while len(level) > 1:
        above = np.empty(-(-len(level) // INNER_FILL), np.int64)
        for b in range(len(above)):
            o = new_inner(tree)
            low, high = len(level) * b // len(above), len(level) * (b + 1) // len(above)
            for c in range(low, high):
                insert_child(tree, o, c - low, level[c], leaf)
            above[b] = o
        level = above
        leaf = False
        tree.control[HEIGHT] += 1
    tree.control[ROOT] = wide(level[0])
