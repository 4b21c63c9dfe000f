r"""Rotations of box trees: they balance a node without a change of any tree, in O(1), or of small ones.

                o                            o              The new node of the light and the inner child has the slab of both. No tree
              /   \                        /   \            changes if the heavy node has none, and no box covers that slab: boxes that
        light       heavy      --->    (both)    outer      cover one part of it remain spanners of that part, and the points of a node
                   /     \             /    \               follow from its slab. This holds for nearly all nodes above most lengths of
               inner     outer     light    inner           boxes, as when short boxes come in the order of time. The few boxes that do
                                                            cover it become spanners of the new node (`lifting.py`).

If the inner child is too heavy, it is rotated first, in the other direction (a double rotation). Source: Nievergelt and Reingold, *Binary
Search Trees of Bounded Balance*: when a node becomes unbalanced whose children are not, one of the two balances it.
"""

from __future__ import annotations

from typing import Any

from structures.box import layout
from structures.box.layout import child_of, holder, own_child, refresh, set_child
from structures.box.lifting import have_spanners, is_liftable, lift
from structures.core.blocks import Nodes, WriteState
from structures.core.kernel import kernel


@kernel
def is_even(a: int, b: int) -> bool:
    """Whether an inner node may have children of these weights (N2)."""
    return a + b > layout.CAP // 2 and 4 * max(a, b) <= 3 * (a + b)


@kernel
def unbalanced(W: Any, o: int) -> bool:
    w = 2 * o
    if W[w + layout.FLAGS] & layout.LEAF_NODE != 0:
        return W[w + layout.WEIGHT] > layout.CAP
    return not is_even(W[2 * child_of(W, o, 0) + layout.WEIGHT], W[2 * child_of(W, o, 1) + layout.WEIGHT])


@kernel
def heavier(W: Any, o: int) -> int:
    """The heavier child of an inner node."""
    return 1 if W[2 * child_of(W, o, 1) + layout.WEIGHT] > W[2 * child_of(W, o, 0) + layout.WEIGHT] else 0


@kernel
def is_free(W: Any, C: Any, level: int, light: int, heavy: int, inner: int, wide: bool) -> bool:
    """Whether the inner child may leave the heavy node for a node with the light one: the heavy node has no trees, and no box covers the
    slabs of both the light and the inner one, because they are wide together or no set has spanners of both; or those that do are easily
    lifted."""
    h = holder(heavy, 0)
    if (W[h + layout.STATE] | W[h + layout.TREE_WORDS + layout.STATE]) & layout.ACTIVE != 0:
        return False
    for i in range(2):
        if not wide and have_spanners(W, light, inner, i) and not is_liftable(W, C, level, light, inner, i):
            return False
    return True


@kernel
def is_wide(M: Any, C: Any, level: int, slab: Any, c: int, o: int) -> bool:
    """Whether no box covers the part of a slab at the side of child c of inner node o, because it is wider than all boxes."""
    key, value, ended = M[o + layout.SEPARATOR + 1], M[o + layout.SEPARATOR], slab[layout.BEHIND if c == 1 else layout.FIRST :]
    if key != ended[0]:
        return True
    return layout.distance(min(value, ended[1]), max(value, ended[1])) > C[layout.LONGEST + level]


@kernel(allocates=True)
def rotate(nodes: Nodes, writing: WriteState, o: int, c: int, wide: bool) -> None:
    """Rotate own node o: its child c takes its place between it and the light child, and the inner child. wide: as for `is_free`."""
    M, W = nodes.M, nodes.W
    heavy, light = own_child(nodes, writing, o, c), child_of(W, o, 1 - c)
    inner = child_of(W, heavy, 1 - c)
    set_child(W, o, c, child_of(W, heavy, c))
    set_child(W, o, 1 - c, heavy)
    set_child(W, heavy, c, inner)
    set_child(W, heavy, 1 - c, light)
    for i in range(3):
        a, b = o + layout.SEPARATOR + i, heavy + layout.SEPARATOR + i
        M[a], M[b] = M[b], M[a]
    W[2 * heavy + layout.WEIGHT] = W[2 * light + layout.WEIGHT] + W[2 * inner + layout.WEIGHT]
    for i in range(2):
        if not wide and have_spanners(W, child_of(W, heavy, 1 - c), child_of(W, heavy, c), i):
            lift(nodes, writing, i, heavy, c)
    refresh(W, heavy)


@kernel(allocates=True)
def rotated(nodes: Nodes, writing: WriteState, level: int, o: int, slab: Any) -> bool:
    """Balance own node o, which has this slab, by a single or a double rotation; return whether that was possible. If o is too large to be
    rebuilt, the child that consists of the former light child and another node may remain unbalanced."""
    M, W, C = nodes.M, nodes.W, writing.C
    if W[2 * o + layout.FLAGS] & layout.LEAF_NODE != 0:
        return False
    c = heavier(W, o)
    light, heavy = child_of(W, o, 1 - c), child_of(W, o, c)
    if W[2 * heavy + layout.FLAGS] & layout.LEAF_NODE != 0:
        return False
    inner, outer = child_of(W, heavy, 1 - c), child_of(W, heavy, c)
    a, b, d = W[2 * light + layout.WEIGHT], W[2 * inner + layout.WEIGHT], W[2 * outer + layout.WEIGHT]
    is_large = W[2 * o + layout.WEIGHT] > layout.most_at_once(C, level)
    if is_even(a + b, d):
        wide = is_wide(M, C, level, slab, 1 - c, heavy)
        if not (is_large or is_even(a, b)) or not is_free(W, C, level, light, heavy, inner, wide):
            return False
        rotate(nodes, writing, o, c, wide)
        return True
    if W[2 * inner + layout.FLAGS] & layout.LEAF_NODE != 0:
        return False
    near, far = child_of(W, inner, 1 - c), child_of(W, inner, c)
    m, n = W[2 * near + layout.WEIGHT], W[2 * far + layout.WEIGHT]
    if not is_even(a + m, n + d) or not is_even(n, d) or not (is_large or is_even(a, m)):
        return False
    wide, wide_near = is_wide(M, C, level, slab, c, inner), is_wide(M, C, level, slab, 1 - c, inner)
    if not is_free(W, C, level, outer, inner, far, wide) or not is_free(W, C, level, light, heavy, near, wide_near):
        return False
    rotate(nodes, writing, own_child(nodes, writing, o, c), 1 - c, wide)
    rotate(nodes, writing, o, c, wide_near)
    return True
