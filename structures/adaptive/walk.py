"""The adaptive walk: from place to place in the order of the tuples, each the least that one atom leaves possible, until all agree.

The *eliminator* is a place in that order: the values of a tuple, or of a prefix of it, or the end of all tuples with that prefix
(IS_BEHIND). In its turn, an atom searches its first entry from there on. If this has exactly the eliminator's values, the atom agrees. If
it has these and more, the eliminator grows. If it lies beyond, it becomes the eliminator. When all agree, the eliminator is a tuple of the
join, and the walk continues after it. When an atom has no entry left, the walk ends, or that part of it with the values below which the
atom was asked.

Atoms take turns, so that two of them do not exchange values that a third one rules out. An atom that agrees is not asked again unless one
of its values in the eliminator changes: a group of many tuples asks the shorter atoms once.

Costs: for m atoms O(m D log n) to all tuples, where D is the number of comparisons in the shortest proof, besides O(1) look-ups a tuple.
Source: *Towards Instance Optimal Join Algorithms*, Algorithms 2, 9 and 10. The constraint set of Algorithm 10 is the space before the
eliminator.
"""

from __future__ import annotations

from typing import Any

from structures.adaptive.product import (
    AGREED,
    ASKED,
    AT,
    END,
    ENTRY,
    FIRST,
    INDEX_POSITION_WORDS,
    INDEX_POSITIONS,
    IS_BEHIND,
    LEAF_,
    LENGTH,
    LOOKUPS,
    PHASE,
    PROBES,
    STEPS,
    TUPLE,
    ProductWalk,
    begin_product,
    emit,
)
from structures.adaptive.shape import (
    ARITY_,
    GIVEN,
    MEMBER,
    NEEDS,
    OFFSET,
    POSITION,
    POSITION_WORDS,
    POSITIONS,
    PREFIX,
    WIDEST,
    WIDTH,
)
from structures.core.blocks import Nodes
from structures.core.entries import RowBuffer
from structures.core.kernel import kernel
from structures.index.layout import HEAD, LEAF_ROOM
from structures.index.search import BEFORE, BEHIND, IndexPosition, Items, same, seek_near

BEGIN, ASK, EMIT = range(3)  # phases


@kernel
def next_asked(plan: Any, state: Any) -> int:
    """The next position that does not agree and may be asked."""
    q = state[ASKED]
    while True:
        q = q + 1 if q + 1 < plan[POSITIONS] else 0
        needs = plan[POSITION + POSITION_WORDS * q + NEEDS]
        if (state[AGREED] >> q) & 1 == 0 and needs & state[AGREED] == needs:
            return q


@kernel
def still_agreeing(plan: Any, state: Any, length: int) -> int:
    """Those that agree, as bits, and use at most the first `length` values of the tuple."""
    kept = 0
    for q in range(plan[POSITIONS]):
        a = POSITION + POSITION_WORDS * q
        if plan[a + OFFSET] + plan[a + ARITY_] <= length:
            kept |= state[AGREED] & (1 << q)
    return kept


@kernel
def look_up(nodes: Nodes, walking: ProductWalk, q: int) -> tuple[int, int]:
    """The first entry of position q that the eliminator leaves possible; leaf 0 if there is none."""
    plan, roots, state = walking
    a, z = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
    k, offset, length = plan[a + ARITY_], plan[a + OFFSET], state[LENGTH]
    known = min(k, length - offset)
    behind = state[IS_BEHIND] != 0 and length - offset <= k
    position = IndexPosition(state, TUPLE + offset, 1, known, BEHIND if behind else BEFORE)
    leaf, i = seek_near(nodes, roots[plan[a + MEMBER]], k, state[z + LEAF_], min(state[z + ENTRY], state[z + END] - 1), position)
    state[STEPS] += 1
    state[LOOKUPS] += 1
    below = min(k, max(0, plan[PREFIX] - offset))
    if leaf == 0 or not same(nodes.M, leaf, LEAF_ROOM[k], i, state, TUPLE + offset, 1, below):
        return 0, 0
    state[z + LEAF_], state[z + ENTRY], state[z + END] = leaf, i, i + 1
    state[z + FIRST], state[z + FIRST + 1] = leaf, i
    return leaf, i


@kernel
def ask(nodes: Nodes, walking: ProductWalk, q: int) -> bool:
    """Make position q agree with the eliminator, or move the eliminator; False if the walk is at its end."""
    M = nodes.M
    plan, _, state = walking
    a = POSITION + POSITION_WORDS * q
    k, offset, length = plan[a + ARITY_], plan[a + OFFSET], state[LENGTH]
    leaf, i = look_up(nodes, walking, q)
    if leaf == 0:
        if offset <= plan[PREFIX]:
            return False
        state[AGREED] = still_agreeing(plan, state, offset - 1)
        state[LENGTH], state[IS_BEHIND] = offset, 1
        return True
    room, n, j = LEAF_ROOM[k], min(k, length - offset), 0
    while j < n and M[leaf + HEAD + j * room + i] == state[TUPLE + offset + j]:
        j += 1
    if j < n:
        state[AGREED] = still_agreeing(plan, state, offset + j)
    if j < n or length == 0:
        state[PROBES] += 1
    if j < n or length < offset + k:
        for c in range(j, k):
            state[TUPLE + offset + c] = M[leaf + HEAD + c * room + i]
        state[LENGTH], state[IS_BEHIND] = offset + k, 0
    state[AGREED] |= 1 << q
    return True


@kernel
def begin_item(plan: Any, state: Any, items: Items) -> None:
    """Set the eliminator to the item's values, or to the beginning of all tuples."""
    for j in range(plan[PREFIX]):
        state[TUPLE + j] = items.coordinates[state[AT] * items.width + j]
    state[LENGTH], state[IS_BEHIND], state[AGREED], state[ASKED] = plan[PREFIX], 0, plan[GIVEN], plan[POSITIONS] - 1
    state[PROBES] += plan[PREFIX] > 0
    state[STEPS] += 1
    state[PHASE] = ASK


@kernel
def end_item(state: Any) -> None:
    state[AT] += 1
    state[PHASE] = BEGIN


@kernel
def go_behind(plan: Any, state: Any) -> None:
    """Move the eliminator past the tuple, whose rows are written."""
    if plan[PREFIX] >= plan[WIDTH]:
        end_item(state)
        return
    state[AGREED] = still_agreeing(plan, state, plan[WIDTH] - 1)
    state[IS_BEHIND], state[ASKED], state[PHASE] = 1, plan[WIDEST] - 1, ASK


@kernel("int64(Nodes, ProductWalk, Items, RowBuffer, int64)")
def adaptive_fill(nodes: Nodes, walking: ProductWalk, items: Items, emitted: RowBuffer, budget: int) -> int:
    """Write further rows of the items, from the position in `state` on. Returns their number, at most `stride`. All are written once
    state[AT] is the number of items.

    `items`: given entries or keys, or one with no coordinates for all rows. Stops after `budget` steps too (look-ups, items, rows;
    state[STEPS] counts them). Cost: O(log n) a look-up, O(1) a row; the module's head bounds the number of look-ups.
    """
    plan, _, state = walking
    n, stop, all_ = 0, state[STEPS] + budget, (1 << plan[POSITIONS]) - 1
    while n < emitted.stride and state[AT] < len(items.slots) and state[STEPS] < stop:
        if state[PHASE] == BEGIN:
            begin_item(plan, state, items)
        elif state[PHASE] == EMIT:
            n, more = emit(nodes, walking, items.slots, emitted, n)
            if not more:
                go_behind(plan, state)
        else:
            q = next_asked(plan, state)
            state[ASKED] = q
            if not ask(nodes, walking, q):
                end_item(state)
            elif state[AGREED] == all_:
                begin_product(nodes, walking)
                state[PHASE] = EMIT
    return n
