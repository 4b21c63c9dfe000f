"""Where a qdag stands: refs (`layout.py`), their children, the entries of their leaves, the way down to given values."""

from __future__ import annotations

from typing import Any

from structures.core.bits import equal16, highest, lowest, with_bit16
from structures.core.kernel import kernel, prefetch, wide
from structures.qdag.layout import (
    ARITY,
    AT,
    ATOM,
    ATOM_WORDS,
    EXT,
    FIRST,
    FRESH,
    ITEM,
    LINE,
    MAP,
    SUBSET,
    VARIABLES,
    WAY_WORDS,
    WAYS,
    WIDTH,
    QdagWalk,
    base_of,
    bits_of,
    root_of,
)
from structures.quadtree.layout import CODE_BITS, HEAD, LEAF, QuadNodes, QuadtreeShape, live_child
from structures.quadtree.search import child_of, children_of, copy_leaf, ends_at, leads_to_leaf


@kernel(forceinline=True)
def enter(W: Any, o: int) -> int:
    """Return the ref of a place, with all its entries."""
    return o << AT | FRESH if ends_at(W, o) else o << AT


@kernel(forceinline=True)
def enter_child(nodes: QuadNodes, base: int, o: int, arity: int, c: int) -> int:
    """Return the ref of child c of an inner node, with all its entries; 0: there is none."""
    W = nodes.W
    child = child_of(nodes, base, o, arity, c)
    return child << AT | FRESH if child != 0 and leads_to_leaf(W, o, c, child) else child << AT


@kernel(forceinline=True)
def loaded(nodes: QuadNodes, walking: QdagWalk, t: int, ref: int, level: int) -> int:
    """Return atom t's ref, and load its leaf if it is one."""
    plan, roots, leaves = walking.plan, walking.roots, walking.leaves
    if ref & FRESH == 0:
        return ref
    a = ATOM + t * ATOM_WORDS
    f = plan[a + FIRST]
    known = f if level < CODE_BITS else 0
    return (1 << copy_leaf(nodes, base_of(roots, t), ref >> AT, QuadtreeShape(plan[a + ARITY], f), level, known, leaves, t * LINE)) - 1


@kernel(forceinline=True)
def of_child(leaves: Any, s: int, arity: int, leading: int, level: int, some: int, c: int) -> int:
    """Return those of the entries `some` of the leaf at leaves[s] that belong to child c of a level >= 0, below the coordinates that come
    first."""
    for j in range(arity - 1, leading - 1, -1):
        ones = with_bit16(leaves, s + j * LEAF, level)
        some &= ones if c & 1 != 0 else ~ones
        c >>= 1
    return some


@kernel(forceinline=True)
def child_at(nodes: QuadNodes, walking: QdagWalk, t: int, ref: int, level: int, i: int) -> int:
    """Return the ref of qdag t's child i of this level, which exists."""
    plan, roots, leaves = walking.plan, walking.roots, walking.leaves
    if level >= bits_of(roots, t):
        return ref
    a = ATOM + t * ATOM_WORDS
    some, k, c = ref & SUBSET, plan[a + ARITY], plan[a + MAP + i]
    if some == 0:
        return enter_child(nodes, base_of(roots, t), ref >> AT, k, c)
    return of_child(leaves, t * LINE, k, plan[a + FIRST], level, some, c)


@kernel(forceinline=True)
def await_child(W: Any, walking: QdagWalk, t: int, ref: int, level: int, i: int) -> None:
    """Prefetch the block of qdag t's child i of this level, which exists, if it is a live one."""
    plan, roots = walking.plan, walking.roots
    o = ref >> AT
    if level < bits_of(roots, t) and ref & SUBSET == 0 and o > 0:
        child = live_child(W, o, plan[ATOM + t * ATOM_WORDS + MAP + i])
        if child > 0:
            prefetch(W, 2 * child)
            prefetch(W, 2 * child + HEAD + LEAF)
            prefetch(W, 2 * child + HEAD + 2 * LEAF)


@kernel(forceinline=True)
def quadrants(nodes: QuadNodes, walking: QdagWalk, t: int, ref: int, level: int) -> int:
    """Return the children of this level that qdag t does not leave empty."""
    plan, roots, leaves = walking.plan, walking.roots, walking.leaves
    a = ATOM + t * ATOM_WORDS
    if level >= bits_of(roots, t):
        return plan[a + EXT]
    some, k, found = ref & SUBSET, plan[a + ARITY], wide(0)
    if some == 0:
        mask = children_of(nodes, base_of(roots, t), ref >> AT, k)
        while mask != 0:
            found |= plan[a + EXT + lowest(mask)]
            mask &= mask - 1
        return found
    f = plan[a + FIRST]
    for c in range(1 << (k - f)):
        if of_child(leaves, t * LINE, k, f, level, some, c) != 0:
            found |= plan[a + EXT + c]
    return found


@kernel(forceinline=True)
def agreeing(walking: QdagWalk, t: int, some: int, coordinates: int, values: Any, v: int) -> int:
    """Return those of the entries `some` of atom t's leaf that have, in these coordinates (bits), the values of their variables, values[v +
    variable]."""
    plan, leaves = walking.plan, walking.leaves
    a = ATOM + t * ATOM_WORDS + VARIABLES
    while coordinates != 0 and some != 0:
        j = lowest(coordinates)
        coordinates &= coordinates - 1
        some &= equal16(leaves, t * LINE + j * LEAF, values[v + plan[a + j]])
    return some


@kernel(forceinline=True)
def first_of_each(leaves: Any, s: int, leading: int, arity: int, some: int) -> int:
    """Return the first entry of each tuple among the entries `some` of the leaf at leaves[s]; tuples are compared by the coordinates behind
    the leading ones."""
    kept, same, i = wide(0), wide(0), wide(0)
    while some != 0:
        i = lowest(some)
        kept |= wide(1) << i
        same = some
        for j in range(leading, arity):
            same &= equal16(leaves, s + j * LEAF, wide(leaves[s + j * LEAF + i]))
        some &= ~same
    return kept


@kernel
def bind(nodes: QuadNodes, walking: QdagWalk, t: int, count: int) -> int:
    """Return atom t's ref where its first `count` coordinates have the values of item state[ITEM] - 1; 0: nothing is there. The descent
    begins where it differs from the previous one."""
    W, plan, roots, items, state = nodes.W, walking.plan, walking.roots, walking.items, walking.state
    a, ref, bits, base = ATOM + t * ATOM_WORDS, enter(W, root_of(roots, t)), bits_of(roots, t), base_of(roots, t)
    way, v, differ = WAYS + t * WAY_WORDS, (state[ITEM] - 1) * plan[WIDTH] + 1, wide(0)
    last = state[way] * plan[WIDTH] + 1 if state[way] >= 0 else v
    for j in range(count):
        variable = plan[a + VARIABLES + j]
        if items[v + variable] >> bits != 0:
            return 0
        differ |= items[v + variable] ^ items[last + variable]
    k, level = plan[a + ARITY], bits - 1
    if state[way] >= 0:
        level = max(state[way + 1], highest(differ)) if differ != 0 else state[way + 1]
        ref = state[way + 3 + level]
    state[way] = state[ITEM] - 1
    while level >= 0 and ref & FRESH == 0:
        state[way + 3 + level] = ref
        c = wide(0)
        for j in range(count):
            c = c << 1 | ((items[v + plan[a + VARIABLES + j]] >> level) & 1)
        ref = enter_child(nodes, base, ref >> AT, k, c)
        if ref == 0:
            state[way + 1] = level
            return 0
        level -= 1
    state[way + 1], state[way + 3 + level] = level, ref
    rest = (1 << count) - 1 if level >= 0 else 0
    if count < k:
        level = CODE_BITS + level if level >= 0 else bits - 1
    ref = loaded(nodes, walking, t, ref, level)
    return agreeing(walking, t, ref, rest, items, v) if ref & SUBSET != 0 else ref
