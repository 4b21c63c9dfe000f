"""Leaves of the IJ-heap: insert, delete and move entries in t runs; the least and greatest tuple within one leaf.

Layout: `layout.py`. Order of entries: (key, left, code), code = 8 * slot + set. Writers own the leaves they change.

The search within a leaf: take each set's first entry that meets its bound; while an edge fails, advance the one of the two that ends
before the other begins; when none fails, these are, by Closure, the least tuple in every coordinate (docs/design/ij-heap.md, *Leaf
blocks*).

Costs: O(log L) to find, O(L) to move; a least or greatest tuple O(edges * L).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import LEAF
from structures.core.blocks import WriteState, drop
from structures.core.entries import Entry
from structures.core.kernel import kernel
from structures.multiway.layout import SEPARATOR_CODE, SEPARATOR_KEY, SEPARATOR_LEFT, STARTS, L, MultiwayNodes, allocate_block, start_of
from structures.multiway.topology import EDGES, ENTRIES, MEMBER, NEDGES, POS, SETS, SIZE

# Scratch: places by set, prefix maxima by place. An answer: key, mask of the members filled in, near, far, slot [6 each].
AT, BEST = 0, 8
KEY_, FILLED, NEAR_, FAR_, SLOT_ = 0, 1, 2, 8, 14
ANSWER_WORDS = 20
LEAF_SCRATCH = BEST + L


@kernel
def entry_at(table: Any, o: int) -> tuple[int, int]:
    """The places of the columns of leaf o: `left` in M (`right` is L further), `slot` in W (`key` is L further)."""
    e = o + table[ENTRIES]
    return e, 2 * (e + 2 * L)


@kernel
def count_of(nodes: MultiwayNodes, o: int) -> int:
    W, table = nodes.W, nodes.table
    return start_of(W, o, table[SETS])


@kernel
def position(nodes: MultiwayNodes, o: int, s: int, key: int, left: int, slot: int) -> int:
    """The first place of run s of leaf o whose (key, left, slot) is >= the given one."""
    M, W, table = nodes.M, nodes.W, nodes.table
    e, w = entry_at(table, o)
    lo, hi = start_of(W, o, s), start_of(W, o, s + 1)
    while lo < hi:
        mid = (lo + hi) // 2
        k, v = W[w + L + mid], M[e + mid]
        if k < key or (k == key and (v < left or (v == left and W[w + mid] < slot))):
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def holds(nodes: MultiwayNodes, o: int, s: int, p: int, key: int, left: int, slot: int) -> bool:
    M, W, table = nodes.M, nodes.W, nodes.table
    e, w = entry_at(table, o)
    return p < start_of(W, o, s + 1) and W[w + L + p] == key and M[e + p] == left and W[w + p] == slot


@kernel
def put_in_leaf(nodes: MultiwayNodes, o: int, entry: Entry) -> None:
    """Insert the entry into own leaf o, which has room."""
    M, W, table = nodes.M, nodes.W, nodes.table
    s, key, left, right, slot = entry
    p, n = position(nodes, o, s, key, left, slot), count_of(nodes, o)
    e, w = entry_at(table, o)
    for i in range(n, p, -1):
        M[e + i] = M[e + i - 1]
        M[e + L + i] = M[e + L + i - 1]
        W[w + i] = W[w + i - 1]
        W[w + L + i] = W[w + L + i - 1]
    M[e + p], M[e + L + p] = left, right
    W[w + p], W[w + L + p] = slot, key
    for i in range(s + 1, table[SETS] + 1):
        W[2 * o + STARTS + i] += 1


@kernel
def cut_from_leaf(nodes: MultiwayNodes, o: int, s: int, p: int) -> None:
    """Delete the entry at place p of run s from own leaf o."""
    M, W, table = nodes.M, nodes.W, nodes.table
    n = count_of(nodes, o)
    e, w = entry_at(table, o)
    for i in range(p + 1, n):
        M[e + i - 1] = M[e + i]
        M[e + L + i - 1] = M[e + L + i]
        W[w + i - 1] = W[w + i]
        W[w + L + i - 1] = W[w + L + i]
    for i in range(s + 1, table[SETS] + 1):
        W[2 * o + STARTS + i] -= 1


@kernel
def append_run(nodes: MultiwayNodes, source: int, lo: int, hi: int, target: int, at: int) -> int:
    """Copy places [lo, hi) of a leaf to `at` of another. Returns the place after them."""
    M, W, table = nodes.M, nodes.W, nodes.table
    a, wa = entry_at(table, source)
    b, wb = entry_at(table, target)
    for i in range(hi - lo):
        M[b + at + i] = M[a + lo + i]
        M[b + L + at + i] = M[a + L + lo + i]
        W[wb + at + i] = W[wa + lo + i]
        W[wb + L + at + i] = W[wa + L + lo + i]
    return at + hi - lo


@kernel
def first_run(nodes: MultiwayNodes, scratch: Any, o: int) -> int:
    """The set whose entry at place scratch[AT + set] comes first in the order; -1 when all runs are exhausted."""
    M, W, table = nodes.M, nodes.W, nodes.table
    e, w = entry_at(table, o)
    s, key, left, slot = -1, 0, 0, 0
    for i in range(table[SETS]):
        p = scratch[AT + i]
        if p == start_of(W, o, i + 1):
            continue
        k, v, r = W[w + L + p], M[e + p], W[w + p]
        if s < 0 or k < key or (k == key and (v < left or (v == left and r < slot))):
            s, key, left, slot = i, k, v, r
    return s


@kernel
def to_the_starts(nodes: MultiwayNodes, scratch: Any, o: int) -> None:
    W, table = nodes.W, nodes.table
    for i in range(table[SETS]):
        scratch[AT + i] = start_of(W, o, i)


@kernel
def separate(nodes: MultiwayNodes, scratch: Any, o: int, leaf: int) -> None:
    """Make the first entry of the leaf the separator of own inner node o."""
    M, W, table = nodes.M, nodes.W, nodes.table
    to_the_starts(nodes, scratch, leaf)
    s = first_run(nodes, scratch, leaf)
    e, w = entry_at(table, leaf)
    p = scratch[AT + s]
    M[o + SEPARATOR_LEFT], M[o + SEPARATOR_CODE] = M[e + p], 8 * W[w + p] + s
    W[2 * o + SEPARATOR_KEY] = W[w + L + p]


@kernel
def cut_leaf(nodes: MultiwayNodes, C: Any, scratch: Any, o: int, m: int) -> tuple[int, int]:
    """Two new leaves: the first m entries of leaf o, and the rest."""
    W, table = nodes.W, nodes.table
    to_the_starts(nodes, scratch, o)
    for _ in range(m):
        scratch[AT + first_run(nodes, scratch, o)] += 1
    a, b = allocate_block(nodes, C, LEAF), allocate_block(nodes, C, LEAF)
    na, nb = 0, 0
    W[2 * a + STARTS], W[2 * b + STARTS] = 0, 0
    for i in range(table[SETS]):
        na = append_run(nodes, o, start_of(W, o, i), scratch[AT + i], a, na)
        nb = append_run(nodes, o, scratch[AT + i], start_of(W, o, i + 1), b, nb)
        W[2 * a + STARTS + i + 1], W[2 * b + STARTS + i + 1] = na, nb
    return a, b


@kernel
def concatenate_leaves(nodes: MultiwayNodes, C: Any, a: int, b: int) -> int:
    """A new leaf with the entries of a, then those of b (together at most L)."""
    W, table = nodes.W, nodes.table
    o, n = allocate_block(nodes, C, LEAF), 0
    W[2 * o + STARTS] = 0
    for i in range(table[SETS]):
        n = append_run(nodes, a, start_of(W, a, i), start_of(W, a, i + 1), o, n)
        n = append_run(nodes, b, start_of(W, b, i), start_of(W, b, i + 1), o, n)
        W[2 * o + STARTS + i + 1] = n
    return o


@kernel
def even_leaves(nodes: MultiwayNodes, writing: WriteState, scratch: Any, a: int, b: int) -> tuple[int, int]:
    """New leaves with the entries of a and b, neighbours in this order, in two halves; a and b are dropped."""
    C = writing.C
    na, nb = count_of(nodes, a), count_of(nodes, b)
    half = (na + nb) // 2
    if na >= half:
        x, rest = cut_leaf(nodes, C, scratch, a, half)
        y = concatenate_leaves(nodes, C, rest, b)
    else:
        rest, y = cut_leaf(nodes, C, scratch, b, half - na)
        x = concatenate_leaves(nodes, C, a, rest)
    drop(nodes.M, writing, rest, LEAF)
    drop(nodes.M, writing, a, LEAF)
    drop(nodes.M, writing, b, LEAF)
    return x, y


# --- the least and the greatest tuple in a leaf


@kernel
def leaf_least(nodes: MultiwayNodes, scratch: Any, o: int, v: int, key: int, at: int) -> bool:
    """Find the least v-tuple of leaf o with (key, right) >= (`key`, scratch[at + alias]), and write its places into scratch[AT + alias];
    False if there is none."""
    M, W, table = nodes.M, nodes.W, nodes.table
    e, w = entry_at(table, o)
    for m in range(table[POS + v], table[POS + v] + table[SIZE + v]):
        i = table[MEMBER + m]
        p = _ends_after(nodes, e, w, start_of(W, o, i), start_of(W, o, i + 1), key, scratch[at + i])
        if p < 0:
            return False
        scratch[AT + i] = p
    moved = True
    while moved:
        moved = False
        for edge in range(table[EDGES + v], table[EDGES + v] + 2 * table[NEDGES + v], 2):
            i, j = table[edge], table[edge + 1]
            while True:
                p, q = scratch[AT + i], scratch[AT + j]
                kp, kq = W[w + L + p], W[w + L + q]
                if kp < kq or (kp == kq and M[e + L + p] < M[e + q]):
                    p = _ends_after(nodes, e, w, p + 1, start_of(W, o, i + 1), kq, M[e + q])
                    if p < 0:
                        return False
                    scratch[AT + i] = p
                elif kq < kp or M[e + L + q] < M[e + p]:
                    q = _ends_after(nodes, e, w, q + 1, start_of(W, o, j + 1), kp, M[e + p])
                    if q < 0:
                        return False
                    scratch[AT + j] = q
                else:
                    break
                moved = True
    return True


@kernel
def _ends_after(nodes: MultiwayNodes, e: int, w: int, p: int, end: int, key: int, bound: int) -> int:
    """The first place of [p, end) with (key, right) >= the given one; -1 if there is none."""
    M, W = nodes.M, nodes.W
    while p < end:
        k = W[w + L + p]
        if k > key or (k == key and M[e + L + p] >= bound):
            return p
        p += 1
    return -1


@kernel
def leaf_greatest(nodes: MultiwayNodes, scratch: Any, o: int, v: int, key: int, at: int) -> bool:
    """Find the v-tuple of leaf o with the greatest rights and (key, left) <= (`key`, scratch[at + alias]), and write its places into
    scratch[AT + alias]; False if there is none."""
    M, W, table = nodes.M, nodes.W, nodes.table
    e, w = entry_at(table, o)
    for m in range(table[POS + v], table[POS + v] + table[SIZE + v]):
        i = table[MEMBER + m]
        lo, end = start_of(W, o, i), start_of(W, o, i + 1)
        best = lo
        for p in range(lo, end):
            if W[w + L + p] > W[w + L + best] or M[e + L + p] >= M[e + L + best]:
                best = p
            scratch[BEST + p] = best
        p = _begins_before(nodes, e, w, lo, end, key, scratch[at + i])
        if p < 0:
            return False
        scratch[AT + i] = scratch[BEST + p]
    moved = True
    while moved:
        moved = False
        for edge in range(table[EDGES + v], table[EDGES + v] + 2 * table[NEDGES + v], 2):
            i, j = table[edge], table[edge + 1]
            while True:
                p, q = scratch[AT + i], scratch[AT + j]
                kp, kq = W[w + L + p], W[w + L + q]
                if kq > kp or (kp == kq and M[e + q] > M[e + L + p]):
                    q = _begins_before(nodes, e, w, start_of(W, o, j), start_of(W, o, j + 1), kp, M[e + L + p])
                    if q < 0:
                        return False
                    scratch[AT + j] = scratch[BEST + q]
                elif kp > kq or M[e + p] > M[e + L + q]:
                    p = _begins_before(nodes, e, w, start_of(W, o, i), start_of(W, o, i + 1), kq, M[e + L + q])
                    if p < 0:
                        return False
                    scratch[AT + i] = scratch[BEST + p]
                else:
                    break
                moved = True
    return True


@kernel
def _begins_before(nodes: MultiwayNodes, e: int, w: int, lo: int, end: int, key: int, bound: int) -> int:
    """The last place of [lo, end) with (key, left) <= the given one; -1 if there is none."""
    M, W = nodes.M, nodes.W
    p = end - 1
    while p >= lo:
        k = W[w + L + p]
        if k < key or (k == key and M[e + p] <= bound):
            return p
        p -= 1
    return -1
