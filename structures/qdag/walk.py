"""The AND of qdags, depth first in Morton order: what a cursor of `qdag.py` runs on.

A frame is a node of the completions' intersection: a level, and of each qdag the node of its base quadtree that stands there. Its children
that no qdag leaves empty are one word: each qdag says which of its base node's children there are, each of these stands for the quadrants
that project to it (EXT), and the words are ANDed. So Algorithm 5's test of 2**d children is a few operations. Where all that is left lies
in leaves, their entries are joined one by one instead of bit by bit.

Variables with given values are bound at once, not level by level: an atom all of whose variables are given is a cell; one of which some
are is a subtree of a tree with these first. What is left is an AND over the free variables only.

If atoms are only tested (`absent.py`), their refs descend beside the others.

If each tuple is reported once (ONCE), one entry of each atom represents all that have the tuple. The tuple is written behind the slots.

Steps are joint nodes, entries of leaves tried and rows of cells; a dead end is a joint node without children, or an item or an entry tried
that joins none. Source: Navarro, Reutter and Rojas-Ledesma, section 3, Algorithms 2 (ChildAt), 3 (Extend) and 5 (And); its pruning step
is not needed here, because no tree is made of the result.
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
    POSITION,
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
    QdagWalk,
    base_of,
    bits_of,
    root_of,
)
from structures.qdag.refs import agreeing, await_child, bind, child_at, enter, enter_child, first_of_each, loaded, quadrants
from structures.quadtree.layout import LEAF, QuadNodes
from structures.quadtree.search import children_of


@kernel(forceinline=True)
def common(nodes: QuadNodes, walking: QdagWalk, g: int) -> int:
    """Return the children of frame g that no qdag leaves empty."""
    plan, roots, state = walking.plan, walking.roots, walking.state
    mask, level = plan[ALL], state[g]
    for t in range(plan[JOINT]):
        if level < bits_of(roots, t):
            state[g + 4 + t] = loaded(nodes, walking, t, state[g + 4 + t], level)
        mask &= quadrants(nodes, walking, t, state[g + 4 + t], level)
        if mask == 0:
            return mask
    return mask if plan[TESTED] == 0 else permitted(nodes, walking, g, mask, level)


@kernel
def take_given(walking: QdagWalk) -> None:
    """Copy the item's values of the given variables to the state."""
    plan, items, state = walking.plan, walking.items, walking.state
    left, v = plan[BOUND], (state[ITEM] - 1) * plan[WIDTH] + 1
    while left != 0:
        state[VALUES + lowest(left)] = items[v + lowest(left)]
        left &= left - 1


@kernel(forceinline=True)
def take_values(walking: QdagWalk, t: int, i: int) -> None:
    """Copy the values of entry i of joint atom t's leaf to the state, except given ones, which the leaf may lack."""
    plan, leaves, state = walking.plan, walking.leaves, walking.state
    a = ATOM + t * ATOM_WORDS
    for j in range(plan[a + FIRST], plan[a + ARITY]):
        state[VALUES + plan[a + VARIABLES + j]] = leaves[t * LINE + j * LEAF + i]


@kernel
def one_of_many(nodes: QuadNodes, walking: QdagWalk, t: int, ref: int, level: int) -> int:
    """Return the ref of one entry of a cell of many rows, with its leaf loaded."""
    plan, roots = walking.plan, walking.roots
    k = plan[ATOM + t * ATOM_WORDS + ARITY]
    while ref & SUBSET == 0:
        child, level = lowest(children_of(nodes, base_of(roots, t), ref >> AT, k)), level - 1
        ref = loaded(nodes, walking, t, enter_child(nodes, base_of(roots, t), ref >> AT, k, child), level)
    return ref & -ref


@kernel
def begin(nodes: QuadNodes, walking: QdagWalk) -> int:
    """Return the level of the root of the next item's AND, after writing its refs to the first frame and the cells; NOTHING: it has no
    rows."""
    W, plan, roots, state = nodes.W, walking.plan, walking.roots, walking.state
    joint, top, anew = plan[JOINT], wide(0), state[ITEM] == 0
    state[ITEM] += 1
    for t in range(plan[ATOMS] + plan[TESTED] if anew else 0):
        state[WAYS + t * WAY_WORDS] = -1
    for t in range(plan[ATOMS]):
        if root_of(roots, t) == 0:
            return NOTHING
        if t < joint:
            top = max(top, bits_of(roots, t))
    if plan[ONCE] != 0:
        take_given(walking)
    for t in range(plan[ATOMS]):
        a = ATOM + t * ATOM_WORDS
        if t >= joint:
            ref = bind(nodes, walking, t, plan[a + ARITY])
            state[CELL + t], state[LEVEL + t] = ref, -1
        elif plan[a + FIRST] > 0:
            ref = bind(nodes, walking, t, plan[a + FIRST])
            state[FRAMES + 4 + t] = ref
        else:
            ref = enter(W, root_of(roots, t))
            state[FRAMES + 4 + t] = ref
        if ref == 0:
            return NOTHING
    return top - 1 if begin_tested(nodes, walking, top) else NOTHING


@kernel
def report(nodes: QuadNodes, walking: QdagWalk, t: int, out: Any, n: int) -> int:
    """Write the rows of the cell for atoms t and later; the slots of the atoms before t are chosen. Returns the number of rows, including
    one more if each atom from t on has a single row; otherwise a frame is pushed for the rest."""
    plan, roots, items, leaves, state = walking.plan, walking.roots, walking.items, walking.leaves, walking.state
    m = plan[ATOMS]
    while t < m:
        ref = loaded(nodes, walking, t, state[CELL + t], state[LEVEL + t])
        if plan[ONCE] != 0:
            ref = one_of_many(nodes, walking, t, ref, state[LEVEL + t])
            if t < plan[JOINT]:
                take_values(walking, t, lowest(ref))
        some, k = ref & SUBSET, plan[ATOM + t * ATOM_WORDS + ARITY]
        if some == 0 or some & (some - 1) != 0:
            f = FRAMES + state[DEPTH] * (4 + plan[JOINT] + plan[TESTED])
            state[f], state[f + 2], state[f + 3] = -1 - t, state[LEVEL + t], ref
            state[f + 1] = some if some != 0 else children_of(nodes, base_of(roots, t), ref >> AT, k)
            state[DEPTH] += 1
            return n
        state[SLOTS + t] = leaves[t * LINE + k * LEAF + lowest(some)]
        t += 1
    for t in range(m):
        out[plan[ATOM + t * ATOM_WORDS + POSITION], n] = state[SLOTS + t]
    if plan[GIVEN] >= 0:
        out[plan[GIVEN], n] = items[(state[ITEM] - 1) * plan[WIDTH]]
    if plan[ONCE] != 0:
        first = out.shape[0] - plan[WIDTH] + 1
        for v in range(plan[WIDTH] - 1):
            out[first + v, n] = state[VALUES + v]
    state[GAP] = max(state[GAP], state[STEPS] - state[SINCE])
    state[SINCE] = state[STEPS]
    return n + 1


@kernel
def next_in_cell(nodes: QuadNodes, walking: QdagWalk, f: int, out: Any, n: int) -> int:
    """Advance frame f, of an atom's rows, to the next of them, or of its node's children."""
    plan, roots, leaves, state = walking.plan, walking.roots, walking.leaves, walking.state
    left = state[f + 1]
    i, t, ref = lowest(left), -1 - state[f], state[f + 3]
    state[f + 1] = left & (left - 1)
    state[STEPS] += 1
    k = plan[ATOM + t * ATOM_WORDS + ARITY]
    if ref & SUBSET != 0:
        state[SLOTS + t] = leaves[t * LINE + k * LEAF + i]
        return report(nodes, walking, t + 1, out, n)
    whole, level = state[CELL + t], state[LEVEL + t]
    state[LEVEL + t] = state[f + 2] - 1
    state[CELL + t] = enter_child(nodes, base_of(roots, t), ref >> AT, k, i)
    n = report(nodes, walking, t, out, n)
    state[CELL + t], state[LEVEL + t] = whole, level
    return n


@kernel
def all_leaves(walking: QdagWalk, g: int) -> bool:
    plan, state = walking.plan, walking.state
    for t in range(plan[JOINT]):
        if state[g + 4 + t] & SUBSET == 0:
            return False
    return True


@kernel(forceinline=True)
def write_rows(walking: QdagWalk, t: int, out: Any, n: int) -> int:
    """Write rows of the slots before atom t, the last one, and its candidates, until none is left or `out` is full. Returns the number of
    rows then."""
    plan, leaves, state = walking.plan, walking.leaves, walking.state
    a, left, start, steps = ATOM + t * ATOM_WORDS, state[CANDIDATES + t], n, state[STEPS]
    line, slots = plan[a + POSITION], t * LINE + plan[a + ARITY] * LEAF
    while left != 0 and n < out.shape[1]:
        out[line, n] = leaves[slots + lowest(left)]
        left &= left - 1
        n += 1
    state[CANDIDATES + t] = left
    fill_others(walking, t, out, start, n)
    state[STEPS] = steps + n - start
    state[GAP] = max(state[GAP], steps + 1 - state[SINCE])
    state[SINCE] = state[STEPS]
    return n


@kernel(forceinline=True)
def join_last_two(walking: QdagWalk, t: int, some: int, out: Any, n: int) -> int:
    """Write rows of the slots before atom t, its candidates, and those of the last atom's entries `some` that agree with them, until no
    candidate is left or `out` is full, possibly within the last atom's candidates. Returns the number of rows then."""
    plan, leaves, state = walking.plan, walking.leaves, walking.state
    a, z, start = ATOM + t * ATOM_WORDS, ATOM + (t + 1) * ATOM_WORDS, n
    late, sources, limit = plan[z + LATE], plan[z + SOURCES], out.shape[1]
    some = agreeing(walking, t + 1, some, plan[z + CHECKS] & ~late, state, VALUES)
    left, found, gap, dead = state[CANDIDATES + t], wide(0), state[GAP], wide(0)
    idle = state[STEPS] - state[SINCE]  # steps since a row
    tried = count_bits(left)
    line, last, slots, ends = (
        plan[a + POSITION], plan[z + POSITION], t * LINE + plan[a + ARITY] * LEAF,
        (t + 1) * LINE + plan[z + ARITY] * LEAF,
    )
    i, j = wide(0), lowest(late) if late != 0 else wide(0)
    source, column = t * LINE + ((sources >> 4 * j) & 15) * LEAF, (t + 1) * LINE + j * LEAF
    while left != 0 and n < limit:
        i = lowest(left)
        left &= left - 1
        found, rest = some, late & (late - 1)
        if late != 0:
            found &= equal16(leaves, column, wide(leaves[source + i]))
        while rest != 0:
            j = lowest(rest)
            rest &= rest - 1
            value = wide(leaves[t * LINE + ((sources >> 4 * j) & 15) * LEAF + i])
            found &= equal16(leaves, (t + 1) * LINE + j * LEAF, value)
        if found == 0:
            dead += 1
            idle += 1
            continue
        gap, idle, slot = max(gap, idle + 2), 0, leaves[slots + i]
        while found != 0 and n < limit:
            out[line, n], out[last, n] = slot, leaves[ends + lowest(found)]
            found &= found - 1
            n += 1
    if found != 0:
        state[SLOTS + t] = leaves[slots + i]
    state[CANDIDATES + t], state[CANDIDATES + t + 1], state[GAP] = left, found, gap
    state[STEPS] += tried - count_bits(left) + n - start
    state[SINCE] = state[STEPS] - idle
    state[DEAD] += dead
    fill_others(walking, t, out, start, n)
    return n


@kernel(forceinline=True)
def fill_others(walking: QdagWalk, t: int, out: Any, start: int, n: int) -> None:
    """Write the slots of the atoms before t, and of the given one, to the rows [start, n)."""
    plan, items, state = walking.plan, walking.items, walking.state
    for before in range(t):
        out[plan[ATOM + before * ATOM_WORDS + POSITION], start:n] = state[SLOTS + before]
    if plan[GIVEN] >= 0:
        out[plan[GIVEN], start:n] = items[(state[ITEM] - 1) * plan[WIDTH]]


@kernel(forceinline=True)
def to_try(walking: QdagWalk, t: int, some: int) -> int:
    """Return those of the entries `some` of joint atom t's leaf that must be tried."""
    plan, leaves = walking.plan, walking.leaves
    a = ATOM + t * ATOM_WORDS
    return some if plan[ONCE] == 0 else first_of_each(leaves, t * LINE, plan[a + FIRST], plan[a + ARITY], some)


@kernel(forceinline=True)
def join_leaves(nodes: QuadNodes, walking: QdagWalk, f: int, out: Any, n: int, stop: int) -> int:
    """Continue with the leaves of frame f until they are done, `out` is full, `stop` is reached, or the rows of a cell have to be read
    first. Returns the number of rows."""
    plan, leaves, state = walking.plan, walking.leaves, walking.state
    m, depth, tested = plan[JOINT], state[DEPTH], plan[ONCE] != 0 or has_live_tests(walking, f)
    t = state[f + 1] - 1
    while t >= 0 and n < out.shape[1] and state[STEPS] < stop and state[DEPTH] == depth:
        left = state[CANDIDATES + t]
        if left == 0:
            t -= 1
            continue
        if t == plan[ATOMS] - 1 and not tested:
            n = write_rows(walking, t, out, n)
            continue
        if t == plan[ATOMS] - 2 and m == plan[ATOMS] and not tested:
            state[f + 5 + t] = loaded(nodes, walking, t + 1, state[f + 5 + t], state[f + 2])
            n = join_last_two(walking, t, state[f + 5 + t], out, n)
            if state[CANDIDATES + t + 1] != 0:
                t += 1
            continue
        state[CANDIDATES + t] = left & (left - 1)
        state[STEPS] += 1
        a = ATOM + t * ATOM_WORDS
        state[SLOTS + t] = leaves[t * LINE + plan[a + ARITY] * LEAF + lowest(left)]
        if t < m - 1 or tested:
            take_values(walking, t, lowest(left))
        if t == m - 1:
            if not tested or passes(nodes, walking, f):
                n = report(nodes, walking, m, out, n)
            else:
                state[DEAD] += 1
            continue
        state[f + 5 + t] = loaded(nodes, walking, t + 1, state[f + 5 + t], state[f + 2])
        found = agreeing(walking, t + 1, state[f + 5 + t], plan[a + ATOM_WORDS + CHECKS], state, VALUES)
        if found == 0:
            state[DEAD] += 1
            continue
        t += 1
        state[CANDIDATES + t] = to_try(walking, t, found)
    state[f + 1] = t + 1
    return n


@kernel
def and_steps(nodes: QuadNodes, walking: QdagWalk, out: Any, n: int, stop: int) -> int:
    """Continue until `out` (a line for each alias), n rows long, is full, all items are done, or state[STEPS] has reached `stop`, which an
    entry and its partners in a leaf may exceed. Returns the number of rows then."""
    W, plan, state = nodes.W, walking.plan, walking.state
    m, width = plan[JOINT], 4 + plan[JOINT] + plan[TESTED]
    while n < out.shape[1] and state[STEPS] < stop:
        if state[DEPTH] == 0:
            if state[ITEM] == state[ITEMS]:
                break
            g = wide(FRAMES)
            state[g] = begin(nodes, walking)
            state[STEPS] += 1
            if state[g] == NOTHING:
                state[DEAD] += 1
                continue
        else:
            f = FRAMES + (state[DEPTH] - 1) * width
            left, level = state[f + 1], state[f]
            if left == 0:
                state[DEPTH] -= 1
                continue
            if level < 0 and level != JOIN:
                n = next_in_cell(nodes, walking, f, out, n)
                continue
            g = f
            if level != JOIN:
                i = lowest(left)
                left &= left - 1
                state[f + 1] = left
                if left == 0:  # the last child takes its parent's place
                    state[DEPTH] -= 1
                else:
                    g = f + width
                    for t in range(m):
                        await_child(W, walking, t, state[f + 4 + t], level, lowest(left))
                for t in range(m):
                    state[g + 4 + t] = child_at(nodes, walking, t, state[f + 4 + t], level, i)
                if plan[TESTED] > 0:
                    descend_tested(nodes, walking, f, g, level, i)
                state[g] = level - 1
                state[STEPS] += 1
        if state[g] != JOIN and m > 0 and all_leaves(walking, g):
            state[g + 4] = loaded(nodes, walking, 0, state[g + 4], state[g])
            state[g], state[g + 1], state[g + 2], state[CANDIDATES] = JOIN, 1, state[g], to_try(walking, 0, state[g + 4])
            state[DEPTH] += 1
        if state[g] == JOIN:
            n = join_leaves(nodes, walking, g, out, n, stop)
            if state[g + 1] == 0 and FRAMES + (state[DEPTH] - 1) * width == g:
                state[DEPTH] -= 1
        elif m == 0 or state[g] < 0:
            for t in range(m):
                state[CELL + t], state[LEVEL + t] = state[g + 4 + t], -1
            n = report(nodes, walking, 0, out, n)
        else:
            state[g + 1] = common(nodes, walking, g)
            if state[g + 1] != 0:
                state[DEPTH] += 1
            else:
                state[DEAD] += 1
    return n
