"""Partners of an interval: a resumable search in one set of the tree.

Problem: report the entries of set s that have the key, left <= `most`, right >= `least`, and come after a
given place in the order. For r = [l, r] with most = r, least = l these are the intervals that meet it.

A child is entered only if its (key, right) extreme reaches `least` and its (key, left) extreme is within
`most`; a child whose lefts are all within `most` certainly has a hit, so dead ends lie on one path only.

The state is plain data, which is also the cursor:
    DEPTH frames | SET KEY_ AFTER AFTER_CODE MOST LEAST | TOP HIGH (root, height) | STEPS LAST GAP | frames
A frame is (node, mask of children still to enter); node 0 stands for a root that is a leaf.

Costs: O(log n) steps to the first hit and O(log n) between hits, O(1) per hit in full leaves.
Source: Tao and Yi, Theorem 1, as in docs/design/ij-heap.md (*Delta query*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import KEY_MAX, B, F
from structures.core.bits import LANES, at_most8, below8, lowest
from structures.core.blocks import Nodes
from structures.core.encoding import NEG_INF
from structures.core.kernel import arrays, kernel, prefetch, wide
from structures.ordered.layout import (
    CHILDREN,
    KEY,
    KL,
    KR,
    LEFT,
    ML,
    MOST_LEVELS,
    MR,
    RIGHT,
    SLOT,
    TreePosition,
    child_of,
    is_before,
    run_of,
    separator,
)
from structures.ordered.leaves import position

DEPTH, SET, KEY_, AFTER, AFTER_CODE, MOST, LEAST, TOP, HIGH, STEPS, LAST, GAP = range(12)
FRAMES = 12
NODE, TO_ENTER, FRAME_WORDS = range(3)  # words of a frame
SEARCH_WORDS = FRAMES + FRAME_WORDS * MOST_LEVELS

NOTHING_BEFORE = -1  # AFTER_CODE with AFTER = NEG_INF: no lower bound
EVERY_CODE = 2**31 - 1  # AFTER_CODE: after every entry with left == AFTER


@arrays("int64", "int64", "int64", "int64")
class Bounds(NamedTuple):
    """Bounds of entries of one key: after the place (after, code) in the order, left <= most, right >= least."""

    after: int
    code: int
    most: int
    least: int


@kernel("void(int64[::1], int64, int64, int64, int64, Bounds)")
def search_start(state: Any, root: int, height: int, s: int, key: int, bounds: Bounds) -> None:
    """Begin a search; the counters STEPS, LAST, GAP continue. O(1)."""
    state[DEPTH], state[SET], state[KEY_] = 1, s, key
    state[AFTER], state[AFTER_CODE], state[MOST], state[LEAST] = bounds
    state[TOP], state[HIGH] = root, height
    state[FRAMES + NODE], state[FRAMES + TO_ENTER] = 0, 1


@kernel
def hopeful(nodes: Nodes, state: Any, o: int) -> int:
    """A mask of the children of o to enter."""
    M, W = nodes.M, nodes.W
    s, key, most, least = state[SET], state[KEY_], state[MOST], state[LEAST]
    mask = 0
    for c in range(0, F, LANES):
        kr, kl = 2 * o + KR + s * F + c, 2 * o + KL + s * F + c
        ends_before = below8(W, kr, key) | (at_most8(W, kr, key) & below8(M, o + MR + s * F + c, least))
        begins = below8(W, kl, key) | (at_most8(W, kl, key) & at_most8(M, o + ML + s * F + c, most))
        mask |= (begins & ~ends_before) << c
    mask &= (1 << F) - 1
    if state[AFTER] != NEG_INF or state[AFTER_CODE] >= 0:
        for c in range(W[2 * o + CHILDREN] - 1):
            if wholly_before(nodes, o, c, TreePosition(key, state[AFTER], state[AFTER_CODE])):
                mask &= ~(1 << c)
    return mask


@kernel
def wholly_before(nodes: Nodes, o: int, c: int, after: TreePosition) -> bool:
    """Whether every entry below child c comes at or before a place, as the next separator does."""
    return not is_before(after, separator(nodes, o, c + 1))


@kernel
def search_leaf(nodes: Nodes, state: Any, o: int, out: Any, n: int, ends: Any) -> int:
    """Write the hits in leaf o from out[n] on, and, with `ends`, (left, right) of each."""
    M, W = nodes.M, nodes.W
    s, key, most, least = state[SET], state[KEY_], state[MOST], state[LEAST]
    i, end = run_of(W, o, s)
    if i == end:
        return n
    if W[2 * o + KEY + i] < key or state[AFTER] != NEG_INF or state[AFTER_CODE] >= 0:
        i = position(nodes, o, i, end, key, state[AFTER], ((state[AFTER_CODE] - s) >> 1) + 1)
    found, p, behind = n, np.uint64(i), np.uint64(end)  # unsigned places need no check of their sign
    lefts, rights, slots, keys = np.uint64(o + LEFT), np.uint64(o + RIGHT), np.uint64(2 * o + SLOT), np.uint64(2 * o + KEY)
    while p < behind and M[lefts + p] <= most and W[keys + p] == key:
        out[n] = W[slots + p]
        if len(ends) > 0:
            ends[2 * n], ends[2 * n + 1] = M[lefts + p], M[rights + p]
        n += M[rights + p] >= least
        p += np.uint64(1)
    state[STEPS] += wide(p) - i
    if n > found:
        state[GAP] = max(state[GAP], state[STEPS] - state[LAST])
        state[LAST] = state[STEPS]
    return n


@kernel
def expect_leaves(nodes: Nodes, o: int, s: int, mask: int) -> None:
    """Prefetch the cache lines of set s in the leaves below o in the mask (half of a leaf each: the average share of a set)."""
    M, W = nodes.M, nodes.W
    while mask != 0:
        leaf = child_of(W, o, lowest(mask))
        mask &= mask - 1
        prefetch(M, leaf)
        first = s * (B // 2)
        for line in range(0, B // 2, 8):
            prefetch(M, leaf + LEFT + first + line)
            prefetch(M, leaf + RIGHT + first + line)
        for line in range(0, B // 4, 8):
            prefetch(M, leaf + (SLOT + first) // 2 + line)
            prefetch(M, leaf + (KEY + first) // 2 + line)


@kernel("int64(Nodes, int64[::1], int32[::1], int64, int64[::1])")
def search_fill(nodes: Nodes, state: Any, out: Any, n: int, ends: Any) -> int:
    """Continue the search; writes slots from out[n] on. Ends when out has less than B + 1 places left or state[DEPTH] is 0 (all found).
    O(log n) steps to the first hit and between two, O(1) a hit in full leaves."""
    W = nodes.W
    while state[DEPTH] > 0 and len(out) - n > B:
        f = FRAMES + FRAME_WORDS * (state[DEPTH] - 1)
        o, mask = state[f + NODE], state[f + TO_ENTER]
        if mask == 0:
            state[DEPTH] -= 1
            continue
        c = lowest(mask)
        state[f + TO_ENTER] = mask & (mask - 1)
        state[STEPS] += 1
        # Frame 0 is the virtual parent of the root, so the children of frame d are at height HIGH - d.
        child = state[TOP] if o == 0 else child_of(W, o, c)
        if state[DEPTH] == state[HIGH] + 1:
            n = search_leaf(nodes, state, child, out, n, ends)
        else:
            mask = hopeful(nodes, state, child)
            f += FRAME_WORDS
            state[f + NODE], state[f + TO_ENTER] = child, mask
            state[DEPTH] += 1
            if state[DEPTH] == state[HIGH] + 1:
                expect_leaves(nodes, child, state[SET], mask)
    return n


# Words of an item: the slot to report, and the bounds of the search.
ITEM_SLOT, ITEM_KEY, ITEM_AFTER, ITEM_AFTER_CODE, ITEM_MOST, ITEM_LEAST, ITEM = range(7)
ITEM_AT, ITEM_ACTIVE = SEARCH_WORDS, SEARCH_WORDS + 1
PARTNERS_WORDS = SEARCH_WORDS + 2


@kernel("int64(Nodes, int64[::1], int64[::1], int32[::1], int32[::1], int64)")
def partners_fill(nodes: Nodes, state: Any, items: Any, own: Any, other: Any, budget: int) -> int:
    """For each item (see ITEM), search set state[SET] of the version at state[TOP], and write (item's slot, hit). An item of that set finds
    itself, too, if it lies within its bounds. Ends when out is full, state[ITEM_AT] has passed the last, or, between two items, after
    `budget` steps. Returns the number of rows written. Cost: for each item that of a search."""
    n, ends, stop = 0, items[:0], state[STEPS] + budget
    while ITEM * state[ITEM_AT] < len(items) and state[STEPS] < stop:
        i = ITEM * state[ITEM_AT]
        if state[ITEM_ACTIVE] == 0:
            bounds = Bounds(items[i + ITEM_AFTER], items[i + ITEM_AFTER_CODE], items[i + ITEM_MOST], items[i + ITEM_LEAST])
            search_start(state, state[TOP], state[HIGH], state[SET], items[i + ITEM_KEY], bounds)
            state[ITEM_ACTIVE] = 1
        m = search_fill(nodes, state, other, n, ends)
        for j in range(n, m):
            own[j] = items[i + ITEM_SLOT]
        n = m
        if state[DEPTH] > 0:
            return n
        state[ITEM_ACTIVE] = 0
        state[ITEM_AT] += 1
    return n


@kernel("int64(Nodes, int64, int64, int64)")
def next_key(nodes: Nodes, root: int, height: int, key: int) -> int:
    """The smallest key above `key`; KEY_MAX if there is none. O(F log n)."""
    W = nodes.W
    o = root
    for _ in range(height):
        c, n = 0, W[2 * o + CHILDREN]
        while c < n and max(W[2 * o + KR + c], W[2 * o + KR + F + c]) <= key:
            c += 1
        if c == n:
            return KEY_MAX
        o = child_of(W, o, c)
    least = KEY_MAX
    for s in range(2):
        lo, hi = run_of(W, o, s)
        p = position(nodes, o, lo, hi, key, 2**63 - 1, KEY_MAX)
        if p < hi:
            least = min(least, W[2 * o + KEY + p])
    return least
