"""Algorithm 4, the bow-tie R(x), S(x, y), T(y): go from point to point of S, and skip all points in a hole of R or of T at once.

A hole is the space between neighbours of R, or of T. A *range* [LOW, HIGH] of y, between values of T, is walked by (x, y), from the place
(X_, Y_, SLOT_) on. At a point whose x lies in a hole of R the walk continues at R's next value. If its y lies in a hole (a, b) of T, the
range is cut: [b, HIGH] is pushed on the stack, with the place, and follows after the rest, [LOW, a]. So a hole of T costs one point for
each range between the holes of R, instead of one for each x.

Ranges on the stack ascend from its top. The stack is a cache: when it is full the walk continues at (x, b), and meets the hole again. The
walk is limited to the values from the least to the greatest of R and of T, so that each hole has two ends. (Definition 4.1 is inverted: a
hole that matters has a point of S in it.)

Costs: for h_X and h_Y holes that have points, and Z tuples, at most 2 (h_X + 1) (h_Y + 1) + Z points, each found as `dyadic.next_point`
says. Source: *Towards Instance Optimal Join Algorithms*, Algorithm 4 and Theorem 4.2.
"""

from __future__ import annotations

from typing import Any

from structures.adaptive.dyadic import BY_X, KEY, LAST_VALUE, OF_R, OF_T, look_at, next_point
from structures.adaptive.product import (
    AT,
    FIRST,
    INDEX_POSITION_WORDS,
    INDEX_POSITIONS,
    LOOKUPS,
    PHASE,
    PROBES,
    STEPS,
    TUPLE,
    ProductWalk,
    begin_product,
    emit,
)
from structures.core.blocks import Nodes
from structures.core.entries import RowBuffer
from structures.core.kernel import kernel
from structures.index.layout import HEAD, LEAF_ROOM
from structures.index.search import BEFORE, BEHIND, IndexPosition, Items, seek_last

BEGIN, GO_ON, EMIT = range(3)  # phases
# Words of the state: the range; the place; the greatest value of R; ranges on the stack, the most so far, those for which there was no
# room, and the maximum.
LOW, HIGH, X_, Y_, SLOT_, MOST_X, DEPTH, DEEPEST, FORGOTTEN, MOST, HOLES_WORDS = range(KEY + 2, KEY + 13)
RANGE = 4  # words of a range on the stack: LOW, HIGH, and the place, which is BEHIND
LEAST_VALUE = -(2**63)


@kernel
def go_to(state: Any, x: int, y: int, slot: int) -> None:
    state[X_], state[Y_], state[SLOT_] = x, y, slot


@kernel
def must_grow(state: Any, stack: Any) -> bool:
    return RANGE * state[DEPTH] == len(stack) and state[DEPTH] < state[MOST]


@kernel
def value_at(nodes: Nodes, leaf: int, i: int) -> int:
    return nodes.M[leaf + HEAD + i]


@kernel
def last_of(nodes: Nodes, walking: ProductWalk, member: int, key: int, slot: int) -> int:
    """The greatest value of R or T before a place; there is one."""
    state = walking.state
    state[KEY] = key
    leaf, i = seek_last(nodes, walking.roots[member], 1, IndexPosition(state, KEY, 1, 1, slot))
    state[STEPS] += 1
    state[LOOKUPS] += 1
    return value_at(nodes, leaf, i)


@kernel
def first_of(nodes: Nodes, walking: ProductWalk, member: int, key: int) -> tuple[int, int]:
    """The first entry of R or T from a value on."""
    walking.state[KEY] = key
    return look_at(nodes, walking, walking.roots[member], 1, IndexPosition(walking.state, KEY, 1, 1, BEFORE))


@kernel
def begin_ranges(nodes: Nodes, walking: ProductWalk) -> bool:
    """Begin the range from the least to the greatest value of T; False if an atom is empty."""
    _, roots, state = walking
    if roots[OF_R] == 0 or roots[BY_X] == 0 or roots[OF_T] == 0:
        return False
    leaf, i = first_of(nodes, walking, OF_R, LEAST_VALUE)
    go_to(state, value_at(nodes, leaf, i), LEAST_VALUE, BEFORE)
    leaf, i = first_of(nodes, walking, OF_T, LEAST_VALUE)
    state[LOW] = value_at(nodes, leaf, i)
    state[HIGH] = last_of(nodes, walking, OF_T, LAST_VALUE, BEHIND)
    state[MOST_X] = last_of(nodes, walking, OF_R, LAST_VALUE, BEHIND)
    state[PHASE] = GO_ON
    return True


@kernel
def next_range(state: Any, stack: Any) -> bool:
    """Continue with the range at the top of the stack; False if there is none."""
    if state[DEPTH] == 0:
        return False
    state[DEPTH] -= 1
    k = RANGE * state[DEPTH]
    state[LOW], state[HIGH] = stack[k], stack[k + 1]
    go_to(state, stack[k + 2], stack[k + 3], BEHIND)
    return True


@kernel
def cut_range(state: Any, stack: Any, a: int, b: int, x: int, y: int) -> None:
    """Cut the range at the point (x, y), which lies in the hole (a, b) of T."""
    k = RANGE * state[DEPTH]
    if k == len(stack):
        state[FORGOTTEN] += 1
        go_to(state, x, b, BEFORE)
        return
    stack[k], stack[k + 1], stack[k + 2], stack[k + 3] = b, state[HIGH], x, y
    state[HIGH] = a
    state[DEPTH] += 1
    state[DEEPEST] = max(state[DEEPEST], state[DEPTH])
    go_to(state, x, y, BEHIND)


@kernel
def stand_at(state: Any, q: int, leaf: int, i: int) -> None:
    """Set position q to this entry, the first of the tuple's group."""
    z = INDEX_POSITIONS + INDEX_POSITION_WORDS * q
    state[z + FIRST], state[z + FIRST + 1] = leaf, i


@kernel
def visit(nodes: Nodes, walking: ProductWalk, stack: Any) -> bool:
    """Visit the next point of the range; False if no range has one."""
    M, state = nodes.M, walking.state
    leaf, i = next_point(nodes, walking, IndexPosition(state, X_, 1, 2, state[SLOT_]), state[LOW], state[HIGH])
    if leaf == 0 or M[leaf + HEAD + i] > state[MOST_X]:
        return next_range(state, stack)
    x, y = M[leaf + HEAD + i], M[leaf + HEAD + LEAF_ROOM[2] + i]
    state[PROBES] += 1
    own, j = first_of(nodes, walking, OF_R, x)
    if value_at(nodes, own, j) != x:
        go_to(state, value_at(nodes, own, j), LEAST_VALUE, BEFORE)
        return True
    stand_at(state, 0, own, j)
    stand_at(state, 1, leaf, i)
    own, j = first_of(nodes, walking, OF_T, y)
    if value_at(nodes, own, j) != y:
        cut_range(state, stack, last_of(nodes, walking, OF_T, y, BEFORE), value_at(nodes, own, j), x, y)
        return True
    stand_at(state, 2, own, j)
    state[TUPLE], state[TUPLE + 1] = x, y
    go_to(state, x, y, BEHIND)
    begin_product(nodes, walking)
    state[PHASE] = EMIT
    return True


@kernel("int64(Nodes, ProductWalk, int64[::1], Items, RowBuffer, int64)")
def holes_fill(nodes: Nodes, walking: ProductWalk, stack: Any, items: Items, emitted: RowBuffer, budget: int) -> int:
    """Write further rows, from the position in `state` on. Returns their number, at most `stride`. All are written once state[AT] is 1.

    `items`: one, with no coordinates. stack: int64[RANGE * m]. Stops after `budget` steps too (look-ups and rows; state[STEPS] counts
    them), and when the stack has to grow: call it again with a larger one that begins alike. Cost: as the module's head.
    """
    state = walking.state
    n, stop = 0, state[STEPS] + budget
    while n < emitted.stride and state[AT] == 0 and state[STEPS] < stop and not must_grow(state, stack):
        if state[PHASE] == EMIT:
            n, more = emit(nodes, walking, items.slots, emitted, n)
            if not more:
                state[PHASE] = GO_ON
        elif not (begin_ranges(nodes, walking) if state[PHASE] == BEGIN else visit(nodes, walking, stack)):
            state[AT] = 1
    return n
