"""The adaptive walk: from place to place in the order of the tuples, each the least that one atom leaves possible, until all agree.

The *eliminator* is a place in that order: the values of a tuple, or of its beginning, or the end of all that begin so (IS_BEHIND). An
atom whose turn it is looks for its first entry from there on. This may have just the eliminator's values: the atom agrees. Or more of them:
the eliminator grows. Or it lies behind, and becomes the eliminator. When all agree, the eliminator is a tuple of the join, and the walk
goes on behind it. When an atom has no entry left, the walk ends, or that part of it which has the values below which the atom was asked.

Turns go round, so that two atoms do not exchange values that a third one rules out. An atom that agrees is not asked again unless one of
its values in the eliminator changes: a group of many tuples asks the shorter atoms once.

Costs: of m atoms O(m D log n) to all tuples, of which D is the number of comparisons in the shortest proof, besides O(1) look-ups a tuple.
Source: *Towards Instance Optimal Join Algorithms*, Algorithms 2, 9 and 10. The constraint set of Algorithm 10 is what lies before the
eliminator.
"""

from __future__ import annotations

from typing import Any

from structures.adaptive.product import (
    AGREED,
    AT,
    END,
    ENTRY,
    FIRST,
    IS_BEHIND,
    LEAF_,
    LENGTH,
    LOOKUPS,
    PHASE,
    PLACE_WORDS,
    PLACES,
    PROBES,
    STEPS,
    TUPLE,
    TURN,
    Walking,
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
from structures.core.entries import Told
from structures.core.kernel import kernel
from structures.index.layout import HEAD, LEAF_ROOM
from structures.index.search import BEFORE, BEHIND, Items, Place, same, seek_near

BEGIN, ASK, EMIT = range(3)  # phases


@kernel
def next_turn(P: Any, Z: Any) -> int:
    """The next position that does not agree and may be asked."""
    q = Z[TURN]
    while True:
        q = q + 1 if q + 1 < P[POSITIONS] else 0
        needs = P[POSITION + POSITION_WORDS * q + NEEDS]
        if (Z[AGREED] >> q) & 1 == 0 and needs & Z[AGREED] == needs:
            return q


@kernel
def still_agreeing(P: Any, Z: Any, length: int) -> int:
    """Those that agree, as bits, and have no more than so many first values of the tuple."""
    kept = 0
    for q in range(P[POSITIONS]):
        a = POSITION + POSITION_WORDS * q
        if P[a + OFFSET] + P[a + ARITY_] <= length:
            kept |= Z[AGREED] & (1 << q)
    return kept


@kernel
def look_up(nodes: Nodes, walking: Walking, q: int) -> tuple[int, int]:
    """The first entry of position q that the eliminator leaves possible; leaf 0: there is none."""
    P, R, Z = walking
    a, z = POSITION + POSITION_WORDS * q, PLACES + PLACE_WORDS * q
    k, offset, length = P[a + ARITY_], P[a + OFFSET], Z[LENGTH]
    known = min(k, length - offset)
    behind = Z[IS_BEHIND] != 0 and length - offset <= k
    place = Place(Z, TUPLE + offset, 1, known, BEHIND if behind else BEFORE)
    leaf, i = seek_near(nodes, R[P[a + MEMBER]], k, Z[z + LEAF_], min(Z[z + ENTRY], Z[z + END] - 1), place)
    Z[STEPS] += 1
    Z[LOOKUPS] += 1
    below = min(k, max(0, P[PREFIX] - offset))
    if leaf == 0 or not same(nodes.M, leaf, LEAF_ROOM[k], i, Z, TUPLE + offset, 1, below):
        return 0, 0
    Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = leaf, i, i + 1
    Z[z + FIRST], Z[z + FIRST + 1] = leaf, i
    return leaf, i


@kernel
def ask(nodes: Nodes, walking: Walking, q: int) -> bool:
    """Let position q agree with the eliminator or raise it; False: the walk is at its end."""
    M = nodes.M
    P, _, Z = walking
    a = POSITION + POSITION_WORDS * q
    k, offset, length = P[a + ARITY_], P[a + OFFSET], Z[LENGTH]
    leaf, i = look_up(nodes, walking, q)
    if leaf == 0:
        if offset <= P[PREFIX]:
            return False
        Z[AGREED] = still_agreeing(P, Z, offset - 1)
        Z[LENGTH], Z[IS_BEHIND] = offset, 1
        return True
    room, n, j = LEAF_ROOM[k], min(k, length - offset), 0
    while j < n and M[leaf + HEAD + j * room + i] == Z[TUPLE + offset + j]:
        j += 1
    if j < n:
        Z[AGREED] = still_agreeing(P, Z, offset + j)
    if j < n or length == 0:
        Z[PROBES] += 1
    if j < n or length < offset + k:
        for c in range(j, k):
            Z[TUPLE + offset + c] = M[leaf + HEAD + c * room + i]
        Z[LENGTH], Z[IS_BEHIND] = offset + k, 0
    Z[AGREED] |= 1 << q
    return True


@kernel
def begin_item(P: Any, Z: Any, items: Items) -> None:
    """The eliminator is what the item gives, or the beginning of all."""
    for j in range(P[PREFIX]):
        Z[TUPLE + j] = items.X[Z[AT] * items.width + j]
    Z[LENGTH], Z[IS_BEHIND], Z[AGREED], Z[TURN] = P[PREFIX], 0, P[GIVEN], P[POSITIONS] - 1
    Z[PROBES] += P[PREFIX] > 0
    Z[STEPS] += 1
    Z[PHASE] = ASK


@kernel
def end_item(Z: Any) -> None:
    Z[AT] += 1
    Z[PHASE] = BEGIN


@kernel
def go_behind(P: Any, Z: Any) -> None:
    """The tuple is told: on behind it."""
    if P[PREFIX] >= P[WIDTH]:
        end_item(Z)
        return
    Z[AGREED] = still_agreeing(P, Z, P[WIDTH] - 1)
    Z[IS_BEHIND], Z[TURN], Z[PHASE] = 1, P[WIDEST] - 1, ASK


@kernel("int64(Nodes, Walking, Items, Told, int64)")
def adaptive_fill(nodes: Nodes, walking: Walking, items: Items, told: Told, budget: int) -> int:
    """Further rows of the items, from where Z is; how many, at most `stride`. All are told once Z[AT] is the number of items.

    `items`: given entries or keys, or one of no coordinates for all rows. Stops after `budget` steps too (look-ups, items, rows; Z[STEPS]
    counts them). Cost: O(log n) a look-up, O(1) a row; how many look-ups, the module's head says.
    """
    P, _, Z = walking
    n, stop, all_ = 0, Z[STEPS] + budget, (1 << P[POSITIONS]) - 1
    while n < told.stride and Z[AT] < len(items.slots) and Z[STEPS] < stop:
        if Z[PHASE] == BEGIN:
            begin_item(P, Z, items)
        elif Z[PHASE] == EMIT:
            n, more = emit(nodes, walking, items.slots, told, n)
            if not more:
                go_behind(P, Z)
        else:
            q = next_turn(P, Z)
            Z[TURN] = q
            if not ask(nodes, walking, q):
                end_item(Z)
            elif Z[AGREED] == all_:
                begin_product(nodes, walking)
                Z[PHASE] = EMIT
    return n
