"""A node's summary of the intervals below it: computed from its entries or its children, and maintained under single changes.

A summary has, for every connected V, the least and the greatest V-tuple (`layout.py`). If several tuples have the same near endpoints, any
of them may be stored; each stored one is a real V-tuple of entries below.

Touch rule (by Closure): inserting r into set i changes the least V-tuple only if there is none or r.left is below its left of i; deleting r
only if r *is* its member of i; the greatest mirrored. Further up, an insert no longer matters once it did not touch; a delete once the
stored member lies strictly before r. PENDING (a mask of subsets, for each `which`) has those that may still change further up.

The tree serves cliques of one set as well, whose nodes have another summary (`clique_summary.py`), if table[CLIQUE] is set.

Costs: a leaf O(edges * L) a subset, an inner node one query (`extreme`) a subset, with O(1) visits when nothing reaches across.
Source: docs/design/ij-heap.md (*The one composition step*, *Touch rule*).
"""

from __future__ import annotations

from typing import Any

from structures.core.entries import Entry
from structures.core.kernel import kernel
from structures.multiway.clique_summary import summarise_clique
from structures.multiway.extreme import ANSWER, ASK, extreme, forget, no_bounds, offer_leaf
from structures.multiway.layout import MultiwayNodes, height_of, key_at, key_of, near_at, slot_at
from structures.multiway.leaves import FAR_, FILLED, KEY_, NEAR_, SLOT_
from structures.multiway.topology import CLIQUE, MEMBER, POS, POSITION, SIZE, SPAN, SUBSETS

PUT, CUT = 1, -1


@kernel
def store(nodes: MultiwayNodes, scratch: Any, which: int, o: int, v: int) -> None:
    """Write the answer at scratch[ANSWER] as the node's extreme of v."""
    M, W, table = nodes.M, nodes.W, nodes.table
    near, slot = near_at(table, o, which), slot_at(table, o, which)
    W[key_at(table, o, which) + v] = scratch[ANSWER + KEY_]
    if scratch[ANSWER + FILLED] == 0:
        return
    for m in range(table[POS + v], table[POS + v] + table[SIZE + v]):
        i = table[MEMBER + m]
        M[near + m], M[near + table[SPAN] + m] = scratch[ANSWER + NEAR_ + i], scratch[ANSWER + FAR_ + i]
        W[slot + m] = scratch[ANSWER + SLOT_ + i]


@kernel
def summarise_subset(nodes: MultiwayNodes, scratch: Any, which: int, o: int, v: int) -> None:
    W = nodes.W
    no_bounds(scratch, ASK, which)
    if height_of(W, o) == 0:
        forget(scratch, ANSWER, which)
        offer_leaf(nodes, scratch, which, o, v, ASK, ANSWER)
    else:
        extreme(nodes, scratch, which, o, v, True)
    store(nodes, scratch, which, o, v)


@kernel
def summarise(nodes: MultiwayNodes, scratch: Any, o: int) -> None:
    """Write the whole summary of node o, whose entries or children are in place."""
    table = nodes.table
    if table[CLIQUE] != 0:
        summarise_clique(nodes, scratch, o)
        return
    for v in range(table[SUBSETS]):
        for which in range(2):
            summarise_subset(nodes, scratch, which, o, v)


@kernel
def concerned(table: Any, s: int) -> int:
    """The subsets to which set s belongs, as a mask; for a clique one bit, for the whole summary."""
    if table[CLIQUE] != 0:
        return 1
    mask = 0
    for v in range(table[SUBSETS]):
        if table[POSITION + 8 * v + s] >= 0:
            mask |= 1 << v
    return mask


@kernel
def touches(nodes: MultiwayNodes, which: int, o: int, v: int, entry: Entry, sign: int) -> tuple[bool, bool]:
    """Whether inserting (sign 1) or deleting the entry r, below node o, may change its extreme of v; and whether it may change one further
    up."""
    M, W, table = nodes.M, nodes.W, nodes.table
    x, s, key, slot = -which, entry.set, entry.key, entry.slot
    end = entry.left if which == 0 else entry.right
    k = key_of(nodes, o, which, v)
    m = table[POSITION + 8 * v + s]
    near = M[near_at(table, o, which) + m]
    before = (k ^ x) < (key ^ x) or (k == key and (near ^ x) < (end ^ x))
    if sign == PUT:
        touched = not before and not (k == key and near == end)
        return touched, touched
    if k == key and W[slot_at(table, o, which) + m] == slot:
        return True, True
    return False, not before


@kernel
def refresh(nodes: MultiwayNodes, scratch: Any, which: int, o: int, pending: int, entry: Entry, sign: int) -> int:
    """Update the pending subsets of own node o, whose summary is the one before r was inserted or deleted below it. Returns what is pending
    above."""
    table = nodes.table
    if table[CLIQUE] != 0:
        return 1 if which == 0 and summarise_clique(nodes, scratch, o) else 0
    v = 0
    left = pending
    while left != 0:
        if left & 1 != 0:
            touched, above = touches(nodes, which, o, v, entry, sign)
            if touched:
                summarise_subset(nodes, scratch, which, o, v)
            if not above:
                pending &= ~(1 << v)
        left >>= 1
        v += 1
    return pending
