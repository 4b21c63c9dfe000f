"""Enumeration of V-tuples, resumable and (except for bounded fuel) without dead ends: the whole view, windows, deltas, look-ups.

Problem: report all rows (one interval a set, neighbours meeting) whose intervals keep bounds by alias, left <= most and right >= least;
some sets may be bound to a given interval already.

    goal    "a v-tuple below node u", with keys, bounds, and the goal that follows it. A row is found when no goals remain.
    frame   a goal being worked on, at a node on the way down: lower child; each live split of v; upper child.
            A split replaces the goal by one goal a component: those of the lower side first, bounded from below by the least tuples
            of the upper side (so the upper ones certainly follow); then those of the upper side, bounded by the neighbours chosen.
            In a leaf the aliases are bound one by one (`bind.py`). Few entries across a node, or few partners of an interval, are
            gathered into a strip, which is worked on like a leaf (`strip.py`), instead of being divided.

Splits are tested exactly (`multiway.extreme`). A child is entered if its stored extremes allow it; without bounds from both sides this test
is exact, by Closure. Otherwise the child may be a dead end, which costs one unit of FUEL; every row returns one, up to FUEL_MOST; without
fuel, children are tested exactly, too. So there are at most FUEL_MOST + rows dead frames, plus those open when the fuel ran out.

For the rows of a given interval, it bounds its neighbours, what these can reach bounds theirs, and so on; so the search stays near it.

Costs: polylog(n) steps to the first row and between rows, O(1) a row when rows abound.
Source: Tao and Yi, Lemma 12; docs/design/ij-heap.md (*Enumeration, with no dead ends*; *Existence tests*).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import KEY_MAX
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries, Entry, RowBuffer, entry_of
from structures.core.kernel import kernel, wide
from structures.ij_heap import goals
from structures.ij_heap.bind import leaf_step
from structures.ij_heap.goals import HeapWalk, add_goal, begin, bound_goal, push_frame, walk_start
from structures.ij_heap.strip import gather_across, gather_rows
from structures.multiway import topology
from structures.multiway.alias import FOUND_, at_least, at_most, first, reach
from structures.multiway.extreme import ANSWER, ASK, ASKED, LAST_KEY, extreme, no_bounds
from structures.multiway.layout import CHILD, MultiwayNodes, height_of, key_at, key_of, near_at
from structures.multiway.leaves import KEY_, NEAR_

NO, PERHAPS, SURELY, LEAST_IS = range(4)  # LEAST_IS: the least tuple below the node is one


# --- beginning


@kernel("void(int64[::1], HeapWalk, int64, int64, int64, int64)")
def start_all(table: Any, walking: HeapWalk, root: int, key: int, lo: int, hi: int) -> None:
    """Begin the rows of the whole version (key -1) or of one key whose intervals all meet [lo, hi]. A window without a key is answered key
    by key. O(t)."""
    state = walking.state
    walk_start(walking, root, lo, hi)
    if key != goals.ANY_KEY:
        begin(table, walking, add_goal(table, walking, root, table[topology.ALL], goals.NO_GOAL, 0, key, key))
    elif lo == NEG_INF and hi == POS_INF:
        begin(table, walking, add_goal(table, walking, root, table[topology.ALL], goals.NO_GOAL, 0, 0, LAST_KEY))
    else:
        state[goals.EACH_KEY], state[goals.NEXT_KEY] = 1, 0


@kernel
def next_key(nodes: MultiwayNodes, walking: HeapWalk) -> None:
    """Begin the next key that has rows; clear EACH_KEY if there is none."""
    table, state, scratch = nodes.table, walking.state, walking.scratch
    no_bounds(scratch, ASK, 0)
    scratch[ASK] = state[goals.NEXT_KEY]
    if state[goals.NEXT_KEY] > LAST_KEY or not extreme(nodes, scratch, 0, state[goals.TOP], table[topology.ALL], False):
        state[goals.EACH_KEY] = 0
        return
    key = scratch[ANSWER + KEY_]
    state[goals.NEXT_KEY], state[goals.GOALS] = key + 1, 0
    g = add_goal(table, walking, state[goals.TOP], table[topology.ALL], goals.NO_GOAL, 0, key, key)
    begin(table, walking, g)
    if not enters(nodes, walking, g, state[goals.TOP], True):
        state[goals.DEPTH] = 0


@kernel
def start_partners(nodes: MultiwayNodes, walking: HeapWalk, root: int, entry: Entry, lo: int, hi: int) -> None:
    """Begin the rows that contain the entry: the product of the components of the other sets, none if one of them has no tuple. The entry
    itself need not be in the tree."""
    table, state = nodes.table, walking.state
    s, key, left, right, slot = entry
    walk_start(walking, root, lo, hi)
    if left > hi or right < lo:
        return
    state[goals.LEFT_ + s], state[goals.RIGHT_ + s], state[goals.SLOT_ + s] = left, right, slot
    rest = add_goal(table, walking, root, table[topology.REST + 8 * s], goals.NO_GOAL, 1 << s, key, key)
    bound_goal(table, walking, rest)
    if not confine(nodes, walking, rest, root):
        return
    entries = gather_rows(nodes, walking, root, rest, key)
    if entries > 0:
        state[goals.CROSSING] = 0
        push_frame(walking, goals.IN_STRIP, rest, state[goals.GOALS])
    if entries >= 0:
        return
    g, before = goals.NO_GOAL, (1 << table[topology.SETS]) - 1
    for c in range(table[topology.REST + 8 * s + 1]):
        v = table[topology.REST + 8 * s + 2 + c]
        for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
            before &= ~(1 << table[topology.MEMBER + m])
        g = add_goal(table, walking, root, v, g, before, key, key)
        for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
            i = table[topology.MEMBER + m]
            state[g + goals.GIVEN_MOST + i], state[g + goals.GIVEN_LEAST + i] = state[rest + goals.MOST + i], state[rest + goals.LEAST + i]
        bound_goal(table, walking, g)
        if not enters(nodes, walking, g, root, table[topology.REST + 8 * s + 1] > 1):
            return
    begin(table, walking, g)


@kernel
def confine(nodes: MultiwayNodes, walking: HeapWalk, g: int, o: int) -> bool:
    """Bound the aliases of goal g by what their neighbours can reach below node o, starting from those that a bound alias bounds; False if
    the goal certainly has no tuple there."""
    table, state, scratch = nodes.table, walking.state, walking.scratch
    v, key = state[g + goals.G_SUBSET], state[g + goals.G_LOW]
    members, edge, inside = 0, 0, 0
    for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
        members |= 1 << table[topology.MEMBER + m]
        if table[topology.NEAR + table[topology.MEMBER + m]] & state[g + goals.G_BEFORE] != 0:
            edge |= 1 << table[topology.MEMBER + m]
    while inside | edge != members:
        beyond = 0
        for i in range(table[topology.SETS]):
            next = table[topology.NEAR + i] & members & ~(inside | edge)
            if (edge >> i) & 1 == 0 or next == 0:
                continue
            least, most = state[g + goals.LEAST + i], state[g + goals.MOST + i]
            if not first(nodes, scratch, o, i, key, least) or scratch[FOUND_] != key or scratch[FOUND_ + 1] > most:
                return False
            least = scratch[FOUND_ + 1]
            reach(nodes, scratch, o, i, key, state[g + goals.MOST + i])
            beyond |= next
            for j in range(table[topology.SETS]):
                if (next >> j) & 1 != 0:
                    state[g + goals.LEAST + j] = max(state[g + goals.LEAST + j], least)
                    state[g + goals.MOST + j] = min(state[g + goals.MOST + j], scratch[FOUND_ + 2])
        inside, edge = inside | edge, beyond
    return True


# --- tests


@kernel
def ask_bounds(table: Any, walking: HeapWalk, v: int, key: int, bounds: int) -> None:
    state, scratch = walking.state, walking.scratch
    scratch[ASK] = key
    for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
        scratch[ASK + 1 + table[topology.MEMBER + m]] = state[bounds + table[topology.MEMBER + m]]


@kernel
def has_tuple(nodes: MultiwayNodes, walking: HeapWalk, g: int, o: int, v: int) -> bool:
    """Whether a v-tuple below node o keeps the lower bounds at scratch[ASK] and the upper bounds of goal g: exact, by Closure. Leaves the
    least tuple that keeps scratch[ASK] at scratch[ANSWER]."""
    table, state, scratch = nodes.table, walking.state, walking.scratch
    asked = scratch[ASKED]
    found = extreme(nodes, scratch, 0, o, v, False)
    state[goals.STEPS] += scratch[ASKED] - asked
    if not found or scratch[ANSWER + KEY_] > state[g + goals.G_HIGH]:
        return False
    if scratch[ANSWER + KEY_] == state[g + goals.G_HIGH]:
        for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
            i = table[topology.MEMBER + m]
            if scratch[ANSWER + NEAR_ + i] > state[g + goals.MOST + i]:
                return False
    return True


@kernel
def allows(nodes: MultiwayNodes, walking: HeapWalk, g: int, o: int, v: int, low: int, least: int) -> int:
    """What the extremes of node o imply about v-tuples with keys from `low`, the lower bounds at state[least] and the upper ones of goal
    g."""
    M, table, state = nodes.M, nodes.table, walking.state
    high = state[g + goals.G_HIGH]
    k0, k1 = key_of(nodes, o, 0, v), key_of(nodes, o, 1, v)
    if k1 < low or k0 > high:
        return NO
    begins, ends = near_at(table, o, 0), near_at(table, o, 1)
    span = table[topology.SPAN]
    least_is, greatest_is = k0 >= low, k1 <= high
    for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
        i = table[topology.MEMBER + m]
        if k1 == low and M[ends + m] < state[least + i]:
            return NO
        if k0 == high and M[begins + m] > state[g + goals.MOST + i]:
            return NO
        if k0 == low and M[begins + span + m] < state[least + i]:
            least_is = False
        if k1 == high and M[ends + span + m] > state[g + goals.MOST + i]:
            greatest_is = False
    if least_is:
        return LEAST_IS
    return SURELY if greatest_is else PERHAPS


@kernel
def enters(nodes: MultiwayNodes, walking: HeapWalk, g: int, o: int, exact: bool) -> bool:
    """Whether to work on goal g below node o."""
    table, state = nodes.table, walking.state
    v = state[g + goals.G_SUBSET]
    if state[g + goals.G_FREE] != 0:
        return key_of(nodes, o, 0, v) != KEY_MAX
    answer = allows(nodes, walking, g, o, v, state[g + goals.G_LOW], g + goals.LEAST)
    if answer != PERHAPS or not (exact or state[goals.FUEL] <= 0):
        return answer != NO
    ask_bounds(table, walking, v, state[g + goals.G_LOW], g + goals.LEAST)
    return has_tuple(nodes, walking, g, o, v)


@kernel
def crosses(nodes: MultiwayNodes, walking: HeapWalk, o: int, g: int, r: int) -> int:
    """The key at which split r of goal g may be live at node o, by the stored extremes; -1 if it is certainly not live."""
    M, W, table, state = nodes.M, nodes.W, nodes.table, walking.state
    lower, upper = M[o + CHILD], M[o + CHILD + 1]
    lows, highs = key_at(table, lower, 1), key_at(table, upper, 0)
    key = wide(W[lows + table[r + topology.SPLIT_PARTS]])
    if key != W[highs + table[r + topology.SPLIT_PARTS + 6]] or key < state[g + goals.G_LOW] or key > state[g + goals.G_HIGH]:
        return -1
    ends, begins = near_at(table, lower, 1), near_at(table, upper, 0)
    for edge in range(r + topology.SPLIT_EDGES, r + topology.SPLIT_EDGES + 4 * table[r + topology.SPLIT_CROSS], 4):
        if M[ends + table[edge + 2]] < M[begins + table[edge + 3]]:
            return -1
    for c in range(1, table[r + topology.SPLIT_COUNT]):
        if W[lows + table[r + topology.SPLIT_PARTS + c]] != key:
            return -1
    for c in range(1, table[r + topology.SPLIT_COUNT + 1]):
        if W[highs + table[r + topology.SPLIT_PARTS + 6 + c]] != key:
            return -1
    return key


@kernel
def live(nodes: MultiwayNodes, walking: HeapWalk, o: int, g: int, r: int, key: int) -> bool:
    """Whether split r of goal g, with `key` from `crosses`, has a tuple within the bounds at node o: exact. Leaves the lower bounds that
    the components of the lower side must keep in state[SHARP], by alias."""
    M, table, state, scratch = nodes.M, nodes.table, walking.state, walking.scratch
    lower, upper = M[o + CHILD], M[o + CHILD + 1]
    begins = near_at(table, upper, 0)
    same = key == state[g + goals.G_LOW]
    for i in range(6):
        state[goals.SHARP + i] = state[g + goals.LEAST + i] if same else NEG_INF
    first, behind = r + topology.SPLIT_EDGES, r + topology.SPLIT_EDGES + 4 * table[r + topology.SPLIT_CROSS]
    if state[g + goals.G_FREE] != 0:
        for edge in range(first, behind, 4):
            state[goals.SHARP + table[edge]] = max(state[goals.SHARP + table[edge]], M[begins + table[edge + 3]])
        return True
    for c in range(table[r + topology.SPLIT_COUNT + 1]):
        v = table[r + topology.SPLIT_PARTS + 6 + c]
        answer = allows(nodes, walking, g, upper, v, state[g + goals.G_LOW], g + goals.LEAST)
        if answer == NO:
            return False
        if answer != LEAST_IS:
            ask_bounds(table, walking, v, key, g + goals.LEAST)
            if not has_tuple(nodes, walking, g, upper, v) or scratch[ANSWER + KEY_] != key:
                return False
        lo, hi = table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]
        for edge in range(first, behind, 4):
            if lo <= table[edge + 3] < hi:
                bound = M[begins + table[edge + 3]] if answer == LEAST_IS else scratch[ANSWER + NEAR_ + table[edge + 1]]
                state[goals.SHARP + table[edge]] = max(state[goals.SHARP + table[edge]], bound)
    for c in range(table[r + topology.SPLIT_COUNT]):
        v = table[r + topology.SPLIT_PARTS + c]
        answer = allows(nodes, walking, g, lower, v, key, goals.SHARP)
        if answer == NO:
            return False
        if answer == PERHAPS:
            ask_bounds(table, walking, v, key, goals.SHARP)
            if not has_tuple(nodes, walking, g, lower, v):
                return False
    return True


# --- working


@kernel
def divide(nodes: MultiwayNodes, walking: HeapWalk, o: int, g: int, r: int, key: int) -> None:
    """Replace goal g by the goals of live split r at node o, and begin the first."""
    M, table, state = nodes.M, nodes.table, walking.state
    v, next, before = state[g + goals.G_SUBSET], state[g + goals.G_NEXT], state[g + goals.G_BEFORE]
    for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
        before |= 1 << table[topology.MEMBER + m]
    free, low = state[g + goals.G_FREE] != 0, table[r + topology.SPLIT_L]
    for side in range(1, -1, -1):
        for c in range(table[r + topology.SPLIT_COUNT + side]):
            part = table[r + topology.SPLIT_PARTS + 6 * side + c]
            for m in range(table[topology.POS + part], table[topology.POS + part] + table[topology.SIZE + part]):
                before &= ~(1 << table[topology.MEMBER + m])
            next = add_goal(table, walking, M[o + CHILD + side], part, next, before, key, key)
            for m in range(table[topology.POS + part], table[topology.POS + part] + table[topology.SIZE + part]):
                i = table[topology.MEMBER + m]
                if not free:
                    state[next + goals.GIVEN_MOST + i] = state[g + goals.MOST + i]
                    state[next + goals.GIVEN_LEAST + i] = state[g + goals.LEAST + i]
                if (low >> i) & 1 != 0:
                    state[next + goals.GIVEN_LEAST + i] = state[goals.SHARP + i]
    begin(table, walking, next)


@kernel
def alias_enters(nodes: MultiwayNodes, walking: HeapWalk, g: int, o: int, i: int) -> bool:
    """As `enters`, for a goal of alias i alone."""
    state, scratch = walking.state, walking.scratch
    high, most, low, least = state[g + goals.G_HIGH], state[g + goals.MOST + i], state[g + goals.G_LOW], state[g + goals.LEAST + i]
    if not (at_most(nodes, o, i, high, most) and at_least(nodes, o, i, low, least)):
        return False
    if state[goals.FUEL] > 0:
        return True
    reach(nodes, scratch, o, i, high, most)
    return scratch[FOUND_] > low or (scratch[FOUND_] == low and scratch[FOUND_ + 2] >= least)


@kernel
def alias_step(nodes: MultiwayNodes, walking: HeapWalk, f: int) -> bool:
    """Continue at an inner node with a goal of one alias, which has no splits; False when the frame is finished."""
    M, W, state = nodes.M, nodes.W, walking.state
    o, g = state[f + goals.NODE], state[f + goals.GOAL]
    i = state[g + goals.G_SUBSET]
    while height_of(W, o) > 0:
        state[goals.STEPS] += 1
        lower, upper = M[o + CHILD], M[o + CHILD + 1]
        after = alias_enters(nodes, walking, g, upper, i)
        if alias_enters(nodes, walking, g, lower, i):
            if after:
                state[f + goals.NODE], state[f + goals.STEP], state[f + goals.TRIED] = upper, 0, 0
                push_frame(walking, lower, g, state[f + goals.GOALS_])
                return True
            o = lower
        elif after:
            o = upper
        else:
            return False
    state[f + goals.NODE] = o
    return True


@kernel
def inner_step(nodes: MultiwayNodes, walking: HeapWalk, f: int) -> bool:
    """Continue at an inner node; False when the frame is finished."""
    M, table, state = nodes.M, nodes.table, walking.state
    o, g = state[f + goals.NODE], state[f + goals.GOAL]
    if state[f + goals.STEP] == 0:
        state[f + goals.STEP] = 1
        if enters(nodes, walking, g, M[o + CHILD], False):
            push_frame(walking, M[o + CHILD], g, state[f + goals.GOALS_])
            return True
    state[goals.GOALS] = state[f + goals.GOALS_]
    v = state[g + goals.G_SUBSET]
    splits, records = table[topology.NSPLITS + v], table[topology.SPLITS + v]
    while state[f + goals.STEP] <= splits:
        r = table[records + state[f + goals.STEP] - 1]
        state[f + goals.STEP] += 1
        key = crosses(nodes, walking, o, g, r)
        if key < 0 or not live(nodes, walking, o, g, r, key):
            continue
        if state[f + goals.TRIED] == 0 and state[g + goals.G_NEXT] == goals.NO_GOAL:
            state[f + goals.TRIED] = 1
            if gather_across(nodes, walking, o, g, key):
                state[f + goals.STEP], state[goals.CROSSING] = splits + 1, 1
                push_frame(walking, goals.IN_STRIP, g, state[f + goals.GOALS_])
                return True
        divide(nodes, walking, o, g, r, key)
        return True
    if enters(nodes, walking, g, M[o + CHILD + 1], False):
        state[f + goals.NODE], state[f + goals.STEP], state[f + goals.TRIED] = M[o + CHILD + 1], 0, 0
        return True
    return False


@kernel
def walk(nodes: MultiwayNodes, walking: HeapWalk, emitted: RowBuffer, n: int, end: int, until: int) -> int:
    """Continue until the rows written reach `end`, the steps exceed `until`, or all rows are found (state[DEPTH] is 0). Returns the number
    of rows written."""
    W, table, state, ZW = nodes.W, nodes.table, walking.state, walking.ZW
    while state[goals.DEPTH] > 0 and state[goals.STEPS] < until:
        f = goals.FRAME0 + goals.FRAME_WORDS * (state[goals.DEPTH] - 1)
        state[goals.STEPS] += 1
        if state[f + goals.STEP] == 0:
            state[f + goals.ROWS_] = state[goals.ROWS]
        o, depth = state[f + goals.NODE], state[goals.DEPTH]
        if o == goals.IN_STRIP or height_of(W, o) == 0:
            if o == goals.IN_STRIP:
                n = leaf_step(MultiwayNodes(state, ZW, table), walking, state[goals.STRIP], f, emitted, n, end)
            else:
                n = leaf_step(nodes, walking, o, f, emitted, n, end)
            if n == end and state[f + goals.STEP] > 0:
                return n
            done = state[goals.DEPTH] == depth and state[f + goals.STEP] == 0
        elif table[topology.NSPLITS + state[state[f + goals.GOAL] + goals.G_SUBSET]] == 0:
            done = not alias_step(nodes, walking, f)
        else:
            done = not inner_step(nodes, walking, f)
        if done:
            state[goals.DEPTH] -= 1
            if state[goals.ROWS] == state[f + goals.ROWS_]:
                state[goals.DEAD] += 1
                state[goals.FUEL] -= 1
    return n


@kernel("int64(MultiwayNodes, HeapWalk, int64, Entries, int64, int64, RowBuffer, int64)")
def walk_fill(
    nodes: MultiwayNodes, walking: HeapWalk, root: int, entries: Entries, lo: int, hi: int, emitted: RowBuffer, steps: int
) -> int:
    """Write up to `stride` rows, in about `steps` steps: first of the entry in progress, then of entry after entry; all intervals meet [lo,
    hi]. state[ITEM] entries have begun; all rows are found when that is their number and state[DEPTH] and state[EACH_KEY] are 0 afterwards.
    O(1) a row where rows abound, otherwise polylog(n) steps between two: O(steps)."""
    state = walking.state
    n, until = 0, state[goals.STEPS] + steps
    while n < emitted.stride and state[goals.STEPS] < until:
        if state[goals.DEPTH] == 0:
            state[goals.STEPS] += 1
            if state[goals.EACH_KEY] != 0:
                next_key(nodes, walking)
            elif state[goals.ITEM] == len(entries.set):
                break
            else:
                state[goals.ITEM] += 1
                start_partners(nodes, walking, root, entry_of(entries, state[goals.ITEM] - 1), lo, hi)
        n = walk(nodes, walking, emitted, n, emitted.stride, until)
    return n
