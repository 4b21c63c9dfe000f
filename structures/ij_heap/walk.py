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
from structures.ij_heap import goals
from structures.ij_heap.bind import leaf_step
from structures.ij_heap.goals import Walking, add_goal, begin, bound_goal, push_frame, walk_start
from structures.ij_heap.strip import gather_across, gather_rows
from structures.multiway import topology
from structures.multiway.alias import FOUND_, at_least, at_most, first, reach
from structures.multiway.extreme import ANSWER, ASK, ASKED, LAST_KEY, extreme, no_bounds
from structures.multiway.layout import CHILD, MultiwayNodes, height_of, key_at, key_of, near_at
from structures.multiway.leaves import KEY_, NEAR_

NO, PERHAPS, SURELY, LEAST_IS = range(4)  # LEAST_IS: the least tuple below the node is one


# --- beginning


@kernel("void(int64[::1], Walking, int64, int64, int64, int64)")
def start_all(T: Any, walking: Walking, root: int, key: int, lo: int, hi: int) -> None:
    """Rows of the whole version (key -1) or of one key, whose intervals all meet [lo, hi]. Bounds without a key are answered key by key."""
    Z = walking.Z
    walk_start(walking, root, lo, hi)
    if key != goals.ANY_KEY:
        begin(T, walking, add_goal(T, walking, root, T[topology.ALL], goals.NO_GOAL, 0, key, key))
    elif lo == NEG_INF and hi == POS_INF:
        begin(T, walking, add_goal(T, walking, root, T[topology.ALL], goals.NO_GOAL, 0, 0, LAST_KEY))
    else:
        Z[goals.EACH_KEY], Z[goals.NEXT_KEY] = 1, 0


@kernel
def next_key(nodes: MultiwayNodes, walking: Walking) -> None:
    """Begin with the next key that has rows; clear EACH_KEY if there is none."""
    T, Z, X = nodes.T, walking.Z, walking.X
    no_bounds(X, ASK, 0)
    X[ASK] = Z[goals.NEXT_KEY]
    if Z[goals.NEXT_KEY] > LAST_KEY or not extreme(nodes, X, 0, Z[goals.TOP], T[topology.ALL], False):
        Z[goals.EACH_KEY] = 0
        return
    key = X[ANSWER + KEY_]
    Z[goals.NEXT_KEY], Z[goals.GOALS] = key + 1, 0
    g = add_goal(T, walking, Z[goals.TOP], T[topology.ALL], goals.NO_GOAL, 0, key, key)
    begin(T, walking, g)
    if not enters(nodes, walking, g, Z[goals.TOP], True):
        Z[goals.DEPTH] = 0


@kernel
def start_partners(nodes: MultiwayNodes, walking: Walking, root: int, entry: Entry, lo: int, hi: int) -> None:
    """Rows in which the entry takes part: the product of the components of the rest, none if one of them has no tuple. It need not be in
    the tree itself."""
    T, Z = nodes.T, walking.Z
    s, key, left, right, slot = entry
    walk_start(walking, root, lo, hi)
    if left > hi or right < lo:
        return
    Z[goals.LEFT_ + s], Z[goals.RIGHT_ + s], Z[goals.SLOT_ + s] = left, right, slot
    rest = add_goal(T, walking, root, T[topology.REST + 8 * s], goals.NO_GOAL, 1 << s, key, key)
    bound_goal(T, walking, rest)
    if not confine(nodes, walking, rest, root):
        return
    entries = gather_rows(nodes, walking, root, rest, key)
    if entries > 0:
        Z[goals.CROSSING] = 0
        push_frame(walking, goals.IN_STRIP, rest, Z[goals.GOALS])
    if entries >= 0:
        return
    g, before = goals.NO_GOAL, (1 << T[topology.SETS]) - 1
    for c in range(T[topology.REST + 8 * s + 1]):
        v = T[topology.REST + 8 * s + 2 + c]
        for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
            before &= ~(1 << T[topology.MEMBER + m])
        g = add_goal(T, walking, root, v, g, before, key, key)
        for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
            i = T[topology.MEMBER + m]
            Z[g + goals.GIVEN_MOST + i], Z[g + goals.GIVEN_LEAST + i] = Z[rest + goals.MOST + i], Z[rest + goals.LEAST + i]
        bound_goal(T, walking, g)
        if not enters(nodes, walking, g, root, T[topology.REST + 8 * s + 1] > 1):
            return
    begin(T, walking, g)


@kernel
def confine(nodes: MultiwayNodes, walking: Walking, g: int, o: int) -> bool:
    """Bound the aliases of goal g by what their neighbours can reach below node o, from those that a bound alias bounds
    outwards; False if the goal surely has no tuple there."""
    T, Z, X = nodes.T, walking.Z, walking.X
    v, key = Z[g + goals.G_SUBSET], Z[g + goals.G_LOW]
    members, edge, inside = 0, 0, 0
    for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
        members |= 1 << T[topology.MEMBER + m]
        if T[topology.NEAR + T[topology.MEMBER + m]] & Z[g + goals.G_BEFORE] != 0:
            edge |= 1 << T[topology.MEMBER + m]
    while inside | edge != members:
        beyond = 0
        for i in range(T[topology.SETS]):
            next = T[topology.NEAR + i] & members & ~(inside | edge)
            if (edge >> i) & 1 == 0 or next == 0:
                continue
            if not first(nodes, X, o, i, key, Z[g + goals.LEAST + i]) or X[FOUND_] != key or X[FOUND_ + 1] > Z[g + goals.MOST + i]:
                return False
            least = X[FOUND_ + 1]
            reach(nodes, X, o, i, key, Z[g + goals.MOST + i])
            beyond |= next
            for j in range(T[topology.SETS]):
                if (next >> j) & 1 != 0:
                    Z[g + goals.LEAST + j] = max(Z[g + goals.LEAST + j], least)
                    Z[g + goals.MOST + j] = min(Z[g + goals.MOST + j], X[FOUND_ + 2])
        inside, edge = inside | edge, beyond
    return True


# --- tests


@kernel
def ask_bounds(T: Any, walking: Walking, v: int, key: int, bounds: int) -> None:
    Z, X = walking.Z, walking.X
    X[ASK] = key
    for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
        X[ASK + 1 + T[topology.MEMBER + m]] = Z[bounds + T[topology.MEMBER + m]]


@kernel
def has_tuple(nodes: MultiwayNodes, walking: Walking, g: int, o: int, v: int) -> bool:
    """Whether a v-tuple below node o keeps the bounds at X[ASK] and the upper bounds of goal g: exact, by Closure. The least of those
    that keep X[ASK] is left at X[ANSWER]."""
    T, Z, X = nodes.T, walking.Z, walking.X
    asked = X[ASKED]
    found = extreme(nodes, X, 0, o, v, False)
    Z[goals.STEPS] += X[ASKED] - asked
    if not found or X[ANSWER + KEY_] > Z[g + goals.G_HIGH]:
        return False
    if X[ANSWER + KEY_] == Z[g + goals.G_HIGH]:
        for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
            i = T[topology.MEMBER + m]
            if X[ANSWER + NEAR_ + i] > Z[g + goals.MOST + i]:
                return False
    return True


@kernel
def allows(nodes: MultiwayNodes, walking: Walking, g: int, o: int, v: int, low: int, least: int) -> int:
    """What the extremes of node o say of v-tuples with keys from `low`, the lower bounds at Z[least] and the upper ones of goal g."""
    M, T, Z = nodes.M, nodes.T, walking.Z
    high = Z[g + goals.G_HIGH]
    k0, k1 = key_of(nodes, o, 0, v), key_of(nodes, o, 1, v)
    if k1 < low or k0 > high:
        return NO
    begins, ends = near_at(T, o, 0), near_at(T, o, 1)
    span = T[topology.SPAN]
    least_is, greatest_is = k0 >= low, k1 <= high
    for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
        i = T[topology.MEMBER + m]
        if k1 == low and M[ends + m] < Z[least + i]:
            return NO
        if k0 == high and M[begins + m] > Z[g + goals.MOST + i]:
            return NO
        if k0 == low and M[begins + span + m] < Z[least + i]:
            least_is = False
        if k1 == high and M[ends + span + m] > Z[g + goals.MOST + i]:
            greatest_is = False
    if least_is:
        return LEAST_IS
    return SURELY if greatest_is else PERHAPS


@kernel
def enters(nodes: MultiwayNodes, walking: Walking, g: int, o: int, exact: bool) -> bool:
    """Whether to work on goal g below node o."""
    T, Z = nodes.T, walking.Z
    v = Z[g + goals.G_SUBSET]
    if Z[g + goals.G_FREE] != 0:
        return key_of(nodes, o, 0, v) != KEY_MAX
    answer = allows(nodes, walking, g, o, v, Z[g + goals.G_LOW], g + goals.LEAST)
    if answer != PERHAPS or not (exact or Z[goals.FUEL] <= 0):
        return answer != NO
    ask_bounds(T, walking, v, Z[g + goals.G_LOW], g + goals.LEAST)
    return has_tuple(nodes, walking, g, o, v)


@kernel
def crosses(nodes: MultiwayNodes, walking: Walking, o: int, g: int, r: int) -> int:
    """The key at which split r of goal g may be live at node o, by the stored extremes; -1 if it surely is not."""
    M, W, T, Z = nodes.M, nodes.W, nodes.T, walking.Z
    lower, upper = M[o + CHILD], M[o + CHILD + 1]
    lows, highs = key_at(T, lower, 1), key_at(T, upper, 0)
    key = wide(W[lows + T[r + topology.SPLIT_PARTS]])
    if key != W[highs + T[r + topology.SPLIT_PARTS + 6]] or key < Z[g + goals.G_LOW] or key > Z[g + goals.G_HIGH]:
        return -1
    ends, begins = near_at(T, lower, 1), near_at(T, upper, 0)
    for edge in range(r + topology.SPLIT_EDGES, r + topology.SPLIT_EDGES + 4 * T[r + topology.SPLIT_CROSS], 4):
        if M[ends + T[edge + 2]] < M[begins + T[edge + 3]]:
            return -1
    for c in range(1, T[r + topology.SPLIT_COUNT]):
        if W[lows + T[r + topology.SPLIT_PARTS + c]] != key:
            return -1
    for c in range(1, T[r + topology.SPLIT_COUNT + 1]):
        if W[highs + T[r + topology.SPLIT_PARTS + 6 + c]] != key:
            return -1
    return key


@kernel
def live(nodes: MultiwayNodes, walking: Walking, o: int, g: int, r: int, key: int) -> bool:
    """Whether split r of goal g, with `key` by `crosses`, has a tuple within the bounds at node o: exact. The lower bounds that the
    components of the lower side must keep are left in Z[SHARP] by alias."""
    M, T, Z, X = nodes.M, nodes.T, walking.Z, walking.X
    lower, upper = M[o + CHILD], M[o + CHILD + 1]
    begins = near_at(T, upper, 0)
    same = key == Z[g + goals.G_LOW]
    for i in range(6):
        Z[goals.SHARP + i] = Z[g + goals.LEAST + i] if same else NEG_INF
    first, behind = r + topology.SPLIT_EDGES, r + topology.SPLIT_EDGES + 4 * T[r + topology.SPLIT_CROSS]
    if Z[g + goals.G_FREE] != 0:
        for edge in range(first, behind, 4):
            Z[goals.SHARP + T[edge]] = max(Z[goals.SHARP + T[edge]], M[begins + T[edge + 3]])
        return True
    for c in range(T[r + topology.SPLIT_COUNT + 1]):
        v = T[r + topology.SPLIT_PARTS + 6 + c]
        answer = allows(nodes, walking, g, upper, v, Z[g + goals.G_LOW], g + goals.LEAST)
        if answer == NO:
            return False
        if answer != LEAST_IS:
            ask_bounds(T, walking, v, key, g + goals.LEAST)
            if not has_tuple(nodes, walking, g, upper, v) or X[ANSWER + KEY_] != key:
                return False
        lo, hi = T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]
        for edge in range(first, behind, 4):
            if lo <= T[edge + 3] < hi:
                bound = M[begins + T[edge + 3]] if answer == LEAST_IS else X[ANSWER + NEAR_ + T[edge + 1]]
                Z[goals.SHARP + T[edge]] = max(Z[goals.SHARP + T[edge]], bound)
    for c in range(T[r + topology.SPLIT_COUNT]):
        v = T[r + topology.SPLIT_PARTS + c]
        answer = allows(nodes, walking, g, lower, v, key, goals.SHARP)
        if answer == NO:
            return False
        if answer == PERHAPS:
            ask_bounds(T, walking, v, key, goals.SHARP)
            if not has_tuple(nodes, walking, g, lower, v):
                return False
    return True


# --- working


@kernel
def divide(nodes: MultiwayNodes, walking: Walking, o: int, g: int, r: int, key: int) -> None:
    """Replace goal g by those of live split r at node o, and begin the first."""
    M, T, Z = nodes.M, nodes.T, walking.Z
    v, next, before = Z[g + goals.G_SUBSET], Z[g + goals.G_NEXT], Z[g + goals.G_BEFORE]
    for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
        before |= 1 << T[topology.MEMBER + m]
    free, low = Z[g + goals.G_FREE] != 0, T[r + topology.SPLIT_L]
    for side in range(1, -1, -1):
        for c in range(T[r + topology.SPLIT_COUNT + side]):
            part = T[r + topology.SPLIT_PARTS + 6 * side + c]
            for m in range(T[topology.POS + part], T[topology.POS + part] + T[topology.SIZE + part]):
                before &= ~(1 << T[topology.MEMBER + m])
            next = add_goal(T, walking, M[o + CHILD + side], part, next, before, key, key)
            for m in range(T[topology.POS + part], T[topology.POS + part] + T[topology.SIZE + part]):
                i = T[topology.MEMBER + m]
                if not free:
                    Z[next + goals.GIVEN_MOST + i], Z[next + goals.GIVEN_LEAST + i] = Z[g + goals.MOST + i], Z[g + goals.LEAST + i]
                if (low >> i) & 1 != 0:
                    Z[next + goals.GIVEN_LEAST + i] = Z[goals.SHARP + i]
    begin(T, walking, next)


@kernel
def alias_enters(nodes: MultiwayNodes, walking: Walking, g: int, o: int, i: int) -> bool:
    """As `enters`, for a goal of alias i alone."""
    Z, X = walking.Z, walking.X
    high, most, low, least = Z[g + goals.G_HIGH], Z[g + goals.MOST + i], Z[g + goals.G_LOW], Z[g + goals.LEAST + i]
    if not (at_most(nodes, o, i, high, most) and at_least(nodes, o, i, low, least)):
        return False
    if Z[goals.FUEL] > 0:
        return True
    reach(nodes, X, o, i, high, most)
    return X[FOUND_] > low or (X[FOUND_] == low and X[FOUND_ + 2] >= least)


@kernel
def alias_step(nodes: MultiwayNodes, walking: Walking, f: int) -> bool:
    """Go on at an inner node with a goal of one alias, which has no splits: False when the frame is done with."""
    M, W, Z = nodes.M, nodes.W, walking.Z
    o, g = Z[f + goals.NODE], Z[f + goals.GOAL]
    i = Z[g + goals.G_SUBSET]
    while height_of(W, o) > 0:
        Z[goals.STEPS] += 1
        lower, upper = M[o + CHILD], M[o + CHILD + 1]
        after = alias_enters(nodes, walking, g, upper, i)
        if alias_enters(nodes, walking, g, lower, i):
            if after:
                Z[f + goals.NODE], Z[f + goals.STEP], Z[f + goals.TRIED] = upper, 0, 0
                push_frame(walking, lower, g, Z[f + goals.GOALS_])
                return True
            o = lower
        elif after:
            o = upper
        else:
            return False
    Z[f + goals.NODE] = o
    return True


@kernel
def inner_step(nodes: MultiwayNodes, walking: Walking, f: int) -> bool:
    """Go on at an inner node: False when the frame is done with."""
    M, T, Z = nodes.M, nodes.T, walking.Z
    o, g = Z[f + goals.NODE], Z[f + goals.GOAL]
    if Z[f + goals.STEP] == 0:
        Z[f + goals.STEP] = 1
        if enters(nodes, walking, g, M[o + CHILD], False):
            push_frame(walking, M[o + CHILD], g, Z[f + goals.GOALS_])
            return True
    Z[goals.GOALS] = Z[f + goals.GOALS_]
    v = Z[g + goals.G_SUBSET]
    splits, records = T[topology.NSPLITS + v], T[topology.SPLITS + v]
    while Z[f + goals.STEP] <= splits:
        r = T[records + Z[f + goals.STEP] - 1]
        Z[f + goals.STEP] += 1
        key = crosses(nodes, walking, o, g, r)
        if key < 0 or not live(nodes, walking, o, g, r, key):
            continue
        if Z[f + goals.TRIED] == 0 and Z[g + goals.G_NEXT] == goals.NO_GOAL:
            Z[f + goals.TRIED] = 1
            if gather_across(nodes, walking, o, g, key):
                Z[f + goals.STEP], Z[goals.CROSSING] = splits + 1, 1
                push_frame(walking, goals.IN_STRIP, g, Z[f + goals.GOALS_])
                return True
        divide(nodes, walking, o, g, r, key)
        return True
    if enters(nodes, walking, g, M[o + CHILD + 1], False):
        Z[f + goals.NODE], Z[f + goals.STEP], Z[f + goals.TRIED] = M[o + CHILD + 1], 0, 0
        return True
    return False


@kernel
def walk(nodes: MultiwayNodes, walking: Walking, told: Told, n: int, end: int, until: int) -> int:
    """Go on until `end` rows are told, the steps pass `until`, or Z[DEPTH] is 0: all found. Rows told."""
    W, T, Z, ZW = nodes.W, nodes.T, walking.Z, walking.ZW
    while Z[goals.DEPTH] > 0 and Z[goals.STEPS] < until:
        f = goals.FRAME0 + goals.FRAME_WORDS * (Z[goals.DEPTH] - 1)
        Z[goals.STEPS] += 1
        if Z[f + goals.STEP] == 0:
            Z[f + goals.ROWS_] = Z[goals.ROWS]
        o, depth = Z[f + goals.NODE], Z[goals.DEPTH]
        if o == goals.IN_STRIP or height_of(W, o) == 0:
            if o == goals.IN_STRIP:
                n = leaf_step(MultiwayNodes(Z, ZW, T), walking, Z[goals.STRIP], f, told, n, end)
            else:
                n = leaf_step(nodes, walking, o, f, told, n, end)
            if n == end and Z[f + goals.STEP] > 0:
                return n
            done = Z[goals.DEPTH] == depth and Z[f + goals.STEP] == 0
        elif T[topology.NSPLITS + Z[Z[f + goals.GOAL] + goals.G_SUBSET]] == 0:
            done = not alias_step(nodes, walking, f)
        else:
            done = not inner_step(nodes, walking, f)
        if done:
            Z[goals.DEPTH] -= 1
            if Z[goals.ROWS] == Z[f + goals.ROWS_]:
                Z[goals.DEAD] += 1
                Z[goals.FUEL] -= 1
    return n


@kernel("int64(MultiwayNodes, Walking, int64, Entries, int64, int64, Told, int64)")
def walk_fill(nodes: MultiwayNodes, walking: Walking, root: int, entries: Entries, lo: int, hi: int, told: Told, steps: int) -> int:
    """Up to `stride` rows, within about so many steps: of what Z has begun, then of entry after entry, all intervals meeting [lo, hi].
    Z[ITEM] entries have begun; all is found when that is their number and Z[DEPTH] and Z[EACH_KEY] are 0 after it."""
    Z = walking.Z
    n, until = 0, Z[goals.STEPS] + steps
    while n < told.stride and Z[goals.STEPS] < until:
        if Z[goals.DEPTH] == 0:
            Z[goals.STEPS] += 1
            if Z[goals.EACH_KEY] != 0:
                next_key(nodes, walking)
            elif Z[goals.ITEM] == len(entries.set):
                break
            else:
                Z[goals.ITEM] += 1
                start_partners(nodes, walking, root, entry_of(entries, Z[goals.ITEM] - 1), lo, hi)
        n = walk(nodes, walking, told, n, told.stride, until)
    return n
