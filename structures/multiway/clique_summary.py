"""A node's summary of the cliques below it: where its intervals end, and where k of them first share a point.

For j, k = 1..t (t members make a row)
    top[j]  the j-th largest right endpoint among the entries of the node's last key: only these can reach what lies to the right
    mn[k]   the least (key, left) of an entry that is covered by k - 1 others below, of its key and before it: there k share a point

        lower ---------------------- top[2]
              ------------- top[1]..                mn[3] of both: the least of mn_L[3], mn_G[3], and those of
        upper            --- mn[1]                  mn_G[2] <= top_L[1], mn_G[1] <= top_L[2]
                            -- mn[2]

A block has at SUMMARY: top[t] | mn[t] | last key, entries of it (at most t), keys of mn[t] (int32); KEY_MAX: none.

Costs: a leaf O(t L), an inner node O(t**2). Source: docs/design/ij-heap.md (*Self-joins*).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import KEY_MAX
from structures.core.kernel import kernel, wide
from structures.multiway.layout import CHILD, SUMMARY, L, MultiwayNodes, height_of
from structures.multiway.leaves import LEAF_SCRATCH, count_of, entry_at
from structures.multiway.topology import CLIQUE

MOST = 8  # most members
# A summary under construction, in `scratch`.
TOPS, LEASTS, LEAST_KEYS = LEAF_SCRATCH, LEAF_SCRATCH + MOST, LEAF_SCRATCH + 2 * MOST
SCRATCH_WORDS = LEAF_SCRATCH + 3 * MOST


def summary_words(t: int) -> int:
    """The number of words of a block's summary."""
    return 2 * t + (t + 3) // 2


@kernel
def top_at(o: int) -> int:
    """The place of top[1] of block o in M; mn[1] is t words further."""
    return o + SUMMARY


@kernel
def keys_at(table: Any, o: int) -> int:
    """The place of the last key of block o in W; its entries, and the key of mn[1], follow."""
    return 2 * (o + SUMMARY + 2 * table[CLIQUE])


@kernel
def enter(scratch: Any, at: int, count: int, most: int, right: int) -> int:
    """Insert a right endpoint into the `count` largest, descending from scratch[at], of which at most `most` are kept. Returns their new
    number."""
    j = count
    if count == most:
        if most == 0 or scratch[at + most - 1] >= right:
            return count
        j = most - 1
    while j > 0 and scratch[at + j - 1] < right:
        scratch[at + j] = scratch[at + j - 1]
        j -= 1
    scratch[at + j] = right
    return min(count + 1, most)


@kernel
def of_leaf(nodes: MultiwayNodes, scratch: Any, o: int) -> tuple[int, int]:
    """Build the summary of leaf o in `scratch`. Returns its last key, and the number of entries of that key."""
    M, W, table = nodes.M, nodes.W, nodes.table
    e, w = entry_at(table, o)
    t, met, last, count = table[CLIQUE], 0, -1, 0
    for i in range(count_of(nodes, o)):
        key, left = wide(W[w + L + i]), M[e + i]
        if key != last:
            last, count = key, 0
        while met < t and met <= count and (met == 0 or scratch[TOPS + met - 1] >= left):
            scratch[LEASTS + met], scratch[LEAST_KEYS + met] = left, key
            met += 1
        count = enter(scratch, TOPS, count, t, M[e + L + i])
    for k in range(met, t):
        scratch[LEAST_KEYS + k] = KEY_MAX
    return last, count


@kernel
def of_children(nodes: MultiwayNodes, scratch: Any, o: int) -> tuple[int, int]:
    """Build the summary of inner node o in `scratch`, from those of its children. Returns its last key, and the number of entries of that
    key."""
    M, W, table = nodes.M, nodes.W, nodes.table
    t, lower, upper = table[CLIQUE], M[o + CHILD], M[o + CHILD + 1]
    a, b, ka, kb = top_at(lower), top_at(upper), keys_at(table, lower), keys_at(table, upper)
    last, count, reach = wide(W[kb]), wide(W[kb + 1]), wide(W[ka + 1])
    for j in range(count):
        scratch[TOPS + j] = M[b + j]
    if W[ka] == last:
        for j in range(reach):
            count = enter(scratch, TOPS, count, t, M[a + j])
    for k in range(t):
        if W[ka + 2 + k] != KEY_MAX:
            scratch[LEASTS + k], scratch[LEAST_KEYS + k] = M[a + t + k], W[ka + 2 + k]
            continue
        scratch[LEASTS + k], scratch[LEAST_KEYS + k] = M[b + t + k], W[kb + 2 + k]
        for j in range(min(k, reach), 0, -1):  # the more the lower child contributes, the earlier its other entries begin
            if W[kb + 2 + k - j] == W[ka] and M[b + t + k - j] <= M[a + j - 1]:
                scratch[LEASTS + k], scratch[LEAST_KEYS + k] = M[b + t + k - j], W[ka]
                break
    return last, count


@kernel
def summarise_clique(nodes: MultiwayNodes, scratch: Any, o: int) -> bool:
    """Write the summary of node o, whose entries or children are in place. Returns whether it changed."""
    M, W, table = nodes.M, nodes.W, nodes.table
    if height_of(W, o) == 0:
        last, count = of_leaf(nodes, scratch, o)
    else:
        last, count = of_children(nodes, scratch, o)
    t, tops, keys = table[CLIQUE], top_at(o), keys_at(table, o)
    changed = W[keys] != last or W[keys + 1] != count
    W[keys], W[keys + 1] = last, count
    for j in range(count):
        if M[tops + j] != scratch[TOPS + j]:
            M[tops + j], changed = scratch[TOPS + j], True
    for k in range(t):
        if W[keys + 2 + k] != scratch[LEAST_KEYS + k]:
            W[keys + 2 + k], changed = scratch[LEAST_KEYS + k], True
        if scratch[LEAST_KEYS + k] != KEY_MAX and M[tops + t + k] != scratch[LEASTS + k]:
            M[tops + t + k], changed = scratch[LEASTS + k], True
    return changed
