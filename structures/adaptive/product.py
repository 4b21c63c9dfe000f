"""The rows of a tuple: the product of its groups of slots, one group an atom, told by as many rows at a time as there is room for.

A *tuple* has a value for each variable, in the order in which a walk goes (`shape.py`). An atom's part of it begins at the atom's offset.
The entries of its index that have this part are its group, a run in one leaf or several.

State Z, plain data, which is also the cursor: counters; the tuple; then of each position the entry where it stands and the end of its group
in that leaf, and the same at the beginning of the group. A walk that has found a tuple has the first entry of each group in FIRST.

Costs: a row O(1) amortised in order; a group that goes on in the next leaf O(log n).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.adaptive.shape import ARITY_, ATOM, GIVEN, MEMBER, MOST_ATOMS, OFFSET, POSITION, POSITION_WORDS, POSITIONS
from structures.core.blocks import Nodes
from structures.core.entries import Told
from structures.core.kernel import arrays, kernel
from structures.index.layout import LEAF_ROOM, MOST_ARITY, count_of, slot_at
from structures.index.search import group_end, next_entry, same

# AT: the item; PHASE: what comes next; steps in all, at the last row, most between rows; look-ups in indexes; places that were tried;
# tuples found; then of `walk.py`: whose turn it was, who agrees, what is known of the place; TUPLE: the first value
AT, PHASE, STEPS, LAST, GAP, LOOKUPS, PROBES, OUTPUTS, TURN, AGREED, LENGTH, IS_BEHIND, TUPLE = range(13)
PLACES = TUPLE + MOST_ARITY
LEAF_, ENTRY, END, FIRST = range(4)  # FIRST: the same three at the beginning
PLACE_WORDS = FIRST + 3
STATE_WORDS = PLACES + PLACE_WORDS * MOST_ATOMS


@arrays("int64[::1]", "int64[::1]", "int64[::1]")
class Walking(NamedTuple):
    """A reading of the version with these roots R by the plan P, and its state."""

    P: np.ndarray
    R: np.ndarray
    Z: np.ndarray


@kernel
def begin_product(nodes: Nodes, walking: Walking) -> None:
    """Take all positions to the first entries of their groups."""
    P, _, Z = walking
    for q in range(P[GIVEN], P[POSITIONS]):
        a, z = POSITION + POSITION_WORDS * q, PLACES + PLACE_WORDS * q
        leaf, i, k = Z[z + FIRST], Z[z + FIRST + 1], P[a + ARITY_]
        end = group_end(nodes, leaf, k, i, Z, TUPLE + P[a + OFFSET], 1, k)
        Z[z + LEAF_], Z[z + ENTRY], Z[z + END], Z[z + FIRST + 2] = leaf, i, end, end
    Z[OUTPUTS] += 1


@kernel
def forward(nodes: Nodes, walking: Walking, q: int) -> bool:
    """Take position q to the next entry of its group; False: there is none."""
    P, R, Z = walking
    a, z = POSITION + POSITION_WORDS * q, PLACES + PLACE_WORDS * q
    if q < P[GIVEN]:
        return False
    if Z[z + ENTRY] + 1 < Z[z + END]:
        Z[z + ENTRY] += 1
        return True
    leaf, k, x = Z[z + LEAF_], P[a + ARITY_], TUPLE + P[a + OFFSET]
    n = count_of(nodes.W, leaf)
    if Z[z + END] < n:
        return False
    other, i = next_entry(nodes, R[P[a + MEMBER]], k, leaf, n - 1)
    Z[STEPS] += 1
    if other == 0 or not same(nodes.M, other, LEAF_ROOM[k], i, Z, x, 1, k):
        return False
    Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = other, i, group_end(nodes, other, k, i, Z, x, 1, k)
    return True


@kernel
def next_of_product(nodes: Nodes, walking: Walking) -> bool:
    """What the last position has in its leaf is told: on to the next rows of the tuple; False: there are none."""
    P, _, Z = walking
    q = P[POSITIONS] - 1
    while q >= 0 and not forward(nodes, walking, q):
        q -= 1
    if q < 0:
        return False
    for r in range(q + 1, P[POSITIONS]):
        z = PLACES + PLACE_WORDS * r
        Z[z + LEAF_], Z[z + ENTRY], Z[z + END] = Z[z + FIRST], Z[z + FIRST + 1], Z[z + FIRST + 2]
    return True


@kernel
def emit(nodes: Nodes, walking: Walking, slots: Any, told: Told, n: int) -> tuple[int, bool]:
    """Write rows from where all stand through the last position's group in its leaf, as long as there is room; the rows then, and whether
    the tuple has more. `slots`: of the items."""
    W, P, Z = nodes.W, walking.P, walking.Z
    out, stride = told
    last = P[POSITIONS] - 1
    z = PLACES + PLACE_WORDS * last
    low, m = Z[z + ENTRY], min(Z[z + END] - Z[z + ENTRY], stride - n)
    for q in range(last + 1):
        a, place = POSITION + POSITION_WORDS * q, PLACES + PLACE_WORDS * q
        k, o = P[a + ARITY_], P[a + ATOM] * stride + n
        source = slot_at(Z[place + LEAF_], k, LEAF_ROOM[k])
        if q == last:
            for j in range(m):
                out[o + j] = W[source + low + j]
        else:
            slot = slots[Z[AT]] if q < P[GIVEN] else W[source + Z[place + ENTRY]]
            for j in range(m):
                out[o + j] = slot
    Z[z + ENTRY] = low + m
    Z[STEPS] += m
    Z[GAP] = max(Z[GAP], Z[STEPS] - m + 1 - Z[LAST])
    Z[LAST] = Z[STEPS]
    return n + m, Z[z + ENTRY] < Z[z + END] or next_of_product(nodes, walking)
