"""Making a tree compact again, level by level from the tree as it is: what has not changed since is copied, bits and bytes, and not read.

    tree     inner nodes of level b, in order: places, live or compact   --child by child-->   those of the next level
    making   nodes: bits of this level behind those of the one above     leaves: sizes and bytes, in the same order

A compact leaf has the same bytes in the new form if codes have as many bits there; those of neighbours are adjacent in both. Everything
live is written anew: leaves, and inner nodes that now have at most LEAF entries, which become leaves. So the new form is the one that
`compress` makes of the entries, whatever has changed.

Costs, in steps: O(nodes + bytes / 32) for what is compact, O(entries) for what is live; a child at a time, at worst O(levels). Source:
docs/design/natural-joins.md (*qdag*); as for `compact.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.bits import count_bits
from structures.core.kernel import arrays, kernel, wide
from structures.quadtree.compact import (
    AT,
    CHILD,
    CODE,
    ENTRY,
    INPUT,
    LEFT,
    LEVEL,
    NODE,
    NODE_WORDS,
    RANGE,
    Construction,
    add_inner,
    add_leaf,
    add_range,
    add_size,
    begin_node,
    begun,
    bytes_of,
    compact_position,
    compact_size,
    end_node,
    find_leaf,
    first_inner,
    first_leaf,
    node_word,
    write_leaf,
)
from structures.quadtree.layout import LEAF, LEVELS, QuadNodes, QuadtreeShape, level_below, live_child
from structures.quadtree.search import child_of, children_of, copy_leaf, ends_at, size_of

_BYTES = 32  # bytes of a leaf copied in a step


@arrays("int64[:, ::1]", "int32[::1]", "int32[::1]")
class SubtreeBuffers(NamedTuple):
    """Buffers for a subtree of few entries: places to visit and their levels, the columns of a leaf, the entries."""

    todo: np.ndarray
    columns: np.ndarray
    rows: np.ndarray


def room_for_few(arity: int) -> SubtreeBuffers:
    return SubtreeBuffers(
        np.empty(((LEVELS + 1) << arity, 2), np.int64),
        np.empty((arity + 1) * LEAF + 16, np.int32),  # columns are written sixteen items at a time
        np.empty((arity + 1) * LEAF, np.int32),
    )


def begun_anew(position: int, bits: int, count: int, shape: QuadtreeShape) -> Construction:
    """Return the state for making the compact form of a tree of more than LEAF entries, from its root."""
    making = begun(count, shape, bits)
    making.ranges[0, 0] = position, 0
    return making


@kernel
def gather_few(nodes: QuadNodes, base: int, bits: int, shape: QuadtreeShape, top: tuple[int, int], few: SubtreeBuffers) -> tuple[int, int]:
    """Copy the entries of the subtree `top` (place, level) to `few.rows`, unless it has more than LEAF. Returns their number (LEAF + 1:
    more), and the number of nodes and entries examined."""
    W, todo, k = nodes.W, few.todo, shape.arity
    n, steps, waiting = wide(0), wide(0), wide(1)
    todo[0, 0], todo[0, 1] = top
    while waiting > 0:
        waiting -= 1
        o, level = todo[waiting, 0], todo[waiting, 1]
        steps += 1
        if ends_at(W, o):
            size = size_of(nodes, base, o)
            if n + size > LEAF:
                return wide(LEAF + 1), steps
            copy_leaf(nodes, base, o, shape, level, 0, few.columns, 0)
            for i in range(size):
                for j in range(k + 1):
                    few.rows[(n + i) * (k + 1) + j] = few.columns[j * LEAF + i]
            n += size
            steps += size
        elif o < 0:  # an inner node of a compact form has more
            return wide(LEAF + 1), steps
        else:
            for c in range(1 << k):
                child = live_child(W, o, c)
                if child != 0:
                    todo[waiting, 0], todo[waiting, 1] = child, level_below(level, bits)
                    waiting += 1
    return n, steps


@kernel
def copy_bytes(packed: Any, at: int, size: int, out: Any, end: int) -> None:
    """Copy `size` bytes to out[end]; vectorised, as in `moved` of `core/blocks.py`."""
    source, target = np.uint64(at), np.uint64(end)
    for i in range(np.uint64(0), np.uint64(size)):
        out[target + i] = packed[source + i]


@kernel
def copy_node(nodes: QuadNodes, base: int, making: Construction, shape: QuadtreeShape, index: int, lower: int) -> int:
    """Make the current node a copy of this compact inner node, whose children are of the level `lower`. Returns the amount copied, in
    steps. O(its bytes)."""
    compact, N, state = nodes.compact, making.N, making.state
    k, f = shape
    bit, made = index << k, state[NODE] << k
    w, v = node_word(compact, base, compact_position(index, False), k), NODE_WORDS * (made >> 6)
    every, before = (1 << (1 << k)) - 1, ~(wide(-1) << (bit & 63))
    inner, leaves = (compact[w + 1] >> (bit & 63)) & every, (compact[w + 2] >> (bit & 63)) & every
    N[v + 1] |= inner << (made & 63)
    N[v + 2] |= leaves << (made & 63)
    child = first_inner(compact, w) + count_bits(compact[w + 1] & before)
    for i in range(count_bits(inner)):
        add_range(making, compact_position(child + i, False), 0)
    if leaves == 0:
        return 1
    q, n = first_leaf(compact, w) + count_bits(compact[w + 2] & before), state[ENTRY]
    at, _, each = find_leaf(compact, base, compact_position(q, True), shape, lower)
    count = count_bits(leaves)
    for i in range(count):
        add_size(making, compact_size(compact, base, compact_position(q + i, True)))
    size = count * bytes_of(making.H[CODE]) * k + (state[ENTRY] - n) * each
    copy_bytes(nodes.packed, at, size, making.packed, state[AT])
    state[AT] += size
    return 1 + size // _BYTES


@kernel
def add_child(nodes: QuadNodes, base: int, making: Construction, shape: QuadtreeShape, child: int, few: SubtreeBuffers) -> int:
    """Add the child at a place to the current node. Returns the steps that this took. O(its bytes); for what is live O(levels + its
    entries)."""
    W, compact, packed, state = nodes.W, nodes.compact, nodes.packed, making.state
    k, f = shape
    c, code = state[CHILD], making.H[CODE]
    level = level_below(state[LEVEL], code)
    if child < 0 and not ends_at(W, child):
        add_inner(making, k, c, child, 0)
        return 0
    if child < 0 and compact[base + CODE] == code:
        at, n, each = find_leaf(compact, base, child, shape, level)
        size = bytes_of(code) * k + n * each
        copy_bytes(packed, at, size, making.packed, state[AT])
        add_leaf(making, k, c, n, state[AT] + size)
        return size // _BYTES
    n, steps = gather_few(nodes, base, code, shape, (child, level), few)
    if n > LEAF:
        add_inner(making, k, c, child, 0)
    else:
        add_leaf(making, k, c, n, write_leaf(making.packed, state[AT], few.rows, 0, n, shape, level, code))
    return steps


@kernel("int64(QuadNodes, int64, Construction, SubtreeBuffers, int64, int64, int64)")
def remake(nodes: QuadNodes, base: int, making: Construction, few: SubtreeBuffers, arity: int, leading: int, budget: int) -> int:
    """Continue making the compact form of a tree (`begun_anew`) until it is complete, as in `compress`, or `budget` steps are done. Returns
    the number of steps left, below 0 if the last node or child took more. A plain tree gets as many levels as its codes need. O(budget)."""
    compact, H, ranges, state = nodes.compact, making.H, making.ranges, making.state
    while leading == 0 and state[NODE] + state[CHILD] == 0 and H[CODE] > 1 and children_of(nodes, base, ranges[0, 0, 0], arity) == 1:
        ranges[0, 0, 0] = child_of(nodes, base, ranges[0, 0, 0], arity, 0)
        H[CODE] -= 1
        state[LEVEL] -= 1
        budget -= 1
    while state[LEFT] > 0 and budget > 0:
        o, c, lower = ranges[state[INPUT], state[RANGE], 0], state[CHILD], level_below(state[LEVEL], H[CODE])
        if c == 0:
            begin_node(making, lower, arity)
        if o < 0 and compact[base + CODE] == H[CODE]:
            budget -= copy_node(nodes, base, making, QuadtreeShape(arity, leading), ~o >> 1, lower)
            end_node(making, lower, arity)
            continue
        child = wide(child_of(nodes, base, o, arity, c))
        budget -= 1
        if child != 0:
            budget -= add_child(nodes, base, making, QuadtreeShape(arity, leading), child, few)
        state[CHILD] = c + 1
        if c + 1 == 1 << arity:
            state[CHILD] = 0
            end_node(making, lower, arity)
    return budget
