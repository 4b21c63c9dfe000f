"""The whole view: every row once, as contiguous runs, resumable between two leaves.

Problem: report all pairs x, y with x before y in the tree's order and (key, left) of y <= (key, right) of x,
for x, y in [low, high] of the order; in alias order (set 0, set 1), or (earlier, later) for one set.

    source leaf S:   part 0   pairs inside S
                     part 1   set 0 of S against runs of set 1 in the later leaves T = T1, T2, ...
                     part 2   set 1 of S against runs of set 0 in the later leaves
The source walk enters a child iff it is live or reaches the first entry of the other set to its right: the
productive nodes of the paper. The target walk goes right from S and ends at the first leaf that begins
beyond the largest right endpoint of S. `reach` lists the entries of S that still reach the target.

The state is plain data, which is also the cursor; the unit of resumption is one (S, T): at most B * B rows.

Costs: O(log n) steps between rows, about one a row. Source: Tao and Yi, Theorem 1; docs/design/ij-heap.md (*Whole view*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from structures.core.arena import KEY_MAX, B, F
from structures.core.bits import lowest
from structures.core.blocks import Nodes
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import arrays, kernel
from structures.ordered.layout import (
    CHILDREN,
    KEY,
    KL,
    KR,
    LEFT,
    LIVE_CHILDREN,
    ML,
    MOST_LEVELS,
    MR,
    RIGHT,
    SLOT,
    TreePosition,
    child_of,
    run_of,
)
from structures.ordered.leaves import position
from structures.ordered.search import wholly_before
from structures.ordered.summary import SELF

(DEPTH, PART, SOURCE, NEXT0_KEY, NEXT0, NEXT1_KEY, NEXT1, TARGET_DEPTH, REACHING, BOUND_KEY, BOUND) = range(11)
LOW_KEY, LOW, HIGH_KEY, HIGH, STEPS, LAST, GAP, TOP, LEVELS, KIND_, DONE = range(11, 22)
ROOT_LEAF = 22
FRAME = 7  # node, mask of children to enter, current child, and the outer NEXT0_KEY..NEXT1
FRAMES = 24
TARGETS = FRAMES + FRAME * MOST_LEVELS  # frames of the target walk: node, next child
REACH = TARGETS + 2 * MOST_LEVELS  # places in S that reach the target
WALK_WORDS = REACH + B

NEXT_SOURCE = -1  # PART: go to the next source leaf


@arrays("int64", "int64", "int64", "int64")
class KeyRange(NamedTuple):
    """A range of the order, from one (key, left) to another, both included."""

    low_key: int
    low: int
    high_key: int
    high: int


WHOLE = KeyRange(-1, NEG_INF, KEY_MAX, POS_INF)


@kernel("void(Nodes, int64[::1], int64, int64, int64, KeyRange)")
def walk_start(nodes: Nodes, state: Any, root: int, height: int, kind: int, stretch: KeyRange) -> None:
    """Begin a walk of the tree at `root`: pairs of two sets, or of one (`kind`), within a stretch of the order. O(1)."""
    state[LOW_KEY], state[LOW], state[HIGH_KEY], state[HIGH] = stretch
    state[TOP], state[LEVELS], state[KIND_], state[DONE] = root, height, kind, 0
    state[PART], state[DEPTH], state[TARGET_DEPTH] = NEXT_SOURCE, 0, 0
    state[ROOT_LEAF] = 1 if height == 0 else 0
    if height > 0:
        push_source(nodes, state, root, KEY_MAX, POS_INF, KEY_MAX, POS_INF)


@kernel
def not_before(key: int, value: int, other_key: int, other: int) -> bool:
    return key > other_key or (key == other_key and value >= other)


@kernel
def push_source(nodes: Nodes, state: Any, o: int, key0: int, next0: int, key1: int, next1: int) -> None:
    """Push node o; (key_s, next_s) is the first entry of set s to its right."""
    M, W = nodes.M, nodes.W
    f = FRAMES + FRAME * state[DEPTH]
    state[f], state[f + 3], state[f + 4], state[f + 5], state[f + 6] = o, key0, next0, key1, next1
    is_self = state[KIND_] == SELF
    live = W[2 * o + LIVE_CHILDREN]
    mask = 0
    for c in range(W[2 * o + CHILDREN] - 1, -1, -1):
        kr0, kl0, l0 = W[2 * o + KR + c], W[2 * o + KL + c], M[o + ML + c]
        kr1, kl1, l1 = W[2 * o + KR + F + c], W[2 * o + KL + F + c], M[o + ML + F + c]
        if is_self:
            enter = not_before(kr0, M[o + MR + c], key0, next0)
        else:
            enter = not_before(kr0, M[o + MR + c], key1, next1) or not_before(kr1, M[o + MR + F + c], key0, next0)
        if enter or (live >> c) & 1 != 0:
            begins = not_before(state[HIGH_KEY], state[HIGH], kl0, l0) or not_before(state[HIGH_KEY], state[HIGH], kl1, l1)
            if begins and not (c + 1 < W[2 * o + CHILDREN] and wholly_before(nodes, o, c, TreePosition(state[LOW_KEY], state[LOW], -1))):
                mask |= 1 << c
        if kl0 != KEY_MAX:
            key0, next0 = kl0, l0
        if kl1 != KEY_MAX:
            key1, next1 = kl1, l1
    state[f + 1] = mask
    state[DEPTH] += 1


@kernel
def next_source(nodes: Nodes, state: Any) -> bool:
    """Go to the next productive leaf: state[SOURCE], with the first entries to its right in state[NEXT0_KEY:]. False if there is none."""
    M, W = nodes.M, nodes.W
    if state[ROOT_LEAF] == 1:
        state[ROOT_LEAF] = 0
        state[SOURCE] = state[TOP]
        state[NEXT0_KEY], state[NEXT0], state[NEXT1_KEY], state[NEXT1] = KEY_MAX, POS_INF, KEY_MAX, POS_INF
        state[STEPS] += 1
        return True
    while state[DEPTH] > 0:
        f = FRAMES + FRAME * (state[DEPTH] - 1)
        o, mask = state[f], state[f + 1]
        if mask == 0:
            state[DEPTH] -= 1
            continue
        c = lowest(mask)
        state[f + 1], state[f + 2] = mask & (mask - 1), c
        state[STEPS] += 1
        for s in range(2):
            state[NEXT0_KEY + 2 * s], state[NEXT0 + 2 * s] = state[f + 3 + 2 * s], state[f + 4 + 2 * s]
            for e in range(c + 1, W[2 * o + CHILDREN]):
                if W[2 * o + KL + s * F + e] != KEY_MAX:
                    state[NEXT0_KEY + 2 * s], state[NEXT0 + 2 * s] = W[2 * o + KL + s * F + e], M[o + ML + s * F + e]
                    break
        child = child_of(W, o, c)
        if state[DEPTH] == state[LEVELS]:
            state[SOURCE] = child
            return True
        push_source(nodes, state, child, state[NEXT0_KEY], state[NEXT0], state[NEXT1_KEY], state[NEXT1])
    return False


@kernel
def within(nodes: Nodes, state: Any, o: int, s: int) -> tuple[int, int]:
    """The places of the entries of set s in leaf o whose (key, left) lies in [low, high]."""
    M, W = nodes.M, nodes.W
    lo, hi = run_of(W, o, s)
    if lo < hi and not not_before(W[2 * o + KEY + lo], M[o + LEFT + lo], state[LOW_KEY], state[LOW]):
        lo = position(nodes, o, lo, hi, state[LOW_KEY], state[LOW], -1)
    if lo < hi and not not_before(state[HIGH_KEY], state[HIGH], W[2 * o + KEY + hi - 1], M[o + LEFT + hi - 1]):
        hi = position(nodes, o, lo, hi, state[HIGH_KEY], state[HIGH], KEY_MAX)
    return lo, hi


@kernel
def note_row(state: Any) -> None:
    state[GAP] = max(state[GAP], state[STEPS] - state[LAST])
    state[LAST] = state[STEPS]


@kernel
def runs_inside(
    nodes: Nodes, state: Any, mine: tuple[int, int], theirs: tuple[int, int], strict: bool, own: Any, other: Any, n: int
) -> int:  # fmt: skip
    """Rows of the entries at the places `mine`, [lo, hi), of the source leaf, each with the run of entries at the places `theirs` that
    begin within it: at its left end or later, or only later if `strict`."""
    M, W = nodes.M, nodes.W
    o, (lo, hi), (a, end) = state[SOURCE], mine, theirs
    for i in range(lo, hi):
        k, left, right = W[2 * o + KEY + i], M[o + LEFT + i], M[o + RIGHT + i]
        while a < end:
            ka, la = W[2 * o + KEY + a], M[o + LEFT + a]
            if ka > k or (ka == k and (la > left or (la == left and not strict))):
                break
            a += 1
        e = a
        slot = W[2 * o + SLOT + i]
        while e < end and M[o + LEFT + e] <= right and W[2 * o + KEY + e] == k:
            own[n] = slot
            other[n] = W[2 * o + SLOT + e]
            n += 1
            e += 1
        state[STEPS] += 1
        if e > a:
            note_row(state)
    return n


@kernel
def pairs_inside(nodes: Nodes, state: Any, out0: Any, out1: Any, n: int) -> int:
    """Part 0: the rows within the source leaf."""
    M, W = nodes.M, nodes.W
    o = state[SOURCE]
    i0, i1 = within(nodes, state, o, 0)
    if state[KIND_] == SELF:
        for i in range(i0, i1):
            k, right, slot = W[2 * o + KEY + i], M[o + RIGHT + i], W[2 * o + SLOT + i]
            e = i + 1
            while e < i1 and M[o + LEFT + e] <= right and W[2 * o + KEY + e] == k:
                out0[n], out1[n] = slot, W[2 * o + SLOT + e]
                n += 1
                e += 1
            state[STEPS] += 1
            if e > i + 1:
                note_row(state)
        return n
    x, y = (i0, i1), within(nodes, state, o, 1)
    n = runs_inside(nodes, state, x, y, False, out0, out1, n)
    return runs_inside(nodes, state, y, x, True, out1, out0, n)


@kernel
def begin_part(nodes: Nodes, state: Any, s: int, t: int) -> None:
    """List the entries of set s in the source leaf that reach the first entry of set t to its right, and begin the target walk at that
    leaf."""
    M, W = nodes.M, nodes.W
    o = state[SOURCE]
    key, first = state[NEXT0_KEY + 2 * t], state[NEXT0 + 2 * t]
    state[TARGET_DEPTH], state[REACHING] = 0, 0
    if not not_before(state[HIGH_KEY], state[HIGH], key, first) or key == KEY_MAX:
        return
    lo, hi = within(nodes, state, o, s)
    n, most = 0, NEG_INF
    for i in range(hi - 1, lo - 1, -1):
        if W[2 * o + KEY + i] != key:
            break
        right = M[o + RIGHT + i]
        state[REACH + n] = i
        n += right >= first
        most = max(most, right)
    if n == 0:
        return
    state[REACHING] = n
    state[BOUND_KEY] = key
    state[BOUND] = min(most, state[HIGH]) if state[HIGH_KEY] == key else most
    for d in range(state[LEVELS]):
        f = FRAMES + FRAME * d
        state[TARGETS + 2 * d], state[TARGETS + 2 * d + 1] = state[f], state[f + 2] + 1
    state[TARGET_DEPTH] = state[LEVELS]


@kernel
def next_target(nodes: Nodes, state: Any, t: int) -> int:
    """The next leaf to the right that begins within the bound in set t; 0 if there is none."""
    M, W = nodes.M, nodes.W
    while state[TARGET_DEPTH] > 0:
        g = TARGETS + 2 * (state[TARGET_DEPTH] - 1)
        o, c = state[g], state[g + 1]
        while c < W[2 * o + CHILDREN] and W[2 * o + KL + t * F + c] == KEY_MAX:
            c += 1
        if c == W[2 * o + CHILDREN]:
            state[TARGET_DEPTH] -= 1
            continue
        if not not_before(state[BOUND_KEY], state[BOUND], W[2 * o + KL + t * F + c], M[o + ML + t * F + c]):
            break
        state[g + 1] = c + 1
        state[STEPS] += 1
        child = child_of(W, o, c)
        if state[TARGET_DEPTH] == state[LEVELS]:
            return child
        state[g + 2], state[g + 3] = child, 0
        state[TARGET_DEPTH] += 1
    state[TARGET_DEPTH] = 0
    return 0


@kernel
def runs_across(nodes: Nodes, state: Any, target: int, t: int, own: Any, other: Any, n: int) -> int:
    """Rows of the reaching entries of the source leaf with their runs of set t at the beginning of the target leaf."""
    M, W = nodes.M, nodes.W
    o = state[SOURCE]
    first, end = run_of(W, target, t)
    while end > first and W[2 * target + KEY + end - 1] != state[BOUND_KEY]:
        end -= 1
    last = M[target + LEFT + end - 1]
    beyond = state[HIGH] if state[HIGH_KEY] == state[BOUND_KEY] else POS_INF
    left = M[target + LEFT + first]
    kept = 0
    for r in range(state[REACHING]):
        i = state[REACH + r]
        right = min(M[o + RIGHT + i], beyond)
        state[STEPS] += 1
        if right < left:
            continue
        state[REACH + kept] = i
        kept += 1
        slot = W[2 * o + SLOT + i]
        e = end
        if last > right:
            e = first + 1
            while M[target + LEFT + e] <= right:
                e += 1
        m = e - first
        for j in range(m):
            own[n + j] = slot
            other[n + j] = W[2 * target + SLOT + first + j]
        n += m
        note_row(state)
    state[REACHING] = kept
    return n


@kernel("int64(Nodes, int64[::1], int32[::1], int32[::1], int64)")
def walk_fill(nodes: Nodes, state: Any, out0: Any, out1: Any, want: int) -> int:
    """Continue the walk until `want` rows are written or state[DONE] is set; out0 and out1 must hold want + B * B rows. O(log n) steps
    between rows, O(1) a row where rows abound."""
    n = 0
    while n < want:
        part = state[PART]
        if part == NEXT_SOURCE:
            if not next_source(nodes, state):
                state[DONE] = 1
                break
            n = pairs_inside(nodes, state, out0, out1, n)
            state[PART] = 1
            begin_part(nodes, state, 0, 0 if state[KIND_] == SELF else 1)
            continue
        t = 1 if part == 1 and state[KIND_] != SELF else 0
        target = next_target(nodes, state, t) if state[TARGET_DEPTH] > 0 else 0
        if target != 0:
            if part == 1:
                n = runs_across(nodes, state, target, t, out0, out1, n)
            else:
                n = runs_across(nodes, state, target, t, out1, out0, n)
        elif part == 1 and state[KIND_] != SELF:
            state[PART] = 2
            begin_part(nodes, state, 1, 0)
        else:
            state[PART] = NEXT_SOURCE
    return n
