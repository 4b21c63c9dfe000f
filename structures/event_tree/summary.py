"""The fields that an inner node keeps for a child, so that partners are counted and rows without any are found.

    STARTS, ENDS        events of each kind
    FIRST_KEY, FIRST_AT where the first START or END is
    FIT                 the least local depth at a row that ends before the next START or END; local: of the child's events alone
    TRAIL_KEY, TRAIL_END the least (key, right end) of the rows after the last START or END
    START_LOW … END_HIGH for each weight, from INNER_FIELDS on: its sum over the events of each kind, as sums of the lower and of the
                         upper 32 bits

Depth is starts less ends. Where a field has no value, FIT is NO_FIT, the others (KEY_MAX, POS_INF), which is after everything. A PLAIN tree
has no rows: FIRST_KEY to TRAIL_END are not maintained.
Two sums of 32-bit numbers need no carry: a tree has fewer than 2**31 events.

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
    key_of,
    rank_of,
)

NO_FIT = 2**62


@kernel(forceinline=True)
def precedes(key: int, at: int, other: int, its: int) -> bool:
    """Whether a place, or a row's right end, is before another place."""
    return (key < other) | ((key == other) & (at < its))


@kernel(forceinline=True)
def note(tree: Tree, o: int, f: int, c: int, value: int) -> bool:
    """Write a field. Returns whether its value has changed."""
    if tree.inners[o, f, c] == value:
        return False
    tree.inners[o, f, c] = value
    return True


@kernel
def refresh(tree: Tree, o: int, c: int, leaf: bool) -> None:
    """Update all fields of child c of inner node o."""
    if leaf:
        count_leaf(tree, o, c)
        for w in range(tree.control[WEIGHTS]):
            weigh_leaf(tree, o, c, w)
    else:
        sum_fields(tree, o, c, STARTS, ENDS + 1)
        sum_fields(tree, o, c, INNER_FIELDS, INNER_FIELDS + WEIGHT_FIELDS * tree.control[WEIGHTS])
    if tree.control[PLAIN] == 0:
        reshape(tree, o, c, leaf)


@kernel
def reshape(tree: Tree, o: int, c: int, leaf: bool) -> bool:
    """Update FIRST_KEY to TRAIL_END of child c, whose numbers are up to date. Returns whether they have changed."""
    return of_leaf(tree, o, c) if leaf else of_inner(tree, o, c)


@kernel
def of_leaf(tree: Tree, o: int, c: int) -> bool:
    """Scan from the last event to the first: so whether a row fits is known when it is met."""
    L, N, child = tree.leaves, tree.inners, tree.inners[o, CHILD, c]
    i = wide(tree.leaf_size[child]) - 1
    key, at, fit = wide(KEY_MAX), POS_INF, wide(NO_FIT)  # of the next START or END; the result
    trail_key, trail_end = wide(KEY_MAX), POS_INF
    while i >= 0 and rank_of(L[child, NAME, i]) == ROW:
        its_key, its_end = key_of(L[child, NAME, i]), L[child, VALUE, i]
        if precedes(its_key, its_end, trail_key, trail_end):
            trail_key, trail_end = its_key, its_end
        i -= 1
    depth = N[o, STARTS, c] - N[o, ENDS, c]
    while i >= 0:  # no branches, as they would be unpredictable
        name = L[child, NAME, i]
        its_key, rank = key_of(name), rank_of(name)
        is_row = rank == ROW
        fits = is_row & precedes(its_key, L[child, VALUE, i], key, at)
        fit = min(fit, depth if fits else wide(NO_FIT))
        depth += 0 if is_row else 2 * rank - 1
        key, at = key if is_row else its_key, at if is_row else L[child, AT, i]
        i -= 1
    changed = note(tree, o, FIRST_KEY, c, key)
    changed |= note(tree, o, FIRST_AT, c, at)
    changed |= note(tree, o, FIT, c, fit)
    changed |= note(tree, o, TRAIL_KEY, c, trail_key)
    changed |= note(tree, o, TRAIL_END, c, trail_end)
    return changed


@kernel
def count_leaf(tree: Tree, o: int, c: int) -> None:
    """Set STARTS and ENDS of child c, a leaf."""
    L, N, child, starts, ends = tree.leaves, tree.inners, tree.inners[o, CHILD, c], wide(0), wide(0)
    for i in range(tree.leaf_size[child]):
        rank = rank_of(L[child, NAME, i])
        starts += rank == START
        ends += rank == END
    N[o, STARTS, c], N[o, ENDS, c] = starts, ends


@kernel
def weigh_leaf(tree: Tree, o: int, c: int, w: int) -> None:
    """Set the sums of weight number w of child c, a leaf."""
    L, N, child, field = tree.leaves, tree.inners, tree.inners[o, CHILD, c], INNER_FIELDS + WEIGHT_FIELDS * w
    start_low, start_high, end_low, end_high = wide(0), wide(0), wide(0), wide(0)
    for i in range(tree.leaf_size[child]):
        rank, value = rank_of(L[child, NAME, i]), L[child, VALUE + w, i]
        if rank == START:
            start_low += value & LOW32
            start_high += value >> 32
        elif rank == END:
            end_low += value & LOW32
            end_high += value >> 32
    N[o, field + START_LOW, c], N[o, field + START_HIGH, c] = start_low, start_high
    N[o, field + END_LOW, c], N[o, field + END_HIGH, c] = end_low, end_high


@kernel
def sum_fields(tree: Tree, o: int, c: int, low: int, high: int) -> None:
    """Set the fields [low, high) of child c, an inner node, to their sums over its children."""
    N, child = tree.inners, tree.inners[o, CHILD, c]
    for f in range(low, high):
        total = wide(0)
        for i in range(tree.inner_size[child]):
            total += N[child, f, i]
        N[o, f, c] = total


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
    changed = note(tree, o, FIRST_KEY, c, first_key)
    changed |= note(tree, o, FIRST_AT, c, first_at)
    changed |= note(tree, o, FIT, c, fit)
    changed |= note(tree, o, TRAIL_KEY, c, trail_key)
    changed |= note(tree, o, TRAIL_END, c, trail_end)
    return changed
