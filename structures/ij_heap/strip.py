"""The strip: all entries that may be part of rows across a boundary, or of the rows of one interval, gathered into one block.

The block lies in the state of the enumeration, has the form of a leaf (`multiway/layout.py`), and is processed like one (`bind.py`). Where
partners are few, this replaces the splits of a node; where more entries would take part than a leaf holds, the strip is abandoned.

    across a node   of the lower child the entries that reach the upper one, or that begin where such an entry can meet them, and so on, as
                    far as the topology is wide; of the upper child mirrored. Rows wholly in one child are left out (LOWER, SIDES).
    of an interval  of every other set the entries within its bounds (`walk.confine`)

Costs: O(t (log n + L)). The strip holds at most L entries, so the steps to process it are bounded by a constant.
"""

from __future__ import annotations

from structures.core.bits import count_bits, lowest
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import kernel
from structures.ij_heap.bind import meeting
from structures.ij_heap.goals import G_SUBSET, LEAST, LOWER, MOST, STEPS, STRIP, HeapWalk
from structures.multiway.alias import FOUND_, at_least, at_most, first, reach
from structures.multiway.extreme import SCRATCH_WORDS
from structures.multiway.layout import CHILD, MOST_LEVELS, STARTS, L, MultiwayNodes, height_of, key_of, near_at, start_of
from structures.multiway.leaves import entry_at
from structures.multiway.topology import DIAMETER, MEMBER, NEAR, POS, SETS, SIZE

STACK = SCRATCH_WORDS  # stack of nodes, in `scratch` behind the scratch of `multiway.extreme`
REACHES, BEGINS = STACK + MOST_LEVELS, STACK + MOST_LEVELS + 6  # bounds by alias, for entries of the lower child and of the upper child
STRIP_SCRATCH = BEGINS + 6


@kernel(forceinline=True)
def gather(nodes: MultiwayNodes, walking: HeapWalk, o: int, i: int, key: int, least: int, most: int, n: int) -> int:
    """Append the entries of set i below node o with the key, right >= least and left <= most to the strip, which holds n entries. Returns
    how many it then holds, or -1 if they are too many."""
    M, W, table, state, ZW, scratch = nodes.M, nodes.W, nodes.table, walking.state, walking.ZW, walking.scratch
    a, b = entry_at(table, state[STRIP])
    scratch[STACK] = o
    top = 1
    while top > 0:
        top -= 1
        o = scratch[STACK + top]
        while at_least(nodes, o, i, key, least) and at_most(nodes, o, i, key, most):
            state[STEPS] += 1
            if height_of(W, o) > 0:
                scratch[STACK + top] = M[o + CHILD + 1]
                top += 1
                o = M[o + CHILD]
                continue
            e, w = entry_at(table, o)
            mask = meeting(nodes, o, i, key, key, least, most)
            if n + count_bits(mask) > L:
                return -1
            while mask != 0:
                p = start_of(W, o, i) + lowest(mask)
                mask &= mask - 1
                state[a + n], state[a + L + n] = M[e + p], M[e + L + p]
                ZW[b + n], ZW[b + L + n] = W[w + p], W[w + L + p]
                n += 1
            break
    return n


@kernel
def gather_rows(nodes: MultiwayNodes, walking: HeapWalk, o: int, g: int, key: int) -> int:
    """Fill the strip with the entries of all aliases of goal g below node o within its bounds. Returns the number of entries; 0 if there is
    certainly no row, -1 if there are too many entries."""
    table, state, ZW = nodes.table, walking.state, walking.ZW
    strip, v, n = state[STRIP], state[g + G_SUBSET], 0
    ZW[2 * strip + STARTS] = 0
    member = table[POS + v]
    for i in range(table[SETS]):
        if member < table[POS + v] + table[SIZE + v] and table[MEMBER + member] == i:
            member += 1
            before = n
            n = gather(nodes, walking, o, i, key, state[g + LEAST + i], state[g + MOST + i], n)
            if n <= before:
                return min(n, 0)
        ZW[2 * strip + STARTS + i + 1] = n
    return n


@kernel
def cross_bounds(nodes: MultiwayNodes, walking: HeapWalk, lower: int, upper: int, v: int, key: int) -> None:
    """Compute the bounds for parts of a v-tuple across the two children: scratch[REACHES + i] is what an entry of alias i in the lower
    child must reach, scratch[BEGINS + i] where one in the upper child must begin at the latest."""
    M, table, scratch = nodes.M, nodes.table, walking.scratch
    begins, ends = near_at(table, upper, 0), near_at(table, lower, 1)
    lo, hi = table[POS + v], table[POS + v] + table[SIZE + v]
    for m in range(lo, hi):
        scratch[REACHES + table[MEMBER + m]], scratch[BEGINS + table[MEMBER + m]] = POS_INF, NEG_INF
    for m in range(lo, hi):
        j = table[MEMBER + m]
        there, here = key_of(nodes, upper, 0, j) == key, key_of(nodes, lower, 1, j) == key
        for k in range(lo, hi):
            i = table[MEMBER + k]
            if (table[NEAR + j] >> i) & 1 != 0:
                if there:
                    scratch[REACHES + i] = min(scratch[REACHES + i], M[begins + j])
                if here:
                    scratch[BEGINS + i] = max(scratch[BEGINS + i], M[ends + j])


@kernel
def widen(nodes: MultiwayNodes, walking: HeapWalk, lower: int, upper: int, v: int, key: int) -> None:
    """Extend the bounds of `cross_bounds` to entries that meet one within them. An alias with one neighbour leads to no others: all that it
    could meet across is that neighbour itself."""
    table, scratch = nodes.table, walking.scratch
    lo, hi, members = table[POS + v], table[POS + v] + table[SIZE + v], 0
    for m in range(lo, hi):
        members |= 1 << table[MEMBER + m]
    for m in range(lo, hi):
        j = table[MEMBER + m]
        near = table[NEAR + j] & members
        if near & (near - 1) == 0:
            continue
        met = first(nodes, scratch, lower, j, key, scratch[REACHES + j]) and scratch[FOUND_] == key
        for k in range(lo, hi):
            if met and (table[NEAR + j] >> table[MEMBER + k]) & 1 != 0:
                scratch[REACHES + table[MEMBER + k]] = min(scratch[REACHES + table[MEMBER + k]], scratch[FOUND_ + 1])
        met = reach(nodes, scratch, upper, j, key, scratch[BEGINS + j]) and scratch[FOUND_] == key
        for k in range(lo, hi):
            if met and (table[NEAR + j] >> table[MEMBER + k]) & 1 != 0:
                scratch[BEGINS + table[MEMBER + k]] = max(scratch[BEGINS + table[MEMBER + k]], scratch[FOUND_ + 2])


@kernel
def gather_across(nodes: MultiwayNodes, walking: HeapWalk, o: int, g: int, key: int) -> bool:
    """Fill the strip with the entries that may be part of tuples of goal g across the children of node o; False if there are too many."""
    M, table, state, ZW, scratch = nodes.M, nodes.table, walking.state, walking.ZW, walking.scratch
    lower, upper, v, strip = M[o + CHILD], M[o + CHILD + 1], state[g + G_SUBSET], state[STRIP]
    cross_bounds(nodes, walking, lower, upper, v, key)
    for _ in range(table[DIAMETER + v] - 1):
        widen(nodes, walking, lower, upper, v, key)
    n, member = 0, table[POS + v]
    ZW[2 * strip + STARTS] = 0
    for i in range(table[SETS]):
        if member < table[POS + v] + table[SIZE + v] and table[MEMBER + member] == i:
            member += 1
            start, least, most = n, state[g + LEAST + i], state[g + MOST + i]
            n = gather(nodes, walking, lower, i, key, max(least, scratch[REACHES + i]), most, n)
            if n < 0:
                return False
            state[LOWER + i] = (1 << (n - start)) - 1
            n = gather(nodes, walking, upper, i, key, least, min(most, scratch[BEGINS + i]), n)
            if n < 0:
                return False
        ZW[2 * strip + STARTS + i + 1] = n
    return True
