"""Atoms that a reading only tests: NOT EXISTS groups (a lazy qdag's NOT), and atoms that must have the tuple but whose rows are not
reported.

A group is an AND of atoms. A tuple of all variables is left out if it is in each of them; so in a subgrid a group is

    empty   if one of its atoms is empty there: its complement is full, and the group is forgotten (its refs are 0)
    full    if all of its atoms have every tuple of the subgrid: nothing is left of it. Our trees have no full leaves, so this is known
            of given values (FULL), of cells, and of single tuples
    neither otherwise (the paper's value ◇ once it is ANDed): go on

Above the level of its root an atom has tuples in quadrant 0 only; where it has none, its group is empty. So groups never add a joint node:
the positive atoms alone decide which there are. An atom with MUST in place of a group must have the tuple: it prunes as a positive one
does, but its rows are not reported.

Costs: as a positive atom during the descent; for a tuple found in leaves, O(log l / k) nodes for each atom of a group that is left there.
Source: Navarro, Reutter and Rojas-Ledesma, section 4, Algorithms 7 to 15.
"""

from __future__ import annotations

from structures.core.bits import count_bits
from structures.core.kernel import kernel, wide
from structures.qdag.layout import (
    ALL,
    ARITY,
    AT,
    ATOM,
    ATOM_WORDS,
    ATOMS,
    EXCLUDED,
    FIRST,
    FRAMES,
    FULL,
    GROUP,
    JOINT,
    LINE,
    LOOKED_UP,
    MAP,
    MUST,
    SUBSET,
    TESTED,
    VALUES,
    VARIABLES,
    WHOLE,
    QdagWalk,
    base_of,
    bits_of,
    root_of,
)
from structures.qdag.refs import agreeing, bind, enter, enter_child, loaded, of_child, quadrants
from structures.quadtree.layout import QuadNodes


@kernel(forceinline=True)
def group_of(walking: QdagWalk, u: int) -> int:
    """Return the group of tested atom u."""
    plan = walking.plan
    return plan[ATOM + (plan[ATOMS] + u) * ATOM_WORDS + GROUP]


@kernel(forceinline=True)
def tested_child(nodes: QuadNodes, walking: QdagWalk, t: int, ref: int, level: int, i: int) -> int:
    """Return atom t's ref in child i of this level; 0: it has nothing there."""
    plan, roots, leaves = walking.plan, walking.roots, walking.leaves
    if ref == 0 or ref == FULL:
        return ref
    a = ATOM + t * ATOM_WORDS
    c = plan[a + MAP + i]
    if level >= bits_of(roots, t):
        return ref if c == 0 else 0
    some, k = ref & SUBSET, plan[a + ARITY]
    if some == 0:
        return enter_child(nodes, base_of(roots, t), ref >> AT, k, c)
    return of_child(leaves, t * LINE, k, plan[a + FIRST], level, some, c)


@kernel
def take_in_hand(nodes: QuadNodes, walking: QdagWalk, t: int, ref: int, level: int) -> int:
    """Return atom t's ref at this level, and load its leaf if it is one."""
    return loaded(nodes, walking, t, ref, level) if ref != FULL and level < bits_of(walking.roots, t) else ref


@kernel
def begin_tested(nodes: QuadNodes, walking: QdagWalk, top: int) -> bool:
    """Write the refs of the tested atoms to the first frame, whose level is `top` - 1. Returns whether the item may have rows."""
    W, plan, roots, state = nodes.W, walking.plan, walking.roots, walking.state
    for u in range(plan[TESTED]):
        t = plan[ATOMS] + u
        a, ref, level = ATOM + t * ATOM_WORDS, wide(0), bits_of(roots, t) - 1
        if root_of(roots, t) != 0:
            if plan[a + WHOLE] != 0:
                ref = FULL if bind(nodes, walking, t, plan[a + ARITY]) != 0 else 0
            else:
                ref = bind(nodes, walking, t, plan[a + FIRST]) if plan[a + FIRST] > 0 else enter(W, root_of(roots, t))
        while level >= top and ref != 0 and ref != FULL:
            ref = tested_child(nodes, walking, t, take_in_hand(nodes, walking, t, ref, level), level, 0)
            level -= 1
        state[FRAMES + 4 + plan[JOINT] + u] = ref
    return settle(walking, FRAMES)


@kernel
def settle(walking: QdagWalk, g: int) -> bool:
    """Drop the groups that are empty in frame g. Returns whether it may have rows."""
    plan, state = walking.plan, walking.state
    refs, u = g + 4 + plan[JOINT], wide(0)
    while u < plan[TESTED]:
        group, start, empty, full = group_of(walking, u), u, False, True
        while u < plan[TESTED] and group_of(walking, u) == group:
            empty = empty or state[refs + u] == 0
            full = full and state[refs + u] == FULL
            u += 1
        if group == MUST:
            if empty:
                return False
        elif empty:
            for v in range(start, u):
                state[refs + v] = 0
        elif full:
            state[EXCLUDED] += 1
            return False
    return True


@kernel
def permitted(nodes: QuadNodes, walking: QdagWalk, g: int, mask: int, level: int) -> int:
    """Return those children of frame g, of this level and in `mask`, in which every atom with MUST has something and no group is known to
    be full."""
    plan, state = walking.plan, walking.state
    refs, u = g + 4 + plan[JOINT], wide(0)
    while u < plan[TESTED]:
        group, some = group_of(walking, u), plan[ALL] if state[refs + u] != 0 else 0
        while u < plan[TESTED] and group_of(walking, u) == group:
            t = plan[ATOMS] + u
            if state[refs + u] != 0:
                state[refs + u] = take_in_hand(nodes, walking, t, state[refs + u], level)
                if state[refs + u] != FULL and (level == 0 or group == MUST):
                    some &= quadrants(nodes, walking, t, state[refs + u], level)
            u += 1
        if group == MUST:
            mask &= some
        elif level == 0:
            state[EXCLUDED] += count_bits(mask & some)
            mask &= ~some
    return mask


@kernel
def descend_tested(nodes: QuadNodes, walking: QdagWalk, f: int, g: int, level: int, i: int) -> None:
    """Write the refs of the tested atoms to frame g, child i of this level of frame f."""
    plan, state = walking.plan, walking.state
    for u in range(4 + plan[JOINT], 4 + plan[JOINT] + plan[TESTED]):
        state[g + u] = tested_child(nodes, walking, plan[ATOMS] + u - 4 - plan[JOINT], state[f + u], level, i)
    settle(walking, g)


@kernel
def has_live_tests(walking: QdagWalk, g: int) -> bool:
    """Return whether a tuple found in frame g must still be looked up."""
    plan, state = walking.plan, walking.state
    for u in range(plan[TESTED]):
        ref = state[g + 4 + plan[JOINT] + u]
        if ref != 0 and (ref != FULL or group_of(walking, u) != MUST):
            return True
    return False


@kernel
def has_tuple(nodes: QuadNodes, walking: QdagWalk, t: int, at: int, level: int) -> bool:
    """Return whether atom t, whose ref of this level is state[at], has the values in the state."""
    plan, roots, state = walking.plan, walking.roots, walking.state
    if state[at] == FULL:
        return True
    ref = state[at] = take_in_hand(nodes, walking, t, state[at], level)
    a = ATOM + t * ATOM_WORDS
    k, f, bits = plan[a + ARITY], plan[a + FIRST], bits_of(roots, t)
    state[LOOKED_UP] += 1
    if level >= bits:
        for j in range(f, k):
            if state[VALUES + plan[a + VARIABLES + j]] >> bits != 0:
                return False
        level = bits - 1
        ref = loaded(nodes, walking, t, ref, level)
    while ref & SUBSET == 0 and level >= 0:
        c = wide(0)
        for j in range(f, k):
            c = c << 1 | ((state[VALUES + plan[a + VARIABLES + j]] >> level) & 1)
        ref, level = enter_child(nodes, base_of(roots, t), ref >> AT, k, c), level - 1
        if ref == 0:
            return False
        ref = loaded(nodes, walking, t, ref, level)
    some = ref & SUBSET
    return some == 0 or agreeing(walking, t, some, ((1 << k) - 1) & ~((1 << f) - 1), state, VALUES) != 0


@kernel
def passes(nodes: QuadNodes, walking: QdagWalk, f: int) -> bool:
    """Return whether the tuple in the state, found in the leaves of frame f, is in every atom with MUST and in no group."""
    plan, state = walking.plan, walking.state
    refs, level, u = f + 4 + plan[JOINT], state[f + 2], wide(0)
    while u < plan[TESTED]:
        group, all_have = group_of(walking, u), state[refs + u] != 0
        while u < plan[TESTED] and group_of(walking, u) == group:
            all_have = all_have and has_tuple(nodes, walking, plan[ATOMS] + u, refs + u, level)
            u += 1
        if group == MUST:
            if not all_have:
                return False
        elif all_have:
            state[EXCLUDED] += 1
            return False
    return True
