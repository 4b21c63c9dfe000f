"""The rows of a tuple: the product of its groups of slots, one group an atom, written for as many rows at a time as there is room for.

A *tuple* has a value for each variable, in the order in which a walk goes (`shape.py`). An atom's part of it begins at the atom's offset.
The entries of its index that have this part are its group, a run in one leaf or several.

The state is plain data, which is also the cursor: counters; the tuple; then for each position its current entry and the end of its group in
that leaf, and the same at the beginning of the group. A walk that has found a tuple has the first entry of each group in FIRST.

Costs: a row O(1) amortised in order; a group that continues in the next leaf O(log n).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.adaptive.shape import ARITY_, ATOM, GIVEN, MEMBER, MOST_ATOMS, OFFSET, POSITION, POSITION_WORDS, POSITIONS
from structures.core.blocks import Nodes
from structures.core.entries import RowBuffer
from structures.core.kernel import arrays, kernel
from structures.index.layout import LEAF_ROOM, MOST_ARITY, count_of, slot_at
from structures.index.search import group_end, next_entry, same

# AT: the item; PHASE: the next step; steps in all, at the last row, most between rows; look-ups in indexes; places tried; tuples found;
# then for `walk.py`: the atom asked last, the positions that agree, what is known of the place; TUPLE: the first value.
AT, PHASE, STEPS, LAST, GAP, LOOKUPS, PROBES, OUTPUTS, ASKED, AGREED, LENGTH, IS_BEHIND, TUPLE = range(13)
INDEX_POSITIONS = TUPLE + MOST_ARITY
LEAF_, ENTRY, END, FIRST = range(4)  # FIRST: the same three at the beginning of the group
INDEX_POSITION_WORDS = FIRST + 3
STATE_WORDS = INDEX_POSITIONS + INDEX_POSITION_WORDS * MOST_ATOMS


@arrays("int64[::1]", "int64[::1]", "int64[::1]")
class ProductWalk(NamedTuple):
    """A reading of the version with these roots by this plan, and its state."""

    plan: np.ndarray
    roots: np.ndarray
    state: np.ndarray


@kernel
def begin_product(nodes: Nodes, walking: ProductWalk) -> None:
    """Move all positions to the first entries of their groups."""
    plan, _, state = walking
    for q in range(plan[GIVEN], plan[POSITIONS]):
        a, z = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
        leaf, i, k = state[z + FIRST], state[z + FIRST + 1], plan[a + ARITY_]
        end = group_end(nodes, leaf, k, i, state, TUPLE + plan[a + OFFSET], 1, k)
        state[z + LEAF_], state[z + ENTRY], state[z + END], state[z + FIRST + 2] = leaf, i, end, end
    state[OUTPUTS] += 1


@kernel
def forward(nodes: Nodes, walking: ProductWalk, q: int) -> bool:
    """Move position q to the next entry of its group; False if there is none."""
    plan, roots, state = walking
    a, z = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
    if q < plan[GIVEN]:
        return False
    if state[z + ENTRY] + 1 < state[z + END]:
        state[z + ENTRY] += 1
        return True
    leaf, k, x = state[z + LEAF_], plan[a + ARITY_], TUPLE + plan[a + OFFSET]
    n = count_of(nodes.W, leaf)
    if state[z + END] < n:
        return False
    other, i = next_entry(nodes, roots[plan[a + MEMBER]], k, leaf, n - 1)
    state[STEPS] += 1
    if other == 0 or not same(nodes.M, other, LEAF_ROOM[k], i, state, x, 1, k):
        return False
    state[z + LEAF_], state[z + ENTRY], state[z + END] = other, i, group_end(nodes, other, k, i, state, x, 1, k)
    return True


@kernel
def next_of_product(nodes: Nodes, walking: ProductWalk) -> bool:
    """Move to the next rows of the tuple, once those of the last position in its leaf are written; False if there are none."""
    plan, _, state = walking
    q = plan[POSITIONS] - 1
    while q >= 0 and not forward(nodes, walking, q):
        q -= 1
    if q < 0:
        return False
    for r in range(q + 1, plan[POSITIONS]):
        z = INDEX_POSITIONS + INDEX_POSITION_WORDS * r
        state[z + LEAF_], state[z + ENTRY], state[z + END] = state[z + FIRST], state[z + FIRST + 1], state[z + FIRST + 2]
    return True


@kernel
def emit(nodes: Nodes, walking: ProductWalk, slots: Any, emitted: RowBuffer, n: int) -> tuple[int, bool]:
    """Write the rows from the current positions through the last position's group in its leaf, as long as there is room. Returns the number
    of rows then written, and whether the tuple has more. `slots`: of the items."""
    W, plan, state = nodes.W, walking.plan, walking.state
    out, stride = emitted
    last = plan[POSITIONS] - 1
    z = INDEX_POSITIONS + INDEX_POSITION_WORDS * last
    low, m = state[z + ENTRY], min(state[z + END] - state[z + ENTRY], stride - n)
    for q in range(last + 1):
        a, position = POSITION + POSITION_WORDS * q, INDEX_POSITIONS + INDEX_POSITION_WORDS * q
        k, o = plan[a + ARITY_], plan[a + ATOM] * stride + n
        source = slot_at(state[position + LEAF_], k, LEAF_ROOM[k])
        if q == last:
            for j in range(m):
                out[o + j] = W[source + low + j]
        else:
            slot = slots[state[AT]] if q < plan[GIVEN] else W[source + state[position + ENTRY]]
            for j in range(m):
                out[o + j] = slot
    state[z + ENTRY] = low + m
    state[STEPS] += m
    state[GAP] = max(state[GAP], state[STEPS] - m + 1 - state[LAST])
    state[LAST] = state[STEPS]
    return n + m, state[z + ENTRY] < state[z + END] or next_of_product(nodes, walking)
