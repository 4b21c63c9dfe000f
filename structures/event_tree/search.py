"""Reading kernels of the newest version: count partners, and find rows without any.

The partners of [l, r] are the STARTs at or before r less the ENDs at or before l: both are prefixes of the order.
A child with depth d before it and the next START or END after it at e has a row at the least depth (`base`) without another partner iff d +
FIT = base, or d + its depth = base and its trail ends before e. No depth at a row is below the base, so this is exact.

Costs: O(B + F log n).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import KEY_MAX
from structures.core.encoding import POS_INF
from structures.core.kernel import kernel, wide
from structures.event_tree.layout import (
    AT,
    CHILD,
    END,
    ENDS,
    FIRST_AT,
    FIRST_KEY,
    FIT,
    HEIGHT,
    NAME,
    ON,
    ROOT,
    ROW,
    START,
    STARTS,
    TAKEN,
    TRAIL_END,
    TRAIL_KEY,
    VALUE,
    Tree,
    child_for,
    key_of,
    name_of,
    position_for,
    rank_of,
)
from structures.event_tree.summary import precedes


@kernel
def passed(tree: Tree, key: int, at: int, rank: int) -> int:
    """The number of STARTs, or ENDs, at or before (key, at)."""
    N, L, name = tree.inners, tree.leaves, name_of(key, ROW, 0)
    field, found, o = STARTS + rank, wide(0), tree.control[ROOT]
    for _ in range(tree.control[HEIGHT]):
        c = child_for(tree, o, name, at)
        for i in range(c):
            found += N[o, field, i]
        o = N[o, CHILD, c]
    for i in range(position_for(tree, o, name, at)):
        found += rank_of(L[o, NAME, i]) == rank
    return found


@kernel
def partners(tree: Tree, key: int, left: int, right: int) -> int:
    """The number of intervals with this key that meet [left, right]."""
    return passed(tree, key, right, START) - passed(tree, key, left, START + 1)


@kernel
def position_of_row(tree: Tree, key: int, left: int, right: int, slot: int, base: int) -> tuple[int, bool]:
    """The leaf to which a row belongs, at the end of the path, and whether the row has more partners than `base`: by one descent, and a
    scan to its right end in the leaf."""
    N, L, path, o = tree.inners, tree.leaves, tree.path, tree.control[ROOT]
    name, depth = name_of(key, ROW, slot), wide(0)
    for level in range(tree.control[HEIGHT]):
        c = child_for(tree, o, name, left)
        path[level, ON], path[level, TAKEN] = o, c
        for i in range(c):
            depth += N[o, STARTS, i] - N[o, ENDS, i]
        o = N[o, CHILD, c]
    p = position_for(tree, o, name, left)
    for i in range(p):
        rank = rank_of(L[o, NAME, i])
        depth += 1 if rank == START else -1 if rank == END else 0
    while p < tree.leaf_size[o] and depth <= base:  # it also meets those that begin before its right end
        if precedes(key, right, key_of(L[o, NAME, p]), L[o, AT, p]):
            return o, False
        depth += rank_of(L[o, NAME, p]) == START
        p += 1
    return o, depth > base or partners(tree, key, left, right) > base


@kernel("void(Tree, int32[::1], int64[::1], int64[::1], int64[::1])")
def count_partners(tree: Tree, keys: Any, lefts: Any, rights: Any, counts: Any) -> None:
    """counts[i]: the partners of the interval (lefts[i], rights[i]) of keys[i], by counts at the nodes. O(log n) an interval."""
    for i in range(len(keys)):
        counts[i] = partners(tree, wide(keys[i]), lefts[i], rights[i])


@kernel
def find_dead(tree: Tree, base: int) -> tuple[int, int]:
    """A row with no more partners than `base`: its leaf, at the end of the path, and its place; place -1 if there is none."""
    N, path, o = tree.inners, tree.path, tree.control[ROOT]
    depth, next_key, next_at = wide(0), wide(KEY_MAX), POS_INF  # before the node; after it
    for level in range(tree.control[HEIGHT]):
        n = tree.inner_size[o]
        end = depth
        for c in range(n):
            end += N[o, STARTS, c] - N[o, ENDS, c]
        chosen, before, key, at = -1, wide(0), next_key, next_at
        for c in range(n - 1, -1, -1):
            behind = end
            end -= N[o, STARTS, c] - N[o, ENDS, c]
            if end + N[o, FIT, c] == base or (behind == base and precedes(N[o, TRAIL_KEY, c], N[o, TRAIL_END, c], key, at)):
                chosen, before, next_key, next_at = c, end, key, at
            if N[o, STARTS, c] + N[o, ENDS, c] > 0:
                key, at = N[o, FIRST_KEY, c], N[o, FIRST_AT, c]
        if chosen < 0:
            return o, -1
        path[level, ON], path[level, TAKEN] = o, chosen
        depth, o = before, N[o, CHILD, chosen]
    return o, dead_in_leaf(tree, o, depth - base, next_key, next_at)


@kernel
def dead_in_leaf(tree: Tree, o: int, depth: int, next_key: int, next_at: int) -> int:
    """The place of such a row, or -1; depth: the one before the leaf, less the base."""
    L = tree.leaves
    found, found_key, found_end = -1, wide(KEY_MAX), POS_INF
    for i in range(tree.leaf_size[o]):
        name, at, value = L[o, NAME, i], L[o, AT, i], L[o, VALUE, i]
        key, rank = key_of(name), rank_of(name)
        if rank == ROW:
            if depth == 0 and precedes(key, value, found_key, found_end):
                found, found_key, found_end = i, key, value
            continue
        if found >= 0 and precedes(found_key, found_end, key, at):
            return found
        found, found_key, found_end = -1, wide(KEY_MAX), POS_INF
        depth += 1 if rank == START else -1
    return found if found >= 0 and precedes(found_key, found_end, next_key, next_at) else -1
