"""Atoms that a reading only tests: NOT EXISTS groups (a lazy qdag's NOT), and what must be there without a row being told of it.

A group is an AND of atoms. A tuple of all variables is left out if it is in each of them; so in a subgrid a group is

    empty   if one of its atoms is empty there: its complement is full, and the group is forgotten (its refs are 0)
    full    if all of its atoms have every tuple of the subgrid: nothing is left of it. Our trees have no full leaves, so this is known
            of given values (FULL), of cells, and of single tuples
    neither otherwise (the paper's value ◇ once it is ANDed): go on

Above the level of its root an atom has tuples in quadrant 0 only; where it has none, its group is empty. So groups never add a joint node:
the positive atoms alone decide which there are. An atom with MUST in place of a group has to have the tuple: it prunes as a positive one
does, but its rows are not told.

Costs: as a positive atom on the way down; of a tuple found in leaves O(log l / k) nodes an atom of a group that is left there.
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
    Walking,
    base_of,
    bits_of,
    root_of,
)
from structures.qdag.refs import agreeing, bind, enter, enter_child, loaded, of_child, quadrants
from structures.quadtree.layout import QuadNodes


@kernel(forceinline=True)
def group_of(walking: Walking, u: int) -> int:
    """Of tested atom number u."""
    P = walking.P
    return P[ATOM + (P[ATOMS] + u) * ATOM_WORDS + GROUP]


@kernel(forceinline=True)
def tested_child(nodes: QuadNodes, walking: Walking, t: int, ref: int, b: int, i: int) -> int:
    """Atom t's ref in child i of level b; 0: it has nothing there."""
    P, R, S = walking.P, walking.R, walking.S
    if ref == 0 or ref == FULL:
        return ref
    a = ATOM + t * ATOM_WORDS
    c = P[a + MAP + i]
    if b >= bits_of(R, t):
        return ref if c == 0 else 0
    some, k = ref & SUBSET, P[a + ARITY]
    return enter_child(nodes, base_of(R, t), ref >> AT, k, c) if some == 0 else of_child(S, t * LINE, k, P[a + FIRST], b, some, c)


@kernel
def take_in_hand(nodes: QuadNodes, walking: Walking, t: int, ref: int, b: int) -> int:
    """Atom t's ref at level b, its leaf in hand if it is one."""
    return loaded(nodes, walking, t, ref, b) if ref != FULL and b < bits_of(walking.R, t) else ref


@kernel
def begin_tested(nodes: QuadNodes, walking: Walking, top: int) -> bool:
    """The refs of the tested atoms in the first frame, whose level is `top` - 1; whether the item may have rows."""
    W, P, R, Z = nodes.W, walking.P, walking.R, walking.Z
    for u in range(P[TESTED]):
        t = P[ATOMS] + u
        a, ref, b = ATOM + t * ATOM_WORDS, wide(0), bits_of(R, t) - 1
        if root_of(R, t) != 0:
            if P[a + WHOLE] != 0:
                ref = FULL if bind(nodes, walking, t, P[a + ARITY]) != 0 else 0
            else:
                ref = bind(nodes, walking, t, P[a + FIRST]) if P[a + FIRST] > 0 else enter(W, root_of(R, t))
        while b >= top and ref != 0 and ref != FULL:
            ref = tested_child(nodes, walking, t, take_in_hand(nodes, walking, t, ref, b), b, 0)
            b -= 1
        Z[FRAMES + 4 + P[JOINT] + u] = ref
    return settle(walking, FRAMES)


@kernel
def settle(walking: Walking, g: int) -> bool:
    """Forget the groups that are empty in frame g; whether it may have rows."""
    P, Z = walking.P, walking.Z
    refs, u = g + 4 + P[JOINT], wide(0)
    while u < P[TESTED]:
        group, start, empty, full = group_of(walking, u), u, False, True
        while u < P[TESTED] and group_of(walking, u) == group:
            empty = empty or Z[refs + u] == 0
            full = full and Z[refs + u] == FULL
            u += 1
        if group == MUST:
            if empty:
                return False
        elif empty:
            for v in range(start, u):
                Z[refs + v] = 0
        elif full:
            Z[EXCLUDED] += 1
            return False
    return True


@kernel
def permitted(nodes: QuadNodes, walking: Walking, g: int, mask: int, b: int) -> int:
    """Those of some children of frame g, of level b, in which all that must be there has something, and no group is known to be full."""
    P, Z = walking.P, walking.Z
    refs, u = g + 4 + P[JOINT], wide(0)
    while u < P[TESTED]:
        group, some = group_of(walking, u), P[ALL] if Z[refs + u] != 0 else 0
        while u < P[TESTED] and group_of(walking, u) == group:
            t = P[ATOMS] + u
            if Z[refs + u] != 0:
                Z[refs + u] = take_in_hand(nodes, walking, t, Z[refs + u], b)
                if Z[refs + u] != FULL and (b == 0 or group == MUST):
                    some &= quadrants(nodes, walking, t, Z[refs + u], b)
            u += 1
        if group == MUST:
            mask &= some
        elif b == 0:
            Z[EXCLUDED] += count_bits(mask & some)
            mask &= ~some
    return mask


@kernel
def descend_tested(nodes: QuadNodes, walking: Walking, f: int, g: int, b: int, i: int) -> None:
    """The refs of the tested atoms in frame g, child i of level b of frame f."""
    P, Z = walking.P, walking.Z
    for u in range(4 + P[JOINT], 4 + P[JOINT] + P[TESTED]):
        Z[g + u] = tested_child(nodes, walking, P[ATOMS] + u - 4 - P[JOINT], Z[f + u], b, i)
    settle(walking, g)


@kernel
def has_live_tests(walking: Walking, g: int) -> bool:
    """Whether a tuple found in frame g has still to be looked up."""
    P, Z = walking.P, walking.Z
    for u in range(P[TESTED]):
        ref = Z[g + 4 + P[JOINT] + u]
        if ref != 0 and (ref != FULL or group_of(walking, u) != MUST):
            return True
    return False


@kernel
def has_tuple(nodes: QuadNodes, walking: Walking, t: int, at: int, b: int) -> bool:
    """Whether atom t, whose ref of level b is Z[at], has the values in Z."""
    P, R, Z = walking.P, walking.R, walking.Z
    if Z[at] == FULL:
        return True
    ref = Z[at] = take_in_hand(nodes, walking, t, Z[at], b)
    a = ATOM + t * ATOM_WORDS
    k, f, bits = P[a + ARITY], P[a + FIRST], bits_of(R, t)
    Z[LOOKED_UP] += 1
    if b >= bits:
        for j in range(f, k):
            if Z[VALUES + P[a + VARIABLES + j]] >> bits != 0:
                return False
        b = bits - 1
        ref = loaded(nodes, walking, t, ref, b)
    while ref & SUBSET == 0 and b >= 0:
        c = wide(0)
        for j in range(f, k):
            c = c << 1 | ((Z[VALUES + P[a + VARIABLES + j]] >> b) & 1)
        ref, b = enter_child(nodes, base_of(R, t), ref >> AT, k, c), b - 1
        if ref == 0:
            return False
        ref = loaded(nodes, walking, t, ref, b)
    some = ref & SUBSET
    return some == 0 or agreeing(walking, t, some, ((1 << k) - 1) & ~((1 << f) - 1), Z, VALUES) != 0


@kernel
def passes(nodes: QuadNodes, walking: Walking, f: int) -> bool:
    """Whether the tuple in Z, found in the leaves of frame f, has all that must be there and is in no group."""
    P, Z = walking.P, walking.Z
    refs, b, u = f + 4 + P[JOINT], Z[f + 2], wide(0)
    while u < P[TESTED]:
        group, all_have = group_of(walking, u), Z[refs + u] != 0
        while u < P[TESTED] and group_of(walking, u) == group:
            all_have = all_have and has_tuple(nodes, walking, P[ATOMS] + u, refs + u, b)
            u += 1
        if group == MUST:
            if not all_have:
                return False
        elif all_have:
            Z[EXCLUDED] += 1
            return False
    return True
