"""Queries of one set: they need one path down, as the tree is ordered by left endpoints.

    first(b)  the entry with the smallest left among those with (key, right) >= (K, b): go to the first child that has one
    reach(a)  the entry with the largest right among those with (key, left) <= (K, a): a child whose right neighbour has one, too, lies
              wholly within `a`, and its stored greatest is the best of it

Answers are written into `scratch` at FOUND_: key, left, right, slot. A node's summary has singletons as subset i at place i. Costs: O(log n
+ L).
"""

from __future__ import annotations

from typing import Any

from structures.core.kernel import kernel, wide
from structures.multiway.layout import CHILD, L, MultiwayNodes, height_of, key_of, near_at, slot_at, start_of
from structures.multiway.leaves import LEAF_SCRATCH, entry_at
from structures.multiway.topology import SPAN

FOUND_ = LEAF_SCRATCH + 1
FOUND_WORDS = 4


@kernel
def at_least(nodes: MultiwayNodes, o: int, i: int, key: int, bound: int) -> bool:
    """Whether an entry of set i below node o has (key, right) >= the given one."""
    M, table = nodes.M, nodes.table
    k = key_of(nodes, o, 1, i)
    return k > key or (k == key and M[near_at(table, o, 1) + i] >= bound)


@kernel
def at_most(nodes: MultiwayNodes, o: int, i: int, key: int, bound: int) -> bool:
    """Whether an entry of set i below node o has (key, left) <= the given one."""
    M, table = nodes.M, nodes.table
    k = key_of(nodes, o, 0, i)
    return k < key or (k == key and M[near_at(table, o, 0) + i] <= bound)


@kernel
def found_stored(nodes: MultiwayNodes, scratch: Any, o: int, i: int, which: int) -> None:
    M, W, table = nodes.M, nodes.W, nodes.table
    near, far = near_at(table, o, which) + i, near_at(table, o, which) + table[SPAN] + i
    scratch[FOUND_], scratch[FOUND_ + 3] = key_of(nodes, o, which, i), W[slot_at(table, o, which) + i]
    scratch[FOUND_ + 1], scratch[FOUND_ + 2] = (M[near], M[far]) if which == 0 else (M[far], M[near])


@kernel
def found_entry(nodes: MultiwayNodes, scratch: Any, o: int, p: int) -> None:
    M, W, table = nodes.M, nodes.W, nodes.table
    e, w = entry_at(table, o)
    scratch[FOUND_], scratch[FOUND_ + 1], scratch[FOUND_ + 2], scratch[FOUND_ + 3] = W[w + L + p], M[e + p], M[e + L + p], W[w + p]


@kernel
def first(nodes: MultiwayNodes, scratch: Any, o: int, i: int, key: int, bound: int) -> bool:
    """Find the first entry of set i below node o with (key, right) >= the given one; False if there is none."""
    M, W, table = nodes.M, nodes.W, nodes.table
    if not at_least(nodes, o, i, key, bound):
        return False
    while height_of(W, o) > 0:
        k = key_of(nodes, o, 0, i)
        if k > key or (k == key and M[near_at(table, o, 0) + table[SPAN] + i] >= bound):
            found_stored(nodes, scratch, o, i, 0)
            return True
        o = M[o + CHILD] if at_least(nodes, M[o + CHILD], i, key, bound) else M[o + CHILD + 1]
    e, w = entry_at(table, o)
    p = start_of(W, o, i)
    while W[w + L + p] < key or (W[w + L + p] == key and M[e + L + p] < bound):
        p += 1
    found_entry(nodes, scratch, o, p)
    return True


@kernel
def reach(nodes: MultiwayNodes, scratch: Any, o: int, i: int, key: int, bound: int) -> bool:
    """Find the entry of set i below node o with the largest (key, right) among those with (key, left) <= the given one; False if there is
    none."""
    M, W, table = nodes.M, nodes.W, nodes.table
    if not at_most(nodes, o, i, key, bound):
        return False
    best, best_key, most = 0, wide(-1), wide(0)
    while height_of(W, o) > 0:
        lower, upper = M[o + CHILD], M[o + CHILD + 1]
        if not at_most(nodes, upper, i, key, bound):
            o = lower
            continue
        k, right = key_of(nodes, lower, 1, i), M[near_at(table, lower, 1) + i]
        if k > best_key or (k == best_key and k >= 0 and right > most):
            best, best_key, most = lower, k, right
        o = upper
    e, w = entry_at(table, o)
    position = -1
    for p in range(start_of(W, o, i), start_of(W, o, i + 1)):
        k = wide(W[w + L + p])
        if k > key or (k == key and M[e + p] > bound):
            break
        if k > best_key or (k == best_key and M[e + L + p] >= most):
            position, best_key, most = p, k, M[e + L + p]
    if position >= 0:
        found_entry(nodes, scratch, o, position)
    else:
        found_stored(nodes, scratch, best, i, 1)
    return True
