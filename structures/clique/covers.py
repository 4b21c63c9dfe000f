"""The intervals that cover a start, and the rows that they form.

Problem: among the entries of one key that come before a place in the order, find the covers: those whose right endpoint reaches `START`.
Any fixed number of covers forms a row with the interval that starts there. Rows are reported as covers are found: the newest with each
choice of earlier ones. So no row is reported twice, and each cover after the first few makes at least one.

The covers are searched in the tree once, and kept in a heap by right endpoint: at a later start, they are the entries of the heap from its
top down to the first that ends too early. The walk adds every entry that it passes to the heap, and discards the heap when it passes over a
subtree.

Costs: O(log n) steps a cover, O(1) a row. Source: docs/design/ij-heap.md (*Self-joins*); Helly's theorem in one dimension.
"""

from __future__ import annotations

from typing import Any

from structures.clique import state
from structures.clique.state import CliqueWalk
from structures.core.entries import RowBuffer
from structures.core.kernel import kernel, wide
from structures.multiway.clique_summary import keys_at, top_at
from structures.multiway.layout import CHILD, L, MultiwayNodes, height_of
from structures.multiway.leaves import count_of, entry_at
from structures.multiway.tree import input_of


@kernel
def reaches(nodes: MultiwayNodes, o: int, key: int, value: int) -> bool:
    """Whether an entry of the key below node o, which has no later keys, ends at `value` or later."""
    M, W, table = nodes.M, nodes.W, nodes.table
    k = keys_at(table, o)
    return W[k] == key and W[k + 1] > 0 and M[top_at(o)] >= value


@kernel
def push(walking: CliqueWalk, right: int, slot: int) -> None:
    """Add an interval to the heap, which has room."""
    Z, H, J = walking.Z, walking.H, walking.J
    i = Z[state.HEAPED]
    Z[state.HEAPED] = i + 1
    while i > 0 and H[(i - 1) >> 1] < right:
        H[i], J[state.HEAP_SLOT, i] = H[(i - 1) >> 1], J[state.HEAP_SLOT, (i - 1) >> 1]
        i = (i - 1) >> 1
    H[i], J[state.HEAP_SLOT, i] = right, slot


@kernel
def begin_search(nodes: MultiwayNodes, walking: CliqueWalk, left: int, code: int, at: int) -> None:
    """Begin to search the entries before (Z[KEY], left, code), which lies in Z[LEAF] at place `at`, for covers of Z[START]."""
    M, W, Z = nodes.M, nodes.W, walking.Z
    o, depth = Z[state.TOP], 0
    while height_of(W, o) > 0:
        Z[state.STEPS] += 1
        input = input_of(nodes, o, Z[state.KEY], left, code)
        if input and reaches(nodes, M[o + CHILD], Z[state.KEY], Z[state.START]):
            Z[state.SEARCH_STACK + depth] = M[o + CHILD]
            depth += 1
        o = M[o + CHILD + (1 if input else 0)]
    Z[state.SEARCH_DEPTH], Z[state.SEARCH_LEAF], Z[state.SEARCH_AT] = depth, Z[state.LEAF], at - 1
    Z[state.COVERS], Z[state.HEAPED], Z[state.PICKING] = 0, 0, 0


@kernel
def search(nodes: MultiwayNodes, walking: CliqueWalk) -> bool:
    """Find the next cover in the tree, nearest leaf first; False when there are no more."""
    M, W, table, Z, J = nodes.M, nodes.W, nodes.table, walking.Z, walking.J
    key, value = Z[state.KEY], Z[state.START]
    while True:
        o, i = Z[state.SEARCH_LEAF], Z[state.SEARCH_AT]
        e, w = entry_at(table, o)
        while i >= 0 and W[w + L + i] == key:
            Z[state.STEPS] += 1
            if M[e + L + i] >= value and W[w + i] != Z[state.GIVEN]:
                Z[state.SEARCH_AT] = i - 1
                push(walking, M[e + L + i], wide(W[w + i]))
                J[state.COVER, Z[state.COVERS]] = W[w + i]
                Z[state.COVERS] += 1
                return True
            i -= 1
        Z[state.SEARCH_AT] = -1
        if Z[state.SEARCH_DEPTH] == 0:
            return False
        Z[state.SEARCH_DEPTH] -= 1
        o = Z[state.SEARCH_STACK + Z[state.SEARCH_DEPTH]]
        while height_of(W, o) > 0:
            Z[state.STEPS] += 1
            lower, upper = M[o + CHILD], M[o + CHILD + 1]
            o = lower
            if reaches(nodes, upper, key, value):
                o = upper
                if reaches(nodes, lower, key, value):
                    Z[state.SEARCH_STACK + Z[state.SEARCH_DEPTH]] = lower
                    Z[state.SEARCH_DEPTH] += 1
        Z[state.SEARCH_LEAF], Z[state.SEARCH_AT] = o, count_of(nodes, o) - 1


@kernel
def begin_heap(walking: CliqueWalk) -> None:
    """Begin to find covers of Z[START] in the heap."""
    Z, H, J = walking.Z, walking.H, walking.J
    Z[state.COVERS], Z[state.QUEUED], Z[state.PICKING] = 0, 0, 0
    if Z[state.HEAPED] > 0 and H[0] >= Z[state.START]:
        J[state.QUEUE, 0] = 0
        Z[state.QUEUED] = 1


@kernel
def take(walking: CliqueWalk) -> bool:
    """Find the next cover in the heap, and queue its children; False when there are no more."""
    Z, H, J = walking.Z, walking.H, walking.J
    n = Z[state.COVERS]
    if n == Z[state.QUEUED]:
        return False
    i = wide(J[state.QUEUE, n])
    for child in range(2 * i + 1, min(2 * i + 3, Z[state.HEAPED])):
        if H[child] >= Z[state.START]:
            J[state.QUEUE, Z[state.QUEUED]] = child
            Z[state.QUEUED] += 1
    J[state.COVER, n] = J[state.HEAP_SLOT, i]
    Z[state.COVERS] = n + 1
    Z[state.STEPS] += 1
    return True


@kernel
def emit(walking: CliqueWalk, emitted: RowBuffer, n: int, end: int) -> int:
    """Write rows of the newest cover with the ones before it, up to `end`. Returns the number of rows written. Z[PICKING] is 0 when all are
    written."""
    Z = walking.Z
    before, picks = Z[state.COVERS] - 1, Z[state.PICKS]
    if Z[state.PICKING] == 0:
        if before < picks:
            return n
        Z[state.PICKING] = 1
        for i in range(picks):
            Z[state.PICKED + i] = i
    while n < end:
        last = state.PICKED + picks - 1
        run = min(before - Z[last], end - n) if picks > 0 else 1
        write(walking, emitted, n, run)
        n += run
        if picks == 0:
            Z[state.PICKING] = 0
            return n
        Z[last] += run
        if Z[last] == before and not pick_on(walking, before, picks):
            Z[state.PICKING] = 0
            return n
    return n


@kernel
def pick_on(walking: CliqueWalk, before: int, picks: int) -> bool:
    """Advance all picks but the last, which begins behind them, to the next choice; False when there is none."""
    Z = walking.Z
    i = picks - 2
    while i >= 0 and Z[state.PICKED + i] == before - picks + i:
        i -= 1
    if i < 0:
        return False
    Z[state.PICKED + i] += 1
    for j in range(i + 1, picks):
        Z[state.PICKED + j] = Z[state.PICKED + j - 1] + 1
    return True


@kernel
def write(walking: CliqueWalk, emitted: RowBuffer, n: int, run: int) -> None:
    """Write `run` rows from n on, each of the given interval, the centre, the newest cover, and those picked; the rows differ in the last
    pick."""
    Z, J, out, stride = walking.Z, walking.J, emitted.out, emitted.stride
    at = 0
    if Z[state.GIVEN] >= 0:
        fill(out, n, run, Z[state.GIVEN])
        at += stride
    if Z[state.CENTRE] >= 0:
        fill(out, at + n, run, Z[state.CENTRE])
        at += stride
    fill(out, at + n, run, wide(J[state.COVER, Z[state.COVERS] - 1]))
    for i in range(Z[state.PICKS] - 1):
        at += stride
        fill(out, at + n, run, wide(J[state.COVER, Z[state.PICKED + i]]))
    if Z[state.PICKS] > 0:
        at += stride
        first = Z[state.PICKED + Z[state.PICKS] - 1]
        for r in range(run):
            out[at + n + r] = J[state.COVER, first + r]
    Z[state.GAP] = max(Z[state.GAP], Z[state.STEPS] + 1 - Z[state.LAST])
    Z[state.STEPS] += run
    Z[state.LAST] = Z[state.STEPS]


@kernel
def fill(out: Any, lo: int, run: int, slot: int) -> None:
    for r in range(lo, lo + run):
        out[r] = slot
