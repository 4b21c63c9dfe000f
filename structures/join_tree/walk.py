"""Read a join tree: one level for each bound alias, depth first, over the trees of full rows, so that every step leads to rows.

Level 0 takes given rows of the first alias; level l the partners of the row bound at an earlier level, by a search in the tree of one port.
A complete list is not searched again for the same key and ends: this helps with equal keys in sequence, and with aliases beside one another
below the same row (their rows are a product). Where an optional link finds nothing, the level has one entry, -1, and so have the levels
behind it.

The state, int64[t, LEVEL_WORDS], and the lists, int32[t, LIST], are plain data, which is also the cursor. Row 0 counts, row l > 0 is a
level's:
    DEPTH AT STEPS LAST GAP DEAD PLACE BOUND | NULLED     AT END MORE KEY LOW HIGH WHOLE BOUND | search
Costs: O(log n) steps a look-up, and each has rows (with a window, some may not meet it). Source: Yannakakis' algorithm, its last pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import B, F
from structures.core.bits import LANES, below8, count_bits, equals
from structures.core.blocks import Nodes
from structures.core.encoding import NEG_INF
from structures.core.kernel import arrays, kernel, wide
from structures.join_tree.layout import FAR, FIRST_PORT, HAS, KIND, OPTIONAL, PORT, SPAN, Tables, code_of, ends_of, sees
from structures.ordered.layout import COUNTS, KL, SLOT, child_of
from structures.ordered.layout import KEY as KEY_
from structures.ordered.leaves import find_entry as position_of
from structures.ordered.search import DEPTH as FRAMES_LEFT
from structures.ordered.search import NOTHING_BEFORE, SEARCH_WORDS, Bounds, search_fill, search_start
from structures.ordered.search import STEPS as SEARCH_STEPS
from structures.ordered.tree import find_child

DEPTH, START, STEPS, LAST, GAP, DEAD, POSITION, BOUND = range(8)
AT, END, MORE, KEY, LOW, HIGH, WHOLE = range(7)  # BOUND as in row 0
SEARCH = NULLED = 8  # NULLED: in row 0; an optional link + 1 along which nothing is searched
LEVEL_WORDS = SEARCH + SEARCH_WORDS
LIST = 4 * B
PATIENCE = 1 << 16  # approximate steps of a call


@arrays("int64[:,::1]", "int64[:,:,::1]", "int64[:,::1]", "int64[:,::1]", "int32[:,::1]")
class JoinTreeWalk(NamedTuple):
    """The version that is read, and the position. ROOTS: for each port's tree of full rows the root and the height first; PATHS: see
    `tables._outward`; bounds: int64[p, 2], the window of each port, or empty."""

    ROOTS: np.ndarray
    PATHS: np.ndarray
    bounds: np.ndarray
    state: np.ndarray
    lists: np.ndarray


@kernel("void(int64[:,::1], int64)")
def begin_walk(state: Any, position: int) -> None:
    """Set the state before the first of other starts, rows of alias `position`, or of the same ones in other trees; the counters continue.
    O(1)."""
    state[0, DEPTH], state[0, START], state[0, POSITION], state[0, NULLED] = 0, 0, position, 0
    for i in range(1, len(state)):
        state[i, WHOLE] = 0


@kernel
def within(tables: Tables, bounds: Any, u: int, slot: int) -> bool:
    """Whether the spans of a row of alias u meet the window: bounds[p] of port p."""
    PORTS, INPUTS = tables.PORTS, tables.INPUTS
    for i in range(INPUTS[u, HAS]):
        p = INPUTS[u, FIRST_PORT + i]
        if PORTS[p, SPAN] != 0:
            left, right = ends_of(tables, p, slot)
            if left > bounds[p, 1] or right < bounds[p, 0]:
                return False
    return True


@kernel
def more_of_level(nodes: Nodes, tables: Tables, walking: JoinTreeWalk, level: int, u: int) -> int:
    """Fill the list of a level, of alias u, from its search. Returns the number of rows found, including those outside of the window."""
    E, state, lists = tables.E, walking.state, walking.lists
    search = state[level, SEARCH:]
    before = search[SEARCH_STEPS]
    n = search_fill(nodes, search, lists[level], 0, E[:0])
    state[0, STEPS] += search[SEARCH_STEPS] - before
    state[level, MORE] = 1 if search[FRAMES_LEFT] > 0 else 0
    sift_level(tables, walking, level, u, n)
    return n


@kernel(forceinline=True)
def sift_level(tables: Tables, walking: JoinTreeWalk, level: int, u: int, n: int) -> None:
    """Keep those of the n rows in the list of a level that meet the window."""
    bounds, state, lists = walking.bounds, walking.state, walking.lists
    if len(bounds) > 0:
        found, n = n, 0
        for i in range(found):
            lists[level, n] = lists[level, i]
            if within(tables, bounds, u, lists[level, i]):
                n += 1
        state[0, DEAD] += found - n
    state[level, AT], state[level, END] = 0, n


@kernel(forceinline=True)
def in_one_leaf(W: Any, root: int, height: int, key: int, lists: Any, level: int) -> int:
    """Write the entries of a key into lists[level] in the usual case that all are in one leaf that has others after them; otherwise return
    -1. The tree has one set, without spans, so keys alone determine the path."""
    o = root
    for _ in range(height):
        n = wide(0)
        for c in range(0, F, LANES):
            n += count_bits(below8(W, 2 * o + KL + c, key) & ((1 << (F - c)) - 1))
        o = child_of(W, o, max(n - 1, 0))
    keys = 2 * o + KEY_
    first, end = equals(W, keys, keys + W[2 * o + COUNTS], key)
    if end == keys + W[2 * o + COUNTS]:
        return -1
    for at in range(first, end):
        lists[level, at - first] = W[at + SLOT - KEY_]
    return end - first


@kernel
def miss_level(walking: JoinTreeWalk, level: int) -> None:
    """Mark what the level binds as missing."""
    state, lists = walking.state, walking.lists
    lists[level, 0] = -1
    state[level, AT], state[level, END], state[level, MORE], state[level, WHOLE] = 0, 1, 0, 0


@kernel(forceinline=True)
def open_level(nodes: Nodes, tables: Tables, walking: JoinTreeWalk, level: int) -> None:
    """Find the partners that the next level binds."""
    W, LINKS, PORTS = nodes.W, tables.LINKS, tables.PORTS
    ROOTS, PATHS, state, lists = walking.ROOTS, walking.PATHS, walking.state, walking.lists
    e, near = PATHS[state[0, POSITION], level, 0], PATHS[state[0, POSITION], level, 1]
    p, q, slot, is_optional = LINKS[e, PORT], LINKS[e ^ 1, PORT], state[near, BOUND], LINKS[e, KIND] == OPTIONAL
    if slot < 0 or (is_optional and (state[0, NULLED] == e + 1 or not sees(tables, q, slot))):
        state[0, DEPTH] = level
        miss_level(walking, level)
        return
    key = code_of(tables, q, slot)
    low, high = ends_of(tables, q, slot)
    state[0, DEPTH] = level
    if state[level, WHOLE] != 0 and state[level, KEY] == key and state[level, LOW] == low and state[level, HIGH] == high:
        state[level, AT] = 0
        return
    state[level, KEY], state[level, LOW], state[level, HIGH] = key, low, high
    if PORTS[p, SPAN] == 0:
        n = in_one_leaf(W, ROOTS[p, 0], ROOTS[p, 1], key, lists, level)
        if n >= 0:
            state[level, MORE], state[level, WHOLE] = 0, 1
            state[0, STEPS] += ROOTS[p, 1] + 1 + n
            sift_level(tables, walking, level, LINKS[e, FAR], n)
            if n == 0 and is_optional:
                miss_level(walking, level)
            return
    search_start(state[level, SEARCH:], ROOTS[p, 0], ROOTS[p, 1], 0, key, Bounds(NEG_INF, NOTHING_BEFORE, high, low))
    found = more_of_level(nodes, tables, walking, level, LINKS[e, FAR])
    state[level, WHOLE] = 1 - state[level, MORE]
    if found == 0 and is_optional:
        miss_level(walking, level)


@kernel("int64(Nodes, Tables, JoinTreeWalk, int32[::1], int32[:,::1], int64)")
def walk(nodes: Nodes, tables: Tables, walking: JoinTreeWalk, starts: Any, out: Any, n: int) -> int:
    """Continue with the rows that begin with `starts`, and write slots by alias into out[:, n:]. Returns the new n. Ends when out is full,
    all is done (state[0, DEPTH] is 0 and state[0, START] after the last start), or after about PATIENCE steps. bounds: int64[p, 2], the
    window, or empty. O(log n) steps between two rows."""
    LINKS, PATHS, bounds, state, lists = tables.LINKS, walking.PATHS, walking.bounds, walking.state, walking.lists
    last, begun = len(state) - 1, state[0, STEPS]
    first = state[0, POSITION]
    while n < out.shape[1] and state[0, STEPS] - begun < PATIENCE:
        level = state[0, DEPTH]
        if level == 0:
            if state[0, START] == len(starts):
                break
            slot = starts[state[0, START]]
            state[0, START] += 1
            state[0, STEPS] += 1
            if len(bounds) > 0 and not within(tables, bounds, first, slot):
                state[0, DEAD] += 1
                continue
            state[0, BOUND] = slot
            if last == 0:
                out[first, n] = slot
                n += 1
                state[0, GAP], state[0, LAST] = max(state[0, GAP], state[0, STEPS] - state[0, LAST]), state[0, STEPS]
            else:
                open_level(nodes, tables, walking, 1)
        elif state[level, AT] == state[level, END]:
            if state[level, MORE] != 0:
                more_of_level(nodes, tables, walking, level, LINKS[PATHS[first, level, 0], FAR])
            else:
                state[0, DEPTH] = level - 1
        elif level < last:
            state[level, BOUND] = lists[level, state[level, AT]]
            state[level, AT] += 1
            open_level(nodes, tables, walking, level + 1)
        else:
            n = emit(LINKS, walking, out, n)
    while state[0, DEPTH] > 0 and state[state[0, DEPTH], AT] == state[state[0, DEPTH], END] and state[state[0, DEPTH], MORE] == 0:
        state[0, DEPTH] -= 1
    return n


@kernel(forceinline=True)
def emit(LINKS: Any, walking: JoinTreeWalk, out: Any, n: int) -> int:
    """Write the rows of the bound entries with all entries of the last level, as far as there is room. Returns the new n."""
    PATHS, state, lists = walking.PATHS, walking.state, walking.lists
    first, last = state[0, POSITION], len(state) - 1
    at = state[last, AT]
    count = min(state[last, END] - at, out.shape[1] - n)
    for level in range(last):
        u = first if level == 0 else LINKS[PATHS[first, level, 0], FAR]
        slot = state[level, BOUND]
        for i in range(n, n + count):
            out[u, i] = slot
    u = LINKS[PATHS[first, last, 0], FAR]
    for i in range(count):
        out[u, n + i] = lists[last, at + i]
    state[last, AT] += count
    state[0, GAP] = max(state[0, GAP], state[0, STEPS] - state[0, LAST])
    state[0, LAST] = state[0, STEPS]
    return n + count


@kernel("void(Nodes, Tables, int64, int64, int64, int32[::1], uint8[::1])")
def hold(nodes: Nodes, tables: Tables, root: int, height: int, p: int, slots: Any, held: Any) -> None:
    """held[i] = 1 iff row slots[i], as port p sees it, is in this tree. Cost: O(log n) a row."""
    W = nodes.W
    for i in range(len(slots)):
        key, slot = code_of(tables, p, slots[i]), slots[i]
        left, _ = ends_of(tables, p, slot)
        o = root
        for _ in range(height):
            o = child_of(W, o, find_child(nodes, o, key, left, 2 * slot))
        at, end = position_of(nodes, o, 0, key, left, slot)
        held[i] = at < end
