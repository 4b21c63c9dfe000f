"""Reading ordered indexes: places in the order, the entry at or after one, the one before, ranks.

A *place* is (X, x, step, p, slot): p coordinates X[x], X[x + step], ..., then a slot. With p below the arity it lies, by its slot, before
(BEFORE) or after (BEHIND) all entries that begin with these coordinates. So entries of blocks are places too: X is M, the step their room.
An entry is (leaf, i); leaf 0: there is none.

Costs: O(log n); nothing is kept, so an entry is all that a cursor needs. Source: `layout.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.bits import equals
from structures.core.blocks import Nodes
from structures.core.kernel import arrays, kernel, wide
from structures.index.layout import HEAD, INNER_ROOM, LEAF_ROOM, child_at, child_of, count_of, expect_block, level_of, room_of, slot_at

BEFORE, BEHIND = -1, 2**31 - 1  # as slots of places
_FEW = 6
_FEW_OF_GROUP = 4


@arrays("int64[::1]", "int64", "int64", "int64", "int64")
class Place(NamedTuple):
    """A place in the order: p coordinates, number j at X[x + j * step], and then the slot."""

    X: np.ndarray
    x: int
    step: int
    p: int
    slot: int


@arrays("int64[::1]", "int64", "int32[::1]")
class Items(NamedTuple):
    """Entries in a row: number i has its coordinates at X[i * width], and slots[i]."""

    X: np.ndarray
    width: int
    slots: np.ndarray


@kernel
def is_before(nodes: Nodes, o: int, k: int, room: int, i: int, place: Place) -> bool:
    """Whether item i of block o comes before the place."""
    M, W, X, x, step, p, slot = nodes.M, nodes.W, place.X, place.x, place.step, place.p, place.slot
    for j in range(p):
        v, wanted = M[o + HEAD + j * room + i], X[x + j * step]
        if v != wanted:
            return v < wanted
    if p < k:
        return slot >= BEHIND
    return W[slot_at(o, k, room) + i] < slot


@kernel
def position(nodes: Nodes, o: int, k: int, low: int, place: Place) -> int:
    """The first item of block o, from `low` on, that does not come before the place."""
    M, W, X, x, p = nodes.M, nodes.W, place.X, place.x, place.p
    room, high = room_of(W, o, k), count_of(W, o)
    if p > 0 and low < high:  # most are told apart by their first coordinate
        column = o + HEAD
        low, high = equals(M, column + low, column + high, X[x])
        low, high = low - column, high - column
    while low < high:
        middle = (low + high) >> 1
        if is_before(nodes, o, k, room, middle, place):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def child_for(nodes: Nodes, o: int, k: int, place: Place) -> int:
    """The child of inner node o below which the place lies."""
    X, x, step, p, slot = place.X, place.x, place.step, place.p, place.slot
    return position(nodes, o, k, 1, Place(X, x, step, p, slot + 1)) - 1


@kernel
def same(M: Any, o: int, room: int, i: int, X: Any, x: int, step: int, p: int) -> bool:
    """Whether entry i of leaf o begins with these coordinates."""
    for j in range(p):
        if M[o + HEAD + j * room + i] != X[x + j * step]:
            return False
    return True


@kernel
def expect_leaf(nodes: Nodes, o: int, k: int, X: Any, x: int, p: int) -> int:
    """The leaf below o where what begins with these p coordinates begins or would; its cache lines are asked for."""
    M, W = nodes.M, nodes.W
    while level_of(W, o) > 0:
        o = child_of(W, k, o, child_for(nodes, o, k, Place(X, x, 1, p, BEFORE)))
        expect_block(M, o)
    return o


@kernel
def seek(nodes: Nodes, o: int, k: int, place: Place) -> tuple[int, int]:
    """The first entry below o that does not come before the place."""
    M, W = nodes.M, nodes.W
    if o == 0:
        return 0, 0
    right = 0
    while level_of(W, o) > 0:
        c = child_for(nodes, o, k, place)
        if c + 1 < count_of(W, o):
            right = child_of(W, k, o, c + 1)
        o = child_of(W, k, o, c)
        expect_block(M, o)
    i = position(nodes, o, k, 0, place)
    if i < count_of(W, o):
        return o, i
    if right == 0:
        return 0, 0
    while level_of(W, right) > 0:
        right = child_of(W, k, right, 0)
    return right, 0


@kernel
def seek_last(nodes: Nodes, o: int, k: int, place: Place) -> tuple[int, int]:
    """The last entry below o that comes before the place."""
    W = nodes.W
    if o == 0:
        return 0, 0
    left = 0
    while level_of(W, o) > 0:
        c = child_for(nodes, o, k, place)
        if c > 0:
            left = child_of(W, k, o, c - 1)
        o = child_of(W, k, o, c)
    i = position(nodes, o, k, 0, place)
    if i > 0:
        return o, i - 1
    if left == 0:
        return 0, 0
    while level_of(W, left) > 0:
        left = child_of(W, k, left, count_of(W, left) - 1)
    return left, count_of(W, left) - 1


@kernel
def seek_near(nodes: Nodes, root: int, k: int, leaf: int, i: int, place: Place) -> tuple[int, int]:
    """As `seek` from the root, which has the entry (leaf, i), or leaf is 0: what follows that entry in its leaf is looked at first."""
    W = nodes.W
    if leaf != 0:
        room, n = LEAF_ROOM[k], count_of(W, leaf)
        if is_before(nodes, leaf, k, room, i, place):
            few = min(n, i + 1 + _FEW)
            i += 1
            while i < few and is_before(nodes, leaf, k, room, i, place):
                i += 1
            if i < few:
                return leaf, i
            if i < n and not is_before(nodes, leaf, k, room, n - 1, place):
                return leaf, position(nodes, leaf, k, i, place)
    return seek(nodes, root, k, place)


@kernel
def next_entry(nodes: Nodes, root: int, k: int, leaf: int, i: int) -> tuple[int, int]:
    """The entry after (leaf, i)."""
    M, W = nodes.M, nodes.W
    if i + 1 < count_of(W, leaf):
        return leaf, i + 1
    room = LEAF_ROOM[k]
    return seek(nodes, root, k, Place(M, leaf + HEAD + i, room, k, wide(W[slot_at(leaf, k, room) + i]) + 1))


@kernel
def group_end(nodes: Nodes, leaf: int, k: int, i: int, X: Any, x: int, step: int, p: int) -> int:
    """Behind the last entry of the leaf with these coordinates, of which number i is one."""
    M, W = nodes.M, nodes.W
    room, n = LEAF_ROOM[k], count_of(W, leaf)
    few = min(n, i + _FEW_OF_GROUP)
    while i < few and same(M, leaf, room, i, X, x, step, p):
        i += 1
    return i if i < few or i == n else position(nodes, leaf, k, i, Place(X, x, step, p, BEHIND))


@kernel
def has_prefix(nodes: Nodes, root: int, k: int, X: Any, x: int, step: int, p: int) -> bool:
    """Whether an entry begins with these coordinates."""
    M = nodes.M
    leaf, i = seek(nodes, root, k, Place(X, x, step, p, BEFORE))
    return leaf != 0 and same(M, leaf, LEAF_ROOM[k], i, X, x, step, p)


@kernel
def rank(nodes: Nodes, o: int, k: int, X: Any, x: int, p: int, slot: int) -> int:
    """How many entries below o come before the place."""
    W = nodes.W
    if o == 0:
        return 0
    n = 0
    while level_of(W, o) > 0:
        c = child_for(nodes, o, k, Place(X, x, 1, p, slot))
        below = child_at(k, o, 0) + INNER_ROOM[k]
        for i in range(c):
            n += W[below + i]
        o = child_of(W, k, o, c)
    return n + position(nodes, o, k, 0, Place(X, x, 1, p, slot))


# --- from Python


@kernel("UniTuple(int64, 2)(Nodes, int64, int64, int64[::1], int64)")
def seek_place(nodes: Nodes, root: int, k: int, X: Any, p: int) -> tuple[int, int]:
    """The first entry that does not come before these p coordinates."""
    return seek(nodes, root, k, Place(X, 0, 1, p, BEFORE))


@kernel("int64(Nodes, int64, int64, int64[::1], int64)")
def count_prefix(nodes: Nodes, root: int, k: int, X: Any, p: int) -> int:
    """How many entries begin with these coordinates."""
    return rank(nodes, root, k, X, 0, p, BEHIND) - rank(nodes, root, k, X, 0, p, BEFORE)


@kernel("void(Nodes, int64, int64, int64[::1], int64, int64[::1])")
def gap(nodes: Nodes, root: int, k: int, X: Any, p: int, found: Any) -> None:
    """Of the entries that begin with the first p coordinates of X: the greatest next coordinate <= X[p], the least >= X[p].
    found: whether there is one, and it, of either."""
    M = nodes.M
    room = LEAF_ROOM[k]
    leaf, i = seek_last(nodes, root, k, Place(X, 0, 1, p + 1, BEHIND))
    found[0] = leaf != 0 and same(M, leaf, room, i, X, 0, 1, p)
    found[1] = M[leaf + HEAD + p * room + i] if found[0] != 0 else 0
    leaf, i = seek(nodes, root, k, Place(X, 0, 1, p + 1, BEFORE))
    found[2] = leaf != 0 and same(M, leaf, room, i, X, 0, 1, p)
    found[3] = M[leaf + HEAD + p * room + i] if found[2] != 0 else 0


LEAF_, ENTRY, COPIED = range(3)  # the state of a range: the next entry, and entries given so far


@kernel("int64(Nodes, int64, int64, int64[::1], int64, int64[::1], int64[:, ::1], int32[::1])")
def range_fill(nodes: Nodes, root: int, k: int, X: Any, p: int, Z: Any, coordinates: Any, slots: Any) -> int:
    """Copy entries that begin with these p coordinates, from (Z[LEAF_], Z[ENTRY]) on; how many. Z[LEAF_] is 0 at the end."""
    M, W = nodes.M, nodes.W
    room, n = LEAF_ROOM[k], 0
    leaf, i = Z[LEAF_], Z[ENTRY]
    while leaf != 0 and n < len(slots):
        if not same(M, leaf, room, i, X, 0, 1, p):
            leaf = 0
            break
        for j in range(k):
            coordinates[n, j] = M[leaf + HEAD + j * room + i]
        slots[n] = W[slot_at(leaf, k, room) + i]
        n += 1
        leaf, i = next_entry(nodes, root, k, leaf, i)
    Z[LEAF_], Z[ENTRY] = leaf, i
    Z[COPIED] += n
    return n
