"""Inner nodes: children are moved with their summaries (layout: `layout.py`).

Writers own the nodes they change: they were made by the version being written. Costs: O(F).
"""

from __future__ import annotations

from typing import Any

from structures.btree.nodes import Kind, moving, shifting
from structures.core.arena import INNER, INNER_WORDS, F
from structures.core.blocks import Nodes, WriteState, allocate, drop, moved
from structures.core.control import VERSION
from structures.core.kernel import kernel, wide
from structures.ordered.layout import CHILDREN, FIELDS, FIELDS32, LIVE_CHILDREN, OrderedTree
from structures.ordered.summary import clear_child


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
def move_children(tree: OrderedTree, source: int, low: int, high: int, target: int, at: int) -> None:
    """Copy children [low, high) of one inner node to place `at` of another, or of itself."""
    for i in range(high - low):
        c = high - low - 1 - i if at > low else i
        move_child(tree.nodes, source, low + c, target, at + c)


@kernel
def resize_inner(tree: OrderedTree, o: int, n: int) -> None:
    W = tree.nodes.W
    for c in range(n, W[2 * o + CHILDREN]):
        clear_child(tree.nodes, o, c)
    W[2 * o + CHILDREN] = n


@kernel
def own_inner(nodes: Nodes, writing: WriteState, o: int) -> int:
    """The inner node itself if this version wrote it, otherwise a copy that replaces it."""
    return o if nodes.M[o] == writing.C[VERSION] else moved(nodes.M, writing, o, INNER, INNER_WORDS)


_new = kernel(lambda tree, o: new_inner(tree.nodes, tree.writing.C))
_size = kernel(lambda tree, o: wide(tree.nodes.W[2 * o + CHILDREN]))
open_child, close_child = shifting(_size, resize_inner, move_children)
INNER_KIND = Kind(
    _new,
    kernel(lambda tree, o: drop(tree.nodes.M, tree.writing, o, INNER)),
    _size,
    kernel(lambda tree: F),
    kernel(lambda tree: 2),
    *moving(_size, resize_inner, move_children),
)
