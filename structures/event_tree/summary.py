"""What an inner node keeps of a child, so that partners are counted and rows without any are found.

    STARTS, ENDS        events of each kind
    FIRST_KEY, FIRST_AT where the first START or END is
    FIT                 the least local depth at a row that ends before the next START or END; local: of the child's events alone
    TRAIL_KEY, TRAIL_END the least (key, right end) of the rows behind the last START or END
    START_LOW … END_HIGH of each weight, from INNER_FIELDS on: its sum over the events of each kind, as sums of the lower and of the
                         upper 32 bits

Depth is starts less ends. Where there is none, FIT is NO_FIT, the others (KEY_MAX, POS_INF), which is behind everything. A PLAIN tree has
no rows: nothing is kept in FIRST_KEY to TRAIL_END.
Two sums of so many numbers of 32 bits need no carry: a tree has fewer than 2**31 events.

Costs: a leaf O(B), an inner node O(F).
"""

from __future__ import annotations

from structures.core.arena import KEY_MAX
from structures.core.encoding import POS_INF
from structures.core.kernel import kernel, wide
from structures.event_tree.layout import (
    AT,
    CHILD,
    END,
    END_HIGH,
    END_LOW,
    ENDS,
    FIRST_AT,
    FIRST_KEY,
    FIT,
    INNER_FIELDS,
    LOW32,
    NAME,
    PLAIN,
    ROW,
    START,
    START_HIGH,
    START_LOW,
    STARTS,
    TRAIL_END,
    TRAIL_KEY,
    VALUE,
    WEIGHT_FIELDS,
    WEIGHTS,
    Tree,
)

NO_FIT = 2**62


@kernel(forceinline=True)
def precedes(key: int, at: int, other: int, its: int) -> bool:
    """Whether a place, or a row's right end, is before another place."""
    return key < other or (key == other and at < its)


@kernel(forceinline=True)
def note(tree: Tree, o: int, f: int, c: int, value: int) -> bool:
    """Write a field; whether it was another."""
    if tree.inners[o, f, c] == value:
        return False
    tree.inners[o, f, c] = value
    return True


@kernel
def refresh(tree: Tree, o: int, c: int, leaf: bool) -> bool:
    """Bring the summary of child c of inner node o up to date; whether it has changed."""
    if tree.control[PLAIN] != 0:
        changed = count_leaf(tree, o, c) if leaf else count_inner(tree, o, c)
    else:
        changed = of_leaf(tree, o, c) if leaf else of_inner(tree, o, c)
    for w in range(tree.control[WEIGHTS]):
        changed |= weigh_leaf(tree, o, c, w) if leaf else weigh_inner(tree, o, c, w)
    return changed


@kernel
def of_leaf(tree: Tree, o: int, c: int) -> bool:
    L, child = tree.leaves, tree.inners[o, CHILD, c]
    starts, ends = wide(0), wide(0)
    first_key, first_at, trail_key, trail_end = wide(KEY_MAX), POS_INF, wide(KEY_MAX), POS_INF
    fit = wide(NO_FIT)
    for i in range(tree.leaf_size[child]):
        name, at, value = L[child, NAME, i], L[child, AT, i], L[child, VALUE, i]
        key, rank = name >> 32, (name >> 30) & 3
        if rank == ROW:
            if precedes(key, value, trail_key, trail_end):
                trail_key, trail_end = key, value
            continue
        if precedes(trail_key, trail_end, key, at):
            fit = min(fit, starts - ends)
        trail_key, trail_end = wide(KEY_MAX), POS_INF
        if starts + ends == 0:
            first_key, first_at = key, at
        if rank == START:
            starts += 1
        else:
            ends += 1
    changed = note(tree, o, STARTS, c, starts)
    changed |= note(tree, o, ENDS, c, ends)
    changed |= note(tree, o, FIRST_KEY, c, first_key)
    changed |= note(tree, o, FIRST_AT, c, first_at)
    changed |= note(tree, o, FIT, c, fit)
    changed |= note(tree, o, TRAIL_KEY, c, trail_key)
    changed |= note(tree, o, TRAIL_END, c, trail_end)
    return changed


@kernel
def count_leaf(tree: Tree, o: int, c: int) -> bool:
    """STARTS and ENDS of child c, a leaf without rows; whether they have changed."""
    L, child, ends = tree.leaves, tree.inners[o, CHILD, c], wide(0)
    for i in range(tree.leaf_size[child]):
        ends += (L[child, NAME, i] >> 30) & 3
    return note(tree, o, STARTS, c, tree.leaf_size[child] - ends) | note(tree, o, ENDS, c, ends)


@kernel
def count_inner(tree: Tree, o: int, c: int) -> bool:
    """The same of an inner node."""
    N, child, starts, ends = tree.inners, tree.inners[o, CHILD, c], wide(0), wide(0)
    for i in range(tree.inner_size[child]):
        starts += N[child, STARTS, i]
        ends += N[child, ENDS, i]
    return note(tree, o, STARTS, c, starts) | note(tree, o, ENDS, c, ends)


@kernel
def weigh_leaf(tree: Tree, o: int, c: int, w: int) -> bool:
    """The sums of weight number w of child c, a leaf; whether they have changed."""
    L, child, field = tree.leaves, tree.inners[o, CHILD, c], INNER_FIELDS + WEIGHT_FIELDS * w
    start_low, start_high, end_low, end_high = wide(0), wide(0), wide(0), wide(0)
    for i in range(tree.leaf_size[child]):
        rank, value = (L[child, NAME, i] >> 30) & 3, L[child, VALUE + w, i]
        if rank == START:
            start_low += value & LOW32
            start_high += value >> 32
        elif rank == END:
            end_low += value & LOW32
            end_high += value >> 32
    changed = note(tree, o, field + START_LOW, c, start_low)
    changed |= note(tree, o, field + START_HIGH, c, start_high)
    changed |= note(tree, o, field + END_LOW, c, end_low)
    changed |= note(tree, o, field + END_HIGH, c, end_high)
    return changed


@kernel
def weigh_inner(tree: Tree, o: int, c: int, w: int) -> bool:
    """The same of an inner node."""
    N, child, changed = tree.inners, tree.inners[o, CHILD, c], False
    for f in range(INNER_FIELDS + WEIGHT_FIELDS * w, INNER_FIELDS + WEIGHT_FIELDS * (w + 1)):
        total = wide(0)
        for i in range(tree.inner_size[child]):
            total += N[child, f, i]
        changed |= note(tree, o, f, c, total)
    return changed


@kernel
def of_inner(tree: Tree, o: int, c: int) -> bool:
    N, child = tree.inners, tree.inners[o, CHILD, c]
    n, starts, ends, depth, fit = tree.inner_size[child], wide(0), wide(0), wide(0), wide(NO_FIT)
    first_key, first_at, trail_key, trail_end = wide(KEY_MAX), POS_INF, wide(KEY_MAX), POS_INF
    for i in range(n):
        if N[child, STARTS, i] + N[child, ENDS, i] > 0:
            starts += N[child, STARTS, i]
            ends += N[child, ENDS, i]
            if precedes(trail_key, trail_end, N[child, FIRST_KEY, i], N[child, FIRST_AT, i]):
                fit = min(fit, depth)
            if N[child, FIT, i] < NO_FIT:
                fit = min(fit, depth + N[child, FIT, i])
            if first_key == KEY_MAX:
                first_key, first_at = N[child, FIRST_KEY, i], N[child, FIRST_AT, i]
            depth = starts - ends
            trail_key, trail_end = wide(KEY_MAX), POS_INF
        if precedes(N[child, TRAIL_KEY, i], N[child, TRAIL_END, i], trail_key, trail_end):
            trail_key, trail_end = N[child, TRAIL_KEY, i], N[child, TRAIL_END, i]
    changed = note(tree, o, STARTS, c, starts)
    changed |= note(tree, o, ENDS, c, ends)
    changed |= note(tree, o, FIRST_KEY, c, first_key)
    changed |= note(tree, o, FIRST_AT, c, first_at)
    changed |= note(tree, o, FIT, c, fit)
    changed |= note(tree, o, TRAIL_KEY, c, trail_key)
    changed |= note(tree, o, TRAIL_END, c, trail_end)
    return changed
