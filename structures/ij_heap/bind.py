"""Enumeration inside a leaf, or in the strip: the aliases of a goal are bound one by one, in the topology's binding order.

The candidates of an alias are the bits of one word. After each choice every later neighbour must keep a candidate (forward check), so
a choice without partners costs O(L), not all pairs. The last three are bound in one loop.

Costs: O(L) a choice, O(1) a row in full leaves. Source: docs/design/ij-heap.md (*Binding in a leaf*).
"""

from __future__ import annotations

from typing import Any

from structures.core.bits import LANES, count_bits, lowest, within8
from structures.core.entries import Told
from structures.core.kernel import kernel, wide
from structures.ij_heap import goals
from structures.ij_heap.goals import Walking, begin
from structures.multiway.layout import L, MultiwayNodes, start_of
from structures.multiway.leaves import entry_at
from structures.multiway.topology import MEMBER, NEAR, ORDER, POS, SETS, SIZE


@kernel(forceinline=True)
def meeting(nodes: MultiwayNodes, o: int, j: int, low: int, high: int, least: int, most: int) -> int:
    """The entries of run j of leaf o with a key in [low, high], left <= most, right >= least, as a mask."""
    M, W, T = nodes.M, nodes.W, nodes.T
    e, w = entry_at(T, o)
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
def enter_leaf(nodes: MultiwayNodes, walking: Walking, o: int, g: int, all: bool) -> bool:
    """List the candidates of all aliases of goal g in leaf o (`all`: every entry is one); False if one has none."""
    W, T, Z = nodes.W, nodes.T, walking.Z
    v = Z[g + goals.G_SUBSET]
    first = T[ORDER + T[POS + v]]
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        j = T[MEMBER + m]
        if all:
            mask = (1 << (start_of(W, o, j + 1) - start_of(W, o, j))) - 1
        else:
            mask = meeting(nodes, o, j, Z[g + goals.G_LOW], Z[g + goals.G_HIGH], Z[g + goals.LEAST + j], Z[g + goals.MOST + j])
        Z[goals.CANDIDATES + 6 * first + j] = mask
        if mask == 0:
            return False
    Z[goals.LEFT_OVER + first], Z[goals.SIDES + first] = Z[goals.CANDIDATES + 6 * first + first], 0
    return True


@kernel
def across(walking: Walking, i: int, sides: int, mask: int) -> int:
    """The candidates of alias i, the last to be bound, with which a tuple has entries of both children."""
    Z = walking.Z
    if sides == 1:
        return mask & ~Z[goals.LOWER + i]
    return mask & Z[goals.LOWER + i] if sides == 2 else mask


@kernel
def narrow(nodes: MultiwayNodes, walking: Walking, o: int, v: int, level: int, p: int, crossing: bool) -> bool:
    """The alias of this level is bound, to the entry at place p: list the candidates that the later ones keep; False if one keeps none."""
    M, W, T, Z = nodes.M, nodes.W, nodes.T, walking.Z
    e, w = entry_at(T, o)
    at = ORDER + T[POS + v] + level
    i, next = T[at], T[at + 1]
    key, left, right = wide(W[w + L + p]), M[e + p], M[e + L + p]
    near = T[NEAR + i]
    for m in range(1, T[SIZE + v] - level):
        j = T[at + m]
        mask = Z[goals.CANDIDATES + 6 * i + j]
        if (near >> j) & 1 != 0:
            mask &= meeting(nodes, o, j, key, key, left, right)
            if mask == 0:
                return False
        Z[goals.CANDIDATES + 6 * next + j] = mask
    mask = Z[goals.CANDIDATES + 6 * next + next]
    if crossing:
        Z[goals.SIDES + next] = Z[goals.SIDES + i] | side_of_place(W, walking, o, i, p)
        if level + 2 == T[SIZE + v]:
            mask = across(walking, next, Z[goals.SIDES + next], mask)
    Z[goals.LEFT_OVER + next] = mask
    return mask != 0


@kernel
def side_of_place(W: Any, walking: Walking, o: int, i: int, p: int) -> int:
    Z = walking.Z
    return 1 if (Z[goals.LOWER + i] >> (p - start_of(W, o, i))) & 1 != 0 else 2


@kernel
def leaf_step(nodes: MultiwayNodes, walking: Walking, o: int, f: int, told: Told, n: int, end: int) -> int:
    """Go on in leaf o (or the strip) until `end` rows are told, the next goal has begun, or STEP is 0: frame f is done with. Rows told."""
    M, W, T, Z = nodes.M, nodes.W, nodes.T, walking.Z
    g = Z[f + goals.GOAL]
    strip = Z[f + goals.NODE] == goals.IN_STRIP
    if Z[f + goals.STEP] == 0:
        if not enter_leaf(nodes, walking, o, g, strip or Z[g + goals.G_FREE] != 0):
            return n
        Z[f + goals.STEP] = 1
    crossing = strip and Z[goals.CROSSING] != 0
    v, final = Z[g + goals.G_SUBSET], Z[g + goals.G_NEXT] == goals.NO_GOAL
    e, w = entry_at(T, o)
    order, last = ORDER + T[POS + v], T[SIZE + v] - 1
    level = Z[f + goals.STEP] - 1
    while level >= 0:
        i = T[order + level]
        left_over = Z[goals.LEFT_OVER + i]
        if left_over == 0:
            level -= 1
            continue
        if final and level == last:
            if n == end:
                break
            n = write_run(nodes, walking, o, i, told, n, end)
            continue
        if final and level == max(0, last - 2):
            n = write_rows(nodes, walking, o, v, told, n, end, crossing)
            left_over = Z[goals.LEFT_OVER + i]
            if left_over == 0:
                continue
        p = start_of(W, o, i) + lowest(left_over)
        Z[goals.LEFT_OVER + i] = left_over & (left_over - 1)
        Z[goals.LEFT_ + i], Z[goals.RIGHT_ + i], Z[goals.SLOT_ + i] = M[e + p], M[e + L + p], W[w + p]
        Z[goals.STEPS] += 1
        if level == last:
            Z[goals.GOALS] = Z[f + goals.GOALS_]
            begin(T, walking, Z[g + goals.G_NEXT])
            break
        if narrow(nodes, walking, o, v, level, p, crossing):
            level += 1
    Z[f + goals.STEP] = level + 1
    return n


@kernel
def fill_column(out: Any, lo: int, hi: int, slot: int) -> None:
    for k in range(lo, hi):
        out[k] = slot


@kernel
def count_rows(walking: Walking, rows: int) -> None:
    """So many rows were found since the last."""
    Z = walking.Z
    Z[goals.GAP] = max(Z[goals.GAP], Z[goals.STEPS] - Z[goals.LAST])
    Z[goals.LAST] = Z[goals.STEPS]
    Z[goals.ROWS] += rows
    Z[goals.FUEL] = min(goals.FUEL_MOST, Z[goals.FUEL] + rows)


@kernel
def write_run(nodes: MultiwayNodes, walking: Walking, o: int, last: int, told: Told, n: int, end: int) -> int:
    """Write the rows of all candidates left over for the last alias, up to `end`."""
    W, T, Z, out, stride = nodes.W, nodes.T, walking.Z, told.out, told.stride
    mask, start = Z[goals.LEFT_OVER + last], n
    run = entry_at(T, o)[1] + start_of(W, o, last)
    while mask != 0 and n < end:
        out[stride * last + n] = W[run + lowest(mask)]
        mask &= mask - 1
        n += 1
    Z[goals.LEFT_OVER + last] = mask
    for i in range(T[SETS]):
        if i != last:
            fill_column(out, stride * i + start, stride * i + n, Z[goals.SLOT_ + i])
    Z[goals.STEPS] += 1
    count_rows(walking, n - start)
    return n


@kernel
def write_rows(nodes: MultiwayNodes, walking: Walking, o: int, v: int, told: Told, n: int, end: int, crossing: bool) -> int:
    """Write the rows of the candidates left over for the last alias but two (but one, if v has only two) with all of the two behind it,
    one candidate after the other, while all rows that it may have fit."""
    M, W, T, Z = nodes.M, nodes.W, nodes.T, walking.Z
    order, size = ORDER + T[POS + v], T[SIZE + v]
    outer = size > 2
    j, k = T[order + size - 2], T[order + size - 1]
    i = T[order + size - 3] if outer else j
    near_i = T[NEAR + i] if outer else 0
    adjacent = (T[NEAR + j] >> k) & 1 != 0
    e, w = entry_at(T, o)
    run_i, run_j, run_k = start_of(W, o, i), start_of(W, o, j), w + start_of(W, o, k)
    out, stride = told.out, told.stride
    column_j, column_k = stride * j, stride * k
    steps, row, gap, start = Z[goals.STEPS], Z[goals.LAST], Z[goals.GAP], n
    mask = Z[goals.LEFT_OVER + i]
    while mask != 0:
        js, ks, sides = Z[goals.CANDIDATES + 6 * i + j], Z[goals.CANDIDATES + 6 * i + k], Z[goals.SIDES + i]
        p = run_i + lowest(mask)
        if outer:
            key, left, right = wide(W[w + L + p]), M[e + p], M[e + L + p]
            if (near_i >> j) & 1 != 0:
                js &= meeting(nodes, o, j, key, key, left, right)
            if js != 0 and (near_i >> k) & 1 != 0:
                ks &= meeting(nodes, o, k, key, key, left, right)
            if crossing:
                sides |= side_of_place(W, walking, o, i, p)
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
                partners = across(walking, k, sides | side_of_place(W, walking, o, j, q), partners)
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
    Z[goals.LEFT_OVER + i], Z[goals.STEPS] = mask, steps
    if n > start:
        count_rows(walking, n - start)
        Z[goals.LAST], Z[goals.GAP] = row, gap
        for c in range(T[SETS]):
            if c != i and c != j and c != k:
                fill_column(out, stride * c + start, stride * c + n, Z[goals.SLOT_ + c])
    return n
