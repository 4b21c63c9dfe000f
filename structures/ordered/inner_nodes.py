"""Inner nodes: insert, remove and move children, with their summaries (layout: `layout.py`).

Writers own the nodes they change: they were made by the version being written. Costs: O(F).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import INNER, INNER_WORDS, SUM2, F
from structures.core.blocks import Nodes, Writing, allocate, drop, moved
from structures.core.control import VERSION
from structures.core.kernel import kernel
from structures.ordered.layout import CHILDREN, FIELDS, FIELDS32, LIVE_CHILDREN
from structures.ordered.summary import clear_child, write_child


@kernel
def new_inner(nodes: Nodes, C: Any) -> int:
    W = nodes.W
    o = allocate(nodes.M, C, INNER)
    W[2 * o + CHILDREN], W[2 * o + LIVE_CHILDREN] = 0, 0
    for c in range(F):
        clear_child(nodes, o, c)
    return o


@kernel
def move_child(nodes: Nodes, source: int, c: int, target: int, at: int) -> None:
    """Copy child c of one inner node to place `at` of another (or of itself)."""
    M, W = nodes.M, nodes.W
    for f in range(4):
        M[target + FIELDS + f * F + at] = M[source + FIELDS + f * F + c]
    for f in range(6):
        W[2 * target + FIELDS32 + f * F + at] = W[2 * source + FIELDS32 + f * F + c]
    bit = (W[2 * source + LIVE_CHILDREN] >> c) & 1
    W[2 * target + LIVE_CHILDREN] = (W[2 * target + LIVE_CHILDREN] & ~(1 << at)) | (bit << at)


@kernel
def append_children(nodes: Nodes, source: int, lo: int, hi: int, target: int) -> None:
    """Append children [lo, hi) of one inner node to another."""
    W = nodes.W
    at = W[2 * target + CHILDREN]
    for c in range(lo, hi):
        move_child(nodes, source, c, target, at + c - lo)
    W[2 * target + CHILDREN] = at + hi - lo


@kernel
def own_inner(nodes: Nodes, writing: Writing, o: int) -> int:
    """The inner node itself if this version wrote it, otherwise a copy that replaces it."""
    return o if nodes.M[o] == writing.C[VERSION] else moved_inner(nodes, writing, o)


@kernel
def moved_inner(nodes: Nodes, writing: Writing, o: int) -> int:
    """A copy that replaces the inner node."""
    return moved(nodes.M, writing, o, INNER, INNER_WORDS)


@kernel
def insert_child(nodes: Nodes, C: Any, o: int, at: int, child: int, base: int) -> None:
    """Insert a child, with the summary at C[base], into an own inner node that has room."""
    W = nodes.W
    n = W[2 * o + CHILDREN]
    for c in range(n, at, -1):
        move_child(nodes, o, c - 1, o, c)
    write_child(nodes, C, o, at, child, base)
    W[2 * o + CHILDREN] = n + 1


@kernel
def remove_child(nodes: Nodes, o: int, at: int) -> None:
    W = nodes.W
    n = W[2 * o + CHILDREN] - 1
    for c in range(at, n):
        move_child(nodes, o, c + 1, o, c)
    clear_child(nodes, o, n)
    W[2 * o + CHILDREN] = n


@kernel
def split_inner(nodes: Nodes, writing: Writing, o: int, at: int, child: int) -> tuple[int, int]:
    """Insert a child (summary at C[SUM2]) into full node o, which is replaced by two new ones."""
    C = writing.C
    half = (F + 1) // 2
    cut = half - 1 if at < half else half
    a, b = new_inner(nodes, C), new_inner(nodes, C)
    append_children(nodes, o, 0, cut, a)
    append_children(nodes, o, cut, F, b)
    if at < half:
        insert_child(nodes, C, a, at, child, SUM2)
    else:
        insert_child(nodes, C, b, at - cut, child, SUM2)
    drop(nodes.M, writing, o, INNER)
    return a, b


@kernel
def concatenate_inners(nodes: Nodes, writing: Writing, a: int, b: int) -> int:
    W, C = nodes.W, writing.C
    o = new_inner(nodes, C)
    append_children(nodes, a, 0, W[2 * a + CHILDREN], o)
    append_children(nodes, b, 0, W[2 * b + CHILDREN], o)
    drop(nodes.M, writing, a, INNER)
    drop(nodes.M, writing, b, INNER)
    return o


@kernel
def even_inners(nodes: Nodes, writing: Writing, a: int, b: int) -> tuple[int, int]:
    W, C = nodes.W, writing.C
    na, nb = W[2 * a + CHILDREN], W[2 * b + CHILDREN]
    half = (na + nb) // 2
    x, y = new_inner(nodes, C), new_inner(nodes, C)
    append_children(nodes, a, 0, min(na, half), x)
    append_children(nodes, b, 0, max(0, half - na), x)
    append_children(nodes, a, min(na, half), na, y)
    append_children(nodes, b, max(0, half - na), nb, y)
    drop(nodes.M, writing, a, INNER)
    drop(nodes.M, writing, b, INNER)
    return x, y
