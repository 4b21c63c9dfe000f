"""Changes of an ordered index, key by key: what stands first of the key before them, and after.

The index is written in place, as its blocks all belong to one version: nobody but the writer reads it.

Costs: O(log n) a change, O(log n + rows listed) a group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes, Writing
from structures.core.entries import Entries
from structures.core.kernel import arrays, kernel, wide
from structures.index.changes import cut, put
from structures.index.layout import ARITY, HEAD, LEAF_ROOM, ROOT, slot_at
from structures.index.search import BEFORE, Items, Place, next_entry, same, seek
from structures.ordered.tree import cut as take_out
from structures.ordered.tree import put as take_in

# Words of the state: the group that is next, whether it is changed; rows that are listed of a key, whether entries may tie; entries that
# could not be changed.
GROUP, CHANGED, MOST, TIED, MISSING, STATE_WORDS = range(6)
FULL = -1  # in place of rows: they do not fit


@arrays("int32[::1]", "int64[::1]", "int8[::1]", "int8[::1]")
class Listed(NamedTuple):
    """Rows that stand first of their keys: of a group, before or after its changes, in the order of the index. Not `sure` are those of
    which some tie with what stands behind the last place."""

    slot: np.ndarray
    group: np.ndarray
    after: np.ndarray
    sure: np.ndarray


@kernel
def is_full(count: int, most: int, tied: int) -> bool:
    """Whether no more rows need be listed, but for those that tie with the last one."""
    return count >= most and tied == 0


@kernel
def list_first(nodes: Nodes, root: int, k: int, X: Any, x: int, Z: Any, listed: Listed, n: int) -> int:
    """List the rows that stand first of the key X[x], from place n on; how many, or FULL."""
    M, W = nodes.M, nodes.W
    room, most, tied = LEAF_ROOM[k], Z[MOST], Z[TIED]
    count, first, before, b = wide(0), wide(0), wide(0), wide(0)
    leaf, i = seek(nodes, root, k, Place(X, x, 1, 1, BEFORE))
    while leaf != 0 and not is_full(count, most, tied) and same(M, leaf, room, i, X, x, 1, 1):
        if count > 0 and not same(M, leaf, room, i, M, before + HEAD + b, room, k):
            if count >= most:
                break
            first = count
        if n + count == len(listed.slot):
            return FULL
        listed.slot[n + count] = W[slot_at(leaf, k, room) + i]
        count += 1
        before, b = leaf, i
        leaf, i = next_entry(nodes, root, k, leaf, i)
    sure = count if count <= most else first
    for j in range(count):
        listed.group[n + j], listed.after[n + j], listed.sure[n + j] = Z[GROUP], Z[CHANGED], j < sure
    return count


@kernel
def change(nodes: Nodes, writing: Writing, h: int, sign: int, items: Items, e: int) -> bool:
    """Put (sign > 0) or cut entry number e; False: it could not be."""
    x, slot = e * items.width, wide(items.slots[e])
    done = put(nodes, writing, h, items.X, x, slot) if sign > 0 else cut(nodes, writing, h, items.X, x, slot)
    return done >= 0


@kernel("int64(Nodes, Writing, int64, Items, int8[::1], int64[::1], int64[::1], Listed)")
def change_groups(nodes: Nodes, writing: Writing, h: int, items: Items, signs: Any, ends: Any, Z: Any, listed: Listed) -> int:
    """Change the index at holder h group by group, from number Z[GROUP] on, until all are done or no more rows fit; the rows listed. The
    changes of group g, all of one key, end before ends[g]."""
    C = writing.C
    k, n = C[h + ARITY], 0
    while Z[GROUP] < len(ends):
        g = Z[GROUP]
        first = ends[g - 1] if g > 0 else wide(0)
        while True:
            count = list_first(nodes, C[h + ROOT], k, items.X, first * items.width, Z, listed, n)
            if count == FULL:
                return n
            n += count
            if Z[CHANGED] != 0:
                break
            for e in range(first, ends[g]):
                if not change(nodes, writing, h, wide(signs[e]), items, e):
                    Z[MISSING] += 1
            Z[CHANGED] = 1
        Z[CHANGED] = 0
        Z[GROUP] = g + 1
    return n


@kernel("int64(Nodes, Writing, int8[::1], Entries)")
def change_list(nodes: Nodes, writing: Writing, signs: Any, entries: Entries) -> int:
    """Change a list of rows; how many could not be, as they were not there."""
    missing = 0
    for e in range(len(signs)):
        key, left, slot = wide(entries.key[e]), entries.left[e], wide(entries.slot[e])
        if signs[e] > 0:
            take_in(nodes, writing, 0, key, left, entries.right[e], slot)
        elif not take_out(nodes, writing, 0, key, left, slot):
            missing += 1
    return missing
