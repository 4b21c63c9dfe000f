"""Enumeration within a leaf, or in the strip: the aliases of a goal are bound one by one, in the topology's binding order.

The candidates of an alias are the bits of one word. After each choice every later neighbour must keep a candidate (forward check), so a
choice without partners costs O(L), not all pairs. The last three aliases are bound in one loop.

Costs: O(L) a choice, O(1) a row in full leaves. Source: docs/design/ij-heap.md (*Binding in a leaf*).
"""

from __future__ import annotations

from typing import Any

from structures.core.bits import LANES, count_bits, lowest, within8
from structures.core.entries import RowBuffer
from structures.core.kernel import kernel, wide
from structures.ij_heap import goals
from structures.ij_heap.goals import HeapWalk, begin
from structures.multiway.layout import L, MultiwayNodes, start_of
from structures.multiway.leaves import entry_at
from structures.multiway.topology import MEMBER, NEAR, ORDER, POS, SETS, SIZE


@kernel(forceinline=True)
def meeting(nodes: MultiwayNodes, o: int, j: int, low: int, high: int, least: int, most: int) -> int:
    """A mask of the entries of run j of leaf o with a key in [low, high], left <= most and right >= least."""
    M, W, table = nodes.M, nodes.W, nodes.table
    e, w = entry_at(table, o)
    start, end = start_of(W, o, j), start_of(W, o, j + 1)
    lo = start
    while lo < end and W[w + L + lo] < low:
        lo += 1
    while lo < end and W[w + L + end - 1] > high:
        end -= 1
    mask = 0
    for p in range(lo, end, LANES):
        mask |= within8(M, e + p, most, e + L + p, least) << (p - lo)
    return (mask & ((1 << (end - lo)) - 1)) << (lo - start)


@kernel
def enter_leaf(nodes: MultiwayNodes, walking: HeapWalk, o: int, g: int, all: bool) -> bool:
    """List the candidates of all aliases of goal g in leaf o (`all`: every entry is one); False if an alias has none."""
    W, table, state = nodes.W, nodes.table, walking.state
    v = state[g + goals.G_SUBSET]
    first = table[ORDER + table[POS + v]]
    for m in range(table[POS + v], table[POS + v] + table[SIZE + v]):
        j = table[MEMBER + m]
        if all:
            mask = (1 << (start_of(W, o, j + 1) - start_of(W, o, j))) - 1
        else:
            least, most = state[g + goals.LEAST + j], state[g + goals.MOST + j]
            mask = meeting(nodes, o, j, state[g + goals.G_LOW], state[g + goals.G_HIGH], least, most)
        state[goals.CANDIDATES + 6 * first + j] = mask
        if mask == 0:
            return False
    state[goals.LEFT_OVER + first], state[goals.INPUTS + first] = state[goals.CANDIDATES + 6 * first + first], 0
    return True


@kernel
def across(walking: HeapWalk, i: int, inputs: int, mask: int) -> int:
    """The candidates in `mask` for alias i, the last to be bound, that complete a tuple with entries of both children."""
    state = walking.state
    if inputs == 1:
        return mask & ~state[goals.LOWER + i]
    return mask & state[goals.LOWER + i] if inputs == 2 else mask


@kernel
def narrow(nodes: MultiwayNodes, walking: HeapWalk, o: int, v: int, level: int, p: int, crossing: bool) -> bool:
    """After binding the alias of this level to the entry at place p, list the candidates that the later aliases keep; False if one keeps
    none."""
    M, W, table, state = nodes.M, nodes.W, nodes.table, walking.state
    e, w = entry_at(table, o)
    at = ORDER + table[POS + v] + level
    i, next = table[at], table[at + 1]
    key, left, right = wide(W[w + L + p]), M[e + p], M[e + L + p]
    near = table[NEAR + i]
    for m in range(1, table[SIZE + v] - level):
        j = table[at + m]
        mask = state[goals.CANDIDATES + 6 * i + j]
        if (near >> j) & 1 != 0:
            mask &= meeting(nodes, o, j, key, key, left, right)
            if mask == 0:
                return False
        state[goals.CANDIDATES + 6 * next + j] = mask
    mask = state[goals.CANDIDATES + 6 * next + next]
    if crossing:
        state[goals.INPUTS + next] = state[goals.INPUTS + i] | input_of_position(W, walking, o, i, p)
        if level + 2 == table[SIZE + v]:
            mask = across(walking, next, state[goals.INPUTS + next], mask)
    state[goals.LEFT_OVER + next] = mask
    return mask != 0


@kernel
def input_of_position(W: Any, walking: HeapWalk, o: int, i: int, p: int) -> int:
    state = walking.state
    return 1 if (state[goals.LOWER + i] >> (p - start_of(W, o, i))) & 1 != 0 else 2


@kernel
def leaf_step(nodes: MultiwayNodes, walking: HeapWalk, o: int, f: int, emitted: RowBuffer, n: int, end: int) -> int:
    """Continue in leaf o (or the strip) until the rows written reach `end`, the next goal has begun, or frame f is finished (STEP is 0).
    Returns the number of rows written."""
    M, W, table, state = nodes.M, nodes.W, nodes.table, walking.state
    g = state[f + goals.GOAL]
    strip = state[f + goals.NODE] == goals.IN_STRIP
    if state[f + goals.STEP] == 0:
        if not enter_leaf(nodes, walking, o, g, strip or state[g + goals.G_FREE] != 0):
            return n
        state[f + goals.STEP] = 1
    crossing = strip and state[goals.CROSSING] != 0
    v, final = state[g + goals.G_SUBSET], state[g + goals.G_NEXT] == goals.NO_GOAL
    e, w = entry_at(table, o)
    order, last = ORDER + table[POS + v], table[SIZE + v] - 1
    level = state[f + goals.STEP] - 1
    while level >= 0:
        i = table[order + level]
        left_over = state[goals.LEFT_OVER + i]
        if left_over == 0:
            level -= 1
            continue
        if final and level == last:
            if n == end:
                break
            n = write_run(nodes, walking, o, i, emitted, n, end)
            continue
        if final and level == max(0, last - 2):
            n = write_rows(nodes, walking, o, v, emitted, n, end, crossing)
            left_over = state[goals.LEFT_OVER + i]
            if left_over == 0:
                continue
        p = start_of(W, o, i) + lowest(left_over)
        state[goals.LEFT_OVER + i] = left_over & (left_over - 1)
        state[goals.LEFT_ + i], state[goals.RIGHT_ + i], state[goals.SLOT_ + i] = M[e + p], M[e + L + p], W[w + p]
        state[goals.STEPS] += 1
        if level == last:
            state[goals.GOALS] = state[f + goals.GOALS_]
            begin(table, walking, state[g + goals.G_NEXT])
            break
        if narrow(nodes, walking, o, v, level, p, crossing):
            level += 1
    state[f + goals.STEP] = level + 1
    return n


@kernel
def fill_column(out: Any, lo: int, hi: int, slot: int) -> None:
    for k in range(lo, hi):
        out[k] = slot


@kernel
def count_rows(walking: HeapWalk, rows: int) -> None:
    """Note that `rows` rows were found since the last step."""
    state = walking.state
    state[goals.GAP] = max(state[goals.GAP], state[goals.STEPS] - state[goals.LAST])
    state[goals.LAST] = state[goals.STEPS]
    state[goals.ROWS] += rows
    state[goals.FUEL] = min(goals.FUEL_MOST, state[goals.FUEL] + rows)


@kernel
def write_run(nodes: MultiwayNodes, walking: HeapWalk, o: int, last: int, emitted: RowBuffer, n: int, end: int) -> int:
    """Write the rows of all remaining candidates of the last alias, up to `end`."""
    W, table, state, out, stride = nodes.W, nodes.table, walking.state, emitted.out, emitted.stride
    mask, start = state[goals.LEFT_OVER + last], n
    run = entry_at(table, o)[1] + start_of(W, o, last)
    while mask != 0 and n < end:
        out[stride * last + n] = W[run + lowest(mask)]
        mask &= mask - 1
        n += 1
    state[goals.LEFT_OVER + last] = mask
    for i in range(table[SETS]):
        if i != last:
            fill_column(out, stride * i + start, stride * i + n, state[goals.SLOT_ + i])
    state[goals.STEPS] += 1
    count_rows(walking, n - start)
    return n


@kernel
def write_rows(nodes: MultiwayNodes, walking: HeapWalk, o: int, v: int, emitted: RowBuffer, n: int, end: int, crossing: bool) -> int:
    """Write rows for the remaining candidates of the third last alias (the second last, if v has only two), each with all choices of the
    two after it, one candidate after the other, as long as there is room for all rows that a candidate may have."""
    M, W, table, state = nodes.M, nodes.W, nodes.table, walking.state
    order, size = ORDER + table[POS + v], table[SIZE + v]
    outer = size > 2
    j, k = table[order + size - 2], table[order + size - 1]
    i = table[order + size - 3] if outer else j
    near_i = table[NEAR + i] if outer else 0
    adjacent = (table[NEAR + j] >> k) & 1 != 0
    e, w = entry_at(table, o)
    run_i, run_j, run_k = start_of(W, o, i), start_of(W, o, j), w + start_of(W, o, k)
    out, stride = emitted.out, emitted.stride
    column_j, column_k = stride * j, stride * k
    steps, row, gap, start = state[goals.STEPS], state[goals.LAST], state[goals.GAP], n
    mask = state[goals.LEFT_OVER + i]
    while mask != 0:
        js, ks, inputs = state[goals.CANDIDATES + 6 * i + j], state[goals.CANDIDATES + 6 * i + k], state[goals.INPUTS + i]
        p = run_i + lowest(mask)
        if outer:
            key, left, right = wide(W[w + L + p]), M[e + p], M[e + L + p]
            if (near_i >> j) & 1 != 0:
                js &= meeting(nodes, o, j, key, key, left, right)
            if js != 0 and (near_i >> k) & 1 != 0:
                ks &= meeting(nodes, o, k, key, key, left, right)
            if crossing:
                inputs |= input_of_position(W, walking, o, i, p)
        else:
            js = mask
        if n + count_bits(js) * count_bits(ks) > end:
            break
        mask = mask & (mask - 1) if outer else 0
        steps += 1
        if ks == 0:
            continue
        first = n
        while js != 0:
            q = run_j + lowest(js)
            js &= js - 1
            partners = ks
            if adjacent:
                key = wide(W[w + L + q])
                partners &= meeting(nodes, o, k, key, key, M[e + q], M[e + L + q])
            if crossing:
                partners = across(walking, k, inputs | input_of_position(W, walking, o, j, q), partners)
            steps += 1
            if partners == 0:
                continue
            gap, row = max(gap, steps - row), steps
            slot = W[w + q]
            while partners != 0:
                out[column_k + n] = W[run_k + lowest(partners)]
                out[column_j + n] = slot
                partners &= partners - 1
                n += 1
        if outer:
            fill_column(out, stride * i + first, stride * i + n, W[w + p])
    state[goals.LEFT_OVER + i], state[goals.STEPS] = mask, steps
    if n > start:
        count_rows(walking, n - start)
        state[goals.LAST], state[goals.GAP] = row, gap
        for c in range(table[SETS]):
            if c != i and c != j and c != k:
                fill_column(out, stride * c + start, stride * c + n, state[goals.SLOT_ + c])
    return n
