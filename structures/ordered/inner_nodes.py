"""Inner nodes: their children moved in, out and between nodes, with the summaries that belong to them (layout: `layout.py`).

Writers own the nodes they change: they were made by the version being written. Costs: O(F).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.arena import INNER, INNER_WORDS, SUM2, VERSION, F, allocate, drop
from structures.core.kernel import kernel
from structures.ordered.layout import FIELDS, FIELDS32
from structures.ordered.summary import clear_child, write_child


@kernel
def new_inner(M: Any, W: Any, C: Any) -> int:
    o = allocate(M, W, C, INNER)
    W[2 * o + 2], W[2 * o + 3] = 0, 0
    for c in range(F):
        clear_child(M, W, o, c)
    return o


@kernel
def move_child(M: Any, W: Any, source: int, c: int, target: int, at: int) -> None:
    """Copy child c of one inner node to place `at` of another (or of itself)."""
    for f in range(4):
        M[target + FIELDS + f * F + at] = M[source + FIELDS + f * F + c]
    for f in range(6):
        W[2 * target + FIELDS32 + f * F + at] = W[2 * source + FIELDS32 + f * F + c]
    bit = (W[2 * source + 3] >> c) & 1
    W[2 * target + 3] = (W[2 * target + 3] & ~(1 << at)) | (bit << at)


@kernel
def append_children(M: Any, W: Any, source: int, lo: int, hi: int, target: int) -> None:
    """Append children [lo, hi) of one inner node to another."""
    at = W[2 * target + 2]
    for c in range(lo, hi):
        move_child(M, W, source, c, target, at + c - lo)
    W[2 * target + 2] = at + hi - lo


@kernel
def own_inner(M: Any, W: Any, C: Any, Q: Any, o: int) -> int:
    """The inner node itself if this version wrote it, else a copy in its place."""
    if M[o] == C[VERSION]:
        return o
    new = allocate(M, W, C, INNER)
    source, target = np.uint64(o), np.uint64(new)  # unsigned places need no check of their sign, so that this is vectorised
    for i in range(np.uint64(1), np.uint64(INNER_WORDS)):
        M[target + i] = M[source + i]
    drop(M, C, Q, o, INNER)
    return new


@kernel
def insert_child(M: Any, W: Any, C: Any, o: int, at: int, child: int, base: int) -> None:
    """Insert a child, with the summary at C[base], into an own inner node that has room."""
    n = W[2 * o + 2]
    for c in range(n, at, -1):
        move_child(M, W, o, c - 1, o, c)
    write_child(M, W, C, o, at, child, base)
    W[2 * o + 2] = n + 1


@kernel
def remove_child(M: Any, W: Any, o: int, at: int) -> None:
    n = W[2 * o + 2] - 1
    for c in range(at, n):
        move_child(M, W, o, c + 1, o, c)
    clear_child(M, W, o, n)
    W[2 * o + 2] = n


@kernel
def split_inner(M: Any, W: Any, C: Any, Q: Any, o: int, at: int, child: int) -> tuple[int, int]:
    """Insert a child (summary at C[SUM2]) into full node o, which becomes two new ones."""
    half = (F + 1) // 2
    cut = half - 1 if at < half else half
    a, b = new_inner(M, W, C), new_inner(M, W, C)
    append_children(M, W, o, 0, cut, a)
    append_children(M, W, o, cut, F, b)
    if at < half:
        insert_child(M, W, C, a, at, child, SUM2)
    else:
        insert_child(M, W, C, b, at - cut, child, SUM2)
    drop(M, C, Q, o, INNER)
    return a, b


@kernel
def concatenate_inners(M: Any, W: Any, C: Any, Q: Any, a: int, b: int) -> int:
    o = new_inner(M, W, C)
    append_children(M, W, a, 0, W[2 * a + 2], o)
    append_children(M, W, b, 0, W[2 * b + 2], o)
    drop(M, C, Q, a, INNER)
    drop(M, C, Q, b, INNER)
    return o


@kernel
def even_inners(M: Any, W: Any, C: Any, Q: Any, a: int, b: int) -> tuple[int, int]:
    na, nb = W[2 * a + 2], W[2 * b + 2]
    half = (na + nb) // 2
    x, y = new_inner(M, W, C), new_inner(M, W, C)
    append_children(M, W, a, 0, min(na, half), x)
    append_children(M, W, b, 0, max(0, half - na), x)
    append_children(M, W, a, min(na, half), na, y)
    append_children(M, W, b, max(0, half - na), nb, y)
    drop(M, C, Q, a, INNER)
    drop(M, C, Q, b, INNER)
    return x, y
