"""Enumeration of V-tuples, resumable and (but for bounded fuel) without dead ends: the whole view, windows, deltas, look-ups.

Problem: report all rows (one interval a set, neighbours meeting) whose intervals keep bounds by alias, left <= a and right >= b, some
sets perhaps bound to a given interval already.

    goal    "a v-tuple below node u", with keys, lower bounds, and the goal that follows it. A row is found when no goal is left.
    frame   a goal being worked on, at a node on the way down: lower child; each live split of v; upper child.
            A split replaces the goal by one goal a component: those of the lower side first, bounded from below by the least tuples
            of the upper side (so the upper ones surely follow); then those of the upper side, bounded by the neighbours chosen.
            In a leaf the aliases are bound one by one; after each choice every neighbour must keep a candidate.

Splits are tested exactly (`ij_extreme`). A child is entered if its stored extremes allow it: without bounds from both sides that is
exact, by Closure. Else it may be a dead end, which costs one unit of FUEL; every row gives one back, up to FUEL_MOST; without fuel
children are tested exactly, too. So dead frames are at most FUEL_MOST + rows + those open when the fuel ran out.

State Z, plain data, which is also the cursor. X is scratch.
    Z   counters | bounds by alias | the tuple | candidates in leaves | goals | frames

Costs: polylog(n) steps to the first row and between rows, O(1) a row when rows abound.
Source: Tao and Yi, Lemma 12; ij-heap.md (*Enumeration, with no dead ends*; *second prototype*, 3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.arena import NEG_INF, POS_INF
from structures.ij_bind import leaf_step
from structures.ij_blocks import CHILD, HEIGHT_, key_at, near_at
from structures.ij_extreme import ANSWER, ASK, ASKED, LAST_KEY, extreme, no_bounds
from structures.ij_goals import (
    ANY_KEY,
    BEFORE,
    DEAD,
    DEPTH,
    EACH_KEY,
    F_LEAST,
    F_MOST,
    FRAME0,
    FRAME_WORDS,
    FUEL,
    G_LEAST,
    GOALS,
    GOALS_,
    KEY_HIGH,
    KEY_LOW,
    LEFT_,
    NEXT,
    NEXT_KEY,
    NO_GOAL,
    NODE,
    RIGHT_,
    ROWS,
    ROWS_,
    SHARP,
    SLOT_,
    STEP,
    STEPS,
    SUBSET,
    TOP,
    add_goal,
    begin,
    walk_start,
)
from structures.ij_leaves import KEY_, NEAR_
from structures.ij_topology import (
    ALL,
    MEMBER,
    NSPLITS,
    POS,
    REST,
    SETS,
    SIZE,
    SPAN,
    SPLIT_COUNT,
    SPLIT_CROSS,
    SPLIT_EDGES,
    SPLIT_L,
    SPLIT_PARTS,
    SPLITS,
)
from structures.kernel import kernel


@kernel("void(int64[::1], int32[::1], int32[::1], int64[::1], int64[::1], int64, int64, int64, int64)")
def start_all(M: Any, W: Any, T: Any, Z: Any, X: Any, root: int, key: int, lo: int, hi: int) -> None:
    """Rows of the whole version (key -1) or of one key, whose intervals all meet [lo, hi]. Bounds without a key are answered key by key."""
    walk_start(T, Z, root, lo, hi)
    if key == ANY_KEY and (lo != NEG_INF or hi != POS_INF):
        Z[EACH_KEY], Z[NEXT_KEY] = 1, 0
        return
    g = add_goal(T, Z, root, T[ALL], NO_GOAL, 0, key)
    begin(T, Z, g)
    if not enters(M, W, T, Z, X, FRAME0, root, True):
        Z[DEPTH] = 0


@kernel
def start_partners(
    M: Any, W: Any, T: Any, Z: Any, X: Any, root: int, s: int, key: int, left: int, right: int, slot: int, lo: int, hi: int
) -> None:
    """Rows in which r = [left, right] of set s takes part: the product of the components of the rest, none if one of them has no tuple.
    r itself need not be in the tree."""
    walk_start(T, Z, root, lo, hi)
    if left > hi or right < lo:
        return
    Z[LEFT_ + s], Z[RIGHT_ + s], Z[SLOT_ + s] = left, right, slot
    parts = T[REST + 8 * s]
    g, before = NO_GOAL, (1 << T[SETS]) - 1
    for c in range(parts):
        v = T[REST + 8 * s + 1 + c]
        for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
            before &= ~(1 << T[MEMBER + m])
        g = add_goal(T, Z, root, v, g, before, key)
        begin(T, Z, g)
        Z[DEPTH] = 0
        if not enters(M, W, T, Z, X, FRAME0, root, parts > 1):
            return
    begin(T, Z, g)


@kernel
def next_key(M: Any, W: Any, T: Any, Z: Any, X: Any) -> None:
    """Begin with the next key that has rows; clear EACH_KEY if there is none."""
    no_bounds(X, ASK, 0)
    X[ASK] = Z[NEXT_KEY]
    if Z[NEXT_KEY] > LAST_KEY or not extreme(M, W, T, X, 0, Z[TOP], T[ALL], False):
        Z[EACH_KEY] = 0
        return
    key = X[ANSWER + KEY_]
    Z[NEXT_KEY], Z[GOALS] = key + 1, 0
    begin(T, Z, add_goal(T, Z, Z[TOP], T[ALL], NO_GOAL, 0, key))
    Z[STEPS] += 1
    if not enters(M, W, T, Z, X, FRAME0, Z[TOP], True):
        Z[DEPTH] = 0


# --- tests


@kernel
def has_tuple(M: Any, W: Any, T: Any, Z: Any, X: Any, f: int, o: int, v: int) -> bool:
    """Whether a v-tuple below node o keeps the bounds at X[ASK] and the upper bounds of frame f: exact, by Closure."""
    asked = X[ASKED]
    found = extreme(M, W, T, X, 0, o, v, False)
    Z[STEPS] += X[ASKED] - asked
    if not found or X[ANSWER + KEY_] > Z[f + KEY_HIGH]:
        return False
    if X[ANSWER + KEY_] == Z[f + KEY_HIGH]:
        for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
            i = T[MEMBER + m]
            if X[ANSWER + NEAR_ + i] > Z[f + F_MOST + i]:
                return False
    return True


@kernel
def allows(M: Any, W: Any, T: Any, Z: Any, f: int, o: int, v: int, least: int) -> tuple[bool, bool]:
    """What the extremes of node o say of v-tuples with the lower bounds Z[least + alias] and the upper bounds of frame f:
    (perhaps there is one, surely)."""
    low, high = Z[f + KEY_LOW], Z[f + KEY_HIGH]
    k0, k1 = W[key_at(T, o, 0) + v], W[key_at(T, o, 1) + v]
    if k1 < low or k0 > high:
        return False, False
    begins, ends = near_at(T, o, 0), near_at(T, o, 1)
    span = T[SPAN]
    surely0, surely1 = k0 >= low, k1 <= high
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        i = T[MEMBER + m]
        if k1 == low and M[ends + m] < Z[least + i]:
            return False, False
        if k0 == high and M[begins + m] > Z[f + F_MOST + i]:
            return False, False
        if k0 == low and M[begins + span + m] < Z[least + i]:
            surely0 = False
        if k1 == high and M[ends + span + m] > Z[f + F_MOST + i]:
            surely1 = False
    return True, surely0 or surely1


@kernel
def ask_bounds(Z: Any, X: Any, f: int) -> None:
    X[ASK] = Z[f + KEY_LOW]
    for i in range(6):
        X[ASK + 1 + i] = Z[f + F_LEAST + i]


@kernel
def enters(M: Any, W: Any, T: Any, Z: Any, X: Any, f: int, o: int, exact: bool) -> bool:
    """Whether to work on the goal of frame f below node o."""
    perhaps, surely = allows(M, W, T, Z, f, o, Z[f + SUBSET], f + F_LEAST)
    if not perhaps or surely or not (exact or Z[FUEL] <= 0):
        return perhaps
    ask_bounds(Z, X, f)
    return has_tuple(M, W, T, Z, X, f, o, Z[f + SUBSET])


@kernel
def crosses(M: Any, W: Any, T: Any, Z: Any, f: int, r: int) -> int:
    """The key at which split r of frame f may be live, by the stored extremes; -1 if it surely is not."""
    o = Z[f + NODE]
    lower, upper = M[o + CHILD], M[o + CHILD + 1]
    lows, highs = key_at(T, lower, 1), key_at(T, upper, 0)
    key = W[lows + T[r + SPLIT_PARTS]]
    if key < Z[f + KEY_LOW] or key > Z[f + KEY_HIGH]:
        return -1
    for c in range(1, T[r + SPLIT_COUNT]):
        if W[lows + T[r + SPLIT_PARTS + c]] != key:
            return -1
    for c in range(T[r + SPLIT_COUNT + 1]):
        if W[highs + T[r + SPLIT_PARTS + 6 + c]] != key:
            return -1
    ends, begins = near_at(T, lower, 1), near_at(T, upper, 0)
    for edge in range(r + SPLIT_EDGES, r + SPLIT_EDGES + 4 * T[r + SPLIT_CROSS], 4):
        if M[ends + T[edge + 2]] < M[begins + T[edge + 3]]:
            return -1
    return key


@kernel
def live(M: Any, W: Any, T: Any, Z: Any, X: Any, f: int, r: int, key: int) -> bool:
    """Whether split r of frame f, with `key` by `crosses`, has a tuple within the bounds: exact. The lower bounds that the components of
    the lower side must keep are left in Z[SHARP:] by alias."""
    o = Z[f + NODE]
    lower, upper = M[o + CHILD], M[o + CHILD + 1]
    low = Z[f + KEY_LOW]
    for i in range(6):
        Z[SHARP + i] = Z[f + F_LEAST + i] if key == low else NEG_INF
    for c in range(T[r + SPLIT_COUNT + 1]):
        v = T[r + SPLIT_PARTS + 6 + c]
        if not allows(M, W, T, Z, f, upper, v, f + F_LEAST)[0]:
            return False
        X[ASK] = key
        for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
            i = T[MEMBER + m]
            X[ASK + 1 + i] = Z[f + F_LEAST + i] if key == low else NEG_INF
        if not has_tuple(M, W, T, Z, X, f, upper, v) or X[ANSWER + KEY_] != key:
            return False
        for edge in range(r + SPLIT_EDGES, r + SPLIT_EDGES + 4 * T[r + SPLIT_CROSS], 4):
            i, j = T[edge], T[edge + 1]
            for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
                if T[MEMBER + m] == j:
                    Z[SHARP + i] = max(Z[SHARP + i], X[ANSWER + NEAR_ + j])
    for c in range(T[r + SPLIT_COUNT]):
        v = T[r + SPLIT_PARTS + c]
        perhaps, surely = allows_at(M, W, T, Z, f, lower, v, key)
        if not perhaps:
            return False
        if surely:
            continue
        X[ASK] = key
        for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
            i = T[MEMBER + m]
            X[ASK + 1 + i] = Z[SHARP + i]
        if not has_tuple(M, W, T, Z, X, f, lower, v):
            return False
    return True


@kernel
def allows_at(M: Any, W: Any, T: Any, Z: Any, f: int, o: int, v: int, key: int) -> tuple[bool, bool]:
    """As `allows`, with `key`, the greatest below node o, as the least one, and SHARP as lower bounds."""
    low = Z[f + KEY_LOW]
    Z[f + KEY_LOW] = key
    answer = allows(M, W, T, Z, f, o, v, SHARP)
    Z[f + KEY_LOW] = low
    return answer


# --- working


@kernel
def divide(M: Any, W: Any, T: Any, Z: Any, f: int, r: int, key: int) -> None:
    """Replace the goal of frame f by those of live split r, and begin the first."""
    o = Z[f + NODE]
    v, low = Z[f + SUBSET], T[r + SPLIT_L]
    g, before = Z[f + NEXT], Z[f + BEFORE]
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        before |= 1 << T[MEMBER + m]
    same = key == Z[f + KEY_LOW]
    for side in range(1, -1, -1):
        for c in range(T[r + SPLIT_COUNT + side]):
            part = T[r + SPLIT_PARTS + 6 * side + c]
            for m in range(T[POS + part], T[POS + part] + T[SIZE + part]):
                before &= ~(1 << T[MEMBER + m])
            g = add_goal(T, Z, M[o + CHILD + side], part, g, before, key)
            for m in range(T[POS + part], T[POS + part] + T[SIZE + part]):
                i = T[MEMBER + m]
                if (low >> i) & 1 != 0:
                    Z[g + G_LEAST + i] = Z[SHARP + i]
                elif same:
                    Z[g + G_LEAST + i] = Z[f + F_LEAST + i]
    begin(T, Z, g)


@kernel
def go_down(Z: Any, f: int, to: int, o: int) -> None:
    """Work on the goal of frame f below node o, in the frame at `to` (f itself, or behind it)."""
    if to != f:
        for i in range(FRAME_WORDS):
            Z[to + i] = Z[f + i]
    Z[to + NODE], Z[to + STEP], Z[to + ROWS_] = o, 0, Z[ROWS]


@kernel
def inner_step(M: Any, W: Any, T: Any, Z: Any, X: Any, f: int) -> bool:
    """Go on at an inner node: False when the frame is done with."""
    o, v = Z[f + NODE], Z[f + SUBSET]
    if Z[f + STEP] == 0:
        Z[f + STEP] = 1
        if enters(M, W, T, Z, X, f, M[o + CHILD], False):
            Z[DEPTH] += 1
            go_down(Z, f, f + FRAME_WORDS, M[o + CHILD])
            return True
    Z[GOALS] = Z[f + GOALS_]
    splits, records = T[NSPLITS + v], T[SPLITS + v]
    while Z[f + STEP] <= splits:
        r = T[records + Z[f + STEP] - 1]
        Z[f + STEP] += 1
        key = crosses(M, W, T, Z, f, r)
        if key >= 0 and live(M, W, T, Z, X, f, r, key):
            divide(M, W, T, Z, f, r, key)
            return True
    if enters(M, W, T, Z, X, f, M[o + CHILD + 1], False):
        go_down(Z, f, f, M[o + CHILD + 1])
        return True
    return False


@kernel
def walk(M: Any, W: Any, T: Any, Z: Any, X: Any, out: Any, stride: int, n: int, end: int, until: int) -> int:
    """Go on until `end` rows are in out (alias i at stride * i), the steps pass `until`, or Z[DEPTH] is 0: all found. Rows in out."""
    while Z[DEPTH] > 0 and Z[STEPS] < until:
        f = FRAME0 + FRAME_WORDS * (Z[DEPTH] - 1)
        Z[STEPS] += 1
        if W[2 * Z[f + NODE] + HEIGHT_] == 0:
            depth = Z[DEPTH]
            n = leaf_step(M, W, T, Z, f, out, stride, n, end)
            if n == end and Z[f + STEP] > 0:
                return n
            done = Z[DEPTH] == depth and Z[f + STEP] == 0
        else:
            done = not inner_step(M, W, T, Z, X, f)
        if done:
            Z[DEPTH] -= 1
            if Z[ROWS] == Z[f + ROWS_]:
                Z[DEAD] += 1
                Z[FUEL] -= 1
    return n


@kernel("int64(int64[::1], int32[::1], int32[::1], int64[::1], int64[::1], int32[::1], int64, int64)")
def walk_fill(M: Any, W: Any, T: Any, Z: Any, X: Any, out: Any, stride: int, steps: int) -> int:
    """Up to `stride` rows into out, within about so many steps; all are found when Z[DEPTH] and Z[EACH_KEY] are 0 after it."""
    n, until = 0, Z[STEPS] + steps
    while n < stride and Z[STEPS] < until:
        if Z[DEPTH] == 0:
            if Z[EACH_KEY] == 0:
                break
            next_key(M, W, T, Z, X)
        n = walk(M, W, T, Z, X, out, stride, n, stride, until)
    return n


@kernel(
    "int64(int64[::1], int32[::1], int32[::1], int64[::1], int64[::1], int64[::1], int64, uint8[::1], int32[::1], int64[::1],"
    " int64[::1], int32[::1], int64, int64, int32[::1], int64, int64)"
)
def partners_fill(
    M: Any, W: Any, T: Any, Z: Any, X: Any, N: Any, root: int, sets: Any, keys: Any, lefts: Any, rights: Any, slots: Any,
    lo: int, hi: int, out: Any, stride: int, steps: int,
) -> int:  # fmt: skip
    """Rows of entry after entry, all intervals meeting [lo, hi], as `walk_fill`; N[0] entries have begun, all found when Z[DEPTH] is 0."""
    n, until = 0, Z[STEPS] + steps
    while n < stride and Z[STEPS] < until:
        if Z[DEPTH] == 0:
            e = N[0]
            if e == len(sets):
                break
            N[0] = e + 1
            Z[STEPS] += 1
            s, key, slot = np.int64(sets[e]), np.int64(keys[e]), np.int64(slots[e])
            start_partners(M, W, T, Z, X, root, s, key, lefts[e], rights[e], slot, lo, hi)
        n = walk(M, W, T, Z, X, out, stride, n, stride, until)
    return n
