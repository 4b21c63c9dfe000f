"""The two-dimensional tree of the points (x, y) of S: for each block of x values, all points by y.

A *block* of level l has up to 16^l consecutive values of x, and consists of up to 16 blocks of the level below. It is a number,
(x + 8 (16^l - 1) / 15) >> 4 l: blocks are centred on 0, so that small numbers of either sign lie in one block of a low level. Level `TOP`
is the lowest that has all points in one block. Each level between 0 and `TOP` has an index of its own, with entries (block, y, x), slot 0,
each point once however many rows it has. Level 0 is the index of S by (x, y), which others write, and level TOP that by (y, x).

    TOP     S(y, x)     |...............................|    has this block a point with low <= y <= high? One look-up, at (block, low).
    1..     (b, y, x)   |.......|.......|.......|.......|    The first point beyond x: the largest block beyond x, then its neighbours to
    0       S(x, y)     | | | | | | | | | | | | | | | | |    the right, and down into the first that has one.

Blocks are determined by the values, so nothing is ever rebalanced; the paper's tree is balanced by the points from which it is built.
Source: *Towards Instance Optimal Join Algorithms*, Section 2.1 and Appendix B.1.

Costs (n points, U the distance between the least and the greatest x)
    next_point      at most 30 log16 U + 2 look-ups of O(log n), less those of blocks without points
    change_points, recheck_points    O(log16 U log n) a point
    memory          about 40 bytes a point and level, TOP - 1 <= 15 levels: 28 an entry, in leaves at least half full
"""

from __future__ import annotations

from typing import Any

from structures.adaptive.product import LOOKUPS, STATE_WORDS, STEPS, ProductWalk
from structures.core.blocks import Nodes, WriteState
from structures.core.kernel import kernel
from structures.index.changes import cut, put
from structures.index.layout import HEAD, LEAF_ROOM
from structures.index.runs import change
from structures.index.search import BEFORE, BEHIND, IndexPosition, Items, has_prefix, seek

DIGIT = 4  # bits of x for each level
MOST_LEVELS = 15  # most levels with an index
# Words of the roots in the reading of a bow-tie: R(x), S(x, y), S(y, x), T(y); the level TOP, followed by the root of each level from 1 on
OF_R, BY_X, BY_Y, OF_T, TOP = range(5)
ROOTS = TOP + 1 + MOST_LEVELS
KEY = STATE_WORDS  # words of the state: the key of a look-up
LAST_VALUE = 2**63 - 1


@kernel
def block_of(x: int, level: int) -> int:
    """The block of a level, 0 to 15, that contains x."""
    rest = (1 << (DIGIT * level)) - 1
    return (x >> (DIGIT * level)) + (((x & rest) + rest // 15 * 8) >> (DIGIT * level))


@kernel
def end_of_block(x: int, level: int) -> int:
    """The greatest value of the block of a level, 0 to 15, that contains x."""
    rest = (1 << (DIGIT * level)) - 1
    left = rest - (((x & rest) + rest // 15 * 8) & rest)
    return x + left if x <= LAST_VALUE - left else LAST_VALUE


@kernel
def highest_apart(x: int, v: int, top: int) -> int:
    """The highest level up to `top` in which these two values lie in different blocks, as they do in level 0."""
    level = 0
    while level < min(top, MOST_LEVELS) and block_of(x, level + 1) != block_of(v, level + 1):
        level += 1
    return level


@kernel
def look_at(nodes: Nodes, walking: ProductWalk, root: int, arity: int, position: IndexPosition) -> tuple[int, int]:
    """As `seek`, counted."""
    state = walking.state
    state[STEPS] += 1
    state[LOOKUPS] += 1
    return seek(nodes, root, arity, position)


@kernel
def point_in(nodes: Nodes, walking: ProductWalk, v: int, level: int, low: int, high: int) -> tuple[int, int]:
    """The first entry with low <= y <= high of the index of a level, in the block of v; leaf 0 if there is none."""
    M = nodes.M
    _, roots, state = walking
    if level == roots[TOP]:
        root, k, p = roots[BY_Y], 2, 0
    elif level == 0:
        root, k, p = roots[BY_X], 2, 1
        state[KEY] = v
    else:
        root, k, p = roots[TOP + level], 3, 1
        state[KEY] = block_of(v, level)
    state[KEY + p] = low
    leaf, i = look_at(nodes, walking, root, k, IndexPosition(state, KEY, 1, p + 1, BEFORE))
    if leaf == 0 or (p == 1 and M[leaf + HEAD + i] != state[KEY]) or M[leaf + HEAD + p * LEAF_ROOM[k] + i] > high:
        return 0, 0
    return leaf, i


@kernel
def first_beyond(nodes: Nodes, walking: ProductWalk, x: int, low: int, high: int) -> tuple[int, int]:
    """The first point beyond x, by (x, y), with low <= y <= high: its entry by (x, y); leaf 0 if there is none."""
    M = nodes.M
    _, roots, state = walking
    level, inside = -1, False  # level of the current block; whether a block above it certainly has a point
    end = x  # end of the values without a point
    while True:
        state[KEY] = end
        leaf, i = look_at(nodes, walking, roots[BY_X], 2, IndexPosition(state, KEY, 1, 1, BEHIND))
        if leaf == 0:
            return 0, 0
        v = M[leaf + HEAD + i]
        if not inside:
            level = highest_apart(x, v, roots[TOP])
        leaf, i = point_in(nodes, walking, v, level, low, high)
        while leaf != 0 and level > 0:
            inside = True
            level -= 1
            leaf, i = point_in(nodes, walking, v, level, low, high)
        if leaf != 0:
            return leaf, i
        if level == roots[TOP]:
            return 0, 0
        end = end_of_block(v, level)


@kernel
def next_point(nodes: Nodes, walking: ProductWalk, position: IndexPosition, low: int, high: int) -> tuple[int, int]:
    """The first point at or beyond a place, BEFORE or BEHIND (x, y), with low <= y <= high: its entry by (x, y); leaf 0 if there is
    none."""
    M = nodes.M
    _, roots, state = walking
    x, y = position.coordinates[position.start], position.coordinates[position.start + 1]
    state[KEY], state[KEY + 1] = x, max(low, y)
    leaf, i = look_at(nodes, walking, roots[BY_X], 2, IndexPosition(state, KEY, 1, 2, BEFORE if y < low else position.slot))
    if leaf != 0:
        if M[leaf + HEAD + i] == x and M[leaf + HEAD + LEAF_ROOM[2] + i] <= high:
            return leaf, i
        return first_beyond(nodes, walking, x, low, high)
    return 0, 0


@kernel("void(Nodes, WriteState, int64[::1], int64, Items, int64[::1])")
def change_points(nodes: Nodes, writing: WriteState, holders: Any, sign: int, items: Items, key: Any) -> None:
    """Insert (sign 1) or delete (-1) points (x, y), slot 0, in the levels from 1 on, whose trees are at these holders (int64[levels]);
    there is room for all of them. `key`: int64[3], scratch. Cost: O(log n) a point and level."""
    entry = Items(key, 3, items.slots)
    for e in range(len(items.slots)):
        key[1], key[2] = items.coordinates[e * items.width + 1], items.coordinates[e * items.width]
        for level in range(1, len(holders) + 1):
            key[0] = block_of(key[2], level)
            change(nodes, writing, holders[level - 1], sign, entry, 0)


@kernel("void(Nodes, WriteState, int64, int64[::1], Items, int64[::1])")
def recheck_points(nodes: Nodes, writing: WriteState, root: int, holders: Any, items: Items, key: Any) -> None:
    """As `change_points`, but inserts those of the points that the index of S by (x, y) has at this root, and deletes the others; a level
    that is correct already is unchanged. O(log n) a point and level."""
    for e in range(len(items.slots)):
        key[1], key[2] = items.coordinates[e * items.width + 1], items.coordinates[e * items.width]
        live = has_prefix(nodes, root, 2, items.coordinates, e * items.width, 1, 2)
        for level in range(1, len(holders) + 1):
            key[0] = block_of(key[2], level)
            if live:
                put(nodes, writing, holders[level - 1], key, 0, 0)
            else:
                cut(nodes, writing, holders[level - 1], key, 0, 0)
