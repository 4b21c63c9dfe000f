"""Enumeration of V-tuples, resumable and (but for bounded fuel) without dead ends: the whole view, windows, deltas, look-ups.

Problem: report all rows (one interval a set, neighbours meeting) whose intervals keep bounds by alias, left <= most and right >= least,
some sets perhaps bound to a given interval already.

    goal    "a v-tuple below node u", with keys, bounds, and the goal that follows it. A row is found when no goal is left.
    frame   a goal being worked on, at a node on the way down: lower child; each live split of v; upper child.
            A split replaces the goal by one goal a component: those of the lower side first, bounded from below by the least tuples
            of the upper side (so the upper ones surely follow); then those of the upper side, bounded by the neighbours chosen.
            In a leaf the aliases are bound one by one (`bind.py`). Few entries across a node, or few partners of an interval, are
            gathered into a strip, which is worked on like a leaf (`strip.py`), instead of being divided.

Splits are tested exactly (`multiway.extreme`). A child is entered if its stored extremes allow it: without bounds from both sides that is
exact, by Closure. Else it may be a dead end, which costs one unit of FUEL; every row gives one back, up to FUEL_MOST; without fuel
children are tested exactly, too. So dead frames are at most FUEL_MOST + rows + those open when the fuel ran out.

The rows of a given interval: its neighbours are bounded by it, theirs by what these can reach, and so on; so the search stays near it.

Costs: polylog(n) steps to the first row and between rows, O(1) a row when rows abound.
Source: Tao and Yi, Lemma 12; docs/design/ij-heap.md (*Enumeration, with no dead ends*; *Existence tests*).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import KEY_MAX
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries, Entry, Told, entry_of
from structures.core.kernel import kernel, wide
from structures.ij_heap.bind import leaf_step
from structures.ij_heap.goals import (
    ANY_KEY,
    CROSSING,
    DEAD,
    DEPTH,
    EACH_KEY,
    FRAME0,
    FRAME_WORDS,
    FUEL,
    G_BEFORE,
    G_FREE,
    G_HIGH,
    G_LOW,
    G_NEXT,
    G_SUBSET,
    GIVEN_LEAST,
    GIVEN_MOST,
    GOAL,
    GOALS,
    GOALS_,
    IN_STRIP,
    ITEM,
    LEAST,
    LEFT_,
    MOST,
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
    STRIP,
    TOP,
    TRIED,
    Walking,
    add_goal,
    begin,
    bound_goal,
    push_frame,
    walk_start,
)
from structures.ij_heap.strip import gather_across, gather_rows
from structures.multiway.alias import FOUND_, at_least, at_most, first, reach
from structures.multiway.extreme import ANSWER, ASK, ASKED, LAST_KEY, extreme, no_bounds
from structures.multiway.layout import CHILD, MultiwayNodes, height_of, key_at, key_of, near_at
from structures.multiway.leaves import KEY_, NEAR_
from structures.multiway.topology import (
    ALL,
    MEMBER,
    NEAR,
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

NO, PERHAPS, SURELY, LEAST_IS = range(4)  # LEAST_IS: the least tuple below the node is one


# --- beginning


@kernel("void(int64[::1], Walking, int64, int64, int64, int64)")
def start_all(T: Any, walking: Walking, root: int, key: int, lo: int, hi: int) -> None:
    """Rows of the whole version (key -1) or of one key, whose intervals all meet [lo, hi]. Bounds without a key are answered key by key."""
    Z = walking.Z
    walk_start(walking, root, lo, hi)
    if key != ANY_KEY:
        begin(T, walking, add_goal(T, walking, root, T[ALL], NO_GOAL, 0, key, key))
    elif lo == NEG_INF and hi == POS_INF:
        begin(T, walking, add_goal(T, walking, root, T[ALL], NO_GOAL, 0, 0, LAST_KEY))
    else:
        Z[EACH_KEY], Z[NEXT_KEY] = 1, 0


@kernel
def next_key(nodes: MultiwayNodes, walking: Walking) -> None:
    """Begin with the next key that has rows; clear EACH_KEY if there is none."""
    T, Z, X = nodes.T, walking.Z, walking.X
    no_bounds(X, ASK, 0)
    X[ASK] = Z[NEXT_KEY]
    if Z[NEXT_KEY] > LAST_KEY or not extreme(nodes, X, 0, Z[TOP], T[ALL], False):
        Z[EACH_KEY] = 0
        return
    key = X[ANSWER + KEY_]
    Z[NEXT_KEY], Z[GOALS] = key + 1, 0
    g = add_goal(T, walking, Z[TOP], T[ALL], NO_GOAL, 0, key, key)
    begin(T, walking, g)
    if not enters(nodes, walking, g, Z[TOP], True):
        Z[DEPTH] = 0


@kernel
def start_partners(nodes: MultiwayNodes, walking: Walking, root: int, entry: Entry, lo: int, hi: int) -> None:
    """Rows in which the entry takes part: the product of the components of the rest, none if one of them has no tuple. It need not be in
    the tree itself."""
    T, Z = nodes.T, walking.Z
    s, key, left, right, slot = entry
    walk_start(walking, root, lo, hi)
    if left > hi or right < lo:
        return
    Z[LEFT_ + s], Z[RIGHT_ + s], Z[SLOT_ + s] = left, right, slot
    rest = add_goal(T, walking, root, T[REST + 8 * s], NO_GOAL, 1 << s, key, key)
    bound_goal(T, walking, rest)
    if not confine(nodes, walking, rest, root):
        return
    entries = gather_rows(nodes, walking, root, rest, key)
    if entries > 0:
        Z[CROSSING] = 0
        push_frame(walking, IN_STRIP, rest, Z[GOALS])
    if entries >= 0:
        return
    g, before = NO_GOAL, (1 << T[SETS]) - 1
    for c in range(T[REST + 8 * s + 1]):
        v = T[REST + 8 * s + 2 + c]
        for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
            before &= ~(1 << T[MEMBER + m])
        g = add_goal(T, walking, root, v, g, before, key, key)
        for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
            i = T[MEMBER + m]
            Z[g + GIVEN_MOST + i], Z[g + GIVEN_LEAST + i] = Z[rest + MOST + i], Z[rest + LEAST + i]
        bound_goal(T, walking, g)
        if not enters(nodes, walking, g, root, T[REST + 8 * s + 1] > 1):
            return
    begin(T, walking, g)


@kernel
def confine(nodes: MultiwayNodes, walking: Walking, g: int, o: int) -> bool:
    """Bound the aliases of goal g by what their neighbours can reach below node o, from those that a bound alias bounds
    outwards; False if the goal surely has no tuple there."""
    T, Z, X = nodes.T, walking.Z, walking.X
    v, key = Z[g + G_SUBSET], Z[g + G_LOW]
    members, edge, inside = 0, 0, 0
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        members |= 1 << T[MEMBER + m]
        if T[NEAR + T[MEMBER + m]] & Z[g + G_BEFORE] != 0:
            edge |= 1 << T[MEMBER + m]
    while inside | edge != members:
        beyond = 0
        for i in range(T[SETS]):
            next = T[NEAR + i] & members & ~(inside | edge)
            if (edge >> i) & 1 == 0 or next == 0:
                continue
            if not first(nodes, X, o, i, key, Z[g + LEAST + i]) or X[FOUND_] != key or X[FOUND_ + 1] > Z[g + MOST + i]:
                return False
            least = X[FOUND_ + 1]
            reach(nodes, X, o, i, key, Z[g + MOST + i])
            beyond |= next
            for j in range(T[SETS]):
                if (next >> j) & 1 != 0:
                    Z[g + LEAST + j], Z[g + MOST + j] = max(Z[g + LEAST + j], least), min(Z[g + MOST + j], X[FOUND_ + 2])
        inside, edge = inside | edge, beyond
    return True


# --- tests


@kernel
def ask_bounds(T: Any, walking: Walking, v: int, key: int, bounds: int) -> None:
    Z, X = walking.Z, walking.X
    X[ASK] = key
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        X[ASK + 1 + T[MEMBER + m]] = Z[bounds + T[MEMBER + m]]


@kernel
def has_tuple(nodes: MultiwayNodes, walking: Walking, g: int, o: int, v: int) -> bool:
    """Whether a v-tuple below node o keeps the bounds at X[ASK] and the upper bounds of goal g: exact, by Closure. The least of those
    that keep X[ASK] is left at X[ANSWER]."""
    T, Z, X = nodes.T, walking.Z, walking.X
    asked = X[ASKED]
    found = extreme(nodes, X, 0, o, v, False)
    Z[STEPS] += X[ASKED] - asked
    if not found or X[ANSWER + KEY_] > Z[g + G_HIGH]:
        return False
    if X[ANSWER + KEY_] == Z[g + G_HIGH]:
        for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
            i = T[MEMBER + m]
            if X[ANSWER + NEAR_ + i] > Z[g + MOST + i]:
                return False
    return True


@kernel
def allows(nodes: MultiwayNodes, walking: Walking, g: int, o: int, v: int, low: int, least: int) -> int:
    """What the extremes of node o say of v-tuples with keys from `low`, the lower bounds at Z[least] and the upper ones of goal g."""
    M, T, Z = nodes.M, nodes.T, walking.Z
    high = Z[g + G_HIGH]
    k0, k1 = key_of(nodes, o, 0, v), key_of(nodes, o, 1, v)
    if k1 < low or k0 > high:
        return NO
    begins, ends = near_at(T, o, 0), near_at(T, o, 1)
    span = T[SPAN]
    least_is, greatest_is = k0 >= low, k1 <= high
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        i = T[MEMBER + m]
        if k1 == low and M[ends + m] < Z[least + i]:
            return NO
        if k0 == high and M[begins + m] > Z[g + MOST + i]:
            return NO
        if k0 == low and M[begins + span + m] < Z[least + i]:
            least_is = False
        if k1 == high and M[ends + span + m] > Z[g + MOST + i]:
            greatest_is = False
    if least_is:
        return LEAST_IS
    return SURELY if greatest_is else PERHAPS


@kernel
def enters(nodes: MultiwayNodes, walking: Walking, g: int, o: int, exact: bool) -> bool:
    """Whether to work on goal g below node o."""
    T, Z = nodes.T, walking.Z
    v = Z[g + G_SUBSET]
    if Z[g + G_FREE] != 0:
        return key_of(nodes, o, 0, v) != KEY_MAX
    answer = allows(nodes, walking, g, o, v, Z[g + G_LOW], g + LEAST)
    if answer != PERHAPS or not (exact or Z[FUEL] <= 0):
        return answer != NO
    ask_bounds(T, walking, v, Z[g + G_LOW], g + LEAST)
    return has_tuple(nodes, walking, g, o, v)


@kernel
def crosses(nodes: MultiwayNodes, walking: Walking, o: int, g: int, r: int) -> int:
    """The key at which split r of goal g may be live at node o, by the stored extremes; -1 if it surely is not."""
    M, W, T, Z = nodes.M, nodes.W, nodes.T, walking.Z
    lower, upper = M[o + CHILD], M[o + CHILD + 1]
    lows, highs = key_at(T, lower, 1), key_at(T, upper, 0)
    key = wide(W[lows + T[r + SPLIT_PARTS]])
    if key != W[highs + T[r + SPLIT_PARTS + 6]] or key < Z[g + G_LOW] or key > Z[g + G_HIGH]:
        return -1
    ends, begins = near_at(T, lower, 1), near_at(T, upper, 0)
    for edge in range(r + SPLIT_EDGES, r + SPLIT_EDGES + 4 * T[r + SPLIT_CROSS], 4):
        if M[ends + T[edge + 2]] < M[begins + T[edge + 3]]:
            return -1
    for c in range(1, T[r + SPLIT_COUNT]):
        if W[lows + T[r + SPLIT_PARTS + c]] != key:
            return -1
    for c in range(1, T[r + SPLIT_COUNT + 1]):
        if W[highs + T[r + SPLIT_PARTS + 6 + c]] != key:
            return -1
    return key


@kernel
def live(nodes: MultiwayNodes, walking: Walking, o: int, g: int, r: int, key: int) -> bool:
    """Whether split r of goal g, with `key` by `crosses`, has a tuple within the bounds at node o: exact. The lower bounds that the
    components of the lower side must keep are left in Z[SHARP] by alias."""
    M, T, Z, X = nodes.M, nodes.T, walking.Z, walking.X
    lower, upper = M[o + CHILD], M[o + CHILD + 1]
    begins = near_at(T, upper, 0)
    same = key == Z[g + G_LOW]
    for i in range(6):
        Z[SHARP + i] = Z[g + LEAST + i] if same else NEG_INF
    first, behind = r + SPLIT_EDGES, r + SPLIT_EDGES + 4 * T[r + SPLIT_CROSS]
    if Z[g + G_FREE] != 0:
        for edge in range(first, behind, 4):
            Z[SHARP + T[edge]] = max(Z[SHARP + T[edge]], M[begins + T[edge + 3]])
        return True
    for c in range(T[r + SPLIT_COUNT + 1]):
        v = T[r + SPLIT_PARTS + 6 + c]
        answer = allows(nodes, walking, g, upper, v, Z[g + G_LOW], g + LEAST)
        if answer == NO:
            return False
        if answer != LEAST_IS:
            ask_bounds(T, walking, v, key, g + LEAST)
            if not has_tuple(nodes, walking, g, upper, v) or X[ANSWER + KEY_] != key:
                return False
        lo, hi = T[POS + v], T[POS + v] + T[SIZE + v]
        for edge in range(first, behind, 4):
            if lo <= T[edge + 3] < hi:
                bound = M[begins + T[edge + 3]] if answer == LEAST_IS else X[ANSWER + NEAR_ + T[edge + 1]]
                Z[SHARP + T[edge]] = max(Z[SHARP + T[edge]], bound)
    for c in range(T[r + SPLIT_COUNT]):
        v = T[r + SPLIT_PARTS + c]
        answer = allows(nodes, walking, g, lower, v, key, SHARP)
        if answer == NO:
            return False
        if answer == PERHAPS:
            ask_bounds(T, walking, v, key, SHARP)
            if not has_tuple(nodes, walking, g, lower, v):
                return False
    return True


# --- working


@kernel
def divide(nodes: MultiwayNodes, walking: Walking, o: int, g: int, r: int, key: int) -> None:
    """Replace goal g by those of live split r at node o, and begin the first."""
    M, T, Z = nodes.M, nodes.T, walking.Z
    v, next, before = Z[g + G_SUBSET], Z[g + G_NEXT], Z[g + G_BEFORE]
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        before |= 1 << T[MEMBER + m]
    free, low = Z[g + G_FREE] != 0, T[r + SPLIT_L]
    for side in range(1, -1, -1):
        for c in range(T[r + SPLIT_COUNT + side]):
            part = T[r + SPLIT_PARTS + 6 * side + c]
            for m in range(T[POS + part], T[POS + part] + T[SIZE + part]):
                before &= ~(1 << T[MEMBER + m])
            next = add_goal(T, walking, M[o + CHILD + side], part, next, before, key, key)
            for m in range(T[POS + part], T[POS + part] + T[SIZE + part]):
                i = T[MEMBER + m]
                if not free:
                    Z[next + GIVEN_MOST + i], Z[next + GIVEN_LEAST + i] = Z[g + MOST + i], Z[g + LEAST + i]
                if (low >> i) & 1 != 0:
                    Z[next + GIVEN_LEAST + i] = Z[SHARP + i]
    begin(T, walking, next)


@kernel
def alias_enters(nodes: MultiwayNodes, walking: Walking, g: int, o: int, i: int) -> bool:
    """As `enters`, for a goal of alias i alone."""
    Z, X = walking.Z, walking.X
    high, most, low, least = Z[g + G_HIGH], Z[g + MOST + i], Z[g + G_LOW], Z[g + LEAST + i]
    if not (at_most(nodes, o, i, high, most) and at_least(nodes, o, i, low, least)):
        return False
    if Z[FUEL] > 0:
        return True
    reach(nodes, X, o, i, high, most)
    return X[FOUND_] > low or (X[FOUND_] == low and X[FOUND_ + 2] >= least)


@kernel
def alias_step(nodes: MultiwayNodes, walking: Walking, f: int) -> bool:
    """Go on at an inner node with a goal of one alias, which has no splits: False when the frame is done with."""
    M, W, Z = nodes.M, nodes.W, walking.Z
    o, g = Z[f + NODE], Z[f + GOAL]
    i = Z[g + G_SUBSET]
    while height_of(W, o) > 0:
        Z[STEPS] += 1
        lower, upper = M[o + CHILD], M[o + CHILD + 1]
        after = alias_enters(nodes, walking, g, upper, i)
        if alias_enters(nodes, walking, g, lower, i):
            if after:
                Z[f + NODE], Z[f + STEP], Z[f + TRIED] = upper, 0, 0
                push_frame(walking, lower, g, Z[f + GOALS_])
                return True
            o = lower
        elif after:
            o = upper
        else:
            return False
    Z[f + NODE] = o
    return True


@kernel
def inner_step(nodes: MultiwayNodes, walking: Walking, f: int) -> bool:
    """Go on at an inner node: False when the frame is done with."""
    M, T, Z = nodes.M, nodes.T, walking.Z
    o, g = Z[f + NODE], Z[f + GOAL]
    if Z[f + STEP] == 0:
        Z[f + STEP] = 1
        if enters(nodes, walking, g, M[o + CHILD], False):
            push_frame(walking, M[o + CHILD], g, Z[f + GOALS_])
            return True
    Z[GOALS] = Z[f + GOALS_]
    v = Z[g + G_SUBSET]
    splits, records = T[NSPLITS + v], T[SPLITS + v]
    while Z[f + STEP] <= splits:
        r = T[records + Z[f + STEP] - 1]
        Z[f + STEP] += 1
        key = crosses(nodes, walking, o, g, r)
        if key < 0 or not live(nodes, walking, o, g, r, key):
            continue
        if Z[f + TRIED] == 0 and Z[g + G_NEXT] == NO_GOAL:
            Z[f + TRIED] = 1
            if gather_across(nodes, walking, o, g, key):
                Z[f + STEP], Z[CROSSING] = splits + 1, 1
                push_frame(walking, IN_STRIP, g, Z[f + GOALS_])
                return True
        divide(nodes, walking, o, g, r, key)
        return True
    if enters(nodes, walking, g, M[o + CHILD + 1], False):
        Z[f + NODE], Z[f + STEP], Z[f + TRIED] = M[o + CHILD + 1], 0, 0
        return True
    return False


@kernel
def walk(nodes: MultiwayNodes, walking: Walking, told: Told, n: int, end: int, until: int) -> int:
    """Go on until `end` rows are told, the steps pass `until`, or Z[DEPTH] is 0: all found. Rows told."""
    W, T, Z, ZW = nodes.W, nodes.T, walking.Z, walking.ZW
    while Z[DEPTH] > 0 and Z[STEPS] < until:
        f = FRAME0 + FRAME_WORDS * (Z[DEPTH] - 1)
        Z[STEPS] += 1
        if Z[f + STEP] == 0:
            Z[f + ROWS_] = Z[ROWS]
        o, depth = Z[f + NODE], Z[DEPTH]
        if o == IN_STRIP or height_of(W, o) == 0:
            if o == IN_STRIP:
                n = leaf_step(MultiwayNodes(Z, ZW, T), walking, Z[STRIP], f, told, n, end)
            else:
                n = leaf_step(nodes, walking, o, f, told, n, end)
            if n == end and Z[f + STEP] > 0:
                return n
            done = Z[DEPTH] == depth and Z[f + STEP] == 0
        elif T[NSPLITS + Z[Z[f + GOAL] + G_SUBSET]] == 0:
            done = not alias_step(nodes, walking, f)
        else:
            done = not inner_step(nodes, walking, f)
        if done:
            Z[DEPTH] -= 1
            if Z[ROWS] == Z[f + ROWS_]:
                Z[DEAD] += 1
                Z[FUEL] -= 1
    return n


@kernel("int64(MultiwayNodes, Walking, int64, Entries, int64, int64, Told, int64)")
def walk_fill(nodes: MultiwayNodes, walking: Walking, root: int, entries: Entries, lo: int, hi: int, told: Told, steps: int) -> int:
    """Up to `stride` rows, within about so many steps: of what Z has begun, then of entry after entry, all intervals meeting [lo, hi].
    Z[ITEM] entries have begun; all is found when that is their number and Z[DEPTH] and Z[EACH_KEY] are 0 after it."""
    Z = walking.Z
    n, until = 0, Z[STEPS] + steps
    while n < told.stride and Z[STEPS] < until:
        if Z[DEPTH] == 0:
            Z[STEPS] += 1
            if Z[EACH_KEY] != 0:
                next_key(nodes, walking)
            elif Z[ITEM] == len(entries.set):
                break
            else:
                Z[ITEM] += 1
                start_partners(nodes, walking, root, entry_of(entries, Z[ITEM] - 1), lo, hi)
        n = walk(nodes, walking, told, n, told.stride, until)
    return n
