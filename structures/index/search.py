"""Read ordered indexes: places in the order, the entry at or after one, the one before, ranks.

A *place* is a number of coordinates (its length), which lie in an array from a start on, a step apart, and then a slot. If they are fewer
than the arity, the slot says whether it lies before (BEFORE) or after (BEHIND) all entries that begin with these coordinates. So entries of
blocks are places too: the array is M, the step their room. An entry is (leaf, i); leaf 0: there is none.

Costs: O(log n); nothing is kept, so an entry is all that a cursor needs. Source: `layout.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.bits import equals
from structures.core.blocks import Nodes
from structures.core.kernel import arrays, kernel, wide
from structures.index.layout import HEAD, INNER_ROOM, LEAF_ROOM, child_at, child_of, count_of, expect_block, level_of, room_of, slot_at

BEFORE, BEHIND = -1, 2**31 - 1  # slots of places
_FEW = 6
_FEW_OF_GROUP = 4


@arrays("int64[::1]", "int64", "int64", "int64", "int64")
class IndexPosition(NamedTuple):
    """A place in the order: `length` coordinates, number j at coordinates[start + j * step], and then the slot."""

    coordinates: np.ndarray
    start: int
    step: int
    length: int
    slot: int


@arrays("int64[::1]", "int64", "int32[::1]")
class Items(NamedTuple):
    """Entries in sequence: number i has its coordinates at coordinates[i * width], and slots[i]."""

    coordinates: np.ndarray
    width: int
    slots: np.ndarray


@kernel
def is_before(nodes: Nodes, o: int, arity: int, room: int, i: int, point: IndexPosition) -> bool:
    """Whether item i of block o comes before the place."""
    M, W, coordinates, start, step, length, slot = nodes.M, nodes.W, point.coordinates, point.start, point.step, point.length, point.slot
    for j in range(length):
        v, wanted = M[o + HEAD + j * room + i], coordinates[start + j * step]
        if v != wanted:
            return v < wanted
    if length < arity:
        return slot >= BEHIND
    return W[slot_at(o, arity, room) + i] < slot


@kernel
def position(nodes: Nodes, o: int, arity: int, low: int, point: IndexPosition) -> int:
    """The first item of block o, from `low` on, that does not come before the place."""
    M, W, coordinates, start, length = nodes.M, nodes.W, point.coordinates, point.start, point.length
    room, high = room_of(W, o, arity), count_of(W, o)
    if length > 0 and low < high:  # most are separated by their first coordinate
        column = o + HEAD
        low, high = equals(M, column + low, column + high, coordinates[start])
        low, high = low - column, high - column
    while low < high:
        middle = (low + high) >> 1
        if is_before(nodes, o, arity, room, middle, point):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def child_for(nodes: Nodes, o: int, arity: int, point: IndexPosition) -> int:
    """The child of inner node o that contains the place."""
    coordinates, start, step, length, slot = point.coordinates, point.start, point.step, point.length, point.slot
    return position(nodes, o, arity, 1, IndexPosition(coordinates, start, step, length, slot + 1)) - 1


@kernel
def same(M: Any, o: int, room: int, i: int, coordinates: Any, start: int, step: int, length: int) -> bool:
    """Whether entry i of leaf o begins with these coordinates."""
    for j in range(length):
        if M[o + HEAD + j * room + i] != coordinates[start + j * step]:
            return False
    return True


@kernel
def seek(nodes: Nodes, o: int, arity: int, point: IndexPosition) -> tuple[int, int]:
    """The first entry below o that does not come before the place."""
    M, W = nodes.M, nodes.W
    if o == 0:
        return 0, 0
    right = 0
    while level_of(W, o) > 0:
        c = child_for(nodes, o, arity, point)
        if c + 1 < count_of(W, o):
            right = child_of(W, arity, o, c + 1)
        o = child_of(W, arity, o, c)
        expect_block(M, o)
    i = position(nodes, o, arity, 0, point)
    if i < count_of(W, o):
        return o, i
    if right == 0:
        return 0, 0
    while level_of(W, right) > 0:
        right = child_of(W, arity, right, 0)
    return right, 0


@kernel
def seek_last(nodes: Nodes, o: int, arity: int, point: IndexPosition) -> tuple[int, int]:
    """The last entry below o that comes before the place."""
    W = nodes.W
    if o == 0:
        return 0, 0
    left = 0
    while level_of(W, o) > 0:
        c = child_for(nodes, o, arity, point)
        if c > 0:
            left = child_of(W, arity, o, c - 1)
        o = child_of(W, arity, o, c)
    i = position(nodes, o, arity, 0, point)
    if i > 0:
        return o, i - 1
    if left == 0:
        return 0, 0
    while level_of(W, left) > 0:
        left = child_of(W, arity, left, count_of(W, left) - 1)
    return left, count_of(W, left) - 1


@kernel
def seek_near(nodes: Nodes, root: int, arity: int, leaf: int, i: int, point: IndexPosition) -> tuple[int, int]:
    """As `seek` from the root, which has the entry (leaf, i), or leaf is 0: checks the entries that follow it in its leaf first."""
    W = nodes.W
    if leaf != 0:
        room, n = LEAF_ROOM[arity], count_of(W, leaf)
        if is_before(nodes, leaf, arity, room, i, point):
            few = min(n, i + 1 + _FEW)
            i += 1
            while i < few and is_before(nodes, leaf, arity, room, i, point):
                i += 1
            if i < few:
                return leaf, i
            if i < n and not is_before(nodes, leaf, arity, room, n - 1, point):
                return leaf, position(nodes, leaf, arity, i, point)
    return seek(nodes, root, arity, point)


@kernel
def next_entry(nodes: Nodes, root: int, arity: int, leaf: int, i: int) -> tuple[int, int]:
    """The entry after (leaf, i)."""
    M, W = nodes.M, nodes.W
    if i + 1 < count_of(W, leaf):
        return leaf, i + 1
    room = LEAF_ROOM[arity]
    return seek(nodes, root, arity, IndexPosition(M, leaf + HEAD + i, room, arity, wide(W[slot_at(leaf, arity, room) + i]) + 1))


@kernel
def group_end(nodes: Nodes, leaf: int, arity: int, i: int, coordinates: Any, start: int, step: int, length: int) -> int:
    """The place after the last entry of the leaf with these coordinates; entry i has them."""
    M, W = nodes.M, nodes.W
    room, n = LEAF_ROOM[arity], count_of(W, leaf)
    few = min(n, i + _FEW_OF_GROUP)
    while i < few and same(M, leaf, room, i, coordinates, start, step, length):
        i += 1
    return i if i < few or i == n else position(nodes, leaf, arity, i, IndexPosition(coordinates, start, step, length, BEHIND))


@kernel
def has_prefix(nodes: Nodes, root: int, arity: int, coordinates: Any, start: int, step: int, length: int) -> bool:
    """Whether an entry begins with these coordinates."""
    M = nodes.M
    leaf, i = seek(nodes, root, arity, IndexPosition(coordinates, start, step, length, BEFORE))
    return leaf != 0 and same(M, leaf, LEAF_ROOM[arity], i, coordinates, start, step, length)


@kernel
def rank(nodes: Nodes, o: int, arity: int, coordinates: Any, start: int, length: int, slot: int) -> int:
    """The number of entries below o that come before the place."""
    W = nodes.W
    if o == 0:
        return 0
    n = 0
    while level_of(W, o) > 0:
        c = child_for(nodes, o, arity, IndexPosition(coordinates, start, 1, length, slot))
        below = child_at(arity, o, 0) + INNER_ROOM[arity]
        for i in range(c):
            n += W[below + i]
        o = child_of(W, arity, o, c)
    return n + position(nodes, o, arity, 0, IndexPosition(coordinates, start, 1, length, slot))


# --- from Python


@kernel("UniTuple(int64, 2)(Nodes, int64, int64, int64[::1], int64)")
def seek_position(nodes: Nodes, root: int, arity: int, coordinates: Any, length: int) -> tuple[int, int]:
    """The first entry that does not come before the first `length` of these coordinates. O(log n)."""
    return seek(nodes, root, arity, IndexPosition(coordinates, 0, 1, length, BEFORE))


@kernel("int64(Nodes, int64, int64, int64[::1], int64)")
def count_prefix(nodes: Nodes, root: int, arity: int, coordinates: Any, length: int) -> int:
    """The number of entries that begin with the first `length` of these coordinates. O(log n)."""
    return rank(nodes, root, arity, coordinates, 0, length, BEHIND) - rank(nodes, root, arity, coordinates, 0, length, BEFORE)


HAS_BELOW, BELOW, HAS_ABOVE, ABOVE, GAP_WORDS = range(5)  # the result of `gap`


@kernel("void(Nodes, int64, int64, int64[::1], int64, int64[::1])")
def gap(nodes: Nodes, root: int, arity: int, coordinates: Any, length: int, found: Any) -> None:
    """Find, among the entries that begin with the coordinates before coordinates[length], the greatest next coordinate <= this one, and the
    least >= it.

    found: int64[GAP_WORDS], for either, whether there is one, and its value. O(log n).
    """
    M = nodes.M
    room = LEAF_ROOM[arity]
    leaf, i = seek_last(nodes, root, arity, IndexPosition(coordinates, 0, 1, length + 1, BEHIND))
    found[HAS_BELOW] = leaf != 0 and same(M, leaf, room, i, coordinates, 0, 1, length)
    found[BELOW] = M[leaf + HEAD + length * room + i] if found[HAS_BELOW] != 0 else 0
    leaf, i = seek(nodes, root, arity, IndexPosition(coordinates, 0, 1, length + 1, BEFORE))
    found[HAS_ABOVE] = leaf != 0 and same(M, leaf, room, i, coordinates, 0, 1, length)
    found[ABOVE] = M[leaf + HEAD + length * room + i] if found[HAS_ABOVE] != 0 else 0


LEAF_, ENTRY, COPIED = range(3)  # the state of a range: the next entry, and the number of entries returned


@kernel("int64(Nodes, int64, int64, int64[::1], int64, int64[::1], int64[:, ::1], int32[::1])")
def range_fill(nodes: Nodes, root: int, arity: int, coordinates: Any, length: int, state: Any, out: Any, slots: Any) -> int:
    """Copy entries that begin with the first `length` of these coordinates, from (state[LEAF_], state[ENTRY]) on. Returns their number.
    state[LEAF_] is 0 at the end. O(k) an entry, amortised."""
    M, W = nodes.M, nodes.W
    room, n = LEAF_ROOM[arity], 0
    leaf, i = state[LEAF_], state[ENTRY]
    while leaf != 0 and n < len(slots):
        if not same(M, leaf, room, i, coordinates, 0, 1, length):
            leaf = 0
            break
        for j in range(arity):
            out[n, j] = M[leaf + HEAD + j * room + i]
        slots[n] = W[slot_at(leaf, arity, room) + i]
        n += 1
        leaf, i = next_entry(nodes, root, arity, leaf, i)
    state[LEAF_], state[ENTRY] = leaf, i
    state[COPIED] += n
    return n
