"""The AND of qdags, depth first in Morton order: what a cursor of `qdag.py` runs on.

A frame is a node of the completions' intersection: a level, and of each qdag the node of its base quadtree that stands there. Its children
that no qdag leaves empty are one word: each qdag says which of its base node's children there are, each of these stands for the quadrants
that project to it (EXT), and the words are ANDed. So Algorithm 5's test of 2**d children is a few operations. Where all that is left lies
in leaves, their entries are joined one by one instead of bit by bit.

Variables with given values are bound at once, not level by level: an atom all of whose variables are given is a cell; one of which some
are is a subtree of a tree with these first. What is left is an AND over the free variables only.

Where atoms are only tested (`absent.py`), their refs go down beside the others.

Where each tuple is told once (ONCE), one entry of each atom stands for all that have the tuple. The tuple is told behind the slots.

Steps are joint nodes, entries of leaves tried and rows of cells; a dead end is a joint node without children, or an item or an entry tried
that joins none. Source: Navarro, Reutter and Rojas-Ledesma, section 3, Algorithms 2 (ChildAt), 3 (Extend) and 5 (And); its pruning step
has nothing to do here, as no tree is made of the result.
"""

from __future__ import annotations

from typing import Any

from structures.core.bits import count_bits, equal16, lowest
from structures.core.kernel import kernel, wide
from structures.qdag.absent import begin_tested, descend_tested, has_live_tests, passes, permitted
from structures.qdag.layout import (
    ALL,
    ARITY,
    AT,
    ATOM,
    ATOM_WORDS,
    ATOMS,
    BOUND,
    CANDIDATES,
    CELL,
    CHECKS,
    DEAD,
    DEPTH,
    FIRST,
    FRAMES,
    GAP,
    GIVEN,
    ITEM,
    ITEMS,
    JOIN,
    JOINT,
    LATE,
    LEVEL,
    LINE,
    NOTHING,
    ONCE,
    PLACE,
    SINCE,
    SLOTS,
    SOURCES,
    STEPS,
    SUBSET,
    TESTED,
    VALUES,
    VARIABLES,
    WAY_WORDS,
    WAYS,
    WIDTH,
    Walking,
    base_of,
    bits_of,
    root_of,
)
from structures.qdag.refs import agreeing, await_child, bind, child_at, enter, enter_child, first_of_each, loaded, quadrants
from structures.quadtree.layout import LEAF, QuadNodes
from structures.quadtree.search import children_of


@kernel(forceinline=True)
def common(nodes: QuadNodes, walking: Walking, g: int, plain: bool) -> int:
    """The children of frame g that no qdag leaves empty."""
    P, R, Z = walking.P, walking.R, walking.Z
    mask, b = P[ALL], Z[g]
    for t in range(P[JOINT]):
        if b < bits_of(R, t):
            Z[g + 4 + t] = loaded(nodes, walking, t, Z[g + 4 + t], b)
        mask &= quadrants(nodes, walking, t, Z[g + 4 + t], b)
        if mask == 0:
            return mask
    return mask if plain or P[TESTED] == 0 else permitted(nodes, walking, g, mask, b)


@kernel
def take_given(walking: Walking) -> None:
    """The item's values, of the variables that are given."""
    P, items, Z = walking.P, walking.items, walking.Z
    left, v = P[BOUND], (Z[ITEM] - 1) * P[WIDTH] + 1
    while left != 0:
        Z[VALUES + lowest(left)] = items[v + lowest(left)]
        left &= left - 1


@kernel(forceinline=True)
def take_values(walking: Walking, t: int, i: int) -> None:
    """Those of entry i of joint atom t's leaf, but for given ones, which may not be there."""
    P, S, Z = walking.P, walking.S, walking.Z
    a = ATOM + t * ATOM_WORDS
    for j in range(P[a + FIRST], P[a + ARITY]):
        Z[VALUES + P[a + VARIABLES + j]] = S[t * LINE + j * LEAF + i]


@kernel
def one_of_many(nodes: QuadNodes, walking: Walking, t: int, ref: int, b: int) -> int:
    """The ref of one entry of a cell of many rows, its leaf in hand."""
    P, R = walking.P, walking.R
    k = P[ATOM + t * ATOM_WORDS + ARITY]
    while ref & SUBSET == 0:
        child, b = lowest(children_of(nodes, base_of(R, t), ref >> AT, k)), b - 1
        ref = loaded(nodes, walking, t, enter_child(nodes, base_of(R, t), ref >> AT, k, child), b)
    return ref & -ref


@kernel
def begin(nodes: QuadNodes, walking: Walking) -> int:
    """The level of the root of the next item's AND, its refs in the first frame and in the cells; NOTHING: nothing can be there."""
    W, P, R, Z = nodes.W, walking.P, walking.R, walking.Z
    joint, top, anew = P[JOINT], wide(0), Z[ITEM] == 0
    Z[ITEM] += 1
    for t in range(P[ATOMS] + P[TESTED] if anew else 0):
        Z[WAYS + t * WAY_WORDS] = -1
    for t in range(P[ATOMS]):
        if root_of(R, t) == 0:
            return NOTHING
        if t < joint:
            top = max(top, bits_of(R, t))
    if P[ONCE] != 0:
        take_given(walking)
    for t in range(P[ATOMS]):
        a = ATOM + t * ATOM_WORDS
        if t >= joint:
            ref = bind(nodes, walking, t, P[a + ARITY])
            Z[CELL + t], Z[LEVEL + t] = ref, -1
        elif P[a + FIRST] > 0:
            ref = bind(nodes, walking, t, P[a + FIRST])
            Z[FRAMES + 4 + t] = ref
        else:
            ref = enter(W, root_of(R, t))
            Z[FRAMES + 4 + t] = ref
        if ref == 0:
            return NOTHING
    return top - 1 if begin_tested(nodes, walking, top) else NOTHING


@kernel
def report(nodes: QuadNodes, walking: Walking, t: int, out: Any, n: int) -> int:
    """With the slots of the atoms before t chosen: go on with the cell's rows from atom t on. The rows written are those before n, and one
    more if every atom from t on has a single one; else a frame waits."""
    P, R, items, S, Z = walking.P, walking.R, walking.items, walking.S, walking.Z
    m = P[ATOMS]
    while t < m:
        ref = loaded(nodes, walking, t, Z[CELL + t], Z[LEVEL + t])
        if P[ONCE] != 0:
            ref = one_of_many(nodes, walking, t, ref, Z[LEVEL + t])
            if t < P[JOINT]:
                take_values(walking, t, lowest(ref))
        some, k = ref & SUBSET, P[ATOM + t * ATOM_WORDS + ARITY]
        if some == 0 or some & (some - 1) != 0:
            f = FRAMES + Z[DEPTH] * (4 + P[JOINT] + P[TESTED])
            Z[f], Z[f + 2], Z[f + 3] = -1 - t, Z[LEVEL + t], ref
            Z[f + 1] = some if some != 0 else children_of(nodes, base_of(R, t), ref >> AT, k)
            Z[DEPTH] += 1
            return n
        Z[SLOTS + t] = S[t * LINE + k * LEAF + lowest(some)]
        t += 1
    for t in range(m):
        out[P[ATOM + t * ATOM_WORDS + PLACE], n] = Z[SLOTS + t]
    if P[GIVEN] >= 0:
        out[P[GIVEN], n] = items[(Z[ITEM] - 1) * P[WIDTH]]
    if P[ONCE] != 0:
        first = out.shape[0] - P[WIDTH] + 1
        for v in range(P[WIDTH] - 1):
            out[first + v, n] = Z[VALUES + v]
    Z[GAP] = max(Z[GAP], Z[STEPS] - Z[SINCE])
    Z[SINCE] = Z[STEPS]
    return n + 1


@kernel
def next_in_cell(nodes: QuadNodes, walking: Walking, f: int, out: Any, n: int) -> int:
    """Frame f, of an atom's rows, goes to the next of them, or of its node's children."""
    P, R, S, Z = walking.P, walking.R, walking.S, walking.Z
    left = Z[f + 1]
    i, t, ref = lowest(left), -1 - Z[f], Z[f + 3]
    Z[f + 1] = left & (left - 1)
    Z[STEPS] += 1
    k = P[ATOM + t * ATOM_WORDS + ARITY]
    if ref & SUBSET != 0:
        Z[SLOTS + t] = S[t * LINE + k * LEAF + i]
        return report(nodes, walking, t + 1, out, n)
    whole, level = Z[CELL + t], Z[LEVEL + t]
    Z[LEVEL + t] = Z[f + 2] - 1
    Z[CELL + t] = enter_child(nodes, base_of(R, t), ref >> AT, k, i)
    n = report(nodes, walking, t, out, n)
    Z[CELL + t], Z[LEVEL + t] = whole, level
    return n


@kernel
def all_leaves(walking: Walking, g: int) -> bool:
    P, Z = walking.P, walking.Z
    for t in range(P[JOINT]):
        if Z[g + 4 + t] & SUBSET == 0:
            return False
    return True


@kernel(forceinline=True)
def write_rows(walking: Walking, t: int, out: Any, n: int) -> int:
    """Rows of the slots before atom t, the last one, and its candidates, until none is left or `out` is full; how many there are then."""
    P, S, Z = walking.P, walking.S, walking.Z
    a, left, start, steps = ATOM + t * ATOM_WORDS, Z[CANDIDATES + t], n, Z[STEPS]
    line, slots = P[a + PLACE], t * LINE + P[a + ARITY] * LEAF
    while left != 0 and n < out.shape[1]:
        out[line, n] = S[slots + lowest(left)]
        left &= left - 1
        n += 1
    Z[CANDIDATES + t] = left
    fill_others(walking, t, out, start, n)
    Z[STEPS] = steps + n - start
    Z[GAP] = max(Z[GAP], steps + 1 - Z[SINCE])
    Z[SINCE] = Z[STEPS]
    return n


@kernel(forceinline=True)
def join_last_two(walking: Walking, t: int, some: int, out: Any, n: int) -> int:
    """Rows of the slots before atom t, its candidates, and those of the last atom's entries `some` that agree with them, until no candidate
    is left or `out` is full, maybe within the last atom's candidates; how many rows there are then."""
    P, S, Z = walking.P, walking.S, walking.Z
    a, z, start = ATOM + t * ATOM_WORDS, ATOM + (t + 1) * ATOM_WORDS, n
    late, sources, limit = P[z + LATE], P[z + SOURCES], out.shape[1]
    some = agreeing(walking, t + 1, some, P[z + CHECKS] & ~late, Z, VALUES)
    left, found, gap, dead, idle = Z[CANDIDATES + t], wide(0), Z[GAP], wide(0), Z[STEPS] - Z[SINCE]  # idle: steps since a row
    tried = count_bits(left)
    line, last, slots, ends = P[a + PLACE], P[z + PLACE], t * LINE + P[a + ARITY] * LEAF, (t + 1) * LINE + P[z + ARITY] * LEAF
    i, j = wide(0), lowest(late) if late != 0 else wide(0)
    source, column = t * LINE + ((sources >> 4 * j) & 15) * LEAF, (t + 1) * LINE + j * LEAF
    while left != 0 and n < limit:
        i = lowest(left)
        left &= left - 1
        found, rest = some, late & (late - 1)
        if late != 0:
            found &= equal16(S, column, wide(S[source + i]))
        while rest != 0:
            j = lowest(rest)
            rest &= rest - 1
            value = wide(S[t * LINE + ((sources >> 4 * j) & 15) * LEAF + i])
            found &= equal16(S, (t + 1) * LINE + j * LEAF, value)
        if found == 0:
            dead += 1
            idle += 1
            continue
        gap, idle, slot = max(gap, idle + 2), 0, S[slots + i]
        while found != 0 and n < limit:
            out[line, n], out[last, n] = slot, S[ends + lowest(found)]
            found &= found - 1
            n += 1
    if found != 0:
        Z[SLOTS + t] = S[slots + i]
    Z[CANDIDATES + t], Z[CANDIDATES + t + 1], Z[GAP] = left, found, gap
    Z[STEPS] += tried - count_bits(left) + n - start
    Z[SINCE] = Z[STEPS] - idle
    Z[DEAD] += dead
    fill_others(walking, t, out, start, n)
    return n


@kernel(forceinline=True)
def fill_others(walking: Walking, t: int, out: Any, start: int, n: int) -> None:
    """The slots of the atoms before t, and of the given one, in the rows [start, n)."""
    P, items, Z = walking.P, walking.items, walking.Z
    for before in range(t):
        out[P[ATOM + before * ATOM_WORDS + PLACE], start:n] = Z[SLOTS + before]
    if P[GIVEN] >= 0:
        out[P[GIVEN], start:n] = items[(Z[ITEM] - 1) * P[WIDTH]]


@kernel(forceinline=True)
def to_try(walking: Walking, t: int, some: int, plain: bool) -> int:
    """Those of some entries of joint atom t's leaf that are tried."""
    P, S = walking.P, walking.S
    a = ATOM + t * ATOM_WORDS
    return some if plain or P[ONCE] == 0 else first_of_each(S, t * LINE, P[a + FIRST], P[a + ARITY], some)


@kernel(forceinline=True)
def join_leaves(nodes: QuadNodes, walking: Walking, f: int, out: Any, n: int, stop: int, plain: bool) -> int:
    """Go on with the leaves of frame f until they are done, `out` is full, `stop` is reached, or the rows of a cell come between."""
    P, S, Z = walking.P, walking.S, walking.Z
    m, depth, tested = P[JOINT], Z[DEPTH], not plain and (P[ONCE] != 0 or has_live_tests(walking, f))
    t = Z[f + 1] - 1
    while t >= 0 and n < out.shape[1] and Z[STEPS] < stop and Z[DEPTH] == depth:
        left = Z[CANDIDATES + t]
        if left == 0:
            t -= 1
            continue
        if t == P[ATOMS] - 1 and not tested:
            n = write_rows(walking, t, out, n)
            continue
        if t == P[ATOMS] - 2 and m == P[ATOMS] and not tested:
            Z[f + 5 + t] = loaded(nodes, walking, t + 1, Z[f + 5 + t], Z[f + 2])
            n = join_last_two(walking, t, Z[f + 5 + t], out, n)
            if Z[CANDIDATES + t + 1] != 0:
                t += 1
            continue
        Z[CANDIDATES + t] = left & (left - 1)
        Z[STEPS] += 1
        a = ATOM + t * ATOM_WORDS
        Z[SLOTS + t] = S[t * LINE + P[a + ARITY] * LEAF + lowest(left)]
        if t < m - 1 or tested:
            take_values(walking, t, lowest(left))
        if t == m - 1:
            if not tested or passes(nodes, walking, f):
                n = report(nodes, walking, m, out, n)
            else:
                Z[DEAD] += 1
            continue
        Z[f + 5 + t] = loaded(nodes, walking, t + 1, Z[f + 5 + t], Z[f + 2])
        found = agreeing(walking, t + 1, Z[f + 5 + t], P[a + ATOM_WORDS + CHECKS], Z, VALUES)
        if found == 0:
            Z[DEAD] += 1
            continue
        t += 1
        Z[CANDIDATES + t] = to_try(walking, t, found, plain)
    Z[f + 1] = t + 1
    return n


@kernel
def and_steps(nodes: QuadNodes, walking: Walking, out: Any, n: int, stop: int) -> int:
    """Go on until `out` (a line an alias), n rows long, is full, all items are done, or Z[STEPS] has reached `stop`, which an entry and
    its partners in a leaf may exceed; its rows then."""
    P = walking.P
    if P[TESTED] == 0 and P[ONCE] == 0:
        return plain_steps(nodes, walking, out, n, stop)
    return other_steps(nodes, walking, out, n, stop)


@kernel
def plain_steps(nodes: QuadNodes, walking: Walking, out: Any, n: int, stop: int) -> int:
    """As `and_steps`, compiled without what most readings have no use for, which takes 5 to 10 % of a walk."""
    return go_on(nodes, walking, out, n, stop, True)


@kernel
def other_steps(nodes: QuadNodes, walking: Walking, out: Any, n: int, stop: int) -> int:
    """As `and_steps`."""
    return go_on(nodes, walking, out, n, stop, False)


@kernel(forceinline=True)
def go_on(nodes: QuadNodes, walking: Walking, out: Any, n: int, stop: int, plain: bool) -> int:
    """As `and_steps`. `plain`: no atom is only tested, and each row is told."""
    W, P, Z = nodes.W, walking.P, walking.Z
    m, width = P[JOINT], 4 + P[JOINT] + P[TESTED]
    while n < out.shape[1] and Z[STEPS] < stop:
        if Z[DEPTH] == 0:
            if Z[ITEM] == Z[ITEMS]:
                break
            g = wide(FRAMES)
            Z[g] = begin(nodes, walking)
            Z[STEPS] += 1
            if Z[g] == NOTHING:
                Z[DEAD] += 1
                continue
        else:
            f = FRAMES + (Z[DEPTH] - 1) * width
            left, b = Z[f + 1], Z[f]
            if left == 0:
                Z[DEPTH] -= 1
                continue
            if b < 0 and b != JOIN:
                n = next_in_cell(nodes, walking, f, out, n)
                continue
            g = f
            if b != JOIN:
                i = lowest(left)
                left &= left - 1
                Z[f + 1] = left
                if left == 0:  # the last child takes its parent's place
                    Z[DEPTH] -= 1
                else:
                    g = f + width
                    for t in range(m):
                        await_child(W, walking, t, Z[f + 4 + t], b, lowest(left))
                for t in range(m):
                    Z[g + 4 + t] = child_at(nodes, walking, t, Z[f + 4 + t], b, i)
                if not plain and P[TESTED] > 0:
                    descend_tested(nodes, walking, f, g, b, i)
                Z[g] = b - 1
                Z[STEPS] += 1
        if Z[g] != JOIN and m > 0 and all_leaves(walking, g):
            Z[g + 4] = loaded(nodes, walking, 0, Z[g + 4], Z[g])
            Z[g], Z[g + 1], Z[g + 2], Z[CANDIDATES] = JOIN, 1, Z[g], to_try(walking, 0, Z[g + 4], plain)
            Z[DEPTH] += 1
        if Z[g] == JOIN:
            n = join_leaves(nodes, walking, g, out, n, stop, plain)
            if Z[g + 1] == 0 and FRAMES + (Z[DEPTH] - 1) * width == g:
                Z[DEPTH] -= 1
        elif m == 0 or Z[g] < 0:
            for t in range(m):
                Z[CELL + t], Z[LEVEL + t] = Z[g + 4 + t], -1
            n = report(nodes, walking, 0, out, n)
        else:
            Z[g + 1] = common(nodes, walking, g, plain)
            if Z[g + 1] != 0:
                Z[DEPTH] += 1
            else:
                Z[DEAD] += 1
    return n
