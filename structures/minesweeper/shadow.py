r"""The next tuple that no constraint rules out: GETPROBEPOINT, for orders that give chains and for all others.

Values are found level by level. The constraints on level i, given the values before it, are those of the nodes whose patterns these
values match, u1 .. uk, those with the most values first. If each pattern generalises the one before it they are a *chain*, as they are in a
nested elimination order; otherwise the shadow of uj is the pattern with all values that uj .. uk have, again a chain. On a chain the shadow
is uj.

    next_value(j, x): the least value >= x free in uj .. uk. What follows from the more general nodes is added to the shadow of uj as one
    interval [x, y - 1], so that no interval between is met again by any tuple that matches it.

If no value is free, the values of u1's shadow are the cause: the last of them is ruled out in combination with the others
(`rule_out`), and the search returns to its level. This is valid only if nothing is free at all: if the search began in the middle
(the *frontier*, before which everything is reported or ruled out), it repeats from the least value, and if a value is free there, perhaps
of reported rows, it continues with the next prefix and infers nothing.

Costs: O(log n) a step; with a certificate of C comparisons O(C) steps, amortised, in nested orders, O(C^(w + 1)) for treewidth w, as long
as the tree is never full. Source: *Beyond Worst-case Analysis for Joins with Minesweeper*, Algorithms 3 and 4, and Section 5.1;
docs/design/natural-joins.md (*minesweeper*).
"""

from __future__ import annotations

from typing import Any

from structures.core.bits import count_bits, highest
from structures.core.kernel import kernel, wide
from structures.minesweeper import cds
from structures.minesweeper.cds import (
    GREATEST,
    LEAST,
    LIST,
    LISTS,
    NODE_WORDS,
    ROOT,
    SIZES,
    Constraints,
    bring_up,
    child,
    is_short,
    next_free,
    node_of,
    put_interval,
)

# Words of the state of a reading (`walk.py`): counters, how many of the tuple's first values equal the frontier's; for triangles the pairs
# visited, and whether the frontier is at the end; the frontier, the tuple.
AT, PHASE, STEPS, LAST, GAP, PROBES, OUTPUTS, LOOKUPS, CONSTRAINTS, RESETS, FORGOTTEN, COVERED, TIGHT, PAIRS, OVER = range(15)
FRONTIER = OVER + 1
TUPLE = FRONTIER + cds.MOST_LEVELS
POSITIONS = TUPLE + cds.MOST_LEVELS

# Scratch for one level: the nodes; for each the node of its shadow (0: none) and its bits, and of the search the first value, the current
# one, and the mask of what it met. Then the number of nodes; the value found, and the mask.
U, SHADOW, SHADOW_BITS, FROM, TO, MASK = (cds.SCRATCH + LIST * part for part in range(6))
NODES_, VALUE, MET = (cds.SCRATCH + 6 * LIST + word for word in range(3))

NONE, FREE, STOPPED, ENDED = range(4)


@kernel
def list_level(tree: Constraints, state: Any, i: int) -> None:
    """List the nodes of depth i that the tuple matches, from those above them; the log is applied to all."""
    table, scratch = tree.table, tree.scratch
    to, n = LISTS + LIST * i, wide(0)
    if i == 0:
        scratch[to], n = ROOT, wide(1)
        state[STEPS] += bring_up(tree, ROOT)
    else:
        above = to - LIST
        for a in range(scratch[SIZES + i - 1]):
            v = scratch[above + a]
            for u in (table[NODE_WORDS * v + cds.STAR], child(tree, v, state[TUPLE + i - 1])):
                if u != 0:
                    state[STEPS] += bring_up(tree, u)
                    scratch[to + n] = u
                    n += 1
    scratch[SIZES + i] = n


@kernel
def gather(tree: Constraints, state: Any, i: int) -> None:
    """Collect the nodes of level i that have intervals, those with the most values first, and their shadows."""
    table, scratch = tree.table, tree.scratch
    if table[cds.LISTED] != table[cds.MADE]:  # new nodes may belong to any level
        for d in range(i):
            list_level(tree, state, d)
        table[cds.LISTED] = table[cds.MADE]
    list_level(tree, state, i)
    to, size, k = LISTS + LIST * i, scratch[SIZES + i], wide(0)
    for a in range(size):
        v = scratch[to + a]
        if table[NODE_WORDS * v + cds.COUNT] != 0:
            bits, b = count_bits(table[NODE_WORDS * v + cds.BITS]), k
            while b > 0 and count_bits(table[NODE_WORDS * scratch[U + b - 1] + cds.BITS]) < bits:
                scratch[U + b] = scratch[U + b - 1]
                b -= 1
            scratch[U + b] = v
            k += 1
    bits = wide(0)
    for j in range(k - 1, -1, -1):
        bits |= table[NODE_WORDS * scratch[U + j] + cds.BITS]
        scratch[SHADOW_BITS + j], scratch[SHADOW + j] = bits, 0
        for a in range(size):
            if table[NODE_WORDS * scratch[to + a] + cds.BITS] == bits:
                scratch[SHADOW + j] = scratch[to + a]
    scratch[NODES_] = k


@kernel
def own_free(tree: Constraints, state: Any, j: int, x: int) -> tuple[bool, int, int]:
    """The least value >= x free in node j and in its shadow: whether there is one, and the value; and the mask of the intervals met."""
    scratch = tree.scratch
    u, shadow = scratch[U + j], scratch[SHADOW + j]
    state[STEPS] += 1
    found, y, mask = next_free(tree, u, x)
    if shadow == 0 or shadow == u:
        return found, y, mask
    z = y
    while found:
        state[STEPS] += 1
        found, z, more = next_free(tree, shadow, y)
        mask |= more
        if not found or z == y:
            break
        found, y, more = next_free(tree, u, z)
        mask |= more
        if y == z:
            break
    return found, max(y, z), mask


@kernel
def remember(tree: Constraints, state: Any, i: int, j: int, last: int, mask: int) -> None:
    """Insert into the shadow of node j of level i, if there is room, that nothing is free from the first value of its search to `last`."""
    scratch = tree.scratch
    if scratch[SHADOW + j] == 0:
        if is_short(tree):
            return
        scratch[SHADOW + j] = node_of(tree, scratch[SHADOW_BITS + j], i, state, TUPLE)
    if scratch[SHADOW + j] == scratch[U + j] or not is_short(tree):
        state[CONSTRAINTS] += put_interval(tree, scratch[SHADOW + j], scratch[FROM + j], last, mask)


@kernel
def stop_here(tree: Constraints, state: Any, i: int, j: int, y: int) -> int:
    """Suspend the search at value y and node j: insert what it has found, so that the next one has it."""
    scratch, mask = tree.scratch, wide(0)
    for a in range(j, -1, -1):
        mask |= scratch[MASK + a]
        if y > scratch[FROM + a]:
            remember(tree, state, i, a, y - 1, mask)
    return STOPPED


@kernel
def next_value(tree: Constraints, state: Any, i: int, x: int, stop: int) -> int:
    """Find the least value >= x of level i free in all nodes: scratch[VALUE], or return NONE. scratch[MET]: the mask of all intervals
    met."""
    scratch = tree.scratch
    k, j, y, found = scratch[NODES_], wide(0), x, True
    scratch[FROM], scratch[MASK] = x, 0
    while j < k:  # the search in node j begins at scratch[FROM + j]
        found, y, scratch[MASK + j] = own_free(tree, state, j, scratch[FROM + j])
        if found and j < k - 1:
            if state[STEPS] >= stop:
                return stop_here(tree, state, i, j, y)
            scratch[TO + j], scratch[FROM + j + 1] = y, y
            j += 1
            continue
        again = False
        while j > 0 and not again:  # node j has found y, or nothing
            j -= 1
            scratch[MASK + j] |= scratch[MASK + j + 1]
            if found and y != scratch[TO + j]:
                z = y
                found, y, more = own_free(tree, state, j, z)
                scratch[MASK + j] |= more
                again = found and y != z
            if not again and (not found or y > scratch[FROM + j]):
                remember(tree, state, i, j, y - 1 if found else GREATEST, scratch[MASK + j])
        if not again:
            break
        scratch[TO + j], scratch[FROM + j + 1] = y, y
        j += 1
    scratch[VALUE], scratch[MET] = y, scratch[MASK]
    return FREE if found else NONE


@kernel
def rule_out(tree: Constraints, state: Any) -> int:
    """Nothing is free below the values of the first node's shadow: insert that. Returns the level of the last of them; -1 if there is none,
    so that no tuple is left."""
    scratch = tree.scratch
    bits = scratch[SHADOW_BITS]
    if bits == 0:
        state[CONSTRAINTS] += put_interval(tree, ROOT, LEAST, GREATEST, scratch[MET])
        state[COVERED] = 1
        return -1
    last = highest(bits)
    t = state[TUPLE + last]
    state[CONSTRAINTS] += put_interval(tree, node_of(tree, bits ^ (wide(1) << last), last, state, TUPLE), t, t, scratch[MET])
    return last


@kernel
def pass_on(state: Any, i: int, n: int) -> int:
    """Move the frontier past all tuples that begin with its first i values. Returns the level that was incremented, -1 if none are left."""
    i -= 1
    while i >= 0 and state[FRONTIER + i] == GREATEST:
        i -= 1
    if i >= 0:
        state[FRONTIER + i] += 1
        for d in range(i + 1, n):
            state[FRONTIER + d] = LEAST
    return i


@kernel
def keep_prefix(state: Any, i: int, n: int) -> None:
    """Suspend the search at level i, so that it resumes with the values that it has."""
    if state[TIGHT] < i:
        for d in range(n):
            state[FRONTIER + d] = state[TUPLE + d] if d < i else LEAST


@kernel
def next_probe(tree: Constraints, state: Any, n: int, stop: int) -> int:
    """Move the tuple, and the frontier, to the least tuple of n values from the frontier on that no constraint rules out (FREE); ENDED if
    there is none; STOPPED if the steps reach `stop`, or the tree has no room."""
    scratch, i = tree.scratch, wide(0)
    state[TIGHT], tree.table[cds.LISTED] = 0, 0
    while i < n:
        if state[STEPS] >= stop or is_short(tree):
            keep_prefix(state, i, n)
            return STOPPED
        gather(tree, state, i)
        x = state[FRONTIER + i] if state[TIGHT] == i else LEAST
        how = next_value(tree, state, i, x, stop)
        if how == FREE:
            state[TUPLE + i] = scratch[VALUE]
            if state[TIGHT] == i and scratch[VALUE] == state[FRONTIER + i]:
                state[TIGHT] = i + 1
            i += 1
            continue
        if how == NONE and x > LEAST:
            how = next_value(tree, state, i, LEAST, stop)
            if how == FREE:
                i = pass_on(state, i, n)
                if i < 0:
                    return ENDED
                state[TIGHT] = i
                continue
        if how == STOPPED:
            keep_prefix(state, i, n)
            return STOPPED
        i = rule_out(tree, state)
        if i < 0:
            return ENDED
        state[TIGHT] = min(state[TIGHT], i)
    for d in range(n):
        state[FRONTIER + d] = state[TUPLE + d]
    return FREE
