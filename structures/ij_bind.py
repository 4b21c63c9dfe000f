"""Enumeration inside a leaf: the aliases of a goal are bound one by one, in the topology's binding order.

The candidates of an alias are the bits of one word. After each choice every later neighbour must keep a candidate (forward check), so
a choice without partners costs O(L), not all pairs; the last alias of a row is written as a run.

Costs: O(L) a choice, O(1) a row in full leaves. Source: ij-heap.md (*second prototype*, 5).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.ij_blocks import STARTS, L
from structures.ij_goals import (
    CANDIDATES,
    F_LEAST,
    F_MOST,
    FUEL,
    FUEL_MOST,
    GAP,
    GOALS,
    GOALS_,
    KEY_HIGH,
    KEY_LOW,
    LAST,
    LEFT_,
    LEFT_OVER,
    NEXT,
    NO_GOAL,
    NODE,
    RIGHT_,
    ROWS,
    SLOT_,
    STEP,
    STEPS,
    SUBSET,
    begin,
)
from structures.ij_leaves import entry_at
from structures.ij_topology import MEMBER, NEAR, ORDER, POS, SETS, SIZE
from structures.kernel import kernel


@kernel
def lowest(mask: int) -> int:
    """The place of the lowest bit set; there is one."""
    c = 0
    while (mask >> c) & 1 == 0:
        c += 1
    return c


@kernel
def meeting(M: Any, W: Any, o: int, e: int, w: int, j: int, low: int, high: int, least: int, most: int) -> int:
    """The entries of run j of leaf o with a key in [low, high], left <= most, right >= least, as a mask."""
    lo, end = W[2 * o + STARTS + j], W[2 * o + STARTS + j + 1]
    mask = 0
    for p in range(lo, end):
        k = W[w + L + p]
        fits = (k >= low) & (k <= high) & (M[e + p] <= most) & (M[e + L + p] >= least)
        mask |= np.int64(fits) << (p - lo)
    return mask


@kernel
def enter_leaf(M: Any, W: Any, T: Any, Z: Any, f: int) -> bool:
    """List the candidates of all aliases of the goal in the leaf; False if one has none."""
    o, v = Z[f + NODE], Z[f + SUBSET]
    e, w = entry_at(T, o)
    first = T[ORDER + T[POS + v]]
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        j = T[MEMBER + m]
        mask = meeting(M, W, o, e, w, j, Z[f + KEY_LOW], Z[f + KEY_HIGH], Z[f + F_LEAST + j], Z[f + F_MOST + j])
        Z[CANDIDATES + 6 * first + j] = mask
        if mask == 0:
            return False
    Z[LEFT_OVER + first] = Z[CANDIDATES + 6 * first + first]
    Z[f + STEP] = 1
    return True


@kernel
def narrow(M: Any, W: Any, T: Any, Z: Any, f: int, level: int, key: int) -> bool:
    """The alias of this level is bound: list the candidates that the later ones keep; False if one keeps none."""
    o, v = Z[f + NODE], Z[f + SUBSET]
    e, w = entry_at(T, o)
    at = ORDER + T[POS + v] + level
    i, next = T[at], T[at + 1]
    near = T[NEAR + i]
    for m in range(1, T[SIZE + v] - level):
        j = T[at + m]
        mask = Z[CANDIDATES + 6 * i + j]
        if (near >> j) & 1 != 0:
            mask &= meeting(M, W, o, e, w, j, key, key, Z[LEFT_ + i], Z[RIGHT_ + i])
            if mask == 0:
                return False
        Z[CANDIDATES + 6 * next + j] = mask
    Z[LEFT_OVER + next] = Z[CANDIDATES + 6 * next + next]
    return True


@kernel
def leaf_step(M: Any, W: Any, T: Any, Z: Any, f: int, out: Any, stride: int, n: int, end: int) -> int:
    """Go on in a leaf until out is full, the next goal has begun, or STEP is 0: the frame is done with. Rows in out so far."""
    if Z[f + STEP] == 0 and not enter_leaf(M, W, T, Z, f):
        return n
    o, v = Z[f + NODE], Z[f + SUBSET]
    e, w = entry_at(T, o)
    order, last = ORDER + T[POS + v], T[SIZE + v] - 1
    while Z[f + STEP] > 0:
        level = Z[f + STEP] - 1
        i = T[order + level]
        left_over = Z[LEFT_OVER + i]
        if left_over == 0:
            Z[f + STEP] = level
            continue
        if level == last and Z[f + NEXT] == NO_GOAL:
            if n == end:
                return n
            n = write_rows(W, T, Z, o, w, i, out, stride, n, end)
            continue
        c = lowest(left_over)
        Z[LEFT_OVER + i] = left_over & (left_over - 1)
        p = W[2 * o + STARTS + i] + c
        Z[LEFT_ + i], Z[RIGHT_ + i], Z[SLOT_ + i] = M[e + p], M[e + L + p], W[w + p]
        Z[STEPS] += 1
        if level == last:
            Z[GOALS] = Z[f + GOALS_]
            begin(T, Z, Z[f + NEXT])
            return n
        if narrow(M, W, T, Z, f, level, W[w + L + p]):
            Z[f + STEP] = level + 2
    return n


@kernel
def write_rows(W: Any, T: Any, Z: Any, o: int, w: int, last: int, out: Any, stride: int, n: int, end: int) -> int:
    """Write the rows of all candidates left over for the last alias, up to `end`."""
    mask, start = Z[LEFT_OVER + last], n
    column, run = stride * last, w + W[2 * o + STARTS + last]
    while mask != 0 and n < end:
        out[column + n] = W[run + lowest(mask)]
        mask &= mask - 1
        n += 1
    Z[LEFT_OVER + last] = mask
    for i in range(T[SETS]):
        if i != last:
            slot = Z[SLOT_ + i]
            for k in range(stride * i + start, stride * i + n):
                out[k] = slot
    Z[STEPS] += 1
    Z[GAP] = max(Z[GAP], Z[STEPS] - Z[LAST])
    Z[LAST] = Z[STEPS]
    Z[ROWS] += n - start
    Z[FUEL] = min(FUEL_MOST, Z[FUEL] + n - start)
    return n
