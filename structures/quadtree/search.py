"""A reader's view of a quadtree, for live and compact parts alike: places (`compact.py`), their children, the entries of leaves."""

from __future__ import annotations

from typing import Any

from structures.core.bits import copy16
from structures.core.kernel import kernel, wide
from structures.quadtree.compact import compact_child, compact_mask, compact_size, copy_compact
from structures.quadtree.layout import CHILDREN, ENTRIES, HEAD, LEAF, LEAVES, QuadNodes, QuadtreeShape, is_leaf, live_child


@kernel(forceinline=True)
def ends_at(W: Any, o: int) -> bool:
    """Return whether the place is a leaf."""
    return is_leaf(W, o) if o > 0 else ~o & 1 != 0


@kernel(forceinline=True)
def child_of(nodes: QuadNodes, base: int, o: int, arity: int, c: int) -> int:
    """Return the place of child c of an inner node; 0: there is none."""
    W, compact = nodes.W, nodes.compact
    return live_child(W, o, c) if o > 0 else compact_child(compact, base, o, arity, c)


@kernel(forceinline=True)
def children_of(nodes: QuadNodes, base: int, o: int, arity: int) -> int:
    """Return the children of an inner node, as bits."""
    W, compact = nodes.W, nodes.compact
    return wide(W[2 * o + CHILDREN]) if o > 0 else compact_mask(compact, base, o, arity)


@kernel(forceinline=True)
def leads_to_leaf(W: Any, o: int, c: int, child: int) -> bool:
    """Return whether child c of an inner node, at the place `child`, is a leaf, without reading the child."""
    return (W[2 * o + LEAVES] >> c) & 1 != 0 if child > 0 else ~child & 1 != 0


@kernel
def size_of(nodes: QuadNodes, base: int, o: int) -> int:
    """Return the number of entries of a leaf."""
    W, compact = nodes.W, nodes.compact
    return wide(W[2 * o + ENTRIES]) if o > 0 else compact_size(compact, base, o)


@kernel(forceinline=True)
def copy_leaf(nodes: QuadNodes, base: int, o: int, shape: QuadtreeShape, level: int, known: int, out: Any, s: int) -> int:
    """Copy a leaf of the level to out[s], as columns of LEAF: its coordinates, then the slots. Returns the number of entries. Up to sixteen
    items behind each column are overwritten. The first `known` coordinates are omitted: the path to the leaf determines all their bits."""
    W = nodes.W
    if o < 0:
        return copy_compact(nodes, base, o, shape, level, known, out, s)
    for j in range(known, shape.arity + 1):
        copy16(out, s + j * LEAF, W, 2 * o + HEAD + j * LEAF)
    return wide(W[2 * o + ENTRIES])
