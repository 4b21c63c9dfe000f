"""The whole view: every row once, as contiguous runs, resumable between two leaves.

Problem: report all pairs x, y with x before y in the tree's order and (key, left) of y <= (key, right) of x,
for x, y in [low, high] of the order; in alias order (set 0, set 1), or (earlier, later) for one set.

    source leaf S:   part 0   pairs inside S
                     part 1   set 0 of S against runs of set 1 in the later leaves T = T1, T2, ...
                     part 2   set 1 of S against runs of set 0 in the later leaves
The source walk enters a child iff it is live or reaches the first entry of the other set to its right: the
productive nodes of the paper. The target walk goes right from S and ends at the first leaf that begins
beyond the largest right endpoint of S. Of S, `reach` lists the entries that still reach the target.

State Z, plain data, which is also the cursor; the unit of resumption is one (S, T): at most B * B rows.

Costs: O(log n) steps between rows, about one a row. Source: Tao and Yi, Theorem 1; docs/design/ij-heap.md (*Whole view*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from structures.core.arena import KEY_MAX, B, F
from structures.core.bits import lowest
from structures.core.blocks import Nodes
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import arrays, kernel
from structures.ordered.layout import CHILDREN, KEY, KL, KR, LEFT, LIVE_CHILDREN, ML, MR, RIGHT, SLOT, child_of, run_of
from structures.ordered.leaves import position
from structures.ordered.search import wholly_before
from structures.ordered.summary import SELF

(DEPTH, PART, SOURCE, NEXT0_KEY, NEXT0, NEXT1_KEY, NEXT1, TARGET_DEPTH, REACHING, BOUND_KEY, BOUND) = range(11)
LOW_KEY, LOW, HIGH_KEY, HIGH, STEPS, LAST, GAP, TOP, LEVELS, KIND_, DONE = range(11, 22)
ROOT_LEAF = 22
FRAME = 7  # node, mask of children to enter, current child, and the outer NEXT0_KEY..NEXT1
FRAMES = 24
TARGETS = FRAMES + FRAME * 48  # frames of the target walk: node, next child
REACH = TARGETS + 2 * 48  # places in S that reach the target
WALK_WORDS = REACH + B

NEXT_SOURCE = -1  # PART: go to the next source leaf


@arrays("int64", "int64", "int64", "int64")
class Stretch(NamedTuple):
    """Of the order, from one (key, left) to another, both included."""

    low_key: int
    low: int
    high_key: int
    high: int


WHOLE = Stretch(-1, NEG_INF, KEY_MAX, POS_INF)


@kernel("void(Nodes, int64[::1], int64, int64, int64, Stretch)")
def walk_start(nodes: Nodes, Z: Any, root: int, height: int, kind: int, stretch: Stretch) -> None:
    """Begin a walk of the tree at `root` in the state `Z`: pairs of two sets, or of one (`kind`), within a stretch of the order. O(1)."""
    Z[LOW_KEY], Z[LOW], Z[HIGH_KEY], Z[HIGH] = stretch
    Z[TOP], Z[LEVELS], Z[KIND_], Z[DONE] = root, height, kind, 0
    Z[PART], Z[DEPTH], Z[TARGET_DEPTH] = NEXT_SOURCE, 0, 0
    Z[ROOT_LEAF] = 1 if height == 0 else 0
    if height > 0:
        push_source(nodes, Z, root, KEY_MAX, POS_INF, KEY_MAX, POS_INF)


@kernel
def not_before(k: int, v: int, key: int, value: int) -> bool:
    return k > key or (k == key and v >= value)


@kernel
def push_source(nodes: Nodes, Z: Any, o: int, key0: int, next0: int, key1: int, next1: int) -> None:
    """Push node o; (key_s, next_s): the first entry of set s to its right."""
    M, W = nodes.M, nodes.W
    f = FRAMES + FRAME * Z[DEPTH]
    Z[f], Z[f + 3], Z[f + 4], Z[f + 5], Z[f + 6] = o, key0, next0, key1, next1
    single = Z[KIND_] == SELF
    live = W[2 * o + LIVE_CHILDREN]
    mask = 0
    for c in range(W[2 * o + CHILDREN] - 1, -1, -1):
        kr0, kl0, l0 = W[2 * o + KR + c], W[2 * o + KL + c], M[o + ML + c]
        kr1, kl1, l1 = W[2 * o + KR + F + c], W[2 * o + KL + F + c], M[o + ML + F + c]
        if single:
            enter = not_before(kr0, M[o + MR + c], key0, next0)
        else:
            enter = not_before(kr0, M[o + MR + c], key1, next1) or not_before(kr1, M[o + MR + F + c], key0, next0)
        if enter or (live >> c) & 1 != 0:
            begins = not_before(Z[HIGH_KEY], Z[HIGH], kl0, l0) or not_before(Z[HIGH_KEY], Z[HIGH], kl1, l1)
            if begins and not (c + 1 < W[2 * o + CHILDREN] and wholly_before(nodes, o, c, Z[LOW_KEY], Z[LOW], -1)):
                mask |= 1 << c
        if kl0 != KEY_MAX:
            key0, next0 = kl0, l0
        if kl1 != KEY_MAX:
            key1, next1 = kl1, l1
    Z[f + 1] = mask
    Z[DEPTH] += 1


@kernel
def next_source(nodes: Nodes, Z: Any) -> bool:
    """Go to the next productive leaf: Z[SOURCE], and the first entries to its right in Z[NEXT0_KEY:]."""
    M, W = nodes.M, nodes.W
    if Z[ROOT_LEAF] == 1:
        Z[ROOT_LEAF] = 0
        Z[SOURCE] = Z[TOP]
        Z[NEXT0_KEY], Z[NEXT0], Z[NEXT1_KEY], Z[NEXT1] = KEY_MAX, POS_INF, KEY_MAX, POS_INF
        Z[STEPS] += 1
        return True
    while Z[DEPTH] > 0:
        f = FRAMES + FRAME * (Z[DEPTH] - 1)
        o, mask = Z[f], Z[f + 1]
        if mask == 0:
            Z[DEPTH] -= 1
            continue
        c = lowest(mask)
        Z[f + 1], Z[f + 2] = mask & (mask - 1), c
        Z[STEPS] += 1
        for s in range(2):
            Z[NEXT0_KEY + 2 * s], Z[NEXT0 + 2 * s] = Z[f + 3 + 2 * s], Z[f + 4 + 2 * s]
            for e in range(c + 1, W[2 * o + CHILDREN]):
                if W[2 * o + KL + s * F + e] != KEY_MAX:
                    Z[NEXT0_KEY + 2 * s], Z[NEXT0 + 2 * s] = W[2 * o + KL + s * F + e], M[o + ML + s * F + e]
                    break
        child = child_of(W, o, c)
        if Z[DEPTH] == Z[LEVELS]:
            Z[SOURCE] = child
            return True
        push_source(nodes, Z, child, Z[NEXT0_KEY], Z[NEXT0], Z[NEXT1_KEY], Z[NEXT1])
    return False


@kernel
def within(nodes: Nodes, Z: Any, o: int, s: int) -> tuple[int, int]:
    """The places of set s in leaf o whose (key, left) lies in [low, high]."""
    M, W = nodes.M, nodes.W
    lo, hi = run_of(W, o, s)
    if lo < hi and not not_before(W[2 * o + KEY + lo], M[o + LEFT + lo], Z[LOW_KEY], Z[LOW]):
        lo = position(nodes, o, lo, hi, Z[LOW_KEY], Z[LOW], -1)
    if lo < hi and not not_before(Z[HIGH_KEY], Z[HIGH], W[2 * o + KEY + hi - 1], M[o + LEFT + hi - 1]):
        hi = position(nodes, o, lo, hi, Z[HIGH_KEY], Z[HIGH], KEY_MAX)
    return lo, hi


@kernel
def note_row(Z: Any) -> None:
    Z[GAP] = max(Z[GAP], Z[STEPS] - Z[LAST])
    Z[LAST] = Z[STEPS]


@kernel
def runs_inside(
    nodes: Nodes, Z: Any, x: tuple[int, int], y: tuple[int, int], strict: bool, own: Any, other: Any, n: int
) -> int:  # fmt: skip
    """Rows of what lies in the places x, [lo, hi), of the source leaf with the run of what lies in y that begins in it: at its left end or
    later, later if strict."""
    M, W = nodes.M, nodes.W
    o, (lo, hi), (a, end) = Z[SOURCE], x, y
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
        Z[STEPS] += 1
        if e > a:
            note_row(Z)
    return n


@kernel
def pairs_inside(nodes: Nodes, Z: Any, out0: Any, out1: Any, n: int) -> int:
    """Part 0: the rows inside the source leaf."""
    M, W = nodes.M, nodes.W
    o = Z[SOURCE]
    i0, i1 = within(nodes, Z, o, 0)
    if Z[KIND_] == SELF:
        for i in range(i0, i1):
            k, right, slot = W[2 * o + KEY + i], M[o + RIGHT + i], W[2 * o + SLOT + i]
            e = i + 1
            while e < i1 and M[o + LEFT + e] <= right and W[2 * o + KEY + e] == k:
                out0[n], out1[n] = slot, W[2 * o + SLOT + e]
                n += 1
                e += 1
            Z[STEPS] += 1
            if e > i + 1:
                note_row(Z)
        return n
    x, y = (i0, i1), within(nodes, Z, o, 1)
    n = runs_inside(nodes, Z, x, y, False, out0, out1, n)
    return runs_inside(nodes, Z, y, x, True, out1, out0, n)


@kernel
def begin_part(nodes: Nodes, Z: Any, s: int, t: int) -> None:
    """List the entries of set s in the source leaf that reach the first entry of set t to its right, and stand at that leaf."""
    M, W = nodes.M, nodes.W
    o = Z[SOURCE]
    key, first = Z[NEXT0_KEY + 2 * t], Z[NEXT0 + 2 * t]
    Z[TARGET_DEPTH], Z[REACHING] = 0, 0
    if not not_before(Z[HIGH_KEY], Z[HIGH], key, first) or key == KEY_MAX:
        return
    lo, hi = within(nodes, Z, o, s)
    n, most = 0, NEG_INF
    for i in range(hi - 1, lo - 1, -1):
        if W[2 * o + KEY + i] != key:
            break
        right = M[o + RIGHT + i]
        Z[REACH + n] = i
        n += right >= first
        most = max(most, right)
    if n == 0:
        return
    Z[REACHING] = n
    Z[BOUND_KEY] = key
    Z[BOUND] = min(most, Z[HIGH]) if Z[HIGH_KEY] == key else most
    for d in range(Z[LEVELS]):
        f = FRAMES + FRAME * d
        Z[TARGETS + 2 * d], Z[TARGETS + 2 * d + 1] = Z[f], Z[f + 2] + 1
    Z[TARGET_DEPTH] = Z[LEVELS]


@kernel
def next_target(nodes: Nodes, Z: Any, t: int) -> int:
    """The next leaf to the right that begins within the bound in set t; 0 when there is none."""
    M, W = nodes.M, nodes.W
    while Z[TARGET_DEPTH] > 0:
        g = TARGETS + 2 * (Z[TARGET_DEPTH] - 1)
        o, c = Z[g], Z[g + 1]
        while c < W[2 * o + CHILDREN] and W[2 * o + KL + t * F + c] == KEY_MAX:
            c += 1
        if c == W[2 * o + CHILDREN]:
            Z[TARGET_DEPTH] -= 1
            continue
        if not not_before(Z[BOUND_KEY], Z[BOUND], W[2 * o + KL + t * F + c], M[o + ML + t * F + c]):
            break
        Z[g + 1] = c + 1
        Z[STEPS] += 1
        child = child_of(W, o, c)
        if Z[TARGET_DEPTH] == Z[LEVELS]:
            return child
        Z[g + 2], Z[g + 3] = child, 0
        Z[TARGET_DEPTH] += 1
    Z[TARGET_DEPTH] = 0
    return 0


@kernel
def runs_across(nodes: Nodes, Z: Any, target: int, t: int, own: Any, other: Any, n: int) -> int:
    """Rows of the reaching entries of the source leaf with their runs of set t at the beginning of the target leaf."""
    M, W = nodes.M, nodes.W
    o = Z[SOURCE]
    first, end = run_of(W, target, t)
    while end > first and W[2 * target + KEY + end - 1] != Z[BOUND_KEY]:
        end -= 1
    last = M[target + LEFT + end - 1]
    beyond = Z[HIGH] if Z[HIGH_KEY] == Z[BOUND_KEY] else POS_INF
    left = M[target + LEFT + first]
    kept = 0
    for r in range(Z[REACHING]):
        i = Z[REACH + r]
        right = min(M[o + RIGHT + i], beyond)
        Z[STEPS] += 1
        if right < left:
            continue
        Z[REACH + kept] = i
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
        note_row(Z)
    Z[REACHING] = kept
    return n


@kernel("int64(Nodes, int64[::1], int32[::1], int32[::1], int64)")
def walk_fill(nodes: Nodes, Z: Any, out0: Any, out1: Any, want: int) -> int:
    """Go on with the walk until `want` rows are written or Z[DONE]; out0, out1 must hold want + B * B."""
    n = 0
    while n < want:
        part = Z[PART]
        if part == NEXT_SOURCE:
            if not next_source(nodes, Z):
                Z[DONE] = 1
                break
            n = pairs_inside(nodes, Z, out0, out1, n)
            Z[PART] = 1
            begin_part(nodes, Z, 0, 0 if Z[KIND_] == SELF else 1)
            continue
        t = 1 if part == 1 and Z[KIND_] != SELF else 0
        target = next_target(nodes, Z, t) if Z[TARGET_DEPTH] > 0 else 0
        if target != 0:
            if part == 1:
                n = runs_across(nodes, Z, target, t, out0, out1, n)
            else:
                n = runs_across(nodes, Z, target, t, out1, out0, n)
        elif part == 1 and Z[KIND_] != SELF:
            Z[PART] = 2
            begin_part(nodes, Z, 1, 0)
        else:
            Z[PART] = NEXT_SOURCE
    return n
